"""Experiment folders of Ray Tune as landscapes.

A trial is a run, its results are evaluations.

A trial folder has `params.json` and `result.json` (or `progress.csv`); `error.txt` or the state
ERROR in `experiment_state-*.json` say that it crashed. The step is `timesteps_total` where it is
recorded, else `training_iteration`, or what `--map NAME=step` says; the seed is the parameter
`seed`, or what `--map NAME=seed` says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autorl.core.types import InputError
from autorl.landscapes.importers.common import (
    Options,
    Run,
    Source,
    errors_naming,
    metric_column,
    read_object,
    whole_step,
    write_source,
)
from autorl.landscapes.importers.csv_table import read_csv
from autorl.landscapes.importers.inference import clean_name, flatten
from autorl.landscapes.manifest import Manifest, Objective
from autorl.space import canonical_json

# The first that every result has; trainers without an environment count iterations only.
_STEPS = ("timesteps_total", "training_iteration")
_ENDED = {"TERMINATED": "done", "ERROR": "crash"}
_NAMED = 20  # settings equal in all trials that the note lists


def recognises(path: Path) -> bool:
    """Tell whether a folder is an experiment.

    Trial folders in it have `params.json` and results.
    """
    return path.is_dir() and any(_results(folder) for folder in _trials(path))


def import_source(path: Path, options: Options) -> list[Manifest]:
    """Import one experiment.

    Raises:
        InputError: no trials, no such metric, or a trial whose configuration changed while it ran
            (PBT).
    """
    if options.metric is None:
        raise InputError("say which result is the objective: --metric NAME", key="metric")
    names = _mapped(options)
    states = _states(path)
    read = [_read(folder, names, states, options) for folder in _trials(path)]
    if not read:
        raise InputError("no trial folders with params.json are in it")
    configs, equal = _varying([config for config, _ in read])
    longest = max((run.steps[-1] for _, run in read if run.steps), default=0)
    runs = [_ended(number, run, longest) for number, (_, run) in enumerate(read)]
    notes = (f"Settings equal in all trials were left out: {equal}.",) if equal else ()
    pairs = ((folder / "params.json", _results(folder)) for folder in _trials(path))
    files = [file for pair in pairs for file in pair if file]
    source = Source(
        path=path,
        files=[*files, *sorted(path.glob("experiment_state-*.json"))],
        id=options.named(path),
        format=f"the Ray Tune experiment {path.name!r}",
        configs=dict(enumerate(configs)),
        runs=runs,
        objective=Objective(metric_column(options.metric), options.direction or "maximize"),
        origin="ray",
        sampler={"name": "ray"},
        notes=notes,
    )
    return [write_source(source, options)]


def _trials(path: Path) -> list[Path]:
    return sorted(file.parent for file in path.glob("*/params.json"))


def _results(folder: Path) -> Path | None:
    """Find the file of results.

    Ray writes an empty result.json before the first one.
    """
    files = [folder / name for name in ("result.json", "progress.csv") if (folder / name).is_file()]
    default = files[0] if files else None
    return next((file for file in files if file.stat().st_size), default)


def _mapped(options: Options) -> dict[str, str]:
    names = {}
    for entry in options.map:
        name, _, role = entry.rpartition("=")
        if role not in ("step", "seed") or not name:
            raise InputError(f"expected NAME=step or NAME=seed, got {entry!r}", key="--map")
        names[role] = name
    return names


def _states(path: Path) -> dict[str, str]:
    """Read each trial's state from the newest `experiment_state-*.json`."""
    # Names end with the time of writing, so the last is the newest.
    files = sorted(path.glob("experiment_state-*.json"))
    if not files:
        return {}
    try:
        trials = [
            json.loads(entry[0])
            for entry in json.loads(files[-1].read_text(encoding="utf-8"))["trial_data"]
        ]
        return {str(trial["trial_id"]): str(trial["status"]) for trial in trials}
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(
            f"not an experiment state of Ray Tune: {error!r}", file=str(files[-1])
        ) from None


