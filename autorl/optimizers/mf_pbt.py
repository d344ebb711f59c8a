"""Multiple-frequencies population-based training [1]: parts that evolve at their own pace.

A population that evolves often is greedy: what pays at once crowds out what pays late. Here it is
split into parts of equal size. Part p evolves every `frequencies[p]` generations, apart from the
others, by the quarters of its ranking: the lowest quarter copies the highest and explores, and the
one above the lowest takes better agents of other parts, the best for its best, each once. An agent
of a slower part comes with its configuration. One of a faster part comes with the changeable
hyperparameters of the best member here, because its own are greedy. Migrants do not explore.

    frequencies [1, 5], 8 members      generation 5: parts {0..3} and {4..7} evolve
    scores 9 8 7 6 | 5 4 3 2           member 3 copies 0, 7 copies 4; both explore
                                       member 6 resumes 0 with what may change of 4's configuration

The rule and the defaults are those of the authors' code (github.com/WaelDLZ/MF-PBT), but for two:
it has 1,000 generations, and its lowest copy its highest by rank, where they are drawn here.

References:
    [1] Doulazmi et al., "Multiple-frequencies population-based training", RLC 2025
        (arXiv 2506.03225).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autorl.core.types import InputError
from autorl.optimizers.base import Problem, Record, option
from autorl.optimizers.hyperband import merit
from autorl.optimizers.pbt import MOVES, Copy, PBTOptions, Population

PACES = (1, 10, 25, 50)
QUARTERS = 4  # members that a part needs, to have someone in each


@dataclass(frozen=True)
class MFPBTOptions(PBTOptions):
    frequencies: Sequence[int] | None = option(
        None,
        "generations between two evolutions of each part, ascending from 1; null: of 1, 10, 25 and "
        "50 as many as there are fours of members, and as end before the last generation",
    )
    generations: int = option(
        100, "segments of equal length; the first part evolves between them", minimum=2
    )
    selection: str = option(
        "truncation", "a part is ranked, so truncation alone", choices=("truncation",)
    )
    explore: str = option("ratio", "how explore moves numbers, as of pbt", choices=MOVES)
    factor: float = option(
        1.25, "explore: multiplies by this or divides by it", minimum=1.0, maximum=1.99
    )
    resample: float = option(
        0.0, "probability that explore draws a hyperparameter anew", minimum=0.0, maximum=1.0
    )
    ready: float = option(
        0.0, "part of the horizon before which no part evolves", minimum=0.0, maximum=1.0
    )


class MFPBT(Population[MFPBTOptions]):
    """A population in parts that evolve at several frequencies and exchange agents.
    Weights go to all parts, hyperparameters from slower to faster ones only.
    """

    Options = MFPBTOptions
    members = 32

    def __init__(self, problem: Problem, options: MFPBTOptions) -> None:
        super().__init__(problem, options)
        if not options.synchronous:
            raise InputError("mf_pbt ranks whole parts: expected true", key="optimizer.synchronous")
        self.frequencies = _frequencies(options.frequencies, self.population, len(self.steps))

    def outline(self) -> tuple[str, ...]:
        """Say which part evolves how often."""
        *faster, slowest = self.frequencies
        paces = ", ".join(map(str, faster))
        evolving = f"{len(self.frequencies)} parts evolve every {paces} and {slowest} generations"
        return (*super().outline(), evolving)

    def _part(self, record: Record) -> int:
        return int(record.proposal.member or 0) * len(self.frequencies) // self.population

    def _peers(self, member: Record, records: Sequence[Record]) -> Sequence[Record]:
        part = self._part(member)
        return [record for record in records if self._part(record) == part]

    def _evolves(self, member: Record, generation: int) -> bool:
        return generation % self.frequencies[self._part(member)] == 0

    def _migrant(
        self, member: Record, peers: Sequence[Record], ranked: Sequence[Record], count: int
    ) -> Copy | None:
        part = self._part(member)
        migrants = [record for record in ranked if self._part(record) != part]
        for place in peers[max(count, len(peers) - 2 * count) : len(peers) - count]:
            # An equal one stays: where a task has a best score, all would move.
            if not migrants or merit(migrants[0])[:2] >= merit(place)[:2]:
                continue
            migrant = migrants.pop(0)
            if place is member:
                slower = self._part(migrant) > part
                return Copy(migrant, migrant if slower else peers[0], explore=False)
        return None


def _frequencies(given: Sequence[int] | None, population: int, generations: int) -> Sequence[int]:
    """Check the frequencies, or choose them.

    Raises:
        InputError: they do not ascend from 1, or population or generations are too few for them.
    """
    most = population // QUARTERS
    fitting = sum(pace < generations for pace in PACES)
    frequencies = PACES[: max(2, min(most, fitting))] if given is None else given
    integers = all(type(pace) is int for pace in frequencies)
    ascending = integers and [*frequencies] == sorted(set(frequencies))
    if not ascending or len(frequencies) < 2 or frequencies[0] != 1:
        message = f"expected two or more whole numbers, ascending from 1, got {given!r}"
    elif frequencies[-1] >= generations:
        pace = frequencies[-1]
        message = f"a part that evolves every {pace} generations never does in {generations}"
    elif len(frequencies) > most:
        needed = QUARTERS * len(frequencies)
        message = f"{len(frequencies)} parts need {needed} members, and there are {population}"
    else:
        return frequencies
    raise InputError(message, key="optimizer.frequencies")
