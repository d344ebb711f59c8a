"""The methods of TRL, found by name at run time.

Its experimental trainers come and go with minor releases.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from autorl.core.plain_text import one_of
from autorl.core.plugins import named_class
from autorl.core.types import InputError
from autorl.trainers.contract import Change
from autorl.trainers.language.rewards.options import CHANGES as REWARD_CHANGES
from autorl.trainers.shared import schedule_parts

Data = Literal["prompts", "pairs", "unpaired", "completions", "ranking"]
"""What a method is trained on; see `Method.data`."""

STABLE: Mapping[str, Data] = {
    "rloo": "prompts",
    "grpo": "prompts",
    "dpo": "pairs",
    "kto": "unpaired",
    "sft": "completions",
    "reward": "ranking",
}
_EXPERIMENTAL: Mapping[str, Data] = {
    "cpo": "pairs",
    "orpo": "pairs",
    "online_dpo": "prompts",
    "gmpo": "prompts",
    "a2po": "prompts",
}
"""What those known today are trained on; others say it with the option `data`."""
SAMPLED: Mapping[str, Data] = {"raft": "completions", "iterated_dpo": "pairs"}
"""What those of this package are trained on, sampled from the policy itself."""
_NO_TASK_HAS = {
    "tpo": "a reference completion beside each pair, which no task has",
    "gkd": "a teacher model, which no task has",
    "async_grpo": "a vLLM server beside it, which no segment has",
}
"""What those need that cannot be trained here."""
_OPTIMIZER = (
    *("learning_rate", "weight_decay", "max_grad_norm"),
    *("adam_beta1", "adam_beta2", "adam_epsilon"),
)
"""What is set on the restored optimizer."""
_ANCHOR = ("ref_model_mixup_alpha", "ref_model_sync_steps")
_LOSS: Mapping[str, tuple[str, ...]] = {
    "prompts": (
        *_ANCHOR,
        *("beta", "epsilon", "epsilon_high", "max_ratio", "delta", "loss_type"),
        *("importance_sampling_level",),
        *("temperature", "top_p", "top_k", "min_p", "repetition_penalty"),
        *("reward_clip_range", "normalize_advantages", "scale_rewards"),
        *("entropy_coef", "top_entropy_quantile"),
        *("mask_truncated_completions", "missing_eos_penalty"),
    ),
    "pairs": (
        *_ANCHOR,
        *("beta", "loss_type", "label_smoothing", "sft_weight", "ld_alpha", "use_weighting"),
        *("f_divergence_type", "simpo_gamma", "gamma_ratio", "cpo_alpha", "discopop_tau"),
    ),
    "unpaired": (*_ANCHOR, "beta", "loss_type", "desirable_weight", "undesirable_weight"),
    "completions": ("loss_type",),
    "ranking": ("center_rewards_coefficient",),
}
"""What a rebuilt trainer takes from its new configuration."""
_LEARNS_FROM: Mapping[Data, tuple[str, ...]] = {
    "prompts": ("prompts",),
    "pairs": ("pairs",),
    "ranking": ("pairs",),
    "unpaired": ("labelled", "pairs"),
    "completions": ("completions", "pairs"),
}
_UPDATE = {"loss": "loss", "grad_norm": "grad_norm"}
_MARGINS = {"rewards/accuracies": "accuracy", "rewards/margins": "margin"}
_MEASURES: Mapping[Data, Mapping[str, str]] = {
    "prompts": {
        **{name: name for name in ("entropy", "approx_kl", "reward", "reward_std")},
        **{"completions/mean_length": "length", "clip_ratio/region_mean": "clip_fraction"},
        "cispo_clip_ratio": "clip_fraction",
    },
    "pairs": {"entropy": "entropy", **_MARGINS},
    "unpaired": {"entropy": "entropy", "rewards/margins": "margin"},
    "completions": {"entropy": "entropy"},
    "ranking": {"accuracy": "accuracy", "margin": "margin"},
}
"""Measures of an update: names here by TRL's."""
_SCHEDULED = ("learning_rate", "beta", "epsilon", "epsilon_high")


