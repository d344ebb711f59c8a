"""What Optuna's samplers are shown: what was run, pending and failed runs, corrections, conditions and scales."""

import sys

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from autorl.optimizers import make
from autorl.space import load_space
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
    pytest.importorskip("torch", reason="the extra `bo` is not installed")
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


def integers(count):
    return {"type": "int", "lower": 1, "upper": count}


def test_the_gp_takes_integers_of_more_than_sixteen_values_as_numbers():
    pytest.importorskip("torch", reason="the extra `bo` is not installed")
    space = load_space({"hyperparameters": {"few": integers(16), "many": integers(17)}})
    kinds = []
    for name in ("gp", "tpe"):
        optimizer = make(name, space, horizon=10)
        optimizer._synchronized()
        kinds.append([type(optimizer._distributions[one]) for one in ("few", "many")])
    whole, number = optuna.distributions.IntDistribution, optuna.distributions.FloatDistribution
    assert kinds == [[whole, number], [whole, whole]]


@pytest.mark.parametrize(("name", "drafts"), [("tpe", 6), ("nsga2", 6), ("gp", 1)])
def test_a_draft_that_was_proposed_is_drawn_again(name, drafts, monkeypatch):
    """Five times, but for the GP: its acquisition has one maximum."""
    if name == "gp":
        pytest.importorskip("torch", reason="the extra `bo` is not installed")
    space = space_of("continuous")
    optimizer = make(name, space, horizon=10)
    optimizer.observe(Proposed(0, optimizer.ask(np.random.default_rng(0))))
    given = []

    def draft(table, seed):
        given.append(seed)
        return space.default(), {"trial": {"a": 1}}

    monkeypatch.setattr(optimizer, "_draft", draft)
    proposal = optimizer.ask(np.random.default_rng(1))
    rng = np.random.default_rng(1)
    assert given == [int(rng.integers(2**31)) for _ in range(drafts)]
    assert proposal.config == space.sample(rng)
    assert proposal.origin == f"{name}, start-up, at random: its choice was proposed before"
    assert not proposal.informed


def test_nsga2_takes_the_initial_configurations_for_its_first_generation():
    optimizer = make("nsga2", TYPES, horizon=10)
    optimizer.observe(Proposed(0, optimizer.ask(np.random.default_rng(0))))
    assert shown(optimizer)[0].system_attrs["NSGAIISampler:generation"] == 0


@pytest.mark.parametrize(
    ("budget", "given", "size"),
    [(1000, None, 50), (80, None, 20), (8, None, 4), (8, 2, 2)],
)
def test_a_generation_is_at_most_a_quarter_of_the_budget(budget, given, size):
    optimizer = make("nsga2", TYPES, horizon=10, budget=budget, population_size=given)
    assert optimizer.population_size == size
    assert [optimizer.modelled(99, scored) for scored in (size - 1, size)] == [False, True]


def test_samplers_wait_for_ever_in_the_start_up_and_then_for_one_trial():
    optimizer = make("tpe", TYPES, horizon=10, startup=2)
    optimizer.observe(Proposed(0, Proposal(TYPES.default(), 10)))
    assert optimizer._trials_needed == sys.maxsize
    optimizer.observe(Proposed(1, Proposal(TYPES.default(), 10)))
    optimizer.observe(Scored(1, (1.0,)))
    assert optimizer._trials_needed == 1
    optimizer.observe(Failed(1, Status.CRASH, ()))
    assert optimizer._trials_needed == sys.maxsize, "the only score was taken back"
