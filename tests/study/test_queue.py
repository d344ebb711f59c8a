"""Only what changed is looked at, and what is looked at is what looking at everything would find."""

import pytest
from study_support import run_small, small_spec, table
from test_batches import Drained

from autorl.statistics.evaluation import Racing
from autorl.study import Study
from autorl.study.open_proposals import Item, Queue

RACING = {
    "evaluation": {"seeds": "racing", "min": 1, "max": 3},
    "seeds": {"tuning": 3, "test": 2},
    "budget": {"runs": 20},
}
STUDIES = {
    "asha": {"optimizer": {"name": "asha", "rungs": 3}, "budget": {"runs": 10}},
    "hyperband": {"optimizer": {"name": "hyperband", "rungs": 3}, "budget": {"runs": 10}},
    "pbt": {
        "optimizer": {"name": "pbt", "generations": 4, "population": 4, "retrain": 0},
        "budget": {"runs": 16},
    },
    "racing": RACING,
    "racing asha": {**RACING, "optimizer": {"name": "asha", "rungs": 3}},
    "constrained race": {**RACING, "constraints": [{"metric": "environment_steps", "max": 1000}]},
    "failing": {"trainer": {"crash": 0.2}, "optimizer": {"name": "asha", "rungs": 3}},
}
KEEP = ["none", "incumbent", "top", "lineage"]


def brute_force(study, models, *, tests):
    """Return the checkpoints that can go, by looking through every item and every checkpoint."""
    driver = study.driver
    work, keep = driver.work, study.spec.keep.checkpoints
    heads = {work.head(item.proposal, seed) for item in driver._queue for seed in item.seeds}
    if isinstance(driver.policy, Racing):
        racing = {item.proposal for item in driver._queue}
        racing.update(driver.ranking.ordered(None if driver.judge.constraints else 1))
        heads.update(work.head(number, seed) for number in racing for seed in driver.policy.full)
    needed = set()
    if keep != "none" or not driver.finished:
        needed.update(study.optimizer.keeps())
    if keep == "incumbent":
        needed.update(driver.ranking.ordered(1))
    elif keep == "top":
        needed.update(driver.ranking.ordered(max(1, study.spec.test.top)))
    if study.spec.adds_baseline and not driver.finished:
        needed.update(driver.default_runs.longest()[:1])
    stay = {*heads, *models, *work._regained, *work._parents_in_flight()}
    spared = () if tests else set(study.spec.plan.test)
    return [
        segment
        for segment in work.saved
        if segment not in stay and segment.proposal not in needed and segment.seed not in spared
    ]


def ready_by_brute_force(study):
    """Have every item of the queue requested: what it hands out beyond what was."""
    for item in study.driver._queue:
        for seed in item.seeds:
            study.driver.work.request(item.proposal, seed, "tuning")
    return study.driver.work._ready


@pytest.mark.parametrize(
    ("name", "keep", "asynchronous"),
    [
        *((name, keep, False) for name in STUDIES for keep in KEEP),
        *((name, "incumbent", True) for name in STUDIES),
    ],
)
def test_changes_tell_what_a_look_at_everything_does(tmp_path, name, keep, asynchronous):
    changes = {**STUDIES[name], "keep": {"checkpoints": keep}, "asynchronous": asynchronous}
    study = Study.create(small_spec(**changes), tmp_path / "s")
    driver = study.driver
    retention, compared, gone = driver._retention, [0], [0]
    collect, advance, complete = driver.collect, driver.advance, driver._next_complete

    def compare_retention(models):
        for tests in (False, True):
            left = retention.unneeded(models, tests=tests)
            assert left == brute_force(study, models, tests=tests)
            gone[0] += len(left)

    def collected(models=(), **options):
        compare_retention(models)
        collect(models, **options)
        compared[0] += 1

    def advanced():
        segments = advance()
        assert ready_by_brute_force(study) == []
        if driver._queue and asynchronous:
            first = next((item for item in driver._queue if driver._complete(item)), None)
            assert complete() is first
        compare_retention(study._models())
        return segments

    driver.collect, driver.advance = collected, advanced
    study.run(executor=Drained(study.load) if keep == "top" else None)
    study.close()
    assert compared[0] >= 3
    assert gone[0] or name in ("racing", "constrained race"), "the comparison was of nothing"


