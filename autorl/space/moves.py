"""Moves inside a space: the nearest valid configuration, and the perturbation of population-based training.

Perturbing in the unit cube keeps bounds, scale and integer type by construction; multiplying values by 0.8 or 1.2, as
Jaderberg et al. (2017, arXiv 1711.09846) do, keeps none of them, so it is clipped and rounded here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from autorl.space.core import SpaceCore
from autorl.space.hyperparameter import Hyperparameter
from autorl.types import Config

ANCHORS = 8  # valid configurations a repair starts from
ANCHOR_TRIES = 200
GRID = 65  # values of a numeric hyperparameter a repair looks at
BISECTIONS = 20
ATTEMPTS = 16  # joint perturbations tried before moving one hyperparameter at a time


@dataclass(frozen=True)
class Factor:
    """A move of the value itself: times `size` up, times 2 - `size` down."""

    size: float

    def applied(self, hyperparameter: Hyperparameter, value: float, *, up: bool) -> float:
        """Where the moved value lies in the unit interval, inside its bounds."""
        factor = self.size if up else 2 - self.size
        flipped = hyperparameter.scale == "flipped_log"
        moved = 1 - (1 - value) * factor if flipped else value * factor
        lower, upper = hyperparameter.bounds
        return hyperparameter.to_unit(min(upper, max(lower, moved)))


def repair(
    space: SpaceCore,
    config: Mapping[str, Any],
    rng: np.random.Generator,
    keep: Collection[str] = (),
) -> Config:
    """A valid configuration near `config`.

    Values outside their domain go to the nearest one inside, inactive hyperparameters are dropped, active ones that are
    missing are drawn. While rules are broken, the one hyperparameter moves whose move mends most of them, least far
    where several do, and those in `keep` only if no other helps. Where no single move helps, the result is reached from
    valid configurations by restoring as many of the wanted values as possible; of several the one with fewest kept
    values lost, then fewest moves, then least distance is taken.
    """
    wanted = complete(space, config, rng)
    found = _descend(space, wanted, keep)
    if found is not None:
        return found
    anchors = [space.default()]
    anchors += [
        found for _ in range(ANCHORS) if (found := space.try_sample(rng, ANCHOR_TRIES)) is not None
    ]
    restored = [_restore(space, wanted, anchor, keep, rng) for anchor in anchors]
    return min(restored, key=lambda result: _cost(space, wanted, result, keep))


def complete(
    space: SpaceCore, config: Mapping[str, Any], rng: np.random.Generator
) -> dict[str, Any]:
    """A value in its domain for every hyperparameter, inactive ones included: given, else drawn. Always n draws."""
    units = rng.random(len(space.names))
    return {
        name: _inside(hyperparameter, config[name], unit)
        if name in config
        else hyperparameter.from_unit(unit)
        for (name, hyperparameter), unit in zip(space.hyperparameters.items(), units, strict=True)
    }


def activate(space: SpaceCore, values: Mapping[str, Any]) -> Config:
    """The active part of a complete assignment."""
    return Config(space.hierarchy.active_part(values))


def perturb(
    space: SpaceCore,
    config: Mapping[str, Any],
    rng: np.random.Generator,
    names: Collection[str],
    *,
    step: float,
    resample: float,
    factor: float | None = None,
) -> Config:
    """A valid neighbour of `config`: `names` that are active move, everything else keeps its value.

    Numeric: with probability `resample` drawn anew, otherwise `step` up or down in the unit interval, clipped at the
    bounds (away from a bound it already sits on); an integer moves by at least one. With a `factor` f instead of a step
    the value is multiplied by f or by 2 - f, as in Jaderberg et al. with 1.2 and 0.8; on a flipped logarithm its
    distance from 1 is. Ordinal: one choice up or down, or drawn anew among the others. Categorical: another choice with
    probability `resample`, otherwise unchanged. At least
    one hyperparameter moves if any can. A hyperparameter that is not among `names` neither appears nor disappears: a
    move of its parents that would do that is not made. Children among `names` that become active are drawn.
    """
    start = space.config(config) if space.is_valid(config) else repair(space, config, rng)
    movable = [
        name for name in space.names if name in names and name in start and _can_move(space, name)
    ]
    if not movable:
        return start
    length = step if factor is None else Factor(factor)
    for _ in range(ATTEMPTS):
        moved = {
            name: _neighbour(space.hyperparameters[name], start[name], rng, length, resample)
            for name in movable
        }
        if all(moved[name] == start[name] for name in movable):
            forced = movable[int(rng.integers(len(movable)))]
            moved[forced] = _neighbour(
                space.hyperparameters[forced], start[forced], rng, length, 1.0
            )
        result = _moved(space, start, moved, complete(space, start, rng), names)
        if result != start and not space.violated(result):
            return result
    return _move_one(space, start, movable, names, rng)


def place(
    space: SpaceCore,
    config: Config,
    values: Mapping[str, Any],
    rng: np.random.Generator,
    names: Collection[str],
) -> Config | None:
    """The valid `config` with `values` for some of `names`, by the rules of `perturb`; None if that breaks a rule.

    Values of hyperparameters that are not active then are dropped; others of `names` that become active are drawn.
    """
    result = _moved(space, config, values, complete(space, config, rng), names)
    return None if space.violated(result) else result


def _moved(
    space: SpaceCore,
    start: Config,
    moved: Mapping[str, Any],
    drawn: Mapping[str, Any],
    names: Collection[str],
) -> Config:
    """`start` with the values of `moved`, `drawn` for what becomes active; what changes others than `names` is undone.

    Whether a hyperparameter is active follows from its ancestors, so undoing their moves brings it back.
    """
    while True:
        result = activate(space, {**drawn, **moved})
        strays = [name for name in {*result} ^ {*start} if name not in names]
        if not strays:
            return result
        undone = set[str]().union(*(space.hierarchy.ancestors(name) for name in strays))
        moved = {name: value for name, value in moved.items() if name not in undone}


def _move_one(
    space: SpaceCore,
    start: Config,
    movable: list[str],
    names: Collection[str],
    rng: np.random.Generator,
) -> Config:
    """The nearest valid move of one hyperparameter, in random order of hyperparameters; `start` if there is none."""
    for position in rng.permutation(len(movable)):
        name = movable[int(position)]
        values = complete(space, start, rng)
        for value in _by_distance(space.hyperparameters[name], start[name]):
            result = _moved(space, start, {name: value}, values, names)
            if result != start and not space.violated(result):
                return result
    return start


def _neighbour(
    hyperparameter: Hyperparameter,
    value: Any,
    rng: np.random.Generator,
    length: float | Factor,
    resample: float,
) -> Any:
    anew, unit, up = rng.random() < resample, rng.random(), rng.random() < 0.5
    if hyperparameter.numeric:
        here = hyperparameter.to_unit(value)
        ends = [
            length.applied(hyperparameter, value, up=up)
            if isinstance(length, Factor)
            else here + sign * length
            for up, sign in ((True, 1), (False, -1))
        ]
        return _numeric_neighbour(
            hyperparameter, value, unit if anew else None, ends if up else ends[::-1]
        )
    position, n = hyperparameter.index(value), hyperparameter.n_choices
    if anew:
        other = min(n - 2, int(unit * (n - 1)))
        return hyperparameter.choices[other + (other >= position)]
    if hyperparameter.type == "ordinal":
        shift = 1 if up else -1
        return hyperparameter.choices[
            position + shift if 0 <= position + shift < n else position - shift
        ]
    return value


def _numeric_neighbour(
    hyperparameter: Hyperparameter, value: Any, anew: float | None, ends: list[float]
) -> Any:
    """The value at `anew` in the unit interval, else at one of two `ends`; integers always move."""
    moved = hyperparameter.from_unit(ends[0] if anew is None else anew)
    if moved == value:
        moved = hyperparameter.from_unit(ends[1])
    if moved == value and hyperparameter.type == "int":
        lower, upper = hyperparameter.bounds
        moved = value + 1 if (ends[0] > ends[1] and value < upper) or value == lower else value - 1
    return moved


def _can_move(space: SpaceCore, name: str) -> bool:
    hyperparameter = space.hyperparameters[name]
    return hyperparameter.numeric or hyperparameter.n_choices > 1


def _inside(hyperparameter: Hyperparameter, value: Any, unit: float) -> Any:
    """`value` if it is in the domain, else the nearest number inside, else the value at `unit`."""
    if hyperparameter.accepts(value):
        return float(value) if hyperparameter.type == "float" else value
    number = isinstance(value, int | float) and not isinstance(value, bool) and value == value
    if not number or not (
        hyperparameter.numeric or all(_real(choice) for choice in hyperparameter.choices)
    ):
        return hyperparameter.from_unit(unit)
    if not hyperparameter.numeric:
        return min(hyperparameter.choices, key=lambda choice: abs(choice - value))
    lower, upper = hyperparameter.bounds
    clipped = min(upper, max(lower, value))
    return round(clipped) if hyperparameter.type == "int" else float(clipped)


def _real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _by_distance(hyperparameter: Hyperparameter, value: Any) -> Iterator[Any]:
    """Other values, nearest first: every choice, or a grid over the unit interval and the neighbours of an integer."""
    if hyperparameter.numeric:
        here = hyperparameter.to_unit(value)
        found = [hyperparameter.from_unit(unit) for unit in np.linspace(0.0, 1.0, GRID)]
        if hyperparameter.type == "int":
            found += [near for near in (value - 1, value + 1) if hyperparameter.accepts(near)]
    else:
        here = hyperparameter.to_unit(value)
        found = list(hyperparameter.choices)
    distances = {hyperparameter.to_unit(item): item for item in found}
    for unit in sorted(distances, key=lambda unit: (abs(unit - here), unit)):
        if distances[unit] != value:
            yield distances[unit]


def _descend(space: SpaceCore, wanted: dict[str, Any], keep: Collection[str]) -> Config | None:
    """The valid configuration that single moves lead to, each breaking fewer rules than before; None at a dead end."""
    values = wanted
    while True:
        current = activate(space, values)
        broken = space.violated(current)
        if not broken:
            return current
        involved = _with_ancestors(
            space, [name for name in space.names if any(name in rule.names for rule in broken)]
        )
        groups = (
            [name for name in involved if name not in keep],
            [name for name in involved if name in keep],
        )
        moves = (_single_move(space, values, group, len(broken)) for group in groups)
        moved = next((move for move in moves if move is not None), None)
        if moved is None:
            return None
        values = moved


def _single_move(
    space: SpaceCore, values: dict[str, Any], names: list[str], n_broken: int
) -> dict[str, Any] | None:
    """`values` after the move of one of `names` leaving fewest rules broken, the smallest such; None: none helps."""
    best: tuple[int, float, dict[str, Any]] | None = None
    for name in names:
        hyperparameter = space.hyperparameters[name]
        fewest, nearest = n_broken, None
        for value in _by_distance(hyperparameter, values[name]):
            n = _n_broken(space, {**values, name: value})
            if n < fewest:
                fewest, nearest = n, {**values, name: value}
            if n == 0:
                break
        if nearest is None:
            continue
        nearest = _bisect(space, nearest, name, values[name])
        distance = _distance(hyperparameter, values[name], nearest[name])
        if best is None or (fewest, distance) < best[:2]:
            best = (fewest, distance, nearest)
    return None if best is None else best[2]


def _n_broken(space: SpaceCore, values: Mapping[str, Any]) -> int:
    return len(space.violated(activate(space, values)))


def _bisect(space: SpaceCore, good: dict[str, Any], name: str, target: Any) -> dict[str, Any]:
    """`good` with the value of `name` as near to `target` as bisection can bring it without breaking more rules."""
    hyperparameter = space.hyperparameters[name]
    if not hyperparameter.numeric:
        return good
    allowed = _n_broken(space, good)
    near, far = hyperparameter.to_unit(good[name]), hyperparameter.to_unit(target)
    for _ in range(BISECTIONS):
        middle = {**good, name: hyperparameter.from_unit((near + far) / 2)}
        if _n_broken(space, middle) > allowed:
            far = (near + far) / 2
        else:
            good, near = middle, (near + far) / 2
    return good


def _restore(
    space: SpaceCore,
    wanted: dict[str, Any],
    anchor: Config,
    keep: Collection[str],
    rng: np.random.Generator,
) -> Config:
    """The valid `anchor` with each hyperparameter in turn (`keep` first) set to its wanted value where possible."""
    values = {**wanted, **anchor}
    shuffled = [space.names[int(position)] for position in rng.permutation(len(space.names))]
    names = sorted(shuffled, key=lambda name: name not in keep)
    for name in names:
        attempt = {**values, name: wanted[name]}
        if not space.violated(activate(space, attempt)):
            values = attempt
    for name in names:
        values = (
            _bisect(space, values, name, wanted[name]) if values[name] != wanted[name] else values
        )
    return activate(space, values)


def _with_ancestors(space: SpaceCore, names: list[str]) -> list[str]:
    found = set(names).union(*(space.hierarchy.ancestors(name) for name in names))
    return [name for name in space.names if name in found]


def _cost(
    space: SpaceCore, wanted: Mapping[str, Any], result: Config, keep: Collection[str]
) -> tuple[int, int, float]:
    moved = [name for name in result if result[name] != wanted[name]]
    distance = sum(
        _distance(space.hyperparameters[name], wanted[name], result[name]) for name in moved
    )
    return sum(name in keep for name in moved), len(moved), distance


def _distance(hyperparameter: Hyperparameter, one: Any, other: Any) -> float:
    if hyperparameter.type in ("categorical", "constant"):
        return float(one != other)
    return abs(hyperparameter.to_unit(one) - hyperparameter.to_unit(other))
