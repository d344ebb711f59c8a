"""Finished studies side by side: scores, costs, and who beats whom.

The unit is a test run: a study's score is the interquartile mean of its incumbent over test seeds.
On seeds that two studies share, runs are compared in pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from autorl.core import seeds as streams
from autorl.core.plain_text import counted, number
from autorl.core.types import InputError, ProposalId
from autorl.report.protocol import Difference, protocol_differences, text_of
from autorl.report.reading import TracePoint, open_view
from autorl.report.status import state, used_up
from autorl.report.table import columns, one_line
from autorl.report.text import interval_text
from autorl.statistics import (
    Interval,
    difference_interval,
    improvement_interval,
    iqm,
    probability_of_improvement,
)
from autorl.study import Result
from autorl.study.budget import Spent
from autorl.study.spec import Spec

_FEW_SEEDS = 2
_UNEQUAL = 0.05
"""Share by which the steps charged may differ without a caution."""


@dataclass(frozen=True)
class Compared:
    """A study that is compared.

    Attributes:
        name: no other one in the comparison has it.
        state: `running`, `finished` or `stopped`.
        trace: the incumbent after each score.
        lengths: nominal ends of the proposals in the trace.
        seconds: of training, tuning and test.
        failed: segments that failed.
        spent_all: whether the search has used its budget.
    """

    name: str
    folder: Path
    spec: Spec
    result: Result
    state: str
    spent: Spent
    trace: tuple[TracePoint, ...]
    lengths: Mapping[ProposalId, int]
    trained: float
    seconds: float
    failed: int
    spent_all: bool

    @property
    def sign(self) -> float:
        """1 where larger scores are better, else -1."""
        return self.spec.objectives()[0].sign

    @property
    def scores(self) -> Mapping[int, float]:
        """The incumbent's test scores by seed, empty before the test."""
        return {} if self.result.test is None else self.result.test.seeds


@dataclass(frozen=True)
class Pair:
    """Two studies with test scores.

    Attributes:
        first, second: their names.
        shared: test seeds both have.
        paired: whether they were compared on these in pairs; else all seeds of both are.
        difference: interquartile mean of the first minus that of the second.
        interval: its 95 % interval.
        improvement: probability that a run of the first is better than one of the second.
        improvement_interval: its 95 % interval.
    """

    first: str
    second: str
    shared: tuple[int, ...]
    paired: bool
    difference: float
    interval: Interval
    improvement: float
    improvement_interval: Interval

    @property
    def verdict(self) -> str:
        """Which of them is better, where the interval leaves 0 out."""
        if self.improvement_interval.low <= 0.5 <= self.improvement_interval.high or (
            self.interval.low <= 0 <= self.interval.high
        ):
            return "not told apart"
        return f"{self.first if self.improvement > 0.5 else self.second} is better"


@dataclass(frozen=True)
class StudyComparison:
    """Studies side by side, best test score first.

    Attributes:
        differences: of their protocols, which somebody has accepted.
        caveats: what else a reader must know.
    """

    studies: tuple[Compared, ...]
    pairs: tuple[Pair, ...]
    differences: tuple[Difference, ...]
    caveats: tuple[str, ...]


def compare_studies(folders: Sequence[Path], *, unequal: bool = False) -> StudyComparison:
    """Read studies and compare them.

    Args:
        folders: of the studies, at least two.
        unequal: accept that their protocols differ; the comparison says so.

    Raises:
        InputError: fewer than two, one has no score, objectives differ, or other parts of the
            protocols do and `unequal` was not said.
    """
    unique = list(dict.fromkeys(folder.resolve() for folder in folders))
    if len(unique) < 2:
        raise InputError(f"expected at least two studies, got {len(unique)}", key="DIR")
    studies = [_read(name, folder) for name, folder in zip(_names(unique), unique, strict=True)]
    differences = protocol_differences({study.name: (study.spec, study.spent) for study in studies})
    fatal = [difference for difference in differences if difference.fatal]
    if fatal:
        raise InputError(f"studies cannot be compared: they differ in {text_of(fatal)}")
    if differences and not unequal:
        raise InputError(
            f"studies differ in {text_of(differences)}; --unequal compares them and says so"
        )
    sign = studies[0].sign

    def place(study: Compared) -> float:
        test = study.result.test
        return float("inf") if test is None else -sign * test.iqm

    studies.sort(key=place)
    tested = [study for study in studies if len(study.scores) >= _FEW_SEEDS]
    pairs = tuple(_pair(first, second) for first, second in combinations(tested, 2))
    return StudyComparison(tuple(studies), pairs, tuple(differences), tuple(_caveats(studies)))


