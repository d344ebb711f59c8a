"""The seed layer on curves made by hand, and the ranking against brute force."""

import dataclasses
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_tests import examples

from autorl.core.types import (
    Config,
    Failed,
    Outcome,
    Proposal,
    Proposed,
    Report,
    Scored,
    SegmentId,
    Status,
)
from autorl.statistics.evaluation import (
    Adaptive,
    Constraint,
    Curve,
    Fixed,
    Judge,
    Objective,
    Racing,
    Ranking,
    SeedValue,
    Worst,
    join,
)


def curve_of(values, status=Status.DONE, metric="m", **cost):
    steps = tuple(10 * (number + 1) for number in range(len(values)))
    return Curve(steps, tuple({metric: float(value)} for value in values), cost, status)


def judge(reduce="last", direction="maximize", **more):
    return Judge([Objective("m", reduce, direction)], **more)


@pytest.mark.parametrize(
    ("reduce", "direction", "value"),
    [
        ("last", "maximize", 2.0),
        ("best", "maximize", 9.0),
        ("auc", "maximize", 4.0),
        ("mean_last(2)", "maximize", 1.5),
        ("mean_last(99)", "maximize", 4.0),
        ("last", "minimize", -2.0),
        ("best", "minimize", -1.0),
        ("auc", "minimize", -4.0),
        ("mean_last(2)", "minimize", -1.5),
    ],
)
def test_reductions_larger_is_better_inside(reduce, direction, value):
    found = judge(reduce, direction).value(7, curve_of([4, 9, 1, 2]))
    assert found == SeedValue(7, Status.DONE, (value,))


def test_every_reduction_is_recorded_in_the_metrics_own_direction():
    curve = curve_of([4, 9, 1, 2, 3, 5, 7])
    assert judge().reductions(curve) == [("m", 70, 7.0, 9.0, 20, 18 / 5, 31 / 7)]
    smallest = [("m", 70, 7.0, 1.0, 30, 18 / 5, 31 / 7)]
    assert judge(direction="minimize").reductions(curve) == smallest
    assert judge().reductions(curve_of([4, math.nan])) == []
    assert judge().reductions(curve_of([])) == []
    assert Judge([Objective("wall_seconds")]).reductions(curve) == []


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("reduce", ["last", "best", "mean_last(1)"])
def test_a_value_that_is_not_finite_anywhere_on_the_curve_is_diverged(bad, reduce):
    found = judge(reduce).value(0, curve_of([1, bad, 2]))
    assert (found.status, found.values) == (Status.DIVERGED, ())


def test_missing_metrics_are_named():
    with pytest.raises(KeyError, match="m"):
        judge().value(0, curve_of([1], metric="other"))
    with pytest.raises(KeyError, match="m"):
        judge().value(0, curve_of([]))
    with pytest.raises(KeyError, match="kl"):
        judge(constraints=[Constraint("kl", max=1)]).value(0, curve_of([1]))


def test_costs_can_be_objectives_and_constraints_without_any_evaluation():
    rules = [Constraint("environment_steps", max=50)]
    both = Judge([Objective("wall_seconds", "best", "minimize")], rules)
    found = both.value(0, curve_of([], wall_seconds=3.0, environment_steps=70.0))
    assert (found.values, found.constraints) == ((-3.0,), (20.0,))
    assert both.value(0, curve_of([], environment_steps=70.0)).status is Status.DIVERGED


def test_constraints_are_read_at_the_last_evaluation():
    for bound, violation in (({"max": 3}, -2.0), ({"min": 3}, 2.0)):
        found = judge(constraints=[Constraint("m", **bound)]).value(0, curve_of([9, 1]))
        assert found.constraints == (violation,)


def test_a_constraint_on_a_metric_that_came_late_is_read_where_it_is():
    """A metric of training is lacking before the first update, and where an update has none."""
    points = tuple({"m": 1.0} | ({"kl": kl} if kl else {}) for kl in (None, 0.5, None))
    curve = dataclasses.replace(curve_of([1, 1, 1]), metrics=points)
    found = judge(constraints=[Constraint("kl", max=0.2)]).value(0, curve)
    assert found.constraints == (0.3,)


def test_segments_of_a_chain_are_one_curve_with_summed_cost():
    def outcome(name, steps, cost, status=Status.DONE):
        reports = tuple(Report(name, step, {"m": step / 10}) for step in steps)
        return Outcome(name, status, steps[-1], reports, {"environment_steps": cost})

    curve = join([outcome("0.0", [10, 20], 20.0), outcome("1.0", [30], 10.0, Status.STOPPED)])
    cut = join([outcome("0.0", [10, 15], 15.0), outcome("1.0", [20, 30], 15.0)], without={15})
    assert cut.steps == curve.steps == (10, 20, 30)
    assert curve.steps == (10, 20, 30)
    assert list(curve.series("m")) == [1, 2, 3]
    assert curve.cost == {"environment_steps": 30.0}
    assert curve.status is Status.STOPPED


