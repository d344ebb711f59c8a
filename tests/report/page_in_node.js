// Runs the script of the live page against a real server, with a stand-in for the document.
// node page_in_node.js SCRIPT ADDRESS BASE; prints what was asked for and what was put where.
"use strict";
const fs = require("node:fs");
const vm = require("node:vm");
const [script, address, base] = process.argv.slice(2);

const places = {};
const asked = [];
const listeners = {};
const time = { dataset: { time: String(Date.now() / 1000 - 5) }, textContent: "" };

function place(id) {
  places[id] ??= {
    id, innerHTML: "", textContent: "", className: "",
    querySelector: () => null, querySelectorAll: () => [],
  };
  return places[id];
}

const document = {
  title: "",
  hidden: false,
  body: { dataset: { base, seconds: "0.2" } },
  getElementById: place,
  querySelector: () => null,
  querySelectorAll: () => [time],
  addEventListener: (name, listener) => { listeners[name] = listener; },
};

async function ask(path) {
  asked.push(path.slice(base.length));
  const answer = await fetch(address + path);
  answered += 1;
  return answer;
}

let answered = 0;
const context = {
  document, fetch: ask, URLSearchParams, Date, Math, Number, Object, Array, setTimeout, clearTimeout,
  setInterval: () => 0, CSS: { escape: (text) => text },
};
vm.runInNewContext(fs.readFileSync(script, "utf-8"), context);

async function until(count) {
  while (answered < count) await new Promise((resume) => setTimeout(resume, 5));
  await new Promise((resume) => setTimeout(resume, 20));
}

async function main() {
  const sort = { target: { closest: () => ({ dataset: { sort: "score" } }) } };
  await until(3);
  await listeners.click(sort);
  await listeners.click(sort);
  await until(answered + 2);
  process.stdout.write(JSON.stringify({
    places: Object.keys(places).filter((name) => places[name].innerHTML),
    title: document.title,
    connection: places.connection.textContent,
    time: time.textContent,
    asked,
  }));
  process.exit(0);
}
main();
