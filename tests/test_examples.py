"""The examples run as they stand, in a copy of their folder, and end with a held-out result."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(*arguments, cwd, timeout=PATIENCE):
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def tune(folder, *options):
    """Tune the study of a copied example; the result as the command line's JSON."""
    study = (folder / "study.yaml", "--out", folder / "out", "--json")
    output = run("-m", "autorl", "tune", *study, *options, cwd=folder)
    return json.loads(output)


def test_an_embedded_tuner_prints_its_test_result(tmp_path):
    output = run(EXAMPLES / "embedded_tuner.py", cwd=tmp_path)
    printed = re.search(r"test score \(IQM\) (\S+) \[(\S+), (\S+)\] on 20 held-out seeds", output)
    score, low, high = map(float, printed.groups())
    assert low <= score <= high
    assert 0.5 < score <= 1.0  # better than guessing an arm
    assert re.search(r"the gap is [+-]\d", output)


def test_a_script_is_tuned_through_its_flags_and_output(tmp_path):
    folder = Path(shutil.copytree(EXAMPLES / "script", tmp_path / "script"))
    result = tune(folder, "--set", "fidelity.steps=1500", "--runs", "2")
    assert set(result["incumbent"]["schedule"][0]["configuration"]) == {
        "population",
        "elite",
        "noise",
    }
    assert len(result["test"]["seeds"]) == 5
    assert 5 <= result["test"]["value"] <= 500


@pytest.mark.slow
def test_a_script_in_the_manner_of_cleanrl_is_tuned_through_tensorboard(tmp_path):
    pytest.importorskip("torch", reason="needs the extra sb3")
    pytest.importorskip("tensorboard", reason="needs the extra integrations")
    folder = Path(shutil.copytree(EXAMPLES / "cleanrl", tmp_path / "cleanrl"))
    options = ("--set", "fidelity.evaluations=1", "--set", "seeds.tuning=1")
    options += ("--set", "seeds.test=2", "--set", "fidelity.steps=2048", "--runs", "2")
    result = tune(folder, *options)
    configuration = result["incumbent"]["schedule"][0]["configuration"]
    assert {"learning_rate", "num_steps", "anneal_lr"} <= set(configuration)
    assert 10 <= result["test"]["value"] <= 500


_NO_EPISODE = """
import sys
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

writer = EventFileWriter("runs")
entropy = Summary(value=[Summary.Value(tag="losses/entropy", simple_value=0.5)])
writer.add_event(Event(step=1024, summary=entropy))
writer.close()
"""


def test_a_script_of_cleanrl_that_logs_no_episode_ends_its_study_in_one_line(tmp_path):
    """CleanRL's own ppo.py under Gymnasium 1.x: losses are logged, and no return."""
    pytest.importorskip("tensorboard", reason="needs the extra integrations")
    folder = Path(shutil.copytree(EXAMPLES / "cleanrl", tmp_path / "cleanrl"))
    (folder / "ppo.py").write_text(_NO_EPISODE)
    study, options = folder / "study.yaml", ("--out", folder / "out")
    command = (sys.executable, "-m", "autorl", "tune", study, *options)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    [*_, error] = done.stderr.strip().splitlines()
    quoted = "the command logged nothing named 'charts/episodic_return'"
    assert quoted in error
    assert f'"{quoted}"' in " ".join(study.read_text().replace("#", " ").split())


def test_ppo_in_one_file_learns_and_writes_the_names_of_cleanrl(tmp_path):
    pytest.importorskip("torch", reason="needs the extra sb3")
    accumulators = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="needs the extra integrations",
    )
    flags = ("--total-timesteps", "12000", "--learning-rate", "0.002", "--no-anneal-lr")
    run(EXAMPLES / "cleanrl" / "ppo.py", *flags, "--seed", "3", cwd=tmp_path)
    [folder] = (tmp_path / "runs").iterdir()
    events = accumulators.EventAccumulator(str(folder))
    events.Reload()
    returns = [point.value for point in events.Scalars("charts/episodic_return")]
    assert sum(returns[:20]) / 20 < 60
    assert sum(returns[-20:]) / 20 > 100
    assert {"losses/policy_loss", "losses/value_loss", "losses/entropy"} <= set(
        events.Tags()["scalars"]
    )


@pytest.mark.slow
def test_a_script_of_torchrl_is_tuned_through_its_output(tmp_path):
    pytest.importorskip("torchrl", reason="needs torchrl, which no extra brings")
    folder = Path(shutil.copytree(EXAMPLES / "torchrl", tmp_path / "torchrl"))
    study = folder / "study.yaml"
    few = study.read_text().replace("{environment}", "{environment} --eval-episodes 2")
    study.write_text(few)
    options = ("--set", "fidelity.evaluations=1", "--set", "fidelity.steps=1024")
    options += ("--set", "seeds.tuning=1", "--set", "seeds.test=2")
    result = tune(folder, *options, "--runs", "1")
    assert 5 <= result["test"]["value"] <= 500


@pytest.mark.slow
def test_an_environment_of_ones_own_is_tuned_without_touching_the_package(tmp_path):
    pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    folder = Path(shutil.copytree(EXAMPLES / "custom_environment", tmp_path / "custom"))
    result = tune(folder, "--runs", "4", "--set", "fidelity.steps=1000")
    assert -60 <= result["test"]["value"] <= -8  # the corridor has 8 cells, an episode 60 steps
