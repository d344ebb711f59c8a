"""Trials that Optuna's samplers are shown: what was run, pending and failed runs, corrections,
conditions and scales."""

import pytest
from optuna.trial import TrialState

from autorl.core.types import Failed, Proposal, Proposed, Scored, Status
from autorl.optimizers import make
from autorl.optimizers._optuna import decode, encode
from autorl.testing.optimizers import score, space_of
from autorl.testing.simulation import simulate

TYPES = space_of("types")
CONSTRAINED = space_of("constrained")


def shown(optimizer):
    """The trials as a sampler would see them now."""
    return optimizer._synchronized().get_all_trials(0, deepcopy=False)


def test_pending_scored_failed_and_unscored_trials():
    optimizer = make("nsga2", TYPES, horizon=10)
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


def test_what_is_bred_is_what_was_run():
    """Also after repairs: trial parameters are those of the proposal."""
    optimizer = make("nsga2", CONSTRAINED, horizon=100, population_size=4)
    optimizer.redraws = 0
    simulation = simulate(lambda: optimizer, score(CONSTRAINED), 30, lag=2)
    origins = {proposal.origin for proposal in simulation.proposals}
    assert origins >= {"default", "nsga2", "nsga2, start-up, repaired"}
    for proposal, trial in zip(simulation.proposals, shown(optimizer), strict=True):
        assert trial.params["n"] == proposal.config["n"]
        assert trial.params["m"] == proposal.config["m"]
        assert trial.params["x"] == proposal.config["x"]


def test_optuna_says_nothing(capfd, recwarn):
    space = space_of("conditional")
    simulate(lambda: make("nsga2", space, horizon=100, population_size=4), score(space), 15)
    assert capfd.readouterr() == ("", "")
    assert len(recwarn) == 0


@pytest.mark.parametrize(
    ("budget", "given", "size"), [(1000, None, 50), (80, None, 20), (8, None, 4), (8, 2, 2)]
)
def test_a_generation_is_at_most_a_quarter_of_the_budget(budget, given, size):
    optimizer = make("nsga2", TYPES, horizon=10, budget=budget, population_size=given)
    assert optimizer.population_size == size
    assert [optimizer.modelled(99, scored) for scored in (size - 1, size)] == [False, True]


CONTINUOUS = space_of("continuous")
KINDS = TYPES.hyperparameters


# -- codes of values ---------------------------------------------------------------------------------


def test_what_a_sampler_draws_is_rounded_as_the_space_rounds():
    assert decode(KINDS["layers"], 2.4) == 2
    assert decode(KINDS["layers"], 2.6) == 3
    assert decode(KINDS["rate"], 0.00012345678901234) == 0.0001234567890
    assert decode(KINDS["width"], 3) == 128
    assert decode(KINDS["gamma"], 1.0) == 0.9999
    assert encode(KINDS["gamma"], 0.8) == 0.0


# -- what failures are told to have broken -----------------------------------------------------------


def constraints_shown(optimizer):
    return [list(trial.constraints.values()) for trial in optimizer._synchronized().trials]


def test_a_failure_is_told_the_worst_violation_also_when_that_is_known_later():
    optimizer = make("nsga2", CONTINUOUS, horizon=10)
    for number in range(4):
        optimizer.observe(Proposed(number, Proposal(CONTINUOUS.default(), 10)))
    optimizer.observe(Failed(0, Status.CRASH, (-5.0,)))
    assert constraints_shown(optimizer) == [[]] * 4
    optimizer.observe(Scored(1, (1.0,), constraints=(0.5, -1.0)))
    assert constraints_shown(optimizer) == [[0.5, -1.0], [0.5, -1.0], [], []]
    optimizer.observe(Scored(2, (1.0,), constraints=(0.25, 2.0)))
    assert constraints_shown(optimizer) == [[0.5, 2.0], [0.5, -1.0], [0.25, 2.0], []]
    optimizer.observe(Failed(3, Status.TIMEOUT, ()))
    assert constraints_shown(optimizer)[3] == [0.5, 2.0]
    assert [trial.state for trial in optimizer._table.trials] == [
        TrialState.COMPLETE,
        TrialState.COMPLETE,
        TrialState.COMPLETE,
        TrialState.FAIL,
    ]
