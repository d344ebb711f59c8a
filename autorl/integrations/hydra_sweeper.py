"""Sweeps of Hydra that a study searches.

The application's function is trained by Hydra's launcher, one job for each configuration and seed;
what is trained next is asked of a `Tuner`. At the end the incumbent is trained on test seeds.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from autorl.core.plain_text import counted, shown
from autorl.core.plain_values import plain
from autorl.core.seeds import SeedPlan
from autorl.core.types import InputError
from autorl.integrations.hydra_space import Searched, override_text, overrides_of, read_searched
from autorl.optimizers.registry import DEFAULT
from autorl.statistics.bootstrap import Interval
from autorl.study import Result
from autorl.study.tuner import Finished, Trial, Tuner, Waiting

try:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.utils import JobReturn
    from hydra.utils import instantiate, to_absolute_path
    from omegaconf import DictConfig, OmegaConf

    from hydra_plugins.autorl_sweeper.sweeper import AutorlSweeperConf
except ImportError as error:
    raise InputError(f"Hydra is not installed ({error}): pip install 'autorl[hydra]'") from error

RESULTS = "optimization_results.yaml"
STUDY = "study"

log = logging.getLogger(__name__)

_AUTO = "auto"
# Keys of hypersweeper's `sweeper_kwargs` that have a counterpart here.
_PEER_KEYS = frozenset(
    ("seeds", "seed_keyword", "maximize", "max_budget", "max_parallelization", "deterministic")
)
# Keys of a study file, and where a sweep has them.
_OWN_KEYS: Mapping[str, str] = {
    "space": "search_space",
    "optimizer": "optimizer",
    "direction": "direction",
    "seeds": "tuning_seeds and test_seeds",
    "fidelity": "steps",
    "callbacks": "callbacks",
}


def read_settings(options: Mapping[str, Any]) -> AutorlSweeperConf:
    """Check the section `hydra.sweeper`, and fill it in.

    hypersweeper's keys are read where its own are not given. `direction` has one for each value
    that a job returns, by default `minimize`, as for other sweepers of Hydra.

    Raises:
        InputError: a value that no sweep can have.
    """
    settings = AutorlSweeperConf(**options)
    peer = dict(settings.sweeper_kwargs or {})
    ignored = sorted(set(peer) - _PEER_KEYS)
    ignored += [name for name in ("budget", "resume") if options.get(name)]
    if ignored:
        log.warning(
            "autorl: ignored keys of another sweeper: %s; an optimizer and its options stand under "
            "hydra.sweeper.optimizer",
            ", ".join(ignored),
        )
    settings.study = dict(settings.study or {})
    for name, key in _OWN_KEYS.items():
        if name in settings.study:
            raise InputError(f"stands under hydra.sweeper.{key}", key=f"hydra.sweeper.study.{name}")
    if settings.n_trials is None and "budget" not in settings.study:
        raise InputError("say how many configurations are tried", key="hydra.sweeper.n_trials")
    if settings.n_jobs is None:
        share = peer.get("max_parallelization", 0)
        settings.n_jobs = max(1, int(share * (settings.n_trials or 0)))
    if settings.n_jobs < 1:
        message = f"expected a count of 1 or more, got {settings.n_jobs}"
        raise InputError(message, key="hydra.sweeper.n_jobs")
    if settings.steps is None and settings.budget_variable is not None:
        settings.steps = peer.get("max_budget")
    if settings.steps is not None and settings.budget_variable is None:
        raise InputError(
            "needs budget_variable, the override that says how many steps a job is trained",
            key="hydra.sweeper.steps",
        )
    if settings.seed_key == _AUTO:
        settings.seed_key = peer.get("seed_keyword", _AUTO)
    if settings.tuning_seeds is None:
        settings.tuning_seeds = peer.get("seeds") or 3
    settings.optimizer = settings.optimizer or DEFAULT
    peer_direction = "maximize" if peer.get("maximize") else "minimize"
    settings.direction = _directions(settings.direction or peer_direction)
    return settings


def _directions(stated: object) -> tuple[str, ...]:
    directions = tuple(stated) if isinstance(stated, list) else (stated,)
    for direction in directions:
        if direction not in ("minimize", "maximize"):
            raise InputError(
                f"expected minimize or maximize, got {shown(direction)}",
                key="hydra.sweeper.direction",
            )
    return directions


def run_sweep(hydra: Any, options: Mapping[str, Any], arguments: Sequence[str]) -> dict[str, Any]:
    """Search, test the incumbent on test seeds, and write the results.

    Args:
        hydra: the application, its launcher and its configuration.
        options: the section `hydra.sweeper`.
        arguments: overrides of the command line.

    Returns:
        The contents of `optimization_results.yaml` in the sweep's folder.

    Raises:
        InputError: something in the section is wrong, or a job returns no objective.
        StudyError: the first jobs failed, or nothing was scored.
    """
    settings = read_settings(options)
    # Jobs may change the working directory.
    folder = Path(str(hydra.config.hydra.sweep.dir)).resolve()
    searched, fixed = _read_space(hydra, options, arguments)
    composed = hydra.hydra_context.config_loader.load_sweep_config(hydra.config, list(fixed))
    own_values = {
        name: _own_value(composed, name) for name in searched.definition["hyperparameters"]
    }
    settings.steps = _steps(settings, composed)
    space = searched.start_from(own_values)
    seed_key = _seed_key(settings.seed_key, composed, fixed)
    plan = SeedPlan(settings.tuning_seeds, settings.test_seeds) if seed_key else SeedPlan(1, 0)
    folder.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(hydra.config, folder / "multirun.yaml")
    study: dict[str, Any] = {
        "name": str(OmegaConf.select(composed, "hydra.job.name") or "sweep"),
        "seed": settings.seed,
        # Jobs can fill a batch then: each proposal has one for each tuning seed.
        "parallelism": math.ceil((settings.n_jobs or 1) / len(plan.tuning)),
        "budget": {"configurations": settings.n_trials},
    }
    if len(settings.direction) > 1:
        study["objective"] = [
            {"metric": f"value_{place}", "direction": direction}
            for place, direction in enumerate(settings.direction)
        ]
    log.info(
        "autorl: %s, %s, %d tuning seed(s) each, then %d test seed(s); study in %s",
        counted(settings.n_trials, "configuration") if settings.n_trials else "a budget of its own",
        " and ".join(settings.direction),
        len(plan.tuning),
        len(plan.test),
        folder / STUDY,
    )
    callbacks = [instantiate(callback) for callback in options["callbacks"] or ()]
    with Tuner(
        space,
        settings.optimizer,
        settings.direction[0],
        plan,
        folder / STUDY,
        settings.steps,
        callbacks,
        **(study | dict(settings.study)),
    ) as tuner:
        jobs = Jobs(hydra, settings, tuner, folder, seed_key, fixed, searched.keys)
        jobs.search()
        if plan.test:
            jobs.test()
        results = results_of(tuner.result())
    OmegaConf.save(OmegaConf.create(results), folder / RESULTS)
    log.info("autorl: best parameters: %s", results.get("best_params", results.get("solutions")))
    log.info(
        "autorl: %s on tuning seeds, %s on test seeds; %s",
        results["tuning_score"],
        results["test_score"],
        folder / RESULTS,
    )
    return results


def _read_space(
    hydra: Any, options: Mapping[str, Any], arguments: Sequence[str]
) -> tuple[Searched, list[str]]:
    """Read the searched space, and the overrides that every job has.

    For one key the command line comes before `params`, and `params` before `search_space`.
    """
    searched = read_searched(options["search_space"], Path(to_absolute_path(".")))
    parser = OverridesParser.create(config_loader=hydra.hydra_context.config_loader)
    stated = [f"{key}={value}" for key, value in (options["params"] or {}).items()]
    fixed: dict[str, str] = {}
    for override in parser.parse_overrides([*stated, *arguments]):
        key = override.get_key_element()
        if override.is_sweep_override():
            searched.add(override)
            fixed.pop(key, None)
        elif key in searched.definition["hyperparameters"]:
            searched.fix(key, plain(override.value()))
        elif override.is_delete():
            fixed[key] = str(override.input_line)
        else:
            fixed[key] = f"{key}={override.get_value_element_as_str()}"
    if not searched.definition["hyperparameters"]:
        raise InputError(
            "nothing is searched: name hyperparameters under search_space, or sweeps such as "
            "interval(0, 1) under params",
            key="hydra.sweeper",
        )
    return searched, list(fixed.values())


def _own_value(composed: DictConfig, name: str) -> Any:
    """Return the application's value of a hyperparameter, None where it has none."""
    choices = composed.hydra.runtime.choices
    if name in choices:  # of a config group
        return choices[name]
    value = OmegaConf.select(composed, name, throw_on_missing=False)
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value


