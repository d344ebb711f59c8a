"""Bodies of events that earlier versions wrote, as this version writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Body = Mapping[str, Any]


def upgraded(kind: str, body: Body) -> Body:
    """Add to the body of an event what its version did not record, and could only mean one thing.

    What is in the log stays as it is: hashes are taken over it. A body of this version comes back
    unchanged.
    """
    change = _CHANGES.get(kind)
    return body if change is None else change(body)


def _proposed(body: Body) -> Body:
    # Which proposals were informed was not recorded at first: nothing but counts depends on it,
    # and those ask the table `standing`, which knows that it is not known.
    return {"informed": False, **body}


def _outcome(body: Body) -> Body:
    return {"checkpoint_files": {}, **body}  # then files are not compared with what was saved


def _candidates(body: Body) -> Body:
    """Candidates had no step at first, then no end: test runs were whole."""
    rows = [(*row, None, None)[:4] for row in body["candidates"]]
    return {**body, "candidates": rows}


_CHANGES = {
    "proposed": _proposed,
    "outcome": _outcome,
    "frozen": _candidates,
    "models": _candidates,
}
