from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import stable_baselines3 as sb3
import torch
from segments import run, segment, train
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from trainer_environments import Line

from autorl.core.seeds import evaluation_seeds
from autorl.core.types import (
    Checkpoint,
    Config,
    EnvironmentSpec,
    FrozenMap,
    InputError,
    Outcome,
    Status,
    TrainerSpec,
)
from autorl.executors.worker import run_segment
from autorl.space import schedule_function
from autorl.study import Study
from autorl.study.spec import load_spec
from autorl.trainers import load, saved_state
from autorl.trainers.contract import ExportedModel
from autorl.trainers.sb3 import trainer as trainer_module
from autorl.trainers.sb3.environments import make_environment
from autorl.trainers.sb3.settings import Settings, optimizers

CARTPOLE, PENDULUM = EnvironmentSpec("CartPole-v1", n_envs=2), EnvironmentSpec("Pendulum-v1")
NORMALISED = EnvironmentSpec("CartPole-v1", n_envs=2, normalize=True)
LINE = EnvironmentSpec("trainer_environments:LineTest-v0")
PPO = {"n_steps": 32, "batch_size": 32, "n_epochs": 2, "net_arch": (16,)}
OFF_POLICY = {"learning_starts": 32, "batch_size": 16, "buffer_size": 300, "net_arch": (16,)}
LINEAR = {"learning_rate": 1e-2, "learning_rate.shape": "linear", "learning_rate.end": 1e-4}


torch.set_num_threads(1)  # as the executors do; more only spin on networks this small


