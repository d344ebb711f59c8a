"""Counts of `benchmarks/house.py`, on a file that has one of everything."""

import house
import pytest

CODE = '''"""A module."""

import os


def f(a: Any, *names: str, table: dict[str, Any] | None = None) -> None:
    """Says this; and that."""
    import json
    from autorl.core.types import Config
    x, y = 1, 2
    x, y = y, x
    found = [one for one in names]
    g(x if y else 2, h(a) if a else f"{a if y else x}")
    z = x if y else g(x)


class A:
    """Reads a very long first line of text that has more than twelve words in it."""

    def _method(self, value: int) -> int:
        return value  # a comment


def _once() -> None:
    """Say whether it is known.

    None where it is not. What is it?
    """


def _twice() -> None:
    _once()
    _twice()
    _twice()
'''


@pytest.fixture
def counts(tmp_path):
    (tmp_path / "room").mkdir()
    path = tmp_path / "room" / "file.py"
    path.write_text(CODE + "long = " + "9" * 95 + "\nlong = 1  # " + "9" * 95 + "\n")
    return house.measure(tmp_path)["room"]


@pytest.mark.parametrize(
    ("measure", "number"),
    [
        ("Any", 2),
        ("semicolon", 1),
        ("words", 1),
        ("headless", 1),
        ("vague", 2),
        ("tuple", 1),
        ("swap", 1),
        ("nested if", 3),
        ("import", 2),
        ("own import", 1),
        ("one-use", 1),
        ("long code", 1),
        ("long comment", 1),
        ("long docstring", 0),
    ],
)
def test_each_measure_counts_its_places(counts, measure, number):
    assert counts.number(measure) == number


def test_totals_are_of_all_functions_and_names(counts):
    assert (counts.parameters, counts.private, counts.comments) == (4, 2, 2)
    assert counts.assigned == 9


def test_a_long_docstring_is_no_long_code(tmp_path):
    (tmp_path / "a.py").write_text(f'"""{"word " * 25}"""\n')
    assert house.measure(tmp_path)["a"].number("long docstring") == 1
    assert house.measure(tmp_path)["a"].number("long code") == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Reads a file.", True), ("Searches.", True), ("The mean.", False), ("`x` as y.", False)],
)
def test_verbs_are_told_from_nouns(text, expected):
    assert house.begins_with_verb(text) is expected
