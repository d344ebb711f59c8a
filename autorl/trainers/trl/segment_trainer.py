"""TRL's trainer of one segment, built on the reference policy's own path."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
from transformers import TrainerCallback
from transformers.trainer_callback import PrinterCallback

from autorl.core.types import InputError
from autorl.store.checkpoints import written
from autorl.trainers._streams import seed_global
from autorl.trainers.language.contract import Built, Signal
from autorl.trainers.language.models import (
    load_policy,
    load_reward_model,
    load_tokenizer,
    weights_hash,
)
from autorl.trainers.rlhf.counted_reward import CountedReward
from autorl.trainers.rlhf.evaluations import LanguageRun
from autorl.trainers.trl.data_sets import data_set, sequence_tokens
from autorl.trainers.trl.methods import Method
from autorl.trainers.trl.settings import Settings

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import (
        PreTrainedModel,
        PreTrainedTokenizerBase,
        Trainer,
        TrainerControl,
        TrainerState,
        TrainingArguments,
    )

_READERS: Mapping[str, str] = {
    "cpo": "tokenize_row",
    "orpo": "tokenize_row",
    "online_dpo": "_generate",
}
"""Where TRL turns prompts into tokens by a rule of its own, by method."""


class AsItIs:
    """A tokenizer that always adds what it adds by itself.

    It names no beginning of sequence to add. Only for reading: the tokenizer it stands for stays as
    it is and goes with the checkpoint.
    """

    # CPO and ORPO put what is named here before a prompt
    bos_token_id = None

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def __call__(self, *texts: object, **options: object) -> Any:
        # online DPO and CPO ask for none, which leaves a tokenizer's own out too
        return self._tokenizer(*texts, **{**options, "add_special_tokens": True})


def as_evaluated(trainer_class: type[Trainer], method: Method) -> Any:
    """Return a class of trainers that reads as evaluation does.

    It is `trainer_class` but for a method with a rule of its own.
    """
    name = _READERS.get(method.name)
    if name is None:
        return trainer_class
    read = getattr(trainer_class, name)

    @functools.wraps(read)
    def reading(self: Trainer, *arguments: object, **named: object) -> Any:
        tokenizer = self.processing_class
        self.processing_class = AsItIs(tokenizer)
        try:
            return read(self, *arguments, **named)
        finally:
            # the checkpoint gets the tokenizer itself
            self.processing_class = tokenizer

    return type(trainer_class.__name__, (trainer_class,), {name: reading})


datasets.disable_progress_bars()


@dataclass
class SegmentTrainer:
    """TRL's trainer of a segment, with what it needs around it."""

    trainer: Any
    callback: SegmentCallback
    reward: CountedReward

    @property
    def step(self) -> int:
        """Optimizer steps done."""
        return int(self.trainer.state.global_step)

    @property
    def policy(self) -> Any:
        """The model that is trained."""
        return self.trainer.accelerator.unwrap_model(self.trainer.model)

    @property
    def tokens(self) -> int:
        """The metric `tokens`, since the run began, in every method.

        An online method counts the tokens of the completions it sampled, with their end of sequence
        and without padding or prompts. A method that learns from data counts the tokens of its
        batches, prompts included, each sequence once (a pair is two sequences; the sequences that
        KTO puts together for its estimate of the KL count too).
        """
        return self.reward.tokens + int(self.trainer.tokens_seen)

    @property
    def counted(self) -> dict[str, float]:
        """Metrics of training itself since the run began."""
        counted = {"tokens": float(self.tokens)}
        if self.trainer.counts_groups:
            counted["reward_zero_std"] = self.reward.zero_std
        return counted

    def saved(self) -> Path:
        """Return the folder of the checkpoint written at the segment's end."""
        return Path(self.trainer.args.output_dir) / f"checkpoint-{self.step}"


@dataclass
class SegmentCallback(TrainerCallback):  # type: ignore[misc]
    """Writes hyperparameters into TRL's trainer, evaluates, and ends the segment.

    A segment is ended here and not by `max_steps`, which is always the horizon: a schedule of
    transformers would decay to zero within each segment.
    """

    settings: Settings
    run: LanguageRun
    align: Callable[[int], int]
    owner: SegmentTrainer | None = None
    applied: dict[str, Any] = field(default_factory=dict)
    _first: bool = True

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: object
    ) -> None:
        self._evaluate(state.global_step, control)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: object
    ) -> None:
        assert self.owner is not None
        trainer = self.owner.trainer
        horizon = self.run.segment.horizon
        # once a segment: the checkpoint has brought optimizer and scheduler of its own by now
        if self._first:
            self.settings.write(trainer, state.global_step, horizon, first=True)
            self.applied = self.settings.read_back(trainer, state.global_step, horizon)
            self._first = False
        elif self.settings.scheduled:
            self.settings.write(trainer, state.global_step, horizon, first=False)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: object
    ) -> None:
        self._evaluate(state.global_step, control)
        if state.global_step >= self.align(self.run.segment.until):
            control.should_training_stop = True
        # it is saved by transformers: optimizer, scheduler and streams beside the model
        if control.should_training_stop and self.run.segment.save and not self.run.problem:
            control.should_save = True

    def _evaluate(self, reached: int, control: TrainerControl) -> None:
        """Measure the policy at every nominal step that is reached."""
        assert self.owner is not None
        kind = self.settings.method.data
        for step in self.run.due(reached, self.align):
            policy = self.owner.policy
            counted = self.owner.counted
            if self.run.evaluate(policy, step, kind, counted):
                control.should_training_stop = True


