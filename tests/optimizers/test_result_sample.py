"""The results that TPE's densities are made of, where a study has more than it looks at."""

import numpy as np

from autorl.core.types import Proposal, Proposed, Scored
from autorl.optimizers import make
from autorl.optimizers.optuna_ import BEST, ResultSample
from autorl.space import load_space

SPACE = load_space({"hyperparameters": {"x": {"type": "float", "lower": 0.0, "upper": 1.0}}})
MOST = 250


def tpe(count, *, order=None, most=MOST, pending=0):
    """A TPE that has observed `count` scores, of 2 in 3 distinct values, in some order."""
    optimizer = make("tpe", SPACE, horizon=10, most_results=most)
    draws = np.random.default_rng(0)
    for number in range(count + pending):
        optimizer.observe(Proposed(number, Proposal(SPACE.sample(draws), 10)))
    for number in order if order is not None else range(count):
        optimizer.observe(Scored(number, (float(number % 200),)))
    return optimizer


def seen(optimizer):
    """The numbers of the trials that the sampler sees."""
    return [trial.number for trial in optimizer._synchronized().get_all_trials(0, deepcopy=False)]


def asked(optimizer):
    return optimizer.ask(np.random.default_rng(7)).config


def test_a_sample_is_the_best_and_the_same_others_whatever_came_first():
    draws = np.random.default_rng(1)
    ranks = {number: (0.0, float(draws.integers(50))) for number in range(400)}
    one, other = ResultSample(MOST), ResultSample(MOST)
    for number in range(400):
        one.put(number, (0.0, 99.0))
        one.put(number, ranks[number])
    for number in draws.permutation(400).tolist():
        other.put(number, ranks[number])
    chosen = one.chosen()
    assert chosen == other.chosen() == sorted(set(chosen))
    assert len(chosen) == MOST
    best = sorted(range(400), key=lambda number: (ranks[number], number))[:BEST]
    assert set(best) <= set(chosen)
    # Of the others as many early as late ones, within four standard deviations.
    others = set(chosen) - set(best)
    assert abs(sum(number < 200 for number in others) - len(others) / 2) < 4 * np.sqrt(MOST) / 2


def test_up_to_the_bound_all_results_are_seen():
    bounded, whole = tpe(MOST, pending=2), tpe(MOST, pending=2, most=None)
    assert seen(bounded) == seen(whole) == list(range(MOST + 2))
    assert asked(bounded) == asked(whole)


def test_beyond_it_the_sampler_sees_no_more_of_them_and_all_pending_ones():
    optimizer = tpe(400, pending=3)
    numbers = seen(optimizer)
    assert len(numbers) == MOST + 3
    assert numbers == sorted(numbers)
    assert {400, 401, 402} <= set(numbers)
    assert set(range(190, 200)) <= set(numbers)  # the best, of the first round
    assert seen(tpe(400, pending=3, most=None)) == list(range(403))


def test_the_sample_stays_as_it_is():
    """The sample of 60 results, ever better, has the best 25 and 5 of the others by their hashes.

    Stored studies go on with the same ones.
    """
    sample = ResultSample(30)
    for number in range(60):
        sample.put(number, (0.0, -float(number)))
    assert sample.chosen() == [5, 6, 9, 10, 11, *range(35, 60)]
