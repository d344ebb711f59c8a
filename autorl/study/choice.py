"""How sure the choice of an incumbent is, and how over-tuned."""

from __future__ import annotations

from dataclasses import dataclass

from autorl.statistics.noise import posterior, probability_of_best
from autorl.study.record import StudyRecord
from autorl.types import ProposalId


@dataclass(frozen=True)
class Choice:
    """The choice of the incumbent under the noise model (`autorl.statistics.noise`).

    It is of the first objective. An aggregate other than the mean is taken to have the noise of a
    mean.

    Attributes:
        confirmed: number of proposals with more seeds than the exploration gave them.
        probability: that none of the confirmed ones is truly better than the incumbent.
        expected: score of the incumbent on new seeds, in the metric's own direction.
        overtuning: by how much its tuning score is better than that (the winner's curse).
    """

    confirmed: int
    probability: float
    expected: float
    overtuning: float


def choice_of(record: StudyRecord, incumbent: ProposalId) -> Choice | None:
    """Judge the choice of an adaptive study.

    None of a study with other seeds, and before the incumbent has got more than the first ones.
    """
    spec = record.spec
    if spec.evaluation.seeds != "adaptive":
        return None
    rows = record.tables.comparable()
    minimum = len(spec.policy().first)
    confirmed = [place for place, row in enumerate(rows) if row.n_seeds > minimum]
    chosen = next((place for place in confirmed if rows[place].proposal == incumbent), None)
    if chosen is None:
        return None
    estimate = posterior(
        [row.value for row in rows], [row.spread for row in rows], [row.n_seeds for row in rows]
    )
    expected = float(estimate.mean[chosen])
    return Choice(
        len(confirmed),
        probability_of_best(estimate, chosen, confirmed),
        spec.objectives()[0].sign * expected,
        rows[chosen].value - expected,
    )
