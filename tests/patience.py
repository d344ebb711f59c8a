"""Waiting for other processes: no test fails because a machine is busy."""

import time

PATIENCE = 900.0  # seconds until a test gives up on something that should come at once
FOREVER = (
    7200.0  # seconds that something hangs which a test must end: longer than anybody waits for it
)


def wait_until(look, seconds=PATIENCE):
    """Return `look()` once it is true; files that are missing or half written count as not yet."""
    end, pause = time.monotonic() + seconds, 0.01
    while time.monotonic() < end:
        try:
            found = look()
        except (FileNotFoundError, ValueError):
            found = None
        if found:
            return found
        time.sleep(pause)
        pause = min(1.2 * pause, 0.1)  # a look may read all of /proc
    raise AssertionError(f"nothing happened in {seconds:g} seconds")
