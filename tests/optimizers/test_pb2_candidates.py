"""PB2 by its definitions: the density that is fitted, which candidate is taken, when a fit is reused."""

import math

import numpy as np
import pytest
from driving import told
from scipy.stats import multivariate_normal, norm

from autorl.core.types import Config, Continue, FrozenMap, Proposal, Proposed, Scored
from autorl.optimizers import _pb2_gp as gp
from autorl.optimizers import make
from autorl.optimizers.pb2 import Improvement
from autorl.space import load_space

UNIT = {"type": "float", "lower": 0.0, "upper": 1.0, "changeable": True}
SPACE = load_space(
    {
        "hyperparameters": {
            "x": UNIT,
            "size": {"type": "ordinal", "choices": [8, 16, 32, 64], "changeable": True},
            "kind": {"choices": ["plain", "deep"], "changeable": True},
            "depth": {"type": "int", "lower": 1, "upper": 4, "changeable": True},
            "fixed": {"type": "float", "lower": 0.0, "upper": 1.0},
            "net": {"choices": ["a", "b"]},
        },
        "conditions": {"depth": "kind == 'deep'"},
    }
)


def pb2(space=SPACE, **options):
    chosen = {"population": 4, "generations": 4, "ready": 0.0, "retrain": 0} | options
    return make("pb2", space, horizon=40, changeable=space.changeable, **chosen)


# -- the Gaussian process ---------------------------------------------------------------------------


def test_what_is_minimised_is_the_negative_log_posterior():
    """By SciPy's densities: a normal one of the values, and those of the logarithms."""
    rng = np.random.default_rng(0)
    points = np.column_stack([rng.integers(0, 3, 6), rng.random((6, 2)), rng.integers(0, 2, 6)])
    values = rng.normal(size=6)
    beliefs = gp.prior(1, 1)

    def density(logs):
        weights = np.exp(logs[:-2])
        covariance = np.empty((6, 6))
        for i, a in enumerate(points):
            for j, b in enumerate(points):
                gaps = [abs(a[0] - b[0]), (a[1] - b[1]) ** 2, (a[2] - b[2]) ** 2, a[3] != b[3]]
                covariance[i, j] = np.exp(logs[-2] - weights @ gaps)
        covariance += (np.exp(logs[-1]) + 1e-8) * np.eye(6)
        of_values = multivariate_normal(np.zeros(6), covariance).logpdf(values)
        return of_values + norm(beliefs.mean, beliefs.sd).logpdf(logs).sum()

    gaps = gp.distances(points, points, 1).reshape(4, -1)
    first, second = beliefs.mean, beliefs.mean + rng.normal(size=6)
    ours = [gp._negative_log_posterior(logs, gaps, values, beliefs)[0] for logs in (first, second)]
    # The densities have constants that the sum leaves out.
    assert ours[0] - ours[1] == pytest.approx(density(second) - density(first), rel=1e-9)


def test_what_is_noiseless_and_measured_twice_keeps_the_factor_apart():
    """Noise of e^-9 and 1e-8 more: equal points have a covariance that has a factor."""
    points = np.array([[0.0, 0.5, 0.3]] * 3)
    logs = [0.0, 0.0, 0.0, 5.0, -9.0]
    values = np.array([1.0, 1.0, 1.0])
    belief = gp.Posterior(logs, points, values, np.empty((0, 3)), 1)
    mean, sd = belief.at(points[:1])
    signal, noise = math.exp(5), math.exp(-9) + 1e-8
    assert mean[0] == pytest.approx(3 * signal / (3 * signal + noise), rel=1e-6)
    assert sd[0] ** 2 == pytest.approx(signal * noise / (3 * signal + noise), rel=1e-4)


def test_a_variance_that_rounding_makes_negative_is_a_trillionth():
    logs = [0.0, 0.0, 0.0, 0.0, -40.0]
    belief = gp.Posterior(logs, np.zeros((1, 3)), np.ones(1), np.empty((0, 3)), 1)
    object.__setattr__(belief, "_lower", np.array([[1.0 - 1e-9]]))
    assert belief.at(np.zeros((1, 3)))[1].tolist() == [1e-6]


@pytest.mark.parametrize(
    ("numbers", "categories", "weights"),
    [
        (1, 0, [0.3, 2.0, 8.0]),
        (0, 1, [0.3, 2.0, 1.0]),
        (1, 2, [0.3, 2.0, 8.0, 0.5, 0.5]),
        (8, 0, [0.3, 2.0, *[1.0] * 8]),
        (2, 1, [0.3, 2.0, 4.0, 4.0, 1.0]),
        (4, 2, [0.3, 2.0, *[2.0] * 4, 0.5, 0.5]),
        (0, 0, [0.3, 2.0]),
    ],
)
def test_prior_weights_of_few_and_many(numbers, categories, weights):
    made = gp.prior(numbers, categories)
    np.testing.assert_allclose(np.exp(made.mean), [*weights, 1.0, 0.1])
    assert made.sd.tolist() == [1.0, 1.0, *[1.5] * numbers, *[1.0] * categories, 1.0, 1.5]


