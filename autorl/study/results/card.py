"""Makes the card of an incumbent, and judges it by new seeds."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from autorl.core import seeds as streams
from autorl.core.masking import masked
from autorl.core.plain_values import plain
from autorl.core.types import InputError, StudyError
from autorl.statistics.bootstrap import Interval
from autorl.statistics.exchange import fewest_new, interval_of_mean
from autorl.store.sessions import changes
from autorl.study.results.record import StudyRecord
from autorl.study.results.replay import schedule_document
from autorl.study.results.result import Result
from autorl.study.session import session, user_files
from autorl.study.spec import Spec
from autorl.study.spec.cards import Card

_FACTS = ("version", "source", "python", "packages", "files", "cpu", "threads")
_NOT_OF_A_RUN = ("name", "optimizer", "budget", "baselines", "executor", "callbacks", "keep")


def make_card(record: StudyRecord, result: Result) -> dict[str, Any]:
    """Describe the incumbent of a study for others to train and judge.

    Raises:
        StudyError: it has no test score.
        InputError: the study begins from a policy, or its file holds a secret.
    """
    spec = record.spec
    test = result.test
    if test is None:
        raise StudyError(result.problem or "the incumbent was not tested: `autorl test` does it")
    if spec.start is not None:
        raise InputError("a card trains from scratch: this study begins from a policy", key="start")
    proposal = result.incumbent.proposal
    study = schedule_document(spec, result.incumbent.schedule)
    schedule = study["optimizer"]["schedule"]
    study = {name: value for name, value in study.items() if name not in _NOT_OF_A_RUN}
    study["evaluation"] = {"aggregate": spec.evaluation.aggregate}
    study = _texts_by(lambda text: text.removeprefix(f"{spec.path}/"), study)
    if masked(study) != study:
        message = "holds a secret: give its name in `environment_variables`, without the value"
        raise InputError(message, file=str(record.folder))
    tables = record.tables
    tuning = sorted({spec.plan.parts(pair)[1] for pair in tables.tuning_seeds(proposal)})
    runs = tables.runs()
    facts = tables.sessions()[-1]
    last = tables.last_number()
    span = test.iqm_interval
    score = {
        "objective": result.objective,
        "iqm": test.iqm,
        "interval": None if span is None else [span.low, span.high],
        "seeds": dict(test.seeds),
        "failed": test.failed,
    }
    made_by = {name: facts[name] for name in _FACTS if name in facts}
    content: dict[str, Any] = plain(
        {
            "card": 1,
            "name": spec.name,
            "score": score,
            "tuning": {"score": result.tuning, "seeds": tuning},
            "step": record.chosen_step(proposal) or result.incumbent.until,
            "schedule": schedule,
            "study": study,
            "made_by": {**made_by, "files": {**facts.get("files", {}), **_data_files(spec)}},
            "log": {"events": last, "head": tables.hash_of(last)},
            "cost": {
                "runs": len(runs),
                "environment_steps": sum(run.environment_steps for run in runs),
                "run_hours": sum(run.wall_seconds for run in runs) / 3600,
                "driver_hours": record.hours,
            },
        }
    )
    return content


def study_again(card: Card, rerun: int, folder: Path) -> dict[str, Any]:
    """Return the study that trains a card on `rerun` new test seeds.

    Args:
        card: as it was read.
        rerun: how many.
        folder: of the card, where modules and files are looked for.

    Raises:
        InputError: so few seeds could never lie outside.
    """
    used = card.study["seeds"]
    fewest = fewest_new(len(used["test"]))
    if fewest is None or rerun < fewest:
        message = f"{len(used['test'])} seeds of the card need {fewest} new ones, got {rerun}"
        raise InputError(f"could not lie outside: {message}", key="--rerun")
    objective = card.study["objective"][0]
    # The step is chosen on tuning seeds: all are trained. Else a search needs one to begin with.
    tuning = card.tuning.seeds if objective["reduce"] == "best" else card.tuning.seeds[:1]
    first = 1 + max([*used["tuning"], *used["test"]])
    return {
        **card.study,
        "name": f"{card.name}-verify",
        "path": str(folder),
        "seeds": {"tuning": tuning, "test": list(range(first, first + rerun))},
        "optimizer": {"name": "schedule", "schedule": card.schedule},
        "budget": {"runs": len(tuning)},
        "keep": {"checkpoints": "none"},
    }


@dataclass(frozen=True)
class Verdict:
    """Whether new test seeds of a card are more of the same.

    Attributes:
        card, new: the score of each test seed, a mean over tasks, in the metric's own direction.
        interval: that the mean of the new ones is to lie in.
        differs: versions and files that are other than the card's, in words.
    """

    card: Mapping[int, float]
    new: Mapping[int, float]
    interval: Interval
    differs: tuple[str, ...]

    @property
    def mean(self) -> float:
        """The mean of the new scores."""
        return fmean(self.new.values())

    @property
    def inside(self) -> bool:
        """Say whether the mean lies in the interval."""
        return self.mean in self.interval


def judge_card(card: Card, spec: Spec, result: Result) -> Verdict:
    """Compare a card with the study that trained it again.

    Raises:
        StudyError: a run on a new seed failed, and the card states no score for that.
    """
    test = result.test
    if test is None or (test.failed and test.failed_value is None):
        failed = (f"{seed} ({kind})" for seed, kind in result.entries[0].failures.items())
        raise StudyError(f"no verdict: the run on test seed {', '.join(failed)} failed")
    old = _by_seed(spec, card.score.seeds)
    new = _by_seed(spec, test.seeds)
    rng = streams.generator(spec.seed, "test", "card")
    interval = interval_of_mean(list(old.values()), list(new.values()), rng=rng)
    now = session(spec, {**user_files(spec), **_data_files(spec)})
    differing = changes([card.made_by, now]).items()
    differs = tuple(f"{name} {', now '.join(values)}" for name, values in differing)
    return Verdict(old, new, interval, differs)


def _by_seed(spec: Spec, scores: Mapping[int, float]) -> dict[int, float]:
    """Average the scores of a seed over tasks."""
    by_seed: dict[int, list[float]] = {}
    for pair, score in scores.items():
        by_seed.setdefault(spec.plan.parts(pair)[1], []).append(score)
    return {seed: fmean(values) for seed, values in by_seed.items()}


def _data_files(spec: Spec) -> dict[str, str]:
    """Hash the files that trainers and environments name, by their last part."""
    document = plain(spec.model_dump(mode="json", include={"trainer", "environment", "tasks"}))
    hashes = {}

    def seen(text: str) -> str:
        file = Path(spec.path or ".") / text
        if os.path.isfile(file):  # `Path.is_file` raises where a text is too long for a name
            hashes[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
        return text

    _texts_by(seen, document)
    return hashes


def _texts_by(function: Callable[[str], str], value: object) -> Any:
    """Replace the texts in a document, at any depth."""
    if isinstance(value, Mapping):
        return {name: _texts_by(function, item) for name, item in value.items()}
    if isinstance(value, list):
        return [_texts_by(function, item) for item in value]
    return function(value) if isinstance(value, str) else value
