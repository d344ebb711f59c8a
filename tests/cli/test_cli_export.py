"""Exported models are loaded and run by Stable-Baselines3 itself."""

import numpy as np
import pytest
from cli_support import autorl, query

SB3 = pytest.importorskip("stable_baselines3")
COMMON = ("--env", "CartPole-v1", "--runs", 1, "--quiet", "--set", "seeds.tuning=1", "--set", "seeds.test=[101]")
SHORT = ("--set", "fidelity.episodes=2", "--set", "fidelity.evaluations=1", "--set", "executor.name=in_process")


@pytest.mark.parametrize("space", ["sb3/ppo-small", "population/ppo-small"])
def test_the_exported_model_balances_as_well_as_the_record_says(tmp_path, space):
    """The mean return of the loaded model over fresh episodes is near the test score of its own seed."""
    import gymnasium
    import torch
    from stable_baselines3.common.evaluation import evaluate_policy

    torch.set_num_threads(1)  # training runs in this process; more threads only wait for each other
    autorl("tune", space, *COMMON, *SHORT, "--steps", 2048, "--out", tmp_path / "s", "--set", "test.top=0")
    printed = autorl("export", tmp_path / "s", "--model", tmp_path / "m.zip", "--seed", 101).stdout
    assert "test seed 101" in printed
    model = SB3.PPO.load(tmp_path / "m.zip", device="cpu")
    action, _ = model.predict(np.zeros(4, np.float32), deterministic=True)
    assert action in (0, 1)
    mean, spread = evaluate_policy(model, gymnasium.make("CartPole-v1"), n_eval_episodes=20, warn=False)
    ((score,),) = query(tmp_path / "s", "SELECT value FROM tests WHERE label = 'incumbent' AND seed = 101")
    assert abs(mean - score) <= 3 * spread + 25  # 2 recorded episodes against 20: 0.74 spreads


def test_the_screen_says_how_to_export_only_when_a_model_was_kept(tmp_path):
    space = ("tune", "population/ppo-small", *COMMON, *SHORT, "--steps", 1024)
    assert "autorl export" in autorl(*space, "--out", tmp_path / "kept").stdout
    assert "autorl export" not in autorl(*space, "--out", tmp_path / "none", "--set", "keep.checkpoints=none").stdout
    assert "was kept" in autorl("export", tmp_path / "none", "--model", tmp_path / "m.zip", code=1).stderr
