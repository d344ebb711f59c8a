"""Plans: what a study would do, counted before it does it.

The driver itself runs in memory, on random scores instead of training. Counts are exact where they
do not depend on scores (full-length runs, fixed or adaptive seeds); with rungs, racing or
populations they are those of one run on random scores, and the plan says so. The budget charges
nominal steps; the steps that are really trained follow from where the trainers can cut a run of
each configuration.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from autorl.core.plain_text import counted
from autorl.core.types import (
    Checkpoint,
    Config,
    EnvironmentSpec,
    InputError,
    Outcome,
    Report,
    Segment,
    Status,
    TrainerSpec,
)
from autorl.executors.worker import Load
from autorl.optimizers import BaseOptimizer, find
from autorl.optimizers.model_share import ModelShare, model_share, share_caution
from autorl.optimizers.registry import find_stopping, is_slow_to_ask, option_names, search_kind
from autorl.report.idle import Asks, IdleShare, expected_idle
from autorl.statistics.evaluation import PEAK_MEMORY
from autorl.store import Store
from autorl.study import Study
from autorl.study.callbacks import check_callbacks
from autorl.study.lineage import Lineage
from autorl.study.results.models import with_start
from autorl.study.setup import (
    check,
    executor_name,
    make_optimizer,
    segments_at_once,
    trainer_loader,
)
from autorl.study.spec import OptimizerSection, Spec
from autorl.study.spec.checks import paid_configurations
from autorl.study.spec.options import cuts_of
from autorl.testing.segments import prove
from autorl.trainers.language import tasks as of_rlhf

_DRY_RUN = "autorl.optimizers.dry_run:DryRun"
_PROBES = 256
"""Random configurations that are asked for the end of their runs."""
MOST_SEGMENTS = 20_000


@dataclass(frozen=True)
class Phase:
    """Work of the search or of the test phase.

    Attributes:
        proposals, segments, evaluations: how many there are.
        steps: nominal steps, which the budget is charged.
        trained: steps that are really trained.
    """

    proposals: int = 0
    segments: int = 0
    steps: int = 0
    evaluations: int = 0
    trained: int = 0


@dataclass(frozen=True)
class Confirmed:
    """Runs that confirm the best proposals of an adaptive study, beside exploration.

    Attributes:
        explore, confirm: nominal steps of each.
        proposals: how many get more seeds.
        seeds: how many the last ones have.
    """

    explore: int
    confirm: int
    proposals: int
    seeds: int


@dataclass(frozen=True)
class Plan:
    """Runs that `autorl tune` would make.

    Attributes:
        search: the work of the search; `exact`: whether it does not depend on scores.
        test: the work of the test phase at most (candidates may coincide).
        baseline: what the default configuration is trained beyond the budget, at most, to be as
            long as the incumbent.
        models: without test seeds: what is trained again, at most, to keep the models that are
            scored.
        trained_exact: the steps really trained are exact too (of the test phase: at most); else
            they are those of other configurations than the study will train.
        open_ended: only a clock or outcomes use the budget: the counts are of one proposal.
        cut: the simulation was stopped after so many segments; the study is larger.
        rungs: steps at which runs are cut; empty without.
        outline, cautions: what the optimizer itself says about its brackets, and what to know about
            its options.
        share: new configurations that the optimizer's model would make.
        learns: whether the optimizer has a model.
        checkpoints: how many outlive the study at most, besides those the optimizer may still
            resume.
        idle: how busy the workers will be; None where nothing waits.
        proven: what short runs have shown of classes of the user's, in lines.
        sizes: what a checkpoint and an evaluation take, where their trainer says it.
        confirmed: what explores and what confirms, of adaptive seeds; None of others.
    """

    spec: Spec
    search: Phase
    test: Phase
    baseline: Phase
    models: Phase
    exact: bool
    trained_exact: bool
    open_ended: bool
    cut: bool
    rungs: tuple[int, ...]
    outline: tuple[str, ...]
    cautions: tuple[str, ...]
    share: ModelShare
    learns: bool
    checkpoints: int
    workers: int
    idle: IdleShare | None
    proven: tuple[str, ...]
    sizes: tuple[tuple[str, str], ...]
    confirmed: Confirmed | None

    @property
    def evaluation_steps(self) -> int | None:
        """Count the most steps of evaluation, or None if it costs nothing."""
        limit = self.spec.longest_episode
        if limit is None:
            return None
        evaluations = self.search.evaluations + self.test.evaluations
        return evaluations * self.spec.fidelity.episodes * limit


def make_plan(spec: Spec) -> Plan:
    """Check a study as `tune` would and count its work, writing nothing.

    Raises:
        InputError: what `tune` would raise.
    """
    spec = with_start(spec)
    load = trainer_loader(spec)
    check(spec, load)
    check_callbacks(spec)
    open_ended = spec.budget.measured is not None
    adaptive = spec.evaluation.seeds == "adaptive"
    policy = spec.policy()
    ends = _Ends(spec, load)
    # 1. run a study with an optimizer that is asked fast, then the baseline beyond the budget
    light = _light(spec)
    study = Study(light, Store.in_memory(), load)
    simulation = _Simulation(study, ends)
    asks = Asks(study.optimizer)
    study.journal.subscribe(asks.apply)
    with closing(study):
        cut = simulation.run()
        search = simulation.phase()
        confirmed = simulation.confirmed() if adaptive else None
        if not cut and study.driver.add_baselines():
            simulation.run()
        baseline = simulation.phase(besides=search)
    # 2. judge which of the counts are those of the study itself
    optimizer = make_optimizer(light, load)
    partial = bool(getattr(optimizer, "partial", False))
    # Scores decide which proposals are confirmed, not how many, unless there are constraints.
    counted_exactly = spec.evaluation.seeds == "fixed" or (adaptive and not spec.constraints)
    exact = not partial and counted_exactly and not (open_ended or cut)
    # It trains the same configurations whatever the scores are: these are the study's own.
    blind = search_kind(spec.optimizer.name, spec.path) == "design"
    # If segments end below the horizon, the optimizer has rungs or generations.
    stops = sorted({segment.until for segment in simulation.segments})
    rungs = tuple(stops) if stops not in ([], [spec.fidelity.steps]) else ()
    cuts = len(rungs) or 1
    # 3. count what follows the search
    tested = candidates(spec)
    seeds = len(spec.plan.test)
    trained = ends.of_candidates(study.driver.lineage, at_most=exact and blind)
    test = _whole_runs(spec, tested, tested * seeds, trained * seeds, cuts)
    # How far the search trains it, or with how many seeds, depends on scores.
    added = spec.adds_baseline + len(spec.baselines)
    if added and (adaptive or not exact):
        lacking = len(policy.full)
        if confirmed is not None and exact:
            lacking = confirmed.seeds - len(policy.first)
        end = ends.of(spec.search_space.default(), spec.fidelity.steps)
        baseline = _whole_runs(spec, added, added * lacking, added * lacking * end, cuts)
    models = _kept_models(spec, search)
    workers = segments_at_once(spec, executor_name(spec))
    # 4. say what the optimizer does, and what to know about it
    share = model_share(study.driver.lineage.proposals.values())
    learns = find(spec.optimizer.name).learns
    cautions = [*_cautions(spec, load), *ends.cautions(), *simulation.cautions()]
    idle = None
    if not open_ended:
        caution = share_caution(spec.optimizer.name, share, learns=learns)
        cautions += [] if caution is None else [caution]
        if not spec.asynchronous:
            idle = expected_idle(asks.made, len(policy.first), workers, spec.parallelism)
    return Plan(
        spec=spec,
        search=search,
        test=test,
        baseline=baseline,
        models=models,
        exact=exact,
        trained_exact=exact and ((blind and not adaptive) or ends.equal()),
        open_ended=open_ended,
        cut=cut,
        rungs=rungs,
        outline=optimizer.outline() if isinstance(optimizer, BaseOptimizer) else (),
        cautions=tuple(cautions),
        share=share,
        learns=learns,
        checkpoints=_kept(spec, test, search),
        workers=workers,
        idle=idle,
        proven=_proven(spec, load),
        sizes=_sizes(spec, load),
        confirmed=confirmed,
    )


class _Simulation:
    """A study on random scores, with segments of their real lengths.

    Attributes:
        segments: trained so far.
    """

    def __init__(self, study: Study, ends: _Ends) -> None:
        spec = study.spec
        self._metrics = [objective.metric for objective in spec.objective]
        self._metrics += [constraint.metric for constraint in spec.constraints]
        self._metrics += getattr(study.optimizer, "watches", ())
        # The same random scores, so that a plan says the same when it is asked again.
        self._rng = np.random.default_rng(spec.seed)
        self._study = study
        self._driver = study.driver
        self._ends = ends
        self._trained = 0
        self._refused: list[str] = []
        self.segments: list[Segment] = []

    def run(self) -> bool:
        """Train all segments, and say whether they were too many."""
        while segments := self._driver.advance():
            for segment in segments:
                self._study.record(self._outcome(segment))
            if len(self.segments) >= MOST_SEGMENTS:
                return True
        return False

    def _outcome(self, segment: Segment) -> Outcome:
        self.segments.append(segment)
        reports = tuple(
            Report(segment.id, step, {name: float(self._rng.random()) for name in self._metrics})
            for step in segment.evaluate_at
        )
        reached = segment.start
        try:
            end = self._ends.align(
                segment.trainer, segment.environment, segment.config, segment.until
            )
            reached = max(segment.start, end)
        except InputError as error:
            # Fails before its first step. Said as a caution: the study may draw others.
            self._refused.append(str(error))
        # If there is no checkpoint, the driver charges the continued run from step 0.
        saved = segment.save and self._study.load(segment.trainer).resumable
        self._trained += reached - segment.start
        return Outcome(
            segment.id,
            Status.DONE,
            reached=reached,
            reports=reports,
            # No trainer's time: any number above 0, for constraints and objectives on it.
            cost={"environment_steps": float(reached - segment.start), "wall_seconds": 1.0},
            checkpoint=Checkpoint(segment.id, "simulated") if saved else None,
            fence=segment.fence,
        )

    def cautions(self) -> list[str]:
        """Caution of runs that are known to fail or to start again."""
        cautions = []
        if self._refused:
            cautions.append(
                f"{counted(len(self._refused), 'segment')} of this plan would fail, "
                f"the first with: {self._refused[0]}"
            )
        if self._driver.charges.anew:
            cautions.append(
                "the trainer leaves no checkpoints: a run that goes on from a rung is trained from "
                "step 0 again, and the budget is charged for it "
                f"({len(self._driver.charges.anew)} of {len(self._driver.lineage)} proposals)"
            )
        return cautions

    def confirmed(self) -> Confirmed:
        """Part what explores, with the first seeds, from what confirms."""
        first = self._study.spec.policy().first
        charge = self._driver.charges.of
        confirm = sum(charge(s.id.proposal) for s in self.segments if s.seed not in first)
        ranking = self._driver.ranking
        counts = [ranking[number].n_seeds for number in ranking.ordered()]
        return Confirmed(
            self.phase().steps - confirm,
            confirm,
            sum(count > len(first) for count in counts),
            max(counts, default=0),
        )

    def phase(self, besides: Phase = Phase()) -> Phase:
        """Count the work so far, besides a part of it."""
        so_far = Phase(
            len(self._driver.lineage),
            len(self.segments),
            sum(self._driver.charges.of(segment.id.proposal) for segment in self.segments),
            sum(len(segment.evaluate_at) for segment in self.segments),
            self._trained,
        )
        return Phase(**{name: size - vars(besides)[name] for name, size in vars(so_far).items()})


class _Ends:
    """Finds where full-length runs of a study's configurations really end."""

    def __init__(self, spec: Spec, load: Load) -> None:
        @functools.cache  # some hundred configurations are asked for again and again
        def align(
            trainer: TrainerSpec, environment: EnvironmentSpec, config: Config, step: int
        ) -> int:
            return load(trainer).align(config, step, environment)

        self._spec = spec
        self.align = align

    def of(self, config: Config, step: int) -> int:
        """Return the step at which a run of `config` to `step` ends.

        It is `step` if its trainer refuses the configuration.
        """
        trainer, hyperparameters = self._spec.trainer_for(config)
        try:
            return self.align(trainer, self._spec.environment.resolve(), hyperparameters, step)
        except InputError:
            return step

    def of_candidates(self, lineage: Lineage, *, at_most: bool) -> int:
        """Return the steps of one test run of each candidate.

        They are the longest there can be, or as many of average length.
        """
        horizon = self._spec.fidelity.steps
        rivals = candidates(self._spec) - 1  # beside the default
        ends = [self.of(proposal.config, horizon) for proposal in lineage.proposals.values()]
        if rivals < 0 or not ends:
            return 0
        chosen = [round(sum(ends) / len(ends))]
        if at_most:
            chosen = sorted(ends[1:], reverse=True)[:rivals]
        chosen += [max(chosen, default=ends[0])] * (rivals - len(chosen))
        return self.of(self._spec.search_space.default(), horizon) + sum(chosen)

    def equal(self) -> bool:
        """Say whether all runs that were tried end at the same step."""
        return len({self.of(config, self._spec.fidelity.steps) for config in self._probes}) == 1

    @functools.cached_property
    def _probes(self) -> list[Config]:
        """The default configuration, and random ones."""
        space = self._spec.search_space
        rng = np.random.default_rng(self._spec.seed)
        # A space with tight constraints may give fewer.
        drawn = (space.try_sample(rng, _PROBES) for _ in range(_PROBES))
        return [space.default(), *(config for config in drawn if config is not None)]

    def cautions(self) -> list[str]:
        """Count the configurations whose rollouts are too long.

        Too long to be trained, or to be cut between two evaluations: they end at step 0 then.
        """
        steps = self._spec.fidelity.steps
        interval = self._spec.evaluation_interval
        trained = [self.of(config, steps) > 0 for config in self._probes]
        cut = [self.of(config, interval) > 0 for config in self._probes]
        between = counted(interval, "step", form=",")
        too_long = {
            f"trained: a rollout is longer than a run, {counted(steps, 'step', form=',')}": [
                not is_trained for is_trained in trained
            ],
            f"cut at every evaluation and rung: a rollout is longer than the {between} between two "
            "of them, so several have the same weights": [
                is_trained and not is_cut for is_trained, is_cut in zip(trained, cut, strict=True)
            ],
        }
        return [
            f"{'the default and ' * places[0]}{sum(places[1:])} of {len(places) - 1} random "
            f"configurations cannot be {why}; the constraint `n_steps * n_envs <= "
            "evaluation_interval` (or `train_freq * ...`) rules them out"
            for why, places in too_long.items()
            if any(places)
        ]


