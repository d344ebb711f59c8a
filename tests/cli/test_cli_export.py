"""Exported models are loaded and run by Stable-Baselines3 itself."""

import numpy as np
import pytest
import yaml
from cli_support import autorl, query

SB3 = pytest.importorskip("stable_baselines3")
COMMON = (
    "--env",
    "CartPole-v1",
    "--runs",
    1,
    "--quiet",
    "--set",
    "seeds.tuning=1",
    "--set",
    "seeds.test=[101]",
)
SHORT = (
    "--set",
    "fidelity.episodes=2",
    "--set",
    "fidelity.evaluations=1",
    "--set",
    "executor.name=in_process",
)


@pytest.mark.parametrize(
    "space",
    [pytest.param("sb3/ppo-small", marks=pytest.mark.slow), "population/ppo-small"],
)
def test_the_exported_model_balances_as_well_as_the_record_says(tmp_path, space):
    """The mean return of the loaded model over fresh episodes is near the test score of its own seed."""
    import gymnasium
    import torch
    from stable_baselines3.common.evaluation import evaluate_policy

    torch.set_num_threads(1)  # training runs in this process; more threads only wait for each other
    autorl(
        "tune",
        space,
        *COMMON,
        *SHORT,
        "--steps",
        2048,
        "--out",
        tmp_path / "s",
        "--set",
        "test.top=0",
    )
    printed = autorl("export", tmp_path / "s", "--model", tmp_path / "m.zip", "--seed", 101).stdout
    assert "test seed 101" in printed
    assert "such a file is a program" in printed
    model = SB3.PPO.load(tmp_path / "m.zip", device="cpu")
    action, _ = model.predict(np.zeros(4, np.float32), deterministic=True)
    assert action in (0, 1)
    mean, spread = evaluate_policy(
        model, gymnasium.make("CartPole-v1"), n_eval_episodes=20, warn=False
    )
    ((score,),) = query(
        tmp_path / "s", "SELECT value FROM tests WHERE label = 'incumbent' AND seed = 101"
    )
    assert abs(mean - score) <= 3 * spread + 25  # 2 recorded episodes against 20: 0.74 spreads


def test_export_says_what_it_wrote_and_overwrites_nothing(tmp_path):
    """Of a study that normalises: both files, by name, and that both have to be loaded."""
    study = {
        "trainer": "sb3/ppo",
        "environment": {"id": "CartPole-v1", "normalize": True},
        "space": {"extends": "sb3/ppo-small", "hyperparameters": {"n_steps": {"value": 64}}},
        "fidelity": {"steps": 64, "evaluations": 1, "episodes": 1},
        "budget": {"runs": 1},
        "seeds": {"tuning": 1, "test": [101]},
        "executor": {"name": "in_process"},
        "test": {"top": 0},
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    autorl("tune", tmp_path / "study.yaml", "--out", tmp_path / "s", "--quiet")
    target, beside = tmp_path / "m.zip", tmp_path / "m.vecnormalize.pkl"
    text = autorl("export", tmp_path / "s", "--model", target).stdout
    assert text.startswith(f"{target} and {beside}: load both; proposal 0")
    assert "stable_baselines3.PPO with all hyperparameters of the run" in text
    assert target.is_file()
    assert beside.is_file()
    assert "is there already" in autorl("export", tmp_path / "s", "--model", target, code=2).stderr
    autorl("export", tmp_path / "s", "--model", target, "--replace")


def test_a_loaded_model_of_a_study_that_normalises_has_its_statistics(tmp_path):
    import autorl as package

    space = {"extends": "sb3/ppo-small", "hyperparameters": {"n_steps": {"value": 64}}}
    result = package.tune(
        {
            "trainer": "sb3/ppo",
            "environment": {"id": "CartPole-v1", "n_envs": 2, "normalize": True},
            "space": space,
            "fidelity": {"steps": 512, "episodes": 2, "evaluations": 1},
            "budget": {"runs": 1},
            "seeds": {"tuning": 1, "test": [101]},
            "executor": {"name": "in_process"},
        },
        out=tmp_path / "s",
    )
    model = result.load_model()
    assert model.n_steps == 64
    statistics = model.get_vec_normalize_env()
    assert statistics.obs_rms.count > 500
    assert not statistics.training
    assert model.predict(statistics.normalize_obs(np.zeros(4, np.float32)))[0] in (0, 1)


def test_the_screen_says_how_to_export_only_when_a_model_was_kept(tmp_path):
    space = ("tune", "population/ppo-small", *COMMON, *SHORT, "--steps", 1024)
    assert "autorl export" in autorl(*space, "--out", tmp_path / "kept").stdout
    assert (
        "autorl export"
        not in autorl(*space, "--out", tmp_path / "none", "--set", "keep.checkpoints=none").stdout
    )
    assert (
        "was kept"
        in autorl("export", tmp_path / "none", "--model", tmp_path / "m.zip", code=1).stderr
    )


def test_a_damaged_model_is_neither_exported_nor_loaded(tmp_path):
    import autorl as package

    study = {
        "trainer": "sb3/ppo",
        "environment": "CartPole-v1",
        "space": {"extends": "sb3/ppo-small", "hyperparameters": {"n_steps": {"value": 64}}},
        "fidelity": {"steps": 64, "evaluations": 1, "episodes": 1},
        "budget": {"runs": 1},
        "optimizer": "random",
        "seeds": {"tuning": [0], "test": [101, 102]},
        "executor": {"name": "in_process"},
        "test": {"top": 0},
    }
    result = package.tune(study, out=tmp_path / "s")
    (checkpoint,) = (tmp_path / "s" / "checkpoints").glob(f"{result.incumbent.proposal}.101-*")
    file = max(checkpoint.iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 16
    file.write_bytes(content)
    refused = autorl(
        "export", tmp_path / "s", "--model", tmp_path / "m.zip", "--seed", 101, code=2
    ).stderr
    text = f"{checkpoint}: is damaged ({file.name} differs from what was saved): choose the model of another seed"
    assert refused == f"autorl: {text}\n"
    assert not (tmp_path / "m.zip").exists()
    with pytest.raises(package.InputError) as caught:
        result.load_model(seed=101)
    assert str(caught.value) == text
    assert result.load_model(seed=102) is not None
    autorl("export", tmp_path / "s", "--model", tmp_path / "m.zip", "--seed", 102)
