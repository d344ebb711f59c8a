"""Presets of RL Baselines3 Zoo: read as default and warm start, written by `autorl best`."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from refusals import expect_error

from autorl.core.types import Config, InputError, TrainerSpec, freeze
from autorl.report.formats import Candidate, render
from autorl.study.spec import load_spec
from autorl.trainers import info
from autorl.trainers.info import TrainedRun
from autorl.trainers.sb3.zoo_read import read_preset

PPO = """
default:
  n_timesteps: !!float 1e6
  policy: 'MlpPolicy'

atari:
  env_wrapper:
    - stable_baselines3.common.atari_wrappers.AtariWrapper
  policy: 'CnnPolicy'
  n_envs: 8
  n_timesteps: !!float 1e7
  learning_rate: lin_2.5e-4
  clip_range: lin_0.1

CartPole-v1: &cartpole
  n_envs: 8
  n_timesteps: !!float 1e5
  policy: 'MlpPolicy'
  n_steps: 32
  batch_size: 256
  gae_lambda: 0.8
  gamma: 0.98
  n_epochs: 20
  ent_coef: 0.0
  learning_rate: lin_0.001
  clip_range: lin_0.2

Walker-v0:
  <<: *cartpole
  normalize: "dict(norm_obs=True, norm_reward=False)"
  env_kwargs: {bonus: 2.0}
  env_wrapper:
    - my.wrappers.Doubled:
        factor: 3.0
    - my.wrappers.Plain
  learning_rate: !!float 3e-5
  clip_range: 0.4
  policy_kwargs: "dict(
                    log_std_init=-2,
                    ortho_init=False,
                    activation_fn=nn.GELU,
                    net_arch=dict(pi=[256, 256], vf=[256, 256]),
                    optimizer_class=RMSpropTFLike,
                    optimizer_kwargs=dict(eps=1e-5)
                  )"

Stacked-v0:
  n_timesteps: 1000
  frame_stack: 4
  env_wrapper: my.wrappers.Plain

Goals-v0:
  n_timesteps: 1000
  replay_buffer_class: HerReplayBuffer
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ppo.yml"
    path.write_text(PPO)
    return path


def test_an_entry_is_read_in_the_words_of_a_study_file(file: Path) -> None:
    preset = read_preset(file, "CartPole-v1")
    assert (preset.steps, preset.policy) == (100_000, "MlpPolicy")
    assert preset.environment == {"n_envs": 8}
    assert preset.values["learning_rate"] == 0.001
    assert preset.values["learning_rate.shape"] == "linear"
    assert preset.values["learning_rate.end"] == 0.0
    assert {"n_steps", "batch_size", "clip_range.end"} <= set(preset.values)


def test_code_and_wrappers_are_read_as_data(file: Path) -> None:
    preset = read_preset(file, "my_package:Walker-v0")
    assert preset.values["learning_rate"] == 3e-5
    assert "learning_rate.shape" not in preset.values
    assert preset.values["activation"] == "gelu"
    assert preset.values["net_arch"] == {"pi": [256, 256], "vf": [256, 256]}
    assert preset.values["optimizer_class"].endswith(":RMSpropTFLike")
    assert preset.values["optimizer_kwargs"] == {"eps": 1e-5}
    assert preset.environment == {
        "n_envs": 8,
        "normalize": {"norm_obs": True, "norm_reward": False},
        "kwargs": {"bonus": 2.0},
        "wrappers": [{"my.wrappers:Doubled": {"factor": 3.0}}, "my.wrappers:Plain"],
    }


def test_frames_are_stacked_after_the_wrappers(file: Path) -> None:
    preset = read_preset(file, "Stacked-v0")
    assert preset.environment["wrappers"] == [
        "my.wrappers:Plain",
        {"autorl.trainers.sb3.wrappers:FrameStack": {"n_stack": 4}},
    ]