# -- best step ---------------------------------------------------------------------------------------------------------


def test_the_best_step_is_chosen_by_the_aggregate_over_seeds():
    curves = [curve_of([0, 10, 0, 4]), curve_of([0, 0, 0, 8])]
    assert judge("best").best_step(curves) == 40
    assert judge("best", aggregate="quantile(1.0)").best_step(curves) == 20
    assert judge("best", "minimize").best_step([curve_of([5, 1, 2]), curve_of([5, 4, 1])]) == 30
    assert judge("best").best_step([curve_of([1, 1, 1])]) == 10, "ties: the earliest"
    assert judge("last").best_step(curves) is None
    assert Judge([Objective("wall_seconds", "best")]).best_step(curves) is None
    assert judge("best").best_step([]) is None


@pytest.mark.parametrize(
    ("objectives", "one_step"),
    [
        ([Objective("m", "best")], True),
        ([Objective("m", "best"), Objective("k", "best", "minimize")], True),
        ([Objective("m", "last")], False),
        ([Objective("m", "best"), Objective("k", "auc")], False),
        ([Objective("m", "best"), Objective("wall_seconds", "best", "minimize")], False),
    ],
)
def test_runs_may_end_at_a_step_only_where_no_score_needs_what_comes_after(objectives, one_step):
    assert Judge(objectives).reads_one_step is one_step
    # The cost of a run is no curve: it is what it is at the end.
    assert Judge(objectives).chooses_step is (objectives[0].reduce == "best")


def test_reading_at_a_step():
    one = judge("best")
    assert one.at_step(0, curve_of([3, 9, 4]), 10).values == (3.0,)
    assert one.at_step(0, curve_of([3, 9, 4]), None).values == (9.0,)
    assert one.at_step(0, curve_of([3]), 30).values == (3.0,), "it stopped before"
    assert judge("best", "minimize").at_step(0, curve_of([3, 1, 4]), 30).values == (-4.0,)
    assert judge("auc").at_step(0, curve_of([3, 9]), 10).values == (6.0,), "chooses no step"
    assert one.at_step(0, curve_of([math.nan]), 10).status is Status.DIVERGED


# -- score -------------------------------------------------------------------------------------------------------------


def seeds(*values):
    return [
        SeedValue(n, Status.CRASH if v is None else Status.DONE, () if v is None else (v,))
        for n, v in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("aggregate", "value"),
    [("mean", 3.0), ("median", 2.5), ("iqm", 2.5), ("cvar(0.25)", 1.0), ("quantile(0.25)", 1.75)],
)
def test_aggregates(aggregate, value):
    event = judge(aggregate=aggregate).score(4, 100, seeds(1.0, 2.0, 3.0, 6.0), Worst())
    assert event.values == pytest.approx((value,))
    assert event.mean == (3.0,)
    assert event.spread == pytest.approx((np.std([1, 2, 3, 6], ddof=1),))
    assert (event.proposal, event.reached, event.n_seeds, event.resumable) == (4, 100, 4, True)


def worst_of(*pairs):
    worst = Worst()
    for reached, value in pairs:
        worst.observe(Scored(0, (value,), reached=reached))
    return worst


def test_worst_is_by_fidelity_else_the_nearest():
    worst = worst_of((10, 3.0), (10, 2.0), (100, 7.0), (100, 8.0))
    assert (worst.at(10), worst.at(100)) == ((2.0,), (7.0,))
    assert (worst.at(20), worst.at(90), worst.at(1000)) == ((2.0,), (7.0,), (7.0,))
    assert worst.at(55) == (2.0,), "ties: the lower fidelity"
    assert Worst().at(10) == ()


def test_penalties():
    assert judge().score(0, 10, seeds(5.0, None), worst_of((10, 1.0))).values == (3.0,)
    assert judge().score(0, 10, seeds(5.0, 9.0, None), Worst()).values == pytest.approx((19 / 3,))
    assert judge(penalty=-1.0).score(0, 10, seeds(5.0, None), worst_of((10, 1.0))).values == (2.0,)
    large = judge(direction="minimize", penalty=100.0).score(0, 10, seeds(-5.0, None), Worst())
    assert large.values == (-52.5,)
    failed = judge().score(0, 10, seeds(None, None), worst_of((10, 1.0)))
    assert failed == Failed(0, Status.CRASH, (1.0,))
    assert judge().score(0, 10, seeds(None), Worst()) == Failed(0, Status.CRASH, ())


