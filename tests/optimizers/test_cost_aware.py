"""Cost-aware search: the front, continuation along it, costs that are known and costs that are predicted."""

import math

import numpy as np
import pytest
from driving import ask, proposed, tell
from refusals import expect_error
from scipy.stats import norm

from autorl.core.types import Config, Continue, Failed, Proposal, Proposed, Scored, Status
from autorl.optimizers import make
from autorl.optimizers.cost_aware import Candidate, CostAwareOptions, _targets
from autorl.space import load_space
from autorl.testing.optimizers import space_of

SPACE = space_of("continuous")
STEPS = (20, 30, 45, 67, 100)


def after(outcomes, **options):
    """An optimizer that has observed runs of (length, score)."""
    optimizer = built(**{"startup": 6, **options})
    for number, (until, score) in enumerate(outcomes):
        trained(optimizer, SPACE.from_unit(np.full(3, 0.1 + 0.05 * number)), until, score)
    return optimizer


def test_failures_and_infeasible_runs_are_never_on_the_front_and_rank_below_every_score():
    optimizer = after([(20, -50.0), (30, 2.0), (45, 2.0)])
    optimizer.observe(Proposed(3, ask(optimizer)))
    optimizer.observe(Failed(3, Status.CRASH, (9.0,)))
    tell(proposed(optimizer), 4, 9.0, reached=20, constraints=(0.1,))
    assert optimizer._front == [0, 1]
    values = _targets([optimizer.history[number] for number in range(5)], 0)[0]
    assert values[3] < values[4] < values[0] < values[1] == values[2]
    assert values.sum() == pytest.approx(0, abs=1.0)


def test_the_front_holds_what_no_run_of_at_most_its_cost_beats():
    optimizer = after([(100, 5.0), (20, 3.0), (45, 2.0), (30, 4.0), (20, 1.0), (67, 4.0)])
    assert optimizer._front == [1, 3, 0]
    assert sorted(optimizer.keeps()) == [1, 3], "a full run cannot be trained on"
    optimizer.observe(Scored(3, (2.5,), reached=30, n_seeds=2))
    assert optimizer._front == [1, 5, 0], "what a superseded score hid is on the front again"
    assert sorted(optimizer.keeps()) == [1], "5 was not kept meanwhile: its checkpoint is gone"


# -- the candidate that is taken, by hand ---------------------------------------------------------


def promised(optimizer, candidates, rng):
    """The logarithm of the expected improvement for the steps it costs, one after the other."""
    costly = optimizer.problem.n_objectives == 2
    scores = optimizer._model(0).belief
    front = [optimizer.history[number] for number in optimizer._front]

    def believed(belief, run):
        mean, sd = belief.at(optimizer._rows([run]))
        return float(mean[0]), float(sd[0])

    def paid(record):
        if costly:
            return math.asinh(-record.values[1])
        return math.log(record.proposal.until / 100)

    def cost_of(candidate):
        if not costly:
            return math.log(candidate.until / 100)
        model = optimizer._model(1)
        return model.centre + model.unit * believed(model.belief, candidate)[0]

    low, high = math.log(20 / 100), 0.0
    if costly:
        low, high = min(map(paid, front)), max(map(paid, front))
    width = max(high - low, 0.001) / 4 / 2  # half of the distance of two of five lengths
    aim = rng.uniform(low - width, high + width)
    promises = []
    for candidate in candidates:
        mean, sd = believed(scores, candidate)
        cost = cost_of(candidate)
        on_front = {record.id: believed(scores, record.proposal)[0] for record in front}
        cheaper = [on_front[record.id] for record in front if paid(record) <= cost + 1e-9]
        z = (mean - max(cheaper, default=min(on_front.values()))) / sd
        improvement = sd * (z * norm.cdf(z) + norm.pdf(z))
        unpaid = 1.0
        if candidate.parent is not None:
            unpaid -= optimizer.history[candidate.parent].proposal.until / candidate.until
        near = 0.5 * ((cost - aim) / width) ** 2
        promises.append(math.log(max(improvement, 1e-300)) - near - math.log(unpaid))
    return promises


