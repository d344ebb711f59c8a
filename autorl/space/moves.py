"""Moves inside a space: repair, and the perturbation of population-based training.

Perturbing in the unit cube keeps bounds, scale and integer type by construction; multiplying values
by 0.8 or 1.2, as Jaderberg et al. (2017, arXiv 1711.09846) do, keeps none of them, so it is clipped
and rounded here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autorl.core.types import Config
from autorl.space.canonical import is_number
from autorl.space.core import SpaceCore
from autorl.space.hierarchy import ancestors_of
from autorl.space.hyperparameter import Hyperparameter

ANCHORS = 8  # valid configurations a repair starts from
ANCHOR_TRIES = 200
GRID = 65  # values of a numeric hyperparameter a repair looks at
BISECTIONS = 20  # of at most the whole range: to a millionth of it
ATTEMPTS = 16  # joint perturbations tried before moving one hyperparameter at a time


def decode(
    space: SpaceCore, vector: Sequence[float] | NDArray[np.float64], rng: np.random.Generator
) -> Config:
    """Return the valid configuration nearest to `from_unit(vector)`, shape (n,)."""
    config = space.from_unit(vector)
    return repair(space, config, rng) if space.violated(config) else config


def repair(
    space: SpaceCore,
    config: Mapping[str, object],
    rng: np.random.Generator,
    keep: Collection[str] = (),
) -> Config:
    """Return a valid configuration near `config`.

    Values outside their domain go to the nearest one inside, inactive hyperparameters are dropped,
    active ones that are missing are drawn. While rules are broken, the one hyperparameter moves
    whose move mends most of them, least far where several do, and those in `keep` only if no other
    helps. If no single move helps, the result is reached from valid configurations by restoring as
    many of the target's values as possible; of several the one with fewest values of `keep` lost,
    then fewest moves, then least distance is taken.
    """
    space.require_known(config)
    target = _complete(space, config, rng)
    descended = _descend(space, target, keep)
    if descended is not None:
        return descended
    anchors = [space.default()]
    for _ in range(ANCHORS):
        sampled = space.try_sample(rng, ANCHOR_TRIES)
        if sampled is not None:
            anchors.append(sampled)
    restored = [_restore(space, target, anchor, keep, rng) for anchor in anchors]
    return min(restored, key=lambda result: _cost(space, target, result, keep))


def _complete(
    space: SpaceCore, config: Mapping[str, object], rng: np.random.Generator
) -> dict[str, Any]:
    """Give every hyperparameter a value in its domain, inactive ones included.

    Values that `config` does not give are drawn.
    """
    # Always n draws: what is drawn afterwards does not depend on what `config` holds.
    units = rng.random(len(space.names))
    return {
        name: _inside(hyperparameter, config[name], unit)
        if name in config
        else hyperparameter.from_unit(unit)
        for (name, hyperparameter), unit in zip(space.hyperparameters.items(), units, strict=True)
    }


def perturb(
    space: SpaceCore,
    config: Mapping[str, object],
    rng: np.random.Generator,
    names: Collection[str] | None = None,
    step: float = 0.2,
    resample: float = 0.25,
    factor: float | None = None,
    divide: bool = False,
) -> Config:
    """Move those of `names` that are active, and keep every other value.

    By default `names` are those that are `changeable`.

    Numeric: with probability `resample` drawn anew, otherwise `step` up or down in the unit
    interval, clipped at the bounds (away from a bound it already sits on); an integer moves by at
    least one. With a `factor` f instead of a step the value is multiplied by f or by 2 - f, as in
    Jaderberg et al. with 1.2 and 0.8, or divided by f if it is to `divide`; on a flipped logarithm
    its distance from 1 is. Ordinal: one choice up or down, or drawn anew among the others.
    Categorical: another choice with probability `resample`, otherwise unchanged.

    At least one hyperparameter moves if any can. A hyperparameter that is not among `names` neither
    appears nor disappears: a move of its parents that would do that is not made. Children among
    `names` that become active are drawn.

    Returns:
        A valid configuration; `config` itself, or its repair, where no move is valid.
    """
    names = space.changeable if names is None else names
    space.require_known(names)
    start = space.config(config) if space.is_valid(config) else repair(space, config, rng)
    movable = [
        name
        for name in space.names
        if name in names and name in start and space.hyperparameters[name].varies
    ]
    if not movable:
        return start

    def end(hyperparameter: Hyperparameter, value: float, up: bool) -> float:
        """Return where a move ends, perhaps outside the unit interval."""
        if factor is None:
            return hyperparameter.to_unit(value) + (step if up else -step)
        size = factor if up else 1 / factor if divide else 2 - factor
        flipped = hyperparameter.scale == "flipped_log"
        moved = 1 - (1 - value) * size if flipped else value * size
        # Ray Tune clips nothing: of 200 moves from 9e-4 in 1e-4..1e-3, 77 left the bounds.
        lower, upper = hyperparameter.bounds
        return hyperparameter.to_unit(min(upper, max(lower, moved)))

    for _ in range(ATTEMPTS):
        moved = {
            name: _neighbour(space.hyperparameters[name], start[name], rng, end, resample)
            for name in movable
        }
        # Categoricals move with probability `resample` alone: often nothing has.
        if all(moved[name] == start[name] for name in movable):
            forced = movable[int(rng.integers(len(movable)))]
            moved[forced] = _neighbour(space.hyperparameters[forced], start[forced], rng, end, 1.0)
        result = _moved(space, start, moved, _complete(space, start, rng), names)
        if result != start and not space.violated(result):
            return result
    # Tight rules may refuse every joint move and allow single ones.
    return _move_one(space, start, movable, names, rng)


def place(
    space: SpaceCore,
    config: Config,
    values: Mapping[str, object],
    rng: np.random.Generator,
    names: Collection[str],
) -> Config | None:
    """Set some of `names` in the valid `config`.

    The rules of `perturb` hold. Values of hyperparameters that are not active then are dropped;
    others of `names` that become active are drawn.

    Returns:
        None if that breaks a rule.
    """
    result = _moved(space, config, values, _complete(space, config, rng), names)
    return None if space.violated(result) else result


def _moved(
    space: SpaceCore,
    start: Config,
    moved: Mapping[str, object],
    drawn: Mapping[str, object],
    names: Collection[str],
) -> Config:
    """Set the values of `moved` in `start`.

    A hyperparameter that becomes active has its value of `drawn`. A move that makes others than
    `names` appear or disappear is undone.
    """
    while True:
        result = space.active_part({**drawn, **moved})
        strays = [name for name in {*result} ^ {*start} if name not in names]
        if not strays:
            return result
        # Whether they are active follows from their ancestors: undoing those moves brings them
        # back, and there are fewer moves each time.
        undone = set[str]().union(*(ancestors_of(name, space.conditions) for name in strays))
        moved = {name: value for name, value in moved.items() if name not in undone}


def _move_one(
    space: SpaceCore,
    start: Config,
    movable: list[str],
    names: Collection[str],
    rng: np.random.Generator,
) -> Config:
    """Make the nearest valid move of one hyperparameter, tried in random order.

    Returns:
        `start` if no hyperparameter has a valid move.
    """
    for position in rng.permutation(len(movable)):
        name = movable[int(position)]
        values = _complete(space, start, rng)
        for value in _by_distance(space.hyperparameters[name], start[name]):
            result = _moved(space, start, {name: value}, values, names)
            if result != start and not space.violated(result):
                return result
    return start


def _neighbour(
    hyperparameter: Hyperparameter,
    value: Any,
    rng: np.random.Generator,
    end: Callable[[Hyperparameter, float, bool], float],
    resample: float,
) -> Any:
    """Draw a neighbour of a value, always with three draws."""
    # All three, needed or not: the next hyperparameter's draws depend on no earlier outcome.
    resampled = rng.random() < resample
    unit = rng.random()
    up = rng.random() < 0.5
    if hyperparameter.numeric:
        ends = [end(hyperparameter, value, way) for way in (up, not up)]
        if not resampled:
            unit = ends[0]
        return _numeric_neighbour(hyperparameter, value, unit, ends)
    position = hyperparameter.index(value)
    n = hyperparameter.n_choices
    if resampled:
        drawn = min(n - 2, int(unit * (n - 1)))  # a position among the other choices
        return hyperparameter.choices[drawn + (drawn >= position)]
    if hyperparameter.type == "ordinal":
        shift = 1 if up else -1
        inside = 0 <= position + shift < n
        return hyperparameter.choices[position + shift if inside else position - shift]
    return value


def _numeric_neighbour(
    hyperparameter: Hyperparameter, value: float, unit: float, ends: list[float]
) -> Any:
    """Return the value at `unit` or, if unchanged, at the second end.

    An integer always moves.
    """
    moved = hyperparameter.from_unit(unit)
    if moved == value:
        moved = hyperparameter.from_unit(ends[1])
    # Multiplied by 1.2 and truncated, a 1 would stay 1 for ever.
    if moved == value and hyperparameter.type == "int":
        lower, upper = hyperparameter.bounds
        up = (ends[0] > ends[1] and value < upper) or value == lower
        moved = value + 1 if up else value - 1
    return moved


def _inside(hyperparameter: Hyperparameter, value: Any, unit: float) -> Any:
    """Return the value, if outside the domain the nearest number inside.

    If no value is near, as for text, the result is the value at `unit`.
    """
    if hyperparameter.accepts(value):
        return float(value) if hyperparameter.type == "float" else value
    is_nan = value != value
    has_numbers = hyperparameter.numeric or all(map(is_number, hyperparameter.choices))
    if not is_number(value) or is_nan or not has_numbers:
        return hyperparameter.from_unit(unit)
    if not hyperparameter.numeric:
        return min(hyperparameter.choices, key=lambda choice: abs(choice - value))
    lower, upper = hyperparameter.bounds
    clipped = min(upper, max(lower, value))
    return round(clipped) if hyperparameter.type == "int" else float(clipped)


def _by_distance(hyperparameter: Hyperparameter, value: Any) -> Iterator[Any]:
    """Yield the other values, nearest first.

    They are every choice, or a grid over the unit interval and the neighbours of an integer.
    """
    if hyperparameter.numeric:
        values = [hyperparameter.from_unit(unit) for unit in np.linspace(0.0, 1.0, GRID)]
        if hyperparameter.type == "int":
            values += [v for v in (value - 1, value + 1) if hyperparameter.accepts(v)]
    else:
        values = list(hyperparameter.choices)
    start = hyperparameter.to_unit(value)
    # By unit: an integer may be at several points of the grid.
    value_at = {hyperparameter.to_unit(v): v for v in values}
    for unit in sorted(value_at, key=lambda unit: (abs(unit - start), unit)):
        if value_at[unit] != value:
            yield value_at[unit]


def _descend(space: SpaceCore, target: dict[str, object], keep: Collection[str]) -> Config | None:
    """Move hyperparameters one by one, each time breaking fewer rules.

    Returns:
        A valid configuration, or None at a dead end.
    """
    values = target
    while True:
        current = space.active_part(values)
        broken = space.violated(current)
        if not broken:
            return current
        # An ancestor can mend a rule too: one that switches what the rule is about off.
        names = set[str]().union(*(rule.names for rule in broken))
        names.update(*(ancestors_of(name, space.conditions) for name in list(names)))
        involved = [name for name in space.names if name in names]
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
    space: SpaceCore, values: dict[str, object], names: list[str], n_broken: int
) -> dict[str, Any] | None:
    """Make the smallest move that leaves fewest rules broken.

    Returns:
        The values after it; None if no move leaves fewer than `n_broken`.
    """
    best: tuple[int, float, dict[str, Any]] | None = None
    for name in names:
        hyperparameter = space.hyperparameters[name]
        fewest = n_broken
        nearest: dict[str, Any] | None = None
        for value in _by_distance(hyperparameter, values[name]):
            attempt = {**values, name: value}
            n = _n_broken(space, attempt)
            if n < fewest:
                fewest = n
                nearest = attempt
            if n == 0:  # nearest first: no other mends all by a smaller move
                break
        if nearest is None:
            continue
        nearest = _bisect(space, nearest, name, values[name])
        distance = _distance(hyperparameter, values[name], nearest[name])
        if best is None or (fewest, distance) < best[:2]:
            best = (fewest, distance, nearest)
    return None if best is None else best[2]


def _n_broken(space: SpaceCore, values: Mapping[str, object]) -> int:
    return len(space.violated(space.active_part(values)))


def _bisect(space: SpaceCore, good: dict[str, object], name: str, target: object) -> dict[str, Any]:
    """Bisect towards `target` without breaking more rules than `good`."""
    hyperparameter = space.hyperparameters[name]
    if not hyperparameter.numeric:
        return good
    allowed = _n_broken(space, good)
    good_unit = hyperparameter.to_unit(good[name])
    target_unit = hyperparameter.to_unit(target)
    for _ in range(BISECTIONS):
        middle_unit = (good_unit + target_unit) / 2
        middle = {**good, name: hyperparameter.from_unit(middle_unit)}
        if _n_broken(space, middle) > allowed:
            target_unit = middle_unit
        else:
            good = middle
            good_unit = middle_unit
    return good


def _restore(
    space: SpaceCore,
    target: dict[str, object],
    anchor: Config,
    keep: Collection[str],
    rng: np.random.Generator,
) -> Config:
    """Set each hyperparameter of the valid `anchor` to its target where possible.

    They have their turns in random order, those in `keep` first.
    """
    # An inactive value of the anchor has its target: a restored parent may make it active.
    values = {**target, **anchor}
    # Random: in a fixed order the results of all anchors would keep and lose the same values.
    shuffled = [space.names[int(position)] for position in rng.permutation(len(space.names))]
    names = sorted(shuffled, key=lambda name: name not in keep)
    for name in names:
        attempt = {**values, name: target[name]}
        if not space.violated(space.active_part(attempt)):
            values = attempt
    for name in names:
        if values[name] != target[name]:
            values = _bisect(space, values, name, target[name])
    return space.active_part(values)


def _cost(
    space: SpaceCore, target: Mapping[str, object], result: Config, keep: Collection[str]
) -> tuple[int, int, float]:
    """Count changes in `keep`, count all changes, and sum their distances."""
    moved = [name for name in result if result[name] != target[name]]
    distance = sum(
        _distance(space.hyperparameters[name], target[name], result[name]) for name in moved
    )
    return sum(name in keep for name in moved), len(moved), distance


def _distance(hyperparameter: Hyperparameter, a: object, b: object) -> float:
    """Measure a distance in the unit interval, 0 or 1 without order."""
    if hyperparameter.type in ("categorical", "constant"):
        return float(a != b)
    return abs(hyperparameter.to_unit(a) - hyperparameter.to_unit(b))
