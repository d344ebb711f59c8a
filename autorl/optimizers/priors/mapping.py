"""Tables of tasks in the unit cube of a study's space.

Recorded tables may have other names, other ranges, other scales and other hyperparameters:

- a name that the space does not have is looked for among the synonyms of the libraries;
- a value outside a range keeps its place beyond the cube, so that a surrogate knows where it was,
  and is moved to the bound where it is proposed;
- numbers among ordered choices lie between the two choices nearest to them, on the logarithm where
  all are positive; among choices without order they are the nearest;
- a configuration with a choice that the space does not have is left out, and where that leaves out
  more than half of them, the hyperparameter instead;
- read by *places*, a number or an ordered choice lies where it lies in the recorded range, so that
  40 % of one range becomes 40 % of another, whatever the values are;
- a hyperparameter that was not recorded is at its default in what is proposed, and no part of the
  task's surrogate; one that the space does not have is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autorl.core.plain_text import counted, listed
from autorl.core.types import Config, InputError
from autorl.optimizers.priors.packed import Array
from autorl.optimizers.priors.table import FEWEST, TaskTable
from autorl.space import Hyperparameter, Space
from autorl.space.canonical import is_number

BEYOND = 0.5
"""How far beyond the unit interval a place is told apart."""
ALIKE = 0.05
"""Mean distance of values and places in the unit interval up to which ranges are the same."""
_DIGITS = 3
SYNONYMS: tuple[frozenset[str], ...] = tuple(
    frozenset(names.split())
    for names in (
        "learning_rate lr",
        "gamma discount",
        "gae_lambda lam",
        "batch_size minibatch_size buffer_batch_size",
        "n_epochs update_epochs",
        "n_steps num_steps rollout_length",
        "n_envs num_envs",
        "clip_range clip_eps clip_coef",
        "clip_range_vf vf_clip_eps",
        "ent_coef entropy_coef",
        "vf_coef value_coef",
        "exploration_initial_eps initial_epsilon",
        "exploration_final_eps target_epsilon final_epsilon",
        "prioritized buffer_prio_sampling",
        "priority_alpha buffer_alpha",
        "priority_beta buffer_beta",
        "priority_eps buffer_epsilon",
    )
)
"""Names of one hyperparameter in Stable-Baselines3, the engine, ARLBench and CleanRL.

