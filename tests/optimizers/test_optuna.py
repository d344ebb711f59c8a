"""Trials that Optuna's samplers are shown: what was run, pending and failed runs, corrections,
conditions and scales."""

import optuna
import pytest
from optuna.distributions import IntDistribution
from optuna.samplers._tpe import _truncnorm
from optuna.trial import TrialState, create_trial
from scipy.special import log_ndtr

from autorl.core.types import Failed, Proposal, Proposed, Scored, Status
from autorl.optimizers import make
from autorl.optimizers._optuna import TrialTable, compiled_normal, decode, encode, one_torch_thread
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


@pytest.mark.parametrize("name", ["tpe", "nsga2"])
def test_optuna_says_nothing(name, capfd, recwarn):
    space = space_of("conditional")
    simulate(lambda: make(name, space, horizon=100), score(space), 15)
    assert capfd.readouterr() == ("", "")
    assert len(recwarn) == 0


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


@pytest.mark.parametrize(
    ("budget", "given", "size"), [(1000, None, 50), (80, None, 20), (8, None, 4), (8, 2, 2)]
)
def test_a_generation_is_at_most_a_quarter_of_the_budget(budget, given, size):
    optimizer = make("nsga2", TYPES, horizon=10, budget=budget, population_size=given)
    assert optimizer.population_size == size
    assert [optimizer.modelled(99, scored) for scored in (size - 1, size)] == [False, True]


def test_an_optuna_without_that_function_is_left_alone(monkeypatch):
    monkeypatch.delattr(_truncnorm, "_log_ndtr")
    with compiled_normal():
        assert not hasattr(_truncnorm, "_log_ndtr")


CONTINUOUS = space_of("continuous")
KINDS = TYPES.hyperparameters


# -- the table of trials -----------------------------------------------------------------------------


def filled(count, n_objectives=1):
    table = TrialTable(n_objectives)
    for number in range(count):
        table.put(number, create_trial(values=[float(number)] * n_objectives))
    return table


@pytest.mark.parametrize("breaks", [False, True])
def test_a_draft_is_filled_in_and_gone_at_its_end(breaks):
    table = filled(2)
    table.set_study_system_attr(0, "parents", [1])
    before = (list(table.trials), dict(table.study_attributes))

    def draft():
        with table.draft():
            number = table.create_new_trial(0)
            distribution = IntDistribution(1, 9)
            table.set_trial_param(number, "n", 4.0, distribution)
            table.set_trial_param(number, "m", 2.0, distribution)
            table.set_trial_system_attr(number, "a", 1)
            table.set_trial_system_attr(number, "b", 2)
            table.set_study_system_attr(0, "more", [2])
            trial = table.get_trial(number)
            assert (number, trial.state) == (2, TrialState.RUNNING)
            assert trial.params == {"n": 4, "m": 2}
            assert trial.distributions == {"n": distribution, "m": distribution}
            assert trial.system_attrs == {"a": 1, "b": 2}
            assert table.get_study_system_attrs(0) == {"parents": [1], "more": [2]}
            if breaks:
                raise RuntimeError("the sampler has failed")

    if breaks:
        with pytest.raises(RuntimeError, match="the sampler"):
            draft()
    else:
        draft()
    assert (table.trials, table.study_attributes) == before
    table.shown = [1]
    assert [trial.number for trial in table.get_all_trials(0, deepcopy=False)] == [1]


# -- codes of values ---------------------------------------------------------------------------------


def test_values_come_back_as_they_were_coded():
    for name, hyperparameter in KINDS.items():
        if hyperparameter.type == "constant":
            continue
        for unit in (0.0, 0.1, 0.37, 0.5, 0.99, 1.0):
            value = hyperparameter.from_unit(unit)
            again = decode(hyperparameter, encode(hyperparameter, value))
            assert repr(again) == repr(value), name


def test_what_a_sampler_draws_is_rounded_as_the_space_rounds():
    assert decode(KINDS["layers"], 2.4) == 2
    assert decode(KINDS["layers"], 2.6) == 3
    assert decode(KINDS["rate"], 0.00012345678901234) == 0.0001234567890
    assert decode(KINDS["width"], 3) == 128
    assert decode(KINDS["gamma"], 1.0) == 0.9999
    assert encode(KINDS["gamma"], 0.8) == 0.0


# -- a sampler's surroundings ------------------------------------------------------------------------


def test_scipy_and_threads_are_put_back_after_an_error():
    torch = pytest.importorskip("torch")
    before = (_truncnorm._log_ndtr, torch.get_num_threads())

    def sampling():
        with compiled_normal(), one_torch_thread():
            assert (_truncnorm._log_ndtr, torch.get_num_threads()) == (log_ndtr, 1)
            raise RuntimeError("the sampler has failed")

    torch.set_num_threads(2)
    try:
        with pytest.raises(RuntimeError, match="the sampler"):
            sampling()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before[1])
    assert _truncnorm._log_ndtr is before[0]


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("name", ["tpe", "gp"])
@pytest.mark.parametrize(
    ("space_name", "known"), [("continuous", True), ("conditional", False), ("types", True)]
)
def test_what_all_trials_share_is_told_where_nothing_depends_on_anything(name, space_name, known):
    if name == "gp":
        pytest.importorskip("torch", reason="the extra `bo` is not installed")
    optimizer = make(name, space_of(space_name), horizon=10)
    table = optimizer._synchronized()
    optimizer._study.sampler = optimizer._sampler(0)
    shared = optimizer._shared()
    assert (shared is not None) == known
    with table.draft():
        trial = optimizer._study.ask()
        inferred = optimizer._study.sampler.infer_relative_search_space(
            optimizer._study, trial._cached_frozen_trial
        )
    # Of no trial Optuna itself infers nothing.
    assert inferred == (shared or {})
    assert "only" not in inferred


def test_a_rule_may_name_a_constant():
    unit = {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.2}
    space = load_space(
        {
            "hyperparameters": {"most": {"type": "constant", "value": 0.5}, "x": unit},
            "constraints": ["x <= most"],
        }
    )
    optimizer = make("tpe", space, horizon=10)
    optimizer._synchronized()
    assert optimizer._valid({"x": 0.5})
    assert not optimizer._valid({"x": 0.6})


# -- what failures are told to have broken -----------------------------------------------------------


def constraints_shown(optimizer):
    return [list(trial.constraints.values()) for trial in optimizer._synchronized().trials]


def test_a_failure_is_told_the_worst_violation_also_when_that_is_known_later():
    optimizer = make("tpe", CONTINUOUS, horizon=10)
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
