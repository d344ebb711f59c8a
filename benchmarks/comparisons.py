"""What the reports of the benchmarks share: which method really ran, intervals, and comparisons with one baseline."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

WITHOUT_MODEL: Mapping[str, str] = {
    "tpe": "random search",
    "gp": "random search",
    "smac": "a Sobol design",
    "cmaes": "random search",
    "de": "random search",
    "nsga2": "random search",
    "optuna": "random search",
    "rising_bandits": "random search",
    "cost_aware": "random search",
    "transfer": "random search",
    "bohb": "hyperband",
    "dehb": "hyperband",
    "pbt": "random search",
    "pb2": "random search",
    "mf_pbt": "random search",
    "Optuna TPE": "random search",
    "SMAC3": "a Sobol design",
    "DEHB": "hyperband",
}
"""What a method is while scores have no part in its new configurations; of methods not named here they never have."""

NOT_APART = "not told apart"
HALF = 0.5  # share of the new configurations from which on a row is not labelled


@dataclass(frozen=True)
class Share:
    """How many of the configurations a method tried were made from scores.

    Attributes:
        informed: new configurations in which scores observed before had a part, per search.
        new: configurations that no earlier proposal of the search had, per search.
    """

    informed: float
    new: float

    @property
    def text(self) -> str:
        return f"{self.informed:.3g} of {self.new:.3g}"


def share(cells: Sequence[Mapping[str, Any]]) -> Share:
    """The mean over searches."""
    return Share(*(float(np.mean([cell[name] for cell in cells])) for name in ("informed", "new")))


def is_model(method: str) -> bool:
    """Whether a method is meant to make configurations from scores; names of variants begin with the method's."""
    return _without_model(method) is not None


def ranked(method: str, found: Share) -> bool:
    """Whether a row is ranked: not where a method that is meant to have a model never left its start-up."""
    return not is_model(method) or found.informed > 0


def label(method: str, found: Share) -> str:
    """The method as a row names it: with what really ran where less than half of it was the model's.

    `tpe`, `tpe (0 of 16 by the model: random search)`, `bohb (3 of 26 by the model: mostly hyperband)`.
    """
    fallback = _without_model(method)
    if fallback is None or found.informed >= HALF * found.new:
        return method
    return f"{method} ({found.text} by the model: {'mostly ' if found.informed else ''}{fallback})"


def model_text(method: str, found: Share) -> str:
    """The cell of a row that says how many new configurations scores had a part in."""
    return found.text if is_model(method) or found.informed else f"- of {found.new:.3g}"


def _without_model(method: str) -> str | None:
    if method in WITHOUT_MODEL:
        return WITHOUT_MODEL[method]
    names = [name for name in WITHOUT_MODEL if method.startswith((f"{name} ", f"{name},"))]
    return WITHOUT_MODEL[max(names, key=len)] if names else None


# -- intervals ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float

    def text(self, digits: int = 1, sign: str = "") -> str:
        form = f"{{:{sign}.{digits}f}}"
        return f"{form.format(self.value)} | [{form.format(self.low)}, {form.format(self.high)}]"

    @property
    def verdict(self) -> str:
        """What a difference says: `above`, `**below**`, or `not told apart` where its interval holds 0."""
        if self.low > 0:
            return "above"
        return "**below**" if self.high < 0 else NOT_APART


def summary(values: NDArray[np.float64]) -> Summary:
    """IQM with its interval over repeats; values (repeats,) or (repeats, tasks)."""
    from autorl.statistics import bootstrap_interval, iqm

    interval = bootstrap_interval(values, "iqm", rng=np.random.default_rng(0))
    return Summary(float(iqm(values)), interval.low, interval.high)


def difference(
    first: NDArray[np.float64], second: NDArray[np.float64], scale: float = 1.0
) -> Summary:
    """IQM of the first minus IQM of the second, paired by repeat, in units of `scale`."""
    from autorl.statistics import difference_interval, iqm

    interval = difference_interval(first, second, "iqm", rng=np.random.default_rng(0), paired=True)
    return Summary(
        float(iqm(first) - iqm(second)) / scale,
        float(interval.low) / scale,
        float(interval.high) / scale,
    )


def over_tasks(differences: NDArray[np.float64]) -> Summary:
    """The mean over tasks with its 95 % t interval; of one task there is none.

    Args:
        differences: one per task. A percentile bootstrap of so few (six of PPO) covers too little.
    """
    from scipy.stats import t as student

    mean = float(differences.mean())
    count = len(differences)
    if count < 2:
        return Summary(mean, -math.inf, math.inf)
    half = float(student.ppf(0.975, count - 1) * differences.std(ddof=1) / math.sqrt(count))
    return Summary(mean, mean - half, mean + half)


def corrected(scores: Mapping[str, NDArray[np.float64]], baseline: str) -> dict[str, float]:
    """p-values of all methods against one, by name: Wilcoxon's signed-rank test, pairs in order; Holm over the methods.

    Args:
        scores: paired values of each method, raveled.
        baseline: the method that the others are compared with.
    """
    from autorl.statistics import holm, signed_rank

    others = [name for name in scores if name != baseline]
    if not others:
        return {}
    raw = [signed_rank((scores[name] - scores[baseline]).ravel()) for name in others]
    return dict(zip(others, map(float, holm(raw)), strict=True))


# -- Markdown ----------------------------------------------------------------------------------------------------------


def row(*parts: object) -> str:
    return f"| {' | '.join(map(str, parts))} |"


def header(*names: str) -> list[str]:
    return [row(*names), row(*("---" for _ in names))]


def paragraph(*sentences: str) -> list[str]:
    """Text as lines of a Markdown file."""
    return textwrap.wrap(" ".join(sentences), 116, break_on_hyphens=False)
