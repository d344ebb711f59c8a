"""How much a run has trained where it is measured: never more than the budget charges, whatever its rollout."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

pytest.importorskip("stable_baselines3")

import torch
from segments import segment, train

from autorl.core.types import Config, EnvironmentSpec, InputError, StudyError
from autorl.study import Study
from autorl.study.spec import load_spec

torch.set_num_threads(1)
LINE = EnvironmentSpec("trainer_environments:LineTest-v0", n_envs=8)
PPO = {"n_epochs": 1, "batch_size": 4096, "net_arch": (8,)}


def one_segment(tmp_path, name, n_steps=512, until=8000, **changes):
    """8,000 steps in 4 evaluations; a rollout of the configuration has 512 x 8 = 4,096."""
    config = {"n_steps": n_steps, "learning_rate": 1e-2}
    of_run = {"evaluate_at": (2000, 4000, 6000, 8000), "episodes": 5, "seed": 0}
    of_run |= {"horizon": 8000}
    return segment("sb3/ppo", LINE, config, until, tmp_path / name, PPO, **of_run | changes)


def curve(*outcomes):
    return [
        (report.step, dict(report.metrics)) for outcome in outcomes for report in outcome.reports
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The outcome of a run that is not cut."""
    return train(one_segment(tmp_path_factory.mktemp("whole"), "whole"))


def test_weights_are_those_of_the_last_whole_rollout_at_or_before_a_step(whole):
    outcome = whole
    assert (outcome.reached, outcome.cost["environment_steps"]) == (4096, 4096)
    untrained, again, trained, still = (dict(report.metrics) for report in outcome.reports)
    assert [report.step for report in outcome.reports] == [2000, 4000, 6000, 8000]
    assert untrained == again, "the same weights have one value, without fresh noise"
    assert trained == still
    assert untrained != trained


@pytest.mark.parametrize("cut", [2000, 4000, 4096, 5000, 6000])
def test_a_cut_inside_a_rollout_changes_nothing(tmp_path, whole, cut):
    points = one_segment(tmp_path, "x").evaluate_at
    before, after = tuple(p for p in points if p <= cut), tuple(p for p in points if p > cut)
    first = train(one_segment(tmp_path, "first", until=cut, evaluate_at=before))
    assert first.reached == cut // 4096 * 4096
    rest = {"parent": first.checkpoint, "start": first.reached, "evaluate_at": after}
    second = train(one_segment(tmp_path, "second", **rest))
    assert curve(first, second) == curve(whole)
    assert second.reached == whole.reached


def test_a_rollout_longer_than_the_run_is_refused(tmp_path):
    run = one_segment(tmp_path, "long", 2048)
    with pytest.raises(
        InputError, match=r"n_steps 2,048 x n_envs 8 = 16,384 .* longer than a run, 8,000 steps"
    ):
        train(run)
    train(replace(run, until=16_384, horizon=16_384, evaluate_at=(), save=False))


def study(**changes):
    kwargs = {name: PPO[name] for name in ("n_epochs", "batch_size")}
    document = {"trainer": {"name": "sb3/ppo", "kwargs": kwargs}, "optimizer": "grid"}
    document |= {"environment": {"id": LINE.id, "n_envs": 8}, "space": rollouts(8, 64, 512)}
    document |= {"fidelity": {"steps": 8000, "evaluations": 4, "episodes": 2}}
    document |= {"budget": {"configurations": 3}, "seeds": {"tuning": 1, "test": 0}}
    return Study.in_memory(load_spec({**document, "executor": {"name": "in_process"}, **changes}))


def rollouts(*choices):
    return {"n_steps": {"type": "ordinal", "choices": [*choices], "default": choices[-1]}}


def test_no_run_of_a_study_trains_more_than_it_is_charged():
    with_all = study()
    with_all.run()
    runs = with_all.store.query("SELECT environment_steps FROM runs ORDER BY run_id")
    assert sorted(steps for (steps,) in runs) == [4096, 7680, 8000]
    values = with_all.store.query(
        "SELECT run_id, value FROM reports WHERE metric = 'eval_return' ORDER BY run_id, step"
    )
    assert len(values) == 12


def test_stopped_runs_are_compared_at_no_more_data_than_the_rung():
    median = {"name": "grid", "stop": "median", "rungs": 4, "grace": 4}
    halted = study(optimizer=median, space=rollouts(32, 128, 256))
    halted.run()
    query = "SELECT until, to_step, config FROM segments JOIN proposals USING (proposal) "
    rows = halted.store.query(query + "JOIN configurations USING (config_id)")
    assert len(rows) == 12
    for until, reached, config in rows:
        rollout = Config(json.loads(config))["n_steps"] * 8
        assert reached == until // rollout * rollout, (until, rollout)


def test_a_study_whose_runs_never_train_says_so():
    long = rollouts(1024, 2048) | {"gamma": {"type": "float", "lower": 0.8, "upper": 0.9}}
    with pytest.raises(StudyError, match="longer than a run, 8,000 steps"):
        study(space=long, optimizer="random", budget={"runs": 4}).run()
