"""Run folders of DeepCAVE as landscapes.

A row of `history.jsonl` is one evaluation of (configuration, budget, seed).

Read are `history.jsonl` and `configs.json`, and where they are there `configspace.json` (else the
space is inferred), `meta.json` (objectives; else one cost that is minimized) and `origins.json`.
Rows have eight fields up to version 1.3 (configuration, budget, seed, costs, start, end, status,
additional); 1.4 puts the processor time before the start.

References:
    [Sass2022] Sass et al., "DeepCAVE: an interactive analysis tool for automated machine learning",
        arXiv 2206.03493.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from autorl.core.plain_text import counted
from autorl.core.types import InputError
from autorl.landscapes.export_deepcave import CONFIGS, CONFIGSPACE, HISTORY, META, ORIGINS
from autorl.landscapes.importers.common import (
    Evaluation,
    Options,
    Run,
    Source,
    errors_naming,
    gathered,
    metric_column,
    read_object,
    whole_step,
    write_source,
)
from autorl.landscapes.importers.inference import flatten
from autorl.landscapes.manifest import Manifest, Objective
from autorl.space import Space, from_configspace
from autorl.space.configspace import from_configuration

# 1 to 6 are SUCCESS, TIMEOUT, MEMORYOUT, CRASHED, ABORTED and NOT_EVALUATED.
STATUS = {
    1: "done",
    2: "timeout",
    3: "out_of_memory",
    4: "crash",
    5: "lost",
    7: "crash",
    8: "stopped",
    9: "lost",
}
_NOT_EVALUATED = 6
# Fields of a row; the long layout has the processor time before the start.
_SHORT = 8
_LONG = 9


def recognises(path: Path) -> bool:
    """Tell whether a folder is a DeepCAVE run."""
    return (path / HISTORY).is_file() and (path / CONFIGS).is_file()


def import_source(path: Path, options: Options) -> list[Manifest]:
    """Import one run folder.

    A landscape that was exported comes back under its id, with its roles and objective.

    Raises:
        InputError: a file is missing or not as described above, or the objective is not known.
    """
    for name in (HISTORY, CONFIGS):
        if not (path / name).is_file():
            raise InputError("missing; a DeepCAVE run folder has it", file=str(path / name))
    # ARLBench's logs lack it: there is one cost then, without a name.
    meta = read_object(path / META) if (path / META).is_file() else {}
    listed = meta.get("objectives") or [{"name": "cost", "optimize": "lower"}]
    names = [str(entry.get("name")) for entry in listed]
    extras = meta.get("autorl", {})
    place, objective = _objective(listed, extras, path, options)
    configs = {_number(key, path): value for key, value in read_object(path / CONFIGS).items()}
    space = _space(path / CONFIGSPACE)
    if space is not None:
        values: dict[int, Mapping[str, Any]] = {
            key: from_configuration(space, config) for key, config in configs.items()
        }
    else:
        # In the file, null stands for an inactive hyperparameter.
        values = {
            key: flatten({name: value for name, value in config.items() if value is not None})
            for key, config in configs.items()
        }
    metrics = [
        objective.metric if at == place else metric_column(name) for at, name in enumerate(names)
    ]
    with errors_naming(path / HISTORY):
        runs = _runs(path / HISTORY, values, metrics, options)
    # configs.json may list configurations that nobody evaluated.
    used = {run.config_id for run in runs}
    bounds = [
        listed[place].get(key) if listed[place].get(f"lock_{key}") else None
        for key in ("lower", "upper")
    ]
    files = [
        path / name
        for name in (HISTORY, CONFIGS, CONFIGSPACE, META, ORIGINS)
        if (path / name).is_file()
    ]
    about = {"licence": extras["licence"]} if extras.get("licence") else {}
    source = Source(
        path=path,
        files=files,
        id=options.named(path, extras.get("id")),
        format=f"the DeepCAVE run {path.name!r}",
        configs={number: config for number, config in values.items() if number in used},
        runs=runs,
        objective=objective,
        space=space,
        roles=extras.get("seeds") or {},
        origin="deepcave",
        return_bounds=(bounds[0], bounds[1]),
        about=about,
    )
    return [write_source(source, options)]


def _objective(
    listed: Sequence[Mapping[str, object]], extras: Mapping[str, Any], path: Path, options: Options
) -> tuple[int, Objective]:
    """Choose the objective that counts: the one named, else the first.

    Returned are its place among the costs, and the objective.
    """
    names = [str(entry.get("name")) for entry in listed]
    if options.metric is not None and options.metric not in names:
        raise InputError(
            f"no objective {options.metric!r}; allowed: {', '.join(names)}", key="metric"
        )
    place = names.index(options.metric) if options.metric is not None else 0
    # Our own export says the objective in full, with floor and penalty.
    if place == 0 and extras.get("objective"):
        return 0, Objective(**extras["objective"])
    direction: Any = {"lower": "minimize", "upper": "maximize"}.get(
        str(listed[place].get("optimize"))
    )
    if direction is None:
        message = f"expected lower or upper, got {listed[place].get('optimize')!r}"
        raise InputError(message, file=str(path / META), key=f"objectives[{place}].optimize")
    return place, Objective(metric_column(names[place]), options.direction or direction)


def _space(file: Path) -> Space | None:
    if not file.is_file():
        return None
    import ConfigSpace

    try:
        with errors_naming(file):
            return from_configspace(ConfigSpace.ConfigurationSpace.from_json(file))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"ConfigSpace cannot read it: {error!r}", file=str(file)) from None


def _runs(
    file: Path, configs: Collection[int], metrics: Sequence[str], options: Options
) -> list[Run]:
    """Read the runs of a history."""
    rows = []
    for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if not text.strip():
            continue
        config_id, budget, seed, costs, status = _row(text, number)
        if status == _NOT_EVALUATED:
            continue
        if config_id not in configs:
            raise InputError(f"configuration {config_id} is not in {CONFIGS}", line=number)
        if len(costs) != len(metrics):
            message = f"{counted(len(costs), 'cost')}, but the objectives are {', '.join(metrics)}"
            raise InputError(message, line=number)
        # If there are no budgets, every run is one evaluation at its end.
        where = f"line {number}"
        step = 1 if budget is None else whole_step(budget, options.unit, where)
        values = dict(zip(metrics, costs, strict=True))
        rows.append(Evaluation(config_id, seed, step, values, number, STATUS[status]))
    return gathered(rows)


def _row(text: str, number: int) -> tuple[int, float | None, int, Sequence[Any], int]:
    """Parse a line into (configuration, budget, seed, costs, status).

    An infinite budget is None: there is only one.
    """
    try:
        row = json.loads(text)
    except ValueError as error:
        raise InputError(f"not JSON: {error}", line=number) from None
    if not isinstance(row, list) or len(row) not in (_SHORT, _LONG) or not isinstance(row[3], list):
        message = (
            "expected [configuration, budget, seed, [costs], (processor time,) "
            "start, end, status, {...}]"
        )
        raise InputError(message, line=number)
    # Both layouts agree on the first four fields and, from the end, on the status.
    config_id, budget, seed, costs = row[:4]
    status = row[-2]
    if status not in STATUS and status != _NOT_EVALUATED:
        raise InputError(f"status {status!r} is not one of 1 to 9", line=number)
    if not isinstance(config_id, int) or not isinstance(seed, int | None):
        raise InputError(f"expected integers, got {config_id!r} and {seed!r}", line=number)
    # Infinity, which Python's json writes and reads, says that there is no other budget.
    endless = budget is None or budget in (float("inf"), "inf")
    steps = None if endless else float(budget)
    return config_id, steps, -1 if seed is None else seed, costs, status


def _number(key: str, path: Path) -> int:
    if not key.lstrip("-").isdigit():
        raise InputError(
            f"expected the number of a configuration, got {key!r}", file=str(path / CONFIGS)
        )
    return int(key)
