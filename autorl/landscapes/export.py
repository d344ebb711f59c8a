"""Landscapes for other tools: one flat table (CSV, Parquet), or a study in Optuna's storage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autorl.landscapes.schema import as_json
from autorl.space import Hyperparameter, canonical_json
from autorl.statistics import parse_aggregate
from autorl.types import Config, InputError

if TYPE_CHECKING:
    import optuna

    from autorl.landscapes.dataset import Landscape, SeedSet


def export_table(landscape: Landscape, file: str | Path) -> int:
    """Write one row for each evaluation, with its run and configuration, to a .csv, .csv.gz or .parquet file.

    Returns:
        The number of rows.

    Raises:
        InputError: another ending, or the file exists.
    """
    target = _fresh(file)
    name = target.name.lower()
    if not name.endswith((".csv", ".csv.gz", ".parquet")):
        raise InputError("expected a file ending in .csv, .csv.gz or .parquet", file=str(target))
    rows = landscape.sql(
        "SELECT * FROM runs JOIN evals USING (run_id) JOIN configs USING (config_id) ORDER BY run_id, step"
    )
    if name.endswith(".parquet"):
        rows.write_parquet(str(target), compression="zstd")
    else:
        rows.write_csv(str(target), header=True, compression="gzip" if name.endswith(".gz") else None)
    return landscape.sql("SELECT count(*) FROM evals").fetchall()[0][0]  # type: ignore[no-any-return]


def export_optuna(landscape: Landscape, file: str | Path, seeds: SeedSet = "tuning", by: str = "mean") -> int:
    """Write an Optuna study to a SQLite file: a trial for each configuration with a score for every seed of a role.

    A trial's value is the aggregate at the last step, its intermediate values those at every step; `config_id` and the
    aggregate over the test seeds are user attributes. The study is named by the landscape's id.

    Returns:
        The number of trials.

    Raises:
        InputError: the file exists, no such aggregate, or no seeds of the role.
    """
    import optuna

    target, aggregate = _fresh(file), parse_aggregate(by, key="by")
    grid, space = landscape.grid, landscape.space
    values = grid.values[:, grid.seed_positions(seeds)].astype(np.float64)
    test = grid.values[:, grid.seed_positions("test"), -1].astype(np.float64) if "test" in grid.roles else None
    distributions = {name: _distribution(item) for name, item in space.hyperparameters.items()}
    minimize = landscape.manifest.objective.direction == "minimize"
    sign = -1.0 if minimize else 1.0  # aggregates look at the bad end of larger-is-better values
    trials = []
    for row in np.flatnonzero(~np.isnan(values).any(axis=(1, 2))):
        curve = [sign * aggregate(sign * column) for column in values[row].T]
        config_id = int(grid.config_ids[row])
        attributes: dict[str, Any] = {"config_id": config_id}
        if test is not None and not np.isnan(test[row]).any():
            attributes["test"] = sign * aggregate(sign * test[row])
        config = landscape.config(config_id)
        trials.append(
            optuna.trial.create_trial(
                value=curve[-1],
                params={name: _value(space.hyperparameters[name], config) for name in config},
                distributions={name: distributions[name] for name in config},
                intermediate_values=dict(zip(grid.steps.tolist(), curve, strict=True)),
                user_attrs=attributes,
            )
        )
    with _silent():
        study = optuna.create_study(
            storage=f"sqlite:///{target}",
            study_name=landscape.manifest.id,
            direction=landscape.manifest.objective.direction,
        )
        study.add_trials(trials)
    return len(trials)


@contextmanager
def _silent() -> Iterator[None]:
    """Optuna's progress lines are not ours to print."""
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(verbosity)


def _fresh(file: str | Path) -> Path:
    target = Path(file)
    if target.exists():
        raise InputError("exists already", file=str(target))
    if not target.parent.is_dir():
        raise InputError("the folder does not exist", file=str(target.parent))
    return target


def _distribution(item: Hyperparameter) -> optuna.distributions.BaseDistribution:
    """Optuna's domain; scales it lacks become linear, ordered choices become unordered ones."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if item.lower is not None and item.upper is not None and item.type == "float":
        return FloatDistribution(item.lower, item.upper, log=item.scale == "log")
    if item.lower is not None and item.upper is not None:
        return IntDistribution(int(item.lower), int(item.upper), log=item.scale == "log")
    return CategoricalDistribution([canonical_json(each) if as_json(item) else each for each in item.choices])


def _value(item: Hyperparameter, config: Config) -> Any:
    value = config[item.name]
    return canonical_json(value) if as_json(item) else value