class Runs:
    """Trains segments of one algorithm in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def __call__(
        self,
        name: str,
        config: dict[str, Any],
        environment: EnvironmentSpec,
        until: int = 128,
        **changes: Any,
    ) -> Outcome:
        self.count += 1
        spec = TrainerSpec(f"sb3/{name}", changes.pop("kwargs", FrozenMap()))
        place = self.folder / f"s{self.count}"
        of_run = {"horizon": 256, "evaluate_at": ()} | changes
        return train(segment(spec, environment, config, until, place, **of_run))


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def state_of(outcome: Outcome) -> dict[str, Any]:
    assert outcome.checkpoint is not None
    return saved_state.read(Path(outcome.checkpoint.path) / saved_state.STATE)


def parameters(outcome: Outcome) -> dict[str, torch.Tensor]:
    """The networks in a checkpoint."""
    assert outcome.checkpoint is not None
    return dict(state_of(outcome)["parameters"]["policy"])


def export_model(name: str, saved: Checkpoint, file: Path, **options: Any) -> ExportedModel:
    """The model of a checkpoint, written by the trainer whose configuration says all but `options`."""
    replace = options.pop("replace", False)
    written: ExportedModel = load(TrainerSpec(f"sb3/{name}", FrozenMap(options))).export_model(  # type: ignore[attr-defined]
        saved, file, replace=replace
    )
    return written


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


ALGORITHMS = [
    pytest.param(
        "ppo",
        {**PPO, **LINEAR, "clip_range": 0.3, "clip_range.shape": "cosine", "clip_range.end": 0.1},
        CARTPOLE,
    ),
    pytest.param(
        "a2c",
        {**LINEAR, "n_steps": 8, "gamma": 0.9, "gamma.shape": "linear", "gamma.end": 0.99},
        NORMALISED,
    ),
    pytest.param(
        "dqn",
        {**OFF_POLICY, **LINEAR, "exploration_fraction": 0.9, "target_update_interval": 40},
        CARTPOLE,
    ),
    pytest.param("sac", {**OFF_POLICY, **LINEAR}, PENDULUM),
]


@pytest.mark.parametrize(("name", "config", "environment"), ALGORITHMS)
def test_n_plus_n_equals_2n_to_the_last_bit(
    runs: Runs, name: str, config: dict[str, Any], environment: EnvironmentSpec
) -> None:
    whole = runs(name, config, environment, until=256, evaluate_at=(256,))
    first = runs(name, config, environment, until=128)
    second = runs(name, config, environment, until=256, after=first, evaluate_at=(256,))
    assert same(parameters(second), parameters(whole))
    assert not same(parameters(second), parameters(first))
    assert second.reports[0].metrics == whole.reports[0].metrics
    assert second.notes == ()


@pytest.mark.parametrize(
    ("name", "config", "environment"),
    [
        ("ppo", PPO, CARTPOLE),
        ("a2c", {"n_steps": 8}, CARTPOLE),
        ("dqn", OFF_POLICY, CARTPOLE),
        ("sac", OFF_POLICY, PENDULUM),
    ],
)
def test_training_is_what_sb3_does_with_the_same_seed(
    runs: Runs,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    config: dict[str, Any],
    environment: EnvironmentSpec,
) -> None:
    monkeypatch.setattr(trainer_module, "integer_seed", lambda *keys: 7)
    ours = runs(name, config, environment, until=256)
    arguments = {key: value for key, value in config.items() if key != "net_arch"}
    arguments["policy_kwargs"] = (
        {"net_arch": list(config["net_arch"])} if "net_arch" in config else {}
    )
    venv = DummyVecEnv([lambda: make_environment(environment)] * environment.n_envs)
    model = getattr(sb3, name.upper())("MlpPolicy", venv, seed=7, **arguments).learn(256)
    assert same(
        parameters(ours), {key: value.cpu() for key, value in model.policy.state_dict().items()}
    )


def test_epsilon_is_a_function_of_step_and_horizon(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates: list[tuple[int, float]] = []
    original = sb3.DQN._on_step

    def spy(model: Any) -> None:
        original(model)
        rates.append((model.num_timesteps, model.exploration_rate))

    monkeypatch.setattr(sb3.DQN, "_on_step", spy)
    config = {**OFF_POLICY, "exploration_fraction": 0.5, "exploration_final_eps": 0.2}
    first = runs("dqn", config, CARTPOLE, until=64)
    runs("dqn", config, CARTPOLE, until=192, after=first)
    assert [step for step, _ in rates] == list(range(2, 194, 2))
    assert [rate for _, rate in rates] == pytest.approx(
        [max(0.2, 1 - 0.8 * step / 128) for step, _ in rates]
    )


def test_a_changed_learning_rate_is_the_one_training_uses(runs: Runs) -> None:
    for name, config, environment in (("ppo", PPO, CARTPOLE), ("sac", OFF_POLICY, PENDULUM)):
        first = runs(name, {**config, "learning_rate": 1e-3}, environment)
        frozen = runs(
            name,
            {**config, "learning_rate": 0.0, "tau": 0.0}
            if name == "sac"
            else {**config, "learning_rate": 0.0},
            environment,
            until=192,
            after=first,
        )
        assert same(parameters(frozen), parameters(first))
        assert frozen.applied["learning_rate"] == 0.0
        kept = runs(name, {**config, "learning_rate": 1e-3}, environment, until=192, after=first)
        faster = runs(name, {**config, "learning_rate": 1e-2}, environment, until=192, after=first)
        moved = [
            max(
                float((parameters(run)[key] - value).abs().max())
                for key, value in parameters(first).items()
            )
            for run in (kept, faster)
        ]
        assert moved[1] > 3 * moved[0] > 0


def test_changed_clip_range_and_entropy_coefficient_are_those_training_uses(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[float, float]] = []
    original = sb3.PPO.train

    def spy(model: Any) -> None:
        original(model)
        seen.append((model.logger.name_to_value["train/clip_range"], model.ent_coef))

    monkeypatch.setattr(sb3.PPO, "train", spy)
    first = runs("ppo", {**PPO, "clip_range": 0.3, "ent_coef": 0.0}, CARTPOLE)
    changed = runs(
        "ppo", {**PPO, "clip_range": 0.1, "ent_coef": 0.5}, CARTPOLE, until=256, after=first
    )
    assert seen == [(0.3, 0.0)] * 2 + [(0.1, 0.5)] * 2
    assert (changed.applied["clip_range"], changed.applied["ent_coef"]) == (0.1, 0.5)
    kept = runs(
        "ppo", {**PPO, "clip_range": 0.3, "ent_coef": 0.0}, CARTPOLE, until=256, after=first
    )
    assert not same(parameters(changed), parameters(kept))


def test_a_changed_gamma_is_the_one_in_the_advantages(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stable_baselines3.common.buffers import RolloutBuffer

    found: list[float] = []
    original = RolloutBuffer.compute_returns_and_advantage

    def spy(buffer: Any, last_values: torch.Tensor, dones: np.ndarray[Any, Any]) -> None:
        original(buffer, last_values, dones)
        ahead = last_values.numpy().flatten() * (1.0 - dones)
        gain = buffer.advantages[-1] + buffer.values[-1] - buffer.rewards[-1]
        found.extend((gain[ahead != 0] / ahead[ahead != 0]).tolist())

    monkeypatch.setattr(RolloutBuffer, "compute_returns_and_advantage", spy)
    first = runs("ppo", {**PPO, "gamma": 0.99}, CARTPOLE, until=64)
    count = len(found)
    assert found == pytest.approx([0.99] * count, abs=1e-3)
    changed = runs("ppo", {**PPO, "gamma": 0.5}, CARTPOLE, until=192, after=first)
    assert found[count:] == pytest.approx([0.5] * (len(found) - count), abs=1e-3)
    assert len(found) > count
    assert changed.applied["gamma"] == 0.5


def test_gamma_reaches_the_n_step_buffer_and_the_reward_normaliser(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    gammas: list[tuple[float, float, float]] = []
    original = sb3.DQN.train

    def spy(model: Any, **arguments: Any) -> None:
        gammas.append((model.gamma, model.replay_buffer.gamma, model.get_vec_normalize_env().gamma))
        original(model, **arguments)

    monkeypatch.setattr(sb3.DQN, "train", spy)
    environment = EnvironmentSpec("CartPole-v1", normalize=True)
    first = runs("dqn", {**OFF_POLICY, "n_steps": 3, "gamma": 0.9}, environment, until=64)
    runs("dqn", {**OFF_POLICY, "n_steps": 3, "gamma": 0.8}, environment, until=96, after=first)
    assert set(gammas) == {(0.9, 0.9, 0.9), (0.8, 0.8, 0.8)}


def test_sac_s_entropy_coefficient_changes_between_fixed_and_learned(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[float] = []
    original = sb3.SAC.train

    def spy(model: Any, **arguments: Any) -> None:
        original(model, **arguments)
        used.append(model.logger.name_to_value["train/ent_coef"])

    monkeypatch.setattr(sb3.SAC, "train", spy)
    learned = runs(
        "sac", {**OFF_POLICY, "ent_coef": "auto", "learning_rate": 1e-2}, PENDULUM, until=64
    )
    assert used[0] == 1.0
    assert used[-1] != 1.0
    last = used[-1]
    runs(
        "sac",
        {**OFF_POLICY, "ent_coef": "auto", "learning_rate": 1e-2},
        PENDULUM,
        until=65,
        after=learned,
    )
    assert used[-1] == pytest.approx(last, rel=0.05)  # continues where it was
    fixed = runs(
        "sac",
        {**OFF_POLICY, "ent_coef": 0.2, "learning_rate": 1e-2},
        PENDULUM,
        until=96,
        after=learned,
    )
    assert used[-1] == pytest.approx(0.2)
    assert fixed.applied["ent_coef"] == pytest.approx(0.2)
    again = runs(
        "sac",
        {**OFF_POLICY, "ent_coef": "auto_0.7", "learning_rate": 1e-2},
        PENDULUM,
        until=97,
        after=fixed,
    )
    assert used[-1] == pytest.approx(0.7)
    assert again.applied["ent_coef"] == "auto_0.7"


def test_the_rollout_length_changes_by_rebuilding_the_buffer(runs: Runs) -> None:
    first = runs("ppo", PPO, CARTPOLE, until=64)
    second = runs("ppo", {**PPO, "n_steps": 48}, CARTPOLE, until=160, after=first)
    assert (second.reached, second.applied["n_steps"]) == (160, 48)
    changes = load(TrainerSpec("sb3/ppo")).changes
    assert (changes["n_steps"], changes["learning_rate.end"], changes["batch_size"]) == (
        "rebuild",
        "apply",
        "apply",
    )
    assert not {"batch_size.end", "net_arch", "n_envs"} & set(changes)


def test_a_value_that_does_not_take_is_an_error(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = sb3.PPO.__init__

    def deaf(model: Any, *arguments: Any, **keywords: Any) -> None:
        original(model, *arguments, **{**keywords, "vf_coef": 0.5})

    deaf.__signature__ = __import__("inspect").signature(original)  # type: ignore[attr-defined]
    monkeypatch.setattr(sb3.PPO, "__init__", deaf)
    with pytest.raises(RuntimeError, match=r"vf_coef: 0\.9 was asked for, the model has 0\.5"):
        runs("ppo", {**PPO, "vf_coef": 0.9}, CARTPOLE)


def test_every_hyperparameter_is_read_back(runs: Runs) -> None:
    config = {
        **PPO,
        "learning_rate": 1e-3,
        "gae_lambda": 0.8,
        "vf_coef": 0.7,
        "max_grad_norm": 0.3,
        "target_kl": 0.5,
    }
    config |= {
        "clip_range_vf": 0.2,
        "normalize_advantage": False,
        "activation": "elu",
        "ortho_init": False,
        "n_envs": 3,
    }
    assert runs("ppo", config, CARTPOLE).applied == config
    config = {
        "use_rms_prop": True,
        "rms_prop_eps": 1e-4,
        "net_arch": FrozenMap(pi=(8,), vf=(16, 8)),
        "gamma": 0.9,
    }
    assert runs("a2c", config, CARTPOLE, until=20).applied == config
    config = {
        **OFF_POLICY,
        "tau": 0.5,
        "train_freq": (2, "step"),
        "gradient_steps": -1,
        "max_grad_norm": 1.0,
    }
    config |= {
        "exploration_fraction": 0.5,
        "exploration_initial_eps": 0.9,
        "exploration_final_eps": 0.1,
        "n_steps": 2,
    }
    assert runs("dqn", config, CARTPOLE, until=40).applied == config
    config = {
        **OFF_POLICY,
        "noise_type": "normal",
        "noise_std": 0.2,
        "policy_delay": 3,
        "target_noise_clip": 0.4,
    }
    assert runs("td3", config, PENDULUM, until=40).applied == config


def test_an_environment_that_cannot_be_saved_starts_new_episodes_and_says_so(runs: Runs) -> None:
    for kind in ("Unpicklable", "EzPickled"):
        environment = EnvironmentSpec(f"trainer_environments:{kind}Test-v0")
        first = runs("ppo", PPO, environment, until=64)
        second = runs("ppo", PPO, environment, until=128, after=first, evaluate_at=(128,))
        assert second.notes == ("environment state not restorable: new episodes at step 64",)
        again = runs("ppo", PPO, environment, until=128, after=first, evaluate_at=(128,))
        assert second.reports[0].metrics == again.reports[0].metrics
        assert same(parameters(second), parameters(again))


def test_new_episodes_are_a_boundary_in_the_replay_buffer(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[tuple[float, float]] = []
    original = sb3.DQN.train

    def spy(model: Any, **arguments: Any) -> None:
        buffer = model.replay_buffer
        ends.append((float(buffer.dones[63, 0]), float(buffer.timeouts[63, 0])))
        original(model, **arguments)

    first = runs(
        "dqn",
        {**OFF_POLICY, "n_steps": 3},
        EnvironmentSpec("trainer_environments:UnpicklableTest-v0"),
        until=64,
    )
    monkeypatch.setattr(sb3.DQN, "train", spy)
    environment = EnvironmentSpec("trainer_environments:UnpicklableTest-v0")
    runs("dqn", {**OFF_POLICY, "n_steps": 3}, environment, until=68, after=first)
    assert ends == [(1.0, 1.0)]  # n-step returns stop here, and bootstrap


def test_evaluation_honours_one_seed_per_episode(runs: Runs) -> None:
    Line.reset_seeds.clear()
    runs(
        "ppo",
        PPO,
        LINE,
        until=64,
        evaluate_at=(64,),
        episodes=5,
        role="test",
        kwargs=FrozenMap(evaluation_envs=2),
    )
    assert evaluation_seeds(1, "test", 64, 5) == [
        seed for seed in Line.reset_seeds[1:] if seed is not None
    ]


def test_evaluation_side_by_side_or_one_by_one_is_the_same(runs: Runs) -> None:
    outcomes = [
        runs(
            "ppo",
            PPO,
            LINE,
            until=64,
            evaluate_at=(64,),
            episodes=7,
            kwargs=FrozenMap(evaluation_envs=n),
        )
        for n in (1, 3, 16)
    ]
    assert (
        outcomes[0].reports[0].metrics
        == outcomes[1].reports[0].metrics
        == outcomes[2].reports[0].metrics
    )
    assert {
        "eval_return",
        "eval_return_std",
        "eval_length",
        "eval_success_rate",
        "train_return",
    } == set(outcomes[0].reports[0].metrics)
    assert outcomes[0].reports[0].metrics["eval_length"] == 10.0


@pytest.mark.parametrize("space", ["discrete", "dict", "image"])
def test_observations_of_every_kind_train_evaluate_and_continue(runs: Runs, space: str) -> None:
    environment = EnvironmentSpec(
        "trainer_environments:SpacesTest-v0", kwargs=FrozenMap(space=space), n_envs=2
    )
    config = {"n_steps": 16, "batch_size": 16, "n_epochs": 1}
    whole = runs("ppo", config, environment, until=64, evaluate_at=(64,))
    first = runs("ppo", config, environment, until=32)
    second = runs("ppo", config, environment, until=64, after=first, evaluate_at=(64,))
    assert same(parameters(second), parameters(whole))
    assert whole.reports[0].metrics == second.reports[0].metrics
    assert whole.reports[0].metrics["eval_length"] == 9.0


def test_evaluation_does_not_update_the_normaliser(runs: Runs) -> None:
    environment = EnvironmentSpec("CartPole-v1", normalize=True)
    runs_without = runs("ppo", PPO, environment, until=128)
    runs_with = runs("ppo", PPO, environment, until=128, evaluate_at=(32, 64, 96, 128), episodes=3)
    assert same(parameters(runs_with), parameters(runs_without))
    counts = []
    for outcome in (runs_with, runs_without):
        assert outcome.checkpoint is not None
        counts.append(state_of(outcome)["normaliser"]["obs_rms"].count)
    assert counts[0] == counts[1]
    assert counts[0] == pytest.approx(128 + 1, abs=1)


def test_wrappers_shape_training_and_the_task_s_own_reward_is_reported(runs: Runs) -> None:
    wrapped = EnvironmentSpec(
        LINE.id, wrappers=({"trainer_environments:Doubled": {"factor": 100.0}},)
    )
    plain, shaped = (
        runs("ppo", PPO, spec, until=64, evaluate_at=(64,)) for spec in (LINE, wrapped)
    )
    assert not same(parameters(plain), parameters(shaped))
    assert shaped.reports[0].metrics["eval_return"] <= 10.0
    assert shaped.reports[0].metrics["train_return"] <= 10.0


def test_an_episode_that_a_wrapper_cuts_is_evaluated_so_far(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of the study file, shorter than the task's: it was begun anew for ever."""
    begun: list[int | None] = []

    class Counted(list[int | None]):
        def append(self, seed: int | None) -> None:
            begun.append(seed)
            assert len(begun) < 200, "the evaluation does not end"

    monkeypatch.setattr(Line, "reset_seeds", Counted())
    limit = {"gymnasium.wrappers:TimeLimit": {"max_episode_steps": 4}}
    limited = EnvironmentSpec(LINE.id, wrappers=(limit,))
    metrics = runs("ppo", PPO, limited, until=64, evaluate_at=(64,), episodes=3).reports[0].metrics
    assert metrics["eval_length"] == 4.0
    assert 0.0 <= metrics["eval_return"] <= 4.0


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_nan_is_a_divergence_not_a_crash(runs: Runs) -> None:
    reward = runs(
        "ppo", PPO, EnvironmentSpec("trainer_environments:InfiniteTest-v0"), evaluate_at=(128,)
    )
    assert reward.status is Status.DIVERGED
    assert reward.checkpoint is None
    assert reward.message
    overflowing = EnvironmentSpec(
        LINE.id, kwargs=FrozenMap(continuous=True, bonus=1e39)
    )  # infinite as a float32
    sac = runs("sac", OFF_POLICY, overflowing, until=96, evaluate_at=(32, 96))
    assert sac.status is Status.DIVERGED
    assert "policy parameters are not finite" in sac.message
    assert [report.step for report in sac.reports] == [32]


