"""The report of a landscape: its charts, its texts escaped, its size."""

import json
import re
import shutil

import pytest

from autorl.landscapes import find_landscape, load_landscape
from autorl.report.landscape_page import landscape_html
from autorl.report.page.document import script

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
    # On the surface, in the drawing for wide windows and in that for narrow ones.
    assert text.count('class="spot"') == 2 * len(data.grid.config_ids)
    best = data.best()
    assert f"Configuration {best.config_id} is best" in text
    assert f"<b>{best.test:.6g}</b>" in text
    assert len(text.encode()) < MOST_BYTES
    assert "http-equiv" in text
    assert not re.search(r'(src|href)="(?!#)', text)


def test_text_of_a_landscape_is_escaped(folder, tmp_path):
    copy = tmp_path / "hostile"
    shutil.copytree(folder, copy)
    file = copy / "manifest.json"
    manifest = json.loads(file.read_text(encoding="utf-8"))
    hostile = "<script>alert(1)</script>"
    manifest |= {"description": hostile, "notes": [hostile], "citation": hostile}
    file.write_text(json.dumps(manifest), encoding="utf-8")
    text = landscape_html(load_landscape(copy))
    assert text.count("<script") == 1
    assert f"<script>{script()}</script>" in text
    assert text.count("&lt;script&gt;alert(1)") == 3
