"""The hyperparameters of a method in TRL's words.

They are written to its trainer and read back.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from autorl.core.plain_text import did_you_mean, one_of
from autorl.core.plain_values import plain
from autorl.core.types import InputError
from autorl.space import resolve_schedules
from autorl.trainers.language.rewards.options import is_option, without
from autorl.trainers.shared import base_name
from autorl.trainers.trl.methods import NAMED, Method, names_of_argument

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler
    from transformers import Trainer

DEFAULTS: Mapping[str, Any] = {"per_device_train_batch_size": 64, "lr_scheduler_type": "constant"}
"""Ours, where TRL's suit a GPU or tie the learning rate to the length of one call."""

_OURS = ("sft_weight", "gamma_ratio", "use_kl")
"""Hyperparameters that are none of TRL's; `Settings.translated` says them in its words."""
_MIXED = {"rpo": {"sigmoid": 1.0, "sft": 1.0}, "mpo": {"sigmoid": 0.8, "bco_pair": 0.2, "sft": 1.0}}
"""Published mixtures of DPO losses and their weights (Pang et al. 2024; Wang et al. 2024)."""
_OF_LOG_RATIOS = "sigmoid sigmoid_norm ipo exo_pair robust discopop"
_LOSSES_WITH: Mapping[str, tuple[Callable[[Iterable[bool]], bool], frozenset[str]]] = {
    "sft_weight": (any, frozenset({"sft"})),
    "gamma_ratio": (any, frozenset({"simpo", "alphapo"})),
    "f_divergence_type": (all, frozenset(f"{_OF_LOG_RATIOS} hinge sft".split())),
    # TRL 1.16 refuses it for the two of AOT, and crashes in the backward pass of hinge and SFT
    "use_weighting": (
        all,
        frozenset(f"{_OF_LOG_RATIOS} bco_pair nca_pair sppo_hard apo_zero apo_down".split()),
    ),
}
"""Hyperparameters that a loss takes if any, or if all, of its parts are among these."""
OF_TASK = ("max_completion_length", "max_new_tokens")
"""What TRL's methods call the most tokens of a completion: the task's."""
_RESERVED = {
    *OF_TASK,
    *("output_dir", "max_steps", "num_train_epochs", "seed", "data_seed"),
    *("report_to", "run_name", "project"),
    *("save_strategy", "save_steps", "save_total_limit", "save_only_model"),
    *("save_on_each_node", "load_best_model_at_end", "resume_from_checkpoint"),
    *("eval_strategy", "eval_steps", "eval_on_start", "do_train", "do_eval", "do_predict"),
    *("logging_strategy", "logging_steps", "logging_dir", "logging_first_step", "disable_tqdm"),
    *("hub_model_id", "push_to_hub", "hub_token", "hub_strategy"),
    *("reward_weights", "model_init_kwargs"),
}
"""What belongs to the study or the task, or would reach out of it."""
_CPU = {
    "use_cpu": True,
    "bf16": False,
    "fp16": False,
    "activation_checkpointing": False,
    "gradient_checkpointing": False,  # its name before transformers 5.23
    "dataloader_pin_memory": False,
}
_DISTRIBUTED = ("deepspeed", "fsdp", "fsdp_config", "parallelism_config")
_LAYOUT = ("padding_free",)
"""How a batch lies in memory: TRL decides by what is installed, the training is the same."""
_QUIET = {
    "report_to": [],
    "save_strategy": "no",
    "eval_strategy": "no",
    "logging_strategy": "no",
    "disable_tqdm": True,
    "push_to_hub": False,
}
_ATTRIBUTES = {"epsilon": "epsilon_low"}
"""Hyperparameters that TRL's trainer keeps under another name."""


