"""Kill and stop workers, nodes and drivers by the hundred, and compare tables: benchmarks/results/worker_faults.md.

    python benchmarks/worker_faults.py --faults 100 --seed 0 --raw worker_faults.jsonl
    python benchmarks/worker_faults.py --faults 8 --where processes --optimizers asha     # a part of it

Studies of tpe, asha and pbt on a Ray cluster of a head and two nodes, on `processes`, and as jobs of submitit's
local executor; each gets a fault of every kind. Every study is a line in the raw file as soon as it is judged; the
same command takes up where it was interrupted. What counts as what is in `COUNTS_AS`, and in
the page. The exit code is 1 if anything is bad, or if fewer faults could be delivered than were asked for.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from faults import ROOT, Raw

sys.path.insert(0, str(ROOT / "tests" / "faults"))

import fault_machinery
import worker_machinery
from worker_machinery import FAULTS, HOSTS, OPTIMIZERS

PAGE = ROOT / "benchmarks" / "results" / "worker_faults.md"
COUNTS_AS = """\
- A **worker** is the process that holds segments for the driver: a segment's own process (`processes`, `slurm`), a
  task of Ray (`ray`). A **node** is all that runs on a machine: the driver with everything below it (`processes`), a job of
  submitit's local executor with everything below it (`slurm`), a raylet with everything below it (`ray`). Both and
  the **driver** get SIGKILL; what was killed is started anew, the driver by `autorl resume`. A **stopped worker** gets
  SIGSTOP and, once its segment was given away, SIGCONT; on Ray it is, by a draw, the process of the task or the whole node.
- A fault is **delivered** if it reached a process that held a segment just then (any driver that ran), a SIGSTOP if
  besides its segment was trained by another attempt before SIGCONT. What came too late, or ended by itself, is **not
  delivered**, and counts for nothing.
- **equal**: the last session of the driver ends with exit code 0 and without a traceback; every table is
  that of an undisturbed study under `in_process`, in every column but seconds, hosts and attempts; every event that could
  be read after a fault is still in its place, with its hash; no segment has two
  outcomes, and of every kind there are as many events as in the undisturbed study (but sessions, lost and ignored
  attempts); every recorded checkpoint lies there with the hashes of the log, the file the same (its inode and time)
  as after the faults before; `autorl doctor` has nothing to say; no process is left, no half-written checkpoint,
  and nothing in the temporary folder but Python's own `pymp-*` of processes that were killed.
- **bad**: anything else."""
VERDICTS = ("equal", "bad", "not delivered")
Row = dict[str, Any]


def main() -> int:
    """Run what the raw file does not have yet, and write the page."""
    options = parsed()
    kinds = [f"{where}/{name}" for name in options.optimizers for where in options.where]
    rows = run(options.faults, options.seed, kinds, Raw(options.raw), options.work)
    text = page(rows, options, kinds)
    if options.page is not None:
        options.page.write_text(text)
    print(text)
    bad = any(row["verdict"] == "bad" for row in rows)
    return int(bad or delivered(rows) < options.faults)


def parsed() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int, default=100, help="how many, delivered (100)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--where", nargs="+", default=list(HOSTS), choices=list(HOSTS))
    parser.add_argument(
        "--optimizers", nargs="+", default=list(OPTIMIZERS), choices=list(OPTIMIZERS)
    )
    parser.add_argument(
        "--raw", type=Path, default=Path("worker_faults.jsonl"), help="a line for each study"
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("worker-faults-work"),
        help="undisturbed studies, and bad ones",
    )
    parser.add_argument(
        "--page",
        type=Path,
        default=None,
        help=f"also write the page, e.g. {PAGE.relative_to(ROOT)}",
    )
    options = parser.parse_args()
    if "ray" in options.where and importlib.util.find_spec("ray") is None:
        parser.error("--where ray needs Ray: pip install 'autorl[ray]', or leave it out")
    return options


def run(faults: int, seed: int, kinds: Sequence[str], raw: Raw, work: Path) -> list[Row]:
    """Judge studies in turn until so many faults were delivered, and return their rows.

    It gives up after twice the studies that are needed if every fault can be delivered.
    """
    library = fault_machinery.Library(work)
    most = 2 * -(-faults // len(FAULTS))
    rows: list[Row] = []
    for case in worker_machinery.cases(seed, kinds):
        if delivered(rows) >= faults or len(rows) == most:
            break
        if case.name not in raw.rows:
            verdict = fault_machinery.run(case, library)
            raw.add(verdict)
            what = ", ".join(verdict.delivered) or "nothing delivered"
            print(f"{case.name} {case.kind}: {what}: {verdict.verdict} {verdict.detail}"[:500])
            sys.stdout.flush()
        rows.append(raw.rows[case.name])
    return rows


def delivered(rows: Sequence[Row]) -> int:
    """How many faults reached their studies."""
    return sum(len(row["delivered"]) for row in rows)


def page(rows: Sequence[Row], options: argparse.Namespace, kinds: Sequence[str]) -> str:
    """The counts as a page."""
    chosen = shlex.join(["--where", *options.where, "--optimizers", *options.optimizers])
    commits = ", ".join(sorted({row["commit"] for row in rows})) or "none"
    lines = [
        "# Faults of workers, nodes and drivers: the table is that of an undisturbed study",
        "",
        f"`python benchmarks/worker_faults.py --faults {options.faults} --seed {options.seed}",
        f"{chosen}`,",
        f"commit {commits}, Python {platform.python_version()}, {platform.system()},",
        f"{os.cpu_count()} cores.",
        "",
        *table(rows, kinds),
        "",
        "## What counts as what",
        "",
        COUNTS_AS,
        "",
        "## What is bad or was not delivered",
        "",
    ]
    exceptions = [
        f"- {row['name']}, {row['case']['kind']}: {text}"
        for row in rows
        for text in ([row["detail"]] if row["verdict"] == "bad" else []) + row["missed"]
    ]
    lines += exceptions or ["Nothing."]
    own = sum(row["own_folders"] for row in rows)
    lines += ["", f"Python's own folders left by processes that were killed: {own}."]
    return "\n".join(lines) + "\n"


def table(rows: Sequence[Row], kinds: Sequence[str]) -> list[str]:
    """Delivered faults and verdicts by kind of study."""
    heads = ("place and optimizer", *FAULTS, "delivered", "missed", "studies", *VERDICTS)
    lines = [f"| {' | '.join(heads)} |", "| --- |" + " ---: |" * (len(heads) - 1)]
    for kind in (*kinds, "all"):
        mine = [row for row in rows if kind in (row["case"]["kind"], "all")]
        faults = Counter(fault for row in mine for fault in row["delivered"])
        verdicts = Counter(row["verdict"] for row in mine)
        numbers = [
            *(faults[fault] for fault in FAULTS),
            delivered(mine),
            sum(len(row["missed"]) for row in mine),
            len(mine),
            *(verdicts[name] for name in VERDICTS),
        ]
        lines.append(f"| {kind} | {' | '.join(map(str, numbers))} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
