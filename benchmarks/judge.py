"""Sessions of edits judged by `autorl judge`, by three seeds and by one, on recorded seed noise.

    python benchmarks/judge.py --data ../shared/data/arlbench             # results/judge.md, 10 CPU-minutes
    python benchmarks/judge.py --data DIR --sessions 500                  # a twentieth of it

Noise: the residuals of ARLBench's final scores about their configurations, 215 populations of 160 values each as in
`benchmarks/error_rates.py`, in units of their standard deviation. A session draws one of them.

*Null sessions*: 100 edits that change nothing, against one baseline. A session errs if any edit is kept. *Mixed
sessions*: 80 edits that change nothing, 10 that lose and 10 that gain half or one standard deviation, in random order;
what is kept becomes the baseline with the runs that it was kept for. A session errs if an edit is kept that gains
nothing. *Gains*: an edit that gains is put at one place of a null session, and is not kept for what follows. Runs are
the edit's own: the baseline's are there, and shown apart. An edit that is not found has taken infinitely many.

`3 seeds` keeps an edit whose mean of three runs is above the baseline's mean of three, `1 seed` likewise; `paired`
trains pairs on the same seeds until an e-process of their differences passes: the mean over five lambda of the product
of exp(lambda d - log cosh(lambda d)), d in units of the first ten runs' deviation, which is a martingale if the signs
of the differences are exchangeable (de la Pena 1999); the k-th edit has the share 6 / (pi k)^2 of 0.05.
"""

from __future__ import annotations

import argparse
import math
import platform
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from error_rates import populations
from numpy.typing import NDArray

from autorl.statistics import verdict
from autorl.statistics.verdict import LOOKS, PASSED, SCREEN

HERE = Path(__file__).resolve().parent
EDITS = 100
POOL = 30
PLACES = (1, 25, 50, 75, 100)
Scores = NDArray[np.float64]


class Noise(NamedTuple):
    """Residuals of populations (populations, values), and which one each session draws from."""

    values: Scores
    chosen: NDArray[np.int64]

    def draw(
        self, runs: int, rng: np.random.Generator, rows: NDArray[np.int64] | None = None
    ) -> Scores:
        """Draw runs of some sessions, or of all."""
        chosen = self.chosen if rows is None else self.chosen[rows]
        columns = rng.integers(self.values.shape[1], size=(len(chosen), runs))
        return self.values[chosen[:, None], columns]


class Judged(NamedTuple):
    """What became of an edit in every session: kept, passed to a confirmation, its runs and held-out runs."""

    kept: NDArray[np.bool_]
    passed: NDArray[np.bool_]
    runs: NDArray[np.int64]
    held: NDArray[np.int64]


class Sessions:
    """Many sessions at once, with the state of their ledgers."""

    def __init__(self, noise: Noise, rng: np.random.Generator) -> None:
        count = len(noise.chosen)
        self.noise, self.rng = noise, rng
        self.failed = np.zeros(count, dtype=np.int64)
        self.gain = np.zeros(count)  # of the baseline over the first one
        most = verdict.pools(10**6, POOL)
        self.tuning, self.held = (noise.draw(max(size, 60), rng) for size in most)

    def judge(
        self, number: int, gains: Scores, spread: float = 1.0
    ) -> tuple[Judged, Scores, Scores]:
        """Judge an edit of every session; return its tuning and held-out runs too."""
        pools = verdict.pools(number, POOL)
        every = (self.gain + gains)[:, None]
        tuning = spread * self.noise.draw(SCREEN[-1], self.rng) + every
        size = verdict.baseline_runs(SCREEN[-1], pools[0])
        screen = verdict.screened(self.tuning[:, :size], tuning, pools[0])
        passed = screen.state == PASSED
        rows = np.flatnonzero(passed)
        held = spread * self.noise.draw(LOOKS[-1], self.rng, rows) + every[rows]
        size = verdict.baseline_runs(LOOKS[-1], pools[1])
        baseline = self.held[rows, :size]
        coins = (self.rng.random(baseline.shape), self.rng.random(held.shape))
        kept, runs = np.zeros_like(passed), screen.runs.copy()
        for failed in np.unique(self.failed[rows]):
            part = self.failed[rows] == failed
            broken = (coins[0][part], coins[1][part])
            level = verdict.level_after(int(failed))
            stage = verdict.confirmed(baseline[part], held[part], broken, pools[1], level)
            kept[rows[part]] = stage.state == PASSED
            runs[rows[part]] += stage.runs
        everyone = np.full((len(passed), LOOKS[-1]), np.nan)
        everyone[rows] = held
        return Judged(kept, passed, runs, runs - screen.runs), tuning, everyone

    def charge(self, judged: Judged) -> None:
        self.failed += judged.passed & ~judged.kept

    def replace(self, judged: Judged, tuning: Scores, held: Scores, gains: Scores) -> None:
        """Make kept edits the baselines, with the runs that they were kept for."""
        rows = np.flatnonzero(judged.kept)
        self.gain[rows] += gains[rows]
        shift = self.gain[rows, None]
        self.tuning[rows] = self.noise.draw(self.tuning.shape[1], self.rng, rows) + shift
        self.held[rows] = self.noise.draw(self.held.shape[1], self.rng, rows) + shift
        for row in rows:
            screened, used = int(judged.runs[row] - judged.held[row]), int(judged.held[row])
            self.tuning[row, :screened] = tuning[row, :screened]
            self.held[row, :used] = held[row, :used]