def candidates(spec: Spec) -> int:
    """Count what is tested, as if all of it were different."""
    return (2 + len(spec.baselines) + max(0, spec.test.top - 1)) if spec.plan.test else 0


def cautions_before(spec: Spec) -> list[str]:
    """Say what a user had better know before the study starts."""
    optimizer = make_optimizer(spec, trainer_loader(spec))
    cautions = [*optimizer.cautions()] if isinstance(optimizer, BaseOptimizer) else []
    starts = len(spec.starts)
    paid = paid_configurations(spec) if starts else math.inf
    if paid <= starts:
        cautions.append(
            f"warm_start: {1 + starts - math.floor(paid)} of {counted(starts, 'configuration')} "
            f"are not tried: the budget pays for {math.floor(paid)}, with the default"
        )
    if PEAK_MEMORY in spec.stated_metrics and executor_name(spec) == "threads":
        cautions.append(
            f"{PEAK_MEMORY}: segments share a process under `threads`, so each has the most that "
            "all of them have had until it ended"
        )
    return [*cautions, *_cut_cautions(spec, getattr(optimizer, "watches", ()))]


def _cut_cautions(spec: Spec, watched: Collection[str]) -> list[str]:
    """Caution where runs that may over-optimise are compared before their end."""
    rungs = cuts_of(spec.optimizer, spec.fidelity.steps, spec.path)[:-1]
    last = [objective.metric for objective in spec.objective if objective.reduce == "last"]
    if not rungs or spec.environment.id not in of_rlhf.tasks() or "kl" in watched:
        return []
    about = of_rlhf.task(spec.environment.id, spec.environment.kwargs)
    if about.verifiable or not {about.selection, about.report} & {*last}:
        return []
    return [
        f"runs are compared by their last {last[0]} at steps {', '.join(map(str, rungs))}: where a "
        "proxy is over-optimised the fastest learner falls first, and a cut keeps the wrong runs "
        "(docs/rlhf.md); `objective.reduce: best`, or `stop: overoptimizing`, which reads KL too"
    ]


