"""Proposals of `tpe`, `gp` and `nsga2` beside those of Optuna's own samplers, told the same trials.

The original is built by hand: a study in Optuna's memory, its sampler with the options that the
documentation names, the seed that our ask draws first. The told trials, their state, and every
option that is passed on are compared at once.
"""

import dataclasses
import math
import warnings

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution as Choice
from optuna.distributions import FloatDistribution as Real
from optuna.distributions import IntDistribution as Whole
from optuna.samplers import NSGAIISampler, RandomSampler, TPESampler
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator
from optuna.samplers._tpe.sampler import default_weights
from optuna.trial import TrialState, create_trial

from autorl.core import seeds
from autorl.core.types import Failed, FrozenMap, Proposal, Proposed, Scored, Status
from autorl.optimizers import make
from autorl.space import load_space
from autorl.testing.optimizers import SPACES, space_of
from autorl.testing.simulation import simulate

CONTINUOUS = space_of("continuous")
# As Optuna has them: choices by index, flipped logarithms in the unit interval.
DISTRIBUTIONS = {
    "continuous": {"x": Real(0.0, 1.0), "y": Real(0.0, 1.0), "z": Real(0.0, 1.0)},
    "types": {
        "rate": Real(1e-5, 1e-1, log=True),
        "gamma": Real(0.0, 1.0),
        "layers": Whole(1, 4),
        "batch": Whole(8, 1024, log=True),
        "activation": Choice((0, 1)),
        "net_arch": Choice((0, 1, 2)),
        "normalize": Choice((0, 1)),
        "width": Whole(0, 3),
        "only": Choice((0,)),
    },
    "conditional": {
        "kind": Choice((0, 1)),
        "x": Real(0.0, 1.0),
        "a.depth": Whole(1, 9),
        "a.mode": Choice((0, 1)),
        "a.v.rate": Real(1e-4, 1.0, log=True),
        "b.width": Real(0.0, 1.0),
    },
}


def choices_of(space_name, name):
    choices = SPACES[space_name]["hyperparameters"][name].get("choices", [])
    return [tuple(choice) if isinstance(choice, list) else choice for choice in choices]


def coded(space_name, name, value):
    """A value as Optuna is told it, worked out from the definition of the space."""
    choices = choices_of(space_name, name)
    if choices:
        return [repr(choice) for choice in choices].index(repr(value))
    if name == "gamma":
        return math.log(0.2 / (1 - value)) / math.log(0.2 / 0.0001)
    return value


def plain(space_name, name, code):
    choices = choices_of(space_name, name)
    if choices:
        return choices[code]
    return 1 - 0.2 * (0.0001 / 0.2) ** code if name == "gamma" else code


def results(space, count, *, pending=3, objectives=1, seed=0):
    """Configurations with scores, some of them infeasible, failures of both kinds, and pending."""
    rng = np.random.default_rng(seed)
    told = []
    for number in range(count):
        values = tuple(float(value) for value in rng.normal(size=objectives))
        outcome = Scored(number, values, reached=10)
        if number % 9 == 4:
            outcome = Failed(number, Status.CRASH, ())
        elif number % 9 == 7:
            outcome = Failed(number, Status.CRASH, (-3.0,) * objectives)
        told.append((space.sample(rng), outcome))
    told += [(space.sample(rng), None) for _ in range(pending)]
    return told


def asked(name, space_name, told, *, seed=5, objectives=1, weigh=False, **options):
    space = space_of(space_name)
    optimizer = make(name, space, horizon=10, n_objectives=objectives, **options)
    optimizer.problem = dataclasses.replace(optimizer.problem, weigh_seeds=weigh)
    for number, (config, _) in enumerate(told):
        optimizer.observe(Proposed(number, Proposal(config, 10)))
    for _, outcome in told:
        if outcome is not None:
            optimizer.observe(outcome)
    return optimizer.ask(np.random.default_rng(seed))


