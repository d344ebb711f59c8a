"""Hyperparameters of a TRL method: from a configuration to TRL's own, and back out of the live trainer."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import re
import warnings
from collections.abc import Collection, Mapping
from typing import Any

from autorl.plain_text import did_you_mean
from autorl.plain_values import plain
from autorl.rlhf.reward_options import is_option, without
from autorl.space import resolve_schedules
from autorl.trainers._shared import base_name
from autorl.trainers.options import check_names
from autorl.trainers.trl.methods import Method
from autorl.trainers.trl.named_values import NAMED, check_named
from autorl.types import InputError

DEFAULTS: Mapping[str, Any] = {"per_device_train_batch_size": 64, "lr_scheduler_type": "constant"}
"""Ours, where TRL's suit a GPU or tie the learning rate to the length of one call."""

_OURS = ("sft_weight", "gamma_ratio", "use_kl")
_MIXED = {"rpo": {"sigmoid": 1.0, "sft": 1.0}, "mpo": {"sigmoid": 0.8, "bco_pair": 0.2, "sft": 1.0}}
"""Published mixtures of DPO losses and their weights (Pang et al. 2024; Wang et al. 2024)."""
_RESERVED = {  # belongs to the study, or would reach out of it
    *(
        "output_dir",
        "max_steps",
        "num_train_epochs",
        "seed",
        "data_seed",
        "report_to",
        "run_name",
        "project",
    ),
    *(
        "save_strategy",
        "save_steps",
        "save_total_limit",
        "save_only_model",
        "save_on_each_node",
        "load_best_model_at_end",
    ),
    *(
        "eval_strategy",
        "eval_steps",
        "eval_on_start",
        "do_train",
        "do_eval",
        "do_predict",
        "resume_from_checkpoint",
    ),
    *(
        "logging_strategy",
        "logging_steps",
        "logging_dir",
        "logging_first_step",
        "disable_tqdm",
        "hub_model_id",
    ),
    *(
        "push_to_hub",
        "hub_token",
        "hub_strategy",
        "reward_weights",
        "model_init_kwargs",
        "max_completion_length",
    ),
}
_CPU = {
    "use_cpu": True,
    "bf16": False,
    "fp16": False,
    "activation_checkpointing": False,
    "gradient_checkpointing": False,  # its name before transformers 5.23
    "dataloader_pin_memory": False,
}
_DISTRIBUTED = ("deepspeed", "fsdp", "fsdp_config", "parallelism_config")
_LAYOUT = (
    "padding_free",
)  # how a batch lies in memory: TRL decides by what is installed, the training is the same
_PARTNERS: Mapping[str, frozenset[str]] = {  # a value that can only be judged beside these
    "num_generations": frozenset(
        {
            "per_device_train_batch_size",
            "gradient_accumulation_steps",
            "steps_per_generation",
            "generation_batch_size",
        }
    ),
    "generation_batch_size": frozenset(
        {"num_generations", "per_device_train_batch_size", "steps_per_generation"}
    ),
    "per_device_train_batch_size": frozenset({"num_generations"}),
    "gradient_accumulation_steps": frozenset({"num_generations"}),
    "steps_per_generation": frozenset({"num_generations"}),
    "gamma_ratio": frozenset({"beta"}),
    "loss_type": frozenset({"label_smoothing"}),
    "label_smoothing": frozenset({"loss_type"}),
}
_QUIET = {
    "report_to": [],
    "save_strategy": "no",
    "eval_strategy": "no",
    "logging_strategy": "no",
    "disable_tqdm": True,
    "push_to_hub": False,
}
DPO_LOSSES = frozenset(
    {
        *(
            "sigmoid",
            "hinge",
            "ipo",
            "exo_pair",
            "nca_pair",
            "robust",
            "bco_pair",
            "sppo_hard",
            "aot",
            "aot_unpaired",
        ),
        *("apo_zero", "apo_down", "discopop", "sft", "sigmoid_norm"),
    }
)


