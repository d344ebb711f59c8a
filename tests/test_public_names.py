"""The page of public names and the modules it names say the same."""

import importlib
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")


def names_by_module(page):
    """The names in the first column of each section's table; a section is headed by its module."""
    sections = re.split(r"^## `([\w.]+)`$", page, flags=re.MULTILINE)[1:]
    tables = zip(sections[::2], sections[1::2], strict=True)
    return {
        module: [
            name
            for row in re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE)
            for name in re.findall(r"`(\w+)`", row)
        ]
        for module, text in tables
    }


LISTED = names_by_module(PAGE)


def test_the_page_lists_the_front_doors():
    assert {"autorl", "autorl.trainers", "autorl.optimizers", "autorl.testing"} <= set(LISTED)
    core = [
        name for module, names in LISTED.items() if "statistics" not in module for name in names
    ]
    assert 40 <= len(core) <= 70


@pytest.mark.parametrize("module", LISTED)
def test_a_section_is_what_its_module_exports(module):
    """`autorl.types` exports nothing by name: there, what is listed must be defined."""
    names = LISTED[module]
    home = importlib.import_module(module)
    assert len(names) == len(set(names))
    if hasattr(home, "__all__"):
        assert sorted(names) == sorted(home.__all__)
    else:
        assert [name for name in names if getattr(home, name).__module__ != module] == []


def test_the_check_reads_several_names_of_a_row():
    page = "## `a.b`\n\n| name | what |\n| --- | --- |\n| `x`, `Y` | not `z` |\n"
    assert names_by_module(page) == {"a.b": ["x", "Y"]}