def comparison_text(comparison: StudyComparison) -> str:
    """Write the comparison as a screen of text."""
    blocks = [one_line(f"caution: unequal {item.text}") for item in comparison.differences]
    blocks += ["", one_line(comparison.studies[0].result.objective), ""]
    blocks.append(columns(*study_table(comparison)))
    if comparison.pairs:
        blocks += ["", columns(*pair_table(comparison))]
    blocks += ["", *(one_line(f"  caution: {text}") for text in comparison.caveats)]
    return "\n".join(blocks).strip()


def study_table(comparison: StudyComparison) -> tuple[list[str], list[list[str]]]:
    """Make header and rows of the studies."""
    header = [
        "study",
        "optimizer",
        "test (IQM)",
        "interval",
        "test seeds",
        "tuning",
        "gap",
        "default (IQM)",
        "steps charged",
        "steps trained",
        "seconds",
        "failed",
    ]
    rows = []
    for study in comparison.studies:
        result = study.result
        test = result.test
        default = result.default
        rows.append(
            [
                study.name,
                study.spec.optimizer.name,
                number(None if test is None else test.iqm),
                interval_text(None if test is None else test.iqm_interval),
                str(len(study.scores)),
                number(result.tuning),
                number(result.gap),
                number(None if default is None or default.test is None else default.test.iqm),
                f"{study.spent.charged_steps:,}",
                f"{study.trained:,.0f}",
                f"{study.seconds:,.0f}",
                str(study.failed),
            ]
        )
    return header, rows


def pair_table(comparison: StudyComparison) -> tuple[list[str], list[list[str]]]:
    """Make header and rows of who beats whom."""
    header = [
        "first",
        "second",
        "difference (IQM)",
        "interval",
        "seeds",
        "a run of the first is better",
        "interval of that",
        "",
    ]
    rows = [
        [
            pair.first,
            pair.second,
            number(pair.difference),
            interval_text(pair.interval),
            f"{len(pair.shared)} in pairs" if pair.paired else "not in pairs",
            f"{pair.improvement:.0%}",
            f"[{pair.improvement_interval.low:.0%}, {pair.improvement_interval.high:.0%}]",
            pair.verdict,
        ]
        for pair in comparison.pairs
    ]
    return header, rows


def comparison_dict(comparison: StudyComparison) -> dict[str, Any]:
    """Return the comparison as JSON types."""
    return {
        "unequal": [
            {"part": item.part, "values": dict(item.values)} for item in comparison.differences
        ],
        "studies": [
            {
                "study": study.name,
                "optimizer": study.spec.optimizer.name,
                "state": study.state,
                "test": None if study.result.test is None else study.result.test.iqm,
                "interval": _bounds(
                    None if study.result.test is None else study.result.test.iqm_interval
                ),
                "tests": {str(seed): value for seed, value in study.scores.items()},
                "tuning": study.result.tuning,
                "charged_steps": study.spent.charged_steps,
                "trained_steps": study.trained,
                "seconds": study.seconds,
                "failed": study.failed,
            }
            for study in comparison.studies
        ],
        "pairs": [
            {
                "first": pair.first,
                "second": pair.second,
                "shared_seeds": list(pair.shared),
                "paired": pair.paired,
                "difference": pair.difference,
                "interval": _bounds(pair.interval),
                "improvement": pair.improvement,
                "improvement_interval": _bounds(pair.improvement_interval),
                "verdict": pair.verdict,
            }
            for pair in comparison.pairs
        ],
        "caveats": list(comparison.caveats),
    }


