"""The result of a study: a held-out number with an interval, the tuning score beside it, and the gap between them.

Read from the study's tables, so a finished, a running and a killed study give it the same way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autorl import seeds as streams
from autorl.optimizers.model_share import ModelShare, share_caution
from autorl.statistics.aggregates import parse_aggregate
from autorl.statistics.bootstrap import (
    Interval,
    bootstrap_interval,
    difference_interval,
    student_interval,
)
from autorl.statistics.coverage import FEW_RUNS, FEW_RUNS_OF_MEAN, measured_coverage
from autorl.store.query import Query
from autorl.store.sessions import changes_text, recorded_sessions
from autorl.study.beside import beside, proxy_caveat
from autorl.study.front import Point, read_front
from autorl.study.lengths import length_caveats
from autorl.study.limits import limit_caveats
from autorl.study.models import NO_STEPS, Steps, best_seed, kept_checkpoints, steps_of
from autorl.study.models import load_model as read_model
from autorl.study.rlhf_caveats import rlhf_caveats
from autorl.study.shares import optimizer_learns, search_ended, study_share
from autorl.study.work import FROM_START
from autorl.types import Config, Incumbent, Status, StudyError, schedule_of

if TYPE_CHECKING:
    from autorl.spec import Spec


@dataclass(frozen=True)
class Estimate:
    """One proposal's score on one role of seeds, in the metric's own direction.

    Attributes:
        iqm, iqm_interval: interquartile mean and its 95 % percentile bootstrap interval (Agarwal et al. 2021), the
            number to report whatever the study aggregates by: on recorded seed noise no interval of a mean covers as
            well. None with fewer than two seeds.
        value: the study's aggregate over seeds, the statistic of the tuning score and of the gap.
        interval: 95 % interval of it: Student's t for a mean, else percentile bootstrap.
        seeds: the value of each seed all of these are of: those whose run succeeded, and those that failed where
            `failures.penalty` states a number. A penalty that tuning scores gave is no test score.
        failed: how many test runs failed.
        failed_value: what each of them counts as; None: they are in no number, and the headline counts them.
    """

    value: float
    interval: Interval | None
    iqm: float
    iqm_interval: Interval | None
    seeds: Mapping[int, float]
    failed: int = 0
    failed_value: float | None = None

    @property
    def runs(self) -> int:
        """How many test runs there were, those that failed included."""
        return len(self.seeds) + (self.failed if self.failed_value is None else 0)

    @property
    def few(self) -> bool:
        """Too few seeds for the interval of the interquartile mean to cover what it says."""
        return len(self.seeds) < FEW_RUNS


@dataclass(frozen=True)
class Entry:
    """A proposal that was trained on test seeds: why it was chosen, its tuning score and its test score.

    Attributes:
        test: None if every test run failed.
        until: the step both scores are of.
        failures: how the test runs that failed did, by seed.
    """

    label: str
    proposal: int
    schedule: tuple[tuple[int, Config], ...]
    tuning: float
    test: Estimate | None
    until: int
    failures: Mapping[int, str] = field(default_factory=dict)

    @property
    def config(self) -> Config:
        return self.schedule[-1][1]


@dataclass(frozen=True)
class Result:
    """What a study found.

    Attributes:
        objective: what the numbers are, e.g. "last eval_return (mean over seeds), maximize".
        aggregate: over seeds, e.g. "mean": that of the tuning score, `Estimate.value` and the gap.
        incumbent: the best proposal by tuning score; test scores never change which it is.
        tuning: its score on tuning seeds: optimistic, because it was chosen by it.
        entries: everything that was tested, the incumbent first; empty without test seeds.
        difference: 95 % interval of the interquartile mean of the incumbent minus that of the default, on the same test
            seeds, resampled in pairs; None when either has no test score, or the default was trained for fewer steps
            (`test.baseline: false`).
        front: for several objectives, what no other proposal dominates, best by the first objective first.
        counts: proposals by status.
        folder: the study's folder; None in memory.
        caveats: what a reader must know.
        tuning_seeds: with how many seeds the tuning score was made.
        share: new configurations and who made them; None where an earlier version did not record it.
        learns: whether the study's optimizer has a model.
        beside: other metrics of the incumbent on test seeds, for RLHF tasks: gold, proxy, KL, win rate, ...
        steps: the steps the incumbent's score and its kept model are of.
        beyond: steps the default configuration was trained beyond the budget, to be compared at equal length.
    """

    objective: str
    aggregate: str
    direction: str
    incumbent: Incumbent
    tuning: float
    entries: tuple[Entry, ...]
    difference: Interval | None
    front: tuple[Point, ...]
    counts: Mapping[str, int]
    folder: Path | None
    caveats: tuple[str, ...] = ()
    tuning_seeds: int = 0
    share: ModelShare | None = None
    learns: bool = False
    beside: Mapping[str, float] = field(default_factory=dict)
    steps: Steps = NO_STEPS
    beyond: int = 0

    @property
    def test(self) -> Estimate | None:
        """The held-out score of the incumbent: the number to report. None without a test run that succeeded."""
        return self.entries[0].test if self.entries else None

    @property
    def problem(self) -> str:
        """Why a study that was tested has no usable result: every test run of its incumbent failed; else empty."""
        if not self.entries or self.test is not None:
            return ""
        failures = self.entries[0].failures
        kinds = ", ".join(sorted(set(failures.values())))
        return f"no usable result: all {len(failures)} test runs of the incumbent failed ({kinds})"

    @property
    def default(self) -> Entry | None:
        """The default configuration's entry, when it was tested."""
        return next((entry for entry in self.entries if entry.label == "default"), None)

    @property
    def improvement(self) -> float | None:
        """By how much the incumbent's interquartile mean exceeds the default's, on the seeds of `difference`."""
        if (
            self.difference is None
            or self.test is None
            or self.default is None
            or self.default.test is None
        ):
            return None
        ours, theirs = _paired(self.test, self.default.test)
        return parse_aggregate("iqm")(ours) - parse_aggregate("iqm")(theirs)

    @property
    def gap(self) -> float | None:
        """By how much the tuning score was better than the test score, both by `aggregate` (larger: over-tuned)."""
        if self.test is None:
            return None
        return (
            self.tuning - self.test.value
            if self.direction == "maximize"
            else self.test.value - self.tuning
        )

    def load_model(self, seed: int | None = None) -> Any:
        """The incumbent as trained: an agent as a Stable-Baselines3 model, a language model as one of transformers.

        It is of the step that `steps` names. An agent has the hyperparameters and optimizer moments of its run; where
        that normalised, `model.get_vec_normalize_env()` holds the statistics. A tokenizer is in the folder that
        `autorl export` writes.

        Args:
            seed: of the run it was trained in; by default the best on test seeds: expect less of it than its score.

        Raises:
            InputError: the trainer has no models (a function, a command), or Stable-Baselines3 is not installed.
            StudyError: the study was not kept in a folder, or kept no checkpoint.
        """
        if self.folder is None:
            raise StudyError("the study was not kept: give it a folder with `out=`")
        return read_model(self.folder, self.incumbent.proposal, self.incumbent.config, seed)


