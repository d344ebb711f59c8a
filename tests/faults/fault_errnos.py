"""A failing disk: a library (`failing_disk.c`) that lets calls below a folder fail."""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent / "failing_disk.c"
ERRNOS = ("ESTALE", "EIO", "EROFS", "EBUSY", "EDQUOT", "ENOSPC")
CALLS = ("open", "read", "write", "fsync", "rename", "unlink", "list", "stat", "clock")
PLACES = ("", "checkpoints", "study.sqlite", "logs")  # below the study's folder
FOR_EVER = 0
_HOW = {"fails": "f", "is done and fails": "d", "is short": "s", "jumps": "c", "is counted": "n"}
_SPARED = "train.py"  # of the user: what its own errors mean is known of a disk that is gone alone
_NUMBERS = struct.Struct(f"{2 + len(CALLS) * len(PLACES)}q")
_PATH = 4096

Counts = Mapping[tuple[str, str], int]


@dataclass(frozen=True)
class Plan:
    """Which calls fail, and how.

    Attributes:
        call: one of `CALLS`.
        how: one of `_HOW`; what is done and fails is an answer that got lost.
        number: errno, or seconds that the clock is ahead.
        place: one of `PLACES`.
        first: the first call that is hit, counted over all processes.
        count: how many are hit; `FOR_EVER`: all from the first on.
    """

    call: str = CALLS[0]
    how: str = "is counted"
    number: int = 0
    place: str = ""
    first: int = 1
    count: int = FOR_EVER

    def __str__(self) -> str:
        what = f"{self.number // 3600} h" if self.call == "clock" else errno.errorcode[self.number]
        times = "for ever" if self.count == FOR_EVER else f"{self.count} times"
        said = self.how if self.how == "is short" else f"{self.how} {what}"
        return f"{self.call} {said}: {self.place or 'study'}, from call {self.first} on, {times}"

    def variables(self, library: Path, study: Path, counters: Path) -> dict[str, str]:
        """Return environment variables for the study's processes; begins to count."""
        counters.write_bytes(bytes(_NUMBERS.size + _PATH))
        number = self.number  # 0 where calls are counted
        numbers = (CALLS.index(self.call), _HOW[self.how], number, self.first, self.count)
        return {
            "LD_PRELOAD": str(library),
            "AUTORL_PLAN": " ".join(map(str, numbers)),
            "AUTORL_PLAN_PLACE": os.path.realpath(study) + f"/{self.place}",
            "AUTORL_PLAN_FILE": str(counters),
            "AUTORL_PLAN_SPARES": "" if self.count == FOR_EVER and number else _SPARED,
        }


def draw(rng: random.Random, counts: Counts, share: float) -> Plan:
    """Draw a plan for the last share of a study that makes so many calls in each place."""
    call, place = rng.choice(sorted(counts))
    most = max(1, int(share * counts[call, place]))
    first = rng.randint(1, min(most, rng.choice((3, 30, most))))
    count = rng.choice((1, 2, 5, 50, FOR_EVER))
    if call == "clock":
        return Plan(call, "jumps", rng.choice((-10, 10, 9600)) * 3600, place, first, count)
    ways = ["fails"] * 3
    ways += {"rename": ["is done and fails"] * 2, "write": ["is short"]}.get(call, [])
    return Plan(call, rng.choice(ways), getattr(errno, rng.choice(ERRNOS)), place, first, count)


def hits(counters: Path) -> tuple[int, str]:
    """How many calls were hit, and the path of the first."""
    content = counters.read_bytes()
    path = content[_NUMBERS.size :].partition(b"\0")[0].decode()
    return _NUMBERS.unpack_from(content)[1], path


def counted(counters: Path) -> Counts:
    """How often a study made each call in each place, but for what it never does."""
    numbers = _NUMBERS.unpack_from(counters.read_bytes())[2:]
    return {
        kind: number
        for kind, number in zip(itertools.product(CALLS, PLACES), numbers, strict=True)
        if number and kind not in [("clock", place) for place in PLACES[1:]]
    }


def build(folder: Path) -> Path | None:
    """Compile the library into a folder; None where that cannot be done."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    library = folder / "failing_disk.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f".{os.getpid()}-{threading.get_ident()}.so"
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(part), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        part.replace(library)
    return library
