"""The commands judge, ledger and noise: an honest verdict on an edit.

Options:
    study: Study file or search space that revisions and configurations are of.
    run: Command that revisions and folders are run by, such as "{python} train.py --seed {seed}".
    metric: Name of the number that a command prints.
    minimize: Smaller is better.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from autorl.cli.options import AsJson, Settings, Workers, print_answer, say_line
from autorl.cli.run import overrides_of, stopped
from autorl.core.plain_text import counted, number
from autorl.core.types import InputError, StudyError
from autorl.report.table import columns
from autorl.statistics import verdict
from autorl.study.judging import book as books
from autorl.study.judging.judgement import MOST_RUNS, ROLE_NAMES, Terms, signed
from autorl.study.judging.runs import FILE, bench_of
from autorl.study.judging.sides import Source, side_of

JUDGEMENTS = Path("judgements")


def judge(
    sides: Annotated[list[str], typer.Argument(metavar="[A] B")],
    ledger: Annotated[Path | None, typer.Option(metavar="DIR")] = None,
    study: str | None = None,
    run: str | None = None,
    metric: str | None = None,
    minimize: bool = False,
    min_effect: float = 0.0,
    max_runs: int = MOST_RUNS,
    max_hours: float | None = None,
    pool: Annotated[int | None, typer.Option(min=2, max=300)] = None,
    out: Path = JUDGEMENTS,
    workers: Workers = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Keep B in place of A, or discard it.

    A and B are study files, folders of studies, configurations (a file, or name=value,...),
    commands with {seed}, folders or git revisions. Both are trained on tuning seeds, one by one;
    what is worth it is confirmed on held-out seeds that no look has used. The same command goes on
    where it was interrupted, and takes runs from what was trained before.

    Exit code: 0 keep, 1 discard, 2 undecided, 3 an error, with one line on standard error.

    Options:
        sides: The baseline and the edit; with --ledger that has a baseline, the edit alone.
        ledger: Judge against the ledger's baseline, with one error for the whole session; `keep`
            makes B the baseline.
        min_effect: Gain that B must exceed, in the metric's unit.
        max_runs: Most runs of B.
        max_hours: Most hours of training, of all runs that the verdict needs.
        pool: Tuning runs of a new ledger's baseline; default 30, held-out runs are twice as many.
            They grow with the session.
        out: Folder of judgements that are of no ledger, and of their runs.
    """
    try:
        if not 1 <= len(sides) <= 2 or (len(sides) == 1 and ledger is None):
            raise InputError(f"expected A and B, got {counted(len(sides), 'side')}")
        if pool is not None and ledger is None:
            raise InputError("is for a ledger", key="--pool")
        source = _source(study, run, metric, settings, minimize=minimize)
        with closing(books.Book(ledger or out, ledger=ledger is not None, pool=pool)) as book:
            *before, edit = (side_of(text, source, book.folder / "worktrees") for text in sides)
            direction = edit.spec.objective[0].direction
            terms = Terms(min_effect, max_runs, max_hours, direction=direction)
            answer = book.judge(before[0] if before else None, edit, terms, workers)
        print_answer(answer, answer.document, as_json=as_json)
    # Codes 1 and 2 are verdicts here.
    except (InputError, StudyError) as error:
        say_line(f"autorl: {error}", err=True)
        raise typer.Exit(3) from None
    except KeyboardInterrupt as error:
        raise stopped(error, "the same command goes on") from None
    raise typer.Exit(answer.judgement.exit_code)


def ledger(folder: Annotated[Path, typer.Argument(metavar="DIR")], as_json: AsJson = False) -> None:
    """The history of a ledger: what was kept, by which evidence.

    Beside each gain stands the one that is expected to survive: of many edits the luckiest scored
    more than it is worth. Writes nothing.
    """
    lines = books.read_lines(folder / FILE)
    entries = books.entries_of(lines)
    baseline = books.current_baseline(entries)
    if baseline is None:
        raise InputError("holds no judgements", file=str(folder))
    expected = books.expected_gains(entries)
    names = ("difference", "interval", "at_least", "hours")
    rows = [
        {
            "number": entry.number,
            "verdict": entry.verdict,
            "seeds": ROLE_NAMES.get(ended.get("role", "")),
            **{name: ended.get(name) for name in names},
            "runs": ended["summaries"]["edit"]["runs"] if ended else None,
            "expected": expected.get(entry.number),
            "level": entry.begun["terms"]["level"],
            "edit": entry.begun["edit"]["label"],
        }
        for entry, ended in ((entry, entry.ended or {}) for entry in entries)
    ]
    better = [row for row in rows if row["verdict"] == "keep"]
    failed = sum(entry.charged for entry in entries)
    document = {
        "ledger": lines[0]["ledger"],
        "baseline": {name: baseline[name] for name in ("label", "config", "code")},
        "judgements": rows,
        "found_gain": sum(row["difference"] or 0.0 for row in better),
        "expected_gain": sum(row["expected"] or 0.0 for row in better),
        "failed_confirmations": failed,
        "next_level": verdict.level_after(failed),
    }
    print_answer(_page(document), document, as_json=as_json)


