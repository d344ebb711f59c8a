"""What a study would do before it does it: the driver itself runs in memory, on random scores instead of training.

Counts are exact where they do not depend on scores (full-length runs, fixed seeds); with rungs, racing or populations
they are those of one run on random scores, and the plan says so.
"""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np

from autorl.report.text import columns
from autorl.spec import OptimizerSection, Spec
from autorl.store import Store
from autorl.store.store import DATABASE
from autorl.study import Study
from autorl.study.study import check, make_optimizer, trainer_loader
from autorl.types import Checkpoint, Outcome, Report, Segment, Status

_MODELS = frozenset({"tpe", "gp", "cmaes", "nsga2", "smac"})  # propose full-length runs, at a cost; counts are random's
_STOP_OPTIONS = frozenset({"grace", "peers"})
_MOST_SEGMENTS = 20_000


@dataclass(frozen=True)
class Phase:
    """Work of the search or of the test phase: proposals, segments, nominal environment steps, evaluations."""

    proposals: int
    segments: int
    steps: int
    evaluations: int


@dataclass(frozen=True)
class Estimate:
    """A time, in seconds, and what it was measured on."""

    seconds: float
    source: str


@dataclass(frozen=True)
class Plan:
    """What `autorl tune` would run.

    Attributes:
        search: the work of the search; `exact`: whether it does not depend on scores.
        test: the work of the test phase at most (candidates may coincide).
        open_ended: the budget is in hours: the counts are those of one proposal.
        cut: the simulation was stopped after so many segments; the study is larger.
        rungs: steps at which runs are cut; empty without.
        checkpoints: how many outlive the study, at most.
        time: None = unknown.
    """

    spec: Spec
    search: Phase
    test: Phase
    exact: bool
    open_ended: bool
    cut: bool
    rungs: tuple[int, ...]
    checkpoints: int
    workers: int
    time: Estimate | None


def make_plan(spec: Spec, folder: Path | None = None) -> Plan:
    """Check a study as `tune` would and count its work; nothing is written.

    `folder`: where the study would be kept; studies beside it are looked at for the speed of the same trainer and
    environment.

    Raises:
        InputError: what `tune` would raise.
    """
    load = trainer_loader(spec)
    check(spec, load)
    open_ended = spec.budget.hours is not None
    light = _light(spec, open_ended)
    study = Study(light, Store.in_memory(), load)
    tally = _Tally(light, _MOST_SEGMENTS)
    cut = False
    while segments := study.driver.advance():
        for segment in segments:
            study.record(tally.take(segment))
        if tally.full:
            cut = True
            break
    partial = bool(getattr(make_optimizer(light, load), "partial", False))
    rungs = _rungs(spec, tally)
    search, test = tally.phase("tuning"), _test_phase(spec, len(rungs) or 1)
    workers = spec.executor.workers or os.cpu_count() or 1
    steps = search.steps + test.steps
    return Plan(
        spec=spec,
        search=search,
        test=test,
        exact=not partial and spec.evaluation.seeds == "fixed" and not (open_ended or cut),
        open_ended=open_ended,
        cut=cut,
        rungs=rungs,
        checkpoints=_kept(spec, test, search),
        workers=workers,
        time=None if open_ended or cut else estimate_time(spec, steps, workers, folder),
    )


def plan_text(plan: Plan) -> str:
    """The plan as a screen of text."""
    spec = plan.spec
    about = "" if plan.exact else "about "
    rows = [
        ("study", f"{spec.name}: {', '.join(trainer.name for trainer in spec.trainers.values())}"),
        ("environment", spec.environment.id or "the trainer's own"),
        ("space", f"{len(spec.search_space)} hyperparameters: {', '.join(spec.search_space.names)}"),
        ("optimizer", _optimizer_text(spec)),
        ("objective", ", ".join(f"{one.label}, {one.direction}" for one in spec.objectives())),
        ("tuning seeds", f"{list(spec.plan.tuning)}, {_seeds_text(spec)}"),
        ("budget", _budget_text(spec)),
        (
            "proposals",
            f"{about}{plan.search.proposals} in {plan.search.segments} segments"
            if not plan.open_ended
            else "as many as the hours allow",
        ),
        (
            "steps of a run",
            f"{spec.fidelity.steps}, evaluated {len(spec.evaluation_steps)} times, "
            f"{spec.fidelity.episodes} episodes each",
        ),
    ]
    if plan.rungs:
        rows.append(("rungs", f"runs are cut at steps {', '.join(map(str, plan.rungs))}"))
    rows += _test_rows(plan)
    if not plan.open_ended:
        total = plan.search.steps + plan.test.steps
        rows.append(
            (
                "environment steps",
                f"at most {about}{total:,}: {plan.search.steps:,} search + at most {plan.test.steps:,} test",
            )
        )
        rows.append(("evaluations", f"{about}{plan.search.evaluations + plan.test.evaluations:,}"))
    rows.append(("workers", str(plan.workers)))
    rows.append(("time", _time_text(plan)))
    limit = spec.limits.disk_gb
    rows.append(
        (
            "checkpoints",
            f"keep: {spec.keep.checkpoints}; at most {plan.checkpoints} outlive the study"
            + (f"; the study stops at {limit:g} GiB" if limit is not None else ""),
        )
    )
    if spec.indeterminate:
        rows.append(("caution", f"another run may give another table: {spec.indeterminate}"))
    notes = _notes(plan)
    return "\n".join([columns(("dry run", "nothing is written"), rows, indent=""), *notes])


