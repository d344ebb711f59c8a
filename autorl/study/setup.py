"""Makes what a study consists of, from its spec.

These are the loader of its trainers, its optimizer, its executor, and the checks.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autorl import executors, trainers
from autorl.evaluation import COST_METRICS
from autorl.executors.ray_worker import Kind
from autorl.executors.segment_form import SegmentForm
from autorl.executors.worker import Load, from_folder
from autorl.spec import Spec
from autorl.spec.optimizer import optimizer_of
from autorl.store.cache import cache_bound
from autorl.store.remote import RemoteFolder
from autorl.study.fixed import check_fixed_values
from autorl.study.order import predicted_cost
from autorl.study.placing import ON_THIS_MACHINE, capacity, check_resources, segments_at_once
from autorl.study.session import session
from autorl.trainers import Trainer
from autorl.trainers.options import check_names
from autorl.types import Config, Executor, InputError, Optimizer

# Random configurations: one of ten equal choices is missed by all of them once in 850 (0.9**64).
_LOOKED_AT = 64
ELSEWHERE = ("folder", "ray")
"""Executors whose workers may be on other machines."""
_SLOTS_OF_WORKERS = (
    "the `folder` executor runs as many segments at once as its workers do: leave this out, and "
    "start more of `autorl worker DIR --slots N`"
)


def trainer_loader(spec: Spec) -> Load:
    """Builds trainers in any process, user modules beside the study file included."""
    return functools.partial(from_folder, trainers.load, spec.path)


def check(spec: Spec, load: Load) -> None:
    """Check everything that can be checked without training.

    That is trainers, environment, hyperparameter names, and the optimizer.

    Raises:
        InputError: naming the key of the study file.
    """
    try:
        _check(spec, load)
    except InputError as error:
        raise spec.located(error) from None


def _check(spec: Spec, load: Load) -> None:
    names = spec.search_space.names
    for algorithm, trainer in spec.trainers.items():
        prefix = f"{algorithm}." if algorithm else ""
        of_trainer = {name.removeprefix(prefix) for name in names if name.startswith(prefix)}
        loaded = load(trainer)
        check_fixed_values(loaded.fixed_values(), spec.spaces[algorithm], algorithm)
        loaded.check(spec.environment.resolve(), of_trainer)
        loaded.check_model(spec.environment.resolve(), spec.spaces[algorithm].default())
        if not spec.allow_proxy_selection:
            metrics = [objective.metric for objective in spec.objective]
            loaded.check_objective(spec.environment.resolve(), metrics, choices_of(spec, prefix))
        # None where that shows only when it runs, as with user code.
        metrics_of_runs = loaded.reported_metrics(spec.environment.resolve())
        if metrics_of_runs is not None:
            _check_metrics(spec, metrics_of_runs)
        loaded.check_seeds(spec.plan.tuning, "tuning")
        tested_seeds = spec.plan.test if spec.test.top else ()
        loaded.check_seeds(tested_seeds, "test")
    _check_configurations(spec, load)
    if spec.observation_order == "predicted_end":
        # Asked of every proposal later on, when it is too late to refuse a study.
        predicted_cost(spec, spec.search_space.default(), 0, spec.fidelity.steps)
    optimizer = make_optimizer(spec, load)
    if spec.evaluation.seeds == "racing" and getattr(optimizer, "population_based", False):
        message = (
            "every member of a population trains every tuning seed: "
            f"{spec.optimizer.name} cannot race"
        )
        raise InputError(message, key="evaluation.seeds")
    if spec.evaluation.seeds == "adaptive" and getattr(optimizer, "population_based", False):
        message = (
            "members of a population are compared while they train, on the same seeds: "
            f"{spec.optimizer.name} confirms nobody afterwards"
        )
        raise InputError(message, key="evaluation.seeds")
    if spec.storage is not None:
        RemoteFolder(spec.storage)
        cache_bound()
    _check_executor(spec)


def _check_executor(spec: Spec) -> None:
    """Refuse what the executor of a study cannot do.

    Raises:
        InputError: naming the key of the study file.
    """
    name = executor_name(spec)
    executors.check(name, executor_limits(spec), spec.executor.devices, spec.executor.address)
    if name == "folder":
        executors.check(local_executor_name(spec), executor_limits(spec), spec.executor.devices)
        if spec.executor.workers is not None:
            raise InputError(_SLOTS_OF_WORKERS, key="executor.workers")
    if spec.executor.autoscaler and (name != "ray" or not spec.executor.workers):
        message = "needs the executor `ray` and the most `workers` to ask for"
        raise InputError(message, key="executor.autoscaler")
    check_resources(spec, name)


def _check_configurations(spec: Spec, load: Load) -> None:
    """Refuse a space with a configuration that a library refuses.

    Looked at are the default and some random ones, those left out that differ from another in
    floats alone.

    Raises:
        InputError: as the trainer words it.
    """
    loaded = {trainer: load(trainer) for trainer in spec.trainers.values()}
    judges = {
        section
        for section, trainer in loaded.items()
        if type(trainer).check_configuration is not Trainer.check_configuration
    }
    if not judges:
        return
    space = spec.search_space
    # Always the same draw: a study that was accepted once is accepted again.
    rng = np.random.default_rng(0)
    drawn = [space.default(), *(space.try_sample(rng, _LOOKED_AT) for _ in range(_LOOKED_AT))]
    different = {
        _without_floats(config): config for config in reversed(drawn) if config is not None
    }
    for config in reversed(different.values()):
        trainer, values = spec.trainer_for(config)
        if trainer in judges:
            loaded[trainer].check_configuration(values)


def _without_floats(config: Config) -> Config:
    return Config({name: value for name, value in config.items() if not isinstance(value, float)})


def _check_metrics(spec: Spec, known: Collection[str]) -> None:
    """Refuse an objective or a constraint that no run reports.

    Raises:
        InputError: naming the metric.
    """
    allowed = {*known, *COST_METRICS}
    check_names([section.metric for section in spec.objective], allowed, "metric", "objective")
    check_names([section.metric for section in spec.constraints], allowed, "metric", "constraints")


def choices_of(spec: Spec, prefix: str) -> dict[str, tuple[Any, ...]]:
    """List the hyperparameters of one trainer and their possible values.

    There are none for a number.
    """
    hyperparameters = spec.search_space.hyperparameters
    return {
        name.removeprefix(prefix): item.choices
        for name, item in hyperparameters.items()
        if name.startswith(prefix)
    }


def make_optimizer(spec: Spec, load: Load) -> Optimizer:
    """Make the study's optimizer before it has observed anything."""
    return optimizer_of(spec, changeable(spec, load))