def test_a_time_is_minimised_whatever_the_metrics_direction():
    up, down = judge("time_to(9)", horizon=100), judge("time_to(1)", "minimize", horizon=100)
    curve = curve_of([4, 9, 1, 2])
    assert [each.value(7, curve).values for each in (up, down)] == [(-20.0,), (-30.0,)]
    assert up.value(7, curve_of([4, 8.9])).values == (-200.0,), "never: worse than every time"
    assert up.at_step(7, curve, None).values == (-20.0,)
    assert [each.objectives[0].of_score for each in (up, down)] == ["minimize", "minimize"]
    # A run that failed has not reached its goal either, however good the worst told is.
    assert up.score(0, 40, seeds(-20.0, None), worst_of((40, -30.0))).values == (-110.0,)
    assert up.reductions(curve)[0][3:5] == (9.0, 20), "in the metric's own direction"


def test_several_objectives_are_penalised_each_by_its_own_worst():
    both = Judge([Objective("a"), Objective("b", direction="minimize")])
    worst = Worst()
    worst.observe(Scored(0, (1.0, -9.0), reached=10))
    worst.observe(Scored(1, (4.0, -20.0), reached=10))
    values = [SeedValue(0, Status.DONE, (3.0, -1.0)), SeedValue(1, Status.DIVERGED)]
    event = both.score(2, 10, values, worst)
    assert event.values == ((3 + 1) / 2, (-1 - 20) / 2)
    assert event.resumable is False


def test_a_stopped_seed_is_scored_but_not_resumable():
    event = judge().score(0, 10, [SeedValue(0, Status.STOPPED, (2.0,))], Worst())
    assert (event.values, event.resumable) == ((2.0,), False)


def test_constraints_are_averaged_over_the_seeds_that_did_not_fail():
    rule = judge(constraints=[Constraint("m", max=0)])
    values = [
        SeedValue(0, Status.DONE, (1.0,), (2.0,)),
        SeedValue(1, Status.DONE, (1.0,), (-4.0,)),
        SeedValue(2, Status.CRASH),
    ]
    assert rule.score(0, 10, values, Worst()).constraints == (-1.0,)


# -- ranking -----------------------------------------------------------------------------------------------------------

few = st.sampled_from([0.0, 1.0, 2.0])
events = st.lists(
    st.builds(
        Scored,
        proposal=st.integers(0, 6),
        values=st.tuples(few, few),
        spread=st.one_of(st.just(()), st.tuples(few, few)),
        n_seeds=st.integers(1, 2),
        reached=st.sampled_from([50, 100]),
        constraints=st.one_of(st.just(()), st.tuples(st.sampled_from([-1.0, 0.0, 1.0]))),
        mean=st.one_of(st.just(()), st.tuples(few, few)),
    )
    | st.builds(
        Failed, proposal=st.integers(7, 9), kind=st.just(Status.CRASH), values=st.just((0.0,))
    ),
    max_size=14,
)


def better(a, b):
    """Whether a is strictly better than b, clause by clause as the design says it."""
    infeasible = [max(0.0, sum(c for c in one.constraints if c > 0)) for one in (a, b)]
    clauses = [
        (-infeasible[0], -infeasible[1]),
        (a.reached, b.reached),
        (a.n_seeds, b.n_seeds),
        (a.values[0], b.values[0]),
        ((a.mean or a.values)[0], (b.mean or b.values)[0]),
        (-(a.spread or (0.0,))[0], -(b.spread or (0.0,))[0]),
        (-a.proposal, -b.proposal),
    ]
    return next(mine > theirs for mine, theirs in clauses if mine != theirs)


@settings(max_examples=examples(300))
@given(events)
def test_ranking_and_front_are_those_of_brute_force(log):
    ranking, latest = Ranking(), {}
    for event in log:
        ranking.observe(event)
        if isinstance(event, Scored):
            latest[event.proposal] = event
        unbeaten = [
            p
            for p, one in latest.items()
            if not any(better(o, one) for o in latest.values() if o is not one)
        ]
        assert ([] if ranking.best() is None else [ranking.best()]) == unbeaten
    assert len(ranking) == len(latest)
    order = ranking.ordered()
    assert sorted(order) == sorted(latest)
    assert all(better(latest[a], latest[b]) for a, b in pairwise(order))
    assert not order or order[0] == ranking.best()
    feasible = [one for one in latest.values() if all(c <= 0 for c in one.constraints)]
    top = [one for one in feasible if one.reached == max(other.reached for other in feasible)]
    front = [
        one.proposal
        for one in top
        if not any(
            o.values[0] >= one.values[0] and o.values[1] >= one.values[1] and o.values != one.values
            for o in top
        )
    ]
    assert ranking.front() == sorted(front)


