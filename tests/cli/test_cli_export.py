"""Exported models are loaded and run by Stable-Baselines3 itself."""

import numpy as np
import pytest
import yaml
from cli_support import autorl, query

gymnasium = pytest.importorskip("gymnasium")
SB3 = pytest.importorskip("stable_baselines3")
EXTENDED = {"hyperparameters": {"n_steps": {"value": 64}}}


def short(trainer="sb3/ppo", steps=64, **changes):
    """A study of one run, tested on one seed."""
    return {
        "trainer": trainer,
        "environment": "CartPole-v1",
        "space": {"extends": f"{trainer}-small", **EXTENDED},
        "fidelity": {"steps": steps, "evaluations": 1, "episodes": 1},
        "budget": {"runs": 1},
        "optimizer": "random",
        "seeds": {"tuning": 1, "test": [101]},
        "executor": {"name": "in_process"},
        "test": {"top": 0},
        **changes,
    }


def tuned(folder, **changes):
    """The folder of such a study, which has ended."""
    (folder / "study.yaml").write_text(yaml.safe_dump(short(**changes)))
    autorl("tune", folder / "study.yaml", "--out", folder / "s", "--quiet")
    return folder / "s"


@pytest.mark.parametrize(
    "trainer", [pytest.param("sb3/ppo", marks=pytest.mark.slow), "population/ppo"]
)
def test_the_exported_model_balances_as_well_as_the_record_says(tmp_path, trainer):
    """The mean return of the loaded model over fresh episodes is near the recorded test score."""
    fidelity = {"steps": 2048, "evaluations": 1, "episodes": 2}
    folder = tuned(tmp_path, trainer=trainer, fidelity=fidelity)
    printed = autorl("export", folder, "--model", tmp_path / "m.zip", "--seed", 101).stdout
    assert "test seed 101" in printed
    model = SB3.PPO.load(tmp_path / "m.zip", device="cpu")
    returns = SB3.common.evaluation.evaluate_policy(
        model, gymnasium.make("CartPole-v1"), n_eval_episodes=20, warn=False
    )
    ((score,),) = query(folder, "SELECT value FROM tests WHERE label = 'incumbent' AND seed = 101")
    # 2 recorded episodes against 20: 0.74 spreads.
    assert abs(returns[0] - score) <= 3 * returns[1] + 25


def test_export_says_what_it_wrote_and_overwrites_nothing(tmp_path):
    """A study that normalises names both files, and says that both have to be loaded."""
    tuned(tmp_path, environment={"id": "CartPole-v1", "normalize": True})
    target, beside = tmp_path / "m.zip", tmp_path / "m.vecnormalize.pkl"
    text = autorl("export", tmp_path / "s", "--model", target).stdout
    assert text.startswith(f"{target} and {beside}: load both; proposal 0")
    assert "stable_baselines3.PPO with all hyperparameters of the run" in text
    assert target.is_file()
    assert beside.is_file()
    assert "is there already" in autorl("export", tmp_path / "s", "--model", target, code=2).stderr
    autorl("export", tmp_path / "s", "--model", target, "--replace")


@pytest.mark.parametrize("trainer", ["population/ppo", "sb3/ppo"])
def test_play_acts_in_the_environment_and_films_it(tmp_path, trainer):
    pytest.importorskip("imageio")
    image = pytest.importorskip("PIL.Image")
    tuned(tmp_path, trainer=trainer, steps=512)
    film = tmp_path / "film.gif"
    first, *episodes, mean, said = autorl(
        "play", tmp_path / "s", "--episodes", 2, "--video", film
    ).stdout.splitlines()
    assert "test seed 101" in first
    returns = [int(line.split()[3].strip(",")) for line in episodes]
    assert mean == f"  mean return {sum(returns) / 2:.6g}"
    assert said == f"{film}: 2 episodes"
    assert 1 < image.open(film).n_frames <= sum(returns)
    for video, problem in ((film, "is there already"), (tmp_path / "a.avi", "ends in .mp4, .gif")):
        assert problem in autorl("play", tmp_path / "s", "--video", video, code=2).stderr


def test_a_loaded_model_of_a_study_that_normalises_has_its_statistics(tmp_path):
    import autorl as package

    normalized = {"id": "CartPole-v1", "n_envs": 2, "normalize": True}
    study = short(environment=normalized, steps=512)
    result = package.tune(study, out=tmp_path / "s")
    model = result.load_model()
    assert model.n_steps == 64
    statistics = model.get_vec_normalize_env()
    assert statistics.obs_rms.count > 500
    assert not statistics.training
    assert model.predict(statistics.normalize_obs(np.zeros(4, np.float32)))[0] in (0, 1)


def test_the_screen_says_how_to_export_only_when_a_model_was_kept(tmp_path):
    for keep in ("top", "none"):
        file = tmp_path / f"{keep}.yaml"
        study = short("population/ppo", 512, keep={"checkpoints": keep})
        file.write_text(yaml.safe_dump(study))
        said = autorl("tune", file, "--out", tmp_path / keep).stdout
        assert ("autorl export" in said) == (keep == "top")
    refused = autorl("export", tmp_path / "none", "--model", tmp_path / "m.zip", code=1).stderr
    assert "was kept" in refused


def test_a_damaged_model_is_neither_exported_nor_loaded(tmp_path):
    import autorl as package

    study = short(seeds={"tuning": [0], "test": [101, 102]})
    result = package.tune(study, out=tmp_path / "s")
    (checkpoint,) = (tmp_path / "s" / "checkpoints").glob(f"{result.incumbent.proposal}.101-*")
    file = max(checkpoint.iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 16
    file.write_bytes(content)
    command = ("export", tmp_path / "s", "--model", tmp_path / "m.zip", "--seed")
    refused = autorl(*command, 101, code=2).stderr
    text = f"{checkpoint}: is damaged ({file.name} differs from what was saved): choose the model of another seed"
    assert refused == f"autorl: {text}\n"
    assert not (tmp_path / "m.zip").exists()
    with pytest.raises(package.InputError) as caught:
        result.load_model(seed=101)
    assert str(caught.value) == text
    assert result.load_model(seed=102) is not None
    autorl(*command, 102)
