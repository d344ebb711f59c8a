"""What docs/embedding.md shows runs."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "embedding.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_runs_as_a_program(number, capsys):
    code = compile(BLOCKS[number], f"block {number} of {PAGE.name}", "exec")
    exec(code, {"__name__": "__main__"})
    said = capsys.readouterr()
    assert "raised" not in said.err
    assert bool(said.out) == ("print(" in BLOCKS[number] and "class" not in BLOCKS[number])


def test_the_page_has_a_block_for_each_part():
    assert len(BLOCKS) == 4