def _steps(settings: AutorlSweeperConf, composed: DictConfig) -> int | None:
    """Return the steps of a full job.

    The result is the stated number, or the application's value; None if jobs have no length.

    Raises:
        InputError: the application's own value is no number of steps.
    """
    if settings.steps is not None or settings.budget_variable is None:
        return settings.steps
    steps = OmegaConf.select(composed, settings.budget_variable)
    if steps in (None, "None"):  # the text is what YAML makes of `None` in hypersweeper's examples
        log.warning("autorl: %s has no value: every job is full", settings.budget_variable)
        return None
    if isinstance(steps, int | float) and steps >= 1 and steps == int(steps):
        return int(steps)
    raise InputError(
        f"say how many {settings.budget_variable} a full job has: the application's own value is "
        f"{shown(steps)}",
        key="hydra.sweeper.steps",
    )


def _seed_key(stated: str | None, composed: DictConfig, fixed: Iterable[str]) -> str | None:
    """Return the override that gets the seed, or None.

    Raises:
        InputError: the application has no such key, or the command line sets it.
    """
    key = "seed" if stated == _AUTO else stated
    if key is None:
        return None
    if any(text.partition("=")[0] == key for text in fixed):
        raise InputError(
            f"the sweep gives jobs their seeds: leave {key}= out (or say seed_key=null)",
            key="hydra.sweeper.seed_key",
        )
    parent, _, last = key.rpartition(".")
    section = OmegaConf.select(composed, parent) if parent else composed
    # `last in section` leaves out what has no value yet, `seed: ???`.
    names = list(section.keys()) if isinstance(section, DictConfig) else []
    if key.startswith("+") or last in names:
        return key
    if stated == _AUTO:
        log.warning(
            "autorl: the application has no key `seed`: it is taken to have no randomness, and is "
            "not tested on other seeds (hydra.sweeper.seed_key names another key)"
        )
        return None
    raise InputError(
        f"the application has no key {key!r}; `+{key}` adds one", key="hydra.sweeper.seed_key"
    )


