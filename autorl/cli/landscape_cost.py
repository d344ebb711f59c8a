"""What `autorl landscape build --dry-run` prints: runs, steps, time and disk of a build, before any of it."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from autorl.cli.options import print_json, say
from autorl.types import Segment

if TYPE_CHECKING:
    from autorl.report.plan import Estimate
    from autorl.spec import Spec

_PROBED = 8  # configurations that are trained for a few evaluation intervals to measure the speed
_PROBED_INTERVALS = 3  # long enough to be past what happens once, such as filling a memory
_PROBE_SECONDS = 10.0
# Measured on the shipped landscapes and the studies they were written from.
_LANDSCAPE_BYTES = {"evaluation": 12, "run": 22}
_STUDY_BYTES = {"evaluation": 350, "run": 2600}


@dataclasses.dataclass(frozen=True)
class Cost:
    """The work of a build. Exact but for `seconds` and the bytes.

    Attributes:
        ends: steps at which the phases end; one where all runs are trained from scratch.
        steps: environment steps of all runs together.
        evaluations: rows of the table `evals`.
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


def print_cost(spec: Spec, name: str, folder: Path, *, workers: int | None, as_json: bool) -> None:
    """What `--dry-run` prints."""
    cost = cost_of(spec, folder, workers)
    if as_json:
        time_of = (
            {"seconds": cost.time.seconds, "seconds_from": cost.time.source} if cost.time else {}
        )
        values = {key: value for key, value in vars(cost).items() if key != "time"}
        print_json({"landscape": name, "name": spec.name, **values, "seconds": None, **time_of})
        return
    from autorl.report.text import columns

    say(columns(("dry run", "nothing is written"), _rows(spec, name, cost), indent=""))


def cost_of(spec: Spec, folder: Path, workers: int | None = None) -> Cost:
    """The work of a build; `folder`: of its study, beside which speeds of others are looked for.

    Raises:
        InputError: what the build would raise.
    """
    from autorl.cli.landscape_build import shape
    from autorl.study.setup import check, trainer_loader

    check(spec, trainer_loader(spec))
    configurations, ends = shape(spec)
    tuning, test = len(spec.plan.tuning), len(spec.plan.test)
    seeds, slots = tuning + test, workers or spec.executor.workers or os.cpu_count() or 1
    runs, steps = configurations * len(ends) * seeds, configurations * seeds * spec.fidelity.steps
    evaluations = configurations * seeds * len(set(spec.evaluation_steps) | set(ends))

    def size(each: dict[str, int]) -> int:
        return runs * each["run"] + evaluations * each["evaluation"]

    return Cost(
        configurations=configurations,
        ends=ends,
        tuning_seeds=tuning,
        test_seeds=test,
        runs=runs,
        steps=steps,
        evaluations=evaluations,
        workers=slots,
        time=_estimate(spec, folder, slots, runs=configurations * seeds),
        landscape_bytes=size(_LANDSCAPE_BYTES),
        study_bytes=size(_STUDY_BYTES),
    )


def _estimate(spec: Spec, folder: Path, workers: int, runs: int) -> Estimate | None:
    """Seconds of `runs` whole runs: measured here for the engine, else from studies beside `folder`."""
    from autorl.report.plan import Estimate, estimate_time

    described = [spec.info(trainer) for trainer in spec.trainers.values()]
    if not all(info.estimates_by_training for info in described):
        return estimate_time(spec, runs * spec.fidelity.steps, workers, folder)
    seconds, count = _seconds_per_run(spec)
    source = f"{count} configurations trained here for a while: {seconds:.2f} s a run and worker"
    return Estimate(runs * seconds / workers, source)


def _seconds_per_run(spec: Spec) -> tuple[float, int]:
    """Mean seconds of a run, and of how many configurations: a few evaluation intervals of each, scaled up."""
    from autorl.study import Study
    from autorl.study.setup import trainer_loader

    load = trainer_loader(spec)
    study = Study.in_memory(spec.model_copy(update={"parallelism": _PROBED}), load)
    try:
        segments = study.advance()
    finally:
        study.close()
    firsts = [segment for segment in segments if segment.seed == spec.plan.tuning[0]]
    steps = spec.evaluation_steps[:_PROBED_INTERVALS]

    def seconds(segment: Segment, evaluate_at: tuple[int, ...]) -> float:
        short = dataclasses.replace(
            segment, until=evaluate_at[-1], evaluate_at=evaluate_at, save=False, folder="", log=None
        )
        began = time.perf_counter()
        load(segment.trainer).train(short, lambda report: None)
        return time.perf_counter() - began

    seconds(firsts[0], (1,))  # compiles, or loads what was compiled
    measured: list[float] = []
    while len(measured) < len(firsts) and sum(measured) < _PROBE_SECONDS:
        measured.append(seconds(firsts[len(measured)], steps))
    return sum(measured) / len(measured) * spec.fidelity.steps / steps[-1], len(measured)


def _rows(spec: Spec, name: str, cost: Cost) -> list[tuple[str, str]]:
    episodes = spec.fidelity.episodes
    rows = [
        ("landscape", name),
        ("trainer", ", ".join(trainer.name for trainer in spec.trainers.values())),
        ("configurations", f"{cost.configurations} by {spec.optimizer.name}"),
        ("seeds", f"{cost.tuning_seeds} tuning + {cost.test_seeds} test"),
        (
            "steps of a run",
            f"{spec.fidelity.steps:,}, {len(spec.evaluation_steps)} evaluations of {episodes} episodes",
        ),
    ]
    if len(cost.ends) > 1:
        rows.append(
            ("phases", f"{len(cost.ends)}, ending at steps {', '.join(map(str, cost.ends))}")
        )
    rows += [
        ("runs", f"{cost.runs:,}"),
        (spec.steps, f"{cost.steps:,}"),
        ("evaluations", f"{cost.evaluations:,}"),
        ("time", _time_text(cost)),
        (
            "disk",
            f"about {_megabytes(cost.landscape_bytes)} landscape, {_megabytes(cost.study_bytes)} study",
        ),
    ]
    return rows


def _time_text(cost: Cost) -> str:
    if cost.time is None:
        return "unknown: no study beside the folder has trained this trainer on this environment"
    minutes = cost.time.seconds / 60
    text = f"{minutes:.0f} minutes" if minutes >= 2 else f"{max(1.0, cost.time.seconds):.0f} s"
    return f"about {text} on {cost.workers} workers ({cost.time.source})"


def _megabytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