def read_result(
    query: Query, spec: Spec, folder: Path | None, front: Sequence[int], incumbent: Incumbent
) -> Result:
    """The result, from a study's tables.

    `query` runs SQL over them; `incumbent` is the one frozen before the test phase, or the best so far.

    Raises:
        StudyError: nothing was scored.
    """
    objective = spec.objectives()[0]
    rows = query(
        "SELECT proposal, label, seed, value, status FROM tests WHERE objective = 0 ORDER BY proposal, seed"
    )
    labels: dict[int, str] = {proposal: label for proposal, label, *_ in rows if label != "earlier"}
    if labels.get(incumbent.proposal) != "incumbent":
        labels = {}  # the search was opened again and has another incumbent, which is not tested yet
    entries = []
    for proposal, label in sorted(labels.items(), key=lambda item: (_order(item[1]), item[0])):
        values = {
            seed: (value, status) for number, _, seed, value, status in rows if number == proposal
        }
        failures = {seed: status for seed, (_, status) in values.items() if Status(status).failed}
        good = {seed: value for seed, (value, _) in values.items() if seed not in failures}
        schedule, (tuning, until) = read_schedule(query, proposal), _tuning(query, proposal)
        entries.append(
            Entry(
                label,
                proposal,
                schedule,
                tuning,
                _estimate(spec, proposal, good, failures),
                until,
                failures,
            )
        )
    by_label = {entry.label: entry for entry in entries}
    difference = _difference(spec, by_label.get("incumbent"), by_label.get("default"))
    metrics = beside(query, spec, incumbent.proposal) if entries else {}
    share, learns = study_share(query), optimizer_learns(spec)
    caution = None
    if share is not None and search_ended(query):
        caution = share_caution(spec.optimizer.name, share, learns=learns)
    counts: dict[str, int] = dict(
        query("SELECT status, COUNT(*) FROM proposals GROUP BY status ORDER BY status")
    )
    return Result(
        objective=_objectives_text(spec),
        aggregate=spec.evaluation.aggregate,
        direction=objective.direction,
        incumbent=incumbent,
        tuning=_tuning(query, incumbent.proposal)[0],
        entries=tuple(entries),
        difference=difference,
        front=read_front(query, spec, front, [entry.proposal for entry in entries]),
        counts=counts,
        folder=folder,
        caveats=(
            *_caveats(spec, entries, metrics),
            *rlhf_caveats(query, spec, incumbent.proposal),
            *([] if caution is None else [caution]),
            *limit_caveats(query, spec, incumbent.proposal),
            *_anew_caveats(query),
            *_session_caveats(query),
            *length_caveats(query, spec, incumbent.proposal, [entry.proposal for entry in entries]),
        ),
        tuning_seeds=query(
            "SELECT n_seeds FROM proposals WHERE proposal = ?", (incumbent.proposal,)
        )[0][0]
        or 0,
        share=share,
        learns=learns,
        beside=metrics,
        steps=_steps(query, spec, folder, incumbent.proposal),
        beyond=_beyond(query),
    )