def plan_dict(plan: Plan) -> dict[str, object]:
    """The plan as JSON types."""
    spec = plan.spec
    return {
        "name": spec.name,
        "trainers": [trainer.name for trainer in spec.trainers.values()],
        "environment": spec.environment.id,
        "optimizer": spec.optimizer.name,
        "seeds": {"tuning": list(spec.plan.tuning), "test": list(spec.plan.test)},
        "steps_of_a_run": spec.fidelity.steps,
        "evaluations_of_a_run": len(spec.evaluation_steps),
        "rungs": list(plan.rungs),
        "exact": plan.exact,
        "open_ended": plan.open_ended,
        "search": vars(plan.search),
        "test": vars(plan.test),
        "environment_steps": None if plan.open_ended else plan.search.steps + plan.test.steps,
        "workers": plan.workers,
        "seconds": plan.time.seconds if plan.time else None,
        "seconds_from": plan.time.source if plan.time else None,
        "checkpoints": {"keep": spec.keep.checkpoints, "at_most": plan.checkpoints},
    }


def estimate_time(spec: Spec, steps: int, workers: int, folder: Path | None) -> Estimate | None:
    """Seconds the steps take at the speed of studies beside `folder`; None when none trained the same thing."""
    if folder is None or not folder.parent.is_dir():
        return None
    wanted = {trainer.name for trainer in spec.trainers.values()}
    for sibling in sorted(folder.parent.iterdir(), reverse=True):
        speeds = _speeds(sibling / DATABASE, spec.environment.id) if (sibling / DATABASE).is_file() else {}
        if wanted <= set(speeds):
            slowest = min(speeds[name] for name in wanted)
            return Estimate(steps / (slowest * workers), f"{sibling}: {slowest:,.0f} steps per second and worker")
    return None


def _speeds(database: Path, environment: str | None) -> dict[str, float]:
    """Environment steps per second of training, by trainer, in a study's database."""
    try:
        connection = sqlite3.connect(f"file:{quote(str(database.resolve()))}?mode=ro", uri=True)
        rows = connection.execute(
            "SELECT algorithm, SUM(environment_steps), SUM(wall_seconds) FROM runs WHERE environment IS ? "
            "GROUP BY algorithm",
            (environment,),
        ).fetchall()
        connection.close()
    except sqlite3.Error:  # not a study that can be read: no measurement
        return {}
    return {name: steps / seconds for name, steps, seconds in rows if steps and seconds > 0.01}


class _Tally:
    """Answers segments with random scores and counts them."""

    def __init__(self, spec: Spec, most: int) -> None:
        self._metrics = [one.metric for one in spec.objective] + [one.metric for one in spec.constraints]
        self._rng = np.random.default_rng(spec.seed)
        self._most = most
        self.segments: list[Segment] = []
        self._seen: dict[str, set[str]] = {"tuning": set(), "test": set()}

    def take(self, segment: Segment) -> Outcome:
        self.segments.append(segment)
        self._seen[segment.role].add(segment.id.split(".")[0])
        reports = tuple(
            Report(segment.id, step, {name: float(self._rng.random()) for name in self._metrics})
            for step in segment.evaluate_at
        )
        return Outcome(
            segment.id,
            Status.DONE,
            reached=segment.until,
            reports=reports,
            cost={"environment_steps": float(segment.until - segment.start), "wall_seconds": 1.0},
            checkpoint=Checkpoint(segment.id, "") if segment.save else None,
        )

    @property
    def full(self) -> bool:
        return len(self.segments) >= self._most

    def phase(self, role: str) -> Phase:
        mine = [segment for segment in self.segments if segment.role == role]
        steps = sum(segment.until - segment.start for segment in mine)
        return Phase(len(self._seen[role]), len(mine), steps, sum(len(segment.evaluate_at) for segment in mine))


