"""Writes where a study stands, from its folder alone."""

from __future__ import annotations

import time
from typing import Any

from autorl.core.plain_text import counted, number
from autorl.core.types import SearchEnd
from autorl.optimizers.model_share import share_dict, share_text
from autorl.report.reading import StudyView
from autorl.report.table import aligned
from autorl.report.text import against_default, iqm_cells, result_dict
from autorl.store.events import SearchGivenUp, SegmentLost
from autorl.store.log import Latest
from autorl.store.sessions import changes_text
from autorl.study.budget import MEASURED_BY_SEGMENT, MEASURED_NOUNS, Spent
from autorl.study.results.cautions import loss_cautions, refund_cautions
from autorl.study.results.record import StudyRecord, search_end_text
from autorl.study.spec import Spec
from autorl.trainers import installed_info

_LATEST = 5
"""Failures shown."""


def status_dict(view: StudyView) -> dict[str, Any]:
    """Return the state of a study as JSON types."""
    record = view.record
    result = view.found
    numbers = {} if result is None else result_dict(result)
    tested, planned = record.test_progress
    return {
        "folder": str(view.folder),
        "name": view.spec.name,
        "note": view.spec.note,
        "trainers": [trainer.name for trainer in view.spec.trainers.values()],
        "environment": view.spec.task_names,
        "optimizer": view.spec.optimizer.name,
        "state": state(view),
        "search_end": record.search_end,
        "driver": view.holder,
        "proposals": record.tables.count_proposals(),
        "new_configurations": share_dict(record.share, learns=record.optimizer_learns),
        "budget_used": _budget_used(view),
        "tuning_steps": record.spent.charged_steps,
        "trained_tuning_steps": _trained_steps(record),
        **{key: numbers.get(key) for key in ("test", "problem", "gap")},
        "incumbent": result
        and {
            "proposal": result.incumbent.proposal,
            "tuning": result.tuning,
            "n_seeds": result.tuning_seeds,
        },
        "model": "" if result is None else str(result.steps),
        "beyond_budget_steps": 0 if result is None else result.beyond,
        "unscored": record.tables.pending(),
        "test_runs": {"done": tested, "planned": planned},
        "workers_busy": _busy(record),
        "last_event": view.last
        and {"kind": view.last.kind, "seconds_ago": _seconds_ago(view.last)},
        "failures": [failure._asdict() for failure in record.tables.failures()],
        "lost_workers": record.tables.count_events(SegmentLost),
        "warnings": warnings(view),
    }


def _budget_used(view: StudyView) -> float:
    # Racing charges further seeds above the budget.
    return min(1.0, view.record.spent.budget_used(view.spec))


def _trained_steps(record: StudyRecord) -> int:
    trained = record.tables.training_by("seed_role").get("tuning")
    return 0 if trained is None else int(trained.environment_steps)


def _busy(record: StudyRecord) -> dict[str, Any] | None:
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


def status_text(view: StudyView) -> str:
    """Write the same as a screen of text."""
    rows = status_rows(view)
    if view.last is not None:
        rows.append(("last event", last_event_text(view.last)))
    rows += failure_rows(view)
    rows += [("warning", text) for text in warnings(view)]
    return "\n".join(aligned(rows))


def status_rows(view: StudyView) -> list[tuple[str, str]]:
    """Write names and texts of where a study stands.

    Facts that depend on the time are left out, and so are failures and warnings.
    """
    record = view.record
    spec = view.spec
    result = view.found
    stands = state(view)
    if stands == "running":
        stands = f"running ({view.holder})"
    elif stands == "stopped":
        why = ""
        if view.last is not None and view.last.kind == SearchGivenUp.kind:
            why = f" because {record.events(SearchGivenUp)[-1].message}"
        stands = f"stopped{why}: go on with `autorl resume {view.folder}`"
    counts = ", ".join(f"{count} {kind}" for kind, count in record.tables.count_proposals().items())
    if record.share.new:
        counts += f"; {share_text(record.share, learns=record.optimizer_learns)}"
    best = "none yet"
    if result is not None:
        score = f"{number(result.tuning)} on {result.tuning_text} (optimistic: chosen by it)"
        best = f"proposal {result.incumbent.proposal}: {score}"
    unscored = ", ".join(f"proposal {proposal}" for proposal in record.tables.pending())
    busy = _busy(record)
    scores = dict.fromkeys(("test score", "gap", "test seeds"), "")
    if result is not None and result.test is not None:
        gap = f"{number(result.gap)}: tuning minus test score ({result.aggregate})"
        value, *remarks = iqm_cells(result.test)
        scores = {
            "test score": ", ".join([f"{value} (IQM)", *filter(None, remarks)]),
            "gap": f"{gap}, larger = more over-tuned",
            "test seeds": result.loss,
        }
    elif result is not None and result.problem:
        scores["test score"] = f"none: {result.problem}"
    rows = {
        "study": f"{spec.name}: {spec.trainer_names} on {spec.task_names or 'its own task'}",
        "note": spec.note,
        "state": stands,
        "search ended": record.search_end_text,
        **scores,
        "incumbent": best,
        "model": "" if result is None else str(result.steps),
        "optimizer": spec.optimizer.name,
        "budget used": _budget_text(view),
        "proposals": counts or "none yet",
        "unscored": unscored or "none",
        "test runs": "{} of {}".format(*record.test_progress),
        "workers busy": ""
        if busy is None
        else "{share:.0%} of the time of {workers}, by segments that have ended".format(**busy),
    }
    return [(name, text) for name, text in rows.items() if text]


