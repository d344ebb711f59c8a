"""A study trains the values that its file fixes; two places that disagree are an error that names
both."""

import json

import pytest
from refusals import expect_error

from autorl.core.types import InputError
from autorl.study import Study
from autorl.study.setup import check, trainer_loader
from autorl.study.spec import load_spec

RATE = {"learning_rate": {"type": "float", "lower": 1e-4, "upper": 1e-2}}
COMMON = {
    "fidelity": {"steps": 128, "evaluations": 1, "episodes": 1},
    "budget": {"runs": 1},
    "parallelism": 1,
}
COMMON |= {
    "seeds": {"tuning": 1, "test": 0},
    "executor": {"name": "in_process"},
    "test": {"top": 0},
}
COMMON |= {"optimizer": "random", "keep": {"checkpoints": "lineage"}}


def study(trainer, space=RATE, kwargs=None, environment="CartPole-v1", **more):
    document = {
        "trainer": {"name": trainer, "kwargs": kwargs or {}},
        "space": space,
        **COMMON,
        **more,
    }
    if environment is not None:
        document["environment"] = environment
    spec = load_spec(document)
    check(spec, trainer_loader(spec))
    return spec


def trained(spec, folder):
    """The configuration and the exported model of the one run of a study."""
    from autorl.study.results.models import load_model

    made = Study.create(spec, folder)
    made.run()
    config = made.driver.lineage[0].config
    return load_model(folder, 0, config, None)


LAYERS = {"net_arch": {"pi": [8], "vf": [4]}}
RELU = {"activation_fn": "relu"}
SB3 = [
    ("sb3/ppo", {"policy_kwargs": LAYERS}, "policy_kwargs.net_arch", "net_arch"),
    ("sb3/ppo", {"policy_kwargs": RELU}, "policy_kwargs.activation_fn", "activation"),
    ("sb3/ppo", RELU, "activation_fn", "activation"),
    ("sb3/ppo", {"ent_coef": 0.1}, "ent_coef", "ent_coef"),
    ("population/ppo", {"net_width": 8}, "net_width", "net_width"),
    ("population/dqn", {"gamma": 0.9}, "gamma", "gamma"),
]


@pytest.mark.parametrize(("trainer", "kwargs", "place", "name"), SB3)
def test_what_is_fixed_and_searched_is_refused_with_both_places(trainer, kwargs, place, name):
    pytest.importorskip("stable_baselines3")
    long = {"steps": 100_000, "evaluations": 1}  # than the default rollout
    with pytest.raises(
        InputError,
        match=rf"^trainer\.kwargs\.{place}: is searched .* as space\.hyperparameters\.{name}:",
    ):
        study(trainer, {"extends": trainer}, kwargs, fidelity=long)
    study(trainer, {"extends": trainer, "hyperparameters": {name: None}}, kwargs, fidelity=long)


@pytest.mark.parametrize("trainer", ["sb3/ppo", "population/ppo"])
def test_what_the_space_fixes_to_something_else_is_refused(trainer):
    pytest.importorskip("stable_baselines3")
    space = {**RATE, "gamma": {"value": 0.9}}
    with pytest.raises(InputError, match=r"trainer\.kwargs\.gamma: is fixed to 0\.9 by the space"):
        study(trainer, space, {"gamma": 0.99})
    study(trainer, space, {"gamma": 0.9})


def test_options_that_disagree_are_refused():
    pytest.importorskip("stable_baselines3")
    kwargs = {"net_arch": [8], "policy_kwargs": {"net_arch": [4]}}
    expect_error(
        r"kwargs\.net_arch: is fixed by trainer\.kwargs\.net_arch", study, "sb3/ppo", kwargs=kwargs
    )
    study("sb3/ppo", kwargs={**kwargs, "net_arch": [4]})


def test_with_several_algorithms_the_places_are_those_of_each():
    pytest.importorskip("stable_baselines3")
    parts = {
        "a": {"trainer": {"name": "sb3/ppo", "kwargs": {"gamma": 0.9}}, "space": {**RATE}},
        "b": {"trainer": {"name": "sb3/dqn", "kwargs": {"learning_rate": 1e-3}}, "space": {**RATE}},
    }
    spec = load_spec({**COMMON, "environment": "CartPole-v1", "algorithms": parts})
    error = expect_error("", check, spec, trainer_loader(spec))
    assert error.key == "algorithms.b.trainer.kwargs.learning_rate"
    assert "algorithms.b.space.hyperparameters.learning_rate" in error.message


def test_the_fixed_value_is_in_the_model_that_sb3_trained(tmp_path):
    pytest.importorskip("stable_baselines3")
    policy = LAYERS | RELU
    space = {**RATE, "n_steps": {"value": 64}}
    model = trained(
        study("sb3/ppo", space, {"policy_kwargs": policy, "gamma": 0.9}), tmp_path / "s"
    )
    assert model.policy_kwargs["net_arch"] == {"pi": [8], "vf": [4]}
    assert model.policy_kwargs["activation_fn"].__name__ == "ReLU"
    assert model.policy.mlp_extractor.policy_net[0].out_features == 8
    assert (model.gamma, model.n_steps) == (0.9, 64)


