"""The values of a segment, in TRL's words."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from autorl.core.plain_values import plain
from autorl.core.types import InputError
from autorl.space import resolve_schedules
from autorl.trainers.trl.losses import check_smoothing, of_dpo, unused
from autorl.trainers.trl.methods import Method

DEFAULTS: Mapping[str, Any] = {"per_device_train_batch_size": 64, "lr_scheduler_type": "constant"}
"""Ours, where TRL's suit a GPU or tie the learning rate to the length of one call."""

PROCESSES = "processes"
_OURS = ("sft_weight", "gamma_ratio", "use_kl", "max_ratio", PROCESSES)
"""Hyperparameters that are none of TRL's; `Settings.translated` says them in its words."""
OF_TASK = ("max_completion_length", "max_new_tokens")
"""What TRL's methods call the most tokens of a completion: the task's."""
CPU = {
    "use_cpu": True,
    "bf16": False,
    "fp16": False,
    "activation_checkpointing": False,
    "gradient_checkpointing": False,  # its name before transformers 5.23
    "dataloader_pin_memory": False,
}
SHARDED = ("fsdp", "fsdp_config", "parallelism_config")
QUIET = {
    "report_to": [],
    "save_strategy": "no",
    "eval_strategy": "no",
    "logging_strategy": "no",
    "disable_tqdm": True,
    "push_to_hub": False,
}


class Settings:
    """The values of one segment.

    They are the configuration over the trainer's own over our defaults.
    """

    def __init__(
        self, method: Method, own: Mapping[str, object], config: Mapping[str, object]
    ) -> None:
        self.method = method
        self.values: dict[str, Any] = plain({**DEFAULTS, **own, **config})
        if method.of_dpo:
            check_smoothing(self.values)
        # an option stands where the space chooses a loss that does not take it
        for name in unused(self.values):
            del self.values[name]
        if "gamma_ratio" in self.values and "beta" not in self.values:
            raise InputError("is a share of beta, which is not given", key="gamma_ratio")
        batch = self.values["per_device_train_batch_size"]
        count = self.values.get(PROCESSES, 1)
        if batch % count:
            message = f"a batch of {batch} cannot be divided among {count} processes"
            raise InputError(message, key="per_device_train_batch_size")
        # TRL: the loss `kto` measures KL on completions shifted within a batch
        of_kl = method.name == "kto" and self.values.get("loss_type", "kto") == "kto"
        if of_kl and batch == count:
            raise InputError(
                "the loss kto needs a batch of at least 2", key="per_device_train_batch_size"
            )

    def at(self, step: int, horizon: int) -> dict[str, Any]:
        """Return the values at `step`, schedules resolved."""
        return resolve_schedules(self.values, step, horizon)

    @property
    def scheduled(self) -> tuple[str, ...]:
        """Hyperparameters that change while a segment runs."""
        return tuple(
            name
            for name in self.method.scheduled
            if self.values.get(f"{name}.shape", "constant") != "constant"
        )

    @cached_property
    def stride(self) -> int:
        """Optimizer steps between two points at which training can be cut.

        A batch of completions is used for `steps_per_generation` x `num_iterations` micro-batches
        and is not saved, so a cut in between would draw another one.
        """
        if not self.method.grouped:
            return 1
        accumulation = int(self.values.get("gradient_accumulation_steps", 1))
        # TRL's own default
        per_generation = int(self.values.get("steps_per_generation") or accumulation)
        if self.values.get("generation_batch_size") is not None:
            batch = int(self.values["per_device_train_batch_size"])
            per_generation = max(1, int(self.values["generation_batch_size"]) // batch)
        reuse = per_generation * int(self.values.get("num_iterations", 1))
        # the first optimizer step that also uses up a batch of completions
        return math.lcm(reuse, accumulation) // accumulation

    def align(self, step: int) -> int:
        """Return the first step >= `step` at which training can be cut."""
        return -(-step // self.stride) * self.stride

    def arguments(
        self, seed: int, horizon: int, folder: str, most: int, cuda: bool, joined: bool = False
    ) -> Any:
        """Return TRL's configuration object for a run.

        Args:
            seed: of the run.
            horizon: its optimizer steps.
            folder: that TRL may write to.
            most: tokens of a completion.
            cuda: whether it may train on a GPU.
            joined: whether this process is one of those that train together.

        Raises:
            InputError: TRL refuses a value.
        """
        config_class = self.method.classes()[1]
        fields = {field.name for field in dataclasses.fields(config_class)}
        values = self.translated(self.at(0, horizon))
        values |= {"output_dir": folder, "max_steps": horizon, "seed": seed, **QUIET}
        # online DPO calls it otherwise than GRPO and RLOO
        values |= {**dict.fromkeys(OF_TASK, most), **({} if cuda else CPU)}
        if joined:
            values["per_device_train_batch_size"] //= self.values[PROCESSES]
        else:
            values.pop("deepspeed", None)
        if "activation_checkpointing" in values.keys() & fields:
            values.pop("gradient_checkpointing")  # TRL takes the old name too, and warns
        try:
            return config_class(**{name: values[name] for name in values.keys() & fields})
        # ImportError: an option whose package is not installed
        except (ValueError, TypeError, NotImplementedError, ImportError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"trl/{self.method.name}: {reason}", key=_blamed(reason, self.values)
            ) from error

    def translated(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return our names as TRL's arguments."""
        translated = {name: value for name, value in values.items() if name not in _OURS}
        if self.method.of_dpo and "loss_type" in values:
            weights = of_dpo(values["loss_type"])
            if "sft_weight" in values:
                weights["sft"] = values["sft_weight"]
            translated["loss_type"] = list(weights)
            translated["loss_weights"] = values.get("loss_weights") or list(weights.values())
        if values.get("use_kl") is False:
            translated["beta"] = 0.0
        if "max_ratio" in values:  # of CISPO; to other losses it is a distance from 1
            translated["epsilon_high"] = values["max_ratio"]
        if "gamma_ratio" in values:  # SimPO's margin is a fraction of beta
            translated["simpo_gamma"] = values["gamma_ratio"] * values["beta"]
        return translated


def _blamed(reason: str, values: Mapping[str, object]) -> str:
    """Return the hyperparameter that a message of TRL names or quotes.

    A quoted word is a value.
    """
    named = [name for name in values if re.search(rf"\b{re.escape(name)}\b", reason)]
    texts = {name: value for name, value in values.items() if isinstance(value, str)}
    first = [name for name, value in texts.items() if reason.startswith(f"{value} ")]
    quoted = [name for name, value in texts.items() if f"'{value}'" in reason]
    alike = [name for name in values if name.rpartition("_")[2] in reason]
    # in the order of certainty: a name in the message, a value it begins with, one it quotes, and
    # the last word of a name
    return next(iter([*named, *first, *quoted, *alike]), "space")
