"""Which proposals of an adaptive study get more seeds, level by level, from what is scored and charged."""

import math
from types import SimpleNamespace

import pytest
from scripted import chain

from autorl.core.seeds import SeedPlan
from autorl.core.types import Config, Proposal, Proposed, Scored
from autorl.statistics.evaluation import Adaptive, Ranking
from autorl.store.events import SeedsGranted
from autorl.study.budget import Charges
from autorl.study.lineage import Lineage
from autorl.study.more_seeds import Confirmation
from autorl.study.search import Search

HORIZON = 100


class Situation:
    """Full runs with the given scores, one seed each, all charged. Four seeds, two fifths confirm."""

    contenders = Search.contenders
    contends = Search.contends

    def __init__(self, scores=(), *, minimum=1, share=0.4, seeds=4):
        self.ranking, self.lineage = Ranking(), Lineage(SeedPlan(seeds, 0))
        self.charges = Charges(self.lineage)
        self.policy = Adaptive(tuple(range(seeds)), minimum, seeds, share)
        self.spec = SimpleNamespace(fidelity=SimpleNamespace(steps=HORIZON))
        self.confirmation = Confirmation(self)
        for score in scores:
            self.add(score)

    def propose(self, proposal):
        event = Proposed(len(self.lineage), proposal)
        self.lineage.observe(event)
        self.ranking.observe(event)
        self.charges.add([event.id], self.policy.first)
        return event.id

    def add(self, score, n_seeds=None, **more):
        values = score if isinstance(score, tuple) else (score,)
        number = self.propose(Proposal(Config({"x": len(self.lineage)}), HORIZON))
        self.score(number, values, n_seeds or self.policy.minimum, **more)
        return number

    def score(self, number, values, n_seeds, reached=HORIZON, constraints=()):
        spread = (0.0,) * len(values)
        self.ranking.observe(Scored(number, values, spread, n_seeds, reached, constraints))

    def grant(self, event):
        """Record a level, and train its seeds: the scores stay."""
        self.confirmation.apply(event)
        for number in event.proposals:
            values = self.ranking[number].values
            self.score(number, values, max(len(event.seeds), self.ranking[number].n_seeds))
            self.charges.add(self.lineage.chain(number), event.seeds)

    def next_level(self, budget=math.inf, *, may_explore=False):
        return self.confirmation.next_level(budget, may_explore=may_explore)


SIX = (0.5, 0.2, 0.1, 0.8, 0.7, 0.3)


# -- the levels --------------------------------------------------------------------------------------------------------


def test_the_dearest_proposal_says_how_many_runs_are_left():
    """A proposal that continues a run without a checkpoint costs its parent and itself."""
    situation = Situation(SIX[:4])
    parent = situation.propose(chain(0.9, 40))
    anew = situation.propose(chain(0.9, HORIZON, parent))
    situation.score(anew, (0.75,), 1)
    granted = situation.next_level(situation.charges.steps + 400)
    assert granted == SeedsGranted((3, anew), (0, 1), (2,))
    situation.charges.anew.add(anew)
    granted = situation.next_level(situation.charges.steps + 400)
    assert granted == SeedsGranted((3, anew), (0, 1), ()), "140 steps a seed: two, not four"


def test_a_budget_that_is_a_sum_of_floats_loses_no_run():
    situation = Situation(SIX)
    assert situation.next_level(600 + 400 - 1e-10) == SeedsGranted((3, 4), (0, 1), (2,))
    assert situation.next_level(600 + 399) == SeedsGranted((3, 4, 0), (0, 1), ())


# -- who may be confirmed ----------------------------------------------------------------------------------------------


def test_a_bound_that_is_met_exactly_is_kept_and_one_broken_of_two_is_broken():
    situation = Situation()
    kept = [situation.add(0.1, constraints=(0.0, -1.0)), situation.add(0.2, constraints=(-1.0, 0))]
    situation.add(0.9, constraints=(0.5, -1.0))
    situation.add(0.8, constraints=(-1.0, 0.5))
    assert sorted(situation.next_level(600).proposals) == kept


def test_neither_a_baseline_nor_an_agent_that_was_picked_is_confirmed():
    situation = Situation(SIX)
    for flag in ("baseline", "provisional"):
        number = situation.propose(Proposal(Config({"x": 9, flag: 1}), HORIZON, **{flag: True}))
        situation.score(number, (9.0,), 1)
    assert situation.next_level(1200).proposals == (3, 4)


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (1e-12, 0.0), (1e12, 0.0), (1e-5, 1e6)])
def test_who_is_confirmed_does_not_depend_on_the_unit_of_the_metric(scale, shift):
    situation = Situation([scale * score + shift for score in SIX])
    assert situation.next_level(1000).proposals == (3, 4)


def test_of_several_objectives_the_front_is_confirmed_in_the_order_of_the_first():
    """3 dominates 0 and 1; 2 is best by the second objective."""
    situation = Situation([(0.5, 0.5), (0.2, 0.4), (0.1, 0.9), (0.8, 0.6), (0.7, 0.7)])
    assert situation.next_level(800).proposals == (3, 4, 2)
    assert situation.next_level(1000).proposals[:3] == (3, 4, 2)


# -- when nothing can be confirmed -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("left", "minimum", "explores"), [(100, 1, True), (99, 1, False)])
def test_a_proposal_more_is_explored_if_the_rest_of_the_budget_pays_for_it(left, minimum, explores):
    situation = Situation(minimum=minimum)
    situation.propose(Proposal(Config({}), HORIZON))  # it failed
    granted = situation.next_level(situation.charges.steps + left)
    assert granted == (SeedsGranted() if explores else None)
