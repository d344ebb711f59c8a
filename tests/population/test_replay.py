from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from population_helpers import CARTPOLE
from scipy import stats

from autorl.population import replay as memory

SEED = np.uint64(77)


@pytest.fixture(autouse=True)
def _plain_python_overflows_quietly():
    with np.errstate(over="ignore"):
        yield


def _filled(capacity, n, priorities=()):
    hp = SimpleNamespace(buffer_size=capacity, n_envs=1, n_steps=1, prioritized=len(priorities))
    replay = memory.new_replay(CARTPOLE, hp, np.float32)
    for i in range(n):
        row = memory.claim(replay)
        replay.rows[row] = i
        if len(priorities):
            memory.set_priority(replay, row, priorities[i])
    return replay


def test_the_ring_keeps_the_last_transitions():
    replay = _filled(5, 12)
    assert sorted(replay.rows[:, 0]) == [7, 8, 9, 10, 11]
    assert memory.size(replay) == 5
    assert memory.size(_filled(5, 3)) == 3


def test_uniform_draws_reach_every_written_row_alike():
    out = np.zeros(20_000, np.int64)
    memory.sample_uniform(_filled(100, 7), SEED, out)
    assert stats.chisquare(np.bincount(out, minlength=7)).pvalue > 1e-3


def test_priority_draws_are_proportional_and_weights_undo_them():
    priorities = np.array([1.0, 0.0, 3.0, 4.0, 2.0])
    out, weights = np.zeros(20_000, np.int64), np.zeros(20_000)
    replay = _filled(8, 5, priorities)
    assert replay.tree[1] == priorities.sum()
    memory.sample_by_priority(replay, SEED, 1.0, out, weights)
    np.testing.assert_allclose(
        np.bincount(out, minlength=5) / len(out), priorities / 10.0, atol=2e-3
    )
    np.testing.assert_allclose(weights, 1.0 / priorities[out])  # the rarest drawn row has weight 1
    memory.sample_by_priority(replay, SEED, 0.0, out, weights)
    assert (weights == 1.0).all()


def test_new_transitions_get_the_largest_priority_yet():
    replay = _filled(4, 3, (0.5, 7.0, 2.0))
    assert replay.tree[4 + memory.claim(replay)] == 7.0


@pytest.mark.parametrize("n", [0, 1, 6, 13])
def test_an_archive_holds_what_was_written_and_restores_the_rest(n):
    replay = _filled(9, n, np.random.default_rng(0).random(n) if n else ())
    small = memory.trimmed(replay)
    assert len(small.rows) == min(n, 9)
    again = memory.restored(small)
    for name, array in replay._asdict().items():
        assert np.array_equal(array, getattr(again, name)), name
