from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import expect_error

pytest.importorskip("stable_baselines3")

import stable_baselines3 as sb3
import torch
from segments import segment, train
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
    freeze,
)
from autorl.space import schedule_function
from autorl.trainers import load, saved_state
from autorl.trainers.contract import ExportedModel
from autorl.trainers.sb3 import trainer as trainer_module
from autorl.trainers.sb3.environments import make_environment
from autorl.trainers.sb3.evaluation import metrics_in
from autorl.trainers.sb3.settings import Settings, optimizers

CARTPOLE, PENDULUM = EnvironmentSpec("CartPole-v1", n_envs=2), EnvironmentSpec("Pendulum-v1")
NORMALISED = EnvironmentSpec("CartPole-v1", n_envs=2, normalize=True)
LINE = EnvironmentSpec("trainer_environments:LineTest-v0")
PPO = {"n_steps": 32, "batch_size": 32, "n_epochs": 2, "net_arch": (16,)}
OFF_POLICY = {"learning_starts": 32, "batch_size": 16, "buffer_size": 300, "net_arch": (16,)}
LINEAR = {"learning_rate": 1e-2, "learning_rate.shape": "linear", "learning_rate.end": 1e-4}
COSINE = {"clip_range": 0.3, "clip_range.shape": "cosine", "clip_range.end": 0.1}


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
    trainer: Any = load(TrainerSpec(f"sb3/{name}", FrozenMap(options)))
    written: ExportedModel = trainer.export_model(saved, file, replace=replace)
    return written


def watch(
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    note: Callable[..., None],
    before: bool = False,
) -> None:
    """Note what a method is called with, once it is done or before."""
    original = getattr(owner, name)

    def watched(*arguments: Any, **named: Any) -> None:
        if before:
            note(*arguments)
        original(*arguments, **named)
        if not before:
            note(*arguments)

    monkeypatch.setattr(owner, name, watched)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


GAMMA = {"n_steps": 8, "gamma": 0.9, "gamma.shape": "linear", "gamma.end": 0.99}
EPSILON = {"exploration_fraction": 0.9, "target_update_interval": 40}
ALGORITHMS = [
    ("ppo", {**PPO, **LINEAR, **COSINE}, CARTPOLE),
    ("a2c", {**LINEAR, **GAMMA}, NORMALISED),
    ("dqn", {**OFF_POLICY, **LINEAR, **EPSILON}, CARTPOLE),
    ("sac", {**OFF_POLICY, **LINEAR}, PENDULUM),
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
    if "net_arch" in config:
        arguments["policy_kwargs"] = {"net_arch": list(config["net_arch"])}
    venv = DummyVecEnv([lambda: make_environment(environment)] * environment.n_envs)
    model = getattr(sb3, name.upper())("MlpPolicy", venv, seed=7, **arguments).learn(256)
    assert same(parameters(ours), dict(model.policy.state_dict()))


def test_epsilon_is_a_function_of_step_and_horizon(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates: list[tuple[int, float]] = []

    def note(model: Any) -> None:
        rates.append((model.num_timesteps, model.exploration_rate))

    watch(monkeypatch, sb3.DQN, "_on_step", note)
    config = {**OFF_POLICY, "exploration_fraction": 0.5, "exploration_final_eps": 0.2}
    first = runs("dqn", config, CARTPOLE, until=64)
    runs("dqn", config, CARTPOLE, until=192, after=first)
    assert [step for step, _ in rates] == list(range(2, 194, 2))
    expected = [max(0.2, 1 - 0.8 * step / 128) for step, _ in rates]
    assert [rate for _, rate in rates] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "config", "environment"), [("ppo", PPO, CARTPOLE), ("sac", OFF_POLICY, PENDULUM)]
)
def test_a_changed_learning_rate_is_the_one_training_uses(
    runs: Runs, name: str, config: dict[str, Any], environment: EnvironmentSpec
) -> None:
    first = runs(name, {**config, "learning_rate": 1e-3}, environment)

    def moved(rate: float, **more: Any) -> float:
        config_after = {**config, "learning_rate": rate, **more}
        after = runs(name, config_after, environment, until=192, after=first)
        assert after.applied["learning_rate"] == rate
        now, before = parameters(after), parameters(first)
        return max(float((now[key] - value).abs().max()) for key, value in before.items())

    assert moved(0.0, **({"tau": 0.0} if name == "sac" else {})) == 0.0
    assert moved(1e-2) > 3 * moved(1e-3) > 0


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

    def note(model: Any) -> None:
        gammas.append((model.gamma, model.replay_buffer.gamma, model.get_vec_normalize_env().gamma))

    watch(monkeypatch, sb3.DQN, "train", note)
    environment = EnvironmentSpec("CartPole-v1", normalize=True)
    first = runs("dqn", {**OFF_POLICY, "n_steps": 3, "gamma": 0.9}, environment, until=64)
    runs("dqn", {**OFF_POLICY, "n_steps": 3, "gamma": 0.8}, environment, until=96, after=first)
    assert set(gammas) == {(0.9, 0.9, 0.9), (0.8, 0.8, 0.8)}


