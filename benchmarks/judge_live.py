"""`autorl judge` on live training: null edits, known improvements, and a ledger of random edits.

    python benchmarks/judge_live.py --out FOLDER                    # all three, PPO on CartPole-v1, 10,000 steps
    python benchmarks/judge_live.py --out FOLDER --nulls 0 --gains 0 --edits 30

A null edit multiplies the learning rate by 1 + k / 10^6: other rounding, other episodes, the same algorithm. A known
improvement has the default of a hyperparameter that the baseline has spoilt. The ledger begins with the default and
judges configurations that change one to three hyperparameters to random values. At its end first and last baseline are
trained on 50 seeds that no judgement has used, and the gain is held against what the ledger expected.

The same command goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
import math
import time
from contextlib import closing, suppress
from pathlib import Path

import numpy as np

from autorl.core.types import Config, InputError
from autorl.statistics import difference_interval
from autorl.study.judging.book import Answer, Book, current_baseline, expected_gains
from autorl.study.judging.judgement import Terms
from autorl.study.judging.runs import Side, bench_of, side_again
from autorl.study.spec import Spec
from autorl.study.spec.study_file import read_study

FRESH_BLOCK = 900_000 // 1_000  # of held-out seeds that no judgement reaches
FRESH = 50
SPOILT = (
    {"learning_rate": 1e-5},
    {"learning_rate": 3e-5},
    {"n_epochs": 1},
    {"learning_rate": 6e-5},
)


def side(spec: Spec, label: str, **changes: object) -> Side:
    """The default configuration with some values changed."""
    values = {**spec.search_space.default(), **changes}
    return Side(label, spec, spec.search_space.config(values))


def nulls(spec: Spec, book: Book, count: int, workers: int) -> None:
    rate = spec.search_space.default()["learning_rate"]
    for number in range(1, count + 1):
        edit = side(spec, f"null {number}", learning_rate=rate * (1 + number * 1e-6))
        first = None if book.entries else side(spec, "default")
        say(book.judge(first, edit, Terms(), workers))


def gains(spec: Spec, folder: Path, count: int, workers: int) -> None:
    for number in range(count):
        change = dict(SPOILT[number % len(SPOILT)])
        # Another rounding each time: other runs of the same.
        change["gae_lambda"] = 0.95 * (1 + number * 1e-6)
        with closing(Book(folder / f"gain-{number}")) as book:
            spoilt = side(spec, f"spoilt {change}", **change)
            say(book.judge(spoilt, side(spec, "default"), Terms(), workers))


def random_edits(spec: Spec, book: Book, count: int, workers: int) -> None:
    for number in range(count):
        rng = np.random.default_rng(1_000 + number)
        entry = current_baseline(book.entries[:number])
        base = spec.search_space.default() if entry is None else Config(entry["config"])
        values = base
        while values == base:
            drawn = spec.search_space.try_sample(rng, 100)
            names = [
                str(name)
                for name in rng.choice(sorted(base), size=rng.integers(1, 4), replace=False)
            ]
            changes = {name: drawn[name] for name in names if drawn is not None and name in drawn}
            with suppress(InputError):  # a rule of the space forbids it beside the others
                values = spec.search_space.config({**base, **changes})
        first = None if book.entries else side(spec, "default")
        say(book.judge(first, Side(f"edit {number}: {changes}", spec, values), Terms(), workers))


def say(answer: Answer) -> None:
    judged = answer.judgement
    runs = {role: len(of["edit"]) for role, of in judged.seeds.items()}
    print(
        f"{answer.entry.number:>4} {judged.verdict:<10} {judged.why:<55.55} {runs} {answer.entry.begun['edit']['label']:.70}",
        flush=True,
    )


def final(book: Book, folder: Path, workers: int) -> None:
    """Train first and last baseline on fresh seeds."""
    first, last = book.entries[0].begun["baseline"], current_baseline(book.entries)
    assert last is not None
    expected = expected_gains(book.entries)
    better = [entry for entry in book.entries if entry.verdict == "keep"]
    if not better:
        print("nothing was kept")
        return
    sides = [side_again(described, folder) for described in (first, last)]
    with bench_of(folder, sides, (FRESH_BLOCK, FRESH_BLOCK + 1), workers) as bench:
        before, after = bench.scores("test", FRESH, FRESH, FRESH)
    rng = np.random.default_rng(0)
    interval = difference_interval(after, before, "mean", rng=rng)
    found = sum(entry.ended["difference"] for entry in better if entry.ended)
    total = sum(expected[entry.number] for entry in better)
    print(
        f"kept {len(better)} of {len(book.entries)}; gain found {found:.1f}, expected {total:.1f}, on {FRESH} new seeds "
        f"{after.mean() - before.mean():.1f} ({interval.low:.1f} to {interval.high:.1f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--nulls", type=int, default=200)
    parser.add_argument("--gains", type=int, default=20)
    parser.add_argument("--edits", type=int, default=30)
    parser.add_argument("--steps", type=int, default=10_000)
    options = parser.parse_args()
    changes = {
        "environment.id": "CartPole-v1",
        "fidelity.steps": options.steps,
        "fidelity.evaluations": 1,
        "executor.name": "in_process",
    }
    spec = read_study("population/ppo", changes)
    begun = time.monotonic()
    if options.edits:
        folder = options.out / "edits"
        with closing(Book(folder, ledger=True, pool=20)) as book:
            random_edits(spec, book, options.edits, 1)
            final(book, folder, 1)
    if options.gains:
        gains(spec, options.out, options.gains, 1)
    if options.nulls:
        with closing(Book(options.out / "nulls", ledger=True, pool=20)) as book:
            nulls(spec, book, options.nulls, 1)
            kept = sum(entry.verdict == "keep" for entry in book.entries)
            print(f"nulls: {kept} of {len(book.entries)} kept")
    print(f"{math.ceil(time.monotonic() - begun)} s")


if __name__ == "__main__":
    main()
