"""Trainers on TRL: online (`trl/rloo`, `trl/grpo`), on preferences (`trl/dpo`), and of rewards.

One segment is one TRL trainer, rebuilt from the reference policy's own path with the segment's
configuration and then given the parent's weights, optimizer, scheduler and streams: what a
continued run may change it takes from its new configuration, and what a checkpoint would bring
along (learning rate, weight decay, moments) is written over and read back. A fidelity step is an
optimizer step.

Reference: von Werra et al. (2020), TRL: Transformer Reinforcement Learning.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

from autorl.core.numbers import check_number
from autorl.core.plain_values import plain
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
from autorl.store.checkpoints import STAGES, scratch
from autorl.trainers.contract import Change, ShortRun
from autorl.trainers.rlhf.trainer import RLHFTrainer, build_task
from autorl.trainers.shared import check_start, streams_kept
from autorl.trainers.trl.checks import check_hyperparameters, check_values
from autorl.trainers.trl.data_sets import check_lengths
from autorl.trainers.trl.lora import check_modules
from autorl.trainers.trl.methods import Method, find
from autorl.trainers.trl.settings import PROCESSES, Settings

_FIRST = "first."
"""How hyperparameters of a first stage begin."""


class TRLTrainer(RLHFTrainer):
    """Runs segments of one TRL method on an RLHF task.

    Options (`trainer.kwargs`): any hyperparameter, `guard` (stop a run once its training signal
    rose and its held-out score fell this many evaluations in a row; default 3, 0 = never), `device`
    (`auto`: the GPU that a segment is given, else the CPU), `algorithm_class` (a subclass of TRL's
    trainer, as `module:Class`), `data` (what a method this package does not know is trained on; see
    `methods.Data`), `processes` (of a segment, among which a batch is divided; default: the GPUs
    that it is given), and `first` (a stage before: its `trainer`, `trl/sft` unless said, its
    `steps` and hyperparameters, which a space has as `first.NAME`). The policy of the first stage
    is what is trained on, and the KL is to it in training, to the task's in evaluations.
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

    def first(self, config: Config) -> tuple[TRLTrainer, int, Config] | None:
        """Return trainer, steps and hyperparameters of the first stage, None without.

        Raises:
            InputError: one of them is no such thing.
        """
        values = {
            name.removeprefix(_FIRST): value
            for name, value in {**self.defaults, **config}.items()
            if name.startswith(_FIRST)
        }
        if not values:
            return None
        steps = values.pop("steps", None)
        check_number(steps, "first.steps", 1, whole=True)
        name = str(values.pop("trainer", "trl/sft"))
        adapted = any("lora." in key for key in values)
        if adapted or not name.startswith("trl/") or name == "trl/reward":
            message = f"expected trl/..., a trainer of whole policies, got {name!r}"
            raise InputError(message, key="first.trainer")
        placed = {key: self.kwargs[key] for key in ("device", PROCESSES) if key in self.kwargs}
        return TRLTrainer(TrainerSpec(name, FrozenMap(placed))), steps, Config(values)

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
        if any(name.startswith(_FIRST) for name in hyperparameters):
            first = self.first(Config({"first.steps": 1, **self.defaults}))
            assert first is not None
            first[0].check(environment, ())
        most = self.defaults.get("max_length")
        if most is not None and self.defaults.get("truncation_mode") != "keep_end":
            check_lengths(self.method, build_task(environment), most)
        if "lora.target_modules" in self.defaults:
            check_modules(self.method, self.defaults, build_task(environment).reference)

    def check_names(self, names: Collection[str]) -> None:
        of_method = [name for name in names if not name.startswith(_FIRST)]
        gpus = self.processes if self.device == "cuda" else 0
        check_hyperparameters(self.method, of_method, gpus=gpus)

    def check_values(self, config: Config) -> None:
        check_values(self.method, self.defaults, config)
        if first := self.first(config):
            trainer, _, values = first
            trainer.check_names(values.keys())
            trainer.check_values(values)

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
        sizes = dict(super().sizes(environment, episodes, hyperparameters))
        if self.processes > 1:
            sizes["a segment"] = f"{self.processes} processes, among which a batch is divided"
        return sizes

    def align(self, config: Config, step: int, environment: EnvironmentSpec | None = None) -> int:
        """Return where the batch of completions of `step` is used up.

        It is the first such step >= `step`.
        """
        return Settings(self.method, self.defaults, config).align(step)

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        check_start(segment)
        with streams_kept(), scratch(segment) as folder:
            earlier = self._earlier(segment, Path(folder))
            if isinstance(earlier, Outcome):
                return earlier
            train = partial(self.train_here, earlier=earlier)
            if self.processes == 1:
                return train(segment, str(folder), report)
            ranks, _ = _engine()
            outcome: Outcome = ranks.train(segment, str(folder), report, train, self.processes)
            return outcome

    def train_here(
        self,
        segment: Segment,
        folder: str,
        report: Callable[[Report], None],
        earlier: Path | None = None,
    ) -> Outcome:
        """Train a segment in this process, alone or as one of several.

        Args:
            segment: to be trained.
            folder: that TRL may write to, the same in all processes.
            report: receives evaluations.
            earlier: folder of the policy of the first stage.
        """
        settings = Settings(self.method, self.defaults, segment.config)
        with warnings.catch_warnings():
            # TRL's own use of names transformers is renaming
            warnings.simplefilter("ignore", FutureWarning)
            _, segments = _engine()
            run = segments.TRLRun(self, settings, segment, report, earlier)
            outcome: Outcome = run.train(folder)
            return outcome

    def _earlier(self, segment: Segment, aside: Path) -> Path | Outcome | None:
        """Return the policy of the first stage, or how that failed.

        It is trained unless the study has it: by trainer, hyperparameters, task and seed. None:
        there is no first stage.

        Args:
            segment: of the second stage.
            aside: a folder of the segment's own.
        """
        first = self.first(segment.config)
        if first is None:
            return None
        trainer, steps, values = first
        task = (segment.environment.id, segment.environment.kwargs)
        content = plain([trainer.title, values, steps, task, segment.seed])
        place = aside / "first"
        # with a storage, a worker's machine has no folder of the study
        if segment.scratch and not segment.storage:
            digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
            place = Path(segment.scratch).parent / STAGES / digest[:16]
        if place.is_dir():
            return place
        spec = TrainerSpec(trainer.title, trainer.kwargs)
        stage = replace(segment, trainer=spec, config=values, until=steps, horizon=steps)
        stage = replace(stage, parent=None, fork=None, start=0, evaluate_at=())
        stage = replace(stage, save=True, model_only=True, folder=str(aside / "half"))
        outcome = trainer.train(stage, lambda report: None)
        if outcome.checkpoint is None:
            message = f"in the first stage: {outcome.message}"
            return replace(outcome, reached=segment.start, message=message)
        place.parent.mkdir(exist_ok=True)
        try:
            Path(stage.folder).rename(place)
        # another worker has trained the same meanwhile
        except OSError:
            if not place.is_dir():
                raise
        return place


def _engine() -> tuple[ModuleType, ModuleType]:
    """Import what trains, and torch, TRL and transformers with it."""
    from autorl.trainers.trl import ranks, segment_trainer

    return ranks, segment_trainer