What is called so has the same unit everywhere.
"""


@dataclass(frozen=True, eq=False)
class MappedTask:
    """A task's table in the unit cube of a space.

    Attributes:
        source, environment: where its table is from.
        units: shape (n, d): the places of its configurations, by the searched hyperparameters of
            the space; from -`BEYOND` to 1 + `BEYOND`. The default's place where nothing is known.
        scores: shape (n,), 0 to 1.
        recorded: shape (d,): whether a hyperparameter is a part of the table and differs in it.
        weight: what it counts before the study has results; those of a prior have the sum 1.
        sha256: of the source's manifest.
        note: one line: what was shared, and what not.
        prior: name of the prior file that it is from, "" of a landscape or study.
    """

    source: str
    environment: str
    units: Array
    scores: Array
    recorded: np.ndarray
    weight: float = 1.0
    sha256: str = ""
    note: str = ""
    prior: str = ""


def searched(space: Space) -> list[Hyperparameter]:
    """List the hyperparameters of a space that have more than one value."""
    return [item for item in space.hyperparameters.values() if item.varies]


def map_task(table: TaskTable, space: Space, *, by_place: bool = False) -> MappedTask:
    """Map a table to the unit cube of a space.

    Args:
        table: of the task.
        space: of the study.
        by_place: whether numbers keep their places in the recorded range, not their values.

    Raises:
        InputError: no hyperparameter is shared, or too few configurations can be mapped.
    """
    items = searched(space)
    sources = {item.name: _name_in(table.names, item.name) for item in items}
    read = _places_in_range if by_place else _places
    columns = {
        item.name: read(item, name, table.configs)
        for item in items
        if (name := sources[item.name]) is not None
    }
    # A choice that the space lacks costs a configuration, or the hyperparameter.
    columns = {name: places for name, places in columns.items() if np.isnan(places).mean() <= 0.5}
    if not columns:
        recorded = listed(table.names, 8)
        raise InputError(f"it shares no hyperparameter with the space: it has {recorded}")
    rows = np.flatnonzero(~np.isnan(np.array(list(columns.values()))).any(axis=0))
    if len(rows) < FEWEST:
        message = f"only {counted(len(rows), 'configuration', 'have')} choices of the space"
        raise InputError(f"{message}, {FEWEST} are needed")
    units = np.tile([item.to_unit(item.default) for item in items], (len(rows), 1))
    for place, item in enumerate(items):
        if item.name in columns:
            units[:, place] = columns[item.name][rows]
    scores = table.scores[rows]
    if not scores.max() > scores.min():
        raise InputError("the configurations that can be mapped score the same")
    recorded = np.ptp(units, axis=0) > 0  # what was not recorded is at the default
    if not recorded.any():
        raise InputError("no hyperparameter that it shares with the space differs in it")
    return MappedTask(
        table.source,
        table.environment,
        units,
        scores,
        recorded,
        sha256=table.sha256,
        note=_note(table, sources, columns, len(rows)),
        prior=table.prior,
    )


def _note(
    table: TaskTable, sources: Mapping[str, str | None], columns: Mapping[str, Array], rows: int
) -> str:
    """Say what a table and a space share.

    Args:
        table: of the task.
        sources: names in the table by those of the space, None where it was not recorded.
        columns: what was mapped, by name of the space.
        rows: configurations that were mapped.
    """
    text = f"{counted(rows, 'configuration')}, {len(columns)} of {len(sources)} hyperparameters"
    missing = [name for name, source in sources.items() if source is None]
    if missing:
        text += f"; not recorded: {listed(missing, 6)}"
    unmapped = [name for name, source in sources.items() if source and name not in columns]
    if unmapped:
        text += f"; recorded with values that are no choices of the space: {listed(unmapped, 6)}"
    used = set(sources.values())
    ignored = [name for name in table.names if name not in used]
    return text + (f"; not in the space: {listed(ignored, 6)}" if ignored else "")


def _name_in(names: Sequence[str], name: str) -> str | None:
    """Return what a hyperparameter is called among names, or None."""
    if name in names:
        return name
    synonyms = next((group for group in SYNONYMS if name in group), frozenset())
    return next((recorded for recorded in names if recorded in synonyms), None)


def _places(item: Hyperparameter, name: str, configs: Sequence[Config]) -> Array:
    """Return the places of recorded values on a hyperparameter's unit interval.

    Shape (n,), NaN for a choice that it does not have. An inactive hyperparameter is at its
    default.
    """
    default = item.to_unit(item.default)
    return np.array(
        [_place(item, config[name]) if name in config else default for config in configs]
    )


def _places_in_range(item: Hyperparameter, name: str, configs: Sequence[Config]) -> Array:
    """Return the places of recorded values in their own range, shape (n,).

    The range goes from the least to the largest recorded value, on the study's scale; ordered
    choices are at equal distances. Choices without order, and values that are not all numbers, are
    read by value, and so is a range that is the study's.
    """
    by_value = _places(item, name, configs)
    rows = [row for row, config in enumerate(configs) if name in config]
    values = [configs[row][name] for row in rows]
    if item.type == "categorical" or not values or not all(is_number(value) for value in values):
        return by_value
    numbers: Array = np.array(values, dtype=np.float64)
    margin = 0.0
    if item.type == "ordinal":
        numbers = np.unique(numbers, return_inverse=True)[1].astype(np.float64)
        margin = 0.5
    elif item.scale == "log" and numbers.min() > 0:
        numbers = np.log(numbers)
    elif item.scale == "flipped_log" and numbers.max() < 1:
        numbers = -np.log1p(-numbers)
    low = float(numbers.min()) - margin
    high = float(numbers.max()) + margin
    if not high > low:
        return by_value
    places = by_value.copy()
    places[rows] = (numbers - low) / (high - low)
    # The least and the largest of n draws are about 1 / n inside the range.
    alike = float(np.nanmean(np.abs(places - by_value))) <= ALIKE + 1 / len(rows)
    return by_value if alike else places


def _place(item: Hyperparameter, value: object) -> float:
    if item.numeric:
        return _numeric_place(item, value)
    value = item.canonical(value)
    if item.accepts(value):
        return item.to_unit(value)
    if not is_number(value):
        return math.nan
    place = _between(item.choices, value)
    if item.type == "ordinal" or math.isnan(place):
        return place
    # A surrogate takes choices without order by their number.
    number = min(item.n_choices - 1, max(0, math.floor(place * item.n_choices)))
    return (number + 0.5) / item.n_choices


def _numeric_place(item: Hyperparameter, value: object) -> float:
    """Return the place of a number, which may lie beyond the interval."""
    if not is_number(value) or not math.isfinite(value):
        return math.nan
    lower, upper = item.bounds
    if lower <= value <= upper:
        return item.to_unit(value)
    if item.scale == "log":
        if value <= 0:
            return -BEYOND
        place = math.log(value / lower) / math.log(upper / lower)
    elif item.scale == "flipped_log":
        if value >= 1:
            return 1 + BEYOND
        place = math.log((1 - lower) / (1 - value)) / math.log((1 - lower) / (1 - upper))
    else:
        place = (value - lower) / (upper - lower)
    return min(1 + BEYOND, max(-BEYOND, place))


def _between(choices: Sequence[object], value: float) -> float:
    """Return the place of a number among ordered choices.

    NaN where these are no numbers.
    """
    numbers = [choice for choice in choices if is_number(choice)]
    if len(numbers) < len(choices) or numbers != sorted(numbers):
        return math.nan
    axis = np.array(numbers, dtype=np.float64)
    at = float(value)
    if axis[0] > 0:
        axis = np.log(axis)
        if at <= 0:
            return -BEYOND
        at = math.log(at)
    count = len(axis)
    inside = float(np.interp(at, axis, np.arange(count)))
    # Beyond the ends by the distance of the two choices there.
    if count > 1 and at > axis[-1]:
        inside += (at - axis[-1]) / (axis[-1] - axis[-2])
    if count > 1 and at < axis[0]:
        inside -= (axis[0] - at) / (axis[1] - axis[0])
    return min(1 + BEYOND, max(-BEYOND, (inside + 0.5) / count))


def config_at(space: Space, units: Array) -> Config:
    """Return the configuration at a place, which may break rules.

    Constants have their value.

    Args:
        space: of the place.
        units: shape (d,), in the unit cube.
    """
    places = dict(zip((item.name for item in searched(space)), units.tolist(), strict=True))
    return space.from_unit(np.array([places.get(name, 0.5) for name in space.names]))


def proposable(space: Space, units: Array) -> Config:
    """Make a valid configuration of a place, shape (d,).

    It is moved into the cube. If it breaks rules it is repaired, always
    in the same way. Floats have three digits: a place is stored with few more, and 0.0003 shall not
    become 0.00030004.
    """
    exact = config_at(space, np.clip(units, 0.0, 1.0))
    config = Config(
        {name: _short(space.hyperparameters[name], value) for name, value in exact.items()}
    )
    if space.is_valid(config):
        return config
    return space.repair(config, np.random.default_rng(0))


def _short(item: Hyperparameter, value: Any) -> Any:
    """Round a float to three digits.

    On the flipped logarithm they are those of its distance from 1.
    """
    if item.type != "float":
        return value
    if item.scale == "flipped_log":
        return item.tidy(1.0 - float(f"{1.0 - value:.{_DIGITS}g}"))
    return item.tidy(float(f"{value:.{_DIGITS}g}"))


def places_of(space: Space, configs: Sequence[Config]) -> Array:
    """Return the places of configurations of the space, shape (n, d).

    An inactive hyperparameter is at its default.
    """
    items = searched(space)
    rows = [
        [item.to_unit(config.get(item.name, item.default)) for item in items] for config in configs
    ]
    return np.array(rows, dtype=np.float64).reshape(len(configs), len(items))


def moved(
    units: Array,
    radius: float,
    is_category: np.ndarray,
    rng: np.random.Generator,
    anywhere: Array | None = None,
) -> Array:
    """Draw places near others.

    Numbers make a step, and now and then there is another choice.

    Args:
        units: shape (..., d).
        radius: deviation of a step, and probability of another choice.
        is_category: shape (d,), a mask.
        rng: of the draws.
        anywhere: places whose choices are the others, as `units`; None: they are drawn.
    """
    step = units + radius * rng.standard_normal(units.shape)
    # Reflected at the faces: steps that are cut off would pile up there.
    reflected = 1 - np.abs(1 - np.abs(step) % 2)
    redraw = rng.random(units.shape) < radius
    if anywhere is None:
        anywhere = rng.random(units.shape)
    return np.where(is_category, np.where(redraw, anywhere, units), reflected)


def categories_of(space: Space) -> np.ndarray:
    """Return which searched hyperparameters are choices without order, a mask."""
    return np.array([item.type == "categorical" for item in searched(space)], dtype=bool)
