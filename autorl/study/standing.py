"""Where a study stands, from its tables: what replaying its events gives, at a cost that does not grow with them.

`status` and `best` need a few numbers of a search that may have made many thousand proposals. Those are in the tables
(`autorl.store.standing`); of what needs learning curves only the events it needs are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cached_property

from autorl.evaluation import undominated
from autorl.spec import Spec
from autorl.store import Store
from autorl.store.codec import loads
from autorl.store.events import (
    Candidate,
    ProposalMade,
    SegmentEnded,
    StudyEvent,
    without_checkpoint,
)
from autorl.study.budget import Spent, is_extension
from autorl.study.chosen import chosen
from autorl.study.journal import Journal
from autorl.study.lineage import Lineage
from autorl.study.test_phase import Frozen
from autorl.study.work import Work
from autorl.types import Incumbent, ProposalId, SegmentId, StudyError

# Of `Ranking`: highest fidelity, most seeds, score; ties by mean, spread, earliest.
_BEST_FIRST = "infeasible, -reached, provisional, -n_seeds, -value, -mean, spread, proposal"


class Standing:
    """What the tables of one study say of its search and test phase.

    Args:
        spec: the frozen study file, with test seeds that were added later.
        store: read, never written.
        hours: of driver time.
    """

    def __init__(self, spec: Spec, store: Store, hours: float) -> None:
        self.spec = spec
        self._store = store
        self._query = store.query
        self._hours = hours
        self._judge = spec.judge()
        self._lineage = Lineage(spec.plan)
        self._work = Work(spec, Journal(store), self._lineage, self._judge)

    # -- the ranking -----------------------------------------------------------------------------------------------

    def ordered(self, count: int | None = None) -> list[ProposalId]:
        """The best `count` scored proposals, best first; None = all."""
        rows = self._query(
            f"SELECT proposal FROM standing WHERE value IS NOT NULL ORDER BY {_BEST_FIRST} LIMIT ?",
            (-1 if count is None else count,),
        )
        return [number for (number,) in rows]

    @cached_property
    def best(self) -> ProposalId | None:
        """The incumbent's proposal; None before anything was scored."""
        return next(iter(self.ordered(1)), None)

    @cached_property
    def front(self) -> list[ProposalId]:
        """The feasible proposals of the highest fidelity that no other dominates, in the order they were proposed."""
        feasible = "value IS NOT NULL AND infeasible = 0"
        rows = self._query(
            f"SELECT proposal, objectives FROM standing WHERE {feasible} AND reached = "
            f"(SELECT max(reached) FROM standing WHERE {feasible})"
        )
        return undominated({number: tuple(json.loads(values)) for number, values in rows})

    def n_seeds(self, proposal: ProposalId) -> int:
        """With how many tuning seeds a proposal was scored."""
        ((count,),) = self._query("SELECT n_seeds FROM standing WHERE proposal = ?", (proposal,))
        return int(count)

    def tuning_score(self, proposal: ProposalId) -> float:
        """Score on tuning seeds of the first objective, in the metric's own direction."""
        ((value,),) = self._query("SELECT value FROM standing WHERE proposal = ?", (proposal,))
        return self._judge.objectives[0].sign * float(value)

    def incumbent(self) -> Incumbent:
        """The frozen incumbent, or the best so far.

        Raises:
            StudyError: nothing was scored yet.
        """
        best = self.candidates[0].proposal if self.candidates else self.best
        if best is None:
            raise StudyError(
                f"{self._store.folder}: no proposal was scored yet: there is no incumbent"
            )
        lineage = self.lineage([best])
        return Incumbent(lineage.schedule(best), lineage[best].until, best)

    def best_of_runs(self, count: int) -> list[ProposalId]:
        """The `count` best proposals by tuning score, the incumbent first, one for each run.

        Raises:
            StudyError: nothing was scored yet.
        """
        roots: dict[ProposalId, ProposalId] = {}
        for proposal in (self.incumbent().proposal, *self.ordered()):
            roots.setdefault(self.lineage([proposal]).root(proposal), proposal)
            if len(roots) == count:
                break
        return list(roots.values())

    # -- the budget ------------------------------------------------------------------------------------------------

    @cached_property
    def spent(self) -> Spent:
        """What the search has used of its budget."""
        extra = self._query("SELECT body FROM event WHERE kind = 'budget' ORDER BY seq")
        ((begun,),) = self._query(
            "SELECT count(*) FROM proposals JOIN standing USING (proposal) WHERE resume_from IS NULL AND NOT baseline"
        )
        runs = 0.0
        for (text,) in extra:
            more = json.loads(text)["runs"]
            runs += more if is_extension(more) else 0.0
        return Spent(self._charged_steps(), begun, runs, self._hours)

    def _charged_steps(self) -> int:
        """Nominal steps charged: each proposal once for each seed that it or a proposal going on from it was given.

        A proposal is charged for the first seeds when it is made, the driver's own baseline only where it is settled
        within the budget.
        """
        rows = self._query(
            "SELECT proposal, until, coalesce((SELECT until FROM proposals AS parent WHERE parent.proposal = "
            "proposals.resume_from), 0), resume_from, baseline, anew, charged FROM proposals JOIN standing "
            "USING (proposal) ORDER BY proposal DESC"
        )
        first = frozenset(self.spec.policy().first)
        parsed: dict[str | None, frozenset[int]] = {None: frozenset()}
        below: dict[ProposalId, frozenset[int]] = {}  # seeds its continuations were charged for
        total = 0
        for proposal, until, start, parent, baseline, anew, charged in rows:
            if charged not in parsed:
                parsed[charged] = frozenset(json.loads(charged))
            settled = parsed[charged] | below.pop(proposal, frozenset())
            if parent is not None and settled:
                below[parent] = below.get(parent, frozenset()) | settled
            seeds = settled if baseline else settled | first
            total += (until if anew else until - start) * len(seeds)
        return total

    # -- the test phase --------------------------------------------------------------------------------------------

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """The candidates that are tested, the incumbent first; none while the search is open."""
        frozen = Frozen()
        events = self._query(
            "SELECT kind, body FROM event WHERE kind IN ('frozen', 'tested', 'budget') ORDER BY seq"
        )
        for kind, text in events:
            frozen.apply(self._store.read(kind, loads(text)))
        return frozen.candidates

    @cached_property
    def test_progress(self) -> tuple[int, int]:
        """(Candidate, seed) trained so far, and all of them."""
        runs = [
            (one.proposal, seed, one.end) for one in self.candidates for seed in self.spec.plan.test
        ]
        for proposal, seed, end in runs:
            self._take_outcomes(proposal, seed, end)
        return sum(self._work.known(*run) for run in runs), len(runs)

    # -- learning curves -------------------------------------------------------------------------------------------

    def chosen_step(self, proposal: ProposalId) -> int | None:
        """The step a proposal's score is read at: what was written down of a candidate, else what its seeds choose."""
        step = chosen(self._query, proposal).step
        if step or not self._judge.chooses_step:
            return step
        ((seeds,),) = self._query("SELECT seeds FROM standing WHERE proposal = ?", (proposal,))
        curves = []
        for seed in json.loads(seeds):
            self._take_outcomes(proposal, seed, None)
            curves.append(self._work.curve(proposal, seed))
        return self._judge.best_step([curve for curve in curves if not curve.status.failed])

    def lineage(self, proposals: Iterable[ProposalId]) -> Lineage:
        """The chains of proposals, and of those asked for before; of others it knows nothing."""
        for proposal in proposals:
            missing = []
            number: ProposalId | None = proposal
            while number is not None and number not in self._lineage.proposals:
                made = self._event_of(str(number))
                assert isinstance(made, ProposalMade)
                missing.append(made.proposed)
                number = made.proposed.proposal.resume_from
            for event in reversed(missing):
                self._lineage.observe(event)
        return self._lineage

    def _take_outcomes(self, proposal: ProposalId, seed: int, end: int | None) -> None:
        """Let `_work` know the outcomes of one chain that were recorded."""
        for link, cut in self.lineage([proposal]).path(proposal, end):
            name = SegmentId(link, seed, cut)
            if self._work.outcome_of(name) is None and self._query(
                "SELECT 1 FROM places WHERE subject = ?", (name,)
            ):
                ended = self._event_of(name)
                assert isinstance(ended, SegmentEnded)
                self._work.apply(without_checkpoint(ended))

    def _event_of(self, subject: str) -> StudyEvent:
        ((kind, text),) = self._query(
            "SELECT kind, body FROM event JOIN places USING (seq) WHERE subject = ?", (subject,)
        )
        return self._store.read(kind, loads(text))
