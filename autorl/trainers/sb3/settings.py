"""Turns a configuration into the arguments of an SB3 constructor.

The same values are read back from the live model.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autorl.core.plain_text import one_of
from autorl.core.plain_values import plain
from autorl.core.types import Config, FrozenMap, InputError
from autorl.space import resolve_schedules, schedule_function
from autorl.trainers.contract import FixedValue
from autorl.trainers.sb3.algorithms import (
    ALGORITHMS,
    CALLABLES,
    OPTIONS,
    SCHEDULED,
    constructor_names,
    hyperparameter_names,
    policy_names,
)
from autorl.trainers.sb3.named_classes import POLICY_CLASSES, is_name, named_class, policy_class
from autorl.trainers.sb3.wrappers import PREFIX, is_weight, weights_of
from autorl.trainers.shared import base_name, check_names, search_folders

if TYPE_CHECKING:
    import gymnasium as gym
    from stable_baselines3.common.base_class import BaseAlgorithm

_ACTIVATIONS = (
    *("tanh", "relu", "elu", "selu", "gelu", "silu", "mish"),
    *("leaky_relu", "softplus", "sigmoid"),
)
_COPIED = ("gamma", "gae_lambda")  # buffers and normaliser keep their own


@dataclass(frozen=True)
class ProgressSchedule:
    """A hyperparameter as SB3 calls it, a function of the progress remaining.

    The progress is 1 at step 0 and 0 at the horizon.
    """

    of_progress: Callable[[float], float]

    def __call__(self, remaining: float) -> float:
        return float(self.of_progress(min(max(1.0 - remaining, 0.0), 1.0)))


class Settings:
    """Hyperparameters of one run: its configuration over the trainer's own.

    Schedules are still unresolved.

    Args:
        algorithm: `ppo`, `sac`, ...
        kwargs: the trainer's options and its own hyperparameters.
        config: the configuration of the run.
        normaliser_follows: whether rewards are normalised with the agent's gamma, not one the
            environment names.

    Raises:
        InputError: a name is unknown, or a schedule is asked of a hyperparameter that cannot follow
            one.
    """

    def __init__(
        self,
        algorithm: str,
        kwargs: Mapping[str, object],
        config: Mapping[str, object],
        normaliser_follows: bool = True,
    ) -> None:
        self.algorithm = algorithm
        self.normaliser_follows = normaliser_follows
        self.options: dict[str, Any] = {
            name: value for name, value in kwargs.items() if name in OPTIONS
        }
        self.folders = search_folders(self.options)
        self.fixed = frozenset(kwargs) - frozenset(config) - frozenset(OPTIONS)
        self.values: dict[str, Any] = {n: v for n, v in kwargs.items() if n not in OPTIONS} | dict(
            config
        )
        _check_options(algorithm, kwargs)
        check_hyperparameters(algorithm, self.values)
        self._check_optimizer()
        self.scheduled = tuple(
            sorted(
                base_name(n)
                for n, v in self.values.items()
                if n.endswith(".shape") and v != "constant"
            )
        )

    @property
    def reward_weights(self) -> dict[str, Any]:
        """Return the weights of a reward's components, by name."""
        return weights_of(self.values)

    def at(self, step: int, horizon: int) -> dict[str, Any]:
        """Return every hyperparameter's value at `step`, schedules resolved."""
        if not self.scheduled:
            return {name: value for name, value in self.values.items() if base_name(name) == name}
        return dict(resolve_schedules(Config(self.values), min(step, horizon), horizon))

    def constructor(
        self, observation_space: gym.Space[object], action_space: gym.Space[object]
    ) -> dict[str, Any]:
        """Return the arguments of the algorithm's constructor.

        `env` and `seed` are left out.
        """
        start = self.at(0, 1)
        arguments: dict[str, Any] = {
            name: plain(start[name]) for name in constructor_names(self.algorithm) & set(start)
        }
        if isinstance(arguments.get("train_freq"), list):
            # Stable-Baselines3 takes a list for a number of steps: only a tuple has a unit.
            arguments["train_freq"] = tuple(arguments["train_freq"])
        for name in set(self.scheduled) & set(CALLABLES):
            arguments[name] = ProgressSchedule(schedule_function(Config(self.values), name))
        noise = _action_noise(start, action_space)
        return {
            **arguments,
            **({"action_noise": noise} if noise is not None else {}),
            "policy": self._policy(observation_space),
            "policy_kwargs": self._policy_kwargs(start),
            "device": self.options.get("device", "cpu"),
        }

    def set_scheduled(self, model: BaseAlgorithm, horizon: int) -> None:
        """Set the scheduled numbers of `model` for its current step."""
        for name in self.scheduled:
            if name not in CALLABLES:
                _set(
                    model,
                    name,
                    self.at(model.num_timesteps, horizon)[name],
                    self._holders(model, name),
                )

    def read_back(self, model: BaseAlgorithm, n_envs: int, horizon: int) -> dict[str, Any]:
        """Return the values hyperparameters really have in a model now.

        Raises:
            RuntimeError: a value did not take.
        """
        asked = self.at(model.num_timesteps, horizon)
        applied: dict[str, Any] = {}
        for name, value in sorted(asked.items()):
            held = _read(model, name, n_envs, self._holders(model, name))
            expected = _comparable(name, value)
            if not _same(held, expected):
                raise RuntimeError(
                    f"hyperparameter {name}: {expected!r} was asked for, the model has {held!r}"
                )
            applied[name] = value if expected is not value else held
        return applied

    def _check_optimizer(self) -> None:
        """Refuse options of an optimizer that an algorithm overrules with its own.

        A2C's RMSprop takes no options but `rms_prop_eps`, QR-DQN's Adam none.
        """
        policy_kwargs = self.options.get("policy_kwargs") or {}
        # Constructors replace `optimizer_kwargs` where they set an optimizer
        # (stable_baselines3/a2c/a2c.py, sb3_contrib/qrdqn/qrdqn.py).
        repairs = {}
        if self.values.get("use_rms_prop", True):
            repairs["a2c"] = "A2C's own RMSprop does not read them: set rms_prop_eps, or "
            repairs["a2c"] += "use_rms_prop: false beside them"
        repairs["qrdqn"] = "QR-DQN's own Adam does not read them: "
        repairs["qrdqn"] += "set optimizer_class: torch.optim:Adam beside them"
        message = repairs.get(self.algorithm)
        overruled = "optimizer_kwargs" in policy_kwargs and "optimizer_class" not in policy_kwargs
        if message is not None and overruled:
            raise InputError(message, key="trainer.kwargs.policy_kwargs.optimizer_kwargs")

    def _holders(self, model: BaseAlgorithm, name: str) -> list[Any]:
        """Return every object that keeps its own copy of a number."""
        parts = [getattr(model, "rollout_buffer", None), getattr(model, "replay_buffer", None)]
        if name == "gamma" and self.normaliser_follows:
            # Rewards are scaled by the discounted return, so by the agent's gamma.
            parts.append(model.get_vec_normalize_env())
        return [model, *(part for part in parts if name in _COPIED and hasattr(part, name))]

    def _policy(self, observation_space: gym.Space[object]) -> Any:
        """Return the name of the library's policy, or the user's class."""
        of_algorithm = ALGORITHMS[self.algorithm]
        policy = self.options.get("policy") or of_algorithm.policy_name(
            observation_kind(observation_space)
        )
        key = "trainer.kwargs.policy"
        if is_name(policy):
            base = "stable_baselines3.common.policies:BasePolicy"
            return named_class(policy, key, base=base, folders=self.folders)
        check_names([policy], of_algorithm.load_class().policy_aliases, "policy", key)
        return policy

    def _policy_kwargs(self, values: Mapping[str, object]) -> dict[str, Any]:
        # A copy: Stable-Baselines3 adds to it.
        kwargs: dict[str, Any] = plain(self.options.get("policy_kwargs", FrozenMap()))
        kwargs |= {name: plain(values[name]) for name in policy_names(self.algorithm) & set(values)}
        if "activation" in values:
            kwargs["activation_fn"] = values["activation"]
        if "net_arch" in kwargs:
            kwargs["net_arch"] = layers(kwargs["net_arch"])
        for name in sorted(POLICY_CLASSES.keys() & kwargs.keys()):
            kwargs[name] = self._policy_class(name, kwargs[name])
        return kwargs

    def _policy_class(self, name: str, value: object) -> Any:
        if name == "activation_fn" and isinstance(value, str) and not is_name(value):
            return activation(value)
        return policy_class(name, value, self.folders)


