"""Forecasts of the best hyperparameters of longer runs of larger models.

The rank r of a configuration among those trained alike (one study, one task, one step) is fitted by
a quadratic in the place u of a numeric hyperparameter on the unit interval of its scale,

    r = a + b u + c u^2 + sum over axes k of (d_k u + e_k) x_k,        c < 0,

with the axes x = log10 of steps and of parameters, each as far as it varies. The optimum then
moves along a line, u*(x) = -(b + sum d_k x_k) / 2 c. Configurations and seeds are drawn anew
(bootstrap); to each optimum comes what the best configuration of a drawn group was off the line. A
range holds 90 % of these. It is tried on what was measured: without the longest horizon and the
largest size, how often does it hold the best configuration found there?

The weights r^2, by which the upper ranks count, and the residuals were chosen on eleven shipped
landscapes (benchmarks/forecast.py): fitted to the first half of a run, the range held the best
learning rate at the end in 10 of 11, without residuals in 7.

References:
    Khatri et al., "The art of scaling reinforcement learning compute for LLMs", 2025, arXiv
        2510.13786: the sigmoid of `ceiling`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from autorl.core.networks import layers_of, network_weights
from autorl.core.types import Config, InputError
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.grid import Integers
from autorl.landscapes.regression import Array
from autorl.space import Hyperparameter, Space
from autorl.space.extend import EXTENDS, extended

Curve: TypeAlias = tuple[Array, Array]
Slopes: TypeAlias = dict[str, tuple[float | None, float | None, bool]]
PARAMETERS = "parameters"
"""The metric that says the size of a model."""
AXES = ("steps", PARAMETERS)
DRAWS = 300
_TAILS = (0.05, 0.95)
_COVERED = 0.85  # of the cells left out, below which a range is not believed
_WIDEST = 0.9  # part of the space above which a range says nothing
_FEWEST = 6  # configurations of a group that are ranked
_HORIZONS = 9  # from the last step down, each the root of 2 shorter
_POINTS = 5  # of a curve that a sigmoid is fitted to


@dataclass(frozen=True, eq=False)
class Group:
    """Configurations that were trained alike, at one step.

    Attributes:
        source: which data set and task.
        configs: their ids, (n,).
        scores: on tuning seeds, larger is better, (n, seeds); NaN where there is none.
        judged: mean on test seeds, (n,); NaN where there is none.
        units: values on the unit interval by hyperparameter, (n,); NaN where inactive.
        axes: log10 of step and of parameters, (n, 2); NaN where a size is not known.
    """

    source: str
    configs: npt.NDArray[np.intp]
    scores: Array
    judged: Array
    units: dict[str, Array]
    axes: Array


@dataclass(frozen=True)
class Forecast:
    """The prediction of a hyperparameter at a target.

    Attributes:
        low, high: the range of 90 %, on the unit interval.
        slopes: by axis, the interval of how far the optimum moves per decade, and whether its sign
            is sure.
        cells, covered: of what was left out, and in how many the range held the best value.
        refused: why it narrows nothing; empty where it does.
    """

    low: float
    high: float
    slopes: Slopes
    cells: int = 0
    covered: int = 0
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Study:
    """The measurements that forecasts are made of.

    Attributes:
        items: the hyperparameters, with the bounds of the studies.
        groups: see `Group`.
        curves: mean learning curves on tuning seeds, each as steps and scores.
    """

    items: dict[str, Hyperparameter]
    groups: tuple[Group, ...]
    curves: list[Curve] = field(default_factory=list)

    @property
    def seen(self) -> tuple[float | None, float | None]:
        """The most steps and parameters there are, as log10."""
        largest = np.nanmax([[-np.inf, -np.inf], *(g.axes.max(axis=0) for g in self.groups)], 0)
        steps, parameters = (float(x) if np.isfinite(x) else None for x in largest)
        return steps, parameters

    def bounds(self, name: str, found: Forecast) -> tuple[Any, Any]:
        """Return the range of a hyperparameter in its own unit."""
        return self.items[name].from_unit(found.low), self.items[name].from_unit(found.high)


def read(sources: Sequence[Dataset], *, ends: bool = False) -> Study:
    """Read landscapes and studies whose spaces agree.

    Args:
        sources: of one size or several.
        ends: whether the last step of each counts alone. With a schedule of the learning rate a
            shorter run is no part of a longer one.

    Raises:
        InputError: they have no numeric hyperparameter with the same bounds, or too few runs.
    """
    items = _common(sources)
    groups: list[Group] = []
    curves: list[Curve] = []
    # In an order of their own: draws are the same however they were listed.
    ordered = sorted(sources, key=lambda data: (data.manifest.id, str(data.path)))
    for number, data in enumerate(ordered):
        configs = [data.config(int(id)) for id in data.grid.config_ids]
        units = {
            name: np.array([item.to_unit(c[name]) if name in c else np.nan for c in configs])
            for name, item in items.items()
        }
        values = data.manifest.objective.sign * data.grid.values.astype(np.float64)
        if data.manifest.evaluation.get("reduce") == "best":
            values = np.fmax.accumulate(values, axis=2)
        roles = np.array(data.grid.roles)
        for task, seeds in data.queries.tasks().items():
            of_task = np.isin(data.grid.seeds, seeds)
            scores = values[:, of_task & (roles == "tuning")]
            tested = _mean(values[:, of_task & (roles == "test")])
            curves += [(data.grid.steps.astype(float), curve) for curve in _mean(scores)]
            sizes = np.log10(_sizes(data, task, configs))
            for at in _horizons(data.grid.steps, ends=ends):
                rows = np.flatnonzero(np.isfinite(_mean(scores)[:, at]))
                if len(rows) < _FEWEST:
                    continue
                step = np.full(len(rows), np.log10(data.grid.steps[at]))
                values_of = {name: column[rows] for name, column in units.items()}
                axes = np.column_stack([step, sizes[rows]])
                runs = (f"{number} {task}", rows, scores[rows, :, at], tested[rows, at])
                groups.append(Group(*runs, values_of, axes))
    if not groups:
        message = f"no step has {_FEWEST} configurations with a score on tuning seeds"
        raise InputError(message, key="forecast")
    return Study(items, tuple(groups), curves)


def _common(sources: Sequence[Dataset]) -> dict[str, Hyperparameter]:
    """Return the numeric hyperparameters of all, without those that say the size."""
    first, *spaces = (data.space.hyperparameters for data in sources)
    items = {
        name: item
        for name, item in first.items()
        if item.numeric and name not in ("net_width", "net_depth")
        if all(name in space for space in spaces)
    }
    for name, item in items.items():
        for twin in (space[name] for space in spaces):
            if (twin.lower, twin.upper, twin.scale) != (item.lower, item.upper, item.scale):
                raise InputError("the studies have other bounds or scales of it", key=name)
    if not items:
        raise InputError("no numeric hyperparameter is in every study", key="space")
    return items


def _horizons(steps: Integers, *, ends: bool) -> list[int]:
    """Return positions of steps, each about 1.4 times the one before."""
    lengths = float(steps[-1]) / np.sqrt(2.0) ** np.arange(1 if ends else _HORIZONS)
    places = {int(np.abs(steps - value).argmin()) for value in lengths}
    return sorted(place for place in places if steps[place] > 0)


def _sizes(data: Dataset, task: str, configs: Sequence[Config]) -> Array:
    """Return the parameters of each configuration's model, NaN where unknown."""
    if PARAMETERS in data.metrics:
        recorded = data.queries.sizes(task)
        return np.array([recorded.get(int(id), np.nan) for id in data.grid.config_ids], dtype=float)
    stated = dict(data.manifest.trainer.get("kwargs", {}))
    stated |= stated.get("policy_kwargs") or {}
    layers = [layers_of({**stated, **config}) for config in configs]
    return np.array([network_weights(widths) if widths else np.nan for widths in layers])


