"""Writes where a study stands, from its folder alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from autorl.core.plain_text import counted, number, printable
from autorl.core.types import SearchEnd
from autorl.optimizers.model_share import share_dict, share_text
from autorl.report.reading import StudyView
from autorl.report.text import against_default, interval_text, result_dict, seeds_text
from autorl.statistics.coverage import level_text
from autorl.store.events import SearchGivenUp, SegmentLost
from autorl.store.log import Latest
from autorl.store.sessions import changes_text
from autorl.study import Result
from autorl.study.budget import Spent
from autorl.study.results.cautions import loss_cautions, refund_cautions
from autorl.study.results.record import StudyRecord, unspent_text
from autorl.study.spec import Spec
from autorl.trainers import installed_info

_LATEST = 5
"""Failures shown."""


def status_dict(view: StudyView, now: float | None = None) -> dict[str, Any]:
    """Return the state of a study as JSON types.

    `now` is a time as of `time.time()`.
    """
    return _facts(view, _result(view), now)


def _result(view: StudyView) -> Result | None:
    """Read the result as it stands.

    Returns:
        None before anything was scored.
    """
    return None if view.record.best is None else view.result()


def _facts(view: StudyView, result: Result | None, now: float | None) -> dict[str, Any]:
    record = view.record
    spent = record.spent
    numbers = {} if result is None else result_dict(result)
    tested, planned = record.test_progress
    trained = record.tables.training_by("seed_role").get("tuning")
    last_event = None
    if view.last is not None:
        # Clocks of two machines may differ, and no event is in the future.
        seconds = max(0.0, (now or time.time()) - view.last.time)
        last_event = {"kind": view.last.kind, "seconds_ago": seconds}
    return {
        "folder": str(view.folder),
        "name": view.spec.name,
        "note": view.spec.note,
        "trainers": [trainer.name for trainer in view.spec.trainers.values()],
        "environment": view.spec.environment.id,
        "optimizer": view.spec.optimizer.name,
        "state": state(view),
        "search_end": record.search_end,
        "driver": view.holder,
        "proposals": record.tables.count_proposals(),
        "new_configurations": share_dict(record.share, learns=record.optimizer_learns),
        # Racing charges further seeds above the budget.
        "budget_used": min(1.0, spent.budget_used(view.spec)),
        "tuning_steps": spent.charged_steps,
        "trained_tuning_steps": 0 if trained is None else int(trained.environment_steps),
        "test": numbers.get("test"),
        "problem": numbers.get("problem"),
        "gap": numbers.get("gap"),
        "incumbent": _incumbent_dict(record),
        "model": "" if result is None else str(result.steps),
        "beyond_budget_steps": 0 if result is None else result.beyond,
        "unscored": record.tables.pending(),
        "test_runs": {"done": tested, "planned": planned},
        "workers_busy": busy_dict(record),
        "last_event": last_event,
        "failures": [failure._asdict() for failure in record.tables.failures()],
        "lost_workers": record.tables.count_events(SegmentLost),
        "warnings": _warnings(view, result),
    }


def busy_dict(record: StudyRecord) -> dict[str, Any] | None:
    """Measure how busy the workers were, by the segments that have ended.

    Returns:
        None before anything took time, or where the number of workers is not known.
    """
    sessions = record.tables.sessions()
    spec = record.spec
    executors: list[str] = [installed_info(item.name).executor for item in spec.trainers.values()]
    workers = spec.executor.workers or (sessions[-1].get("cores") if sessions else None)
    if (spec.executor.name or executors[0]) == "in_process":
        workers = 1
    seconds = sum(taken.wall_seconds for taken in record.tables.training_by("seed_role").values())
    elapsed = record.hours * 3600
    if not workers or elapsed <= 0 or seconds <= 0:
        return None
    # Seconds of a segment begin a little before its process does and may overlap its successor's.
    return {"share": min(1.0, seconds / (workers * elapsed)), "workers": workers}


def _incumbent_dict(record: StudyRecord) -> dict[str, Any] | None:
    """Describe the best proposal so far and its tuning score."""
    best = record.best
    if best is None:
        return None
    return {"proposal": best, "tuning": record.tuning_score(best), "n_seeds": record.n_seeds(best)}


def status_text(view: StudyView, now: float | None = None) -> str:
    """Write the same as a screen of text."""
    rows = status_rows(view)
    if view.last is not None:
        rows.append(("last event", last_event_text(view.last, now)))
    rows += failure_rows(view)
    rows += [("warning", text) for text in warnings(view)]
    return "\n".join(aligned(rows))


def aligned(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Lay names and texts out in lines.

    A terminal obeys no character of them.
    """
    width = max(len(name) for name, _ in rows)
    lines = [f"{name.ljust(width)}  {text}" for name, text in rows]
    return [printable(line, keep_lines=False) for line in lines]


def status_rows(view: StudyView) -> list[tuple[str, str]]:
    """Write names and texts of where a study stands.

    Facts that depend on the time are left out, and so are failures and warnings.
    """
    result = _result(view)
    facts = _facts(view, result, None)
    environment = facts["environment"] or "its own task"
    counts = ", ".join(f"{count} {kind}" for kind, count in facts["proposals"].items())
    counts = counts or "none yet"
    stands = facts["state"]
    if stands == "running":
        stands = f"running ({facts['driver']})"
    elif stands == "stopped":
        stands = f"stopped{_given_up(view)}: go on with `autorl resume {view.folder}`"
    share = view.record.share
    if share.new:
        counts += f"; {share_text(share, learns=view.record.optimizer_learns)}"
    unscored = ", ".join(f"proposal {proposal}" for proposal in facts["unscored"])
    rows = [
        ("study", f"{facts['name']}: {', '.join(facts['trainers'])} on {environment}"),
        *([("note", facts["note"])] if facts["note"] else []),
        ("state", stands),
        *([("search ended", ended)] if (ended := view.record.search_end_text) else []),
        *_test_rows(result),
        ("incumbent", _incumbent_text(facts["incumbent"])),
        *([("model", facts["model"])] if facts["model"] else []),
        ("optimizer", facts["optimizer"]),
        ("budget used", _budget_text(facts)),
        ("proposals", counts),
        ("unscored", unscored or "none"),
        ("test runs", "{done} of {planned}".format(**facts["test_runs"])),
    ]
    busy = facts["workers_busy"]
    if busy is not None:
        busy_text = f"{busy['share']:.0%} of the time of {busy['workers']}"
        rows.append(("workers busy", f"{busy_text}, by segments that have ended"))
    return rows


