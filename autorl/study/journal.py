"""The journal of a study: its log, and the state that follows."""

from __future__ import annotations

import sys
from collections.abc import Callable

from autorl.core.types import StudyError
from autorl.store import Store
from autorl.store.events import SearchGivenUp, StudyEvent


class Journal:
    """Records events, and applies them to the parts of a study's state.

    A running study and one that is resumed change by the same calls: `record` makes an event
    durable before it applies it, and a resumed study applies what was recorded.

    Attributes:
        store: holds the log.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._parts: list[Callable[[StudyEvent], None]] = []

    def subscribe(self, apply: Callable[[StudyEvent], None]) -> None:
        """Have `apply` called with every event from now on.

        It is called after those who came before.
        """
        self._parts.append(apply)

    def record(self, event: StudyEvent) -> None:
        """Append an event to the log, then apply it.

        Raises:
            StudyError: it could not be made durable: nothing has changed.
        """
        # Durable first: what a kill between the two lines loses, nobody has acted on. In a batch
        # nobody acts on it before the end.
        self.store.append(event)
        self.apply(event)

    def give_up(self, why: str) -> StudyError:
        """Record that the study cannot go on, and make the error.

        Nothing has succeeded in it, so that a script or a study file is at fault.
        """
        self.record(SearchGivenUp(why))
        return StudyError(
            f"{why}; mend it, then `autorl resume` goes on with the study, or the same "
            "`autorl tune` as before begins it anew"
        )

    def apply(self, event: StudyEvent) -> None:
        """Bring every part up to date with an event in the log."""
        for apply in self._parts:
            apply(event)


def say(line: str) -> None:
    """Tell whoever runs the study at once.

    It is told even if no progress was asked for.
    """
    print(f"autorl: {line}", file=sys.stderr, flush=True)
