"""Run `make test` again and again beside busy processes: does any test depend on luck or load?

    python benchmarks/repeat_tests.py                            # ten times beside 8 busy processes
    python benchmarks/repeat_tests.py --times 2 --busy 4 --command "python -m pytest -q -n 2 tests/executors"

Prints a line for each run and the failures of those that failed; the exit code is the number of runs that failed.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--busy", type=int, default=8, help="processes that compute all the while")
    parser.add_argument("--command", default="make test")
    options = parser.parse_args()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.busy)]
    failures = 0
    try:
        for number in range(1, options.times + 1):
            start = time.monotonic()
            done = subprocess.run(shlex.split(options.command), cwd=ROOT, capture_output=True, text=True)
            failures += done.returncode != 0
            verdict = "green" if done.returncode == 0 else f"exit code {done.returncode}"
            print(
                f"run {number} of {options.times}: {verdict}, {(time.monotonic() - start) / 60:.1f} minutes", flush=True
            )
            if done.returncode:
                print("\n".join(done.stdout.splitlines()[-60:]), done.stderr, sep="\n", flush=True)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    return failures


if __name__ == "__main__":
    sys.exit(main())
