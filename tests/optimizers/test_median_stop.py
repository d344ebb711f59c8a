"""The median stopping rule: where runs are cut, which are stopped, and what the optimizer inside sees."""

from statistics import median

import numpy as np
import pytest

from autorl.optimizers import make
from autorl.optimizers._cut_runs import CutRun
from autorl.optimizers.median_stop import RungValues, average
from autorl.testing.optimizers import space_of
from autorl.testing.simulation import simulate
from autorl.types import Failed, Proposed, Scored, Status

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


def test_nothing_is_stopped_within_the_grace_period():
    scores = {0: 1.0, 4: 2.0, 8: 0.5, 10: 3.0}
    simulation = simulate(factory(grace=1), by_first(scores), 14)
    assert chains(simulation)[8] == [25, 50]


def test_a_continuation_resumes_its_own_last_segment_with_the_same_configuration():
    simulation = simulate(factory(), lambda i, p: 0.0, 24, lag=3)
    proposals = simulation.proposals
    continued = [(i, p) for i, p in enumerate(proposals) if p.resume_from is not None]
    assert continued
    for number, proposal in continued:
        parent = proposals[proposal.resume_from]
        assert proposal.resume_from < number
        assert (proposal.config, proposal.until) == (parent.config, parent.until + 25)
        assert proposal.meta["rung"] == parent.meta["rung"] + 1


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


def test_a_run_waiting_to_be_continued_is_kept_and_the_last_segment_is_not():
    optimizer = factory(rungs=2)()
    optimizer.observe(Proposed(0, optimizer.ask(None)))
    optimizer.observe(Scored(0, (1.0,), reached=50))
    assert list(optimizer.keeps()) == [0]
    optimizer.observe(Proposed(1, optimizer.ask(None)))
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


def test_fewer_steps_for_the_same_result():
    """With scores that tell early, median stopping finds as good a run as without it in well under the steps."""

    def trained(simulation):
        proposals = simulation.proposals
        return sum(
            p.until - (0 if p.resume_from is None else proposals[p.resume_from].until)
            for p in proposals
        )

    def objective(number, proposal):
        return proposal.config["x"] * proposal.until / 100

    plain = simulate(lambda: make("sobol", SPACE, horizon=100, seed=1), objective, 32)
    stopped = simulate(
        lambda: make("sobol", SPACE, horizon=100, seed=1, stop="median", peers=3), objective, 160
    )
    configs = {p.config for p in stopped.proposals}
    assert {p.config for p in plain.proposals} <= configs
    assert stopped.best == plain.best
    assert trained(stopped) / len(configs) < 0.8 * trained(plain) / len(plain.proposals)


def by_rung(curves):
    def objective(number, proposal):
        return curves[proposal.meta.get("root", number)][proposal.meta["rung"]]

    return objective


def test_the_best_score_so_far_meets_the_running_averages():
    """At the second rung run 8 has 1.0 and had 2.0; the others' scores are 1.0 and 2.0, their averages 0.5 and 2.5."""
    curves = {0: (0.0, 1.0, 2.0, 3.0), 4: (3.0, 2.0, 1.0, 0.0), 8: (2.0, 1.0, 0.9, 0.8)}
    assert chains(simulate(factory(), by_rung(curves), 12))[8] == [25, 50, 75, 100]
    assert chains(simulate(factory(against="scores"), by_rung(curves), 10))[8] == [25, 50]
    assert chains(simulate(factory(against="scores"), by_rung(curves | {10: (0.0,) * 4}), 11))[
        8
    ] == [25, 50]


