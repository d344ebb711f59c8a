"""Points at charts, chooses in their legends and sorts tables, and says what came of it."""

import json

DRAWN = """Array.from(document.querySelectorAll(".drawing"))
  .every((drawing) => drawing.drawn && drawing.querySelector("svg"))"""

# The middle mark of every chart, at shares of the chart's width and height, and its text.
MARKS = """Array.from(document.querySelectorAll("figure"), (figure, number) => {
  const svg = figure.querySelector(".drawing svg");
  const marks = Array.from(svg.querySelectorAll(".role-mark path"))
    .filter((mark) => mark.__data__?.tooltip && mark.__data__.datum.tip);
  const chart = figure.dataset.chart;
  if (!marks.length) return { chart, selector: null };
  figure.id = `figure${number}`;
  const mark = marks[Math.floor(marks.length / 2)];
  const box = svg.getBoundingClientRect();
  const { left, top, width, height } = mark.getBoundingClientRect();
  return {
    chart, selector: `#figure${number} .drawing svg`,
    x: (left + width / 2 - box.left) / box.width, y: (top + height / 2 - box.top) / box.height,
  };
})"""

SAID = """(() => {
  const tip = document.querySelector("#tip");
  if (tip.hidden) return null;
  const box = tip.getBoundingClientRect();
  const inside = box.left >= 0 && box.right <= document.documentElement.clientWidth;
  return { text: tip.textContent, inside };
})()"""

TEXTS = """((selector) => Array.from(document.querySelector(selector).querySelectorAll(".role-mark path"))
  .map((mark) => (mark.__data__?.datum?.datum ?? mark.__data__?.datum)?.tip).filter(Boolean))"""

LEGENDS = """Array.from(document.querySelectorAll("figure"), (figure, number) => {
  figure.id = `figure${number}`;
  const key = figure.querySelector(".role-legend-symbol path");
  return key && `#figure${number}`;
}).filter(Boolean)"""


def wait_until_drawn(page):
    """Wait until every chart of a page is drawn."""
    page.wait_for(DRAWN)


def point_at_every_chart(page):
    """Point at a mark of every chart; list the names of the charts."""
    charts = []
    for mark in page.evaluate(MARKS):
        assert mark["selector"] is not None, f"{mark['chart']}: nothing can be pointed at"
        texts = page.evaluate(f"{TEXTS}({json.dumps(mark['selector'])})")
        page.hover("h1")
        page.wait_for(f"!({SAID})")
        page.hover(mark["selector"], mark["x"], mark["y"])
        said = page.wait_for(SAID)
        assert said["text"] in texts, mark
        assert "undefined" not in said["text"]
        assert said["inside"], f"{mark['chart']}: the text leaves the window"
        charts.append(mark["chart"])
    page.hover("h1")
    return charts


def choose_in_every_legend(page):
    """Choose the first series of every chart that has a legend, then all; return how many have."""
    legends = page.evaluate(LEGENDS)
    for figure in legends:
        chosen = f"document.querySelector('{figure} .drawing').drawn.view.data('seen_store').length"
        page.click(f"{figure} .role-legend-symbol path")
        page.wait_for(f"{chosen} === 1")
        page.click(f"{figure} .drawing svg", 0.995, 0.005)
        page.wait_for(f"{chosen} === 0")
    return len(legends)


def sort_first_table(page, column):
    """Sort the first table that can be by a column, both ways; return its numbers."""
    table = "document.querySelector('th .sort').closest('table')"
    page.evaluate(f"{table}.id = 'sorted'; true")
    numbers = []
    for order in ("ascending", "descending"):
        page.click(f"#sorted th:nth-child({column}) .sort")
        page.wait_for(f"document.querySelector('#sorted th[aria-sort={order}]') !== null")
        cells = page.evaluate(
            "Array.from(document.querySelectorAll('#sorted tbody tr'), "
            f"(row) => row.cells[{column - 1}].textContent.trim())"
        )
        numbers = [float(cell.replace(",", "")) for cell in cells if cell not in ("", "-")]
        assert numbers == sorted(numbers, reverse=order == "descending")
    return numbers
