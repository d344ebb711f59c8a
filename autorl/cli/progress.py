"""Shows where a running study stands.

It is a bar on a terminal, a line now and then elsewhere.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from autorl.core.plain_text import counted, number
from autorl.report.live import LEAST_SHARE
from autorl.report.status import duration_text

if TYPE_CHECKING:
    from autorl.study import Progress, Study

LINE_SECONDS = 5.0
_UNFINISHED = 0.99  # most of a search that is shown while anything runs


class Way(NamedTuple):
    """How a command runs studies.

    Attributes:
        workers: slots; None: as the study file says.
        as_json: whether standard output is for one JSON document.
        quiet: whether nothing is shown meanwhile.
    """

    workers: int | None = None
    as_json: bool = False
    quiet: bool = False


@contextmanager
def reporting(
    names: Mapping[Study, str], way: Way
) -> Iterator[Callable[[Study, Progress], None] | None]:
    """Show how studies go, and give the function that takes their progress.

    It is None when nothing is to be shown. Lines go to standard output, or to standard error when
    that is for JSON. A name stands before every line of its study, unless it is empty.
    """
    stream = sys.stderr if way.as_json else sys.stdout
    if way.quiet:
        yield None
        return
    bar = _bar(stream) if stream.isatty() else None
    reporters = {study: Reporter(study, stream, name, bar) for study, name in names.items()}
    with nullcontext() if bar is None else _running(bar):
        yield lambda study, progress: reporters[study](progress)


class Reporter:
    """Shows the `Progress` of a study: call it with each.

    Args:
        study: asked for the work under way and the size of the test phase.
        stream: where lines go.
        name: of the study, before every line, where several run at once.
        bar: of a terminal, in place of lines.
        line_seconds: at most one line in so many seconds, besides changes of phase.
    """

    def __init__(
        self,
        study: Study,
        stream: TextIO,
        name: str = "",
        bar: Any = None,
        *,
        line_seconds: float = LINE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._study = study
        self._stream = stream
        self._line_seconds = line_seconds
        self._clock = clock
        self._phase = ""
        self._line = ""
        # The first line comes at once.
        self._printed = -float("inf")
        # Seconds and share done when this session began: the pace of earlier ones is not known.
        self._began: tuple[float, float] | None = None
        self._prefix = f"{name}: " if name else ""
        self._bar = bar
        if bar is not None:
            begun = f"{self._prefix}search"
            self._task = bar.add_task(begun, total=1.0, remaining="", best="")

    def __call__(self, progress: Progress) -> None:
        best = ""
        if progress.best is not None:
            best = f"incumbent {number(progress.best)} (tuning, proposal {progress.best_proposal})"
        remaining = self._time_left(progress)
        if self._bar is not None:
            shown = {"description": f"{self._prefix}{progress.phase}", "best": best}
            share, _ = self._share(progress)
            self._bar.update(self._task, completed=share, remaining=remaining, **shown)
            return
        now = self._clock()
        # A change of phase is said whenever it comes.
        if progress.phase != self._phase or now - self._printed >= self._line_seconds:
            self._phase = progress.phase
            self._printed = now
            # Only where a line may come of it: it looks at every test run.
            share, detail = self._share(progress)
            parts = (f"{self._prefix}{progress.phase} {share:4.0%}", detail, best, remaining)
            line = " · ".join(part for part in parts if part)
            # The first runs may take long: what is not new is not printed.
            if line != self._line:
                print(line, file=self._stream, flush=True)
            self._line = line

    def _share(self, progress: Progress) -> tuple[float, str]:
        """Return how much of the phase is done, and of what."""
        if progress.phase == "search":
            # Failed proposals are done too.
            all_of_them = counted(progress.proposals, "proposal")
            # Proposals cost the same or nearly so: what is left pays for as many more.
            if 0 < progress.budget_used < 1:
                planned = round(progress.proposals / progress.budget_used)
                all_of_them = f"about {counted(planned, 'proposal')}"
            return self._trained(progress), f"{progress.settled} of {all_of_them} done"
        tested, total = self._study.tests.progress
        return (tested / total if total else 0.0), f"{tested} of {counted(total, 'test run')}"

    def _trained(self, progress: Progress) -> float:
        """Return the share of the budget whose outcomes are in.

        The budget is charged when proposed, before anything is trained. Uncharged runs are not part
        of it.
        """
        driver = self._study.driver
        if self._study.spec.budget.measured is not None or not driver.charges.steps:
            return progress.budget_used
        running = driver.work.in_flight.values()
        missing = sum(
            # A trainer that goes on past one rung may begin behind the next.
            max(0, segment.until - segment.start)
            for segment in running
            if driver.charges.covers(segment.id)
        )
        share = progress.budget_used * max(0.0, 1.0 - missing / driver.charges.steps)
        # The last races and confirmations may go beyond the budget.
        return min(share, _UNFINISHED) if running else share

    def _time_left(self, progress: Progress) -> str:
        """Estimate the time left at the pace of this session.

        It says nothing before a tenth of the search was seen.
        """
        if progress.phase != "search":
            return ""
        share = self._trained(progress)
        if self._began is None:
            self._began = (progress.seconds, share)
        began_at, began_with = self._began
        seconds = progress.seconds - began_at
        used = share - began_with
        remaining = 1.0 - share
        if used < LEAST_SHARE or remaining <= 0:
            return ""
        return f"search ends in about {duration_text(seconds / used * remaining)}"


class RuleProgress:
    """Shows which rule of which landscape is checked.

    A terminal shows one changing line, a file a line now and then.

    Args:
        count: landscapes that are checked.
        stream: where it goes.
        line_seconds: at most one line in so many seconds, the first after as many.
    """

    def __init__(
        self,
        count: int,
        stream: TextIO,
        *,
        line_seconds: float = LINE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count = count
        self._stream = stream
        self._line_seconds = line_seconds
        self._clock = clock
        self._printed = clock()
        self._seen: dict[str, None] = {}

    def __call__(self, landscape: str, rule: str) -> None:
        self._seen.setdefault(landscape)
        text = f"{len(self._seen)} of {self._count}: {landscape}: {rule.replace('_', ' ')}"
        if self._stream.isatty():
            # Back to the first column, then erase to the end of the line (ECMA-48).
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()
        elif self._clock() - self._printed >= self._line_seconds:
            self._printed = self._clock()
            print(text, file=self._stream, flush=True)

    def clear(self) -> None:
        """Leave no line behind on a terminal."""
        if self._stream.isatty():
            self._stream.write("\r\x1b[K")
            self._stream.flush()


@contextmanager
def _running(bar: Any) -> Iterator[None]:
    bar.start()
    try:
        yield
    finally:
        with suppress(OSError):  # the terminal is gone
            bar.stop()


def _bar(stream: TextIO) -> Any:
    # Only a terminal has a bar: elsewhere rich is never imported.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.fields[best]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[remaining]}"),
        console=Console(file=stream),
        # The bar goes when the study ends, and the result stands in its place.
        transient=True,
    )
