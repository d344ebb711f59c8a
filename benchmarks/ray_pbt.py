"""Ray Tune's PBT and PB2 on jobs of `optimizers.py`; runs in an interpreter that has both Ray and autorl.

    PYTHON benchmarks/ray_pbt.py JOBS.json RESULTS.json

Every trial of Ray trains its configuration with all tuning seeds on the trainer that ours uses, a generation at a time,
and reports the mean return. A checkpoint carries the schedule its agents were really trained with, so the winner's
schedule is known whatever the scheduler copied. `synch=True`, because asynchronous PBT hardly perturbs with fewer
processors than trials; actors are reused, each with a fraction of a processor.

PBT gets the hyperparameters themselves: distributions to resample from, and factors of 0.8 and 1.2 otherwise. It does
not keep their bounds, so they are clipped before training. PB2 knows linear bounds only, so it gets their positions in
the unit interval, which is where ours searches too.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")

import numpy as np
from ray import tune

FAILED = -1e9  # score of a trial one of whose agents diverged


class Member(tune.Trainable):  # type: ignore[misc]  # no types of Ray
    """A member of a population: one agent per tuning seed, trained with one configuration until it is told another."""

    def setup(self, config: dict[str, Any]) -> None:
        self.job = config["job"]
        self.folder = Path(tempfile.mkdtemp(prefix="member-", dir=self.job["scratch"]))
        self.agents: dict[str, str] = {}  # checkpoint by seed
        self.reached: dict[str, int] = {}
        self.schedule: list[list[Any]] = []
        self.generation, self.forked, self.trained = 0, False, 0.0  # steps of the last generation
        self.score = FAILED

    def reset_config(self, config: dict[str, Any]) -> bool:
        self.config, self.job = config, config["job"]
        return True

    def values(self) -> dict[str, Any]:
        """The configuration in its own units, inside its bounds."""
        space = load(self.job["space"])
        values = {}
        for name, hyperparameter in space.hyperparameters.items():
            if hyperparameter.type == "constant":
                values[name] = hyperparameter.default
            elif self.job["unit"]:
                values[name] = hyperparameter.from_unit(float(np.clip(self.config[name], 0.0, 1.0)))
            else:
                values[name] = float(
                    np.clip(self.config[name], hyperparameter.lower, hyperparameter.upper)
                )
        return values

    def step(self) -> dict[str, Any]:
        """A generation. Ray may let a member copy one that is at the end, and train on: it is at the end too."""
        if self.generation == self.job["generations"]:
            return {"score": self.score, "schedule": self.schedule}
        job, values = self.job, self.values()
        start = job["steps"] * self.generation // job["generations"]
        until = job["steps"] * (self.generation + 1) // job["generations"]
        if not self.schedule or self.schedule[-1][1] != values:
            self.schedule.append([start, values])
        self.trained = 0.0
        scores = [self._train(str(seed), values, until) for seed in job["tuning"]]
        self.generation, self.forked = self.generation + 1, False
        score = float(np.mean(scores))
        self.score = score if math.isfinite(score) else FAILED
        with open(job["counter"], "a") as file:
            file.write(f"{self.trained}\n")
        return {"score": self.score, "schedule": self.schedule}

    def _train(self, seed: str, values: dict[str, Any], until: int) -> float:
        from autorl.core.seeds import digest
        from autorl.core.types import (
            Checkpoint,
            Config,
            EnvironmentSpec,
            FrozenMap,
            Segment,
            SegmentId,
            TrainerSpec,
        )
        from autorl.trainers import load as load_trainer

        job, before = self.job, self.reached.get(seed, 0)
        spec = TrainerSpec(job["trainer"], FrozenMap(job["hyperparameters"]))
        folder = self.folder / f"{seed}-{until}"
        shutil.rmtree(folder, ignore_errors=True)
        segment = Segment(
            id=SegmentId(0, int(seed), until),
            trainer=spec,
            environment=EnvironmentSpec(job["environment"]),
            config=Config(values),
            seed=int(seed),
            role="tuning",
            parent=Checkpoint(SegmentId(0, int(seed), before), self.agents[seed])
            if before
            else None,
            start=before,
            until=until,
            horizon=job["steps"],
            evaluate_at=(until,),
            episodes=job["episodes"],
            fork=digest(int(seed), "fork", self.trial_id, until) % 2**62 if self.forked else None,
            save=True,
            folder=str(folder),
        )
        outcome = load_trainer(spec).train(segment, lambda report: None)
        self.trained += outcome.cost["environment_steps"]
        if outcome.checkpoint is None:
            return math.nan
        self.agents[seed], self.reached[seed] = outcome.checkpoint.path, outcome.reached
        return outcome.reports[-1].metrics["eval_return"]

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        for seed, path in self.agents.items():
            shutil.copytree(path, Path(checkpoint_dir) / seed)
        state = {"reached": self.reached, "schedule": self.schedule, "generation": self.generation}
        state |= {"trial": self.trial_id, "seeds": list(self.agents), "score": self.score}
        (Path(checkpoint_dir) / "member.json").write_text(json.dumps(state))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        state = json.loads((Path(checkpoint_dir) / "member.json").read_text())
        self.reached, self.schedule, self.generation = (
            state["reached"],
            state["schedule"],
            state["generation"],
        )
        self.score = state["score"]
        self.forked = state["trial"] != self.trial_id
        self.agents = {}
        for seed in state["seeds"]:
            target = self.folder / f"{seed}-restored-{self.generation}"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(Path(checkpoint_dir) / seed, target)
            self.agents[seed] = str(target)

    def cleanup(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def load(space: Any) -> Any:
    from autorl.space import load_space

    return load_space(space)


def scheduler(job: dict[str, Any]) -> Any:
    """Ray's scheduler over the hyperparameters that may change."""
    from ray.tune.schedulers import PopulationBasedTraining
    from ray.tune.schedulers.pb2 import PB2

    shared = {
        "time_attr": "training_iteration",
        "metric": "score",
        "mode": "max",
        "perturbation_interval": 1,
    }
    numbers = {n: h for n, h in load(job["space"]).hyperparameters.items() if h.type != "constant"}
    if job["unit"]:
        return PB2(**shared, hyperparam_bounds={name: [0.0, 1.0] for name in numbers}, synch=True)
    mutations = {
        name: (tune.loguniform if one.scale == "log" else tune.uniform)(one.lower, one.upper)
        for name, one in numbers.items()
    }
    return PopulationBasedTraining(**shared, hyperparam_mutations=mutations, synch=True)


