"""Runs cut into segments, under a rule as plain as can be: a run stops below 0."""

import numpy as np
import pytest

from autorl.core.types import Continue, Done, Failed, FrozenMap, Proposed, Scored, Status, Wait
from autorl.optimizers import BaseOptimizer, NoOptions, make
from autorl.optimizers._cut_runs import StoppingRule
from autorl.optimizers.base import equal_parts
from autorl.testing.optimizers import space_of

SPACE = space_of("continuous")


class Inner(BaseOptimizer[NoOptions]):
    """Draws three runs; its second one is informed, and each has meta of its own."""

    takes_enqueued = False

    def _ask(self, rng):
        number = len(self.history)
        if number == 3:
            return Done()
        config = self.problem.space.sample(rng)
        return self._propose(config, f"run {number}", {"own": number}, informed=number == 1)

    def outline(self):
        return ("inside",)

    def cautions(self):
        return ("take care",)


class BelowZero(StoppingRule[NoOptions]):
    """Stops below 0, compares from 10 on, and notes what it is told of."""

    def __init__(self, problem, options, inner):
        super().__init__(problem, options, inner)
        self.asked = []
        self.taken = []

    @classmethod
    def cuts(cls, horizon, options):
        return equal_parts(horizon, 3)

    def _stops(self, run, scored):
        self.asked.append((run.root, run.rung))
        run.compared = scored.values[0] >= 10
        return scored.values[0] < 0

    def _take(self, run, from_rung):
        self.taken.append((run.root, run.rung, from_rung, run.ended, run.complete))


def rule(cls=BelowZero):
    problem = make("random", SPACE, horizon=90).problem
    return cls(problem, NoOptions(), Inner(problem, NoOptions()))


def propose(optimizer, number):
    proposal = optimizer.ask(np.random.default_rng(number))
    optimizer.observe(Proposed(number, proposal))
    return proposal


def score(optimizer, number, value, **more):
    until = optimizer.history[number].proposal.until
    optimizer.observe(Scored(number, (value,), **{"reached": until, **more}))


def test_a_run_goes_on_rung_by_rung_and_the_optimizer_inside_sees_its_last_score():
    optimizer = rule()
    for number, until in enumerate((30, 60, 90)):
        proposal = propose(optimizer, number)
        assert proposal.until == until
        assert proposal.parent == (Continue(number - 1) if number else None)
        assert proposal.meta["rung"] == number
        assert optimizer.inner.history[0].result is None
        score(optimizer, number, float(number))
    assert optimizer.history[2].proposal.meta == FrozenMap(root=0, rung=2)
    assert optimizer.history[2].proposal.origin == "continue to rung 2"
    assert [record.id for record in optimizer.inner.history] == [0]
    assert optimizer.inner.history[0].proposal.until == 90
    assert optimizer.inner.history[0].values == (2.0,)
    assert optimizer.asked == [(0, 0), (0, 1)], "at the last rung there is nothing to decide"
    # Of every score, and in the end of the whole run.
    assert optimizer.taken == [
        (0, 0, 0, False, False),
        (0, 1, 1, False, False),
        (0, 2, 2, False, False),
        (0, 2, 0, True, True),
    ]


def test_a_run_is_informed_where_it_was_compared_or_its_last_segment_was():
    optimizer = rule()
    for number in range(3):
        propose(optimizer, number)
    for number, value in enumerate((1.0, 1.0, 10.0)):
        score(optimizer, number, value)
    made = [propose(optimizer, number) for number in (3, 4, 5)]
    assert [one.meta["root"] for one in made] == [0, 1, 2]
    assert [one.informed for one in made] == [False, True, True]
    score(optimizer, 5, 1.0)  # no longer compared, but it has been
    assert propose(optimizer, 6).informed


@pytest.mark.parametrize(
    ("value", "more", "complete"),
    [
        (-1.0, {}, False),  # by the rule
        (1.0, {"resumable": False}, False),
        (1.0, {"reached": 29}, True),  # by its trainer: it has a final score
    ],
)
def test_a_run_ends_at_a_rung(value, more, complete):
    optimizer = rule()
    propose(optimizer, 0)
    score(optimizer, 0, value, **more)
    run = optimizer._runs[0]
    assert (run.ended, run.complete, run.rung) == (True, complete, 0)
    assert optimizer.inner.history[0].values == (value,)
    assert optimizer.keeps() == []
    assert propose(optimizer, 1).parent is None, "something new is started"


def test_a_failure_ends_a_run_and_is_told_as_one_of_its_first_segment():
    optimizer = rule()
    propose(optimizer, 0)
    score(optimizer, 0, 1.0)
    propose(optimizer, 1)
    optimizer.observe(Failed(1, Status.CRASH, (-4.0,)))
    assert optimizer.inner.history[0].result == Failed(0, Status.CRASH, (-4.0,))
    run = optimizer._runs[0]
    assert (run.ended, run.complete, run.scores) == (True, False, {0: 1.0})
    assert optimizer.taken[-1] == (0, 1, 0, True, False)


def test_what_is_kept_is_the_newest_segment_below_the_horizon():
    optimizer = rule()
    propose(optimizer, 0)
    propose(optimizer, 1)
    assert optimizer.keeps() == [0, 1]
    score(optimizer, 0, 1.0)
    propose(optimizer, 2)
    assert optimizer.keeps() == [2, 1]
    score(optimizer, 2, 1.0)
    propose(optimizer, 3)
    assert optimizer.keeps() == [1], "nobody goes on from the last rung"


def test_it_waits_for_runs_that_may_go_on_and_is_done_when_all_are():
    optimizer = rule()
    for number in range(3):
        propose(optimizer, number)
    rng = np.random.default_rng(9)
    assert optimizer.ask(rng) == Wait(), "done inside is not done here"
    for number in range(3):
        score(optimizer, number, -1.0)
    assert optimizer.ask(rng) == Done()


def test_a_later_score_of_a_run_that_waits_to_go_on_does_not_stop_it():
    optimizer = rule()
    propose(optimizer, 0)
    score(optimizer, 0, 1.0)
    score(optimizer, 0, -5.0, n_seeds=2)
    assert optimizer.asked == [(0, 0)]
    assert propose(optimizer, 1).parent == Continue(0)
    assert optimizer._runs[0].scores == {0: -5.0}
    assert optimizer._ready == []


def test_a_later_score_of_an_ended_run_is_told_and_one_of_a_lower_rung_is_not():
    optimizer = rule()
    propose(optimizer, 0)
    score(optimizer, 0, 1.0)
    propose(optimizer, 1)
    score(optimizer, 1, -1.0)
    score(optimizer, 1, 3.0, n_seeds=2)
    assert optimizer.inner.history[0].result == Scored(0, (3.0,), n_seeds=2, reached=60)
    assert optimizer._runs[0].ended, "it does not come back"
    score(optimizer, 0, 7.0, n_seeds=2)
    assert optimizer.inner.history[0].values == (3.0,)
    assert optimizer._runs[0].scores == {0: 7.0, 1: 3.0}
    assert optimizer.taken[-1] == (0, 1, 0, True, False), "news for the other runs"
