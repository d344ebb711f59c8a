"""Live studies for `optimizers.py`: whole studies on the population engine, one optimizer and study seed a cell.

A cell is a study as `autorl tune` runs it: the optimizer sees tuning seeds only, and its incumbent (for `pbt` and `pb2`
the schedule of the incumbent) is trained from scratch on test seeds. All optimizers have the same number of counted
environment steps, the same tuning and the same test seeds; another study seed has others.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from asking import count

TUNING, TESTS = (
    2,
    6,
)  # seeds of a study: few, so that there are ten studies of each optimizer in an hour
FIRST_TEST_SEED = 1000
SCRATCH = "/dev/shm"  # study folders lie in memory where there is such a place: their many small writes are not measured


@dataclass(frozen=True)
class Task:
    """A search on a live task.

    Attributes:
        runs: full runs (each on every tuning seed) that a search may train, in counted steps.
        hyperparameters: fixed values, of those the space has not.
        note: what a reader must know.
    """

    trainer: str
    environment: str
    space: str | Mapping[str, Any]
    steps: int
    runs: int
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


def _float(lower: float, upper: float, default: float, scale: str = "linear") -> dict[str, Any]:
    bounds = {"lower": lower, "upper": upper, "scale": scale, "default": default}
    return {"type": "float", **bounds, "changeable": True}


# the small SAC space without the batches of 128 and 256, which cost most of the time of a search
SAC = {
    "hyperparameters": {
        "net_width": {"type": "constant", "value": 64},
        "buffer_size": {"type": "constant", "value": 20000},
        "learning_starts": {
            "type": "ordinal",
            "choices": [100, 500],
            "default": 100,
            "changeable": True,
        },
        "learning_rate": _float(1e-5, 1e-2, 1e-3, "log"),
        "batch_size": {"type": "ordinal", "choices": [32, 64], "default": 64, "changeable": True},
        "tau": _float(0.001, 0.1, 0.005, "log"),
        "gamma": _float(0.9, 0.9999, 0.99, "flipped_log"),
        "train_freq": {"type": "ordinal", "choices": [1, 2, 4], "default": 1, "changeable": True},
        "reward_scale": _float(0.1, 10.0, 1.0, "log"),
    }
}
SAC_NOTE = (
    "A reduced budget: three quarters of the configurations, short runs, and no batches above 64."
)
TASKS: Mapping[str, Task] = {
    "PPO CartPole-v1": Task("population/ppo", "CartPole-v1", "population/ppo-small", 20_480, 16),
    "PPO Acrobot-v1": Task("population/ppo", "Acrobot-v1", "population/ppo-small", 61_440, 16),
    "DQN CartPole-v1": Task("population/dqn", "CartPole-v1", "population/dqn-small", 25_600, 16),
    "SAC Pendulum-v1": Task("population/sac", "Pendulum-v1", SAC, 4_096, 12, note=SAC_NOTE),
}


def study(task: Task, optimizer: Mapping[str, Any], repeat: int, **more: Any) -> dict[str, Any]:
    """The study file of a cell."""
    tuning = [TUNING * repeat + number for number in range(TUNING)]
    test = [FIRST_TEST_SEED + TESTS * repeat + number for number in range(TESTS)]
    return {
        "name": "optimizers",
        "seed": repeat,
        "trainer": {"name": task.trainer, "kwargs": dict(task.hyperparameters)},
        "environment": task.environment,
        "space": task.space,
        "fidelity": {"steps": task.steps, "evaluations": 10, "episodes": 10},
        "optimizer": dict(optimizer),
        "budget": {"runs": task.runs * TUNING},
        "seeds": {"tuning": tuning, "test": test},
        "test": {"top": 1},
        "keep": {"checkpoints": "none"},
    } | more


@contextmanager
def finished(document: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """A study, run to its end in this process, and its result; its folder is deleted at the end of the block."""
    from autorl.executors import InProcess
    from autorl.study import Study
    from autorl.study.spec import load_spec

    folder = Path(
        tempfile.mkdtemp(prefix="benchmark-", dir=SCRATCH if os.path.isdir(SCRATCH) else None)
    )
    try:
        running = Study.create(load_spec(dict(document)), folder / "study")
        try:
            yield running, running.run(executor=InProcess(running.load))
        finally:
            running.close()
    finally:
        shutil.rmtree(folder)


def run_cell(document: Mapping[str, Any]) -> dict[str, Any]:
    """Run a study in this process: the scores, the counted steps and what came from scores, as JSON values."""
    from autorl.store.events import ProposalMade

    with finished(document) as (running, result):
        events = (recorded.event for recorded in running.store.events())
        proposed = count(
            event.proposed.proposal for event in events if isinstance(event, ProposalMade)
        )
        ((steps,),) = running.store.query(
            "SELECT SUM(environment_steps) FROM runs WHERE seed_role = 'tuning'"
        )
        full = running.store.query(
            "SELECT json_extract(score, '$[0]') FROM proposals WHERE until = ? AND score IS NOT NULL",
            (document["fidelity"]["steps"],),
        )
    assert result.test is not None
    return {
        "test": list(result.test.seeds.values()),
        "failed": result.test.failed,
        "tuning": result.tuning,
        "default": (result.test if result.default is None else result.default.test).value,
        "changes": len(result.incumbent.schedule) - 1,
        "worst": min(score for (score,) in full),
        "steps": steps,
        "proposals": sum(result.counts.values()),
    } | proposed


# -- beside Ray Tune ---------------------------------------------------------------------------------------------------

POPULATION, GENERATIONS = 8, 10
SHARED: Mapping[str, Task] = {
    "PPO CartPole-v1, 4 hyperparameters": Task(
        "population/ppo",
        "CartPole-v1",
        {
            "hyperparameters": {
                "learning_rate": _float(1e-5, 3e-2, 3e-4, "log"),
                "gamma": _float(0.9, 0.9999, 0.99, "flipped_log"),
                "clip_range": _float(0.05, 0.5, 0.2),
                "ent_coef": _float(0.0, 0.1, 0.0),
            }
        },
        20_480,
        POPULATION,
        {"n_envs": 8, "n_steps": 128, "batch_size": 256, "n_epochs": 4},
    ),
    "DQN CartPole-v1, 4 hyperparameters": Task(
        "population/dqn",
        "CartPole-v1",
        {
            "hyperparameters": {
                "learning_rate": _float(3e-5, 1e-2, 1e-3, "log"),
                "gamma": _float(0.9, 0.9999, 0.99, "flipped_log"),
                "exploration_fraction": _float(0.02, 0.5, 0.1, "log"),
                "exploration_final_eps": _float(0.01, 0.2, 0.05, "log"),
            }
        },
        25_600,
        POPULATION,
        {
            "buffer_size": 50_000,
            "learning_starts": 500,
            "batch_size": 64,
            "train_freq": 4,
            "target_update_interval": 250,
        },
    ),
}


def first_generation(task: Task, repeat: int) -> list[dict[str, Any]]:
    """The configurations both sides begin with: the default and seven random ones."""
    from autorl.core import seeds
    from autorl.space import load_space

    space, rng = load_space(task.space), seeds.generator(repeat, "ask", "first generation")
    return [dict(space.default()), *(dict(space.sample(rng)) for _ in range(POPULATION - 1))]


def shared_study(task: Task, optimizer: str, repeat: int) -> dict[str, Any]:
    """Ours, with a population as large as Ray's and beginning with the same configurations."""
    section = {"name": optimizer, "population": POPULATION, "generations": GENERATIONS}
    return study(task, section, repeat, warm_start=first_generation(task, repeat)[1:])


