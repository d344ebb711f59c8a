"""The rows of a study's tables, as types.

`tables.py` reads them; `schema.py` says what the tables hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from autorl.core.types import ProposalId, SeedRole

SUCCEEDED = ("done", "stopped")
"""Statuses of runs, segments and tests that did not fail."""


class ConfigRow(NamedTuple):
    """A configuration under the number of the proposal that introduced it."""

    first: ProposalId
    origin: str
    values: Mapping[str, Any]


class RunRow(NamedTuple):
    """A run of the table `runs`.

    Its configuration is numbered as in `ConfigRow`.
    """

    run_id: int
    config_id: ProposalId
    seed: int
    seed_role: SeedRole
    algorithm: str
    environment: str | None
    parent_run: int | None
    start_step: int
    member: str | None
    status: str
    environment_steps: float
    wall_seconds: float


class SegmentRow(NamedTuple):
    """A segment of the table `segments`.

    Its configuration is numbered as in `ConfigRow`. Segments are named by their texts, `12.3`.
    """

    segment: str
    run_id: int
    seed: int
    parent: str | None
    member: str | None
    from_step: int
    to_step: int
    config_id: ProposalId


class EvaluationRow(NamedTuple):
    """A metric of a run, measured at a step.

    The value is None where it was no number.
    """

    run_id: int
    step: int
    metric: str
    value: float | None


class ProposalRow(NamedTuple):
    """A proposal as the report lists it.

    Attributes:
        first: the proposal that introduced the configuration.
        score: by each objective; empty until one is known.
    """

    proposal: ProposalId
    first: ProposalId
    origin: str
    status: str
    score: tuple[float, ...]
    n_seeds: int | None
    until: int
    values: Mapping[str, Any]


class ScoreRow(NamedTuple):
    """The first objective of a proposal over its tuning seeds.

    Larger is better.
    """

    proposal: ProposalId
    value: float
    spread: float
    n_seeds: int


class Link(NamedTuple):
    """A proposal as one link of a chain.

    It says what is trained, to which step, and from which parent.
    """

    values: Mapping[str, Any]
    until: int
    resume_from: ProposalId | None


class ChargedRow(NamedTuple):
    """The cost of a proposal.

    It is the steps from `start` to `until` for each seed it is charged for.

    Attributes:
        start: where its parent ends, in nominal steps; 0 without one.
        anew: whether it was trained from step 0 although it has a parent.
        charged: seeds its chain was charged for, as JSON text; None: none yet.
    """

    proposal: ProposalId
    until: int
    start: int
    parent: ProposalId | None
    baseline: int
    anew: int
    charged: str | None


class TestRow(NamedTuple):
    """The value of a test run by one objective.

    It is None or a penalty where the run failed.
    """

    proposal: ProposalId
    label: str
    seed: int
    value: float | None
    status: str


class Failure(NamedTuple):
    """A segment that failed.

    It says whose, on which seed, how, and the last line of the error.
    """

    segment: str
    proposal: ProposalId
    seed: int
    kind: str
    message: str


class RunValue(NamedTuple):
    """A value that a run has at a step."""

    role: SeedRole
    run_id: int
    step: int
    value: float


class Training(NamedTuple):
    """The environment steps and seconds that runs took, summed."""

    environment_steps: float
    wall_seconds: float


@dataclass(frozen=True)
class ProposalCounts:
    """Counts of the proposals of a search, by who made them.

    Attributes:
        total: all of them, but for the driver's own baseline.
        new: those whose configuration no earlier one had; modelled: of these, those of a model.
    """

    total: int
    new: int
    modelled: int
