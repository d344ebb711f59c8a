"""Pages: text of anyone is escaped, nothing but their own scripts may run, tables know their numbers."""

import hashlib
import html
import json
import re
from base64 import b64encode

import pytest
from chart_samples import CHARTS, HOSTILE

from autorl.core.types import InputError
from autorl.report.pages.document import (
    Bar,
    Code,
    Figure,
    Headline,
    Link,
    Live,
    Row,
    Section,
    Table,
    Text,
    page,
    parts,
    tried,
)
from autorl.report.pages.vega import library, spec

EVIL = "<script>alert(1)</script>\x1b[31m\u202e'\"&"
BLOCKS = [
    Headline(EVIL, EVIL, EVIL),
    Text(EVIL, "caution", (EVIL,)),
    Bar(0.5),
    Code(EVIL),
    Table((EVIL, "n"), [(EVIL, 1), (Link(EVIL, "/x"), 2)], sortable=True, best=EVIL),
    Row([Figure(chart, name, (EVIL,)) for name, chart in CHARTS.items()]),
]


@pytest.fixture(scope="module")
def written():
    return page(EVIL, EVIL, [Section("a", EVIL, BLOCKS), Section("b", "empty", [])])


def test_text_of_anyone_is_text(written):
    scripts = re.findall(r"<script>(.*?)</script>", written, re.DOTALL)
    assert len(scripts) == written.count("<script") == 2
    rest = re.sub(r"<script>.*?</script>", "", written, flags=re.DOTALL)
    assert "alert(1)" in rest
    assert not {"\x1b", "\u202e"} & set(rest)
    assert "\\x1b[31m" in rest
    assert 'id="b"' not in rest  # without blocks it is left out


def test_the_policy_names_the_scripts_and_allows_nothing_else(written):
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', written)
    scripts = re.findall(r"<script>(.*?)</script>", written, re.DOTALL)
    assert scripts[0] == library()
    hashes = [b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{name}'" for name in hashes)
    assert html.unescape(policy) == (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        f"form-action 'none'; script-src {allowed}"
    )
    tags = re.sub(r"<(script|style)>.*?</\1>", "", written, flags=re.DOTALL)
    assert not re.search(r'(src|href)="(?!#|data:,|/x")', tags)
    assert page(EVIL, EVIL, [Section("a", EVIL, BLOCKS)]) == written


def test_a_figure_holds_its_specification(written):
    drawings = re.findall(r"data-spec='([^']*)'", written)
    assert [json.loads(html.unescape(text)) for text in drawings] == [
        spec(chart) for chart in CHARTS.values()
    ]
    assert HOSTILE in json.loads(drawings[1])["layer"][0]["data"]["values"][1]["name"]


def test_a_served_page_asks_for_its_files_and_has_no_script_of_its_own():
    served = page("t", "", [Section("a", "", [Text("b")])], Live("/study/1", 0.5))
    assert re.findall(r'(?:src|href)="([^"]*)"', served) == [
        "data:,", "/page.css", "/vega.js", "/page.js", "/",
    ]  # fmt: skip
    assert "<style" not in served
    assert 'data-base="/study/1" data-seconds="0.5"' in served


def test_a_part_is_named_by_its_content():
    sections = [Section("a", "A", [Text("one")], half=True), Section("b", "B", [Text("two")])]
    before = parts(sections)
    assert [(place, kind) for place, kind, _, _ in before] == [
        ("parts", "bare"), ("a", "half"), ("b", "whole"),
    ]  # fmt: skip
    after = parts([sections[0], Section("b", "B", [Text("other")])])
    assert [one[2] == other[2] for one, other in zip(before, after, strict=True)] == [
        True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cells", "numeric"),
    [
        (["1", "-2.5", "1,000", "1e-05", "3 *", "-", ""], True),
        (["1", "[1, 2]"], False),
        (["tpe"], False),
    ],
)
def test_columns_of_numbers_are_known(cells, numeric):
    assert Table(("a",), [(cell,) for cell in cells]).numeric == [numeric]


def test_what_cannot_be_drawn_says_why():
    def fail():
        raise InputError("too few")

    assert tried(fail, "importance") == [Text("importance: too few.", "note")]
