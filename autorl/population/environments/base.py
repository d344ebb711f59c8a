"""The contract of an environment of the engine.

It has three compiled functions over a flat state, and a few numbers.

A file of this folder has one environment in a fixed order: constants, `reset`, `step`, `observe`,
`is_terminated`, the functions of variants, the declaration. Your own environment is the same thing
in your own module, without those of variants: write the three functions with `numba.njit`, declare
an `Environment`, and name it in the study file as `module:NAME`. `variants.NATIVE` registers those
of the package: id, time limit and parameters.

    @njit
    def reset(state, key): ...            # write a first state; draws: rng.uniform(key, 0), ...
    @njit
    def step(state, action, key): ...     # advance `state` in place, return (reward, terminated)
    @njit
    def observe(state, observation): ...  # write the observation

`state` is float64 (state_size,); `action` is float64: (1,) with the action's index for `n_actions`
> 0, else (action_size,) within the bounds; `key` is a uint64 of this reset's or step's own. The
time limit is the engine's business, not `step`'s.

An environment of the package has them a second time, with its parameters read from the state
(`Parametrised`): all its variants are compiled once. The equations stand in one function that is
`inlined` into both. With constants it is compiled to what it was before there were variants; as a
kernel, or with the action passed as a number, it would differ in the last bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import types
from numba.core.errors import NumbaError

from autorl.core.types import FrozenMap, InputError
from autorl.population.kernels import Array, Function
from autorl.population.variants import native_of, physics_of

_STATE = types.Array(types.float64, 1, "C")
_RESET = types.void(_STATE, types.uint64)
_pair: Any = types.Tuple
_STEP = _pair((types.float64, types.boolean))(_STATE, _STATE, types.uint64)


@dataclass(frozen=True)
class Parametrised:
    """The functions of an environment's variants.

    Their states are those of the environment, then the noise in the present observation
    (observation_size,), then the parameters: the disturbances in the order of `noise.py`, and the
    physics.

    Attributes:
        physics: the parameters by name, in the order of the state, with the values of the
            environment itself.
        action_bound: the one among them that bounds an action.
    """

    physics: FrozenMap
    reset: Callable[..., Any]
    step: Callable[..., Any]
    observe: Callable[..., Any]
    action_bound: str | None = None


@dataclass(frozen=True)
class Environment:
    """One environment the engine can run.

    Attributes:
        state_size, observation_size: lengths of the state and of the observation.
        n_actions: number of discrete actions; 0 = continuous actions within `low` and `high`.
        low, high: bounds of a continuous action, one entry per dimension.
        time_limit: steps after which an episode is truncated.
        reset, step, observe: functions compiled by `numba.njit`; see the module's docstring.
        parametrised: what its variants are made of; None for a user's own.
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

    parametrised: Parametrised | None = None
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


Functions = tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]


def declare(
    module: str,
    sizes: tuple[int, int],
    functions: Functions,
    of_variants: Functions,
    action_bound: str | None = None,
    **actions: Any,
) -> Environment:
    """Make the environment that `variants.NATIVE` has for a module.

    Args:
        module: that declares it.
        sizes: of the state and of the observation.
        functions: `reset`, `step` and `observe`.
        of_variants: those of its variants.
        action_bound: the parameter that bounds an action.
        actions: `n_actions`, or `low` and `high`.
    """
    name, native = native_of(module)
    physics = FrozenMap(physics_of(module))
    parametrised = Parametrised(physics, *of_variants, action_bound=action_bound)
    limit = native.time_limit
    return Environment(name, *sizes, limit, *functions, parametrised=parametrised, **actions)
