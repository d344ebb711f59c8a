"""Translates hyperparameters into arguments of Stable-Baselines3's constructor.

All of a member are translated, defaults included.

Nothing of Stable-Baselines3 is imported here: values are numbers, words and `Schedule`s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autorl.population.descent import RMSPROP_ALPHA
from autorl.population.hyperparameters import CONSTANT, SHAPES, Record, Settings, scheduled
from autorl.population.networks import hidden_widths

# Stable-Baselines3 takes these as functions of the progress remaining.
_SCHEDULED = (
    "learning_rate",
    "clip_range",
)
_OF_POLICY = ("net_width", "net_depth", "activation", "optimizer", "optimizer_eps")
_OF_SB3_POLICY = ("n_critics",)  # under the same name among `policy_kwargs`
_NOISE = ("noise_type", "noise_std")
_ADAM_EPS_OF_A2C = 1e-5  # of the policy of PPO and A2C, where PyTorch's is 1e-8
_OF_PRIORITIES = ("priority_alpha", "priority_beta", "priority_eps")
_WORDS = ("none",)  # the engine's word for Python's None


@dataclass(frozen=True)
class Schedule:
    """A hyperparameter that changes from `start` to `end` at the horizon.

    It is `start` at step 0; `shape` is linear or cosine.
    """

    start: float
    end: float
    shape: str


@dataclass(frozen=True)
class SB3Arguments:
    """Arguments to build a Stable-Baselines3 model that trains as the member did.

    Attributes:
        constructor: its arguments by name, `policy`, `env` and `policy_kwargs` apart.
        net_arch: sizes of the hidden layers.
        activation: `tanh` or `relu`.
        optimizer: name of the class in `torch.optim`, and its arguments, the learning rate apart.
        n_envs: environments trained side by side: of the vectorised environment, no argument of the
            constructor.
        notes: what Stable-Baselines3 has no place for, in words.
        policy: further arguments of the policy.
        noise: `noise_type` and `noise_std` of RL Baselines3 Zoo, which stand for the object
            `action_noise`; empty where there is no noise.
    """

    constructor: Mapping[str, Any]
    net_arch: list[int]
    activation: str
    optimizer: tuple[str, Mapping[str, float]]
    n_envs: int
    notes: tuple[str, ...]
    policy: Mapping[str, Any] = field(default_factory=dict)
    noise: Mapping[str, Any] = field(default_factory=dict)


def sb3_arguments(settings: Settings, hp: Record, step: int = 0) -> SB3Arguments:
    """Translate the record `hp` of an algorithm into arguments.

    A schedule SB3 cannot follow is at its value of `step`.
    """
    values: dict[str, Any] = {}
    notes = []
    for name, setting in settings.items():
        value = setting.decode(hp[name])
        values[name] = None if value in _WORDS else value
        if not setting.scheduled or hp[f"{name}_shape"] == CONSTANT:
            continue
        shape = next(word for word, code in SHAPES.items() if code == hp[f"{name}_shape"])
        end = float(hp[f"{name}_end"])
        if name in _SCHEDULED:
            values[name] = Schedule(float(hp[name]), end, shape)
        else:
            values[name] = float(
                scheduled(
                    float(hp[name]), end, int(hp[f"{name}_shape"]), step / float(hp["horizon"])
                )
            )
            notes.append(
                f"{name} went from {value!r} to {end!r} ({shape}), "
                "Stable-Baselines3 keeps it constant"
            )
    return _split(values, notes, hidden_widths(int(hp["net_width"]), int(hp["net_depth"])))


def _split(values: dict[str, Any], notes: list[str], net_arch: tuple[int, ...]) -> SB3Arguments:
    n_envs = int(values.pop("n_envs"))
    policy = {name: values.pop(name) for name in _OF_POLICY if name in values}
    of_sb3_policy = {name: values.pop(name) for name in _OF_SB3_POLICY if name in values}
    noise = {name: values.pop(name) for name in _NOISE if name in values}
    if noise.get("noise_std", 0.0) == 0.0 or noise["noise_type"] is None:
        noise = {}
    notes = [*_without_a_place(values, n_envs), *notes]
    optimizer = ("Adam", {"eps": policy.get("optimizer_eps", _ADAM_EPS_OF_A2C)})
    if policy.get("optimizer") == "rmsprop":
        optimizer = ("RMSprop", {"alpha": RMSPROP_ALPHA, "eps": policy["optimizer_eps"]})
    if values.get("use_rms_prop"):
        optimizer = ("RMSprop", {"alpha": RMSPROP_ALPHA, "eps": values["rms_prop_eps"]})
    return SB3Arguments(
        constructor=values,
        net_arch=list(net_arch),
        activation=policy["activation"],
        optimizer=optimizer,
        n_envs=n_envs,
        notes=tuple(notes),
        policy=of_sb3_policy,
        noise=noise,
    )


def _without_a_place(values: dict[str, Any], n_envs: int) -> list[str]:
    """Take out of `values` what no constructor of Stable-Baselines3 has.

    What had an effect is said.
    """
    notes = []
    if values.pop("double", False):
        notes.append("Stable-Baselines3 has no double=True")
    if values.pop("dueling", False):
        notes.append(
            "Stable-Baselines3 has no dueling=True: an exported model has both streams folded into "
            "one head of the same Q-values, and `learn` goes on without them"
        )
    # Of replay memories, since Stable-Baselines3 2.7: earlier ones take no 1 either. PPO's is a
    # rollout.
    if "train_freq" in values and values.get("n_steps") == 1:
        del values["n_steps"]
    priorities = {name: values.pop(name) for name in _OF_PRIORITIES if name in values}
    if values.pop("prioritized", False):
        settings = ", ".join(f"{name}={value!r}" for name, value in priorities.items())
        notes.append(f"Stable-Baselines3 has no prioritized=True ({settings})")
    if not values.pop("use_target_network", True):
        values |= {"target_update_interval": n_envs, "tau": 1.0}
        notes.append("use_target_network=False is a target network that follows at every step")
    scale = values.pop("reward_scale", 1.0)
    if scale != 1.0:
        notes.append(f"reward_scale={scale!r}: scale rewards to train on, after any normalisation")
    return notes
