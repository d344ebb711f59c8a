"""Plans: what a study would do, counted before it does it.

The driver itself runs in memory, on random scores instead of training. Counts are exact where they
do not depend on scores (full-length runs, fixed or adaptive seeds); with rungs, racing or
populations they are those of one run on random scores, and the plan says so. The budget charges
nominal steps; the steps that are really trained follow from where the trainers can cut a run of
each configuration.
"""

from __future__ import annotations

from dataclasses import dataclass

from autorl.executors.worker import Load
from autorl.optimizers import BaseOptimizer, find
from autorl.optimizers.model_share import ModelShare, model_share, share_caution
from autorl.optimizers.registry import find_stopping, is_slow_to_ask, option_names, search_kind
from autorl.report.idle import Asks, IdleShare, expected_idle
from autorl.report.reach import Reach
from autorl.report.simulated import Confirmed, Ends, Phase, Tally, candidates
from autorl.store import Store
from autorl.study import Study
from autorl.study.callbacks import check_callbacks
from autorl.study.setup import (
    cautions_before,
    check,
    executor_name,
    make_optimizer,
    segments_at_once,
    trainer_loader,
)
from autorl.study.spec import OptimizerSection, Spec

_DRY_RUN = "autorl.optimizers.dry_run:DryRun"
MOST_SEGMENTS = 20_000


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
        open_ended: the budget is in hours: the counts are those of one proposal.
        cut: the simulation was stopped after so many segments; the study is larger.
        rungs: steps at which runs are cut; empty without.
        outline, cautions: what the optimizer itself says about its brackets, and what to know about
            its options.
        share: new configurations that the optimizer's model would make.
        learns: whether the optimizer has a model.
        checkpoints: how many outlive the study at most, besides those the optimizer may still
            resume.
        idle: how busy the workers will be; None where nothing waits.
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
    confirmed: Confirmed | None = None

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
    load = trainer_loader(spec)
    check(spec, load)
    check_callbacks(spec)
    open_ended = spec.budget.hours is not None
    horizon = spec.fidelity.steps
    # 1. make the study with an optimizer that is asked fast
    light = _light(spec, open_ended)
    reach = Reach(load)
    study = Study(light, Store.in_memory(), load)
    tally = Tally(light, study.driver, reach)
    asks = Asks(study.optimizer)
    study.journal.subscribe(asks.apply)
    # 2. run it on random scores, then the baseline, which the driver adds beyond the budget
    try:
        cut = _simulate(study, tally)
        search = tally.phase()
        adaptive = spec.evaluation.seeds == "adaptive"
        confirmed = tally.confirmed(spec.policy().first) if adaptive else None
        if not cut and study.driver.add_baseline():
            _simulate(study, tally)
        baseline = tally.phase().less(search)
    finally:
        study.close()
    # 3. judge which of the counts are those of the study itself
    optimizer = make_optimizer(light, load)
    partial = bool(getattr(optimizer, "partial", False))
    # Who is confirmed depends on scores, how many does not, but for constraints.
    counted = spec.evaluation.seeds == "fixed" or (adaptive and not spec.constraints)
    exact = not partial and counted and not (open_ended or cut)
    # It trains the same configurations whatever the scores are: these are the study's own.
    blind = search_kind(spec.optimizer.name, spec.path) == "design"
    # Where segments end below the horizon the optimizer has rungs, or generations.
    stops = sorted({segment.until for segment in tally.segments})
    rungs = tuple(stops) if stops not in ([], [horizon]) else ()
    cuts = len(rungs) or 1
    # 4. count what follows the search
    ends = Ends(spec, reach)
    trained_by_tests = ends.of_candidates(study.driver.lineage, at_most=exact and blind)
    test = _test_phase(spec, cuts, trained_by_tests)
    policy = spec.policy()
    # How far the search trains it, or with how many seeds, depends on scores.
    if spec.adds_baseline and (adaptive or not exact):
        lacking = len(policy.full)
        if confirmed is not None and exact:
            lacking = confirmed.seeds - len(policy.first)
        end = ends.of(spec.search_space.default(), horizon)
        baseline = _baseline_phase(spec, cuts, end, lacking)
    models = _models_phase(spec, search)
    workers = segments_at_once(spec, executor_name(spec))
    # 5. say what the optimizer does, and what to know about it
    share = model_share(study.driver.lineage.proposals.values())
    learns = find(spec.optimizer.name).learns
    outline = optimizer.outline() if isinstance(optimizer, BaseOptimizer) else ()
    cautions = [*_cautions(spec, load), *ends.cautions(), *tally.cautions()]
    if not open_ended:
        caution = share_caution(spec.optimizer.name, share, learns=learns)
        cautions += [] if caution is None else [caution]
    seeds = len(policy.first)
    idle = None
    if not (open_ended or spec.asynchronous):
        idle = expected_idle(asks.made, seeds, workers, spec.parallelism)
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
        outline=outline,
        cautions=tuple(cautions),
        share=share,
        learns=learns,
        checkpoints=_kept(spec, test, search),
        workers=workers,
        idle=idle,
        confirmed=confirmed,
    )


