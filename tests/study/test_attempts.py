"""Attempts at segments: fences, who lives, and when lost workers are the segment's fault."""

import pytest

from autorl.core.types import SegmentId
from autorl.study.attempts import Attempts

FIRST, SECOND = SegmentId(0, 0), SegmentId(1, 0)


# -- fences ------------------------------------------------------------------------------------------------------------


def test_an_epoch_is_that_of_the_lease_but_never_one_that_was_used():
    attempts = Attempts(retries=1)
    epochs = []
    for of_lease in (None, 5, 3, None):
        attempts.begin_session(of_lease)
        epochs.append(attempts.epoch)
    assert epochs == [1, 5, 6, 7]


# -- losses ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retries", "losses", "at_fault"),
    [
        (3, "ab", False),
        (3, "abc", True),
        (3, "aaa", False),
        (3, "aaaa", True),
        (3, "aaabbb", False),
        (3, "aaaBC", False),
        (1, "abb", True),
        (0, "", False),
        (0, "a", True),
        (0, "A" * 20, False),
        (0, "ABC", False),
    ],
)
def test_three_hosts_or_one_too_often_make_a_segment_at_fault(retries, losses, at_fault):
    """Capitals are hosts that were preempted."""
    attempts = Attempts(retries=retries)
    for host in losses:
        attempts.count_loss(FIRST, host.lower(), preempted=host.isupper())
    assert attempts.at_fault(FIRST) is at_fault
    assert not attempts.at_fault(SECOND)
    counted = {host: losses.count(host) for host in losses if host.islower()}
    assert attempts._losses == ({FIRST: counted} if counted else {})