# The number of environments: a key of the environment, and a hyperparameter of sb3 and population trainers


@pytest.mark.parametrize("trainer", ["sb3/ppo", "population/ppo"])
def test_the_number_of_environments_is_said_in_one_place(trainer):
    pytest.importorskip("stable_baselines3")
    four = {"id": "CartPole-v1", "n_envs": 4}
    with pytest.raises(
        InputError,
        match=r"environment\.n_envs: is fixed to 8 by the space .*hyperparameters\.n_envs",
    ):
        study(trainer, {**RATE, "n_envs": {"value": 8}}, environment=four)
    with pytest.raises(InputError, match=r"environment\.n_envs: is searched by the space"):
        study(trainer, {**RATE, "n_envs": {"choices": [1, 4]}}, environment=four)
    with pytest.raises(InputError, match=r"trainer\.kwargs\.n_envs: is 4 in environment\.n_envs"):
        study(trainer, RATE, {"n_envs": 8}, four)
    study(trainer, {**RATE, "n_envs": {"value": 4}}, environment=four)
    study(trainer, {**RATE, "n_envs": {"choices": [1, 4]}})


def test_constraints_see_the_number_of_environments_among_the_options(tmp_path):
    space = {
        "hyperparameters": {**RATE, "n_steps": {"value": 16}, "batch_size": {"value": 64}},
        "constraints": ["batch_size <= n_steps * n_envs"],
    }
    expect_error("batch_size <= n_steps", study, "population/ppo", space, {"n_envs": 2})
    pytest.importorskip("stable_baselines3")
    assert trained(study("population/ppo", space, {"n_envs": 4}), tmp_path / "s").n_envs == 4


# Commands and RLHF


SCRIPT = """\
import json, sys
print(json.dumps({"step": 128, "eval_return": 0.0}))
print(json.dumps(sys.argv[1:]), file=open(%r, "w"))
"""


def command(tmp_path, line, **kwargs):
    (tmp_path / "train.py").write_text(SCRIPT % str(tmp_path / "argv.json"))
    kwargs = {"command": f"{{python}} train.py --seed {{seed}} --steps {{until}} {line}", **kwargs}
    return study("command", RATE, kwargs, environment=None, path=str(tmp_path))


@pytest.mark.parametrize(
    ("line", "kwargs"),
    [
        ("--learning-rate 0.1", {}),
        ("--learning_rate=0.1", {"style": "snake"}),
        ("learning_rate=0.1", {"style": "hydra"}),
        ("", {"save_flag": "--learning-rate", "checkpoint_flag": "--from"}),
    ],
)
def test_a_flag_of_the_command_that_is_searched_is_refused(tmp_path, line, kwargs):
    with pytest.raises(
        InputError,
        match=r"is searched by the space as well, as space\.hyperparameters\.learning_rate",
    ):
        command(tmp_path, line, **kwargs)


def test_a_command_gets_every_flag_once(tmp_path):
    spec = command(tmp_path, "--gamma 0.9")
    made = Study.create(spec, tmp_path / "s")
    made.run()
    flags = [
        word for word in json.loads((tmp_path / "argv.json").read_text()) if word.startswith("--")
    ]
    assert sorted(flags) == ["--gamma", "--learning-rate", "--seed", "--steps"]


@pytest.mark.parametrize(
    ("trainer", "kwargs", "searched", "place"),
    [
        ("rloo", {"generation_kwargs": {"temperature": 0.7}}, "temperature", "generation_kwargs"),
        ("grpo", {"use_kl": False}, "beta", "use_kl"),
        ("dpo", {"loss_type": "sigmoid+sft", "loss_weights": [1.0, 0.5]}, "sft_weight", "loss_w"),
        ("cpo", {"loss_type": "simpo", "simpo_gamma": 0.5}, "gamma_ratio", "simpo_gamma"),
        ("ppo", {"kl_coef": 0.1}, "kl_coef", "kl_coef"),
    ],
)
def test_nested_options_of_trl_that_are_searched_are_refused(trainer, kwargs, searched, place):
    pytest.importorskip("trl")
    space = {searched: {"type": "float", "lower": 0.1, "upper": 0.5}}
    task = "letters-pairs" if trainer in ("dpo", "cpo") else "letters-goldproxy"
    with pytest.raises(InputError, match=rf"trainer\.kwargs\.{place}.*: is searched by the space"):
        study(f"trl/{trainer}", space, kwargs, task)


def test_the_fixed_value_is_in_the_trainer_that_trl_trained_with(tmp_path):
    """`applied` is read back from the live trainer."""
    pytest.importorskip("trl")
    kwargs = {"temperature": 0.7, "max_grad_norm": 0.3}
    kwargs |= {"per_device_train_batch_size": 8, "num_generations": 4}
    fidelity = {"steps": 1, "evaluations": 1, "episodes": 4}
    spec = study("trl/rloo", RATE, kwargs, "letters-goldproxy", fidelity=fidelity)
    made = Study.create(spec, tmp_path / "s")
    made.run()
    ((applied,),) = made.store.query("SELECT applied FROM segments")
    assert {name: json.loads(applied)[name] for name in kwargs} == kwargs