def test_the_caller_s_random_streams_are_left_alone(runs: Runs) -> None:
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    expected = (torch.rand(3).tolist(), np.random.rand(3).tolist())  # noqa: NPY002
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    runs("ppo", PPO, CARTPOLE, until=64)
    assert (torch.rand(3).tolist(), np.random.rand(3).tolist()) == expected  # noqa: NPY002


def test_an_exported_model_is_one_that_sb3_loads(runs: Runs, tmp_path: Path) -> None:
    outcome = runs(
        "ppo", {**PPO, **LINEAR}, EnvironmentSpec("CartPole-v1", normalize=True), until=128
    )
    assert outcome.checkpoint is not None
    written = export_model("ppo", outcome.checkpoint, tmp_path / "out" / "agent")
    path = written.path
    assert path == tmp_path / "out" / "agent.zip"
    assert written.beside == (tmp_path / "out" / "agent.vecnormalize.pkl",)
    assert written.kind == "stable_baselines3.PPO"
    model = sb3.PPO.load(path)
    assert same(dict(model.policy.state_dict()), parameters(outcome))
    assert [model.learning_rate(left) for left in (1.0, 0.5, 0.0)] == pytest.approx(
        [1e-2, 1e-2 - 4.95e-3, 1e-4]
    )
    venv = DummyVecEnv([lambda: make_environment(CARTPOLE)])
    statistics = VecNormalize.load(str(path.with_suffix(".vecnormalize.pkl")), venv)
    action, _ = model.predict(statistics.normalize_obs(venv.reset()), deterministic=True)
    assert action.shape == (1,)
    with pytest.raises(InputError, match="not a checkpoint"):
        export_model("ppo", Checkpoint("x", str(tmp_path)), tmp_path / "y.zip")


