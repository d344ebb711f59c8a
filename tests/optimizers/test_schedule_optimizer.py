"""The optimizer `schedule`: one chain of given configurations, cut where they change."""

import numpy as np
import pytest

from autorl.core.types import Done, InputError, Proposed, Scored, Status, Wait
from autorl.optimizers import make
from autorl.testing.optimizers import space_of
from autorl.testing.simulation import simulate

SPACE = space_of("types")
CHANGEABLE = {"rate", "gamma"}


def planned(schedule, **more):
    return lambda: make(
        "schedule", SPACE, horizon=100, changeable=CHANGEABLE, schedule=schedule, **more
    )


def test_parts_are_trained_one_after_another_to_the_horizon():
    parts = {"60": {"rate": 1e-3, "gamma": 0.9}, "0": {"rate": 1e-2}, 25: {"rate": 1e-4}}
    simulation = simulate(planned(parts), lambda number, proposal: 0.0, 9, lag=4)
    found = [
        (one.config["rate"], one.config["gamma"], one.until, one.resume_from)
        for one in simulation.proposals
    ]
    assert found == [(1e-2, 0.99, 25, None), (1e-4, 0.99, 60, 0), (1e-3, 0.9, 100, 1)]
    assert simulation.done
    assert {proposal.member for proposal in simulation.proposals} == {"0"}, (
        "a continuation, no exploit"
    )


def test_a_failed_part_ends_it():
    simulation = simulate(
        planned({"0": {}, "50": {"rate": 1e-4}}),
        lambda i, p: 0.0,
        9,
        fail=lambda number, p: Status.CRASH,
    )
    assert simulation.done
    assert len(simulation.proposals) == 1


@pytest.mark.parametrize(
    ("schedule", "key", "message"),
    [
        ({"10": {}}, "optimizer.schedule", "starts at step 0, got 10"),
        ({"0": {}, "100": {}}, "optimizer.schedule.100", "a step below 100, got '100'"),
        ({"0": {}, "soon": {}}, "optimizer.schedule.soon", "a step below 100, got 'soon'"),
        ({"0": {}, "-5": {}}, "optimizer.schedule.-5", "a step below 100, got '-5'"),
        ({"0": {}, "7.5": {}}, "optimizer.schedule.7.5", "a step below 100, got '7.5'"),
        ({"0": 3}, "optimizer.schedule.0", "expected a configuration, got 3"),
        ({"0": {}, "60": {"layers": 3}}, "optimizer.schedule.60", "layers cannot change during"),
        ({"0": {"rate": 9.0}}, "rate", "outside"),
    ],
)
def test_what_is_wrong_is_named(schedule, key, message):
    with pytest.raises(InputError, match=message) as caught:
        planned(schedule)()
    assert caught.value.key == key


def test_without_a_schedule_the_default_and_the_warm_starts_are_trained_whole():
    simulation = simulate(planned(None, initial=({"rate": 1e-3},)), lambda n, p: 0.0, 9, lag=4)
    warm = SPACE.config({"rate": 1e-3})
    assert [(one.config, one.origin, one.member) for one in simulation.proposals] == [
        (SPACE.default(), "default", "0"),
        (warm, "warm start", "1"),
    ]
    assert {(one.until, one.resume_from, one.retain) for one in simulation.proposals} == {
        (100, None, True)
    }
    assert simulation.done
    assert list(planned(None, initial=({"rate": 1e-3},))().keeps()) == []


@pytest.mark.parametrize(
    ("first", "origin"), [({}, "default"), ({"rate": 1e-2}, "schedule")], ids=str
)
def test_where_a_schedule_begins(first, origin):
    made = simulate(planned({"0": first, "4_0": {"gamma": 0.9}, "99": {}}), lambda n, p: 0.0, 9)
    assert [one.origin for one in made.proposals] == [origin, "from step 40", "from step 99"]
    assert [one.until for one in made.proposals] == [40, 99, 100]
    assert [one.meta["part"] for one in made.proposals] == [0, 1, 2]
    assert all(one.retain and not one.informed for one in made.proposals)


def test_a_part_waits_for_the_one_before_and_two_runs_wait_for_nobody():
    optimizer = planned({"0": {}, "50": {"rate": 1e-4}})()
    optimizer.observe(Proposed(0, optimizer.ask(np.random.default_rng(0))))
    assert optimizer.ask(np.random.default_rng(1)) == Wait()
    optimizer.observe(Scored(0, (1.0,), reached=50, resumable=False))
    assert optimizer.ask(np.random.default_rng(1)) == Done()


# -- keys, steps next to the ends, and what is kept ------------------------------------------------


def test_what_is_inactive_in_one_part_is_a_change_as_well():
    """`a.depth` exists with `kind: a` alone: a kind that may change takes it along."""
    space = space_of("conditional")
    parts = {"0": {"kind": "a"}, "50": {"kind": "b"}}
    with pytest.raises(InputError, match=r"a\.depth cannot change during training") as caught:
        make("schedule", space, horizon=100, changeable={"kind"}, schedule=parts)
    assert caught.value.key == "optimizer.schedule.50"
    every = set(space.names)
    made = make("schedule", space, horizon=100, changeable=every, schedule=parts)
    assert [config["kind"] for _, config in made.parts] == ["a", "b"]
