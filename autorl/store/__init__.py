"""The study folder: an append-only event log in SQLite, tables derived from it, and checkpoints."""

from autorl.store.store import Recorded, Store

__all__ = ["Recorded", "Store"]