def test_an_atari_game_without_an_entry_has_that_of_all(file: Path) -> None:
    preset = read_preset(file, "ale_py:ALE/Pong-v5")
    assert preset.name == "atari"
    assert preset.environment["wrappers"] == [
        "stable_baselines3.common.atari_wrappers:AtariWrapper"
    ]


@pytest.mark.parametrize(
    ("text", "environment", "entry", "line", "message"),
    [
        (PPO, "CartPol-v1", None, None, "no entry for .*'CartPol-v1'.*did you mean 'CartPole-v1'"),
        (PPO, "CartPole-v1", "Nothing", None, "no entry 'Nothing'"),
        (PPO, "Goals-v0", None, None, "replay_buffer_class: has no counterpart"),
        ("- 1\n", "X-v0", None, None, "expected a mapping of environments"),
        ("X-v0: 3\n", "X-v0", None, 1, "expected a mapping, got 3"),
        ("X-v0:\n  n_envs: 1.5\n", "X-v0", None, 2, "n_envs: expected a whole number, got 1.5"),
        ("X-v0:\n  learning_rate: exp_3\n", "X-v0", None, 2, "a schedule such as lin_0.001"),
        ("X-v0:\n  clip_range: lin_x\n", "X-v0", None, 2, "a schedule such as lin_0.001"),
        (
            "X-v0:\n  policy_kwargs: \"__import__('os').system('touch ran')\"\n",
            *("X-v0", None, 2, "expected a mapping, or code such as dict"),
        ),
        ("X-v0:\n  policy_kwargs: 'dict(a=[b()])'\n", "X-v0", None, 2, "or code such as dict"),
        ("X-v0:\n  policy_kwargs: 'dict(a='\n", "X-v0", None, 2, "or code such as dict"),
        ("X-v0:\n  env_wrapper: [3]\n", "X-v0", None, 2, "expected module.Class or"),
    ],
)
def test_a_mistake_names_file_and_line(
    tmp_path: Path, text: str, environment: str, entry: str | None, line: int | None, message: str
) -> None:
    path = tmp_path / "ppo.yml"
    path.write_text(text)
    error = expect_error(message, read_preset, path, environment, entry)
    assert error.file == str(path)
    assert line is None or error.line == line
    assert not Path("ran").exists()


STUDY = """
trainer: sb3/ppo
environment: CartPole-v1
preset: {zoo: ppo.yml}
space: {extends: sb3/ppo, hyperparameters: {ent_coef: 0.01}}
budget: {runs: 8}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "study.yaml"
    path.write_text(text)
    return path


def test_a_preset_is_the_default_of_what_is_searched_and_fixes_the_rest(file: Path) -> None:
    spec = load_spec(written(file.parent, STUDY))
    default = spec.search_space.default()
    assert (default["n_steps"], default["batch_size"], default["gamma"]) == (32, 256, 0.98)
    assert (default["learning_rate"], default["learning_rate.shape"]) == (0.001, "linear")
    # The space has no end at 0: a logarithm has none.
    assert default["learning_rate.end"] == 1e-6
    assert default["ent_coef"] == 0.01, "what the study fixes comes first"
    assert spec.environment.n_envs == 8
    assert spec.fidelity.steps == 100_000
    assert spec.trainer is not None
    # `clip_range` is searched and has no schedule there.
    of_schedule = {"clip_range.shape": "linear", "clip_range.end": 0.0}
    assert spec.trainer.kwargs == {"policy": "MlpPolicy", **of_schedule}


def test_what_the_study_says_beats_the_preset(file: Path) -> None:
    text = STUDY.replace("environment: CartPole-v1", "environment: {id: CartPole-v1, n_envs: 16}")
    text = text.replace("trainer: sb3/ppo", "trainer: {name: sb3/ppo, kwargs: {policy: CnnPolicy}}")
    text = text.replace("hyperparameters: {", "hyperparameters: {gamma: 0.9, ")
    text += "fidelity: {steps: 50_000}\n"
    spec = load_spec(written(file.parent, text))
    assert (spec.environment.n_envs, spec.fidelity.steps) == (16, 50_000)
    assert spec.trainer is not None
    assert spec.trainer.kwargs["policy"] == "CnnPolicy"
    assert spec.search_space.default()["gamma"] == 0.9


def test_the_stored_study_needs_no_preset(file: Path) -> None:
    spec = load_spec(written(file.parent, STUDY))
    stored = spec.freeze()
    assert "preset" not in yaml.safe_load(stored)
    file.unlink()
    again = load_spec(written(file.parent, stored))
    assert again.search_space.hash == spec.search_space.hash
    assert again.trainer == spec.trainer


def test_a_number_of_environments_is_searched_from_the_preset_s(file: Path) -> None:
    text = STUDY.replace("hyperparameters: {", "hyperparameters: {n_envs: [1, 4, 8], ")
    spec = load_spec(written(file.parent, text))
    assert spec.search_space.default()["n_envs"] == 8


def test_a_preset_is_a_warm_start(file: Path) -> None:
    text = """
