"""Shared parts of trackers: places, names, the summary of a study.

A tracker has one run for each run of the study, found again by (id of the study, number of the run)
in whatever session, and one for the study itself, which gets the summary.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autorl.core.plain_text import number, shown
from autorl.core.plain_values import json_value, plain
from autorl.core.types import Config, FrozenMap, InputError, Outcome, Status, StudyError
from autorl.study.callbacks import Callback, RunInfo, StudyInfo
from autorl.study.results.result import Result

FOLDER = Path("logs", "trackers")
"""Where trackers write in a study's folder; `autorl doctor` knows it."""
_ID_SHOWN = 8  # characters of a study's id in names


class Tracker(Callback):
    """A callback whose constructor checks its arguments."""

    @classmethod
    def check(cls, **arguments: Any) -> None:
        """Check the arguments of a study file.

        Raises:
            InputError: one is wrong, or the tracker's library is not installed.
        """
        cls(**arguments)


def need(library: str, extra: str) -> None:
    """Check that a library is installed, without importing it.

    Raises:
        InputError: it is not.
    """
    if importlib.util.find_spec(library) is None:
        message = f'{library} is not installed: pip install "autorl[{extra}]"'
        raise InputError(message, key=f"callbacks.{extra}")


def check_text(value: object, key: str) -> None:
    """Check that an argument is text or not given.

    Raises:
        InputError: it is something else, or empty.
    """
    if value is not None and (not isinstance(value, str) or not value):
        raise InputError(f"expected text, got {shown(value)}", key=f"callbacks.{key}")


def check_directory(value: object, key: str) -> Path | None:
    """Return an argument that names a directory.

    Raises:
        InputError: it is something else, or a file.
    """
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise InputError(f"expected a directory, got {shown(value)}", key=f"callbacks.{key}")
    directory = Path(value)
    if directory.exists() and not directory.is_dir():
        raise InputError(f"expected a directory, {directory} is a file", key=f"callbacks.{key}")
    return directory


def check_place(study: StudyInfo, given: object, name: str, key: str) -> None:
    """Check that there is a place to write to.

    Raises:
        InputError: the study is in memory and no place was given.
    """
    if given is None and study.folder is None:
        message = f"{name} needs a {key}: a study in memory has no folder to write to"
        raise InputError(message, key="callbacks")


def folder_of(study: StudyInfo) -> Path:
    """Return the folder of trackers within a study's, and make it.

    Raises:
        StudyError: the study has no folder any more, and none is made in its place.
    """
    if study.folder is None or not study.folder.is_dir():
        raise StudyError(f"the study's folder {study.folder} is gone")
    folder = study.folder / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def study_label(study: StudyInfo) -> str:
    """Name a study, unlike other studies of the same name."""
    return f"{study.name}-{study.id[:_ID_SHOWN]}"


def run_label(run: RunInfo) -> str:
    """Name a run for people."""
    return f"{run.role} run {run.run} seed {run.seed}"


def hyperparameters(config: Config) -> dict[str, str | int | float | bool]:
    """Return a configuration as scalars: whatever is none is its JSON."""
    values: dict[str, Any] = plain(config)
    return {
        name: value if isinstance(value, str | int | float | bool) else as_json(value)
        for name, value in values.items()
    }


def facts_of_study(study: StudyInfo) -> dict[str, str]:
    """Describe a study by short texts."""
    return {
        "study": study.name,
        "study_id": study.id,
        "trainer": ", ".join(study.trainers),
        "environment": study.environment or "",
        "optimizer": study.optimizer,
        "objective": as_json([dict(objective) for objective in study.objectives]),
        "steps": str(study.steps),
        "study_seed": str(study.seed),
    }


def facts_of_run(study: StudyInfo, run: RunInfo) -> dict[str, str]:
    """Describe a run by short texts."""
    names = ("run", "proposal", "role", "seed", "parent_run")
    facts = {name: getattr(run, name) for name in names}
    of_run = {name: str(value) for name, value in facts.items() if value is not None}
    return {"study": study.name, "study_id": study.id, **of_run}


def state_of(study: StudyInfo, run: RunInfo, outcome: Outcome) -> str:
    """Say how a run stands after a segment.

    `complete`, the kind of failure, `stopped` by a rule on its own evaluations, or `open` where
    that depends on what the study decides next.
    """
    if outcome.status is not Status.DONE:
        return outcome.status.value
    # A test run may be whole before that, at the step that tuning seeds have chosen.
    return "complete" if run.until >= study.steps else "open"


def ended_runs(result: Result) -> dict[int, dict[Any, Any]]:
    """List the runs of all sessions by number, as `Result.trials`.

    After a kill a recorded end may be missing in a tracker.
    """
    return {row["run"]: row for row in result.trials().to_dict("records")}


@dataclass(frozen=True)
class Summary:
    """Figures that a tracker gets at the end of a study.

    Attributes:
        numbers: tuning score, test score with the bounds of its interval, gap and improvement over
            the default; only those that there are.
        facts: short texts: what the numbers are, proposals by status, the incumbent.
        config: of the incumbent.
        text: all of it in Markdown.
    """

    numbers: Mapping[str, float]
    facts: Mapping[str, str]
    config: Mapping[str, str | int | float | bool]
    text: str


def summarise(result: Result) -> Summary:
    """Summarise the result of a study."""
    test = result.test
    numbers: dict[str, float | None] = {
        "tuning_score": result.tuning,
        "gap": result.gap,
        "improvement": result.improvement,
    }
    if test is not None:
        # The number to report, and the one the gap is of, which has the study's aggregate.
        scores = {
            "test_iqm": (test.iqm, test.iqm_interval),
            "test_score": (test.value, test.interval),
        }
        for name, (score, interval) in scores.items():
            numbers[name] = score
            numbers[f"{name}_low"] = interval.low if interval else None
            numbers[f"{name}_high"] = interval.high if interval else None
        numbers |= {"test_seeds": len(test.seeds), "failed_test_runs": test.failed}
    said = {name: float(value) for name, value in numbers.items() if value is not None}
    config = hyperparameters(result.incumbent.config)
    facts = {
        "objective": result.objective,
        "incumbent_proposal": str(result.incumbent.proposal),
        "proposals": ", ".join(f"{count} {kind}" for kind, count in result.counts.items()),
    }
    if result.problem:
        facts["problem"] = result.problem
    parts = [
        table({name: number(value) for name, value in said.items()}, "score"),
        table(config, "incumbent"),
        table(facts, "study"),
        "\n".join(f"- {caveat}" for caveat in result.caveats),
    ]
    return Summary(said, facts, config, "\n\n".join(part for part in parts if part))


def table(rows: Mapping[str, object], head: str) -> str:
    """Write a table of two columns in Markdown."""
    lines = [f"| {head} | |", "| --- | --- |"]
    for row in rows.items():
        name, value = (str(cell).replace("|", "\\|").replace("\n", " ") for cell in row)
        lines.append(f"| {name} | {value} |")
    return "\n".join(lines)


def as_json(value: object) -> str:
    """Write a value as JSON in one line."""
    return json.dumps(json_value(value), ensure_ascii=False)


@contextmanager
def environment(
    settings: Mapping[str, str], unless_set: Mapping[str, str] = FrozenMap()
) -> Iterator[None]:
    """Set variables of the environment in a block."""
    before = dict(os.environ)
    chosen = {**{name: text for name, text in unless_set.items() if name not in before}, **settings}
    os.environ.update(chosen)
    try:
        yield
    finally:
        for name in chosen:
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]
