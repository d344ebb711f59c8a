"""The text that people read of where a proposal comes from."""

from __future__ import annotations

from autorl.types import Change, Proposal


def origin_text(proposal: Proposal) -> str:
    """Say why a proposal was made, and what explore changed.

    For example "exploit member 3, explore x x 1.2".
    """
    if proposal.changes is None:
        return proposal.origin
    changed = ", ".join(_change_text(change) for change in proposal.changes)
    what = f"explore {changed}" if changed else "nothing changed"
    return f"{proposal.origin}, {what}"


def _change_text(change: Change) -> str:
    floats = isinstance(change.old, float) and isinstance(change.new, float)
    if floats and change.old != 0:
        return f"{change.name} x {change.new / change.old:.3g}"
    return f"{change.name} = {change.new}"
