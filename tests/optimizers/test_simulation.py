"""The simulated driver keeps the order of events that a study keeps."""

import pytest
from mixed_task import CUBE

from autorl.core.types import Done, Failed, Proposed, Status, Wait
from autorl.optimizers import BaseOptimizer, NoOptions, make
from autorl.testing.optimizers import assert_alike, space_of
from autorl.testing.simulation import simulate

SPACE = space_of("types")


class Pairs(BaseOptimizer[NoOptions]):
    """Proposes pairs, and waits for both outcomes before the next pair; three pairs in all."""

    def _ask(self, rng):
        number = len(self.history)
        if number == 6:
            return Done()
        if number % 2 == 0 and self.history.pending:
            return Wait()
        return self._propose(self.problem.space.sample(rng), "pair")


def pairs():
    return Pairs(make("random", SPACE, horizon=10).problem, NoOptions())


def order(simulation):
    return [
        (type(event).__name__[0], event.id if isinstance(event, Proposed) else event.proposal)
        for event in simulation.events
    ]


def test_with_a_lag_of_one_each_outcome_precedes_the_next_proposal():
    simulation = simulate(lambda: make("random", SPACE, horizon=10), lambda i, p: 0.0, 3)
    assert order(simulation) == [("P", 0), ("S", 0), ("P", 1), ("S", 1), ("P", 2), ("S", 2)]


def test_outcome_i_minus_lag_is_observed_immediately_before_ask_i():
    simulation = simulate(lambda: make("random", SPACE, horizon=10), lambda i, p: 0.0, 5, lag=3)
    assert order(simulation) == [
        *[("P", 0), ("P", 1), ("P", 2)],
        *[("S", 0), ("P", 3), ("S", 1), ("P", 4)],
        *[("S", 2), ("S", 3), ("S", 4)],
    ]


def test_on_wait_outcomes_are_observed_in_proposal_order_and_the_same_number_is_asked_again():
    simulation = simulate(pairs, lambda i, p: 0.0, 100, lag=8)
    assert order(simulation) == [
        *[("P", 0), ("P", 1), ("S", 0), ("S", 1)],
        *[("P", 2), ("P", 3), ("S", 2), ("S", 3)],
        *[("P", 4), ("P", 5), ("S", 4), ("S", 5)],
    ]
    assert simulation.done


def test_wait_with_nothing_pending_is_an_error():
    class Stuck(Pairs):
        def ask(self, rng):
            return Wait()

    with pytest.raises(AssertionError, match="nothing pending"):
        simulate(lambda: Stuck(pairs().problem, NoOptions()), lambda i, p: 0.0, 3)


def test_penalties_are_the_worst_score_so_far_and_empty_before_any():
    values = {1: 3.0, 3: 1.0, 5: 2.0}
    simulation = simulate(
        lambda: make("random", SPACE, horizon=10),
        lambda i, p: values[i],
        7,
        fail=lambda i, p: None if i in values else Status.TIMEOUT,
    )
    failed = [event.values for event in simulation.events if isinstance(event, Failed)]
    assert failed == [(), (3.0,), (1.0,), (1.0,)]
    assert simulation.best == 3.0


def test_samples_of_two_distributions_are_told_apart():
    """Random search is told apart from TPE, so `assert_alike` has teeth."""

    def best(name):
        factory = lambda: make(name, CUBE, horizon=1)  # noqa: E731
        objective = lambda i, p: -sum((x - 0.3) ** 2 for x in p.config.values())  # noqa: E731
        return [simulate(factory, objective, 40, seed=1000 + seed).best for seed in range(24)]

    tpe = best("tpe")
    with pytest.raises(AssertionError, match="p = "):
        assert_alike(tpe, best("random"))
    assert_alike(tpe, tpe)
