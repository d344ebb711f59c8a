"""Metrics of single episodes or prompts: tails, and values of `info`.

An evaluation averages over its episodes. `eval_return_cvar_10` instead takes the mean of their
worst tenth, by the definitions of `autorl.statistics.aggregates`:

    NAME_cvar_P        mean of the lowest P % of the values
    NAME_upper_cvar_P  mean of the highest P %, the worst of a cost
    NAME_quantile_P    the P % quantile
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from autorl.core.plain_text import shown
from autorl.core.types import EnvironmentSpec, InputError
from autorl.statistics.aggregates import cvar, quantile
from autorl.statistics.arrays import Array

_TAIL = re.compile(r"(.+?)_(upper_cvar|cvar|quantile)_(100|[1-9]\d?)")
_NO_COMPONENTS = np.zeros((1, 0))
INFO = "environment.info"


def base_metric(name: str) -> str:
    """Return the metric that a tail is of, or the name itself."""
    tail = _TAIL.fullmatch(name)
    return name if tail is None else tail[1]


def tails_of(metrics: Iterable[str], asked: Iterable[str]) -> list[str]:
    """List the metrics asked for that are tails of some metrics."""
    have = {*metrics}
    return [name for name in asked if base_metric(name) != name and base_metric(name) in have]


def tails(values: Mapping[str, npt.ArrayLike], asked: Iterable[str]) -> dict[str, float]:
    """Return the tails asked for.

    Args:
        values: of single episodes or prompts, by metric.
        asked: names of metrics; those that are no tail of these values are left out.
    """
    result = {}
    for name in tails_of(values, asked):
        base, kind, percent = _TAIL.fullmatch(name).groups()  # type: ignore[union-attr]
        share = int(percent) / 100
        aggregate = quantile(share) if kind == "quantile" else cvar(share)
        sign = -1.0 if kind == "upper_cvar" else 1.0
        # A value that is not finite makes the run diverge by its mean, and is no error here.
        column = sign * np.asarray(values[base], dtype=float)[:, None]
        result[name] = sign * float(aggregate.stacked(column))
    return result


def episode_metrics(
    returns: Array,
    lengths: npt.ArrayLike,
    infos: Sequence[Mapping[str, float]],
    task: EnvironmentSpec,
    components: Array = _NO_COMPONENTS,
) -> dict[str, float]:
    """Return the metrics of evaluated episodes.

    Args:
        returns: of n episodes.
        lengths: of the episodes, in steps.
        infos: what `info` gave in each; empty where nothing reads it.
        task: what it reads of `info`, and asks for.
        components: of returns, (n, k), where the reward is a vector.

    Raises:
        InputError: no episode gave a value of `info` that the task reads.
    """
    single: dict[str, Any] = {"eval_return": returns, "eval_length": lengths}
    single |= _info_values(infos, task.info)
    metrics = {"eval_return": float(returns.mean()), "eval_return_std": float(returns.std())}
    metrics |= {name: float(np.mean(values)) for name, values in single.items()}
    for index, mean in enumerate(components.mean(axis=0)):
        metrics[component_metric(index)] = float(mean)
        single[component_metric(index)] = components[:, index]
    return metrics | tails(single, task.metrics)


def component_metric(index: int) -> str:
    """Name the metric of a component of the reward."""
    return f"eval_return_{index}"


def info_metric(name: str) -> str:
    """Name the metric of a value of `info`."""
    return f"eval_{name}"


def add_info(
    values: dict[str, float], asked: Mapping[str, Any], how: str, info: Mapping[str, Any]
) -> None:
    """Add values of `info` to those of an episode.

    Args:
        values: of the episode so far, by name.
        asked: names, and how each is read: `sum` or `last`.
        how: the names that are read now.
        info: of a step.

    Raises:
        InputError: one is no number.
    """
    for name, way in asked.items():
        if way == how and name in info:
            try:
                values[name] = values.get(name, 0.0) + float(info[name])
            except (TypeError, ValueError) as error:
                message = f"info[{name!r}] is no number: {shown(info[name])}"
                raise InputError(message, key=INFO) from error


def _info_values(
    episodes: Sequence[Mapping[str, float]], asked: Mapping[str, Any]
) -> dict[str, list[float]]:
    """Return the values of `info` of all episodes, by metric.

    An episode without a value is left out, or has a sum of 0.
    """
    values = {}
    for name in dict.fromkeys([*asked, *(name for episode in episodes for name in episode)]):
        recorded = [episode[name] for episode in episodes if name in episode]
        if not recorded:
            raise InputError(f"no evaluation episode gave {name!r} in its info", key=INFO)
        if asked.get(name) == "sum":
            recorded = [episode.get(name, 0.0) for episode in episodes]
        values[info_metric(name)] = recorded
    return values
