"""The contract of an environment of the engine.

It has three compiled functions over a flat state, and a few numbers.

    @njit
    def reset(state, key): ...            # write a first state; draws: rng.uniform(key, 0), ...
    @njit
    def step(state, action, key): ...     # advance `state` in place, return (reward, terminated)
    @njit
    def observe(state, observation): ...  # write the observation

`state` is float64 (state_size,); `action` is float64: (1,) with the action's index for `n_actions`
> 0, else (action_size,) within the bounds; `key` is a uint64 of this reset's or step's own. The
time limit is the engine's business, not `step`'s. Declare an `Environment` of your own in your own
module, and name it in the study file as `module:NAME`.

A file of this folder has the equations of one environment: `reset`, `observe`, and `dynamics`,
whose parameters are a tuple in the order of `variants.NATIVE`. `declare` makes of them the
functions of the environment itself, with the parameters as constants, and those of its variants,
which read them from the state: all variants are compiled once. `dynamics` is inlined into both; as
a kernel, or with the action passed as a number, it would differ in the last bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import types
from numba.core.errors import NumbaError
from numba.np.unsafe.ndarray import to_fixed_tuple

from autorl.core.types import FrozenMap, InputError
from autorl.population import rng
from autorl.population.kernels import Array, Function, cached, kernel
from autorl.population.variants import NATIVE

_STATE = types.Array(types.float64, 1, "C")
_RESET = types.void(_STATE, types.uint64)
_pair: Any = types.Tuple
_STEP = _pair((types.float64, types.boolean))(_STATE, _STATE, types.uint64)


@dataclass(frozen=True)
class Environment:
    """One environment the engine can run.

    Attributes:
        state_size, observation_size: lengths of the state and of the observation.
        n_actions: number of discrete actions; 0 = continuous actions within `low` and `high`.
        low, high: bounds of a continuous action, one entry per dimension.
        time_limit: steps after which an episode is truncated.
        reset, step, observe: functions compiled by `numba.njit`; see the module's docstring.
        parametrised: what its variants are made of; None for a user's own. Its states are those
            of the environment, then the noise in the present observation, the action applied, and
            the parameters: the disturbances, and the physics.
        variant: the parameters in which it differs from the environment of its id.
        constants: the last values of each state, which no function changes.
        wrappers: as in a study file, those that make these observations of Gymnasium's environment.
        observation_type: NumPy's name of Gymnasium's; `uint8` observations lie in 0..255.
        normalize: arguments of Stable-Baselines3's `VecNormalize`; None = nothing is normalised.
    """

    id: str
    state_size: int
    observation_size: int
    time_limit: int
    reset: Callable[..., Any]
    step: Callable[..., Any]
    observe: Callable[..., Any]
    n_actions: int = 0
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    parametrised: Environment | None = None
    variant: FrozenMap = field(default_factory=FrozenMap)
    constants: tuple[float, ...] = ()
    wrappers: tuple[str, ...] = ()
    observation_type: str = "float32"
    normalize: FrozenMap | None = None

    @property
    def action_size(self) -> int:
        """Length of an action, 1 for discrete actions (their index)."""
        return 1 if self.n_actions else len(self.low)

    @property
    def bounds(self) -> Array:
        """Lowest and highest action, (2, action_size) float64."""
        if self.n_actions:  # never read: programs of both kinds take an array
            return np.zeros((2, 1))
        return np.array([self.low, self.high], np.float64)

    def states(self, n: int) -> Array:
        """Make `n` states that have yet to be reset, (n, state_size) float64."""
        states = np.zeros((n, self.state_size))
        if self.constants:
            states[:, -len(self.constants) :] = self.constants
        return states

    def functions(self, dtype: npt.DTypeLike) -> tuple[Function, Function, Function]:
        """Return `reset`, `step` and `observe` as function pointers.

        Observations are written as `dtype`.
        """
        real = numba.from_dtype(np.dtype(dtype))
        observe = types.void(_STATE, types.Array(real, 1, "C"))
        pairs = ((self.reset, _RESET), (self.step, _STEP), (self.observe, observe))
        reset, step, observed = (
            Function(function, types.FunctionType(kind)) for function, kind in pairs
        )
        return reset, step, observed

    def check(self) -> None:
        """Check that each function has the signature the engine calls.

        Raises:
            InputError: one of them does not compile to it.
        """
        key = f"environment {self.id}"
        for name, (function, kind) in zip(
            ("reset", "step", "observe"), self.functions(np.float32), strict=True
        ):
            if not hasattr(function, "get_compile_result"):
                raise InputError(f"{name} must be compiled with numba.njit", key=key)
            try:
                returned = function.get_compile_result(kind.signature).signature.return_type
            except (NumbaError, TypeError) as error:
                reason = str(error).strip().splitlines()[-1]
                raise InputError(
                    f"{name} does not compile for {kind.signature.args}: {reason}", key=key
                ) from error
            if returned != kind.signature.return_type:
                raise InputError(
                    f"{name} must return {kind.signature.return_type}, it returns {returned}",
                    key=key,
                )


_fixed_tuple: Any = to_fixed_tuple
# Places of a variant's disturbances; the parameters of the physics follow.
REWARD_SCALE, OBSERVATION_NOISE, ACTION_NOISE, PHYSICS = range(4)
# Streams of a step's key; the physics draws from the key itself.
_OF_ACTION, _OF_OBSERVATION = range(1, 3)


def declare(
    module: str,
    sizes: tuple[int, int],
    reset: Callable[..., None],
    dynamics: Callable[..., tuple[float, bool]],
    observe: Callable[..., None],
    *,
    n_actions: int = 0,
    bound: float = 1.0,
    constants: bool = True,
) -> Environment:
    """Make the environment that `variants.NATIVE` has for a module.

    `sizes` are those of the state and of the observation. `reset` and `observe` are kernels;
    `dynamics` is one of (state, action, parameters) that is inlined, and gets None for the default
    parameters unless they are `constants`. Continuous actions lie within +-`bound`, if no parameter
    bounds them.
    """
    last = module.rpartition(".")[2]
    name, native = next(item for item in NATIVE.items() if item[1].module == last)
    physics = {name: parameter.default for name, parameter in native.physics.items()}
    defaults = tuple(physics.values()) if constants else None
    count = len(physics)
    noise, size = sizes
    applied = noise + size
    values = applied + 1
    place = list(physics).index(native.bound) if native.bound else -1
    top = physics.get(native.bound, bound)

    def step(state: Array, action: Array, key: int) -> tuple[float, bool]:
        return dynamics(state, action, defaults)

    # The noise of an observation is drawn with the state and kept in it: whoever observes a state
    # twice sees the same, and a checkpoint has it.
    def reset_variant(state: Array, key: int) -> None:
        reset(state, key)
        draw_noise(state[noise:applied], state[values + OBSERVATION_NOISE], key)

    def step_variant(state: Array, action: Array, key: int) -> tuple[float, bool]:
        parameters = _fixed_tuple(state[values + PHYSICS :], count)
        deviation = state[values + ACTION_NOISE]
        if n_actions > 0:
            state[applied] = disturbed_choice(action[0], deviation, n_actions, key)
        else:
            limit = parameters[place] if place >= 0 else top
            state[applied] = disturbed(action[0], deviation, limit, key)
        reward, terminated = dynamics(state, state[applied:values], parameters)
        draw_noise(state[noise:applied], state[values + OBSERVATION_NOISE], key)
        return reward * state[values + REWARD_SCALE], terminated

    def observe_variant(state: Array, observation: Array) -> None:
        observe(state, observation)
        for i in range(size):
            observation[i] += state[noise + i]

    limits = {"n_actions": n_actions} if n_actions else {"low": (-top,), "high": (top,)}
    environment = Environment(
        name, *sizes, native.time_limit, compiled(reset), cached(step), compiled(observe), **limits
    )
    parametrised = replace(
        environment,
        state_size=values + PHYSICS + count,
        reset=cached(reset_variant),
        step=cached(step_variant),
        observe=cached(observe_variant),
    )
    return replace(environment, parametrised=parametrised)


def compiled(function: Any) -> Any:
    """Compile a kernel once more, as a function that a program takes."""
    return cached(function.py_func)


@kernel
def disturbed_choice(choice: float, probability: float, n_actions: int, key: int) -> float:
    """Return `choice`, or with this probability an action drawn uniformly."""
    seed = rng.stream(key, _OF_ACTION)
    if rng.uniform(seed, 0) < probability:
        return float(rng.integer(seed, 1, n_actions))
    return choice


@kernel
def disturbed(action: float, deviation: float, bound: float, key: int) -> float:
    """Return `action` with normal noise, within +-`bound`."""
    if deviation > 0.0:
        action = action + deviation * rng.normal(rng.stream(key, _OF_ACTION), 0)
    return min(max(action, -bound), bound)


@kernel
def draw_noise(noise: Array, deviation: float, key: int) -> None:
    """Draw the next observation's noise."""
    if deviation > 0.0:
        seed = rng.stream(key, _OF_OBSERVATION)
        for i in range(len(noise)):
            noise[i] = deviation * rng.normal(seed, i)