def test_what_is_stored_of_a_fit_has_six_digits():
    """It goes into the events of a study, where the next session reads it back."""
    rng = np.random.default_rng(1)
    points = np.column_stack([rng.integers(0, 4, 9), rng.random((9, 2))])
    logs = gp.fit(points, rng.normal(size=9), 1)
    assert [type(value) for value in logs] == [float] * 5
    assert logs == tuple(float(f"{value:.6g}") for value in logs)


# -- what it is made of ------------------------------------------------------------------------------


def test_numbers_and_choices_are_those_that_may_change():
    optimizer = pb2()
    assert optimizer.numbers == ("x", "size", "depth")
    assert optimizer.categories == ("kind",)


def test_an_inactive_choice_has_no_part_in_the_weights():
    space = load_space(
        {
            "hyperparameters": {
                "kind": {"choices": ["plain", "deep"], "changeable": True},
                "way": {"choices": ["p", "q"], "changeable": True},
            },
            "conditions": {"way": "kind == 'deep'"},
        }
    )
    # Of the two that have a way, p was the better one: shares 1 and 0.
    seen = [
        Improvement(1, Config(kind="plain"), 0.5, 9.0),
        Improvement(1, Config(kind="deep", way="q"), 0.5, 1.0),
        Improvement(1, Config(kind="deep", way="p"), 0.5, 2.0),
    ]
    weights = pb2(space)._weights("way", seen)
    grown = np.array([math.exp(1), math.exp(-1)])
    assert weights == pytest.approx(0.9 * grown / grown.sum() + 0.05)


def test_a_start_whose_score_is_gone_is_taken_for_average():
    optimizer = pb2(quantile=0.0)
    told(optimizer, [1.0, 2.0, 3.0, 4.0], until=10)
    told(optimizer, [5.0, 6.0, 7.0, 8.0], first=4, until=20)
    levels = [one.level for one in optimizer._improvements()[4:]]
    assert levels == pytest.approx([0.0, 1 / 3, 2 / 3, 1.0])
    optimizer.observe(Scored(3, (4.0,), reached=10, resumable=False))
    assert [one.level for one in optimizer._improvements()[3:]] == [0.0, 0.5, 1.0, 0.5]


def test_improvements_are_in_the_order_of_their_proposals():
    """Asynchronous: member 0 is two generations ahead, and its improvements are not the latest."""
    optimizer = pb2(population=2, synchronous=False, quantile=0.0)
    config = SPACE.default()
    parents = {0: None, 1: None, 2: Continue(0), 3: Continue(2), 4: Continue(1)}
    generations = {0: 0, 1: 0, 2: 1, 3: 2, 4: 1}
    for number, parent in parents.items():
        meta = FrozenMap(generation=generations[number])
        member = "1" if number in (1, 4) else "0"
        until = 10 * (generations[number] + 1)
        optimizer.observe(Proposed(number, Proposal(config, until, parent, member, meta=meta)))
        optimizer.observe(Scored(number, (float(number),), reached=until))
    assert [one.generation for one in optimizer._improvements()] == [0, 0, 1, 2, 1]
    # Of 1: 2 - 0 and 4 - 1, whose median is 2.5; of 2: itself.
    gains = [one.gain for one in optimizer._improvements()]
    assert gains == [-0.5, 0.5, -0.5, 0.0, 0.5]


# -- when a fit is reused ----------------------------------------------------------------------------


def with_model(fitted, *, ahead):
    """Four members in generation 1; proposal 4 or, a generation ahead, 8 has a model."""
    optimizer = pb2(population=4, synchronous=False, quantile=0.0, refit=2)
    told(optimizer, [1.0, 2.0, 3.0, 4.0], until=10)
    for number in range(4, 9):
        generation = 1 if number < 8 else 2
        meta = {"generation": generation}
        if number == (8 if ahead else 4):
            meta |= {"model": [0.25] * 8, "fitted": fitted}
        parent = Continue(number - 4)
        proposal = Proposal(
            SPACE.default(), 10 * (generation + 1), parent, str(number % 4), meta=FrozenMap(meta)
        )
        optimizer.observe(Proposed(number, proposal))
    return optimizer


@pytest.mark.parametrize(("fitted", "reused"), [(1, True), (0, True), (-1, False)])
def test_a_fit_lasts_so_many_generations(fitted, reused):
    optimizer = with_model(fitted, ahead=False)
    logs, facts = optimizer._fitted(optimizer._improvements(), 1)
    assert (list(logs) == [0.25] * 8) is reused
    assert facts == (FrozenMap() if reused else FrozenMap(model=logs, fitted=1))


def test_a_member_behind_does_not_use_the_fit_of_those_ahead():
    optimizer = with_model(2, ahead=True)
    seen = optimizer._improvements()
    assert optimizer._fitted(seen, 1)[1]["fitted"] == 1
    assert optimizer._fitted(seen, 2)[1] == FrozenMap()


def test_the_latest_fit_is_that_of_the_latest_proposal():
    optimizer = with_model(1, ahead=False)
    meta = FrozenMap(generation=1, model=[0.75] * 8, fitted=1)
    proposal = Proposal(SPACE.default(), 20, Continue(0), "0", meta=meta)
    optimizer.observe(Proposed(9, proposal))
    assert list(optimizer._fitted(optimizer._improvements(), 1)[0]) == [0.75] * 8


