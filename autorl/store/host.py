"""Tells whether a process that wrote its name down still lives."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path


@cache
def host_identity() -> str:
    """Name the place where a process number means one process.

    It is the host, since it was started, and on Linux the namespace of process numbers: containers
    of one host may have one name, and a restarted one has its name again.
    """
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8])
        parts.append(str(os.stat("/proc/self/ns/pid").st_ino))
    return "-".join(parts)


def lives(pid: int) -> bool:
    """Say whether a process with this number lives here."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is another user's
        pass
    return True
