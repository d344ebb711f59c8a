"""A stand-in for training while a study is planned.

Segments end where they would, with random scores.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autorl.core.plain_text import counted
from autorl.core.types import Checkpoint, Config, InputError, Outcome, Report, Segment, Status
from autorl.report.reach import Reach
from autorl.study.driver import Driver
from autorl.study.lineage import Lineage
from autorl.study.spec import Spec

_PROBES = 256
"""Random configurations that are asked for the end of their runs."""


@dataclass(frozen=True)
class Phase:
    """Work of the search or of the test phase.

    Attributes:
        proposals, segments, evaluations: how many there are.
        steps: nominal steps, which the budget is charged.
        trained: steps that are really trained.
    """

    proposals: int
    segments: int
    steps: int
    evaluations: int
    trained: int

    def less(self, part: Phase) -> Phase:
        """Return the work besides a part of it."""
        subtracted = vars(part)
        return Phase(**{name: size - subtracted[name] for name, size in vars(self).items()})


@dataclass(frozen=True)
class Confirmed:
    """Runs that confirm the best proposals of an adaptive study, beside exploration.

    Attributes:
        explore, confirm: nominal steps of each.
        proposals: how many get more seeds.
        seeds: how many the last ones have.
    """

    explore: int
    confirm: int
    proposals: int
    seeds: int


class Tally:
    """A count of segments, which it answers with random scores.

    They end at the steps where they would really end.
    """

    def __init__(self, spec: Spec, driver: Driver, reach: Reach) -> None:
        self._metrics = [objective.metric for objective in spec.objective]
        self._metrics += [constraint.metric for constraint in spec.constraints]
        # The same random scores, so that a plan says the same when it is asked again.
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
        checkpoint = None
        # Without one, the driver charges what continues the run from step 0.
        if segment.save and self._reach.trainer(segment.trainer).resumable:
            checkpoint = Checkpoint(segment.id, "simulated")
        self._trained += reached - segment.start
        return Outcome(
            segment.id,
            Status.DONE,
            reached=reached,
            reports=reports,
            # No trainer's time: any number above 0, for constraints and objectives on it.
            cost={"environment_steps": float(reached - segment.start), "wall_seconds": 1.0},
            checkpoint=checkpoint,
            fence=segment.fence,
        )

    def _end(self, segment: Segment) -> int:
        """Return where the segment ends.

        A configuration that its trainer refuses fails before its first step.
        """
        try:
            end = self._reach(segment.trainer, segment.environment, segment.config, segment.until)
        except InputError as error:
            # Said as a caution: the study may draw configurations that train.
            self._refused.append(str(error))
            return segment.start
        return max(segment.start, end)

    def cautions(self) -> list[str]:
        """Caution of runs that are known to fail or to start again."""
        cautions = []
        if self._refused:
            cautions.append(
                f"{counted(len(self._refused), 'segment')} of this plan would fail, "
                f"the first with: {self._refused[0]}"
            )
        if self._driver.charges.anew:
            cautions.append(
                "the trainer leaves no checkpoints: a run that goes on from a rung is trained from "
                "step 0 again, and the budget is charged for it "
                f"({len(self._driver.charges.anew)} of {len(self._driver.lineage)} proposals)"
            )
        return cautions

    def confirmed(self, first: Collection[int]) -> Confirmed:
        """Part what explores, with the first seeds, from what confirms."""
        more = [segment.id for segment in self.segments if segment.seed not in first]
        confirm = sum(self._driver.charges.of(number.proposal) for number in more)
        ranking = self._driver.ranking
        counts = [ranking[number].n_seeds for number in ranking.ordered()]
        explore = sum(self._driver.charges.of(segment.id.proposal) for segment in self.segments)
        return Confirmed(
            explore - confirm,
            confirm,
            sum(count > len(first) for count in counts),
            max(counts, default=0),
        )

    def phase(self) -> Phase:
        nominal = sum(self._driver.charges.of(segment.id.proposal) for segment in self.segments)
        evaluations = sum(len(segment.evaluate_at) for segment in self.segments)
        return Phase(
            len(self._driver.lineage), len(self.segments), nominal, evaluations, self._trained
        )


class Ends:
    """Steps at which full-length runs of a study's configurations really end."""

    def __init__(self, spec: Spec, reach: Reach) -> None:
        self._spec = spec
        self._reach = reach
        self._default = spec.search_space.default()

    def of(self, config: Config, step: int) -> int:
        """Return the step at which a run of `config` to `step` ends.

        It is `step` if its trainer refuses the configuration.
        """
        trainer, hyperparameters = self._spec.trainer_for(config)
        try:
            return self._reach(trainer, self._spec.environment.resolve(), hyperparameters, step)
        except InputError:
            return step

    def of_candidates(self, lineage: Lineage, *, at_most: bool) -> int:
        """Return the steps of one test run of each candidate.

        They are the longest there can be, or as many of average length.
        """
        horizon = self._spec.fidelity.steps
        count = candidates(self._spec)
        ends = [self.of(proposal.config, horizon) for proposal in lineage.proposals.values()]
        if count == 0 or not ends:
            return 0
        chosen = (
            sorted(ends[1:], reverse=True)[: count - 1]
            if at_most
            else [round(sum(ends) / len(ends))]
        )
        # As many as there are candidates beside the default.
        chosen += [max(chosen, default=ends[0])] * (count - 1 - len(chosen))
        return self.of(self._default, horizon) + sum(chosen)

    def equal(self) -> bool:
        """Say whether every configuration ends at the same step.

        As far as many random ones and the default show.
        """
        horizon = self._spec.fidelity.steps
        ends = {self.of(config, horizon) for config in (self._default, *self._probes)}
        return len(ends) == 1

    @cached_property
    def _probes(self) -> list[Config]:
        """Random configurations of the space."""
        space = self._spec.search_space
        rng = np.random.default_rng(self._spec.seed)
        # A space with tight constraints may give fewer.
        drawn = (space.try_sample(rng, _PROBES) for _ in range(_PROBES))
        return [config for config in drawn if config is not None]

    def cautions(self) -> list[str]:
        """Count the configurations whose rollouts are too long.

        Too long to be trained, or to be cut between two evaluations.
        """
        steps = self._spec.fidelity.steps
        interval = self._spec.evaluation_interval
        untrained = self._too_long(0, steps)
        late = self._too_long(steps, interval)
        remedy = (
            "the constraint `n_steps * n_envs <= evaluation_interval` (or `train_freq * ...`) "
            "rules them out"
        )
        cautions = []
        if untrained:
            cautions.append(
                f"{untrained} cannot be trained: "
                f"a rollout is longer than a run, {counted(steps, 'step', form=',')}; {remedy}"
            )
        if late:
            cautions.append(
                f"{late} cannot be cut at every evaluation and rung: "
                "a rollout is longer than the "
                f"{counted(interval, 'step', form=',')} between two of them, "
                f"so several have the same weights; {remedy}"
            )
        return cautions

    def _too_long(self, cut: int, step: int) -> str:
        """Count, for people, the configurations that cannot be cut at `step`.

        Only configurations that can be cut at `cut` count, or all where it is 0.

        Returns:
            Empty if there are none.
        """
        too_long = [
            # Ending at step 0 means that the first rollout is longer.
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
    """Count incumbent, default and the top k as if all were different."""
    return (2 + max(0, spec.test.top - 1)) if spec.plan.test else 0
