"""What a proposal costs: time at some hundred observations, and memory over many proposals, of every registered optimizer.

    python benchmarks/proposals.py                                  # everything; writes results/proposals.md
    python benchmarks/proposals.py --optimizers tpe smac --seconds 20

Each optimizer has a process of its own with one thread. *Time*: nine mixed hyperparameters, without rules, with the
constraint `batch_size <= n_steps` and with a condition; 500 observations, of `gp` 100, of `transfer` 1,000 (of random
configurations for optimizers of full-length runs, of its own for the others), then proposals one by one with eight in
flight; the ask and the two events it takes are timed together. An optimizer with a prior has one of 20 tasks of 256
configurations. How many of the timed proposals came from scores stands beside their time. The time of SMAC is the mean
over 16 asks, two fits of its model, that of PB2 the mean over 64, three generations of 20, each with one fit; of the
others it is the median. CPU time is what counts on a machine that does other things; wall time is given beside it.

*Memory*: as many proposals as fit in `--seconds` of CPU, at most 10,000, each scored; growth of the resident set per
proposal from the second fifth on. What every optimizer keeps is its history, a record per proposal: that is the row
`random`. Model-based optimizers, whose asks slow down with the history, are asked again and again at 200 observations.

*Beside others*: `tpe` and `random`, alone and through `Tuner` in memory, beside Optuna and (where it is installed)
rustuna: 1,000 results of 5 and of 40 floats, one at a time, asked for and told.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import logging
import math
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cells import code_version

HERE = Path(__file__).parent
HORIZON, IN_FLIGHT, OBSERVATIONS, MANY = 10_000, 8, 500, 10_000
HYPERPARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "learning_rate": {
        "type": "float",
        "lower": 1e-5,
        "upper": 1e-1,
        "scale": "log",
        "default": 3e-4,
    },
    "gamma": {
        "type": "float",
        "lower": 0.8,
        "upper": 0.9999,
        "scale": "flipped_log",
        "default": 0.99,
    },
    "ent_coef": {"type": "float", "lower": 1e-8, "upper": 1e-1, "scale": "log", "default": 1e-3},
    "gae_lambda": {"type": "float", "lower": 0.8, "upper": 1.0, "default": 0.95},
    "clip_range": {"type": "float", "lower": 0.05, "upper": 0.5, "default": 0.2},
    "n_epochs": {"type": "int", "lower": 1, "upper": 20, "default": 4},
    "n_steps": {"type": "int", "lower": 8, "upper": 2048, "scale": "log", "default": 128},
    "batch_size": {"type": "int", "lower": 8, "upper": 2048, "scale": "log", "default": 64},
    "activation": {"type": "categorical", "choices": ["relu", "tanh", "elu"]},
}
SPACES: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "constrained": {"constraints": ["batch_size <= n_steps"]},
    "conditional": {
        "conditions": {
            "clip_range": "activation == 'relu'",
            "ent_coef": "activation in ['relu', 'tanh']",
        }
    },
}
MODELS = (
    "tpe",
    "gp",
    "smac",
    "bohb",
    "pb2",
    "cost_aware",
    "rising_bandits",
    "transfer",
)  # asked again at a fixed history
OWN = (
    "de",
)  # full-length runs whose proposals carry the place they have: only its own observations are any use
MEANS = {"smac": 16, "pb2": 64}  # asks: costs come in bursts
SLOW = {
    "gp": 6
}  # times as long for memory: its working set takes some tens of asks to reach its size
OBSERVED = {"gp": 100, "transfer": 1000}  # observations of those that are not timed at OBSERVATIONS
# Milliseconds of CPU, of issue 37: of a row of the first table, and of the last hundred proposals beside others.
TARGETS = {"gp": "100", "transfer": "30"}
TARGETS_BESIDE = {("tpe", "alone"): "0.3 and 1", ("random", "Tuner"): "0.5"}
TASKS, CONFIGURATIONS = 20, 256  # of the prior of `transfer`, each task with a design of its own
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "pbt": {"population": 100, "generations": 100, "ready": 0.0},
    "pb2": {
        "population": 20,
        "generations": 100,
        "ready": 0.0,
    },  # a fit at every generation from the first
    "phases": {"phases": 4, "configurations": 4000},
    "grid": {"levels": 4},
}


@dataclass
class Player:
    """Plays an optimizer against a smooth function, with eight proposals in flight."""

    optimizer: Any
    space: Any
    number: int = 0
    informed: int = 0

    def __post_init__(self) -> None:
        self._waiting: list[tuple[int, Any]] = []

    def load(self, n: int) -> None:
        """`n` observations of random configurations."""
        import numpy as np

        rng = np.random.default_rng(0)
        for _ in range(n):
            self._propose(self._proposal(self.space.sample(rng)))
            self._score()

    def step(self) -> bool:
        """One proposal and, with eight in flight, one outcome; False when there are no more."""
        from autorl.core import seeds
        from autorl.core.types import Done, Wait

        while isinstance(
            answer := self.optimizer.ask(seeds.generator(0, "ask", self.number)), Wait
        ):
            self._score()
        if isinstance(answer, Done):
            return False
        self.informed += answer.informed
        self._propose(answer)
        if len(self._waiting) >= IN_FLIGHT:
            self._score()
        return True

    def _proposal(self, config: Any) -> Any:
        from autorl.core.types import Proposal

        return Proposal(config, HORIZON)

    def _propose(self, proposal: Any) -> None:
        from autorl.core.types import Proposed

        self.optimizer.observe(Proposed(self.number, proposal))
        self._waiting.append((self.number, proposal))
        self.number += 1

    def _score(self) -> None:
        import numpy as np

        from autorl.core.types import Scored

        number, proposal = self._waiting.pop(0)
        value = proposal.until / HORIZON - float(
            np.nansum((self.space.to_unit(proposal.config) - 0.3) ** 2)
        )
        self.optimizer.observe(Scored(number, (value,), reached=proposal.until))


def player(name: str, space: str) -> Player:
    from autorl.optimizers import find, make
    from autorl.space import load_space

    partial = find(name).partial
    hyperparameters = {
        key: {**value, "changeable": partial} for key, value in HYPERPARAMETERS.items()
    }
    made = load_space({"hyperparameters": hyperparameters, **SPACES[space]})
    changeable = frozenset(made.names) if partial else frozenset()
    options = OPTIONS.get(name, {})
    if "prior_data" in {field.name for field in dataclasses.fields(find(name).Options)}:
        options = {"prior_data": synthetic_prior(made), **options}
    return Player(
        make(name, made, horizon=HORIZON, budget=MANY, changeable=changeable, **options), made
    )


def synthetic_prior(space: Any) -> Mapping[str, Any]:
    """A prior of `TASKS` tasks, each best at a place of its own."""
    import numpy as np

    from autorl.optimizers.priors.build import fitted_prior
    from autorl.optimizers.priors.sources import Gathered
    from autorl.optimizers.priors.table import TaskTable, unit_scores

    tables = []
    for task in range(TASKS):
        rng = np.random.default_rng(task)
        best = rng.random(len(space.names))
        configs = tuple(space.sample(rng) for _ in range(CONFIGURATIONS))
        values = [-float(np.nansum((space.to_unit(config) - best) ** 2)) for config in configs]
        scores = unit_scores(np.array(values))
        tables.append(TaskTable(f"synthetic/task/{task}", "task", f"Task-{task}", configs, scores))
    return fitted_prior(Gathered([tables]), space, None, named=True).to_dict()


def timed(name: str, space: str, asks: int, seconds: float) -> dict[str, float]:
    """Milliseconds of CPU and wall of a proposal at 500 observations."""
    from autorl.optimizers import find

    playing, wanted = player(name, space), OBSERVED.get(name, OBSERVATIONS)
    if find(name).partial or name in OWN:
        while playing.number < wanted and playing.step() and time.process_time() < 4 * seconds:
            pass
    else:
        playing.load(wanted)
    observed = playing.number
    playing.step()  # what is done once: imports, the view of the history
    cpu, wall, made_before = list[float](), list[float](), playing.informed
    while len(cpu) < MEANS.get(name, asks):
        started = time.process_time(), time.perf_counter()
        going = playing.step()
        cpu.append(1e3 * (time.process_time() - started[0]))
        wall.append(1e3 * (time.perf_counter() - started[1]))
        if not going or (len(cpu) >= 8 and time.process_time() > 8 * seconds):
            break
    middle = statistics.mean if name in MEANS else statistics.median
    share = (playing.informed - made_before) / len(cpu)
    return {
        "cpu": middle(cpu),
        "wall": middle(wall),
        "worst": max(cpu),
        "observed": observed,
        "informed": share,
    }


def grown(name: str, seconds: float) -> dict[str, float]:
    """Proposals made in the time, and bytes of resident memory per proposal from the second fifth on."""
    playing = player(name, "plain")
    if name in MODELS:
        while playing.number < 200 and playing.step():
            pass
    marks, begun = list[tuple[int, int]](), time.process_time()
    for count in range(1, MANY + 1):
        if not made(playing, name, count) or time.process_time() - begun > seconds * SLOW.get(
            name, 1
        ):
            break
        if count % 20 == 0:
            marks.append((count, resident()))
    rest = marks[len(marks) // 5 :]
    if len(rest) < 2:
        return {"proposals": marks[-1][0] if marks else 0, "bytes": math.nan}
    return {
        "proposals": rest[-1][0],
        "bytes": (rest[-1][1] - rest[0][1]) / (rest[-1][0] - rest[0][0]),
    }


def made(playing: Player, name: str, count: int) -> bool:
    """One more proposal; of a model only asked for, with another generator."""
    from autorl.core import seeds

    if name not in MODELS:
        return playing.step()
    playing.optimizer.ask(seeds.generator(count, "ask", playing.number))
    return True


def resident() -> int:
    """Bytes of the resident set."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


