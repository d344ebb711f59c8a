"""The class that users open.

It is a data set that can answer as a benchmark.
"""

from __future__ import annotations

from pathlib import Path

from autorl.core.plain_text import one_of, shown
from autorl.core.shown import Shown
from autorl.core.types import InputError
from autorl.landscapes.benchmark import MIN_CORRELATION, LookUp, Replay, Surrogate
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.library import find_landscape, list_landscapes, shipped_root


class Landscape(Dataset, Shown):
    """A landscape folder, opened for reading.

    `Dataset` says how its tables are read. It can also answer as a benchmark.
    """

    def objective(self, lookup: LookUp = "nearest", *, wrap_seeds: bool = False) -> Replay:
        """Make a function that looks a score up.

        It is `objective(config, seed=0, until=None)`.

        Args:
            lookup: `nearest`, or `exact` = recorded configurations only.
            wrap_seeds: whether seeds past the last recorded one begin again instead of being
                refused.

        Raises:
            InputError: no configuration was trained with every tuning seed.
        """
        return Replay(self, lookup, wrap_seeds)

    def surrogate(
        self, *, min_correlation: float = MIN_CORRELATION, force: bool = False
    ) -> Surrogate:
        """Make a function that predicts a score.

        Any configuration and any seed has a score of its own.

        Args:
            min_correlation: out-of-bag rank correlation below which the forest is refused.
            force: whether it is taken all the same; `.quality` states it.

        Raises:
            InputError: too few configurations, or the forest is
                below the bar.
        """
        return Surrogate(self, min_correlation=min_correlation, force=force)


def load_landscape(source: str | Path, root: str | Path = "landscapes") -> Landscape:
    """Open a landscape: a folder, a study's too, or an id.

    An id is `namespace/algorithm/environment`, below `root` or shipped.

    Raises:
        InputError: it is nowhere there.
    """
    path = find_landscape(source, root)
    if path is not None:
        return Landscape(path)
    roots = [Path(root), *([shipped] if (shipped := shipped_root()) else [])]
    ids = sorted({name for folder in roots if folder.is_dir() for name in list_landscapes(folder)})
    hint = one_of(source, ids, "`autorl landscape list` has")
    raise InputError(f"no landscape {shown(str(source))} and no such folder{hint}", key="landscape")
