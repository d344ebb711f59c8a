"""Studies with one of everything: no command counts one of a thing as several."""

import re

import pytest
from cli_support import autorl, study_file

# A number, up to two words, and a last one in the plural. "1 configs" is the name of a table.
SEVERAL = re.compile(
    r"(?<![\w.,:/+=-])1 (?!configs\b)(?:(?!(?:of|in|by|on|for|to) )[a-z]+[ -]){0,2}"
    r"(?!(?:is|was|has|does)\b)[a-z]*[a-rt-z]s\b"
)
ONE = {
    "budget": {"runs": 1},
    "seeds": {"tuning": 1, "test": 1},
    "fidelity": {"steps": 1, "evaluations": 1, "episodes": 1},
    "parallelism": 1,
    "test": {"top": 1},
}
HYPERBAND = {
    **ONE,
    "budget": {"runs": 3},
    "fidelity": {"steps": 10, "evaluations": 5},
    "optimizer": {"name": "hyperband", "rungs": 1},
}
PBT = {**HYPERBAND, "optimizer": {"name": "pbt", "population": 2, "generations": 2, "retrain": 1}}


def plain(page):
    """The text of a page, without what draws its charts."""
    text = re.sub(r"<(script|style|svg)\b.*?</\1>", "", page, flags=re.S)
    return re.sub(r"<[^>]*>", "\n", text)


@pytest.mark.parametrize("changes", [ONE, HYPERBAND, PBT], ids=["one", "hyperband", "pbt"])
def test_nothing_is_counted_as_several_where_there_is_one(tmp_path, changes):
    file = study_file(tmp_path, **changes)
    folder = tmp_path / "study"
    said = [autorl("tune", file, "--dry-run").stdout]
    said.append(autorl("tune", file, "--out", folder).output)
    for command in ("watch", "doctor", "best", "report"):
        said.append(autorl(command, folder).output)
    said.append(autorl("watch", folder, "--once").output)
    said.append(autorl("landscape", "info", folder).stdout)
    said.append(plain((folder / "report.html").read_text()))
    assert len(SEVERAL.findall("1 tuning steps; 1 tuning step; 11 runs; 1 pass")) == 1
    assert [line for text in said for line in text.splitlines() if SEVERAL.search(line)] == []