class Settings:
    """The values of one segment: the configuration over the trainer's own over our defaults."""

    def __init__(self, method: Method, own: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        self.method = method
        self.values: dict[str, Any] = plain({**DEFAULTS, **own, **config})
        self._made: dict[str, Any] = {}
        self._check_losses()
        if "gamma_ratio" in self.values and "beta" not in self.values:
            raise InputError("is a share of beta, which is not given", key="gamma_ratio")
        if method.grouped:
            self._check_divisible()

    def at(self, step: int, horizon: int) -> dict[str, Any]:
        """The values at `step`, schedules resolved."""
        return resolve_schedules(self.values, step, horizon)

    @property
    def scheduled(self) -> tuple[str, ...]:
        """Hyperparameters that change while a segment runs."""
        return tuple(
            name
            for name in self.method.scheduled
            if self.values.get(f"{name}.shape", "constant") != "constant"
        )

    @property
    def stride(self) -> int:
        """Optimizer steps between two points at which training can be cut.

        A batch of completions is used for `steps_per_generation` x `num_iterations` micro-batches and is not saved, so
        a cut in between would draw another one.
        """
        if not self.method.grouped:
            return 1
        accumulation = int(self.values.get("gradient_accumulation_steps", 1))
        per_generation, _ = self._generation()
        reuse = per_generation * int(self.values.get("num_iterations", 1))
        return math.lcm(reuse, accumulation) // accumulation

    def arguments(self, seed: int, horizon: int, folder: str, most: int, cuda: bool) -> Any:
        """TRL's configuration object for a run of `horizon` optimizer steps and completions of at most `most` tokens.

        Raises:
            InputError: TRL refuses a value.
        """
        trainer_class, config_class = self.method.classes()
        fields = {field.name for field in dataclasses.fields(config_class)}
        values = self.translated(self.at(0, horizon))
        cpu = {name: value for name, value in _CPU.items() if name != _old_name(fields)}
        values |= {
            "output_dir": folder,
            "max_steps": horizon,
            "seed": seed,
            **_QUIET,
            **({} if cuda else cpu),
        }
        ours = {"max_completion_length": most, "max_new_tokens": most}
        values |= {name: value for name, value in ours.items() if name in fields}
        try:
            made = config_class(**{name: value for name, value in values.items() if name in fields})
        except (ValueError, TypeError, NotImplementedError, ImportError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"trl/{self.method.name}: {reason}", key=_blamed(reason, self.values)
            ) from error
        self._made = {name: getattr(made, name) for name in self.values if name in fields}
        for name in NAMED:
            if name in self._made:
                check_named(trainer_class, config_class, name, self._made[name])
        return made

    def write(self, trainer: Any, step: int, horizon: int, *, first: bool) -> None:
        """Put the values of `step` into the live trainer.

        At the first step of a segment that is all a checkpoint brings along, after it only what follows a schedule.
        """
        values = self.at(step, horizon)
        if first:
            if (
                "weight_decay" in values
            ):  # transformers puts biases and norms, which do not decay, in the second group
                trainer.optimizer.param_groups[0]["weight_decay"] = values["weight_decay"]
            for group in trainer.optimizer.param_groups:
                group["eps"] = trainer.args.adam_epsilon
                group["betas"] = (trainer.args.adam_beta1, trainer.args.adam_beta2)
        if "learning_rate" in values and (first or "learning_rate" in self.scheduled):
            set_learning_rate(trainer.optimizer, trainer.lr_scheduler, values["learning_rate"])
        for name in self.scheduled:
            for attribute in self._attributes(name):
                setattr(trainer, attribute, values[name])

    def read_back(self, trainer: Any, step: int, horizon: int) -> dict[str, Any]:
        """The value every hyperparameter has in the live trainer, schedules at `step`.

        Raises:
            RuntimeError: one did not take.
        """
        wanted = self.at(step, horizon)
        applied = {}
        for name, value in without(wanted).items():
            if name == "loss_type" and self.method.name == "dpo":
                found, value_there = trainer.loss_types, list(_losses(value))
            else:
                found, value_there = _read(trainer, name), value
            if name == "generation_kwargs" and value:  # TRL puts them among its own
                found = {key: found.get(key) for key in value}
            if name in _LAYOUT:
                applied[name] = found
                continue
            same = all(
                _same(getattr(trainer, attribute), value_there)
                for attribute in self._attributes(name)[1:]
            )
            if not same or not (_same(found, value_there) or self._is_made(name, found)):
                raise RuntimeError(
                    f"hyperparameter {name} did not take: asked for {value!r}, found {found!r}"
                )
            applied[name] = value
        helpers = {
            name: value
            for name, value in self.values.items()
            if base_name(name) != name or is_option(name)
        }
        return {**applied, **helpers}

    def _is_made(self, name: str, found: Any) -> bool:
        """Whether a value is what TRL's configuration class made of the one asked for (`none` of False)."""
        return name in self._made and name not in self.scheduled and _same(found, self._made[name])

    def _attributes(self, name: str) -> tuple[str, ...]:
        """Where the live trainer keeps a hyperparameter that can follow a schedule; nowhere for the learning rate."""
        if name == "learning_rate" or name not in self.method.scheduled:
            return ()
        if name == "epsilon" and self.values.get("epsilon_high") is None:
            return (
                "epsilon_low",
                "epsilon_high",
            )  # one value for both sides, copied when TRL builds its trainer
        return (_ATTRIBUTES.get(name, name),)

    def _generation(self) -> tuple[int, int]:
        """Micro-batches per generation, and completions generated at once."""
        values = self.values
        batch = int(values["per_device_train_batch_size"])
        accumulation = int(values.get("gradient_accumulation_steps", 1))
        if values.get("generation_batch_size") is not None:
            return max(1, int(values["generation_batch_size"]) // batch), int(
                values["generation_batch_size"]
            )
        per_generation = int(values.get("steps_per_generation") or accumulation)
        return per_generation, batch * per_generation

    def _check_divisible(self) -> None:
        """What TRL would refuse one trial at a time, as one clear line."""
        groups = self.values.get("num_generations")
        if groups is None:
            return
        _, at_once = self._generation()
        if int(groups) < 2 or at_once % int(groups):
            raise InputError(
                f"{groups} does not divide the {at_once} completions generated at once (per_device_train_batch_size x "
                "steps_per_generation), or is below 2; add a constraint to the space",
                key="num_generations",
            )

    def _check_losses(self) -> None:
        if self.method.name != "dpo" or "loss_type" not in self.values:
            return
        parts = _losses(self.values["loss_type"])
        check_names(parts, DPO_LOSSES, "DPO loss", "loss_type")
        smoothing = float(self.values.get("label_smoothing", 0.0))
        if "robust" in parts and not 0.0 <= smoothing < 0.5:
            raise InputError(
                f"robust needs a label smoothing in 0..0.5, got {smoothing}", key="label_smoothing"
            )
        if "exo_pair" in parts and smoothing == 0.0:
            raise InputError("exo_pair needs a label smoothing above 0", key="label_smoothing")

    def translated(self, values: dict[str, Any]) -> dict[str, Any]:
        """Our names as TRL's arguments."""
        translated = {name: value for name, value in values.items() if name not in _OURS}
        if self.method.name == "dpo" and "loss_type" in values:
            weights = _losses(values["loss_type"])
            if "sft_weight" in values and "sft" in weights:
                weights["sft"] = values["sft_weight"]
            given = values.get("loss_weights")
            translated |= {
                "loss_type": list(weights),
                "loss_weights": given or list(weights.values()),
            }
        if values.get("use_kl") is False:
            translated["beta"] = 0.0
        if "gamma_ratio" in values:  # SimPO's margin is a fraction of beta
            translated["simpo_gamma"] = values["gamma_ratio"] * values["beta"]
        return translated


_ATTRIBUTES = {"epsilon": "epsilon_low"}


def _old_name(fields: Collection[str]) -> str:
    """What a configuration still takes under its old name, with a warning, where it has the new one."""
    return "gradient_checkpointing" if "activation_checkpointing" in fields else ""


def check_fixed(
    method: Method, fixed: Mapping[str, Any], free: Collection[str], *, cuda: bool
) -> None:
    """Raise `InputError` for values no run could train with; `free` are the hyperparameters searched beside them."""
    judged = {
        name: value
        for name, value in fixed.items()
        if not _PARTNERS.get(name, frozenset()).intersection(free)
    }
    fields = {field.name: field for field in dataclasses.fields(method.classes()[1])}
    numbers = {name for name, field in fields.items() if type(field.default) in (int, float)}
    for name, value in judged.items():
        if (
            value is None
            and name in fields
            and any(text in str(fields[name].type) for text in ("None", "Optional"))
        ):
            continue
        if name in numbers and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InputError(f"expected a number, got {value!r}", key=name)
    if judged.get("use_vllm") and importlib.util.find_spec("vllm") is None:
        raise InputError("vLLM is not installed", key="use_vllm")
    check_values(method, judged, {}, cuda=cuda)


def check_values(
    method: Method, own: Mapping[str, Any], config: Mapping[str, Any], *, cuda: bool
) -> None:
    """Raise `InputError` if no run of this configuration, over the trainer's own values, could train."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", FutureWarning
        )  # TRL's own use of names transformers is renaming
        Settings(method, own, config).arguments(0, 1, "unused", 1, cuda=cuda)


def check_hyperparameters(method: Method, names: Collection[str], *, cuda: bool = False) -> None:
    """Raise `InputError` for a hyperparameter TRL's configuration does not have, or one that belongs to the study."""
    _, config_class = method.classes()
    allowed = {field.name for field in dataclasses.fields(config_class)} - _RESERVED
    allowed |= {"sft_weight"} if method.name == "dpo" else set()
    allowed |= {"gamma_ratio"} if method.name == "cpo" else set()
    allowed |= {"use_kl"} if method.grouped else set()
    for name in names:
        base = base_name(name)
        if base in _RESERVED:
            raise InputError(
                f"{base} is set by the study or the task, not by the space of trl/{method.name}",
                key="space",
            )
        if base in _DISTRIBUTED:
            raise InputError(
                "a segment trains in one process: for several start a script of TRL by a launcher, with the trainer "
                "`command`",
                key=base,
            )
        if base in _CPU and not cuda:
            raise InputError(
                f"{base} is for a GPU: give the trainer `device: auto` beside it", key="space"
            )
        if base not in allowed:
            no_field = f"; TRL's {config_class.__name__} has no such field"
            hint = did_you_mean(base, allowed) or no_field
            raise InputError(
                f"unknown hyperparameter of trl/{method.name} {base!r}{hint}", key="space"
            )
        if base != name and base not in method.scheduled:
            raise InputError(
                f"trl/{method.name} cannot follow a schedule of {base!r}; it can for {', '.join(method.scheduled)}",
                key=base,
            )


def _blamed(reason: str, values: Mapping[str, Any]) -> str:
    """The hyperparameter a message of TRL is about: the one it names, or whose value it quotes."""
    named = [name for name in values if re.search(rf"\b{re.escape(name)}\b", reason)]
    texts = {name: value for name, value in values.items() if isinstance(value, str)}
    first = [name for name, value in texts.items() if reason.startswith(f"{value} ")]
    quoted = [name for name, value in texts.items() if f"'{value}'" in reason]
    return next(iter([*named, *first, *quoted]), "space")


def set_learning_rate(optimizer: Any, scheduler: Any, value: float) -> None:
    """Set the base learning rate of a live optimizer and of the scheduler that would put the old one back."""
    factors = [function(scheduler.last_epoch) for function in getattr(scheduler, "lr_lambdas", [])]
    for index, group in enumerate(optimizer.param_groups):
        group["initial_lr"] = value
        group["lr"] = value * (factors[index] if factors else 1.0)
    scheduler.base_lrs = [value] * len(scheduler.base_lrs)
    scheduler._last_lr = [group["lr"] for group in optimizer.param_groups]


def _losses(value: Any) -> dict[str, float]:
    """Weights by loss, from `sigmoid`, `rpo`, `sigmoid+sft` or a list of losses."""
    if isinstance(value, str) and value in _MIXED:
        return dict(_MIXED[value])
    return dict.fromkeys(
        [str(part) for part in value] if isinstance(value, list) else str(value).split("+"), 1.0
    )


def _read(trainer: Any, name: str) -> Any:
    groups = trainer.optimizer.param_groups
    match name:
        case "learning_rate":
            return trainer.lr_scheduler.base_lrs[0]
        case "weight_decay":
            return groups[0]["weight_decay"]
        case "adam_epsilon":
            return groups[0]["eps"]
        case "adam_beta1" | "adam_beta2":
            return groups[0]["betas"][0 if name == "adam_beta1" else 1]
        case "use_kl":
            return trainer.beta != 0.0
        case "sft_weight":
            return trainer.loss_weights[trainer.loss_types.index("sft")]
        case "gamma_ratio":
            return trainer.simpo_gamma / trainer.beta
    live = _ATTRIBUTES.get(name, name)
    holder = trainer if hasattr(trainer, live) else trainer.args
    found = getattr(holder, live if holder is trainer else name)
    return getattr(found, "value", found)


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(found, int | float) and isinstance(wanted, int | float):
        return math.isclose(float(found), float(wanted), rel_tol=1e-9, abs_tol=1e-15)
    if isinstance(found, tuple | list) and isinstance(wanted, tuple | list):
        return list(found) == list(wanted)
    if wanted is None:
        return True  # TRL puts the value that stands for None in its place
    return bool(found == wanted)
