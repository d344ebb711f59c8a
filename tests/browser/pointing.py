"""Points at, toggles, brushes and sorts what a page has, and says what came of it."""

import json

# The middle mark of every chart that is shown, at shares of the chart's width and height.
MARKS = """Array.from(document.querySelectorAll("figure svg.plot"), (svg, number) => {
  const box = svg.getBoundingClientRect();
  if (!box.width) return null;  // of another width of the window
  svg.dataset.tested = number;
  const marks = svg.querySelectorAll("[data-tip]");
  const chart = svg.closest("figure").dataset.chart;
  if (!marks.length) return { chart, selector: null };
  const mark = marks[Math.floor(marks.length / 2)];
  let { left, top, width, height } = mark.getBoundingClientRect();
  let [x, y] = [left + width / 2, top + height / 2];
  if (mark.localName === "path")  // whose box is mostly empty
    ({ x, y } = mark.getPointAtLength(mark.getTotalLength() / 2)
      .matrixTransform(mark.getScreenCTM()));
  return {
    chart, selector: `svg[data-tested="${number}"]`,
    x: (x - box.left) / box.width, y: (y - box.top) / box.height,
  };
}).filter((mark) => mark !== null)"""

SAID = """((selector) => {
  const at = document.querySelector(`${selector} .at`);
  const tip = document.querySelector("#tip");
  if (!at || !tip || tip.hidden) return null;
  const box = tip.getBoundingClientRect();
  const inside = box.left >= 0 && box.right <= document.documentElement.clientWidth;
  return { text: tip.textContent, same: tip.textContent === at.dataset.tip, inside };
})"""

LEGENDS = """Array.from(document.querySelectorAll("figure .legend"), (legend, number) => {
  legend.dataset.tested = number;
  return `.legend[data-tested="${number}"] .key`;
})"""

# Whether all parts of a series are hidden, and whether all are shown, in the drawing for this width.
SERIES = """((selector) => {
  const key = document.querySelector(selector);
  const parts = Array.from(key.closest("figure").querySelectorAll(
    `svg [data-series="${key.dataset.series}"]`));
  const hidden = parts.map((part) => getComputedStyle(part).display === "none");
  return parts.length ? [hidden.every((is) => is), !hidden.some((is) => is)] : null;
})"""

BRUSHED = """(() => {
  const figure = document.querySelector('figure[data-chart="parallel"]');
  const zone = figure.querySelector(".zone");
  const lines = Array.from(figure.querySelectorAll(".pass"));
  const inside = lines.filter((line) => {
    const place = parseFloat(line.dataset.u.split(",")[0]);
    return place >= Number(zone.dataset.low) && place <= Number(zone.dataset.high);
  });
  const bright = lines.filter((line) => !line.classList.contains("dim"));
  return {
    said: figure.querySelector(".count").textContent, lines: lines.length,
    inside: inside.length, bright: bright.length,
    brush: !figure.querySelector(".brush").classList.contains("off"),
  };
})()"""


def point_at_every_chart(page):
    """Point at a mark of every chart; list the names of the charts."""
    charts = []
    for mark in page.evaluate(MARKS):
        assert mark["selector"] is not None, f"{mark['chart']}: nothing can be pointed at"
        page.hover(mark["selector"], mark["x"], mark["y"])
        said = page.wait_for(f"{SAID}({json.dumps(mark['selector'])})")
        assert said["text"], mark
        assert said["same"], mark
        assert said["inside"], f"{mark['chart']}: the text leaves the window"
        charts.append(mark["chart"])
    return charts


def toggle_every_legend(page):
    """Hide and show the first series of every chart that has a legend; return how many have."""
    legends = page.evaluate(LEGENDS)
    for selector in legends:
        for pressed, expected in (("false", [True, False]), ("true", [False, True])):
            page.click(selector)
            shown = json.dumps(f'{selector}[aria-pressed="{pressed}"]')
            page.wait_for(f"document.querySelector({shown}) !== null")
            assert page.evaluate(f"{SERIES}({json.dumps(selector)})") == expected, selector
    return len(legends)


def brush_parallel_coordinates(page):
    """Keep what passes through the upper half of the first axis, then all again."""
    page.drag('figure[data-chart="parallel"] .zone', (0.5, 0.02), (0.5, 0.5))
    kept = page.evaluate(BRUSHED)
    assert kept["brush"]
    assert kept["bright"] == kept["inside"]
    assert kept["said"] == f"{kept['inside']} of {kept['lines']} configurations"
    page.click('figure[data-chart="parallel"] .clear')
    cleared = page.evaluate(BRUSHED)
    assert not cleared["brush"]
    assert cleared["bright"] == cleared["lines"]


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
