"""The checklist for reproducible tuning of Eimer et al. (2023), filled in from the record of a study.

Reference: Eimer, Lindauer, Raileanu (2023), Hyperparameters in Reinforcement Learning and How To Tune Them, ICML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from autorl.report.reading import StudyView
from autorl.report.text import interval_text, number, seeds_text


@dataclass(frozen=True)
class Item:
    """One question, and the answer: `yes`, `no`, or `author` where the record cannot know."""

    question: str
    answer: Literal["yes", "no", "author"]
    evidence: str


def checklist(view: StudyView) -> list[Item]:
    """Every item of the checklist; nothing is claimed that the record does not show."""
    spec, sessions = view.spec, view.sessions()
    tuning, test = list(spec.plan.tuning), list(spec.plan.test)
    return [
        Item(
            "Are there separate training and test settings, and was only the training setting used for tuning?",
            "yes" if test else "no",
            "tuning and test seeds are disjoint; test seeds are first used after the incumbent is frozen"
            if test
            else "the study has no test seeds",
        ),
        Item(
            "Are the tuning and test seeds listed?",
            "yes",
            f"tuning {tuning}; test {test or 'none'}",
        ),
        _tested(view),
        Item(
            "Are the tuning package and method named, with code and tuning process?",
            "yes" if sessions else "no",
            f"autorl {_distinct(sessions, 'version')}, optimizer {spec.optimizer.name}"
            + (f" {spec.optimizer.options}" if spec.optimizer.options else "")
            + "; the study file below repeats it. Your own environment and trainer code is yours to publish.",
        ),
        Item(
            "Is the exact search space given, with scales?",
            "yes",
            f"{len(spec.search_space)} hyperparameters, in the study file below; sha256 {spec.search_space.hash[:16]}",
        ),
        _cost(view),
        _hardware(view, sessions),
        Item(
            "Was every reported method tuned in the same way?",
            "author",
            "this study tunes one method; `autorl compare` runs several under one protocol",
        ),
        Item(
            "Are the final hyperparameters given?",
            "yes" if view.record.best is not None else "no",
            "written out below, every change of a schedule included; `autorl best` prints them to be run again",
        ),
        Item(
            "Are all package versions and the environment's version pinned?",
            "author",
            f"recorded: autorl {_distinct(sessions, 'version')}, Python {_distinct(sessions, 'python')}; "
            "publish a lock file for the rest",
        ),
        Item(
            "Were all hyperparameters that may matter tuned, and their importance analysed?",
            "author",
            f"tuned: {', '.join(spec.search_space.names)}; importance was not analysed in this report",
        ),
    ]


def _tested(view: StudyView) -> Item:
    question = "Are all results reported on the test setting?"
    result = view.result() if view.record.best is not None else None
    if result is None or result.test is None:
        problem = "" if result is None else result.problem
        untested = "the incumbent has not been tested: no number of this study is a result yet"
        return Item(question, "no", problem or untested)
    span, runs = interval_text(result.test.interval), seeds_text(result.test)
    text = f"{number(result.test.value)}, 95 % interval {span}, {runs}; tuning scores are marked as such"
    return Item(question, "yes", text)


def _cost(view: StudyView) -> Item:
    budget = {
        name: value for name, value in view.spec.budget.model_dump().items() if value is not None
    }
    trained = view.record.tables.training_by("seed_role")
    spent = "; ".join(
        f"{role}: {taken.environment_steps:,.0f} steps, {taken.wall_seconds:,.0f} s of training"
        for role, taken in trained.items()
    )
    given = ", ".join(f"{name} {value:g}" for name, value in budget.items())
    return Item(
        "Is the tuning budget given, in a stated cost metric?",
        "yes",
        f"budget: {given}; {spent or 'nothing trained'}",
    )


def _hardware(view: StudyView, sessions: Sequence[Mapping[str, Any]]) -> Item:
    question = "If the budget is time: is the hardware the same for all methods?"
    if view.spec.indeterminate is None:
        return Item(
            question,
            "yes",
            "the budget is counted in steps: hardware changes no number of this study",
        )
    return Item(
        question,
        "author",
        f"numbers depend on time ({view.spec.indeterminate}); name your hardware; "
        f"recorded: {_distinct(sessions, 'platform')}",
    )


def _distinct(sessions: Sequence[Mapping[str, Any]], key: str) -> str:
    return ", ".join(sorted({str(session[key]) for session in sessions})) or "not recorded"
