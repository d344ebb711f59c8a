"""The default configuration as a proposal and baseline of a study."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autorl.study.lineage import Lineage
from autorl.types import Config, Continue, Proposal, ProposalId, Proposed

BASELINE = "default, as far as the incumbent"


class DefaultRuns:
    """The proposals of the default configuration.

    Args:
        default: the default configuration.
        lineage: of the study.
        settled: says whether an outcome of a proposal was observed.
    """

    def __init__(
        self, default: Config, lineage: Lineage, settled: Callable[[ProposalId], bool]
    ) -> None:
        self._default = default
        self._lineage = lineage
        self._settled = settled
        # Apart from the others, because it is looked through at every poll.
        self._numbers: list[ProposalId] = []

    def observe(self, event: Proposed) -> None:
        """Take note of a proposal."""
        if event.proposal.config == self._default:
            self._numbers.append(event.id)

    def longest(self) -> list[ProposalId]:
        """List the proposals of the default configuration, the longest first.

        Only those whose configuration never changed. Without a score or a failure they are left
        out, but for the baseline.
        """
        trained = [
            number
            for number in self._numbers
            if self._lineage[number].baseline or self._settled(number)
        ]
        unchanged = [number for number in trained if self._lineage.unchanged(number)]
        # Of two of one length the first that was proposed.
        return sorted(unchanged, key=lambda number: (-self._lineage[number].until, number))

    def baseline(self, longest: ProposalId | None, best: ProposalId) -> Proposal:
        """Propose the default configuration to the incumbent's length.

        It goes on from where the search left it, or begins from scratch.
        """
        incumbent = self._lineage[best]
        proposal = Proposal(
            self._default,
            incumbent.until,
            origin=BASELINE,
            provisional=incumbent.provisional,
            baseline=True,
        )
        if longest is None:
            return proposal
        before = self._lineage[longest]
        return replace(
            proposal, parent=Continue(longest), member=before.member, retain=before.retain
        )