def ray_job(key: str, task: Task, method: str, repeat: int) -> dict[str, Any]:
    """What `ray_pbt.py` needs to know of a search; PB2 gets positions in the unit interval."""
    from autorl.space import load_space

    document, unit = study(task, {"name": "random"}, repeat), method == "Ray PB2"
    kinds, first = load_space(task.space).hyperparameters, first_generation(task, repeat)
    if unit:
        first = [
            {name: kinds[name].to_unit(value) for name, value in config.items()} for config in first
        ]
    return {
        "key": key,
        "unit": unit,
        "trainer": task.trainer,
        "environment": task.environment,
        "hyperparameters": dict(task.hyperparameters),
        "space": task.space,
        "steps": task.steps,
        "generations": GENERATIONS,
        "episodes": document["fidelity"]["episodes"],
        "tuning": document["seeds"]["tuning"],
        "repeat": repeat,
        "scratch": SCRATCH if os.path.isdir(SCRATCH) else tempfile.gettempdir(),
        "initial": first,
    }


def judge_schedule(task: Task, repeat: int, found: Mapping[str, Any]) -> dict[str, Any]:
    """The winner of a run of Ray: its schedule trained again, from scratch, on the test seeds ours are judged on."""
    schedule = {str(step): config for step, config in found["schedule"]}
    cell = run_cell(
        study(task, {"name": "schedule", "schedule": schedule}, repeat, budget={"runs": TUNING})
    )
    return cell | {
        name: found[name] for name in ("tuning", "changes", "steps")
    }  # its own proposals are not counted


