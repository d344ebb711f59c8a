"""Time what `autorl watch --web` answers first for a large study, by a browser's requests in their order.

    python benchmarks/live_page.py                      # makes a study of 4,096 runs, then asks
    python benchmarks/live_page.py --study studies/ppo  # asks for one that is there
    python benchmarks/live_page.py --browser            # and opens it in Chromium, if installed

Prints seconds of this process's CPU and of the wall clock, and bytes, of each answer: the page and
its parts as they are, and the answer of a study that has not changed since. With `--browser` then
what a person sees in a headless Chromium, in milliseconds from the request, of a server that has
not read the study yet, and again: first paint, the result, the first rows, the first chart. The
browser and this process share the processors: only a quiet machine gives times that mean something.
"""

from __future__ import annotations

import argparse
import http.client
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

from autorl.report.web.server import StudyServer
from autorl.report.web.site import StudySite
from autorl.study import Study
from autorl.study.spec import load_spec

TESTS = Path(__file__).parents[1] / "tests"
# Notes when a place of the page is painted first: two frames after it was filled.
SEEN = """
window.seen = {};
const wanted = { result: ".headline", rows: "#proposals tbody tr", curve: "#learning svg" };
const look = () => {
  for (const [name, selector] of Object.entries(wanted)) {
    if (name in seen || !document.querySelector(selector)) continue;
    seen[name] = NaN;
    requestAnimationFrame(() => requestAnimationFrame(() => { seen[name] = performance.now(); }));
  }
};
new MutationObserver(look).observe(document, { childList: true, subtree: true });
"""
ALL_SEEN = "Object.keys(seen).length === 3 && !Object.values(seen).some(Number.isNaN) && seen"

STUDY = {
    "name": "large",
    "trainer": {"name": "synthetic", "kwargs": {"optimum": {"x": 0.7}, "noise": 0.1}},
    "space": {
        "x": {"type": "float", "lower": 0.0, "upper": 1.0},
        "rate": {"type": "float", "lower": 1e-5, "upper": 1.0, "scale": "log"},
    },
    "fidelity": {"steps": 100, "evaluations": 5},
    "seeds": {"tuning": 1, "test": 5},
    "optimizer": "random",
    "executor": {"name": "in_process"},
}


def make(folder: Path, runs: int) -> None:
    """Run a study of so many runs."""
    study = Study.create(load_spec({**STUDY, "budget": {"runs": runs}}), folder)
    try:
        study.run()
    finally:
        study.close()


def main() -> None:
    """Print a line for each answer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--study", type=Path, help="folder of a study; without, one is made")
    parser.add_argument("--runs", type=int, default=4096, help="runs of the study that is made")
    parser.add_argument("--browser", action="store_true", help="open it in Chromium too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.study or Path(scratch) / "large"
        if arguments.study is None:
            make(folder, arguments.runs)
        server = StudyServer(StudySite([folder]), "127.0.0.1", 0)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        base = _ask(server, "/", "")[1]["Location"]
        for path in ("", "/state"):
            _print(server, base + path, "")
        etag = _ask(server, f"{base}/state", "")[1]["ETag"]
        _print(server, f"{base}/state", etag)
        server.shutdown()
        server.server_close()
        if arguments.browser:
            _paint(folder, Path(scratch) / "browser")


def _ask(server: StudyServer, path: str, etag: str) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    connection.request("GET", path, headers={"If-None-Match": etag} if etag else {})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, answer.headers, body


def _print(server: StudyServer, path: str, etag: str) -> None:
    cpu = time.process_time()
    wall = time.perf_counter()
    status, _, body = _ask(server, path, etag)
    cpu = time.process_time() - cpu
    wall = time.perf_counter() - wall
    place = "/".join(path.split("/")[3:]) or "page"
    print(f"{place:6} {status}  {cpu:6.3f} s CPU  {wall:6.2f} s  {len(body):8,} bytes")


def _paint(folder: Path, scratch: Path) -> None:
    """Print when the parts of the page are painted."""
    sys.path[:0] = [str(TESTS / "browser"), str(TESTS)]
    from chromium import Browser, installed

    if installed() is None:
        sys.exit("no Chromium is installed")
    server = StudyServer(StudySite([folder]), "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    scratch.mkdir()
    with Browser(scratch) as browser:
        print(f"{browser.version}, load {os.getloadavg()[0]:.1f}")
        for name in ("first", "again"):
            with browser.page() as page:
                page.at_start(SEEN)
                cpu = time.process_time()
                page.open(server.url())
                seen = page.wait_for(ALL_SEEN)
                cpu = time.process_time() - cpu
                times = {"first paint": page.first_paint(), **seen}
                parts = ", ".join(f"{part} {time:.0f} ms" for part, time in times.items())
                print(f"{name}: {parts}; {cpu:.2f} s CPU of the server")
    server.shutdown()
    server.server_close()


if __name__ == "__main__":
    main()
