"""Charts and pages, declared as values, drawn by Vega-Lite and Jinja2.

A chart is declared once (`chart`). `vega` makes its Vega-Lite specification, which the browser
draws on a page (`document`) and vl-convert in a file.
"""

from autorl.report.pages.chart import (
    Array,
    Axis,
    Bars,
    Chart,
    HeatMap,
    Line,
    Spans,
    axis_of,
    positions,
    scale_label,
)

__all__ = [
    "Array",
    "Axis",
    "Bars",
    "Chart",
    "HeatMap",
    "Line",
    "Spans",
    "axis_of",
    "positions",
    "scale_label",
]
