"""Checkpoints that are one JSON file, of trainers without an agent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autorl.plain_values import plain
from autorl.store.checkpoints import writing
from autorl.trainers._shared import check_reached
from autorl.types import Checkpoint, Segment

_FILE = "state.json"


def save_state(segment: Segment, step: int, further: Mapping[str, object]) -> Checkpoint:
    """Write the step, the configuration and what else a trainer continues from."""
    state = {"step": step, "config": plain(segment.config), **further}
    with writing(segment) as folder:
        # Sorted, so that the same state has the same hash in the log of the study.
        (folder / _FILE).write_text(json.dumps(state, sort_keys=True), encoding="utf-8")
    return Checkpoint(segment.id, segment.folder)


def parent_state(segment: Segment) -> dict[str, Any] | None:
    """Read the checkpoint that a segment continues from, None from scratch.

    Raises:
        InputError: it was saved at another step.
    """
    if segment.parent is None:
        return None
    text = (Path(segment.parent.path) / _FILE).read_text(encoding="utf-8")
    state: dict[str, Any] = json.loads(text)
    check_reached(segment, state["step"])
    return state
