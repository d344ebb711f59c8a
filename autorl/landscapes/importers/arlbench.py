"""ARLBench's raw landscape files (CSV or CSV.gz) as landscape folders.

A file `<domain>_<environment>_<algorithm>.csv[.gz]` has one row per (configuration, seed,
checkpoint): `run_id` or `config_id`, `budget` or `training_steps`, `performance` (empty = crashed),
`seed`, `hp_config.<name>` (empty = inactive). The data set on Hugging Face keeps such files in its
folder `landscapes`. A task, algorithm or hyperparameter that ARLBench's own landscapes do not have
is taken as the file says, over a space inferred from it.
"""

from __future__ import annotations

import gzip
import math
import re
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorl.core.plain_text import counted
from autorl.core.types import InputError
from autorl.landscapes.importers.arlbench_spaces import Task, arlbench_space, arlbench_tasks
from autorl.landscapes.importers.common import (
    Evaluation,
    Options,
    Source,
    errors_naming,
    gathered,
    id_part,
    write_source,
)
from autorl.landscapes.importers.csv_table import read_csv
from autorl.landscapes.importers.inference import table_rows
from autorl.landscapes.manifest import Manifest, Objective
from autorl.space import Space

if TYPE_CHECKING:
    import pandas as pd

# The algorithm is what follows the last underscore; tasks have underscores of their own.
_NAME = re.compile(r"(?P<task>[A-Za-z0-9_.-]+)_(?P<algorithm>[a-z][a-z0-9-]*)\.csv(\.gz)?\Z")
HF_FOLDER = "landscapes"
# ARLBench's files have run_id and budget, or config_id and training_steps.
_SYNONYMS = {
    "run_id": "config_id",
    "training_steps": "budget",
    "eval_return_mean": "performance",
    "optimization_seed": "optimisation_seed",
}
_COLUMNS = ("config_id", "budget", "performance", "seed", "optimisation_seed", "optimization_step")
_PREFIX = "hp_config."
# Hyperparameters of one configuration that differ by less between seeds differ by round-off.
_DIGITS = 6
METRIC = "eval_return"
EVALUATION = {"episodes": 128}
ORIGIN = {
    "licence": "https://opensource.org/license/bsd-3-clause",
    "citation": (
        "Becktepe et al., ARLBench: flexible and efficient benchmarking for HPO in RL, "
        "arXiv 2409.18827 (2024)"
    ),
    "creator": "AutoML Hannover",
    "url": "https://github.com/automl/arlbench",
    "created": "2025-02-01",
}


def recognises(path: Path) -> bool:
    """Tell whether some file has columns `hp_config.*`.

    Looked at are the file, or the files of the folder and of its folder `landscapes`.
    """
    if path.is_dir():
        files = [*path.glob("*.csv*"), *(path / HF_FOLDER).glob("*.csv*")]
        return any(recognises(file) for file in files)
    return path.name.endswith((".csv", ".csv.gz")) and any(
        name.startswith(_PREFIX) for name in _header(path)
    )


def import_source(path: Path, options: Options) -> list[Manifest]:
    """Import a file, or every landscape file of a folder.

    ARLBench gives its ten seeds no role. The lowest half of them (`tuning_seeds`) become tuning
    seeds and the rest test seeds, so that what is chosen can be reported on seeds that did not
    choose it.

    Raises:
        InputError: no such file, a name or column that is not ARLBench's, repeated rows, values
            outside its search space.
    """
    folder = path / HF_FOLDER if (path / HF_FOLDER).is_dir() else path
    return written(csv_files(folder), _read, options)


def written(
    files: Sequence[Path], read: Callable[[Path, Options], Source], options: Options
) -> list[Manifest]:
    """Write a landscape of each file."""
    done = []
    for file in files:
        with errors_naming(file):
            done.append(write_source(read(file, options), options))
    return done


def csv_files(path: Path) -> list[Path]:
    """List the CSV files of a folder, or the one file given."""
    files = sorted(path.glob("*.csv*")) if path.is_dir() else [path]
    if not files:
        raise InputError("no .csv or .csv.gz files in it", file=str(path))
    return files


def _read(path: Path, options: Options) -> Source:
    algorithm, task = task_of(path)
    frame, names = read_rows(path, ("config_id", "seed", "budget"))
    frame, configs, repairs = _with_configurations(frame, names)
    space, notes = space_of(algorithm, task, names)
    columns = (frame[name].tolist() for name in ("config_id", "seed", "budget", "performance"))
    rows = [
        # A run crashed if its last evaluation is empty.
        Evaluation(number, seed, int(step), {METRIC: score}, 0, status_of(score))
        for number, seed, step, score in zip(*columns, strict=True)
    ]
    return Source(
        path=path,
        files=[path],
        id=f"{options.namespace or 'arlbench'}/{algorithm}/{task.environment}",
        format="ARLBench",
        configs=configs,
        runs=gathered(rows),
        objective=Objective(floor=task.floor),
        space=space,
        origin="sobol",
        sampler={"name": "sobol"},
        evaluation=EVALUATION,
        notes=("Seed roles were assigned on import: the source gives none.", *notes, *repairs),
        about={
            **ORIGIN,
            "description": (
                f"ARLBench landscape of {algorithm.upper()} on {task.environment}, "
                f"{counted(len(configs), 'configuration')}."
            ),
        },
        return_bounds=task.bounds,
    )


