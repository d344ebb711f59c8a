"""Which methods TRL has, found by name at run time: its experimental trainers come and go with minor releases."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from autorl.plain_text import did_you_mean
from autorl.rlhf.reward_options import CHANGES as REWARD_CHANGES
from autorl.trainers.contract import Change
from autorl.types import InputError

Data = Literal["prompts", "pairs", "unpaired", "completions", "ranking"]

_STABLE: Mapping[str, Data] = {
    "rloo": "prompts",
    "grpo": "prompts",
    "dpo": "pairs",
    "kto": "unpaired",
    "sft": "completions",
    "reward": "ranking",
}
_EXPERIMENTAL: Mapping[
    str, Data
] = {  # what those known today are trained on; others say it with the option `data`
    "cpo": "pairs",
    "orpo": "pairs",
    "bco": "unpaired",
    "online_dpo": "prompts",
    "xpo": "prompts",
    "nash_md": "prompts",
    "gmpo": "prompts",
    "a2po": "prompts",
}
_OPTIMIZER: Mapping[str, Change] = {
    "learning_rate": "apply",
    "weight_decay": "apply",
    "adam_beta1": "apply",
    "adam_beta2": "apply",
    "adam_epsilon": "apply",
    "max_grad_norm": "apply",
}
_LOSS: Mapping[str, tuple[str, ...]] = {  # what a rebuilt trainer takes from its new configuration
    "prompts": (
        *(
            "beta",
            "epsilon",
            "epsilon_high",
            "delta",
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "repetition_penalty",
        ),
        *(
            "reward_clip_range",
            "normalize_advantages",
            "scale_rewards",
            "entropy_coef",
            "top_entropy_quantile",
        ),
        *(
            "mask_truncated_completions",
            "loss_type",
            "importance_sampling_level",
            "missing_eos_penalty",
        ),
    ),
    "pairs": (
        *(
            "beta",
            "loss_type",
            "label_smoothing",
            "sft_weight",
            "ld_alpha",
            "use_weighting",
            "f_divergence_type",
        ),
        *("simpo_gamma", "gamma_ratio", "cpo_alpha", "discopop_tau"),
    ),
    "unpaired": ("beta", "loss_type", "desirable_weight", "undesirable_weight"),
    "completions": ("loss_type",),
    "ranking": ("center_rewards_coefficient",),
}
_KINDS: Mapping[Data, tuple[str, ...]] = {
    "prompts": ("prompts",),
    "pairs": ("pairs",),
    "ranking": ("pairs",),
    "unpaired": ("labelled", "pairs"),
    "completions": ("completions", "pairs"),
}
_SCHEDULED = ("learning_rate", "beta", "epsilon", "epsilon_high")


@dataclass(frozen=True)
class Method:
    """A method of TRL.

    Attributes:
        name: `rloo`, `dpo`, ...
        data: what it is trained on: prompts with a reward, pairs, single labelled completions, plain completions, or
            pairs for a scalar reward model (`ranking`).
        module: where its classes are.
    """

    name: str
    data: Data
    module: str

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of data of a task any of which it can be trained on; see `autorl.rlhf.task.Task.check`."""
        return _KINDS[self.data]

    @property
    def online(self) -> bool:
        return self.data == "prompts"

    @property
    def grouped(self) -> bool:
        """Whether it samples groups of completions per prompt and reuses them (`num_generations`)."""
        return self.name not in ("online_dpo", "xpo", "nash_md", "a2po") and self.online

    @property
    def scheduled(self) -> tuple[str, ...]:
        """Hyperparameters that can follow a schedule: written into the live trainer before each optimizer step."""
        written = self.name == "dpo" or self.grouped
        return _SCHEDULED[: len(_SCHEDULED) if self.grouped else 2] if written else _SCHEDULED[:1]

    @property
    def changes(self) -> dict[str, Change]:
        """How a continued run may change each hyperparameter, the parts of its schedule included."""
        changes: dict[str, Change] = {**_OPTIMIZER}
        changes |= dict.fromkeys(_LOSS[self.data], "rebuild")
        changes |= dict.fromkeys(REWARD_CHANGES if self.online else (), "rebuild")
        parts = [
            f"{name}{part}"
            for name in self.scheduled
            if name in changes
            for part in (".shape", ".end")
        ]
        changes |= dict.fromkeys(parts, "apply")
        return changes

    def classes(self) -> tuple[Any, Any]:
        """The trainer and its configuration class.

        Raises:
            InputError: the installed TRL has no such trainer; the message names those it has.
        """
        wanted = self.name.replace("_", "").lower()
        try:
            module = importlib.import_module(self.module)
        except ModuleNotFoundError:
            module = None
        found = {} if module is None else {name.lower(): name for name in dir(module)}
        names = [found.get(f"{wanted}{part}") for part in ("trainer", "config")]
        if module is None or None in names:
            raise InputError(_no_trainer(self.name), key="trainer")
        return getattr(module, str(names[0])), getattr(module, str(names[1]))


def find(name: str, data: str | None = None) -> Method:
    """The method of that name, stable or experimental. Nothing is imported for those known here.

    Raises:
        InputError: the installed TRL has no trainer of this name, what it is trained on is not known, or `data` names
            nothing there is.
    """
    if name in _STABLE:
        return Method(name, _STABLE[name], "trl")
    chosen = data or _EXPERIMENTAL.get(name)
    if chosen is None:
        _check_there(name)
    if chosen not in _LOSS:
        raise InputError(
            f"what trl/{name} is trained on is not known: say it with `data`, one of {', '.join(_LOSS)}"
            if data is None
            else f"expected one of {', '.join(_LOSS)}, got {data!r}",
            key="trainer.kwargs.data",
        )
    return Method(name, chosen, f"trl.experimental.{name}")  # type: ignore[arg-type]


def _check_there(name: str) -> None:
    """Raise `InputError` if the installed TRL has nothing of this name; without TRL nothing is known of it."""
    if importlib.util.find_spec("trl") is not None and name not in available():
        raise InputError(_no_trainer(name), key="trainer")


def _no_trainer(name: str) -> str:
    import trl

    hint = did_you_mean(name, (*available(), "ppo"), f"it has {', '.join(available())}")
    return f"TRL {trl.__version__} has no trainer for {name!r}{hint}"


@lru_cache(maxsize=1)
def available() -> tuple[str, ...]:
    """The methods the installed TRL has: the stable ones, and its experimental modules."""
    import trl
    import trl.experimental

    stable = [
        name
        for name in _STABLE
        if name in {found.lower().removesuffix("trainer") for found in dir(trl)}
    ]
    return (
        *stable,
        *sorted(
            module.name
            for module in pkgutil.iter_modules(trl.experimental.__path__)
            if module.ispkg
        ),
    )
