"""The share of time that workers are idle because an ask waits, on a virtual clock.

    python -m benchmarks.idle_share                       # the rule alone, long streams
    python -m benchmarks.idle_share --studies             # real driver and optimizers as well
    python -m benchmarks.idle_share --workers 8 64 --segments 2000

Segments take lognormal times of deviation `--sigma` (of the natural logarithm). A share of that
variance follows from the configuration and is predicted; the rest is not. `today` is the order of
proposals, which predicts nothing. The idle share is taken until the
last segment starts, without the first `2 * parallelism` ones, when everybody is busy.

Optimizers of `--studies`: `random` declares every ask blind; `informed` draws the same but may read
outcomes, as a model does; `asha` has rungs, so that lengths differ as well. Targets at twice as
many proposals as workers and 80 %: 15 % for 8 workers, 35 % for 64.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np

from autorl.core.types import (
    Checkpoint,
    Config,
    EnvironmentSpec,
    Outcome,
    Report,
    Segment,
    Status,
    TrainerSpec,
)
from autorl.optimizers.random import RandomSearch
from autorl.study import Study
from autorl.study.open_proposals import Order
from autorl.study.spec import load_spec
from autorl.testing import VirtualWorkers
from autorl.trainers import AnyChange, Trainer, TrainerInfo

SHARES = (0.0, 0.5, 0.8, 0.95)
MULTIPLES = (1, 2, 4)
_HORIZON = 900


class PricedInfo(TrainerInfo):
    """Predicts a share of the variance of log time from `size`, uniform in [0, 1]."""

    def relative_cost(
        self,
        trainer: TrainerSpec,
        environment: EnvironmentSpec,
        config: Config,
        start: int,
        until: int,
    ) -> float:
        deviation = trainer.kwargs["sigma"] * math.sqrt(trainer.kwargs["predictable"])
        size = min(max(config["size"], 1e-6), 1 - 1e-6)
        return (until - start) * math.exp(deviation * NormalDist().inv_cdf(size))


class Priced(Trainer):
    """Trains nothing: the score is a hyperparameter, and the time is the executor's affair."""

    info = PricedInfo()
    changes = AnyChange()

    def __init__(self, spec: TrainerSpec) -> None:
        """Take `sigma` and `predictable`, which only the prediction reads."""

    def train(self, *args: object, **kwargs: object) -> Outcome:
        """Never called: `VirtualWorkers` answers every segment."""
        raise AssertionError("a segment of virtual workers is not trained")


class Informed(RandomSearch):
    """Random search that waits as a model would."""

    def blind(self, number: int) -> bool:
        """No ask is declared."""
        return False


def train(segment: Segment) -> Outcome:
    """Answer a segment at once."""
    checkpoint = Checkpoint(segment.id, f"none/{segment.id}") if segment.save else None
    metrics = {"value": segment.config["score"]}
    reports = tuple(Report(segment.id, step, metrics) for step in segment.evaluate_at)
    cost = {"environment_steps": float(segment.until - segment.start), "wall_seconds": 0.0}
    return Outcome(segment.id, Status.DONE, segment.until, reports, cost, checkpoint)


def durations(sigma: float, predictable: float, seed: int) -> Callable[[Segment], float]:
    """Make the time of each segment, of which `predictable` is what `PricedInfo` says."""
    rng = np.random.default_rng(seed)
    info = PricedInfo()

    def duration(segment: Segment) -> float:
        predicted = info.relative_cost(
            segment.trainer, segment.environment, segment.config, segment.start, segment.until
        )
        noise = sigma * math.sqrt(1 - predictable) * rng.standard_normal()
        return predicted * math.exp(noise)

    return duration


