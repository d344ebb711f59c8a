"""Figures: what is drawn is what the charts say, files are reproducible and complete, missing libraries are named."""

import dataclasses
import json
import re
import sys

import numpy as np
import pytest
from analysis_samples import SPACE, write_sample

from autorl.landscapes import analysis
from autorl.landscapes.analysis._chart import Axis, Bars, Chart, HeatMap, Line
from autorl.landscapes.analysis.kinds import chart_of
from autorl.landscapes.analysis.plots import STATIC, figure_of, interactive, save
from autorl.types import InputError

LINES = Chart(
    "Lines",
    "about",
    Axis("x", "log"),
    Axis("y", limits=(0.0, 4.0)),
    (
        Line(
            "a",
            np.array([1.0, 10, 100]),
            np.array([1.0, 2, 3]),
            (np.array([0.5, 1, 2]), np.array([2.0, 3, 4])),
        ),
        Line(
            "b",
            np.array([1.0, 10, 100]),
            np.array([3.0, 2, 1]),
            None,
            ("p", "q", "r"),
            "^",
            joined=False,
            muted=True,
        ),
    ),
)
BARS = Chart(
    "Bars",
    "about",
    Axis("share"),
    Axis("", categories=("first", "second")),
    (Bars(np.array([0.75, 0.25]), (np.array([0.5, 0.125]), np.array([1.0, 0.5])), ("six", "two")),),
)
REGRET = "regret (0 = its own best, 1 = the worst)"
HEAT = Chart(
    "Heat",
    "about",
    Axis("x", categories=("p", "q", "r")),
    Axis("y", categories=("u", "v")),
    (
        HeatMap(
            np.array([[0.0, 0.5, 1.0], [0.25, np.nan, 0.75]]), REGRET, (0.0, 1.0), annotate=True
        ),
    ),
)


def _names(axis):
    """Labels of categories: those of a number axis may lie outside the limits, where they are not drawn."""
    return axis.get_ticklabels() if "FixedLocator" in str(axis.get_major_locator()) else []


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    unit = SPACE.hyperparameters["learning_rate"].to_unit
    data = write_sample(
        tmp_path_factory.mktemp("plots") / "a", lambda c: 100 * unit(c["learning_rate"]), configs=24
    )
    return analysis.analyse(data, "values", ["learning_rate"])


@pytest.mark.parametrize(
    ("module", "draw", "name"),
    [
        ("matplotlib.figure", figure_of, "matplotlib"),
        ("plotly.graph_objects", interactive, "plotly"),
    ],
)
def test_a_missing_library_is_named(answer, monkeypatch, module, draw, name):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"needs {name}: pip install 'autorl\[plots\]'"):
        draw(answer)


def test_a_wrong_file_is_named(answer, tmp_path):
    with pytest.raises(InputError, match=r"ends in .png, .svg, .pdf, .html; got 'a.gif'"):
        save(answer, tmp_path / "a.gif")
    with pytest.raises(InputError, match="no such folder"):
        save(answer, tmp_path / "nowhere" / "a.png")


