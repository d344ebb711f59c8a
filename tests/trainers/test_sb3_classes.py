"""Classes of the user's in a run of Stable-Baselines3: networks, optimizers, policies, callbacks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("stable_baselines3")

import torch
from segments import run, segment

from autorl.core.types import Config, EnvironmentSpec, InputError, Outcome, TrainerSpec, freeze
from autorl.report.formats import arguments
from autorl.report.plan import make_plan
from autorl.study.session import user_files
from autorl.study.setup import check, trainer_loader
from autorl.study.spec import load_spec
from autorl.trainers import info, load
from autorl.trainers.info import TrainedRun

torch.set_num_threads(1)  # as the executors do
CARTPOLE = EnvironmentSpec("CartPole-v1", n_envs=2)
PPO = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "net_arch": [8]}
MODULE = """
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

class Extractor(BaseFeaturesExtractor):
    def __init__(self, observation_space, features_dim=8, really=None):
        super().__init__(observation_space, features_dim)
        size = observation_space.shape[0]
        self.layer = torch.nn.Linear(size, really or features_dim)

    def forward(self, observations):
        return torch.relu(self.layer(observations))

class Bent(torch.nn.Module):
    def forward(self, inputs):
        return torch.nn.functional.softsign(inputs)

class Policy(ActorCriticPolicy):
    pass

class Noting(BaseCallback):
    calls = []

    def __init__(self, label="", stop_at=None):
        super().__init__()
        self.label = label
        self.stop_at = stop_at

    def _on_training_start(self):
        self.calls.append((self.label, "start", self.num_timesteps, self.n_calls))
        torch.rand(3)

    def _on_step(self):
        self.logger.record("mine/steps", self.num_timesteps)
        return self.stop_at is None or self.num_timesteps < self.stop_at

    def _on_rollout_end(self):
        self.calls.append((self.label, "rollout", self.num_timesteps, self.n_calls))

    def _on_training_end(self):
        self.calls.append((self.label, "end", self.num_timesteps, self.n_calls))

class NoCallback:
    pass

class Empty(PPO):
    pass

class Forgetful(PPO):
    updates = 0

    def train(self):
        self.updates += 1
        self.vf_coef = 0.5 * self.updates
        super().train()
        self.vf_coef = 0.5

class Failing(PPO):
    def train(self):
        raise ValueError("nothing is learnt here")
"""


@pytest.fixture
def module(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Write a module of a user's and give its name, which no other test has."""
    name = f"nets_{abs(hash(request.node.name)):x}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    return name


def run_in(folder: Path, algorithm: str = "ppo", until: int = 64, **options: Any) -> Outcome:
    """Train a segment with modules in `folder`."""
    after: Outcome | None = options.pop("after", None)
    name = options.pop("name", "run")
    environment = options.pop("environment", CARTPOLE)
    config = options.pop("config", PPO)
    options = {"path": str(folder), **options}
    of_run = {"after": after, "horizon": 64}
    place = folder / name
    return run(segment(f"sb3/{algorithm}", environment, config, until, place, options, **of_run))


def trained(*arguments: Any, **options: Any) -> Outcome:
    outcome = run_in(*arguments, **options)
    assert not outcome.message, outcome.message
    return outcome


