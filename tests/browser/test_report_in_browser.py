"""Reports as files in a browser that has no network: studies, and plots of their landscapes."""

import subprocess
import sys

import pytest
from looks import charts, check

from autorl.spec import load_spec
from autorl.study import Study

MOST_BYTES = 3_000_000
SPACE = {
    "x": {"type": "float", "lower": 0.0, "upper": 1.0, "changeable": True},
    "rate": {
        "type": "float", "lower": 1e-5, "upper": 1.0, "scale": "log", "changeable": True
    },
    "kind": {"type": "categorical", "choices": ["<b>&", "plain"]},
}  # fmt: skip
COMMON = {
    "trainer": {"name": "synthetic", "kwargs": {"optimum": {"x": 0.7, "rate": 0.01}, "noise": 0.1}},
    "space": SPACE,
    "fidelity": {"steps": 100, "evaluations": 5},
    "executor": {"name": "in_process"},
}
STUDIES = {
    # As many runs as the demo has.
    "demo": {"budget": {"runs": 192}, "seeds": {"tuning": 3, "test": 10}, "optimizer": "tpe"},
    "population": {
        "budget": {"runs": 16},
        "seeds": {"tuning": 2, "test": 5},
        "optimizer": {"name": "pbt", "population": 8, "generations": 5},
    },
}
SCREENS = [
    pytest.param(width, height, mobile, scheme, id=f"{width}-{scheme}")
    for width, height, mobile in ((1280, 800, False), (390, 844, True))
    for scheme in ("light", "dark")
]


def autorl(*arguments):
    command = [sys.executable, "-m", "autorl", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module", params=sorted(STUDIES))
def study(request, tmp_path_factory):
    """A finished study with its report."""
    folder = tmp_path_factory.mktemp("report") / request.param
    spec = load_spec({"name": f"{request.param} <i>&", **COMMON, **STUDIES[request.param]})
    run = Study.create(spec, folder)
    try:
        run.run()
    finally:
        run.close()
    autorl("report", folder)
    return folder


@pytest.mark.parametrize(("width", "height", "mobile", "scheme"), SCREENS)
def test_a_report_is_drawn_whole_and_asks_nobody(browser, study, width, height, mobile, scheme):
    report = study / "report.html"
    assert report.stat().st_size < MOST_BYTES
    with browser.page(width=width, height=height, mobile=mobile, scheme=scheme) as page:
        page.open(report)
        drawn = charts(page)
        assert len(drawn) >= 1
        assert drawn[0]["width"] > 0.8 * min(width, 960)
        check(page, marks=10)
        assert "<i>&" in page.text("h1")
        assert page.requests == [report.as_uri()]
        assert page.problems == []
        # The result is on the first screen.
        assert (
            page.evaluate("document.querySelector('.headline').getBoundingClientRect().bottom")
            < height
        )


def test_a_report_is_readable_on_paper(page, study):
    page.open(study / "report.html")
    page.resize(700, 990)  # pixels of A4 with margins
    page.emulate(media="print")
    assert len(charts(page)) >= 1
    check(page, marks=10)


PLOTS = [["curves"], ["values", "-p", "x"], ["surface", "-p", "x", "-p", "rate"], ["importance"]]

# Where a point of the first line lies, as shares of the area of the plot; of a map, its middle.
POINT = """(() => {
  const plot = document.querySelector(".js-plotly-plot");
  const line = plot._fullData.find((trace) => ["scatter", "bar"].includes(trace.type));
  if (!line?.x?.length) return [0.5, 0.5];
  const middle = Math.floor(line.x.length / 2);
  const share = (axis, value) => axis.d2p(value) / axis._length;
  const { xaxis, yaxis } = plot._fullLayout;
  return [share(xaxis, line.x[middle]), share(yaxis, line.y[middle])];
})()"""


@pytest.mark.parametrize("study", ["demo"], indirect=True)
@pytest.mark.parametrize("kind", PLOTS, ids=[kind[0] for kind in PLOTS])
def test_a_plot_of_a_landscape_is_drawn_and_says_what_is_under_the_pointer(
    page, study, tmp_path, kind
):
    pytest.importorskip("plotly", reason="the extra plots is not installed")
    pytest.importorskip("sklearn", reason="the extra plots is not installed")
    target = tmp_path / "plot.html"
    autorl("landscape", "plot", study, *kind, "--out", target)
    page.open(target)
    page.wait_for("document.querySelector('.main-svg') !== null")
    assert max(chart["marks"] for chart in charts(page)) >= 10
    said = "document.querySelector('.hoverlayer').textContent"
    page.hover(".nsewdrag", *page.evaluate(POINT))
    page.wait_for(said)
    assert page.outside() == []