@pytest.mark.parametrize("lag", [1, 4])
def test_the_rule_is_viziers(lag):
    """Every decision of a search with random curves, taken again from its events by the definition."""
    drawn = np.random.default_rng(0).normal(size=(400, 4)).cumsum(axis=1)
    grace, peers = 1, 3
    objective = lambda i, p: drawn[p.meta.get("root", i), p.meta["rung"]]  # noqa: E731
    made = simulate(factory(peers=peers, grace=grace), objective, 120, lag=lag)
    proposals = {event.id: event.proposal for event in made.events if isinstance(event, Proposed)}
    root = {number: proposal.meta.get("root", number) for number, proposal in proposals.items()}
    continued = {proposal.resume_from for proposal in proposals.values()}
    settled = {event.proposal for event in made.events if isinstance(event, Scored)}
    curves, ended, decided = {}, set(), 0
    for event in made.events:
        if not isinstance(event, Scored):
            continue
        number, run = event.proposal, root[event.proposal]
        curves.setdefault(run, []).append(event.values[0])
        rung = proposals[number].meta["rung"]
        averages = [
            np.mean(curves[other][: rung + 1]) for other in ended if len(curves[other]) > rung
        ]
        stops = rung >= grace and len(averages) >= peers and max(curves[run]) < np.median(averages)
        if rung == 3 or stops:
            ended.add(run)
            assert number not in continued
        elif number in settled and number < 100:
            assert number in continued
        decided += bool(stops)
    assert decided > 5


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


def ended(optimizer, *scores):
    """Train runs to the end; all of each run's scores are the same."""
    for score in scores:
        for rung in range(4):
            number = len(optimizer.history)
            optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
            optimizer.observe(Scored(number, (score,), reached=25 * (rung + 1)))


def goes_on(optimizer, score):
    """Whether the next run is continued after its first rung."""
    number = len(optimizer.history)
    optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
    optimizer.observe(Scored(number, (score,), reached=25))
    return optimizer.ask(np.random.default_rng(99)).resume_from == number


@pytest.mark.parametrize("against", ["averages", "scores"])
@pytest.mark.parametrize(("score", "on"), [(1.5, True), (1.49, False), (9.0, True)])
def test_a_run_at_the_median_goes_on(against, score, on):
    optimizer = factory(against=against)()
    ended(optimizer, 1.0, 2.0)
    assert goes_on(optimizer, score) is on
    assert optimizer._runs[8].compared


@pytest.mark.parametrize(("peers", "on"), [(2, False), (3, True)])
def test_so_many_runs_must_be_there_to_compare_with(peers, on):
    optimizer = factory(peers=peers)()
    ended(optimizer, 1.0, 2.0)
    assert goes_on(optimizer, 0.0) is on
    assert optimizer._runs[8].compared is not on


def test_a_run_that_still_trains_is_compared_with_by_scores_alone():
    for against, on in (("averages", True), ("scores", False)):
        optimizer = factory(against=against, peers=1)()
        for number in range(2):
            optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
        optimizer.observe(Scored(0, (5.0,), reached=25))
        optimizer.observe(Scored(1, (1.0,), reached=25))
        assert (1 in optimizer._ready) is on


def test_the_average_of_a_run_is_of_all_its_rungs_so_far():
    run = CutRun(0, 0, scores={0: 1.0, 2: 6.0, 1: 2.0})
    assert [average(run, rung) for rung in range(4)] == [1.0, 1.5, 3.0, 3.0]


def test_a_later_score_changes_the_averages_from_its_rung_on():
    optimizer = factory()()
    ended(optimizer, 4.0)
    optimizer.observe(Scored(1, (0.0,), reached=50, n_seeds=2))
    assert [values.median_without(99) for values in optimizer._values] == pytest.approx(
        [4.0, 2.0, 8 / 3, 3.0]
    )


def test_what_failed_is_compared_with_where_it_had_a_score():
    optimizer = factory(peers=1)()
    optimizer.observe(Proposed(0, optimizer.ask(None)))
    optimizer.observe(Scored(0, (3.0,), reached=25))
    optimizer.observe(Proposed(1, optimizer.ask(None)))
    optimizer.observe(Failed(1, Status.CRASH, (-9.0,)))
    assert [values.count_without(99) for values in optimizer._values] == [1, 0, 0, 0]
    assert not goes_on(optimizer, 2.0)


def test_the_rule_of_earlier_versions():
    cls = type(factory()())
    assert cls.earlier_defaults(lambda: SPACE) == {"against": "scores"}
    assert cls.cuts(10, cls.Options(rungs=3)) == (4, 7, 10)
    assert factory()().outline() == ()
