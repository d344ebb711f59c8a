"""Makes text of others fit for a message or a terminal.

Imports nothing. Text is cut, and has no control characters.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Collection, Iterable
from difflib import SequenceMatcher, get_close_matches
from itertools import islice

LONGEST = 80  # characters of a foreign value in a message
LONGEST_MESSAGE = 3_000  # characters of a whole message that is stored
MOST_NAMES = 20  # names a message lists

_LINES = "\n\t"
# They change the order in which text is shown.
_BIDIRECTIONAL = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_IRREGULAR = {"are": "is", "have": "has", "were": "was", "do": "does"}
_UNSAFE = re.compile(f"[\x00-\x1f\x7f-\x9f\u2028\u2029{_BIDIRECTIONAL}\ud800-\udfff]")


def printable(text: str, *, keep_lines: bool = True) -> str:
    """Replace control characters by their escapes: no text drives the terminal.

    Args:
        text: from anyone.
        keep_lines: whether line feeds and tabs stay as they are.
    """

    def escaped(match: re.Match[str]) -> str:
        character = match.group()
        if keep_lines and character in _LINES:
            return character
        return character.encode("unicode_escape").decode("ascii")

    return _UNSAFE.sub(escaped, text)


def encodable(text: str) -> str:
    """Replace lone surrogates by their escapes.

    No file and no database takes these halves of characters.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def shortened(text: str, most: int = LONGEST) -> str:
    """Cut text in its middle to at most `most` characters."""
    if len(text) <= most:
        return text
    head = (most - 3) * 2 // 3
    return f"{text[:head]}...{text[len(text) - (most - 3 - head) :]}"


def one_line(value: object, most: int = LONGEST) -> str:
    """Put a text or an error on one line of `most` characters."""
    return shortened(printable(" ".join(str(value).split()), keep_lines=False), most)


def last_line(value: object, most: int = LONGEST) -> str:
    """Return the last line of an error with text, or ""."""
    lines = [line for line in str(value).splitlines() if line.strip()]
    return one_line(lines[-1], most) if lines else ""


def counted(count: float, noun: str, verb: str = "", *, form: str = ".12g") -> str:
    """Write a number with its noun: `2 studies`, `1 row is`.

    Args:
        count: any number.
        noun: for one; its last word is what is counted.
        verb: for many.
        form: how the number is written; `,` separates thousands.
    """
    number = format(count, form)
    # As it is written: a number near 1 may be rounded to it.
    if number == "1":
        singular = _IRREGULAR.get(verb, f"{verb}s")
        return f"1 {noun} {singular}" if verb else f"1 {noun}"
    several = f"{noun[:-1]}ies" if re.search("[^aeiou]y$", noun) else f"{noun}s"
    return f"{number} {several} {verb}".rstrip()


def number(value: float | None) -> str:
    """Write a number for people, with four significant digits.

    Returns:
        A dash for None and NaN.
    """
    if value is None or math.isnan(value):
        return "-"
    # A discount of 0.99996 is not 1.
    digits = 6 if 0.999 < abs(value) < 1 else 4
    # `.4g` alone writes 12,345 as 1.234e+04; a sum with 0 has no negative zero.
    return f"{float(f'{value:.{digits}g}') + 0.0:.10g}"


def all_counted(count: int, noun: str) -> str:
    """Say `all 3 runs`, or `the only run`."""
    return f"the only {noun}" if count == 1 else f"all {counted(count, noun)}"


def listed(names: Collection[str], most: int = MOST_NAMES) -> str:
    """List the first names, each cut, and how many more there are."""
    text = ", ".join(shortened(name) for name in islice(names, most))
    return text if len(names) <= most else f"{text} and {len(names) - most:,} more"


def one_of(name: object, allowed: Iterable[str], label: str = "allowed") -> str:
    """List what is allowed, after the names that are near.

    A long list is cut to its nearest names, and is shown only where no name is near enough to be
    meant.
    """
    names = list(map(str, allowed))
    question = did_you_mean(name, names)
    if len(names) > MOST_NAMES:
        names.sort(key=lambda near: -SequenceMatcher(None, str(name), near).ratio())
        if question:
            return question
    return f"{question or ';'} {label}: {listed(names) or 'none'}"


def did_you_mean(name: object, allowed: Iterable[str], where: str = "") -> str:
    """Say at the end of a message which allowed names are near.

    Args:
        name: what the user wrote.
        allowed: every name that would have been right.
        where: what is said where no name is near.

    Returns:
        `; did you mean 'x' or 'y'?` with the nearest three at most, best first.
    """
    names = list(map(str, allowed))
    # `lr` is near to `learning_rate` by no measure of letters.
    parts = {full: re.split("[_.]", full) for full in names if "_" in full}
    initials = [full for full in parts if name == "".join(part[:1] for part in parts[full])]
    matches = initials or get_close_matches(str(name), names, n=3, cutoff=0.6)
    if not matches:
        return f"; {where}" if where else ""
    return f"; did you mean {' or '.join(map(repr, matches[:3]))}?"


def shown(value: object, most: int = LONGEST) -> str:
    """Show a value in a message: its `repr` on one line, cut."""
    if isinstance(value, str):
        return repr(shortened(value, most))
    return shortened(printable(_SHORT.repr(value), keep_lines=False), most)


class _Short(reprlib.Repr):
    """The usual `repr` of small values, without writing large ones out first."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = 12
        self.maxstring = self.maxother = self.maxlong = LONGEST


_SHORT = _Short()
