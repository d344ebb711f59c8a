"""The checklist of Eimer et al. (2023), filled in from a record.

Reference: Eimer, Lindauer, Raileanu (2023), Hyperparameters in Reinforcement Learning and How To
Tune Them, ICML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from autorl.core.plain_text import counted, number
from autorl.report.reading import StudyView
from autorl.report.text import interval_text, seeds_text
from autorl.study.spec.options import options_to_show


@dataclass(frozen=True)
class Item:
    """One question of the checklist, its answer and the evidence.

    Attributes:
        answer: `author` where the record cannot know.
    """

    question: str
    answer: Literal["yes", "no", "author"]
    evidence: str


def checklist(view: StudyView) -> list[Item]:
    """Answer every item of the checklist.

    Nothing is claimed that the record does not show.
    """
    spec = view.spec
    sessions = view.sessions()
    version = _distinct(sessions, "version")
    return [
        _separate(view),
        Item(
            "Are the tuning and test seeds listed?",
            "yes",
            f"tuning {list(spec.plan.tuning)}; test {list(spec.plan.test) or 'none'}",
        ),
        _tested(view),
        _method(view, sessions),
        Item(
            "Is the exact search space given, with scales?",
            "yes",
            f"{counted(len(spec.search_space), 'hyperparameter')}, in the study file below; "
            f"sha256 {spec.search_space.hash[:16]}",
        ),
        _cost(view),
        _hardware(view, sessions),
        Item(
            "Was every reported method tuned in the same way?",
            "author",
            "this study tunes one method; `autorl compare` runs several under one protocol, "
            "and compares studies that had the same one",
        ),
        Item(
            "Are the final hyperparameters given?",
            _yes_if(view.record.best is not None),
            "written out below, every change of a schedule included; "
            "`autorl best` prints them to be run again",
        ),
        Item(
            "Are all package versions and the environment's version pinned?",
            "author",
            f"recorded: autorl {version}, Python {_distinct(sessions, 'python')}; "
            "publish a lock file for the rest",
        ),
        Item(
            "Were all hyperparameters that may matter tuned, and their importance analysed?",
            "author",
            f"tuned: {', '.join(spec.search_space.names)}; "
            "the report draws their importance where there are configurations enough",
        ),
    ]


def _yes_if(holds: bool) -> Literal["yes", "no"]:
    return "yes" if holds else "no"


def _separate(view: StudyView) -> Item:
    question = (
        "Are there separate training and test settings, "
        "and was only the training setting used for tuning?"
    )
    if not view.spec.plan.test:
        return Item(question, "no", "the study has no test seeds")
    return Item(
        question,
        "yes",
        # Both by construction: `SeedPlan` refuses shared seeds, and candidates are frozen in an
        # event.
        "tuning and test seeds are disjoint; "
        "test seeds are first used after the incumbent is frozen",
    )


def _method(view: StudyView, sessions: Sequence[Mapping[str, object]]) -> Item:
    optimizer = view.spec.optimizer
    named = f"autorl {_distinct(sessions, 'version')}, optimizer {optimizer.name}"
    options = options_to_show(optimizer, view.spec.path)
    if options:
        named += f" {options}"
    return Item(
        "Are the tuning package and method named, with code and tuning process?",
        _yes_if(bool(sessions)),
        f"{named}; the study file below repeats it. "
        "Your own environment and trainer code is yours to publish.",
    )


def _tested(view: StudyView) -> Item:
    question = "Are all results reported on the test setting?"
    result = view.result() if view.record.best is not None else None
    if result is None or result.test is None:
        problem = "" if result is None else result.problem
        untested = "the incumbent has not been tested: no number of this study is a result yet"
        return Item(question, "no", problem or untested)
    score = f"{number(result.test.value)}, interval {interval_text(result.test.interval)}"
    runs = seeds_text(result.test)
    return Item(question, "yes", f"{score}, {runs}; tuning scores are marked as such")


def _cost(view: StudyView) -> Item:
    budget = {
        name: value for name, value in view.spec.budget.model_dump().items() if value is not None
    }
    # Steps really trained: the budget counts others if runs are cut at rollouts.
    trained = view.record.tables.training_by("seed_role")
    spent = "; ".join(
        f"{role}: {counted(taken.environment_steps, 'step', form=',.0f')}, "
        f"{taken.wall_seconds:,.0f} s of training"
        for role, taken in trained.items()
    )
    budget_text = ", ".join(f"{name} {value:g}" for name, value in budget.items())
    return Item(
        "Is the tuning budget given, in a stated cost metric?",
        "yes",
        f"budget: {budget_text}; {spent or 'nothing trained'}",
    )


def _hardware(view: StudyView, sessions: Sequence[Mapping[str, object]]) -> Item:
    question = "If the budget is time: is the hardware the same for all methods?"
    # A budget in hours, limits, wall-clock objectives and asynchronous studies depend on the
    # machine.
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


def _distinct(sessions: Sequence[Mapping[str, object]], key: str) -> str:
    return ", ".join(sorted({str(session[key]) for session in sessions})) or "not recorded"