# -- an optimum that moves ---------------------------------------------------------------------------------------------

DRIFT, MEMBERS, GRID, GRID_3D = 1.0, 32, 101, 21  # of the grids: points along a hyperparameter
UNIT = {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.5, "changeable": True}
MOVING_STEPS, FIRST_MOVING_SEED, MANY = 1000, 1000, 10_000
MOVING = ("moving peak, 2 hyperparameters", "moving valley, 3 hyperparameters")


def run_moving(name: str, optimizer: str, repeat: int) -> dict[str, Any]:
    """A score on a task whose optimum moves, and that of the best of a dense grid of fixed configurations."""
    return moving_peak(optimizer, repeat) if name == MOVING[0] else moving_valley(optimizer, repeat)


def moving_peak(optimizer: str, repeat: int) -> dict[str, Any]:
    """Narrow quality around the optimum, noisy scores; judged by the true skill of the agent that was chosen."""
    from autorl.optimizers import make
    from autorl.space import load_space
    from autorl.testing.simulation import MovingOptimum, simulate

    space, seed = (
        load_space({"hyperparameters": dict.fromkeys("xy", UNIT)}),
        FIRST_MOVING_SEED + repeat,
    )
    task = MovingOptimum(space, MOVING_STEPS, width=0.3, noise=0.01, seed=seed)

    def factory() -> Any:
        return make(
            optimizer, space, horizon=MOVING_STEPS, budget=MEMBERS, changeable=space.changeable
        )

    played = simulate(factory, task, MANY, lag=8, seed=seed)
    ends = [one for one in played.scored if played.proposals[one.proposal].until == MOVING_STEPS]
    best = max(
        ends, key=lambda one: (not played.proposals[one.proposal].provisional, one.values[0])
    )
    skill = task.skill[best.proposal]
    axis = np.linspace(0, 1, GRID)
    fixed = max(
        task.gained(np.array(point), 0, MOVING_STEPS) for point in itertools.product(axis, axis)
    )
    return {"found": skill, "fixed": fixed} | count(played.proposals)


def moving_valley(optimizer: str, repeat: int) -> dict[str, Any]:
    """The synthetic trainer in a whole study: the schedule is trained again on test seeds, and judged there."""
    from autorl.trainers.synthetic import Synthetic

    kwargs: dict[str, Any] = {"optimum": 0.0, "drift": DRIFT, "noise": 0.01}
    task = Task(
        "synthetic",
        "",
        {"hyperparameters": dict.fromkeys("xyz", UNIT)},
        MOVING_STEPS,
        MEMBERS,
        kwargs,
    )
    document = study(task, {"name": optimizer}, FIRST_MOVING_SEED + repeat)
    del document["environment"]
    cell = run_cell(document)
    trainer, axis, seeds = (
        Synthetic(**kwargs),
        np.linspace(0, 1, GRID_3D),
        document["seeds"]["test"],
    )
    grid = (
        dict(zip("xyz", point, strict=True)) for point in itertools.product(axis.tolist(), repeat=3)
    )
    best = max(
        grid, key=lambda config: trainer.score(config, 0, MOVING_STEPS, MOVING_STEPS)
    )  # noise is the same for all
    fixed = np.mean([trainer.score(best, seed, MOVING_STEPS, MOVING_STEPS) for seed in seeds])
    return {
        "found": float(np.mean(cell["test"])),
        "fixed": float(fixed),
        "informed": cell["informed"],
        "new": cell["new"],
    }
