"""Cost-aware search where little is left: one or two lengths, ties, what is kept, what cannot be proposed."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm

from autorl.core.types import (
    Config,
    Continue,
    Failed,
    InputError,
    Proposal,
    Proposed,
    Scored,
    Status,
)
from autorl.optimizers import make
from autorl.optimizers.cost_aware import Candidate, CostAwareOptions, Encoding
from autorl.space import load_space
from autorl.testing.optimizers import space_of

SPACE = space_of("continuous")


def built(space=SPACE, horizon=100, **options):
    return make("cost_aware", space, horizon=horizon, **{"startup": 2, **options})


def config(number):
    return SPACE.from_unit(np.random.default_rng(number).random(3))


def trained(optimizer, until, score, parent=None, **more):
    number = len(optimizer.history)
    made = config(number) if parent is None else optimizer.history[parent].proposal.config
    link = None if parent is None else Continue(parent)
    optimizer.observe(Proposed(number, Proposal(made, until, link)))
    if score is None:
        optimizer.observe(Failed(number, Status.CRASH, ()))
    else:
        values = score if isinstance(score, tuple) else (score,)
        optimizer.observe(Scored(number, values, **{"reached": until, **more}))
    return number


# -- lengths --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("horizon", "options", "steps"),
    [
        (1_000_000, {"lengths": 4, "shortest": 0.125}, (125_000, 250_000, 500_000, 1_000_000)),
        (1000, {"lengths": 3, "shortest": 0.01}, (10, 100, 1000)),
        (100, {"lengths": 2, "shortest": 0.5}, (50, 100)),
        (100, {"lengths": 2}, (20, 100)),
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
    with pytest.raises(InputError, match="a score and a cost, got 3") as caught:
        built(n_objectives=3)
    assert caught.value.key == "objective"


# -- the front, and what is kept --------------------------------------------------------------------


def test_of_equal_scores_the_cheapest_is_on_the_front_and_of_those_the_first():
    optimizer = built()
    for until, score in [(45, 3.0), (20, 3.0), (20, 3.0), (20, 2.0), (100, 3.5), (100, 4.0)]:
        trained(optimizer, until, score)
    assert optimizer._front == [1, 5]


def test_of_equal_costs_the_better_one_is_on_the_front():
    optimizer = built(n_objectives=2)
    for score, cost in [(1.0, 5.0), (2.0, 5.0), (3.0, 9.0), (2.5, 7.0), (2.5, 8.0)]:
        trained(optimizer, 100, (score, -cost))
    assert optimizer._front == [1, 3, 2]


def test_a_constraint_that_is_just_met_is_feasible():
    optimizer = built()
    trained(optimizer, 20, 1.0, constraints=(0.0, -1.0))
    trained(optimizer, 30, 2.0, constraints=(0.5, -1.0))
    assert optimizer._front == [0]


@pytest.mark.parametrize(
    ("more", "kept"), [({}, [0]), ({"resumable": False}, []), ({"reached": 19}, [])]
)
def test_a_run_of_the_front_is_kept_where_it_can_be_trained_on(more, kept):
    optimizer = built()
    trained(optimizer, 20, 1.0, **more)
    assert optimizer._front == [0]
    assert optimizer.keeps() == kept
    assert {one.parent for one in optimizer._continuations()} == set(kept)


def test_what_is_trained_is_kept_until_it_is_scored_and_its_parent_no_longer():
    optimizer = built()
    trained(optimizer, 20, 1.0)
    optimizer.observe(Proposed(1, Proposal(config(0), 45, Continue(0))))
    assert optimizer.keeps() == [1]
    assert optimizer._continuations() == [], "it is still trained"
    optimizer.observe(Scored(1, (0.5,), reached=45))
    assert optimizer._front == [0]
    assert optimizer.keeps() == [], "a run that nothing is gained by is not trained on"
    optimizer.observe(Proposed(2, Proposal(config(2), 100)))
    assert optimizer.keeps() == [], "a whole run"


def test_a_run_is_trained_on_to_every_longer_length():
    optimizer = built()
    trained(optimizer, 30, 1.0)
    made = optimizer._continuations()
    assert made == [
        Candidate(config(0), until, 0, "proposal 0, trained on") for until in (45, 67, 100)
    ]


def test_failures_are_not_kept():
    optimizer = built()
    trained(optimizer, 20, None)
    assert (optimizer.keeps(), optimizer._front) == ([], [])


# -- the promise, with a model that is known -----------------------------------------------------------


class Aim:
    """A cost that is drawn: the share of the range, which is noted."""

    def __init__(self, share):
        self._share = share

    def uniform(self, low, high):
        self.range = (low, high)
        return low + self._share * (high - low)


def known(optimizer, monkeypatch, mean, deviation):
    """Predict the same everywhere."""

    def at(rows):
        return np.full(len(rows), mean), np.full(len(rows), deviation)

    model = SimpleNamespace(belief=SimpleNamespace(at=at), centre=0.0, unit=1.0)
    monkeypatch.setattr(optimizer, "_model", lambda objective: model)


@pytest.mark.parametrize(
    ("lengths", "half"), [(1, 0.0005), (2, math.log(5) / 2), (3, math.log(5) / 4)]
)
def test_costs_are_aimed_at_half_a_length_beyond_both_ends(monkeypatch, lengths, half):
    optimizer = built(lengths=lengths)
    trained(optimizer, 100, 1.0)
    known(optimizer, monkeypatch, 0.0, 2.0)
    low = math.log(optimizer.steps[0] / 100)
    drawn = Aim(0.25)
    candidates = [Candidate(config(9), until, None, "") for until in optimizer.steps]
    promise = optimizer._promise(candidates, drawn)
    assert drawn.range == pytest.approx((low - half, half))
    aim = drawn.range[0] + 0.25 * (drawn.range[1] - drawn.range[0])
    # As good as the best, within a deviation of 2: an improvement of 2 / sqrt(2 pi) is expected.
    level = math.log(2 * norm.pdf(0))
    expected = [
        level - 0.5 * ((math.log(until / 100) - aim) / half) ** 2 for until in optimizer.steps
    ]
    assert promise == pytest.approx(expected)


def test_what_was_paid_for_counts_for_a_run_that_is_trained_on(monkeypatch):
    optimizer = built()
    trained(optimizer, 20, 1.0)
    known(optimizer, monkeypatch, 0.0, 1.0)
    new = Candidate(config(0), 100, None, "")
    on = Candidate(config(0), 100, 0, "")
    first, second = optimizer._promise([new, on], Aim(0.5))
    assert second - first == pytest.approx(-math.log(80 / 100))


def test_far_below_the_front_a_promise_is_finite(monkeypatch):
    optimizer = built()
    trained(optimizer, 100, 1.0)
    rows = iter([(-1e9, 1e-3), (0.0, 1.0)])

    def at(queries):
        mean, deviation = next(rows)
        return np.full(len(queries), mean), np.full(len(queries), deviation)

    model = SimpleNamespace(belief=SimpleNamespace(at=at))
    monkeypatch.setattr(optimizer, "_model", lambda objective: model)
    aim = Aim(0.5)
    (promise,) = optimizer._promise([Candidate(config(5), 100, None, "")], aim)
    middle = (math.log(0.2) / 2) / (-math.log(0.2) / 8)
    assert promise == pytest.approx(math.log(1e-300) - 0.5 * middle**2)


# -- neighbours ------------------------------------------------------------------------------------------


def test_neighbours_keep_the_rules_and_are_new():
    space = load_space(
        {
            "hyperparameters": {
                "n": {"type": "int", "lower": 1, "upper": 6},
                "m": {"type": "int", "lower": 1, "upper": 6},
            },
            "constraints": ["m <= n"],
        }
    )
    optimizer = built(space, candidates=300, radius=0.5)
    for number, (n, m) in enumerate([(3, 3), (4, 2), (5, 1)]):
        proposal = Proposal(Config(n=n, m=m), 100)
        optimizer.observe(Proposed(number, proposal))
        optimizer.observe(Scored(number, (float(number),), reached=100))
    neighbours = optimizer._neighbours(np.random.default_rng(0))
    pairs = {(one.config["n"], one.config["m"]) for one in neighbours}
    assert 10 < len(pairs) <= 18, "21 keep the rule, three of them were proposed"
    assert all(m <= n for n, m in pairs)
    assert not pairs & {(3, 3), (4, 2), (5, 1)}
    assert {one.parent for one in neighbours} == {None}
    assert {one.origin for one in neighbours} == {"neighbour of proposal 2"}


def test_neighbours_are_of_every_run_of_the_front():
    optimizer = built(candidates=90)
    for until, score in [(20, 1.0), (45, 2.0), (100, 3.0)]:
        trained(optimizer, until, score)
    origins = [one.origin for one in optimizer._neighbours(np.random.default_rng(0))]
    assert len(origins) == 90
    counts = [origins.count(f"neighbour of proposal {number}") for number in range(3)]
    assert min(counts) >= 15, counts


# -- rows of the process -----------------------------------------------------------------------------------


def test_ordinals_are_numbers_and_what_has_one_value_is_left_out():
    space = space_of("types")
    encoding = Encoding(space)
    assert encoding.n_numeric == 5, "rate, gamma, layers, batch and width"
    config = space.config({"activation": "tanh", "net_arch": [256, 256], "width": 128})
    (row,) = encoding.rows([Candidate(config, 100, None, "")], (20, 100))
    kinds = space.hyperparameters
    numbers = [
        kinds[name].to_unit(config[name]) for name in ("rate", "gamma", "layers", "batch", "width")
    ]
    assert row.tolist() == pytest.approx([0.0, 1.0, *numbers, 1.0, 2.0, 0.0])
    assert row[6] == pytest.approx(7 / 8), "the last of four"


def test_the_first_length_of_all_is_zero_and_one_in_between_is_on_the_logarithm():
    encoding = Encoding(SPACE)
    runs = [Candidate(config(0), until, None, "") for until in (10, 100, 1000)]
    assert encoding.rows(runs, (10, 100, 1000))[:, 1] == pytest.approx([0.0, 0.5, 1.0])


# -- what is proposed --------------------------------------------------------------------------------------


def test_warm_starts_are_whole_runs_and_no_part_of_the_model():
    optimizer = built(initial=({"x": 0.25}, {"x": 0.5}))
    made = []
    for number in range(3):
        made.append(optimizer.ask(np.random.default_rng(number)))
        optimizer.observe(Proposed(number, made[-1]))
        optimizer.observe(Scored(number, (1.0,), reached=100))
    assert [one.until for one in made] == [100] * 3
    assert [one.origin for one in made] == ["default", "warm start", "warm start"]
    assert not any(one.informed for one in made)
    assert optimizer.ask(np.random.default_rng(9)).informed


def test_a_continuation_is_not_counted_as_a_configuration():
    optimizer = built(startup=3)
    trained(optimizer, 20, 1.0)
    trained(optimizer, 45, 2.0, parent=0)
    trained(optimizer, 100, 2.0, parent=1)
    assert not optimizer.ask(np.random.default_rng(9)).informed, "one of the start-up of three"
