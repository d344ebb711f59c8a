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

from collections.abc import Mapping
from pathlib import Path

from autorl.core.types import InputError
from autorl.landscapes.importers.arlbench import (
    EVALUATION,
    METRIC,
    ORIGIN,
    csv_files,
    read_rows,
    space_of,
    status_of,
    task_of,
    written,
)
from autorl.landscapes.importers.common import Options, Run, Source
from autorl.landscapes.importers.inference import numbered, table_rows
from autorl.landscapes.manifest import Manifest, Objective
from autorl.space import Space

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


def recognises(path: Path) -> bool:
    """Tell whether a folder has one of the folders of methods."""
    return any((path / name).is_dir() for name in METHODS)


def import_source(path: Path, options: Options) -> list[Manifest]:
    """Import the folder of methods to `<namespace>-<method>/<algorithm>/<environment>`.

    Raises:
        InputError: no method folder in it, or a file is not as described above.
    """
    folders = [path / name for name in METHODS if (path / name).is_dir()]
    if not folders:
        raise InputError(f"none of the folders {', '.join(METHODS)} is in it")
    files = [file for folder in folders for file in csv_files(folder)]
    return written(files, _read, options)


def _read(path: Path, options: Options) -> Source:
    method = path.parent.name
    algorithm, task = task_of(path)
    frame, names = read_rows(path, ("optimisation_seed", "config_id", "seed"))
    space, notes = space_of(algorithm, task, names)
    distinct, numbers = numbered(table_rows({name: frame[name].tolist() for name in names}))
    configs = {
        number: _active(space, row) if space is not None else row
        for number, row in distinct.items()
    }
    starts = [0] * len(frame)
    if method == "pbt":
        # config_id counts through the members of a generation, then through those of the next.
        population = (frame["config_id"].max() + 1) // _GENERATIONS
        starts = (frame["config_id"] // population * frame["budget"]).astype(int).tolist()
        notes += ("PBT: which run a run continues was not published, so parent_run is empty.",)
    elif method == "rs":
        notes += (_UNPAIRED,)
    columns = ("optimisation_seed", "config_id", "seed", "budget", "performance")
    rows = zip(*(frame[name].tolist() for name in columns), numbers, starts, strict=True)
    runs = [
        Run(
            config_id=number,
            seed=seed,
            steps=[start + int(budget)],
            metrics={METRIC: [score]},
            status=status_of(score),
            # The order of an optimizer's proposals is data here, so it is kept with each run.
            member=f"{int(optimizer)}/{proposal}",
            start_step=start,
        )
        for optimizer, proposal, seed, budget, score, number, start in rows
    ]
    name = METHODS[method]
    optimizers = sorted({int(seed) for seed in frame["optimisation_seed"]})
    return Source(
        path=path,
        files=[path],
        id=f"{options.namespace or 'arlbench'}-{name}/{algorithm}/{task.environment}",
        format="ARLBench",
        configs=configs,
        runs=runs,
        objective=Objective(floor=task.floor),
        space=space,
        roles={"tuning": sorted(set(frame["seed"]))},
        origin=name,
        sampler={"name": name, "seeds": optimizers},
        evaluation={**EVALUATION, "at": "end"},
        notes=notes,
        about={
            **ORIGIN,
            "description": (
                f"ARLBench's published runs of {name} tuning {algorithm.upper()} on "
                f"{task.environment}."
            ),
        },
        return_bounds=task.bounds,
    )


def _active(space: Space, row: Mapping[str, object]) -> dict[str, object]:
    """Return the given values that are active.

    PBT files also list inactive ones.
    """
    # Conditions need all values, those with a default too.
    active = space.active({**space.defaults, **row})
    return {name: value for name, value in row.items() if name in active}
