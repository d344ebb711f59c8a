"""The driver: decides what is trained next from recorded outcomes alone.

`advance` does everything that can be done with the outcomes that are known and returns the segments
that became ready; `record` takes an outcome. Neither waits, so a study file, the embedded `Tuner`
and a resumed study all run through the same door. Their decisions are recorded as events, and
`apply` is all that changes the state of the search (`autorl.study.journal`).

Deterministic mode (the default). With `parallelism` p, an ask that finds p proposals open waits
until one outcome was observed: the next by predicted end (`autorl.study.open_proposals`),
whichever ended first. When the optimizer says `Wait`, the next outcome is observed and it is asked
again with the same generator. Neither the number of workers nor a kill changes what is asked. With
`asynchronous: true` outcomes are observed as they come.

An ask that reads no outcome (`BaseOptimizer.blind`) does not wait: outcomes that it would have
waited for stay due, and are observed in the same order before the next ask that may read them. The
table cannot depend on when they arrive, because whatever else is read at an ask is the same with
and without them (`_ask_ahead`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from autorl.core.types import (
    NAMED,
    Done,
    Failed,
    Optimizer,
    Outcome,
    Proposal,
    ProposalId,
    Proposed,
    Scored,
    SearchEnd,
    Segment,
    Status,
    StudyError,
    Wait,
)
from autorl.statistics.evaluation import Racing, Worst
from autorl.store.events import (
    BudgetExtended,
    CandidatesFrozen,
    ConfigEnqueued,
    ModelsNamed,
    ProposalFailed,
    ProposalMade,
    ProposalScored,
    SearchGivenUp,
    SeedsGranted,
    StudyEvent,
    StudyFinished,
)
from autorl.study.budget import Refunds
from autorl.study.journal import Journal
from autorl.study.more_seeds import Races
from autorl.study.open_proposals import AsTheyCome, Item, Order, predicted_cost
from autorl.study.proposing import DefaultRuns, NextProposal, SearchBudget
from autorl.study.retention import Retention
from autorl.study.search import Search
from autorl.study.spec import Spec

_FIRST_FAILURES = 3  # so many before any success mean that the study itself is wrong
# A run that diverged is a configuration.
_HOPELESS = (Status.CRASH, Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.LOST)


class Driver(Search):
    """The search of one study.

    It is what the study's events say, and the decisions that follow from them.

    Args:
        spec: the study file.
        journal: records every event before anything depends on it.
        optimizer: proposes; sees events only.
        elapsed: hours the study has used so far, for `budget.hours`.

    Attributes:
        search_end: why nothing more is proposed; None while the search is open.
        steps_at_outcome: those ever charged when the latest outcome was due. Blind asks that went
            ahead of it are not among them, so it depends on the study file alone.
        budget: what it still allows.
        refunds: charges that are given back when the user's code has changed.
        default_runs: the proposals of the default configuration.
        retention: deletes the checkpoints that nobody can need.
        last_failure: message of the latest proposal that failed.
    """

    def __init__(
        self, spec: Spec, journal: Journal, optimizer: Optimizer, elapsed: Callable[[], float]
    ) -> None:
        super().__init__(spec, journal)
        self.search_end: SearchEnd | None = None
        self.steps_at_outcome = 0
        self.budget = SearchBudget(self, elapsed)
        self.refunds = Refunds(spec, self.charges)
        self.last_failure = ""
        self._journal = journal
        self._optimizer = optimizer
        self._next = NextProposal(self, self.budget, optimizer)
        self.default_runs = DefaultRuns(self)
        self._worst = Worst()
        self.retention = Retention(self, optimizer, self.default_runs)
        self._order = AsTheyCome() if spec.asynchronous else Order(spec.parallelism)
        self._races = Races(self, self._order)
        self._charged_before: list[int] = []  # each ask
        # Items whose next segments may be ready, and those that may be complete (asynchronous
        # mode).
        self._to_request = self.queue.follow()
        self._to_observe = self.queue.follow()
        self._to_count = self.queue.follow()
        self._lacking: set[int] = set()  # numbers of items, by the latest count
        self._waiting = False
        self._failures = 0
        journal.subscribe(self.apply)
        journal.subscribe(self.refunds.apply)
        journal.subscribe(self.usage.apply)

    def apply(self, event: StudyEvent) -> None:
        """Take note of an event that is in the log.

        Segments are the affair of `work`, which follows the journal itself. Segments without an
        outcome are handed out, or handed out again, by `advance`.
        """
        match event:
            case ProposalMade():
                self._apply_proposed(event)
            case ProposalScored(scored=result) | ProposalFailed(failed=result):
                self._apply_settled(result, event.seeds, baseline=event.beyond is not None)
            case SeedsGranted():
                self._apply_granted(event)
            case ConfigEnqueued(config=config):
                self._next.enqueue(config)
            case SearchGivenUp():
                self._failures = 0
            case CandidatesFrozen(search_end=why) | ModelsNamed(search_end=why):
                self.ended = True
                self.search_end = why
            case StudyFinished(search_end=why):
                self.search_end = why
            case BudgetExtended(runs=runs, refunded=refunded):
                self.ended = False
                self.search_end = None
                self.budget.extra_runs += runs
                self.budget.begun -= sum(self.lineage[n].resume_from is None for n in refunded)
                self.charges.refund(refunded, self.policy.first)

    def end_search(self, why: SearchEnd | None = None) -> SearchEnd:
        """Propose nothing more in this session, and say why.

        Segments in flight are still observed. The first reason stays; by default somebody has asked
        for the test, unless the budget is used up.
        """
        self.ended = True
        if self.search_end is None:
            used_up = self.budget.used >= 1
            self.search_end = why or (self.budget.search_end if used_up else SearchEnd.TEST)
        return self.search_end

    def advance(self) -> list[Segment]:
        """Decide all that can be decided.

        Returns:
            The segments that can start now and were not handed out in this session.
        """
        while self._turn():
            pass
        for _, item in self._to_request.take():
            if item is None:
                continue
            for seed in item.seeds:
                self.work.request(item.proposal, seed, None, "tuning")
        return self.work.drain()

    def request_anew(self) -> None:
        """Have `advance` hand out every segment that can start.

        A new session has handed out none.
        """
        self._to_request.add_all()

    def settle(self) -> None:
        """Observe what is complete, and ask for nothing more.

        Outcomes are observed in the order of the study.
        """
        while (item := self._next_complete()) is not None:
            self._settle(item)

    def record(self, outcome: Outcome) -> None:
        """Record how a segment ended.

        A lost one is handed out again, `failures.retries` times.
        """
        segment = self.work.in_flight.get(outcome.segment)
        self.work.record(outcome)
        if segment is None:
            return  # of nothing that runs: ignored, and noted
        proposal = segment.id.proposal
        self.queue.touch([proposal])
        # Others of the same parent wait while its damaged checkpoint is read.
        if self.work.damaged:
            self.queue.touch(self.lineage[proposal].sources)

    def chosen_step(self, proposal: ProposalId) -> int | None:
        """Return the step that the tuning seeds of a proposal choose.

        The result is None where the study does not reduce curves by `best`.
        """
        curves = [self.work.curve(proposal, seed) for seed in self.tuning_seeds(proposal)]
        return self.judge.best_step(curves)

    def end_at(self, proposal: ProposalId, step: int | None) -> int | None:
        """Return where a run ends whose model is of `step`.

        None: where the proposal does, as other scores may need.
        """
        if step is None or not self.spec.ends_at_chosen_step:
            return None
        return step if 0 < step < self.lineage[proposal].until else None

    def best_score(self, until: int) -> float:
        """Return the best tuning score of all proposals that end at `until`.

        Provisional ones count too. In the metric's own direction.

        Raises:
            ValueError: none was scored.
        """
        scored = (
            number for number in self.ranking.ordered() if self.lineage[number].until == until
        )
        return self.judge.raw(max(self.ranking[number].values for number in scored))[0]

    # -- baselines --------------------------------------------------------------------------------

    def idle_with(self, more: float) -> str:
        """Say why `more` runs of budget would train nothing.

        Empty where something would be, and while outcomes are missing: what is proposed next
        depends on them.
        """
        if self.queue:
            return ""
        before = self.budget.extra_runs
        self.budget.extra_runs += more
        try:
            return self._next.idle()
        finally:
            self.budget.extra_runs = before

    def add_baselines(self) -> bool:
        """Have default and named baselines trained as far as the incumbent.

        They get the seeds of the incumbent. For when the search is over. False when that is done or
        there is nothing to do: what the search has trained itself is not trained again.
        """
        best = self.ranking.best()
        if best is None:
            return False
        numbers = []
        if self.spec.adds_baseline:
            number = next(iter(self.default_runs.longest()), None)
            if number is None or self.lineage[number].until < self.lineage[best].until:
                # One that failed on the way ends there, and costs nothing.
                number = self._propose(self.default_runs.baseline(number, best))
            numbers.append(number)
        numbers += [
            self._propose(proposal) if number is None else number
            for number, proposal in self.named_baselines(best)
        ]
        of_best = self._seeds_of[best]
        lacking = [it for it in numbers if not {*of_best} <= {*self._seeds_of.get(it, ())}]
        for number in lacking:
            seeds = list(dict.fromkeys([*self._seeds_of.get(number, ()), *of_best]))
            self.queue.append(Item(number, seeds, upgrade=True, baseline=True))
            self._order.begin_last(number)
        return bool(lacking)

    def named_baselines(self, best: ProposalId) -> list[tuple[ProposalId | None, Proposal]]:
        """Make the proposals of the named baselines, trained as far.

        Each has its number where it was made before.
        """
        if not self.spec.baselines:
            return []
        until = self.lineage[best].until
        made = {
            proposal: number
            for number, proposal in self.lineage.proposals.items()
            if proposal.baseline
        }
        named = [
            Proposal(
                self.spec.search_space.config(values), until, origin=NAMED + name, baseline=True
            )
            for name, values in self.spec.baselines.items()
        ]
        return [(made.get(proposal), proposal) for proposal in named]

    # -- one decision ------------------------------------------------------------------------------

    def _turn(self) -> bool:
        """Make one decision.

        False when an outcome is needed first, or all is decided.
        """
        if self._failures >= _FIRST_FAILURES:
            # Recorded: a study that is taken up again, perhaps mended, has three more tries.
            raise self._journal.give_up(
                f"the first {_FIRST_FAILURES} proposals failed, the last with: {self.last_failure}"
            )
        item = self._next_item()
        if item is not None:
            if not self._complete(item):
                return self._ask_ahead()
            self._settle(item)
            return True
        if self.ended or self._waiting:
            return False
        self._ask()
        return True

    def _next_item(self) -> Item | None:
        """Return the item to be observed before anything else happens.

        None: it is time to ask.
        """
        if not self.queue:
            return None
        if self.spec.asynchronous:
            # Otherwise an optimizer that never waits would be asked for all of its budget at once.
            crowded = len(self.queue) >= self.spec.parallelism or self.ended or self._waiting
            return self._next_complete() or (next(iter(self.queue)) if crowded else None)
        number = self._order.next(demanded=self.ended or self._waiting)
        return None if number is None else self.queue.first_of(number)

    def _next_complete(self) -> Item | None:
        """Return the complete item that may be observed.

        The next in order, or any in asynchronous mode.
        """
        if not self.spec.asynchronous:
            number = self._order.next(demanded=True)
            item = None if number is None else self.queue.first_of(number)
            return item if item is not None and self._complete(item) else None
        return self._to_observe.first(self._complete)

    def _ask(self) -> None:
        if self.budget.explored:
            self._end_exploration(self.budget.search_end)
            return
        answer = self._next.answer()
        why = SearchEnd.OPTIMIZER
        if isinstance(answer, Proposal) and not self._next.is_affordable(answer):
            # After the next outcome it may ask for less: a continuation, say.
            answer = Wait() if self.queue else Done()
            why = SearchEnd.BUDGET
        if isinstance(answer, Wait):
            if not self.queue:
                # No outcome will come that could end the wait.
                raise StudyError("the optimizer waits although nothing is running")
            self._waiting = True
        elif isinstance(answer, Done):
            self._end_exploration(why)
        else:
            self._propose(answer)

    def _end_exploration(self, why: SearchEnd) -> None:
        """End the search, or have the best proposals get more seeds.

        The latter when every outcome is in, as long as the budget pays.
        """
        if self.budget.confirmation is not None and self.queue:
            self._waiting = True
            return
        granted = self.budget.next_level()
        if granted is None:
            self.end_search(why)
        else:
            self._journal.record(granted)

    def _apply_granted(self, event: SeedsGranted) -> None:
        confirmation = self.budget.confirmation
        assert confirmation is not None, "seeds were granted in a study that grants none"
        confirmation.apply(event)
        for proposal in event.proposals:
            seeds = list(dict.fromkeys([*self._seeds_of[proposal], *event.seeds]))
            if len(seeds) > len(self._seeds_of[proposal]):
                self._races.add_seeds(Item(proposal, seeds, upgrade=True))

    def _ask_ahead(self) -> bool:
        """Ask before outcomes that are due have come.

        It does so where none of them can change the answer. True when something was proposed. An
        ask reads the following, and this is why the due outcomes are not part of it:

        - the optimizer: it declares the ask blind. A continuation is not, nor is `Wait` or `Done`.
        - the charged steps, and what is affordable: with fixed seeds, and as long as an adaptive
          study explores, all is charged when it is proposed. Racing charges later, and races
          against the incumbent of the ask: never blind.
        - a budget that a clock or outcomes use up, and what ends a search early: never blind.
        - the first failures: they end the search before anything succeeded, so then an ask goes
          ahead only where too few outcomes are due to end it.
        - `ended`: set by answers alone, which are those above.
        """
        fixed = not (self.spec.asynchronous or isinstance(self.policy, Racing))
        if self.ended or self._waiting or not fixed or self.spec.budget.reads_outcomes:
            return False
        if not self._next.blind(self._next.number):
            return False
        self._order.make_room()
        if not self.ranking and self._failures + self._order.due >= _FIRST_FAILURES:
            return False
        if self._count_incomplete() >= self.spec.parallelism or self.budget.explored:
            return False
        answer = self._next.answer()
        if not isinstance(answer, Proposal) or not self._next.is_affordable(answer):
            return False
        assert answer.parent is None, "a blind proposal continues a run"
        self._propose(answer)
        return True

    def _count_incomplete(self) -> int:
        """Count the items that lack outcomes."""
        for number, item in self._to_count.take():
            if item is None or self._complete(item):
                self._lacking.discard(number)
            else:
                self._lacking.add(number)
        return len(self._lacking)

    def _propose(self, proposal: Proposal) -> ProposalId:
        proposed = Proposed(len(self.lineage), proposal)
        config_hash = self.spec.search_space.config_hash(proposal.config)
        anew = self._next.starts_anew(proposal)
        parent = None if anew else proposal.resume_from
        start = 0 if parent is None else self.lineage[parent].until
        cost = predicted_cost(self.spec, proposal.config, start, proposal.until)
        self._journal.record(ProposalMade(proposed, config_hash, anew=anew, cost=cost))
        return proposed.id

    def _apply_proposed(self, made: ProposalMade) -> None:
        event = made.proposed
        if made.anew:
            self.charges.anew.add(event.id)
        self.lineage.observe(event)
        self.ranking.observe(event)
        self.default_runs.observe(event)
        self.costs[event.id] = made.cost
        if event.proposal.baseline:
            return  # `add_baselines` says with which seeds it is trained
        self._optimizer.observe(event)
        self._order.begin(event.id, self.costs[event.id])
        self._charged_before.append(self.charges.ever)
        self._next.observe(event)
        self.budget.begun += event.proposal.resume_from is None
        first = list(self.policy.first)
        self.queue.append(Item(event.id, first, self._races.reference()))
        self.charges.add([event.id], first)

    def _settle(self, item: Item) -> None:
        """Turn the seeds of an item into one event.

        They are all in.
        """
        values = [self.work.value(item.proposal, seed) for seed in item.seeds]
        event = self.judge.score(
            item.proposal, self.lineage[item.proposal].until, values, self._worst
        )
        beyond = None
        if item.baseline:
            beyond = self.charges.beyond(item.proposal, item.seeds)
        seeds = tuple(item.seeds)
        score = self.judge.raw(event.values)
        if isinstance(event, Scored):
            event = self._with_watched(event, item)
            self._journal.record(ProposalScored(event, seeds, score, beyond))
        else:
            self._journal.record(ProposalFailed(event, seeds, score, beyond))

    def _with_watched(self, event: Scored, item: Item) -> Scored:
        """Add the metrics that the optimizer asked for to a score."""
        metrics = getattr(self._optimizer, "watches", ())
        if not metrics or not event.resumable:
            return event
        curves = [self.work.curve(item.proposal, seed) for seed in item.seeds]
        try:
            return dataclasses.replace(event, watched=self.judge.watched(curves, metrics))
        except KeyError as error:
            raise StudyError(
                f"the optimizer reads metric {error}, which proposal {item.proposal} did not report"
            ) from None

    def _apply_settled(
        self, event: Scored | Failed, seeds: Sequence[int], *, baseline: bool
    ) -> None:
        if baseline:
            self._apply_baseline(event, seeds)
            return
        self.queue.remove(event.proposal)
        asked = self._order.observed(event.proposal)
        self._waiting = False
        self._seeds_of[event.proposal] = tuple(seeds)
        self.charges.add(self.lineage.chain(event.proposal), seeds)
        ahead = asked < len(self._charged_before)
        self.steps_at_outcome = self._charged_before[asked] if ahead else self.charges.ever
        if isinstance(event, Scored):
            self._worst.observe(event)
        else:
            self.last_failure = event.message or str(event.kind)
            self._failures += event.kind in _HOPELESS and not self.ranking
        self.ranking.observe(event)
        self._optimizer.observe(event)
        self._races.go_on(event.proposal)

    def _apply_baseline(self, event: Scored | Failed, seeds: Sequence[int]) -> None:
        """Rank the baseline with the others.

        Nothing is charged, and the optimizer is not told.
        """
        # A resumed study has it in the log, not in the queue: `add_baselines` decides anew.
        self.queue.remove(event.proposal)
        self._order.end_baseline(event.proposal)
        self.steps_at_outcome = self.charges.ever
        self._seeds_of[event.proposal] = tuple(seeds)
        self.charges.add_beyond(event.proposal, seeds)
        if not self.lineage[event.proposal].named:
            self.ranking.observe(event)

    def _complete(self, item: Item) -> bool:
        """Say whether an item is complete.

        Every seed of it is in and the race asks for no more.
        """
        while all(self.work.known(item.proposal, seed) for seed in item.seeds):
            if item.upgrade or not self._races.extend(item):
                return True
        return False
