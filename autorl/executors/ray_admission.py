"""Admits workers of a cluster.

Those may train that have the driver's code and see the study folder.
"""

from __future__ import annotations

import platform
import secrets
from pathlib import Path

from autorl import __version__
from autorl.executors.ray_worker import WorkerInfo
from autorl.store.provenance import source_sha256


class Admission:
    """Compares what workers say of themselves with the driver.

    Attributes:
        probe: a file in the study folder that workers must be able to read; "" before there is one.
        text: what it says, random, so that no other file passes for it.
    """

    def __init__(self) -> None:
        self.probe = ""
        self.text = secrets.token_hex(16)

    def write_probe(self, checkpoints: Path) -> None:
        """Write the probe among the checkpoints of a study.

        It has the name of something unfinished, which is removed if the driver is killed.
        """
        checkpoints.mkdir(parents=True, exist_ok=True)
        probe = checkpoints.absolute() / f".tmp-probe-{secrets.token_hex(8)}"
        probe.write_text(self.text, encoding="ascii")
        self.probe = str(probe)

    def remove_probe(self) -> None:
        """Remove the probe. Idempotent."""
        if self.probe:
            Path(self.probe).unlink(missing_ok=True)
        self.probe = ""

    def problem(self, info: WorkerInfo) -> str:
        """Say why a worker's node cannot be used, "" where it can."""
        if _minor(info.python) != _minor(platform.python_version()):
            return f"it has Python {info.python}, the driver {platform.python_version()}"
        if info.version != __version__:
            return f"it has autorl {info.version}, the driver {__version__}"
        if info.source != source_sha256():
            return (
                f"its autorl {info.version} has other source files ({info.source[:12]}) than the "
                f"driver's ({source_sha256()[:12]})"
            )
        if not info.sees_folder:
            return (
                f"it does not see the study folder {Path(self.probe).parents[1]}: put it on a disk "
                "that all nodes share, or give the study a `storage:`"
            )
        return ""


def _minor(python: str) -> list[str]:
    return python.split(".")[:2]
