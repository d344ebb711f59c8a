"""The median stopping rule: where runs are cut, which are stopped, and what the optimizer inside sees."""

from statistics import median

import numpy as np
import pytest

from autorl.core.types import Failed, Proposed, Scored, Status
from autorl.optimizers import make
from autorl.optimizers.median_stop import RungValues
from autorl.testing.optimizers import space_of
from autorl.testing.simulation import simulate

SPACE = space_of("continuous")


def factory(**options):
    return lambda: make(
        "random",
        SPACE,
        horizon=100,
        stop="median",
        **{"rungs": 4, "peers": 2, "grace": 0} | options,
    )


def by_first(scores):
    """Score of a run by the number of its first segment."""

    def objective(number, proposal):
        return scores[proposal.meta.get("root", number)]

    return objective


def chains(simulation):
    """Steps reached, by the number of the first segment."""
    found = {}
    for event in simulation.events:
        if isinstance(event, Proposed):
            found.setdefault(event.proposal.meta.get("root", event.id), []).append(
                event.proposal.until
            )
    return found


def test_rungs_are_equally_spaced_and_end_at_the_horizon():
    assert factory()().steps == (25, 50, 75, 100)
    assert make("random", SPACE, horizon=10, stop="median", rungs=3).steps == (4, 7, 10)
    assert make("random", SPACE, horizon=2, stop="median", rungs=5).steps == (1, 2)


def test_a_run_below_the_median_of_its_peers_is_stopped():
    # Runs 0 and 4 finish for want of peers; later runs are worse or better than both.
    scores = {0: 1.0, 4: 2.0, 8: 0.5, 9: 3.0, 13: 1.25}
    simulation = simulate(factory(), by_first(scores), 14)
    assert chains(simulation) == {
        0: [25, 50, 75, 100],
        4: [25, 50, 75, 100],
        8: [25],
        9: [25, 50, 75, 100],
        13: [25],
    }


def test_the_optimizer_inside_sees_one_full_length_proposal_and_one_score_per_run():
    optimizer = factory()()
    scores = {0: 1.0, 4: 2.0, 8: 0.5, 9: 3.0, 13: 1.25}
    for event in simulate(factory(), by_first(scores), 14).events:
        optimizer.observe(event)
    records = list(optimizer.inner.history)
    assert [(r.id, r.proposal.until, r.values, r.result.reached) for r in records] == [
        (0, 100, (1.0,), 100),
        (4, 100, (2.0,), 100),
        (8, 100, (0.5,), 25),
        (9, 100, (3.0,), 100),
        (13, 100, (1.25,), 25),
    ]


@pytest.mark.parametrize(
    ("outcome", "inside"),
    [
        (Failed(0, Status.DIVERGED, (-1.0,)), Failed(0, Status.DIVERGED, (-1.0,))),
        (
            Scored(0, (1.0,), reached=25, resumable=False),
            Scored(0, (1.0,), reached=25, resumable=False),
        ),
        (Scored(0, (1.0,), reached=20), Scored(0, (1.0,), reached=20)),
    ],
)
def test_failed_unresumable_and_self_stopped_runs_end(outcome, inside):
    optimizer = factory()()
    optimizer.observe(Proposed(0, optimizer.ask(None)))
    assert list(optimizer.keeps()) == [0]
    optimizer.observe(outcome)
    assert optimizer.inner.history[0].result == inside
    assert list(optimizer.keeps()) == []


def test_a_superseding_score_reaches_the_inner_optimizer_and_the_peers():
    optimizer = factory(peers=1)()
    optimizer.observe(Proposed(0, optimizer.ask(None)))
    for number in range(3):
        optimizer.observe(Scored(number, (1.0,), reached=25 * (number + 1)))
        optimizer.observe(Proposed(number + 1, optimizer.ask(None)))
    optimizer.observe(Scored(3, (1.0,), reached=100))
    optimizer.observe(Scored(3, (0.75,), reached=100, n_seeds=2))
    optimizer.observe(Scored(0, (0.25,), reached=25, n_seeds=2))
    assert optimizer.inner.history[0].values == (0.75,)
    optimizer.observe(Proposed(4, optimizer.ask(np.random.default_rng(0))))
    optimizer.observe(Scored(4, (0.5,), reached=25))  # below the old 1.0, above the new 0.25
    assert optimizer.ask(None).resume_from == 4


# -- ties, counts and the values of a rung --------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_median_of_the_others_at_a_rung(seed):
    """Against `statistics.median`, with ties, and values that take the place of earlier ones."""
    rng = np.random.default_rng(seed)
    values, told = RungValues(), {}
    for _ in range(60):
        run = int(rng.integers(12))
        told[run] = float(rng.integers(5))
        values.put(run, told[run])
        for other in range(13):
            others = [value for number, value in told.items() if number != other]
            assert values.count_without(other) == len(others)
            if others:
                assert values.median_without(other) == median(others)