def _cautions(spec: Spec, load: Load) -> list[str]:
    """Collect notes on the optimizer's options and on the user's data."""
    loaded = [load(trainer) for trainer in spec.trainers.values()]
    environment = spec.environment.resolve()
    notes = [note for trainer in loaded for note in trainer.data_notes(environment)]
    # Several algorithms of one study read the same data: each note once.
    return [*cautions_before(spec), *dict.fromkeys(notes)]


def _simulate(study: Study, tally: Tally) -> bool:
    """Run the search on random scores.

    Returns:
        Whether it was cut short because it is long.
    """
    while segments := study.driver.advance():
        for segment in segments:
            study.record(tally.take(segment))
        if len(tally.segments) >= MOST_SEGMENTS:
            return True
    return False


def _light(spec: Spec, open_ended: bool) -> Spec:
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
    if open_ended:
        # Nothing says how many proposals fit into hours: one is planned.
        changes["budget"] = spec.budget.model_copy(update={"hours": None, "configurations": 1})
    return spec.model_copy(update=changes)


def _test_phase(spec: Spec, cuts: int, trained: int) -> Phase:
    """Count the work of the test phase.

    `cuts` are the segments of a full run, `trained` the steps of one run of each candidate.
    """
    count = candidates(spec)
    seeds = len(spec.plan.test)
    runs = count * seeds
    # At every cut the run is evaluated too.
    evaluations = max(len(spec.evaluation_steps), cuts)
    return Phase(
        count, runs * cuts, runs * spec.fidelity.steps, runs * evaluations, trained * seeds
    )


def _baseline_phase(spec: Spec, cuts: int, end: int, seeds: int) -> Phase:
    """Count the most that the default configuration is trained beyond the budget.

    `cuts` are the segments of a full run, `end` the step where it really ends, `seeds` those it may
    lack.
    """
    evaluations = max(len(spec.evaluation_steps), cuts)
    return Phase(1, seeds * cuts, seeds * spec.fidelity.steps, seeds * evaluations, seeds * end)


def _models_phase(spec: Spec, search: Phase) -> Phase:
    """Count the runs that keep models of a study without test seeds.

    Each proposal whose model is kept has one more run of every tuning seed.
    """
    keep = spec.keep.checkpoints
    if spec.plan.test or keep == "none" or not spec.ends_at_chosen_step or not search.proposals:
        return Phase(0, 0, 0, 0, 0)
    most = 1 if keep == "incumbent" else max(1, spec.test.top)
    count = min(search.proposals, most)
    runs = count * len(spec.plan.tuning)
    steps = runs * spec.fidelity.steps
    return Phase(count, runs, steps, runs * len(spec.evaluation_steps), steps)


def _kept(spec: Spec, test: Phase, search: Phase) -> int:
    keep = spec.keep.checkpoints
    if keep == "none":
        return 0
    if keep == "lineage":
        return search.segments + test.segments
    if keep == "top":
        return test.segments + max(1, spec.test.top) * len(spec.plan.tuning)
    if not spec.plan.test:
        return test.segments + len(spec.plan.tuning)
    return test.segments
