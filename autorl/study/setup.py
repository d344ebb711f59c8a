"""Makes what a study consists of, from its spec.

These are the loader of its trainers, its optimizer, its executor, and the checks.
"""

from __future__ import annotations

import functools
import importlib
import math
import os
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autorl import executors, trainers
from autorl.core.types import Config, Executor, FrozenMap, InputError, Optimizer, Resources
from autorl.executors import MOST_SEGMENTS, machine
from autorl.executors.devices import Capacity, most_at_once, shortage
from autorl.executors.worker import Load, from_folder
from autorl.optimizers.registry import find_stopping
from autorl.space import Space
from autorl.space.simplex import whole_name, with_weights
from autorl.statistics.episodes import INFO, info_metric
from autorl.statistics.evaluation import COST_METRICS, PEAK_MEMORY
from autorl.store.cache import cache_bound
from autorl.store.folder import JOBS
from autorl.store.remote import RemoteFolder
from autorl.study.open_proposals import predicted_cost
from autorl.study.spec import Spec
from autorl.study.spec.checks import check_against_space, check_workers, same
from autorl.study.spec.optimizer import optimizer_of
from autorl.trainers import Trainer
from autorl.trainers.contract import FixedValue
from autorl.trainers.shared import ENVIRONMENT, base_name, check_names

# Random configurations: one of ten equal choices is missed by all of them once in 850 (0.9**64).
_LOOKED_AT = 64
ELSEWHERE = ("ray", "slurm")
"""Executors whose workers may be on other machines."""
_NOT_OF_POPULATIONS = {
    "racing": "every member of a population trains every tuning seed: {} cannot race",
    "adaptive": "members of a population are compared while they train, on the same seeds: "
    "{} confirms nobody afterwards",
}
_OF_SLURM = ("cluster", "partition", "time", "batch", "sbatch")


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
    for algorithm, trainer in spec.trainers.items():
        _check_device(spec, algorithm)
        of_trainer = set(spec.spaces[algorithm].names)
        if trainer.start is not None and not spec.info(trainer).takes_start:
            raise InputError(f"trainer {trainer.name!r} begins from no policy", key="start")
        # A landscape has the floats of weights.
        if not spec.info(trainer).replays_landscape:
            of_trainer = set(map(whole_name, of_trainer))
        of_task = [name for name in of_trainer if base_name(name) == ENVIRONMENT]
        if of_task and not spec.info(trainer).takes_task:
            message = f"{trainer.name} trains in the study's own task, which {min(of_task)} changes"
            raise InputError(message, key="space")
        if spec.tasks is not None:
            load(trainer).check_tasks(spec.environments)
        for task, _ in enumerate(spec.environments):
            loaded = load(spec.on_task(trainer, task))
            check_fixed_values(loaded.fixed_values(), spec.spaces[algorithm], algorithm)
            try:
                _check_task(spec, loaded, task, of_trainer, algorithm)
            except InputError as error:
                key = error.key or ""
                if spec.tasks is None or not key.startswith("environment"):
                    raise
                key = spec.tasks.key(task) + key.removeprefix("environment")
                raise InputError(error.message, file=error.file, key=key) from None
    _check_configurations(spec, load)
    # Asked of every proposal later on, when it is too late to refuse a study.
    predicted_cost(spec, spec.search_space.default(), 0, spec.fidelity.steps)
    _check_optimizer(spec, load)
    if spec.storage is not None:
        RemoteFolder(spec.storage)
        cache_bound()
    _check_executor(spec)


def _check_optimizer(spec: Spec, load: Load) -> None:
    """Check that seeds and trainers allow what the optimizer does with agents."""
    optimizer = make_optimizer(spec, load)
    why = _NOT_OF_POPULATIONS.get(spec.evaluation.seeds)
    if why is not None and getattr(optimizer, "population_based", False):
        raise InputError(why.format(spec.optimizer.name), key="evaluation.seeds")
    if getattr(optimizer, "averages", False):
        for algorithm, trainer in spec.trainers.items():
            load(trainer).check_mean(spec.spaces[algorithm].names)


