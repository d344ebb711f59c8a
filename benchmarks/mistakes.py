"""Tables of what a new user writes: short studies that must be accepted, and mistakes.

`benchmarks/new_user.py` makes each. A mistake is answered by one line on standard error, which
names the key and the value, and by exit code 2 (1 where a study was begun and failed).
"""

from __future__ import annotations

from typing import Any, NamedTuple

# Commands that were refused when defaults that contradict each other counted as the user's.
DRY_RUNS = tuple(
    f"{trainer} --env {environment}{steps}"
    for trainer, environment, steps in (
        ("sb3/ppo", "LunarLander-v3", " --steps 100000"),
        ("sb3/ppo", "BipedalWalker-v3", " --steps 100000"),
        ("sb3/ppo", "CartPole-v1", " --steps 20000"),
        ("sb3/ppo", "Pendulum-v1", " --steps 20000"),
        ("sb3/ppo", "MountainCarContinuous-v0", " --steps 20000"),
        ("population/ppo", "Acrobot-v1", " --steps 10000"),
        ("population/ppo", "HalfCheetah-v5", " --steps 20000"),
        ("sb3/ppo-small", "LunarLander-v3", " --steps 4096"),
        ("sb3/ppo", "LunarLander-v3", " --steps 200000"),
        ("sb3/ppo", "HalfCheetah-v5", " --steps 50000"),
        ("population/ppo", "LunarLander-v3", ""),
        ("sb3/ppo-small", "CartPole-v1", " --steps 25000"),
    )
)

BASE: dict[str, Any] = {
    "trainer": "population/ppo",
    "space": "population/ppo",
    "environment": "CartPole-v1",
    "fidelity": {"steps": 3000, "evaluations": 3},
    "budget": {"runs": 8},
    "seeds": {"tuning": 2, "test": 3},
}


class Mistake(NamedTuple):
    """A mistake, and what its one line must name.

    Attributes:
        given: keys of a study file over `BASE`, its text, or arguments of the command.
        named: parts of the line: the key, the value, and what is right where that is known.
    """

    given: dict[str, Any] | str | list[str]
    named: tuple[str, ...]


def _rates(**bounds: Any) -> dict[str, Any]:
    return {"space": {"hyperparameters": {"learning_rate": bounds}}}


FILES = (
    Mistake({"fidelty": {"steps": 3000}}, ("fidelty", "fidelity")),
    Mistake({"sampler": "tpe"}, ("sampler", "optimizer")),
    Mistake({"trainer": "populaton/ppo"}, ("trainer", "populaton/ppo", "population/ppo")),
    Mistake({"environment": "Cartpole-v1"}, ("environment", "Cartpole-v1", "CartPole-v1")),
    Mistake({"environment": "LunarLander-v2"}, ("LunarLander-v2", "LunarLander-v3")),
    Mistake({"environment": "Acrobat"}, ("environment", "Acrobat", "Acrobot-v1")),
    Mistake({"budget": {"runs": -4}}, ("budget.runs", "-4")),
    Mistake({"budget": {"runs": "many"}}, ("budget.runs", "many")),
    Mistake({"budget": {"seconds": 60}}, ("seconds", "hours")),
    Mistake({"budget": {"wall_clock": "2h"}}, ("wall_clock", "hours")),
    Mistake({"fidelity": {"steps": "3k"}}, ("fidelity.steps", "3k")),
    Mistake(_rates(type="float", lower=1e-2, upper=1e-4), ("learning_rate", "lower", "upper")),
    Mistake(
        _rates(type="float", lower=0, upper=1e-2, scale="log"), ("learning_rate", "lower", "log")
    ),
    Mistake(
        _rates(type="float", lower=0.5, upper=0.9, default=0.1), ("learning_rate", "0.1", "0.5")
    ),
    Mistake(_rates(type="uniform", lower=0.1, upper=1), ("learning_rate", "uniform", "float")),
    Mistake({"space": {"hyperparameters": {"lr": "log(1e-4, 1e-2)"}}}, ("lr", "learning_rate")),
    Mistake(
        {"space": {"learning_rate": {"name": "loguniform", "low": 1e-4, "high": 1e-2}}},
        ("learning_rate", "log(1e-5, 1e-2)"),
    ),
    Mistake(
        {"space": {"learning_rate": {"loguniform": [1e-4, 1e-2]}}},
        ("learning_rate", "log(1e-5, 1e-2)"),
    ),
    Mistake(
        {"space": {"parameters": {"learning_rate": {"min": 1e-4, "max": 1e-2}}}},
        ("parameters", "hyperparameters"),
    ),
    Mistake(
        {"space": {"learning_rate": "log(1e-4, 1e-2)"}, "trainer": "no/ppo"}, ("trainer", "no/ppo")
    ),
    Mistake({"space": "population/pppo"}, ("space", "population/pppo", "population/ppo")),
    Mistake({"seeds": {"tuning": [1, 2], "test": [1, 5]}}, ("seeds", "[1]")),
    Mistake({"objective": {"metric": "reward"}}, ("metric", "reward", "eval_return")),
    Mistake({"objective": {"metric": "eval_return", "direction": "max"}}, ("max", "maximize")),
    Mistake({"optimizer": "bayesian"}, ("optimizer", "bayesian", "tpe")),
    Mistake({"optimizer": {"name": "tpe", "n_startup": 4}}, ("n_startup", "startup")),
    Mistake({"optimizer": "pbt", "budget": {"runs": 1}}, ("pbt", "runs")),
    Mistake(
        {"trainer": "sb3/dqn", "space": "sb3/dqn", "environment": "Pendulum-v1"},
        ("sb3/dqn", "Pendulum-v1", "Discrete"),
    ),
    Mistake({"environment": "ALE/Pong-v5"}, ("ALE/Pong-v5",)),
    Mistake({"resources": {"gpu": 1}}, ("gpu", "population/ppo", "CPU")),
    Mistake({"callback": ["a:B"]}, ("callback", "callbacks")),
    Mistake(
        {
            "trainer": {"name": "sb3/ppo", "kwargs": {"policy_kwargs": {"net_arch": [64]}}},
            "space": "sb3/ppo",
        },
        ("net_arch",),
    ),
    Mistake("trainer: population/ppo\n\tspace: x\n", (":2", "'\\t'")),
    Mistake("trainer: population/ppo\n  space: x\n", (":2",)),
    Mistake("trainer: population/ppo\nbudget: {runs: 8\n", (":3", "'}'")),
    Mistake("- trainer\n- space\n", ("mapping",)),
    Mistake("", ("mapping",)),
    Mistake("trainer: population/ppo\nbudget: {runs: 8}\nbudget: {runs: 9}\n", ("budget", "twice")),
)

