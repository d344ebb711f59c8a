"""The engine's environments of Gymnasium and their variants: parameters, names and hashes.

A variant is an environment with some of its parameters changed, as contextual reinforcement
learning defines them: a context fixes the transition function and the reward. Names of parameters
are those of CARL, which are Gymnasium's attributes; the allowed values of what CARL bounds are its
own, else bounds within which the equations make sense. This module imports nothing heavy.

References:
    [Hallak2015] A. Hallak, D. Di Castro, S. Mannor. Contextual Markov decision processes.
        arXiv:1502.02259.
    [Benjamins2023] C. Benjamins et al. Contextualize me: the case for context in reinforcement
        learning. TMLR 2023 (CARL).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from autorl.core.numbers import is_number
from autorl.core.plain_text import one_of, shown
from autorl.core.plain_values import plain
from autorl.core.types import EnvironmentSpec, FrozenMap, InputError

_MOST = 1e6
_NAME_DIGITS = 10  # of the hash, in names


@dataclass(frozen=True)
class Parameter:
    """A number that a variant may change.

    Attributes:
        default: its value in the environment itself.
        low, high: the smallest and the largest value allowed.
        integral: whether it is a whole number.
        attribute: of Gymnasium's environment, where the parameter has another name or none ("").
        of_gymnasium: whether `gymnasium.make` takes it as an argument.
    """

    default: float
    low: float
    high: float
    integral: bool = False
    attribute: str | None = None
    of_gymnasium: bool = False

    def checked(self, value: Any, key: str) -> float:
        """Return `value` as a float, or as an int if integral.

        Raises:
            InputError: it is no such number, or outside the bounds.
        """
        if is_number(value, self.low, self.high) and not (self.integral and value % 1):
            return self.converted(value)
        kind = "whole number" if self.integral else "number"
        raise InputError(
            f"expected a {kind} in [{self.low:g}, {self.high:g}], got {shown(value)}", key=key
        )

    def converted(self, value: float) -> float:
        """Return `value` in the type that names, hashes and Gymnasium expect."""
        return int(value) if self.integral else float(value)


@dataclass(frozen=True)
class Native:
    """Registers an environment of Gymnasium in the engine.

    Attributes:
        module: of `autorl.population.environments`, which declares it.
        time_limit: steps after which an episode is truncated.
        discrete: whether its actions are.
        physics: what its variants may change, in the order of their states.
        bound: the parameter that bounds an action, if one does.
    """

    module: str
    time_limit: int
    discrete: bool
    physics: Mapping[str, Parameter]
    bound: str = ""

    def parameters(self) -> Mapping[str, Parameter]:
        """Return what variants may change, disturbances of every environment included.

        An action is replaced with a probability by a random one where actions are discrete; else
        noise with a standard deviation is added to it.
        """
        action = {"action_noise": Parameter(0.0, 0.0, _MOST, attribute="")}
        if self.discrete:
            action = {"random_action_probability": Parameter(0.0, 0.0, 1.0, attribute="")}
        limit = Parameter(float(self.time_limit), 1.0, _MOST, integral=True, of_gymnasium=True)
        return {
            **self.physics,
            "reward_scale": Parameter(1.0, 1 / _MOST, _MOST, attribute=""),
            "observation_noise": Parameter(0.0, 0.0, _MOST, attribute=""),
            **action,
            "max_episode_steps": limit,
        }


NATIVE: Mapping[str, Native] = MappingProxyType(
    {
        "Acrobot-v1": Native(
            "acrobot",
            500,
            discrete=True,
            physics={
                "link_length_1": Parameter(1.0, 0.1, 10.0, attribute="LINK_LENGTH_1"),
                "link_mass_1": Parameter(1.0, 0.1, 10.0, attribute="LINK_MASS_1"),
                "link_mass_2": Parameter(1.0, 0.1, 10.0, attribute="LINK_MASS_2"),
                "link_com_1": Parameter(0.5, 0.0, 1.0, attribute="LINK_COM_POS_1"),
                "link_com_2": Parameter(0.5, 0.0, 1.0, attribute="LINK_COM_POS_2"),
                "link_moi": Parameter(1.0, 0.1, 10.0, attribute="LINK_MOI"),
                "torque": Parameter(1.0, 0.01, 100.0, attribute="AVAIL_TORQUE"),
            },
        ),
        "CartPole-v1": Native(
            "cartpole",
            500,
            discrete=True,
            physics={
                "gravity": Parameter(9.8, 0.1, 1000.0),
                "masscart": Parameter(1.0, 0.1, 10.0),
                "masspole": Parameter(0.1, 0.01, 1.0),
                "length": Parameter(0.5, 0.05, 5.0),
                "force_mag": Parameter(10.0, 1.0, 100.0),
                "tau": Parameter(0.02, 0.002, 0.2),
            },
        ),
        "MountainCar-v0": Native(
            "mountain_car",
            200,
            discrete=True,
            physics={"force": Parameter(0.001, 0.0, 1.0), "gravity": Parameter(0.0025, 0.0, 1.0)},
        ),
        "MountainCarContinuous-v0": Native(
            "mountain_car_continuous",
            999,
            discrete=False,
            physics={"power": Parameter(0.0015, 0.0, 1.0)},
        ),
        "Pendulum-v1": Native(
            "pendulum",
            200,
            discrete=False,
            bound="max_torque",
            physics={
                "g": Parameter(10.0, 0.0, 1000.0, of_gymnasium=True),
                "m": Parameter(1.0, 0.01, 100.0),
                "l": Parameter(1.0, 0.01, 100.0),
                "max_torque": Parameter(2.0, 0.01, 1000.0),
                "max_speed": Parameter(8.0, 0.01, 1000.0),
                "dt": Parameter(0.05, 0.001, 1.0),
            },
        ),
    }
)
PARAMETERS: Mapping[str, Mapping[str, Parameter]] = MappingProxyType(
    {name: native.parameters() for name, native in NATIVE.items()}
)
"""What variants of each native environment may change."""
_GRIDS = {
    "Empty": (5, 6, 8, 16),
    "Empty-Random": (5, 6),
    "DoorKey": (5, 6, 8, 16),
    "FourRooms": (0,),  # of one size, which is not in the id
    "Unlock": (0,),
}
GRIDS = {
    f"MiniGrid-{layout}{f'-{size}x{size}' if size else ''}-v0": (layout, size)
    for layout, sizes in _GRIDS.items()
    for size in sizes
}
"""The tasks of MiniGrid: layout and size of each id."""
NATIVE_IDS = frozenset({*NATIVE, *GRIDS})


def is_outside(name: str | None) -> bool:
    """Tell whether an id is Gymnasium's and none of the engine's.

    `module:NAME` is an `Environment` of the user's, `module:Env-v0` an id that a module registers.
    """
    if name is None or name in NATIVE_IDS:
        return False
    return not (":" in name and name.rpartition(":")[2].isidentifier())


@dataclass(frozen=True)
class Variant:
    """An environment with the parameters that are not its defaults.

    It is the environment itself where there are none.
    """

    id: str
    parameters: FrozenMap = field(default_factory=FrozenMap)

    @property
    def hash(self) -> str:
        """16 hexadecimal digits, a function of environment and parameters alone."""
        content = {"environment": self.id, "parameters": plain(self.parameters)}
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """The name in landscapes: the id, or `CartPole-v1-variant-0123456789`."""
        if not self.parameters:
            return self.id
        return f"{self.id}-variant-{self.hash[:_NAME_DIGITS]}"

    @property
    def text(self) -> str:
        """Name for people: `CartPole-v1 with gravity=5, length=1`."""
        values = ", ".join(
            f"{name}={value:g}" if isinstance(value, int | float) else f"{name}={plain(value)!r}"
            for name, value in sorted(self.parameters.items())
        )
        return f"{self.id} with {values}" if values else self.id


def variant(id: str, kwargs: Mapping[str, object]) -> Variant:
    """Return the variant of a native environment with these parameters.

    Raises:
        InputError: a parameter is unknown, or its value is not allowed.
    """
    table = PARAMETERS[id]
    values = {}
    for name in sorted(kwargs):
        key = f"environment.kwargs.{name}"
        if name not in table:
            hint = one_of(name, table, f"those of {id}")
            raise InputError(f"unknown parameter{hint}", key=key)
        value = table[name].checked(kwargs[name], key)
        # A value that is the environment's own makes no variant.
        if value != table[name].default:
            values[name] = value
    return Variant(id, FrozenMap(values))


def split(id: str | None, kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split arguments into those that make a variant and Gymnasium's own.

    Arguments that `gymnasium.make` takes itself are left to it, whatever the value.
    """
    table = PARAMETERS.get(id or "", {})
    changed = {name for name in kwargs if name in table and not table[name].of_gymnasium}
    return (
        {name: value for name, value in kwargs.items() if name in changed},
        {name: value for name, value in kwargs.items() if name not in changed},
    )


def stated_variant(environment: EnvironmentSpec) -> Variant | None:
    """Return the variant that a study's environment is, unchecked.

    The result is None for an environment outside the engine, and for the unchanged one.
    """
    table = PARAMETERS.get(environment.id or "", {})
    values = {
        name: value
        for name, value in environment.kwargs.items()
        if name in table and value != table[name].default
    }
    for name, value in values.items():
        # Anything else is refused by who makes the environment.
        if isinstance(value, int | float):
            values[name] = table[name].converted(value)
    if not values:
        return None
    assert environment.id is not None
    return Variant(environment.id, FrozenMap(values))


def landscape_name(environment: EnvironmentSpec) -> str | None:
    """Return the name that landscapes give this environment.

    None for a task inside a trainer.
    """
    stated = stated_variant(environment)
    return environment.id if stated is None else stated.name
