"""Checks what no single key of a study file can tell.

Keys may contradict each other, and a budget may train nothing. Only a study file that is read is
checked. A study that was stored is taken as it is.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

from autorl import optimizers
from autorl.core.plain_text import counted, printable, shown
from autorl.core.seeds import generator
from autorl.core.types import FrozenMap, InputError, Proposal
from autorl.space import Space
from autorl.statistics.evaluation import COST_METRICS
from autorl.statistics.reductions import parse_reduction
from autorl.study.spec.optimizer import optimizer_of
from autorl.study.spec.spec import Spec
from autorl.trainers.contract import FixedValue

LONGEST_NAME = 255  # bytes of one folder's name on Linux and macOS


def check_names_and_places(spec: Spec) -> None:
    """Check the study's name and the folder its modules come from.

    The name becomes the study's folder below studies/, so it must neither leave that folder nor
    name it, on any system.

    Raises:
        InputError: the name is empty, too long, a path, or has control characters, or the folder
            is not there.
    """
    name = spec.name
    problem = None
    if not name.strip():
        problem = "expected a name: it is the study's folder below studies/"
    elif printable(name, keep_lines=False) != name:
        problem = f"expected one folder name without control characters, got {shown(name)}"
    # The backslash parts folders on Windows.
    elif "/" in name or "\\" in name or name in (".", ".."):
        problem = f"expected one folder name, no path, got {shown(name)}"
    elif (length := len(os.fsencode(name))) > LONGEST_NAME:
        problem = f"expected a folder name of at most {LONGEST_NAME} bytes, got {length}"
    if problem is not None:
        raise InputError(problem, key="name")
    if spec.path is not None and not Path(spec.path).is_dir():
        raise InputError(f"no such folder: {spec.path}", key="path")


def check_evaluations(spec: Spec, data: Mapping[str, object]) -> None:
    """Check that a run has as many evaluations as are asked for.

    Args:
        spec: the study.
        data: the study file as written; what it leaves out has a default that gives way.

    Raises:
        InputError: more are asked for than a run can have, or more of them are read than it has.
    """
    steps = spec.fidelity.steps
    evaluations = spec.fidelity.evaluations
    # Only where it is stated: the default gives way in a short run.
    if "evaluations" in spec.fidelity.model_fields_set and evaluations > steps:
        message = (
            f"{counted(evaluations, 'evaluation')} in {counted(steps, 'step')}: "
            "expected at most one a step"
        )
        raise InputError(message, key="fidelity.evaluations")
    have = len(spec.evaluation_steps)
    for number, objective in enumerate(spec.objective):
        reduction = parse_reduction(objective.reduce)
        problem = None
        if reduction.window is not None and reduction.window > have:
            problem = (
                f"{objective.reduce} of a run with {counted(have, 'evaluation')} "
                f"(fidelity.evaluations): expected at most {have}"
            )
        elif reduction.goal is not None:
            problem = _why_no_time(spec, objective.metric)
        if problem is not None:
            # The key as it is written: the message finds its line by it.
            listed = isinstance(data.get("objective"), list)
            place = f"objective[{number}]" if listed else "objective"
            raise InputError(problem, key=f"{place}.reduce")
    optimizer = data.get("optimizer")
    rungs = optimizer.get("rungs") if isinstance(optimizer, Mapping) else None
    if spec.optimizer.stop is not None and rungs is not None and rungs > steps:
        message = (
            f"{counted(rungs, 'rung')} in {counted(steps, 'step')}: expected at most one a step"
        )
        raise InputError(message, key="optimizer.rungs")


def _why_no_time(spec: Spec, metric: str) -> str | None:
    """Say why the time to a score is no objective."""
    stop = spec.optimizer.stop
    if metric in COST_METRICS:
        return f"time_to is of evaluations, {metric} is a cost of a whole run"
    if spec.stated_penalty is not None:
        return "time_to has a penalty of its own, 2 x fidelity.steps: leave failures.penalty out"
    if stop is not None or optimizers.find(spec.optimizer.name, spec.path).partial:
        by = spec.optimizer.name if stop is None else f"stop: {stop}"
        return f"time_to is of whole runs: {by} compares runs that have not reached the score yet"
    return None


def check_n_envs(spec: Spec, data: Mapping[str, object]) -> None:
    """Check that the number of environments is said in one place.

    Args:
        spec: the study.
        data: the study file as written; if it says nothing, the trainer's or the space's own
            number holds.

    Raises:
        InputError: two places disagree.
    """
    # As written: in the section, a default looks like a number that somebody gave.
    environment = data.get("environment")
    explicit = environment.get("n_envs") if isinstance(environment, Mapping) else None
    for algorithm, trainer in spec.trainers.items():
        if not spec.info(trainer).takes_n_envs:
            continue
        option = trainer.kwargs.get("n_envs")
        section = f"algorithms.{algorithm}." if algorithm else ""
        if option is not None:
            # Against the space, an option of the trainer is judged as all of them are.
            if option != spec.environment.n_envs:
                place = "there, or in the space of each algorithm" if algorithm else "there"
                message = (
                    f"is {spec.environment.n_envs} in environment.n_envs: "
                    f"say it {place}, in one place"
                )
                raise InputError(message, key=f"{section}trainer.kwargs.n_envs")
            continue
        if explicit is not None:
            value = FixedValue("n_envs", ("n_envs",), explicit)
            check_against_space(value, spec.spaces[algorithm], section, "environment.n_envs")


def check_against_space(value: FixedValue, space: Space, section: str, key: str) -> None:
    """Check that a space does not search a value or fix another.

    Args:
        value: fixed elsewhere.
        space: of a trainer, without the prefix of an algorithm.
        section: that the space is in, with a dot at its end.
        key: that fixes the value.

    Raises:
        InputError: naming both places.
    """
    for name in value.names:
        hyperparameter = space.hyperparameters.get(name)
        # Such a value stands where the condition leaves the hyperparameter out.
        if hyperparameter is None or (value.fills_in and name in space.conditions):
            continue
        place = f"by the space as well, as {section}space.hyperparameters.{name}"
        if hyperparameter.type != "constant":
            message = f"is searched {place}: take it out here, or fix it there (`{{value: ...}}`)"
            raise InputError(message, key=key)
        if not value.fills_in or not same(value.value, hyperparameter.choices[0]):
            message = f"is fixed to {hyperparameter.choices[0]!r} {place}: say it in one place"
            raise InputError(message, key=key)


def same(first: object, second: object) -> bool:
    """Tell whether two values are equal, lists and tuples alike."""
    # A list of YAML and a tuple of Python are the same value, which `FrozenMap` freezes alike.
    return FrozenMap(x=first) == FrozenMap(x=second)


def check_workers(spec: Spec, workers: int | None, key: str) -> None:
    """Check that the executor a study names can have so many workers.

    Raises:
        InputError: it runs one segment at a time, and several are asked for.
    """
    if spec.executor.name == "in_process" and (workers or 1) > 1:
        message = (
            f"`in_process` runs one at a time, not {workers}: choose `threads` or `processes` "
            "(or `ray` or `slurm`, for other machines), or leave this out"
        )
        raise InputError(message, key=key)


def check_seed_rule(spec: Spec) -> None:
    """Check with how many seeds proposals begin and end.

    Raises:
        InputError: they end with fewer seeds than they begin with or with more than there are, an
            adaptive study has no more seeds or no end to plan with, or a study with other seeds
            says which share of its budget confirms.
    """
    section = spec.evaluation
    rule = section.seeds
    have = len(spec.plan.tuning)
    least = section.min
    if section.max is not None and section.max < least:
        raise InputError(f"{section.max} is below evaluation.min, {least}", key="evaluation.max")
    if section.share is not None and rule != "adaptive":
        raise InputError(f"is of `seeds: adaptive`, not of {rule!r}", key="evaluation.share")
    problem = None
    if rule != "fixed" and max(section.max or 1, least) > have:
        problem = f"{rule} up to more seeds than the {have} in seeds.tuning"
    elif rule == "adaptive" and (most := section.max or have) <= least:
        problem = (
            f"adaptive needs more seeds for the best than the {least} of every proposal: "
            f"got {most} (evaluation.max, seeds.tuning)"
        )
    elif rule == "adaptive" and (least % spec.plan.block or most % spec.plan.block):
        problem = (
            "adaptive compares means over all tasks: min and max are multiples of the "
            f"{spec.plan.block} in tasks.tuning"
        )
    elif rule == "adaptive" and math.isinf(spec.full_runs) and spec.budget.measured is None:
        problem = "adaptive needs a budget, of which it keeps a share"
    if problem is not None:
        raise InputError(problem, key="evaluation")


def check_tasks(spec: Spec) -> None:
    """Check that the scores of all tasks have one scale.

    Raises:
        InputError: a task says no scale where another does, or environments differ.
    """
    if spec.tasks is None:
        return
    tasks = spec.tasks.listed
    metrics = [objective.metric for objective in spec.objective]
    needed = len({(task.id, task.landscape) for task in tasks}) > 1
    needed |= any(task.scale is not None for task in tasks)
    for number, task in enumerate(tasks) if needed else ():
        stated = task.scale if isinstance(task.scale, dict) else metrics[:1]
        lacking = [m for m in metrics if task.scale is None or m not in stated]
        if not lacking:
            continue
        by_metric = "{metric: [low, high]}" if len(metrics) > 1 else "[low, high]"
        raise InputError(
            f"{task.label} has no scale for {lacking[0]}: scores of different tasks are "
            f"compared by `scale: {by_metric}`, those that count as 0 and 1 (a random "
            "policy's and a good one's, say); give it for every task",
            key=spec.tasks.key(number),
        )


def check_budget(spec: Spec) -> None:
    """Check that the budget pays for the first proposal.

    It is trained on its first seeds.

    Raises:
        InputError: the budget is smaller, so nothing would train, it ends by one score and there
            are several, or it counts GPUs and a segment has none.
    """
    ends = next(
        (key for key in ("target", "converged") if getattr(spec.budget, key) is not None), None
    )
    if ends is not None and len(spec.objective) > 1:
        raise InputError(
            f"is of a study with one objective, got {len(spec.objective)}", key=f"budget.{ends}"
        )
    needs = spec.resources_by_algorithm.values()
    if spec.budget.gpu_hours is not None and not all(need.gpu for need in needs):
        raise InputError(
            "counts a segment's hours times its GPUs: say how many by `resources: {gpu: 1}`",
            key="budget.gpu_hours",
        )
    steps = spec.fidelity.steps
    seeds = len(spec.policy().first)
    # Steps of one unit of the budget, and its name.
    units = {"runs": (steps, "run"), "environment_steps": (1, "step")}
    amount = next((key for key in units if getattr(spec.budget, key) is not None), None)
    if amount is None:
        return
    unit, noun = units[amount]
    stated = getattr(spec.budget, amount)
    payable = round(stated * unit, 6)  # 0.29 * 100 is 28.999999999999996
    if payable >= steps * seeds:  # no proposal costs more; what follows may need another package
        return
    first = _first_length(spec)
    if payable >= first * seeds:
        return
    length = "" if noun == "run" else f" of {counted(steps, 'step')}"
    if first < steps:
        length = f" to step {first} of {steps}"
    cost = counted(first * seeds / unit, noun)
    message = f"{stated:.12g} is less than one proposal ({counted(seeds, 'seed')}{length} = {cost})"
    raise InputError(message, key=f"budget.{amount}")


def paid_configurations(spec: Spec) -> float:
    """Count the most configurations that a budget pays for."""
    if spec.budget.configurations is not None:
        return spec.full_runs
    return round(spec.full_runs * spec.fidelity.steps / _first_length(spec), 6)


def _first_length(spec: Spec) -> int:
    """Return the steps of the first proposal the optimizer would make.

    The optimizer decides nothing else here.
    """
    if not optimizers.find(spec.optimizer.name, spec.path).partial and spec.optimizer.stop is None:
        return spec.fidelity.steps
    optimizer = optimizer_of(spec, spec.search_space.changeable)
    answer = optimizer.ask(generator(spec.seed, "ask", 0))  # the stream of the study's first ask
    return answer.until if isinstance(answer, Proposal) else spec.fidelity.steps
