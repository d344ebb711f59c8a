"""Searches on new tasks, live: is the default study file better than random search with as many runs?

    python benchmarks/search_live.py --raw live.jsonl                 # all; writes results/search_live.md
    python benchmarks/search_live.py --algorithms ppo --repeats 2
    python benchmarks/search_live.py --raw live.jsonl --estimate      # CPU time of what is missing

*Tasks*: variants of the engine's environments, other masses, lengths and forces (contexts, as CARL has them), drawn by
`TaskFamily` with the purpose `examination`; MiniGrid's DoorKey as it is. Every repeat is another variant with other
tuning and test seeds. No prior was built from a variant; the shipped priors do know the environments themselves.

*Rows*: a whole study each, as `autorl tune` runs it, in its own process. `default` is what a study file has without the
sections `optimizer`, `evaluation` and `seeds`, with the seeds of the repeat; the others name theirs. The prior of
`environment left out` is made of the shipped landscapes of other environments alone (of SAC there are none). All have
the same number of runs in all, and the incumbent is trained anew on test seeds that no search has seen. `random,
adaptive` is the reference of the search, `random, fixed 3` that of the whole.

*Scores*: 0 and 1 are the worst run to the end that any row trained on this variant, and the best mean over test seeds
that any row reached on it. Intervals are 95 % t intervals of differences paired by variant, with the variance within
families: they speak of new variants and new seeds of these families.

Finished cells are kept in `--raw` by the version of the code that measured them; `--partial` reports on those.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import optimizers_live as live
from cells import Cell, Raw, code_version, timed
from comparisons import Share, Summary, header, label, model_text, paragraph, row, share
from numpy.typing import NDArray

if TYPE_CHECKING:
    from autorl.population.task_families import TaskFamily

HERE = Path(__file__).parent
MEASURING = ("asking", "optimizers_live", "search_live")
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
DEFAULT = "default"
REFERENCE = "random, fixed 3"
SEARCH_REFERENCE = "random, adaptive"
LEFT_OUT = "environment left out"
ROWS: Mapping[str, Mapping[str, Any]] = {
    DEFAULT: {},
    LEFT_OUT: {"optimizer": "transfer", "evaluation": "adaptive", "seeds": 5},
    REFERENCE: {"optimizer": "random", "evaluation": "fixed", "seeds": 3},
    SEARCH_REFERENCE: {"optimizer": "random", "evaluation": "adaptive", "seeds": 5},
    "tpe, adaptive": {"optimizer": "tpe", "evaluation": "adaptive", "seeds": 5},
}
"""What a row's study file says; nothing where it leaves the choice to the default."""
RUNS, TESTS = 32, 10
MOST_TUNING = 100  # seeds of a study from the first; those of another study begin after them
FIRST_TEST_SEED = 100_000
ALLOWED_LOSS = 0.02  # of the range: what "not below" means


def log_uniform(lower: float, upper: float) -> dict[str, Any]:
    return {"type": "float", "lower": lower, "upper": upper, "scale": "log"}


CONTEXTS: Mapping[str, Mapping[str, Any]] = {
    "CartPole-v1": {
        "gravity": log_uniform(5.0, 20.0),
        "length": log_uniform(0.25, 1.0),
        "masspole": log_uniform(0.05, 0.5),
        "force_mag": log_uniform(5.0, 20.0),
    },
    "Acrobot-v1": {
        "link_mass_1": log_uniform(0.5, 2.0),
        "link_mass_2": log_uniform(0.5, 2.0),
        "link_length_1": log_uniform(0.5, 1.5),
        "torque": log_uniform(0.7, 2.0),
    },
    "MiniGrid-DoorKey-5x5-v0": {},
    "Pendulum-v1": {
        "g": log_uniform(5.0, 15.0),
        "m": log_uniform(0.7, 1.4),
        "l": log_uniform(0.7, 1.4),
    },
}
"""Parameters of the variants, each from about half to twice its value, where the task can still be learned."""


