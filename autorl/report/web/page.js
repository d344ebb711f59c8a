"use strict";
// Asks the server for what has changed, and puts it in its place. All HTML comes from the server,
// which escapes it: this script makes none.

const base = document.body.dataset.base;
const pause = 1000 * Number(document.body.dataset.seconds);
const choice = { sort: "number", order: "asc", page: "0", state: "" };
const shown = {};      // HTML by place
const waiting = {};    // HTML by place, of places that are being clicked at
const revisions = {};  // of what is shown
let questions = 0;     // for runs; an answer to an earlier one may come later
let drawing = false;   // a long study's curve may take longer than the time between two questions
let timer = 0;

async function ask(path) {
  const response = await fetch(base + path);
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
  return response.json();
}

function show(parts) {
  for (const [name, html] of Object.entries(parts)) {
    const place = document.getElementById(name);
    delete waiting[name];
    if (!place || shown[name] === html) continue;
    // A button that is replaced between press and release gets no click.
    if (place.querySelector("button:active")) {
      waiting[name] = html;
      continue;
    }
    const scrolled = Array.from(place.querySelectorAll(".wide"), (box) => box.scrollLeft);
    const focus = focusedIn(place);
    place.innerHTML = html;
    shown[name] = html;
    focus(place);
    place.querySelectorAll(".wide").forEach((box, index) => { box.scrollLeft = scrolled[index] || 0; });
  }
  tell();
}

// Returns what gives the focus back: whoever uses a table by keyboard stays on its button when all
// of it is replaced, or on the one of the same name ("later" leads to another page by then).
function focusedIn(place) {
  const button = document.activeElement;
  if (button?.localName !== "button" || !place.contains(button)) return () => {};
  const [name, value] = Object.entries(button.dataset)[0];
  const label = button.textContent;
  return (replaced) => {
    const same = replaced.querySelector(`button[data-${name}="${CSS.escape(value)}"]`);
    const named = Array.from(replaced.querySelectorAll("button")).find((other) => other.textContent === label);
    (name === "page" ? named : same)?.focus({ preventScroll: true });
  };
}

async function showRuns() {
  questions += 1;
  const question = questions;
  const runs = await ask("/runs?" + new URLSearchParams(choice));
  if (question === questions) show(runs.parts);
}

async function showCurve(revision) {
  if (drawing || revisions.curve === revision) return;
  drawing = true;
  try {
    const curve = await ask("/curve");
    show(curve.parts);
    revisions.curve = curve.revision;
  } catch (error) {
    connected(error.message);
  } finally {
    drawing = false;
  }
}

async function update() {
  clearTimeout(timer);
  let soon = false;
  try {
    show({ ...waiting });
    const state = await ask("/state");
    show(state.parts);
    document.title = state.title;
    soon = state.unread > 0;
    if (base && revisions.runs !== state.revision) {
      await showRuns();
      revisions.runs = state.revision;
    }
    if (base) showCurve(state.revision);
    connected("");
  } catch (error) {
    connected(error.message);
  }
  // A page that nobody looks at asks seldom.
  timer = setTimeout(update, soon ? 50 : document.hidden ? 10 * pause : pause);
}

function connected(problem) {
  const place = document.getElementById("connection");
  place.textContent = problem ? `not up to date: ${problem}` : "live";
  place.className = problem ? "lost" : "";
}

function ago(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}

function tell() {
  for (const place of document.querySelectorAll("[data-time]")) {
    place.textContent = ago(Math.max(0, Date.now() / 1000 - Number(place.dataset.time)));
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const { sort, state, page } = button.dataset;
  // A button of a chart or of another table is no choice of runs.
  if (sort === undefined && state === undefined && page === undefined) return;
  if (sort !== undefined) {
    choice.order = choice.sort === sort && choice.order === "asc" ? "desc" : "asc";
    choice.sort = sort;
  }
  if (state !== undefined) choice.state = state;
  choice.page = page === undefined ? "0" : page;
  try {
    await showRuns();
  } catch (error) {
    delete revisions.runs;  // the next update asks again
    connected(error.message);
  }
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) update(); });
setInterval(tell, 1000);
update();
