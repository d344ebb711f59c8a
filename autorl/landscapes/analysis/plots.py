"""Figures of the analyses, as PNG, SVG or PDF. Needs matplotlib: the extra `plots`.

Each function draws one table of this package and returns a matplotlib Figure of its own, without touching pyplot's
global state. `save` writes it; an SVG of the same figure is the same file every time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from autorl.landscapes.analysis.dependence import dependence_surface, dependence_table
from autorl.landscapes.analysis.fidelity import budget_table
from autorl.landscapes.analysis.forest import landscape_forest
from autorl.landscapes.analysis.noise import SeedNoise, landscape_noise
from autorl.landscapes.analysis.phases import PhaseComparison, compare_phases, phase_scores
from autorl.landscapes.analysis.tables import Curves, final_scores
from autorl.landscapes.analysis.transfer import Transfer
from autorl.landscapes.analysis.tunability import Tunability, tunability_of
from autorl.landscapes.analysis.values import values_table
from autorl.landscapes.analysis.variance import fanova
from autorl.landscapes.dataset import Landscape, SeedSet
from autorl.space import Hyperparameter, unknown_key
from autorl.types import InputError

if TYPE_CHECKING:
    import pandas as pd

Figure: TypeAlias = Any  # matplotlib.figure.Figure, which is imported when a figure is drawn
KINDS: Mapping[str, int] = {
    "budget": 0,
    "dependence": 1,
    "importance": 0,
    "noise": 0,
    "phases": 0,
    "surface": 2,
    "tunability": 0,
    "values": 1,
}
SUFFIXES = (".png", ".svg", ".pdf")
_BLUE, _GREY = "#2563a8", "#8a8a8a"
_MOST_BARS = 20


def draw(
    data: Landscape, kind: str, names: Sequence[str] = (), seeds: SeedSet = "all", step: int | None = None
) -> Figure:
    """The figure of an analysis of one landscape.

    Args:
        data: the landscape.
        kind: one of `KINDS`.
        names: the hyperparameters it is about: one for dependence and values, two for surface, none for the others.
        seeds: the seed role that is analysed.
        step: where, None = the last; budget and phases look at every step and take none.

    Raises:
        InputError: unknown kind, another number of names, a step where none is taken, or the analysis is impossible.
    """
    if kind not in KINDS:
        raise InputError(unknown_key(kind, KINDS), key="kind")
    if len(names) != KINDS[kind]:
        raise InputError(f"a plot of {kind} takes {KINDS[kind]} hyperparameters, got {list(names)}", key="names")
    if kind in ("budget", "phases"):
        if step is not None:
            raise InputError(f"a plot of {kind} looks at every step and takes none", key="step")
        return _over_time(data, kind, seeds)
    if kind == "values":
        return plot_values(values_table(data, names[0], seeds, step), names[0])
    if kind == "noise":
        return plot_noise({data.manifest.environment: landscape_noise(data, seeds, step)})
    if kind == "tunability":
        return plot_tunability({data.manifest.environment: tunability_of(final_scores(data, seeds, step).means)})
    forest = landscape_forest(data, seeds, step)
    if kind == "importance":
        return plot_importance(fanova(forest, pairs=True))
    if kind == "surface":
        return plot_surface(dependence_surface(forest, names[0], names[1]))
    return plot_dependence(dependence_table(forest, names[0]), data.space.hyperparameters[names[0]])


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure; the suffix decides the format.

    Raises:
        InputError: another suffix.
    """
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise InputError(f"expected a file name that ends in {', '.join(SUFFIXES)}; got {target.name!r}", key="out")
    stamped = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with _matplotlib("matplotlib").rc_context({"svg.hashsalt": "autorl", "svg.fonttype": "none"}):
        figure.savefig(target, dpi=150, metadata=stamped[target.suffix.lower()])
    return target


