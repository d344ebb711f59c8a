"""Configurations as keyword arguments and flags."""

import argparse
import math
import shlex

import pytest
from report_support import arguments

from autorl.core.types import Config, TrainerSpec
from autorl.report.formats import Candidate, flags, keyword_arguments, render
from autorl.space import schedule_function
from autorl.space.schedules import SHAPES

COMMAND = TrainerSpec("command")
VALUES = {"learning_rate": 3e-4, "kind": "it's", "lr.end": 1e-6}
CONFIG = Config(VALUES | {"layers": (64, 64), "norm": True, "clip": None})
DECAY = {"learning_rate": 1e-3, "learning_rate.end": 1e-5}


def candidate(tuning, until, horizon, config):
    return Candidate(
        3, "incumbent", tuning, 2, until, horizon, COMMAND, {}, ((0, Config(config)),), None
    )


def test_keyword_arguments_evaluate_to_the_configuration():
    assert eval(f"dict({keyword_arguments(CONFIG)})") == {**CONFIG, "layers": [64, 64]}


def test_flags_are_parsed_back_by_argparse():
    parser = argparse.ArgumentParser()
    for name in ("--learning-rate", "--lr.end"):
        parser.add_argument(name, type=float)
    parser.add_argument("--layers", type=int, nargs="+")
    parser.add_argument("--kind")
    parser.add_argument("--norm")
    found = vars(parser.parse_args(shlex.split(flags(CONFIG))))
    assert found == VALUES | {"layers": [64, 64], "norm": "True"}


def test_a_run_that_was_shorter_than_a_full_one_says_so():
    assert render([candidate(0.5, 100, 100, {"x": 1})], "kwargs") == "x=1"
    title, config = render([candidate(0.5, 25, 100, {"x": 1})], "kwargs").splitlines()
    assert title.startswith("# proposal 3 (incumbent): ")
    assert title.endswith(", trained until step 25 of 100")
    assert config == "x=1"


def test_other_trainers_get_their_own_names():
    assert arguments(COMMAND, Config(net_arch=(64,)), 1000) == "net_arch=[64]"


@pytest.mark.parametrize("shape", SHAPES)
def test_sb3_schedules_are_functions_of_the_progress_remaining(shape):
    pytest.importorskip("stable_baselines3")
    config = Config(DECAY | {"learning_rate.shape": shape})
    code = arguments(TrainerSpec("sb3/ppo"), config, 1000)
    value = eval(f"dict({code})", {"math": math})["learning_rate"]
    ours = schedule_function(config, "learning_rate")
    for progress in (0.0, 0.05, 0.3, 1.0):
        theirs = value(1.0 - progress) if callable(value) else value
        assert theirs == pytest.approx(ours(progress))


def test_an_sb3_schedule_the_constructor_cannot_take_is_named():
    pytest.importorskip("stable_baselines3")
    config = Config({"gamma": 0.9, "gamma.shape": "linear", "gamma.end": 0.99, "n_steps": 8})
    assert arguments(TrainerSpec("sb3/ppo"), config, 1000).startswith(
        "n_steps=8  # not arguments of the constructor: gamma=0.9, "
    )


@pytest.mark.parametrize("n_envs_of", ["configuration", "environment"])
@pytest.mark.parametrize("trainer", ["sb3/ppo", "population/ppo"])
def test_arguments_are_all_those_of_the_constructor(trainer, n_envs_of):
    """Pasted into SB3's constructor they give every value, the engine's own defaults included."""
    sb3 = pytest.importorskip("stable_baselines3")
    torch = pytest.importorskip("torch")
    config = {"learning_rate": 3e-3, "n_steps": 64, "activation": "relu"}
    engine = trainer == "population/ppo"
    config |= {"net_width": 32, "clip_range_vf": "none"} if engine else {"net_arch": (32, 32)}
    environment = {"id": "CartPole-v1"}
    (config if n_envs_of == "configuration" else environment)["n_envs"] = 8
    code, _, comment = arguments(
        TrainerSpec(trainer), Config(config), 1000, environment=environment
    ).partition("  # ")
    assert comment == "env: make_vec_env('CartPole-v1', n_envs=8)"
    names = {"sb3": sb3, "torch": torch, "make_vec_env": sb3.common.env_util.make_vec_env}
    model = eval(f"sb3.PPO('MlpPolicy', {comment.removeprefix('env: ')}, {code})", names)
    assert (model.n_envs, model.n_steps, model.learning_rate, model.batch_size) == (8, 64, 3e-3, 64)
    assert model.clip_range_vf is None
    assert model.policy_kwargs["net_arch"] == [32, 32]
    assert model.policy_kwargs["activation_fn"] is torch.nn.ReLU
    if engine:
        assert model.policy_kwargs["optimizer_kwargs"] == {"eps": 1e-5}
        given = eval(f"dict({code})", names).keys()
        assert given > {"gae_lambda", "vf_coef", "max_grad_norm", "target_kl", "n_epochs"}
        assert "normalize_advantage" in given


@pytest.mark.parametrize(
    ("name", "own"),
    [("dqn", {"double": True}), ("sac", {"reward_scale": 0.5}), ("td3", {"noise_std": 0.1})],
)
def test_arguments_of_every_algorithm_of_the_engine_are_taken(name, own):
    sb3 = pytest.importorskip("stable_baselines3")
    torch = pytest.importorskip("torch")
    config = DECAY | own | {"buffer_size": 500, "learning_rate.shape": "cosine"}
    code, _, comment = arguments(TrainerSpec(f"population/{name}"), config, 1000).partition("  # ")
    for key, value in own.items():
        assert f"{key}={value}" in comment
    task = "CartPole-v1" if name == "dqn" else "Pendulum-v1"
    model = eval(
        f"sb3.{name.upper()}('MlpPolicy', {task!r}, {code})",
        {"sb3": sb3, "torch": torch, "math": math},
    )
    assert model.buffer_size == 500
    assert [model.lr_schedule(left) for left in (1.0, 0.0)] == pytest.approx([1e-3, 1e-5])


def test_scores_are_readable_and_hyperparameters_exact():
    one = candidate(448.95500000000004, 9, 9, {"x": 0.30000000000000004})
    text = render([one], "json")
    assert "448.955," in text
    assert "0.30000000000000004" in text