def _mean(scores: Array) -> Array:
    """Average over seeds, the second axis, NaN without any score."""
    count = np.isfinite(scores).sum(axis=1)
    return np.asarray(np.where(count, np.nansum(scores, axis=1), np.nan) / np.maximum(count, 1))


def forecasts(
    study: Study, steps: float | None = None, parameters: float | None = None
) -> dict[str, Forecast]:
    """Predict every hyperparameter at a target.

    Args:
        study: what was measured.
        steps: of the target; default the most seen.
        parameters: likewise; of studies that know their size.

    Raises:
        InputError: a size is asked for and none is known.
    """
    if parameters is not None and study.seen[1] is None:
        message = "the size of no run is known: neither `parameters` nor `net_arch` was recorded"
        raise InputError(message, key=PARAMETERS)
    asked = zip((steps, parameters), study.seen, strict=True)
    places = [seen if value is None else np.log10(value) for value, seen in asked]
    target = np.array(places, dtype=float)
    smaller, held = left_out(study.groups)
    predictions: dict[str, Forecast] = {}
    for name in study.items:
        law = Law.fit(study.groups, name)
        low, high = law.range_at(target)
        trial = Law.fit(smaller, name) if smaller and held else None
        cells = [
            bottom <= best <= top
            for group in held
            if trial is not None and np.isfinite(group.units[name]).any()
            for bottom, top, best in [judged(trial, group, name)]
        ]
        slopes = law.slopes()
        refused = _refusals(slopes, high - low, target, study.seen, cells)
        predictions[name] = Forecast(low, high, slopes, len(cells), sum(cells), refused)
    return predictions


