"""The study files of the stored studies: every trainer family, every optimizer, and what else a log can hold.

Read by `make_fixtures.py` alone. The tests read what it wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

X = {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.2, "changeable": True}
RATE = {"type": "float", "lower": 1e-4, "upper": 1.0, "scale": "log", "changeable": True}
SPACE: dict[str, Any] = {
    "hyperparameters": {
        "x": X,
        "rate": RATE,
        "kind": {"type": "categorical", "choices": ["a", "b"]},
        "only_b": {"type": "int", "lower": 1, "upper": 9},
    },
    "conditions": {"only_b": "kind == b"},
}
FLOATS = {"x": X, "rate": RATE}
SYNTHETIC = {"optimum": {"x": 0.7, "rate": 0.2}, "noise": 0.1, "interaction": 0.05}


@dataclass(frozen=True)
class StoredStudy:
    """A study to store.

    Attributes:
        document: the study file.
        stops: where its interrupted copies are killed, `event kind` or `event kind:share of them`.
            `continued` is the proposal of a segment that continues a checkpoint.
        files: texts that lie beside the study, by their path.
        landscape: id of the landscape written from the finished study; empty for none.
        needs: modules its trainer or optimizer imports.
        portable: whether its numbers follow from our own arithmetic, on any machine.
        torn: whether SQLite's log stays beside the database, as the kill left it; it is large.
        slow: whether its test is marked so.
        lost_checkpoint: whether its last checkpoint is deleted at the stop, and trained again.
        more: commands after its end, each the arguments of `autorl` without the folder.
    """

    document: Mapping[str, Any]
    stops: Sequence[str] = ("scored:0.5",)
    files: Mapping[str, str] = field(default_factory=dict)
    landscape: str = ""
    needs: tuple[str, ...] = ()
    portable: bool = True
    slow: bool = False
    torn: bool = False
    lost_checkpoint: bool = False
    more: Sequence[tuple[str, ...]] = ()


def synthetic(
    optimizer: str | dict[str, Any],
    trainer: Mapping[str, Any] | None = None,
    *,
    changes: Mapping[str, Any] | None = None,
    **fields: Any,
) -> StoredStudy:
    """5 proposals of 2 seeds, then the incumbent and the default on 2 test seeds."""
    cut = any(stop.startswith("continued") for stop in fields.get("stops", ()))
    study = {
        "name": "stored",
        "trainer": {"name": "synthetic", "kwargs": {**SYNTHETIC, **(trainer or {})}},
        "space": SPACE,
        "fidelity": {"steps": 40, "evaluations": 4 if cut else 2},
        "budget": {"runs": 10},
        "seeds": {"tuning": 2, "test": 2},
        "optimizer": optimizer,
        "parallelism": 3,
        "executor": {"name": "in_process"},
        "test": {"top": 1},
    }
    given = {**study, **(changes or {})}
    return StoredStudy({key: value for key, value in given.items() if value is not None}, **fields)


_HALVING = {"budget": {"runs": 8}, "parallelism": 4}
_MEMBERS = {"population": 4, "generations": 4, "quantile": 0.5}
_POPULATION = {"budget": {"runs": 8}, "parallelism": 4}
_CONTINUED = ("continued:0.5",)


def _of_optimizers() -> dict[str, StoredStudy]:
    """Every optimizer on the synthetic trainer, those with options that change its log more than once."""
    optuna = {"needs": ("optuna",), "portable": False}
    return {
        "random": synthetic(
            "random",
            changes={"test": {"top": 5}},
            stops=("scored:0.5", "outcome:0.95"),
            landscape="stored/synthetic/stored",
            torn=True,
        ),
        "grid": synthetic({"name": "grid", "levels": 2}),
        "sobol": synthetic("sobol"),
        "tpe": synthetic({"name": "tpe", "startup": 3}, **optuna),
        "gp": synthetic(
            {"name": "gp", "startup": 3},
            needs=("optuna", "torch"),
            portable=False,
            slow=True,
        ),
        "nsga2": synthetic(
            {"name": "nsga2", "population_size": 4},
            changes={
                "objective": [
                    {"metric": "eval_return"},
                    {"metric": "environment_steps", "direction": "minimize"},
                ],
                "budget": {"runs": 16},
            },
            **optuna,
        ),
        "cmaes": synthetic(
            {"name": "cmaes", "population_size": 4},
            changes={"space": {"hyperparameters": FLOATS}},
            needs=("cmaes",),
            portable=False,
        ),
        "smac": synthetic(
            {"name": "smac", "startup": 3}, needs=("smac",), portable=False, slow=True
        ),
        "hyperband": synthetic(
            {"name": "hyperband", "rungs": 3}, changes=_HALVING, stops=_CONTINUED
        ),
        "successive_halving": synthetic(
            {"name": "successive_halving", "rungs": 3}, changes=_HALVING, stops=_CONTINUED
        ),
        "asha": synthetic(
            {"name": "asha", "rungs": 3},
            changes={**_HALVING, "keep": {"checkpoints": "lineage"}},
            stops=_CONTINUED,
            torn=True,
        ),
        "bohb": synthetic(
            {"name": "bohb", "rungs": 3, "startup": 3},
            changes=_HALVING,
            stops=_CONTINUED,
            portable=False,
        ),
        "dehb": synthetic({"name": "dehb", "rungs": 3}, changes=_HALVING, stops=_CONTINUED),
        "de": synthetic({"name": "de", "population_size": 4}, changes={"budget": {"runs": 16}}),
        "pbt": synthetic(
            {"name": "pbt", **_MEMBERS},
            changes=_POPULATION,
            stops=_CONTINUED,
            landscape="stored/synthetic/lineage",
        ),
        "pbt-tournament": synthetic(
            {"name": "pbt", **_MEMBERS, "selection": "tournament"},
            changes=_POPULATION,
            stops=_CONTINUED,
            slow=True,
        ),
        "pbt-frequencies": synthetic(
            {"name": "pbt", **_MEMBERS, "frequencies": 2},
            changes=_POPULATION,
            stops=_CONTINUED,
            slow=True,
        ),
        "pbt-retrained": synthetic(
            {"name": "pbt", **_MEMBERS, "retrain": 2},
            changes={**_POPULATION, "budget": {"runs": 12}},
            stops=("continued:0.5", "continued:0.95"),
        ),
        "pb2": synthetic(
            {"name": "pb2", **_MEMBERS}, changes=_POPULATION, stops=_CONTINUED, portable=False
        ),
        "pb2-asynchronous": synthetic(
            {"name": "pb2", **_MEMBERS, "synchronous": False},
            changes=_POPULATION,
            stops=_CONTINUED,
            portable=False,
            slow=True,
        ),
        "cost_aware": synthetic(
            {"name": "cost_aware", "startup": 3, "candidates": 16},
            changes={"budget": {"runs": 8}},
            portable=False,
        ),
        "phases": synthetic(
            {"name": "phases", "phases": 3},
            changes={
                "space": {"hyperparameters": FLOATS},
                "budget": {"configurations": 3},
                "test": {"top": 9},
                "keep": {"checkpoints": "none"},
                "landscape": {"id": "stored/synthetic/phases", "bounds": [-2, 2]},
            },
            stops=_CONTINUED,
            landscape="stored/synthetic/phases",
        ),
        "schedule": synthetic(
            {
                "name": "schedule",
                "schedule": {
                    0: {"x": 0.3, "rate": 0.1, "kind": "a"},
                    20: {"x": 0.6, "rate": 0.2, "kind": "a"},
                },
            },
            changes={"budget": {"runs": 2}},
            stops=("continued:0",),
        ),
        "rising_bandits": synthetic(
            {"name": "rising_bandits", "inner": "random", "window": 1.0},
            changes={
                "trainer": None,
                "space": None,
                "algorithms": {
                    name: {
                        "trainer": {
                            "name": "synthetic",
                            "kwargs": {"optimum": optimum, "noise": 0.1},
                        },
                        "space": {"hyperparameters": {"x": X}},
                    }
                    for name, optimum in (("one", 0.3), ("two", 0.8))
                },
            },
        ),
    }


def _of_parts() -> dict[str, StoredStudy]:
    """What a log can hold beside proposals, runs and tests."""
    scheduled = {**RATE, "schedule": ["constant", "linear", "cosine"], "default": 0.1}
    median = {"stop": "median", "rungs": 4}
    return {
        "median-stop": synthetic({"name": "random", **median}, stops=_CONTINUED),
        "median-stop-tpe": synthetic(
            {"name": "tpe", "startup": 3, **median},
            stops=_CONTINUED,
            needs=("optuna",),
            portable=False,
            slow=True,
        ),
        "racing": synthetic(
            "random",
            changes={
                "evaluation": {"seeds": "racing", "min": 1, "max": 3},
                "seeds": {"tuning": 3, "test": 2},
            },
        ),
        "racing-t": synthetic(
            "sobol",
            changes={
                "evaluation": {"seeds": "racing", "min": 2, "max": 4, "rule": "t"},
                "seeds": {"tuning": 4, "test": 2},
                "budget": {"runs": 14},
            },
            slow=True,
        ),
        "failures": synthetic(
            "random",
            {
                "crash": 0.2,
                "nan": {"above": {"x": 0.8}, "seeds": [1]},
                "stop": {"below": {"x": 0.1}},
            },
            changes={"budget": {"runs": 20}},
        ),
        "failures-penalty": synthetic(
            {"name": "asha", "rungs": 3},
            {"crash": {"above": {"x": 0.6}}, "fails_at": 0.6},
            changes={"failures": {"penalty": -1.0}},
            stops=_CONTINUED,
            slow=True,
        ),
        "front": synthetic(
            "random",
            changes={
                "objective": [
                    {"metric": "eval_return", "reduce": "best"},
                    {"metric": "eval_length", "direction": "minimize"},
                ],
                "constraints": [{"metric": "eval_return", "min": 0.3}],
                "test": {"top": 2},
            },
        ),
        "best-step": synthetic(
            {"name": "asha", "rungs": 2},
            {"drift": 3.0},
            changes={"objective": {"metric": "eval_return", "reduce": "best"}},
            stops=("continued:0.5", "frozen"),
        ),
        "models-without-tests": synthetic(
            "random",
            {"drift": 3.0},
            changes={
                "fidelity": {"steps": 40, "evaluations": 4},
                "objective": {"metric": "eval_return", "reduce": "best"},
                "seeds": {"tuning": 2, "test": 0},
                "keep": {"checkpoints": "top"},
            },
            stops=("outcome:0.95",),
        ),
        "area-and-iqm": synthetic(
            "sobol",
            changes={
                "fidelity": {"steps": 40, "evaluations": 4},
                "objective": {"metric": "eval_return", "reduce": "auc"},
                "evaluation": {"aggregate": "iqm"},
                "seeds": {"tuning": 4, "test": 4},
                "budget": {"runs": 24},
            },
            slow=True,
        ),
        "schedules": synthetic(
            {"name": "pbt", **_MEMBERS},
            {"drift": 0.2},
            changes={**_POPULATION, "space": {"hyperparameters": {"x": X, "rate": scheduled}}},
            stops=_CONTINUED,
        ),
        "warm-start": synthetic(
            "random",
            changes={"warm_start": [{"x": 0.6, "rate": 0.3, "kind": "b", "only_b": 4}]},
        ),
        "asynchronous": synthetic(
            {"name": "asha", "rungs": 3},
            changes={"asynchronous": True},
            stops=_CONTINUED,
            slow=True,
        ),
        "extended": synthetic(
            "random",
            changes={"budget": {"runs": 8}},
            stops=("budget",),
            more=(("resume", "--runs", "+6"),),
        ),
        "more-test-seeds": synthetic(
            "random",
            changes={"budget": {"runs": 8}},
            stops=("test_seeds",),
            more=(("test", "--seeds", "5"),),
        ),
        "lost-checkpoint": synthetic(
            {"name": "pbt", **_MEMBERS},
            changes=_POPULATION,
            stops=("continued:0.7",),
            lost_checkpoint=True,
        ),
    }


_REPORTED = """
def train(config, *, seed, until, evaluate_at, report):
    if config["x"] > 0.9 or (config["x"] > 0.6 and seed % 3 == 1):
        raise ValueError("this configuration crashes")
    for step in evaluate_at:
        report(step, config["x"] - (config["x"] - 0.5) ** 2 + 0.01 * ((seed * 7919 + step) % 11))