COMMANDS = (
    Mistake(["tune", "nothing.yaml"], ("nothing.yaml",)),
    Mistake(["tnue", "lane.yaml"], ("tnue", "tune")),
    Mistake(["tune", "lane.yaml", "--worker", "2"], ("--worker", "--workers")),
    Mistake(["tune", "lane.yaml", "--workers", "0"], ("--workers", "0")),
    Mistake(["tune", "lane.yaml", "--run", "3"], ("--run", "--runs")),
    Mistake(["tune", "lane.yaml", "--runs", "10%"], ("--runs", "10%")),
    Mistake(["tune", "lane.yaml", "--set", "optimzer.name=tpe"], ("optimzer", "optimizer")),
    Mistake(["tune", "lane.yaml", "--set", "budget.runs"], ("budget.runs", "=")),
    Mistake(["tune", "lane.yaml", "--out", "study"], ("study", "resume")),
    Mistake(["tune", "population/ppo", "--env", "CartPole-v1", "--steps", "1e"], ("steps", "1e")),
    Mistake(["resume", "stduy"], ("stduy",)),
    Mistake(["watch", "lane.yaml", "--once"], ("lane.yaml",)),
    Mistake(["watch", "lane.yaml"], ("lane.yaml",)),
    Mistake(["best", "."], ("study",)),
    Mistake(["best", "study", "--format", "zo"], ("format", "zo")),
    Mistake(["doctor", "config"], ("config",)),
    Mistake(["compare", "study"], ("DIR", "got 1")),
    Mistake(["export", "study", "--model", "lane.zip"], ("lane.zip",)),
    Mistake(["report", "nowhere"], ("nowhere",)),
    Mistake(["watch", "--web", "nowhere"], ("nowhere",)),
    Mistake(["list", "spaces", "sb3/pppo"], ("sb3/pppo", "sb3/ppo")),
    Mistake(["list", "trainers", "sb3/pppo"], ("sb3/pppo",)),
    Mistake(["list", "optimizers", "tep"], ("tep", "tpe")),
    Mistake(["landscape", "info", "autorl/ppo/CartPole-v2"], ("CartPole-v2", "CartPole-v1")),
    Mistake(["landscape", "query", "study", "SELEC 1"], ("SELEC",)),
    Mistake(["landscape", "query", "study", "SELECT x FROM runz"], ("runz",)),
    Mistake(["landscape", "plot", "study", "curvs", "--out", "x.html"], ("curvs", "curves")),
    Mistake(["landscape", "plot", "study", "surface", "--out", "x.html"], ("surface", "-p")),
)

# Statements after `import autorl`, and the last line of what they raise.
STATEMENTS = (
    Mistake("autorl.tune(lambda t: 0.0, {'x': (0.0, 1.0)}, n_trials=6)", ("n_trials", "runs")),
    Mistake("autorl.tune(lambda t: 0.0, {'x': (-5.0, 5.0)}, runs=6)", ("x", "uniform(a, b)")),
    Mistake("autorl.tune(lambda t: 1 / 0, {'x': 'uniform(0, 1)'}, runs=6)", ("division by zero",)),
    Mistake("autorl.tune(lambda t: 'a', {'x': 'uniform(0, 1)'}, runs=6)", ("'a'", "number")),
    Mistake(
        "t = autorl.Tuner({'x': 'uniform(0, 1)'}); a = t.ask(); t.tell(a, 1.0); t.tell(a, 1.0)",
        ("open",),
    ),
    Mistake(
        "t = autorl.Tuner({'x': 'uniform(0, 1)'}); [t.ask() for _ in range(20)]", ("parallelism",)
    ),
    Mistake(
        "autorl.tune(lambda trial: trial.report(0.5, 1), {'x': 'uniform(0, 1)'}, runs=6)",
        ("step", "0.5"),
    ),
    Mistake("autorl.tune(lambda t: 0.0, 'x', runs=6)", ("x: ", "search space")),
)
