"""Trials that Optuna's samplers are shown: what was run, pending and failed runs, corrections,
conditions and scales."""

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.samplers._tpe import _truncnorm
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator
from optuna.trial import TrialState, create_trial
from scipy.special import log_ndtr

from autorl.core.types import Config, Failed, FrozenMap, Proposal, Proposed, Scored, Status
from autorl.optimizers import make
from autorl.optimizers._optuna import (
    FastTPE,
    TrialTable,
    _ValidParzenEstimator,
    compiled_normal,
    decode,
    encode,
    one_torch_thread,
)
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


@pytest.fixture
def batches(monkeypatch):
    """Sizes of the batches drawn from a density that is uniform."""
    drawn = []

    def sample(self, rng, size):
        drawn.append(size)
        return {"x": rng.random(size), "y": rng.random(size)}

    monkeypatch.setattr(_ParzenEstimator, "sample", sample)
    return drawn


def estimator(valid):
    made = object.__new__(_ValidParzenEstimator)
    made._valid = valid
    made._search_space = {"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)}
    return made


def test_candidates_are_drawn_until_enough_of_them_are_valid(batches):
    kept = estimator(lambda parameters: parameters["x"] < 0.4).sample(np.random.default_rng(0), 24)
    assert len(kept["x"]) == len(kept["y"]) == 24
    assert (kept["x"] < 0.4).all()
    assert batches == [24] * len(batches)
    assert 2 <= len(batches) <= 5
    again = np.random.default_rng(0)
    pairs = [(again.random(24), again.random(24)) for _ in batches]
    x, y = (np.concatenate(columns) for columns in zip(*pairs, strict=True))
    np.testing.assert_array_equal(kept["y"], y[x < 0.4][:24])


def test_where_none_of_eight_batches_is_valid_the_first_is_repaired(batches):
    kept = estimator(lambda parameters: False).sample(np.random.default_rng(0), 24)
    assert batches == [24] * 8
    np.testing.assert_array_equal(kept["x"], np.random.default_rng(0).random(24))


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


def test_rules_are_checked_of_candidates_where_there_are_any():
    by_rule = {}
    for name in ("continuous", "constrained"):
        optimizer = make("tpe", space_of(name), horizon=10)
        optimizer._synchronized()
        sampler = optimizer._sampler(0)
        assert isinstance(sampler, FastTPE)
        by_rule[name] = getattr(sampler._parzen_estimator_cls, "keywords", {})
    assert by_rule["continuous"] == {}
    assert by_rule["constrained"]["valid"]({"n": 8, "m": 8, "c": 0, "d": 0, "x": 0.5})
    assert not by_rule["constrained"]["valid"]({"n": 8, "m": 9, "c": 0, "d": 0, "x": 0.5})
    assert not by_rule["constrained"]["valid"]({"n": 8, "m": 8, "c": 0, "d": 1, "x": 0.5})


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


# -- drafts ------------------------------------------------------------------------------------------


def begun(space, name="tpe", **options):
    optimizer = make(name, space, horizon=10, **options)
    optimizer.observe(Proposed(0, optimizer.ask(np.random.default_rng(0))))
    return optimizer


def with_drafts(optimizer, drafts, monkeypatch):
    """It drafts these configurations by turns, the last again and again."""
    queue = list(drafts)

    def draft(table, seed):
        config = queue.pop(0) if len(queue) > 1 else queue[0]
        return config, {"trial": {"left": len(queue)}}

    monkeypatch.setattr(optimizer, "_draft", draft)
    return optimizer


RULED = load_space(
    {
        "hyperparameters": {
            "n": {"type": "int", "lower": 1, "upper": 64, "default": 2},
            "m": {"type": "int", "lower": 1, "upper": 64, "default": 2},
        },
        "constraints": ["n * m <= 64"],
    }
)


def after_drafts(optimizer, number):
    """The generator of an ask after its drafts have taken their seeds."""
    rng = np.random.default_rng(number)
    for _ in range(1 + optimizer.redraws):
        rng.integers(2**31)
    return rng


def test_an_invalid_draft_is_repaired_at_last(monkeypatch):
    broken = Config(n=60, m=60)
    optimizer = with_drafts(begun(RULED), [broken], monkeypatch)
    proposal = optimizer.ask(np.random.default_rng(4))
    assert proposal.config == RULED.repair(broken, after_drafts(optimizer, 4))
    assert proposal.origin == "tpe, start-up, repaired"
    assert proposal.meta == FrozenMap({"trial": FrozenMap(left=1)})
    assert not proposal.informed


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