def last_event_text(last: Latest) -> str:
    """Say what was recorded last, and how long ago."""
    return f"{last.kind}, {duration_text(_seconds_ago(last))} ago"


def _seconds_ago(last: Latest) -> float:
    # Clocks of two machines may differ, and no event is in the future.
    return max(0.0, time.time() - last.time)


def state(view: StudyView) -> str:
    """Return `running`, `finished`, or `stopped` (interrupted or killed)."""
    # A driver that was killed leaves its lock file, but not its lock.
    if view.holder is not None:
        return "running"
    return "finished" if view.finished else "stopped"


def warnings(view: StudyView) -> list[str]:
    """Collect what somebody who reads the study's numbers must know."""
    result = view.found
    texts = [] if result is None else [*result.caveats, *against_default(result)]
    texts += [*loss_cautions(view.record), *refund_cautions(view.record)]
    texts.append(changes_text(view.record.tables.sessions()) or "")
    if view.finished:
        texts.append(unspent(view.spec, view.record.search_end, view.record.spent))
    # Notes about data are cautions of the result too.
    return [text for text in dict.fromkeys([*texts, *view.record.tables.notes()]) if text]


def unspent(spec: Spec, why: SearchEnd | None, spent: Spent) -> str:
    """Say why the search left budget for another full run.

    Empty while it is open, and where nothing can be done: the time is up, or the next proposal
    costs more than a full run.
    """
    if why not in (SearchEnd.OPTIMIZER, SearchEnd.TEST) or used_up(spec, spent):
        return ""
    used = spent.budget_used(spec)
    unused = f"{1 - used:.0%} of the budget is unused: {search_end_text(why, spec, used)}"
    if why is SearchEnd.OPTIMIZER:
        return f"{unused}; a larger plan needs a new study"
    extensible = spec.budget.runs is not None or spec.budget.configurations is not None
    return f"{unused} (`autorl resume --runs +N` opens it again)" if extensible else unused


def used_up(spec: Spec, spent: Spent) -> bool:
    """Say whether the rest of the budget pays for no full run.

    A full run is one on the first seeds.
    """
    run = spec.fidelity.steps * len(spec.policy().first)
    if spec.budget.measured in MEASURED_BY_SEGMENT:
        return spent.after(run).budget_used(spec) > 1
    if spec.budget.configurations is not None or spec.budget.hours is not None:
        return spent.budget_used(spec) >= 1
    return spent.budget_steps(spec) - spent.charged_steps < run


def _budget_text(view: StudyView) -> str:
    """Write the share that is charged, and what was trained.

    Steps are charged when proposed, and nominal; those trained are said where they differ.
    """
    spent = view.record.spent
    charged = spent.charged_steps
    trained = _trained_steps(view.record)
    steps = counted(charged, "tuning step", form=",")
    if trained != charged:
        steps = f"{counted(charged, 'nominal tuning step', form=',')} charged, {trained:,} trained"
    beyond = 0 if view.found is None else view.found.beyond
    more = f", and {beyond:,} beyond it for the default configuration" if beyond else ""
    if (measured := view.spec.budget.measured) in MEASURED_BY_SEGMENT:
        steps = f"{counted(spent.used, MEASURED_NOUNS[measured], form=',.6g')}, {steps}"
    return f"{_budget_used(view):.0%} ({steps}){more}"


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