_TUNED: dict[str, tuple[EnvironmentSpec, dict[str, Any]]] = {
    "ppo": (
        CARTPOLE,
        {
            **PPO,
            **LINEAR,
            "gamma": 0.9,
            "gae_lambda": 0.8,
            "clip_range": 0.3,
            "clip_range_vf": 0.2,
            "ent_coef": 0.02,
        }
        | {
            "vf_coef": 0.3,
            "max_grad_norm": 0.7,
            "target_kl": 0.5,
            "normalize_advantage": False,
            "activation": "relu",
        },
    ),
    "a2c": (
        CARTPOLE,
        {"n_steps": 8, "gamma": 0.9, "rms_prop_eps": 1e-4, "use_rms_prop": True, "vf_coef": 0.3},
    ),
    "dqn": (
        CARTPOLE,
        {
            **OFF_POLICY,
            "exploration_fraction": 0.3,
            "exploration_initial_eps": 0.8,
            "exploration_final_eps": 0.02,
        }
        | {
            "target_update_interval": 40,
            "tau": 0.7,
            "train_freq": 2,
            "gradient_steps": 2,
            "max_grad_norm": 4.0,
        },
    ),
    "sac": (
        PENDULUM,
        {**OFF_POLICY, "ent_coef": 0.2, "tau": 0.02, "target_entropy": -3.0, "train_freq": 2},
    ),
    "td3": (
        PENDULUM,
        {**OFF_POLICY, "policy_delay": 3, "target_policy_noise": 0.3, "noise_std": 0.2},
    ),
    "ddpg": (
        PENDULUM,
        {**OFF_POLICY, "noise_type": "normal", "noise_std": 0.2, "tau": 0.02, "gamma": 0.9},
    ),
}


