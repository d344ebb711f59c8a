"""Trials that Optuna's samplers are shown: what was run, pending and failed runs, corrections,
conditions and scales."""

import sys

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from autorl.core.types import Failed, Proposal, Proposed, Scored, Status
from autorl.optimizers import make
from autorl.space import load_space
from autorl.testing.optimizers import score, space_of
from autorl.testing.simulation import simulate

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
    ("budget", "given", "size"), [(1000, None, 50), (80, None, 20), (8, None, 4), (8, 2, 2)]
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