def test_ten_thousand_items_are_not_walked_through():
    queue = Queue(lambda proposal: [proposal])
    for number in range(10_000):
        queue.append(Item(number, number, [0]))
    changes = queue.follow()
    assert len(changes.take()) == 10_000
    queue.touch([7, 9_000, 20_000])
    queue.remove(9_000)
    assert [(number, item and item.proposal) for number, item in changes.take()] == [
        (7, 7),
        (9_000, None),
    ]
    assert changes.take() == []
    assert [queue[0].proposal, queue[1].proposal, len(queue)] == [0, 1, 9_999]
    for number in range(5_000):
        queue.remove(number)
    assert queue[0].proposal == 5_000
    with pytest.raises(IndexError):
        queue[9_000]


def test_an_item_that_changes_while_it_is_looked_at_is_looked_at_again():
    queue = Queue(lambda proposal: [proposal])
    for number in range(3):
        queue.append(Item(number, number, [0]))
    changes = queue.follow()
    asked = []

    def second_is_complete(item):
        asked.append(item.proposal)
        if item.proposal == 0 and len(asked) == 1:
            queue.changed(item)
        return item.proposal == 1

    assert changes.first(second_is_complete).proposal == 1
    assert changes.first(second_is_complete).proposal == 1
    assert asked == [0, 1, 0, 1]


def test_an_item_is_trained_with_its_first_seeds_and_races_unless_it_says_otherwise():
    item = Item(4, [0, 1])
    assert (item.reference, item.upgrade, item.baseline, item.number) == ((), False, False, -1)
    queue = Queue(lambda proposal: [proposal])
    queue.append(Item(9, [0]))
    queue.append(item)
    assert item.number == 1
    assert item == Item(4, [0, 1]), "the number says where it is in a queue, no more"


def chained():
    """Items of 1, of 2, which continues 1, and once more of 1."""
    queue = Queue(lambda proposal: [1, 2][:proposal])
    changes = queue.follow()
    for proposal in (1, 2, 1):
        queue.append(Item(proposal, [0]))
    return queue, changes


def test_an_outcome_concerns_the_items_whose_chains_have_it():
    queue, changes = chained()
    assert [number for number, _ in changes.take()] == [0, 1, 2]
    queue.touch([2])
    assert [number for number, _ in changes.take()] == [1]
    queue.touch([1])
    assert [number for number, _ in changes.take()] == [0, 1, 2]
    queue.remove(1)
    assert [(number, item) for number, item in changes.take()] == [(0, None)]
    queue.touch([1])
    assert [number for number, _ in changes.take()] == [1, 2]


def test_a_proposal_is_in_the_queue_until_its_last_item_is_removed():
    queue, _ = chained()
    first, second = queue[0], queue[2]
    assert queue.first_of(1) is first
    queue.remove(1)
    assert queue.holds(1)
    assert queue.first_of(1) is second
    queue.remove(1)
    assert not queue.holds(1)
    assert [item.proposal for item in queue] == [2]
    queue.remove(1)
    queue.remove(7)
    assert len(queue) == 1
    queue.append(Item(1, [0]))
    assert queue.first_of(1).number == 3


def test_nothing_that_changed_holds():
    queue, changes = chained()
    assert changes.first(lambda item: False) is None
    assert changes.take() == [], "all were forgotten"
    queue.touch([2])
    queue.remove(2)
    assert changes.first(lambda item: True) is None, "it is in the queue no more"
    changes.add_all()
    assert [number for number, _ in changes.take()] == [0, 2]


def test_more_open_than_the_budget_has_gives_the_same_table(tmp_path):
    changes = {**STUDIES["racing asha"], "parallelism": 40}
    run_small(tmp_path / "a", **changes)
    study = Study.create(small_spec(**changes), tmp_path / "b")
    study.run(executor=Drained(study.load))
    study.close()
    assert table(tmp_path / "a") == table(tmp_path / "b")
