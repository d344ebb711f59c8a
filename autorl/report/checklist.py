"""The checklist of Eimer et al. (2023), filled in from a record.

Reference: Eimer, Lindauer, Raileanu (2023), Hyperparameters in Reinforcement Learning and How To
Tune Them, ICML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from autorl.core.plain_text import counted, number
from autorl.report.reading import StudyView
from autorl.report.text import interval_text, seeds_text
from autorl.study.spec.options import options_to_show


class Item(NamedTuple):
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
    version = f"autorl {_distinct(sessions, 'version')}"
    options = options_to_show(spec.optimizer, spec.path)
    method = f"{version}, optimizer {spec.optimizer.name}{f' {options}' if options else ''}"
    # Both by construction: `SeedPlan` refuses shared seeds, and candidates are frozen in an event.
    separate = (
        "tuning and test seeds are disjoint; "
        "test seeds are first used after the incumbent is frozen"
    )
    # A budget in hours, limits, wall-clock objectives and asynchronous studies depend on the
    # machine.
    hardware = Item(
        "If the budget is time: is the hardware the same for all methods?",
        "yes",
        "the budget is counted in steps: hardware changes no number of this study",
    )
    if spec.indeterminate is not None:
        evidence = (
            f"numbers depend on time ({spec.indeterminate}); name your hardware; "
            f"recorded: {_distinct(sessions, 'platform')}"
        )
        hardware = Item(hardware.question, "author", evidence)
    return [
        Item(
            "Are there separate training and test settings, "
            "and was only the training setting used for tuning?",
            "yes" if spec.plan.test else "no",
            separate if spec.plan.test else "the study has no test seeds",
        ),
        Item(
            "Are the tuning and test seeds listed?",
            "yes",
            f"tuning {spec.plan.text('tuning')}; test {spec.plan.text('test')}",
        ),
        _tested(view),
        Item(
            "Are the tuning package and method named, with code and tuning process?",
            "yes" if sessions else "no",
            f"{method}; the study file below repeats it. "
            "Your own environment and trainer code is yours to publish.",
        ),
        Item(
            "Is the exact search space given, with scales?",
            "yes",
            f"{counted(len(spec.search_space), 'hyperparameter')}, in the study file below; "
            f"sha256 {spec.search_space.hash[:16]}",
        ),
        Item("Is the tuning budget given, in a stated cost metric?", "yes", _cost(view)),
        hardware,
        Item(
            "Was every reported method tuned in the same way?",
            "author",
            "this study tunes one method; `autorl compare` runs several under one protocol, "
            "and compares studies that had the same one",
        ),
        Item(
            "Are the final hyperparameters given?",
            "no" if view.record.best is None else "yes",
            "written out below, every change of a schedule included; "
            "`autorl best` prints them to be run again",
        ),
        Item(
            "Are all package versions and the environment's version pinned?",
            "author",
            f"recorded: {version}, Python {_distinct(sessions, 'python')}; "
            "publish a lock file for the rest",
        ),
        Item(
            "Were all hyperparameters that may matter tuned, and their importance analysed?",
            "author",
            f"tuned: {', '.join(spec.search_space.names)}; "
            "the report draws their importance where there are configurations enough",
        ),
    ]


def _tested(view: StudyView) -> Item:
    question = "Are all results reported on the test setting?"
    result = view.found
    if result is None or result.test is None:
        problem = "" if result is None else result.problem
        untested = "the incumbent has not been tested: no number of this study is a result yet"
        return Item(question, "no", problem or untested)
    score = f"{number(result.test.value)}, interval {interval_text(result.test.interval)}"
    runs = seeds_text(result.test)
    return Item(question, "yes", f"{score}, {runs}; tuning scores are marked as such")


def _cost(view: StudyView) -> str:
    budget = view.spec.budget.model_dump(exclude_none=True)
    stated = ", ".join(f"{name} {value:g}" for name, value in budget.items())
    # Steps really trained: the budget counts others if runs are cut at rollouts.
    trained = view.record.tables.training_by("seed_role")
    spent = "; ".join(
        f"{role}: {counted(taken.environment_steps, 'step', form=',.0f')}, "
        f"{taken.wall_seconds:,.0f} s of training"
        for role, taken in trained.items()
    )
    return f"budget: {stated}; {spent or 'nothing trained'}"


def _distinct(sessions: Sequence[Mapping[str, object]], key: str) -> str:
    return ", ".join(sorted({str(session[key]) for session in sessions})) or "not recorded"
