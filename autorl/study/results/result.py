"""The result of a study: a held-out number with an interval.

The tuning score and the gap stand beside it. Read from the study's record, so a finished, a running
and a killed study give it the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from autorl.core.plain_text import all_counted, counted, number, printable
from autorl.core.plain_values import plain
from autorl.core.shown import Shown
from autorl.core.types import NAMED, Incumbent, ProposalId, SearchEnd, SegmentId, StudyError
from autorl.optimizers.model_share import NO_SHARE, ModelShare, PriorUse
from autorl.statistics.aggregates import parse_aggregate
from autorl.statistics.bootstrap import Interval
from autorl.statistics.coverage import level_text
from autorl.statistics.evaluation import PEAK_MEMORY
from autorl.statistics.fronts import hypervolume
from autorl.statistics.noise import posterior, probability_of_best
from autorl.statistics.reductions import never_reached
from autorl.store.rows import SUCCEEDED, RunRow
from autorl.study.results.cautions import cautions, reward_metrics
from autorl.study.results.estimates import Entry, Estimate, difference, estimate, improvement
from autorl.study.results.models import NO_STEPS, Steps, kept_checkpoints, seed_of_model, steps_of
from autorl.study.results.models import load_model as read_model
from autorl.study.results.record import StudyRecord, open_record
from autorl.study.results.tasks import TaskScores, split, task_scores
from autorl.study.spec import Spec

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Choice:
    """The choice of the incumbent under the noise model (`autorl.statistics.noise`).

    It is of the first objective. An aggregate other than the mean is taken to have the noise of a
    mean.

    Attributes:
        confirmed: number of proposals with more seeds than the exploration gave them.
        probability: that none of the confirmed ones is truly better than the incumbent.
        expected: score of the incumbent on new seeds, in the metric's own direction.
        overtuning: by how much its tuning score is better than that (the winner's curse).
    """

    confirmed: int
    probability: float
    expected: float
    overtuning: float


def choice_of(record: StudyRecord, incumbent: ProposalId) -> Choice | None:
    """Judge the choice of an adaptive study.

    None of a study with other seeds, and before the incumbent has got more than the first ones.
    """
    spec = record.spec
    if spec.evaluation.seeds != "adaptive":
        return None
    rows = record.tables.comparable()
    minimum = len(spec.policy().first)
    confirmed = [place for place, row in enumerate(rows) if row.n_seeds > minimum]
    chosen = next((place for place in confirmed if rows[place].proposal == incumbent), None)
    if chosen is None:
        return None
    estimate = posterior(
        [row.value for row in rows], [row.spread for row in rows], [row.n_seeds for row in rows]
    )
    expected = float(estimate.mean[chosen])
    return Choice(
        len(confirmed),
        probability_of_best(estimate, chosen, confirmed),
        spec.objectives()[0].sign * expected,
        rows[chosen].value - expected,
    )


def loss_text(spec: Spec, entries: Sequence[Entry]) -> str:
    """Say in one line that the tuning winner loses on test seeds.

    Empty where nothing that was trained as long is better there, or nothing was tested.

    Args:
        spec: the study file.
        entries: what was tested, the incumbent first.
    """
    test = entries[0].test if entries else None
    if test is None:
        return ""
    sign = spec.objectives()[0].sign
    # At unequal length the difference would be of training time too.
    rivals = [
        (entry, entry.test)
        for entry in entries[1:]
        if entry.test is not None and entry.until == entries[0].until
    ]
    better = [(entry, rival) for entry, rival in rivals if sign * (rival.iqm - test.iqm) > 0]
    if not better:
        return ""
    entry, rival = max(better, key=lambda pair: sign * pair[1].iqm)
    name = entry.label
    if entry.label == "default":
        name = "the default configuration"
    elif not entry.label.startswith(NAMED):
        name = f"proposal {entry.proposal} ({entry.label} by tuning score)"
    text = (
        f"The tuning winner (proposal {entries[0].proposal}) loses on the test seeds: "
        f"{number(test.iqm)}, and {name} has {number(rival.iqm)} (IQM)"
    )
    span = difference(spec, test, rival)
    if span is not None:
        change = number(improvement(test, rival))
        text += f"; difference {change} [{number(span.low)}, {number(span.high)}]"
        text += ", which may be noise" if span.low <= 0 <= span.high else ""
    return text


_OF_A_RUN = {"last": "last evaluation", "best": "best evaluation", "auc": "mean of all evaluations"}

__all__ = ["Entry", "Estimate", "Point", "Result", "read_result"]


@dataclass(frozen=True)
class Point:
    """A proposal of the front of several objectives.

    None of the others dominates it.

    Attributes:
        tuning: its score by every objective over tuning seeds, by the objective's label, in the
            metric's own direction.
        test: the same over test seeds; None if no test run succeeded.
    """

    proposal: ProposalId
    config: Mapping[str, object]
    tuning: Mapping[str, float]
    test: Mapping[str, float] | None


_MARGIN = 0.1


@dataclass(frozen=True)
class Volumes:
    """Hypervolumes of a front, in parts of a box.

    The box lies between the worst tuning score by every objective, a tenth of the range subtracted,
    and the best, of all feasible proposals of full length.

    Attributes:
        tuning: of the whole front on tuning seeds.
        tested: of the tested part of it on tuning seeds; None if nothing was tested.
        test: of the same part on test seeds.
    """

    tuning: float
    tested: float | None = None
    test: float | None = None


@dataclass(frozen=True)
class Result(Shown):
    """The result a study has come to.

    Attributes:
        objective: what the numbers are, in a sentence for users.
        aggregate: over seeds, e.g. "mean": that of the tuning score, `Estimate.value` and the gap.
        incumbent: the best proposal by tuning score; test scores never change which it is.
        tuning: its score on tuning seeds: optimistic, because it was chosen by it.
        entries: everything that was tested, the incumbent first; empty without test seeds.
        difference: 95 % interval of the interquartile mean of the incumbent minus that of the
            default, on the same test seeds, resampled in pairs; None when either has no test score,
            or the default was trained for fewer steps (`test.baseline: false`).
        front: for several objectives, what no other proposal dominates, best by the first objective
            first.
        volumes: hypervolumes of the front; None with one objective.
        counts: proposals by status.
        folder: the study's folder; None in memory.
        loss: that another candidate beats the incumbent on test seeds, in one line; else empty.
        caveats: what a reader must know.
        tuning_seeds: with how many seeds the tuning score was made.
        share: new configurations and who made them.
        learns: whether the study's optimizer has a model.
        prior: the landscapes that the search began with, and their part; None without.
        beside: other metrics of the incumbent on test seeds, for RLHF tasks: gold, proxy, KL, ...
        steps: the steps the incumbent's score and its kept model are of.
        beyond: steps the baselines were trained beyond the budget, to be compared at
            equal length.
        choice: how sure the choice of the incumbent is, of a study with adaptive seeds.
        search_end: why the search is over; None while it is open.
        search_end_text: the same in words, empty while it is open.
        tasks: the scores by task, and the gaps of seeds and of tasks; None without tasks.
        rows: those of `trials`, of a study in memory; None where its folder has them.
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
    volumes: Volumes | None = None
    loss: str = ""
    caveats: tuple[str, ...] = ()
    tuning_seeds: int = 0
    share: ModelShare = NO_SHARE
    learns: bool = False
    prior: PriorUse | None = None
    beside: Mapping[str, float] = field(default_factory=dict)
    steps: Steps = NO_STEPS
    beyond: int = 0
    choice: Choice | None = None
    search_end: SearchEnd | None = None
    search_end_text: str = ""
    tasks: TaskScores | None = None
    rows: tuple[TrialRow, ...] | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        """Write the scores and the incumbent in a few lines.

        `repr` has everything.
        """
        lines = [self.objective, self.problem or "not tested on held-out seeds"]
        if self.test is not None:
            span = self.test.iqm_interval
            level = level_text("iqm", self.test.runs_of_a_task)
            interval = "" if span is None else f", {level}[{number(span.low)}, {number(span.high)}]"
            runs = f"{number(self.test.iqm)}{interval}, {self.test.seeds_text}"
            lines[1] = f"test score (IQM): {runs}"
        seeds = self.tuning_text
        lines.append(f"tuning score ({self.aggregate}): {number(self.tuning)}, {seeds}; optimistic")
        lines += [self.loss] if self.loss else []
        params = ", ".join(f"{name}={value!r}" for name, value in self.best_params.items())
        lines.append(f"incumbent: proposal {self.incumbent.proposal}: {params}")
        return "\n".join(printable(line, keep_lines=False) for line in lines)

    @property
    def tuning_text(self) -> str:
        """The tuning runs in words."""
        if self.tasks is not None:
            return f"{counted(self.tuning_seeds, 'run')} on tuning seeds and tasks"
        return counted(self.tuning_seeds, "tuning seed")

    @property
    def best_params(self) -> dict[str, Any]:
        """The incumbent's hyperparameters by name, at the end of its schedule."""
        params: dict[str, Any] = plain(self.incumbent.config)
        return params

    def trials(self) -> pd.DataFrame:
        """Make a table of every run that has begun.

        Columns: `run`, `configuration` (the number of the proposal that introduced it), `proposal`
        (the last that trained the run), `role` and `seed`, with tasks `task`, `state` (`complete`,
        `stopped` before its last step, or the kind of failure), `steps` (reached), `value` (by the
        objective; one `value_METRIC` for each of several; none of a failed run; of a test run where
        it counts), `origin`, `environment_steps`, `wall_seconds`, `peak_memory_mb`, and
        `params_NAME` for each hyperparameter, empty where it is not active.

        If the study has a folder, it is read from there, as it stands now.

        Raises:
            InputError: the folder holds no study any more.
        """
        import pandas as pd

        rows = self.rows
        if rows is None and self.folder is not None:
            with open_record(self.folder) as record:
                rows = tuple(trial_rows(record))
        return pd.DataFrame(list(rows or ()))

    @property
    def test(self) -> Estimate | None:
        """The held-out score of the incumbent, to be reported.

        It is None if no test run succeeded.
        """
        return self.entries[0].test if self.entries else None

    @property
    def problem(self) -> str:
        """The reason why a tested study has no usable result.

        Every test run of its incumbent failed then. Empty if it has one.
        """
        if not self.entries or self.test is not None:
            return ""
        failures = self.entries[0].failures
        kinds = ", ".join(sorted(set(failures.values())))
        return (
            f"no usable result: {all_counted(len(failures), 'test run')} of the incumbent failed "
            f"({kinds})"
        )

    @property
    def default(self) -> Entry | None:
        """The default configuration's entry, when it was tested."""
        return next((entry for entry in self.entries if entry.label == "default"), None)

    @property
    def improvement(self) -> float | None:
        """The incumbent's interquartile mean minus the default's, on the seeds of `difference`."""
        default = None if self.default is None else self.default.test
        if self.difference is None or self.test is None or default is None:
            return None
        return improvement(self.test, default)

    @property
    def gap(self) -> float | None:
        """How much better the tuning score was than the test score.

        Both are by `aggregate`. The larger, the more over-tuned.
        """
        if self.test is None:
            return None
        if self.direction == "maximize":
            return self.tuning - self.test.value
        return self.test.value - self.tuning

    def load_model(self, seed: int | None = None) -> Any:
        """Load the incumbent as trained, of Stable-Baselines3 or of transformers.

        It is of the step that `steps` names. An agent has the hyperparameters and optimizer moments
        of its run; where that normalised, `model.get_vec_normalize_env()` holds the statistics. A
        tokenizer is in the folder that `autorl export` writes.

        Args:
            seed: of the run it was trained in; by default the median by test score.

        Raises:
            InputError: the trainer has no models (a function, a command), or Stable-Baselines3 is
                not installed.
            StudyError: the study was not kept in a folder, or kept no checkpoint.
        """
        if self.folder is None:
            raise StudyError("the study was not kept: give it a folder with `out=`")
        return read_model(self.folder, self.incumbent.proposal, self.incumbent.config, seed)


def read_result(record: StudyRecord) -> Result:
    """Read the result of a study as it stands.

    It is about the incumbent that was frozen before the test phase, or about the best so far.

    Raises:
        StudyError: nothing was scored.
    """
    spec = record.spec
    incumbent = record.incumbent()
    entries = _entries(record, incumbent.proposal)
    tuning = _tuning_score(record, incumbent.proposal)
    metrics = reward_metrics(record, incumbent.proposal) if entries else {}
    front = record.front if len(spec.objective) > 1 else []
    points = _points(record, front, {entry.proposal for entry in entries})
    return Result(
        objective=_objectives_text(spec),
        aggregate=spec.evaluation.aggregate,
        direction=spec.objectives()[0].of_score,
        incumbent=incumbent,
        tuning=tuning,
        entries=tuple(entries),
        difference=_difference(spec, entries),
        front=points,
        volumes=_volumes(record, points),
        counts=record.tables.count_proposals(),
        folder=record.folder,
        loss=loss_text(spec, entries),
        caveats=cautions(record, incumbent.proposal, entries, metrics),
        tuning_seeds=record.tables.ranked_seeds(incumbent.proposal),
        share=record.share,
        learns=record.optimizer_learns,
        prior=record.prior_use,
        beside=metrics,
        steps=_steps(record, incumbent.proposal),
        beyond=record.tables.steps_beyond(),
        choice=choice_of(record, incumbent.proposal),
        search_end=record.search_end,
        search_end_text=record.search_end_text,
        tasks=task_scores(record, incumbent.proposal, tuning, entries),
        rows=tuple(trial_rows(record)) if record.folder is None else None,
    )


def _entries(record: StudyRecord, incumbent: ProposalId) -> list[Entry]:
    """List what was tested, the incumbent first, then the default.

    Empty where the search was opened again and has another incumbent, which is not tested yet.
    """
    spec = record.spec
    rows = record.tables.tests()
    # "earlier": a candidate of before the search was extended.
    labels = {row.proposal: row.label for row in rows if row.label != "earlier"}
    if labels.get(incumbent) != "incumbent":
        return []
    entries = []
    places = {"incumbent": 0, "default": 1}
    for proposal in sorted(
        labels, key=lambda number: (places.get(labels[number], 2), labels[number], number)
    ):
        succeeded, failures = _test_runs(record, proposal)
        entries.append(
            Entry(
                label=labels[proposal],
                proposal=proposal,
                schedule=record.lineage(proposal).schedule(proposal),
                tuning=_tuning_score(record, proposal),
                test=estimate(spec, proposal, succeeded, list(failures)),
                until=record.until(proposal),
                failures=failures,
            )
        )
        last = entries[-1]
        best = entries[0].test
        if last.label.startswith(NAMED) and best is not None and last.test is not None:
            entries[-1] = replace(last, difference=difference(record.spec, best, last.test))
    return entries


def _tuning_score(record: StudyRecord, proposal: ProposalId) -> float:
    """Return the tuning score by the first objective.

    NaN if it failed before any score was known.
    """
    scores = record.tables.score(proposal)
    return float(scores[0]) if scores else float("nan")


def _difference(spec: Spec, entries: Sequence[Entry]) -> Interval | None:
    """Bound the incumbent's IQM minus the default's by an interval.

    The result is None where they were not trained as far.
    """
    default = next((entry for entry in entries if entry.label == "default"), None)
    # At unequal length the difference would be of training time too.
    if default is None or default.until != entries[0].until:
        return None
    best = entries[0].test
    return None if best is None or default.test is None else difference(spec, best, default.test)


def _steps(record: StudyRecord, proposal: ProposalId) -> Steps:
    """Find the steps that score and kept model of a proposal have."""
    model = None
    if record.folder is not None:
        checkpoints = kept_checkpoints(record, record.folder, proposal)
        if checkpoints:
            model = checkpoints[seed_of_model(record, proposal, checkpoints)]
    return steps_of(record, proposal, model)


def _objectives_text(spec: Spec) -> str:
    texts = [
        f"{objective.metric}, {_OF_A_RUN.get(objective.reduce, objective.reduce)} of a run, "
        f"{'higher' if objective.sign > 0 else 'lower'} is better"
        + (f" (never: {never_reached(spec.fidelity.steps):g})" if objective.is_time else "")
        for objective in spec.objectives()
    ]
    over = "seeds"
    if spec.tasks is not None:
        scale = " on the scale of its task (0 to 1)" if spec.tasks.scales("") else ""
        texts[-1] += scale
        over = "tasks and seeds"
    return f"score: {'; beside it '.join(texts)}; {spec.evaluation.aggregate} over {over}"


def _points(
    record: StudyRecord, front: Sequence[ProposalId], tested: set[ProposalId]
) -> tuple[Point, ...]:
    """List the points of a front, best by the first objective first."""
    objectives = record.spec.objectives()
    labels = [objective.label for objective in objectives]
    points = []
    for proposal in front:
        tuning = dict(zip(labels, record.tables.score(proposal), strict=True))
        test = _test_scores(record, proposal) if proposal in tested else {}
        config = record.lineage(proposal)[proposal].config
        points.append(Point(proposal, config, tuning, test or None))
    first = objectives[0]
    points.sort(key=lambda point: (-first.sign * point.tuning[first.label], point.proposal))
    return tuple(points)


def _volumes(record: StudyRecord, front: Sequence[Point]) -> Volumes | None:
    """Measure the space that a front dominates."""
    if not front:
        return None
    signs = np.array([objective.sign for objective in record.spec.objectives()])
    scored = np.array(list(record.tables.feasible().values()))
    span = np.ptp(scored, axis=0)
    span[span == 0] = 1.0
    # Below the worst, or the two ends of a front would dominate nothing (Ishibuchi et al. 2018).
    corner = scored.min(axis=0) - _MARGIN * span

    def volume(scores: Sequence[Mapping[str, float]]) -> float:
        values = signs * np.array([list(point.values()) for point in scores])
        return hypervolume((values - corner) / span / (1 + _MARGIN), np.zeros(len(signs)))

    tested = [point for point in front if point.test is not None and len(point.test) == len(signs)]
    on_tuning = volume([point.tuning for point in front])
    if not tested:
        return Volumes(on_tuning)
    tests = [point.test or {} for point in tested]
    return Volumes(on_tuning, volume([point.tuning for point in tested]), volume(tests))


def _test_scores(record: StudyRecord, proposal: ProposalId) -> dict[str, float]:
    """Aggregate over test seeds by every objective.

    Failed runs count where the study file states their value.
    """
    aggregate = parse_aggregate(record.spec.evaluation.aggregate)
    stated = record.spec.stated_penalty
    scores = {}
    for index, objective in enumerate(record.spec.objectives()):
        succeeded, failures = _test_runs(record, proposal, index)
        penalties = [] if stated is None else [stated] * len(failures)
        if succeeded:
            # Aggregates may look at the worse end.
            values = objective.sign * np.array([*succeeded.values(), *penalties])
            scores[objective.label] = objective.sign * aggregate(values)
    return scores


def _test_runs(
    record: StudyRecord, proposal: ProposalId, objective: int = 0
) -> tuple[dict[int, float], dict[int, str]]:
    """Return scores and kinds of failure by seed, of runs that judge."""
    rows = [row for row in record.tables.tests(objective) if row.proposal == proposal]
    return split([row for row in rows if record.spec.plan.judges(row.seed)])


TrialRow: TypeAlias = Mapping[str, Any]


def trial_rows(record: StudyRecord) -> list[TrialRow]:
    """List the runs of a study that have begun.

    `Result.trials` says what a row holds.
    """
    tables = record.tables
    spec = record.spec
    objectives = spec.objectives()
    names = [f"value_{objective.metric}" for objective in objectives]
    names = names if len(names) > 1 else ["value"]
    configs = {row.first: row for row in tables.configs()}
    until = {row.proposal: row.until for row in tables.proposals()}
    links: dict[int, list[ProposalId]] = {}
    reached: dict[int, int] = {}
    for segment in tables.segments():
        links.setdefault(segment.run_id, []).append(SegmentId.parse(segment.segment).proposal)
        reached[segment.run_id] = max(reached.get(segment.run_id, 0), segment.to_step)
    tests = [
        {(row.proposal, row.seed): row.value for row in tables.tests(index)}
        for index, _ in enumerate(objectives)
    ]
    rows: list[TrialRow] = []
    memory = tables.costs(PEAK_MEMORY)
    for run in tables.runs():
        last = max(links.get(run.run_id, [run.config_id]))
        values: dict[str, float | None] = dict.fromkeys(names)
        if run.seed_role == "test":
            scores = [scored.get((last, run.seed)) for scored in tests]
            values = dict(zip(names, scores, strict=True))
        elif run.status in SUCCEEDED:
            values |= zip(names, record.tuning_values(last, run.seed), strict=True)
        config = configs[run.config_id]
        rows.append(
            {
                "run": run.run_id,
                "configuration": run.config_id,
                "proposal": last,
                "role": run.seed_role,
                **({} if spec.tasks is None else {"task": run.environment}),
                "seed": spec.plan.parts(run.seed)[1],
                "state": _state(run, until.get(last, 0), spec.fidelity.steps),
                "steps": reached.get(run.run_id, 0),
                **values,
                "origin": config.origin,
                "environment_steps": run.environment_steps,
                "wall_seconds": run.wall_seconds,
                PEAK_MEMORY: memory[run.run_id],
                **{f"params_{name}": value for name, value in config.values.items()},
            }
        )
    return rows


def _state(run: RunRow, until: int, steps: int) -> str:
    """Say how a run stands: `complete`, `stopped`, or its failure."""
    if run.status not in SUCCEEDED:
        return run.status
    # A test run may end at the step that tuning seeds have chosen, and is whole then.
    at_end = run.status == "done" and (until >= steps or run.seed_role == "test")
    return "complete" if at_end else "stopped"