def search(job: dict[str, Any]) -> dict[str, Any]:
    """One run of Ray Tune: the winner's schedule and score, and the steps of all members."""
    import random

    from ray.tune.search.basic_variant import BasicVariantGenerator

    random.seed(job["repeat"])
    np.random.seed(job["repeat"])  # noqa: NPY002 - Ray draws from the global generators
    population = len(job["initial"])
    shared = {key: value for key, value in job.items() if key != "initial"}
    with tempfile.TemporaryDirectory(dir=job["scratch"]) as folder:
        counter = (
            Path(folder) / "steps"
        )  # of every generation trained; Ray forgets those before a restart
        shared["counter"] = str(counter)
        tuner = tune.Tuner(
            tune.with_resources(Member, {"cpu": 2 / population}),
            param_space={"job": shared, **dict.fromkeys(job["initial"][0])},
            tune_config=tune.TuneConfig(
                scheduler=scheduler(job),
                search_alg=BasicVariantGenerator(points_to_evaluate=job["initial"]),
                num_samples=population,
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                storage_path=folder,
                name="search",
                stop={"training_iteration": job["generations"]},
                verbose=0,
            ),
        )
        found = tuner.fit()
        ends = [
            one.metrics for one in found if one.metrics["training_iteration"] == job["generations"]
        ]
        failed = len(found.errors)
        steps = sum(map(float, counter.read_text().split()))
    best = max(ends, key=lambda metrics: metrics["score"])
    return {
        "schedule": best["schedule"],
        "tuning": best["score"],
        "steps": steps,
        "failed": failed,
        "changes": len(best["schedule"]) - 1,
    }


def main(jobs: str, results: str) -> None:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    for job in json.loads(Path(jobs).read_text()):
        found = search(job) | {"key": job["key"]}
        with Path(results).open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(f"{job['key']}: {found['tuning']:.1f}, {found['changes']} changes", flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
