"""Processes of an sb3 segment: environments, and imports of the fork server."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")

from segments import segment

from autorl import trainers
from autorl.core.types import Config, EnvironmentSpec, Status
from autorl.executors.worker import ONE_THREAD, run_segment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
SMALL = Config(n_steps=16, batch_size=16, n_epochs=1)


def one_segment(log, environment):
    return segment("sb3/ppo", environment, SMALL, 64, evaluate_at=(32, 64), log=str(log))


def test_the_process_of_an_environment_that_is_killed_makes_the_segment_lost(tmp_path):
    def kill_environments(report):
        for process in multiprocessing.active_children():
            os.kill(process.pid, signal.SIGKILL)

    environment = EnvironmentSpec("CartPole-v1", n_envs=2, vec_env="subproc")
    outcome = run_segment(
        trainers.load, one_segment(tmp_path / "log", environment=environment), kill_environments
    )
    assert outcome.status is Status.LOST
    assert outcome.message == "the process of an environment ended with signal 9 (SIGKILL)"


BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "fork_server.py"
NEAR_NONE = (
    3  # modules a version of torch may still import by itself; without preloading it is some 800
)


@pytest.mark.parametrize("trainer", ["sb3/ppo", pytest.param("sb3/sac", marks=pytest.mark.slow)])
def test_segments_after_the_first_import_nothing(trainer):
    command = [sys.executable, str(BENCHMARK), trainer, "--as-json", "--segments", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    ((*_, modules),) = json.loads(done.stdout)
    assert modules <= NEAR_NONE


def test_what_is_preloaded_starts_no_thread():
    code = "import autorl.trainers.sb3.preload, os; print(len(os.listdir('/proc/self/task')))"
    variables = {**os.environ, **ONE_THREAD}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=variables
    )
    assert done.stdout.strip() == "1"