def plot_importance(table: pd.DataFrame, title: str = "Importance of hyperparameters") -> Figure:
    """Bars of a table of `fanova` or `local_importance`, the largest 20, with the spread over trees if it has one."""
    shown = table.head(_MOST_BARS).iloc[::-1]
    names = shown["first"] if "first" in shown else shown["hyperparameter"]
    seconds = shown["second"] if "second" in shown else [None] * len(shown)
    labels = [
        f"{name} x {other}" if isinstance(other, str) else name for name, other in zip(names, seconds, strict=True)
    ]
    figure, axes = _figure(height=1.2 + 0.28 * len(shown))
    axes.barh(range(len(shown)), shown["importance"], xerr=shown.get("spread"), color=_BLUE, ecolor=_GREY)
    axes.set_yticks(range(len(shown)), labels)
    return _labelled(figure, axes, title, "share of variance", "")


def plot_dependence(table: pd.DataFrame, item: Hyperparameter, title: str | None = None) -> Figure:
    """A table of `dependence_table`: the mean, and the band that holds 80 % of the configurations' own curves."""
    figure, axes = _figure()
    if item.numeric:
        axes.plot(table["value"], table["mean"], color=_BLUE)
        axes.fill_between(table["value"], table["low"], table["high"], color=_BLUE, alpha=0.2, linewidth=0)
        _scale(axes, item)
    else:
        places = np.arange(len(table))
        around = np.abs(np.stack([table["mean"] - table["low"], table["high"] - table["mean"]]))
        axes.errorbar(places, table["mean"], yerr=around, fmt="o", color=_BLUE, ecolor=_GREY)
        axes.set_xticks(places, [str(value) for value in table["value"]])
    return _labelled(figure, axes, title or f"Partial dependence on {item.name}", item.name, "predicted score")


def plot_surface(surface: pd.DataFrame, title: str | None = None) -> Figure:
    """A table of `dependence_surface` as a heat map."""
    first, second = str(surface.index.name), str(surface.columns.name)
    figure, axes = _heat_map(surface.to_numpy(), _ticks(surface.index), _ticks(surface.columns), "predicted score")
    return _labelled(figure, axes, title or f"Partial dependence on {first} and {second}", second, first)


def plot_budget(table: pd.DataFrame, title: str = "How early training tells the end") -> Figure:
    """A table of `budget_table`: rank correlation with the end, and the regret of choosing at each checkpoint."""
    figure, axes = _figure()
    axes.plot(table["fraction"], table["correlation"], marker="o", color=_BLUE, label="rank correlation with the end")
    axes.plot(table["fraction"], table["regret"], marker="s", color=_GREY, label="regret of choosing here")
    axes.set_ylim(min(-0.02, float(table["correlation"].min()) - 0.02), 1.02)
    axes.legend(frameon=False)
    return _labelled(figure, axes, title, "share of training", "")


def plot_values(table: pd.DataFrame, name: str, title: str | None = None) -> Figure:
    """A table of `performance_by_value`: median with quartiles, and the best, of each group."""
    figure, axes = _figure(height=3.8)
    places = np.arange(len(table))
    around = np.stack([table["median"] - table["q25"], table["q75"] - table["median"]])
    axes.errorbar(places, table["median"], yerr=around, fmt="o", color=_BLUE, ecolor=_BLUE, label="median, quartiles")
    axes.plot(places, table["best"], linestyle="none", marker="^", color=_GREY, label="best")
    labels = [f"{value}\nn={n}" for value, n in zip(table["value"], table["n"], strict=True)]
    axes.set_xticks(places, labels, rotation=30, ha="right")
    axes.legend(frameon=False)
    return _labelled(figure, axes, title or f"Performance by {name}", name, "mean score")


def plot_transfer(found: Transfer, title: str = "Regret of another environment's best configuration") -> Figure:
    """The matrix of `transfer_regret` as a heat map."""
    figure, axes = _heat_map(found.regret, found.environments, found.environments, "regret", (0.0, 1.0))
    return _labelled(figure, axes, title, "used in", "best in")


