"""Run `make test` again and again beside busy processes: does any test depend on luck or load?

    python benchmarks/repeat_tests.py                            # ten times beside 8 busy processes
    python benchmarks/repeat_tests.py --record runs.jsonl        # goes on where an earlier call was interrupted
    python benchmarks/repeat_tests.py --times 2 --busy 4 --command "python -m pytest -q -n 2 tests/executors"

Prints a line for each run and the failures of those that failed; the exit code is the number of runs that failed. Runs
of the same commit that the record holds are counted and not repeated. On a few cores a run takes long: more test
processes (`PYTEST_XDIST_AUTO_NUM_WORKERS=16`) get a larger share of them, under the same load.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--busy", type=int, default=8, help="processes that compute all the while")
    parser.add_argument("--command", default="make test")
    parser.add_argument("--record", type=Path, help="keeps a line for each run, to go on from")
    options = parser.parse_args()
    key = {"commit": commit(), "busy": options.busy, "command": options.command}
    earlier = recorded(options.record, key)
    failures: int = sum(run["exit_code"] != 0 for run in earlier)
    for number, run in enumerate(earlier, 1):
        print(line(number, options.times, run), "(recorded)")
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.busy)
    ]
    try:
        for number in range(len(earlier) + 1, options.times + 1):
            start = time.monotonic()
            done = subprocess.run(
                shlex.split(options.command), cwd=ROOT, capture_output=True, text=True
            )
            run = {**key, "exit_code": done.returncode, "minutes": (time.monotonic() - start) / 60}
            run["last_line"] = (done.stdout.splitlines() or [""])[-1]
            failures += done.returncode != 0
            if options.record is not None:
                with options.record.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(run) + "\n")
            print(line(number, options.times, run), flush=True)
            if done.returncode:
                print("\n".join(done.stdout.splitlines()[-60:]), done.stderr, sep="\n", flush=True)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    return failures


def commit() -> str:
    """The commit that is checked out, and whether files differ from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=40"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return described.stdout.strip()


def recorded(record: Path | None, key: dict[str, Any]) -> list[dict[str, Any]]:
    """Runs of the same commit, load and command in the record."""
    if record is None or not record.exists():
        return []
    runs = [json.loads(text) for text in record.read_text(encoding="utf-8").splitlines()]
    return [run for run in runs if key.items() <= run.items()]


def line(number: int, times: int, run: dict[str, Any]) -> str:
    verdict = "green" if run["exit_code"] == 0 else f"exit code {run['exit_code']}"
    return f"run {number} of {times}: {verdict}, {run['minutes']:.1f} minutes, {run['last_line']}"


if __name__ == "__main__":
    sys.exit(main())