@pytest.mark.parametrize("name", sorted(_TUNED))
def test_the_exported_model_has_every_hyperparameter_and_trains_on_with_them(
    runs: Runs, tmp_path: Path, name: str
) -> None:
    """Read back from the loaded zip exactly as from the model in training, and again after it has learned more."""
    environment, config = _TUNED[name]
    outcome = runs(name, {"learning_rate": 3e-3, **config}, environment)
    assert outcome.checkpoint is not None
    path = export_model(name, outcome.checkpoint, tmp_path / "agent").path
    model = getattr(sb3, name.upper()).load(path, device="cpu")
    settings = Settings(name, {}, {"learning_rate": 3e-3, **config})
    model.set_env(DummyVecEnv([lambda: make_environment(environment)] * environment.n_envs))
    if name != "ppo":  # whose learning rate has a schedule
        settings.read_back(model, environment.n_envs, 256)
    model.learn(64)
    held = {key: value for key, value in config.items() if not key.startswith("learning_rate")}
    Settings(name, {}, held).read_back(model, environment.n_envs, 256)
    remaining = model._current_progress_remaining
    rate = 1e-4 + remaining * (1e-2 - 1e-4) if name == "ppo" else 3e-3
    assert optimizers(model)[0].param_groups[0]["lr"] == pytest.approx(rate)