def _read(name: str, folder: Path) -> Compared:
    view = open_view(folder)
    try:
        if view.record.best is None:
            raise InputError("has scored nothing yet", file=str(folder))
        trace = tuple(view.trace)
        taken = view.record.tables.training_by("seed_role").values()
        proposals = {point.proposal for point in trace}
        return Compared(
            name=name,
            folder=folder,
            spec=view.spec,
            result=view.result(),
            state=state(view),
            spent=view.record.spent,
            trace=trace,
            lengths={proposal: view.record.until(proposal) for proposal in proposals},
            trained=sum(part.environment_steps for part in taken),
            seconds=sum(part.wall_seconds for part in taken),
            failed=len(view.record.tables.failures()),
            spent_all=used_up(view.spec, view.record.spent),
        )
    finally:
        view.close()


def _names(folders: Sequence[Path]) -> list[str]:
    """Name studies by as many last parts of folders as needed."""
    for count in range(1, max(len(folder.parts) for folder in folders) + 1):
        names = ["/".join(folder.parts[-count:]) for folder in folders]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def _pair(first: Compared, second: Compared) -> Pair:
    shared = sorted(set(first.scores) & set(second.scores))
    paired = len(shared) >= _FEW_SEEDS
    of_first = list(first.scores.values())
    of_second = list(second.scores.values())
    if paired:
        of_first = [first.scores[seed] for seed in shared]
        of_second = [second.scores[seed] for seed in shared]
    # Aggregates and intervals are of numbers that are better where larger.
    a = first.sign * np.array(of_first)
    b = first.sign * np.array(of_second)
    # Streams of the names: another study in the comparison changes no interval.
    rng = streams.generator(first.spec.seed, "test", "studies", first.name, second.name)
    span = difference_interval(a, b, "iqm", rng=rng, paired=paired)
    low, high = sorted((first.sign * span.low, first.sign * span.high))
    return Pair(
        first=first.name,
        second=second.name,
        shared=tuple(shared),
        paired=paired,
        difference=first.sign * (iqm(a) - iqm(b)),
        interval=Interval(low, high, span.level, span.method),
        improvement=probability_of_improvement(a, b),
        improvement_interval=improvement_interval(a, b, rng=rng),
    )


def _caveats(studies: Sequence[Compared]) -> list[str]:
    texts = []
    charged = {study.name: study.spent.charged_steps for study in studies}
    most = max(charged.values())
    for name, steps in charged.items():
        if steps < (1.0 - _UNEQUAL) * most:
            texts.append(
                f"{name} was charged {counted(steps, 'tuning step', form=',')} of the {most:,} "
                "of another: "
                "scores are not of equal cost"
            )
    for study in studies:
        if study.state != "finished":
            texts.append(f"{study.name} is {study.state}: its numbers may change")
        elif not study.spent_all:
            why = study.result.search_end_text
            texts.append(f"{study.name} has not used its whole budget; search ended: {why}")
        if study.result.test is None:
            why = study.result.problem or "not tested on held-out seeds"
            texts.append(f"{study.name}: {why}")
        elif study.result.test.few:
            count = len(study.scores)
            texts.append(
                f"{study.name}: {counted(count, 'test seed')}, whose interval is too short"
            )
        if study.result.loss:
            texts.append(f"{study.name}: {study.result.loss}")
    texts.append(
        "one study each: another study seed may give another incumbent, "
        "and the intervals are over test seeds alone"
    )
    return texts


def _bounds(interval: Interval | None) -> dict[str, float] | None:
    return None if interval is None else {"low": interval.low, "high": interval.high}
