"""Our optimizers beside ARLBench's published optimizer runs, all judged by one surrogate of held-out seeds.

    python benchmarks/arlbench_replay.py --data ../shared/data/arlbench     # everything; writes results/arlbench.md
    python benchmarks/arlbench_replay.py --data DIR --engines random smac --tasks cc_cartpole_ppo
    python benchmarks/arlbench_replay.py --data DIR --raw raw.json --estimate       # CPU time of what is missing

ARLBench (Becktepe et al. 2024) publishes, for each task, 256 Sobol configurations x 10 seeds x 10 checkpoints, and the
runs of four optimizers, 5 repeats each, that scored a configuration by its mean over the seeds 0, 1, 2.

*Ours* are run on a tuning surrogate: a forest fitted to the mean curves over the tuning seeds 0, 1, 2, plus seed noise.
The noise of a configuration is the mean of three deviations drawn from the ten recorded ones of a configuration that
shares a leaf with it, the same whenever it is asked for. *Theirs* were run on the real thing. From each run the
incumbent is taken: the best mean tuning score at full length (PBT: of the last generation).

*Both* are judged by the judge: a forest fitted to the mean final score over the seeds 3 to 9, which neither side saw,
rescaled so that 0 and 1 are the worst and best configuration recorded. Crashes have the penalty of the data set.

*Like for like*: SMAC3 itself, its own loop, design and defaults, on the tuning surrogate; and a random search on the
real thing, which draws recorded configurations, takes the best recorded mean over the tuning seeds, and has it judged
by those trees of the judge that have not seen it. How well the judge ranks the trials of a published optimizer tells
whether the published pairs of configuration and score belong together.

Budgets are the published ones: 32 full runs of configurations for optimizers of full-length runs; what SMAC+HB spent,
in full runs, for multi-fidelity ones. Our population-based optimizers are not run: a table does not know what a network
that was trained with one configuration does with another. Published PBT is listed for completeness: its incumbent is
judged as if it had been trained with its last configuration throughout.

Every row says how many of the configurations came from its method's model: see `comparisons.py`. The Gaussian processes
of SMAC3, in our loop and in its own, are run only when they are named. Finished engines are kept in `--raw` by the
version of the code that ran them.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from asking import count, play
from cells import code_version
from comparisons import (
    NOT_APART,
    Share,
    Summary,
    corrected,
    header,
    label,
    model_text,
    paragraph,
    ranked,
    row,
)
from numpy.typing import NDArray
from optimizers_tables import Tried, by_smacs_model

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(threads, "1")

HERE = Path(__file__).parent
TUNING, REPEATS, CONFIGURATIONS, DRAWS = (0, 1, 2), 5, 32, 400
RECORDED = "random search on recorded runs"
PUBLISHED = {
    "rs": "random search (published)",
    "smac": "SMAC (published)",
    "smac_mf": "SMAC+HB (published)",
    "pbt": "PBT (published)",
}
ENGINES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "random": ("random", {}),
    "random, 320 runs": ("random", {}),
    "sobol": ("sobol", {}),
    "cmaes": ("cmaes", {}),
    "de": ("de", {}),
    "cost_aware": ("cost_aware", {}),
    "tpe": ("tpe", {}),
    "gp": ("gp", {}),
    "smac": ("smac", {}),
    "smac refit=8": ("smac", {"refit": 8}),
    "smac model=gp": ("smac", {"model": "gp"}),
    "successive_halving": ("successive_halving", {}),
    "hyperband": ("hyperband", {}),
    "asha": ("asha", {}),
    "dehb": ("dehb", {}),
    "bohb": ("bohb", {}),
    "SMAC3, forest": ("smac", {}),
    "SMAC3, Gaussian process": ("smac", {}),
}
ORIGINALS = {
    "SMAC3, forest": "HyperparameterOptimizationFacade",
    "SMAC3, Gaussian process": "BlackBoxFacade",
}
DEAR = ("smac model=gp", "SMAC3, Gaussian process")  # run only when named
LIKE = (
    "SMAC3, forest",
    "random",
)  # on the same surrogate with the same budget: what ours are compared with
PARTIAL = ("successive_halving", "hyperband", "asha", "dehb", "bohb")


class Forest:
    """A random forest over configurations in the unit cube; inactive hyperparameters at their default."""

    def __init__(
        self, space: Any, units: NDArray[np.float64], targets: NDArray[np.float64], seed: int
    ) -> None:
        from sklearn.ensemble import RandomForestRegressor

        self.space = space
        self._default = np.nan_to_num(
            space.to_unit({n: h.default for n, h in space.hyperparameters.items()}), nan=0.5
        )
        self._model = RandomForestRegressor(
            100, max_features=5 / 6, min_samples_leaf=3, oob_score=True, random_state=seed, n_jobs=1
        )
        rows = np.where(np.isnan(units), self._default, units)
        self._model.fit(rows, targets)
        self._leaves = self._model.apply(rows)
        self._trees = [tree.tree_ for tree in self._model.estimators_]

    def leaves(self, config: Mapping[str, Any]) -> list[int]:
        """The leaf a configuration falls into, by tree. (scikit-learn's own `predict` takes ten times as long.)"""
        unit = self.space.to_unit(config)
        row = np.where(np.isnan(unit), self._default, unit)[None].astype(np.float32)
        return [int(tree.apply(row)[0]) for tree in self._trees]

    def predict(self, config: Mapping[str, Any]) -> NDArray[np.float64]:
        """The forest's prediction, one value per target."""
        values = [
            tree.value[leaf, :, 0]
            for tree, leaf in zip(self._trees, self.leaves(config), strict=True)
        ]
        return np.asarray(np.sum(values, axis=0) / len(values))

    def neighbour(self, config: Mapping[str, Any], rng: np.random.Generator) -> int:
        """A recorded configuration that shares a leaf of a random tree with `config`."""
        tree = int(rng.integers(len(self._trees)))
        return int(rng.choice(np.flatnonzero(self._leaves[:, tree] == self.leaves(config)[tree])))

    def correlation(self, targets: NDArray[np.float64]) -> float:
        """Rank correlation of out-of-bag predictions with the (last) target."""
        from scipy.stats import spearmanr

        predicted = self._model.oob_prediction_.reshape(len(targets), -1)[:, -1]
        return float(spearmanr(predicted, targets.reshape(len(targets), -1)[:, -1]).statistic)

    def unseen(self) -> NDArray[np.float64]:
        """Predictions for the configurations fitted to, each by the trees that have not seen it."""
        return np.asarray(self._model.oob_prediction_, dtype=np.float64)


class Task:
    """A task: the tuning surrogate, the judge, and the published runs. Imported to `folder`."""

    def __init__(self, name: str, data: Path, folder: Path) -> None:
        from autorl.landscapes import load_landscape
        from autorl.landscapes.importers import import_any

        self.name, self._data, self._folder = name, data, folder
        (manifest,) = import_any(data / "landscapes" / f"{name}.csv.gz", folder)
        landscape = load_landscape(folder / manifest.id)
        grid, self.space = landscape.grid, landscape.space
        self.steps = [int(step) for step in grid.steps]
        complete = ~np.isnan(grid.values).any(
            axis=(1, 2)
        )  # DQN BattleZone: configurations recorded for some seeds
        values = grid.values[complete].astype(np.float64)
        tuning = np.isin(grid.seeds, TUNING)
        units = np.array(
            [self.space.to_unit(landscape.config(int(i))) for i in grid.config_ids[complete]]
        )
        curves = values[:, tuning].mean(axis=1)
        self._recorded = curves[:, -1]
        self._tuning = Forest(self.space, units, curves, seed=0)
        held_out = values[:, ~tuning, -1].mean(axis=1)
        self._judge = Forest(self.space, units, held_out, seed=1)
        self.correlation = self._judge.correlation(held_out)
        self._range = float(held_out.min()), float(held_out.max())
        deviations = values - values.mean(axis=1, keepdims=True)
        self._deviations = deviations * np.sqrt(values.shape[1] / (values.shape[1] - 1))
        self._bounds = float(values.min()), float(values.max())

    @property
    def horizon(self) -> int:
        return self.steps[-1]

    def tuning_score(self, config: Any, until: int) -> float:
        """What an optimizer is told of a configuration trained until a step, as a mean over three seeds."""
        rng = np.random.default_rng(int(self.space.config_hash(config)[:12], 16))
        curves = self._deviations[self._tuning.neighbour(config, rng)]
        noise = curves[rng.integers(len(curves), size=len(TUNING))].mean(axis=0)
        place = max(0, int(np.searchsorted(self.steps, until, side="right")) - 1)
        return float(np.clip(self._tuning.predict(config)[place] + noise[place], *self._bounds))

    def judged(self, config: Any) -> float:
        """Held-out score in [0, 1] of the recorded range."""
        return float(self._rescaled(self._judge.predict(config))[0])

    def _rescaled(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        low, high = self._range
        return np.asarray((scores - low) / (high - low))

    def drawn(self) -> list[float]:
        """Judged incumbents of random search on recorded runs: `REPEATS` means over `DRAWS` searches each."""
        rng, judged = np.random.default_rng(0), self._rescaled(self._judge.unseen())

        def searched() -> float:
            rows = rng.choice(len(judged), CONFIGURATIONS, replace=False)
            return float(judged[rows[np.argmax(self._recorded[rows])]])

        return [float(np.mean([searched() for _ in range(DRAWS)])) for _ in range(REPEATS)]

    def published(self, method: str) -> tuple[list[Any], float, float]:
        """The incumbent of each published repeat, the mean spending in full-length runs, and how well the judge ranks
        the full-length trials of a repeat (mean rank correlation)."""
        from autorl.landscapes import load_landscape
        from autorl.landscapes.importers import import_any

        with tempfile.TemporaryDirectory() as only:
            (Path(only) / method).mkdir()
            source = self._data / "optimizer_runs" / method / f"{self.name}.csv.gz"
            (Path(only) / method / source.name).symlink_to(source.resolve())
            (manifest,) = import_any(only, self._folder)
        runs = load_landscape(self._folder / manifest.id)
        rows = runs.sql(
            "SELECT split_part(member, '/', 1) AS repeat, config_id, member, avg(coalesce(eval_return, -1e30)) AS score"
            " FROM runs JOIN evals USING (run_id) WHERE step = (SELECT max(step) FROM evals)"
            " GROUP BY ALL ORDER BY repeat, score DESC, member"
        ).df()
        steps = runs.sql("SELECT sum(environment_steps) FROM runs").fetchall()[0][0]
        repeats = rows.groupby("repeat", sort=True)
        spent = steps / len(TUNING) / REPEATS / self.horizon
        rows["judged"] = [self.judged(runs.config(int(number))) for number in rows["config_id"]]
        agreement = np.nanmean(
            [repeat["judged"].corr(repeat["score"], method="spearman") for _, repeat in repeats]
        )
        return (
            [runs.config(int(number)) for number in repeats.first()["config_id"]],
            float(spent),
            float(agreement),
        )


Search = tuple[Any, dict[str, int]]
"""The incumbent of a search, and how many of its configurations came from scores."""


def search(task: Task, engine: str, repeat: int, runs: float) -> Search:
    """One of our optimizers with `runs` full-length runs' worth of steps."""
    from autorl.optimizers import make

    name, options = ENGINES[engine]
    if name in ("sobol", "smac"):
        options = {**options, "seed": repeat}
    spent, found = 0.0, list[tuple[int, float, int, Any]]()

    def objective(config: Any, start: int, until: int) -> float | None:
        nonlocal spent
        spent += (until - start) / task.horizon
        if spent > runs * (1 + 1e-9):
            return None
        value = task.tuning_score(config, until)
        found.append((until, value, -len(found), config))
        return value

    proposals = play(
        make(name, task.space, horizon=task.horizon, budget=runs, **options), repeat, objective
    )
    return max(found, key=lambda each: each[:3])[3], count(proposals)


def original(task: Task, engine: str, repeat: int) -> Search:
    """SMAC3 itself on the tuning surrogate, in its own loop with its own defaults."""
    import smac
    from smac import Scenario

    from autorl.space.configspace import from_configuration

    tried, proposals = list[tuple[float, int, Any]](), list[Tried]()

    def cost(configuration: Any, seed: int = 0) -> float:
        config = from_configuration(task.space, configuration)
        tried.append((task.tuning_score(config, task.horizon), -len(tried), config))
        proposals.append(Tried(config, by_smacs_model(configuration)))
        return -tried[-1][0]

    kind = getattr(smac, ORIGINALS[engine])
    with tempfile.TemporaryDirectory() as folder:
        scenario = Scenario(
            task.space.to_configspace(),
            output_directory=Path(folder),
            deterministic=True,
            n_trials=CONFIGURATIONS,
            seed=repeat,
        )
        intensifier = kind.get_intensifier(scenario, max_config_calls=1)
        kind(
            scenario, cost, intensifier=intensifier, logging_level=False, overwrite=True
        ).optimize()
    return max(tried, key=lambda each: each[:2])[2], count(proposals)


@dataclass(frozen=True)
class Cell:
    """One task for one process."""

    task: str
    data: Path
    folder: Path
    engines: tuple[str, ...]
    done: Mapping[str, Mapping[str, Any]]


def work(cell: Cell) -> dict[str, Any]:
    """Judged scores of the incumbents by method (one list over repeats each), and each engine's record for `--raw`."""
    warnings.filterwarnings("ignore", module="sklearn")
    task = Task(cell.task, cell.data, cell.folder)
    scores: dict[str, Sequence[float]] = {RECORDED: task.drawn()}
    spent, agreement = dict[str, float](), dict[str, float]()
    for method, title in PUBLISHED.items():
        incumbents, spent[method], agreement[method] = task.published(method)
        scores[title] = [task.judged(config) for config in incumbents]
    engines = dict(cell.done)
    for engine in cell.engines:
        if engine in engines:
            continue
        runs = spent["smac_mf"] if engine in PARTIAL else 320 if "320" in engine else CONFIGURATIONS
        begun = time.process_time()
        searches = [
            original(task, engine, n) if engine in ORIGINALS else search(task, engine, n, runs)
            for n in range(REPEATS)
        ]
        counts = {
            name: float(np.mean([counted[name] for _, counted in searches]))
            for name in ("informed", "new")
        }
        judged, seconds = (
            [task.judged(config) for config, _ in searches],
            time.process_time() - begun,
        )
        engines[engine] = {"judged": judged, "seconds": seconds, **counts}
        print(f"{cell.task}: {engine} {np.mean(judged):.3f} ({seconds:.0f} s)", flush=True)
    scores |= {engine: record["judged"] for engine, record in engines.items()}
    return {
        "task": cell.task,
        "correlation": task.correlation,
        "spent": spent,
        "agreement": agreement,
        "scores": scores,
        "engines": engines,
    }


@dataclass(frozen=True)
class Table:
    """Everything measured: `scores[method]` has shape (tasks, repeats)."""

    results: list[dict[str, Any]]

    @cached_property
    def methods(self) -> list[str]:
        """The methods that were run on every task, in the order of `ENGINES`."""
        known = [RECORDED, *PUBLISHED.values(), *ENGINES]
        return [
            method for method in known if all(method in result["scores"] for result in self.results)
        ]

    @cached_property
    def scores(self) -> dict[str, NDArray[np.float64]]:
        return {
            method: np.array([result["scores"][method] for result in self.results])
            for method in self.methods
        }

    @cached_property
    def shares(self) -> dict[str, Share]:
        """How many configurations of each engine came from scores, per search."""
        every = {engine for result in self.results for engine in result["engines"]}
        records = {
            engine: [
                result["engines"][engine] for result in self.results if engine in result["engines"]
            ]
            for engine in every
        }
        return {
            engine: Share(
                *(
                    float(np.mean([record[name] for record in those]))
                    for name in ("informed", "new")
                )
            )
            for engine, those in records.items()
        }

    def name(self, method: str) -> str:
        """The method with what really ran; what was published is named as it was."""
        return label(method, self.shares[method]) if method in self.shares else method

    def p_values(self, methods: Sequence[str], other: str) -> dict[str, float]:
        """Wilcoxon's signed-rank test of each method against another over tasks, Holm-corrected over the methods."""
        means = {method: self.scores[method].mean(axis=1) for method in (*methods, other)}
        return corrected(means, other)

    def with_engine(self, engine: str) -> Table:
        """The tasks an engine was run on."""
        return Table([result for result in self.results if engine in result["scores"]])

    def ranks(
        self, methods: Sequence[str], tasks: NDArray[np.bool_] | None = None
    ) -> dict[str, float]:
        """Mean over tasks of the rank (1 = best, ties share) of each method's mean over repeats."""
        from scipy.stats import rankdata

        means = np.stack([self.scores[method].mean(axis=1) for method in methods], axis=1)
        ranks = np.array(
            [rankdata(-np.round(row, 12)) for row in means[slice(None) if tasks is None else tasks]]
        )
        return dict(zip(methods, ranks.mean(axis=0).tolist(), strict=True))

    def difference(self, one: str, other: str) -> tuple[float, float, float]:
        """Mean over tasks of `one` - `other`, and its 95 % interval: tasks, then repeats within them, resampled."""
        rng, first, second = np.random.default_rng(0), self.scores[one], self.scores[other]
        n, drawn = len(first), []
        for _ in range(5000):
            rows = rng.integers(n, size=(n, 1))
            left = first[rows, rng.integers(first.shape[1], size=first.shape)]
            right = second[rows, rng.integers(second.shape[1], size=second.shape)]
            drawn.append(left.mean() - right.mean())
        low, high = np.quantile(drawn, [0.025, 0.975])
        return float(first.mean() - second.mean()), float(low), float(high)


def report(table: Table) -> str:
    """The whole of results/arlbench.md."""
    packages = ", ".join(
        f"{name} {version(name)}" for name in ("smac", "optuna", "scikit-learn", "numpy")
    )
    return "\n".join(
        [
            "# ARLBench: our optimizers beside the published runs",
            "",
            "What was run and how both sides are judged: the head of `benchmarks/arlbench_replay.py`, which writes",
            f"this. {len(table.results)} tasks, {REPEATS} repeats. Scores: what the judge predicts on held-out seeds;",
            "0 and 1 are the worst and best configuration recorded.",
            "",
            *cautions(table),
            "",
            *overview(table),
            "",
            *like_for_like(table),
            *pairs(table),
            "",
            *by_task(table),
            "",
            f"Packages: {packages}. Command: `python benchmarks/arlbench_replay.py --data DIR`.",
            "",
        ]
    )


def cautions(table: Table) -> list[str]:
    """What the figures can tell and what not."""
    mean = {method: f"{table.scores[method].mean():.3f}" for method in table.methods}
    agreement = {
        m: np.nanmean([result["agreement"][m] for result in table.results]) for m in PUBLISHED
    }
    lines = [
        "How to read it:",
        "",
        "* Ours searched a surrogate, theirs the real thing. What a real search finds between the recorded",
        "  configurations the judge cannot see, so the comparison with published runs favours ours; random search",
        "  alone shows whether the surrogate is easier than the real thing. Like for like are the rows of SMAC3.",
        f"* How well the judge ranks the trials of a published optimizer: SMAC {agreement['smac']:.2f}, SMAC+HB",
        f"  {agreement['smac_mf']:.2f}, PBT {agreement['pbt']:.2f}, random search {agreement['rs']:.2f}. In the",
        "  published files of random search, configurations and scores do not belong together: its row says nothing.",
    ]
    if "random" in mean:
        lines.append(
            f"* Random search scores {mean['random']} on the surrogate and {mean[RECORDED]} on recorded runs."
        )
    if "random, 320 runs" in mean:
        lines += [
            f"* Ten times the runs bring random search to {mean['random, 320 runs']}. What is missing to 1 after that",
            "  is less the search than the choice of the incumbent by three noisy seeds; with 32 runs it is both.",
        ]
    return lines


def overview(table: Table) -> list[str]:
    trusted = np.array([result["correlation"] >= 0.5 for result in table.results])
    taken = [m for m in table.methods if m not in table.shares or ranked(m, table.shares[m])]
    ranks, strict = table.ranks(taken), table.ranks(taken, trusted)
    multi = np.mean([result["spent"]["smac_mf"] for result in table.results])
    budgets = {
        label: f"{np.mean([r['spent'][m] for r in table.results]):.1f}"
        for m, label in PUBLISHED.items()
    }
    budgets |= {engine: f"{multi:.1f}" for engine in PARTIAL} | {"random, 320 runs": "320"}
    lines = paragraph(
        f"The last column: the {int(trusted.sum())} tasks whose judge ranks configurations it has not seen with a",
        "correlation of 0.5 or more. `by the model`: of the configurations a search tried, how many came from scores.",
        "A method that never left its start-up is named by what it was, and not ranked (-).",
    )
    heads = (
        "optimizer",
        "full runs",
        "by the model",
        "mean score",
        "mean rank",
        "mean rank, trusted judges",
    )
    lines += ["", *header(*heads)]
    for method in sorted(table.methods, key=lambda method: ranks.get(method, np.inf)):
        spent, mean = budgets.get(method, str(CONFIGURATIONS)), table.scores[method].mean()
        model = model_text(method, table.shares[method]) if method in table.shares else "not known"
        shown = [f"{each[method]:.2f}" if method in each else "-" for each in (ranks, strict)]
        lines.append(row(table.name(method), spent, model, f"{mean:.3f}", *shown))
    return lines


def like_for_like(table: Table) -> list[str]:
    """Ours against SMAC3 itself, and everything against random search, on the same surrogate."""
    others = [other for other in LIKE if other in table.methods]
    lines = []
    for other in others:
        left_out = {other, "random, 320 runs", *(ORIGINALS if other in ORIGINALS else ())}
        methods = [
            engine for engine in ENGINES if engine in table.methods and engine not in left_out
        ]
        p_values = table.p_values(methods, other)
        lines += paragraph(
            f"Like for like, against {other} ({table.scores[other].mean():.3f}): both searched the same surrogate with",
            "the same budget (multi-fidelity methods: what SMAC+HB spent). Difference of scores with its 95 % interval",
            "over tasks and, within them, repeats: other tasks of this kind, searched again; the judge is taken as it",
            f"is. `p`: Wilcoxon's signed-rank test over tasks, Holm-corrected over the {len(methods)} comparisons of",
            "this table; told apart is what has p below 0.05 and an interval without 0.",
        )
        lines += [
            "",
            *header("optimizer", "score", "difference", "95 %", "p, Holm", f"than {other}"),
        ]
        for method in methods:
            gap = Summary(*table.difference(method, other))
            score = f"{table.scores[method].mean():.3f}"
            verdict = gap.verdict if p_values[method] < 0.05 else NOT_APART
            lines.append(
                row(table.name(method), score, gap.text(3, "+"), f"{p_values[method]:.3f}", verdict)
            )
        lines += [""]
    return lines


def pairs(table: Table) -> list[str]:
    """Every engine against the published SMAC runs, on the tasks it was run on."""
    theirs = PUBLISHED["smac"]
    lines = [
        "Against the published SMAC runs, which searched the real thing and not the surrogate, so that this favours",
        "ours: mean rank of the two (ties share), and difference of scores with its 95 % interval over tasks and",
        "repeats, not corrected for the number of rows.",
        "",
        "| optimizer | tasks | rank | rank of SMAC | score | score of SMAC | difference | interval |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for engine in [RECORDED, *ENGINES]:
        on = table.with_engine(engine)
        if not on.results:
            continue
        pair, (mean, low, high) = on.ranks([engine, theirs]), on.difference(engine, theirs)
        cells = [f"{pair[engine]:.2f}", f"{pair[theirs]:.2f}"]
        cells += [f"{on.scores[each].mean():.3f}" for each in (engine, theirs)]
        cells += [f"{mean:+.3f}", f"[{low:+.3f}, {high:+.3f}]"]
        lines.append(f"| {on.name(engine)} | {len(on.results)} | {' | '.join(cells)} |")
    missing = [engine for engine in ENGINES if engine not in table.methods]
    if missing:
        lines += ["", f"Not run on all tasks: {', '.join(missing)}."]
    return lines


def by_task(table: Table) -> list[str]:
    wanted = (
        "random",
        "tpe",
        "smac",
        "smac refit=8",
        "SMAC3, forest",
        RECORDED,
        PUBLISHED["smac"],
        PUBLISHED["smac_mf"],
    )
    shown = [method for method in wanted if method in table.methods]
    lines = [
        f"| task | judge | {' | '.join(map(table.name, shown))} |",
        f"| --- |{' --- |' * (len(shown) + 1)}",
    ]
    for number, result in enumerate(table.results):
        cells = [f"{table.scores[method][number].mean():.3f}" for method in shown]
        lines.append(f"| {result['task']} | {result['correlation']:.2f} | {' | '.join(cells)} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with landscapes/ and optimizer_runs/"
    )
    parser.add_argument(
        "--engines", nargs="*", choices=list(ENGINES), help=f"default: all but {' and '.join(DEAR)}"
    )
    parser.add_argument("--tasks", nargs="*", help="default: every file in DATA/landscapes")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "arlbench.md")
    parser.add_argument(
        "--raw", type=Path, help="JSON file of finished engines: read, and written after each task"
    )
    parser.add_argument(
        "--estimate", action="store_true", help="only print the CPU time of what is missing"
    )
    given = parser.parse_args(arguments)
    tasks = given.tasks or sorted(
        path.name.removesuffix(".csv.gz") for path in (given.data / "landscapes").iterdir()
    )
    engines = tuple(given.engines or available())
    raw = json.loads(given.raw.read_text()) if given.raw and given.raw.exists() else {}
    code = code_version("asking", "optimizers_tables", "arlbench_replay")
    done = raw.setdefault(code, {})
    print(f"code {code}: {estimate(raw, done, tasks, engines)}", flush=True)
    if given.estimate:
        return
    with tempfile.TemporaryDirectory(prefix="arlbench-") as folder:
        cells = [
            Cell(task, given.data, Path(folder), engines, done.get(task, {})) for task in tasks
        ]
        results = list(
            collected(cells, given.workers, lambda result: keep(given.raw, raw, done, result))
        )
    results.sort(key=lambda result: result["task"])
    text = report(Table(results))
    given.out.write_text(text)
    print(text)


def available() -> list[str]:
    """The engines whose optimizer is registered and whose packages are installed."""
    from autorl.optimizers import names

    return [
        engine for engine, (name, _) in ENGINES.items() if name in names() and engine not in DEAR
    ]


def estimate(
    raw: Mapping[str, Any], done: Mapping[str, Any], tasks: Sequence[str], engines: Sequence[str]
) -> str:
    """CPU time of the engines that are missing, from the median of those that any version of the code has run."""
    seconds = {
        engine: [
            records[engine]["seconds"]
            for of_code in raw.values()
            for records in of_code.values()
            if engine in records
        ]
        for engine in engines
    }
    missing = [engine for task in tasks for engine in engines if engine not in done.get(task, {})]
    total = sum(float(np.median(seconds[engine])) for engine in missing if seconds[engine])
    unknown = sorted({engine for engine in missing if not seconds[engine]})
    text = f"{len(missing)} engines on a task to run: about {total / 60:.0f} CPU-minutes"
    return text + (
        f", without {', '.join(unknown)}, of which nothing is recorded" if unknown else ""
    )


def collected(
    cells: Sequence[Cell], workers: int, note: Callable[[dict[str, Any]], None]
) -> Iterable[dict[str, Any]]:
    if workers == 1:
        for cell in cells:
            note(result := work(cell))
            yield result
        return
    with ProcessPoolExecutor(workers) as pool:
        for result in pool.map(work, cells):
            note(result)
            yield result


def keep(
    path: Path | None, raw: dict[str, Any], done: dict[str, Any], result: dict[str, Any]
) -> None:
    done[result["task"]] = {**done.get(result["task"], {}), **result["engines"]}
    if path is not None:
        path.write_text(json.dumps(raw))


if __name__ == "__main__":
    main()
