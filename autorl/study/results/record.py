"""The record of a study: its frozen study file and its tables.

`result`, `status`, `best`, the report and the landscape of a study are made of this. A search may
have made many thousand proposals: what is asked here is in the tables, so that its cost does not
grow with the events. Answers that need learning curves read only the events they need.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from autorl.core.plain_text import counted, number
from autorl.core.types import Incumbent, InputError, ProposalId, SearchEnd, SegmentId, StudyError
from autorl.optimizers import find
from autorl.optimizers.base import BaseOptimizer
from autorl.optimizers.model_share import OPTIMIZER, PORTFOLIO, ModelShare, PriorUse, prior_use
from autorl.statistics.fronts import undominated
from autorl.store import Store, schema
from autorl.store.codec import KINDS, UnknownEventError
from autorl.store.events import (
    BudgetExtended,
    Candidate,
    CandidatesFrozen,
    ModelsNamed,
    ProposalFailed,
    ProposalMade,
    ProposalScored,
    SegmentEnded,
    StudyEvent,
    StudyFinished,
    without_checkpoint,
)
from autorl.store.folder import check_database_file, check_recorded, no_study
from autorl.store.log import E
from autorl.store.snapshot import snapshot
from autorl.store.store import DATABASE, STUDY_FILE
from autorl.store.study_file import check_unchanged
from autorl.store.tables import StudyTables
from autorl.study.budget import MEASURED_BY_SEGMENT, MEASURED_NOUNS, Spent, Usage
from autorl.study.journal import Journal
from autorl.study.lineage import Lineage
from autorl.study.spec import SeedsSection, Spec, thaw
from autorl.study.test_phase import runs_of, trained
from autorl.study.work import Work


class StudyRecord:
    """The study file and the tables of one study, read together.

    Args:
        spec: the frozen study file, with test seeds that were added later.
        store: read, never written.
        folder: of the study; None in memory.
    """

    def __init__(self, spec: Spec, store: Store, folder: Path | None) -> None:
        self.spec = spec
        self._store = store
        self.tables = StudyTables(store.query)
        self.folder = folder
        self._judge = spec.judge()
        self._lineage = Lineage(spec.plan)
        self._work = Work(spec, Journal(store), self._lineage, self._judge)

    # -- the ranking -------------------------------------------------------------------------------

    @cached_property
    def best(self) -> ProposalId | None:
        """The incumbent's proposal.

        None before anything was scored.
        """
        return next(iter(self.tables.ranked(1)), None)

    @cached_property
    def front(self) -> list[ProposalId]:
        """The feasible proposals of the highest fidelity that no other dominates.

        They are in the order they were proposed.
        """
        return undominated(self.tables.feasible())

    def tuning_score(self, proposal: ProposalId) -> float:
        """Return the score on tuning seeds of the first objective.

        It is in the metric's own direction.
        """
        return self._judge.objectives[0].sign * self.tables.ranked_value(proposal)

    def incumbent(self) -> Incumbent:
        """Return the frozen incumbent, or the best so far.

        Raises:
            StudyError: nothing was scored yet.
        """
        best = self.candidates[0].proposal if self.candidates else self.best
        if best is None:
            raise StudyError(f"{self.folder}: no proposal was scored yet: there is no incumbent")
        lineage = self.lineage(best)
        return Incumbent(lineage.schedule(best), lineage[best].until, best)

    def best_of_runs(self, count: int) -> list[ProposalId]:
        """List the `count` best proposals by tuning score, one for each run.

        The incumbent comes first.

        Raises:
            StudyError: nothing was scored yet.
        """
        roots: dict[ProposalId, ProposalId] = {}
        for proposal in (self.incumbent().proposal, *self.tables.ranked()):
            roots.setdefault(self.lineage(proposal).root(proposal), proposal)
            if len(roots) == count:
                break
        return list(roots.values())

    # -- the budget --------------------------------------------------------------------------------

    @cached_property
    def spent(self) -> Spent:
        """The amounts the search has used of its budget."""
        runs = sum((event.runs for event in self.events(BudgetExtended)), start=0.0)
        begun = self.tables.count_begun()
        begun -= sum(self.tables.link(number).resume_from is None for number in self.refunded)
        amounts = (self._charged_steps(), begun, runs, self.hours)
        usage = Usage(self.spec, self._lineage)
        if self.spec.budget.measured in MEASURED_BY_SEGMENT:
            for event in self.events(SegmentEnded, ProposalScored, ProposalFailed):
                if isinstance(event, SegmentEnded):
                    self.lineage(event.segment.proposal)
                usage.apply(event)
        return Spent(*amounts, used=usage.used, rate=usage.rate)

    @cached_property
    def refunded(self) -> frozenset[ProposalId]:
        """The failed proposals of other code, which are not charged any more."""
        more = self.events(BudgetExtended)
        return frozenset(number for event in more for number in event.refunded)

    @cached_property
    def hours(self) -> float:
        """Hours of driver time."""
        return self.tables.hours()

    def _charged_steps(self) -> int:
        """Add up the nominal steps charged.

        A proposal is charged once for each seed its chain was given. It is charged for the first
        seeds when it is made, the driver's own baseline only where it is settled within the budget.
        """
        first = frozenset(self.spec.policy().first)
        parsed: dict[str | None, frozenset[int]] = {None: frozenset()}
        below: dict[ProposalId, frozenset[int]] = {}  # seeds its continuations were charged for
        total = 0
        for row in self.tables.charged():
            if row.charged not in parsed:
                parsed[row.charged] = frozenset(json.loads(row.charged or "[]"))
            settled = parsed[row.charged] | below.pop(row.proposal, frozenset())
            if row.parent is not None and settled:
                below[row.parent] = below.get(row.parent, frozenset()) | settled
            seeds = settled if row.baseline else settled | first
            if row.proposal in self.refunded:
                seeds -= first
            steps = row.until if row.anew else row.until - row.start
            total += steps * len(seeds)
        return total

    # -- the test phase ----------------------------------------------------------------------------

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """The candidates that are tested, the incumbent first.

        There are none while the search is open.
        """
        last = next(reversed(self.events(CandidatesFrozen, BudgetExtended)), None)
        return last.candidates if isinstance(last, CandidatesFrozen) else ()

    @cached_property
    def test_progress(self) -> tuple[int, int]:
        """(Candidate, seed) trained so far, and all of them."""
        runs = runs_of(self.candidates, lambda _: self.spec.plan.test)
        for run in runs:
            self._take_outcomes(*run)
        return trained(self._work, runs)

    # -- chains of proposals -----------------------------------------------------------------------

    def candidate_steps(self, proposal: ProposalId) -> Candidate:
        """Return the steps that were written down of a proposal last.

        There are none of one that was no candidate.
        """
        for event in reversed(self.events(CandidatesFrozen, ModelsNamed)):
            assert isinstance(event, CandidatesFrozen | ModelsNamed)
            for candidate in event.candidates:
                if candidate.proposal == proposal:
                    return candidate
        return Candidate("", proposal)

    def until(self, proposal: ProposalId) -> int:
        """Return the nominal step a proposal ends at."""
        return self.tables.link(proposal).until

    def link_at(self, proposal: ProposalId, step: int | None) -> ProposalId:
        """Return the proposal of the chain that trains through `step`.

        With `step` None, the last one.
        """
        number = proposal
        while step is not None:
            before = self.tables.link(number).resume_from
            if before is None or self.until(before) < step:
                break
            number = before
        return number

    # -- who proposed ------------------------------------------------------------------------------

    @cached_property
    def share(self) -> ModelShare:
        """The share of proposals that are the model's."""
        counts = self.tables.counts_of_search()
        return ModelShare(counts.new, counts.modelled, counts.total - counts.new)

    @property
    def optimizer_learns(self) -> bool:
        """Say whether the study's optimizer has a model.

        False where a user's own cannot be read.
        """
        return _optimizer_of(self.spec).learns

    @cached_property
    def prior_use(self) -> PriorUse | None:
        """The prior the study began with and its part in the proposals.

        None without one.
        """
        content = self.spec.optimizer.options.get("prior_data")
        # An optimizer of others may have an option of this name.
        if self.spec.optimizer.name != OPTIMIZER or not isinstance(content, Mapping):
            return None
        new, proposed = self.tables.count_new_of(PORTFOLIO)
        return prior_use(content, new, proposed)

    @cached_property
    def search_end(self) -> SearchEnd | None:
        """The reason why the search is over, None while it is open."""
        kinds = (CandidatesFrozen, ModelsNamed, StudyFinished, BudgetExtended)
        last = next(reversed(self.events(*kinds)), None)
        if isinstance(last, CandidatesFrozen | ModelsNamed | StudyFinished):
            return last.search_end
        return None

    @property
    def search_end_text(self) -> str:
        """The same in words, empty while the search is open."""
        if self.search_end is None:
            return ""
        text = search_end_text(self.search_end, self.spec, self.spent.budget_used(self.spec))
        if (measured := self.spec.budget.measured) in MEASURED_BY_SEGMENT:
            text += f" ({counted(self.spent.used, MEASURED_NOUNS[measured], form=',.6g')})"
        return text

    # -- metrics -----------------------------------------------------------------------------------

    def mean_of_tests(self, proposal: ProposalId, metric: str) -> float | None:
        """Average a metric over the test runs that succeeded.

        It is read at the step of the score. The result is None where no run has it.
        """
        step = self.candidate_steps(proposal).step
        link = self.link_at(proposal, step)
        succeeded = {run.run_id for run in self.tables.tested_runs(link)}
        latest = {
            measured.run_id: measured.value
            for measured in self.tables.values(metric, (link,))
            if measured.run_id in succeeded and (step is None or measured.step <= step)
        }
        return float(np.mean(list(latest.values()))) if latest else None

    def mean_at_end(self, proposal: ProposalId, metric: str) -> float | None:
        """Average a metric over runs at their last evaluation.

        Test runs are taken if there are any.
        """
        of_tests = self.link_at(proposal, self.candidate_steps(proposal).end)
        last = {
            (measured.role, measured.run_id): measured.value
            for measured in self.tables.values(metric, (proposal, of_tests))
            if measured.step > 0
        }
        tested = [value for (role, _), value in last.items() if role == "test"]
        values = tested or list(last.values())
        return float(np.mean(values)) if values else None

    # -- learning curves ---------------------------------------------------------------------------

    def chosen_step(self, proposal: ProposalId) -> int | None:
        """Return the step a proposal's score is read at.

        That is what was written down of a candidate, else what its tuning seeds choose.
        """
        step = self.candidate_steps(proposal).step
        if step or not self._judge.chooses_step:
            return step
        curves = []
        for seed in self.tables.tuning_seeds(proposal):
            self._take_outcomes(proposal, seed, None)
            curves.append(self._work.curve(proposal, seed))
        return self._judge.best_step(curves)

    def tuning_values(self, proposal: ProposalId, seed: int) -> tuple[float, ...]:
        """Return the values of one tuning seed by each objective.

        They are in each metric's own direction. There are none of a seed that failed.
        """
        self._take_outcomes(proposal, seed, None)
        return self._judge.raw(self._work.value(proposal, seed).values)

    def lineage(self, proposal: ProposalId) -> Lineage:
        """Return the chain of a proposal, and of those asked for before.

        It knows nothing of other proposals.

        Raises:
            StudyError: there is no such proposal.
        """
        missing = []
        number: ProposalId | None = proposal
        while number is not None and number not in self._lineage.proposals:
            made = self._event_of(str(number))
            if not isinstance(made, ProposalMade):
                raise StudyError(f"proposal {number} is not in this study")
            missing.append(made.proposed)
            number = made.proposed.proposal.resume_from
        for event in reversed(missing):
            self._lineage.observe(event)
        return self._lineage

    def _take_outcomes(self, proposal: ProposalId, seed: int, end: int | None) -> None:
        """Let `_work` know the outcomes of one chain that were recorded."""
        for link, cut in self.lineage(proposal).path(proposal, end):
            name = SegmentId(link, seed, cut)
            if self._work.outcome_of(name) is not None:
                continue
            ended = self._event_of(name)
            if isinstance(ended, SegmentEnded):
                self._work.apply(without_checkpoint(ended))

    # -- the events --------------------------------------------------------------------------------

    def events(self, *kinds: type[E]) -> list[E]:
        """Read the events of some kinds, in the order they were recorded."""
        return [self._store.located(event) for event in self.tables.events(*kinds)]

    def _event_of(self, subject: str) -> StudyEvent | None:
        """Read the event that made proposal `12` or ended segment `12.3`.

        The result is None if there is none.
        """
        event = self.tables.event_of(subject)
        return None if event is None else self._store.located(event)


