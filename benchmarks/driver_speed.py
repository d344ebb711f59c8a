"""How fast the driver is when training costs nothing, and how fast a large study opens.

    python benchmarks/driver_speed.py                          # all of it, some minutes of CPU
    python benchmarks/driver_speed.py events --folder /dev/shm # one part, on a memory disk
    python benchmarks/driver_speed.py events --size 2000       # the same, smaller

Segments are answered at once by `Instant`, an executor in the driver's own process that trains
nothing, `--batch` of them at each poll. So what is measured is the tuner: store, optimizer, ranking,
checkpoints. CPU seconds, of user and system, because the machine may do other things; wall-clock
seconds stand beside them, since a disk is waited for and not computed with.

    events  a study of random search with `--size` proposals, `--parallelism` of them open: events a
            second. On a memory disk CPU is the limit, on a disk the waiting for it is counted too
    open    `Study.open`, the status and the best of that study
    asha    ASHA with checkpoints: ms a segment around the 200th and around the 2,400th segment
    tpe     one ask of TPE after 200 results and after `--results`
"""

from __future__ import annotations

import argparse
import functools
import resource
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autorl.core.types import Checkpoint, FrozenMap, Outcome, Report, Segment, Status
from autorl.study import Study
from autorl.study.spec import load_spec

SPACE = {name: {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.5} for name in "abcd"}
AROUND = 100  # segments on each side of the one whose cost is measured


class Instant:
    """An executor that answers every segment, and trains none.

    Args:
        batch: outcomes of one poll, at most.

    Attributes:
        ended: CPU seconds of the process at each outcome that was handed over.
    """

    def __init__(self, batch: int) -> None:
        self.slots = batch
        self.ended: list[float] = []
        self._waiting: deque[Segment] = deque()

    def submit(self, segments: Sequence[Segment]) -> None:
        self._waiting.extend(segments)

    def poll(self, timeout: float) -> list[Report | Outcome]:
        count = min(self.slots, len(self._waiting))
        assert count, "the driver waits for a segment that was answered, and not taken"
        self.ended += [time.process_time()] * count
        return [_outcome(self._waiting.popleft()) for _ in range(count)]

    def cancel(self, segment: Segment) -> None:
        """Ignore it: whatever was submitted is answered."""

    def close(self) -> None:
        self._waiting.clear()


def _outcome(segment: Segment) -> Outcome:
    """Make the outcome of a segment: its score is near the middle of the space, and grows."""
    score = segment.until / segment.horizon - sum((x - 0.3) ** 2 for x in segment.config.values())
    checkpoint = None
    if segment.save:
        folder = Path(segment.folder)
        folder.mkdir(parents=True)
        (folder / "state").write_text("1", encoding="utf-8")
        checkpoint = Checkpoint(segment.id, str(folder), FrozenMap(state="1" * 64))
    return Outcome(
        segment.id,
        Status.DONE,
        reached=segment.until,
        reports=(Report(segment.id, segment.until, FrozenMap(eval_return=score)),),
        cost={"environment_steps": float(segment.until), "wall_seconds": 0.0},
        checkpoint=checkpoint,
        applied=segment.config,
        fence=segment.fence,  # without it the driver takes the outcome for a late worker's
    )


@dataclass(frozen=True)
class Used:
    """What a call has used: CPU seconds, wall-clock seconds, and peak memory of the process."""

    cpu: float
    wall: float
    mib: float


def used(call: Callable[[], object]) -> Used:
    cpu = time.process_time()
    wall = time.monotonic()
    call()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Used(time.process_time() - cpu, time.monotonic() - wall, peak)


def document(optimizer: str, size: int, parallelism: int) -> Mapping[str, Any]:
    return {
        "name": "speed",
        "trainer": "synthetic",
        "space": {"hyperparameters": SPACE},
        "objective": {"metric": "eval_return"},
        "fidelity": {"steps": 100, "evaluations": 1},
        "optimizer": optimizer,
        "parallelism": parallelism,
        "budget": {"configurations": size},
        "seeds": {"tuning": 1, "test": 0},
        "executor": {"name": "in_process"},
    }


