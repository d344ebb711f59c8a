"""Kill, harm and signal small studies by the hundred, and count what becomes of them: benchmarks/results/faults.md.

    python benchmarks/faults.py --seed 0 --workers 2 --raw faults.jsonl      # 300 kills, 300 faults, 200 errnos, 100 signals
    python benchmarks/faults.py --kills 20 --faults 0 --errnos 0 --signals 0 --kinds racing   # a part of it

Every case is a line in the raw file as soon as it is judged; the same command takes up where it was interrupted, and a
smaller count first is a slice of the larger one. What counts as what is in `COUNTS_AS`, and in the page. A full disk
needs root (a small tmpfs is mounted), a failing one `cc`. The exit code is 1 if anything is bad.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import platform
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "faults"))

import fault_errnos  # noqa: E402
import fault_machinery  # noqa: E402
from fault_studies import KINDS  # noqa: E402

PAGE = ROOT / "benchmarks" / "results" / "faults.md"
COUNTS_AS = """\
- **equal**: the last session ends with exit code 0 and the tables of an uninterrupted run. After kills, signals and
  full or failing disks that is every table but seconds; after a fault of a file it is configurations, proposals, evaluations,
  reductions and test scores: a chain whose checkpoint is gone is trained again and costs more steps. Cautions are
  allowed beside it.
- **refused**: exit code 1 or 2, exactly one line on standard error, and every file of a checkpoint is still there. For
  faults of files only: a study that was killed or got a signal has to go on.
- **bad**: anything else: other tables, no line or several, a traceback, another exit code, a hang, a process that
  outlives its session, something in the temporary folder, a half-written checkpoint in a study that has ended, a study
  whose log is gone and that is trained again without a line.
- **not delivered**: the study ended before its moment came. **Skipped**: the machine cannot do it.

A disk fails by calls of the C library that answer an errno, write half, or do a rename and answer an errno all the same:
from a drawn call on, for 1 to 50 calls or for ever, below the study's folder or a part of it (`failing_disk.c`). A session
that meets this has to end with the table or with exit code 1 or 2 and one line, beside lines of logs that cannot be
written and remarks that the uninterrupted study makes too; then a session on a whole disk has to end with the table.
What a script of the user reads and writes fails for ever or not at all: nobody can tell why a program of somebody
else has ended.

SIGINT, SIGTERM and SIGHUP have to end the driver with one line and 130, 143 and 129; SIGQUIT by the signal. Temporary
folders of Python and of libraries (`pymp-*`, `tmp*`), which processes that are ended by SIGKILL or SIGQUIT cannot remove,
are counted by themselves, and a traceback of Python's fork server counts for nothing where its driver was killed."""
VERDICTS = ("equal", "refused", "bad", "not delivered", "skipped")


def main() -> int:
    """Run what the raw file does not have yet, and write the page."""
    options = parsed()
    kinds = [kind for kind in options.kinds if installed(kind)]
    raw, library = Raw(options.raw), fault_machinery.Library(options.work, options.seed)
    options.work.mkdir(parents=True, exist_ok=True)
    wanted = {group: getattr(options, group) for group in fault_machinery.GROUPS}
    with ThreadPoolExecutor(options.workers) as pool:
        for group, count in wanted.items():
            run_group(cases(options.seed, group, kinds), count, raw, library, pool)
    rows = raw.counted(options.seed, kinds, wanted)
    text = page(rows, options, kinds)
    if options.page is not None:
        options.page.write_text(text)
    print(text)
    return int(any(row["verdict"] == "bad" for row in rows))


def parsed() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for group, count in (("kills", 300), ("faults", 300), ("errnos", 200), ("signals", 100)):
        parser.add_argument(
            f"--{group}", type=int, default=count, help=f"how many, of all kinds together ({count})"
        )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--workers", type=int, default=1, help="cases at once; each has two workers of its own"
    )
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument(
        "--raw", type=Path, default=Path("faults.jsonl"), help="a line for each case"
    )
    parser.add_argument(
        "--work", type=Path, default=Path("faults-work"), help="uninterrupted studies, and bad ones"
    )
    parser.add_argument(
        "--page",
        type=Path,
        default=None,
        help=f"also write the page, e.g. {PAGE.relative_to(ROOT)}",
    )
    return parser.parse_args()


def installed(kind: str) -> bool:
    """Whether what the kind of study needs can be imported."""
    needs = KINDS[kind].needs
    return needs is None or importlib.util.find_spec(needs) is not None


