"""Landscapes as run folders of DeepCAVE.

They are for its plots and importance analyses.

Written are `meta.json`, `configspace.json`, `configs.json`, `origins.json` and `history.jsonl`, as
DeepCAVE 1.4 loads them. A row of the history is one evaluation of (configuration, budget = step,
seed), with the objective's floor; the evaluations a failed run missed have no cost. Rows have eight
fields, without the processor time: 1.4 writes nine but cannot load them again. What DeepCAVE has no
place for (id, seed roles, penalty, licence) is in `meta.json` under `autorl`, where our importer
finds it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorl.landscapes.export import fresh
from autorl.space.configspace_values import exported_name, exported_value
from autorl.types import InputError

if TYPE_CHECKING:
    from autorl.landscapes.dataset import Dataset

# Files of a run folder.
HISTORY = "history.jsonl"
CONFIGS = "configs.json"
CONFIGSPACE = "configspace.json"
META = "meta.json"
ORIGINS = "origins.json"

_SUCCESS = 1
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
    rows = _history(landscape)
    if not rows:
        raise InputError("no run was trained from the start", file=str(landscape.path))
    space = landscape.space
    ids = sorted({row[0] for row in rows})
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
    _write(target / META, _meta(landscape, rows))
    _write(target / CONFIGS, configs)
    _write(target / ORIGINS, {number: origins[number] for number in ids})
    lines = [json.dumps(row) for row in rows]
    (target / HISTORY).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(rows)


def _history(landscape: Dataset) -> list[list[Any]]:
    """Return the rows of the history by run and step.

    A row is [configuration, budget, seed, [cost], start, end, status, additional].

    A run that did not end well says so in its last row, and in a row without cost for every step it
    did not reach.
    """
    history = landscape.queries.history_from_scratch()
    rows: list[list[Any]] = []
    for place, row in enumerate(history):
        last = place + 1 == len(history) or history[place + 1].run_id != row.run_id
        ended = row.value is None or (last and row.status != "done")
        more = {}
        if last and row.wall_seconds is not None:
            more["wall_seconds"] = row.wall_seconds
        code = _STATUS[row.status] if ended else _SUCCESS
        rows.append([row.config_id, row.step, row.seed, [row.value], 0.0, 0.0, code, more])
    return rows


def _meta(landscape: Dataset, rows: list[list[Any]]) -> dict[str, Any]:
    manifest = landscape.manifest
    values = [row[3][0] for row in rows if row[3][0] is not None]
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
        "budgets": sorted({row[1] for row in rows}),
        "seeds": sorted({row[2] for row in rows}),
        "autorl": {
            "id": manifest.id,
            "objective": vars(objective),
            "seeds": {role: list(seeds) for role, seeds in manifest.seeds.items()},
            "licence": manifest.licence,
        },
    }


def _write(file: Path, values: Any) -> None:
    file.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