def _read(
    folder: Path, names: Mapping[str, str], states: Mapping[str, str], options: Options
) -> tuple[dict[str, object], Run]:
    """Read the configuration of a trial without its seed, and its run.

    The status is the trial's own.
    """
    settings = folder / "params.json"
    config = flatten(read_object(settings))
    file = _results(folder)
    rows = _rows(file) if file else []
    seed = config.pop(clean_name(names.get("seed", "seed")), None)
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise InputError(f"expected an integer, got {seed!r}", file=str(settings), key="seed")
    metric = options.metric or ""
    recorded = (name for name in _STEPS if all(row.get(name) is not None for row in rows))
    step = names.get("step") or next(recorded, _STEPS[-1])
    curve: dict[int, float] = {}
    with errors_naming(file or folder):
        for number, row in enumerate(rows, 1):
            _check_row(row, config, names, (metric, step), number)
            at = whole_step(float(row[step]), options.unit, f"line {number}")
            curve[at] = float("nan") if row[metric] is None else float(row[metric])
    trial_id = str(rows[-1].get("trial_id", "")) if rows else ""
    # A trial that no state knows is taken to have ended.
    state = states.get(trial_id, "TERMINATED")
    status = "crash" if (folder / "error.txt").is_file() else _ENDED.get(state, "lost")
    wall = rows[-1].get("time_total_s") if rows else None
    metrics = {metric_column(metric): list(curve.values())}
    return config, Run(0, seed, list(curve), metrics, status, wall_seconds=wall)


def _ended(number: int, run: Run, longest: int) -> Run:
    """Number a run, and call it `stopped` if it ended early.

    One that ended before the longest was stopped by a scheduler.
    """
    # ASHA and median stopping end trials as TERMINATED, like those that were trained in full.
    early = run.status == "done" and (not run.steps or run.steps[-1] < longest)
    return replace(run, config_id=number, status="stopped" if early else run.status)


def _rows(file: Path) -> list[dict[str, Any]]:
    """Read the results of a trial.

    Nested names are joined by a slash as Ray does.
    """
    if file.suffix == ".csv":
        records = read_csv(file).to_dict("records") if file.stat().st_size else []
        return [{str(name): value for name, value in record.items()} for record in records]
    lines = file.read_text(encoding="utf-8").splitlines()
    return [
        _joined(read_object(file, line, number))
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]


def _joined(values: Mapping[str, object], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        # The configuration stays whole: it is compared with that of the trial.
        is_config = name == "config" and not prefix
        if isinstance(value, Mapping) and not is_config:
            flat |= _joined(value, f"{prefix}{name}/")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _check_row(
    row: Mapping[str, object],
    config: Mapping[str, object],
    names: Mapping[str, str],
    keys: Sequence[str],
    line: int,
) -> None:
    """Raise `InputError` if a result lacks a key or has another configuration."""
    for key in keys:
        if key not in row:
            numbers = ", ".join(
                sorted(n for n, value in row.items() if isinstance(value, int | float))
            )
            raise InputError(f"no result {key!r}; there are {numbers}", line=line)
    settings = row.get("config")
    now = flatten(settings) if isinstance(settings, Mapping) else {}
    # The seed was taken out of the trial's configuration too.
    now.pop(clean_name(names.get("seed", "seed")), None)
    changed = sorted(name for name in config if name in now and now[name] != config[name])
    if changed:
        message = (
            "changed while the trial ran (population-based training?); a run has one configuration"
        )
        raise InputError(message, key=changed[0], line=line)


def _varying(configs: Sequence[dict[str, object]]) -> tuple[list[dict[str, object]], str]:
    """Leave out the settings that are equal in all configurations.

    They stay if all are equal. The names of those left out follow.
    """
    names = dict.fromkeys(name for config in configs for name in config)
    distinct = {
        name: {canonical_json(config[name]) if name in config else None for config in configs}
        for name in names
    }
    equal = [name for name in names if len(distinct[name]) == 1]
    # A space needs a hyperparameter, if only a constant one.
    if len(equal) == len(names):
        return list(configs), ""
    more = f" and {len(equal) - _NAMED} more" if len(equal) > _NAMED else ""
    varying = [
        {name: value for name, value in config.items() if name not in equal} for config in configs
    ]
    return varying, ", ".join(equal[:_NAMED]) + more
