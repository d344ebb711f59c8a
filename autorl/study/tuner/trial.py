"""Trials that `Tuner.ask` hands out, and its answers without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autorl.core.types import AutorlError, Config


@dataclass(frozen=True)
class Trial:
    """One (configuration, seed) to be trained by the caller of `Tuner`.

    Attributes:
        start, until: train from step `start` (where `checkpoint` was saved; 0 from scratch) to step
            `until`.
        checkpoint: what was told as the checkpoint of the trial this one continues; None = from
            scratch.
        environment: its name, or that of the task.

    With `fidelity`, `stop: median` and `rungs` a trial is a part of a run: what is told at its end
    decides whether `ask` hands out the next part, which goes on from `checkpoint`. Stopping needs
    no call here. (`tune` gives a function `f(trial)` a `LiveTrial`, which waits in between.)
    """

    id: str
    config: Config
    seed: int
    role: str
    start: int
    until: int
    checkpoint: str | None
    environment: str | None = None

    # For mypy a name that a trial does not have stays an error.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            hint = _NOT_OF_A_TRIAL.get(name)
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(f"{text}: {hint}" if hint else text)


PARTS_OF_RUNS = (
    "a trial of ask and tell ends at its `until`: tell it, and the study decides (`stop: median`, "
    "`rungs`) whether `ask` hands out what follows; a function `f(trial)` of `tune` can ask"
)
_NOT_OF_A_TRIAL = {
    "report": "tell the tuner, `tuner.report(trial, step, value)`",
    "should_stop": PARTS_OF_RUNS,
    "should_prune": PARTS_OF_RUNS,
    "params": "the values are in `trial.config`",
    "number": "it is `trial.id`",
}


class Waiting(AutorlError):  # noqa: N818 - a state of the search, not a mistake
    """`Tuner.ask` has nothing before an open trial is told."""


class Finished(AutorlError):  # noqa: N818 - a state of the search, not a mistake
    """`Tuner.ask` has nothing any more.

    The budget is used up, or the optimizer is done.
    """
