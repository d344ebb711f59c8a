"""How many of a study's proposals are its model's, read from its stored events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autorl.optimizers import find
from autorl.optimizers.model_share import ModelShare, model_share
from autorl.spec import Spec
from autorl.store import codec
from autorl.types import InputError

Query = Callable[..., list[tuple[Any, ...]]]


def study_share(query: Query) -> ModelShare | None:
    """Counted from the study's events; None where an earlier version made some, which did not record it."""
    rows = query("SELECT body FROM event WHERE kind = 'proposed' ORDER BY seq")
    bodies = [codec.loads(text) for (text,) in rows]
    if any("informed" not in body for body in bodies):
        return None
    return model_share(codec.read_proposed(body).proposal for body in bodies)


def optimizer_learns(spec: Spec) -> bool:
    """Whether the study's optimizer is one that has a model; False where a user's own class is not there to ask."""
    try:
        return find(spec.optimizer.name).learns
    except InputError:  # a study is read where it was not made
        return False


def search_ended(query: Query) -> bool:
    """Whether the search is over, so that its counts are final."""
    return bool(query("SELECT 1 FROM event WHERE kind IN ('frozen', 'finished') LIMIT 1"))