def _check_task(
    spec: Spec, trainer: Trainer, task: int, names: Collection[str], algorithm: str
) -> None:
    """Check what a trainer is asked to do on one task.

    Args:
        spec: the study file.
        trainer: of an algorithm, on the task.
        task: its number.
        names: hyperparameters of the trainer.
        algorithm: its name.
    """
    environment = spec.environments[task]
    trainer.check(environment, names)
    for config in _examined(spec.spaces[algorithm]):
        trainer.check_model(environment, with_weights(config))
    if not spec.allow_proxy_selection:
        metrics = [objective.metric for objective in spec.objective]
        trainer.check_objective(environment, metrics, choices_of(spec, algorithm))
    # It is None if only a run shows the metrics, as with user code.
    metrics_of_runs = trainer.reported_metrics(environment)
    if metrics_of_runs is not None:
        allowed = {*metrics_of_runs, *COST_METRICS}
        if spec.info(spec.trainers[algorithm]).replays_landscape:
            allowed.discard(PEAK_MEMORY)  # a look-up has not the memory of the training
        for key, stated in (("objective", spec.objective), ("constraints", spec.constraints)):
            check_names([section.metric for section in stated], allowed, "metric", key)
        check_names(spec.fidelity.metrics, allowed, "metric", "fidelity.metrics")
        if spec.optimizer.stop is not None:
            watched = find_stopping(spec.optimizer.stop).watches
            check_names(watched, allowed, "metric", "optimizer.stop")
        if (counted := spec.budget.counted) is not None:
            check_names([counted], allowed, "metric", f"budget.{counted}")
    if environment.info and not {*map(info_metric, environment.info)} <= {*(metrics_of_runs or ())}:
        where = f"{environment.id} under {spec.trainers[algorithm].name}"
        raise InputError(f"no `info` is read of {where}", key=INFO)
    tuned = task < spec.plan.block
    trainer.check_seeds(spec.plan.seeds("tuning") if tuned else (), "tuning")
    trainer.check_seeds(spec.plan.seeds("test") if spec.test.top else (), "test")


def _examined(space: Space) -> list[Config]:
    """Return the default configuration, and the ends of what changes the task."""
    of_task = [base_name(name) == ENVIRONMENT for name in space.names]
    ends = [
        space.from_unit([end if changes else math.nan for changes in of_task])
        for end in (0.0, 1.0)
        if any(of_task)
    ]
    return [space.default(), *filter(space.is_valid, ends)]


def _check_device(spec: Spec, algorithm: str) -> None:
    """Refuse GPUs, or an option `device`, that a trainer cannot use.

    Raises:
        InputError: naming the key of the study file.
    """
    section = spec.parts[algorithm].trainer
    try:
        needs = spec.resources_by_algorithm[algorithm]
        spec.info(section).check_device(section.resolve(), needs)
    except InputError as error:
        key = f"algorithms.{algorithm}.{error.key}" if algorithm else error.key
        if error.key == "resources.gpu":
            key = _key(spec, algorithm, "gpu")
        raise InputError(error.message, key=key) from None


def _check_executor(spec: Spec) -> None:
    """Refuse what the executor of a study cannot do.

    Raises:
        InputError: naming the key of the study file.
    """
    name = executor_name(spec)
    executors.check(name, executor_limits(spec), spec.executor.devices, spec.executor.address)
    if spec.executor.devices and not spec.needs_gpu:
        message = "say how many of them a segment is given: `resources: {gpu: 1}`"
        raise InputError(message, key="executor.devices")
    if spec.executor.autoscaler and (name != "ray" or not spec.executor.workers):
        message = "needs the executor `ray` and the most `workers` to ask for"
        raise InputError(message, key="executor.autoscaler")
    for key in _OF_SLURM:
        field = type(spec.executor).model_fields[key]
        if name != "slurm" and getattr(spec.executor, key) != field.get_default():
            message = f"only the `slurm` executor has it, not {name!r}"
            raise InputError(message, key=f"executor.{key}")
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
        Config(
            {name: value for name, value in config.items() if not isinstance(value, float)}
        ): config
        for config in reversed(drawn)
        if config is not None
    }
    for config in reversed(different.values()):
        trainer, values = spec.trainer_for(config)
        if trainer in judges:
            loaded[trainer].check_configuration(values)


def choices_of(spec: Spec, algorithm: str) -> dict[str, tuple[Any, ...]]:
    """List the hyperparameters of one trainer and their possible values.

    There are none for a number.
    """
    return {name: item.choices for name, item in spec.spaces[algorithm].hyperparameters.items()}


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
        parts = {name: whole_name(name.removeprefix(prefix)) for name in marked}
        allowed.update(
            name for name, part in parts.items() if part in changes or base_name(part) in changes
        )
    return frozenset(allowed)


def executor_name(spec: Spec) -> str:
    """Name the executor of a study."""
    stated = spec.executor.name
    return stated if stated in ELSEWHERE else local_executor_name(spec)


def _best_executors(spec: Spec) -> set[str]:
    """Return what a study's trainers run best on in its environments."""
    return {
        spec.info(trainer).executor_for(environment.id)
        for trainer in spec.trainers.values()
        for environment in spec.environments
    }


