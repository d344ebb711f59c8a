"""Runs and chains of proposals.

It is pure bookkeeping over `Proposed` events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autorl.core.seeds import MOST_SEEDS, SeedPlan, digest
from autorl.core.types import (
    Config,
    Continue,
    Exploit,
    Proposal,
    ProposalId,
    Proposed,
    SeedRole,
    schedule_of,
)

_ROLE_OFFSET = {"tuning": 0, "test": MOST_SEEDS}  # stored: part of the number of every run
_RUNS_PER_ROOT = 2 * MOST_SEEDS


@dataclass(frozen=True)
class RunOf:
    """A proposal's place among runs.

    Attributes:
        root: the first proposal of its run.
        parent_root: the first proposal of the run before; None from scratch.
        start_step: nominal step its run starts at.
    """

    root: ProposalId
    parent_root: ProposalId | None
    start_step: int


class Lineage:
    """Proposals and their chains.

    A run is a maximal chain with one configuration. A change of it, or an exploit, starts another.
    """

    def __init__(self, plan: SeedPlan) -> None:
        self._plan = plan
        self._proposals: dict[ProposalId, Proposal] = {}
        self._runs: dict[ProposalId, RunOf] = {}

    def observe(self, event: Proposed) -> None:
        """Take note of a proposal.

        The proposals it goes on from are known.
        """
        proposal = event.proposal
        self._proposals[event.id] = proposal
        if proposal.resume_from is None:
            self._runs[event.id] = RunOf(event.id, None, 0)
            return
        before = self._proposals[proposal.resume_from]
        # A copy of an equal configuration is another run: its random streams are its own.
        if before.config == proposal.config and isinstance(proposal.parent, Continue):
            self._runs[event.id] = self._runs[proposal.resume_from]
        else:
            self._runs[event.id] = RunOf(
                event.id, self._runs[proposal.resume_from].root, before.until
            )

    def __len__(self) -> int:
        return len(self._proposals)

    def __getitem__(self, proposal: ProposalId) -> Proposal:
        return self._proposals[proposal]

    @property
    def proposals(self) -> Mapping[ProposalId, Proposal]:
        return self._proposals

    def chain(self, proposal: ProposalId) -> list[ProposalId]:
        """List the proposals trained to reach this one.

        They go from scratch to the proposal itself.
        """
        chain = [proposal]
        while (before := self._proposals[chain[-1]].resume_from) is not None:
            chain.append(before)
        return chain[::-1]

    def ancestors(self, proposal: ProposalId) -> list[ProposalId]:
        """List the proposals that make up a proposal's agent, itself the last.

        They are its chain, and the chains of agents that were averaged with it on the way.
        """
        ancestors: set[ProposalId] = set()
        unvisited = [proposal]
        while unvisited:
            link = unvisited.pop()
            if link not in ancestors:
                ancestors.add(link)
                unvisited += self._proposals[link].sources
        return sorted(ancestors)

    def path(
        self, proposal: ProposalId, end: int | None = None
    ) -> list[tuple[ProposalId, int | None]]:
        """List the links of a chain up to step `end`.

        Each has the step it is cut at. None in place of that step: the link is whole.
        """
        if end is None:
            return [(link, None) for link in self.chain(proposal)]
        begun = [link for link in self.chain(proposal) if self.start(link) < end]
        return [(link, end if end < self._proposals[link].until else None) for link in begun]

    def unchanged(self, proposal: ProposalId) -> bool:
        """Say whether a chain has one configuration all along, without an exploit."""
        links = [self._proposals[link] for link in self.chain(proposal)]
        copied = any(isinstance(link.parent, Exploit) for link in links)
        return not copied and len({link.config for link in links}) == 1

    def start(self, proposal: ProposalId) -> int:
        """Return the nominal step a proposal starts from."""
        before = self._proposals[proposal].resume_from
        return 0 if before is None else self._proposals[before].until

    def length(self, proposal: ProposalId) -> int:
        """Return the nominal steps that one seed of a proposal trains."""
        return self._proposals[proposal].until - self.start(proposal)

    def root(self, proposal: ProposalId) -> ProposalId:
        """Return the first proposal of a proposal's run."""
        return self._runs[proposal].root

    def run(self, proposal: ProposalId) -> RunOf:
        """Return a proposal's place among runs."""
        return self._runs[proposal]

    def run_id(self, root: ProposalId, role: SeedRole, seed: int) -> int:
        """Return the number of (run, seed), whatever the order runs finish in."""
        return root * _RUNS_PER_ROOT + _ROLE_OFFSET[role] + self._plan.of(role).index(seed)

    def run_ids(self, proposal: ProposalId, role: SeedRole, seed: int) -> tuple[int, int | None]:
        """Number a proposal's run with a seed, and its predecessor."""
        run = self._runs[proposal]
        before = run.parent_root
        parent = None if before is None else self.run_id(before, role, seed)
        return self.run_id(run.root, role, seed), parent

    def fork(self, proposal: ProposalId, seed: int) -> int | None:
        """Return the key of an exploit's random streams.

        The result is None where streams go on.
        """
        parent = self._proposals[proposal].parent
        if not isinstance(parent, Exploit):
            return None
        _, training_seed = self._plan.parts(seed)
        return digest(training_seed, "fork", parent.stream, self.start(proposal)) % 2**63

    def schedule(self, proposal: ProposalId) -> tuple[tuple[int, Config], ...]:
        """List configurations by the step they start at, equal neighbours merged."""
        links = (self._proposals[link] for link in self.chain(proposal))
        return schedule_of((link.config, link.until) for link in links)
