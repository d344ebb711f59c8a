"""`trl/raft` and `trl/iterated_dpo`: SFT and DPO on sampled completions.

Some prompts are each answered by several completions, which a reward scores. RAFT imitates the
best one; iterated DPO takes the best and the worst for a pair, with the reference policy of the
whole run. Completions come from the policy as it is then, or from the reference policy
(`from_ref_model`): RAFT is then the distillation of best-of-n.

References:
    Dong et al. (2023), RAFT: Reward rAnked FineTuning for Generative Foundation Model Alignment.
    Dong et al. (2024), RLHF Workflow: From Reward Modeling to Online RLHF.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import datasets
import torch
from transformers import PreTrainedModel, Trainer, TrainingArguments
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from autorl.trainers.language.models import load_policy
from autorl.trainers.language.passes import reference_of
from autorl.trainers.language.sampling import sample

_Tokens: TypeAlias = list[int]


@dataclass
class _SamplingConfig(TrainingArguments):  # type: ignore[misc]
    """Arguments of sampling, by the names of GRPOConfig.

    Attributes:
        num_generations: completions of a prompt.
        steps_per_generation: batches to train on that are drawn at once; None: those of a step.
        num_iterations: times that each is trained on.
        temperature: of the completions.
        max_completion_length: tokens of a completion.
        from_ref_model: whether the reference policy is sampled from.
    """

    num_generations: int = field(default=8)
    steps_per_generation: int | None = field(default=None)
    num_iterations: int = field(default=1)
    temperature: float = field(default=1.0)
    max_completion_length: int = field(default=256)
    from_ref_model: bool = field(default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.steps_per_generation = self.steps_per_generation or self.gradient_accumulation_steps
        fewest = {"num_generations": 2, "steps_per_generation": 1, "num_iterations": 1}
        for name, least in fewest.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")


@dataclass
class RAFTConfig(_SamplingConfig, SFTConfig):  # type: ignore[misc]
    """Arguments of `RAFTTrainer`."""


@dataclass
class IteratedDPOConfig(_SamplingConfig, DPOConfig):  # type: ignore[misc]
    """Arguments of `IteratedDPOTrainer`."""


class _Sampling(Trainer):  # type: ignore[misc]
    """A trainer of TRL whose batches are drawn from its policy.

    Args:
        reward_funcs: one function, called as GRPO calls it.
        train_dataset: prompts.
        **rest: of the trainer.
    """

    example: Callable[[_Tokens, Sequence[_Tokens], Sequence[float]], Mapping[str, Any]]

    def __init__(self, reward_funcs: Sequence[Any], train_dataset: Any, **rest: Any) -> None:
        (self.reward,) = reward_funcs
        self.prompts: list[str] = list(train_dataset["prompt"])
        self.batches = 0  # since the run was cut, which is between two draws
        self.rows: list[Mapping[str, Any]] = []
        super().__init__(train_dataset=train_dataset, **rest)
        self.ref_model = getattr(self, "ref_model", None)
        # the base of an adapter is the reference
        if self.args.from_ref_model and self.ref_model is None and "peft_config" not in rest:
            self.ref_model = load_policy(Path(self.model.config._name_or_path)).to(self.args.device)

    def _prepare_dataset(self, dataset: object, reader: object, args: Any, *rest: object) -> Any:
        """Return rows that are never trained on: an epoch is a step."""
        size = args.per_device_train_batch_size * args.gradient_accumulation_steps
        return datasets.Dataset.from_list([dict(self.example([0], [[0]], [0.0]))] * size)

    # not where batches are taken from the data: there a continued run has no random streams yet
    def training_step(self, model: PreTrainedModel, inputs: object, *rest: object) -> Any:
        args = self.args
        if self.batches % (args.steps_per_generation * args.num_iterations) == 0:
            self.rows = self.draw(self.accelerator.unwrap_model(model))
        size = args.per_device_train_batch_size
        place = self.batches % args.steps_per_generation * size
        self.batches += 1
        batch = self.data_collator(self.rows[place : place + size])
        # the count of tokens in `rest` is of the rows that are not trained on
        return super().training_step(model, batch)

    def draw(self, policy: PreTrainedModel) -> list[Mapping[str, Any]]:
        """Sample, score and choose what is trained on next.

        Prompts come in random order, each as often as any other where they are too few.
        """
        args = self.args
        count = args.steps_per_generation * args.per_device_train_batch_size
        rounds = -(-count // len(self.prompts))
        order = torch.cat([torch.randperm(len(self.prompts)) for _ in range(rounds)])[:count]
        n = args.num_generations
        prompts = [self.prompts[place] for place in order for _ in range(n)]
        seed = int(torch.randint(2**31, ()))
        of_reference = reference_of(policy, self.ref_model)
        with of_reference if args.from_ref_model else nullcontext(policy) as sampled:
            how = (args.max_completion_length, seed, args.temperature)
            samples = sample(sampled, self.processing_class, prompts, *how)
        read: list[_Tokens] = []
        written: list[_Tokens] = []
        for tokens, attention, mask in samples.batches:
            for row, text, completion in zip(tokens, attention.bool(), mask.bool(), strict=True):
                read.append(row[text & ~completion].tolist())
                written.append(row[completion].tolist())
        # None of a reward that does not apply counts for 0, as in GRPO and RLOO
        rewards = torch.tensor(self.reward(prompts, samples.texts, written), dtype=torch.float64)
        groups = torch.where(rewards.isnan(), 0.0, rewards).view(count, n)
        measured = self._metrics["train"]
        measured["reward"].append(float(groups.mean()))
        measured["reward_std"].append(float(groups.std(dim=1).mean()))
        return [
            self.example(read[at], written[at : at + n], group.tolist())
            for at, group in zip(range(0, count * n, n), groups, strict=True)
        ]


class RAFTTrainer(_Sampling, SFTTrainer):  # type: ignore[misc]
    """Trains on the best of n completions."""

    @staticmethod
    def example(
        prompt: _Tokens, completions: Sequence[_Tokens], rewards: Sequence[float]
    ) -> Mapping[str, Any]:
        """Return the first of the completions with the highest reward."""
        best = completions[rewards.index(max(rewards))]
        return {"input_ids": prompt + best, "labels": [-100] * len(prompt) + best}


class IteratedDPOTrainer(_Sampling, DPOTrainer):  # type: ignore[misc]
    """Trains on the best and the worst of n completions."""

    @staticmethod
    def example(
        prompt: _Tokens, completions: Sequence[_Tokens], rewards: Sequence[float]
    ) -> Mapping[str, Any]:
        """Return a pair: one completion twice where all have the same reward."""
        chosen, rejected = (completions[rewards.index(end(rewards))] for end in (max, min))
        return {"prompt_ids": prompt, "chosen_ids": chosen, "rejected_ids": rejected}
