"""The standing that `watch` and `best` read from the tables equals a replay of every event of the
study."""

import json

import pytest
from study_support import RACING, StoppedError, small_spec, stop_after

from autorl.report.formats import candidates
from autorl.report.reading import Replayed, open_view
from autorl.report.status import status_dict
from autorl.study import Study

CRASHING = {"crash": {"above": {"x": 0.8}}, "nan": {"below": {"x": 0.2}, "seeds": [1]}}
PBT = {"name": "pbt", "population": 4, "generations": 4}
RACING = {**RACING, "budget": {"runs": 30}}
KINDS = {
    "random": {},
    "racing": RACING,
    "racing with failures": {**RACING, "trainer": CRASHING},
    "pbt": {"optimizer": PBT, "budget": {"runs": 12}},
    "rungs": {"optimizer": {"name": "asha", "rungs": 3}, "keep": {"checkpoints": "lineage"}},
    "median": {
        "optimizer": {"name": "random", "stop": "median", "rungs": 3},
        "objective": {"metric": "eval_return", "reduce": "best"},
    },
    "failures": {"trainer": CRASHING},
    "two objectives": {
        "objective": [{"metric": "eval_return"}, {"metric": "eval_length", "direction": "minimize"}]
    },
    "constraints": {"constraints": [{"metric": "eval_return", "min": 0.9}]},
    "configurations": {"budget": {"configurations": 6}},
    "best": {"objective": {"metric": "eval_return", "reduce": "best"}},
    "no test": {
        "seeds": {"tuning": 2, "test": 0},
        "objective": {"metric": "eval_return", "reduce": "best"},
    },
    "minimized": {"objective": {"metric": "eval_return", "direction": "minimize"}},
}


def assert_same(folder):
    """Every fact, from the tables and from a driver that took every event."""
    view = open_view(folder)
    replayed = Replayed(view.spec, view.store, view.record.hours)
    driver, standing = replayed.driver, view.record
    order = driver.ranking.ordered()
    assert standing.tables.ranked() == order
    assert standing.tables.ranked(2) == order[:2]
    assert standing.best == driver.ranking.best()
    assert standing.front == driver.ranking.front()
    assert standing.spent == driver.budget.spent
    assert standing.candidates == replayed.tests.candidates
    assert standing.test_progress == replayed.tests.progress
    for number in order:
        scored = driver.ranking[number]
        assert standing.tables.ranked_seeds(number) == scored.n_seeds
        assert standing.tuning_score(number) == driver.judge.raw(scored.values)[0]
        assert standing.chosen_step(number) == (
            next(
                (one.step for one in replayed.tests.latest.values() if one.proposal == number), None
            )
            or driver.chosen_step(number)
        )
        assert standing.lineage(number).schedule(number) == driver.lineage.schedule(number)
        assert standing.lineage(number).root(number) == driver.lineage.root(number)
    roots = {driver.lineage.root(number): number for number in reversed(order)}
    assert len(standing.best_of_runs(len(order))) == len(roots)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_say_what_the_events_say(tmp_path, kind):
    """In the middle of the search, at its end, and extended."""
    folder = tmp_path / "study"
    study = Study.create(small_spec(**KINDS[kind]), folder)
    stop_after(study, 20)
    with pytest.raises(StoppedError):
        study.run()
    assert_same(folder)
    study.close()
    study = Study.open(folder)
    study.run()
    assert_same(folder)
    if kind not in ("configurations", "pbt"):
        study.extend(6)
        stop_after(study, 8)
        with pytest.raises(StoppedError):
            study.run()
        assert_same(folder)


def test_status_and_best_replay_no_events(tmp_path, monkeypatch):
    folder = tmp_path / "study"
    study = Study.create(small_spec(), folder)
    study.run()
    study.close()
    monkeypatch.setattr(Replayed, "__init__", None)
    view = open_view(folder)
    assert json.dumps(status_dict(view))
    assert len(candidates(view, 4)) == 4
