"""A trainer's training signal from `reward.*` hyperparameters: refused where it cannot be, used, saved, continued."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the extra rlhf")

from rlhf_support import one_thread  # noqa: F401
from segments import segment, train

from autorl.core.types import Config, EnvironmentSpec, FrozenMap, InputError, Status, TrainerSpec
from autorl.trainers import load, saved_state

TASK = EnvironmentSpec("sort-verifiable", FrozenMap({"digits": 2, "sft_steps": 20}))
STEPWISE = ["reward.process", "reward.process_separator", "reward.process_delta"]
SHORT = {"reward.length.at_most": 1.0, "reward.lagrange_rate": 0.5}
CONFIGS = {
    "trl/ppo": {"learning_rate": 1e-3, "batch_size": 16, "num_ppo_epochs": 1, "kl_coef": 0.1},
    "trl/rloo": {"learning_rate": 1e-3, "beta": 0.1, "num_generations": 4}
    | {"per_device_train_batch_size": 16},
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("AUTORL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def one_segment(name, config, folder, until=4, **changes):
    of_run = {"environment": TASK, "horizon": 4, "seed": 3, "episodes": 16}
    return segment(name, config=config, until=until, folder=folder, **of_run | changes)


def multipliers(outcome):
    path = Path(outcome.checkpoint.path) / saved_state.STATE
    return saved_state.read(path)["signal"]["multipliers"]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_a_constraint_is_learnt_saved_and_continued(name, tmp_path):
    """Completions are longer than one word, so the multiplier rises; two halves give what one run gives."""
    config = {**CONFIGS[name], **SHORT}
    whole = train(one_segment(name, config, tmp_path / "whole"))
    assert whole.status == Status.DONE
    assert whole.applied["reward.length.at_most"] == 1.0
    first = train(one_segment(name, config, tmp_path / "first", until=2))
    second = one_segment(name, config, tmp_path / "second", parent=first.checkpoint, start=2)
    assert multipliers(whole)["length at_most"] > multipliers(first)["length at_most"] > 0
    assert multipliers(train(second)) == multipliers(whole)


@pytest.mark.slow
def test_baselines_teach_no_multiplier(tmp_path):
    config = {**CONFIGS["trl/ppo"], **SHORT}
    gae = train(one_segment("rlhf/ppo", config, tmp_path / "gae", until=1))
    config |= {"advantage": "remax", "whiten_advantages": False}
    remax = train(one_segment("rlhf/ppo", config, tmp_path / "remax", until=1))
    assert multipliers(remax) == multipliers(gae)
    assert remax.reports[-1].metrics["tokens"] > gae.reports[-1].metrics["tokens"]
    assert remax.reports[-1].metrics["completions"] == 2 * gae.reports[-1].metrics["completions"]


@pytest.mark.slow
@pytest.mark.cpu_seconds(600)  # builds the task
def test_a_cautious_rule_over_an_ensemble_loses_less_gold_than_one_proxy(tmp_path):
    """At beta 0.1, 30 steps of 64, over three seeds: -1.5 by one proxy or the mean of four, -0.6 by wco and uwo."""
    config = {"learning_rate": 1e-3, "beta": 0.1, "num_generations": 4}
    common = {"until": 30, "horizon": 30, "evaluate_at": (30,)}
    common |= {"episodes": 256, "save": False, "seed": 0}
    found = {}
    for models, rule in ((1, None), (4, "uwo")):
        place = EnvironmentSpec("letters-goldproxy", FrozenMap(models=models))
        options = {} if rule is None else {"reward.rule": rule, "reward.weight": 1.0}
        one = one_segment("trl/rloo", config | options, tmp_path, environment=place, **common)
        one = replace(one, trainer=TrainerSpec("trl/rloo", FrozenMap(guard=0)))
        metrics = train(one).reports[-1].metrics
        assert metrics["proxy"] > 1 > metrics["gold"]
        found[models] = metrics["gold"]
    assert {"proxy_0", "proxy_3"} <= set(metrics)
    assert found[4] > found[1] + 0.4


@pytest.mark.slow
def test_a_weight_of_the_reward_may_change_in_training_and_a_limit_may_not(tmp_path):
    config = {**CONFIGS["trl/ppo"], **SHORT}
    first = train(one_segment("trl/ppo", config, tmp_path / "first", until=2))
    second = one_segment("trl/ppo", config, tmp_path / "second", parent=first.checkpoint, start=2)
    changed = train(replace(second, config=Config({**config, "reward.lagrange_rate": 0.1})))
    assert changed.applied["reward.lagrange_rate"] == 0.1
    with pytest.raises(InputError, match="cannot change during training"):
        train(replace(second, config=Config({**config, "reward.length.at_most": 2.0})))


@pytest.mark.parametrize(
    ("name", "names", "message"),
    [
        ("trl/ppo", ["reward.rul"], "unknown option"),
        ("trl/rloo", ["reward.kl.at_most"], "no signal 'kl'"),
        ("trl/dpo", ["reward.length.at_most"], "learns from data"),
        ("trl/rloo", ["reward.rule"], "puts several signals together"),
        ("trl/rloo", STEPWISE, "gets one number per completion"),
    ],
)
def test_what_cannot_be_is_refused_before_a_study(name, names, message):
    with pytest.raises(InputError, match=message):
        load(TrainerSpec(name)).check(TASK, names)