"""
_RESUMABLE = """
import json
from pathlib import Path

def train(config, *, seed, until, start, checkpoint=None, folder=None, report, evaluate_at):
    total = 0.0 if checkpoint is None else json.loads((Path(checkpoint) / "sum.json").read_text())
    for step in range(start + 1, until + 1):
        total += config["x"] - (config["x"] - 0.5) ** 2 + 0.01 * ((seed * 7919 + step) % 11)
        if step in evaluate_at:
            print("step", step)
            report(step, total / step)
    if folder is not None:
        (Path(folder) / "sum.json").write_text(json.dumps(total))
"""
_SCRIPT = """
import json, sys
from pathlib import Path

values = dict(zip(sys.argv[1::2], sys.argv[2::2]))
x, seed, until = float(values["--x"]), int(values["--seed"]), int(values["--until"])
state = {"step": 0, "sum": 0.0}
if "--load" in values:
    state = json.loads((Path(values["--load"]) / "state.json").read_text())
for step in range(state["step"] + 1, until + 1):
    value = x - (x - 0.6) ** 2 + 0.01 * ((seed * 7919 + step) % 11)
    state = {"step": step, "sum": state["sum"] + value}
    if step % 2 == 0:
        print(json.dumps({"step": step, "eval_return": state["sum"] / step}), flush=True)
