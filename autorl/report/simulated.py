"""What stands in for training when a study is planned: segments that end where they would, with random scores."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autorl.spec import Spec
from autorl.study.driver import Driver
from autorl.study.lengths import Reach
from autorl.study.lineage import Lineage
from autorl.types import Checkpoint, Config, InputError, Outcome, Report, Segment, Status

_PROBES = 256  # random configurations that are asked for the end of their runs


@dataclass(frozen=True)
class Phase:
    """Work of the search or of the test phase: its size, nominal and really trained steps, evaluations."""

    proposals: int
    segments: int
    steps: int
    evaluations: int
    trained: int

    def less(self, part: Phase) -> Phase:
        """The work besides a part of it."""
        mine, other = vars(self), vars(part)
        return Phase(**{name: mine[name] - other[name] for name in mine})


class Tally:
    """Answers segments with random scores, at the steps where they would really end, and counts them."""

    def __init__(self, spec: Spec, driver: Driver, reach: Reach) -> None:
        self._metrics = [one.metric for one in spec.objective] + [
            one.metric for one in spec.constraints
        ]
        self._rng = np.random.default_rng(spec.seed)
        self._driver = driver
        self._reach = reach
        self._trained = 0
        self._refused: list[str] = []
        self.segments: list[Segment] = []

    def take(self, segment: Segment) -> Outcome:
        self.segments.append(segment)
        reports = tuple(
            Report(segment.id, step, {name: float(self._rng.random()) for name in self._metrics})
            for step in segment.evaluate_at
        )
        reached = self._end(segment)
        saves = segment.save and self._reach.trainer(segment.trainer).resumable
        self._trained += reached - segment.start
        return Outcome(
            segment.id,
            Status.DONE,
            reached=reached,
            reports=reports,
            cost={"environment_steps": float(reached - segment.start), "wall_seconds": 1.0},
            checkpoint=Checkpoint(segment.id, "simulated") if saves else None,
        )

    def _end(self, segment: Segment) -> int:
        """Where the segment ends; a configuration that its trainer refuses fails before its first step."""
        try:
            end = self._reach(segment.trainer, segment.environment, segment.config, segment.until)
        except InputError as error:
            self._refused.append(str(error))
            return segment.start
        return max(segment.start, end)

    def cautions(self) -> list[str]:
        """That runs will fail or start again, if any will for what is known beforehand."""
        cautions = []
        if self._refused:
            cautions.append(
                f"{len(self._refused)} segments of this plan would fail, the first with: {self._refused[0]}"
            )
        if self._driver.anew:
            cautions.append(
                "the trainer leaves no checkpoints: a run that goes on from a rung is trained from step 0 again, and "
                f"the budget is charged for it ({len(self._driver.anew)} of {len(self._driver.lineage)} proposals)"
            )
        return cautions

    def phase(self) -> Phase:
        nominal = sum(self._driver.charge_of(segment.id.proposal) for segment in self.segments)
        evaluations = sum(len(segment.evaluate_at) for segment in self.segments)
        return Phase(
            len(self._driver.lineage), len(self.segments), nominal, evaluations, self._trained
        )


class Ends:
    """Where full-length runs of a study's configurations really end."""

    def __init__(self, spec: Spec, reach: Reach) -> None:
        self._spec = spec
        self._reach = reach
        self._default = spec.search_space.default()

    def of(self, config: Config, step: int) -> int:
        """The step at which a run of `config` to `step` ends; `step` if its trainer refuses it."""
        trainer, own = self._spec.trainer_for(config)
        try:
            return self._reach(trainer, self._spec.environment.resolve(), own, step)
        except InputError:
            return step

    def of_candidates(self, lineage: Lineage, *, at_most: bool) -> int:
        """Steps of one test run of each candidate: the longest there can be, or as many of average length."""
        horizon, count = self._spec.fidelity.steps, candidates(self._spec)
        ends = [self.of(proposal.config, horizon) for proposal in lineage.proposals.values()]
        if count == 0 or not ends:
            return 0
        chosen = (
            sorted(ends[1:], reverse=True)[: count - 1]
            if at_most
            else [round(sum(ends) / len(ends))]
        )
        chosen += [max(chosen, default=ends[0])] * (count - 1 - len(chosen))
        return self.of(self._default, horizon) + sum(chosen)

    def equal(self) -> bool:
        """Whether every configuration ends at the same step, as far as many random ones and the default show."""
        return (
            len(
                {
                    self.of(config, self._spec.fidelity.steps)
                    for config in (self._default, *self._probes)
                }
            )
            == 1
        )

    @cached_property
    def _probes(self) -> list[Config]:
        """Random configurations of the space."""
        space, rng = self._spec.search_space, np.random.default_rng(self._spec.seed)
        drawn = (space.try_sample(rng, _PROBES) for _ in range(_PROBES))
        return [config for config in drawn if config is not None]

    def cautions(self) -> list[str]:
        """How many configurations have rollouts too long to be trained, or to be cut between two evaluations."""
        steps, interval = self._spec.fidelity.steps, self._spec.evaluation_interval
        untrained, late = self._too_long(0, steps), self._too_long(steps, interval)
        remedy = "the constraint `n_steps * n_envs <= evaluation_interval` (or `train_freq * ...`) rules them out"
        cautions = []
        if untrained:
            cautions.append(
                f"{untrained} cannot be trained: a rollout is longer than a run, {steps:,} steps; {remedy}"
            )
        if late:
            cautions.append(
                f"{late} cannot be cut at every evaluation and rung: a rollout is longer than the "
                f"{interval:,} steps between two of them, so several have the same weights; {remedy}"
            )
        return cautions

    def _too_long(self, cut: int, step: int) -> str:
        """How many configurations cannot be cut at `step`, though at `cut` (0: any), for people; empty if none."""
        too_long = [
            self.of(config, step) == 0 and (cut == 0 or self.of(config, cut) > 0)
            for config in (self._default, *self._probes)
        ]
        if not any(too_long):
            return ""
        return (
            "the default and " * too_long[0]
            + f"{sum(too_long[1:])} of {len(self._probes)} random configurations"
        )


def candidates(spec: Spec) -> int:
    """Incumbent, default configuration and the top k, when they are all different."""
    return (2 + max(0, spec.test.top - 1)) if spec.plan.test else 0