@dataclass(frozen=True)
class Method:
    """A method of TRL.

    Attributes:
        name: `rloo`, `dpo`, ...
        data: what it is trained on: prompts with a reward, pairs, single labelled completions,
            plain completions, or pairs for a scalar reward model (`ranking`).
        module: where its classes are.
        subclass: of its trainer, as `module:Class`; empty: that itself.
        sampled: what it makes of prompts, and trains on; empty: it trains on `data`.
    """

    name: str
    data: Data
    module: str
    subclass: str = ""
    sampled: Data | Literal[""] = ""

    @property
    def learns_from(self) -> tuple[str, ...]:
        """Parts of which a task must have at least one.

        The words are those of `autorl.trainers.language.contract.Task.check`.
        """
        return _LEARNS_FROM[self.data]

    @property
    def measures(self) -> Mapping[str, str]:
        """Return the measures of an update: names here by TRL's."""
        further = _MARGINS if self.online and not self.grouped else {}
        if self.sampled:
            further = {"reward": "reward", "reward_std": "reward_std"}
        return {**_UPDATE, **_MEASURES[self.sampled or self.data], **further}

    @property
    def online(self) -> bool:
        """Whether it samples completions in training, and scores them."""
        return self.data == "prompts"

    @property
    def grouped(self) -> bool:
        """Whether it samples groups of completions per prompt (`num_generations`)."""
        return self.name not in ("online_dpo", "a2po") and self.online

    @property
    def on_policy(self) -> bool:
        """Whether its loss is of all sampled completions, as in GRPO."""
        return self.grouped and not self.sampled

    @property
    def of_dpo(self) -> bool:
        """Whether it has the losses of DPO."""
        return self.name in ("dpo", "iterated_dpo")

    @property
    def scheduled(self) -> tuple[str, ...]:
        """Hyperparameters that can follow a schedule.

        They are written into TRL's trainer before each optimizer step.
        """
        if self.on_policy:
            return _SCHEDULED
        # not online DPO, whose `beta` is a property that cannot be set
        return _SCHEDULED[:2] if self.of_dpo else _SCHEDULED[:1]

    @property
    def changes(self) -> dict[str, Change]:
        """How a continued run may change each hyperparameter, parts of schedules included."""
        changes: dict[str, Change] = dict.fromkeys(_OPTIMIZER, "apply")
        changes |= dict.fromkeys((*_LOSS[self.sampled or self.data], "lora.dropout"), "rebuild")
        if self.sampled:
            changes |= dict.fromkeys(("temperature", "num_generations"), "rebuild")
        if self.subclass:
            configs = (self.classes()[1], self._classes()[1])
            fields, of_trl = (made.__dataclass_fields__.keys() for made in configs)
            changes |= dict.fromkeys(sorted(fields - of_trl), "rebuild")
        if self.online:
            changes |= dict.fromkeys(REWARD_CHANGES, "rebuild")
        parts = schedule_parts(name for name in self.scheduled if name in changes)
        changes |= dict.fromkeys(parts, "apply")
        return changes

    def classes(self) -> tuple[Any, Any]:
        """Return the trainer and its configuration class.

        The configuration of a subclass `MyTrainer` is `MyConfig` of its module, if there is one.

        Raises:
            InputError: as below, or the subclass cannot be imported or is none.
        """
        trainer, config = self._classes()
        if not self.subclass:
            return trainer, config
        key = "trainer.kwargs.algorithm_class"
        base = f"{trainer.__module__}:{trainer.__name__}"
        named = named_class(self.subclass, key, base=base, example="my_trainers:MyDPOTrainer")
        stem = self.subclass.partition(":")[2].removesuffix("Trainer")
        return named, getattr(sys.modules[named.__module__], f"{stem}Config", config)

    def _classes(self) -> tuple[Any, Any]:
        """Return TRL's own classes.

        Raises:
            InputError: the installed TRL has no such trainer, which names those it has, or lacks a
                package that it imports.
        """
        try:
            module = importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            # PPO left TRL with 1.13, and BCO, XPO and Nash-MD with 1.14
            message = _no_trainer(self.name)
            # torch 2.6 imports setuptools and does not name it
            if not f"{self.module}.".startswith(f"{error.name}."):
                message = f"TRL's trainer for {self.name!r} cannot be imported: {error}"
            raise InputError(message, key="trainer") from None
        # RLOO and KTO, but OnlineDPO: spelling does not follow from the name of a module
        in_lower_case = {name.lower(): name for name in dir(module)}
        stem = self.name.replace("_", "").lower()
        trainer = in_lower_case.get(f"{stem}trainer")
        config = in_lower_case.get(f"{stem}config")
        if trainer is None or config is None:
            raise InputError(_no_trainer(self.name), key="trainer")
        return getattr(module, trainer), getattr(module, config)


def find(name: str, data: str | None = None, subclass: str = "") -> Method:
    """Return the method of that name, stable or experimental.

    Nothing is imported for those known here.

    Raises:
        InputError: the installed TRL has no trainer of this name, it needs what no task has, what
            it is trained on is not known, or `data` names nothing there is.
    """
    if name in STABLE:
        return Method(name, STABLE[name], "trl", subclass)
    if name in SAMPLED:
        return Method(name, "prompts", "autorl.trainers.trl.sampled", subclass, SAMPLED[name])
    if name in _NO_TASK_HAS:
        how = "start a script of TRL by the trainer `command`"
        raise InputError(f"trl/{name} needs {_NO_TASK_HAS[name]}: {how}", key="trainer")
    chosen = data or _EXPERIMENTAL.get(name)
    # first whether TRL has it at all; without TRL nothing is known of that
    if chosen is None and importlib.util.find_spec("trl") is not None and name not in available():
        raise InputError(_no_trainer(name), key="trainer")
    if chosen not in _LOSS:
        allowed = ", ".join(_LOSS)
        message = f"expected one of {allowed}, got {data!r}"
        if data is None:
            message = (
                f"what trl/{name} is trained on is not known: say it with `data`, one of {allowed}"
            )
        raise InputError(message, key="trainer.kwargs.data")
    module = f"trl.experimental.{name}"
    return Method(name, chosen, module, subclass)  # type: ignore[arg-type]


def _no_trainer(name: str) -> str:
    import trl

    # `trl/ppo` is the earlier name of our own
    hint = one_of(name, (*available(), *SAMPLED, "ppo"))
    return f"TRL {trl.__version__} has no trainer for {name!r}{hint}"


@lru_cache(maxsize=1)
def available() -> tuple[str, ...]:
    """Return the methods the installed TRL has.

    They are the stable ones, and those of its experimental modules.
    """
    import trl
    import trl.experimental

    in_trl = {name.lower().removesuffix("trainer") for name in dir(trl)}
    modules = pkgutil.iter_modules(trl.experimental.__path__)
    experimental = sorted(module.name for module in modules if module.ispkg)
    return (*(name for name in STABLE if name in in_trl), *experimental)