def _steps(query: Query, spec: Spec, folder: Path | None, proposal: int) -> Steps:
    kept = {} if folder is None else kept_checkpoints(query, folder, proposal)
    model = kept[best_seed(query, spec.objectives()[0].sign, proposal, kept)] if kept else None
    return steps_of(query, spec, proposal, model)


def _beyond(query: Query) -> int:
    ((steps,),) = query("SELECT coalesce(sum(beyond), 0) FROM standing")
    return int(steps)


def _anew_caveats(query: Query) -> list[str]:
    """That promotions were trained from step 0, and whether the budget was charged for all of it."""
    again = "SELECT proposal FROM segments JOIN runs USING (run_id) WHERE seed_role = 'tuning' AND notes LIKE ?"
    rows = query(
        f"SELECT COUNT(*), SUM(anew) FROM standing WHERE proposal IN ({again})",
        (f"%{FROM_START}%",),
    )
    count, charged = rows[0]
    if not count:
        return []
    told = (
        "the budget was charged for that"
        if charged == count
        else f"the budget was charged for {charged} of them"
    )
    return [
        f"{count} proposals continue runs that left no checkpoint: they were trained from step 0 again, {told}"
    ]


def _session_caveats(query: Query) -> list[str]:
    changed = changes_text(recorded_sessions(query))
    return [] if changed is None else [changed]


def _objectives_text(spec: Spec) -> str:
    first, *others = spec.objectives()
    text = f"{first.label} ({spec.evaluation.aggregate} over seeds), {first.direction}"
    return "; ".join([text, *(f"beside it {other.label}, {other.direction}" for other in others)])


def read_schedule(query: Query, proposal: int) -> tuple[tuple[int, Config], ...]:
    """Configurations of a proposal's chain by the step they start at, equal neighbours merged."""
    chain: list[tuple[Config, int]] = []
    number: int | None = proposal
    while number is not None:
        row = query(
            "SELECT config, until, resume_from FROM proposals JOIN configs USING (config_id) WHERE proposal = ?",
            (number,),
        )
        if not row:
            raise StudyError(f"proposal {number} is not in this study")
        config, until, number = row[0]
        chain.append((Config(json.loads(config)), until))
    return schedule_of(reversed(chain))


def _order(label: str) -> tuple[int, str]:
    return ({"incumbent": 0, "default": 1}.get(label, 2), label)


def _tuning(query: Query, proposal: int) -> tuple[float, int]:
    """The tuning score and the step it is of."""
    score, until = query("SELECT score, until FROM proposals WHERE proposal = ?", (proposal,))[0]
    values = json.loads(score) if score else []  # empty: it failed before any score was known
    return (float(values[0]) if values else float("nan")), until


def _estimate(
    spec: Spec, proposal: int, good: Mapping[int, float], failures: Mapping[int, str]
) -> Estimate | None:
    """The score of the test runs that succeeded, and of those that failed where the study file says their value.

    None if none succeeded. What an earlier version stored for a failed run, a penalty from tuning scores, is not read.
    """
    if not good:
        return None
    stated = spec.stated_penalty
    counted = {**good, **({} if stated is None else dict.fromkeys(failures, stated))}
    seeds = dict(sorted(counted.items()))
    value, interval = _aggregated(spec, proposal, spec.evaluation.aggregate, list(seeds.values()))
    middle, middle_interval = _aggregated(spec, proposal, "iqm", list(seeds.values()))
    return Estimate(
        value, interval, middle, middle_interval, seeds, len(failures), stated if failures else None
    )