@dataclass
class Jobs:
    """The jobs of a sweep: asked of a tuner, launched, told.

    Attributes:
        hydra: the application and its launcher.
        settings: of the sweep.
        tuner: says what is trained.
        folder: of the sweep.
        seed_key: override that gets the seed; None: there is none.
        fixed: overrides of every job.
        keys: override keys of hyperparameters that are not called like their keys.
    """

    hydra: Any
    settings: AutorlSweeperConf
    tuner: Tuner
    folder: Path
    seed_key: str | None
    fixed: Sequence[str]
    keys: Mapping[str, str]

    def __post_init__(self) -> None:
        # A sweep that is taken up again writes over no folder of its jobs.
        numbers = [int(item.name) for item in self.folder.iterdir() if item.name.isdigit()]
        self._next = max(numbers, default=-1) + 1
        self._checked = False
        self.n_jobs = self.settings.n_jobs or 1

    def search(self) -> None:
        """Train what the tuner asks for, until it asks no more."""
        while batch := list(islice(self._asked(), self.n_jobs)):
            self._launch(batch)

    def test(self) -> None:
        """Train the incumbent on the test seeds."""
        # A schedule is trained in parts, each of which begins when the one before was told.
        while trials := list(self.tuner.test_trials()):
            for begin in range(0, len(trials), self.n_jobs):
                self._launch(trials[begin : begin + self.n_jobs])

    def _asked(self) -> Iterable[Trial]:
        with suppress(Waiting, Finished):
            while True:
                yield self.tuner.ask()

    def _launch(self, trials: Sequence[Trial]) -> None:
        batch = [self._overrides(trial) for trial in trials]
        if not self._checked:
            # A wrong key is found here, not by a launcher on another machine.
            self.hydra.validate_batch_is_legal(batch[:1])
            self._checked = True
        returns = self.hydra.launcher.launch(batch, initial_job_idx=self._next)
        for place, (trial, job) in enumerate(zip(trials, returns, strict=True)):
            self._take(trial, job, self._next + place)
        self._next += len(batch)

    def _overrides(self, trial: Trial) -> list[str]:
        settings = self.settings
        overrides = [*self.fixed, *overrides_of(trial.config, self.keys)]
        if self.seed_key is not None:
            overrides.append(f"{self.seed_key}={trial.seed}")
        # A job trains on from what it loads; otherwise it begins anew.
        loads = settings.loading_variable is not None and trial.checkpoint is not None
        if settings.budget_variable is not None and settings.steps is not None:
            steps = trial.until - trial.start if loads else trial.until
            overrides.append(f"{settings.budget_variable}={steps}")
        if loads:
            overrides.append(f"{settings.loading_variable}={override_text(trial.checkpoint)}")
        if settings.saving_variable is not None:
            overrides.append(f"{settings.saving_variable}={override_text(self._saved(trial))}")
        return overrides

    def _saved(self, trial: Trial) -> str:
        folder = self.folder / "checkpoints"
        folder.mkdir(exist_ok=True)
        return str(folder / trial.id)

    def _take(self, trial: Trial, job: JobReturn, number: int) -> None:
        """Tell the tuner what a job has returned."""
        try:
            value = job.return_value  # raises what the job has raised, and prints it
        except Exception as error:  # noqa: BLE001 - of the user's function
            self.tuner.fail(trial, "crash", f"{type(error).__name__}: {error}")
            return
        checkpoint = None if self.settings.saving_variable is None else self._saved(trial)
        self.tuner.tell(trial, self._metrics(value, number), checkpoint=checkpoint)

    def _metrics(self, value: object, number: int) -> float | dict[str, float]:
        """Return the objective that a job has returned, or several by name.

        Raises:
            InputError: it is none.
        """
        directions = self.settings.direction
        if value is None:
            raise InputError(
                f"job {number} returned nothing: the function of the application must "
                "return its objective"
            )
        if isinstance(value, Mapping):
            return dict(value)
        several = isinstance(value, Sequence | np.ndarray) and np.ndim(value) == 1
        values: list[Any] = list(value) if several else [value]  # type: ignore[call-overload]
        if len(values) != len(directions):
            raise InputError(
                f"job {number} returned {len(values)} value(s), hydra.sweeper.direction has "
                f"{len(directions)}"
            )
        if len(directions) > 1:
            return {f"value_{place}": item for place, item in enumerate(values)}
        objective: float = values[0]
        return objective


