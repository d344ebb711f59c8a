"""Describes how other machines train segments, and compares their code."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from typing import Literal

from autorl import __version__
from autorl.core.types import Executor
from autorl.executors.devices import Capacity
from autorl.executors.processes import Processes
from autorl.executors.queued import Limits
from autorl.executors.threads import Threads
from autorl.executors.worker import Load
from autorl.store.provenance import source_sha256

Kind = Literal["processes", "threads"]
"""The executors that other machines run segments on."""


@dataclass(frozen=True)
class Code:
    """The interpreter and the autorl of a process.

    Attributes:
        python, version: of both.
        source: SHA-256 of autorl's files.
    """

    python: str = field(default_factory=platform.python_version)
    version: str = __version__
    source: str = field(default_factory=source_sha256)

    def difference(self, driver: Code) -> str:
        """Name a difference from the driver, or ""."""
        if self.python.split(".")[:2] != driver.python.split(".")[:2]:
            return f"it has Python {self.python}, the driver {driver.python}"
        if self.version != driver.version:
            return f"it has autorl {self.version}, the driver {driver.version}"
        hashes = f"{self.source[:12]}, the driver {driver.source[:12]}"
        if self.source != driver.source:
            return f"its autorl has other source files ({hashes})"
        return ""


@dataclass(frozen=True)
class Work:
    """Describes how another machine trains the segments of a study.

    Attributes:
        load: builds trainers; pickled by reference, so that the machine needs the package.
        kind: the executor there.
        preload: modules that its workers import once.
        limits: of each segment.
        code: of the driver.
    """

    load: Load
    kind: Kind = "processes"
    preload: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    code: Code = field(default_factory=Code)

    def executor(self, slots: int = 1, capacity: Capacity | None = None) -> Executor:
        """Make what runs the segments there."""
        if self.kind == "threads":
            return Threads(self.load, slots, preload=self.preload, limits=self.limits)
        return Processes(
            self.load, slots, preload=self.preload, limits=self.limits, capacity=capacity
        )