def test_sac_s_entropy_coefficient_changes_between_fixed_and_learned(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[float] = []

    def note(model: Any) -> None:
        used.append(model.logger.name_to_value["train/ent_coef"])

    watch(monkeypatch, sb3.SAC, "train", note)

    def trained(entropy: Any, until: int, after: Outcome | None = None) -> Outcome:
        config = {**OFF_POLICY, "ent_coef": entropy, "learning_rate": 1e-2}
        return runs("sac", config, PENDULUM, until=until, after=after)

    learned = trained("auto", 64)
    last = used[-1]
    assert used[0] == 1.0 != last
    trained("auto", 65, learned)
    assert used[-1] == pytest.approx(last, rel=0.05)  # continues where it was
    fixed = trained(0.2, 96, learned)
    assert used[-1] == pytest.approx(0.2)
    assert fixed.applied["ent_coef"] == pytest.approx(0.2)
    again = trained("auto_0.7", 97, fixed)
    assert used[-1] == pytest.approx(0.7)
    assert again.applied["ent_coef"] == "auto_0.7"


def test_the_rollout_length_changes_by_rebuilding_the_buffer(runs: Runs) -> None:
    first = runs("ppo", PPO, CARTPOLE, until=64)
    second = runs("ppo", {**PPO, "n_steps": 48}, CARTPOLE, until=160, after=first)
    assert (second.reached, second.applied["n_steps"]) == (160, 48)
    changes = load(TrainerSpec("sb3/ppo")).changes
    expected = {"n_steps": "rebuild", "learning_rate.end": "apply", "batch_size": "apply"}
    assert expected.items() <= dict(changes).items()
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

    def note(model: Any) -> None:
        buffer = model.replay_buffer
        ends.append((float(buffer.dones[63, 0]), float(buffer.timeouts[63, 0])))

    environment = EnvironmentSpec("trainer_environments:UnpicklableTest-v0")
    first = runs("dqn", {**OFF_POLICY, "n_steps": 3}, environment, until=64)
    watch(monkeypatch, sb3.DQN, "train", note, before=True)
    runs("dqn", {**OFF_POLICY, "n_steps": 3}, environment, until=68, after=first)
    assert ends == [(1.0, 1.0)]  # n-step returns stop here, and bootstrap


def evaluated(runs: Runs, task: EnvironmentSpec = LINE, **changes: Any) -> dict[str, float]:
    outcome = runs("ppo", PPO, task, until=64, evaluate_at=(64,), **changes)
    return dict(outcome.reports[0].metrics)


def test_evaluation_honours_one_seed_per_episode(runs: Runs) -> None:
    Line.reset_seeds.clear()
    evaluated(runs, episodes=5, role="test", kwargs=FrozenMap(evaluation_envs=2))
    given = [seed for seed in Line.reset_seeds[1:] if seed is not None]
    assert evaluation_seeds(1, "test", 64, 5) == given


def test_evaluation_side_by_side_or_one_by_one_is_the_same(runs: Runs) -> None:
    one, three, many = (
        evaluated(runs, episodes=7, kwargs=FrozenMap(evaluation_envs=n)) for n in (1, 3, 16)
    )
    assert one == three == many
    assert set(metrics_in(LINE)) <= set(one)
    assert one["eval_length"] == 10.0


def test_values_of_info_and_tails_are_metrics_and_change_no_other(runs: Runs) -> None:
    asked = ("eval_right_upper_cvar_25", "eval_return_cvar_25", "eval_return_quantile_50")
    task = EnvironmentSpec(LINE.id, info=FrozenMap(right="sum", left="last"), metrics=asked)
    plain, more = (evaluated(runs, each, episodes=8) for each in (LINE, task))
    assert {name: more[name] for name in plain} == plain
    assert more["eval_right"] == more["eval_return"]  # it is the reward
    assert more["eval_left"] == 0.0
    low, middle, high = (more[name] for name in (asked[1], asked[2], asked[0]))
    assert low <= middle <= high
    assert low < more["eval_return"] < high
    assert set(more) >= {*metrics_in(task)}
    assert {*more} == {*plain, "eval_right", "eval_left", *asked}


@pytest.mark.parametrize("space", ["discrete", "dict", "image"])
def test_observations_of_every_kind_train_evaluate_and_continue(runs: Runs, space: str) -> None:
    name = "trainer_environments:SpacesTest-v0"
    environment = EnvironmentSpec(name, kwargs=FrozenMap(space=space), n_envs=2)
    config = {"n_steps": 16, "batch_size": 16, "n_epochs": 1}
    whole = runs("ppo", config, environment, until=64, evaluate_at=(64,))
    first = runs("ppo", config, environment, until=32)
    second = runs("ppo", config, environment, until=64, after=first, evaluate_at=(64,))
    assert same(parameters(second), parameters(whole))
    assert whole.reports[0].metrics == second.reports[0].metrics
    assert whole.reports[0].metrics["eval_length"] == 9.0


def test_wrappers_shape_training_and_the_task_s_own_reward_is_reported(runs: Runs) -> None:
    doubled = {"trainer_environments:Doubled": {"factor": 100.0}}
    plain, shaped = (
        runs("ppo", PPO, EnvironmentSpec(LINE.id, wrappers=chain), until=64, evaluate_at=(64,))
        for chain in ((), (doubled,))
    )
    assert not same(parameters(plain), parameters(shaped))
    metrics = shaped.reports[0].metrics
    assert max(metrics["eval_return"], metrics["train_return"]) <= 10.0


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
    infinite = EnvironmentSpec("trainer_environments:InfiniteTest-v0")
    reward = runs("ppo", PPO, infinite, evaluate_at=(128,))
    assert (reward.status, reward.checkpoint) == (Status.DIVERGED, None)
    assert reward.message
    # Infinite as a float32.
    overflowing = EnvironmentSpec(LINE.id, kwargs=FrozenMap(continuous=True, bonus=1e39))
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


def exported(runs: Runs, folder: Path, name: str, config: Any, environment: EnvironmentSpec) -> Any:
    outcome = runs(name, config, environment)
    assert outcome.checkpoint is not None
    return outcome, export_model(name, outcome.checkpoint, folder / "out" / "agent")


def test_an_exported_model_is_one_that_sb3_loads(runs: Runs, tmp_path: Path) -> None:
    environment = EnvironmentSpec("CartPole-v1", normalize=True)
    outcome, written = exported(runs, tmp_path, "ppo", {**PPO, **LINEAR}, environment)
    path = written.path
    assert path == tmp_path / "out" / "agent.zip"
    assert written.beside == (tmp_path / "out" / "agent.vecnormalize.pkl",)
    assert written.kind == "stable_baselines3.PPO"
    model = sb3.PPO.load(path)
    assert same(dict(model.policy.state_dict()), parameters(outcome))
    venv = DummyVecEnv([lambda: make_environment(CARTPOLE)])
    statistics = VecNormalize.load(str(written.beside[0]), venv)
    action, _ = model.predict(statistics.normalize_obs(venv.reset()), deterministic=True)
    assert action.shape == (1,)
    with pytest.raises(InputError, match="not a checkpoint"):
        export_model("ppo", Checkpoint("x", str(tmp_path)), tmp_path / "y.zip")


_TUNED: dict[str, dict[str, Any]] = {
    "ppo": {
        **PPO,
        **LINEAR,
        **{"gamma": 0.9, "gae_lambda": 0.8, "clip_range": 0.3, "clip_range_vf": 0.2},
        **{"ent_coef": 0.02, "vf_coef": 0.3, "max_grad_norm": 0.7, "target_kl": 0.5},
        **{"normalize_advantage": False, "activation": "elu", "ortho_init": False},
    },
    "a2c": {
        **{"n_steps": 8, "gamma": 0.9, "rms_prop_eps": 1e-4, "use_rms_prop": True, "vf_coef": 0.3},
        **{"net_arch": FrozenMap(pi=(8,), vf=(16, 8)), "n_envs": 3},
    },
    "dqn": {
        **OFF_POLICY,
        **{"exploration_fraction": 0.3, "exploration_initial_eps": 0.8, "tau": 0.7, "n_steps": 2},
        **{"exploration_final_eps": 0.02, "target_update_interval": 40, "train_freq": (2, "step")},
        **{"gradient_steps": -1, "max_grad_norm": 4.0},
    },
    "sac": {**OFF_POLICY, "ent_coef": 0.2, "tau": 0.02, "target_entropy": -3.0, "train_freq": 2},
    "td3": {
        **OFF_POLICY,
        **{"policy_delay": 3, "target_policy_noise": 0.3, "target_noise_clip": 0.4},
        **{"noise_type": "normal", "noise_std": 0.2},
    },
    "ddpg": {**OFF_POLICY, "noise_std": 0.2, "tau": 0.02, "gamma": 0.9},
}


@pytest.mark.parametrize("name", sorted(_TUNED))
def test_the_model_and_its_export_have_every_hyperparameter_and_train_with_them(
    runs: Runs, tmp_path: Path, name: str
) -> None:
    """Read back in training, from the loaded zip, and again after that has learned more."""
    environment = CARTPOLE if name in ("ppo", "a2c", "dqn") else PENDULUM
    config = {"learning_rate": 3e-3, **_TUNED[name]}
    outcome, written = exported(runs, tmp_path, name, config, environment)
    n_envs = config.get("n_envs", environment.n_envs)
    plain = {key: value for key, value in config.items() if "learning_rate" not in key}
    for key, value in plain.items():
        assert outcome.applied[key] == (pytest.approx(value) if key == "ent_coef" else value)
    model = getattr(sb3, name.upper()).load(written.path, device="cpu")
    model.set_env(DummyVecEnv([lambda: make_environment(environment)] * n_envs))
    if name != "ppo":  # whose learning rate has a schedule
        Settings(name, {}, config).read_back(model, 256, environment)
    model.learn(64)
    Settings(name, {}, plain).read_back(model, 256, environment)
    remaining = model._current_progress_remaining
    rate = 1e-4 + remaining * (1e-2 - 1e-4) if name == "ppo" else 3e-3
    assert optimizers(model)[0].param_groups[0]["lr"] == pytest.approx(rate)


def test_an_exported_schedule_loads_without_this_package(runs: Runs, tmp_path: Path) -> None:
    path = exported(runs, tmp_path, "ppo", {**PPO, **LINEAR, **COSINE}, CARTPOLE)[1].path
    code = (
        "import sys; sys.modules['autorl'] = None\n"
        "from stable_baselines3 import PPO\n"
        f"model = PPO.load({str(path)!r}, device='cpu')\n"
        "print(*(round(s(left), 9) for s in (model.learning_rate, model.clip_range) for left in (1.0, 0.25, 0.0)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    cosine_at = [schedule_function(COSINE, "clip_range")(progress) for progress in (0.0, 0.75, 1.0)]
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


@pytest.mark.parametrize(("size", "cut"), [(1_000_000, 64), (50, 128)])  # filled in part, and round
def test_a_replay_buffer_is_restored_and_no_larger_than_it_is_filled(
    runs: Runs, size: int, cut: int
) -> None:
    config = {**OFF_POLICY, "buffer_size": size}
    first = runs("dqn", config, CARTPOLE, until=cut)
    assert first.checkpoint is not None
    assert sum(path.stat().st_size for path in Path(first.checkpoint.path).iterdir()) < 300_000
    second = runs("dqn", config, CARTPOLE, until=192, after=first)
    assert same(parameters(second), parameters(runs("dqn", config, CARTPOLE, until=192)))


def test_align_is_a_whole_number_of_rollouts() -> None:
    ppo, dqn = load(TrainerSpec("sb3/ppo")), load(TrainerSpec("sb3/dqn", FrozenMap(n_envs=3)))
    assert [ppo.align(Config(), step) for step in (0, 2047, 2048, 4097)] == [0, 0, 2048, 4096]
    assert ppo.align(Config(n_steps=10, n_envs=4), 81) == 80
    assert [dqn.align(Config(train_freq=2), step) for step in (6, 13)] == [6, 12]
    expect_error("whole episodes", dqn.align, Config(train_freq=(1, "episode")), 7)


@pytest.mark.parametrize(
    ("name", "environment", "fields", "hyperparameter", "message"),
    [
        ("ppo", "CartPol-v1", {}, "gamma", "did you mean 'CartPole-v1'"),
        ("ppo", "no_such_module_x:Env-v0", {}, "gamma", "no_such_module_x"),
        ("ppo", None, {}, "gamma", "needs an environment"),
        ("ppo", "CartPole-v1", {"kwargs": {"gravityy": 3}}, "gamma", "does not take these argum"),
        ("ppo", "CartPole-v1", {"wrappers": ["gymnasium.wrappers:TimeLimits"]}, "gamma", "did you"),
        ("ppo", "CartPole-v1", {"wrappers": ["TimeLimit"]}, "gamma", "expected module:Class"),
        ("sac", "CartPole-v1", {}, "gamma", "needs Box actions, .* Discrete; try sb3/ppo, sb3/a2c"),
        ("dqn", "Pendulum-v1", {}, "gamma", "sb3/dqn needs Discrete actions"),
        ("dqn", "Blackjack-v1", {}, "gamma", "takes Box, .*, Blackjack-v1 has Tuple"),
        ("ppo", "CartPole-v1", {}, "learning_rat", "did you mean 'learning_rate'"),
        ("ppo", "CartPole-v1", {}, "buffer_size", "hyperparameter of sb3/ppo 'buffer_size'"),
        ("ppo", "CartPole-v1", {}, "batch_size.shape", "cannot follow a schedule of 'batch_size'"),
    ],
)
def test_check_says_what_is_wrong_and_what_is_allowed(
    name: str, environment: str | None, fields: Any, hyperparameter: str, message: str
) -> None:
    spec = EnvironmentSpec(environment, **{key: freeze(value) for key, value in fields.items()})
    expect_error(message, load(TrainerSpec(f"sb3/{name}")).check, spec, {hyperparameter})


@pytest.mark.parametrize(
    ("config", "kwargs", "normalize", "message"),
    [
        ({"net_arch": "wide"}, {}, False, "expected layer sizes"),
        ({"net_arch": (64, 0)}, {}, False, "expected layer sizes"),
        ({"activation": "rely"}, {}, False, "did you mean 'relu'"),
        ({"batch_size": 1}, {}, False, "must be greater than 1"),
        ({}, {"policy": "MplPolicy"}, False, "did you mean 'MlpPolicy'"),
        ({}, {}, FrozenMap(norm_rewards=False), "did you mean 'norm_reward'"),
    ],
)
def test_a_value_sb3_cannot_take_is_an_input_error(
    runs: Runs, config: dict[str, Any], kwargs: dict[str, Any], normalize: Any, message: str
) -> None:
    spec = EnvironmentSpec("CartPole-v1", normalize=normalize)
    expect_error(message, runs, "ppo", PPO | config, spec, kwargs=FrozenMap(kwargs))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to train on")
def test_a_gpu_that_torch_does_not_see_is_not_trained_without(runs: Runs) -> None:
    with pytest.raises(InputError, match=r"torch .* sees no device `cuda` here, and took cpu"):
        runs("ppo", PPO, EnvironmentSpec("CartPole-v1"), kwargs=FrozenMap(device="cuda"))


def test_unknown_trainers_and_options_name_the_nearest() -> None:
    expect_error("did you mean 'sb3/ppo'", load, TrainerSpec("sb3/pppo"))
    with pytest.raises(InputError, match=r"unknown option or .* 'polcy'; did you mean 'policy'"):
        load(TrainerSpec("sb3/ppo", FrozenMap(polcy="MlpPolicy")))
