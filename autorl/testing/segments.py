"""Segments that conformance kits train, and what must hold of them.

Needs no pytest: a dry run proves a class of the user's by them (`prove`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autorl.core.plain_text import printable, shortened
from autorl.core.types import (
    Config,
    EnvironmentSpec,
    InputError,
    Outcome,
    Report,
    Segment,
    SegmentId,
    TrainerSpec,
)
from autorl.trainers import load
from autorl.trainers.contract import ShortRun, Trainer


@dataclass(frozen=True)
class Case:
    """A training that the tests run.

    Attributes:
        trainer: as in a study file: its name and options.
        environment: as in a study file.
        configs: two valid configurations; they differ only in hyperparameters that a continued
            segment may change.
        horizon: nominal steps of a whole run; half of it must be a step the trainer can be cut at.
        episodes: of an evaluation.
        fixed: a hyperparameter and a new value that a continued segment may not take; None if all
            may change.
        passes: whether a run goes on to the first cut at or after its last nominal step, not to the
            last one before.
        resumable: whether the trainer continues from checkpoints.
        stochastic: whether different seeds must give different results.
    """

    trainer: TrainerSpec
    environment: EnvironmentSpec = field(default_factory=EnvironmentSpec)
    configs: tuple[Config, Config] = (Config(), Config())
    horizon: int = 256
    episodes: int = 2
    fixed: tuple[str, Any] | None = None
    passes: bool = False
    resumable: bool = True
    stochastic: bool = True


SEED = 3
OTHER_SEED = 4


class Runner:
    """Runs segments of a case, once each: trainings are the kit's cost."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case = case
        self.folder = folder
        self.trainer: Trainer = load(case.trainer)
        self._runs: dict[str, Outcome] = {}
        self._numbers: dict[str, int] = {}

    def id_of(self, name: str) -> SegmentId:
        """The identity of the segment with a name."""
        return SegmentId(self._numbers.setdefault(name, len(self._numbers)), SEED)

    def segment(self, name: str, **changes: Any) -> Segment:
        """Describe a whole run of the first configuration, saved, with `changes`."""
        case = self.case
        uncut = Segment(
            id=self.id_of(name),
            trainer=case.trainer,
            environment=case.environment,
            config=case.configs[0],
            seed=SEED,
            role="tuning",
            until=case.horizon,
            horizon=case.horizon,
            evaluate_at=(case.horizon // 2, case.horizon),
            episodes=case.episodes,
            save=case.resumable,
            folder=str(self.folder / name),
        )
        return replace(uncut, **changes)

    def run(self, name: str, **changes: Any) -> Outcome:
        """Train a segment, once per name."""
        if name not in self._runs:
            self._runs[name] = self.train(self.segment(name, **changes))
        return self._runs[name]

    def train(
        self, segment: Segment, report: Callable[[Report], None] = lambda report: None
    ) -> Outcome:
        return self.trainer.train(segment, report)

    def first_half(self) -> Outcome:
        half = self.case.horizon // 2
        return self.run("first-half", until=half, evaluate_at=(half,))

    def second_half(self, name: str = "second-half", **changes: Any) -> Outcome:
        """Continue the first half to the horizon."""
        first = self.first_half()
        assert first.checkpoint is not None, (
            "a resumable trainer returned no checkpoint for save=True"
        )
        continuation: dict[str, Any] = {
            "parent": first.checkpoint,
            "start": first.reached,  # not the nominal half: a rollout may end before it
            "evaluate_at": (self.case.horizon,),
        }
        return self.run(name, **continuation | changes)


def metrics(outcome: Outcome) -> list[tuple[int, dict[str, float]]]:
    return [(report.step, dict(report.metrics)) for report in outcome.reports]


def check_halves(runner: Runner) -> None:
    """Assert that n + n steps through a checkpoint equal 2n."""
    halves = metrics(runner.first_half()) + metrics(runner.second_half())
    assert halves == metrics(runner.run("whole")), (
        "n + n steps through a checkpoint differ from 2n: it keeps a state that no checkpoint has"
    )
    assert runner.second_half().reached == runner.run("whole").reached


def check_change(runner: Runner) -> Outcome:
    """Assert that a continued run applies a change and reads it back."""
    first, second = runner.case.configs
    changed = {name: value for name, value in second.items() if first.get(name) != value}
    assert all(name in runner.trainer.changes for name in changed)
    outcome = runner.second_half("changed", config=second)
    applied = {name: outcome.applied[name] for name in changed}
    assert applied == changed, f"a continued run was to have {changed}, and has {applied}"
    return outcome


def prove(short: ShortRun, environment: EnvironmentSpec) -> str:
    """Train a short run whole, in halves, and with a change.

    Args:
        short: as the trainer describes it.
        environment: of the study.

    Returns:
        What was shown, in a line.

    Raises:
        InputError: a run fails, or one of the two does not hold.
    """
    name = short.trainer.kwargs["algorithm_class"]
    changes = load(short.trainer).changes
    halved = {
        key: value / 2
        for key, value in short.config.items()
        if key in changes and isinstance(value, float) and f"{key}.shape" not in short.config
    }
    configs = (short.config, Config({**short.config, **halved}))
    case = Case(short.trainer, environment, configs, short.steps)
    with tempfile.TemporaryDirectory(prefix="autorl-") as folder:
        try:
            runner = Runner(case, Path(folder))
            check_halves(runner)
            if halved:
                check_change(runner)
        except InputError:
            raise
        except Exception as error:
            text = shortened(printable(str(error).strip(), keep_lines=False), 300)
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            message = f"{name}, trained for {short.steps} steps: {kind}{text}"
            raise InputError(message, key="trainer.kwargs.algorithm_class") from error
    half = short.steps // 2
    applied = f"; {', '.join(halved)} applied and read back" if halved else ""
    return f"{name}: {half} + {half} steps through a checkpoint equal {short.steps}{applied}"