class Raw:
    """Verdicts in a file, a line each; safe to append from threads."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        lines = path.read_text().splitlines() if path.exists() else []
        self.rows = {row["name"]: row for row in map(json.loads, lines)}

    def add(self, verdict: fault_machinery.Verdict) -> None:
        """Keep a verdict."""
        row = {"name": verdict.case.name, **asdict(verdict), "commit": commit()}
        with self._lock:
            self.rows[verdict.case.name] = row
            with self._path.open("a") as file:
                file.write(json.dumps(row) + "\n")

    def counted(
        self, seed: int, kinds: Sequence[str], wanted: dict[str, int]
    ) -> list[dict[str, Any]]:
        """The verdicts of the cases that are asked for, in their order."""
        rows = []
        for group, count in wanted.items():
            left = count
            for case in cases(seed, group, kinds):
                row = self.rows.get(case.name)
                if left <= 0 or row is None:
                    break
                rows.append(row)
                left -= weight(row)
        return rows


def run_group(
    left: Iterator[fault_machinery.Case],
    count: int,
    raw: Raw,
    library: fault_machinery.Library,
    pool: ThreadPoolExecutor,
) -> None:
    """Judge cases in turn until `count` kills, faults or signals were delivered."""

    def judge(case: fault_machinery.Case) -> None:
        verdict = fault_machinery.run(case, library)
        raw.add(verdict)
        what = ", ".join(verdict.delivered) or "nothing delivered"
        print(
            f"{case.name} {case.kind}: {what}: {verdict.verdict} {verdict.detail}"[:500], flush=True
        )

    taken: list[fault_machinery.Case] = []
    while (missing := count - sum(weight(raw.rows[case.name]) for case in taken)) > 0:
        wave = [next(left)]
        wave += [next(left) for _ in range(missing // planned(wave[0]) - 1)]
        list(pool.map(judge, [case for case in wave if case.name not in raw.rows]))
        taken += wave


def cases(
    seed: int, group: str, kinds: Sequence[str] = tuple(KINDS)
) -> Iterator[fault_machinery.Case]:
    """The cases of a group, without end: kinds take turns, and some kinds have the cases they have among all."""
    for number, kind in enumerate(itertools.cycle(KINDS)):
        if kind in kinds:
            yield fault_machinery.Case(seed, group, number, kind)


def planned(case: fault_machinery.Case) -> int:
    """How much a case delivers if it ends as planned."""
    return fault_machinery.KILLS_PER_STUDY if case.group == "kills" else 1


def weight(row: dict[str, Any]) -> int:
    """What a judged case counts as; one that was skipped is not tried again with another."""
    return 1 if row["verdict"] == "skipped" else len(row["delivered"])


def commit() -> str:
    """The commit that is tested."""
    command = [
        "git",
        "-C",
        str(ROOT),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def page(rows: Sequence[dict[str, Any]], options: argparse.Namespace, kinds: Sequence[str]) -> str:
    """The counts as a page."""
    lines = [
        "# Faults: what is killed, harmed or signalled ends with the same table or one line",
        "",
    ]
    counts = " ".join(f"--{group} {getattr(options, group)}" for group in fault_machinery.GROUPS)
    commits = ", ".join(sorted({row["commit"] for row in rows})) or "none"
    lines += [f"`python benchmarks/faults.py {counts} --seed {options.seed}`, commit {commits},"]
    lines += [
        f"Python {platform.python_version()}, {platform.system()}, {os.cpu_count()} cores.",
        "",
    ]
    for group, title in (
        ("kills", "Kills"),
        ("faults", "Faults of files and disks"),
        ("errnos", "Errors that a disk answers"),
        ("signals", "Signals"),
    ):
        if getattr(options, group):
            lines += table(title, [row for row in rows if row["case"]["group"] == group], kinds)
    lines += ["## What counts as what", "", COUNTS_AS, ""]
    bad = [row for row in rows if row["verdict"] in ("bad", "skipped")]
    lines += ["## What is bad or skipped", ""]
    lines += [
        f"- {row['name']}, {row['case']['kind']}: {', '.join(row['delivered'])}: "
        f"{row['detail'].partition(' (kept in ')[0]}"
        for row in bad
    ]
    lines += [] if bad else ["Nothing."]
    own = sum(row["own_folders"] for row in rows)
    lines += [
        "",
        f"Temporary folders of Python and libraries left by processes that were killed: {own}.",
    ]
    return "\n".join(lines) + "\n"


def table(title: str, rows: Sequence[dict[str, Any]], kinds: Sequence[str]) -> list[str]:
    """Verdicts by kind of study, and what was delivered."""
    lines = [f"## {title}", "", f"| kind of study | delivered | studies | {' | '.join(VERDICTS)} |"]
    lines.append("| --- |" + " ---: |" * (len(VERDICTS) + 2))
    for kind in (*kinds, "all"):
        mine = [row for row in rows if kind in (row["case"]["kind"], "all")]
        verdicts = Counter(row["verdict"] for row in mine)
        numbers = [
            sum(len(row["delivered"]) for row in mine),
            len(mine),
            *(verdicts[name] for name in VERDICTS),
        ]
        lines.append(f"| {kind} | {' | '.join(map(str, numbers))} |")
    what = Counter(family(text) for row in rows for text in row["delivered"])
    listed = ", ".join(f"{name} {count}" for name, count in sorted(what.items()))
    return [*lines, "", f"Delivered: {listed or 'nothing'}.", ""]


def family(text: str) -> str:
    """What was delivered, without the file it was delivered to, and without an errno."""
    way, _, rest = text.partition(": ")
    if way.partition(" ")[0] in fault_errnos.CALLS:
        return re.sub(r" (E[A-Z]+|-?[0-9]+ h)$", "", way)
    way = (
        "flipped"
        if way.endswith("flipped")
        else way.partition(" to ")[0]
        if way.startswith("truncated")
        else way
    )
    return f"{way} {rest.partition(',')[0]}".strip()


if __name__ == "__main__":
    sys.exit(main())