_ALIASES = {
    "activation": ("activation", "activation_fn"),
    "activation_fn": ("activation_fn", "activation"),
    # A2C's own optimizer gives way to it.
    "optimizer_class": ("optimizer_class", "use_rms_prop", "rms_prop_eps"),
}
"""Names by which a space could search the same thing as an option fixes."""


def fixed_values(kwargs: Mapping[str, object]) -> tuple[FixedValue, ...]:
    """Return the hyperparameters that options fix.

    They are those among the options, and every key of `policy_kwargs`.
    """
    direct = {name: (name, value) for name, value in kwargs.items() if name not in OPTIONS}
    of_policy: Any = kwargs.get("policy_kwargs") or {}
    nested = {f"policy_kwargs.{name}": (name, value) for name, value in of_policy.items()}
    return tuple(
        FixedValue(place, _ALIASES.get(name, (name,)), value)
        for place, (name, value) in (direct | nested).items()
    )


def _check_options(algorithm: str, kwargs: Mapping[str, object]) -> None:
    """Check that a trainer is given options and hyperparameters alone."""
    allowed = hyperparameter_names(algorithm) | set(OPTIONS)
    what = f"option or hyperparameter of sb3/{algorithm}"
    names = [base_name(name) for name in kwargs if not is_weight(name)]
    check_names(names, allowed, what, "trainer.kwargs")


