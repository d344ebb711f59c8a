"""Reports as files in a browser that has no network: every kind of report, and plots of landscapes."""

import subprocess
import sys

import pytest
from looks import charts, check
from pointing import (
    choose_in_every_legend,
    point_at_every_chart,
    sort_first_table,
    wait_until_drawn,
)

from autorl.landscapes import find_landscape, load_landscape
from autorl.report.html import report_html
from autorl.report.landscape_page import landscape_html
from autorl.report.reading import open_view
from autorl.report.studies import compare_studies, comparison_html
from autorl.study import Study
from autorl.study.spec import load_spec

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
    "random": {"budget": {"runs": 16}, "seeds": {"tuning": 2, "test": 5}, "optimizer": "random"},
    "plotted": {"budget": {"runs": 40}, "seeds": {"tuning": 2, "test": 2}, "optimizer": "sobol"},
    "sobol": {"budget": {"runs": 16}, "seeds": {"tuning": 2, "test": 5}, "optimizer": "sobol"},
}
OF_A_STUDY = {"incumbent", "curves", "seeds", "parallel", "slice"}
OF_A_FOREST = {"importance", "surface"}
UPDATE = "loss grad_norm entropy reward reward_std length clip_fraction approx_kl"
OF_AN_UPDATE = {f"train_{name}" for name in UPDATE.split()}
CHARTS = {
    "demo": OF_A_STUDY | OF_A_FOREST,
    "population": OF_A_STUDY | {"lineage", "values-by-step"},  # too few for a forest
    "landscape": {
        *OF_A_FOREST, "dependence", "interaction", "parallel", "slice", "curves", "budget",
        "over-time", "tunability", "proxy",
    },
    "comparison": {"seeds", "curves", "cost"},
    "rlhf": OF_A_STUDY | {"proxy"} | OF_AN_UPDATE,
}  # fmt: skip
LANDSCAPE = "trl/rloo/letters-goldproxy"
RLHF = (
    "trl/rloo --env letters-goldproxy --runs 4 --steps 8 --set seeds.tuning=1 --set seeds.test=2"
    " --set optimizer=random --set fidelity.evaluations=2 --set executor.name=in_process -q"
)
SCREENS = [
    pytest.param(width, height, mobile, scheme, id=f"{width}-{scheme}")
    for width, height, mobile in ((1280, 800, False), (390, 844, True))
    for scheme in ("light", "dark")
]


def autorl(*arguments):
    command = [sys.executable, "-m", "autorl", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def finished(folder, kind):
    """Run a study of `STUDIES` in a folder."""
    run = Study.create(load_spec({"name": f"{kind} <i>&", **COMMON, **STUDIES[kind]}), folder)
    try:
        run.run()
    finally:
        run.close()
    return folder


def report_of(folder):
    view = open_view(folder)
    try:
        return report_html(view)
    finally:
        view.close()


def html_of(kind, folder):
    """Write the report of a kind."""
    if kind in ("demo", "population"):
        return report_of(finished(folder / kind, kind))
    if kind == "comparison":
        names = ("random", "sobol")
        return comparison_html(
            compare_studies([finished(folder / f"{name} <i>&", name) for name in names])
        )
    if kind == "rlhf":
        pytest.importorskip("trl", reason="the extra rlhf is not installed")
        autorl("tune", *RLHF.split(), "--out", folder / "rlhf")
        return report_of(folder / "rlhf")
    path = find_landscape(LANDSCAPE)
    if path is None:
        pytest.skip("no landscapes come with this installation")
    return landscape_html(load_landscape(path))


@pytest.fixture(scope="module", params=sorted(CHARTS))
def report(request, tmp_path_factory):
    """A kind of report, and the file."""
    folder = tmp_path_factory.mktemp("report")
    path = folder / f"{request.param}.html"
    path.write_text(html_of(request.param, folder), encoding="utf-8")
    return request.param, path


@pytest.mark.parametrize(("width", "height", "mobile", "scheme"), SCREENS)
def test_a_report_is_drawn_whole_and_asks_nobody(browser, report, width, height, mobile, scheme):
    kind, path = report
    assert path.stat().st_size < MOST_BYTES
    with browser.page(width=width, height=height, mobile=mobile, scheme=scheme) as page:
        page.open(path)
        wait_until_drawn(page)
        drawn = charts(page)
        assert len(drawn) >= len(CHARTS[kind])
        assert max(chart["width"] for chart in drawn) > 0.4 * min(width + 300, 1280)
        check(page, marks=5)
        assert kind in ("landscape", "rlhf") or "<i>&" in page.text("h1")
        assert page.requests == [path.as_uri()]
        assert page.problems == []
        # The result is on the first screen.
        bottom = page.evaluate("document.querySelector('.headline').getBoundingClientRect().bottom")
        assert bottom < height


@pytest.mark.parametrize(("width", "height", "mobile", "scheme"), [SCREENS[0], SCREENS[3]])
def test_every_chart_says_what_is_pointed_at(browser, report, width, height, mobile, scheme):
    kind, path = report
    with browser.page(width=width, height=height, mobile=mobile, scheme=scheme) as page:
        page.open(path)
        wait_until_drawn(page)
        assert set(point_at_every_chart(page)) == CHARTS[kind]
        assert choose_in_every_legend(page) >= 2
        column = 1 if kind != "comparison" else 3  # numbers
        assert len(sort_first_table(page, column)) >= 2
        assert page.problems == []


def test_a_report_is_readable_on_paper(page, report):
    kind, path = report
    page.open(path)
    wait_until_drawn(page)
    page.resize(700, 990)  # pixels of A4 with margins
    page.emulate(media="print")
    page.wait_for("innerWidth === 700 && matchMedia('print').matches")
    assert len(charts(page)) >= len(CHARTS[kind])
    check(page, marks=5)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return finished(tmp_path_factory.mktemp("plotted") / "plotted", "plotted")


PLOTS = [["curves"], ["values", "-p", "x"], ["surface", "-p", "x", "-p", "rate"], ["importance"]]


@pytest.mark.parametrize("kind", PLOTS, ids=[kind[0] for kind in PLOTS])
def test_a_plot_of_a_landscape_is_drawn(browser, study, tmp_path, kind):
    target = tmp_path / "plot.html"
    autorl("landscape", "plot", study, *kind, "--out", target)
    for width, height, mobile, scheme in (screen.values for screen in SCREENS):
        with browser.page(width=width, height=height, mobile=mobile, scheme=scheme) as page:
            page.open(target)
            wait_until_drawn(page)
            check(page, marks=10)
            assert point_at_every_chart(page) == [kind[0]]
            assert page.outside() == []
            assert page.problems == []