class Settings:
    """The values of one segment.

    They are the configuration over the trainer's own over our defaults.
    """

    def __init__(
        self, method: Method, own: Mapping[str, object], config: Mapping[str, object]
    ) -> None:
        self.method = method
        self.values: dict[str, Any] = plain({**DEFAULTS, **own, **config})
        self._made: dict[str, Any] = {}
        self._check_losses()
        # an option stands where the space chooses a loss that does not take it
        for name in _unused(self.values):
            del self.values[name]
        if "gamma_ratio" in self.values and "beta" not in self.values:
            raise InputError("is a share of beta, which is not given", key="gamma_ratio")
        if method.grouped:
            self._check_divisible()
        # TRL: the loss `kto` measures KL on completions shifted within a batch
        of_kl = method.name == "kto" and self.values.get("loss_type", "kto") == "kto"
        if of_kl and self.values["per_device_train_batch_size"] == 1:
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
        per_generation, _ = self._generation()
        reuse = per_generation * int(self.values.get("num_iterations", 1))
        # the first optimizer step that also uses up a batch of completions
        return math.lcm(reuse, accumulation) // accumulation

    def align(self, step: int) -> int:
        """Return the first step >= `step` at which training can be cut."""
        return -(-step // self.stride) * self.stride

    def arguments(self, seed: int, horizon: int, folder: str, most: int, cuda: bool) -> Any:
        """Return TRL's configuration object for a run.

        Args:
            seed: of the run.
            horizon: its optimizer steps.
            folder: that TRL may write to.
            most: tokens of a completion.
            cuda: whether it may train on a GPU.

        Raises:
            InputError: TRL refuses a value.
        """
        trainer_class, config_class = self.method.classes()
        fields = {field.name for field in dataclasses.fields(config_class)}
        values = self.translated(self.at(0, horizon))
        values |= {"output_dir": folder, "max_steps": horizon, "seed": seed, **_QUIET}
        if not cuda:
            cpu = dict(_CPU)
            if "activation_checkpointing" in fields:
                del cpu["gradient_checkpointing"]  # TRL takes the old name too, and warns
            values |= cpu
        # online DPO calls it otherwise than GRPO and RLOO
        values |= {name: most for name in OF_TASK if name in fields}
        try:
            made = config_class(**{name: value for name, value in values.items() if name in fields})
        # ImportError: an option whose package is not installed
        except (ValueError, TypeError, NotImplementedError, ImportError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"trl/{self.method.name}: {reason}", key=_blamed(reason, self.values)
            ) from error
        # what TRL makes of a value: of `scale_rewards: false` it makes `none`
        self._made = {name: getattr(made, name) for name in self.values if name in fields}
        # a subclass may know other texts
        for name in () if self.method.subclass else NAMED:
            if name not in self._made:
                continue
            allowed = names_of_argument(trainer_class, config_class, name)
            of_dpo = self.method.name == "dpo" and name == "loss_type"
            for value in self._made[name] if of_dpo else [self._made[name]]:
                if allowed and value not in allowed:
                    hint = one_of(value, allowed)
                    message = f"TRL's {trainer_class.__name__} has no {value!r}{hint}"
                    raise InputError(message, key=name)
        return made

    def write(self, trainer: Trainer, step: int, horizon: int, *, first: bool) -> None:
        """Put the values of `step` into TRL's trainer.

        At the first step of a segment that is all a checkpoint brings along, after it only what
        follows a schedule.
        """
        values = self.at(step, horizon)
        if first:
            # transformers puts biases and norms, which do not decay, in the second group
            if "weight_decay" in values:
                trainer.optimizer.param_groups[0]["weight_decay"] = values["weight_decay"]
            for group in trainer.optimizer.param_groups:
                # the restored optimizer has those of the checkpoint; `args` are new
                group["eps"] = trainer.args.adam_epsilon
                group["betas"] = (trainer.args.adam_beta1, trainer.args.adam_beta2)
        # TRL restores optimizer and scheduler with their own rate, without a word
        if "learning_rate" in values and (first or "learning_rate" in self.scheduled):
            set_learning_rate(trainer.optimizer, trainer.lr_scheduler, values["learning_rate"])
        for name in self.scheduled:
            for attribute in self._attributes(name):
                setattr(trainer, attribute, values[name])

    def read_back(self, trainer: Trainer, step: int, horizon: int) -> dict[str, Any]:
        """Return the value every hyperparameter has in TRL's trainer, schedules at `step`.

        Raises:
            RuntimeError: a value did not take.
        """
        applied = {}
        for name, value in without(self.at(step, horizon)).items():
            in_force = _read(trainer, name)
            # DPO switches padding-free batches off itself: not an error, but said as it is
            if name in _LAYOUT:
                applied[name] = in_force
                continue
            # what TRL's class makes of a value is as good: it makes `none` of False
            expected = [value]
            if name in self._made and name not in self.scheduled:
                expected.append(self._made[name])
            values = [in_force, *(getattr(trainer, twin) for twin in self._attributes(name)[1:])]
            if not all(any(_same(item, wish) for wish in expected) for item in values):
                raise RuntimeError(
                    f"hyperparameter {name} did not take: asked for {value!r}, found {in_force!r}"
                )
            applied[name] = value
        helpers = {
            name: value
            for name, value in self.values.items()
            if base_name(name) != name or is_option(name)
        }
        return {**applied, **helpers}

    def _attributes(self, name: str) -> tuple[str, ...]:
        """Return where TRL's trainer keeps a hyperparameter that can follow a schedule.

        Nowhere for the learning rate.
        """
        if name == "learning_rate" or name not in self.method.scheduled:
            return ()
        if name == "epsilon" and self.values.get("epsilon_high") is None:
            # one value for both sides, copied when TRL builds its trainer
            return ("epsilon_low", "epsilon_high")
        return (_ATTRIBUTES.get(name, name),)

    def _generation(self) -> tuple[int, int]:
        """Return micro-batches per generation, and completions generated at once."""
        values = self.values
        batch = int(values["per_device_train_batch_size"])
        accumulation = int(values.get("gradient_accumulation_steps", 1))
        if values.get("generation_batch_size") is not None:
            at_once = int(values["generation_batch_size"])
            return max(1, at_once // batch), at_once
        # TRL's own default
        per_generation = int(values.get("steps_per_generation") or accumulation)
        return per_generation, batch * per_generation

    def _check_divisible(self) -> None:
        """Raise `InputError` for what TRL would refuse one trial at a time."""
        groups = self.values.get("num_generations")
        if groups is None:
            return
        _, at_once = self._generation()
        # a group of one has no other completion to be held against
        if int(groups) < 2 or at_once % int(groups):
            raise InputError(
                f"{groups} does not divide the {at_once} completions generated at once "
                "(per_device_train_batch_size x steps_per_generation), or is below 2; add a "
                "constraint to the space",
                key="num_generations",
            )

    def _check_losses(self) -> None:
        """Raise `InputError` for a loss of DPO that is not so smoothed."""
        if self.method.name != "dpo" or "loss_type" not in self.values:
            return
        parts = _losses(self.values["loss_type"])
        smoothing = float(self.values.get("label_smoothing", 0.0))
        if "robust" in parts and not 0.0 <= smoothing < 0.5:
            raise InputError(
                f"robust needs a label smoothing in 0..0.5, got {smoothing}", key="label_smoothing"
            )
        if "exo_pair" in parts and smoothing == 0.0:
            raise InputError("exo_pair needs a label smoothing above 0", key="label_smoothing")

    def translated(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return our names as TRL's arguments."""
        translated = {name: value for name, value in values.items() if name not in _OURS}
        if self.method.name == "dpo" and "loss_type" in values:
            weights = _losses(values["loss_type"])
            if "sft_weight" in values:
                weights["sft"] = values["sft_weight"]
            translated["loss_type"] = list(weights)
            translated["loss_weights"] = values.get("loss_weights") or list(weights.values())
        if values.get("use_kl") is False:
            translated["beta"] = 0.0
        if "gamma_ratio" in values:  # SimPO's margin is a fraction of beta
            translated["simpo_gamma"] = values["gamma_ratio"] * values["beta"]
        return translated


def check_values(method: Method, own: Mapping[str, object], config: Mapping[str, object]) -> None:
    """Raise `InputError` if no run of a configuration could train.

    The configuration goes over the trainer's own values.
    """
    settings = Settings(method, own, config)
    for field in dataclasses.fields(method.classes()[1]):
        value = settings.values.get(field.name)
        # the exact type of the default: bool is an int to `isinstance`
        number = type(field.default) in (int, float) and field.name in settings.values
        if value is None and ("None" in str(field.type) or "Optional" in str(field.type)):
            continue
        if number and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InputError(f"expected a number, got {value!r}", key=field.name)
    for name in () if "loss_type" in config else _unused(own):
        takers = ", ".join(sorted(_LOSSES_WITH[name][1]))
        loss = own.get("loss_type", "sigmoid")
        raise InputError(f"the loss {loss!r} does not take it, but {takers}", key=name)
    if settings.values.get("use_vllm") and importlib.util.find_spec("vllm") is None:
        raise InputError("vLLM is not installed", key="use_vllm")
    with warnings.catch_warnings():
        # TRL's own use of names transformers is renaming
        warnings.simplefilter("ignore", FutureWarning)
        # transformers starts CUDA for them, and the GPU is for the segments
        settings.arguments(0, 1, "unused", 1, cuda=False)


def check_hyperparameters(method: Method, names: Collection[str], *, cuda: bool = False) -> None:
    """Raise `InputError` for names that no space can have.

    TRL does not have them, or they are the study's.
    """
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
                "a segment trains in one process: for several start a script of TRL by a launcher, "
                "with the trainer `command`",
                key=base,
            )
        if base in _CPU and not cuda:
            raise InputError(
                f"{base} is for a GPU: give segments one, `resources: {{gpu: 1}}`", key="space"
            )
        if base not in allowed:
            no_field = f"; TRL's {config_class.__name__} has no such field"
            hint = did_you_mean(base, allowed) or no_field
            raise InputError(
                f"unknown hyperparameter of trl/{method.name} {base!r}{hint}", key="space"
            )
        if base != name and base not in method.scheduled:
            raise InputError(
                f"trl/{method.name} cannot follow a schedule of {base!r}; it can for "
                f"{', '.join(method.scheduled)}",
                key=base,
            )


def _blamed(reason: str, values: Mapping[str, object]) -> str:
    """Return the hyperparameter that a message of TRL names or quotes.

    A quoted word is a value.
    """
    named = [name for name in values if re.search(rf"\b{re.escape(name)}\b", reason)]
    texts = {name: value for name, value in values.items() if isinstance(value, str)}
    first = [name for name, value in texts.items() if reason.startswith(f"{value} ")]
    quoted = [name for name, value in texts.items() if f"'{value}'" in reason]
    # in the order of certainty: a name in the message, a value it begins with, one it quotes
    return next(iter([*named, *first, *quoted]), "space")


def set_learning_rate(optimizer: Optimizer, scheduler: LRScheduler, value: float) -> None:
    """Set the learning rate of an optimizer and its scheduler.

    The scheduler would put the old one back.
    """
    # a scheduler with a factor (warm-up, decay) keeps it, on the new rate
    factors = [function(scheduler.last_epoch) for function in getattr(scheduler, "lr_lambdas", [])]
    for index, group in enumerate(optimizer.param_groups):
        group["initial_lr"] = value
        group["lr"] = value * (factors[index] if factors else 1.0)
    # at its next step the scheduler computes every rate from these
    scheduler.base_lrs = [value] * len(scheduler.base_lrs)
    scheduler._last_lr = [group["lr"] for group in optimizer.param_groups]


def _losses(value: object) -> dict[str, float]:
    """Return weights by loss.

    The value is `sigmoid`, `rpo`, `sigmoid+sft` or a list of losses.
    """
    if isinstance(value, str) and value in _MIXED:
        return dict(_MIXED[value])
    names = map(str, value) if isinstance(value, list) else str(value).split("+")
    return dict.fromkeys(names, 1.0)


def _unused(values: Mapping[str, object]) -> list[str]:
    """Return the hyperparameters given that the loss does not take."""
    parts = _losses(values.get("loss_type", "sigmoid"))
    return [
        name
        for name, (rule, losses) in _LOSSES_WITH.items()
        if name in values and not rule(part in losses for part in parts)
    ]


def _read(trainer: Trainer, name: str) -> Any:
    """Return what TRL's trainer has for a hyperparameter."""
    groups = trainer.optimizer.param_groups
    match name:
        case "learning_rate":
            # not the group's: a warm-up lowers that for a while
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
        case "loss_type" if hasattr(trainer, "loss_types"):  # of DPO
            return trainer.loss_types
        case "gamma_ratio":
            return trainer.simpo_gamma / trainer.beta
    attribute = _ATTRIBUTES.get(name, name)
    if not hasattr(trainer, attribute):
        trainer = trainer.args
        attribute = name
    value = getattr(trainer, attribute)
    # transformers turns texts into members of enumerations
    return getattr(value, "value", value)


def _same(in_force: object, expected: object) -> bool:
    """Whether two values are the same to TRL."""
    if isinstance(in_force, int | float) and isinstance(expected, int | float):
        # products of hyperparameters (SimPO's margin) are divided again to be read
        return math.isclose(float(in_force), float(expected), rel_tol=1e-9, abs_tol=1e-15)
    if isinstance(in_force, tuple | list) and isinstance(expected, tuple | list):
        return list(in_force) == list(expected)
    # TRL puts arguments of generation among its own
    if isinstance(in_force, Mapping) and isinstance(expected, Mapping):
        return expected.items() <= in_force.items()
    if expected is None:
        return True  # TRL puts the value that stands for None in its place
    return bool(in_force == expected)