def original(sampler, space_name, told, *, objectives=1):
    """Return Optuna's next suggestion; the sampler is given as a function of its seed."""
    space = space_of(space_name)
    distributions = DISTRIBUTIONS[space_name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = optuna.create_study(
            directions=["maximize"] * objectives,
            sampler=sampler(int(np.random.default_rng(5).integers(2**31))),
        )
    for config, outcome in told:
        params = {
            name: coded(space_name, name, value)
            for name, value in config.items()
            if name in distributions
        }
        values = None if outcome is None else outcome.values or None
        state = TrialState.COMPLETE if values else TrialState.FAIL
        constraints = getattr(outcome, "constraints", ())
        study.add_trial(
            create_trial(
                state=TrialState.RUNNING if outcome is None else state,
                values=values,
                params=params,
                distributions={name: distributions[name] for name in params},
                constraints={str(place): value for place, value in enumerate(constraints)},
            )
        )
    return suggested(study.ask(), space, space_name)


def suggested(trial, space, space_name):
    config = {}
    for name in space.names:
        if name == "fixed":
            config[name] = 7
        elif space.is_active(name, config):
            distribution = DISTRIBUTIONS[space_name][name]
            trial_value = _suggest(trial, name, distribution)
            config[name] = plain(space_name, name, trial_value)
    return config


def _suggest(trial, name, distribution):
    if isinstance(distribution, Choice):
        return trial.suggest_categorical(name, distribution.choices)
    bounds = (distribution.low, distribution.high)
    if isinstance(distribution, Whole):
        return trial.suggest_int(name, *bounds, log=distribution.log)
    return trial.suggest_float(name, *bounds, log=distribution.log)


def assert_same(proposal, expected):
    assert list(proposal.config) == list(expected)
    for name, value in expected.items():
        mine = proposal.config[name]
        assert mine == (pytest.approx(value, rel=1e-8) if isinstance(value, float) else value), name


@pytest.mark.parametrize("space_name", sorted(DISTRIBUTIONS))
@pytest.mark.parametrize("count", [2, 30])
def test_tpe_proposes_what_optunas_sampler_does(space_name, count):
    """Multivariate, with pending trials as liars, and one density for each group of parameters."""
    told = results(space_of(space_name), count)
    proposal = asked("tpe", space_name, told, startup=1)

    def sampler(seed):
        return TPESampler(
            multivariate=True,
            group=space_name == "conditional",
            constant_liar=True,
            n_startup_trials=1,
            n_ei_candidates=24,
            seed=seed,
        )

    assert_same(proposal, original(sampler, space_name, told))
    assert (proposal.origin, proposal.informed, proposal.meta) == ("tpe", True, FrozenMap())
    assert_same(asked("tpe", space_name, told, startup=1, weigh=True), proposal.config)


def with_constraints(told, constraints):
    return [
        (config, dataclasses.replace(outcome, constraints=constraints(outcome)))
        if isinstance(outcome, Scored)
        else (config, outcome)
        for config, outcome in told
    ]


def test_tpe_takes_infeasible_results_for_bad_as_optuna_does():
    """The best scores break a rule, and a failed run is told to break it as much as the worst."""
    plain_results = results(CONTINUOUS, 30)
    told = with_constraints(plain_results, lambda scored: (scored.values[0] - 0.2, -0.5))
    most = max(outcome.constraints[0] for _, outcome in told if isinstance(outcome, Scored))
    failures_too = [
        (config, _Failure(outcome.values, (most, -0.5)) if isinstance(outcome, Failed) else outcome)
        for config, outcome in told
    ]

    def sampler(seed):
        return TPESampler(multivariate=True, n_startup_trials=1, seed=seed)

    proposal = asked("tpe", "continuous", told, startup=1)
    assert_same(proposal, original(sampler, "continuous", failures_too))
    assert proposal.config != asked("tpe", "continuous", plain_results, startup=1).config


@dataclasses.dataclass(frozen=True)
class _Failure:
    values: tuple[float, ...]
    constraints: tuple[float, ...]


@pytest.mark.parametrize("weigh", [False, True])
def test_tpe_of_several_objectives_is_optunas(weigh):
    told = results(CONTINUOUS, 70, objectives=2)

    def sampler(seed):
        return TPESampler(multivariate=True, n_startup_trials=1, seed=seed)

    proposal = asked("tpe", "continuous", told, startup=1, objectives=2, weigh=weigh)
    assert_same(proposal, original(sampler, "continuous", told, objectives=2))


def weights_of_densities(monkeypatch, *arguments, **options):
    seen = []
    begin = _ParzenEstimator.__init__

    def spy(self, observations, space, parameters, weights=None):
        seen.append((sorted(space), weights))
        begin(self, observations, space, parameters, weights)

    monkeypatch.setattr(_ParzenEstimator, "__init__", spy)
    asked(*arguments, weigh=True, **options)
    return seen


def counted(told):
    """The same results, of one seed and of three by turns."""
    return [
        (config, dataclasses.replace(outcome, n_seeds=1 + 2 * (number % 2)))
        for number, (config, outcome) in enumerate(told)
        if isinstance(outcome, Scored)
    ]


def renumbered(told):
    return [
        (config, dataclasses.replace(outcome, proposal=number))
        for number, (config, outcome) in enumerate(told)
    ]


@pytest.mark.parametrize("objectives", [1, 2])
def test_seeds_multiply_the_weights_that_age_gives(objectives, monkeypatch):
    """Optuna's weights rise with the trial's number where there are more than 25 of them."""
    told = renumbered(counted(results(CONTINUOUS, 90, objectives=objectives, pending=0)))
    below, above = (
        weights
        for _, weights in weights_of_densities(
            monkeypatch, "tpe", "continuous", told, startup=1, objectives=objectives
        )
    )
    assert len(below) + len(above) == len(told) == 70
    assert set(below) == {1.0, 3.0}
    ratios = above / default_weights(len(above))
    assert set(np.round(ratios, 9)) == {1.0, 3.0}
    assert not np.allclose(above, ratios)
    assert sum(below) + sum(ratios) == pytest.approx(35 * 1 + 35 * 3)


@pytest.mark.parametrize("space_name", sorted(DISTRIBUTIONS))
def test_a_start_up_is_drawn_by_optunas_random_sampler(space_name):
    told = results(space_of(space_name), 6)
    expected = original(lambda seed: RandomSampler(seed=seed), space_name, told)
    proposal = asked("tpe", space_name, told, startup=len(told) + 1)
    assert_same(proposal, expected)
    assert (proposal.origin, proposal.informed) == ("tpe, start-up", False)


def test_gp_proposes_what_optunas_sampler_does():
    pytest.importorskip("torch", reason="the extra `bo` is not installed")
    from optuna.samplers import GPSampler

    told = results(CONTINUOUS, 8, pending=1)
    expected = original(lambda seed: GPSampler(n_startup_trials=1, seed=seed), "continuous", told)
    proposal = asked("gp", "continuous", told, startup=1)
    assert proposal.config == pytest.approx(expected, abs=1e-5)
    assert (proposal.origin, proposal.informed) == ("gp", True)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"crossover_prob": 0.3, "swapping_prob": 0.9},
        {"crossover_prob": 0.0},
        {"swapping_prob": 0.0},
    ],
)
def test_nsga2_breeds_what_optunas_sampler_does(options):
    """In generations of four; a child that equals an earlier one is bred again."""

    def objectives(x, y, z):
        return (-((x - 0.2) ** 2) - z, -((y - 0.8) ** 2) + z)

    count = 14
    made = simulate(
        lambda: make("nsga2", CONTINUOUS, horizon=1, population_size=4, n_objectives=2, **options),
        lambda number, proposal: objectives(**proposal.config),
        count,
    ).proposals
    full = {"crossover_prob": 0.9, "swapping_prob": 0.5} | options
    trials = []
    parents = {}  # of each generation, chosen once
    for number, proposal in enumerate(made):
        rng = seeds.generator(0, "ask", number)
        if number:
            earlier = [list(trial.params.values()) for trial in trials]
            for _ in range(6):
                child, chosen = _child(trials, parents, int(rng.integers(2**31)), full)
                if not any(np.allclose(list(child.values()), config) for config in earlier):
                    break
            assert proposal.config == pytest.approx(child, abs=1e-9)
            parents |= chosen
        trials.append(
            create_trial(
                values=objectives(**proposal.config),
                params=dict(proposal.config),
                distributions=DISTRIBUTIONS["continuous"],
                system_attrs={"NSGAIISampler:generation": number // 4},
            )
        )
    assert [proposal.informed for proposal in made] == [False] * 4 + [True] * (count - 4)


def _child(trials, parents, seed, options):
    sampler = NSGAIISampler(population_size=4, seed=seed, **options)
    study = optuna.create_study(directions=["maximize"] * 2, sampler=sampler)
    study.add_trials(trials)
    for key, numbers in parents.items():
        study._storage.set_study_system_attr(study._study_id, key, numbers)
    trial = study.ask()
    child = {name: trial.suggest_float(name, 0.0, 1.0) for name in "xyz"}
    return child, study._storage.get_study_system_attrs(study._study_id)


@pytest.mark.parametrize("space_name", ["continuous", "types"])
def test_the_numbers_of_proposals_may_have_gaps(space_name):
    """A baseline of the driver, which no optimizer is told of, has a number too."""
    told = results(space_of(space_name), 12, pending=1)
    space = space_of(space_name)
    optimizer = make("tpe", space, horizon=10, startup=1)
    for number, (config, _) in enumerate(told):
        optimizer.observe(Proposed(3 * number, Proposal(config, 10)))
    for number, (_, outcome) in enumerate(told):
        if outcome is not None:
            optimizer.observe(dataclasses.replace(outcome, proposal=3 * number))
    proposal = optimizer.ask(np.random.default_rng(5))
    assert proposal == asked("tpe", space_name, told, startup=1)


def test_where_conditions_and_rules_meet_candidates_are_compared_as_in_optuna():
    """Groups are drawn apart, and the rule is about the whole: what breaks it is drafted again."""
    definition = dict(SPACES["conditional"]) | {"constraints": ["x <= 0.9"]}
    ruled = load_space(definition)
    free = space_of("conditional")
    told = [
        (config, outcome)
        for config, outcome in results(free, 40, pending=0)
        if config["x"] <= 0.9 and isinstance(outcome, Scored)
    ]
    proposals = []
    for space in (ruled, free):
        optimizer = make("tpe", space, horizon=10, startup=1)
        for number, (config, _) in enumerate(told):
            optimizer.observe(Proposed(number, Proposal(config, 10)))
        for number, (_, outcome) in enumerate(told):
            optimizer.observe(dataclasses.replace(outcome, proposal=number))
        proposals.append([optimizer.ask(np.random.default_rng(seed)) for seed in range(8)])
    same = [
        mine.config == theirs.config
        for mine, theirs in zip(*proposals, strict=True)
        if theirs.config["x"] <= 0.9
    ]
    assert len(same) >= 4
    assert all(same)
