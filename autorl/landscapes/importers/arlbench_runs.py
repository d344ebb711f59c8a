"""ARLBench's published optimizer runs as landscape folders.

Optimizers are random search, SMAC, SMAC with Hyperband, and PBT. A file
`<method>/<domain>_<environment>_<algorithm>.csv[.gz]` has one row per (optimisation_seed,
config_id, seed), its budget. Every proposal is a run; its `member` is
`<optimisation seed>/<config_id>`, the order of proposals. In PBT files config_id counts through the
generations, and `budget` is the length of one.

In the published files of random search configurations and scores do not belong together: a model of
the landscape of the same task, which ranks the trials of SMAC with a correlation of 0.6, ranks
those with one of -0.05 (mean over 19 tasks, `benchmarks/arlbench_replay.py`). The landscape's notes
say so.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autorl.core.types import Config, FrozenMap, InputError
from autorl.landscapes.importers.arlbench import (
    EPISODES,
    ORIGIN,
    csv_files,
    read_rows,
    space_of,
    task_of,
)
from autorl.landscapes.importers.common import Options, assemble_tables, errors_naming
from autorl.landscapes.importers.inference import table_rows
from autorl.landscapes.manifest import Manifest, Objective, file_sha256
from autorl.landscapes.schema import Tables, config_rows
from autorl.landscapes.write import write_landscape
from autorl.space import Space

if TYPE_CHECKING:
    import pandas as pd

METHODS: Mapping[str, str] = {
    "rs": "random",
    "smac": "smac",
    "smac_mf": "smac-hyperband",
    "pbt": "pbt",
}
_UNPAIRED = (
    "Random search as published: scores do not follow the configurations beside them (rank "
    "correlation with a model of the task -0.05; SMAC's 0.61). The distribution of scores is "
    "usable, pairs of configuration and score are not."
)
_GENERATIONS = 10  # of every published PBT run
_KEY = ("optimisation_seed", "config_id", "seed")


def recognises(path: Path) -> bool:
    """Tell whether a folder has one of the folders of methods."""
    return any((path / name).is_dir() for name in METHODS)


def import_source(path: Path, options: Options) -> list[Manifest]:
    """Import the folders that `recognises` accepts.

    See `import_arlbench_runs`.
    """
    return import_arlbench_runs(path, options.out, options.namespace or "arlbench", options.replace)


def import_arlbench_runs(
    source: str | Path, target: str | Path, namespace: str = "arlbench", replace: bool = False
) -> list[Manifest]:
    """Import the folder of methods to `target/<namespace>-<method>/<algorithm>/<environment>`.

    Raises:
        InputError: no method folder in it, or a file is not as described above.
    """
    folders = [Path(source) / name for name in METHODS if (Path(source) / name).is_dir()]
    if not folders:
        raise InputError(f"none of the folders {', '.join(METHODS)} is in it", file=str(source))
    return [
        _import_file(file, folder.name, target, namespace, replace)
        for folder in folders
        for file in csv_files(folder)
    ]


def _import_file(
    path: Path, method: str, target: str | Path, namespace: str, replace: bool
) -> Manifest:
    algorithm, task = task_of(path)
    frame, names = read_rows(path, _KEY)
    with errors_naming(path):
        listed = table_rows({column: frame[column].tolist() for column in names})
        space, notes = space_of(algorithm, task, names, listed)
        frame, configs = _configurations(frame, space)
    frame["start"] = 0
    if method == "pbt":
        # config_id counts through the members of a generation, then through those of the next.
        population = (frame["config_id"].max() + 1) // _GENERATIONS
        frame["start"] = frame["config_id"] // population * frame["budget"]
        notes = (
            *notes,
            "PBT: which run a run continues was not published, so parent_run is empty.",
        )
    elif method == "rs":
        notes = (*notes, _UNPAIRED)
    frame["end"] = (frame["start"] + frame["budget"]).astype(int)
    name = METHODS[method]
    manifest = Manifest(
        id=f"{namespace}-{name}/{algorithm}/{task.environment}",
        description=(
            f"ARLBench's published runs of {name} tuning {algorithm.upper()} on {task.environment}."
        ),
        algorithm=algorithm,
        environment=task.environment,
        objective=Objective(floor=task.floor),
        return_bounds=task.bounds,
        steps=tuple(sorted(int(step) for step in frame["end"].unique())),
        seeds=FrozenMap(tuning=sorted(int(seed) for seed in frame["seed"].unique())),
        sampler=FrozenMap(
            name=name, seeds=sorted(int(seed) for seed in frame["optimisation_seed"].unique())
        ),
        **{**ORIGIN, "evaluation": FrozenMap(episodes=EPISODES, at="end")},
        sources=(FrozenMap(path=f"{method}/{path.name}", sha256=file_sha256(path)),),
        notes=notes,
    )
    tables = _tables(frame, config_rows(space, configs, origin=name), algorithm, task.environment)
    return write_landscape(Path(target) / manifest.id, tables, manifest, space, replace)


def _configurations(frame: pd.DataFrame, space: Space) -> tuple[pd.DataFrame, dict[int, Config]]:
    """Number the distinct configurations.

    Returned are the rows with a column `number`, and the configurations by number.
    """
    names = [name for name in space.names if name in frame]
    numbers: dict[str, int] = {}
    configs: dict[int, Config] = {}
    seen: dict[tuple[str, ...], int] = {}  # every configuration is in the file once for each seed
    column = []
    for row in frame[names].to_dict("records"):
        # As text, in which the empty cells (NaN) of two rows are equal.
        cells = tuple(map(str, row.values()))
        if cells not in seen:
            config = space.config(_active(space, row))
            seen[cells] = numbers.setdefault(space.config_hash(config), len(numbers))
            configs.setdefault(seen[cells], config)
        column.append(seen[cells])
    return frame.assign(number=column), configs


def _active(space: Space, row: Mapping[Hashable, object]) -> dict[str, object]:
    """Return the given values that are active.

    PBT files also list inactive ones.
    """
    # An empty cell is NaN, the only value that differs from itself.
    present = {str(name): value for name, value in row.items() if value == value}
    defaults = {name: item.default for name, item in space.hyperparameters.items()}
    # Conditions need all values, those with a default too.
    active = space.active({**defaults, **present})
    return {name: value for name, value in present.items() if name in active}


def _tables(frame: pd.DataFrame, configs: pd.DataFrame, algorithm: str, environment: str) -> Tables:
    import pandas as pd

    frame = frame.sort_values(list(_KEY), ignore_index=True)
    run_ids = np.arange(len(frame))
    runs = pd.DataFrame(
        {
            "run_id": run_ids,
            "seed": frame["seed"],
            "config_id": frame["number"],
            # The order of an optimizer's proposals is data here, so it is kept with each run.
            "member": frame["optimisation_seed"].astype(int).astype(str)
            + "/"
            + frame["config_id"].astype(str),
            "seed_role": "tuning",
            "start_step": frame["start"],
            "last_step": frame["end"],
            "status": np.where(frame["performance"].isna(), "crash", "done"),
            "environment_steps": frame["budget"],
        }
    )
    evals = pd.DataFrame(
        {"run_id": run_ids, "step": frame["end"], "eval_return": frame["performance"]}
    )
    return assemble_tables(configs, runs, evals, algorithm, environment)