def run(folder: Path, optimizer: str, options: argparse.Namespace) -> Instant:
    """Run a whole study in a new folder."""
    executor = Instant(options.batch)
    spec = load_spec(document(optimizer, options.size, options.parallelism))
    with closing(Study.create(spec, folder)) as study:
        study.run(executor=executor)
    return executor


def count_events(folder: Path) -> int:
    from autorl.report.reading import open_view

    with closing(open_view(folder)) as view:
        return view.record.tables.last_number()


def events(folder: Path, options: argparse.Namespace) -> str:
    took = used(lambda: run(folder / "random", "random", options))
    count = count_events(folder / "random")
    return (
        f"random, {options.size:,} proposals, {options.parallelism:,} open, {options.batch} "
        f"outcomes a poll: {count:,} events, {count / took.cpu:,.0f} a CPU second, "
        f"{count / took.wall:,.0f} a second; {took.mib:.0f} MiB"
    )


def opening(folder: Path, options: argparse.Namespace) -> str:
    from autorl.report.formats import candidates, render
    from autorl.report.reading import open_view
    from autorl.report.status import status_text

    path = folder / "random"
    if not path.exists():
        run(path, "random", options)

    def open_study() -> None:
        Study.open(path).close()

    def status() -> None:
        with closing(open_view(path)) as view:
            status_text(view)

    def best() -> None:
        with closing(open_view(path)) as view:
            render(candidates(view, 1), "yaml")

    parts = {"Study.open": open_study, "status": status, "best": best}
    took = {name: min(used(call).cpu for _ in range(2)) for name, call in parts.items()}
    return f"{options.size:,} proposals: " + ", ".join(
        f"{name} {seconds:.2f} s CPU" for name, seconds in took.items()
    )


def asha(folder: Path, options: argparse.Namespace) -> str:
    ended = run(folder / "asha", "asha", options).ended
    places = [place for place in (200, 1_000, 2_400) if place + AROUND < len(ended)]
    costs = [
        1000 * (ended[place + AROUND] - ended[place - AROUND]) / (2 * AROUND) for place in places
    ]
    return f"asha, {len(ended):,} segments: " + ", ".join(
        f"{cost:.2f} ms CPU a segment around {place:,}"
        for place, cost in zip(places, costs, strict=True)
    )


def tpe(folder: Path, options: argparse.Namespace) -> str:
    import numpy as np

    from autorl.core.types import Proposal, Proposed, Scored
    from autorl.optimizers import make
    from autorl.space import load_space

    space = load_space({"hyperparameters": SPACE})
    optimizer = make("tpe", space, horizon=100)
    draws = np.random.default_rng(0)
    lines = []
    for number in range(options.results + 1):
        if number in (200, 1_000, options.results):
            optimizer.ask(np.random.default_rng(number))
            took = used(functools.partial(optimizer.ask, np.random.default_rng(number)))
            lines.append(f"{1000 * took.cpu:.1f} ms after {number:,}")
        config = space.sample(draws)
        optimizer.observe(Proposed(number, Proposal(config, 100)))
        score = -sum((x - 0.3) ** 2 for x in config.values())
        optimizer.observe(Scored(number, (score,), (0.0,), 1, 100, mean=(score,)))
    return f"tpe, CPU of an ask: {', '.join(lines)}"


PARTS = {"events": events, "open": opening, "asha": asha, "tpe": tpe}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all of them by default")
    parser.add_argument("--size", type=int, default=None, help="proposals; asha: configurations")
    parser.add_argument("--parallelism", type=int, default=8)
    parser.add_argument("--batch", type=int, default=8, help="outcomes a poll, at most")
    parser.add_argument("--results", type=int, default=10_000, help="of tpe")
    parser.add_argument("--folder", type=Path, help="disk to work on; removed at the end")
    options = parser.parse_args(arguments)
    asked = options.size
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = Path(temporary)
        for name in options.parts or list(PARTS):
            options.size = asked or (1_700 if name == "asha" else 10_000)
            print(PARTS[name](folder, options), flush=True)


if __name__ == "__main__":
    main()