def _page(document: dict[str, Any]) -> str:
    """Write the history for people."""
    rows = document["judgements"]
    names = ("number", "verdict", "seeds", "difference", "interval", "expected", "runs", "edit")
    header = ("", "verdict", "seeds", "gain", "95 %", "expected", "runs", "edit")
    better = sum(row["verdict"] == "keep" for row in rows)
    lines = [
        columns(header, [[_cell(row[name]) for name in names] for row in rows], indent=""),
        "",
        f"baseline now: {document['baseline']['label']}",
        f"kept: {better} of {counted(len(rows), 'edit')}; gain found "
        f"{signed(document['found_gain'])}, expected to survive "
        f"{signed(document['expected_gain'])}",
    ]
    if document["ledger"]:
        failed = counted(document["failed_confirmations"], "confirmation")
        level = 100 * document["next_level"]
        lines.append(f"error: {failed} failed, the next is tested at {level:.2g} %")
    return "\n".join(lines)


def _cell(value: object) -> str:
    if isinstance(value, list):
        return " to ".join(map(signed, value))
    return signed(value) if isinstance(value, float) else "-" if value is None else str(value)


def noise(
    side: Annotated[str, typer.Argument(metavar="A")],
    runs: Annotated[int, typer.Option(min=5, max=900)] = 10,
    study: str | None = None,
    run: str | None = None,
    metric: str | None = None,
    minimize: bool = False,
    out: Path = JUDGEMENTS,
    workers: Workers = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Measure the spread of seeds, and what can be seen in it.

    Trains A, given as to `autorl judge`, on tuning seeds. `judge` finds the runs again. How many
    runs a verdict in a new ledger needs is drawn from the measured scores.

    Options:
        side: What `autorl judge` takes as A.
        runs: Tuning seeds.
        out: Folder of judgements and their runs, a ledger's too.
    """
    source = _source(study, run, metric, settings, minimize=minimize)
    measured = side_of(side, source, out / "worktrees")
    with bench_of(out, [measured], [0], workers) as bench:
        scores = bench.scores("tuning", runs, 0, 0)[0]
        failure = bench.sides[0].failure()
        hours = bench.hours
    if failure:
        raise StudyError(f"a run of {measured.label} failed: {failure}")
    spread = float(scores.std(ddof=1))
    # A one-sided test at 5 % finds it in 80 % of n runs of each side, with normal scores.
    smallest = {n: (1.645 + 0.842) * spread * (2 / n) ** 0.5 for n in (1, 3, 5, 10, 20, 50)}
    mean = measured.spec.objectives()[0].sign * float(scores.mean())
    verdicts = []
    pools = verdict.pools(0, books.FIRST_POOL)
    for gain in (0.25, 0.5, 1.0, 2.0):
        taken = verdict.planned(scores, gain * spread, pools, verdict.level_after(0))
        median = float(np.median(taken))
        probability = float(np.isfinite(taken).mean())
        needed = int(median) if np.isfinite(median) else None
        verdicts.append({"sd": gain, "gain": gain * spread, "found": probability, "runs": needed})
    lines = [
        f"{measured.label}: mean {number(mean)}, standard deviation {number(spread)} over "
        f"{counted(runs, 'tuning seed')}",
        "  smallest gain that n runs of each side show: "
        + ", ".join(f"{n}: {number(gain)}" for n, gain in smallest.items()),
        "  verdicts in a new ledger, by gain: the part found, and the edit's runs (median)",
        columns(list(verdicts[0]), [[*map(number, it.values())] for it in verdicts]),
    ]
    document = {
        "side": measured.label,
        "mean": mean,
        "spread": spread,
        "runs": runs,
        "smallest_gain": smallest,
        "verdicts": verdicts,
        "hours": hours,
    }
    print_answer("\n".join(lines), document, as_json=as_json)


def _source(
    study: str | None, run: str | None, metric: str | None, settings: Settings, *, minimize: bool
) -> Source:
    """Say how sides are read."""
    if study is not None and run is not None:
        raise InputError("a study has its own command: leave one out", key="--run")
    overrides = overrides_of(settings)
    if metric is not None:
        overrides.setdefault("objective.metric", metric)
    if minimize:
        overrides.setdefault("objective.direction", "minimize")
    return Source(study, run, overrides)
