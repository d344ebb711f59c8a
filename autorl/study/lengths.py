"""Runs that train fewer or more than their nominal steps: a trainer can be cut only where its rollout ends.

The budget is charged in nominal steps, which is what makes one worker propose the same as many; what was really trained
is in the tables `segments` and `runs`. Environment steps are never exceeded; see `Trainer.align`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autorl.executors.worker import Load
    from autorl.spec import Spec
    from autorl.trainers import Trainer
    from autorl.types import Config, EnvironmentSpec, TrainerSpec

from autorl.store.query import Query


class Reach:
    """Where runs really end: `align` of the trainers that `load` builds, each asked once for the same thing."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._trainers: dict[TrainerSpec, Trainer] = {}
        self._known: dict[tuple[TrainerSpec, EnvironmentSpec, Config, int], int] = {}

    def __call__(
        self, spec: TrainerSpec, environment: EnvironmentSpec, config: Config, step: int
    ) -> int:
        """The step at which a run of `config` ends that is to end at `step`.

        Raises:
            InputError: the trainer cannot train the configuration.
        """
        key = (spec, environment, config, step)
        if key not in self._known:
            self._known[key] = self.trainer(spec).align(config, step, environment)
        return self._known[key]

    def trainer(self, spec: TrainerSpec) -> Trainer:
        if spec not in self._trainers:
            self._trainers[spec] = self._load(spec)
        return self._trainers[spec]


def length_caveats(query: Query, spec: Spec, incumbent: int, tested: Sequence[int]) -> list[str]:
    """The caution a result deserves where runs end more than an evaluation interval off their nominal step.

    `incumbent` is its proposal, `tested` those with test scores.
    """
    rows = query(
        "SELECT proposal, until, MAX(to_step) FROM segments JOIN proposals USING (proposal) "
        "WHERE segments.status = 'done' GROUP BY proposal"
    )
    ends: dict[int, tuple[int, int]] = {
        proposal: (until, trained) for proposal, until, trained in rows
    }
    off = {proposal: abs(trained - until) for proposal, (until, trained) in ends.items()}
    interval = spec.fidelity.steps / spec.fidelity.evaluations
    if incumbent not in ends or all(
        off.get(proposal, 0) <= interval for proposal in (incumbent, *tested)
    ):
        return []
    most = max(off, key=lambda proposal: (off[proposal], proposal == incumbent, -proposal))
    (nominal, trained), (short, long) = ends[incumbent], ends[most]
    text = f"the incumbent trained {trained:,} {spec.steps} for nominal {nominal:,}"
    if most != incumbent:
        text += f" (the furthest off is {long:,} for {short:,}, proposal {most})"
    return [f"{text}: runs end only where a rollout does, the budget counts nominal steps"]