def _cautions(spec: Spec, load: Load) -> list[str]:
    """Collect notes on the optimizer's options and on the user's data."""
    loaded = [load(trainer) for trainer in spec.trainers.values()]
    environment = spec.environment.resolve()
    notes = [note for trainer in loaded for note in trainer.data_notes(environment)]
    # Several algorithms of one study read the same data: each note once.
    return [*cautions_before(spec), *dict.fromkeys(notes)]


def _proven(spec: Spec, load: Load) -> tuple[str, ...]:
    """Train short runs of the classes that trainers take by path."""
    environment = spec.environment.resolve()
    lines = []
    for algorithm, trainer in spec.trainers.items():
        short = load(trainer).short_run(environment, spec.spaces[algorithm].default())
        if short is not None:
            try:
                lines.append(prove(short, environment))
            except InputError as error:
                raise spec.located(error) from None
    return tuple(lines)


def _sizes(spec: Spec, load: Load) -> tuple[tuple[str, str], ...]:
    """Collect what trainers say of checkpoints and evaluations, each line once."""
    environment = spec.environment.resolve()
    loaded = [load(trainer) for trainer in spec.trainers.values()]
    asked = (environment, spec.fidelity.episodes, spec.search_space.names)
    sizes = [trainer.sizes(*asked).items() for trainer in loaded]
    return tuple(dict.fromkeys(row for rows in sizes for row in rows))


