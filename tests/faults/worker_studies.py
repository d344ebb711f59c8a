"""Studies of three optimizers whose segments are a script that can be killed at any moment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

# It sleeps, so that a fault strikes in the middle, and costs next to no CPU time.
SCRIPT = """
import json, sys, time
from pathlib import Path

time.sleep(0.4)
values = dict(zip(sys.argv[1::2], sys.argv[2::2]))
x, seed, until = float(values["--x"]), int(values["--seed"]), int(values["--until"])
state = {"step": 0, "sum": 0.0}
if "--load" in values:
    state = json.loads((Path(values["--load"]) / "state.json").read_text())
for step in range(state["step"] + 1, until + 1):
    gain = x - (x - 0.6) ** 2 + 0.01 * ((seed * 7919 + step) % 11)
    state = {"step": step, "sum": state["sum"] + gain}
    print(json.dumps({"step": step, "eval_return": state["sum"] / step}), flush=True)
if "--save" in values:
    (Path(values["--save"]) / "state.json").write_text(json.dumps(state))
"""
_STUDY = {
    "name": "workers",
    "trainer": {
        "name": "command",
        "kwargs": {
            "command": "{python} train.py --seed {seed} --until {until}",
            "checkpoint_flag": "--load",
            "save_flag": "--save",
            "metrics": {"step": "step", "map": {"eval_return": "eval_return"}},
        },
    },
    "space": {
        "x": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.2, "changeable": True}
    },
    "fidelity": {"steps": 12, "evaluations": 3},
    "seeds": {"tuning": 2, "test": 2},
    "parallelism": 3,
    "keep": {"checkpoints": "lineage"},  # every checkpoint stays, and is judged
}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "tpe": {"optimizer": "tpe", "budget": {"runs": 16}},
    "asha": {"optimizer": "asha", "budget": {"runs": 10}},
    "pbt": {"optimizer": {"name": "pbt", "population": 4}, "budget": {"runs": 16}},
}


def write_study(optimizer: str, executor: Mapping[str, Any], folder: Path) -> Path:
    """The study file of an optimizer, with its script beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(SCRIPT)
    path = folder / "study.yaml"
    study = {**_STUDY, **OPTIMIZERS[optimizer], "executor": dict(executor)}
    path.write_text(yaml.safe_dump(study, sort_keys=False))
    return path