def test_an_extractor_an_optimizer_and_an_activation_of_one_s_own_are_trained(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stable_baselines3 import PPO as Library

    options = {
        "features_extractor_class": f"{module}:Extractor",
        "features_extractor_kwargs": {"features_dim": 5},
        "optimizer_class": "torch.optim:SGD",
        "optimizer_kwargs": {"momentum": 0.5},
        "activation_fn": f"{module}:Bent",
    }
    outcome = trained(tmp_path, policy_kwargs=options)
    trainer = load(
        TrainerSpec("sb3/ppo", freeze({"path": str(tmp_path), "policy_kwargs": options}))
    )
    exported = trainer.export_model(outcome.checkpoint, tmp_path / "model")
    monkeypatch.syspath_prepend(tmp_path)
    model = Library.load(exported.path)
    assert type(model.policy.features_extractor).__name__ == "Extractor"
    assert model.policy.features_extractor.layer.out_features == 5
    assert type(model.policy.optimizer) is torch.optim.SGD
    assert model.policy.optimizer.param_groups[0]["momentum"] == 0.5
    assert type(model.policy.mlp_extractor.policy_net[1]).__name__ == "Bent"


def test_a_class_can_be_searched_and_is_read_back(module: str, tmp_path: Path) -> None:
    config = {**PPO, "activation": f"{module}:Bent", "optimizer_class": "torch.optim:AdamW"}
    applied = trained(tmp_path, config=config).applied
    assert applied["activation"] == f"{module}:Bent"
    assert applied["optimizer_class"] == "torch.optim:AdamW"


def test_a_policy_of_one_s_own(module: str, tmp_path: Path) -> None:
    trained(tmp_path, policy=f"{module}:Policy")


def test_callbacks_see_the_training_as_in_learn(module: str, tmp_path: Path) -> None:
    entries = [f"{module}:Noting", {f"{module}:Noting": {"label": "b"}}]
    trained(tmp_path, callbacks=entries)
    import sys

    calls = sys.modules[module].Noting.calls
    of_first = [call for call in calls if call[0] == ""]
    assert of_first == [
        ("", "start", 0, 0),
        ("", "rollout", 32, 16),
        ("", "rollout", 64, 32),
        ("", "end", 64, 32),
    ]
    assert len([call for call in calls if call[0] == "b"]) == 4


def test_a_run_with_callbacks_is_cut_anywhere(module: str, tmp_path: Path) -> None:
    options = {"callbacks": f"{module}:Noting"}
    whole = trained(tmp_path, name="whole", **options)
    half = trained(tmp_path, name="half", until=32, **options)
    rest = trained(tmp_path, name="rest", after=half, **options)
    assert rest.reports == tuple(
        type(report)("rest", report.step, report.metrics) for report in whole.reports
    )
    import sys

    starts = [call for call in sys.modules[module].Noting.calls if call[1] == "start"]
    assert starts[-1] == ("", "start", 32, 16), "calls are counted on"


def test_a_callback_that_ends_the_training_fails_the_run(module: str, tmp_path: Path) -> None:
    outcome = run_in(tmp_path, callbacks={f"{module}:Noting": {"stop_at": 20}})
    assert "a callback ended the training at step 20" in outcome.message


def test_an_empty_subclass_trains_as_the_algorithm_does(module: str, tmp_path: Path) -> None:
    mine = trained(tmp_path, name="mine", algorithm_class=f"{module}:Empty")
    theirs = trained(tmp_path, name="theirs")
    assert [report.metrics for report in mine.reports] == [r.metrics for r in theirs.reports]
    options = {"path": str(tmp_path), "algorithm_class": f"{module}:Empty"}
    trainer = load(TrainerSpec("sb3/ppo", freeze(options)))
    assert trainer.changes == load(TrainerSpec("sb3/ppo")).changes
    assert type(trainer.load_model(mine.checkpoint)).__name__ == "Empty"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Empty", "64 [+] 64 steps through a checkpoint equal 128; learning_rate, gamma applied"),
        ("Forgetful", "MODULE:Forgetful, trained for 128 steps: n [+] n .* no checkpoint has"),
        ("Failing", "MODULE:Failing, .*: ValueError: nothing is learnt here"),
        ("Policy", "'MODULE:Policy' is no subclass of stable_baselines3.PPO"),
    ],
)
def test_a_dry_run_proves_a_subclass(module: str, tmp_path: Path, name: str, shown: str) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(
        f"trainer: {{name: sb3/ppo, kwargs: {{algorithm_class: '{module}:{name}'}}}}\n"
        "environment: CartPole-v1\nspace: sb3/ppo-small\nfidelity: {steps: 4096}\n"
        "budget: {configurations: 2}\noptimizer: random\n"
    )
    spec = load_spec(file)
    shown = shown.replace("MODULE", module)
    if name == "Empty":
        (line,) = make_plan(spec).proven
        assert re.search(shown, line)
        assert [*user_files(spec)] == [f"{module}.py"]
        return
    with pytest.raises(InputError, match=shown) as error:
        make_plan(spec)
    assert (error.value.key, error.value.line) == ("trainer.kwargs.algorithm_class", 1)