def changeable(spec: Spec, load: Load) -> frozenset[str]:
    """List the hyperparameters that a continued run may change.

    They are marked so in the space, and supported by their trainer.
    """
    allowed: set[str] = set()
    for algorithm, trainer in spec.trainers.items():
        prefix = f"{algorithm}." if algorithm else ""
        changes = load(trainer).changes
        marked = (name for name in spec.search_space.changeable if name.startswith(prefix))
        allowed.update(name for name in marked if name.removeprefix(prefix) in changes)
    return frozenset(allowed)


def executor_name(spec: Spec) -> str:
    """Name the executor of a study."""
    stated = spec.executor.name
    return stated if stated in ELSEWHERE else local_executor_name(spec)


def _best_executors(spec: Spec) -> set[str]:
    """Return what a study's trainers run best on in its environment."""
    environment = spec.environment.id
    return {spec.info(trainer).executor_for(environment) for trainer in spec.trainers.values()}


def local_executor_name(spec: Spec) -> str:
    """Name what runs the segments of a study on one machine.

    It is what its trainers run best on, unless the file says otherwise. Trainers that run in
    threads do so whatever the file says but `in_process`. Those that look a value up run in the
    driver's process only where no limit, no device and no GPU asks for another.
    """
    best = _best_executors(spec)
    stated = None if spec.executor.name in ELSEWHERE else spec.executor.name
    # In processes the compiled kernel would be loaded once a segment, not once a study.
    if best == {"threads"} and stated != "in_process":
        return "threads"
    unlimited = executor_limits(spec) == executors.Limits() and not spec.executor.devices
    needs_gpu = any(needs.gpu for needs in spec.resources_by_algorithm.values())
    in_driver = best == {"in_process"} and unlimited and not needs_gpu
    return stated or ("in_process" if in_driver else "processes")


