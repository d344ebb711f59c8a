"""One judgement: runs are trained until `autorl.statistics.verdict` decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from autorl.core import seeds as streams
from autorl.core.numbers import check_number
from autorl.core.plain_text import counted, number, shown
from autorl.core.types import InputError, SeedRole
from autorl.statistics import difference_interval, verdict
from autorl.statistics.verdict import FAILED, LOOKS, OPEN, PASSED, SCREEN, Array

Verdict: TypeAlias = Literal["keep", "discard", "undecided"]
EXIT_CODES: dict[Verdict, int] = {"keep": 0, "discard": 1, "undecided": 2}
MOST_RUNS = SCREEN[-1] + LOOKS[-1]
_STAGES: dict[SeedRole, tuple[int, ...]] = {"tuning": SCREEN, "test": LOOKS}
ROLE_NAMES: dict[str, str] = {"tuning": "tuning", "test": "held-out"}
BLOCK = 1_000  # held-out seeds of a side: from 1000 of the first baseline, from 2000 of its edit


def signed(value: float) -> str:
    """Write a difference for people, with its sign."""
    return f"{'+' if value > 0 else ''}{number(value)}"


class Bench(Protocol):
    """Trains the runs of a judgement."""

    @property
    def hours(self) -> float:
        """Hours of training of all runs that were asked for."""

    def scores(self, role: SeedRole, baseline: int, edit: int, ahead: int) -> Sequence[Array]:
        """Return the scores of the first runs of both sides.

        Larger is better, and -inf is a run that failed.

        Args:
            role: of the seeds.
            baseline: runs of the baseline.
            edit: runs of the edit.
            ahead: most runs of the edit that idle workers may train.
        """

    def seeds(self, role: SeedRole, baseline: int, edit: int) -> Sequence[Sequence[int]]:
        """Return the seeds of the first runs of both sides."""


@dataclass(frozen=True)
class Terms:
    """The terms of a judgement.

    Attributes:
        min_effect: gain that an edit must exceed, in the metric's unit.
        max_runs: most runs of the edit.
        max_hours: most hours of training, of all runs that it asks for.
        pools: least runs of the baseline, on tuning and held-out seeds.
        level: of the confirmation.
        direction: of the metric.
    """

    min_effect: float = 0.0
    max_runs: int = MOST_RUNS
    max_hours: float | None = None
    pools: tuple[int, int] = (0, 0)
    level: float = verdict.ALPHA
    direction: str = "maximize"

    def __post_init__(self) -> None:
        check_number(self.min_effect, "--min-effect", 0)
        check_number(self.max_runs, "--max-runs", SCREEN[0], whole=True)
        if self.direction not in ("maximize", "minimize"):
            message = f"expected maximize or minimize, got {shown(self.direction)}"
            raise InputError(message, key="direction")

    @property
    def sign(self) -> float:
        return 1.0 if self.direction == "maximize" else -1.0

    def pool(self, role: SeedRole) -> int:
        return self.pools[list(_STAGES).index(role)]


@dataclass(frozen=True)
class Judgement:
    """The decision, and its reasons.

    Attributes:
        verdict: keep, discard or undecided.
        why: in words.
        role: of the seeds that decided: `test` once a confirmation began.
        difference: of these seeds' means, edit minus baseline, in the metric's own direction; None
            where a run failed.
        interval: 95 % interval of it, as if the number of runs had been fixed.
        at_least: gain that a confirmation shows with all its looks together.
        seeds: of the runs that decided, by role and side.
        scores: of these runs, in the metric's own direction; None of one that failed.
        more: seeds to the next look, and the verdict there if they were as good as the best run so
            far, or as bad as the worst.
        level: of the confirmation.
        hours: of training, of all these runs.
    """

    verdict: Verdict
    why: str
    role: SeedRole
    difference: float | None
    interval: tuple[float, float] | None
    at_least: float | None
    seeds: dict[SeedRole, dict[str, list[int]]]
    scores: dict[SeedRole, dict[str, list[float | None]]]
    more: dict[str, Any] | None
    level: float
    hours: float

    @property
    def all_scores(self) -> list[float | None]:
        """Scores of all runs."""
        return [score for of in self.scores.values() for part in of.values() for score in part]

    @property
    def exit_code(self) -> int:
        """0 keep, 1 discard, 2 undecided."""
        return EXIT_CODES[self.verdict]

    def __str__(self) -> str:
        lines = [f"{self.verdict}: {self.why}"]
        if self.difference is not None and self.interval is not None:
            bounds = " to ".join(map(signed, self.interval))
            limit = f", with all looks together at least {number(self.at_least)}"
            text = f"  on {ROLE_NAMES[self.role]} seeds: {signed(self.difference)} (95 % {bounds})"
            lines.append(text + limit * (self.at_least is not None))
        for role, runs in self.seeds.items():
            edit = f"{ROLE_NAMES[role]} runs: {len(runs['edit'])} of the edit"
            lines.append(f"  {edit}, {len(runs['baseline'])} of the baseline")
        if self.more is not None:
            lines.append(
                f"  {counted(self.more['seeds'], 'seed')} more: {self.more['best']} if as good as "
                f"the best so far, {self.more['worst']} if as bad as the worst"
            )
        return "\n".join([*lines, f"  training: {number(self.hours)} hours"])


def judge_on(bench: Bench, terms: Terms) -> Judgement:
    """Train runs until the verdict holds."""
    used: dict[SeedRole, tuple[int, int]] = {}
    return _judgement(bench, terms, used, *_decided(bench, terms, used))


def _decided(
    bench: Bench, terms: Terms, used: dict[SeedRole, tuple[int, int]]
) -> tuple[Verdict, str]:
    """Look until the verdict holds, and enter the runs in `used`."""
    for role, looks in _STAGES.items():
        before = sum(runs for _, runs in used.values())
        state = OPEN
        for look, runs in enumerate(looks):
            if before + runs > terms.max_runs:
                return "undecided", f"{terms.max_runs} runs did not decide (--max-runs)"
            if terms.max_hours is not None and bench.hours >= terms.max_hours:
                return "undecided", f"{terms.max_hours:g} hours did not decide (--max-hours)"
            used[role] = (verdict.baseline_runs(runs, terms.pool(role)), runs)
            most = min(looks[-1], terms.max_runs - before)
            state = _state(bench, role, bench.scores(role, *used[role], most), terms, look)
            if state != OPEN:
                break
        if state == OPEN:
            return "undecided", f"no decision after {counted(looks[-1], 'run')} of the edit"
        if state == FAILED:
            unlikely = role == "tuning"
            return "discard", "a gain is too unlikely" if unlikely else "its gain was not confirmed"
    return "keep", "better than the baseline, confirmed on held-out seeds"


def _state(bench: Bench, role: SeedRole, scores: Sequence[Array], terms: Terms, look: int) -> int:
    """Decide at one look."""
    baseline, edit = scores
    shifted = edit - terms.min_effect
    if role == "tuning":
        return int(verdict.screened(baseline, shifted, terms.pool(role), first_look=look).state)
    first, second = (
        np.array([streams.generator(seed, "test", "tie", side).random() for seed in seeds])
        for side, seeds in enumerate(bench.seeds(role, len(baseline), len(edit)))
    )
    under = (terms.pool(role), terms.level)
    return int(verdict.confirmed(baseline, shifted, (first, second), *under, first_look=look).state)


def _judgement(
    bench: Bench, terms: Terms, used: dict[SeedRole, tuple[int, int]], ended: Verdict, why: str
) -> Judgement:
    """Describe a decision by the runs that were used for it."""
    seeds = {role: _by_side(map(list, bench.seeds(role, *n))) for role, n in used.items()}
    parts = {role: bench.scores(role, *counts, counts[1]) for role, counts in used.items()}
    shown = {
        role: _by_side(
            np.where(np.isfinite(it), terms.sign * it, np.array(None)).tolist() for it in scores
        )
        for role, scores in parts.items()
    }
    role = list(used)[-1]
    baseline, edit = parts[role]
    failed = [int((~np.isfinite(part)).sum()) for part in (edit, baseline)]
    difference = interval = limit = None
    if any(failed):
        why += f" ({failed[0]} runs of the edit failed, {failed[1]} of the baseline)"
    else:
        difference = terms.sign * float(edit.mean() - baseline.mean())
        rng = streams.generator(0, "test", "judgement")
        bounds = difference_interval(edit, baseline, "mean", rng=rng)
        ends = (terms.sign * bounds.low, terms.sign * bounds.high)
        interval = (min(ends), max(ends))
        if ended == "keep":
            limit = verdict.at_least(baseline, edit, terms.pool(role), terms.level)
    measured = (difference, interval, limit, seeds, shown)
    more = _outlook(bench, role, parts[role], terms)
    return Judgement(ended, why, role, *measured, more, terms.level, bench.hours)


def _by_side(values: Iterable[list[Any]]) -> dict[str, list[Any]]:
    return dict(zip(("baseline", "edit"), values, strict=True))


def _outlook(
    bench: Bench, role: SeedRole, scores: Sequence[Array], terms: Terms
) -> dict[str, Any] | None:
    """Say what the next look would decide with extreme runs."""
    baseline, edit = scores
    look = next((n for n, runs in enumerate(_STAGES[role]) if runs > len(edit)), None)
    if look is None:
        return None
    runs = _STAGES[role][look]
    size = verdict.baseline_runs(runs, terms.pool(role))
    middle = np.append(baseline, [np.median(baseline)] * (size - len(baseline)))
    passed = "keep" if role == "test" else "to be confirmed"
    words = {PASSED: passed, FAILED: "discard", OPEN: "undecided"}
    everyone = np.concatenate(scores)
    answer: dict[str, Any] = {"seeds": runs - len(edit)}
    for name, value in (("best", everyone.max()), ("worst", everyone.min())):
        longer = np.append(edit, [value] * (runs - len(edit)))
        answer[name] = words[_state(bench, role, (middle, longer), terms, look)]
    return answer
