"""Tasks of `search.py`: ARLBench's landscapes, what a prior of each may hold, and who answers.

Every landscape has ten seeds. In each repeat five of them, drawn anew, are the tuning seeds of the study, and the mean
over the other five judges its incumbent: 0 and 1 are the worst and the best mean over all ten seeds of the recorded
configurations. A prior of other tasks has all ten seeds of those.
"""

from __future__ import annotations

import functools
import shutil
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from autorl.core.types import Config
    from autorl.landscapes.benchmark import Replay, Surrogate

Answers = Literal["table", "surrogate", "drawn"]
"""What answers for a configuration: a recorded one near it, or a forest with the recorded seed noise. `drawn` is the
table with tuning seeds drawn with replacement from the ten: then the mean of the ten is the truth, so that what a study
says of its own choice can be checked."""

HeldOut = Literal["", "task", "family", "reversed", "moved"]
"""What a prior lacks: "" = there is no prior; the task; all of its family; `reversed` = the task, and the tables of the
prior have their ranks reversed, so that it misleads; `moved` = the task, and the tables of the prior stand at the
task's own configurations, so that what a portfolio proposes is recorded."""

ALGORITHMS = ("dqn", "ppo")
EXAMINATION = ("sac",)
"""The algorithm that nothing was chosen with: it is opened with `--exam` alone."""
TUNING = 5  # seeds of ten that a study may train with
SAME = 1e-3
"""Distance in the unit cube below which configurations are one: those of a prior are rounded."""


def family(task: str) -> str:
    """The family of a task, with which its file's name begins: `atari` of `atari_qbert_dqn`."""
    return task.split("_")[0]


def algorithm(task: str) -> str:
    """The algorithm of a task, with which its file's name ends: `dqn` of `atari_qbert_dqn`."""
    return task.rsplit("_", 1)[-1]


def task_names(data: Path, algorithms: Sequence[str]) -> list[str]:
    """Names of the tasks of some algorithms, sorted; files of others are not opened."""
    names = sorted(path.name.split(".")[0] for path in (data / "landscapes").glob("*.csv.gz"))
    return [name for name in names if algorithm(name) in algorithms]


def prior_tasks(task: str, tasks: Sequence[str], held_out: HeldOut) -> list[str]:
    """Tasks that a prior for `task` may hold: others of the algorithm, without its family where that is held out."""
    others = [
        name for name in tasks if name != task and algorithm(name) == algorithm(task) and held_out
    ]
    if held_out == "family":
        return [name for name in others if family(name) != family(task)]
    return others


@dataclass(frozen=True)
class Folders:
    """Where the landscapes of the tasks lie, by task.

    Attributes:
        whole: as they were recorded.
        reversed: with the runs of the best configuration under the worst one's name, and so on.
        moved: a folder for tables at the configurations of a task, by task.
    """

    whole: Mapping[str, str]
    reversed: Mapping[str, str]
    moved: Path = Path()

    def prior(self, task: str, held_out: HeldOut) -> list[str]:
        """Folders of the landscapes that a prior for `task` may hold."""
        chosen = self.reversed if held_out == "reversed" else self.whole
        names = prior_tasks(task, list(chosen), held_out)
        if held_out == "moved":
            return [str(self.moved / task / name) for name in names]
        return [chosen[name] for name in names]


def import_tasks(
    data: Path, tasks: Sequence[str], target: Path, *, misleading: bool, moved: bool = False
) -> Folders:
    """Import the landscapes of tasks, all seeds as tuning seeds.

    Args:
        data: folder with `landscapes/`.
        tasks: their names.
        target: folder for what is imported.
        misleading: whether those with reversed ranks are needed too.
        moved: whether those at the configurations of other tasks are.
    """
    from autorl.landscapes.importers import import_any

    folders: list[dict[str, str]] = []
    for name in ("whole", "reversed"):
        if name == "reversed" and not misleading:
            folders.append({})
            continue
        imported: dict[str, str] = {}
        for task in tasks:
            source = data / "landscapes" / f"{task}.csv.gz"
            if name == "reversed":
                source = write_reversed(source, target / "sources")
            (manifest,) = import_any(source, target / name, tuning_seeds=2 * TUNING)
            imported[task] = str(target / name / manifest.id)
        folders.append(imported)
    whole = folders[0]
    for task in whole if moved else ():
        for name in prior_tasks(task, list(whole), "moved"):
            move(whole[name], whole[task], target / "moved" / task / name)
    return Folders(whole, folders[1], target / "moved")


def move(source: str, to: str, target: Path) -> None:
    """Copy a landscape, with the space and the configurations of another of the same design."""
    shutil.copytree(source, target)
    for name in ("space.yaml", "configs.parquet"):
        shutil.copy(Path(to) / name, target / name)


