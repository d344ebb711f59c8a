"""Finds where runs really end.

A trainer can be cut only where its rollout ends. The budget is charged in nominal steps, which is
what makes one worker propose the same as many. The steps that were really trained are in the tables
`segments` and `runs`. Environment steps are never exceeded: see `Trainer.align`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autorl.core.types import Config, EnvironmentSpec, TrainerSpec
    from autorl.executors.worker import Load
    from autorl.trainers import Trainer


class Reach:
    """Finds where runs really end.

    It asks each trainer's `align` once for the same thing.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._trainers: dict[TrainerSpec, Trainer] = {}
        self._known: dict[tuple[TrainerSpec, EnvironmentSpec, Config, int], int] = {}

    def __call__(
        self, spec: TrainerSpec, environment: EnvironmentSpec, config: Config, step: int
    ) -> int:
        """Return the step where a run of `config` to `step` really ends.

        Raises:
            InputError: the trainer cannot train the configuration.
        """
        key = (spec, environment, config, step)
        if key not in self._known:
            # A dry run asks for some hundred configurations again and again.
            self._known[key] = self.trainer(spec).align(config, step, environment)
        return self._known[key]

    def trainer(self, spec: TrainerSpec) -> Trainer:
        if spec not in self._trainers:
            self._trainers[spec] = self._load(spec)
        return self._trainers[spec]
