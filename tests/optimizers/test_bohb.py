"""BOHB: which runs its model is made of, continuation, failures, and that the model helps."""

import numpy as np

from autorl.core.types import Status
from autorl.optimizers import make
from autorl.space import load_space
from autorl.testing.optimizers import space_of
from autorl.testing.simulation import simulate

SPACE = space_of("continuous")
CUBE = load_space(
    {
        "hyperparameters": {
            f"x{i}": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.75}
            for i in range(4)
        }
    }
)


def bohb(space=SPACE, **options):
    return lambda: make("bohb", space, horizon=100, **options)


def sphere(number, proposal):
    values = np.array(list(proposal.config.values()))
    return proposal.until / 1000 - float(((values - 0.3) ** 2).sum())


def test_scores_of_different_lengths_are_never_compared():
    """Short runs score best where long ones are worst: a model of both would go there."""

    def misleading(number, proposal):
        x = proposal.config["x"]
        return -abs(x - 0.9) + 100 if proposal.until < 100 else -abs(x - 0.1)

    for lag in (1, 4):
        proposals = simulate(
            bohb(startup=6, random_fraction=0.0), misleading, 90, lag=lag
        ).proposals
        late = [p.config["x"] for p in proposals[45:] if p.origin.endswith("of runs to step 100")]
        assert len(late) > 10
        assert np.median(late) < 0.4


def test_failures_count_as_bad_configurations():
    """All of the upper half crash, at the worst score so far of their length."""

    def fail(number, proposal):
        return Status.CRASH if proposal.config["x0"] > 0.5 else None

    simulation = simulate(
        bohb(CUBE, random_fraction=0.0), lambda n, p: -abs(p.config["x1"] - 0.5), 90, fail=fail
    )
    drawn = [p.config["x0"] for p in simulation.proposals if p.origin.startswith("tpe")]
    assert len(drawn) > 20
    assert np.mean(np.array(drawn) > 0.5) < 0.25


def test_no_configuration_is_started_twice():
    space = load_space(
        {"hyperparameters": {"n": {"type": "int", "lower": 1, "upper": 60, "default": 1}}}
    )
    proposals = simulate(
        bohb(space, random_fraction=0.0), lambda n, p: -p.config["n"], 40
    ).proposals
    started = [
        p.config for p in proposals if p.origin.startswith("tpe") and "at random" not in p.origin
    ]
    assert len(started) >= 8
    assert len(started) == len(set(started))


def test_better_than_hyperband():
    def best(name, seed):
        simulation = simulate(lambda: make(name, CUBE, horizon=100), sphere, 90, seed=seed)
        return max(s.values[0] for s in simulation.scored if s.reached == 100)

    wins = sum(best("bohb", seed) > best("hyperband", seed) for seed in range(8))
    assert wins >= 7  # by chance once in 28 seeds
