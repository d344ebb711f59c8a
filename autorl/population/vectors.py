"""What environments that are stepped together give a member, whoever steps them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from autorl.population.kernels import Array


class Vector(Protocol):
    """Environments of one kind that are stepped together.

    An environment begins its next episode in the step that ends one.
    """

    def reset(self) -> Array:
        """Begin an episode of each, and return the first observations (n, *shape)."""

    def step(self, actions: Array) -> VectorStep:
        """Make one step of each."""

    def close(self) -> None:
        """Close the environments."""


class VectorStep(NamedTuple):
    """What one step of a `Vector` gave.

    Attributes:
        observations: (n, *shape), where an episode ended the first of the next.
        rewards: (n,).
        terminated, truncated: (n,) bool.
        finals: last observations of the episodes that ended, by index.
    """

    observations: Array
    rewards: Array
    terminated: Array
    truncated: Array
    finals: Mapping[int, Array]
