"""Searches on shipped landscapes for `optimizers.py`: a table or its surrogate answers instead of training.

A configuration's score is its mean over three of the landscape's tuning seeds, which differ between repeats. The
incumbent is judged by its mean over all test seeds at the last recorded step, as a share of the range of the recorded
configurations: 0 and 1 are the worst and the best of them. Steps are counted as in a study: promotions continue, and
pay what they add.

The originals search the same landscape through their own ask and tell, a configuration at a time, full-length runs but
for DEHB, whose promotions pay what they add as ours do. They keep their own defaults. What breaks a rule of the space
is trained as the nearest valid configuration, and they are told its score: none of them knows such rules, and SMAC's
space is the same as ours only where it can be expressed.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from asking import Objective, count, play

from autorl.core.types import Config

TUNING, RUNS = 3, 32  # seeds of a score; full runs (on all of them) that a search may train
OURS = (
    "random", "sobol", "cmaes", "tpe", "gp", "smac", "de", "cost_aware",
    "successive_halving", "hyperband", "asha", "dehb", "bohb",
)  # fmt: skip
ORIGINALS: Mapping[str, str] = {
    "Optuna TPE": "optuna",
    "SMAC3": "smac",
    "DEHB": "dehb",
}  # by their package
OPTUNA_STARTUP = 10  # Optuna's default
SETTINGS: Mapping[str, str] = {
    "Optuna TPE": f"Optuna's TPE is multivariate, its first {OPTUNA_STARTUP} configurations are random",
    "SMAC3": "SMAC3's facade for hyperparameter optimization begins with a Sobol design of at most a quarter of "
    "the budget",
    "DEHB": "DEHB has eta 2 and three lengths, as ours",
}
ROLES_NEEDED = ("tuning", "test")


def landscapes() -> dict[str, str]:
    """Folders by id of the shipped landscapes that can be searched: trained from the start, with test seeds."""
    from autorl.core.types import InputError
    from autorl.landscapes import Replay, list_landscapes, load_landscape, shipped_root

    root, found = shipped_root(), {}
    for name, folder in list_landscapes(root).items() if root else ():
        try:
            replay = Replay(load_landscape(folder))
        except InputError:  # trained in phases: a configuration alone has no score
            continue
        whole = ~np.isnan(replay.grid.values).any(
            axis=(1, 2)
        )  # in a lineage few configurations are trained to the end
        if set(ROLES_NEEDED) <= set(replay.grid.roles) and whole.sum() >= RUNS:
            found[name] = str(folder)
    return found


@dataclass(frozen=True)
class Tried:
    """A configuration of an original, and whether its model (or its evolution) made it.

    It is counted as a `Proposal` is; none of an original's is a baseline that a driver added.
    """

    config: Config
    informed: bool
    baseline: bool = False


class Table:
    """A landscape as a task: its surrogate where that can be trusted, else the nearest recorded configuration.

    Attributes:
        judge: `forest` or `nearest`.
        correlation: rank correlation of the forest's out-of-bag predictions; None without one.
    """

    def __init__(self, folder: str) -> None:
        from autorl.core.types import InputError
        from autorl.landscapes import load_landscape
        from autorl.landscapes.benchmark import Replay, Surrogate

        self.landscape = load_landscape(folder)
        self.space, grid = self.landscape.space, self.landscape.grid
        self.horizon = int(grid.steps[-1])
        self.seeds = {role: len(grid.seed_positions(role)) for role in ROLES_NEEDED}
        try:
            self._answer: Any = Surrogate(self.landscape)
            self.judge = "forest"
            self.correlation: float | None = float(self._answer.quality.correlation)
        except InputError:
            self._answer = Replay(self.landscape)
            self.judge = "nearest"
            self.correlation = None
        recorded = np.nanmean(grid.values[:, grid.seed_positions("test"), -1], axis=1)
        self.low, self.high = float(np.nanmin(recorded)), float(np.nanmax(recorded))
        self.sign = 1.0 if self.landscape.manifest.objective.direction == "maximize" else -1.0

    def score(self, config: Mapping[str, Any], until: int, seeds: list[int]) -> float:
        """What an optimizer is told: larger is better."""
        until = max(until, int(self.landscape.grid.steps[0]))
        return self.sign * float(
            np.mean([self._answer(config, seed=seed, until=until) for seed in seeds])
        )

    def judged(self, config: Mapping[str, Any]) -> float:
        """Held-out score as a share of the recorded range."""
        from autorl.core.seeds import FIRST_TEST_SEED

        seeds = range(FIRST_TEST_SEED, FIRST_TEST_SEED + self.seeds["test"])
        value = np.mean([self._answer(config, seed=seed, role="test") for seed in seeds])
        share = (float(value) - self.low) / (self.high - self.low)
        return share if self.sign > 0 else 1.0 - share


@functools.cache  # a forest takes longer to fit than a search
def table(folder: str) -> Table:
    return Table(folder)


def run_table(folder: str, engine: str, repeat: int) -> dict[str, Any]:
    """One search: the judged score of its incumbent, and how many of its configurations came from scores."""
    warnings.filterwarnings("ignore")
    task = table(folder)
    seeds = [
        int(seed)
        for seed in np.random.default_rng(repeat).permutation(task.seeds["tuning"])[:TUNING]
    ]
    spent, best, config = 0.0, (-1, -math.inf), None

    def objective(candidate: Mapping[str, Any], start: int, until: int) -> float | None:
        """The score of a candidate trained from step `start`; None when the budget is used up."""
        nonlocal spent, best, config
        spent += (until - start) / task.horizon
        if spent > RUNS * (1 + 1e-9):
            return None
        value = task.score(candidate, until, seeds)
        if (until, value) > best:
            best, config = (until, value), candidate
        return value

    search = original(engine) if engine in ORIGINALS else functools.partial(ours, engine)
    proposals = search(task, repeat, objective)
    assert config is not None
    judged = {"judged": task.judged(config), "judge": task.judge, "correlation": task.correlation}
    return judged | {"full": best[0] == task.horizon} | count(proposals)


def ours(engine: str, task: Table, repeat: int, objective: Objective) -> list[Any]:
    """One of our optimizers; its proposals."""
    from autorl import optimizers

    options: dict[str, Any] = {"seed": repeat} if engine in ("sobol", "smac") else {}
    return play(
        optimizers.make(engine, task.space, horizon=task.horizon, budget=RUNS, **options),
        repeat,
        objective,
    )


def missing() -> dict[str, str]:
    """Originals that are not installed, and the package each of them needs."""
    return {
        name: package
        for name, package in ORIGINALS.items()
        if importlib.util.find_spec(package) is None
    }


def original(engine: str) -> Callable[[Table, int, Objective], list[Tried]]:
    return {"Optuna TPE": optuna_tpe, "SMAC3": smac3, "DEHB": dehb}[engine]


def optuna_tpe(task: Table, repeat: int, objective: Objective) -> list[Tried]:
    """Optuna's sampler as its manual advises: multivariate, starting from the default configuration."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(
        seed=repeat, multivariate=True, n_startup_trials=OPTUNA_STARTUP
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    first = {
        name: 1.0 - one.default if one.scale == "flipped_log" else one.default
        for name, one in searched(task).items()
    }
    study.enqueue_trial(first)
    rng, tried = np.random.default_rng(repeat), list[Tried]()
    while True:
        trial = study.ask()
        values = {name: suggest(trial, name, one) for name, one in searched(task).items()}
        config = task.space.repair(values, rng)
        value = objective(config, 0, task.horizon)
        if value is None:
            return tried
        tried.append(Tried(config, trial.number >= OPTUNA_STARTUP))
        study.tell(trial, value)


