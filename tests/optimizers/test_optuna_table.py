"""Data that Optuna's samplers read and write: the table of trials, codes of values, drafts and
repairs."""

import numpy as np
import pytest
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.samplers._tpe import _truncnorm
from optuna.trial import TrialState, create_trial
from scipy.special import log_ndtr

from autorl.core.types import Config, Failed, FrozenMap, Proposal, Proposed, Scored, Status
from autorl.optimizers import make
from autorl.optimizers._optuna_samplers import FastTPE, compiled_normal, one_torch_thread
from autorl.optimizers._optuna_study import TrialTable, decode, distribution_of, encode
from autorl.optimizers._result_sample import BEST
from autorl.space import load_space
from autorl.testing.optimizers import space_of

CONTINUOUS = space_of("continuous")
TYPES = space_of("types")
KINDS = TYPES.hyperparameters


# -- the table of trials -----------------------------------------------------------------------------


def running():
    return create_trial(state=TrialState.RUNNING)


def filled(count, n_objectives=1):
    table = TrialTable(n_objectives)
    for number in range(count):
        table.put(number, create_trial(values=[float(number)] * n_objectives))
    return table


def test_a_trial_is_replaced_and_the_others_stay():
    table = filled(3)
    later = create_trial(values=[9.0])
    table.put(1, later)
    assert [trial.values for trial in table.trials] == [[0.0], [9.0], [2.0]]
    assert (later.number, later._trial_id) == (1, 1)
    assert table.get_trial(2).values == [2.0]
    with pytest.raises(AssertionError):
        table.put(4, running())


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


def test_samplers_see_the_trials_of_the_states_they_ask_for():
    table = filled(2)
    table.put(2, running())
    assert len(table.get_all_trials(0, deepcopy=False)) == 3
    complete = table.get_all_trials(0, deepcopy=False, states=(TrialState.COMPLETE,))
    assert [trial.number for trial in complete] == [0, 1]
    table.shown = [0, 2]
    table.put(3, running())
    with table.draft():
        table.create_new_trial(0)
        seen = table.get_all_trials(0, deepcopy=False, states=(TrialState.RUNNING,))
        assert [trial.number for trial in seen] == [2, 4]
    with pytest.raises(AssertionError, match="without copying"):
        table.get_all_trials(0)


# -- codes of values ---------------------------------------------------------------------------------


def test_the_range_of_a_whole_number_below_the_limit_makes_no_float_of_it():
    layers, batch = KINDS["layers"], KINDS["batch"]  # 1 to 4, and 8 to 1024
    assert distribution_of(layers) == distribution_of(layers, relax=4) == IntDistribution(1, 4)
    assert distribution_of(layers, relax=3) == FloatDistribution(1.0, 4.0)
    assert distribution_of(batch, relax=3) == FloatDistribution(8.0, 1024.0, log=True)


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


def test_each_model_samples_in_its_own_surroundings():
    torch = pytest.importorskip("torch", reason="the extra `bo` is not installed")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with make("gp", CONTINUOUS, horizon=10)._sampling():
            assert torch.get_num_threads() == 1
        with make("tpe", CONTINUOUS, horizon=10)._sampling():
            assert _truncnorm._log_ndtr is log_ndtr
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


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


def test_a_repaired_draft_that_was_proposed_gives_way_to_a_draw(monkeypatch):
    broken = Config(n=60, m=60)
    optimizer = with_drafts(begun(RULED), [broken], monkeypatch)
    repaired = RULED.repair(broken, after_drafts(optimizer, 4))
    optimizer.observe(Proposed(1, Proposal(repaired, 10)))
    proposal = optimizer.ask(np.random.default_rng(4))
    rng = after_drafts(optimizer, 4)
    RULED.repair(broken, rng)
    assert proposal.config == RULED.sample(rng)
    assert proposal.origin == "tpe, start-up, at random: its choice was proposed before"
    assert proposal.meta == FrozenMap({"trial": FrozenMap(left=1)})


def test_the_first_draft_that_is_valid_and_new_is_taken(monkeypatch):
    default, broken = RULED.default(), Config(n=60, m=60)
    new = Config(n=3, m=3)
    optimizer = begun(RULED, startup=1)
    optimizer.observe(Scored(0, (1.0,), reached=10))
    with_drafts(optimizer, [default, broken, new, Config(n=4, m=4)], monkeypatch)
    proposal = optimizer.ask(np.random.default_rng(4))
    assert (proposal.config, proposal.origin, proposal.informed) == (new, "tpe", True)
    assert proposal.meta == FrozenMap({"trial": FrozenMap(left=1)})


def test_a_repaired_proposal_of_the_model_says_so(monkeypatch):
    optimizer = begun(RULED, startup=1)
    optimizer.observe(Scored(0, (1.0,), reached=10))
    with_drafts(optimizer, [Config(n=60, m=60)], monkeypatch)
    proposal = optimizer.ask(np.random.default_rng(4))
    assert (proposal.origin, proposal.informed) == ("tpe, repaired", True)
    optimizer.observe(Proposed(1, proposal))
    again = optimizer.ask(np.random.default_rng(4))
    assert again.origin == "tpe, at random: its choice was proposed before"
    assert again.informed


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


# -- the results that a density is made of -----------------------------------------------------------


def test_of_infeasible_results_those_that_break_least_are_the_best():
    """By the sum of what they break, whatever they score; of equal ones the earlier."""
    optimizer = make("tpe", CONTINUOUS, horizon=10, most_results=250)
    rng = np.random.default_rng(0)
    for number in range(400):
        optimizer.observe(Proposed(number, Proposal(CONTINUOUS.sample(rng), 10)))
        # From 350 on two constraints are broken by 0.25 each, before by more and more.
        broken = (0.25, 0.25, -9.0) if number >= 350 else (0.6 + number, -9.0, 0.0)
        optimizer.observe(Scored(number, (float(number),), constraints=broken))
    seen = {t.number for t in optimizer._synchronized().get_all_trials(0, deepcopy=False)}
    assert len(seen) == 250
    assert set(range(350, 350 + BEST)) <= seen
    assert not set(range(350, 400)) <= seen


@pytest.mark.parametrize("missing", [True, False])
def test_the_bound_counts_scores_and_not_proposals(missing):
    """One result more than the bound is sampled from; a failure without a penalty is no result."""
    space = load_space({"hyperparameters": {"x": {"type": "float", "lower": 0.0, "upper": 1.0}}})
    optimizer = make("tpe", space, horizon=10, most_results=250)
    rng = np.random.default_rng(0)
    for number in range(251):
        optimizer.observe(Proposed(number, Proposal(space.sample(rng), 10)))
        optimizer.observe(Scored(number, (float(number),)))
    if missing:
        optimizer.observe(Failed(7, Status.CRASH, ()))
    trials = optimizer._synchronized().get_all_trials(
        0, deepcopy=False, states=(TrialState.COMPLETE,)
    )
    assert len(trials) == 250
