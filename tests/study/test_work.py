"""Sums over a study's segments: their bytes, fresh outcomes, heads and models."""

import pytest
from scripted import Scripted, chain, full, study_with, toy_spec
from test_lineage import waiting_for

from autorl.core.types import SegmentId
from autorl.executors.worker import run_segment


def study_of(monkeypatch, *proposals, folder=None, **changes):
    changes = {"parallelism": 1, "keep": {"checkpoints": "lineage"}, **changes}
    script = Scripted(waiting_for(list(proposals)), keeps=lambda seen: range(len(proposals)))
    return study_with(monkeypatch, toy_spec(**changes), script, folder=folder)


def train(study, segment):
    return run_segment(study.load, segment, lambda report: None)


def test_the_head_of_a_chain_is_its_last_segment_that_ended(monkeypatch, tmp_path):
    study = study_of(monkeypatch, chain(0.5, 40), chain(0.5, 100, 0), folder=tmp_path / "study")
    work = study.driver.work
    (first,) = study.advance()
    assert work.head(0, 0) is None
    study.record(train(study, first))
    (second,) = study.advance()
    assert work.head(1, 0) == SegmentId(0, 0)
    assert work.continued() == {SegmentId(0, 0)}
    assert work.model(1, 0, None) == SegmentId(1, 0)
    assert work.model(1, 0, 70) == SegmentId(1, 0, 70)
    assert work.model(1, 0, 40) == SegmentId(0, 0)
    study.record(train(study, second))
    assert (work.head(1, 0), work.head(0, 0)) == (SegmentId(1, 0), SegmentId(0, 0))
    assert work.continued() == set()


@pytest.mark.parametrize(
    ("keep", "test", "until", "saves"),
    [
        ("none", 0, 100, False),
        ("none", 0, 99, True),  # somebody may go on from it
        ("incumbent", 0, 100, True),
        ("incumbent", 1, 100, False),
        ("top", 1, 100, True),
        ("lineage", 1, 100, True),
    ],
)
def test_a_checkpoint_is_saved_where_somebody_may_need_it(monkeypatch, keep, test, until, saves):
    changes = {"keep": {"checkpoints": keep}, "seeds": {"tuning": 1, "test": test}}
    study = study_of(monkeypatch, chain(0.5, until), **changes)
    (segment,) = study.advance()
    assert segment.save is saves


@pytest.mark.parametrize(("keep", "saves"), [("none", False), ("incumbent", True), ("top", True)])
def test_models_of_test_runs_are_kept_unless_nothing_is(monkeypatch, keep, saves):
    changes = {"keep": {"checkpoints": keep}, "seeds": {"tuning": 1, "test": 1}}
    study = study_of(monkeypatch, full(0.5), **changes)
    (segment,) = study.advance()
    study.record(train(study, segment))
    (tested,) = study.advance()
    assert (tested.role, tested.save) == ("test", saves)