trainer: {name: sb3/ppo, kwargs: {gae_lambda: 0.8, ent_coef: 0.0, clip_range: 0.2,
                                  learning_rate.shape: linear, learning_rate.end: 0.0,
                                  clip_range.shape: linear, clip_range.end: 0.0}}
environment: {id: CartPole-v1, n_envs: 8}
space: {extends: sb3/ppo-small, hyperparameters: {n_steps: [32, 64, 2048]}}
fidelity: {steps: 200_000}
budget: {runs: 8}
warm_start: {zoo: ppo.yml}
"""
    spec = load_spec(written(file.parent, text))
    assert spec.starts == [
        {"learning_rate": 0.001, "n_steps": 32, "batch_size": 256, "n_epochs": 20, "gamma": 0.98}
    ]
    with pytest.raises(InputError, match=r"CartPole-v1 of ppo.yml.gae_lambda.*has 0.8.*\(0.9\)"):
        load_spec(written(file.parent, text.replace("gae_lambda: 0.8", "gae_lambda: 0.9")))
    normalised = text.replace("n_envs: 8}", "n_envs: 8, normalize: true}")
    walker = normalised.replace("{zoo: ppo.yml}", "{zoo: ppo.yml, entry: Walker-v0}")
    expect_error(r"Walker-v0 of ppo\.yml", load_spec, written(file.parent, walker))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("{zoo: ppo.yml}", "{zoo: ppo.yml, entri: x}"), "unknown key 'entri'.*did you mean"),
        (("{zoo: ppo.yml}", "3"), "expected {zoo: FILE"),
        (("{zoo: ppo.yml}", "{zoo: none.yml}"), "none.yml: file not found"),
        (("trainer: sb3/ppo", "trainer: population/ppo"), "for trainers of Stable-Baselines3"),
        (("ent_coef: 0.01", "n_steps: [64, 128]"), "n_steps of the preset: 32 is not among"),
    ],
)
def test_a_wrong_preset_is_one_line(file: Path, change: tuple[str, str], message: str) -> None:
    expect_error(message, load_spec, written(file.parent, STUDY.replace(*change)))


def zoo(algorithm: str, config: dict[str, Any], end: int = 1000, **more: Any) -> str:
    """Write a configuration of 1,000 steps in the format."""
    pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    name = algorithm if "/" in algorithm else f"sb3/{algorithm}"
    environment = {"id": "CartPole-v1", **more.pop("environment", {})}
    trainer = TrainerSpec(name, freeze(more))
    values = info(name).full_configuration(trainer, Config(config))
    return info(name).zoo_entry(TrainedRun(trainer, values, 1000, end, environment))


def parsed(text: str) -> tuple[str, dict[str, Any]]:
    """Read a file as the zoo does: YAML 1.1, code evaluated."""
    [(name, entry)] = yaml.safe_load(text).items()
    code = entry.get("policy_kwargs")
    if code is not None:
        names = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
        assert names <= {"dict", "nn", "th", "__import__", "True", "False"}
    return name, entry


LINEAR = {"learning_rate": 1e-3, "learning_rate.shape": "linear", "learning_rate.end": 0.0}
CONFIG = {
    **LINEAR,
    **{"n_steps": 32, "gamma": 0.98, "clip_range": 0.1, "clip_range_vf": None, "target_kl": None},
    **{"net_arch": (64, 64), "activation": "tanh", "ortho_init": False, "ent_coef": 1e-5},
}


def test_a_configuration_is_written_as_the_zoo_reads_it() -> None:
    environment = {"id": "my_envs:Reach-v0", "n_envs": 8, "normalize": True}
    wrappers = ["my_envs.wrappers:Doubled", {"a:B": {"factor": 2.0}}]
    environment |= {"kwargs": {"size": 3}, "wrappers": wrappers}
    text = zoo("ppo", CONFIG, environment=environment)
    name, entry = parsed(text)
    assert name == "Reach-v0"
    assert entry == {
        "n_timesteps": 1000,
        "policy": "MlpPolicy",
        "n_envs": 8,
        "normalize": True,
        "env_kwargs": {"size": 3},
        "env_wrapper": ["my_envs.wrappers.Doubled", {"a.B": {"factor": 2.0}}],
        "learning_rate": "lin_0.001",
        "n_steps": 32,
        "gamma": 0.98,
        "clip_range": 0.1,
        "target_kl": None,
        "ent_coef": 1e-5,
        "policy_kwargs": "dict(net_arch=[64, 64], activation_fn=nn.Tanh, ortho_init=False)",
    }
    assert text.startswith("# python -m rl_zoo3.train --algo ppo --env Reach-v0 --conf-file FILE")
    assert "--gym-packages my_envs" in text
    assert "n_timesteps: 1000\n" in text


def test_what_is_written_is_read_back_as_the_same_configuration(tmp_path: Path) -> None:
    path = tmp_path / "ppo.yml"
    path.write_text(zoo("ppo", {**CONFIG, "n_envs": 4}))
    preset = read_preset(path, "CartPole-v1")
    values = {name: value for name, value in CONFIG.items() if name != "clip_range_vf"}
    assert preset.values == {**values, "net_arch": [64, 64]}
    assert (preset.steps, preset.environment) == (1000, {"n_envs": 4})


def test_what_the_format_cannot_say_is_said_in_comments() -> None:
    config = {
        **{"learning_rate": 1e-3, "learning_rate.shape": "linear", "learning_rate.end": 1e-4},
        **{"ent_coef": 0.1, "ent_coef.shape": "cosine", "ent_coef.end": 0.0},
    }
    text = zoo("ppo", config, environment={"vec_env": "subproc"})
    assert parsed(text)[1]["learning_rate"] == 0.001
    assert "# learning_rate goes from 0.001 to 0.0001 (linear), which this format cannot" in text
    assert "# ent_coef goes from 0.1 to 0.0 (cosine)" in text
    assert "# train with --vec-env subproc" in text
    assert "# schedules were over 1000 steps: here they end at 500" in zoo("ppo", CONFIG, 500)


def test_classes_of_one_s_own_are_code_that_can_be_evaluated() -> None:
    torch = pytest.importorskip("torch", reason="needs the extra sb3")
    options = {
        "features_extractor_class": "stable_baselines3.common.torch_layers:NatureCNN",
        "optimizer_class": "torch.optim:AdamW",
    }
    text = zoo("ppo", {"gamma": 0.9}, policy_kwargs=options, policy="my.policies:Mine")
    entry = parsed(text)[1]
    assert entry["policy"] == "my.policies.Mine"
    found = eval(entry["policy_kwargs"], {"th": torch, "nn": torch.nn})
    assert found["features_extractor_class"].__name__ == "NatureCNN"
    assert found["optimizer_class"] is torch.optim.AdamW


def test_noise_has_the_zoo_s_two_keys() -> None:
    entry = parsed(zoo("td3", {"noise_std": 0.1, "train_freq": (1, "step")}))[1]
    assert (entry["noise_type"], entry["noise_std"]) == ("normal", 0.1)
    assert entry["train_freq"] == [1, "step"]
    assert "noise_type" not in parsed(zoo("td3", {"noise_type": "none", "noise_std": 0.1}))[1]


def test_the_engine_s_configurations_are_written_too() -> None:
    entry = parsed(zoo("population/ppo", {"n_envs": 8, "gamma": 0.9}))[1]
    assert (entry["n_envs"], entry["gamma"]) == (8, 0.9)
    assert "optimizer_class=th.optim.Adam" in entry["policy_kwargs"]


GRID = "MiniGrid-Empty-5x5-v0"
FLAT = "minigrid.wrappers:FlatObsWrapper"
FLOATS = {"gymnasium.wrappers.DtypeObservation": {"dtype": "float32"}}


@pytest.mark.parametrize(
    ("normalize", "wrappers", "last"),
    [
        (True, [FLAT], FLOATS),
        ({"norm_reward": False}, [FLAT], FLOATS),
        ({"norm_obs": False}, [FLAT], "minigrid.wrappers.FlatObsWrapper"),
        (False, [FLAT], "minigrid.wrappers.FlatObsWrapper"),
        # Images stay bytes, which policies for images ask for.
        (True, ["minigrid.wrappers:ImgObsWrapper"], "minigrid.wrappers.ImgObsWrapper"),
    ],
)
def test_normalised_bytes_of_a_grid_are_made_floats(
    normalize: Any, wrappers: list[str], last: Any
) -> None:
    environment = {"id": GRID, "normalize": normalize, "wrappers": wrappers}
    text = zoo("ppo", {"gamma": 0.9}, environment=environment)
    assert parsed(text)[1]["env_wrapper"][-1] == last
    assert ("# gymnasium.wrappers.DtypeObservation (gymnasium 1.4" in text) == (last == FLOATS)


def test_a_grid_of_the_engine_is_written_with_the_wrappers_it_stands_for() -> None:
    environment = {"id": GRID, "normalize": True}
    entry = parsed(zoo("population/ppo", {"gamma": 0.9}, environment=environment))[1]
    image = "minigrid.wrappers.ImgObsWrapper"
    assert entry["env_wrapper"] == [image, "gymnasium.wrappers.FlattenObservation", FLOATS]
    plain = {"id": "CartPole-v1", "normalize": True}
    assert "env_wrapper" not in parsed(zoo("population/ppo", {}, environment=plain))[1]


def test_what_is_written_of_a_grid_keeps_normalised_numbers_in_the_zoo() -> None:
    """Its own reader of wrappers, around the package's task, in Stable-Baselines3's memory."""
    for library in ("stable_baselines3", "minigrid", "rl_zoo3", "huggingface_sb3"):
        pytest.importorskip(library, reason="needs the extras sb3 and minigrid, and rl_zoo3")
    gymnasium = pytest.importorskip("gymnasium", minversion="1.4", reason="takes names of types")
    import stable_baselines3
    from rl_zoo3.utils import get_wrapper_class
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    environment = {"id": GRID, "normalize": True, "wrappers": [FLAT]}
    entry = parsed(zoo("ppo", {"n_steps": 16}, environment=environment))[1]

    def learned_from(wrappers: list[Any]) -> Any:
        wrap = get_wrapper_class({"env_wrapper": wrappers})
        venv = VecNormalize(DummyVecEnv([lambda: wrap(gymnasium.make(GRID))]))
        model = stable_baselines3.PPO("MlpPolicy", venv, n_steps=16, batch_size=16, seed=1)
        return model.learn(16).rollout_buffer.observations

    rows = learned_from(entry["env_wrapper"])
    assert rows.min() < 0 < rows.max()
    # What this is written for: the memory of the zoo's own preset holds whole numbers.
    cut = learned_from(entry["env_wrapper"][:-1])
    assert cut.dtype == "uint8"


def test_other_trainers_have_no_such_format() -> None:
    with pytest.raises(InputError, match="synthetic is no trainer of Stable-Baselines3"):
        info("synthetic").zoo_entry(TrainedRun(TrainerSpec("synthetic"), {}, 10, 10, {}))


def test_the_best_are_printed_one_file_after_another() -> None:
    pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    candidates = [
        Candidate(
            *(number, "rank", 1.0, 3, 1000, 1000, TrainerSpec("sb3/ppo"), {"id": "CartPole-v1"}),
            schedule=((0, Config(gamma=0.9)),),
            entry=None,
            info=info("sb3/ppo"),
        )
        for number in (3, 7)
    ]
    documents = list(yaml.safe_load_all(render(candidates, "zoo")))
    assert [document["CartPole-v1"]["gamma"] for document in documents] == [0.9, 0.9]
    assert "# proposal 7" in render(candidates, "zoo")


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "dqn", "sac", "td3", "ddpg", "tqc", "qrdqn"])
def test_every_preset_the_zoo_ships_is_read_or_refused_with_its_key(algorithm: str) -> None:
    zoo3 = pytest.importorskip("rl_zoo3", reason="needs rl_zoo3")
    path = Path(zoo3.__file__).parent / "hyperparams" / f"{algorithm}.yml"
    names = [name for name in yaml.safe_load(path.read_text()) if name != "default"]
    refusals = [refusal for name in names if (refusal := _refusal(path, name))]
    assert all("has no counterpart here" in refusal for refusal in refusals)
    # Frame stacks, and a replay buffer for goals.
    assert len(refusals) < len(names) / 2


def _refusal(path: Path, name: str) -> str:
    """Read an entry; return the message where it is refused."""
    try:
        assert read_preset(path, None, name).steps is not None
    except InputError as error:
        return error.message
    return ""


@pytest.mark.slow
def test_the_zoo_trains_what_is_written(tmp_path: Path) -> None:
    """Its own command reads the file, builds the model and saves it."""
    for library in ("rl_zoo3", "huggingface_sb3"):
        pytest.importorskip(library, reason="needs rl_zoo3")
    import stable_baselines3

    path = tmp_path / "ppo.yml"
    config = {**CONFIG, "batch_size": 32, "n_epochs": 1, "n_envs": 2}
    path.write_text(zoo("ppo", config, 64, environment={"normalize": True}))
    options = {"--algo": "ppo", "--env": "CartPole-v1", "--conf-file": str(path)}
    options |= {"--log-folder": str(tmp_path / "logs"), "--eval-freq": "-1", "--seed": "1"}
    words = [part for pair in options.items() for part in pair]
    command = [sys.executable, "-m", "rl_zoo3.train", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    [saved] = (tmp_path / "logs").rglob("CartPole-v1.zip")
    model = stable_baselines3.PPO.load(saved)
    assert (model.n_steps, model.gamma, model.n_envs) == (32, 0.98, 2)
    assert (model.ent_coef, model.batch_size) == (1e-5, 32)
    assert model.num_timesteps == 64
    assert [model.lr_schedule(left) for left in (1.0, 0.5)] == [0.001, 0.0005]
    assert model.policy_kwargs["net_arch"] == [64, 64]
    assert model.policy_kwargs["activation_fn"].__name__ == "Tanh"
    assert list((tmp_path / "logs").rglob("vecnormalize.pkl"))
