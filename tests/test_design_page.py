"""The map of the code names files that are there."""

import re
from pathlib import Path

import pytest

import autorl

ROOT = Path(__file__).parents[1]
PACKAGE = Path(autorl.__file__).parent
PAGES = ("design.md", "decisions.md")
FILE = re.compile(r"`([\w/]+\.py)(?:::\w+)?`")


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_is_there(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = set(FILE.findall(text))
    missing = {name for name in named if not any((top / name).is_file() for top in (PACKAGE, ROOT))}
    assert len(named) > 5
    assert missing == set()
