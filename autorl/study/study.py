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
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autorl.core.garbage import collection_paused
from autorl.core.plain_text import counted
from autorl.core.seeds import FIRST_TEST_SEED, MOST_SEEDS
from autorl.core.shown import Shown
from autorl.core.signals import held
from autorl.core.types import (
    Executor,
    FrozenMap,
    InputError,
    Optimizer,
    Outcome,
    Report,
    Segment,
    SegmentId,
    Status,
    StorageError,
    StudyError,
)
from autorl.executors.worker import NO_STORAGE, Load
from autorl.store import Store
from autorl.store.checkpoints import driving, reading
from autorl.store.events import (
    BudgetExtended,
    SessionBegun,
    StudyEvent,
    StudyFinished,
    TestSeedsAdded,
)
from autorl.store.log import EPOCH
from autorl.store.offsite import Offsite, check_free
from autorl.store.tables import StudyTables
from autorl.study.budget import refunded_text
from autorl.study.callbacks import CallbackEntry, Listeners, check_callbacks, make_callbacks
from autorl.study.driver import Driver
from autorl.study.folder.checks import check_covers_folder, check_space
from autorl.study.journal import Journal, say
from autorl.study.results.models import with_start
from autorl.study.results.record import StudyRecord, with_added_test_seeds
from autorl.study.results.result import Result, read_result
from autorl.study.session import session, user_files
from autorl.study.setup import check, check_answers, make_executor, make_optimizer, trainer_loader
from autorl.study.spec import MOST_RUNS, Spec, thaw
from autorl.study.stragglers import BackupCopies
from autorl.study.test_phase import KeptModels, TestPhase, runs_of
from autorl.trainers.agents import check_unchanged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

POLL_SECONDS = 0.5
PAUSES = (0.5, 2.0, 8.0)  # seconds before a segment is tried again that the disk has failed
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


@contextmanager
def _let_go_on_error(store: Store) -> Iterator[None]:
    """Let lock and lease go of a study that cannot be opened."""
    try:
        yield
    except BaseException:
        if store.offsite is not None:
            store.offsite.let_go()
        store.close()
        raise


