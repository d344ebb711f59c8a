"""Charts as Vega-Lite: every number has its place, names are text, pictures are the same every time."""

import dataclasses
import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest
import vl_convert
from chart_samples import BARS, CHARTS, HEAT, HOSTILE, LINES, SPANS, numbers

from autorl.report.pages.chart import Axis, Chart, Line
from autorl.report.pages.vega import _DARK_CELLS, PALETTES, library, picture, spec
from autorl.store.outputs import MARK


def layers(drawn):
    """All layers of a specification that have marks, by the type of the mark."""
    found = []
    for layer in drawn["layer"]:
        found += layers(layer) if "layer" in layer else [(layer["mark"]["type"], layer)]
    return found


def values(drawn, place=0):
    return drawn["layer"][place]["data"]["values"]


@pytest.mark.parametrize("chart", CHARTS.values(), ids=CHARTS)
def test_a_chart_compiles_and_names_of_users_are_text(chart):
    drawn = json.dumps(spec(chart))
    compiled = json.dumps(vl_convert.vegalite_to_vega(drawn, vl_version="6.4"))
    assert "hacked" in compiled
    svg = vl_convert.vegalite_to_svg(drawn)
    if chart is not SPANS:
        assert HOSTILE[:12] in "".join(ElementTree.fromstring(svg).itertext())
    assert "var(--c0)" in svg or chart in (HEAT, SPANS)


def test_a_line_has_its_points_its_interval_and_a_new_path_after_a_gap():
    rows = values(spec(LINES))
    assert [(row["x"], row["y"], row["lo"], row["hi"]) for row in rows if row["s"] == 0] == [
        (1, 1, 0.5, 2), (10, 2, 1, 3), (100, 3, 2, 4),
    ]  # fmt: skip
    assert [row["t"] for row in rows if row["s"] == 1] == ["p", "q", HOSTILE]
    assert [(row["x"], row["g"]) for row in rows if row["s"] == 2] == [
        (1, 0), (10, 0), (50, 1), (100, 1),
    ]  # fmt: skip
    drawn = spec(LINES)
    assert drawn["encoding"]["x"]["scale"]["type"] == "log"
    assert drawn["encoding"]["y"]["scale"]["domainMin"] == 0.0
    kinds = [kind for kind, _ in layers(drawn)]
    assert kinds == ["area", "line", "line", "point"]
    assert layers(drawn)[2][1]["mark"]["interpolate"] == "step-after"


def test_a_chart_of_one_point_or_of_equal_scores_is_drawn_and_of_none_is_an_error():
    for x, y in (([0.0], [3.0]), ([1.0, 2.0], [0.0, 0.0])):
        drawn = spec(Chart("t", "", Axis("x"), Axis("y"), (Line("a", numbers(*x), numbers(*y)),)))
        assert len(values(drawn)) == len(x)
        assert "NaN" not in vl_convert.vegalite_to_svg(drawn)
    with pytest.raises(ValueError, match="at least one mark"):
        spec(Chart("t", "", Axis("x"), Axis("y"), ()))


def test_a_logarithm_has_no_place_for_zero():
    line = Line("a", numbers(0, 1), numbers(1, 2))
    drawn = spec(Chart("t", "", Axis("x", "log"), Axis("y"), (line,)))
    assert "type" not in drawn["encoding"]["x"]["scale"]


def test_bars_and_cells_have_their_numbers_and_gaps_stay_empty():
    bars = values(spec(BARS))
    assert [(bar["name"], bar["x"], bar["lo"], bar["hi"], bar["text"]) for bar in bars] == [
        ("first", 0.75, 0.5, 1, "six"), (HOSTILE, 0.25, 0.125, 0.5, "two"),
    ]  # fmt: skip
    drawn = spec(HEAT)
    assert [(cell["y"], cell["x"], cell["v"]) for cell in values(drawn)] == [
        (0, 0, 0), (0, 1, 0.5), (0, 2, 1), (1, 0, 0.25), (1, 2, 0.75),
    ]  # fmt: skip
    # The first row is on top, and a dot lies where its cells do.
    assert drawn["encoding"]["y"]["scale"] == {
        "zero": False, "nice": False, "domain": [-0.5, 1.5], "reverse": True,
    }  # fmt: skip
    assert [(dot["x"], dot["y"]) for dot in values(drawn, 1)] == [(0.5, 1)]
    spans = values(spec(SPANS))
    assert [(span["i"], span["x"], span["x2"], span.get("v")) for span in spans] == [
        (0, 0, 50, 1), (1, 0, 100, 2), (0, 50, 100, None),
    ]  # fmt: skip


def luminance(color):
    channels = np.array([int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_numbers_in_cells_stand_out_from_every_color():
    cells = dataclasses.replace(HEAT.marks[0], values=np.linspace(0, 1, 101)[:, None])
    names = Axis("", categories=tuple(map(str, range(101))))
    one = Axis("", categories=("x",))
    svg = vl_convert.vegalite_to_svg(spec(Chart("t", "", one, names, (cells,))))
    root = ElementTree.fromstring(re.sub(' xmlns="[^"]+"', "", svg))
    fills = [path.get("fill") for path in root.findall(".//g[@class]/path[@aria-roledescription]")]
    fills = [fill for fill in fills if fill and fill.startswith("rgb")]
    assert len(fills) == 101
    for share, fill in zip(np.linspace(0, 1, 101), fills, strict=True):
        channels = re.findall(r"\d+", fill)
        light = luminance("#" + "".join(f"{int(part):02x}" for part in channels))
        dark = share < _DARK_CELLS
        assert (1.05 / (light + 0.05) if dark else (light + 0.05) / 0.05) >= 4.5, share


@pytest.mark.parametrize("scheme", PALETTES)
def test_text_of_charts_stands_out(scheme):
    palette = PALETTES[scheme]
    for name in ("ink", "text"):
        light, dark = sorted((luminance(palette[name]), luminance(palette["card"])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, name
    assert {*PALETTES["light"]} == {*palette}


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
@pytest.mark.parametrize("chart", CHARTS.values(), ids=CHARTS)
def test_a_picture_is_ours_and_the_same_every_time(chart, suffix):
    first, second = picture(chart, suffix), picture(chart, suffix)
    assert MARK.encode() in first[:4096] + first[-4096:]
    start = {".svg": b"<svg", ".png": b"\x89PNG\r\n\x1a\n", ".pdf": b"%PDF"}[suffix]
    assert first.startswith(start)
    assert b"var(--" not in first
    if suffix != ".pdf":  # whose objects vl-convert numbers anew each time
        assert first == second
    if suffix == ".svg":
        assert chart.title in "".join(ElementTree.fromstring(first).itertext())


def test_a_png_is_read_by_others(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    (tmp_path / "a.png").write_bytes(picture(BARS, ".png"))
    with image.open(tmp_path / "a.png") as opened:
        opened.load()
        assert opened.text["Software"] == MARK
        assert opened.size[0] > 1000


def test_the_library_is_made_once_and_needs_no_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTORL_CACHE", str(tmp_path))
    made = []
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda text: made.append(text) or "code")
    assert [library.__wrapped__(), library.__wrapped__()] == ["code", "code"]
    (kept,) = (tmp_path / "pages").iterdir()
    assert (kept.read_text(), len(made)) == ("code", 1)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AUTORL_CACHE", str(tmp_path / "file"))
    assert library.__wrapped__() == "code"
    assert len(made) == 2
