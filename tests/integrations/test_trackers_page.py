"""The study file that docs/trackers.md shows is valid."""

import importlib.util
import re
from pathlib import Path

import pytest
import yaml

from autorl.study.callbacks import SHORT_NAMES, check_callbacks, make_callbacks
from autorl.study.spec import load_spec

PAGE = Path(__file__).parents[2] / "docs" / "trackers.md"
BLOCKS = [
    yaml.safe_load(block)
    for block in re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
]


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_names_a_tracker_and_its_arguments(number):
    spec = load_spec(BLOCKS[0] | BLOCKS[number])
    for entry in spec.callbacks:
        name = entry if isinstance(entry, str) else next(iter(entry))
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}")
    check_callbacks(spec)
    made = make_callbacks(spec)
    assert [type(tracker).__module__.split(".")[-1] for tracker in made] == [name]


def test_the_page_shows_every_tracker():
    trackers = [path for path in SHORT_NAMES.values() if ".trackers." in path]
    assert len(BLOCKS) == len(trackers) + 1
    text = PAGE.read_text(encoding="utf-8")
    assert all(path.split(":")[1] in text for path in trackers)
