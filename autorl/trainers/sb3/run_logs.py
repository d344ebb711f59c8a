"""Files of Stable-Baselines3's own log, for people.

With `csv` or `tensorboard` in the option `logs` they lie beside the segment's log, and are written
at the steps where `learn` writes them: after each rollout, or every four episodes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorl.core.plain_text import shown
from autorl.core.types import InputError, Segment
from autorl.trainers.shared import check_names

if TYPE_CHECKING:
    from stable_baselines3.common.logger import Logger

FORMATS = ("csv", "tensorboard")
EPISODES = 4
"""Episodes between two rows of an algorithm without rollouts, as SB3's `log_interval`."""
_KEY = "trainer.kwargs.logs"


def read_formats(option: object) -> tuple[str, ...]:
    """Read the option `logs`.

    It is one of `FORMATS`, a list of them, or nothing.

    Raises:
        InputError: it names another, or the library of one is missing.
    """
    if not option:
        return ()
    formats = (option,) if isinstance(option, str) else option
    if not isinstance(formats, list | tuple) or not all(isinstance(name, str) for name in formats):
        raise InputError(f"expected a list of {', '.join(FORMATS)}, got {shown(option)}", key=_KEY)
    check_names(formats, FORMATS, "kind of log", _KEY)
    if "tensorboard" in formats and importlib.util.find_spec("tensorboard") is None:
        message = 'needs a library that is missing: pip install "autorl[integrations]"'
        raise InputError(f"tensorboard {message}", key=_KEY)
    return tuple(dict.fromkeys(formats))


def log_folder(segment: Segment) -> Path | None:
    """Return where the logs of a segment lie.

    None without a study's folder on this machine. Attempts have folders of their own, so
    that a second one adds nothing to the first.
    """
    if segment.log is None or not Path(segment.log).parent.parent.is_dir():
        return None
    fence = segment.fence
    return Path(segment.log).parent / f"{segment.id}-{fence.epoch}-{fence.attempt}"


def make_logger(formats: Sequence[str], folder: Path | None) -> Logger:
    """Make SB3's logger.

    If there are no formats or no folder it only remembers the latest values.
    """
    from stable_baselines3.common.logger import CSVOutputFormat, Logger, TensorBoardOutputFormat

    outputs: list[Any] = []
    if folder is not None:
        for name in formats:
            folder.mkdir(parents=True, exist_ok=True)
            if name == "csv":
                outputs.append(CSVOutputFormat(str(folder / "progress.csv")))
            else:
                outputs.append(TensorBoardOutputFormat(str(folder)))
    # A folder of SB3's own would be made below the temporary one.
    return Logger(folder=None, output_formats=outputs)