RESULTS, SIZES = 1000, (5, 40)
ENGINES = ("alone", "Tuner", "optuna", "rustuna")


def stepper(engine: str, name: str, count: int) -> Callable[[], object]:
    """What asks for a proposal of `count` floats and tells its result."""
    if engine == "alone":
        from autorl.core import seeds
        from autorl.core.types import Proposed, Scored
        from autorl.optimizers import make
        from autorl.space import load_space

        unit = {"type": "float", "lower": -10.0, "upper": 10.0}
        space = load_space({"hyperparameters": {f"x{n}": unit for n in range(count)}})
        optimizer: Any = make(name, space, horizon=1)

        def of_optimizer() -> None:
            number = len(optimizer.history)
            proposal = optimizer.ask(seeds.generator(0, "ask", number))
            optimizer.observe(Proposed(number, proposal))
            optimizer.observe(Scored(number, (-(proposal.config["x0"] ** 2),), reached=1))

        return of_optimizer
    if engine == "Tuner":
        from autorl import SeedPlan, Tuner

        floats = {f"x{n}": "uniform(-10, 10)" for n in range(count)}
        tuner = Tuner({"hyperparameters": floats}, name, "minimize", SeedPlan(tuning=1, test=0))

        def of_tuner() -> None:
            trial = tuner.ask()
            tuner.tell(trial, trial.config["x0"] ** 2)

        return of_tuner
    library = importlib.import_module(engine)
    samplers = importlib.import_module(f"{engine}.samplers")
    sampler = samplers.TPESampler(multivariate=True, seed=0)
    if name == "random":
        sampler = samplers.RandomSampler(seed=0)
    study = library.create_study(direction="minimize", sampler=sampler)

    def of_library() -> None:
        trial = study.ask()
        values = [trial.suggest_float(f"x{n}", -10.0, 10.0) for n in range(count)]
        study.tell(trial.number, values[0] ** 2)

    return of_library


