"""Which checkpoints can go, and when somebody looks: rules on made-up searches."""

from types import SimpleNamespace

import pytest

from autorl.core.types import SegmentId
from autorl.statistics.evaluation import Fixed
from autorl.study.open_proposals import Queue
from autorl.study.retention import Retention

TEST_SEED = 100


class Work:
    """Saved checkpoints, and what was collected of them."""

    def __init__(self, saved):
        self.saved = dict.fromkeys(saved)
        self.fresh = 0
        self.collected = []
        self.of_running = set()

    def head(self, proposal, seed):
        name = SegmentId(proposal, seed)
        return name if name in self.saved else None

    def continued(self):
        return self.of_running

    def collect(self, gone):
        self.collected.append(list(gone))


def search(saved=(), *, keep="incumbent", policy=None, ranked=(), longest=(), **more):
    """A search that has ranked some proposals, best first."""
    fields = {
        "spec": SimpleNamespace(
            keep=SimpleNamespace(checkpoints=keep),
            plan=SimpleNamespace(test=(TEST_SEED,)),
            test=SimpleNamespace(top=more.pop("top", 2)),
            adds_baseline=more.pop("adds_baseline", False),
        ),
        "judge": SimpleNamespace(constraints=more.pop("constraints", ())),
        "policy": policy or Fixed((0,)),
        "ranking": SimpleNamespace(ordered=lambda count=None: list(ranked)[:count]),
        "work": Work(saved),
        "default_runs": SimpleNamespace(longest=lambda: list(longest)),
        "finished": more.pop("finished", False),
    }
    assert not more
    return SimpleNamespace(**fields)


def retention(of, items=(), keeps=()):
    queue = Queue(lambda proposal: [proposal])
    for item in items:
        queue.append(item)
    of.queue = queue
    return Retention(of, SimpleNamespace(keeps=lambda: keeps), of.default_runs)


def names(*proposals, seed=0):
    return [SegmentId(proposal, seed) for proposal in proposals]


# -- when somebody looks -----------------------------------------------------------------------------------------------


def collected(saved, fresh, *, over=False, at_once=False, keep="none", **more):
    of = search(saved, keep=keep, **more)
    of.work.fresh = fresh
    retention(of).collect((), over=over, at_once=at_once)
    return of.work


@pytest.mark.parametrize(
    ("count", "fresh", "looks"), [(33, 1, False), (33, 2, True), (15, 0, True)]
)
def test_looking_waits_for_a_sixteenth_of_what_is_saved(count, fresh, looks):
    work = collected(names(*range(count)), fresh)
    assert work.collected == ([names(*range(count))] if looks else [])
    assert work.fresh == (0 if looks else fresh)


@pytest.mark.parametrize("now", [{"over": True}, {"at_once": True}])
def test_looking_does_not_wait_at_the_end_or_where_the_disk_is_full(now):
    assert collected(names(*range(64)), 1, **now).collected == [names(*range(64))]
