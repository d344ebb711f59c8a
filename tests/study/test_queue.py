"""Only what changed is looked at, and what is looked at is what looking at everything would find."""

import pytest
from study_support import RACING, small_spec
from test_batches import Drained

from autorl.statistics.evaluation import Racing
from autorl.study import Study

RACING = {**RACING, "budget": {"runs": 20}}
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
    heads = {work.head(item.proposal, seed) for item in driver.queue for seed in item.seeds}
    if isinstance(driver.policy, Racing):
        racing = {item.proposal for item in driver.queue}
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
    for item in study.driver.queue:
        for seed in item.seeds:
            study.driver.work.request(item.proposal, seed, None, "tuning")
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
    retention, compared, gone = driver.retention, [0], [0]
    collect, advance, complete = retention.collect, driver.advance, driver._next_complete

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
        if driver.queue and asynchronous:
            first = next((item for item in driver.queue if driver._complete(item)), None)
            assert complete() is first
        compare_retention(study._models())
        return segments

    retention.collect, driver.advance = collected, advanced
    study.run(executor=Drained(study.load) if keep == "top" else None)
    study.close()
    assert compared[0] >= 3
    assert gone[0] or name in ("racing", "constrained race"), "the comparison was of nothing"
