"""The cost of a build: runs, steps, time and disk."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from types import MappingProxyType

from autorl.core.plain_text import counted
from autorl.core.types import InputError, Segment
from autorl.study import Study
from autorl.study.building.plan import BuildPlan, sizes_of
from autorl.study.setup import check, executor_name, segments_at_once, trainer_loader
from autorl.study.spec import Spec

_PROBED = 8  # configurations that are trained for a few evaluation intervals to measure the speed
_PROBED_INTERVALS = 3  # long enough to be past what happens once, such as filling a memory
_PROBE_SECONDS = 10.0
# Measured on the shipped landscapes and the studies they were written from.
_LANDSCAPE_BYTES = MappingProxyType({"evaluation": 12, "run": 22})
_STUDY_BYTES = MappingProxyType({"evaluation": 350, "run": 2600})


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A time, in seconds, and what it was measured on."""

    seconds: float
    source: str

    def text(self, workers: int) -> str:
        minutes = self.seconds / 60
        text = f"{minutes:.0f} minutes" if minutes >= 2 else f"{max(1.0, self.seconds):.0f} s"
        return f"about {text} on {counted(workers, 'worker')} ({self.source})"


@dataclasses.dataclass(frozen=True)
class BuildCost:
    """The work of a build. Exact but for `time` and the bytes.

    Attributes:
        ends: steps at which the phases end; one where all runs are trained from scratch.
        steps: environment steps of all runs together.
        evaluations: rows of the study's table `reports`.
        time: None = unknown.
        landscape_bytes, study_bytes: on disk, checkpoints of the study left out.
    """

    configurations: int
    ends: tuple[int, ...]
    tuning_seeds: int
    test_seeds: int
    runs: int
    steps: int
    evaluations: int
    workers: int
    time: Estimate | None
    landscape_bytes: int
    study_bytes: int


def build_cost(plan: BuildPlan, workers: int | None = None) -> BuildCost:
    """Count the work of a build, and estimate its time.

    Not of a population, whose work depends on scores.

    The population engine trains a few configurations for some seconds to measure its speed.

    Raises:
        InputError: what the build would raise, or it is a population.
    """
    spec = plan.spec
    if plan.is_lineage:
        raise InputError("the counts of a population depend on scores", key="optimizer")
    check(spec, trainer_loader(spec))
    sizes = sizes_of(spec)
    tuning = len(spec.plan.tuning)
    test = len(spec.plan.test)
    chains = sizes.configurations * (tuning + test)
    runs = chains * len(sizes.ends)
    evaluations = chains * len(set(spec.evaluation_steps) | set(sizes.ends))
    slots = segments_at_once(spec, executor_name(spec), workers)

    def disk(bytes_of: Mapping[str, int]) -> int:
        return runs * bytes_of["run"] + evaluations * bytes_of["evaluation"]

    return BuildCost(
        configurations=sizes.configurations,
        ends=sizes.ends,
        tuning_seeds=tuning,
        test_seeds=test,
        runs=runs,
        steps=chains * spec.fidelity.steps,
        evaluations=evaluations,
        workers=slots,
        time=_estimate(plan, slots, chains),
        landscape_bytes=disk(_LANDSCAPE_BYTES),
        study_bytes=disk(_STUDY_BYTES),
    )


def _estimate(plan: BuildPlan, workers: int, chains: int) -> Estimate | None:
    """Estimate the seconds of `chains` runs of full length."""
    spec = plan.spec
    infos = [spec.info(trainer) for trainer in spec.trainers.values()]
    if not all(info.estimates_by_training for info in infos):
        return None
    seconds, count = _seconds_per_run(spec)
    trained = counted(count, "configuration")
    source = f"{trained} trained here for a while: {seconds:.2f} s a run and worker"
    return Estimate(chains * seconds / workers, source)


def _seconds_per_run(spec: Spec) -> tuple[float, int]:
    """Train a little of some configurations, and scale their time up.

    It is a few evaluation intervals of each, scaled to a run.

    Returns:
        Mean seconds of a run of full length, and of how many configurations.
    """
    load = trainer_loader(spec)
    study = Study.in_memory(spec.model_copy(update={"parallelism": _PROBED}), load)
    try:
        segments = study.advance()
    finally:
        study.close()
    probes = [segment for segment in segments if segment.seed == spec.plan.tuning[0]]
    steps = spec.evaluation_steps[:_PROBED_INTERVALS]

    def seconds(segment: Segment, evaluate_at: tuple[int, ...]) -> float:
        short = dataclasses.replace(
            segment, until=evaluate_at[-1], evaluate_at=evaluate_at, save=False, folder="", log=None
        )
        began = time.perf_counter()
        load(segment.trainer).train(short, lambda report: None)
        return time.perf_counter() - began

    seconds(probes[0], (1,))  # compiles, or loads what was compiled
    measured: list[float] = []
    while len(measured) < len(probes) and sum(measured) < _PROBE_SECONDS:
        measured.append(seconds(probes[len(measured)], steps))
    mean = sum(measured) / len(measured)
    return mean * spec.fidelity.steps / steps[-1], len(measured)