def write_reversed(source: Path, folder: Path) -> Path:
    """Write a landscape's file with the ranks of its configurations reversed; the new file."""
    import pandas as pd

    rows = pd.read_csv(source)
    last = rows[rows["budget"] == rows["budget"].max()]
    # A crash (NaN) is the worst there is, here as in a search.
    filled = last.assign(performance=last["performance"].fillna(last["performance"].min()))
    means = filled.groupby("run_id")["performance"].mean().sort_values(kind="stable")
    partner = dict(zip(means.index, means.index[::-1], strict=True))
    keys = ["run_id", "seed", "budget"]
    runs = rows[[*keys, "performance"]].assign(run_id=rows["run_id"].map(partner))
    swapped = rows.drop(columns="performance").merge(runs, on=keys)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / source.name
    swapped.to_csv(path, index=False)
    return path


@dataclass(frozen=True)
class Split:
    """Seeds of one repeat.

    Attributes:
        tuning: recorded seeds that answer for those of the study, which are 0, 1, ...
        judging: positions of the held-out seeds on the seed axis.
    """

    tuning: list[int]
    judging: list[int]


class Task:
    """A task that answers studies and judges what they chose.

    Args:
        name: of the task.
        folder: of its landscape.
        answers: what answers for a configuration.

    Attributes:
        space: the landscape's search space.
        horizon: steps of a full run.
        correlation: out-of-bag rank correlation of the surrogate; None where the table answers.
    """

    def __init__(self, name: str, folder: str, answers: Answers) -> None:
        from autorl.landscapes import load_landscape
        from autorl.landscapes.benchmark import Replay, Surrogate

        self.name, self.folder, self.answers = name, folder, answers
        self.landscape = load_landscape(folder)
        grid = self.landscape.grid
        self.space = self.landscape.space
        self.horizon = int(grid.steps[-1])
        self.correlation: float | None = None
        self._table: Replay | None = None
        self._runs: Replay | Surrogate
        if answers != "surrogate":
            self._runs = self._table = Replay(self.landscape)
        else:
            # `force`: an untrusted forest is reported beside its figures, not left out.
            self._runs = surrogate = Surrogate(self.landscape, force=True)
            self.correlation = float(surrogate.quality.correlation)
        self._seeds = len(grid.seeds)
        self._final: dict[Config, NDArray[np.float64]] = {}
        complete = ~np.isnan(grid.values).any(axis=(1, 2))
        means = grid.values[complete, :, -1].mean(axis=1)
        self._low, self._high = float(means.min()), float(means.max())
        self._of_row = [self.landscape.config(int(number)) for number in grid.config_ids]
        self._recorded = [self.landscape.config(int(i)) for i in grid.config_ids[complete]]

    def split(self, repeat: int) -> Split:
        """The seeds of a repeat, the same for all methods."""
        rng = np.random.default_rng([repeat, zlib.crc32(self.name.encode())])
        if self.answers == "drawn":
            return Split(rng.integers(self._seeds, size=TUNING).tolist(), list(range(self._seeds)))
        order = rng.permutation(self._seeds).tolist()
        return Split(order[:TUNING], order[TUNING:])

    def score(self, config: Config, seed: int, until: int) -> float:
        """The score of a run, floor and penalty applied, in the metric's unit."""
        until = max(until, int(self.landscape.grid.steps[0]))
        return float(self._runs.score(config, seed, "tuning", until))

    def final(self, config: Config) -> NDArray[np.float64]:
        """Scores of a configuration at full length, one per seed, as shares of the recorded range."""
        if config not in self._final:
            scores = [self.score(config, seed, self.horizon) for seed in range(self._seeds)]
            self._final[config] = (np.array(scores) - self._low) / (self._high - self._low)
        return self._final[config]

    def answering(self, config: Config, taken: Collection[Config]) -> Config:
        """The configuration that answers for another: the nearest recorded one that is not taken.

        A recorded one answers for itself, and all do where a surrogate answers. When all recorded ones are taken the
        nearest answers once more.
        """
        if self._table is None:
            return config
        rows, distances = self._table.neighbours(config)
        near: list[Config] = [self._of_row[row] for row in rows]
        if distances[0] < SAME:
            return near[0]
        return next((config for config in near if config not in taken), near[0])

    def distance(self, config: Config) -> float:
        """How far the nearest recorded configuration is; 0 where a surrogate answers."""
        return float(self._table.neighbours(config)[1][0]) if self._table is not None else 0.0

    def judged(self, config: Config, split: Split) -> float:
        """The held-out score of a configuration."""
        return float(self.final(config)[split.judging].mean())

    def best(self, split: Split) -> float:
        """The best held-out score among the recorded configurations."""
        return float(self.table[:, split.judging].mean(axis=1).max())

    @functools.cached_property
    def table(self) -> NDArray[np.float64]:
        """Scores of the recorded configurations, (configurations, seeds), as shares of the range."""
        return np.array([self.final(config) for config in self._recorded])


@functools.cache
def loaded_task(name: str, folder: str, answers: Answers) -> Task:
    """A task, loaded when a process first needs it."""
    return Task(name, folder, answers)


@functools.cache
def trainer_of(folder: str) -> Any:
    """The trainer `tabular` of a landscape, which studies are checked against."""
    from autorl.trainers.replay import Tabular

    class AllTuning(Tabular):
        """A landscape without test seeds: a study here asks for none, and is judged outside."""

        def check_seeds(self, seeds: Sequence[int], role: str) -> None:
            if seeds:
                super().check_seeds(seeds, "tuning")

    return AllTuning(folder)