def _light(spec: Spec) -> Spec:
    """Give the study an optimizer that costs nothing where only counts matter."""
    changes: dict[str, object] = {}
    section = spec.optimizer
    # Its model would be fitted to random scores at every ask.
    if is_slow_to_ask(section.name):
        # A rule's options are not the optimizer's own.
        of_rule = set() if section.stop is None else option_names(find_stopping(section.stop))
        stopping = {name: value for name, value in section.options.items() if name in of_rule}
        settings = {name: value for name, value in section.options.items() if name not in of_rule}
        options = {"stands_for": section.name, "settings": settings, **stopping}
        changes["optimizer"] = OptimizerSection(
            name=_DRY_RUN, stop=section.stop, rungs=section.rungs, **options
        )
    if (measured := spec.budget.measured) is not None:
        # Nothing says how many proposals fit into it: one is planned.
        changes["budget"] = spec.budget.model_copy(update={measured: None, "configurations": 1})
    return spec.model_copy(update=changes)


def _whole_runs(spec: Spec, proposals: int, runs: int, trained: int, cuts: int = 1) -> Phase:
    """Count full runs, evaluated at the ends of their segments too."""
    evaluations = runs * max(len(spec.evaluation_steps), cuts)
    return Phase(proposals, runs * cuts, runs * spec.fidelity.steps, evaluations, trained)


def _kept_models(spec: Spec, search: Phase) -> Phase:
    """Count the runs that keep models of a study without test seeds.

    Each proposal whose model is kept has one more run of every tuning seed.
    """
    keep = spec.keep.checkpoints
    if spec.plan.test or keep == "none" or not spec.ends_at_chosen_step or not search.proposals:
        return Phase()
    most = 1 if keep == "incumbent" else max(1, spec.test.top)
    count = min(search.proposals, most)
    runs = count * len(spec.plan.tuning)
    return _whole_runs(spec, count, runs, runs * spec.fidelity.steps)


def _kept(spec: Spec, test: Phase, search: Phase) -> int:
    """Count the checkpoints that outlive the study."""
    keep = spec.keep.checkpoints
    if keep == "none":
        return 0
    if keep == "lineage":
        return search.segments + test.segments
    best = max(1, spec.test.top) if keep == "top" else int(not spec.plan.test)
    return test.segments + best * len(spec.plan.tuning)