@dataclass(frozen=True)
class Task:
    """An algorithm on a family of variants."""

    algorithm: str
    environment: str
    space: Any
    steps: int

    @property
    def name(self) -> str:
        return f"{self.algorithm.upper()} {self.environment}"

    @property
    def family(self) -> TaskFamily:
        return family(self.environment)


TASKS: Mapping[str, Task] = {
    task.name: task
    for task in (
        Task("ppo", "CartPole-v1", "population/ppo-small", 20_480),
        Task("ppo", "Acrobot-v1", "population/ppo-small", 61_440),
        Task("ppo", "MiniGrid-DoorKey-5x5-v0", "population/ppo-small", 102_400),
        Task("dqn", "CartPole-v1", "population/dqn-small", 25_600),
        Task("dqn", "Acrobot-v1", "population/dqn-small", 25_600),
        Task("sac", "Pendulum-v1", live.SAC, 4_096),
    )
}
ALGORITHMS = tuple(dict.fromkeys(task.algorithm for task in TASKS.values()))


@cache
def family(environment: str) -> TaskFamily:
    """The variants of an environment that judge searches, a hundred of them."""
    from autorl.population.task_families import read_task_family

    definition = {
        "name": "search-live",
        "environment": environment,
        "purpose": "examination",
        "seed": 0,
        "count": 100,
        "parameters": CONTEXTS[environment],
    }
    return read_task_family(definition)


def without_search(task: Task, repeat: int, runs: int) -> dict[str, Any]:
    """The study file on the variant of a repeat, as far as all rows share it."""
    parameters = CONTEXTS[task.environment]
    variant = dict(task.family.variants[repeat].parameters) if parameters else {}
    return {
        "name": "search-live",
        "seed": repeat,
        "trainer": f"population/{task.algorithm}",
        "environment": {"id": task.environment, "kwargs": variant},
        "space": task.space,
        "fidelity": {"steps": task.steps, "evaluations": 10, "episodes": 10},
        "budget": {"runs": runs},
        "test": {"top": 1},
        "keep": {"checkpoints": "none"},
    }


def study(task: Task, name: str, repeat: int, runs: int) -> dict[str, Any]:
    """The study file of a row on the variant of a repeat."""
    document = without_search(task, repeat, runs)
    chosen = ROWS[name] or defaults(task.name, runs)
    document["optimizer"] = {"name": chosen["optimizer"], **chosen.get("options", {})}
    if name == LEFT_OUT:
        document["optimizer"]["prior"] = others_than(task) or "none"
    document["evaluation"] = {"seeds": chosen["evaluation"]}
    first = MOST_TUNING * repeat
    first_test = FIRST_TEST_SEED + TESTS * repeat
    document["seeds"] = {
        "tuning": list(range(first, first + chosen["seeds"])),
        "test": list(range(first_test, first_test + TESTS)),
    }
    return document


def others_than(task: Task) -> list[str]:
    """Ids of the shipped landscapes of the algorithm on other environments."""
    folder = HERE.parent / "landscapes" / "autorl" / task.algorithm
    ids = [f"autorl/{task.algorithm}/{path.name}" for path in folder.iterdir() if path.is_dir()]
    return sorted(set(ids) - {f"autorl/{task.algorithm}/{task.environment}"})


@cache
def defaults(task: str, runs: int) -> Mapping[str, Any]:
    """What a study has that names neither optimizer nor seeds: the long form is the same study.

    The variant is in none of it; reading a study file takes half a second.
    """
    from autorl.study.spec import load_spec

    spec = load_spec(without_search(TASKS[task], 0, runs))
    return {
        "optimizer": spec.optimizer.name,
        "options": {"prior": spec.optimizer.options.get("prior", "auto")},
        "evaluation": spec.evaluation.seeds,
        "seeds": len(spec.plan.tuning),
    }


def measure(cell: Cell, runs: int) -> dict[str, Any]:
    """One study: test scores of its incumbent, and what it trained."""
    return live.run_cell(study(TASKS[cell.task], cell.method, cell.repeat, runs))


# -- the page ----------------------------------------------------------------------------------------------------------


