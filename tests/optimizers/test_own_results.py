"""The process of a study's own results: what it is made of, and when its parameters are fitted."""

import numpy as np
from scipy.stats import norm

from autorl.core.types import Config, Failed, Proposal, Proposed, Scored, Status
from autorl.optimizers import History, Record
from autorl.optimizers import _pb2_gp as gp
from autorl.optimizers._own_results import OwnResults, ranks
from autorl.testing.optimizers import space_of

SPACE = space_of("continuous")


class Played:
    """Results of a study, and what the parameters were fitted to."""

    def __init__(self, monkeypatch):
        self.history = History()
        self.results = OwnResults(SPACE)
        self.fitted = []
        monkeypatch.setattr(gp, "fit", self._fit)

    def _fit(self, rows, values, n_numeric):
        self.fitted.append((rows, values))
        return tuple(gp.prior(n_numeric, 0).mean)

    def observe(self, event):
        self.history.observe(event)
        self.results.observe(event)

    def run(self, number, value):
        self.observe(Proposed(number, Proposal(config(number), 10)))
        self.observe(Scored(number, (float(value),)))

    def belief(self):
        return self.results.belief(self.history)


def config(number):
    return SPACE.from_unit(np.random.default_rng(number).random(3))


def normal_scores(places, count):
    """Return normal scores of ranks from 0, no two of them equal."""
    return norm.ppf((np.array(places) + 0.5) / count)


def test_parameters_are_fitted_to_outcomes_as_they_were(monkeypatch):
    """A resumed study, which knows the later scores, has the same parameters."""
    played = Played(monkeypatch)
    for number in range(4):
        played.run(number, number)
    played.observe(Scored(0, (9.0,), n_seeds=2))
    belief = played.belief()
    ((_, values),) = played.fitted
    np.testing.assert_allclose(values, normal_scores([0, 1, 2, 3], 4))
    np.testing.assert_allclose(belief.values, normal_scores([3, 0, 1, 2], 4))


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
