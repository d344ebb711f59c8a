"""Differences between the sessions of one study.

These are packages, Python, the CPU, this package's code and the user's files. A study's table is
only then that of one uninterrupted run if all sessions computed with the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from autorl.core.plain_text import LONGEST, shortened
from autorl.store.events import Body

_MOST_CHANGES = 4  # named in one line
_DIGITS = 8  # of a hash


def changes(sessions: Sequence[Body]) -> dict[str, tuple[str, ...]]:
    """List the values of what differs between sessions, by name.

    They are in order and without repeats in a row. A fact that one of two sessions did not record
    (a package that was not installed) is not compared.
    """
    facts = [_facts(session) for session in sessions]
    names = dict.fromkeys(name for of_session in facts for name in of_session)
    values = {
        name: tuple(
            value
            for value, _ in groupby(of_session[name] for of_session in facts if name in of_session)
        )
        for name in names
    }
    differing = {name: texts for name, texts in values.items() if len(texts) > 1}
    if "autorl" in differing:  # another version is other code
        differing.pop(OWN_CODE, None)
    return differing


def changes_text(sessions: Sequence[Body]) -> str | None:
    """Name in one line what changed from what to what.

    The result is None where nothing changed.
    """
    differing = [f"{name} {', then '.join(texts)}" for name, texts in changes(sessions).items()]
    if not differing:
        return None
    more = len(differing) - _MOST_CHANGES
    named = differing[:_MOST_CHANGES] + (
        [f"{more} more (study.sqlite has all)"] if more > 0 else []
    )
    return (
        "sessions computed with other code, so one session may give another table: "
        f"{'; '.join(named)}"
    )


OWN_CODE = "autorl's code"


def _facts(session: Body) -> dict[str, str]:
    """Return what can be compared of one session, by name.

    Names and values are short texts.
    """
    own_code = session.get("source", {}).get("sha256") or ""
    facts = {"autorl": session.get("version"), OWN_CODE: own_code[:_DIGITS]}
    facts |= {"Python": session.get("python"), "the CPU": session.get("cpu")}
    facts["threads of a segment"] = session.get("threads")
    facts |= dict(session.get("packages", {}))
    facts |= {name: digest[:_DIGITS] for name, digest in session.get("files", {}).items()}
    return {
        shortened(name, LONGEST): shortened(str(value), LONGEST)
        for name, value in facts.items()
        if value
    }
