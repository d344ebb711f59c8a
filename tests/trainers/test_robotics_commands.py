"""The study files of examples/robotics, on stand-ins that take the flags of the programs and log by their names."""

import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from segments import segment, train

from autorl.core.types import FrozenMap, Status
from autorl.study.spec import load_spec
from autorl.trainers import load

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/robotics"

_EVENTS = """
import re, sys
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

line = " ".join(sys.argv)

def said(name):
    return re.search(name.replace("_", "[-_]") + r"[ =](\\S+)", line).group(1)

def log(writer, step, **scalars):
    for tag, value in scalars.items():
        values = [Summary.Value(tag=tag, simple_value=value)]
        writer.add_event(Event(step=step, summary=Summary(value=values)))
"""
# It counts from 0, and an iteration that was saved is counted again.
_RSL_RL = """
import datetime, pathlib
root = pathlib.Path("logs/rsl_rl/robot")
models = sorted(root.glob("*/model_*.pt"), key=lambda path: int(path.stem[6:]))
assert bool(models) == ("--resume" in line or "--agent.resume True" in line)
assert said("seed") == "5" and float(said("algorithm.learning_rate")) == 1e-3
begin = int(models[-1].read_text()) if models else 0
folder = root / datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S_%f")
writer = EventFileWriter(str(folder))
for it in range(begin, begin + int(said("max_iterations"))):
    scalars = {"Train/mean_reward": it / 10, "Train/mean_episode_length": 20.0, "Policy/mean_std": 1.0}
    log(writer, it, **scalars)
    log(writer, it // 50, **{"Train/mean_reward/time": it / 10})
writer.close()
(folder / f"model_{it}.pt").write_text(str(it))
"""
_BRAX = """
assert said("--seed") == "5" and "--learning_rate=0.001" in line and "--use_tb" in line
writer, evaluations = EventFileWriter(said("--logdir") + "/CheetahRun-20260101-000000"), int(said("--num_evals"))
for number in range(evaluations):
    step = number * int(said("--num_timesteps")) // (evaluations - 1)
    log(writer, step, **{"eval/episode_reward": 100.0 * number, "eval/avg_episode_length": 1000.0})
writer.close()
"""
_PUFFER = """
import argparse

def load_config(name):
    parser = argparse.ArgumentParser()
    for flag in ("learning-rate", "ent-coef", "gamma", "gae-lambda", "clip-coef", "vf-coef", "max-grad-norm"):
        parser.add_argument("--train." + flag, type=float)
    parser.add_argument("--train.total-timesteps", type=int)
    parser.add_argument("--train.seed", type=int)
    parser.add_argument("--vec.seed", type=int)
    given = vars(parser.parse_args())
    return {"train": {key[6:]: value for key, value in given.items() if key.startswith("train.")}}

def load_env(name, args):
    assert name == "puffer_breakout"

def load_policy(args, environments):
    return None

class PuffeRL:
    def __init__(self, config, environments, policy):
        assert (config["learning_rate"], config["seed"], config["env"]) == (0.015, 5, "puffer_breakout")
        self.config, self.global_step = config, 0
        self.print_dashboard(clear=True)

    def print_dashboard(self, clear=False):
        print("\\x1b[0;0H PufferLib 3.0   Steps  5.0k")

    def evaluate(self):
        self.global_step += self.config["total_timesteps"] // 20

    def train(self):
        self.print_dashboard()
        share = self.global_step / self.config["total_timesteps"]
        logs = {"agent_steps": self.global_step, "environment/score": share, "losses/entropy": 1.0}
        return logs | {"environment/map": [1, 2]} if share * 20 % 2 == 0 else None

    def close(self):
        pass
"""


def robot(name, folder):
    """The study file, with programs of `folder`."""
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    spec = load_spec(folder / f"{name}.yaml")
    trainer = spec.trainer.resolve()
    return spec, replace(trainer, kwargs=FrozenMap({**trainer.kwargs, "path": str(folder)}))


def put(folder, place, code):
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    (folder / place).write_text(code)
    return folder / place


def run(spec, trainer, until, evaluate_at, *folder, **more):
    environment, config = spec.environment.resolve(), spec.search_space.default()
    more |= {"evaluate_at": evaluate_at, "seed": 5}
    outcome = train(segment(trainer, environment, config, until, *folder, **more))
    assert outcome.status == Status.DONE
    return outcome, [(report.step, report.metrics["eval_return"]) for report in outcome.reports]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_study_file_is_complete_and_shares_a_gpu(path):
    spec = load_spec(path)
    load(spec.trainer.resolve()).check(spec.environment.resolve(), spec.search_space.names)
    assert spec.resources_for(spec.search_space.default()).gpu == 0.25
    assert re.match("# .*\n(#.*\n)+name: ", path.read_text())


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("mjlab", "mjlab/scripts/train.py"),
        ("isaaclab-rsl_rl", "scripts/reinforcement_learning/rsl_rl/train.py"),
    ],
)
def test_rsl_rl_goes_on_from_its_newest_model(name, program, tmp_path):
    pytest.importorskip("tensorboard", reason="needs the extra integrations")
    put(tmp_path, program, _EVENTS + _RSL_RL)
    spec, trainer = robot(name, tmp_path)
    first, before = run(spec, trainer, 100, (50, 100), tmp_path / "first", horizon=200)
    more = {"parent": first.checkpoint, "start": 100, "horizon": 200}
    rest, after = run(spec, trainer, 200, (200,), tmp_path / "rest", **more)
    # The mean of the last ten.
    assert dict(before) == pytest.approx({50: 4.55, 100: 9.45})
    assert dict(after) == pytest.approx({200: 19.35})
    names = [path.name for path in Path(rest.checkpoint.path).rglob("*.pt")]
    assert sorted(names) == ["model_198.pt", "model_99.pt"]


def test_mujoco_playground_is_read_at_its_evaluations(tmp_path):
    pytest.importorskip("tensorboard", reason="needs the extra integrations")
    put(tmp_path, "train-jax-ppo", f"#!{sys.executable}\n{_EVENTS}{_BRAX}").chmod(0o755)
    spec, trainer = robot("mujoco-playground", tmp_path)
    _, curve = run(spec, trainer, spec.fidelity.steps, spec.evaluation_steps)
    assert curve == [(9_830_400 * number, 100.0 * number) for number in range(1, 7)]


def test_pufferlib_prints_what_its_trainer_logs(tmp_path):
    put(tmp_path, "torch.py", "def manual_seed(seed):\n    assert seed == 5\n")
    put(tmp_path, "pufferlib/pufferl.py", _PUFFER)
    spec, trainer = robot("pufferlib", tmp_path)
    _, curve = run(spec, trainer, spec.fidelity.steps, spec.evaluation_steps)
    means = (0.15, 0.25, 0.4, 0.6, 0.8)  # of the last five
    expected = {18_000_000 * number: mean for number, mean in enumerate(means, start=1)}
    assert dict(curve) == pytest.approx(expected)
