"""The hyperparameters of PPO on a language model.

The defaults are those of [Huang2024].

References:
    [Huang2024] Huang et al., "The N+ Implementation Details of RLHF with PPO: A Case Study on
        TL;DR", 2024.
    [Li2023] Li et al., "ReMax: A Simple, Effective, and Efficient Reinforcement Learning Method for
        Aligning Large Language Models", 2023.
    [Hu2025] Hu, "REINFORCE++: A Simple and Efficient Approach for Aligning Large Language Models",
        2025.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

from autorl.core.numbers import check_number
from autorl.core.types import InputError
from autorl.space.schedules import resolve_schedules

Estimator: TypeAlias = Literal["k1", "k2", "k3"]
Advantage: TypeAlias = Literal["gae", "remax", "reinforce++"]
MissingEos: TypeAlias = Literal["none", "subtract", "replace"]
OF_UPDATES = ("policy_loss", "value_loss", "clip_fraction", "loss", "approx_kl", "grad_norm")
MEASURES = (*OF_UPDATES, "reward", "reward_std", "length", "entropy", "explained_variance")
"""What a cycle says of training.

The first are means over its updates; `reward` is before penalties, `length` in tokens, `entropy`
the mean of -log p over the sampled tokens.
"""
OF_VALUES = ("value_learning_rate", "cliprange_value", "vf_coef", "lam", "value_init")
"""What means nothing without a value network."""
_VALUE_INITS = ("normal", "zero")
_POSITIVE = (
    *("batch_size", "num_ppo_epochs", "num_mini_batches"),
    *("learning_rate", "temperature", "cliprange"),
)
_NOT_NEGATIVE = ("kl_coef", "vf_coef", "missing_eos_penalty", "weight_decay")


@dataclass(frozen=True)
class Settings:
    """The hyperparameters of PPO on a language model.

    Names are those of TRL's former `PPOConfig` where it had them.

    Attributes:
        learning_rate, value_learning_rate: of the policy and of the value network (None: the same).
        advantage: `gae`, by the value network. The others have none: a token's advantage is the sum
            of the rewards to come, less the reward of the likeliest completion (`remax` [Li2023],
            where whiten_advantages is false), or whitened over the batch (`reinforce++` [Hu2025]).
        batch_size: completions per cycle, gone over num_ppo_epochs times in num_mini_batches parts.
        kl_coef: weight of the KL to the reference in the reward, by `kl_estimator` (k1, k2, k3) at
            each token.
        cliprange, cliprange_value: of the probability ratio, and of the value prediction (None: not
            clipped).
        gamma, lam: discount and lambda of the advantages.
        whiten_rewards, whiten_advantages: to unit variance over a batch (rewards keep their mean),
            or not.
        missing_eos: what a completion without an end of sequence scores: as it is (`none`),
            missing_eos_penalty less (`subtract`), or minus that penalty (`replace`).
        temperature: of sampling. The probabilities of policy and reference are those at this
            temperature throughout.
        value_init: last layer of the value network: `normal` with deviation 1 / sqrt(width + 1), or
            `zero`.
        max_grad_norm: of both networks together (None: not clipped).
    """

    learning_rate: float = 3e-6
    value_learning_rate: float | None = None
    advantage: Advantage = "gae"
    batch_size: int = 512
    num_ppo_epochs: int = 4
    num_mini_batches: int = 1
    kl_coef: float = 0.05
    kl_estimator: Estimator = "k1"
    cliprange: float = 0.2
    cliprange_value: float | None = 0.2
    vf_coef: float = 0.1
    gamma: float = 1.0
    lam: float = 0.95
    whiten_rewards: bool = False
    whiten_advantages: bool = True
    missing_eos: MissingEos = "replace"
    missing_eos_penalty: float = 1.0
    temperature: float = 0.7
    value_init: str = "normal"
    max_grad_norm: float | None = None
    # PyTorch's own is 1e-8
    adam_epsilon: float = 1e-5
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        choices = {
            "advantage": get_args(Advantage),
            "kl_estimator": get_args(Estimator),
            "missing_eos": get_args(MissingEos),
            "value_init": _VALUE_INITS,
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"expected one of {', '.join(allowed)}, got {getattr(self, name)!r}", key=name
                )
        for name in _POSITIVE:
            # not `<= 0`: NaN has to be refused too
            if not getattr(self, name) > 0:
                raise InputError(
                    f"expected a number above 0, got {getattr(self, name)!r}", key=name
                )
        for name in _NOT_NEGATIVE:
            check_number(getattr(self, name), name, 0)
        for name in ("gamma", "lam"):
            check_number(getattr(self, name), name, 0, 1)
        # else `Tensor.chunk` may give fewer parts than asked, and a cycle fewer steps
        if self.batch_size % self.num_mini_batches:
            raise InputError(
                f"{self.batch_size} cannot be divided by num_mini_batches", key="batch_size"
            )

    @property
    def cycle(self) -> int:
        """Optimizer steps from one batch of completions to the next."""
        return self.num_ppo_epochs * self.num_mini_batches


DEFAULTS: Mapping[str, Any] = asdict(Settings())
FIXED = ("advantage", "batch_size", "num_ppo_epochs", "num_mini_batches", "value_init")
"""What cannot change in training: where cycles begin, and whether and how values do."""
CHANGES: Mapping[str, Literal["apply"]] = {name: "apply" for name in DEFAULTS if name not in FIXED}


def settings_at(config: Mapping[str, object], step: int, horizon: int) -> Settings:
    """Return the hyperparameters at a step, schedules resolved, defaults for the rest.

    Raises:
        InputError: a value out of range.
    """
    # a last cycle may end beyond the horizon
    settings = Settings(**{**DEFAULTS, **resolve_schedules(config, min(step, horizon), horizon)})
    idle = [name for name in OF_VALUES if name in config and settings.advantage != "gae"]
    if idle:
        message = f"means nothing with advantage {settings.advantage}, which has no value network"
        raise InputError(message, key=idle[0])
    return settings


def align(config: Mapping[str, object], step: int) -> int:
    """Return the first step >= `step` at which a cycle ends."""
    cycle = settings_at(config, 0, 1).cycle
    # rounded up in whole numbers
    return -(-step // cycle) * cycle
