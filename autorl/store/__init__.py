"""The study folder: an event log, tables derived from it, and checkpoints.

The log is append-only and lies in SQLite.
"""

from autorl.store.store import Recorded, Store

__all__ = ["Recorded", "Store"]