def results_of(result: Result) -> dict[str, Any]:
    """Write a result as `optimization_results.yaml` has it.

    `name`, `best_params`, `best_value` (of several objectives `solutions`) are what other sweepers
    write there.
    """
    results: dict[str, Any] = {"name": "autorl"}
    if result.front:
        results["solutions"] = [
            {"params": point.config, "values": list(point.tuning.values())}
            for point in result.front
        ]
    else:
        results["best_params"] = result.best_params
        results["best_value"] = result.tuning
    test = result.test
    default = result.default
    results |= {
        "objective": result.objective,
        "tuning_score": result.tuning,
        "tuning_seeds": result.tuning_seeds,
        "test_score": test and test.value,
        "test_interval": test and _bounds(test.interval),
        "test_iqm": test and test.iqm,
        "test_iqm_interval": test and _bounds(test.iqm_interval),
        "test_values": {str(seed): value for seed, value in test.seeds.items()} if test else {},
        "gap": result.gap,
        "default": None,
        "caveats": list(result.caveats),
        "study": STUDY,
    }
    if default is not None and default.test is not None:
        # The application's own configuration.
        results["default"] = {
            "params": default.config,
            "tuning_score": default.tuning,
            "test_score": default.test.value,
            "improvement_iqm": result.improvement,
            "improvement_interval": _bounds(result.difference),
        }
    plain_results: dict[str, Any] = plain(results)
    return plain_results


def _bounds(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [float(interval.low), float(interval.high)]
