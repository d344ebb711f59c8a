"""A chart of every sort, small and with names that would be code if nobody wrote them as text."""

import numpy as np

from autorl.report.pages.chart import Axis, Bars, Chart, HeatMap, Line, Spans

HOSTILE = "a\"]'] + (window.hacked = 1) + <b>\\"


def numbers(*values):
    return np.array(values, dtype=float)


LINES = Chart(
    "Lines",
    "about",
    Axis("x", "log"),
    Axis("y", limits=(0.0, 4.0)),
    (
        Line("a", numbers(1, 10, 100), numbers(1, 2, 3), (numbers(0.5, 1, 2), numbers(2, 3, 4))),
        Line(
            HOSTILE,
            numbers(1, 10, 100),
            numbers(3, 2, 1),
            None,
            ("p", "q", HOSTILE),
            "^",
            joined=False,
            muted=True,
        ),
        Line("stairs", numbers(1, 10, np.nan, 50, 100), numbers(3, 2, np.nan, 1, 2), stepped=True),
    ),
)
BARS = Chart(
    "Bars",
    "about",
    Axis("share"),
    Axis("", categories=("first", HOSTILE, "none")),
    (
        Bars(
            numbers(0.75, 0.25, np.nan),
            (numbers(0.5, 0.125, 0), numbers(1, 0.5, 0)),
            ("six", "two", ""),
        ),
    ),
)
HEAT = Chart(
    "Heat",
    "about",
    Axis("x", categories=("p", HOSTILE, "r\nr")),
    Axis("y", categories=("u", "v")),
    (
        HeatMap(numbers(0, 0.5, 1, 0.25, np.nan, 0.75).reshape(2, 3), "regret", annotate=True),
        Line("dot", numbers(0.5), numbers(1), names=("trained",), marker="o", joined=False),
    ),
)
SPANS = Chart(
    "Spans",
    "",
    Axis("steps", limits=(0.0, None)),
    Axis("member", categories=("0", HOSTILE)),
    (
        Spans(
            numbers(0, 1, 0),
            numbers(0, 0, 50),
            numbers(50, 100, 100),
            numbers(1, 2, np.nan),
            ("one", "two", HOSTILE),
            "score",
        ),
        Line("copy", numbers(50, 50), numbers(1, 0), muted=True),
    ),
)
CHARTS = {"lines": LINES, "bars": BARS, "heat": HEAT, "spans": SPANS}