def rate(errs: NDArray[np.bool_]) -> str:
    """A share of sessions with its 95 % Wilson interval, in %."""
    n, p, z = len(errs), float(errs.mean()), 1.96
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return f"{100 * p:.1f} ({100 * max(0, middle - half):.1f}-{100 * min(1, middle + half):.1f})"


def null_sessions(noise: Noise, rng: np.random.Generator) -> list[str]:
    """Null sessions, and gains put at some of their places."""
    sessions = Sessions(noise, rng)
    errs = np.zeros(len(noise.chosen), dtype=bool)
    runs, passed = [], []
    found: dict[float, list[Judged]] = {0.5: [], 1.0: []}
    for number in range(EDITS):
        if number + 1 in PLACES:
            for gain, places in found.items():
                places.append(sessions.judge(number, np.full(len(errs), gain))[0])
        judged = sessions.judge(number, np.zeros(len(errs)))[0]
        sessions.charge(judged)
        errs |= judged.kept
        runs.append(judged.runs.mean())
        passed.append(judged.passed.mean())
    pools = verdict.pools(EDITS - 1, POOL)
    lines = [
        "| rule | sessions with a false keep, % | an edit that changes nothing |",
        "| --- | --- | --- |",
        f"| judge | {rate(errs)} | {np.mean(runs):.1f} runs, {100 * np.mean(passed):.0f} % confirmed |",
    ]
    for seeds in (3, 1):
        lines.append(fixed_rule(noise, rng, seeds))
    lines.append(f"| paired | {rate(paired_sessions(noise, rng))} | as many runs as it is given |")
    lines += [
        "",
        f"At most {pools[0]} tuning and {pools[1]} held-out runs of a baseline; a session has "
        f"{np.mean(sessions.failed):.1f} confirmations that fail.",
        "",
        "| gain | rule | " + " | ".join(f"edit {place}" for place in PLACES) + " | all |",
        "| --- | --- |" + " --- |" * (len(PLACES) + 1),
    ]
    for gain, places in found.items():
        taken = [np.where(judged.kept, judged.runs, np.inf) for judged in places]
        rows = {"judge": taken}
        rows["paired"] = [paired_runs(noise, rng, gain, place) for place in PLACES]
        for rule, runs_of in rows.items():
            cells = [cell(part) for part in [*runs_of, np.concatenate(runs_of)]]
            lines.append(f"| {gain:g} sd | {rule} | " + " | ".join(cells) + " |")
    return lines


def cell(taken: Scores) -> str:
    """Median runs of an edit until it is kept, and the share that is."""
    return f"{np.median(taken):.0f} ({100 * np.isfinite(taken).mean():.0f} %)"


def spread_sessions(noise: Noise, rng: np.random.Generator) -> list[str]:
    """Sessions whose edits double the spread, and leave the mean: outside the theorem."""
    sessions = Sessions(noise, rng)
    errs = np.zeros(len(noise.chosen), dtype=bool)
    for number in range(EDITS):
        judged = sessions.judge(number, np.zeros(len(errs)), spread=2.0)[0]
        sessions.charge(judged)
        errs |= judged.kept
    return [
        "",
        f"Edits that double the spread and leave the mean: {rate(errs)} % of sessions keep one.",
    ]


