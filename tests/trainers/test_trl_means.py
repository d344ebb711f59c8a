"""Means of two agents and reference policies that move: `exploit: average`, `sync_ref_model`."""

from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the extra rlhf")

import torch
from rlhf_support import one_thread  # noqa: F401
from safetensors.torch import load_file
from segments import segment, train
from test_trl_contract import task as task_of_contract

from autorl.trainers.language.merging import slerp
from autorl.trainers.language.models import load_policy

task = task_of_contract
SMALL = {"per_device_train_batch_size": 8, "guard": 0}
OF_PPO = {"batch_size": 8, "num_ppo_epochs": 1, "guard": 0}
CUT = {"horizon": 4, "evaluate_at": (), "episodes": 4}


def weights(checkpoint, part=""):
    return load_file(Path(checkpoint.path) / part / "model.safetensors")


def equal(one, two):
    return all(torch.equal(one[key], two[key]) for key in one)


def mean(method, task, own, other):
    """By hand, and to the bit: halves are exact. A reward model has no start."""
    start = load_policy(Path(task.kwargs["model"])).state_dict()
    begun = {key: start[key] if "lm_head.weight" in own else 0 * own[key] for key in own}
    first, second = ({key: part[key] - begun[key] for key in own} for part in (own, other))
    if method == "slerp":
        return {key: begun[key] + slerp(first[key], second[key], 0.5) for key in own}
    return {key: begun[key] + (second[key] - (second[key] - first[key]) * 0.5) for key in own}


@pytest.mark.parametrize("name", ["trl/dpo", "trl/reward", "trl/rloo", "rlhf/ppo"])
def test_training_begins_with_the_mean_of_both_weights(name, task, tmp_path):
    options = OF_PPO if name == "rlhf/ppo" else SMALL
    method = "slerp" if name in ("trl/rloo", "rlhf/ppo") else "average"

    def run(rate, until, **more):
        values, place = {"learning_rate": rate}, tmp_path / f"{rate}"
        return train(segment(name, task, values, until, place, options, **CUT | more)).checkpoint

    own, other = run(1e-2, 2), run(3e-2, 2)
    # Such a rate moves nothing in single precision.
    end = run(1e-300, 4, parent=other, second=own, mean=method, start=2, fork=7)
    by_hand = mean(method, task, weights(own), weights(other))
    assert equal(weights(end), by_hand)
    assert not equal(by_hand, weights(other))


@pytest.mark.parametrize("name", ["dpo", "rloo", "grpo", "kto"])
def test_a_reference_policy_that_moves_is_in_the_checkpoint(name, task, tmp_path):
    moving = {"learning_rate": 1e-2, "beta": 0.5, "sync_ref_model": True}
    moving |= {"ref_model_sync_steps": 1, "ref_model_mixup_alpha": 0.25}
    moving |= {"num_generations": 4} if name in ("rloo", "grpo") else {}

    def run(place, until, after=None, **more):
        steps = CUT | {"evaluate_at": (until,)} | more
        made = segment(f"trl/{name}", task, moving, until, tmp_path / place, SMALL, after, **steps)
        return train(made)

    whole, half = run("whole", 4), run("half", 2)
    cut = run("cut", 4, half)
    for part in ("", "anchor"):
        assert equal(weights(whole.checkpoint, part), weights(cut.checkpoint, part))
    assert cut.reports[-1].metrics == whole.reports[-1].metrics
    start = load_policy(Path(task.kwargs["model"])).state_dict()
    assert not equal(weights(half.checkpoint, "anchor"), start)
    assert whole.reports[-1].metrics["kl"] > 0, "to where it began"
    alone = run("model", 4, half, model_only=True)
    assert not (Path(alone.checkpoint.path) / "anchor").exists()
