"""What Optuna's samplers are shown: what was run, pending and failed runs, corrections, conditions and scales."""

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from autorl.optimizers import make
from autorl.testing.optimizers import score, some_fail, space_of
from autorl.testing.simulation import replayed, simulate
from autorl.types import Config, Failed, Proposal, Proposed, Scored, Status

TYPES = space_of("types")
CONSTRAINED = space_of("constrained")


def shown(optimizer):
    """The trials as a sampler would see them now."""
    return optimizer._synchronized().get_all_trials(0, deepcopy=False)


def test_pending_scored_failed_and_unscored_trials():
    optimizer = make("tpe", TYPES, horizon=10)
    for number in range(4):
        optimizer.observe(Proposed(number, Proposal(TYPES.default(), 10)))
    optimizer.observe(Failed(0, Status.CRASH, ()))
    optimizer.observe(Scored(1, (2.0,)))
    optimizer.observe(Failed(2, Status.DIVERGED, (-7.0,)))
    assert [(trial.state, trial.values) for trial in shown(optimizer)] == [
        (TrialState.FAIL, None),
        (TrialState.COMPLETE, [2.0]),
        (TrialState.COMPLETE, [-7.0]),
        (TrialState.RUNNING, None),
    ]


def test_a_later_score_replaces_the_earlier_one():
    optimizer = make("tpe", TYPES, horizon=10)
    optimizer.observe(Proposed(0, Proposal(TYPES.default(), 10)))
    for values in [(1.0,), (0.5,)]:
        optimizer.observe(Scored(0, values))
        assert [trial.values for trial in shown(optimizer)] == [list(values)]


def test_values_are_told_on_their_scale_and_choices_by_index():
    optimizer = make("tpe", TYPES, horizon=10)
    config = Config(
        {**TYPES.default(), "net_arch": (64, 64), "normalize": False, "width": 128, "gamma": 0.99}
    )
    optimizer.observe(Proposed(0, Proposal(config, 10)))
    trial = shown(optimizer)[0]
    assert trial.params["net_arch"] == 1
    assert trial.params["normalize"] == 1
    assert trial.params["width"] == 3
    assert trial.params["rate"] == 3e-4
    assert trial.params["gamma"] == pytest.approx(np.log(0.2 / 0.01) / np.log(0.2 / 0.0001))
    assert trial.distributions["rate"] == optuna.distributions.FloatDistribution(
        1e-5, 1e-1, log=True
    )
    assert trial.distributions["batch"] == optuna.distributions.IntDistribution(8, 1024, log=True)
    assert trial.distributions["width"] == optuna.distributions.IntDistribution(0, 3)
    assert "fixed" not in trial.params


def test_inactive_hyperparameters_are_not_told():
    space = space_of("conditional")
    optimizer = make("tpe", space, horizon=10)
    optimizer.observe(Proposed(0, Proposal(space.default(), 10)))
    assert set(shown(optimizer)[0].params) == {"kind", "x", "a.depth", "a.mode"}


def test_what_is_modelled_is_what_was_run():
    """Also after repairs: trial parameters are those of the proposal."""
    factory = lambda: make("tpe", CONSTRAINED, horizon=100, startup=4)  # noqa: E731
    optimizer = factory()
    optimizer.redraws = 0
    simulation = simulate(lambda: optimizer, score(CONSTRAINED), 30, lag=2)
    origins = {proposal.origin for proposal in simulation.proposals}
    assert origins >= {"default", "tpe", "tpe, start-up, repaired"}
    for proposal, trial in zip(simulation.proposals, shown(optimizer), strict=True):
        assert trial.params["n"] == proposal.config["n"]
        assert trial.params["m"] == proposal.config["m"]
        assert trial.params["x"] == proposal.config["x"]


def test_failed_runs_carry_the_worst_constraint_values():
    optimizer = make("gp", space_of("continuous"), horizon=10)
    config = space_of("continuous").default()
    for number in range(3):
        optimizer.observe(Proposed(number, Proposal(config, 10)))
    optimizer.observe(Failed(0, Status.CRASH, (-5.0,)))
    optimizer.observe(Scored(1, (1.0,), constraints=(0.5, -1.0)))
    optimizer.observe(Scored(2, (1.0,), constraints=(-0.5, 2.0)))
    assert [trial.constraints for trial in shown(optimizer)] == [
        {"0": 0.5, "1": 2.0},
        {"0": 0.5, "1": -1.0},
        {"0": -0.5, "1": 2.0},
    ]


def test_tpe_avoids_a_region_where_runs_fail():
    space = space_of("continuous")

    def fail(number, proposal):
        return Status.CRASH if number and proposal.config["x"] > 0.5 else None

    simulation = simulate(
        lambda: make("tpe", space, horizon=100),
        lambda i, p: -abs(p.config["y"] - 0.3),
        60,
        fail=fail,
        seed=1,
    )
    x = np.array([proposal.config["x"] for proposal in simulation.proposals])
    assert np.mean(x[30:] > 0.5) < 0.2


def test_nsga2_generations_and_parents_travel_in_meta():
    space = space_of("continuous")
    simulation = simulate(
        lambda: make("nsga2", space, horizon=100, population_size=5), score(space), 22
    )
    metas = [proposal.meta for proposal in simulation.proposals]
    generations = [meta.get("trial", {}).get("NSGAIISampler:generation") for meta in metas]
    assert generations == [None] + [0] * 4 + [1] * 5 + [2] * 5 + [3] * 5 + [4] * 2
    first_of_generation = [number for number, meta in enumerate(metas) if "study" in meta]
    assert first_of_generation == [5, 10, 15, 20]
    assert sorted(metas[5]["study"]["NSGAIISampler:parent:1"]) == [0, 1, 2, 3, 4]


def test_replayed_nsga2_still_evolves():
    """A study rebuilt from parameters and values alone would start over with random points."""
    space = space_of("continuous")
    factory = lambda: make("nsga2", space, horizon=100, population_size=8)  # noqa: E731
    simulation = simulate(factory, score(space), 80)
    resumed = replayed(factory, simulation.events)
    rngs = [np.random.default_rng(seed) for seed in range(20)]
    next_scores = [score(space)(80, resumed.ask(rng)) for rng in rngs]
    early = [scored.values[0] for scored in simulation.scored[:8]]
    assert np.median(next_scores) > np.quantile(early, 0.75)


@pytest.mark.slow
@pytest.mark.cpu_seconds(600)
def test_gp_killed_at_every_event_equals_uninterrupted():
    """The kit does so with few proposals; here the model is asked twenty times, with runs in flight and failures."""
    space = space_of("continuous")
    how = {"lag": 4, "fail": some_fail}
    factory = lambda: make("gp", space, horizon=100, startup=3)  # noqa: E731
    whole = simulate(factory, score(space), 24, **how)
    assert (
        simulate(factory, score(space), 24, kill=True, **how).fingerprint() == whole.fingerprint()
    )


@pytest.mark.parametrize("name", ["tpe", "nsga2"])
def test_optuna_says_nothing(name, capfd, recwarn):
    space = space_of("conditional")
    simulate(lambda: make(name, space, horizon=100), score(space), 15)
    assert capfd.readouterr() == ("", "")
    assert len(recwarn) == 0


def test_verbosity_is_left_as_it_was():
    before = optuna.logging.get_verbosity()
    space = space_of("continuous")
    simulate(lambda: make("tpe", space, horizon=100), score(space), 3)
    assert optuna.logging.get_verbosity() == before
