"""Where a study stands, from its folder alone."""

from __future__ import annotations

import time
from typing import Any

from autorl.optimizers.model_share import share_dict, share_text
from autorl.plain_text import printable
from autorl.report.reading import StudyView
from autorl.report.text import against_default, interval_text, number, result_dict, seeds_text
from autorl.spec import Spec
from autorl.store.sessions import changes_text
from autorl.store.tables import Failure
from autorl.study import Result
from autorl.study.budget import Spent

UNSPENT = (
    "the search ended before its budget was used: by `autorl test` (`autorl resume --runs +N` opens it again), or "
    "because the optimizer had nothing more to propose (then a larger plan needs a new study)"
)
_LATEST = 5  # failures shown


def status_dict(view: StudyView, now: float | None = None) -> dict[str, Any]:
    """The state of a study as JSON types; `now` is a time as of `time.time()`."""
    return _facts(view, None if view.record.best is None else view.result(), now)


def _facts(view: StudyView, result: Result | None, now: float | None) -> dict[str, Any]:
    record = view.record
    best, spent = record.best, record.spent
    failures = view.failures()
    share = view.record.share
    found = {} if result is None else result_dict(result)
    return {
        "folder": str(view.folder),
        "name": view.spec.name,
        "trainers": [trainer.name for trainer in view.spec.trainers.values()],
        "environment": view.spec.environment.id,
        "optimizer": view.spec.optimizer.name,
        "state": state(view),
        "driver": view.holder(),
        "proposals": view.counts(),
        "new_configurations": None
        if share is None
        else share_dict(share, learns=view.record.optimizer_learns),
        "budget_used": min(1.0, spent.budget_used(view.spec)),
        "tuning_steps": spent.charged_steps,
        "trained_tuning_steps": _trained(view),
        "test": found.get("test"),
        "problem": found.get("problem"),
        "gap": found.get("gap"),
        "incumbent": None
        if best is None
        else {
            "proposal": best,
            "tuning": view.tuning_score(best),
            "n_seeds": record.n_seeds(best),
        },
        "model": "" if result is None else str(result.steps),
        "beyond_budget_steps": 0 if result is None else result.beyond,
        "unscored": record.tables.pending(),
        "test_runs": dict(zip(("done", "planned"), record.test_progress, strict=True)),
        "last_event": None
        if view.last is None
        else {
            "kind": view.last.kind,
            "seconds_ago": max(0.0, (now or time.time()) - view.last.time),
        },
        "failures": [failure._asdict() for failure in failures],
        "lost_workers": view.lost(),
        "warnings": _warnings(view, result),
    }


def status_text(view: StudyView, now: float | None = None) -> str:
    """The same as a screen of text."""
    result = None if view.record.best is None else view.result()
    facts = _facts(view, result, now)
    counts = (
        ", ".join(f"{count} {kind}" for kind, count in facts["proposals"].items()) or "none yet"
    )
    if (share := view.record.share) is not None and share.new:
        counts += f"; {share_text(share, learns=view.record.optimizer_learns)}"
    rows = [
        (
            "study",
            f"{facts['name']}: {', '.join(facts['trainers'])} on {facts['environment'] or 'its own task'}",
        ),
        ("state", _state_text(view, facts["state"])),
        *_test_rows(result),
        ("incumbent", _incumbent_text(facts["incumbent"])),
        *([("model", facts["model"])] if facts["model"] else []),
        ("optimizer", facts["optimizer"]),
        ("budget used", _budget_text(facts)),
        ("proposals", counts),
        ("unscored", ", ".join(map(str, facts["unscored"])) or "none"),
        ("test runs", "{done} of {planned}".format(**facts["test_runs"])),
    ]
    if facts["last_event"] is not None:
        rows.append(
            (
                "last event",
                f"{facts['last_event']['kind']}, {_ago(facts['last_event']['seconds_ago'])} ago",
            )
        )
    rows += _failure_rows(view.failures(), facts["lost_workers"])
    rows += [("warning", text) for text in facts["warnings"]]
    width = max(len(name) for name, _ in rows)
    return "\n".join(
        printable(f"{name.ljust(width)}  {text}", keep_lines=False) for name, text in rows
    )


