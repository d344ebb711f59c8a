"""Which members of a front are tested: both ends, and evenly between."""

import pytest

from autorl.study.test_phase import spread

FRONT = [30, 31, 32, 33, 34, 35, 36]


@pytest.mark.parametrize(
    ("k", "chosen"),
    [
        (-1, []),
        (0, []),
        (1, [30]),
        (2, [30, 36]),
        (3, [30, 33, 36]),
        (4, [30, 32, 34, 36]),
        (7, FRONT),
        (99, FRONT),
    ],
)
def test_both_ends_and_evenly_between(k, chosen):
    assert spread(FRONT, k) == chosen


def test_an_empty_front_has_nothing_to_choose():
    assert spread([], 3) == []