def beside(engine: str, name: str) -> dict[str, float]:
    """By number of hyperparameters: CPU seconds of all proposals, milliseconds of the last hundred."""
    warnings.simplefilter("ignore")
    logging.disable()
    found: dict[str, float] = {}
    for count in SIZES:
        step = stepper(engine, name, count)
        cpu = list[float]()
        for _ in range(RESULTS):
            started = time.process_time()
            step()
            cpu.append(time.process_time() - started)
        found |= {f"{count} total": sum(cpu), f"{count} last": 1e3 * statistics.median(cpu[-100:])}
    return found


COLUMNS = (
    "optimizer",
    "target",
    "CPU",
    "wall",
    "worst CPU",
    "from scores",
    "constrained, CPU",
    "conditional, CPU",
    "proposals",
    "bytes each",
    "note",
)


def child(what: str, name: str, space: str, asks: int, seconds: float) -> None:
    ways = {
        "time": lambda: timed(name, space, asks, seconds),
        "memory": lambda: grown(name, seconds),
        "beside": lambda: beside(space, name),
    }
    print(json.dumps(ways[what]()))


def measure(what: str, name: str, space: str, asks: int, seconds: float) -> dict[str, float] | str:
    """One measurement in a fresh process; the reason where the optimizer cannot be used so."""
    code = f"import proposals; proposals.child({what!r}, {name!r}, {space!r}, {asks}, {seconds})"
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=HERE,
        env={**os.environ, **threads},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no message"])[-1].rpartition("InputError: ")[
            2
        ]
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