def test_an_exported_schedule_loads_without_this_package(runs: Runs, tmp_path: Path) -> None:
    cosine = {"clip_range": 0.3, "clip_range.shape": "cosine", "clip_range.end": 0.1}
    outcome = runs("ppo", {**PPO, **LINEAR, **cosine}, CARTPOLE)
    assert outcome.checkpoint is not None
    path = export_model("ppo", outcome.checkpoint, tmp_path / "agent").path
    code = (
        "import sys; sys.modules['autorl'] = None\n"
        "from stable_baselines3 import PPO\n"
        f"model = PPO.load({str(path)!r}, device='cpu')\n"
        "print(*(round(s(left), 9) for s in (model.learning_rate, model.clip_range) for left in (1.0, 0.25, 0.0)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    cosine_at = [schedule_function(cosine, "clip_range")(progress) for progress in (0.0, 0.75, 1.0)]
    found = [float(word) for word in done.stdout.split()]
    assert found == pytest.approx([1e-2, 1e-4 + 0.25 * (1e-2 - 1e-4), 1e-4, *cosine_at])


def test_an_exported_normaliser_is_not_overwritten_unasked(runs: Runs, tmp_path: Path) -> None:
    outcome = runs("a2c", {"n_steps": 8}, NORMALISED, until=16)
    assert outcome.checkpoint is not None
    (tmp_path / "agent.vecnormalize.pkl").write_text("mine")
    with pytest.raises(InputError, match="is there already"):
        export_model("a2c", outcome.checkpoint, tmp_path / "agent.zip")
    assert [path.name for path in tmp_path.glob("agent*")] == ["agent.vecnormalize.pkl"]
    export_model("a2c", outcome.checkpoint, tmp_path / "agent.zip", replace=True)
    assert (tmp_path / "agent.vecnormalize.pkl").read_bytes() != b"mine"


def test_a_small_replay_buffer_makes_a_small_checkpoint(runs: Runs) -> None:
    config = {**OFF_POLICY, "buffer_size": 1_000_000}
    first = runs("dqn", config, CARTPOLE, until=64)
    assert first.checkpoint is not None
    assert sum(path.stat().st_size for path in Path(first.checkpoint.path).iterdir()) < 300_000
    second = runs("dqn", config, CARTPOLE, until=128, after=first)
    assert same(parameters(second), parameters(runs("dqn", config, CARTPOLE, until=128)))


def test_a_full_replay_buffer_is_restored(runs: Runs) -> None:
    config = {**OFF_POLICY, "buffer_size": 50}
    first = runs("dqn", config, CARTPOLE, until=128)
    second = runs("dqn", config, CARTPOLE, until=192, after=first)
    assert same(parameters(second), parameters(runs("dqn", config, CARTPOLE, until=192)))


def test_align_is_a_whole_number_of_rollouts() -> None:
    ppo, dqn = load(TrainerSpec("sb3/ppo")), load(TrainerSpec("sb3/dqn", FrozenMap(n_envs=3)))
    assert [ppo.align(Config(), step) for step in (0, 2047, 2048, 4097)] == [0, 0, 2048, 4096]
    assert ppo.align(Config(n_steps=10, n_envs=4), 81) == 80
    assert [dqn.align(Config(train_freq=2), step) for step in (6, 13)] == [6, 12]
    with pytest.raises(InputError, match="whole episodes"):
        dqn.align(Config(train_freq=(1, "episode")), 7)


@pytest.mark.parametrize(
    ("name", "environment", "hyperparameters", "message"),
    [
        ("ppo", EnvironmentSpec("CartPol-v1"), {"gamma"}, "did you mean 'CartPole-v1'"),
        ("ppo", EnvironmentSpec("no_such_module_x:Env-v0"), {"gamma"}, "no_such_module_x"),
        ("ppo", EnvironmentSpec(None), {"gamma"}, "needs an environment"),
        (
            "ppo",
            EnvironmentSpec("CartPole-v1", kwargs=FrozenMap(gravityy=3)),
            {"gamma"},
            "does not take these arguments",
        ),
        (
            "ppo",
            EnvironmentSpec("CartPole-v1", wrappers=("gymnasium.wrappers:TimeLimits",)),
            {"gamma"},
            "did you mean",
        ),
        (
            "ppo",
            EnvironmentSpec("CartPole-v1", wrappers=("TimeLimit",)),
            {"gamma"},
            "expected module:Class",
        ),
        (
            "sac",
            CARTPOLE,
            {"gamma"},
            r"sb3/sac needs Box actions, CartPole-v1 has Discrete; try sb3/ppo, sb3/a2c, sb3/dqn",
        ),
        ("dqn", PENDULUM, {"gamma"}, "sb3/dqn needs Discrete actions"),
        (
            "dqn",
            EnvironmentSpec("Blackjack-v1"),
            {"gamma"},
            "takes Box, .*, Blackjack-v1 has Tuple",
        ),
        ("ppo", CARTPOLE, {"learning_rat"}, "did you mean 'learning_rate'"),
        ("ppo", CARTPOLE, {"buffer_size"}, "unknown hyperparameter of sb3/ppo 'buffer_size'"),
        (
            "ppo",
            CARTPOLE,
            {"batch_size", "batch_size.shape"},
            "cannot follow a schedule of 'batch_size'",
        ),
    ],
)
def test_check_says_what_is_wrong_and_what_is_allowed(
    name: str, environment: EnvironmentSpec, hyperparameters: set[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load(TrainerSpec(f"sb3/{name}")).check(environment, hyperparameters)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"net_arch": "wide"}, "expected layer sizes"),
        ({"net_arch": (64, 0)}, "expected layer sizes"),
        ({"activation": "rely"}, "did you mean 'relu'"),
        ({"batch_size": 1}, "must be greater than 1"),
        ({"policy": "MplPolicy"}, "did you mean 'MlpPolicy'"),
    ],
)
def test_a_value_sb3_cannot_take_is_an_input_error(
    runs: Runs, config: dict[str, Any], message: str
) -> None:
    kwargs = FrozenMap({name: config[name] for name in config if name == "policy"})
    values = {**PPO, **{name: config[name] for name in config if name not in kwargs}}
    with pytest.raises(InputError, match=message):
        runs("ppo", values, CARTPOLE, kwargs=kwargs)


