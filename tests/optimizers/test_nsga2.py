"""NSGA-II: fronts and crowding beside Optuna's, generations and their parents."""

import numpy as np
import optuna
import pytest
from optuna.samplers.nsgaii import _elite_population_selection_strategy as elite
from optuna.trial import create_trial

from autorl.core.types import Failed, FrozenMap, Proposal, Proposed, Scored, Status
from autorl.optimizers import make
from autorl.statistics.fronts import crowded_order
from autorl.testing.optimizers import space_of
from autorl.testing.simulation import simulate

CONTINUOUS = space_of("continuous")
TYPES = space_of("types")


def dominates(a, b):
    return (a >= b).all() and (a > b).any()


@pytest.mark.parametrize("objectives", [1, 2, 3])
def test_fronts_come_one_after_the_other(objectives):
    values = np.random.default_rng(objectives).integers(0, 5, (40, objectives)).astype(float)
    order = crowded_order(values)
    assert sorted(order) == [*range(40)]
    ranks = np.full(40, -1)
    for rank in range(40):
        left = np.flatnonzero(ranks < 0)
        front = [a for a in left if not any(dominates(values[b], values[a]) for b in left)]
        ranks[front] = rank
        if len(front) == len(left):
            break
    assert (np.diff(ranks[order]) >= 0).all()


@pytest.mark.parametrize("objectives", [2, 3])
@pytest.mark.parametrize("size", [12, 16, 20])
def test_the_least_crowded_of_a_front_are_optunas_choice(objectives, size):
    values = np.random.default_rng(size).random((30, objectives))
    values /= np.linalg.norm(values, axis=1, keepdims=True)  # on a sphere none dominates another
    study = optuna.create_study(directions=["maximize"] * objectives)
    trials = [create_trial(values=list(row)) for row in values]
    for number, trial in enumerate(trials):
        trial.number = number
    strategy = elite.NSGAIIElitePopulationSelectionStrategy(population_size=size)
    chosen = {trial.number for trial in strategy(study, trials)}
    assert set(crowded_order(values)[:size]) == chosen


@pytest.mark.parametrize(
    ("budget", "given", "size"), [(1000, None, 50), (80, None, 20), (8, None, 4), (8, 2, 2)]
)
def test_a_generation_is_at_most_a_quarter_of_the_budget(budget, given, size):
    optimizer = make("nsga2", TYPES, horizon=10, budget=budget, population_size=given)
    assert optimizer.population_size == size
    assert [optimizer.modelled(99, scored) for scored in (size - 1, size)] == [False, True]


def observed(scores, generations, size=4, objectives=2):
    optimizer = make("nsga2", CONTINUOUS, horizon=10, population_size=size, n_objectives=objectives)
    rng = np.random.default_rng(0)
    for number, generation in enumerate(generations):
        meta = FrozenMap(generation=generation)
        proposal = Proposal(CONTINUOUS.sample(rng), 10, meta=meta)
        optimizer.observe(Proposed(number, proposal))
    for outcome in scores:
        optimizer.observe(outcome)
    return optimizer


def test_parents_are_the_best_of_a_generation_and_of_its_parents():
    values = [(1, 0), (0, 1), (-1, -1), (-2, -2), (3, 0), (0, 3), (-3, -3), (2, 2)]
    scored = [Scored(number, tuple(map(float, pair))) for number, pair in enumerate(values)]
    optimizer = observed(scored, [0] * 4 + [1] * 4)
    assert optimizer._parents_of(1) == [0, 1, 2, 3]
    assert set(optimizer._parents_of(2)[:3]) == {4, 5, 7}
    assert optimizer._parents_of(2)[3] in (0, 1)
    assert optimizer.ask(np.random.default_rng(0)).meta["generation"] == 2
    # A late outcome of an early generation is in time for its children.
    optimizer.observe(Scored(2, (9.0, 9.0)))
    assert optimizer._parents_of(1)[0] == 2
    assert optimizer._parents_of(2)[0] == 2


def test_what_keeps_the_constraints_comes_first_and_failures_last():
    outcomes = [
        Scored(0, (1.0,), constraints=(0.5,)),
        Scored(1, (0.0,), constraints=(-1.0,)),
        Failed(2, Status.CRASH, (-5.0,)),
        Scored(3, (9.0,), constraints=(2.0,)),
        Failed(4, Status.CRASH, ()),
    ]
    optimizer = observed(outcomes, [0] * 5, objectives=1)
    assert optimizer._parents_of(1) == [1, 0, 3, 2]


@pytest.mark.parametrize("options", [{}, {"crossover_prob": 0.0}, {"swapping_prob": 0.0}])
def test_children_are_made_of_their_parents(options):
    made = simulate(
        lambda: make("nsga2", CONTINUOUS, horizon=1, population_size=4, n_objectives=2, **options),
        lambda number, proposal: (proposal.config["x"], -proposal.config["x"]),
        40,
    ).proposals
    assert [proposal.meta.get("generation", 0) for proposal in made] == [
        number // 4 for number in range(40)
    ]
    assert [proposal.informed for proposal in made] == [False] * 4 + [True] * 36
    kept = []
    donors = []
    for number, child in enumerate(made[4:], 4):
        earlier = made[: 4 * (number // 4)]
        of_earlier = {name: {p.config[name] for p in earlier} for name in "xyz"}
        kept.append(np.mean([child.config[name] in of_earlier[name] for name in "xyz"]))
        shared = [sum(child.config[n] == p.config[n] for n in "xyz") for p in earlier]
        donors.append(max(shared))
    # One of three is drawn anew in the mean, more where a child would repeat one.
    assert 0.4 < np.mean(kept) < 0.75
    if options:  # one parent: what is kept of a child is kept of one
        assert all(top == round(3 * part) for top, part in zip(donors, kept, strict=True))