def local_executor_name(spec: Spec) -> str:
    """Name what runs the segments of a study on one machine.

    It is what its trainers run best on, unless the file says otherwise. Trainers that run in
    threads do so whatever the file says but `in_process`. Trainers that look a value up run in the
    driver's process only where no limit and no GPU asks for another.
    """
    best = _best_executors(spec)
    stated = None if spec.executor.name in ELSEWHERE else spec.executor.name
    # In processes the compiled kernel would be loaded once a segment, not once a study.
    if best == {"threads"} and stated != "in_process":
        return "threads"
    unlimited = executor_limits(spec) == executors.Limits()
    in_driver = best == {"in_process"} and unlimited and not spec.needs_gpu
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
    # The study file's own was checked when it was read.
    check_workers(spec, workers, "--workers")
    return make_named_executor(executor_name(spec), spec, load, workers, folder=folder)


def make_named_executor(
    name: str,
    spec: Spec,
    load: Load,
    workers: int | None = None,
    preload: Sequence[str] | None = None,
    folder: Path | None = None,
) -> Executor:
    """Make the executor of this name for the segments of a study.

    Args:
        name: of any executor.
        spec: the study file.
        load: builds trainers.
        workers: segments trained at once; None = as the study says.
        preload: modules that are imported once; None: those of the study's trainers.
        folder: of a study, for files of jobs; None where it has none.

    Raises:
        InputError: a segment needs more than this machine has, or jobs have no folder.
    """
    check_resources(spec, name)
    if name in ON_THIS_MACHINE:
        check_gpus(spec)
    if preload is None:
        preload = sorted(
            {module for trainer in spec.trainers.values() for module in load(trainer).preload}
        )
    if name == "ray":
        return _make_ray(spec, _work_elsewhere(spec, load, preload), workers)
    if name == "slurm":
        return _make_slurm(spec, _work_elsewhere(spec, load, preload), workers, folder)
    return executors.make(
        name,
        load,
        segments_at_once(spec, name, workers),
        preload=preload,
        limits=executor_limits(spec),
        capacity=capacity(spec) if name in ON_THIS_MACHINE else None,
    )


def _make_ray(spec: Spec, work: executors.Work, workers: int | None) -> Executor:
    workers = workers or spec.executor.workers
    cores = None
    if workers is not None:
        # A Ray of the study's own has room for as many as the file asks for, as `processes` has.
        most = max(needs.cpu for needs in spec.resources_by_algorithm.values())
        cores = max(os.cpu_count() or 1, workers * most)
    cluster = executors.Cluster(ray_address(spec), cores)
    return executors.Ray(work, cluster, workers=workers, autoscaler=spec.executor.autoscaler)


def _make_slurm(
    spec: Spec, work: executors.Work, workers: int | None, folder: Path | None
) -> Executor:
    if folder is None:
        raise InputError("the `slurm` executor needs the folder of a study", key="executor.name")
    section = spec.executor
    cluster = executors.SlurmCluster(
        folder / JOBS, section.cluster, section.time, section.partition, FrozenMap(section.sbatch)
    )
    slots = segments_at_once(spec, "slurm", workers)
    return executors.Slurm(work, cluster, workers=slots, batch=section.batch)


def _work_elsewhere(spec: Spec, load: Load, preload: Sequence[str]) -> executors.Work:
    """Describe how other machines train the segments of a study.

    A trainer that looks a value up needs no process of its own, unless a limit has to end it.
    """
    best = _best_executors(spec)
    light = best <= {"threads", "in_process"} and (
        "in_process" not in best or executor_limits(spec) == executors.Limits()
    )
    kind: executors.Kind = "threads" if light else "processes"
    return executors.Work(load, kind, tuple(preload), executor_limits(spec))


def ray_address(spec: Spec) -> str:
    """Give the address of a study's cluster of Ray."""
    default = "auto" if os.environ.get("RAY_ADDRESS") else "local"
    return spec.executor.address or default


def check_answers(spec: Spec) -> None:
    """Check that the cluster of a study, or its GPUs, are there.

    Raises:
        InputError: they are not.
    """
    if executor_name(spec) in ON_THIS_MACHINE:
        check_gpus(spec)
    on_slurm = executor_name(spec) == "slurm" and spec.executor.cluster == "slurm"
    if on_slurm and shutil.which("sbatch") is None:
        message = "there is no Slurm here (sbatch is not found); `local` needs none"
        raise InputError(message, key="executor.cluster")
    if executor_name(spec) == "ray":
        executors.check_answers(ray_address(spec))


def check_gpus(spec: Spec) -> None:
    """Check that this machine has the GPUs of a study.

    A torch that a trainer uses has to have been built for them.

    Raises:
        InputError: there is no driver, no such device, or a torch without CUDA.
    """
    if not spec.needs_gpu:
        return
    machine.check_gpus(spec.executor.devices)
    if "cuda" in spec.devices.values():
        torch = importlib.import_module("torch")
        if torch.version.cuda is None:
            message = f"torch {torch.__version__} was built without CUDA"
            raise InputError(message, key="resources.gpu")


