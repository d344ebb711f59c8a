"use strict";
// Draws the charts of a page, sorts and filters its tables, and asks a server for what has changed.
// All HTML comes from the template, which escapes it: this script makes none.

// -- charts ----------------------------------------------------------------------------------------

const tip = document.body.appendChild(document.createElement("div"));
tip.id = "tip";
tip.hidden = true;

function tell(handler, event, item, text) {
  tip.hidden = !text;
  if (tip.hidden) return; // without an event where a chart is taken away
  tip.textContent = text;
  const left = Math.min(event.clientX + 12, document.documentElement.clientWidth - tip.offsetWidth - 4);
  const above = event.clientY - tip.offsetHeight - 12;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${above < 4 ? event.clientY + 16 : above}px`;
}

// No eval, and no style of its own.
const OPTIONS = { actions: false, renderer: "svg", ast: true, defaultStyle: false, tooltip: tell };

async function draw(place) {
  for (const drawing of place.querySelectorAll("[data-spec]")) {
    try {
      drawing.drawn = await vegaEmbed(drawing, JSON.parse(drawing.dataset.spec), OPTIONS);
      drawing.style.minHeight = "";
    } catch (error) {
      console.error(error);
    }
  }
}

function forget(place) {
  for (const drawing of place.querySelectorAll("[data-spec]")) drawing.drawn?.finalize();
  tip.hidden = true;
}

// -- tables ----------------------------------------------------------------------------------------

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

function sort(head, order) {
  const table = head.closest("table");
  for (const other of table.querySelectorAll("th")) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", order);
  const rows = Array.from(table.tBodies[0].rows, (row) => [cellValue(row, head.cellIndex), row]);
  // Rows without a value are last in either order.
  rows.sort(([a], [b]) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return order === "descending" ? compare(b, a) : compare(a, b);
  });
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

function filter(input) {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = Array.from(input.closest(".table").querySelector("tbody").rows);
  for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
  const count = rows.filter((row) => !row.hidden).length;
  input.parentElement.querySelector("output").textContent = `${count} ${count === 1 ? "row" : "rows"}`;
}

document.addEventListener("click", (event) => {
  const head = event.target.closest?.(".sort")?.closest("th");
  if (head) sort(head, head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending");
});
document.addEventListener("input", (event) => {
  if (event.target.matches?.("input[type=search]")) filter(event.target);
});

// -- a page that is served ---------------------------------------------------------------------------

const { base, seconds } = document.body.dataset;
const FIELDS = ".sort, input[type=search]";
let timer = 0;

// Returns what puts the order, the filter, the place and the focus of every table back, and gives
// charts the room they had until they are drawn: nothing jumps.
function kept(section) {
  const heights = Array.from(section.querySelectorAll(".drawing"), (drawing) => drawing.offsetHeight);
  const focus = Array.from(section.querySelectorAll(FIELDS)).indexOf(document.activeElement);
  const tables = Array.from(section.querySelectorAll(".table"), (table) => {
    const head = table.querySelector("th[aria-sort$=cending]");
    const box = table.querySelector(".scroll");
    return {
      column: head?.cellIndex, order: head?.getAttribute("aria-sort"),
      words: table.querySelector("input")?.value, left: box.scrollLeft, top: box.scrollTop,
    };
  });
  return () => {
    section.querySelectorAll(".drawing").forEach((drawing, index) => {
      drawing.style.minHeight = `${heights[index] ?? 0}px`;
    });
    section.querySelectorAll(".table").forEach((table, index) => {
      const { column, order, words, left, top } = tables[index] ?? {};
      if (order) sort(table.querySelectorAll("th")[column], order);
      const input = table.querySelector("input");
      if (input && words) { input.value = words; filter(input); }
      table.querySelector(".scroll").scrollTo(left ?? 0, top ?? 0);
    });
    section.querySelectorAll(FIELDS)[focus]?.focus({ preventScroll: true });
  };
}

function show(parts) {
  const main = document.querySelector("main");
  let before = null;
  for (const [place, kind, content, html] of parts) {
    const section = document.getElementById(place) ?? document.createElement("section");
    // A button that is replaced between press and release gets no click: the next answer will do.
    if (section.dataset.content !== content && !section.querySelector(":active")) {
      const putBack = kept(section);
      forget(section);
      section.innerHTML = html;
      Object.assign(section, { id: place, className: kind }).dataset.content = content;
      putBack();
      draw(section);
    }
    if (section !== (before ? before.nextElementSibling : main.firstElementChild)) {
      if (before) before.after(section);
      else main.prepend(section);
    }
    before = section;
  }
  while (before?.nextElementSibling) before.nextElementSibling.remove();
}

async function update() {
  clearTimeout(timer);
  let problem = "";
  let soon = false;
  try {
    const response = await fetch(`${base}/state`);
    if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
    const state = await response.json();
    show(state.parts);
    soon = state.unread > 0;
  } catch (error) {
    problem = error.message;
  }
  const place = document.getElementById("connection");
  place.textContent = problem ? `not up to date: ${problem}` : "live";
  place.className = problem ? "lost" : "";
  // A page that nobody looks at asks seldom.
  timer = setTimeout(update, soon ? 50 : 1000 * seconds * (document.hidden ? 10 : 1));
}

draw(document);
if (seconds) {
  document.addEventListener("visibilitychange", () => { if (!document.hidden) update(); });
  timer = setTimeout(update, 1000 * seconds);
}