def plot_phases(found: PhaseComparison, title: str = "Regret of another phase's best configuration") -> Figure:
    """The regrets of `compare_phases` as a heat map."""
    names = tuple(f"phase {number}" for number in range(1, len(found.regret) + 1))
    figure, axes = _heat_map(found.regret, names, names, "regret", (0.0, 1.0))
    return _labelled(figure, axes, title, "used in", "best in")


def plot_tunability(found: Mapping[str, Tunability], title: str = "Tunability") -> Figure:
    """Curves of best minus quantile, one per landscape."""
    figure, axes = _figure()
    for name, each in found.items():
        axes.plot(each.quantiles, each.curve, label=f"{name} ({each.value:.2f})")
    axes.legend(frameon=False, fontsize="small")
    return _labelled(figure, axes, title, "quantile of configurations", "best minus quantile")


def plot_noise(found: Mapping[str, SeedNoise], title: str = "Share of variance that is seed noise") -> Figure:
    """Bars of the noise share, one per landscape."""
    figure, axes = _figure(height=1.2 + 0.28 * len(found))
    axes.barh(range(len(found)), [each.noise_share for each in found.values()], color=_BLUE)
    axes.set_yticks(range(len(found)), list(found))
    axes.set_xlim(0.0, 1.0)
    return _labelled(figure, axes, title, "1 - ICC", "")


def plot_curves(curves: Curves, config_id: int, title: str | None = None) -> Figure:
    """Learning curves of one configuration: every seed, and their mean.

    Raises:
        InputError: the configuration is not among the complete ones.
    """
    rows = np.flatnonzero(curves.config_ids == config_id)
    if not len(rows):
        raise InputError(f"configuration {config_id} has no score for every seed and step", key="config_id")
    figure, axes = _figure()
    values = curves.values[int(rows[0])]
    axes.plot(curves.steps, values.T, color=_GREY, alpha=0.6, linewidth=0.8)
    axes.plot(curves.steps, values.mean(axis=0), color=_BLUE, linewidth=2)
    return _labelled(figure, axes, title or f"Configuration {config_id}", "step", "score")


def _over_time(data: Landscape, kind: str, seeds: SeedSet) -> Figure:
    if kind == "budget":
        return plot_budget(budget_table(data, seeds))
    return plot_phases(compare_phases(phase_scores(data, seeds).scores))


def _matplotlib(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise InputError("plots need matplotlib: pip install 'autorl[plots]'") from None


def _figure(width: float = 6.4, height: float = 3.6) -> tuple[Figure, Any]:
    figure = _matplotlib("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _labelled(figure: Figure, axes: Any, title: str, x: str, y: str) -> Figure:
    axes.set_title(title, loc="left", fontsize="medium")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return figure


def _heat_map(
    values: npt.ArrayLike,
    rows: tuple[str, ...],
    columns: tuple[str, ...],
    label: str,
    limits: tuple[float, float] | None = None,
) -> tuple[Figure, Any]:
    figure, axes = _figure(2.4 + 0.42 * len(columns), 2.0 + 0.36 * len(rows))
    low, high = limits or (None, None)
    image = axes.imshow(np.asarray(values), cmap="viridis", vmin=low, vmax=high, aspect="auto")
    axes.set_xticks(range(len(columns)), columns, rotation=45, ha="right")
    axes.set_yticks(range(len(rows)), rows)
    figure.colorbar(image, ax=axes, label=label)
    return figure, axes


def _ticks(axis: pd.Index) -> tuple[str, ...]:
    return tuple(f"{value:.3g}" if isinstance(value, float) else str(value) for value in axis)


def _scale(axes: Any, item: Hyperparameter) -> None:
    """The axis of a hyperparameter as it is searched."""
    if item.scale == "log":
        axes.set_xscale("log")
    elif item.scale == "flipped_log":
        axes.set_xscale("function", functions=(lambda x: -np.log1p(-np.minimum(x, 1 - 1e-12)), lambda u: -np.expm1(-u)))
