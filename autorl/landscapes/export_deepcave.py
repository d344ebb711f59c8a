"""Landscapes as run folders of DeepCAVE.

They are for its plots and importance analyses.

Written are `meta.json`, `configspace.json`, `configs.json`, `origins.json` and `history.jsonl`, as
DeepCAVE 1.4 loads them. A row of the history is one evaluation of (configuration, budget = step,
seed), with the objective's floor; the evaluations a failed run missed have no cost. Rows have eight
fields, without the processor time: 1.4 writes nine but cannot load them again. Facts that DeepCAVE
has no place for (id, seed roles, penalty, licence) are in `meta.json` under `autorl`, where our
importer finds it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorl.core.types import InputError
from autorl.landscapes._queries import Measurement
from autorl.landscapes.export import fresh
from autorl.space.configspace import exported_name, exported_value

if TYPE_CHECKING:
    from autorl.landscapes.dataset import Dataset

# Files of a run folder.
HISTORY = "history.jsonl"
CONFIGS = "configs.json"
CONFIGSPACE = "configspace.json"
META = "meta.json"
ORIGINS = "origins.json"

_SUCCESS = 1
# PRUNED, CRASHED, TIMEOUT, MEMORYOUT, FAILED and ABORTED of DeepCAVE's `Status`.
_STATUS = {
    "done": _SUCCESS,
    "stopped": 8,
    "crash": 4,
    "timeout": 2,
    "out_of_memory": 3,
    "diverged": 7,
    "lost": 5,
}


def export_deepcave(landscape: Dataset, folder: str | Path) -> int:
    """Write the runs trained from the start as a folder for DeepCAVE.

    The folder is new.

    Returns:
        The number of rows of the history.

    Raises:
        InputError: the folder exists, or there are no such runs.
    """
    target = fresh(folder)
    history = landscape.queries.history_from_scratch()
    if not history:
        raise InputError("no run was trained from the start", file=str(landscape.path))
    space = landscape.space
    ids = sorted({row.config_id for row in history})
    items = space.hyperparameters
    configs = {
        number: {
            exported_name(items[name]): exported_value(items[name], value)
            for name, value in landscape.config(number).items()
        }
        for number in ids
    }
    origins = landscape.queries.origins()
    target.mkdir()
    space.to_configspace().to_json(target / CONFIGSPACE)
    _write(target / META, _meta(landscape, history))
    _write(target / CONFIGS, configs)
    _write(target / ORIGINS, {number: origins[number] for number in ids})
    lines = [json.dumps(row) for row in _rows(history)]
    (target / HISTORY).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(history)


def _rows(history: list[Measurement]) -> list[list[Any]]:
    """Return the rows of the history.

    A row is [configuration, budget, seed, [cost], start, end, status, additional].

    A run that did not end well says so in its last row, and in a row without cost for every step it
    did not reach.
    """
    rows: list[list[Any]] = []
    for place, row in enumerate(history):
        # A recorded value before a failure is a success.
        last = place + 1 == len(history) or history[place + 1].run_id != row.run_id
        ended = row.value is None or (last and row.status != "done")
        more = {}
        if last and row.wall_seconds is not None:
            more["wall_seconds"] = row.wall_seconds
        code = _STATUS[row.status] if ended else _SUCCESS
        # Start and end are 0: a landscape knows how long a run took, not when.
        rows.append([row.config_id, row.step, row.seed, [row.value], 0.0, 0.0, code, more])
    return rows


def _meta(landscape: Dataset, history: list[Measurement]) -> dict[str, Any]:
    manifest = landscape.manifest
    values = [row.value for row in history if row.value is not None]
    low, high = manifest.return_bounds
    objective = manifest.objective
    return {
        "objectives": [
            {
                "name": objective.metric,
                "lower": low if low is not None else min(values, default=0.0),
                "upper": high if high is not None else max(values, default=0.0),
                "lock_lower": low is not None,
                "lock_upper": high is not None,
                "optimize": "upper" if objective.direction == "maximize" else "lower",
            }
        ],
        "budgets": sorted({row.step for row in history}),
        "seeds": sorted({row.seed for row in history}),
        "autorl": {
            "id": manifest.id,
            "objective": vars(objective),
            "seeds": {role: list(seeds) for role, seeds in manifest.seeds.items()},
            "licence": manifest.licence,
        },
    }


def _write(file: Path, values: object) -> None:
    file.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
