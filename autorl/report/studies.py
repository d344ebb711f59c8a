"""Finished studies side by side: scores, costs, and who beats whom.

The unit is a test run: a study's score is the interquartile mean of its incumbent over test seeds.
On seeds that two studies share, runs are compared in pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from autorl.core import seeds as streams
from autorl.core.plain_text import counted, listed, number, shortened
from autorl.core.plain_values import json_value, plain
from autorl.core.types import NAMED, InputError, ProposalId
from autorl.report.comparison import unequal_budgets
from autorl.report.learning import incumbent_line, lengths_of, score_marks
from autorl.report.pages.chart import Axis, Chart, Line
from autorl.report.pages.document import Block, Figure, Headline, Row, Section, Table, Text, page
from autorl.report.reading import TracePoint, open_view
from autorl.report.status import state, used_up
from autorl.report.table import columns, one_line, table_of
from autorl.report.text import interval_bounds, interval_text, side_by_side
from autorl.space import Space
from autorl.statistics import (
    Interval,
    difference_interval,
    improvement_interval,
    iqm,
    probability_of_improvement,
)
from autorl.study import Result
from autorl.study.budget import Spent
from autorl.study.results.estimates import by_task
from autorl.study.spec import Spec

_FEW_SEEDS = 2


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

    @property
    def iqm(self) -> float | None:
        """The number to report, None before the test."""
        return None if self.result.test is None else self.result.test.iqm

    @property
    def interval(self) -> Interval | None:
        """Its interval."""
        return None if self.result.test is None else self.result.test.iqm_interval


@dataclass(frozen=True)
class Pair:
    """Two studies with test scores.

    Attributes:
        first, second: their names.
        shared_seeds: test seeds both have.
        paired: whether they were compared on these in pairs; else all seeds of both are.
        difference: interquartile mean of the first minus that of the second.
        interval: its 95 % interval.
        improvement: probability that a run of the first is better than one of the second.
        improvement_interval: its 95 % interval.
    """

    first: str
    second: str
    shared_seeds: tuple[int, ...]
    paired: bool
    difference: float
    interval: Interval
    improvement: float
    improvement_interval: Interval

    @property
    def verdict(self) -> str:
        """Which of them is better, where the interval leaves 0 out."""
        if 0.5 in self.improvement_interval or 0 in self.interval:
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

    studies.sort(key=lambda study: np.inf if study.iqm is None else -sign * study.iqm)
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


def study_table(comparison: StudyComparison) -> tuple[list[str], list[list[object]]]:
    """Make header and rows of the studies."""
    rows = []
    trainers = {study.name: study.spec.trainer_names for study in comparison.studies}
    several = len(set(trainers.values())) > 1
    named = {
        study.name: {
            f"{entry.label} (IQM)": None if entry.test is None else entry.test.iqm
            for entry in study.result.entries
            if entry.label.startswith(NAMED)
        }
        for study in comparison.studies
    }
    labels = dict.fromkeys(label for labels in named.values() for label in labels)
    for study in comparison.studies:
        result = study.result
        default = result.default.test if result.default else None
        cells = {
            "study": study.name,
            **({"trainer": trainers[study.name]} if several else {}),
            "optimizer": study.spec.optimizer.name,
            "test (IQM)": number(study.iqm),
            "interval": interval_text(study.interval),
            "test seeds": str(len(study.scores)),
            "tuning": number(result.tuning),
            "gap": number(result.gap),
            **_gaps(comparison, result),
            "default (IQM)": number(default.iqm if default else None),
            **{label: number(named[study.name].get(label)) for label in labels},
            "steps charged": f"{study.spent.charged_steps:,}",
            "steps trained": f"{study.trained:,.0f}",
            "seconds": f"{study.seconds:,.0f}",
            "failed": str(study.failed),
        }
        rows.append(cells)
    return table_of(rows)


def _gaps(comparison: StudyComparison, result: Result) -> dict[str, object]:
    """Part the gap of a study into seeds and tasks.

    Empty where no study has tasks.
    """
    if all(study.result.tasks is None for study in comparison.studies):
        return {}
    tasks = result.tasks
    return {
        "by seeds": number(result.gap if tasks is None else tasks.seeds),
        "by tasks": number(None if tasks is None else tasks.tasks),
    }


def pair_table(comparison: StudyComparison) -> tuple[list[str], list[list[object]]]:
    """Make header and rows of the comparison of each pair."""
    return table_of(
        {
            "first": pair.first,
            "second": pair.second,
            "difference (IQM)": number(pair.difference),
            "interval": interval_text(pair.interval),
            "seeds": f"{len(pair.shared_seeds)} in pairs" if pair.paired else "not in pairs",
            "a run of the first is better": f"{pair.improvement:.0%}",
            "interval of that": (
                f"[{pair.improvement_interval.low:.0%}, {pair.improvement_interval.high:.0%}]"
            ),
            "": pair.verdict,
        }
        for pair in comparison.pairs
    )


def comparison_dict(comparison: StudyComparison) -> dict[str, Any]:
    """Return the comparison as JSON types."""
    document: dict[str, Any] = json_value(
        {
            "unequal": [
                {"part": item.part, "values": item.values} for item in comparison.differences
            ],
            "studies": [
                {
                    "study": study.name,
                    "trainer": study.spec.trainer_names,
                    "optimizer": study.spec.optimizer.name,
                    "state": study.state,
                    "test": study.iqm,
                    "interval": study.interval,
                    "tests": study.scores,
                    "tuning": study.result.tuning,
                    "gap_of_seeds": study.result.tasks and study.result.tasks.seeds,
                    "gap_of_tasks": study.result.tasks and study.result.tasks.tasks,
                    "charged_steps": study.spent.charged_steps,
                    "trained_steps": study.trained,
                    "seconds": study.seconds,
                    "failed": study.failed,
                }
                for study in comparison.studies
            ],
            "pairs": [{**vars(pair), "verdict": pair.verdict} for pair in comparison.pairs],
            "caveats": comparison.caveats,
        }
    )
    return document


def _read(name: str, folder: Path) -> Compared:
    with closing(open_view(folder)) as view:
        if view.record.best is None:
            raise InputError("has scored nothing yet", file=str(folder))
        trace = tuple(view.trace)
        taken = view.record.tables.training_by("seed_role").values()
        return Compared(
            name=name,
            spec=view.spec,
            result=view.result(),
            state=state(view),
            spent=view.record.spent,
            trace=trace,
            lengths=lengths_of(view.record, trace),
            trained=sum(part.environment_steps for part in taken),
            seconds=sum(part.wall_seconds for part in taken),
            failed=len(view.record.tables.failures()),
            spent_all=used_up(view.spec, view.record.spent),
        )


def _names(folders: Sequence[Path]) -> list[str]:
    """Name studies by the last parts of their folders."""
    for count in range(1, max(len(folder.parts) for folder in folders) + 1):
        names = ["/".join(folder.parts[-count:]) for folder in folders]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def _pair(first: Compared, second: Compared) -> Pair:
    # Equal numbers of pairs are of other tasks where tasks differ.
    equal_tasks = first.spec.tasks == second.spec.tasks
    shared = sorted(set(first.scores) & set(second.scores)) if equal_tasks else []
    paired = len(shared) >= _FEW_SEEDS
    # Aggregates and intervals are of numbers that are better where larger.
    a, b = (
        first.sign
        * by_task(
            study.spec if equal_tasks else None,
            {seed: study.scores[seed] for seed in (shared if paired else study.scores)},
        )
        for study in (first, second)
    )
    # Streams of the names: another study in the comparison changes no interval.
    rng = streams.generator(first.spec.seed, "test", "studies", first.name, second.name)
    span = difference_interval(a, b, "iqm", rng=rng, paired=paired)
    low, high = sorted((first.sign * span.low, first.sign * span.high))
    return Pair(
        first=first.name,
        second=second.name,
        shared_seeds=tuple(shared),
        paired=paired,
        difference=first.sign * (iqm(a) - iqm(b)),
        interval=Interval(low, high, span.level, span.method),
        improvement=probability_of_improvement(a, b),
        improvement_interval=improvement_interval(a, b, rng=rng),
    )


def _caveats(studies: Sequence[Compared]) -> list[str]:
    texts = [*unequal_budgets({study.name: study.spent.charged_steps for study in studies})]
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


_LONGEST = 48


@dataclass(frozen=True)
class Difference:
    """A part of the protocol that differs between studies.

    Attributes:
        part: its name.
        values: its value in each study, by name.
        fatal: whether scores have no common meaning at all.
    """

    part: str
    values: Mapping[str, str]
    fatal: bool = False

    @property
    def text(self) -> str:
        """The difference in words, by the studies of each value."""
        by_value: dict[str, list[str]] = {}
        for study, value in self.values.items():
            by_value.setdefault(value, []).append(study)
        said = "; ".join(
            f"{listed(studies, 3)}: {shortened(value, _LONGEST)}"
            for value, studies in by_value.items()
        )
        return f"{self.part} ({said})"


def protocol_differences(studies: Mapping[str, tuple[Spec, Spent]]) -> list[Difference]:
    """List the parts of the protocol that differ between studies.

    Args:
        studies: study file and what was spent, by the study's name.
    """
    protocols = {name: _protocol(spec, spent) for name, (spec, spent) in studies.items()}
    differences = []
    spaces = {name: spec.search_space for name, (spec, _) in studies.items()}
    trainers = {name: spec.trainer_names for name, (spec, _) in studies.items()}
    for part in next(iter(protocols.values())):
        values = {name: protocol[part] for name, protocol in protocols.items()}
        if len(set(values.values())) < 2:
            continue
        if part == "space":
            # Another trainer has a space of its own: the two are one method.
            if len(set(zip(values.values(), trainers.values(), strict=True))) == len(
                set(trainers.values())
            ):
                continue
            values = _spaces(spaces)
        differences.append(Difference(part, values, fatal=part == "objective"))
    return differences


def _protocol(spec: Spec, spent: Spent) -> dict[str, str]:
    first = spec.objective[0]
    evaluation = spec.evaluation
    environment = spec.environment
    around = {"kwargs": environment.kwargs, "wrappers": environment.wrappers}
    named = ", ".join(f"{name} {plain(value)}" for name, value in around.items() if value)
    return {
        "objective": f"{first.direction} {first.metric}",
        "environment": f"{environment.id or 'its own task'}{f' ({named})' if named else ''}",
        "tasks": spec.tasks.text if spec.tasks is not None else "none",
        "budget": _budget(spec, spent),
        "space": spec.search_space.hash,
        "tuning seeds": spec.plan.text("tuning"),
        "test seeds": spec.plan.text("test"),
        "length": counted(spec.fidelity.steps, spec.step, form=","),
        "score": f"{first.reduce} of a run, {evaluation.aggregate} over seeds",
        "evaluation": f"{counted(spec.fidelity.evaluations, 'time')}, "
        f"{counted(spec.fidelity.episodes, 'episode')}",
    }


def _budget(spec: Spec, spent: Spent) -> str:
    stated = spec.budget.model_dump(exclude_none=True)
    extended = {
        name: value + (spent.extra_runs if name in ("runs", "configurations") else 0)
        for name, value in stated.items()
    }
    return ", ".join(
        counted(value, name.removesuffix("s").replace("_", " "), form="g")
        for name, value in extended.items()
    )


def _spaces(spaces: Mapping[str, Space]) -> dict[str, str]:
    """Say of each space what differs from the first."""
    first = next(iter(spaces.values()))
    texts = {}
    for name, space in spaces.items():
        added = sorted(set(space.names) - set(first.names))
        missing = sorted(set(first.names) - set(space.names))
        changed = [
            item
            for item in space.names
            if item in first.names and space.hyperparameters[item] != first.hyperparameters[item]
        ]
        parts = {"also": added, "without": missing, "other": changed}
        said = ", ".join(f"{word} {listed(names, 3)}" for word, names in parts.items() if names)
        text = said or f"the same {len(space)} with other constraints"
        texts[name] = counted(len(first), "hyperparameter") if space.hash == first.hash else text
    return texts


def text_of(differences: Sequence[Difference]) -> str:
    """Write differences as a part of a line."""
    return ", ".join(difference.text for difference in differences)


def comparison_html(comparison: StudyComparison) -> str:
    """Write the report of a comparison of studies."""
    names = [study.name for study in comparison.studies]
    pairs = [Table(*pair_table(comparison), sortable=True)] if comparison.pairs else []
    scores = Table(*study_table(comparison), sortable=True, best=names[0])
    figures = Row([Figure(_seeds(comparison), "seeds"), Figure(_cost(comparison), "cost")])
    anytime = Figure(_curves(comparison), "curves")
    sections = [
        Section("result", "Result", _result(comparison)),
        Section("scores", "Test scores", [scores, figures]),
        Section("pairs", "In pairs", pairs),
        Section("anytime", "Incumbents over the budget", [anytime], half=True),
        Section("configurations", "Incumbents", [_configurations(comparison)], half=True),
    ]
    return page(" against ".join(names), comparison.studies[0].result.objective, sections)


def _result(comparison: StudyComparison) -> list[Block]:
    """Say which study is best, and what makes the comparison unequal."""
    blocks: list[Block] = []
    # Before every number: what is not equal is no comparison of methods.
    if comparison.differences:
        items = tuple(item.text for item in comparison.differences)
        blocks.append(Text("Not an equal comparison. The studies differ in:", "loss", items))
    cautions = [Text(text, "caution") for text in comparison.caveats]
    return [*blocks, _headline(comparison), *cautions]


def _headline(comparison: StudyComparison) -> Headline:
    """Say which study has the best test score, and by how much."""
    first, second = comparison.studies[:2]
    if first.iqm is None:
        return Headline("No study has a test score yet.")
    about = f"IQM, interval {interval_text(first.interval)}"
    best = {first.name, second.name}
    pair = next((pair for pair in comparison.pairs if {pair.first, pair.second} == best), None)
    if pair is not None:
        span = interval_text(pair.interval)
        about += f"; {number(pair.difference)} over {second.name}, interval {span}"
        about += "" if "better" in pair.verdict else ": the two cannot be told apart"
    return Headline(number(first.iqm), f"{first.name} has the best test score", f"{about}.")


def _seeds(comparison: StudyComparison) -> Chart:
    """Draw the test scores of every study, seed by seed."""
    studies = comparison.studies
    names = tuple(study.name for study in studies)
    tests = {study.name: study.result.test for study in studies}
    marks = score_marks(tests, names, "tuning score", (study.result.tuning for study in studies))
    about = "The incumbent of each study on held-out seeds."
    return Chart("Test scores", about, Axis("", categories=names), Axis("score"), marks)


def _curves(comparison: StudyComparison) -> Chart:
    """Draw the tuning score of every incumbent by the steps charged."""
    marks = []
    for study in comparison.studies:
        longest = max(study.lengths.values())
        points = [point for point in study.trace if study.lengths[point.proposal] == longest]
        marks.append(incumbent_line(study.name, points, study.trace[-1].steps))
    about = (
        "Tuning score of the incumbent: optimistic, since it was chosen by it. A line begins "
        "with the first proposal of the longest runs."
    )
    x_axis = Axis("tuning steps charged, all seeds", limits=(0.0, None))
    return Chart("Anytime curves", about, x_axis, Axis("tuning score"), tuple(marks))


def _cost(comparison: StudyComparison) -> Chart:
    """Draw test score against the steps that were trained."""
    marks = []
    for study in comparison.studies:
        if study.iqm is None:
            continue
        low, high = interval_bounds(study.interval)
        names = (f"{counted(study.trained, 'step', form=',.0f')}, {study.seconds:,.0f} s",)
        band = (np.array([low]), np.array([high]))
        marks.append(Line.dots(study.name, [study.trained], [study.iqm], names, band))
    if not marks:
        marks = [Line("nothing was tested", np.array([]), np.array([]))]
    about = "Steps of search and test together; seconds under the pointer."
    x_axis = Axis("steps trained", limits=(0.0, None))
    return Chart("Test score and cost", about, x_axis, Axis("test score (IQM)"), tuple(marks))


def _configurations(comparison: StudyComparison) -> Table:
    """Write the incumbents' configurations side by side."""
    named = [(study.name, study.result.incumbent.config) for study in comparison.studies]
    return Table(*side_by_side(named), sortable=True)
