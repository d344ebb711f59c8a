"""What an sb3 segment starts: processes of environments, and what the fork server has imported for it."""

import multiprocessing
import os
import signal
import sys

import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")

from autorl import trainers
from autorl.executors.worker import run_segment
from autorl.types import Config, EnvironmentSpec, Segment, Status, TrainerSpec

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
SMALL = Config(n_steps=16, batch_size=16, n_epochs=1)


def segment(log, **changes):
    values = {
        "id": "s",
        "trainer": TrainerSpec("sb3/ppo"),
        "environment": EnvironmentSpec("CartPole-v1"),
        "config": SMALL,
        "seed": 0,
        "role": "tuning",
        "until": 64,
        "horizon": 64,
        "evaluate_at": (32, 64),
        "log": str(log),
    }
    return Segment(**values | changes)


def test_the_process_of_an_environment_that_is_killed_makes_the_segment_lost(tmp_path):
    def kill_environments(report):
        for process in multiprocessing.active_children():
            os.kill(process.pid, signal.SIGKILL)

    environment = EnvironmentSpec("CartPole-v1", n_envs=2, vec_env="subproc")
    outcome = run_segment(trainers.load, segment(tmp_path / "log", environment=environment), kill_environments)
    assert outcome.status is Status.LOST
    assert outcome.message == "the process of an environment ended with signal 9 (SIGKILL)"
