"""Small studies to be harmed: every family of trainers and every way of running their segments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

CRASHING = """
def train(config, *, seed, until, evaluate_at, report):
    if config["x"] > 0.9 or (config["x"] > 0.6 and seed % 3 == 1):
        raise ValueError("this configuration crashes")
    for step in evaluate_at:
        report(step, config["x"] - (config["x"] - 0.5) ** 2 + 0.01 * ((seed * 7919 + step) % 11))
"""
SCRIPT = """
import json, sys, time
from pathlib import Path

values = dict(zip(sys.argv[1::2], sys.argv[2::2]))
time.sleep(float(values.get("--pause", 0)))
x, seed, until = float(values["--x"]), int(values["--seed"]), int(values["--until"])
state = {"step": 0, "sum": 0.0}
if "--load" in values:
    state = json.loads((Path(values["--load"]) / "state.json").read_text())
for step in range(state["step"] + 1, until + 1):
    state = {"step": step, "sum": state["sum"] + x - (x - 0.6) ** 2 + 0.01 * ((seed * 7919 + step) % 11)}
    if step % 2 == 0:
        print(json.dumps({"step": step, "eval_return": state["sum"] / step}), flush=True)
if "--save" in values:
    (Path(values["--save"]) / "state.json").write_text(json.dumps(state))
"""
PARALLEL = """
parallelism: 3
executor: {name: processes, workers: 2}
keep: {checkpoints: lineage}
seeds: {tuning: 2, test: 2}
"""
POPULATION = """
trainer: population/ppo
environment: CartPole-v1
space:
  learning_rate: {type: float, lower: 1.0e-4, upper: 1.0e-2, scale: log, default: 1.0e-3, changeable: true}
  n_steps: {type: constant, value: 64}
fidelity: {steps: 256, evaluations: 2, episodes: 2}
budget: {runs: 12}
executor: {workers: 2}
"""
PBT = "optimizer: {name: pbt, population: 3, generations: 4, quantile: 0.4, ready: 0.25}"
SB3 = """
trainer: {name: sb3/dqn, kwargs: {learning_starts: 20, buffer_size: 200}}
environment: CartPole-v1
space: {learning_rate: {type: float, lower: 1.0e-4, upper: 1.0e-2, scale: log}}
fidelity: {steps: 80, evaluations: 2, episodes: 2}
budget: {runs: 2}
seeds: {tuning: 1, test: 1}
test: {baseline: false}
optimizer: asha
parallelism: 2
"""
RACING = """
trainer: {name: "python:crashing:train", kwargs: {metric: eval_return}}
space: {x: {type: float, lower: 0.0, upper: 1.0, default: 0.2}}
fidelity: {steps: 10, evaluations: 2}
budget: {runs: 20}
seeds: {tuning: 4, test: 3}
evaluation: {seeds: racing, min: 2, max: 4}
optimizer: random
keep: null
"""
COMMAND = """
trainer:
  name: command
  kwargs:
    command: "{python} train.py --seed {seed} --until {until}"
    checkpoint_flag: --load
    save_flag: --save
    metrics: {step: step, map: {eval_return: eval_return}}
space: {x: {type: float, lower: 0.0, upper: 1.0, default: 0.2}}
fidelity: {steps: 12, evaluations: 3}
budget: {runs: 12}
optimizer: {name: random, stop: median, rungs: 3}
"""
TRL = """
trainer: {name: trl/rloo, kwargs: {per_device_train_batch_size: 8, guard: 0}}
environment: letters-goldproxy
space:
  learning_rate: {type: float, lower: 1.0e-4, upper: 1.0e-3, scale: log}
  num_generations: {type: constant, value: 4}
fidelity: {steps: 2, evaluations: 2, episodes: 8}
budget: {runs: 3}
seeds: {tuning: 1, test: 1}
optimizer: {name: random, stop: median, rungs: 2}
parallelism: 2
"""


@dataclass(frozen=True)
class Kind:
    """A kind of study.

    Attributes:
        study: its study file.
        files: modules and scripts beside it.
        roles: processes of it that can be killed beside the driver.
        needs: module without which it cannot run.
    """

    study: Mapping[str, Any]
    files: Mapping[str, str] = field(default_factory=dict)
    roles: tuple[str, ...] = ("worker", "fork server")
    needs: str | None = None


def _kind(*parts: str, **fields: Any) -> Kind:
    """A kind of study of parts of a study file, in which later ones count and null takes out."""
    study: dict[str, Any] = {}
    for part in (PARALLEL, *parts):
        study |= yaml.safe_load(part)
    return Kind({key: value for key, value in study.items() if value is not None}, **fields)


_SCRIPTED = {"files": {"train.py": SCRIPT}}
KINDS: dict[str, Kind] = {
    "population/tpe": _kind(POPULATION, "optimizer: tpe"),
    "population/pbt": _kind(POPULATION, PBT),
    "population/asha": _kind(POPULATION, "optimizer: asha"),
    "sb3/asha": _kind(SB3, needs="stable_baselines3"),
    "racing": _kind(RACING, files={"crashing.py": CRASHING}),
    "command": _kind(COMMAND, **_SCRIPTED, roles=("worker", "fork server", "script")),
    "trl": _kind(TRL, needs="trl"),
}
# They pause, so that a fault strikes in the middle, and cost next to no CPU time.
_PAUSING = COMMAND.replace("{until}", "{until} --pause 0.4").replace(
    "0.2}", "0.2, changeable: true}"
)
WORKERS: dict[str, Kind] = {
    f"workers/{name}": _kind(
        _PAUSING,
        f"executor: {{name: in_process}}\noptimizer: {optimizer}\nbudget: {{runs: {runs}}}",
        **_SCRIPTED,
    )
    for name, optimizer, runs in (
        ("tpe", "tpe", 16),
        ("asha", "asha", 10),
        ("pbt", "{name: pbt, population: 4}", 16),
    )
}
"""Studies of three optimizers whose segments are a script that can be killed at any moment."""
SLOW = ("sb3/asha", "trl")
"""Kinds whose processes import torch: seconds each."""


def write_study(kind: str, folder: Path, **changes: Any) -> Path:
    """The study file of a kind with changed sections, and what it needs beside it."""
    of_kind = (KINDS | WORKERS)[kind]
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in of_kind.files.items():
        (folder / name).write_text(text)
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump({**of_kind.study, **changes}, sort_keys=False))
    return path