def last_event_text(last: Latest, now: float | None = None) -> str:
    """Say what was recorded last, and how long ago.

    `now` is a time as of `time.time()`.
    """
    # Clocks of two machines may differ, and no event is in the future.
    return f"{last.kind}, {duration_text(max(0.0, (now or time.time()) - last.time))} ago"


def state(view: StudyView) -> str:
    """Return `running`, `finished`, or `stopped` (interrupted or killed)."""
    # A driver that was killed leaves its lock file, but not its lock.
    if view.holder is not None:
        return "running"
    return "finished" if view.finished else "stopped"


def _given_up(view: StudyView) -> str:
    """Say that the session has ended because nothing could be trained."""
    if view.last is None or view.last.kind != SearchGivenUp.kind:
        return ""
    return f" because {view.record.events(SearchGivenUp)[-1].message}"


def warnings(view: StudyView) -> list[str]:
    """Collect what somebody who reads the study's numbers must know."""
    return _warnings(view, _result(view))


def _warnings(view: StudyView, result: Result | None) -> list[str]:
    texts = [] if result is None else [*result.caveats, *against_default(result)]
    texts += [*loss_cautions(view.record), *refund_cautions(view.record)]
    changed = changes_text(view.record.tables.sessions())
    if changed is not None:
        texts.append(changed)
    if view.finished:
        texts.append(unspent(view.spec, view.record.search_end, view.record.spent))
    # What is noted of data is a caution of the result too.
    return [text for text in dict.fromkeys([*texts, *view.record.tables.notes()]) if text]


def unspent(spec: Spec, why: SearchEnd | None, spent: Spent) -> str:
    """Say why the search left budget for another full run.

    Empty while it is open, and where there is nothing to be said.
    """
    if why is None or used_up(spec, spent):
        return ""
    return unspent_text(why, spec, spent.budget_used(spec))


def used_up(spec: Spec, spent: Spent) -> bool:
    """Say whether the rest of the budget pays for no full run.

    A full run is one on the first seeds.
    """
    if spec.budget.configurations is not None or spec.budget.hours is not None:
        return spent.budget_used(spec) >= 1
    run = spec.fidelity.steps * len(spec.policy().first)
    return spent.budget_steps(spec) - spent.charged_steps < run


def _test_rows(result: Result | None) -> list[tuple[str, str]]:
    """Write the number to report and the gap to the tuning score.

    Returns:
        Empty before the test.
    """
    if result is None:
        return []
    test = result.test
    if test is None:
        return [("test score", f"none: {result.problem}")] if result.problem else []
    interval = (
        f", {level_text('iqm', len(test.seeds))}{interval_text(test.iqm_interval)}"
        if test.iqm_interval
        else ""
    )
    gap = f"{number(result.gap)}: tuning minus test score ({result.aggregate})"
    return [
        ("test score", f"{number(test.iqm)} (IQM){interval}, {seeds_text(test)}"),
        ("gap", f"{gap}, larger = more over-tuned"),
        *([("test seeds", result.loss)] if result.loss else []),
    ]


def _budget_text(facts: dict[str, Any]) -> str:
    """Write the share that is charged, and what was trained.

    Steps are charged when proposed, and nominal; those trained are said where they differ.
    """
    charged = facts["tuning_steps"]
    trained = facts["trained_tuning_steps"]
    steps = counted(charged, "tuning step", form=",")
    if trained != charged:
        steps = f"{counted(charged, 'nominal tuning step', form=',')} charged, {trained:,} trained"
    beyond = facts["beyond_budget_steps"]
    more = f", and {beyond:,} beyond it for the default configuration" if beyond else ""
    return f"{facts['budget_used']:.0%} ({steps}){more}"


def _incumbent_text(incumbent: dict[str, Any] | None) -> str:
    if incumbent is None:
        return "none yet"
    score = f"{number(incumbent['tuning'])} on {counted(incumbent['n_seeds'], 'tuning seed')}"
    return f"proposal {incumbent['proposal']}: {score} (optimistic: chosen by it)"


def failure_rows(view: StudyView) -> list[tuple[str, str]]:
    """Write names and texts of the latest failures."""
    failures = view.record.tables.failures()
    lost = view.record.tables.count_events(SegmentLost)
    rows = [("failures", counted(len(failures), "segment") if failures else "none")]
    rows += [
        (
            "",
            f"proposal {failure.proposal}, seed {failure.seed}: {failure.kind}: {failure.message} "
            f"(logs/{failure.segment}.log)",
        )
        for failure in failures[-_LATEST:]
    ]
    if lost:
        rows.append(("lost workers", f"{lost}, their segments were handed out again"))
    return rows


def duration_text(seconds: float) -> str:
    """Word a duration: `45 s`, `12 min`, `3.5 h`, `4 days`."""
    # In seconds: a minute and a half, an hour and a half, two days.
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"