def scaled(
    raw: Raw, task: str, names: Sequence[str], repeats: Sequence[int]
) -> NDArray[np.float64]:
    """Scores of rows on a family, (rows, variants), 0 and 1 as the head of this file says."""
    part = TASKS[task].algorithm
    scores = np.empty((len(names), len(repeats)))
    for column, repeat in enumerate(repeats):
        cells = [raw.cells[Cell(part, task, name, repeat).key] for name in names]
        tests = np.array([np.mean(cell["test"]) for cell in cells])
        low = min(float(tests.min()), *(cell["worst"] for cell in cells))
        width = float(tests.max()) - low
        # Where all are as bad as the worst run, none is better than another.
        scores[:, column] = (tests - low) / width if width > 0 else 0.0
    return scores


def over_variants(differences: Sequence[NDArray[np.float64]]) -> Summary:
    """The mean over families of the mean over variants, with its 95 % t interval.

    Args:
        differences: of each family, one per variant, as many in each.
    """
    from scipy.stats import t as student

    families = len(differences)
    count = len(differences[0])
    mean = float(np.mean([values.mean() for values in differences]))
    if count < 2:
        return Summary(mean, -math.inf, math.inf)
    variance = sum(values.var(ddof=1) / count for values in differences) / families**2
    half = float(student.ppf(0.975, families * (count - 1))) * math.sqrt(variance)
    return Summary(mean, mean - half, mean + half)


def report(raw: Raw, cells: Sequence[Cell], missing: int, runs: int) -> str:
    """The whole page."""
    lines = ["# Searches on new tasks, live", ""]
    lines += paragraph(
        "What was run and how it is judged: the head of `benchmarks/search_live.py`, which writes this.",
        f"{runs} runs a study, {TESTS} test seeds. `returns`: means over variants and test seeds, in the order of the",
        "families. `by the model`: of the configurations tried, how many came from scores.",
    )
    lines.append("")
    if missing:
        lines += [f"**Not finished: {missing} cells are missing.**", ""]
    for algorithm in dict.fromkeys(cell.part for cell in cells):
        lines += section(raw, [cell for cell in cells if cell.part == algorithm])
    return "\n".join([*lines, f"Code: {raw.code}.", ""])


def section(raw: Raw, cells: Sequence[Cell]) -> list[str]:
    """The table of one algorithm: rows and repeats that are finished on all its families."""
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    done = {(cell.task, cell.method, cell.repeat) for cell in cells}
    names = list(dict.fromkeys(cell.method for cell in cells))
    repeats = [
        repeat
        for repeat in sorted({cell.repeat for cell in cells})
        if all((task, name, repeat) in done for task in tasks for name in names)
    ]
    algorithm = cells[0].part.upper()
    if not repeats or REFERENCE not in names:
        return [f"## {algorithm}", "", f"Nothing to compare with: {REFERENCE} is not finished.", ""]
    environments = ", ".join(TASKS[task].environment for task in tasks)
    lines = [f"## {algorithm}: {environments}", "", f"{len(repeats)} variants of each.", ""]
    references = [name for name in (REFERENCE, SEARCH_REFERENCE) if name in names]
    heads = [head for name in references for head in (f"minus {name}", "95 %", "")]
    lines += header("", "score", *heads, "returns", "by the model")
    scores = {task: scaled(raw, task, names, repeats) for task in tasks}
    means = np.mean([values.mean(axis=1) for values in scores.values()], axis=0)
    for place in np.argsort(-means, kind="stable"):
        name = names[place]
        of_row = share_of(raw, tasks, name, repeats)
        gaps = []
        for reference in references:
            other = names.index(reference)
            gap = over_variants([values[place] - values[other] for values in scores.values()])
            gaps += [gap.text(3, "+"), "" if name == reference else verdict(gap)]
        lines.append(
            row(
                titled(name, TASKS[tasks[0]], of_row),
                f"{means[place]:.3f}",
                *gaps,
                returns(raw, tasks, name, repeats),
                model_text(name, of_row),
            )
        )
    untuned = returns(raw, tasks, REFERENCE, repeats, "default")
    return [
        *lines,
        "",
        f"Returns of the default configuration on the same test seeds: {untuned}.",
        "",
    ]