def narrowed(space: Space, study: Study, predictions: Mapping[str, Forecast]) -> dict[str, Any]:
    """Write a space with the ranges of the forecasts that narrow it."""
    entries = {}
    for name, prediction in predictions.items():
        low, high = study.bounds(name, prediction)
        if not prediction.refused:
            entries[name] = {"value": low} if low == high else {"lower": low, "upper": high}
    return extended({EXTENDS: "", "hyperparameters": entries}, lambda _: space.to_dict())


def left_out(groups: Sequence[Group]) -> tuple[list[Group], list[Group]]:
    """Part groups into shorter runs of smaller models, and all others."""
    far = np.array([group.axes.max(axis=0) for group in groups])
    # A size that varies within groups is no group's.
    fixed = all(np.ptp(group.axes[:, 1]) == 0 for group in groups)
    edges = [np.isclose(column, np.nanmax(column)) for column in far.T[: 1 + fixed]]
    beyond = np.any([edge for edge in edges if not edge.all()] or [np.ones(len(groups))], axis=0)
    inner = [group for group, out in zip(groups, beyond, strict=True) if not out]
    return inner, [group for group, out in zip(groups, beyond, strict=True) if out]


@dataclass(frozen=True, eq=False)
class Law:
    """The optimum of a hyperparameter as a line, drawn many times.

    Attributes:
        axes: which of `AXES` vary.
        centre: means of those axes.
        lines: a and d of u* = a + sum d x, (draws, 1 + axes); NaN without a maximum.
        residuals: what the best of a group was off the line, (draws,).
        unknown: a place for draws without a maximum, (draws,).
    """

    axes: list[int]
    centre: Array
    lines: Array
    residuals: Array
    unknown: Array

    @classmethod
    def fit(cls, groups: Sequence[Group], name: str) -> Law:
        """Fit the line to groups, `DRAWS` times."""
        rng = np.random.default_rng(0)
        every = np.concatenate([group.axes for group in groups])
        axes = [k for k, width in enumerate(np.ptp(every, axis=0)) if 0 < width < np.inf]
        centre = every[:, axes].mean(axis=0)
        sizes = {group.source: 1 + int(group.configs.max()) for group in groups}
        most = max(group.scores.shape[1] for group in groups)
        lines: list[Array] = []
        residuals: list[float] = []
        for _ in range(DRAWS):
            # One draw for all steps: they are of the same runs.
            counts = {of: rng.multinomial(n, np.full(n, 1 / n)) for of, n in sizes.items()}
            seeds = rng.random(most)
            drawn = (_drawn(g, name, counts[g.source][g.configs], seeds) for g in groups)
            parts = [part for part in drawn if len(part[0]) > 2]
            if not parts:
                lines.append(np.full(1 + len(axes), np.nan))
                residuals.append(np.nan)
                continue
            lines.append(_line(parts, axes, centre))
            units, _, _, places, scores = parts[rng.integers(len(parts))]
            best = scores.argmax()
            line = _places(lines[-1][None], places[best, axes] - centre)
            residuals.append(float(units[best] - line[0]))
        return cls(axes, centre, np.array(lines), np.array(residuals), rng.random(DRAWS))

    def range_at(self, target: Array) -> tuple[float, float]:
        """Return the range of 90 % at a target."""
        places = _places(self.lines, target[self.axes] - self.centre)
        places = np.where(np.isnan(places), self.unknown, places + np.nan_to_num(self.residuals))
        low, high = np.clip(np.quantile(places, _TAILS), 0.0, 1.0)
        return float(low), float(high)

    def slopes(self) -> Slopes:
        """Return the slopes' intervals of 90 %, and whether signs are sure."""
        intervals: Slopes = {}
        for column, axis in enumerate(self.axes, 1):
            values = self.lines[:, column]
            finite = values[np.isfinite(values)]
            low, high = np.quantile(finite, _TAILS).tolist() if len(finite) else (None, None)
            # A draw without a maximum has neither sign.
            share = max(np.mean(values > 0), np.mean(values < 0))
            intervals[AXES[axis]] = (low, high, bool(share >= _TAILS[1]))
        return intervals