@pytest.mark.parametrize(
    ("option", "value", "key", "message"),
    [
        ("policy", "MODULE:Nothing", "policy", "has no 'Nothing'"),
        ("policy", "MODULE:Bent", "policy", "no subclass of stable_baselines3.common.policies"),
        ("callbacks", "MODULE:NoCallback", "callbacks[0]", "no subclass of .*BaseCallback"),
        ("callbacks", ["MODULE:Noting", 3], "callbacks[1]", "expected module:Class or"),
        ("callbacks", {"MODULE:Noting": {"lable": "b"}}, "callbacks[0]", "does not take these"),
        ("callbacks", "Noting", "callbacks[0]", "expected module:Class, such as"),
        ("logs", "csvv", "logs", "unknown kind of log 'csvv'; did you mean 'csv'"),
        ("logs", [3], "logs", "expected a list of csv, tensorboard"),
    ],
)
def test_a_wrong_class_or_option_names_its_key_before_a_study(
    module: str, tmp_path: Path, option: str, value: Any, key: str, message: str
) -> None:
    named = eval(repr(value).replace("MODULE", module))
    with pytest.raises(InputError, match=message) as error:
        load(TrainerSpec("sb3/ppo", freeze({"path": str(tmp_path), option: named}))).check_model(
            CARTPOLE, Config(PPO)
        )
    assert error.value.key == f"trainer.kwargs.{key}"


@pytest.mark.parametrize(
    ("policy_kwargs", "key", "message"),
    [
        ({"lstm_hidden_size": 8}, ".lstm_hidden_size", "unexpected keyword argument"),
        ({"features_extractor_class": "nowhere_x:C"}, ".features_extractor_class", "nowhere_x"),
        ({"features_extractor_class": 3}, ".features_extractor_class", "expected module:Class"),
        ({"optimizer_class": "AdamW"}, ".optimizer_class", "such as torch.optim:AdamW"),
        ({"optimizer_class": "torch.nn:ReLU"}, ".optimizer_class", "no subclass of torch.optim"),
        (
            {
                "features_extractor_class": "MODULE:Extractor",
                "features_extractor_kwargs": {"features_dim": 8, "really": 3},
            },
            "",
            "RuntimeError.*shapes",
        ),
    ],
)
def test_what_cannot_be_built_fails_in_the_dry_run(
    module: str, tmp_path: Path, policy_kwargs: dict[str, Any], key: str, message: str
) -> None:
    named = eval(repr(policy_kwargs).replace("MODULE", module))
    file = tmp_path / "study.yaml"
    file.write_text(
        "trainer:\n  name: sb3/ppo\n"
        f"  kwargs: {{policy_kwargs: {named}}}\n"
        "environment: CartPole-v1\nspace: {extends: sb3/ppo-small}\n"
        "fidelity: {steps: 20_000, evaluations: 4}\nbudget: {runs: 3}\n"
    )
    spec = load_spec(file)
    with pytest.raises(InputError, match=message) as error:
        check(spec, trainer_loader(spec))
    assert error.value.key == f"trainer.kwargs.policy_kwargs{key}"
    assert (error.value.file, error.value.line) == (str(file), 3)


def test_a_default_the_library_refuses_fails_in_the_dry_run() -> None:
    with pytest.raises(InputError, match="`batch_size` must be greater than 1") as error:
        load(TrainerSpec("sb3/ppo")).check_model(CARTPOLE, Config(batch_size=1))
    assert error.value.key == "space.batch_size"


def test_the_trial_build_leaves_random_streams_alone() -> None:
    before = torch.get_rng_state()
    load(TrainerSpec("sb3/dqn")).check_model(CARTPOLE, Config())
    assert torch.equal(before, torch.get_rng_state())


def test_the_best_as_arguments_names_the_classes(module: str) -> None:
    classes = {"activation": f"{module}:Bent", "optimizer_class": "torch.optim:AdamW"}
    spec = TrainerSpec("sb3/ppo", freeze({"algorithm_class": "my_module:Mine"}))
    run = TrainedRun(spec, {"gamma": 0.9, "my_own": 2.0} | classes, 100, 100, {})
    text = arguments(run, info("sb3/ppo"))
    assert "gamma=0.9, my_own=2.0, policy_kwargs" in text
    assert "# of the class my_module:Mine" in text
    assert f"activation_fn={module}.Bent" in text
    assert "optimizer_class=torch.optim.AdamW" in text
    assert f"import {module}, torch.optim" in text


def test_a_replay_memory_that_is_none_names_its_key() -> None:
    trainer = load(TrainerSpec("sb3/dqn", freeze({"replay_buffer_class": "torch.nn:ReLU"})))
    with pytest.raises(
        InputError, match=r"no subclass of stable_baselines3.common.buffers"
    ) as error:
        trainer.check_model(CARTPOLE, Config())
    assert error.value.key == "trainer.kwargs.replay_buffer_class"


def test_a_misspelt_option_names_the_nearest() -> None:
    with pytest.raises(InputError, match="'callback'; did you mean 'callbacks'") as error:
        load(TrainerSpec("sb3/ppo", freeze({"callback": "a:B"})))
    assert error.value.key == "trainer.kwargs"