def verdict(gap: Summary) -> str:
    """What a difference says, and whether a loss beyond what is allowed is shown."""
    lost = f", more than {ALLOWED_LOSS:.0%} of the range below" if gap.high < -ALLOWED_LOSS else ""
    return gap.verdict + lost


def titled(name: str, task: Task, of_row: Share) -> str:
    """The row's name with what really ran; of the default file, with what it chose."""
    if name != DEFAULT:
        return label(name, of_row)
    chosen = defaults(task.name, RUNS)
    return label(f"{chosen['optimizer']}, {chosen['evaluation']} (default)", of_row)


def share_of(raw: Raw, tasks: Sequence[str], name: str, repeats: Sequence[int]) -> Share:
    return share([cell for task in tasks for cell in cells_of(raw, task, name, repeats)])


def returns(
    raw: Raw, tasks: Sequence[str], name: str, repeats: Sequence[int], figure: str = "test"
) -> str:
    means = [
        float(np.mean([np.mean(cell[figure]) for cell in cells_of(raw, task, name, repeats)]))
        for task in tasks
    ]
    return ", ".join(f"{mean:.4g}" for mean in means)


def cells_of(raw: Raw, task: str, name: str, repeats: Sequence[int]) -> list[Mapping[str, Any]]:
    part = TASKS[task].algorithm
    return [raw.cells[Cell(part, task, name, repeat).key] for repeat in repeats]


# -- the command -------------------------------------------------------------------------------------------------------


def wanted(given: argparse.Namespace) -> list[Cell]:
    """Every cell asked for, repeat by repeat, so that an interrupted run has whole repeats."""
    tasks = [task for task in TASKS.values() if task.algorithm in given.algorithms]
    return [
        Cell(task.algorithm, task.name, name, repeat)
        for repeat in range(given.repeats)
        for task in tasks
        for name in given.rows
    ]


def run(cells: Sequence[Cell], raw: Raw, given: argparse.Namespace) -> None:
    """Measure what is not in `raw` yet, a study per process at a time."""
    todo = [cell for cell in cells if cell not in raw]
    with ProcessPoolExecutor(given.workers, get_context("spawn")) as pool:
        pending = {pool.submit(timed, partial(measure, cell, given.runs)): cell for cell in todo}
        for number, done in enumerate(as_completed(pending), 1):
            raw.keep(pending[done], done.result())
            moment = time.strftime("%H:%M:%S")
            print(f"{moment} {number}/{len(todo)} {pending[done].key}", flush=True)


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS))
    parser.add_argument(
        "--rows", nargs="+", metavar="ROW", choices=list(ROWS), help="with the reference"
    )
    parser.add_argument("--repeats", type=int, default=10, help="variants of each family")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument(
        "--raw", type=Path, help="JSON lines of finished cells: read, and appended to"
    )
    parser.add_argument("--partial", action="store_true", help="only report on what --raw has")
    parser.add_argument("--estimate", action="store_true", help="only print the CPU time missing")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "search_live.md")
    given = parser.parse_args(arguments)
    given.rows = list(dict.fromkeys([REFERENCE, *(given.rows or ROWS)]))
    return given


def main(arguments: Sequence[str] | None = None) -> None:
    given = options(arguments)
    os.environ |= dict.fromkeys(ONE_THREAD, "1")  # of the processes that measure
    cells = wanted(given)
    # Studies of other lengths are other cells.
    raw = Raw(given.raw, f"{code_version(*MEASURING)}-{given.runs}")
    print(f"code {raw.code}: {raw.estimate(cells)}", flush=True)
    if given.estimate:
        return
    if not given.partial:
        run(cells, raw, given)
    finished = [cell for cell in cells if cell in raw]
    text = report(raw, finished, len(cells) - len(finished), given.runs)
    given.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
