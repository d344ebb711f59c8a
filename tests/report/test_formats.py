"""Configurations as keyword arguments and flags."""

import argparse
import math
import shlex

import pytest

from autorl.core.types import Config, TrainerSpec
from autorl.report.formats import Candidate, arguments, flags, keyword_arguments, render

CONFIG = Config(
    {
        "learning_rate": 3e-4,
        "layers": (64, 64),
        "kind": "it's",
        "norm": True,
        "clip": None,
        "lr.end": 1e-6,
    }
)


def test_keyword_arguments_evaluate_to_the_configuration():
    expected = {**CONFIG, "layers": [64, 64]}
    assert eval(f"dict({keyword_arguments(CONFIG)})") == expected


def test_flags_are_parsed_back_by_argparse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--layers", type=int, nargs="+")
    parser.add_argument("--kind")
    parser.add_argument("--norm")
    parser.add_argument("--lr.end", type=float)
    found = vars(parser.parse_args(shlex.split(flags(CONFIG))))
    expected = {
        "learning_rate": 3e-4,
        "layers": [64, 64],
        "kind": "it's",
        "norm": "True",
        "lr.end": 1e-6,
    }
    assert found == expected


def test_a_run_that_was_shorter_than_a_full_one_says_so():
    def lines(until):
        one = Candidate(
            3,
            "incumbent",
            0.5,
            2,
            until,
            100,
            TrainerSpec("command"),
            {},
            ((0, Config(x=1)),),
            None,
        )
        return render([one], "kwargs").splitlines()

    assert lines(100) == ["x=1"]
    title, config = lines(25)
    assert title.startswith("# proposal 3 (incumbent): ")
    assert title.endswith(", trained until step 25 of 100")
    assert config == "x=1"


def test_other_trainers_get_their_own_names():
    assert arguments(TrainerSpec("command"), Config(net_arch=(64,)), 1000) == "net_arch=[64]"


def test_sb3_arguments_are_those_of_the_constructor():
    sb3 = pytest.importorskip("stable_baselines3")
    torch = pytest.importorskip("torch")
    config = Config(
        {
            "learning_rate": 3e-4,
            "n_steps": 64,
            "n_envs": 4,
            "net_arch": (32, 32),
            "activation": "relu",
        }
    )
    line = arguments(TrainerSpec("sb3/ppo"), config, 1000, environment={"id": "CartPole-v1"})
    code, _, comment = line.partition("  # ")
    assert comment == "env: make_vec_env('CartPole-v1', n_envs=4)"
    model = eval(f"sb3.PPO('MlpPolicy', 'CartPole-v1', {code})", {"sb3": sb3, "torch": torch})
    assert (model.n_steps, model.learning_rate) == (64, 3e-4)
    assert model.policy_kwargs == {"net_arch": [32, 32], "activation_fn": torch.nn.ReLU}


@pytest.mark.parametrize("shape", ["constant", "linear", "cosine"])
def test_sb3_schedules_are_functions_of_the_progress_remaining(shape):
    pytest.importorskip("stable_baselines3")
    from autorl.space import schedule_function

    config = Config(
        {"learning_rate": 1e-3, "learning_rate.shape": shape, "learning_rate.end": 1e-5}
    )
    code = arguments(TrainerSpec("sb3/ppo"), config, 1000)
    value = eval(f"dict({code})", {"math": math})["learning_rate"]
    ours = schedule_function(config, "learning_rate")
    for progress in (0.0, 0.3, 1.0):
        theirs = value(1.0 - progress) if callable(value) else value
        assert theirs == pytest.approx(ours(progress))


def test_an_sb3_schedule_the_constructor_cannot_take_is_named():
    pytest.importorskip("stable_baselines3")
    config = Config({"gamma": 0.9, "gamma.shape": "linear", "gamma.end": 0.99, "n_steps": 8})
    assert arguments(TrainerSpec("sb3/ppo"), config, 1000).startswith(
        "n_steps=8  # not arguments of the constructor: gamma=0.9, "
    )


@pytest.mark.parametrize("n_envs_of", ["configuration", "environment"])
def test_arguments_of_the_engine_are_all_those_of_the_constructor(n_envs_of):
    """Pasted into SB3's constructor they give every hyperparameter, the engine's own defaults included."""
    sb3 = pytest.importorskip("stable_baselines3")
    torch = pytest.importorskip("torch")
    config = {
        "learning_rate": 3e-3,
        "n_steps": 64,
        "net_width": 32,
        "activation": "relu",
        "clip_range_vf": "none",
    }
    environment = {"id": "CartPole-v1"}
    (config if n_envs_of == "configuration" else environment)["n_envs"] = 8
    code, _, comment = arguments(
        TrainerSpec("population/ppo"), config, 1000, environment=environment
    ).partition("  # ")
    assert comment == "env: make_vec_env('CartPole-v1', n_envs=8)"
    vec_env = sb3.common.env_util.make_vec_env
    names = {"sb3": sb3, "torch": torch, "make_vec_env": vec_env}
    model = eval(f"sb3.PPO('MlpPolicy', {comment.removeprefix('env: ')}, {code})", names)
    assert (model.n_envs, model.n_steps, model.learning_rate, model.batch_size) == (8, 64, 3e-3, 64)
    assert model.clip_range_vf is None
    assert model.policy_kwargs["net_arch"] == [32, 32]
    assert model.policy_kwargs["activation_fn"] is torch.nn.ReLU
    assert model.policy_kwargs["optimizer_kwargs"] == {"eps": 1e-5}
    given = eval(f"dict({code})", names)
    assert {
        "gae_lambda",
        "vf_coef",
        "max_grad_norm",
        "target_kl",
        "n_epochs",
        "normalize_advantage",
    } <= given.keys()


@pytest.mark.parametrize("name", ["dqn", "sac", "td3"])
def test_arguments_of_every_algorithm_of_the_engine_are_taken(name):
    sb3 = pytest.importorskip("stable_baselines3")
    torch = pytest.importorskip("torch")
    config = {
        "buffer_size": 500,
        "learning_rate": 1e-3,
        "learning_rate.shape": "cosine",
        "learning_rate.end": 1e-5,
    }
    own = {"dqn": {"double": True}, "sac": {"reward_scale": 0.5}, "td3": {"noise_std": 0.1}}
    config |= own[name]
    code, _, comment = arguments(TrainerSpec(f"population/{name}"), config, 1000).partition("  # ")
    for key, value in own[name].items():
        assert f"{key}={value}" in comment
    task = "CartPole-v1" if name == "dqn" else "Pendulum-v1"
    model = eval(
        f"sb3.{name.upper()}('MlpPolicy', {task!r}, {code})",
        {"sb3": sb3, "torch": torch, "math": math},
    )
    assert model.buffer_size == 500
    assert [model.lr_schedule(left) for left in (1.0, 0.0)] == pytest.approx([1e-3, 1e-5])


def test_scores_are_readable_and_hyperparameters_exact():
    config = Config(x=0.30000000000000004)
    one = Candidate(
        3,
        "incumbent",
        448.95500000000004,
        2,
        9,
        9,
        TrainerSpec("command"),
        {},
        ((0, config),),
        None,
    )
    text = render([one], "json")
    assert "448.955," in text
    assert "0.30000000000000004" in text
