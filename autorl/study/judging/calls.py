"""Judges functions, and repeats them over seeds, for other tools."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from autorl.core.plain_text import shown
from autorl.core.types import InputError, SeedRole, Status
from autorl.executors.function_processes import by_value
from autorl.statistics.evaluation import Racing, SeedValue
from autorl.statistics.verdict import Array
from autorl.study.judging.book import add_line, read_lines
from autorl.study.judging.judgement import BLOCK, Judgement, Terms, judge_on
from autorl.trainers.user_code import metric_value


def judge(
    baseline: Callable[[int], float],
    edit: Callable[[int], float],
    *,
    direction: Literal["maximize", "minimize"] = "maximize",
    min_effect: float = 0.0,
    max_runs: int = 62,
    max_hours: float | None = None,
    out: str | Path | None = None,
) -> Judgement:
    """Keep `edit` in place of `baseline`, or discard it.

    Both are called with seeds, in pairs one by one: tuning seeds until one is worth confirming or
    not, then held-out seeds.

    Args:
        baseline: `f(seed) -> score`.
        edit: likewise.
        direction: of the score.
        min_effect: gain that the edit must exceed.
        max_runs: most calls of the edit.
        max_hours: most hours of all calls.
        out: a folder that keeps the scores: the same call goes on where it was interrupted.
            Functions are told apart by their code and what they hold, not by what they import.

    Raises:
        InputError: an argument is wrong, or a score is no number.
    """
    terms = Terms(min_effect, max_runs, max_hours, direction=direction)
    return judge_on(_Calls((baseline, edit), terms.sign, out), terms)


class _Calls:
    """Calls two functions with seeds, each seed once."""

    def __init__(
        self, functions: Sequence[Callable[[int], float]], sign: float, out: str | Path | None
    ) -> None:
        self._functions = functions
        self._sign = sign
        self._known: dict[tuple[object, int], float] = {}
        self._keys: Sequence[object] = (0, 1)
        self._seconds = 0.0
        self._file: Path | None = None
        if out is not None:
            Path(out).mkdir(parents=True, exist_ok=True)
            self._keys = [hashlib.sha256(by_value(item)).hexdigest() for item in functions]
            self._file = Path(out) / "calls.jsonl"
            for line in read_lines(self._file):
                self._known[line["function"], line["seed"]] = line["score"]

    @property
    def hours(self) -> float:
        return self._seconds / 3600

    def scores(self, role: SeedRole, baseline: int, edit: int, ahead: int) -> Sequence[Array]:
        sides = enumerate(self.seeds(role, baseline, edit))
        return [self._sign * np.array([self._score(n, seed) for seed in of]) for n, of in sides]

    def _score(self, side: int, seed: int) -> float:
        key = (self._keys[side], seed)
        if key not in self._known:
            begun = time.monotonic()
            score = self._known[key] = _number(self._functions[side](seed))
            self._seconds += time.monotonic() - begun
            if self._file is not None:
                add_line(self._file, {"function": key[0], "seed": seed, "score": score})
        return self._known[key]

    def seeds(self, role: SeedRole, baseline: int, edit: int) -> Sequence[Sequence[int]]:
        if role == "tuning":
            return range(baseline), range(edit)
        # Other seeds than the baseline's: what the test asks for are independent runs.
        return range(BLOCK, BLOCK + baseline), range(2 * BLOCK, 2 * BLOCK + edit)


def _number(value: object) -> float:
    try:
        return metric_value("score", value)
    except TypeError as error:
        raise InputError(str(error)) from None


class Repeated:
    """A function of a configuration, repeated over seeds.

    Attributes:
        scores: by seed, of each call, in the order the calls ended.
    """

    def __init__(
        self, function: Callable[..., float], count: int, sign: float, *, adaptive: bool
    ) -> None:
        self.scores: list[dict[int, float]] = []
        self._function = function
        self._count = count
        self._sign = sign
        self._race = Racing(tuple(range(count)), 1, count) if adaptive else None
        self._best: list[SeedValue] = []
        self._lock = threading.Lock()

    def __call__(self, *arguments: Any, **named: Any) -> float:
        """Return the mean score over seeds."""
        with self._lock:
            reference = tuple(self._best)
        values: list[SeedValue] = []
        due: Sequence[int] = range(1) if self._race and reference else range(self._count)
        while due:
            for seed in due:
                score = _number(self._function(*arguments, seed=seed, **named))
                values.append(SeedValue(seed, Status.DONE, (self._sign * score,)))
            due = self._race.more(values, reference) if self._race and reference else ()
        with self._lock:
            self.scores.append({it.seed: self._sign * it.values[0] for it in values})
            # The best has every seed: its lead is no luck of a few.
            full = len(values) == self._count
            if full and (not self._best or _mean(values) > _mean(self._best)):
                self._best = values
        return self._sign * _mean(values)


def _mean(values: Sequence[SeedValue]) -> float:
    return float(np.mean([value.values[0] for value in values]))


def repeated(
    function: Callable[..., float],
    seeds: int | Literal["adaptive"] = "adaptive",
    *,
    most: int = 5,
    direction: Literal["maximize", "minimize"] = "maximize",
) -> Repeated:
    """Make an objective of one that takes a seed.

    The result is called like `function` without `seed`, and returns the mean score over seeds, for
    Optuna, Ray Tune, W&B, Hydra or a loop. Test what is chosen with `judge`: its seeds from 1000 on
    are none of these.

    Args:
        function: `f(..., seed=n) -> score`.
        seeds: how many, or `adaptive`: the first configuration has `most`; any other is compared
            with the best seed by seed, and ends as soon as its mean is behind.
        most: seeds of an adaptive one.
        direction: of the score.

    Raises:
        InputError: there is no such rule, or no number of seeds.
    """
    count = most if seeds == "adaptive" else seeds
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        message = f"expected a number of seeds or 'adaptive', got {shown(seeds)}"
        raise InputError(message, key="seeds")
    sign = Terms(direction=direction).sign
    return Repeated(function, count, sign, adaptive=seeds == "adaptive")