if "--save" in values:
    (Path(values["--save"]) / "state.json").write_text(json.dumps(state))
"""
_SMALL = {
    "name": "stored",
    "seeds": {"tuning": 2, "test": 2},
    "parallelism": 3,
    "executor": {"name": "in_process"},
    "test": {"top": 1},
}
_COMMAND = {
    **_SMALL,
    "space": {"hyperparameters": {"x": X}},
    "fidelity": {"steps": 4, "evaluations": 2},
}


def _of_user_code() -> dict[str, StoredStudy]:
    """`command` and `python:`, with checkpoints and without."""
    command = {
        "command": "{python} train.py --seed {seed} --until {until}",
        "metrics": {"step": "step", "map": {"eval_return": "eval_return"}},
    }
    saving = {**command, "checkpoint_flag": "--load", "save_flag": "--save"}
    function = {"fidelity": {"steps": 8, "evaluations": 4}, "budget": {"runs": 8}}
    return {
        "command": StoredStudy(
            {
                **_COMMAND,
                "trainer": {"name": "command", "kwargs": command},
                "optimizer": "random",
                "budget": {"runs": 4},
                "seeds": {"tuning": 1, "test": 1},
            },
            files={"train.py": _SCRIPT},
        ),
        "command-median-stop": StoredStudy(
            {
                **_COMMAND,
                "trainer": {"name": "command", "kwargs": saving},
                "optimizer": {"name": "random", "stop": "median", "rungs": 2},
                "budget": {"runs": 5},
                "seeds": {"tuning": 1, "test": 1},
                "keep": {"checkpoints": "lineage"},
            },
            stops=_CONTINUED,
            files={"train.py": _SCRIPT},
        ),
        "function-racing": StoredStudy(
            {
                **_COMMAND,
                **function,
                "trainer": {
                    "name": "python:stored_reported:train",
                    "kwargs": {"metric": "eval_return"},
                },
                "objective": {"metric": "eval_return"},
                "optimizer": "random",
                "seeds": {"tuning": 4, "test": 2},
                "evaluation": {"seeds": "racing", "min": 2, "max": 4},
            },
            files={"stored_reported.py": _REPORTED},
        ),
        "function-asha": StoredStudy(
            {
                **_COMMAND,
                **function,
                "trainer": {
                    "name": "python:stored_resumable:train",
                    "kwargs": {"metric": "eval_return"},
                },
                "objective": {"metric": "eval_return"},
                "optimizer": {"name": "asha", "rungs": 3},
            },
            stops=_CONTINUED,
            files={"stored_resumable.py": _RESUMABLE},
        ),
        "function-processes": StoredStudy(
            {
                **_COMMAND,
                **function,
                "trainer": {
                    "name": "python:stored_resumable:train",
                    "kwargs": {"metric": "eval_return"},
                },
                "objective": {"metric": "eval_return"},
                "optimizer": {"name": "pbt", **_MEMBERS},
                "budget": {"runs": 8},
                "executor": {"name": "processes", "workers": 1},
            },
            stops=_CONTINUED,
            files={"stored_resumable.py": _RESUMABLE},
        ),
    }


def _of_replays() -> dict[str, StoredStudy]:
    """`tabular`, of the landscape that the study `random` leaves, and `surrogate`, of one of its own."""
    study = {**_SMALL, "space": SPACE, "fidelity": {"steps": 40, "evaluations": 4}}
    landscape = "landscape/stored/synthetic/stored"
    tabular = {"name": "tabular", "kwargs": {"landscape": landscape}}
    forest = {"landscape": landscape, "force": True, "trees": 32, "min_correlation": -1.0}
    return {
        "tabular-sobol": StoredStudy(
            {**study, "trainer": tabular, "optimizer": "sobol", "budget": {"runs": 12}}
        ),
        "tabular-asha": StoredStudy(
            {
                **study,
                "trainer": tabular,
                "optimizer": {"name": "asha", "rungs": 3},
                "budget": {"runs": 8},
            },
            stops=_CONTINUED,
        ),
        "surrogate-hyperband": StoredStudy(
            {
                **study,
                "trainer": {"name": "surrogate", "kwargs": forest},
                "optimizer": {"name": "hyperband", "rungs": 3},
                "budget": {"runs": 8},
            },
            stops=_CONTINUED,
            needs=("sklearn",),
            portable=False,
            slow=True,
        ),
    }


_LEARNING_RATE = {
    "type": "float",
    "lower": 1e-4,
    "upper": 1e-2,
    "scale": "log",
    "default": 1e-3,
    "changeable": True,
}


def trained(
    trainer: str | dict[str, Any],
    environment: str | dict[str, Any],
    constants: Mapping[str, Any],
    optimizer: str | dict[str, Any],
    steps: int,
    **changes: Any,
) -> dict[str, Any]:
    """A study file that tunes a learning rate, and nothing else."""
    fixed = {name: {"type": "constant", "value": value} for name, value in constants.items()}
    return {
        **_SMALL,
        "trainer": trainer,
        "environment": environment,
        "space": {"hyperparameters": {"learning_rate": _LEARNING_RATE, **fixed}},
        "fidelity": {"steps": steps, "evaluations": 2, "episodes": 2},
        "optimizer": optimizer,
        "budget": {"runs": 6},
        **changes,
    }


def _of_agents() -> dict[str, StoredStudy]:
    """The engine and Stable-Baselines3, with checkpoints that are continued and without."""
    compiled = {"portable": False, "slow": True}
    torch = {"needs": ("torch", "stable_baselines3"), "portable": False}
    pole = "CartPole-v1"
    ppo = {"n_steps": 32, "net_width": 4}
    memory = {"learning_starts": 20, "buffer_size": 60, "batch_size": 8}
    buffer = {**memory, "net_width": 4}
    small = {"net_arch": [4]}
    median = {"name": "random", "stop": "median", "rungs": 2}
    one = {"seeds": {"tuning": 1, "test": 1}, "budget": {"runs": 3}}
    return {
        "population-ppo-pbt": StoredStudy(
            trained(
                "population/ppo",
                pole,
                ppo,
                {"name": "pbt", "population": 3, "generations": 4, "quantile": 0.4, "ready": 0.25},
                128,
                landscape={"id": "stored/ppo/CartPole-v1", "bounds": [0, 500]},
            ),
            stops=_CONTINUED,
            portable=False,
            landscape="stored/ppo/CartPole-v1",
        ),
        "population-ppo-random": StoredStudy(
            trained("population/ppo", pole, ppo, "random", 64), **compiled
        ),
        "population-dqn-asha": StoredStudy(
            trained("population/dqn", pole, buffer, {"name": "asha", "rungs": 2}, 64),
            stops=_CONTINUED,
            **compiled,
        ),
        "population-sac-median-stop": StoredStudy(
            trained("population/sac", "Pendulum-v1", buffer, median, 64, **one),
            stops=_CONTINUED,
            **compiled,
        ),
        "population-td3-pbt": StoredStudy(
            trained(
                "population/td3",
                "Pendulum-v1",
                {**buffer, "noise_type": "ornstein-uhlenbeck", "noise_std": 0.3},
                {"name": "pbt", "population": 3, "generations": 4, "quantile": 0.4, "ready": 0.25},
                64,
            ),
            stops=_CONTINUED,
            **compiled,
        ),
        "population-ddpg-asha": StoredStudy(
            trained(
                "population/ddpg",
                "Pendulum-v1",
                {**buffer, "noise_std": 0.1},
                {"name": "asha", "rungs": 2},
                64,
                **one,
            ),
            stops=_CONTINUED,
            **compiled,
        ),
        "population-a2c-median-stop": StoredStudy(
            trained("population/a2c", pole, {"n_steps": 8, "net_width": 4}, median, 64, **one),
            stops=_CONTINUED,
            **compiled,
        ),
        "sb3-ppo-asha": StoredStudy(
            trained(
                "sb3/ppo",
                {"id": pole, "n_envs": 1, "normalize": True},
                {"n_steps": 32, "batch_size": 16, "n_epochs": 1, **small},
                {"name": "asha", "rungs": 2},
                64,
                **one,
            ),
            stops=_CONTINUED,
            **torch,
        ),
        "sb3-dqn-random": StoredStudy(
            trained("sb3/dqn", pole, {**memory, **small}, "random", 64, **one), slow=True, **torch
        ),
        "sb3-sac-median-stop": StoredStudy(
            trained("sb3/sac", "Pendulum-v1", {**memory, **small}, median, 64, **one),
            stops=_CONTINUED,
            slow=True,
            **torch,
        ),
    }


_REWARDS = """
def repeated(prompts, completions):
    return [float(text.split().count("a")) for text in completions]