def _aggregated(
    spec: Spec, proposal: int, aggregate: str, values: Sequence[float]
) -> tuple[float, Interval | None]:
    """An aggregate of test scores in the metric's own direction, and its interval if there is more than one score."""
    sign = spec.objectives()[0].sign  # aggregates such as cvar look at the worse end
    scores = sign * np.array(values)
    interval = None
    if len(scores) > 1 and aggregate == "mean":
        interval = _signed(student_interval(scores), sign)
    elif len(scores) > 1:
        rng = streams.generator(spec.seed, "test", proposal)
        interval = _signed(bootstrap_interval(scores, aggregate, rng=rng), sign)
    return sign * parse_aggregate(aggregate)(scores), interval


def _difference(spec: Spec, incumbent: Entry | None, default: Entry | None) -> Interval | None:
    if incumbent is None or default is None or incumbent.until != default.until:
        return None
    if incumbent.test is None or default.test is None:
        return None
    sign = spec.objectives()[0].sign
    ours, theirs = (sign * np.array(values) for values in _paired(incumbent.test, default.test))
    if len(ours) < 2:
        return None
    rng = streams.generator(spec.seed, "test", "difference")
    return _signed(difference_interval(ours, theirs, "iqm", rng=rng, paired=True), sign)


def _paired(ours: Estimate, theirs: Estimate) -> tuple[list[float], list[float]]:
    """Scores of two estimates on the seeds both have, in one order."""
    shared = sorted(set(ours.seeds) & set(theirs.seeds))
    return [ours.seeds[seed] for seed in shared], [theirs.seeds[seed] for seed in shared]


def _signed(interval: Interval, sign: float) -> Interval:
    low, high = sorted((sign * interval.low, sign * interval.high))
    return Interval(low, high, interval.level, interval.method)


def _caveats(spec: Spec, entries: Sequence[Entry], metrics: Mapping[str, float]) -> tuple[str, ...]:
    proxy = proxy_caveat(spec, metrics)
    found = [] if proxy is None else [proxy]
    if not entries:
        why = "not tested yet" if spec.plan.test else "no test seeds"
        found.append(f"{why}: the tuning score is optimistic and is not a result")
    elif entries[0].test is not None:
        found += _short_intervals(spec.evaluation.aggregate, len(entries[0].test.seeds))
    for entry in entries:
        if entry.label == "default" and entry.until != entries[0].until:
            reached = f"to step {entry.until} of {entries[0].until} only"
            found.append(
                f"the search trained the default configuration {reached}: its test score is no baseline"
            )
    found += _failed_tests(entries, spec.objectives()[0].sign)
    if spec.indeterminate:
        found.append(f"another run of this file may give another table: {spec.indeterminate}")
    return tuple(found)


def _failed_tests(entries: Sequence[Entry], sign: float) -> list[str]:
    """That test runs failed, and what that does to the scores. `sign`: -1 where smaller values are better."""
    if not entries:
        return []
    found, incumbent = [], entries[0]
    failed, test = len(incumbent.failures), incumbent.test
    others = sum(len(entry.failures) for entry in entries[1:])
    if test is None:
        found.append(f"all {failed} test runs of the incumbent failed: there is no test score")
    elif failed and test.failed_value is not None:
        stated = f"each counts as {test.failed_value:g}, as failures.penalty says"
        found.append(f"{failed} of {test.runs} test runs of the incumbent failed: {stated}")
    elif failed:
        good = [sign * value for value in test.seeds.values()]
        pessimistic = sign * parse_aggregate("iqm")([*good, *[min(good)] * failed])
        found.append(
            f"{failed} of {test.runs} test runs of the incumbent failed: the test score is of the {len(good)} that "
            f"succeeded, which flatters it; with the worst of these in place of each failed run the IQM is "
            f"{pessimistic:.6g}"
        )
    if others:
        found.append(f"{others} test runs of the other candidates failed")
    return found


def _short_intervals(aggregate: str, seeds: int) -> list[str]:
    """Printed 95 % intervals that cover less than they say with so few test seeds."""
    if seeds < 2:
        return ["one test seed: no interval, so nothing is known about the noise"]
    found = []
    if seeds < FEW_RUNS:
        found.append(
            f"fewer than {FEW_RUNS} test seeds: the interval of the IQM covers {_percent('iqm', seeds)}"
        )
    if aggregate == "mean" and seeds < FEW_RUNS_OF_MEAN:
        covers = f"the interval of the mean covers {_percent('mean', seeds)}"
        found.append(f"fewer than {FEW_RUNS_OF_MEAN} test seeds: {covers}")
    if aggregate not in ("iqm", "mean"):
        found.append(
            f"the interval of {aggregate} covers {_percent(aggregate, seeds)}: rely on that of the IQM"
        )
    return found


def _percent(aggregate: str, seeds: int) -> str:
    coverage = measured_coverage(aggregate, seeds)
    return (
        "an unknown share" if coverage is None else f"about {coverage:.0%} on recorded seed noise"
    )
