"""The contract of `BaseOptimizer`: what it declares by default, refuses, and proposes first."""

import numpy as np
import pytest

from autorl.core.types import Done, Failed, InputError, Proposal, Proposed, Scored, Status, Wait
from autorl.optimizers import BaseOptimizer, History, NoOptions, Record, find, make
from autorl.optimizers.base import Surroundings, equal_parts, require, seed_counts, violation
from autorl.optimizers.registry import REGISTRY
from autorl.testing.optimizers import space_of

SPACE = space_of("continuous")
RNG = np.random.default_rng(0)


def proposal(until=10):
    return Proposal(SPACE.default(), until)


class Bare(BaseOptimizer[NoOptions]):
    """Declares nothing and is done after the initial configurations."""

    answer = Done()

    def _ask(self, rng):
        return self.answer


class Cut(Bare):
    partial = True


def built(cls=Bare, **options):
    return cls(make("random", SPACE, horizon=10, **options).problem, NoOptions())


def test_what_a_class_does_not_declare():
    declared = {
        "multi_objective": False,
        "partial": False,
        "learns": False,
        "lag_free": False,
        "search_kind": "search",
        "resolved": (),
        "takes_enqueued": True,
        "population_based": False,
        "Options": NoOptions,
    }
    assert {name: getattr(Bare, name) for name in declared} == declared
    optimizer = built()
    assert Bare.cuts(70, NoOptions()) == (70,)
    assert (optimizer.outline(), optimizer.cautions(), optimizer.keeps()) == ((), (), ())
    assert optimizer.planned_configurations() is None
    assert not optimizer.blind(0)
    assert not optimizer.modelled(99, 99)
    given = {"size": 3}
    assert Bare.resolved_options(given, Surroundings(SPACE)) is given


def test_optimizers_whose_plan_would_lose_a_place_take_no_enqueued_configuration():
    refusing = {name for name in REGISTRY if not find(name).takes_enqueued}
    assert refusing == {"cmaes", "de", "dehb", "grid", "pb2", "pbt", "phases", "schedule"}
    for name, taken in (("grid", False), ("random", True)):
        assert make(name, SPACE, horizon=10, stop="median").takes_enqueued is taken


# -- the initial configurations ----------------------------------------------------------------


def test_initial_configurations_are_proposed_whole_before_the_algorithm_is_asked():
    optimizer = built(initial=({"x": 0.25}, {"x": 0.5}))
    made = []
    for number in range(3):
        made.append(optimizer.ask(RNG))
        optimizer.observe(Proposed(number, made[-1]))
    assert [one.config["x"] for one in made] == [SPACE.default()["x"], 0.25, 0.5]
    assert [one.origin for one in made] == ["default", "warm start", "warm start"]
    assert {(one.until, one.parent, one.informed, one.meta) for one in made} == {
        (10, None, False, proposal().meta)
    }
    assert optimizer.ask(RNG) == Done()


def test_an_optimizer_of_segments_places_them_itself():
    optimizer = built(Cut)
    optimizer.answer = proposal(4)
    assert optimizer.ask(RNG).until == 4


def test_what_a_proposal_says_of_itself():
    optimizer = built()
    made = optimizer._propose(SPACE.default(), "why", {"arm": 1}, informed=True)
    assert (made.until, made.origin, dict(made.meta), made.informed) == (
        10,
        "why",
        {"arm": 1},
        True,
    )


@pytest.mark.parametrize("until", [1, 10])
def test_a_run_may_have_from_one_step_to_the_horizon(until):
    optimizer = built(Cut)
    optimizer.answer = proposal(until)
    assert optimizer.ask(RNG).until == until


def test_a_run_of_no_step_is_caught():
    optimizer = built(Cut)
    optimizer.answer = proposal(0)
    with pytest.raises(AssertionError, match="until 0"):
        optimizer.ask(RNG)


# -- the history -------------------------------------------------------------------------------


def observed(*events):
    history = History()
    history.observe(Proposed(3, proposal()))
    for event in events:
        history.observe(event)
    return history


@pytest.mark.parametrize(
    "event",
    [
        Proposed(3, proposal()),  # the same number again
        Scored(3, (1.0,), constraints=(0.0, float("nan"))),
        Scored(3, (1.0, float("-inf"))),
        Failed(4, Status.CRASH, ()),
    ],
)
def test_a_history_refuses(event):
    with pytest.raises(AssertionError):
        observed(event)


def test_a_constraint_may_be_infinite_and_a_failure_has_none():
    history = observed(Scored(3, (1.0,), constraints=(float("inf"), -1.0)))
    assert history[3].constraints == (float("inf"), -1.0)
    assert violation(history[3]) == float("inf")
    history.observe(Failed(3, Status.CRASH, (0.5,)))
    assert (history[3].constraints, history[3].values) == ((), (0.5,))
    assert violation(history[3]) == 0


def test_a_failure_without_a_penalty_is_an_outcome_without_values():
    history = observed(Failed(3, Status.CRASH, ()))
    assert (history[3].values, list(history.pending)) == ((), [])


def test_later_events_reach_the_optimizer_after_the_history():
    seen = []

    class Watching(Bare):
        def _observe(self, event):
            seen.append((event, len(self.history), list(self.history.pending)))

    optimizer = built(Watching)
    events = [Proposed(0, proposal()), Scored(0, (1.0,))]
    for event in events:
        optimizer.observe(event)
    assert seen == [(events[0], 1, [0]), (events[1], 1, [])]


def test_waiting_needs_something_that_is_pending():
    optimizer = built()
    optimizer.answer = Wait()
    optimizer.observe(Proposed(0, proposal()))
    assert optimizer.ask(RNG) == Wait()
    optimizer.observe(Failed(0, Status.CRASH, ()))
    with pytest.raises(AssertionError, match="waits for nothing"):
        optimizer.ask(RNG)


# -- the parts that are shared -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("horizon", "count", "ends"),
    [
        (100, 4, (25, 50, 75, 100)),
        (10, 3, (4, 7, 10)),
        (7, 2, (4, 7)),
        (3, 3, (1, 2, 3)),
        (3, 9, (1, 2, 3)),
        (1, 5, (1,)),
        (9, 1, (9,)),
        (49, 49, tuple(range(1, 50))),  # 49 * (1 / 49) is no 1 in floats
    ],
)
def test_equal_parts_of_a_run(horizon, count, ends):
    assert equal_parts(horizon, count) == ends


def test_counts_of_seeds_without_their_common_divisor():
    results = [Scored(0, (1.0,), n_seeds=4), None, Scored(2, (1.0,), n_seeds=6)]
    records = [Record(number, proposal(), result) for number, result in enumerate(results)]
    assert seed_counts(records) == [2, 2, 3]


def test_a_constraint_that_is_just_met_is_not_broken():
    record = Record(0, proposal(), Scored(0, (1.0,), constraints=(0.0, 0.25, -9.0, 0.5)))
    assert violation(record) == 0.75


def test_a_package_that_is_missing_is_named_with_its_extra():
    require("json", "mine", "extra")
    with pytest.raises(
        InputError, match=r"mine needs no_such: pip install 'autorl\[extra\]'"
    ) as no:
        require("no_such", "mine", "extra")
    assert no.value.key == "optimizer.name"