def executor_limits(spec: Spec) -> executors.Limits:
    memory = spec.limits.memory_gb
    memory_bytes = None if memory is None else int(memory * 2**30)
    return executors.Limits(spec.limits.segment_seconds, memory_bytes)


def make_executor(
    spec: Spec, load: Load, workers: int | None = None, folder: Path | None = None
) -> Executor:
    """Make the executor of a study.

    It imports what the trainers need before they start.

    Args:
        spec: the study file.
        load: builds trainers.
        workers: segments trained at once; None = as the study says.
        folder: of the study; None where it has none.

    Raises:
        InputError: a segment needs more than this machine has, or an executor that takes no number
            of workers is given one.
    """
    if spec.executor.name == "in_process" and (workers or 1) > 1:
        # Of a study that was stored with such a number: it always ran one at a time.
        message = f"the `in_process` executor runs one at a time, not {workers}: leave this out"
        raise InputError(message, key="--workers")
    if executor_name(spec) != "folder" or folder is None:
        return make_named_executor(executor_name(spec), spec, load, workers)
    if workers is not None:
        raise InputError(_SLOTS_OF_WORKERS, key="--workers")
    form = SegmentForm(folder, spec.trainers, spec.environment.resolve(), storage=spec.storage)
    return executors.Folder(form, session(spec), lost_after=spec.executor.lost_after)


def make_local_executor(spec: Spec, load: Load, workers: int | None = None) -> Executor:
    """Make what runs the segments of a study on this machine.

    The arguments are those of `make_executor`.
    """
    return make_named_executor(local_executor_name(spec), spec, load, workers)


def make_named_executor(
    name: str,
    spec: Spec,
    load: Load,
    workers: int | None = None,
    preload: Sequence[str] | None = None,
) -> Executor:
    """Make the executor of this name for the segments of a study.

    Args:
        name: of any executor but `folder`.
        spec: the study file.
        load: builds trainers.
        workers: segments trained at once; None = as the study says.
        preload: modules that are imported once; None: those of the study's trainers.

    Raises:
        InputError: a segment needs more than this machine has.
    """
    check_resources(spec, name)
    if preload is None:
        preload = sorted(
            {module for trainer in spec.trainers.values() for module in load(trainer).preload}
        )
    if name == "ray":
        return _make_ray(spec, load, workers or spec.executor.workers, preload)
    return executors.make(
        name,
        load,
        segments_at_once(spec, name, workers),
        preload=preload,
        limits=executor_limits(spec),
        devices=[str(device) for device in spec.executor.devices],
        capacity=capacity(spec) if name in ON_THIS_MACHINE else None,
    )


def _make_ray(spec: Spec, load: Load, workers: int | None, preload: Sequence[str]) -> Executor:
    best = _best_executors(spec)
    # Who looks a value up needs no process of its own, unless a limit has to end it.
    light = best <= {"threads", "in_process"} and (
        "in_process" not in best or executor_limits(spec) == executors.Limits()
    )
    cores = None
    if workers is not None:
        # A Ray of the study's own has room for as many as the file asks for, as `processes` has.
        most = max(needs.cpu for needs in spec.resources_by_algorithm.values())
        cores = max(os.cpu_count() or 1, workers * most)
    kind: Kind = "threads" if light else "processes"
    return executors.make_ray(
        load,
        ray_address(spec),
        kind=kind,
        workers=workers,
        cores=cores,
        preload=preload,
        limits=executor_limits(spec),
        autoscaler=spec.executor.autoscaler,
    )


def ray_address(spec: Spec) -> str:
    """Give the address of a study's cluster of Ray."""
    default = "auto" if os.environ.get("RAY_ADDRESS") else "local"
    return spec.executor.address or default


def check_answers(spec: Spec) -> None:
    """Check that somebody answers at the address of a study's cluster.

    Raises:
        InputError: nobody does.
    """
    if executor_name(spec) == "ray":
        executors.check_answers(ray_address(spec))