def _drawn(group: Group, name: str, counts: Integers, seeds: Array) -> tuple[Array, ...]:
    """Draw configurations of a group so often, and its seeds anew.

    Returns units, ranks in 0..1, weights, axes and scores.
    """
    columns = (seeds[: group.scores.shape[1]] * group.scores.shape[1]).astype(int)
    means = _mean(group.scores[:, columns])
    used = np.isfinite(means) & np.isfinite(group.units[name]) & (counts > 0)
    means = means[used]
    # Mean ranks of ties, as of an environment's highest return; scipy's take ten times as long.
    ordered = np.sort(means)
    above, below = (np.searchsorted(ordered, means, side) for side in ("right", "left"))
    ranks = (above + below - 1) / 2 / max(1, len(means) - 1)
    return group.units[name][used], ranks, counts[used] * ranks**2, group.axes[used], means


def _line(parts: Sequence[tuple[Array, ...]], axes: list[int], centre: Array) -> Array:
    """Return where the maximum of the quadratic lies, NaN without one."""
    u, ranks, weights, places, _ = map(np.concatenate, zip(*parts, strict=True))
    x = places[:, axes] - centre
    terms = np.column_stack([np.ones_like(u), u, u * u, x * u[:, None], x])
    root = np.sqrt(weights)
    fitted = np.linalg.lstsq(terms * root[:, None], ranks * root, rcond=None)[0]
    curvature = fitted[2] if fitted[2] < -1e-9 else np.nan
    return np.asarray(fitted[[1, *range(3, 3 + len(axes))]] / (-2.0 * curvature))


def _places(lines: Array, x: Array) -> Array:
    """Return the optimum of each line at x, within the space."""
    return np.asarray(np.clip(lines[:, 0] + lines[:, 1:] @ x, 0.0, 1.0))


def judged(law: Law, group: Group, name: str) -> tuple[float, float, float]:
    """Return a law's range for a group, and its best value.

    The best is that of the test seeds where all are tested, else that of the tuning seeds.
    """
    scores = group.judged if np.isfinite(group.judged).all() else _mean(group.scores)
    scores = np.where(np.isfinite(group.units[name]), scores, np.nan)
    best = int(np.nanargmax(scores))
    return *law.range_at(group.axes[best]), float(group.units[name][best])


def _refusals(
    slopes: Slopes, width: float, target: Array, seen: Sequence[float | None], cells: Sequence[bool]
) -> tuple[str, ...]:
    """Say why a range narrows nothing."""
    # Only where the line is followed past what was seen does its slope decide.
    reasons = [
        f"the sign of the slope in {axis} is open"
        for axis, place, most in zip(AXES, target, seen, strict=True)
        if most is not None and place > most + 1e-9 and not (axis in slopes and slopes[axis][2])
    ]
    if width >= _WIDEST:
        reasons.append("the range is as wide as the space")
    if not cells:
        reasons.append("nothing is left to try it on: runs have one length and one size")
    elif sum(cells) < _COVERED * len(cells):
        reasons.append(f"where it was tried it held {sum(cells)} of {len(cells)}")
    return tuple(reasons)


def ceiling(study: Study) -> float | None:
    """Return where a sigmoid says the best configuration's curve ends.

    It is R0 + (A - R0) / (1 + (C / s)^B) of the steps s, fitted to the first half of every curve
    and judged at its end. None unless its median error is below that of the last value seen.
    """
    halves = [(steps, scores) for steps, scores in study.curves if np.isfinite(scores).all()]
    errors = []
    for steps, scores in halves:
        half = steps <= steps[-1] / 2
        predicted = _sigmoid(steps[half], scores[half], steps[-1])
        if predicted is not None:
            errors.append((abs(predicted - scores[-1]), abs(scores[half][-1] - scores[-1])))
    if not errors or np.median(errors, axis=0).argmin() == 1:
        return None
    steps, scores = max(halves, key=lambda curve: curve[1][-1])
    return _sigmoid(steps, scores, np.inf)


def _sigmoid(steps: Array, scores: Array, at: float) -> float | None:
    """Return the value of a fitted sigmoid, None of too few points."""
    if len(steps) < _POINTS:
        return None

    from scipy import optimize  # the study file is read without it

    def curve(s: Array | float, bottom: float, top: float, middle: float, power: float) -> Array:
        return np.asarray(bottom + (top - bottom) / (1 + (middle / s) ** power))

    spread = 2 * float(np.ptp(scores)) or 1.0
    start = (scores[0], scores[-1], float(np.median(steps)), 1.0)
    low = (*[scores.min() - spread] * 2, steps[0] / 100, 0.1)
    high = (*[scores.max() + spread] * 2, steps[-1] * 100, 10.0)
    try:
        fitted, _ = optimize.curve_fit(curve, steps, scores, start, bounds=(low, high))
    except RuntimeError:  # it did not converge
        return None
    return float(curve(at, *fitted))
