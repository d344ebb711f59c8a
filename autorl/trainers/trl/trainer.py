"""Trainers on TRL: online (`trl/rloo`, `trl/grpo`), on preferences (`trl/dpo`), and of rewards.

One segment is one TRL trainer, rebuilt from the reference policy's own path with the segment's
configuration and then given the parent's weights, optimizer, scheduler and streams: what a
continued run may change it takes from its new configuration, and what a checkpoint would bring
along (learning rate, weight decay, moments) is written over and read back. A fidelity step is an
optimizer step.

Reference: von Werra et al. (2020), TRL: Transformer Reinforcement Learning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping

from autorl.core.numbers import check_number
from autorl.core.types import (
    Config,
    EnvironmentSpec,
    FrozenMap,
    InputError,
    Outcome,
    Report,
    Segment,
    TrainerSpec,
)
from autorl.store.checkpoints import scratch
from autorl.trainers.contract import Change, ShortRun
from autorl.trainers.rlhf.trainer import RLHFTrainer, build_task
from autorl.trainers.shared import check_start, streams_kept
from autorl.trainers.trl.checks import check_hyperparameters, check_values
from autorl.trainers.trl.data_sets import check_lengths
from autorl.trainers.trl.lora import check_modules
from autorl.trainers.trl.methods import Method, find
from autorl.trainers.trl.settings import PROCESSES, Settings


class TRLTrainer(RLHFTrainer):
    """Runs segments of one TRL method on an RLHF task.

    Options (`trainer.kwargs`): any hyperparameter, `guard` (stop a run once its training signal
    rose and its held-out score fell this many evaluations in a row; default 3, 0 = never), `device`
    (`auto`: the GPU that a segment is given, else the CPU), `algorithm_class` (a subclass of TRL's
    trainer, as `module:Class`), `data` (what a method this package does not know is trained on; see
    `methods.Data`), and `processes` (of a segment, among which a batch is divided; default: the
    GPUs that it is given).
    """

    def __init__(self, spec: TrainerSpec) -> None:
        super().__init__(spec)
        self.method: Method = find(
            self.name, spec.kwargs.get("data"), str(spec.kwargs.get("algorithm_class", ""))
        )
        self.processes: int = spec.kwargs.get(PROCESSES, 1)
        check_number(self.processes, f"trainer.kwargs.{PROCESSES}", 1, whole=True)
        if self.method.sampled and self.processes > 1:
            # its ranks would draw the same prompts and completions
            message = f"{self.title} samples what it trains on in one process"
            raise InputError(message, key=f"trainer.kwargs.{PROCESSES}")
        self.learns_from = self.method.learns_from
        self.measures = tuple(self.method.measures.values())
        self.scores = self.method.online
        self.policies = self.method.data != "ranking"

    @property
    def preload(self) -> tuple[str, ...]:
        return ("autorl.trainers.trl.preload",)

    @property
    def changes(self) -> Mapping[str, Change]:
        return self.method.changes

    def check(self, environment: EnvironmentSpec, hyperparameters: Collection[str]) -> None:
        super().check(environment, hyperparameters)
        if PROCESSES in hyperparameters:
            raise InputError("is an option of the trainer, not of the space", key=PROCESSES)
        most = self.defaults.get("max_length")
        if most is not None and self.defaults.get("truncation_mode") != "keep_end":
            check_lengths(self.method, build_task(environment), most)
        if "lora.target_modules" in self.defaults:
            check_modules(self.method, self.defaults, build_task(environment).reference)

    def check_names(self, names: Collection[str]) -> None:
        cuda = self.device == "cuda"
        check_hyperparameters(self.method, names, cuda=cuda, joined=self.processes > 1)

    def check_values(self, config: Config) -> None:
        check_values(self.method, self.defaults, config)

    def short_run(self, environment: EnvironmentSpec, config: Config) -> ShortRun | None:
        """Describe a run of two optimizer steps, or two batches of completions."""
        if not self.method.subclass:
            return None
        steps = 2 * Settings(self.method, self.defaults, config).stride
        # The GPUs are for the segments.
        kwargs = {name: value for name, value in self.kwargs.items() if name != PROCESSES}
        options = FrozenMap({**kwargs, "device": "cpu"})
        return ShortRun(TrainerSpec(self.title, options), config, steps)

    def sizes(
        self, environment: EnvironmentSpec, episodes: int, hyperparameters: Collection[str]
    ) -> Mapping[str, str]:
        """Say also how many processes a segment has."""
        sizes = super().sizes(environment, episodes, hyperparameters)
        if self.processes == 1:
            return sizes
        return {**sizes, "a segment": f"{self.processes} processes, among which a batch is divided"}

    def align(self, config: Config, step: int, environment: EnvironmentSpec | None = None) -> int:
        """Return where the batch of completions of `step` is used up.

        It is the first such step >= `step`.
        """
        return Settings(self.method, self.defaults, config).align(step)

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        check_start(segment)
        if self.processes > 1:
            from autorl.trainers.trl import ranks

            together = ranks.Together(self.processes, self.device == "cuda", self.train_here)
            return ranks.train(together, segment, report)
        with streams_kept(), scratch(segment) as folder:
            return self.train_here(segment, str(folder), report)

    def train_here(
        self, segment: Segment, folder: str, report: Callable[[Report], None]
    ) -> Outcome:
        """Train a segment in this process, alone or as one of several.

        Args:
            segment: to be trained.
            folder: that TRL may write to, the same in all processes.
            report: receives evaluations.
        """
        settings = Settings(self.method, self.defaults, segment.config)
        with warnings.catch_warnings():
            # TRL's own use of names transformers is renaming
            warnings.simplefilter("ignore", FutureWarning)
            from autorl.trainers.trl.segment_trainer import TRLRun

            return TRLRun(self, settings, segment, report).train(folder)