def check_fixed_values(fixed: Sequence[FixedValue], space: Space, algorithm: str) -> None:
    """Check that no hyperparameter is fixed twice, or fixed and searched.

    Raises:
        InputError: one is fixed and searched, or fixed twice to different values.

    Args:
        fixed: what the trainer's options fix.
        space: the trainer's own, without the prefix of an algorithm.
        algorithm: whose trainer it is; empty where the study has one.
    """
    section = f"algorithms.{algorithm}." if algorithm else ""
    seen: dict[str, FixedValue] = {}
    for value in fixed:
        key = f"{section}trainer.kwargs.{value.place}"
        check_against_space(value, space, section, key)
        for name in value.names:
            first = seen.setdefault(name, value)
            agree = value.fills_in and first.fills_in and same(first.value, value.value)
            if first.place != value.place and not agree:
                option = f"{section}trainer.kwargs.{first.place}"
                raise InputError(f"is fixed by {option} as well: say it in one place", key=key)


ON_THIS_MACHINE = ("in_process", "threads", "processes")
"""Executors that run segments where the driver is. Others know their own machines."""


def capacity(spec: Spec) -> Capacity:
    """Look up what this machine has of what the segments need.

    Cores count where the study file or a trainer says how many; else `executor.workers` alone
    decides how many segments run at once.

    Raises:
        InputError: GPUs are asked for, and there are none.
    """
    needs = spec.resources_by_algorithm
    states_cpu = any(
        section.cpu is not None for name in needs for _, section in spec.resource_sections(name)
    )
    cpu = None
    if states_cpu or any(need.cpu != 1 for need in needs.values()):
        cpu = machine.cores()
    memory_gb = None
    if any(need.memory_gb is not None for need in needs.values()):
        memory_gb = machine.memory_gb()
    groups: tuple[tuple[str, ...], ...] = ()
    asking = next((name for name, need in needs.items() if need.gpu), None)
    if asking is not None:
        try:
            groups = machine.gpu_groups(spec.executor.devices)
        except InputError as error:
            if error.key != "resources.gpu":
                raise
            raise InputError(error.message, key=_key(spec, asking, "gpu")) from None
    return Capacity(cpu, memory_gb, groups)


def check_resources(spec: Spec, executor: str) -> None:
    """Check that this machine has what a segment of each algorithm needs.

    An executor with other machines is checked only for whether it can give resources at all.

    Raises:
        InputError: it has less, or the executor cannot give it.
    """
    if executor == "ray":
        return
    local = executor in ON_THIS_MACHINE
    for algorithm, needs in spec.resources_by_algorithm.items():
        lacking = _refusal(executor, needs) or (shortage(capacity(spec), needs) if local else None)
        if lacking is not None:
            kind, message = lacking
            raise InputError(message, key=_key(spec, algorithm, kind))


def segments_at_once(spec: Spec, executor: str, workers: int | None = None) -> int:
    """Count how many segments of a study run at once at most.

    Args:
        spec: the study.
        executor: its name.
        workers: instead of `executor.workers`.

    Raises:
        InputError: GPUs are asked for, and there are none.
    """
    if executor == "in_process":
        return 1
    stated = workers or spec.executor.workers
    if executor == "slurm":
        return stated or MOST_SEGMENTS
    cores = os.cpu_count() or 1
    of_machine = Capacity() if executor not in ON_THIS_MACHINE else capacity(spec)
    if of_machine == Capacity():
        return stated or cores
    needs = spec.resources_by_algorithm.values()
    most = most_at_once(of_machine, needs)
    if all(need.gpu > 0 for need in needs) or of_machine.cpu is not None:
        return max(1, min(stated or most, most))
    return max(1, min(stated or cores, most))


def _refusal(executor: str, needs: Resources) -> tuple[str, str] | None:
    """Say what an executor of this machine cannot give, with its key."""
    if needs.nodes > 1:
        message = f"{needs.nodes} hosts a segment: `{executor}` has one, use the executor `ray`"
        return "nodes", message
    if needs.custom:
        names = ", ".join(needs.custom)
        return "custom", f"{names}: only nodes of Ray have such, use the executor `ray`"
    if needs.gpu and executor not in ("processes", "slurm"):
        return "gpu", f"`{executor}` assigns no GPUs to segments: use `processes`, `ray` or `slurm`"
    return None


def _key(spec: Spec, algorithm: str, kind: str) -> str:
    """Name the key that says what an algorithm needs of a resource."""
    for key, section in spec.resource_sections(algorithm):
        if kind in section.stated():
            return f"{key}.{kind}"
    return f"resources.{kind}"  # the trainer asks for it