@dataclass
class Measurements:
    """Finished measurements, kept in a JSON file where one is given."""

    path: Path | None
    asks: int
    seconds: float

    def __post_init__(self) -> None:
        self._done = json.loads(self.path.read_text()) if self.path and self.path.exists() else {}
        self._code = code_version("proposals")

    def __call__(self, what: str, name: str, space: str) -> dict[str, float] | str:
        key = f"{self._code} {what} {name} {space}"  # what other code took is not taken up
        if key not in self._done:
            self._done[key] = measure(what, name, space, self.asks, self.seconds)
            if self.path:
                self.path.write_text(json.dumps(self._done))
        found: dict[str, float] | str = self._done[key]
        return found


def rows(names: Sequence[str], measured: Measurements) -> Iterator[str]:
    for name in names:
        cells, notes = list[str](), list[str]()
        for space in SPACES:
            found = measured("time", name, space)
            if isinstance(found, str):
                notes.append(found)
                cells += ["-"] if space != "plain" else ["-", "-", "-", "-"]
                continue
            cells.append(f"{found['cpu']:.3g}")
            if space == "plain":
                cells += [
                    f"{found['wall']:.3g}",
                    f"{found['worst']:.3g}",
                    f"{found['informed']:.0%}",
                ]
                if found["observed"] != OBSERVATIONS:
                    notes.append(f"at {found['observed']:.0f} observations")
        memory = measured("memory", name, "plain")
        if isinstance(memory, str):
            cells += ["-", "-"]
        else:
            how = " asks" if name in MODELS else ""
            cells += [f"{memory['proposals']:,.0f}{how}", f"{memory['bytes']:,.0f}"]
        line = f"| {name} | {TARGETS.get(name, '')} | {' | '.join(cells)} | {'; '.join(dict.fromkeys(notes))} |"
        print(line, file=sys.stderr, flush=True)
        yield line


def rows_beside(measured: Measurements) -> Iterator[str]:
    for name in ("tpe", "random"):
        for engine in ENGINES:
            found = measured("beside", name, engine)
            if isinstance(found, str):  # not installed
                continue
            cells = [f"{found[f'{n} {what}']:.3g}" for n in SIZES for what in ("total", "last")]
            yield f"| {name} | {engine} | {TARGETS_BESIDE.get((name, engine), '')} | {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    from autorl.optimizers import names

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--optimizers", nargs="*", choices=names(), default=[n for n in names() if n != "schedule"]
    )
    parser.add_argument("--asks", type=int, default=16)
    parser.add_argument(
        "--seconds", type=float, default=20, help="of CPU, for the memory measurement of each"
    )
    parser.add_argument(
        "--raw", type=Path, help="JSON file of finished measurements, read and written"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results" / "proposals.md")
    given = parser.parse_args(arguments)
    load, table = os.getloadavg()[0], list[str]()
    measured = Measurements(given.raw, given.asks, given.seconds)
    for line in rows(given.optimizers, measured):
        table.append(line)
        given.out.write_text(report(table, [], load))
    given.out.write_text(report(table, list(rows_beside(measured)), load))
    print(given.out.read_text())


def report(table: Sequence[str], others: Sequence[str], load: float) -> str:
    """The whole of results/proposals.md."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "optuna", "smac", "torch"))
    lines = [
        "# What a proposal costs",
        "",
        "How it is measured: the head of `benchmarks/proposals.py`, which writes this. Milliseconds of a thread at",
        f"{OBSERVATIONS} observations, where the note says no other; bytes of resident memory per proposal (the history's",
        "own share is the row `random`), or per ask at a fixed history.",
        "",
        f"{os.cpu_count()} cores, load average {load:.1f} at the start. Python {platform.python_version()},",
        f"{packages}.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "| --- |" + " --- |" * (len(COLUMNS) - 1),
        *table,
        "",
        "## Beside others",
        "",
        f"CPU of {RESULTS:,} proposals, one at a time: all of them, in seconds, and the median of the last hundred, in",
        "milliseconds. `alone` is the optimizer, `Tuner` with the study in memory; first imports are in the sums.",
        "",
        f"| optimizer | engine | target, ms | {' | '.join(f'{n} floats, s | {n} floats, ms' for n in SIZES)} |",
        "| --- |" + " --- |" * (2 + 2 * len(SIZES)),
        *others,
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