def check_hyperparameters(
    algorithm: str, names: Mapping[str, object] | set[str] | frozenset[str]
) -> None:
    """Check that the algorithm has every hyperparameter, and its schedule.

    Raises:
        InputError: it does not have one.
    """
    allowed = hyperparameter_names(algorithm)
    for name in names:
        base = base_name(name)
        # Any environment may have them: `SB3Trainer.check` looks at the one of the study.
        if is_weight(name):
            continue
        check_names([base], allowed, f"hyperparameter of sb3/{algorithm}", "space")
        if base != name and base not in SCHEDULED:
            raise InputError(
                f"sb3/{algorithm} cannot follow a schedule of {base!r}; "
                f"it can for {', '.join(SCHEDULED)}",
                key=base,
            )


def observation_kind(observation_space: gym.Space[object]) -> str:
    """Return which of SB3's policies an observation space needs.

    There is one for dictionaries (`MultiInput`), one for images (`Cnn`), and one for the rest
    (`Mlp`).
    """
    from gymnasium import spaces
    from stable_baselines3.common.preprocessing import is_image_space

    if isinstance(observation_space, spaces.Dict):
        return "MultiInput"
    return "Cnn" if is_image_space(observation_space) else "Mlp"


def layers(value: object) -> Any:
    """Read hidden layers as lists of sizes.

    They come as `[64, 64]`, `{pi: [64], vf: [64]}`, or as text such as `"[64, 64]"`, `"64,64"` and
    `"64x64"`.
    """
    if isinstance(value, str):
        text = value.strip().replace("x", ",")
        try:
            literal = text if text[:1] in "[({" else f"[{text}]"
            value = ast.literal_eval(literal)
        except (SyntaxError, ValueError) as error:
            raise InputError(
                f"expected layer sizes such as [64, 64], got {value!r}", key="net_arch"
            ) from error
    value = plain(value)
    for sizes in value.values() if isinstance(value, dict) else [value]:
        if not isinstance(sizes, list) or not all(
            isinstance(size, int) and size > 0 for size in sizes
        ):
            raise InputError(
                f"expected layer sizes such as [64, 64], got {value!r}", key="net_arch"
            )
    return value


def activation(name: str) -> Any:
    """Return the torch module of an activation.

    It goes by its lower-case name, or as `module:Class`.
    """
    from torch import nn

    if is_name(name):
        return policy_class("activation_fn", name)
    if name.lower() not in _ACTIVATIONS:
        hint = one_of(name, [*_ACTIVATIONS, "module:Class"])
        raise InputError(f"unknown activation {name!r}{hint}", key="activation")
    # `LeakyReLU` and `ReLU` have capitals that no rule gives back.
    by_lower = {attribute.lower(): attribute for attribute in vars(nn)}
    return getattr(nn, by_lower[name.lower().replace("_", "")])


_NOISES = {"normal": "NormalActionNoise", "ornstein-uhlenbeck": "OrnsteinUhlenbeckActionNoise"}


def _action_noise(values: Mapping[str, Any], action_space: gym.Space[object]) -> Any:
    kind = values.get("noise_type")
    scale = float(values.get("noise_std", 0.0))
    if kind is None and "noise_std" not in values:
        return None
    from stable_baselines3.common import noise

    # A standard deviation alone is that of normal noise.
    kind = kind or "normal"
    check_names([kind], (*_NOISES, "none"), "noise_type", "noise_type")
    if kind == "none":
        return None
    size = int(np.prod(action_space.shape or ()))
    return getattr(noise, _NOISES[kind])(mean=np.zeros(size), sigma=np.full(size, scale))


def _noises(model: BaseAlgorithm) -> list[Any]:
    # Several environments: SB3 wraps it in a `VectorizedActionNoise`, one noise for each.
    return list(getattr(model.action_noise, "noises", [model.action_noise]))