def state(view: StudyView) -> str:
    """`running`, `finished`, or `stopped` (interrupted or killed)."""
    if view.holder() is not None:
        return "running"
    return "finished" if view.finished else "stopped"


def warnings(view: StudyView) -> list[str]:
    """What somebody who reads the study's numbers must know."""
    return _warnings(view, None if view.record.best is None else view.result())


def _warnings(view: StudyView, result: Result | None) -> list[str]:
    found = [] if result is None else [*result.caveats, *against_default(result)]
    if (changed := changes_text(view.record.tables.sessions())) is not None:
        found.append(changed)
    if view.finished and not used_up(view.spec, view.record.spent):
        found.append(UNSPENT)
    return list(
        dict.fromkeys([*found, *view.notes()])
    )  # what is noted of data is a caveat of the result too


def used_up(spec: Spec, spent: Spent) -> bool:
    """Whether the rest of the budget pays for nothing more: less than one full run on the first seeds."""
    if spec.budget.configurations is not None or spec.budget.hours is not None:
        return spent.budget_used(spec) >= 1
    return spent.budget_steps(spec) - spent.charged_steps < spec.fidelity.steps * len(
        spec.policy().first
    )


def _trained(view: StudyView) -> int:
    """Steps trained on tuning seeds so far."""
    trained = view.record.tables.training_by("seed_role").get("tuning")
    return int(trained.environment_steps) if trained is not None else 0


def _state_text(view: StudyView, name: str) -> str:
    if name == "running":
        return f"running ({view.holder()})"
    if name == "finished":
        return "finished"
    return f"stopped: go on with `autorl resume {view.folder}`"


def _test_rows(result: Result | None) -> list[tuple[str, str]]:
    """The number to report and the gap to the tuning score; nothing before there is one."""
    test = None if result is None else result.test
    if result is None or test is None:
        return (
            [("test score", f"none: {result.problem}")]
            if result is not None and result.problem
            else []
        )
    interval = f", 95 % {interval_text(test.iqm_interval)}" if test.iqm_interval else ""
    return [
        ("test score", f"{number(test.iqm)} (IQM){interval}, {seeds_text(test)}"),
        (
            "gap",
            f"{number(result.gap)}: tuning minus test score ({result.aggregate}), larger = more over-tuned",
        ),
    ]


def _budget_text(facts: dict[str, Any]) -> str:
    """The share that is charged, when proposed and in nominal steps, and what was trained where that differs."""
    charged, trained = facts["tuning_steps"], facts["trained_tuning_steps"]
    steps = f"{charged:,} tuning steps"
    if trained != charged:
        steps = f"{charged:,} nominal tuning steps, {trained:,} trained"
    beyond = facts["beyond_budget_steps"]
    more = f", and {beyond:,} beyond it for the default configuration" if beyond else ""
    return f"{facts['budget_used']:.0%} ({steps}){more}"


def _incumbent_text(incumbent: dict[str, Any] | None) -> str:
    if incumbent is None:
        return "none yet"
    score, seeds = number(incumbent["tuning"]), incumbent["n_seeds"]
    return f"proposal {incumbent['proposal']}: {score} on {seeds} tuning seeds (optimistic: chosen by it)"


def _failure_rows(failures: list[Failure], lost: int) -> list[tuple[str, str]]:
    rows = [("failures", f"{len(failures)} segments" if failures else "none")]
    rows += [
        (
            "",
            f"proposal {one.proposal}, seed {one.seed}: {one.kind}: {one.message}" + _log_hint(one),
        )
        for one in failures[-_LATEST:]
    ]
    if lost:
        rows.append(("lost workers", f"{lost}, their segments were handed out again"))
    return rows


def _log_hint(failure: Failure) -> str:
    return f" (logs/{failure.segment}.log)"


def _ago(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"
