"""The grid is every valid combination once, in a fixed order."""

from itertools import product

import pytest

from autorl.optimizers import make
from autorl.testing.optimizers import SPACES, space_of
from autorl.testing.simulation import simulate


def grid(space, n=10_000, **options):
    return simulate(lambda: make("grid", space, horizon=1, **options), lambda i, p: 0.0, n)


def test_levels_are_evenly_spaced_with_both_bounds_and_the_default_is_not_repeated():
    simulation = grid(space_of("continuous"), levels=5)
    configs = [tuple(proposal.config.values()) for proposal in simulation.proposals]
    points = [0.0, 0.25, 0.5, 0.75, 1.0]
    assert simulation.done
    assert configs[0] == (0.75, 0.75, 0.75)
    assert configs[1:] == [point for point in product(points, repeat=3) if point != configs[0]]


def test_log_and_integer_levels_follow_the_scale():
    space = space_of("types")
    optimizer = make("grid", space, horizon=1, levels={"rate": 5, "layers": 9, "batch": 2})
    assert optimizer._levels["rate"] == pytest.approx((1e-5, 1e-4, 1e-3, 1e-2, 1e-1))
    assert optimizer._levels["layers"] == (1, 2, 3, 4)
    assert optimizer._levels["batch"] == (8, 1024)
    assert len(optimizer._levels["gamma"]) == 5
    assert optimizer._levels["fixed"] == (7,)
    assert optimizer._levels["net_arch"] == ((64,), (64, 64), (256, 256))


def test_conditional_spaces_have_no_duplicates():
    space = space_of("conditional")
    proposals = grid(space, levels=3).proposals
    assert len({proposal.config for proposal in proposals}) == len(proposals)
    # x (3) times (a, mode u: depth 3; a, mode v: depth 3 x rate 3; b: width 3), and the default, off the grid
    assert len(proposals) == 3 * (3 + 9 + 3) + 1
    assert set(SPACES["conditional"]["hyperparameters"]) == set().union(
        *(proposal.config for proposal in proposals)
    )


def test_points_are_the_same_in_any_order_of_access():
    optimizer = make("grid", space_of("continuous"), horizon=1, levels=2)
    points = list(optimizer._points())
    assert len(points) == 8
    for position in (0, 5, 2, 2, 3, 7, 0, 1):
        assert optimizer._point(position) == points[position]
    assert optimizer._point(8) is None
    assert optimizer._point(9) is None
    assert optimizer._point(6) == points[6]


def test_levels_are_whole_numbers_of_numeric_hyperparameters():
    optimizer = make("grid", space_of("continuous"), horizon=1, levels={"x": 1, "y": 2})
    levels = [optimizer._levels[name] for name in "xyz"]
    assert levels == [(0.5,), (0.0, 1.0), (0.0, 0.25, 0.5, 0.75, 1.0)]


def test_proposals_say_their_position():
    (_, first, second) = grid(space_of("continuous"), 3, levels=2).proposals
    assert [(one.origin, one.meta["position"]) for one in (first, second)] == [
        ("grid 0", 0),
        ("grid 1", 1),
    ]
