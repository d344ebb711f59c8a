"""The contracts of the driver with optimizers and executors."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np

    from autorl.core.types import Done, Event, Outcome, Proposal, ProposalId, Report, Segment, Wait


class Optimizer(Protocol):
    """Proposes configurations.

    Its state is a fold over `observe`: a resumed study observes the stored events. The driver
    calls, for proposal numbers 0, 1, 2, ...: `ask(rng)`, then (once the proposal is durable)
    `observe(Proposed)`. Outcomes are observed in an order that depends on the study file alone,
    never on timing. `rng` is a function of (study seed, proposal number) and the same again when
    `ask` is repeated after `Wait`.
    """

    def ask(self, rng: np.random.Generator) -> Proposal | Wait | Done:
        """Make the next proposal.

        It has no durable effect: what it computes may be cached, never remembered.
        """
        ...

    def observe(self, event: Event) -> None:
        """Take note of an event: the only state change."""
        ...

    def keeps(self) -> Collection[ProposalId]:
        """Proposals that may still be resumed: their checkpoints are not collected."""
        ...


class Executor(Protocol):
    """Runs segments somewhere.

    `submit` never blocks. Results come from `poll`, in any order. Several attempts at one segment
    may run at once: they are told apart by `Segment.key`.

    Attributes:
        slots: how many segments run at once; it may change meanwhile (elastic).
    """

    slots: int

    def submit(self, segments: Sequence[Segment]) -> None: ...

    def poll(self, timeout: float) -> list[Report | Outcome]:
        """Return what has happened since the last call.

        Waits at most `timeout` seconds for the first of it.
        """
        ...

    def cancel(self, segment: Segment) -> None:
        """Stop one attempt at a segment for good.

        It yields no outcome. Nothing happens where it is not running any more.
        """
        ...

    def close(self) -> None:
        """Stop everything and release processes. Idempotent."""
        ...
