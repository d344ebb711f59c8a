"""Landscapes for other tools.

They become one flat table (CSV, Parquet), or a study in Optuna's storage.

References:
    [OWASP] OWASP Foundation, "CSV Injection",
        https://owasp.org/www-community/attacks/CSV_Injection.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autorl.core.quiet import quieted
from autorl.core.types import Config, InputError
from autorl.landscapes.ranking import SeedSet
from autorl.landscapes.schema import as_json
from autorl.space import Hyperparameter, canonical_json
from autorl.statistics import parse_aggregate
from autorl.store.outputs import free_output

if TYPE_CHECKING:
    import optuna

    from autorl.landscapes.dataset import Dataset


def export_table(landscape: Dataset, file: str | Path) -> int:
    """Write one row for each evaluation, with its run and configuration.

    The file is a .csv, .csv.gz or .parquet one. In CSV, text that a spreadsheet would take for a
    formula begins with an apostrophe [OWASP].

    Returns:
        The number of rows.

    Raises:
        InputError: another ending, or the file exists.
    """
    target = fresh(file)
    name = target.name.lower()
    if not name.endswith((".csv", ".csv.gz", ".parquet")):
        elsewhere = (
            "an Optuna study in .db, .sqlite, .sqlite3 or .journal, "
            "a DeepCAVE run in a folder without an ending"
        )
        raise InputError(
            f"expected a table in .csv, .csv.gz or .parquet, {elsewhere}", file=str(target)
        )
    if name.endswith(".parquet"):
        landscape.queries.flat_table().write_parquet(str(target), compression="zstd")
    else:
        rows = landscape.queries.flat_table(for_spreadsheets=True)
        compression = "gzip" if name.endswith(".gz") else None
        rows.write_csv(str(target), header=True, compression=compression)
    return landscape.queries.evaluation_count()


def export_optuna(
    landscape: Dataset, file: str | Path, seeds: SeedSet = "tuning", by: str = "mean"
) -> int:
    """Write an Optuna study, a trial for each complete configuration.

    It has a score for every seed of a role.

    A trial's value is the aggregate at the last step, its intermediate values those at every step;
    `config_id` and the aggregate over the test seeds are user attributes. The study is named by the
    landscape's id. A file that ends in .journal becomes a journal storage, any other one an SQLite
    storage.

    Returns:
        The number of trials.

    Raises:
        InputError: the file exists, no such aggregate, or no seeds of the role.
    """
    import optuna
    from optuna.storages.journal import JournalFileBackend

    target = fresh(file)
    trials = _trials(landscape, seeds, by)
    named: dict[str, Any] = {
        "study_name": landscape.manifest.id,
        "direction": landscape.manifest.objective.direction,
    }
    storage: Any = f"sqlite:///{target}"
    with quieted("optuna"):  # its progress lines are not ours to print
        if target.suffix == ".journal":
            storage = optuna.storages.JournalStorage(JournalFileBackend(str(target)))
        optuna.create_study(storage=storage, **named).add_trials(trials)
    return len(trials)


def _trials(landscape: Dataset, seeds: SeedSet, by: str) -> list[optuna.trial.FrozenTrial]:
    import optuna

    aggregate = parse_aggregate(by, key="by")
    grid = landscape.grid
    space = landscape.space
    values = grid.whole_curves(seeds).astype(np.float64)
    test = None
    if "test" in grid.roles:
        last = grid.at(len(grid.steps) - 1).values
        test = last[:, grid.seed_positions("test")].astype(np.float64)
    items = space.hyperparameters
    distributions = {name: optuna_distribution(item) for name, item in items.items()}
    # Aggregates look at the bad end of larger-is-better values.
    sign = landscape.manifest.objective.sign
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
                params={name: optuna_value(items[name], config) for name in config},
                distributions={name: distributions[name] for name in config},
                intermediate_values=dict(zip(grid.steps.tolist(), curve, strict=True)),
                user_attrs=attributes,
            )
        )
    return trials


def fresh(file: str | Path) -> Path:
    """Return a path to write to.

    Raises:
        InputError: it exists, lies in a study or a landscape, or its folder does not exist.
    """
    target = free_output(file)
    if not target.parent.is_dir():
        raise InputError("the folder does not exist", file=str(target.parent))
    return target


def optuna_distribution(
    item: Hyperparameter, *, by_place: bool = False
) -> optuna.distributions.BaseDistribution:
    """Return Optuna's domain of the values themselves, as in exported studies.

    Scales that Optuna lacks become linear, ordered choices become unordered ones.

    Args:
        item: the hyperparameter.
        by_place: keeps both, as samplers need them: choices go by their number, and flipped-log
            values by their place in the unit interval.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    # By number: choices may be lists, and to Optuna True and 1 are the same choice.
    if by_place and item.type == "categorical":
        return CategoricalDistribution(tuple(range(item.n_choices)))
    if by_place and item.type == "ordinal":
        return IntDistribution(0, item.n_choices - 1)
    if by_place and item.scale == "flipped_log":
        return FloatDistribution(0.0, 1.0)
    if item.lower is not None and item.upper is not None and item.type == "float":
        return FloatDistribution(item.lower, item.upper, log=item.scale == "log")
    if item.lower is not None and item.upper is not None:
        return IntDistribution(int(item.lower), int(item.upper), log=item.scale == "log")
    # Choices of a storage are None, bool, int, float or str: lists become their JSON text.
    if as_json(item):
        return CategoricalDistribution([canonical_json(choice) for choice in item.choices])
    return CategoricalDistribution(item.choices)


def optuna_value(item: Hyperparameter, config: Config) -> Any:
    """Return the value of a configuration as `optuna_distribution` has it."""
    value = config[item.name]
    return canonical_json(value) if as_json(item) else value