def different(prompts, completions):
    return [float(len(set(text.split()))) for text in completions]
"""


def _of_language_models() -> dict[str, StoredStudy]:
    """TRL's trainers and our own PPO, on a model of 8 units that lies beside the study."""
    rlhf = {
        "needs": ("trl",),
        "portable": False,
        "slow": True,
    }
    scored = {
        "signals": {"repeated": "stored_rewards:repeated", "different": "stored_rewards:different"},
        "training": "repeated",
        "selection": "different",
        "report": "different",
    }
    learnt = {"training": "data", "selection": "pair_accuracy", "report": "pair_accuracy"}
    own = {"id": "files", "kwargs": {"model": "model", "max_completion": 4}}
    prompts = {**own, "kwargs": {**own["kwargs"], "data": "prompts.jsonl", **scored}}
    pairs = {**own, "kwargs": {**own["kwargs"], "data": "pairs.jsonl", **learnt}}
    few = {"seeds": {"tuning": 1, "test": 1}, "budget": {"runs": 3}}
    few["fidelity"] = {"steps": 2, "evaluations": 2, "episodes": 8}
    median = {"name": "random", "stop": "median", "rungs": 2}
    online = {"num_generations": 4, "per_device_train_batch_size": 8}
    rewards = {"stored_rewards.py": _REWARDS}
    return {
        "trl-rloo-median-stop": StoredStudy(
            trained(
                {"name": "trl/rloo", "kwargs": {"guard": 0}}, prompts, online, median, 2, **few
            ),
            stops=_CONTINUED,
            files=rewards,
            **rlhf,
        ),
        "trl-dpo-random": StoredStudy(
            trained(
                {"name": "trl/dpo", "kwargs": {"guard": 0}},
                pairs,
                {"per_device_train_batch_size": 8},
                "random",
                2,
                keep={"checkpoints": "none"},
                **few,
            ),
            **rlhf,
        ),
        "trl-ppo-asha": StoredStudy(
            trained(
                "trl/ppo",
                prompts,
                {"batch_size": 8, "num_ppo_epochs": 1},
                {"name": "asha", "rungs": 2},
                2,
                **few,
            ),
            stops=_CONTINUED,
            files=rewards,
            **rlhf,
        ),
    }


STUDIES: dict[str, StoredStudy] = {
    **_of_optimizers(),
    **_of_parts(),
    **_of_user_code(),
    **_of_replays(),
    **_of_agents(),
    **_of_language_models(),
}