@contextmanager
def open_record(folder: Path) -> Iterator[StudyRecord]:
    """Read the record of the study in a folder.

    Raises:
        InputError: as `open_copy`.
    """
    spec, connection = open_copy(folder)
    with closing(connection):
        yield StudyRecord(spec, Store(connection, folder, None), folder)


def open_copy(folder: Path) -> tuple[Spec, sqlite3.Connection]:
    """Open the frozen study file of a folder and copy its database.

    The copy lies in memory. The folder may be in use, or read-only: the copy is taken in one read
    transaction.

    Raises:
        InputError: there is no study, its files cannot be read, its record is lost, or its study
            file was changed.
    """
    file = folder / STUDY_FILE
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise no_study(folder) from None
    except NotADirectoryError:
        message = (
            "is a file: expected a study's folder, as `autorl tune` makes it "
            "(studies/<name>, or --out)"
        )
        raise InputError(message, file=str(folder)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read ({error})", file=str(file)) from None
    check_database_file(folder)
    try:
        connection = snapshot(folder / DATABASE)
        check_recorded(folder, connection)
        schema.check(connection, folder / DATABASE)
        log = StudyTables.of(connection)
        for kind in set(log.kinds()) - KINDS:
            raise InputError(f"cannot be used ({UnknownEventError(kind)})", file=str(folder))
        check_unchanged(log.study_file(), text, file)
    except sqlite3.Error as error:
        raise InputError(f"cannot be read ({error})", file=str(folder / DATABASE)) from error
    return thaw(text, str(file)), connection


def with_added_test_seeds(spec: Spec, tables: StudyTables) -> Spec:
    """Return the spec with the test seeds that were added later."""
    added = tables.added_test_seeds()
    if not added:
        return spec
    plan = spec.plan
    seeds = SeedsSection(tuning=[*plan.seeds("tuning")], test=[*plan.seeds("test"), *added])
    # A copy keeps the plan that it has cached.
    return spec.model_copy(update={"seeds": seeds, "plan": spec.plan_of(seeds)})


def search_end_text(why: SearchEnd, spec: Spec, used: float) -> str:
    """Say why a search is over.

    Args:
        why: as its events say.
        spec: the study file.
        used: share of the budget.
    """
    match why:
        case SearchEnd.BUDGET if used < 1:
            return "what was left of the budget paid for no further proposal"
        case SearchEnd.BUDGET:
            return "the budget was used up"
        case SearchEnd.HOURS:
            return "the time of the budget was up"
        case SearchEnd.TARGET:
            return f"the incumbent is as good as the target, {number(spec.budget.target or 0)}"
        case SearchEnd.CONVERGED:
            latest = counted(spec.budget.converged or 0, "configuration")
            return f"the latest {latest} improved no more than seed noise does"
        case SearchEnd.OPTIMIZER:
            return f"{spec.optimizer.name} {_optimizer_of(spec).done_text}"
        case SearchEnd.TEST:
            return "the test was asked for before the budget was used up"


def _optimizer_of(spec: Spec) -> type[BaseOptimizer[Any]]:
    try:
        return find(spec.optimizer.name, spec.path)
    except InputError:  # a study is read where it was not made
        return BaseOptimizer