def check_promise(optimizer, seed):
    """For a new configuration at every length, and the runs of the front trained on."""
    config = SPACE.from_unit(np.array([0.3, 0.25, 0.2]))
    new = [Candidate(config, until, None, "new") for until in STEPS]
    candidates = [*new, *optimizer._continuations()]
    promises = optimizer._promise(candidates, np.random.default_rng(seed))
    expected = promised(optimizer, candidates, np.random.default_rng(seed))
    np.testing.assert_allclose(promises, expected, rtol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_promise_is_the_improvement_on_the_front_for_the_steps_that_are_left(seed):
    optimizer = after([(100, 5.0), (20, 3.0), (45, 2.0), (30, 4.0), (20, 1.0), (67, 4.0)])
    optimizer.observe(Proposed(6, Proposal(config_of(6), 45)))
    assert {one.parent for one in optimizer._continuations()} == {1, 3}
    check_promise(optimizer, seed)


@pytest.mark.parametrize("costs", [(10.0, 300.0, 40.0), (300.0, 300.0, 500.0)])
def test_the_promise_by_costs_that_are_predicted(costs):
    """Scores rise and fall: the front is of two runs, or of one."""
    optimizer = built(n_objectives=2, startup=3)
    for number, (cost, score) in enumerate(zip(costs, (1.0, 3.0, 0.5), strict=True)):
        config = SPACE.from_unit(np.full(3, 0.1 + 0.2 * number))
        trained(optimizer, config, STEPS[2 + number], score, -cost)
    assert len(optimizer._front) == len({*costs} - {40.0, 500.0})
    check_promise(optimizer, 0)


def test_runs_are_rows_of_length_numbers_and_choices():
    space = space_of("conditional")
    optimizer = built(space)
    optimizer.steps = STEPS
    assert optimizer._encoding.n_numeric == 4
    config = space.config({"kind": "b", "x": 0.25, "b.width": 0.5})
    rows = optimizer._rows([Candidate(config, until, None, "") for until in (20, 45, 100)])
    assert rows[:, 0].tolist() == [0.0] * 3
    assert rows[:, 1] == pytest.approx([0.0, math.log(2.25) / math.log(5), 1.0])
    kinds = space.hyperparameters
    # What is inactive is at its default.
    inactive = [kinds[name].to_unit(kinds[name].default) for name in ("a.depth", "a.v.rate")]
    assert rows[0, 2:] == pytest.approx([0.25, *inactive, 0.5, 1.0, 0.0])
    assert optimizer._rows([]).shape == (0, 8)
    optimizer.steps = (100,)
    assert optimizer._rows([Candidate(config, 100, None, "")])[0, 1] == 0.0


def config_of(number):
    return SPACE.from_unit(np.random.default_rng(number).random(3))


def built(space=SPACE, horizon=100, **options):
    return make("cost_aware", space, horizon=horizon, **{"startup": 2, **options})


def trained(optimizer, config, until, *values, **more):
    number = len(optimizer.history)
    optimizer.observe(Proposed(number, Proposal(config, until)))
    optimizer.observe(Scored(number, values, **{"reached": until, **more}))


# -- lengths --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("horizon", "options", "steps"),
    [
        (1_000_000, {"lengths": 4, "shortest": 0.125}, (125_000, 250_000, 500_000, 1_000_000)),
        (1000, {"lengths": 3, "shortest": 0.01}, (10, 100, 1000)),
        (7, {"lengths": 2, "shortest": 0.5}, (4, 7)),  # rounded up
        (100, {"lengths": 3, "shortest": 1.0}, (100,)),
        (3, {"lengths": 2, "shortest": 0.001}, (1, 3)),
        (1, {}, (1,)),
    ],
)
def test_the_lengths_of_runs(horizon, options, steps):
    optimizer = built(horizon=horizon, **options)
    assert optimizer.steps == type(optimizer).cuts(horizon, CostAwareOptions(**options)) == steps


@pytest.mark.parametrize(
    ("budget", "count"), [(4.0, 2), (11.9, 2), (12.0, 3), (40.0, 10), (math.inf, 10)]
)
def test_a_start_up_has_two_proposals_at_least(budget, count):
    optimizer = make("cost_aware", SPACE, horizon=100, budget=budget)
    assert [number for number in range(99) if optimizer.blind(number)] == list(range(count))


def test_three_objectives_are_refused_at_their_key():
    assert expect_error("a score and a cost, got 3", built, n_objectives=3).key == "objective"


# -- the front, and what is kept --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "kept"), [({}, [0]), ({"resumable": False}, []), ({"reached": 19}, [])]
)
def test_a_run_of_the_front_is_kept_where_it_can_be_trained_on(more, kept):
    optimizer = built()
    trained(optimizer, config_of(0), 20, 1.0, **more)
    assert optimizer._front == [0]
    assert optimizer.keeps() == kept
    assert {one.parent for one in optimizer._continuations()} == set(kept)


def test_what_is_trained_is_kept_until_it_is_scored_and_its_parent_no_longer():
    optimizer = built()
    trained(optimizer, config_of(0), 20, 1.0)
    optimizer.observe(Proposed(1, Proposal(config_of(0), 45, Continue(0))))
    assert optimizer.keeps() == [1]
    assert optimizer._continuations() == [], "it is still trained"
    optimizer.observe(Scored(1, (0.5,), reached=45))
    assert optimizer._front == [0]
    assert optimizer.keeps() == [], "a run that nothing is gained by is not trained on"
    optimizer.observe(Proposed(2, Proposal(config_of(2), 100)))
    assert optimizer.keeps() == [], "a whole run"


# -- neighbours ------------------------------------------------------------------------------------------


def test_neighbours_keep_the_rules_and_are_new():
    sizes = {"n": "int(1, 6)", "m": "int(1, 6)"}
    space = load_space({"hyperparameters": sizes, "constraints": ["m <= n"]})
    optimizer = built(space, candidates=300, radius=0.5)
    for score, (n, m) in enumerate([(3, 3), (4, 2), (5, 1)]):
        trained(optimizer, Config(n=n, m=m), 100, float(score))
    neighbours = optimizer._neighbours(np.random.default_rng(0))
    pairs = {(one.config["n"], one.config["m"]) for one in neighbours}
    assert 10 < len(pairs) <= 18, "21 keep the rule, three of them were proposed"
    assert all(m <= n for n, m in pairs)
    assert not pairs & {(3, 3), (4, 2), (5, 1)}
    assert {(one.parent, one.origin) for one in neighbours} == {(None, "neighbour of proposal 2")}