def study_idle(
    workers: int,
    parallelism: int,
    predictable: float,
    *,
    optimizer: str,
    segments: int,
    sigma: float,
) -> float:
    """Run a real study on virtual workers and return their idle share."""
    named = {"informed": "benchmarks.idle_share:Informed"}.get(optimizer, optimizer)
    steps_a_segment = _HORIZON / 3 if optimizer == "asha" else _HORIZON
    unit = {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.5}
    spec = load_spec(
        {
            "trainer": {
                "name": "benchmarks.idle_share:Priced",
                "kwargs": {"sigma": sigma, "predictable": max(predictable, 0.0)},
            },
            "space": {"hyperparameters": {"size": unit, "score": unit}},
            "objective": {"metric": "value"},
            "fidelity": {"steps": _HORIZON, "evaluations": 1, "episodes": 1},
            "optimizer": {"name": named, **({"rungs": 3} if optimizer == "asha" else {})},
            "budget": {"runs": segments * steps_a_segment / _HORIZON},
            "seeds": {"tuning": 1, "test": 0},
            "parallelism": parallelism,
            "keep": {"checkpoints": "none"},
        }
    )
    study = Study.in_memory(spec)
    duration = durations(sigma, max(predictable, 0.0), seed=0)
    executor = VirtualWorkers(train, workers, duration)
    study.run(executor=executor)
    study.close()
    return idle_share(executor, 2 * parallelism)


def rule_idle(
    workers: int,
    parallelism: int,
    predictable: float,
    *,
    segments: int,
    sigma: float,
    seed: int = 0,
) -> float:
    """Simulate the order alone, for an optimizer whose every ask may read outcomes.

    `workers` of at most `parallelism` proposals run at once; a negative `predictable` is the order
    of proposals.
    """
    rng = np.random.default_rng(seed)
    known = max(predictable, 0.0)
    costs = np.exp(sigma * math.sqrt(known) * rng.standard_normal(segments))
    noise = np.exp(sigma * math.sqrt(1 - known) * rng.standard_normal(segments))
    order = Order(parallelism)
    executor = VirtualWorkers(train, workers, lambda segment: 1.0)
    free = [0.0] * workers
    ends: list[float] = []
    now = 0.0
    for number in range(segments):
        while (due := order.next(demanded=False)) is not None:
            now = max(now, ends[due])
            order.observed(due)
        order.begin(number, 0.0 if predictable < 0 else float(costs[number]))
        place = min(range(workers), key=free.__getitem__) if workers < 64 else int(np.argmin(free))
        start = max(now, free[place])
        free[place] = start + float(costs[number] * noise[number])
        ends.append(free[place])
        executor.spans.append((start, free[place]))
    return idle_share(executor, 2 * parallelism)


def idle_share(executor: VirtualWorkers, fewest: int) -> float:
    """Return the share of the workers' time that was idle.

    Time counts until the last segment starts, because then nothing is left to do, and not before
    `fewest` segments have started.
    """
    first = executor.spans[fewest][0]
    last = executor.spans[-1][0]
    if last <= first:
        return 0.0
    busy = sum(max(0.0, min(end, last) - max(start, first)) for start, end in executor.spans)
    return 1.0 - busy / (executor.slots * (last - first))


def rows(idle: Callable[[int, int, float], float], workers: Sequence[int]) -> list[str]:
    """Write a table: workers and parallelism by what is predicted."""
    heads = ["today", *(f"{share:.0%}" for share in SHARES)]
    lines = [f"| W | p | {' | '.join(heads)} |", "|" + " --- |" * (len(heads) + 2)]
    for count in workers:
        for multiple in MULTIPLES:
            cells = [f"{idle(count, count * multiple, share):.0%}" for share in (-1.0, *SHARES)]
            lines.append(f"| {count} | {multiple}W | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--segments", type=int, default=20_000, help="of a stream of the rule")
    parser.add_argument("--sigma", type=float, default=1.0)
    parser.add_argument("--studies", action="store_true", help="real driver and optimizers too")
    parser.add_argument("--of-a-study", type=int, default=1000, help="segments of each study")
    options = parser.parse_args()
    begun = time.process_time()
    print(f"The rule alone, {options.segments} segments, sigma {options.sigma:g}\n")
    of_the_rule = functools.partial(rule_idle, segments=options.segments, sigma=options.sigma)
    print("\n".join(rows(of_the_rule, options.workers)))
    optimizers = ("random", "informed", "asha") if options.studies else ()
    for optimizer in optimizers:
        print(f"\nStudies of {optimizer}, {options.of_a_study} segments\n")
        idle = functools.partial(
            study_idle, optimizer=optimizer, segments=options.of_a_study, sigma=options.sigma
        )
        print("\n".join(rows(idle, options.workers)))
    print(f"\n{time.process_time() - begun:.0f} s of CPU")


if __name__ == "__main__":
    main()