class Study(Shown):
    """One study and its folder.

    Use `create`, `open` or `in_memory`, then `run` it, and `close` it.

    Args:
        load: builds trainers; must be picklable by reference unless everything runs in this
            process.

    Attributes:
        trust: whether pickles in checkpoints are opened that this installation did not write: they
            can run anything.
        stored: the study file as it was stored, without test seeds that were added since.
        function: of the caller that trains; None where trainers are loaded by name.
    """

    trust = False
    function: Callable[..., object] | None = None

    def __init__(self, spec: Spec, store: Store, load: Load | None = None) -> None:
        self.store = store
        self.load: Load = load or trainer_loader(spec)
        self._begun = time.monotonic()
        self.tables = StudyTables(store.query)
        self.stored = spec
        self._copies: BackupCopies | None = None  # of the session
        self._pause = 0.0  # before more segments begin
        self.listeners = Listeners((), spec, None, lambda: self.driver.lineage)
        self._is_listened = False
        with driving(store.folder):
            self._hours_before = self.tables.hours()
            self._fold()

    def _fold(self) -> None:
        """Bring everything to where the stored events leave it."""
        self.spec = with_added_test_seeds(self.stored, self.tables)
        self.optimizer: Optimizer = make_optimizer(self.spec, self.load)
        self.journal = Journal(self.store)
        self.driver = Driver(self.spec, self.journal, self.optimizer, self.hours)
        self.tests = TestPhase(self.spec, self.journal, self.driver)
        self.models = KeptModels(self.spec, self.journal, self.driver)
        for recorded in self.store.events():
            self.journal.apply(recorded.event)
        # Behind the stored events: what was recorded earlier is told nobody.
        self.journal.subscribe(self._tell)
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
        spec = with_start(spec)
        check(spec, load or trainer_loader(spec))
        check_callbacks(spec)
        check_answers(spec)
        if spec.storage is not None:
            check_free(spec.storage)
        store = Store.create(folder, spec.freeze(), spec.search_space.hash)
        with _let_go_on_error(store):
            if spec.storage is not None:
                store.offsite = Offsite.take(spec.storage, store)
            return cls(spec, store, load)

    @classmethod
    def open(cls, folder: str | Path, load: Load | None = None, *, trust: bool = False) -> Study:
        """Open the study in `folder`, as its stored events left it.

        `trust` opens pickles of others in its checkpoints.

        Raises:
            InputError: there is no study, another driver works on it, a file is torn or lost, the
                study file was changed, or the storage cannot be used or has gone on elsewhere.
        """
        folder = Path(folder)
        with collection_paused():
            store = Store.open(folder)
            with _let_go_on_error(store):
                with driving(folder), reading(folder):
                    text = (folder / "study.yaml").read_text(encoding="utf-8")
                    spec = thaw(text, str(folder / "study.yaml"))
                    tables = StudyTables(store.query)
                    check_space(spec, tables, folder)
                    check_covers_folder(tables, folder)
                    if spec.start is not None:
                        check_unchanged(spec.start.resolve())
                if spec.storage is not None:
                    store.offsite = Offsite.take(spec.storage, store)
                study = cls(spec, store, load)
                study.trust = trust
                return study

    @classmethod
    def in_memory(cls, spec: Spec, load: Load | None = None) -> Study:
        """Begin a study without a folder.

        Nothing survives the process, and no storage is used.
        """
        spec = with_start(spec)
        check(spec, load or trainer_loader(spec))
        check_callbacks(spec)
        return cls(spec, Store.in_memory(), load)

    def listen(self, callbacks: Sequence[CallbackEntry]) -> None:
        """Tell callbacks from now on what happens.

        Callbacks of the study file are told as well.

        Raises:
            InputError: one of them is no `Callback`, or cannot be told of this study.
        """
        folder = self.store.folder
        identity = None if folder is None else self.store.log.identity()
        everyone = make_callbacks(self.spec, callbacks)
        self.listeners = Listeners(
            everyone, self.spec, folder, lambda: self.driver.lineage, identity
        )
        self._is_listened = True
        self.listeners.repeat(recorded.event for recorded in self.store.events())

    def _tell(self, event: StudyEvent) -> None:
        self.store.when_durable(lambda: self.listeners.recorded(event))

    def extend(self, runs: float) -> None:
        """Add to the budget, and open the search again.

        `runs` are added, or configurations where the budget counts those.

        Raises:
            InputError: the budget is counted in something else, `runs` is no number above 0 or too
                large, or nothing would be trained with so many. Nothing is recorded then.
        """
        if isinstance(runs, bool) or not 0 < runs <= MOST_RUNS:  # so is NaN
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
        have = self.spec.plan.seeds("test")
        if count <= len(have):
            raise InputError(
                f"the study has {counted(len(have), 'test seed')} already: ask for more",
                key="--seeds",
            )
        if count > MOST_SEEDS:
            raise InputError(
                f"expected at most {MOST_SEEDS} test seeds, got {count}", key="--seeds"
            )
        taken = {*have, *self.spec.plan.seeds("tuning")}
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
        if not self.tests.candidates and self.driver.add_baselines():
            segments += self.driver.advance()
        if self.driver.finished:
            segments += self.tests.advance()
        return segments

    def record(self, outcome: Outcome) -> None:
        """Take note of how a segment ended.

        Raises:
            StorageError: the disk or the storage has failed one segment over `failures.retries`
                times.
        """
        cannot_save = outcome.status is Status.LOST and outcome.message.startswith(NO_STORAGE)
        if cannot_save and self.driver.work.attempts.find(outcome.key) is not None:
            tries = outcome.fence.attempt
            if tries >= self.spec.failures.retries:
                raise StorageError(outcome.message)
            self._pause = max(self._pause, PAUSES[min(tries, len(PAUSES) - 1)])
        # A signal waits until log and memory agree again.
        with held():
            self.driver.record(outcome)

    def run(
        self,
        progress: Callable[[Progress], None] | None = None,
        executor: Executor | None = None,
        *,
        workers: int | None = None,
        search: bool = True,
    ) -> Result:
        """Search, then test, and return when both are done.

        `search=False` tests the incumbent so far. A study whose test runs all failed returns what
        it found without a test score; `Result.problem` says so.

        Args:
            progress: called whenever segments have ended.
            executor: of the caller; closed at the end, unless the study is over already.
            workers: segments trained at once; None: as the study file says.
            search: whether the search goes on.

        Raises:
            StudyError: no usable result: everything crashed, nothing was scored. All is kept.
            StorageError: the disk or the storage fails: what was recorded is kept, and the study
                can be resumed when it answers.
        """
        with driving(self.store.folder):
            if not self.begin_session():
                return self.result()
            if not search:
                self.driver.end_search()
            pool = executor or make_executor(self.spec, self.load, workers, self.store.folder)
            finished = 0
            try:
                while self.hand_out(pool):
                    finished += self.take(pool, pool.poll(POLL_SECONDS))
                    if progress is not None:
                        progress(self.progress(finished))
            finally:
                # Before `clear`: a worker that still trains would write into what is removed.
                pool.close()
                self.driver.work.clear()
            return self.end_session()

    # -- the steps of `run`, for who drives several studies ------------------------------------

    def begin_session(self) -> bool:
        """Record that work on the study begins, in its storage too.

        False where the study is over: looking at a result is no session.
        """
        files = user_files(self.spec, self.function)
        self._refund_crashes(files)
        if self.over:
            return False
        offsite = self.store.offsite
        facts = session(self.spec, files)
        if offsite is not None:
            facts[EPOCH] = offsite.begin_session(self.store)
        if not self._is_listened:
            self.listen(())
        self.journal.record(SessionBegun(FrozenMap(facts)))
        self._copies = None
        self.driver.request_anew()
        if offsite is not None:
            # At once: whoever goes on elsewhere then has this session in its log.
            offsite.back_up(self.store, at_once=True)
            self.driver.work.sweep_storage()
        return True

    def _refund_crashes(self, files: Mapping[str, str]) -> None:
        """Give back the charge of proposals that failed with other code.

        A search that is over with a result stays over.
        """
        is_open = self.driver.search_end is None or not self.driver.ranking
        refunded = self.driver.refunds.due(files)
        if refunded and is_open and self.spec.budget.measured is None:
            self.journal.record(BudgetExtended(0.0, refunded))
            say(refunded_text(len(refunded)))

    def hand_out(self, pool: Executor) -> bool:
        """Submit every segment that can start now.

        Returns:
            Whether any segment is in flight; if not, the session is over.

        Raises:
            StudyError: what would start does not fit on the disk.
        """
        with self.store.batch():
            segments = self.advance()
        self._submit(pool, segments)
        return bool(self.driver.work.in_flight)

    def take(self, pool: Executor, messages: Iterable[Report | Outcome]) -> int:
        """Record what an executor has sent, and hand out what follows.

        Outcomes are recorded in one transaction with the decisions that follow from them, so that
        many cost the disk no more than one.

        Returns:
            How many segments have ended.
        """
        outcomes: list[Outcome] = []
        for message in messages:
            if isinstance(message, Outcome):
                outcomes.append(message)
            else:
                self.take_report(message)
        for begin in range(0, len(outcomes), _MOST_AT_ONCE):
            with self.store.batch():
                for outcome in outcomes[begin : begin + _MOST_AT_ONCE]:
                    if self._copies is not None:
                        self._copies.ended(outcome)
                    self.record(outcome)
                self.driver.retention.collect(self._models())
                segments = self.advance()
            for attempt in self.driver.work.drain_superseded():
                pool.cancel(attempt)
                self.driver.work.files.discard(attempt, late=True)
            self._submit(pool, segments)
        self._back_up()
        return len(outcomes)

    def take_report(self, report: Report) -> None:
        """Take note of an evaluation, and tell the callbacks."""
        if self.driver.work.take_report(report):
            self.listeners.reported(report)

    def _submit(self, pool: Executor, segments: list[Segment]) -> None:
        """Hand segments to an executor.

        If workers are idle, backup copies of others go with them.
        """
        time.sleep(self._pause)
        self._pause = 0.0
        self._check_disk(segments)
        if self._copies is None:
            self._copies = BackupCopies(self.spec, self.driver.work, pool)
        for segment in segments:
            self.listeners.begun(segment)
        segments = [*segments, *self._copies.after(segments)]
        if self.trust:
            segments = [dataclasses.replace(segment, trust=True) for segment in segments]
        pool.submit(segments)

    def end_session(self) -> Result:
        """Record that the study is over, and return its result."""
        self.driver.retention.collect(self._models(), over=True)
        # A worker on another machine may have saved a checkpoint after another had taken its place.
        self.driver.work.sweep()
        self.journal.record(StudyFinished(self.driver.end_search()))
        offsite = self.store.offsite
        if offsite is not None:
            offsite.back_up(self.store, at_once=True)
            self.driver.work.sweep_storage()
        result = self.result()
        self.listeners.finished(result)
        return result

    def _back_up(self) -> None:
        """Copy the log to the storage, where it is time for it.

        Raises:
            StudyError: another driver has taken over.
        """
        if self.store.offsite is None:
            return
        try:
            self.store.offsite.back_up(self.store)
        except StorageError as error:
            # Everything is on this disk: the next copy has it too.
            say(f"{error}: the log is copied there later")

    def _models(self) -> set[SegmentId]:
        """List the segments that hold the models of the incumbent.

        And of what else was trained for its model.
        """
        runs = runs_of(self.tests.candidates[:1], lambda _: self.spec.plan.test)
        return {self.driver.work.model(*run) for run in (*runs, *self.models.runs)}

    @property
    def over(self) -> bool:
        """Say whether the stored study has ended, with nothing added since."""
        last = self.tables.last_event()
        return last is not None and last.kind == StudyFinished.kind

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
        score = None if best is None else driver.judge.raw(driver.ranking[best].values)[0]
        phase = "test" if driver.finished else "search"
        return Progress(
            phase=phase,
            proposals=len(driver.lineage),
            settled=len(driver.lineage) - len(driver.queue),
            running=len(driver.work.in_flight),
            finished_segments=finished,
            # Racing charges a proposal's further seeds when it is settled, above the budget too.
            budget_used=min(1.0, driver.budget.used),
            best=score,
            best_proposal=best,
            seconds=time.monotonic() - self._begun,
        )

    def hours(self) -> float:
        """Return hours of driver time used, earlier sessions included."""
        return self._hours_before + (time.monotonic() - self._begun) / 3600

    def close(self) -> None:
        """Let the folder and the storage go.

        The last records are copied to the storage.
        """
        try:
            if self.store.offsite is not None:
                self.store.offsite.close(self.store)
        # The session has ended, and its last word may be another error.
        except StudyError as error:
            say(f"{error}; what was recorded is kept in {self.store.folder}")
        finally:
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
            segments and work.files.bytes_logged > most
        )
        if not grows or work.bytes_saved(lately=True) + work.files.bytes_logged <= most:
            return
        # Before giving up: `collect` is lazy, so checkpoints that nobody needs may still lie there.
        self.driver.retention.collect(self._models(), at_once=True)
        used = work.bytes_saved() + work.files.bytes_logged
        if used > most:
            raise StudyError(
                f"{self.store.folder}: checkpoints and logs take {used / 2**30:.2f} GiB, over "
                "limits.disk_gb = "
                f"{limit:g}; what was recorded is kept"
            )