def test_an_unknown_argument_of_the_normaliser_names_the_nearest(runs: Runs) -> None:
    with pytest.raises(InputError, match="did you mean 'norm_reward'"):
        runs("ppo", PPO, EnvironmentSpec("CartPole-v1", normalize=FrozenMap(norm_rewards=False)))


def test_unknown_trainers_and_options_name_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'sb3/ppo'"):
        load(TrainerSpec("sb3/pppo"))
    with pytest.raises(InputError, match=r"unknown option or .* 'polcy'; did you mean 'policy'"):
        load(TrainerSpec("sb3/ppo", FrozenMap(polcy="MlpPolicy")))


def test_no_damage_of_a_checkpoint_reaches_the_training(tmp_path: Path) -> None:
    """Ten truncations of every file: the worker compares with what was saved and trains nothing."""
    spec = TrainerSpec("sb3/dqn")
    of_run = {"horizon": 256, "episodes": 1, "evaluate_at": ()}
    saved = run(segment(spec, CARTPOLE, OFF_POLICY, 40, tmp_path / "a", **of_run))
    assert saved.checkpoint is not None
    second = segment(spec, CARTPOLE, OFF_POLICY, 48, tmp_path / "b", after=saved, **of_run)
    files = sorted(path for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert [path.name for path in files] == [saved_state.REPLAY, saved_state.STATE]
    for path in files:
        content = path.read_bytes()
        for percent in (0, 20, 30, 40, 50, 60, 70, 80, 90, 99):
            path.write_bytes(content[: len(content) * percent // 100])
            found = run(second)
            assert (found.status, found.damage) == (
                Status.LOST,
                f"{path.name} differs from what was saved",
            )
        path.write_bytes(content)
    assert run_segment(load, second, lambda report: None).status is Status.DONE


def test_a_study_selects_by_the_success_rate() -> None:
    document = {
        "trainer": {"name": "sb3/ppo", "kwargs": {"n_steps": 32, "batch_size": 32, "n_epochs": 1}},
        "environment": LINE.id,
        "space": {"learning_rate": "log(1e-4, 1e-1)"},
        "objective": {"metric": "eval_success_rate"},
        "fidelity": {"steps": 64, "evaluations": 1, "episodes": 8},
        "optimizer": "random",
        "budget": {"runs": 3},
        "seeds": {"tuning": 1, "test": 2},
        "executor": {"name": "in_process"},
        "path": str(Path(__file__).parent),
    }
    study = Study.in_memory(load_spec(document))
    result = study.run()
    rows = study.store.query("SELECT value FROM reports WHERE metric = 'eval_success_rate'")
    study.close()
    rates = {value for (value,) in rows}
    assert result.tuning in rates
    assert set(result.test.seeds.values()) <= rates
    assert all(8 * rate == round(8 * rate) for rate in rates)
    assert max(rates) > 0
