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

from autorl.core.seeds import integer_seed
from autorl.core.types import (
    Checkpoint,
    Config,
    EnvironmentSpec,
    Outcome,
    Report,
    Segment,
    TrainerSpec,
)
from autorl.store.checkpoints import scratch
from autorl.trainers.contract import Change
from autorl.trainers.rlhf.trainer import RLHFTrainer, build_task
from autorl.trainers.shared import check_start
from autorl.trainers.trl.data_sets import check_lengths
from autorl.trainers.trl.methods import Method, find
from autorl.trainers.trl.settings import Settings, check_fixed, check_hyperparameters, check_values


class TRLTrainer(RLHFTrainer):
    """Runs segments of one TRL method on an RLHF task.

    Options (`trainer.kwargs`): any hyperparameter, `guard` (stop a run once its training signal
    rose and its held-out score fell this many evaluations in a row; default 3, 0 = never), `device`
    (`cpu`, the default, or `auto`), and `data` (what a method this package does not know is trained
    on; see `methods.Data`).
    """

    def __init__(self, spec: TrainerSpec) -> None:
        super().__init__(spec)
        self.method: Method = find(self.name, spec.kwargs.get("data"))

    @property
    def preload(self) -> tuple[str, ...]:
        return ("autorl.trainers.trl.preload",)

    @property
    def changes(self) -> Mapping[str, Change]:
        return self.method.changes

    @property
    def learns_from(self) -> tuple[str, ...]:
        return self.method.learns_from

    @property
    def scores(self) -> bool:
        return self.method.online

    def check(self, environment: EnvironmentSpec, hyperparameters: Collection[str]) -> None:
        super().check(environment, hyperparameters)
        most = self.defaults.get("max_length")
        if most is not None and self.defaults.get("truncation_mode") != "keep_end":
            check_lengths(self.method, build_task(environment), most)

    def check_names(self, names: Collection[str]) -> None:
        check_hyperparameters(self.method, names, cuda=self.cuda)

    def check_fixed(self, fixed: Mapping[str, object], searched: Collection[str]) -> None:
        check_fixed(self.method, fixed, searched, cuda=self.cuda)

    def check_configuration(self, config: Config) -> None:
        check_values(self.method, self.defaults, config, cuda=self.cuda)

    @property
    def policies(self) -> bool:
        return self.method.data != "ranking"

    def align(self, config: Config, step: int, environment: EnvironmentSpec | None = None) -> int:
        """Return where the batch of completions of `step` is used up.

        It is the first such step >= `step`.
        """
        stride = Settings(self.method, self.defaults, config).stride
        return -(-step // stride) * stride

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        from autorl.trainers._streams import preserved

        check_start(segment)
        settings = Settings(self.method, self.defaults, segment.config)
        with preserved(), warnings.catch_warnings(), scratch(segment) as folder:
            # TRL's own use of names transformers is renaming
            warnings.simplefilter("ignore", FutureWarning)
            return _Run(self, segment, settings, report).train(str(folder))


class _Run:
    """One segment in progress."""

    def __init__(
        self,
        trainer: TRLTrainer,
        segment: Segment,
        settings: Settings,
        report: Callable[[Report], None],
    ) -> None:
        from autorl.trainers.rlhf.evaluations import LanguageRun

        self.trainer = trainer
        self.segment = segment
        self.settings = settings
        self.run = LanguageRun(
            *(trainer, segment, report, trainer.title, settings.values, settings.reward)
        )

    def train(self, folder: str) -> Outcome:
        """Train to the end of the segment, and evaluate on the way.

        Args:
            folder: that TRL may write to.
        """
        from autorl.trainers.rlhf.evaluations import is_finite
        from autorl.trainers.trl.segment_trainer import SegmentCallback, build

        segment = self.segment
        run = self.run
        # a copy draws otherwise than the run it was copied from
        keys = () if segment.fork is None else (segment.fork,)
        seed = integer_seed(segment.seed, "algorithm", *keys)
        callback = SegmentCallback(self.settings, run, self._align)
        horizon = self._align(segment.horizon)
        arguments = self.settings.arguments(
            seed, horizon, folder, run.built.max_completion, self.trainer.cuda
        )
        # from the reference's path: TRL would take a checkpoint's for that of the KL reference
        running = build(self.settings, run.built, callback, arguments, seed)
        if run.state is not None:
            running.reward.load(run.state)
        parent = segment.parent.path if segment.parent else None
        try:
            running.trainer.train(resume_from_checkpoint=parent)
        # torch raises where it samples from NaN: with weights that are finite it is another failure
        except RuntimeError:
            if is_finite(running.policy):
                raise
        if not run.problem and not is_finite(running.policy):
            run.problem = "parameters are not finite"

        def save() -> Checkpoint:
            return run.save(running.step, running.tokens, running.reward, running.saved())

        return run.ended(running.step, callback.applied, save)

    def _align(self, step: int) -> int:
        return -(-step // self.settings.stride) * self.settings.stride


def make(spec: TrainerSpec) -> TRLTrainer:
    """Build the trainer `trl/<method>`."""
    return TRLTrainer(spec)