def mixed_sessions(noise: Noise, rng: np.random.Generator) -> list[str]:
    """Sessions whose baseline moves."""
    sessions = Sessions(noise, rng)
    count = len(noise.chosen)
    plan = np.zeros((count, EDITS))
    plan[:, :20] = rng.choice([0.5, 1.0], size=(count, 20)) * np.repeat([-1.0, 1.0], 10)
    plan = rng.permuted(plan, axis=1)
    errs = np.zeros(count, dtype=bool)
    found = 0.0
    for number in range(EDITS):
        judged, tuning, held = sessions.judge(number, plan[:, number])
        sessions.charge(judged)
        errs |= judged.kept & (plan[:, number] <= 0)
        found += float((judged.kept & (plan[:, number] > 0)).mean())
        sessions.replace(judged, tuning, held, plan[:, number])
    return [
        "",
        f"Mixed sessions: {rate(errs)} % keep an edit that gains nothing; {found:.1f} of 10 gains are kept, "
        f"{np.mean(sessions.gain):.1f} of {np.where(plan > 0, plan, 0).sum(axis=1).mean():.1f} sd gained.",
    ]


def fixed_rule(noise: Noise, rng: np.random.Generator, seeds: int) -> str:
    """What people do: a mean of so many runs above another."""
    errs = np.zeros(len(noise.chosen), dtype=bool)
    baseline = noise.draw(seeds, rng).mean(axis=1)
    single = 0.0
    for _ in range(EDITS):
        kept = noise.draw(seeds, rng).mean(axis=1) > baseline
        errs |= kept
        single += float(kept.mean()) / EDITS
    name = "1 seed" if seeds == 1 else f"{seeds} seeds"
    return f"| {name} | {rate(errs)} | {seeds} runs, {100 * single:.0f} % kept |"


def paired_runs(
    noise: Noise, rng: np.random.Generator, gain: float, number: int, most: int = 60
) -> Scores:
    """Pairs until the e-process of an edit passes."""
    return passing(noise.draw(most, rng) + gain, noise.draw(most, rng), number)


def passing(edit: Scores, baseline: Scores, number: int) -> Scores:
    scale = baseline[:, :10].std(axis=1, ddof=1)[:, None]
    x = np.array([0.25, 0.5, 1.0, 2.0, 4.0])[:, None, None] * (edit - baseline) / scale
    log_cosh = np.logaddexp(x, -x) - math.log(2)
    e = np.exp(np.cumsum(x - log_cosh, axis=2)).mean(axis=0)
    passed = e >= math.pi**2 * number**2 / (6 * verdict.ALPHA)
    return np.where(passed.any(axis=1), passed.argmax(axis=1) + 1, np.inf)


def paired_sessions(noise: Noise, rng: np.random.Generator, most: int = 60) -> NDArray[np.bool_]:
    """Say which sessions keep an edit that changes nothing by its e-process."""
    errs = np.zeros(len(noise.chosen), dtype=bool)
    baseline = noise.draw(most, rng)
    for number in range(1, EDITS + 1):
        errs |= np.isfinite(passing(noise.draw(most, rng), baseline, number))
    return errs


def read_noise(data: Path, sessions: int, rng: np.random.Generator) -> Noise:
    """Read the populations, in units of their deviation, and draw one for each session."""
    rows = []
    for task in populations(data):
        for population in task:
            values = population.ravel() - population.mean()
            rows.append(np.resize(values / values.std(), 160))
    return Noise(np.array(rows), rng.integers(len(rows), size=sessions))


def shared_luck(data: Path) -> float:
    """Mean correlation of two configurations' residuals by seed, within a population."""
    values = []
    for task in populations(data):
        for population in task:
            rows = population[population.std(axis=1) > 1e-9]
            values.append(np.corrcoef(rows)[np.triu_indices(len(rows), 1)].mean())
    return float(np.mean(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with ARLBench's landscapes/"
    )
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "judge.md")
    options = parser.parse_args()
    rng = np.random.default_rng(40)
    noise = read_noise(options.data, options.sessions, rng)
    begun = time.process_time()
    lines = ["# Sessions of 100 edits", "", "Written by `benchmarks/judge.py`.", ""]
    lines += [*(__doc__ or "").split("\n\n", 2)[2].strip().splitlines(), ""]
    lines.append(f"## {options.sessions:,} sessions on recorded seed noise\n")
    for part in (null_sessions, mixed_sessions, spread_sessions):
        lines += part(noise, rng)
    minutes = (time.process_time() - begun) / 60
    lines += [
        "",
        f"Two configurations' residuals by seed have correlation {shared_luck(options.data):.2f}: equal seeds say little.",
        "",
        f"Python {platform.python_version()}, numpy {np.__version__}; {minutes:.1f} CPU-minutes.",
    ]
    options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