def searched(task: Table) -> dict[str, Any]:
    """Hyperparameters that are no constants."""
    return {name: one for name, one in task.space.hyperparameters.items() if one.type != "constant"}


def suggest(trial: Any, name: str, one: Any) -> Any:
    if one.choices:
        return trial.suggest_categorical(name, list(one.choices))
    if one.scale == "flipped_log":
        return 1.0 - trial.suggest_float(name, 1.0 - one.upper, 1.0 - one.lower, log=True)
    method = trial.suggest_int if one.type == "int" else trial.suggest_float
    return method(name, one.lower, one.upper, log=one.scale == "log")


def smac3(task: Table, repeat: int, objective: Objective) -> list[Tried]:
    """SMAC's facade for hyperparameter optimization, its own initial design and defaults, on one core."""
    from pathlib import Path

    from smac import HyperparameterOptimizationFacade as Facade
    from smac import Scenario
    from smac.runhistory.dataclasses import TrialValue

    with tempfile.TemporaryDirectory() as folder:
        scenario = Scenario(
            task.space.to_configspace(),
            output_directory=Path(folder),
            deterministic=True,
            n_trials=RUNS,
            seed=repeat,
            use_default_config=True,
        )
        facade = Facade(scenario, lambda config, seed=0: 0.0, overwrite=True, logging_level=False)
        rng, tried = np.random.default_rng(repeat), list[Tried]()
        for _ in range(RUNS):
            info = facade.ask()
            config = repaired(task, info.config, rng)
            value = objective(config, 0, task.horizon)
            if value is None:
                break
            tried.append(Tried(config, by_smacs_model(info.config)))
            facade.tell(info, TrialValue(cost=-value), save=False)
    return tried


def by_smacs_model(configuration: Any) -> bool:
    """Whether SMAC notes that its acquisition function chose it: not its design, nor an interleaved random draw."""
    return not str(configuration.origin).startswith(("Initial Design", "Random Search"))


def repaired(task: Table, configuration: Any, rng: np.random.Generator) -> Config:
    """A configuration of ConfigSpace as one of ours, valid."""
    from autorl.space.configspace import from_configuration

    return task.space.repair(from_configuration(task.space, configuration), rng)


def dehb(task: Table, repeat: int, objective: Objective) -> list[Tried]:
    """DEHB with the lengths of ours (eta 2, three of them); a promotion pays what it adds, as ours does.

    Only the children of its first bracket know no scores: their parents are random members none of which was trained.
    """
    from loguru import logger

    logger.remove()
    from dehb import DEHB

    with tempfile.TemporaryDirectory() as folder:
        optimizer = DEHB(
            cs=task.space.to_configspace(),
            min_fidelity=task.horizon / 4,
            max_fidelity=task.horizon,
            eta=2,
            n_workers=1,
            output_path=folder,
            save_freq="end",
            seed=repeat,
        )
        rng, tried, reached = np.random.default_rng(repeat), list[Tried](), dict[Config, int]()
        for job in jobs(optimizer):
            until, config = round(float(job["fidelity"])), repaired(task, job["config"], rng)
            start = reached.get(config, 0) if reached.get(config, 0) < until else 0
            value = objective(config, start, until)
            if value is None:
                break
            reached[config] = until
            tried.append(Tried(config, job["bracket_id"] > 0))
            optimizer.tell(job, {"fitness": -value, "cost": until - start})
    return tried


def jobs(optimizer: Any) -> Iterator[Any]:
    while True:
        yield optimizer.ask()
