"""The driver: decides what is trained next from recorded outcomes alone.

`advance` does everything that can be done with the outcomes that are known and returns the segments
that became ready; `record` takes an outcome. Neither waits, so a study file, the embedded `Tuner`
and a resumed study all run through the same door. What they decide is recorded as events, and
`apply` is all that changes the state of the search (`autorl.study.journal`).

Deterministic mode (the default). With `parallelism` p, the outcome of proposal i-p is observed
immediately before proposal i is asked for, never earlier; when the optimizer says `Wait`, the next
outcome in proposal order is observed and it is asked again with the same generator. Neither the
number of workers nor a kill changes what is asked. With `asynchronous: true` outcomes are observed
as they come.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from autorl import seeds as streams
from autorl.evaluation import Racing, Ranking, SeedValue, Worst
from autorl.spec import Spec
from autorl.store.events import (
    BudgetExtended,
    CandidatesFrozen,
    ModelsNamed,
    ProposalFailed,
    ProposalMade,
    ProposalScored,
    SearchGivenUp,
    StudyEvent,
)
from autorl.study.budget import Spent, is_extension
from autorl.study.journal import Journal
from autorl.study.lineage import Lineage
from autorl.study.queue import Changes, Item, Queue
from autorl.study.retention import Retention
from autorl.study.work import Work
from autorl.types import (
    Continue,
    Done,
    Failed,
    Optimizer,
    Outcome,
    Proposal,
    ProposalId,
    Proposed,
    Scored,
    Segment,
    SegmentId,
    Status,
    StudyError,
    Wait,
)

BASELINE = "default, as far as the incumbent"
_FIRST_FAILURES = 3  # so many before any success mean that the study itself is wrong
# A run that diverged is a configuration.
_HOPELESS = (
    Status.CRASH,
    Status.TIMEOUT,
    Status.OUT_OF_MEMORY,
    Status.LOST,
)


class Driver:
    """The search of one study.

    It is what the study's events say, and the decisions that follow from them.

    Args:
        spec: the study file.
        journal: records every event before anything depends on it.
        optimizer: proposes; sees events only.
        elapsed: hours the study has used so far, for `budget.hours`.

    Attributes:
        ended: nothing more is proposed: by the budget or the optimizer, by `end_search`, or because
            the log says what is tested. More budget opens the search again.
        exhausted: the optimizer has said that it has nothing more to propose.
        extra_runs: added to the budget.
        charged_steps: nominal tuning steps the budget was charged.
        anew: proposals that continue a run without a checkpoint: charged from step 0.
        last_failure: message of the latest proposal that failed.
    """

    def __init__(
        self, spec: Spec, journal: Journal, optimizer: Optimizer, elapsed: Callable[[], float]
    ) -> None:
        self.spec = spec
        self.judge = spec.judge()
        self.policy = spec.policy()
        self.ranking = Ranking()
        self.lineage = Lineage(spec.plan)
        self.work = Work(spec, journal, self.lineage, self.judge)
        self.ended = False
        self.exhausted = False
        self.extra_runs = 0.0
        self.charged_steps = 0
        self.anew: set[ProposalId] = set()
        self.last_failure = ""
        self._journal = journal
        self._optimizer = optimizer
        self._default = spec.search_space.default()
        # Apart from the others, because it is looked through at every poll.
        self._of_default: list[ProposalId] = []
        self._elapsed = elapsed
        self._worst = Worst()
        self._queue = Queue(self.lineage.chain)
        self._retention = Retention(self, self._queue, optimizer)
        # Items whose next segments may be ready, and in asynchronous mode those that may be
        # complete. A study that is only read follows neither.
        self._to_request: Changes | None = None
        self._to_observe: Changes | None = None
        self._seeds_of: dict[ProposalId, tuple[int, ...]] = {}
        self._charged: set[tuple[ProposalId, int]] = set()
        self._beyond: set[tuple[ProposalId, int]] = set()
        self._asked = 0
        self._begun = 0
        self._waiting = False
        self._failures = 0
        journal.subscribe(self.apply)

    def apply(self, event: StudyEvent) -> None:
        """Take note of an event that is in the log.

        Segments are the affair of `work`, which follows the journal itself. Those without an
        outcome are handed out, or handed out again, by `advance`.
        """
        match event:
            case ProposalMade():
                self._apply_proposed(event)
            case ProposalScored(scored=result) | ProposalFailed(failed=result):
                self._apply_settled(result, event.seeds, baseline=event.beyond is not None)
            case SearchGivenUp():
                self._failures = 0
            case CandidatesFrozen() | ModelsNamed():
                self.ended = True
            case BudgetExtended(runs=runs):
                self.ended = False
                # Earlier versions recorded NaN, which no budget comes back from.
                if is_extension(runs):
                    self.extra_runs += runs

    def end_search(self) -> None:
        """Propose nothing more in this session.

        What is in flight is still observed.
        """
        self.ended = True

    def advance(self) -> list[Segment]:
        """Decide all that can be decided.

        Returns:
            The segments that can start now and were not handed out in this session.
        """
        while self._turn():
            pass
        if self._to_request is None:
            self._to_request = self._queue.follow()
        for _, item in self._to_request.take():
            for seed in item.seeds if item else ():
                self.work.request(item.proposal, seed, "tuning")
        return self.work.drain()

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
        self.work.record(outcome)
        proposal = outcome.segment.proposal
        self._queue.touch([proposal])
        # Others of the same parent wait while its damaged checkpoint is read.
        parent = self.lineage[proposal].resume_from
        if self.work.damaged and parent is not None:
            self._queue.touch([parent])

    @property
    def finished(self) -> bool:
        """Say whether nothing more will be proposed and nothing is unsettled."""
        return self.ended and not self._queue

    @property
    def unsettled(self) -> int:
        """Number of proposals whose outcome was not observed yet."""
        return len(self._queue)

    def tuning_seeds(self, proposal: ProposalId) -> tuple[int, ...]:
        """Return the tuning seeds a scored proposal was last scored with."""
        return self._seeds_of[proposal]

    def chosen_step(self, proposal: ProposalId) -> int | None:
        """Return the step that the tuning seeds of a proposal choose.

        None where the study does not reduce curves by `best`.
        """
        curves = [self.work.curve(proposal, seed) for seed in self.tuning_seeds(proposal)]
        # A seed that failed does not choose: its curve breaks off where it failed.
        return self.judge.best_step([curve for curve in curves if not curve.status.failed])

    def end_at(self, proposal: ProposalId, step: int | None) -> int | None:
        """Return where a run ends whose model is of `step`.

        None: where the proposal does, as other scores may need.
        """
        if step is None or not self.spec.ends_at_chosen_step:
            return None
        return step if 0 < step < self.lineage[proposal].until else None

    def settled(self, proposal: ProposalId) -> bool:
        """Say whether an outcome of a proposal was observed."""
        return proposal in self._seeds_of

    def raw(self, values: Sequence[float]) -> tuple[float, ...]:
        """Turn internal values into each metric's own direction."""
        return tuple(
            objective.sign * value
            for objective, value in zip(self.judge.objectives, values, strict=False)
        )

    def best_score(self, until: int) -> float:
        """Return the best tuning score of all proposals that end at `until`.

        Provisional ones count too. In the metric's own direction.

        Raises:
            ValueError: none was scored.
        """
        scored = (
            number for number in self.ranking.ordered() if self.lineage[number].until == until
        )
        return self.raw(max(self.ranking[number].values for number in scored))[0]

    def collect(
        self, models: Collection[SegmentId] = (), *, over: bool = False, at_once: bool = False
    ) -> None:
        """Delete the checkpoints nobody can need any more.

        What the optimizer may still resume outlives the search: the budget can be extended.

        Args:
            models: segments whose checkpoints are kept for the user besides.
            over: the test phase has ended too.
            at_once: look now; otherwise not every call does.
        """
        self._retention.collect(models, over=over, at_once=at_once)

    # -- the default configuration -----------------------------------------------------------------

    def idle_with(self, more: float) -> str:
        """Say why `more` runs of budget would train nothing.

        Empty where something would be, and while outcomes are missing: what is proposed next
        depends on them.
        """
        if self._queue:
            return ""
        before = self.extra_runs
        self.extra_runs += more
        try:
            # Asking changes no optimizer (`optimizers/base.py`): this is what the next ask will
            # answer.
            answer = self._optimizer.ask(streams.generator(self.spec.seed, "ask", self._asked))
            if isinstance(answer, Done):
                name = self.spec.optimizer.name
                return (
                    f"would train nothing: {name} has nothing more to propose; "
                    "a larger plan needs a new study"
                )
            if self._out_of_budget() or (
                isinstance(answer, Proposal) and not self._affordable(answer)
            ):
                steps_left = max(0.0, self.budget_steps - self.charged_steps)
                return (
                    "would train nothing: the next proposal costs more than the "
                    f"{steps_left / self.spec.fidelity.steps:g} full runs left; add more"
                )
            return ""
        finally:
            self.extra_runs = before

    def add_baseline(self) -> bool:
        """Have the default configuration trained as far as the incumbent.

        It gets the seeds of the incumbent. For when the search is over. False when that is done or
        there is nothing to do: what the search has trained itself is not trained again.
        """
        best = self.ranking.best()
        if best is None or not self.spec.adds_baseline:
            return False
        number = next(iter(self.longest_of_default()), None)
        if number is None or self.lineage[number].until < self.lineage[best].until:
            # One that failed on the way ends there, and costs nothing.
            number = self._propose(self._baseline(number, best))
        elif self.settled(number) and set(self._seeds_of[best]) <= set(self._seeds_of[number]):
            return False
        seeds = list(dict.fromkeys([*self._seeds_of.get(number, ()), *self._seeds_of[best]]))
        self._queue.append(Item(number, 0, seeds, upgrade=True, baseline=True))
        return True

    def _baseline(self, longest: ProposalId | None, best: ProposalId) -> Proposal:
        """Propose the default configuration to the incumbent's length.

        It goes on from where the search left it, or begins from scratch.
        """
        incumbent = self.lineage[best]
        baseline = Proposal(
            self._default,
            incumbent.until,
            origin=BASELINE,
            provisional=incumbent.provisional,
            baseline=True,
        )
        if longest is None:
            return baseline
        before = self.lineage[longest]
        return replace(
            baseline, parent=Continue(longest), member=before.member, retain=before.retain
        )

    def longest_of_default(self) -> list[ProposalId]:
        """List the proposals of the default configuration, the longest first.

        Only those whose configuration never changed. Without a score or a failure they are left
        out, but for the baseline.
        """
        trained = [
            number
            for number in self._of_default
            if self.lineage[number].baseline or self.settled(number)
        ]
        unchanged = [number for number in trained if self.lineage.unchanged(number)]
        # Of two of one length the first that was proposed.
        return sorted(unchanged, key=lambda number: (-self.lineage[number].until, number))

    # -- one decision ------------------------------------------------------------------------------

    def _turn(self) -> bool:
        """Make one decision.

        False when an outcome is needed first, or all is decided.
        """
        if self._failures >= _FIRST_FAILURES:
            # Recorded, so that a study that is taken up again, perhaps mended, has three more
            # tries.
            self._journal.record(SearchGivenUp(self.last_failure))
            raise StudyError(
                f"the first {_FIRST_FAILURES} proposals failed, the last with: {self.last_failure}"
            )
        item = self._next_item()
        if item is not None:
            if not self._complete(item):
                return False
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
        if not self._queue:
            return None
        if self.spec.asynchronous:
            # Otherwise an optimizer that never waits would be asked for all of its budget at once.
            crowded = len(self._queue) >= self.spec.parallelism or self.ended or self._waiting
            return self._next_complete() or (self._queue[0] if crowded else None)
        due = self._queue[0].due <= self._asked
        return self._queue[0] if due or self.ended or self._waiting else None

    def _next_complete(self) -> Item | None:
        """Return the complete item that may be observed.

        The head of the queue, or any in asynchronous mode.
        """
        if not self.spec.asynchronous:
            return self._queue[0] if self._queue and self._complete(self._queue[0]) else None
        if self._to_observe is None:
            self._to_observe = self._queue.follow()
        return self._to_observe.first(self._complete)

    def _ask(self) -> None:
        if self._out_of_budget():
            self.ended = True
            return
        # The generator follows from the number of the ask: the same after a kill and after `Wait`.
        answer = self._optimizer.ask(streams.generator(self.spec.seed, "ask", self._asked))
        self.exhausted = isinstance(answer, Done)
        if isinstance(answer, Proposal) and not self._affordable(answer):
            # After the next outcome it may ask for less: a continuation, say.
            answer = Wait() if self._queue else Done()
        if isinstance(answer, Wait):
            if not self._queue:
                # No outcome will come that could end the wait.
                raise StudyError("the optimizer waits although nothing is running")
            self._waiting = True
        elif isinstance(answer, Done):
            self.ended = True
        else:
            self._propose(answer)

    def _propose(self, proposal: Proposal) -> ProposalId:
        proposed = Proposed(len(self.lineage), proposal)
        config_hash = self.spec.search_space.config_hash(proposal.config)
        anew = self._starts_anew(proposal)
        self._journal.record(ProposalMade(proposed, config_hash, anew=anew))
        return proposed.id

    def _apply_proposed(self, made: ProposalMade) -> None:
        event = made.proposed
        if made.anew:
            self.anew.add(event.id)
        self.lineage.observe(event)
        self.ranking.observe(event)
        if event.proposal.config == self._default:
            self._of_default.append(event.id)
        if event.proposal.baseline:
            return  # `add_baseline` says with which seeds it is trained
        self._optimizer.observe(event)
        self._asked += 1
        self._begun += event.proposal.resume_from is None
        best = self.ranking.best()
        reference: tuple[SeedValue, ...] = ()
        if best is not None and isinstance(self.policy, Racing):
            reference = tuple(self.work.value(best, seed) for seed in self._seeds_of[best])
        first = list(self.policy.first)
        # The outcome of ask i is observed immediately before ask i + p, whatever came in meanwhile.
        self._queue.append(
            Item(event.id, self._asked - 1 + self.spec.parallelism, first, reference)
        )
        self._charge([event.id], first)

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
            uncharged = self._uncharged(item.proposal, item.seeds)
            beyond = sum(self.charge_of(link) for link, _ in uncharged)
        seeds = tuple(item.seeds)
        score = self.raw(event.values)
        if isinstance(event, Scored):
            self._journal.record(ProposalScored(event, seeds, score, beyond))
        else:
            self._journal.record(ProposalFailed(event, seeds, score, beyond))

    def _apply_settled(
        self, event: Scored | Failed, seeds: Sequence[int], *, baseline: bool
    ) -> None:
        if baseline:
            self._apply_baseline(event, seeds)
            return
        self._queue.remove(event.proposal)
        self._waiting = False
        self._seeds_of[event.proposal] = tuple(seeds)
        self._charge(self.lineage.chain(event.proposal), seeds)
        if isinstance(event, Scored):
            self._worst.observe(event)
        else:
            self.last_failure = event.message or str(event.kind)
            self._failures += event.kind in _HOPELESS and not self.ranking
        self.ranking.observe(event)
        self._optimizer.observe(event)
        self._upgrade_incumbent()
        self._race_again(event.proposal)

    def _apply_baseline(self, event: Scored | Failed, seeds: Sequence[int]) -> None:
        """Rank the baseline with the others.

        Nothing is charged, and the optimizer is not told.
        """
        # A resumed study has it in the log, not in the queue: `add_baseline` decides anew.
        self._queue.remove(event.proposal)
        self._seeds_of[event.proposal] = tuple(seeds)
        self._beyond.update(self._uncharged(event.proposal, seeds))
        self.ranking.observe(event)

    def _uncharged(
        self, proposal: ProposalId, seeds: Sequence[int]
    ) -> list[tuple[ProposalId, int]]:
        """List the (link, seed) of a chain that nobody paid for.

        Neither the budget nor an earlier baseline has.
        """
        links = [(link, seed) for link in self.lineage.chain(proposal) for seed in seeds]
        return [pair for pair in links if pair not in self._charged and pair not in self._beyond]

    def _complete(self, item: Item) -> bool:
        """Say whether an item is complete.

        Every seed of it is in and the race asks for no more.
        """
        while all(self.work.known(item.proposal, seed) for seed in item.seeds):
            if item.upgrade or not isinstance(self.policy, Racing):
                return True
            more = self.policy.more(
                [self.work.value(item.proposal, seed) for seed in item.seeds], item.reference
            )
            if not more:
                return True
            item.seeds.extend(more)
            self._queue.changed(item)
        return False

    def _upgrade_incumbent(self) -> None:
        """Give the incumbent of a race the seeds it lacks.

        They are observed at the usual lag.
        """
        best = self.ranking.best()
        if best is None or self.ranking[best].n_seeds >= len(self.policy.full):
            return
        if not self._queue.holds(best):
            due = self._asked + self.spec.parallelism
            self._queue.append(Item(best, due, list(self.policy.full), upgrade=True))

    def _race_again(self, proposal: ProposalId) -> None:
        """Have a proposal race the incumbent of today.

        At its own ask the incumbent may have had fewer seeds.
        """
        best = self.ranking.best()
        if best is None or best == proposal or proposal not in self.ranking:
            return
        if not isinstance(self.policy, Racing):
            return
        values = [self.work.value(proposal, seed) for seed in self._seeds_of[proposal]]
        reference = [self.work.value(best, seed) for seed in self._seeds_of[best]]
        if more := self.policy.more(values, reference):
            due = self._asked + self.spec.parallelism
            seeds = [*self._seeds_of[proposal], *more]
            self._queue.append(Item(proposal, due, seeds, tuple(reference)))

    # -- budget ------------------------------------------------------------------------------------

    @property
    def spent(self) -> Spent:
        """The amounts the search has used so far."""
        return Spent(self.charged_steps, self._begun, self.extra_runs, self._elapsed())

    @property
    def budget_steps(self) -> float:
        """The budget in nominal tuning steps.

        It is infinite when it is not counted in steps.
        """
        return self.spent.budget_steps(self.spec)

    @property
    def budget_used(self) -> float:
        """The share of the budget used, in [0, 1].

        Racing may end a little above.
        """
        return self.spent.budget_used(self.spec)

    def charge_of(self, proposal: ProposalId) -> int:
        """Return the nominal steps charged for one seed of a proposal."""
        if proposal in self.anew:
            return self.lineage[proposal].until
        return self.lineage.length(proposal)

    def _starts_anew(self, proposal: Proposal) -> bool:
        """Say whether the run that a proposal continues left no checkpoint.

        That is known, and the same after a kill, once the outcome of that run was observed.
        """
        parent = proposal.resume_from
        if parent is None or not self.settled(parent):
            return False
        outcomes = [self.work.outcome(parent, seed) for seed in self.policy.first]
        return any(
            outcome is not None and outcome.status is Status.DONE and outcome.checkpoint is None
            for outcome in outcomes
        )

    def _charge(self, proposals: Sequence[ProposalId], seeds: Sequence[int]) -> None:
        """Charge the budget for every (proposal, seed) that was not charged before."""
        for proposal in proposals:
            for seed in seeds:
                if (proposal, seed) not in self._charged:
                    self._charged.add((proposal, seed))
                    self.charged_steps += self.charge_of(proposal)

    def _affordable(self, proposal: Proposal) -> bool:
        configurations = self.spec.budget.configurations
        if configurations is not None:
            return (
                proposal.resume_from is not None or self._begun < configurations + self.extra_runs
            )
        parent = None if self._starts_anew(proposal) else proposal.resume_from
        begin = 0 if parent is None else self.lineage[parent].until
        cost = (proposal.until - begin) * len(self.policy.first)
        return self.charged_steps + cost <= self.budget_steps

    def _out_of_budget(self) -> bool:
        # Configurations that have begun go on to their end: `_affordable` refuses only new ones.
        return self.budget_used >= 1.0 and self.spec.budget.configurations is None
