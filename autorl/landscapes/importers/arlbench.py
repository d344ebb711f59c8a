"""ARLBench's raw landscape files (CSV or CSV.gz) as landscape folders.

A file `<domain>_<environment>_<algorithm>.csv[.gz]` has one row per (configuration, seed, checkpoint): `run_id` or
`config_id`, `budget` or `training_steps`, `performance` (empty = crashed), `seed`, `hp_config.<name>` (empty =
inactive).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autorl.landscapes.importers.arlbench_spaces import TASKS, Task, arlbench_space
from autorl.landscapes.manifest import Manifest, Objective, file_sha256
from autorl.landscapes.schema import Tables, config_rows
from autorl.landscapes.write import write_landscape
from autorl.space import Space
from autorl.types import FrozenMap, InputError

if TYPE_CHECKING:
    import pandas as pd

_NAME = re.compile(r"(?P<task>[a-z0-9_]+)_(?P<algorithm>ppo|dqn|sac)\.csv(\.gz)?\Z")
_SYNONYMS = {"run_id": "config_id", "training_steps": "budget", "eval_return_mean": "performance"}
_PREFIX = "hp_config."
_DIGITS = 6  # hyperparameters of one configuration that differ by less between seeds differ by round-off
EPISODES = 128
ORIGIN: Mapping[str, Any] = {
    "evaluation": FrozenMap(episodes=EPISODES),
    "licence": "https://opensource.org/license/bsd-3-clause",
    "citation": "Becktepe et al., ARLBench: flexible and efficient benchmarking for HPO in RL, arXiv 2409.18827 (2024)",
    "creator": "AutoML Hannover",
    "url": "https://github.com/automl/arlbench",
    "created": "2025-02-01",
}


def import_arlbench(
    source: str | Path,
    target: str | Path,
    tuning_seeds: int = 5,
    namespace: str = "arlbench",
    replace: bool = False,
) -> list[Manifest]:
    """Import a file, or every landscape file of a folder, to `target/<namespace>/<algorithm>/<environment>`.

    ARLBench gives its ten seeds no role. Here the lowest `tuning_seeds` of them become tuning seeds and the rest test
    seeds, so that what is chosen can be reported on seeds that did not choose it.

    Raises:
        InputError: no such file, a name or column that is not ARLBench's, repeated rows, values outside its search
            space.
    """
    path = Path(source)
    return [import_file(file, target, tuning_seeds, namespace, replace) for file in csv_files(path)]


def csv_files(path: Path) -> list[Path]:
    """The CSV files of a folder, or the one file given."""
    files = sorted(path.glob("*.csv*")) if path.is_dir() else [path]
    if not files:
        raise InputError("no .csv or .csv.gz files in it", file=str(path))
    return files


def import_file(path: Path, target: str | Path, tuning_seeds: int, namespace: str, replace: bool) -> Manifest:
    """Import one file; see `import_arlbench`."""
    algorithm, task = task_of(path)
    frame = read_rows(path, ("config_id", "seed", "budget"))
    space = arlbench_space(algorithm, task.domain)
    try:
        frame, configs, notes = _with_configurations(frame, space)
        rows = config_rows(space, configs, origin="sobol")
    except InputError as error:
        raise InputError(error.message, file=str(path), key=error.key) from None
    roles = _roles(frame["seed"].unique().tolist(), tuning_seeds, path)
    manifest = Manifest(
        id=f"{namespace}/{algorithm}/{task.environment}",
        description=f"ARLBench landscape of {algorithm.upper()} on {task.environment}, {len(configs)} configurations.",
        algorithm=algorithm,
        environment=task.environment,
        objective=Objective(floor=task.floor),
        return_bounds=task.bounds,
        steps=tuple(sorted(int(step) for step in frame["budget"].unique())),
        seeds=FrozenMap({role: sorted(s for s, r in roles.items() if r == role) for role in ("tuning", "test")}),
        sampler=FrozenMap(name="sobol"),
        **ORIGIN,
        sources=(FrozenMap(path=path.name, sha256=file_sha256(path)),),
        notes=("Seed roles were assigned on import: the source gives none.", *notes),
    )
    tables = _tables(frame, rows, roles, algorithm, task)
    return write_landscape(Path(target) / manifest.id, tables, manifest, space, replace)


def task_of(path: Path) -> tuple[str, Task]:
    match = _NAME.match(path.name)
    if match is None or match["task"] not in TASKS:
        raise InputError(
            f"expected <task>_<algorithm>.csv[.gz] with algorithm ppo, dqn or sac and task one of {', '.join(TASKS)}",
            file=str(path),
        )
    return match["algorithm"], TASKS[match["task"]]


def read_rows(path: Path, key: Sequence[str]) -> pd.DataFrame:
    """The file with columns config_id, budget, performance, seed and hyperparameters without their prefix.

    Raises:
        InputError: the file cannot be read, lacks a column, or two rows have the same `key`.
    """
    import pandas as pd

    try:
        frame = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read as CSV: {error}", file=str(path)) from None
    frame = frame.rename(columns={old: new for old, new in _SYNONYMS.items() if new not in frame})
    frame = frame.rename(columns=lambda name: name.removeprefix(_PREFIX))
    missing = [name for name in dict.fromkeys((*key, "budget", "performance", "seed")) if name not in frame]
    if missing:
        raise InputError(f"columns {missing} are missing; the file has {list(frame)}", file=str(path))
    repeated = int(frame.duplicated(list(key)).sum())
    if repeated:
        raise InputError(f"{repeated} rows repeat a ({', '.join(key)})", file=str(path))
    return frame


def _with_configurations(
    frame: pd.DataFrame, space: Space
) -> tuple[pd.DataFrame, dict[int, dict[str, Any]], tuple[str, ...]]:
    """Rows with one config_id per distinct configuration, the configurations, and notes about what was repaired."""
    names = [name for name in space.names if name in frame]
    distinct = frame[["config_id", *names]].drop_duplicates()
    differing = distinct.loc[distinct["config_id"].duplicated(), "config_id"].nunique()
    notes: tuple[str, ...] = ()
    if differing:
        frame, added = _split_by_vector(frame, names)
        distinct = frame.sort_values("seed", kind="stable")[["config_id", *names]].drop_duplicates("config_id")
        notes = (
            f"hp_differ_by_seed: in {differing} configurations the hyperparameters differ between seeds. Differences "
            f"after digit {_DIGITS} were taken as round-off (the lowest seed's are kept); {added} more are their own "
            "configurations.",
        )
    records = distinct.sort_values("config_id").to_dict("records")
    return frame, {int(row["config_id"]): _active(row, names) for row in records}, notes


def _split_by_vector(frame: pd.DataFrame, names: Sequence[str]) -> tuple[pd.DataFrame, int]:
    """Rows with a new config_id (above the others) where the rounded values are not those of the lowest seed."""
    frame = frame.sort_values("seed", kind="stable")
    vector = frame[list(names)].apply(lambda column: column.map(_rounded)).astype(str).agg("|".join, axis=1)
    first_free = int(frame["config_id"].max()) + 1
    lowest_seed: dict[int, str] = {}
    added: dict[tuple[int, str], int] = {}
    ids = []
    for config_id, text in zip(frame["config_id"].tolist(), vector.tolist(), strict=True):
        same = lowest_seed.setdefault(config_id, text) == text
        ids.append(config_id if same else added.setdefault((config_id, text), first_free + len(added)))
    return frame.assign(config_id=ids), len(added)


def _rounded(value: Any) -> Any:
    return f"{value:.{_DIGITS}g}" if isinstance(value, float) else value


def _active(row: Mapping[Any, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: row[name] for name in names if row[name] == row[name]}


def _roles(seeds: Sequence[int], tuning_seeds: int, path: Path) -> dict[int, str]:
    ordered = sorted(int(seed) for seed in seeds)
    if not 1 <= tuning_seeds <= len(ordered):
        raise InputError(f"tuning_seeds must lie in 1..{len(ordered)}, got {tuning_seeds}", file=str(path))
    return {seed: "tuning" if place < tuning_seeds else "test" for place, seed in enumerate(ordered)}


def _tables(frame: pd.DataFrame, configs: pd.DataFrame, roles: Mapping[int, str], algorithm: str, task: Task) -> Tables:
    import pandas as pd

    frame = frame.sort_values(["config_id", "seed", "budget"], ignore_index=True)
    run = frame.groupby(["config_id", "seed"], sort=True)
    last = run.agg(steps=("budget", "max"), score=("performance", lambda column: column.iloc[-1])).reset_index()
    run_ids = np.arange(len(last))
    runs = pd.DataFrame(
        {
            "run_id": run_ids,
            "config_id": last["config_id"],
            "seed": last["seed"],
            "seed_role": last["seed"].map(roles),
            "algorithm": algorithm,
            "environment": task.environment,
            "parent_run": None,
            "start_step": 0,
            "member": None,
            "status": np.where(last["score"].isna(), "crash", "done"),
            "environment_steps": last["steps"],
            "wall_seconds": None,
        }
    )
    evals = pd.DataFrame({"run_id": run.ngroup(), "step": frame["budget"], "eval_return": frame["performance"]})
    segments = pd.DataFrame(
        {
            "segment": [f"run-{number}" for number in run_ids],
            "run_id": run_ids,
            "seed": last["seed"],
            "parent": None,
            "member": None,
            "from_step": 0,
            "to_step": last["steps"],
            "config_id": last["config_id"],
        }
    )
    return Tables(configs, runs, evals, segments)
