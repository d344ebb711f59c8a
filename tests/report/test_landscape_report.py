"""The report of a landscape: its charts, its texts escaped, its size."""

import json
import re
import shutil

import pytest

from autorl.core.plain_text import number
from autorl.landscapes import find_landscape, load_landscape
from autorl.report.landscape_page import landscape_html

MOST_BYTES = 3_000_000


@pytest.fixture(scope="module")
def folder():
    path = find_landscape("trl/rloo/letters-goldproxy")
    if path is None:
        pytest.skip("no landscapes come with this installation")
    return path


def test_the_report_draws_what_the_landscape_can_answer(folder):
    data = load_landscape(folder)
    text = landscape_html(data)
    charts = set(re.findall(r'data-chart="([^"]*)"', text))
    assert {
        "importance",
        "surface",
        "dependence",
        "interaction",
        "parallel",
        "slice",
        "curves",
        "budget",
        "over-time",
        "tunability",
        "proxy",
    } <= charts
    best = data.best()
    assert f"Configuration {best.config_id} is best" in text
    assert f'<p class="value">{number(best.test)}</p>' in text
    assert len(text.encode()) < MOST_BYTES
    assert "http-equiv" in text
    asked = re.sub(r"<(script|style)>.*?</\1>", "", text, flags=re.DOTALL)
    assert not re.search(r'(src|href)="(?!#|data:,")', asked)


def test_text_of_a_landscape_is_escaped(folder, tmp_path):
    copy = tmp_path / "hostile"
    shutil.copytree(folder, copy)
    file = copy / "manifest.json"
    manifest = json.loads(file.read_text(encoding="utf-8"))
    hostile = "<script>alert(1)</script>"
    manifest |= {"description": hostile, "notes": [hostile], "citation": hostile}
    file.write_text(json.dumps(manifest), encoding="utf-8")
    text = landscape_html(load_landscape(copy))
    assert text.count("<script") == 2  # the library and our own
    assert text.count("&lt;script&gt;alert(1)") == 3