def _light(spec: Spec, open_ended: bool) -> Spec:
    """The same study with an optimizer that costs nothing where only the counts matter."""
    changes: dict[str, object] = {}
    section = spec.optimizer
    if section.name in _MODELS:
        options = {name: value for name, value in section.options.items() if name in _STOP_OPTIONS}
        changes["optimizer"] = OptimizerSection(name="random", stop=section.stop, rungs=section.rungs, **options)
    if open_ended:
        changes["budget"] = spec.budget.model_copy(update={"hours": None, "configurations": 1})
    return spec.model_copy(update=changes)


def _rungs(spec: Spec, tally: _Tally) -> tuple[int, ...]:
    """The steps segments of the search end at, when runs are cut."""
    ends = sorted({segment.until for segment in tally.segments if segment.role == "tuning"})
    return tuple(ends) if ends not in ([], [spec.fidelity.steps]) else ()


def _test_phase(spec: Spec, cuts: int) -> Phase:
    """Incumbent, default configuration and the top k, when they are all different; `cuts`: segments of a full run."""
    candidates = (2 + max(0, spec.test.top - 1)) if spec.plan.test else 0
    runs = candidates * len(spec.plan.test)
    evaluations = max(len(spec.evaluation_steps), cuts)
    return Phase(candidates, runs * cuts, runs * spec.fidelity.steps, runs * evaluations)


def _kept(spec: Spec, test: Phase, search: Phase) -> int:
    keep = spec.keep.checkpoints
    if keep == "none":
        return 0
    if keep == "lineage":
        return search.segments + test.segments
    top = max(1, spec.test.top if keep == "top" else 1)
    return test.segments + (top * len(spec.plan.tuning) if keep == "top" or not spec.plan.test else 0)


def _optimizer_text(spec: Spec) -> str:
    text = ", ".join([spec.optimizer.name, *(f"{name}: {value}" for name, value in spec.optimizer.options.items())])
    return f"{text}, stop: {spec.optimizer.stop} at {spec.optimizer.rungs} rungs" if spec.optimizer.stop else text


def _seeds_text(spec: Spec) -> str:
    if spec.evaluation.seeds == "fixed":
        return f"all of them for every proposal, {spec.evaluation.aggregate} over seeds"
    most = spec.evaluation.max or len(spec.plan.tuning)
    return f"racing from {spec.evaluation.min} to {most}, {spec.evaluation.aggregate} over seeds"


def _budget_text(spec: Spec) -> str:
    budget = spec.budget
    if budget.runs is not None:
        return f"{budget.runs:g} full runs ({budget.runs * spec.fidelity.steps:,.0f} environment steps) of tuning"
    if budget.configurations is not None:
        return f"{budget.configurations} configurations"
    if budget.environment_steps is not None:
        return f"{budget.environment_steps:,} environment steps of tuning"
    return f"{budget.hours:g} hours"


def _test_rows(plan: Plan) -> list[tuple[str, str]]:
    seeds = plan.spec.plan.test
    if not seeds:
        return [("test phase", "none: seeds.test is empty, so there will be no number to report")]
    who = (
        f"incumbent, default configuration, and the best {plan.spec.test.top}"
        if plan.spec.test.top > 1
        else ("incumbent and default configuration")
    )
    count = f"at most {plan.test.proposals} candidates, {plan.test.segments} segments"
    return [("test phase", f"{who}, on held-out seeds {list(seeds)}: {count}")]


def _time_text(plan: Plan) -> str:
    if plan.open_ended:
        return f"{plan.spec.budget.hours:g} hours of search, then the test phase"
    if plan.time is None:
        return "unknown: no study beside the folder has trained this trainer on this environment"
    minutes = plan.time.seconds / 60
    text = f"{minutes:.0f} minutes" if minutes >= 2 else f"{max(1.0, plan.time.seconds):.0f} s"
    return f"about {text} on {plan.workers} workers ({plan.time.source}; other configurations differ)"


def _notes(plan: Plan) -> list[str]:
    notes = []
    if plan.cut:
        notes.append(f"counted up to {_MOST_SEGMENTS:,} segments: the study is larger")
    if not plan.exact and not plan.open_ended:
        notes.append("counts depend on the scores: these are of a run on random scores")
    return notes
