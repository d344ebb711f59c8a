"""The search space: its core, and the moves that optimizers make."""

from __future__ import annotations

from autorl.core.shown import Shown
from autorl.space import moves
from autorl.space.configspace import to_configspace
from autorl.space.core import SpaceCore


class Space(SpaceCore, Shown):
    """A set of valid configurations: hyperparameters, when each is active, and rules.

    See `SpaceCore` for its parts and what they mean. `load_space` and `read_space` make one of a
    file, `define_space` of conditions and rules as they are written.
    """

    decode = moves.decode
    repair = moves.repair
    perturb = moves.perturb
    place = moves.place
    to_configspace = to_configspace
