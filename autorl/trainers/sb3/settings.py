"""Turns a configuration into the arguments of an SB3 constructor.

The same values are read back from the live model.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autorl.core.plain_values import plain
from autorl.core.plugins import named_class
from autorl.core.types import Config, EnvironmentSpec, FrozenMap, InputError
from autorl.space import resolve_schedules, schedule_function
from autorl.trainers.contract import FixedValue
from autorl.trainers.sb3.algorithms import (
    CALLABLES,
    OPTIONS,
    SCHEDULED,
    Algorithm,
    constructor_names,
    hyperparameter_names,
    named_algorithm,
    policy_names,
)
from autorl.trainers.sb3.named_classes import POLICY_CLASSES, is_name, policy_class, replay_class
from autorl.trainers.shared import ENVIRONMENT, base_name, check_names, search_folders
from autorl.trainers.trained_task import beside_task, made_of, of_task, trained_task

if TYPE_CHECKING:
    import gymnasium as gym
    from stable_baselines3.common.base_class import BaseAlgorithm

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
        self.of = named_algorithm(algorithm, kwargs)
        check_hyperparameters(algorithm, self.of, kwargs, OPTIONS, "trainer.kwargs")
        check_hyperparameters(algorithm, self.of, config)
        self.normaliser_follows = normaliser_follows
        self.options: dict[str, Any] = {name: kwargs[name] for name in OPTIONS if name in kwargs}
        self.folders = search_folders(self.options)
        of_trainer = {name: value for name, value in kwargs.items() if name not in OPTIONS}
        self.fixed = of_trainer.keys() - config.keys()
        self.values: dict[str, Any] = of_trainer | dict(config)
        self._check_optimizer()
        shapes = [name for name in self.values if name.endswith(".shape")]
        self.scheduled = sorted(base_name(n) for n in shapes if self.values[n] != "constant")

    @property
    def device(self) -> str:
        """Name what the model trains on."""
        return str(self.options.get("device", "cpu"))

    def at(self, step: int, horizon: int) -> dict[str, Any]:
        """Return every hyperparameter's value at `step`, schedules resolved.

        It leaves out what changes the task.
        """
        if not self.scheduled:
            return {name: value for name, value in self.values.items() if base_name(name) == name}
        return resolve_schedules(beside_task(self.values), min(step, horizon), horizon)

    def constructor(
        self, observation_space: gym.Space[object], action_space: gym.Space[object]
    ) -> dict[str, Any]:
        """Return the arguments of the algorithm's constructor.

        `env` and `seed` are left out.
        """
        start = self.at(0, 1)
        arguments: dict[str, Any] = {
            name: plain(start[name]) for name in constructor_names(self.of) & set(start)
        }
        if isinstance(arguments.get("train_freq"), list):
            # Stable-Baselines3 takes a list for a number of steps: only a tuple has a unit.
            arguments["train_freq"] = tuple(arguments["train_freq"])
        if "replay_buffer_class" in arguments:
            arguments["replay_buffer_class"] = replay_class(
                start["replay_buffer_class"], self.folders
            )
        for name in set(self.scheduled) & set(CALLABLES):
            arguments[name] = ProgressSchedule(schedule_function(Config(self.values), name))
        noise = _action_noise(start, action_space)
        if noise is not None:
            arguments["action_noise"] = noise
        return {
            **arguments,
            "policy": self._policy(observation_space),
            "policy_kwargs": self._policy_kwargs(start),
            "device": self.device,
        }

    def set_scheduled(self, model: Any, horizon: int) -> None:
        """Set the scheduled numbers of `model` for its current step."""
        now = self.at(model.num_timesteps, horizon)
        for name in self.scheduled:
            if name in CALLABLES:
                continue
            if name == "noise_std":
                for noise in noises(model):
                    noise._sigma = np.full_like(noise._sigma, now[name])
            # A fixed coefficient is a tensor that updates read; `ent_coef` is only what it was made
            # from.
            elif name == "ent_coef" and hasattr(model, "ent_coef_optimizer"):
                model.ent_coef_tensor.fill_(now[name])
            else:
                for holder in self._holders(model, name):
                    setattr(holder, name, now[name])

    def read_back(self, model: Any, horizon: int, environment: EnvironmentSpec) -> dict[str, Any]:
        """Return the values hyperparameters really have in a model now.

        `environment` is the study's own.

        Raises:
            RuntimeError: a value did not take.
        """
        asked = self.at(model.num_timesteps, horizon)
        applied = of_task(self.values)
        made = made_of(trained_task(environment, applied))
        if applied and any(arguments != made for arguments in model.env.get_attr("made_of")):
            raise RuntimeError(f"an environment was not made of {applied}")
        for name, value in sorted(asked.items()):
            copies = self._copies(model, name)
            held = copies[0]
            if any(copy != held for copy in copies):
                message = f"hyperparameter {name}: parts of the model disagree: {copies}"
                raise RuntimeError(message)
            expected = _comparable(name, value)
            if not _same(held, expected):
                raise RuntimeError(
                    f"hyperparameter {name}: {expected!r} was asked for, the model has {held!r}"
                )
            applied[name] = value if expected is not value else held
        return applied

    def _copies(self, model: Any, name: str) -> list[Any]:
        """Return the value of a hyperparameter in each part that keeps it."""
        if name in _READERS:
            return _READERS[name](model)
        if name in model.policy_kwargs:
            return [model.policy_kwargs[name]]
        if not hasattr(model, name):
            kind = type(model).__name__
            raise RuntimeError(f"hyperparameter {name} cannot be read back from {kind}")
        return [getattr(holder, name) for holder in self._holders(model, name)]

    def _check_optimizer(self) -> None:
        """Refuse options of an optimizer that an algorithm overrules with its own."""
        policy_kwargs = self.options.get("policy_kwargs") or {}
        # Constructors replace `optimizer_kwargs` where they set an optimizer
        # (stable_baselines3/a2c/a2c.py, sb3_contrib/qrdqn/qrdqn.py).
        messages = {
            "a2c": "A2C's own RMSprop does not read them: set rms_prop_eps, or "
            "use_rms_prop: false beside them",
            "qrdqn": "QR-DQN's own Adam does not read them: "
            "set optimizer_class: torch.optim:Adam beside them",
        }
        message = messages.get(self.algorithm)
        overruled = self.values.get("use_rms_prop", True) and "optimizer_class" not in policy_kwargs
        if message is not None and overruled and "optimizer_kwargs" in policy_kwargs:
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
        policy = self.options.get("policy") or self.of.policy_name(
            observation_kind(observation_space)
        )
        key = "trainer.kwargs.policy"
        if is_name(policy):
            base = "stable_baselines3.common.policies:BasePolicy"
            return named_class(policy, key, base=base, folders=self.folders)
        check_names([policy], self.of.load_class().policy_aliases, "policy", key)
        return policy

    def _policy_kwargs(self, values: Mapping[str, object]) -> dict[str, Any]:
        # A copy: Stable-Baselines3 adds to it.
        kwargs: dict[str, Any] = plain(self.options.get("policy_kwargs", FrozenMap()))
        kwargs |= {name: plain(values[name]) for name in policy_names(self.of) & set(values)}
        if "activation" in values:
            kwargs["activation_fn"] = values["activation"]
        if "net_arch" in kwargs:
            kwargs["net_arch"] = layers(kwargs["net_arch"])
        for name in sorted(POLICY_CLASSES.keys() & kwargs.keys()):
            kwargs[name] = policy_class(name, kwargs[name], self.folders)
        return kwargs


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


def check_hyperparameters(
    algorithm: str,
    of: Algorithm,
    names: Iterable[str],
    options: Sequence[str] = (),
    key: str = "space",
) -> None:
    """Check that the algorithm has every hyperparameter, and its schedule.

    Args:
        algorithm: `ppo`, `sac`, ...
        of: that, or a subclass.
        names: of hyperparameters, perhaps of options.
        options: that are allowed too.
        key: of the study file.

    Raises:
        InputError: it does not have one.
    """
    allowed = hyperparameter_names(of) | set(options)
    what = f"{'option or ' if options else ''}hyperparameter of sb3/{algorithm}"
    for name in names:
        base = base_name(name)
        # Any environment may have them: `SB3Trainer.check` looks at the one of the study.
        if base == ENVIRONMENT and not options:
            continue
        check_names([name if base == ENVIRONMENT else base], allowed, what, key)
        if base != name and base not in SCHEDULED:
            message = f"sb3/{algorithm} cannot follow a schedule of {base!r}; it can for "
            raise InputError(message + ", ".join(SCHEDULED), key=base)


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
    read = plain(value)
    if isinstance(value, str):
        text = value.strip().replace("x", ",")
        with suppress(SyntaxError, ValueError):
            read = plain(ast.literal_eval(text if text[:1] in "[({" else f"[{text}]"))
    for sizes in read.values() if isinstance(read, dict) else [read]:
        if not isinstance(sizes, list) or not all(isinstance(n, int) and n > 0 for n in sizes):
            message = f"expected layer sizes such as [64, 64], got {value!r}"
            raise InputError(message, key="net_arch")
    return read


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


def noises(model: Any) -> list[Any]:
    """Return the noise of each environment of a model, if any."""
    noise = getattr(model, "action_noise", None)
    # Several environments: SB3 wraps it in a `VectorizedActionNoise`, one noise for each.
    return [] if noise is None else list(getattr(noise, "noises", [noise]))


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


def _scheduled_now(name: str) -> Callable[[Any], list[Any]]:
    def read(model: Any) -> list[Any]:
        schedule = getattr(model, name)
        return [None if schedule is None else schedule(model._current_progress_remaining)]

    return read


def _entropy_coefficient(model: Any) -> list[Any]:
    is_tensor = getattr(model, "ent_coef_optimizer", model) is None
    return [float(model.ent_coef_tensor) if is_tensor else model.ent_coef]


def _target_entropy(model: Any) -> list[Any]:
    # SAC (Haarnoja et al. 2018, arXiv 1812.05905): minus the number of action dimensions.
    auto = -float(np.prod(model.action_space.shape))
    return ["auto" if model.target_entropy == auto else model.target_entropy]


def _rollout_length(model: Any) -> list[Any]:
    buffer = getattr(model, "rollout_buffer", None)
    return [model.n_steps, *([] if buffer is None else [buffer.buffer_size])]


_READERS: Mapping[str, Callable[[Any], list[Any]]] = {
    "learning_rate": lambda model: [
        group["lr"] for optimizer in optimizers(model) for group in optimizer.param_groups
    ],
    "n_steps": _rollout_length,
    "clip_range": _scheduled_now("clip_range"),
    "clip_range_vf": _scheduled_now("clip_range_vf"),
    "ent_coef": _entropy_coefficient,
    "target_entropy": _target_entropy,
    "noise_std": lambda model: [float(noise._sigma[0]) for noise in noises(model)] or [0.0],
    "noise_type": lambda model: [type(noise).__name__ for noise in noises(model)] or ["none"],
    "train_freq": lambda model: [model.train_freq.frequency],
    "exploration_initial_eps": lambda model: [model.exploration_schedule.start],
    "exploration_final_eps": lambda model: [model.exploration_schedule.end],
    "exploration_fraction": lambda model: [model.exploration_schedule.end_fraction],
    "rms_prop_eps": lambda model: [optimizers(model)[0].param_groups[0]["eps"]],
    "use_rms_prop": lambda model: [type(optimizers(model)[0]).__name__ == "RMSprop"],
    "activation": lambda model: [model.policy_kwargs["activation_fn"].__name__.lower()],
    "stats_window_size": lambda model: [model._stats_window_size],
}
"""Where a model keeps hyperparameters that are no attributes of it, in all its parts."""


def _comparable(name: str, value: Any) -> Any:
    """Return a configured value in the form a model has it."""
    match name:
        case "activation":
            return policy_class("activation_fn", value).__name__.lower()
        case "activation_fn" | "features_extractor_class" | "optimizer_class":
            return policy_class(name, value)
        case "replay_buffer_class":
            return replay_class(value)
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