# -- which candidate is taken ------------------------------------------------------------------------


def donor_of(optimizer, **values):
    """The best of a generation, with this configuration."""
    rng = np.random.default_rng(0)
    for number in range(4):
        config = SPACE.config(values) if number == 2 else SPACE.sample(rng)
        meta = FrozenMap(generation=0)
        optimizer.observe(Proposed(number, Proposal(config, 10, member=str(number), meta=meta)))
    for number, value in enumerate((1.0, 5.0, 3.0, 2.0)):
        optimizer.observe(Scored(number, (value,), reached=10))
    return optimizer.history[2]


def chosen(monkeypatch, rows, choices, **values):
    """Return the row taken of candidate rows (x, size, depth), and where they were to be drawn."""
    optimizer = pb2()
    donor = donor_of(optimizer, **values)
    asked = []

    def candidates(posterior, base, free, rng):
        asked.append((base.tolist(), list(free)))
        points = np.tile(base, (len(rows), 1))
        points[:, 2:5] = rows
        return points

    monkeypatch.setattr(optimizer, "_candidates", candidates)
    taken = optimizer._maximised(None, donor, 1, choices, np.random.default_rng(0))
    return taken, asked[0]


def test_the_first_candidate_that_is_another_configuration_is_taken(monkeypatch):
    """Rows in units: x, size (ordinal of four), depth (inactive)."""
    rows = [[0.25, 0.125, 0.5], [0.75, 0.375, 0.5], [0.5, 0.625, 0.5]]
    taken, (base, free) = chosen(monkeypatch, rows, {"kind": "plain"}, x=0.25, size=8, kind="plain")
    assert (taken["x"], taken["size"], taken["kind"], "depth" in taken) == (
        0.75,
        16,
        "plain",
        False,
    )
    assert free == [0, 1], "depth is inactive"
    # The donor is ahead of two of the three others.
    assert base == pytest.approx([1.0, 2 / 3, 0.25, 0.125, 0.5, 0.0])


def test_a_choice_that_is_drawn_makes_its_numbers_free(monkeypatch):
    rows = [[0.25, 0.125, 0.9]]
    taken, (base, free) = chosen(monkeypatch, rows, {"kind": "deep"}, x=0.25, size=8, kind="plain")
    assert (taken["kind"], taken["depth"]) == ("deep", 4)
    assert (free, base[-1]) == ([0, 1, 2], 1.0)
    assert (taken["fixed"], taken["net"]) == (SPACE.default()["fixed"], SPACE.default()["net"])


def test_where_every_candidate_is_the_donors_there_is_none(monkeypatch):
    rows = [[0.25, 0.125, 0.5]] * 3
    taken, _ = chosen(monkeypatch, rows, {"kind": "plain"}, x=0.25, size=8, kind="plain")
    assert taken is None


def test_choices_that_break_a_rule_are_the_donors_and_so_are_candidates_skipped():
    space = load_space(
        {
            "hyperparameters": {
                "x": UNIT,
                "kind": {"choices": ["p", "q"], "changeable": True},
                "net": {"choices": ["a", "b"]},
            },
            "forbidden": [{"kind": "q", "net": "a"}],
            "constraints": ["x <= 0.5"],
        }
    )
    optimizer = pb2(space)
    for number in range(4):
        config = Config(x=0.1 * number, kind="p", net="a")
        meta = FrozenMap(generation=0)
        optimizer.observe(Proposed(number, Proposal(config, 10, member=str(number), meta=meta)))
        optimizer.observe(Scored(number, (float(number),), reached=10))
    rows = [[1.0, 1.0, 0.9, 0.0], [1.0, 1.0, 0.4, 0.0]]
    optimizer._candidates = lambda *arguments: np.array(rows)
    donor = optimizer.history[3]
    rng = np.random.default_rng(0)
    taken = optimizer._maximised(None, donor, 1, {"kind": "q"}, rng)
    assert taken == Config(x=0.4, kind="p", net="a")


# -- whether there is a model -------------------------------------------------------------------------


def test_without_a_valid_candidate_the_donor_is_perturbed_and_the_fit_is_kept(monkeypatch):
    optimizer = pb2()
    told(optimizer, [1.0, 2.0, 3.0, 4.0], until=10)
    donor = optimizer.history[3]
    moved = SPACE.sample(np.random.default_rng(77))
    monkeypatch.setattr(optimizer, "_perturbed", lambda donor, rng: moved)
    monkeypatch.setattr(optimizer, "_maximised", lambda *arguments: None)
    config, facts = optimizer._explore(donor, 1, np.random.default_rng(0))
    assert (config, facts["fitted"]) == (moved, 1)
    monkeypatch.setattr(optimizer, "_maximised", lambda *arguments: SPACE.default())
    config, facts = optimizer._explore(donor, 1, np.random.default_rng(0))
    assert (config, facts["fitted"]) == (SPACE.default(), 1)
