"""DEHB: populations by length, promotions with and children without checkpoints, and its quality beside PyPI's DEHB."""

import math
import statistics

import numpy as np
import pytest

from autorl.core.types import Status
from autorl.optimizers import make
from autorl.space import load_space
from autorl.testing.optimizers import assert_alike, space_of
from autorl.testing.simulation import replayed, simulate

SPACE = space_of("continuous")
OPTIONS = {"eta": 2, "rungs": 3}
CYCLE = (4 + 2 + 1) + (3 + 1) + 3  # proposals of the three brackets of the first cycle


def dehb(space=SPACE, horizon=100, **more):
    return lambda: make("dehb", space, horizon=horizon, **OPTIONS, **more)


def by_x(number, proposal):
    return proposal.config["x"]


def test_the_first_cycle_is_hyperbands_and_goes_on_from_checkpoints():
    mine = simulate(dehb(), by_x, CYCLE).proposals
    hyperband = simulate(
        lambda: make("hyperband", SPACE, horizon=100, **OPTIONS), by_x, CYCLE
    ).proposals
    assert [p.until for p in mine] == [p.until for p in hyperband]
    assert [p.resume_from is None for p in mine] == [p.resume_from is None for p in hyperband]
    best = sorted(range(4), key=lambda number: -mine[number].config["x"])
    assert [mine[4].resume_from, mine[5].resume_from] == best[:2]
    assert mine[6].resume_from == 4
    for proposal in mine:
        if proposal.resume_from is not None:
            assert proposal.config == mine[proposal.resume_from].config


def test_later_cycles_are_children_from_scratch():
    proposals = simulate(dehb(), by_x, 3 * CYCLE).proposals[CYCLE:]
    assert [p.until for p in proposals[:7]] == [25, 25, 25, 25, 50, 50, 100]
    assert {p.resume_from for p in proposals} == {None}
    assert all(p.origin.startswith("child of proposal") for p in proposals)


def test_scores_of_different_lengths_are_never_compared():
    """Short runs score far better than any long one: each population still holds runs of its own length only."""

    def shrinking(number, proposal):
        return 1000 - proposal.until + proposal.config["x"]

    simulation = simulate(dehb(), shrinking, 5 * CYCLE)
    optimizer = replayed(dehb(), simulation.events)
    for step, members in optimizer._members.items():
        assert {record.proposal.until for record in members.records()} == {step}
    best = {
        step: max(r.values[0] for r in members.records())
        for step, members in optimizer._members.items()
    }
    assert best[25] > best[50] > best[100]


def test_failures_neither_enter_a_population_nor_are_promoted():
    def fail(number, proposal):
        return Status.CRASH if number % 3 == 0 else None

    simulation = simulate(dehb(), by_x, 4 * CYCLE, lag=2, fail=fail)
    optimizer = replayed(dehb(), simulation.events)
    occupants = {
        record.id for members in optimizer._members.values() for record in members.records()
    }
    assert occupants
    assert not any(number % 3 == 0 for number in occupants)
    assert not any(
        p.resume_from is not None and p.resume_from % 3 == 0 for p in simulation.proposals
    )


def test_a_warm_start_is_trained_although_the_first_bracket_is_full():
    warm = [SPACE.from_unit(np.full(3, 0.1 * k)) for k in range(1, 9)]
    proposals = simulate(dehb(initial=warm), by_x, 2 * CYCLE).proposals
    placed = [p.config for p in proposals if p.origin in ("default", "warm start")]
    assert placed == [SPACE.default(), *warm]


# The original, on five functions of the unit cube whose short runs mislead a little.

CUBE = load_space(
    {
        "hyperparameters": {
            f"x{i}": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.75}
            for i in range(4)
        }
    }
)


def _sphere(x):
    return float(((x - 0.3) ** 2).sum())


def _rosenbrock(x):
    z = 3 * x - 1
    return float((100 * (z[1:] - z[:-1] ** 2) ** 2 + (1 - z[:-1]) ** 2).sum()) / 100


def _rastrigin(x):
    z = 4 * (x - 0.4)
    return float((z**2 + 1 - np.cos(2 * math.pi * z)).sum())


def _ackley(x):
    z = 8 * (x - 0.6)
    return (
        20
        + math.e
        - 20 * math.exp(-0.2 * math.sqrt((z**2).mean()))
        - math.exp(np.cos(2 * math.pi * z).mean())
    )


def _steps(x):
    return float(np.abs(np.floor(8 * x) - np.arange(2, 6)).sum())


FUNCTIONS = {
    "sphere": _sphere,
    "rosenbrock": _rosenbrock,
    "rastrigin": _rastrigin,
    "ackley": _ackley,
    "steps": _steps,
}
LONGEST, BUDGET, REPEATS = (
    27,
    40,
    24,
)  # steps of a full run; full runs, each run charged from scratch; studies


def loss(function, x, steps):
    """The function, its optimum moved for short runs."""
    return function(np.asarray(x) + 0.05 * (1 - steps / LONGEST)) + 0.1 * (1 - steps / LONGEST)


def best_of(trained):
    """The best loss of a full run within the budget; `trained`: steps and losses in order."""
    spent, best = 0.0, math.inf
    for steps, value in trained:
        spent += steps / LONGEST
        if spent > BUDGET:
            return best
        best = min(best, value) if steps == LONGEST else best
    raise AssertionError("fewer runs than the budget pays for")


def ours(function, seed):
    def objective(number, proposal):
        return -loss(function, list(proposal.config.values()), proposal.until)

    def factory():
        return make("dehb", CUBE, horizon=LONGEST, eta=3, rungs=4)

    simulation = simulate(factory, objective, 260, seed=seed)
    proposals = simulation.proposals
    return best_of([(proposals[s.proposal].until, -s.values[0]) for s in simulation.scored])


def theirs(function, seed, folder):
    from dehb import DEHB

    original = DEHB(
        dimensions=4,
        min_fidelity=1,
        max_fidelity=LONGEST,
        eta=3,
        n_workers=1,
        output_path=str(folder),
        save_freq="end",
        seed=seed,
    )
    trained = []
    for _ in range(260):
        job = original.ask()
        steps = float(job["fidelity"])
        trained.append((steps, loss(function, job["config"], steps)))
        original.tell(job, {"fitness": trained[-1][1], "cost": steps})
    return best_of(trained)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_as_good_as_the_original(name, tmp_path):
    pytest.importorskip(
        "dehb",
        reason="the original is a test oracle: pip install --no-deps dehb==0.1.2 loguru dask",
    )
    from loguru import logger

    logger.disable("dehb")
    mine = [-ours(FUNCTIONS[name], 300 + seed) for seed in range(REPEATS)]
    original = [-theirs(FUNCTIONS[name], seed, tmp_path) for seed in range(REPEATS)]
    print(
        f"{name}: ours {statistics.median(mine):.4g}, original {statistics.median(original):.4g} (medians)"
    )
    assert_alike(mine, original)


def test_better_than_random_search_on_the_same_functions():
    better = 0
    for name in ("sphere", "rosenbrock", "ackley"):
        function = FUNCTIONS[name]
        rng = np.random.default_rng(1)
        at_random = [
            min(loss(function, rng.random(4), LONGEST) for _ in range(BUDGET)) for _ in range(8)
        ]
        better += sum(ours(function, seed) < value for seed, value in enumerate(at_random))
    assert better >= 19  # of 24; a fair coin gives so many once in 300
