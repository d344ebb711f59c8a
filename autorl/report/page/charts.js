"use strict";
// Tooltips, legends, brushes and tables of a page. It moves, hides and sorts what is there: texts
// are set as text, and no HTML is made. Listeners stand on the document, so that parts of a page
// may be replaced.

(() => {
  const REACH = 26; // pixels from the pointer to a mark
  let tip = null;
  let marked = null;

  function tipBox() {
    if (!tip) {
      tip = document.createElement("div");
      tip.id = "tip";
      tip.setAttribute("role", "status");
      tip.hidden = true;
      document.body.append(tip);
    }
    return tip;
  }

  function leave() {
    if (marked) marked.classList.remove("at");
    marked = null;
    if (tip) tip.hidden = true;
  }

  function tell(mark) {
    if (mark !== marked) {
      leave();
      marked = mark;
      mark.classList.add("at");
    }
    const box = tipBox();
    box.textContent = mark.dataset.tip;
    box.hidden = false;
    const at = mark.getBoundingClientRect();
    const width = document.documentElement.clientWidth;
    const left = at.left + at.width / 2 - box.offsetWidth / 2;
    const above = at.top - box.offsetHeight - 8;
    box.style.left = `${window.scrollX + Math.max(4, Math.min(left, width - box.offsetWidth - 4))}px`;
    box.style.top = `${window.scrollY + (above < 0 ? at.bottom + 8 : above)}px`;
  }

  function marksOf(svg) {
    return Array.from(svg.querySelectorAll("[data-tip]")).filter((mark) => !mark.closest(".off, .dim"));
  }

  function nearest(svg, x, y) {
    let best = null;
    let least = REACH;
    for (const mark of marksOf(svg)) {
      if (mark.tagName !== "circle") continue;
      const box = mark.getBoundingClientRect();
      const far = Math.hypot(box.left + box.width / 2 - x, box.top + box.height / 2 - y);
      if (far < least) {
        least = far;
        best = mark;
      }
    }
    return best;
  }

  function point(event) {
    if (brushing) return;
    const svg = event.target.closest?.("svg.plot");
    if (!svg) return leave();
    const direct = event.target.closest("[data-tip]");
    const mark = direct && !direct.closest(".off, .dim") ? direct : nearest(svg, event.clientX, event.clientY);
    if (mark) tell(mark);
    else leave();
  }

  // -- legends -----------------------------------------------------------------------------------

  function toggle(button) {
    const shown = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(shown));
    const figure = button.closest("figure");
    for (const part of figure.querySelectorAll(`svg [data-series="${Number(button.dataset.series)}"]`)) {
      part.classList.toggle("off", !shown);
    }
    leave();
  }

  // -- brushes of parallel coordinates -----------------------------------------------------------

  let brushing = null;

  function brushOf(zone) {
    return zone.parentNode.querySelector(".brush");
  }

  function setBrush(zone, low, high) {
    const brush = brushOf(zone);
    const top = Number(zone.getAttribute("y"));
    const size = Number(zone.getAttribute("height"));
    const whole = high - low < 0.01 || (low <= 0 && high >= 1);
    brush.classList.toggle("off", whole);
    if (whole) {
      delete zone.dataset.low;
      delete zone.dataset.high;
      zone.setAttribute("aria-valuetext", "all");
    } else {
      zone.dataset.low = String(Math.max(0, low));
      zone.dataset.high = String(Math.min(1, high));
      brush.setAttribute("y", String(top + size * (1 - Math.min(1, high))));
      brush.setAttribute("height", String(size * (Math.min(1, high) - Math.max(0, low))));
      zone.setAttribute("aria-valuetext", `from ${Math.round(100 * low)} % to ${Math.round(100 * high)} % of the axis`);
    }
    filterLines(zone.closest("figure"));
  }

  function filterLines(figure) {
    const zones = Array.from(figure.querySelectorAll(".zone"));
    let count = 0;
    const lines = figure.querySelectorAll(".pass");
    for (const line of lines) {
      const places = line.dataset.u.split(",").map((text) => (text === "" ? NaN : Number(text)));
      const inside = zones.every((zone, index) => {
        if (zone.dataset.low === undefined) return true;
        return places[index] >= Number(zone.dataset.low) && places[index] <= Number(zone.dataset.high);
      });
      line.classList.toggle("dim", !inside);
      count += inside;
    }
    const place = figure.querySelector(".count");
    const all = lines.length === 1 ? "configuration" : "configurations";
    if (place) place.textContent = `${count} of ${lines.length} ${all}`;
  }

  function share(zone, event) {
    const box = zone.getBoundingClientRect();
    return Math.max(0, Math.min(1, 1 - (event.clientY - box.top) / box.height));
  }

  // A window of a quarter of the axis that the arrow keys move.
  function brushByKey(zone, key) {
    const width = 0.25;
    let low = zone.dataset.low === undefined ? null : Number(zone.dataset.low);
    if (key === "Escape") return setBrush(zone, 0, 1);
    if (key === "ArrowUp") low = low === null ? 1 - width : Math.min(1 - width, low + width / 2);
    else low = low === null ? 0 : Math.max(0, low - width / 2);
    return setBrush(zone, low, low + width);
  }

  // -- tables ------------------------------------------------------------------------------------

  function cellValue(row, column) {
    const text = row.cells[column]?.textContent.trim() ?? "";
    if (text === "" || text === "-") return null;
    const number = Number(text.replaceAll(",", "").replace(/ \*$/, ""));
    return Number.isNaN(number) ? text : number;
  }

  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === "number") return -1;
    if (typeof b === "number") return 1;
    return a < b ? -1 : a > b ? 1 : 0;
  }

  function sort(button) {
    const head = button.closest("th");
    const table = head.closest("table");
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.querySelectorAll("th")) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = Array.from(table.tBodies[0].rows, (row) => [cellValue(row, head.cellIndex), row]);
    // Those without a value are last in either order.
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return down ? compare(b, a) : compare(a, b);
    });
    table.tBodies[0].append(...rows.map(([, row]) => row));
  }

  function filterRows(input) {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const table = input.closest(".filtered").querySelector("table");
    let count = 0;
    for (const row of table.tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      count += !row.hidden;
    }
    const rows = count === 1 ? "row" : "rows";
    input.closest(".tools").querySelector("output").textContent = `${count} ${rows}`;
  }

  // -- listeners ---------------------------------------------------------------------------------

  document.addEventListener("pointermove", (event) => {
    if (brushing) setBrush(brushing.zone, Math.min(brushing.from, share(brushing.zone, event)), Math.max(brushing.from, share(brushing.zone, event)));
    else point(event);
  });
  document.addEventListener("pointerdown", (event) => {
    const zone = event.target.closest?.(".zone");
    if (!zone) return point(event);
    leave();
    brushing = { zone, from: share(zone, event) };
    setBrush(zone, 0, 1);
    return undefined;
  });
  document.addEventListener("pointerup", () => { brushing = null; });
  document.addEventListener("pointercancel", () => { brushing = null; });
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("button");
    if (!button) return;
    if (button.matches(".key")) toggle(button);
    if (button.matches(".sort")) sort(button);
    if (button.matches(".clear")) {
      for (const zone of button.closest("figure").querySelectorAll(".zone")) setBrush(zone, 0, 1);
    }
  });
  document.addEventListener("input", (event) => {
    if (event.target.matches?.(".filter")) filterRows(event.target);
  });
  document.addEventListener("keydown", (event) => {
    if (event.target.matches?.(".zone") && ["ArrowUp", "ArrowDown", "Escape"].includes(event.key)) {
      event.preventDefault();
      brushByKey(event.target, event.key);
      return;
    }
    if (event.key === "Escape") leave();
    if (!event.target.matches?.("svg.plot")) return;
    const marks = marksOf(event.target);
    if (!marks.length) return;
    const now = marks.indexOf(marked);
    const next = {
      ArrowRight: now + 1, ArrowLeft: now < 0 ? marks.length - 1 : now - 1, Home: 0, End: marks.length - 1,
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    tell(marks[(next + marks.length) % marks.length]);
  });
  document.addEventListener("focusout", leave);
})();