def test_a_provisional_score_ranks_after_every_other_of_its_length():
    ranking = Ranking()
    for number, until in enumerate((100, 100, 50, 100, 100)):
        proposal = Proposal(Config({}), until, provisional=number in (1, 3))
        ranking.observe(Proposed(number, proposal))
    for number, value, reached in [(1, 9.0, 100), (3, 8.0, 100), (2, 99.0, 50)]:
        ranking.observe(Scored(number, (value,), n_seeds=3, reached=reached))
    assert ranking.ordered() == [1, 3, 2]
    ranking.observe(Scored(4, (5.0,), n_seeds=3, reached=100))
    ranking.observe(Scored(0, (1.0,), n_seeds=1, reached=100))
    assert ranking.ordered() == [4, 0, 1, 3, 2]


# -- bounds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_constraint_that_is_no_number_is_a_divergence(bad):
    """The objective is a number, and so is the other constraint."""
    bounds = [Constraint("kl", max=1), Constraint("m", max=99)]
    curve = Curve((10,), ({"m": 1.0, "kl": bad},), {}, Status.DONE)
    assert judge(constraints=bounds).value(0, curve).status is Status.DIVERGED
    assert judge(constraints=bounds).value(0, curve).message


def test_infeasibility_is_the_sum_of_what_is_broken():
    ranking = Ranking()
    for number, violations in enumerate([(0.6, -9.0), (0.25, 0.25), (0.3, 0.3), (-1.0, 0.0)]):
        ranking.observe(Scored(number, (9.0 - number,), constraints=violations, reached=100))
    assert ranking.ordered() == [3, 1, 0, 2]
    assert ranking.front() == [3]


# -- curves ------------------------------------------------------------------------------------------------------------


def test_costs_of_a_chain_add_up_but_for_the_peak():
    costs = (
        {"environment_steps": 10, "wall_seconds": 2.0, "peak_memory_mb": 7.0},
        {"environment_steps": 20, "wall_seconds": 1.0, "peak_memory_mb": 5.0},
    )
    parts = [Outcome(SegmentId(0, 0), Status.DONE, 10, cost=cost) for cost in costs]
    assert join(parts).cost == {
        "environment_steps": 30,
        "wall_seconds": 3.0,
        "peak_memory_mb": 7.0,
        "steps_per_second": 10.0,
    }


def test_the_first_objective_that_is_read_at_its_best_chooses_the_step():
    objectives = [
        Objective("wall_seconds", "best", "minimize"),
        Objective("m", "last"),
        Objective("a", "best"),
        Objective("b", "best"),
    ]
    points = (
        {"m": 1.0, "a": 0.0, "b": 5.0},
        {"m": 3.0, "a": 1.0, "b": 0.0},
        {"m": 9, "a": 0, "b": 0},
    )
    curve = Curve((10, 20, 30), points, {"wall_seconds": 4.0}, Status.DONE)
    several = Judge(objectives)
    assert several.best_step([curve]) == 20
    assert several.at_step(0, curve, 20).values == (-4.0, 9.0, 1.0, 0.0)


def test_a_proposal_fails_as_its_first_seed_did():
    failed = [
        SeedValue(0, Status.TIMEOUT, message="too slow"),
        SeedValue(1, Status.CRASH, message="no file"),
    ]
    assert judge().score(3, 10, failed, Worst()) == Failed(3, Status.TIMEOUT, (), "too slow")


# -- the rules of seeds ------------------------------------------------------------------------------------------------


def test_every_proposal_is_trained_with_all_seeds_unless_the_rule_says_otherwise():
    assert (Fixed((4, 5)).first, Fixed((4, 5)).full) == ((4, 5), (4, 5))
    for rule in (Racing, Adaptive):
        assert (rule((4, 5, 6)).first, rule((4, 5, 6)).full) == ((4,), (4, 5, 6))
        limited = rule((4, 5, 6, 7), 2, 3)
        assert (limited.first, limited.full) == ((4, 5), (4, 5, 6))
        assert limited.more(seeds(1.0), seeds(1.0)) == ()


@pytest.mark.parametrize(
    ("runs", "minimum", "confirmed", "explore"),
    [
        (100, 1, 0, 60.0),
        (10, 1, 0, 6.0),
        (10, 1, 5, 5.0),
        (3, 1, 0, 2.0),
        (1.5, 1, 0, 1.5),
        (0.5, 1, 0, 0.5),
        (3, 3, 0, 3.0),
        (2.5, 3, 0, 2.5),
    ],
)
def test_a_budget_pays_for_one_proposal_first(runs, minimum, confirmed, explore):
    rule = Adaptive(tuple(range(5)), minimum, share=0.4)
    assert rule.runs_to_explore(runs, confirmed) == explore