class TestStatic:
    @pytest.fixture
    def draw(self):
        figure = pytest.importorskip("matplotlib.figure", reason="the extra plots is not installed")
        from autorl.landscapes.analysis._static import draw

        return lambda chart: draw(chart, figure.Figure).axes[0]

    def test_lines(self, draw):
        axes = draw(LINES)
        assert axes.get_xscale() == "log"
        assert axes.get_ylim() == (0.0, 4.0)
        assert axes.lines[0].get_ydata().tolist() == [1, 2, 3]
        band = axes.collections[0].get_paths()[0].vertices[:, 1]
        assert (band.min(), band.max()) == (0.5, 4.0)
        assert axes.lines[1].get_linestyle() == "None"
        assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("x", "y")

    def test_bars(self, draw):
        axes = draw(BARS)
        assert [bar.get_width() for bar in axes.patches] == [0.75, 0.25]
        assert [tick.get_text() for tick in axes.get_yticklabels()] == ["first", "second"]
        assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first on top
        ends = [segment[:, 0].tolist() for segment in axes.collections[0].get_segments()]
        assert ends == [[0.5, 1.0], [0.125, 0.5]]
        assert [text.get_text() for text in axes.texts] == ["six", "two"]

    def test_heat_map(self, draw):
        axes = draw(HEAT)
        shown = axes.images[0].get_array()
        assert np.ma.filled(shown, np.nan)[0].tolist() == [0.0, 0.5, 1.0]
        assert bool(np.isnan(np.ma.filled(shown, np.nan)[1, 1]))
        assert axes.images[0].get_clim() == (0.0, 1.0)
        assert [text.get_text() for text in axes.texts] == ["0.00", "0.50", "1.00", "0.25", "0.75"]
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["p", "q", "r"]

    def test_dots_on_a_heat_map(self, draw):
        dots = Line("dot", np.array([0.5]), np.array([1.0]), marker="o", joined=False)
        axes = draw(dataclasses.replace(HEAT, marks=(*HEAT.marks, dots)))
        assert [line.get_xydata().tolist() for line in axes.lines] == [[[0.5, 1.0]]]

    def test_all_text_lies_inside_the_figure(self, draw, answer):
        for chart in (LINES, BARS, HEAT, chart_of(answer)):
            figure = draw(chart).figure
            figure.draw_without_rendering()
            width, height = figure.bbox.size
            axes = figure.axes[0]
            named = [
                label for axis in (axes.xaxis, axes.yaxis) for label in (axis.label, *_names(axis))
            ]
            for text in [
                *figure.texts,
                *named,
                *axes.texts,
                *(each.yaxis.label for each in figure.axes),
            ]:
                if text.get_text():
                    box = text.get_window_extent()
                    where = (chart.title, text.get_text())
                    assert -1 <= box.x0 <= box.x1 <= width + 1, where
                    assert -1 <= box.y0 <= box.y1 <= height + 1, where

    @pytest.mark.parametrize("suffix", STATIC)
    def test_a_file_is_the_same_every_time(self, answer, tmp_path, suffix):
        pytest.importorskip("matplotlib", reason="the extra plots is not installed")
        written = [save(answer, tmp_path / f"{n}{suffix}") for n in (1, 2)]
        assert written[0].read_bytes() == written[1].read_bytes()
        starts = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
        assert written[0].read_bytes().startswith(starts[suffix])


class TestInteractive:
    @pytest.fixture
    def draw(self):
        plotly = pytest.importorskip(
            "plotly.graph_objects", reason="the extra plots is not installed"
        )
        from autorl.landscapes.analysis._interactive import draw

        return lambda chart: json.loads(draw(chart, plotly).to_json())

    def test_lines(self, draw):
        figure = draw(LINES)
        band, first, second = figure["data"]
        assert figure["layout"]["xaxis"]["type"] == "log"
        assert figure["layout"]["yaxis"]["range"] == [0, 4]
        assert (first["x"], first["y"], first["mode"]) == ([1, 10, 100], [1, 2, 3], "lines")
        assert band["y"] == [2, 3, 4, 2, 1, 0.5]  # up along the high end, back along the low one
        assert band["mode"] == "none"  # its corners are no points
        assert second["mode"] == "markers"
        assert second["text"] == ["p<br>3", "q<br>2", "r<br>1"]
        assert "Lines" in figure["layout"]["title"]["text"]

    def test_bars(self, draw):
        figure = draw(BARS)
        (bars,) = figure["data"]
        assert bars["x"] == [0.75, 0.25]
        assert (bars["error_x"]["array"], bars["error_x"]["arrayminus"]) == (
            [0.25, 0.25],
            [0.25, 0.125],
        )
        assert figure["layout"]["yaxis"]["ticktext"] == ["first", "second"]
        assert figure["layout"]["yaxis"]["autorange"] == "reversed"

    def test_heat_map(self, draw):
        (heat,) = draw(HEAT)["data"]
        assert heat["z"] == [[0, 0.5, 1], [0.25, None, 0.75]]
        assert (heat["zmin"], heat["zmax"]) == (0, 1)
        assert heat["customdata"][1][2] == "v, r"

    def test_dots_on_a_heat_map(self, draw):
        dots = Line("dot", np.array([0.5]), np.array([1.0]), names=("a",), marker="o", joined=False)
        heat, drawn = draw(dataclasses.replace(HEAT, marks=(*HEAT.marks, dots)))["data"]
        assert heat["type"] == "heatmap"
        assert (drawn["mode"], drawn["x"], drawn["y"]) == ("markers", [0.5], [1.0])

    def test_the_file_is_complete_and_needs_no_network(self, answer, tmp_path):
        pytest.importorskip("plotly", reason="the extra plots is not installed")
        text = save(answer, tmp_path / "a.html").read_text()
        assert len(text) > 1_000_000  # plotly.js is in it
        tags = re.findall(r"<(?:script|link|img|iframe)\b[^>]{0,200}>", text[:2000] + text[-20000:])
        assert tags
        assert [tag for tag in tags if "src=" in tag or "href=" in tag] == []
        assert "Plotly.newPlot" in text
        assert "Scores by value of learning_rate" in text
        assert save(answer, tmp_path / "b.html").read_text() == text
