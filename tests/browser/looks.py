"""Looks of a page, asked of the browser: charts with content, nothing cut off, readable text."""

# A mark is a shape or text that takes up room in the picture: an axis alone has few.
CHARTS = """Array.from(document.querySelectorAll("svg, canvas"), (chart) => {
  const box = chart.getBoundingClientRect();
  if (!box.width || !box.height) return null;  // of another width of the window
  const look = { kind: chart.localName, width: box.width, height: box.height, marks: 0, cut: [] };
  if (chart.localName === "canvas") {
    const pixels = chart.getContext("2d").getImageData(0, 0, chart.width, chart.height).data;
    look.marks = new Set(new Uint32Array(pixels.buffer)).size;
    return look;
  }
  for (const mark of chart.querySelectorAll("path, line, rect, circle, polyline, polygon, text")) {
    if (mark.closest("defs, clipPath, marker, pattern")) continue;
    const place = mark.getBoundingClientRect();
    if (!place.width && !place.height) continue;
    look.marks += 1;
    const outside = place.left < box.left - 2 || place.right > box.right + 2 ||
      place.top < box.top - 2 || place.bottom > box.bottom + 2;
    if (mark.localName === "text" && outside) look.cut.push(mark.textContent);
  }
  return look;
}).filter((look) => look !== null)"""

# The page as a whole never scrolls sideways: what is too wide scrolls in a box of its own.
STICKING_OUT = """(() => {
  const width = document.documentElement.clientWidth;
  if (document.scrollingElement.scrollWidth <= width) return [];
  const scrolls = (element) => {
    for (let box = element.parentElement; box && box !== document.body; box = box.parentElement)
      if (getComputedStyle(box).overflowX !== "visible") return true;
    return false;
  };
  const right = (element) => {
    const box = element.getBoundingClientRect();
    const inside = getComputedStyle(element).overflowX === "visible" ? element.scrollWidth : 0;
    return box.left + Math.max(box.width, inside);
  };
  const wide = Array.from(document.body.querySelectorAll("*"))
    .filter((element) => right(element) > width + 1 && !scrolls(element))
    .map((element) => `${element.localName} ${element.textContent.trim().slice(0, 40)}`);
  return wide.length ? wide : ["the page"];
})()"""

# Contrast by the definition of WCAG 2, with colours laid over what is behind them.
FAINT = """((least) => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const schemes = getComputedStyle(document.documentElement).colorScheme;
  const mixed = (colours) => {
    context.fillStyle = dark && schemes.includes("dark") ? "#121212" : "#fff";  // of the browser
    context.fillRect(0, 0, 1, 1);
    for (const colour of colours) { context.fillStyle = colour; context.fillRect(0, 0, 1, 1); }
    return context.getImageData(0, 0, 1, 1).data;
  };
  const light = (pixel) => {
    const [red, green, blue] = Array.from(pixel.slice(0, 3), (part) =>
      part <= 10 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const faint = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    const box = element.getBoundingClientRect();
    if (!texts.currentNode.data.trim() || !box.width || element.closest("title, script, style, noscript"))
      continue;
    const behind = [];
    for (let place = element; place; place = place.parentElement)
      behind.unshift(getComputedStyle(place).backgroundColor);
    // The number in a cell of a heat map: tests/pages/test_vega.py looks at what is behind it.
    if (element.matches("text[fill='#fff'], text[fill='#000']")) continue;
    if (getComputedStyle(element).opacity === "0") continue;  // a number for which there is no room
    const style = getComputedStyle(element);
    const colour = element.closest("svg") ? style.fill : style.color;
    const [one, other] = [light(mixed(behind)), light(mixed([...behind, colour]))];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < least) faint.push(`${contrast.toFixed(2)} ${texts.currentNode.data.trim().slice(0, 40)}`);
  }
  return faint;
})"""
LEAST_CONTRAST = 4.5  # of WCAG 2.2, level AA, for text of ordinary size


def charts(page):
    """List the charts that are shown: kind, size, number of marks, and texts that are cut off."""
    return page.evaluate(CHARTS)


def sticking_out(page):
    """List what makes the page wider than its window."""
    return page.evaluate(STICKING_OUT)


def faint(page, least=LEAST_CONTRAST):
    """List texts that stand out too little from what is behind them, with their contrast."""
    return page.evaluate(f"{FAINT}({least})")


def check(page, marks=5):
    """Fail where a chart is empty or cut off, the page too wide, or a text too faint."""
    for chart in charts(page):
        assert chart["marks"] >= marks, chart
        assert chart["cut"] == [], chart
    assert sticking_out(page) == []
    assert faint(page) == []
