"""The search space: its core, and the moves that optimizers make."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autorl.core.types import Config
from autorl.space import moves
from autorl.space.configspace import to_configspace
from autorl.space.core import SpaceCore

if TYPE_CHECKING:
    from ConfigSpace import ConfigurationSpace


class Space(SpaceCore):
    """A set of valid configurations: hyperparameters, when each is active, and rules.

    See `SpaceCore` for its parts and what they mean. `load_space` and `read_space` make one of a
    file, `define_space` of conditions and rules as they are written.
    """

    def decode(
        self, vector: Sequence[float] | NDArray[np.float64], rng: np.random.Generator
    ) -> Config:
        """Return the valid configuration nearest to `from_unit(vector)`, shape (n,)."""
        config = self.from_unit(vector)
        return moves.repair(self, config, rng) if self.violated(config) else config

    def repair(
        self, config: Mapping[str, object], rng: np.random.Generator, keep: Collection[str] = ()
    ) -> Config:
        """Return a valid configuration near `config`, by `moves.repair`."""
        self._require_known(config)
        self._require_constants()
        return moves.repair(self, config, rng, keep)

    def perturb(
        self,
        config: Mapping[str, object],
        rng: np.random.Generator,
        names: Collection[str] | None = None,
        step: float = 0.2,
        resample: float = 0.25,
        factor: float | None = None,
    ) -> Config:
        """Return a valid neighbour of `config`, by `moves.perturb`.

        Only `names` move, by default those that are `changeable`.
        """
        names = self.changeable if names is None else names
        self._require_known(dict.fromkeys(names))
        self._require_known(config)
        self._require_constants()
        return moves.perturb(
            self, config, rng, frozenset(names), step=step, resample=resample, factor=factor
        )

    def place(
        self,
        config: Config,
        values: Mapping[str, object],
        rng: np.random.Generator,
        names: Collection[str],
    ) -> Config | None:
        """Set some of `names` in the valid `config`, by `moves.place`.

        Returns:
            None if that breaks a rule.
        """
        return moves.place(self, config, values, rng, frozenset(names))

    def to_configspace(self) -> ConfigurationSpace:
        """Return the same space for libraries that use ConfigSpace."""
        return to_configspace(self)
