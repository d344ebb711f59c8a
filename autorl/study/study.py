"""A study: its study file, its folder, and its loop.

The folder keeps everything, and the loop runs the study to a result.

    study = Study.create(load_spec("ppo.yaml"), Path("studies/ppo"))
    result = study.run()

Kill it at any moment; `Study.open(folder).run()` goes on and ends with the same table.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autorl.executors.worker import NO_SPACE, Load
from autorl.seeds import FIRST_TEST_SEED, MOST_SEEDS
from autorl.signals import held
from autorl.spec import MOST_RUNS, Spec, thaw
from autorl.store import Store
from autorl.store.events import BudgetExtended, SessionBegun, StudyFinished, TestSeedsAdded
from autorl.store.tables import StudyTables
from autorl.study.budget import is_extension
from autorl.study.driver import Driver
from autorl.study.folder_checks import check_covers_folder, check_space
from autorl.study.journal import Journal
from autorl.study.kept_models import KeptModels
from autorl.study.record import StudyRecord, with_added_test_seeds
from autorl.study.result import Result, read_result
from autorl.study.session import session
from autorl.study.setup import check, make_executor, make_optimizer, trainer_loader
from autorl.study.test_phase import TestPhase
from autorl.types import (
    Executor,
    FrozenMap,
    InputError,
    Optimizer,
    Outcome,
    Segment,
    SegmentId,
    Status,
    StudyError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_POLL_SECONDS = 0.5
# Outcomes in one transaction: workers wait no longer for what follows from the first of them.
_MOST_AT_ONCE = 256


@dataclass(frozen=True)
class Progress:
    """The point where a running study stands, for people.

    Attributes:
        phase: `search` or `test`.
        budget_used: share of the budget, in [0, 1].
        best: tuning score of the incumbent in the metric's own direction; None before anything was
            scored.
        seconds: of this session.
    """

    phase: str
    proposals: int
    settled: int
    running: int
    finished_segments: int
    budget_used: float
    best: float | None
    best_proposal: int | None
    seconds: float


class Study:
    """One study and its folder.

    Use `create`, `open` or `in_memory`, then `run` it, and `close` it.

    Args:
        load: builds trainers; must be picklable by reference unless everything runs in this
            process.

    Attributes:
        trust: whether pickles in checkpoints are opened that this installation did not write: they
            can run anything.
    """

    trust = False

    def __init__(self, spec: Spec, store: Store, load: Load | None = None) -> None:
        self.store = store
        self.load: Load = load or trainer_loader(spec)
        self._begun = time.monotonic()
        self.tables = StudyTables(store.query)
        self._hours_before = self.tables.hours()
        self._file = spec
        self._fold()

    def _fold(self) -> None:
        """Bring everything to where the stored events leave it."""
        self.spec = with_added_test_seeds(self._file, self.tables)
        self.optimizer: Optimizer = make_optimizer(self.spec, self.load)
        self.journal = Journal(self.store)
        self.driver = Driver(self.spec, self.journal, self.optimizer, self.hours)
        self.tests = TestPhase(self.spec, self.journal, self.driver)
        self.models = KeptModels(self.spec, self.journal, self.driver)
        for recorded in self.store.events():
            self.journal.apply(recorded.event)
        # After the events, which say what the log has given up.
        self.driver.work.sweep()

    @classmethod
    def create(cls, spec: Spec, folder: Path, load: Load | None = None) -> Study:
        """Begin a new study in `folder`.

        Everything that can be checked is checked before the folder is made.

        Raises:
            InputError: the folder is in use, or the trainer cannot train this environment or these
                hyperparameters.
        """
        check(spec, load or trainer_loader(spec))
        return cls(spec, Store.create(folder, spec.freeze(), spec.search_space.hash), load)

    @classmethod
    def open(cls, folder: Path, load: Load | None = None, *, trust: bool = False) -> Study:
        """Open the study in `folder`, as its stored events left it.

        `trust` opens pickles of others in its checkpoints.

        Raises:
            InputError: there is none, another driver works on it, a file of it is torn or lost, or
                its study file was changed.
        """
        store = Store.open(folder)
        try:
            text = (folder / "study.yaml").read_text(encoding="utf-8")
            spec = thaw(text, str(folder / "study.yaml"))
            tables = StudyTables(store.query)
            check_space(spec, tables, folder)
            check_covers_folder(tables, folder)
            study = cls(spec, store, load)
            study.trust = trust
            return study
        except BaseException:
            # The lock would outlive a study that could not be opened.
            store.close()
            raise

    @classmethod
    def in_memory(cls, spec: Spec, load: Load | None = None) -> Study:
        """Begin a study without a folder: nothing survives the process."""
        check(spec, load or trainer_loader(spec))
        return cls(spec, Store.in_memory(), load)

    def extend(self, runs: float) -> None:
        """Add to the budget, and open the search again.

        `runs` are added, or configurations where the budget counts those.

        Raises:
            InputError: the budget is counted in something else, `runs` is no number above 0 or too
                large, or nothing would be trained with so many. Nothing is recorded then.
        """
        if not is_extension(runs):
            raise InputError(
                f"expected more runs, a number up to {MOST_RUNS:,}, got {runs:g}", key="--runs"
            )
        if self.spec.budget.runs is None and self.spec.budget.configurations is None:
            raise InputError(
                "only a budget in runs or configurations can be extended", key="--runs"
            )
        if idle := self.driver.idle_with(runs):
            raise InputError(f"+{runs:g} {idle}", key="--runs")
        self.journal.record(BudgetExtended(runs))

    def add_test_seeds(self, count: int) -> None:
        """Bring the number of test seeds to `count`.

        The candidates are trained on the new ones by the next `run`.

        Raises:
            InputError: there are as many already.
        """
        have = self.spec.plan.test
        if count <= len(have):
            raise InputError(
                f"the study has {len(have)} test seeds already: ask for more", key="--seeds"
            )
        if count > MOST_SEEDS:
            raise InputError(
                f"expected at most {MOST_SEEDS} test seeds, got {count}", key="--seeds"
            )
        taken = {*have, *self.spec.plan.tuning}
        fresh = (
            seed
            for seed in itertools.count(max((*have, FIRST_TEST_SEED - 1)) + 1)
            if seed not in taken
        )
        more = tuple(itertools.islice(fresh, count - len(have)))
        self.journal.record(TestSeedsAdded(more))
        self._fold()  # the seeds are a part of the spec, and that is a part of everything

    def advance(self) -> list[Segment]:
        """List every segment that can start now.

        These are segments of the search, and once that is over of what comes after it. That is the
        default configuration, then the test phase; without test seeds the models that are kept.
        """
        segments = self.driver.advance()
        if not self.driver.finished:
            return segments
        if not self.spec.plan.test:
            return segments + self.models.advance()
        if not self.tests.candidates and self.driver.add_baseline():
            segments += self.driver.advance()
        if self.driver.finished:
            segments += self.tests.advance()
        return segments

    def record(self, outcome: Outcome) -> None:
        """Take note of how a segment ended.

        Raises:
            StudyError: the disk is full: the study stops here and can be resumed when there is
                room.
        """
        # Retries would meet the same full disk and be used up by it.
        if outcome.status is Status.LOST and outcome.message.startswith(NO_SPACE):
            raise StudyError(f"{self.store.folder}: {outcome.message}; what was recorded is kept")
        # A signal waits until log and memory agree again.
        with held():
            self.driver.record(outcome)

    def run(
        self,
        progress: Callable[[Progress], None] | None = None,
        executor: Executor | None = None,
        *,
        search: bool = True,
    ) -> Result:
        """Search, then test, and return when both are done.

        `search=False` tests the incumbent so far. A study whose test runs all failed returns what
        it found without a test score; `Result.problem` says so.

        Raises:
            StudyError: no usable result: everything crashed, the disk is full, nothing was scored.
                All is kept.
        """
        if not search:
            self.driver.end_search()
        # Looking at a result is no session.
        if self.over:
            return self.result()
        self.journal.record(SessionBegun(FrozenMap(session(self.spec))))
        pool = executor or make_executor(self.spec, self.load)
        finished = 0
        waiting: deque[Outcome] = deque()
        try:
            segments = self.advance()
            while True:
                self._check_disk(segments)
                pool.submit(
                    [dataclasses.replace(segment, trust=self.trust) for segment in segments]
                )
                if not self.driver.work.in_flight:
                    break
                if not waiting:
                    messages = pool.poll(_POLL_SECONDS)
                    waiting.extend(message for message in messages if isinstance(message, Outcome))
                outcomes = [waiting.popleft() for _ in range(min(_MOST_AT_ONCE, len(waiting)))]
                segments = self._take(outcomes)
                finished += len(outcomes)
                if progress is not None:
                    progress(self.progress(finished))
        finally:
            # Before `clear`: a worker that still trains would write into what is removed.
            pool.close()
            self.driver.work.clear()
        self.driver.collect(self._models(), over=True)
        self.journal.record(StudyFinished())
        return self.result()

    def _take(self, outcomes: Sequence[Outcome]) -> list[Segment]:
        """Record outcomes and decide what follows from them, in one transaction.

        Returns:
            The segments that can start now.
        """
        with self.journal.batch():
            for outcome in outcomes:
                self.record(outcome)
            if outcomes:
                self.driver.collect(self._models())
            return self.advance()

    def _models(self) -> set[SegmentId]:
        """List the segments that hold the models of the incumbent.

        And of what else was trained for its model.
        """
        seeds_of = [(candidate, self.spec.plan.test) for candidate in self.tests.candidates[:1]]
        seeds_of += [
            (candidate, self.driver.tuning_seeds(candidate.proposal))
            for candidate in self.models.candidates
        ]
        work = self.driver.work
        return {
            work.model(candidate.proposal, seed, candidate.end)
            for candidate, seeds in seeds_of
            for seed in seeds
        }

    @property
    def over(self) -> bool:
        """Say whether the stored study has ended, with nothing added since."""
        last = self.tables.last_event()
        return last is not None and last.kind == "finished"

    def result(self) -> Result:
        """Return the result as it stands.

        Raises:
            StudyError: nothing was scored yet.
        """
        if self.driver.ranking.best() is None:
            raise StudyError("no proposal was scored: there is no result")
        return read_result(StudyRecord(self.spec, self.store, self.store.folder))

    def progress(self, finished: int = 0) -> Progress:
        driver = self.driver
        best = driver.ranking.best()
        score = None if best is None else driver.raw(driver.ranking[best].values)[0]
        phase = "test" if driver.finished else "search"
        return Progress(
            phase=phase,
            proposals=len(driver.lineage),
            settled=len(driver.lineage) - driver.unsettled,
            running=len(driver.work.in_flight),
            finished_segments=finished,
            # Racing charges a proposal's further seeds when it is settled, above the budget too.
            budget_used=min(1.0, driver.budget_used),
            best=score,
            best_proposal=best,
            seconds=time.monotonic() - self._begun,
        )

    def hours(self) -> float:
        """Return hours of driver time used, earlier sessions included."""
        return self._hours_before + (time.monotonic() - self._begun) / 3600

    def close(self) -> None:
        self.store.close()

    def _check_disk(self, segments: Sequence[Segment]) -> None:
        """Stop before segments start that would fill the disk.

        They would save more than fits, or print more where logs alone take it all.
        """
        limit = self.spec.limits.disk_gb
        if limit is None:
            return
        most = limit * 2**30
        work = self.driver.work
        grows = any(segment.save for segment in segments) or bool(
            segments and work.bytes_logged > most
        )
        if not grows or work.bytes_saved + work.bytes_logged <= most:
            return
        # Before giving up: `collect` is lazy, so checkpoints that nobody needs may still lie there.
        self.driver.collect(self._models(), at_once=True)
        used = work.bytes_saved + work.bytes_logged
        if used > most:
            raise StudyError(
                f"{self.store.folder}: checkpoints and logs take {used / 2**30:.2f} GiB, over "
                "limits.disk_gb = "
                f"{limit:g}; what was recorded is kept"
            )
