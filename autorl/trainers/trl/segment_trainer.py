"""One segment of a TRL method."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from transformers import TrainerCallback
from transformers.trainer_callback import PrinterCallback

from autorl.core.plain_text import counted
from autorl.core.seeds import integer_seed
from autorl.core.types import InputError, Outcome, Report, Segment
from autorl.store.checkpoints import reading, written
from autorl.trainers._streams import check_device, seed_global
from autorl.trainers.language.models import (
    load_policy,
    load_reward_model,
    load_tokenizer,
    weights_hash,
)
from autorl.trainers.language.passes import bounded
from autorl.trainers.language.ppo.terms import kl_estimate, masked_mean
from autorl.trainers.rlhf.counted_reward import CountedReward
from autorl.trainers.rlhf.evaluations import LanguageRun, is_finite
from autorl.trainers.rlhf.trainer import RLHFTrainer
from autorl.trainers.trl import lora
from autorl.trainers.trl.data_sets import data_set, sequence_tokens
from autorl.trainers.trl.live_values import read_back, write
from autorl.trainers.trl.methods import Method
from autorl.trainers.trl.settings import PROCESSES, Settings

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer, TrainingArguments

_READERS: Mapping[str, str] = {
    "cpo": "tokenize_row",
    "orpo": "tokenize_row",
    "online_dpo": "_generate",
}
"""Where TRL turns prompts into tokens by a rule of its own, by method."""

_ANCHOR = "anchor"
"""The folder of a checkpoint that has the reference policy, where that moves (`sync_ref_model`)."""

datasets.disable_progress_bars()


class TRLRun(LanguageRun, TrainerCallback):  # type: ignore[misc]
    """One segment in progress, and the callback of TRL's trainer.

    It writes hyperparameters into TRL's trainer, evaluates, and ends the segment. It is ended here
    and not by `max_steps`, which is always the horizon: a schedule of transformers would decay to
    zero within each segment.
    """

    trl: Any
    applied: Mapping[str, Any] | None = None
    begun = False

    def __init__(
        self,
        trainer: RLHFTrainer,
        settings: Settings,
        segment: Segment,
        report: Callable[[Report], None],
        earlier: Path | None = None,
    ) -> None:
        super().__init__(trainer, segment, report, trainer.title, settings.values, earlier)
        self.settings = settings
        self.count: int = settings.values.get(PROCESSES, 1)

    @property
    def policy(self) -> Any:
        """The model that is trained."""
        return self.trl.accelerator.unwrap_model(self.trl.model)

    def align(self, step: int) -> int:
        return self.settings.align(step)

    def train(self, folder: str) -> Outcome:
        """Train to the end of the segment, and evaluate on the way.

        Args:
            folder: that TRL may write to.
        """
        segment = self.segment
        _check_world(int(os.environ.get("WORLD_SIZE", 1)), self.count)
        # a copy draws otherwise than the run it was copied from
        keys = () if segment.fork is None else (segment.fork,)
        seed = integer_seed(segment.seed, "algorithm", *keys)
        arguments = self.settings.arguments(
            *(seed, self.align(segment.horizon), folder),
            *(self.built.max_completion, self.trainer.device == "cuda", self.count > 1),
        )
        arguments.save_only_model = segment.model_only
        # accelerate goes on with one process where it sees no others
        _check_world(arguments.world_size, self.count)
        check_device(arguments.device, self.trainer.device)
        # from the reference's path: TRL would take a checkpoint's for that of the KL reference
        self.build(arguments, seed)
        try:
            with self._reading_parent(), bounded(self.trainer.memory):
                self.trl.train(resume_from_checkpoint=segment.parent and segment.parent.path)
        # torch raises where it samples from NaN: with weights that are finite it is another failure
        except RuntimeError:
            if is_finite(self.policy):
                raise
        if not self.problem and not is_finite(self.policy):
            self.problem = "parameters are not finite"
        step = int(self.trl.state.global_step)
        saved = Path(folder) / f"checkpoint-{step}"
        # every rank has its streams in the checkpoint
        self.trl.accelerator.wait_for_everyone()
        save = self.save if self.trl.accelerator.is_main_process else lambda *_: None
        return self.ended(step, self.applied or {}, lambda: save(step, saved))

    def evaluate(self, reached: int) -> bool:
        """Measure on rank 0, while the others wait for what it decides."""
        if self.trl.accelerator.is_main_process:
            super().evaluate(reached)
        self.stopped, self.problem = broadcast_object_list([self.stopped, self.problem])
        return bool(self.stopped or self.problem)

    @contextmanager
    def _reading_parent(self) -> Iterator[None]:
        """Say that the disk fails where it does before training has begun.

        Until then the parent's checkpoint alone is read, and no code of the user runs.
        """
        try:
            yield
        except Exception:
            if self.segment.parent is None or self.begun:
                raise
            with reading(Path(self.segment.parent.path)):
                raise

    def build(self, arguments: TrainingArguments, seed: int) -> None:
        """Build TRL's trainer, at step 0.

        Raises:
            InputError: no row of the data is short enough.
            RuntimeError: the reference policy TRL made for itself is not the task's.
        """
        method = self.settings.method
        reference = self.built.reference
        trainer_class, _ = method.classes()
        # before the model: a new head of a reward model is drawn from the global stream
        seed_global(seed)
        adapter = lora.adapter(method, self.values)
        values: dict[str, Any] = {
            "args": arguments,
            "train_dataset": data_set(method, self.built),
            "processing_class": load_tokenizer(reference),
            "callbacks": [self],
        }
        if method.online:
            values["reward_funcs"] = [_together(self.reward)]
        if adapter is not None and self.trainer.policies:
            nf4 = "lora.base" in self.values
            loaded = nf4 or self.earlier is not None
            values["model"] = load_policy(reference, nf4=nf4) if loaded else self.reference
            # the base of the adapter, which stays as it is
            if self.earlier is None:
                self.reference = None
        else:
            values["model"] = load_model(reference, method)
        # DPO and KTO take one; GRPO and RLOO load it from the path of the policy
        if adapter is not None:
            values["peft_config"] = adapter
        elif "ref_model" in inspect.signature(trainer_class.__init__).parameters:
            values["ref_model"] = load_model(reference, method)
        fork = seed if self.segment.fork is not None else None
        kind = _segmented(trainer_class, method, self.reward, fork)
        try:
            self.trl = kind(**values)
        except ValueError as error:
            if adapter is None:
                raise
            raise InputError(str(error).splitlines()[0], key="lora.target_modules") from error
        # on four bits TRL trains it in bfloat16, and peft continues it in single precision
        for weight in self.policy.parameters() if adapter is not None else ():
            if weight.requires_grad:
                weight.data = weight.data.float()
        # known only to a trainer that is built
        self.reward.ends = frozenset(getattr(self.trl, "eos_token_ids", ()))
        # transformers prints logs by it where there is no progress bar
        self.trl.remove_callback(PrinterCallback)
        # TRL leaves out rows that are too long, and fails without a word of it when all are
        if len(self.trl.train_dataset) == 0:
            limit = f"a limit of {arguments.max_length} tokens"
            rows = len(values["train_dataset"])
            message = f"{limit} leaves none of the {rows} rows to train on"
            raise InputError(message, key="max_length")
        _check_reference(self.trl, self.reference_hash, method)
        parent = self.segment.parent
        if parent is not None and _moves_reference(arguments):
            with reading(Path(parent.path)):
                anchor = load_policy(Path(parent.path) / _ANCHOR).state_dict()
            self.trl.accelerator.unwrap_model(self.trl.ref_model).load_state_dict(anchor)

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: object) -> None:
        self.begun = True
        # ZeRO-3 leaves each process no weights but in a layer's pass
        if not all(weight.numel() for weight in self.policy.parameters()):
            raise InputError("a segment evaluates a whole policy in one process", key="deepspeed")
        self.average()
        control.should_training_stop |= self.evaluate(state.global_step)

    def on_step_begin(self, args: Any, state: Any, control: Any, **rest: object) -> None:
        place = (self.settings, self.trl, state.global_step, self.segment.horizon)
        # once a segment: the checkpoint has brought optimizer and scheduler of its own by now
        write(*place, first=self.applied is None)
        self.applied = self.applied or read_back(*place)

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: object) -> None:
        # what TRL gathers between two logs a checkpoint would not hold
        control.should_log = True

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, float], **rest: object
    ) -> None:
        state.log_history.clear()  # it would grow, and go with every checkpoint
        measures = self.settings.method.measures
        # a measure that an update has not is None
        values = {name: logs[name] for name in measures if logs.get(name) is not None}
        self.updated({measures[name]: value for name, value in values.items()}, state.global_step)
        control.should_training_stop |= self.evaluate(state.global_step)
        self.tell_updates()
        if state.global_step >= self.align(self.segment.until):
            control.should_training_stop = True
        # it is saved by transformers: optimizer, scheduler and streams beside the model
        if control.should_training_stop and self.segment.save and not self.problem:
            control.should_save = True


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


def load_model(folder: Path, method: Method) -> Any:
    """Load a folder's policy, or a reward model on its body.

    A method that trains reward models gets the latter.
    """
    return load_reward_model(folder, 1) if method.data == "ranking" else load_policy(folder)


def _segmented(trainer_class: Any, method: Method, reward: CountedReward, fork: int | None) -> Any:
    """Return `trainer_class` for a segment: without telemetry, and counting tokens.

    It reads prompts as evaluation does. A disk that fails while a checkpoint is saved raises
    `StorageError`. When a run is exploited it takes new random streams. The tokens of an online
    method are counted where its completions are scored. A method that learns from data counts the
    tokens of its batches, prompts included, each sequence once (a pair is two sequences; the
    sequences that KTO puts together for its estimate of the KL count too).

    Args:
        trainer_class: of TRL.
        method: of the trainer.
        reward: counts tokens.
        fork: seed of the new streams; None: the run goes on with its own.
    """

    class Segmented(trainer_class):  # type: ignore[misc]
        # TRL pings when a trainer is built
        def _send_telemetry(self) -> None:
            """Nothing leaves the machine."""

        def _load_rng_state(self, checkpoint: str | None) -> None:
            if fork is not None:
                seed_global(fork + self.args.process_index)
            elif checkpoint is not None:
                # transformers reads it after training has begun
                with reading(Path(checkpoint)):
                    super()._load_rng_state(checkpoint)

        def _save_checkpoint(self, *arguments: object, **named: object) -> None:
            with written(Path(self.args.output_dir)):
                super()._save_checkpoint(*arguments, **named)
                _save_anchor(self)

        def _get_per_token_logps_and_entropies(self, *arguments: object, **named: object) -> Any:
            result = super()._get_per_token_logps_and_entropies(*arguments, **named)
            self.log_probabilities = result[0].detach()
            return result

        def _compute_loss(
            self, model: PreTrainedModel, inputs: Mapping[str, Tensor], *rest: object
        ) -> Any:
            loss = super()._compute_loss(model, inputs, *rest)
            if method.online and not method.sampled:
                moved = gather_object([_moved(self.log_probabilities, inputs)])
                self._metrics["train"]["approx_kl"].append(sum(moved) / len(moved))
            return loss

        def training_step(
            self, model: PreTrainedModel, inputs: Mapping[str, Tensor], *rest: object
        ) -> Any:
            if not method.online:
                reward.tokens += sum(gather_object([sequence_tokens(inputs)]))
            return super().training_step(model, inputs, *rest)

    Segmented.__name__ = trainer_class.__name__
    if reader := _READERS.get(method.name):
        setattr(Segmented, reader, _as_evaluated(getattr(trainer_class, reader)))
    return Segmented


def _moves_reference(arguments: TrainingArguments) -> bool:
    """Whether the reference policy follows the policy, as in WARP and TR-DPO."""
    return bool(vars(arguments).get("sync_ref_model"))


def _save_anchor(trainer: Any) -> None:
    """Save a reference policy that moves in the checkpoint."""
    arguments = trainer.args
    saves = arguments.should_save and not arguments.save_only_model
    if saves and _moves_reference(arguments):
        place = Path(arguments.output_dir, f"checkpoint-{trainer.state.global_step}")
        trainer.accelerator.unwrap_model(trainer.ref_model).save_pretrained(place / _ANCHOR)


def _together(reward: CountedReward) -> Callable[..., list[float]]:
    """Score the completions of all ranks on rank 0, as one batch."""

    def score(prompts: Any, completions: Any, completion_ids: Any = (), **rest: Any) -> list[float]:
        parts = gather_object([(prompts, completions, completion_ids)])
        rank = PartialState().process_index
        rewards: list[list[float]] = [[]]
        if rank == 0:
            rewards = [reward(*([*chain(*columns)] for columns in zip(*parts, strict=True)))]
        begin = sum(len(part[0]) for part in parts[:rank])
        broadcast_object_list(rewards)
        return rewards[0][begin : begin + len(prompts)]

    score.__name__ = reward.__name__
    return score


def _as_evaluated(read: Callable[..., Any]) -> Callable[..., Any]:
    """Have a method of a trainer read prompts as evaluation does."""

    @functools.wraps(read)
    def reading_prompts(trainer: Trainer, *arguments: object, **named: object) -> Any:
        tokenizer = trainer.processing_class
        trainer.processing_class = AsItIs(tokenizer)
        try:
            return read(trainer, *arguments, **named)
        finally:
            # the checkpoint gets the tokenizer itself
            trainer.processing_class = tokenizer

    return reading_prompts


def _moved(log_new: Tensor, inputs: Mapping[str, Tensor]) -> float:
    """Estimate the KL of the old policy to the updated one.

    It is per completion where the ratio is (RLOO), else per token.
    """
    mask = inputs["completion_mask"]
    if "old_logps" in inputs:
        log_probability = (log_new * mask).sum(1)
        return float(kl_estimate(inputs["old_logps"], log_probability, "k3").mean())
    # GRPO leaves it out where it is the same
    old = inputs.get("old_per_token_logps", log_new)
    return float(masked_mean(kl_estimate(old, log_new, "k3"), mask))


def _check_world(joined: int, wanted: int) -> None:
    """Raise `InputError` where a launcher has started another number of processes."""
    if joined != wanted:
        message = f"{counted(joined, 'process')} of a segment run, {wanted} were asked for"
        raise InputError(message, key=f"trainer.kwargs.{PROCESSES}")


def _check_reference(trainer: Trainer, reference: str, method: Method) -> None:
    """Check that TRL measures KL to the reference policy of this hash.

    The trap it sets: it loads the reference policy from wherever the model says it came from.
    """
    loaded = getattr(trainer, "ref_model", None)
    if loaded is None or method.data == "ranking":
        return
    if weights_hash(trainer.accelerator.unwrap_model(loaded)) != reference:
        raise RuntimeError(
            "the reference policy TRL loaded is not the task's: KL would be measured against "
            "another"
        )
