"""The history is a fold, and the base class checks what goes in and out."""

import numpy as np
import pytest

from autorl.core.types import Config, Done, Failed, Proposal, Proposed, Scored, Status, Wait
from autorl.optimizers import BaseOptimizer, History, NoOptions, find, make
from autorl.optimizers.base import equal_parts
from autorl.optimizers.registry import REGISTRY
from autorl.testing.optimizers import space_of

SPACE = space_of("continuous")
RNG = np.random.default_rng(0)


def proposal(x):
    return Proposal(Config(x=x, y=0.5, z=0.5), 10)


class Scripted(BaseOptimizer[NoOptions]):
    """Answers what it was given."""

    answer = None

    def _ask(self, rng):
        return self.answer


def scripted(answer):
    optimizer = Scripted(make("random", SPACE, horizon=10).problem, NoOptions())
    optimizer.observe(Proposed(0, optimizer.ask(RNG)))
    optimizer.answer = answer
    return optimizer


def test_history_keeps_the_latest_result_and_the_order_of_proposals():
    history = History()
    for event in [
        Proposed(0, proposal(0.1)),
        Proposed(3, proposal(0.2)),
        Proposed(4, proposal(0.3)),
        Scored(3, (1.0,)),
        Failed(0, Status.CRASH, (1.0,)),
        Scored(3, (2.0,), n_seeds=2),
    ]:
        history.observe(event)
    assert [record.id for record in history] == [0, 3, 4]
    assert list(history.pending) == [4]
    assert history[3].values == (2.0,)
    assert history[4].values == ()
    assert len(history) == 3


@pytest.mark.parametrize(
    "event",
    [
        Proposed(0, proposal(0.1)),
        Scored(7, (1.0,)),
        Scored(1, (float("inf"),)),
        Failed(1, Status.CRASH, (float("nan"),)),
    ],
)
def test_history_refuses_what_no_driver_sends(event):
    history = History()
    history.observe(Proposed(1, proposal(0.1)))
    with pytest.raises(AssertionError):
        history.observe(event)


@pytest.mark.parametrize(
    "answer", [Wait(), Proposal(Config(x=2.0, y=0.5, z=0.5), 10), Proposal(SPACE.default(), 11)]
)
def test_wrong_answers_are_caught(answer):
    optimizer = scripted(answer)
    optimizer.observe(Scored(0, (1.0,)))
    with pytest.raises(AssertionError, match="Scripted"):
        optimizer.ask(RNG)


def test_a_score_must_have_one_value_per_objective():
    with pytest.raises(AssertionError, match="2 values"):
        scripted(Done()).observe(Scored(0, (1.0, 2.0)))


def test_optimizers_whose_plan_would_lose_a_place_take_no_enqueued_configuration():
    refusing = {name for name in REGISTRY if not find(name).takes_enqueued}
    assert refusing == {"cmaes", "de", "dehb", "grid", "mf_pbt", "pb2", "pbt", "phases", "schedule"}
    for name, taken in (("grid", False), ("random", True)):
        assert make(name, SPACE, horizon=10, stop="median").takes_enqueued is taken


# -- the parts that are shared -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("horizon", "count", "ends"),
    [
        (100, 4, (25, 50, 75, 100)),
        (7, 2, (4, 7)),
        (3, 9, (1, 2, 3)),
        (1, 5, (1,)),
        (49, 49, tuple(range(1, 50))),  # 49 * (1 / 49) is no 1 in floats
    ],
)
def test_equal_parts_of_a_run(horizon, count, ends):
    assert equal_parts(horizon, count) == ends
