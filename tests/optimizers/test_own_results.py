"""Places of a study's results."""

from autorl.core.types import Config, Failed, Proposal, Scored, Status
from autorl.optimizers import Record
from autorl.optimizers._own_results import ranks


def test_places_from_the_worst_failures_then_the_infeasible_then_by_score():
    outcomes = [
        Scored(0, (1.0,)),
        Failed(1, Status.CRASH, (50.0,)),
        Scored(2, (3.0,)),
        Scored(3, (99.0,), constraints=(0.5,)),
        Scored(4, (1.0,), constraints=(-2.0,)),
        Scored(5, (98.0,), constraints=(0.25, 0.0)),
        Failed(6, Status.CRASH, ()),
        Scored(7, (-4.0,)),
    ]
    records = [
        Record(outcome.proposal, Proposal(Config(x=0.5), 10), outcome) for outcome in outcomes
    ]
    assert ranks(records).tolist() == [5, 1, 6, 2, 5, 3, 0, 4]