def status_of(score: float) -> str:
    """Say how a run ended that scored this last."""
    return "crash" if math.isnan(score) else "done"


def task_of(path: Path) -> tuple[str, Task]:
    """Read algorithm and task from a file's name.

    A task ARLBench does not have is its own environment and domain.
    """
    match = _NAME.match(path.name)
    if match is None:
        raise InputError(
            "expected <task>_<algorithm>.csv[.gz], such as cc_cartpole_ppo.csv; known tasks: "
            f"{', '.join(arlbench_tasks())}"
        )
    unknown = Task(id_part(match["task"]), match["task"])
    return match["algorithm"], arlbench_tasks().get(match["task"], unknown)


def space_of(
    algorithm: str, task: Task, names: Sequence[str]
) -> tuple[Space | None, tuple[str, ...]]:
    """Return ARLBench's space if its hyperparameters agree, and notes."""
    space = arlbench_space(algorithm, task.domain)
    if space is None or not set(names) <= set(space.names):
        return None, ()
    absent = [name for name in space.names if name not in names]
    note = f"Not published and set to their defaults: {', '.join(absent)}."
    return space, (note,) if absent else ()


def read_rows(path: Path, key: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """Read the rows of a file, and the names of the hyperparameters.

    The columns are config_id, budget, performance, seed and the hyperparameters.

    Raises:
        InputError: the file cannot be read, lacks a column, or two rows have the same `key`.
    """
    frame = read_csv(path)
    # A file with both names keeps ours: two columns of one name could not be told apart.
    frame = frame.rename(columns={old: new for old, new in _SYNONYMS.items() if new not in frame})
    if "config_id" not in frame and "optimization_step" in frame:
        frame = frame.rename(columns={"optimization_step": "config_id"})
    columns = [str(name) for name in frame]
    prefixed = [name for name in columns if name.startswith(_PREFIX)]
    # If no column has a prefix, every column without another meaning is a hyperparameter.
    names = [name.removeprefix(_PREFIX) for name in prefixed or columns if name not in _COLUMNS]
    frame = frame.rename(columns=lambda name: name.removeprefix(_PREFIX))
    missing = [
        name for name in dict.fromkeys((*key, "budget", "performance", "seed")) if name not in frame
    ]
    if missing:
        raise InputError(f"columns {missing} are missing; the file has {list(frame)}")
    repeated = frame.duplicated(list(key))
    if repeated.any() and "optimization_step" in frame:
        # In some files config_id begins again at each step of the optimizer.
        proposals = frame.groupby(["optimization_step", "config_id"], sort=True)
        frame = frame.assign(config_id=proposals.ngroup())
        repeated = frame.duplicated(list(key))
    if repeated.any():
        # Line 1 is the header, and rows count from 0.
        line = int(repeated.to_numpy().argmax()) + 2
        message = f"{counted(repeated.sum(), 'row', 'repeat')} a ({', '.join(key)})"
        raise InputError(message, line=line)
    return frame, names


def _header(path: Path) -> list[str]:
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as stream:
            return str(stream.readline()).strip().split(",")
    except (OSError, EOFError, zlib.error, ValueError):
        return []  # whatever it is, it is not a table; whoever reads it says so


def _with_configurations(
    frame: pd.DataFrame, names: Sequence[str]
) -> tuple[pd.DataFrame, dict[int, dict[str, Any]], tuple[str, ...]]:
    """Give every distinct configuration one config_id.

    Returned are the rows, the configurations, and notes about what was repaired.
    """
    names = list(names)
    distinct = frame[["config_id", *names]].drop_duplicates()
    differing = distinct.loc[distinct["config_id"].duplicated(), "config_id"].nunique()
    notes: tuple[str, ...] = ()
    if differing:
        frame, added = _split_by_vector(frame, names)
        # The lowest seed stands for its configuration, as `_split_by_vector` compares with it.
        distinct = frame.sort_values("seed", kind="stable")[["config_id", *names]].drop_duplicates(
            "config_id"
        )
        notes = (
            f"hp_differ_by_seed: in {counted(differing, 'configuration')} the hyperparameters "
            f"differ between seeds. Differences after digit {_DIGITS} were taken as round-off (the "
            f"lowest seed's are kept); {added} more are their own configurations.",
        )
    distinct = distinct.sort_values("config_id")
    rows = table_rows({name: distinct[name].tolist() for name in names})
    return frame, dict(zip(map(int, distinct["config_id"]), rows, strict=True)), notes


def _split_by_vector(frame: pd.DataFrame, names: Sequence[str]) -> tuple[pd.DataFrame, int]:
    """Renumber rows whose values differ from the lowest seed's.

    Values are compared rounded, and the new config_ids lie above the others.
    """
    frame = frame.sort_values("seed", kind="stable")
    rounded = frame[list(names)].apply(lambda column: column.map(_rounded)).astype(str)
    vectors = rounded.agg("|".join, axis=1)
    ids = frame["config_id"]
    differs = vectors != vectors.groupby(ids).transform("first")
    added, kinds = (ids[differs].astype(str) + "|" + vectors[differs]).factorize()
    # Above all given ids, so that the ids of the file keep their meaning.
    numbers = ids.mask(differs, 0)
    numbers[differs] = int(ids.max()) + 1 + added
    return frame.assign(config_id=numbers), len(kinds)


def _rounded(value: object) -> object:
    return f"{value:.{_DIGITS}g}" if isinstance(value, float) else value