def _set(model: Any, name: str, value: float, holders: list[object]) -> None:
    if name == "noise_std":
        for noise in _noises(model):
            noise._sigma = np.full_like(noise._sigma, value)
    # A fixed coefficient is a tensor that updates read; `ent_coef` is only what it was made from.
    elif name == "ent_coef" and hasattr(model, "ent_coef_optimizer"):
        model.ent_coef_tensor.fill_(value)
    else:
        for holder in holders:
            setattr(holder, name, value)


def optimizers(model: BaseAlgorithm) -> list[Any]:
    """Return every torch optimizer of the model."""
    from torch.optim import Optimizer

    # SAC and TD3 have one for each network, and SAC one for its coefficient; the others one of the
    # policy.
    owners = [model, *(getattr(model, part, None) for part in ("policy", "actor", "critic"))]
    candidates = [
        getattr(owner, name, None)
        for owner in owners
        for name in ("optimizer", "ent_coef_optimizer")
    ]
    return [optimizer for optimizer in candidates if isinstance(optimizer, Optimizer)]


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "train_freq": lambda model: model.train_freq.frequency,
    "exploration_initial_eps": lambda model: model.exploration_schedule.start,
    "exploration_final_eps": lambda model: model.exploration_schedule.end,
    "exploration_fraction": lambda model: model.exploration_schedule.end_fraction,
    "rms_prop_eps": lambda model: optimizers(model)[0].param_groups[0]["eps"],
    "use_rms_prop": lambda model: type(optimizers(model)[0]).__name__ == "RMSprop",
    "activation": lambda model: model.policy_kwargs["activation_fn"].__name__.lower(),
    "stats_window_size": lambda model: model._stats_window_size,
}
"""Where a model keeps hyperparameters that are no attributes of it."""


def _copies(model: Any, name: str, n_envs: int, holders: list[object]) -> list[Any]:
    """Return the values of a hyperparameter in every part that keeps one."""
    if is_weight(name):
        index = int(name.removeprefix(PREFIX))
        return [float(row[index]) for row in model.env.get_attr("reward_weights")]
    match name:
        case "learning_rate":
            lists = [optimizer.param_groups for optimizer in optimizers(model)]
            return [group["lr"] for groups in lists for group in groups]
        case "gamma" | "gae_lambda":
            return [getattr(holder, name) for holder in holders]
        case "n_steps" if hasattr(model, "rollout_buffer"):
            return [model.n_steps, model.rollout_buffer.buffer_size]
        case "n_envs":
            return [model.n_envs, n_envs]
    return []


def _read(model: Any, name: str, n_envs: int, holders: list[object]) -> Any:
    """Return the value `name` has in the live model.

    It has the form a configuration gives it.
    """
    copies = _copies(model, name, n_envs, holders)
    if copies:
        if any(value != copies[0] for value in copies):
            raise RuntimeError(f"hyperparameter {name}: parts of the model disagree: {copies}")
        return copies[0]
    if name in _READERS:
        return _READERS[name](model)
    match name:
        case "clip_range" | "clip_range_vf":
            schedule = getattr(model, name)
            return None if schedule is None else schedule(model._current_progress_remaining)
        case "ent_coef" if getattr(model, "ent_coef_optimizer", model) is None:
            return float(model.ent_coef_tensor)
        case "target_entropy":
            # SAC (Haarnoja et al. 2018, arXiv 1812.05905): minus the number of action dimensions.
            auto = -float(np.prod(model.action_space.shape))
            return "auto" if model.target_entropy == auto else model.target_entropy
        case "noise_std":
            return 0.0 if model.action_noise is None else float(_noises(model)[0]._sigma[0])
        case "noise_type":
            return "none" if model.action_noise is None else type(_noises(model)[0]).__name__
    if name in model.policy_kwargs:
        return model.policy_kwargs[name]
    if not hasattr(model, name):
        raise RuntimeError(f"hyperparameter {name} cannot be read back from {type(model).__name__}")
    return getattr(model, name)


def _comparable(name: str, value: Any) -> Any:
    """Return the value of a configuration in the form of `_read`."""
    match name:
        case "activation":
            return activation(value).__name__.lower()
        case "activation_fn":
            return activation(value)
        case "features_extractor_class" | "optimizer_class":
            return policy_class(name, value)
        case "net_arch":
            return layers(value)
        case "noise_type":
            return _NOISES.get(value, "none")
        case "train_freq" if isinstance(value, list | tuple):
            return value[0]
    return plain(value) if isinstance(value, tuple | Mapping) else value


def _same(found: object, wanted: object) -> bool:
    numbers = (int, float, np.integer, np.floating)
    if isinstance(found, numbers) and isinstance(wanted, numbers):
        # SAC's entropy coefficient is a float32 tensor.
        return math.isclose(float(found), float(wanted), rel_tol=1e-6, abs_tol=1e-12)
    return bool(found == wanted)
