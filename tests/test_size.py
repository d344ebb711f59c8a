"""Ceilings of the house: lines of code, entries of the package, docstrings that are hard to read.

A change that needs more room takes it from another place; a change that needs less lowers the ceiling.
"""

from pathlib import Path

import pytest
from test_floors import house

ROOT = Path(__file__).parents[1]
CODE = {"autorl": 61_650, "tests": 55_190}  # lines
HEADLESS = {"autorl": 0.5, "tests": 0.5}  # % of docstrings
ENTRIES = 14


@pytest.fixture(scope="module")
def sizes():
    totals = {tree: house.Counts() for tree in CODE}
    for tree, total in totals.items():
        for path in sorted((ROOT / tree).rglob("*.py")):
            total.add(house.File(path, ROOT / tree).count())
    return totals


@pytest.mark.parametrize("tree", CODE)
def test_a_tree_has_no_more_code_than_its_ceiling(sizes, tree):
    assert 0 < sizes[tree].code <= CODE[tree]


@pytest.mark.parametrize("tree", HEADLESS)
def test_docstrings_are_sentences(sizes, tree):
    share = 100 * sizes[tree].number("headless") / len(sizes[tree].first_lines)
    assert round(share, 1) <= HEADLESS[tree]


def test_a_newcomer_can_list_the_package():
    names = [
        path.name
        for path in (ROOT / "autorl").iterdir()
        if not path.name.startswith(("_", ".")) and (path.is_dir() or path.suffix == ".py")
    ]
    assert len(names) <= ENTRIES