def build(
    settings: Settings,
    built: Built,
    callback: SegmentCallback,
    arguments: TrainingArguments,
    seed: int,
) -> SegmentTrainer:
    """Build the trainer of a segment, at step 0.

    Raises:
        InputError: no row of the data is short enough.
        RuntimeError: the reference policy TRL made for itself is not the task's.
    """
    method = settings.method
    trainer_class, _ = method.classes()
    # before the model: a new head of a reward model is drawn from the global stream
    seed_global(seed)
    signal: Signal = _unscored
    if method.online:
        signal = settings.reward.signal(built)
    reward = CountedReward(built.training, signal)
    values: dict[str, Any] = {
        "model": load_model(built.reference, method),
        "args": arguments,
        "train_dataset": data_set(method, built),
        "processing_class": load_tokenizer(built.reference),
        "callbacks": [callback],
    }
    accepted = inspect.signature(trainer_class.__init__).parameters
    if method.online:
        values["reward_funcs"] = [reward]
    # DPO and KTO take one; GRPO and RLOO load it from the path of the policy
    if "ref_model" in accepted:
        values["ref_model"] = load_model(built.reference, method)
    fork = seed if callback.run.segment.fork is not None else None
    trainer = _segmented(as_evaluated(trainer_class, method), method, fork)(**values)
    # known only to a trainer that is built
    reward.ends = frozenset(getattr(trainer, "eos_token_ids", ()))
    # transformers prints logs by it where there is no progress bar
    trainer.remove_callback(PrinterCallback)
    _check_rows(trainer, values["train_dataset"])
    _check_reference(trainer, callback.run.reference, method)
    segment_trainer = SegmentTrainer(trainer, callback, reward)
    callback.owner = segment_trainer
    return segment_trainer


def load_model(folder: Path, method: Method | None = None) -> Any:
    """Load a folder's policy, or a reward model on its body.

    A method that trains reward models gets the latter.
    """
    if method is None or method.data != "ranking":
        return load_policy(folder)
    model = load_reward_model(folder, labels=1)
    # without it classifiers of transformers refuse a batch
    if model.config.pad_token_id is None:
        model.config.pad_token_id = load_tokenizer(folder).pad_token_id
    return model


def _unscored(prompts: object, completions: object) -> list[float]:
    """Stand for the signal of a method that learns from data.

    There is nothing to score.
    """
    raise RuntimeError("a method that learns from data asked for rewards")


def _segmented(trainer_class: Any, method: Method, fork: int | None) -> Any:
    """Return `trainer_class` for a segment: without telemetry, and counting tokens.

    A disk that fails while a checkpoint is saved raises `StorageError`. When a run is exploited it
    takes new random streams. The tokens of an online method are counted where its completions are
    scored.

    Args:
        trainer_class: of TRL.
        method: of the trainer.
        fork: seed of the new streams; None: the run goes on with its own.
    """

    class Segmented(trainer_class):  # type: ignore[misc]
        tokens_seen = 0
        counts_groups = method.online

        # TRL pings when a trainer is built
        def _send_telemetry(self) -> None:
            """Nothing leaves the machine."""

        def _load_rng_state(self, checkpoint: str | None) -> None:
            if fork is None:
                super()._load_rng_state(checkpoint)
            else:
                seed_global(fork)

        def _save_checkpoint(self, *arguments: object, **named: object) -> None:
            with written(Path(self.args.output_dir)):
                super()._save_checkpoint(*arguments, **named)

        def training_step(
            self,
            model: PreTrainedModel,
            inputs: Mapping[str, Tensor],
            *rest: object,
            **named: object,
        ) -> Any:
            if not method.online:
                self.tokens_seen += sequence_tokens(inputs)
            return super().training_step(model, inputs, *rest, **named)

    Segmented.__name__ = trainer_class.__name__
    return Segmented


def _check_rows(trainer: Trainer, data: Sized) -> None:
    """Raise `InputError` where no row is left.

    TRL leaves out rows that are too long, and fails without a word of it when that are all.
    """
    if len(trainer.train_dataset) == 0:
        most = getattr(trainer.args, "max_length", None)
        raise InputError(
            f"a limit of {most} tokens leaves none of the {len(data)} rows to train on",
            key="max_length",
        )


def _check_reference(trainer: Trainer, reference: PreTrainedModel, method: Method) -> None:
    """Check that TRL measures KL to the task's reference policy.

    The trap it sets: it loads the reference policy from wherever the model says it came from.
    """
    loaded = getattr(trainer, "ref_model", None)
    if loaded is None or method.data == "ranking":
        return
    if weights_hash(trainer.accelerator.unwrap_model(loaded)) != weights_hash(reference):
        raise RuntimeError(
            "the reference policy TRL loaded is not the task's: KL would be measured against "
            "another"
        )
