"""Sums over a study's segments: their bytes, fresh outcomes, heads and models."""

from pathlib import Path

import pytest
from scripted import Scripted, chain, full, study_with, toy_spec
from test_lineage import waiting_for

from autorl.core.types import SegmentId
from autorl.executors.worker import run_segment
from autorl.store.events import ProposalMade


def study_of(monkeypatch, *proposals, folder=None, **changes):
    changes = {"parallelism": 1, "keep": {"checkpoints": "lineage"}, **changes}
    script = Scripted(waiting_for(list(proposals)), keeps=lambda seen: range(len(proposals)))
    return study_with(monkeypatch, toy_spec(**changes), script, folder=folder)


def train(study, segment):
    return run_segment(study.load, segment, lambda report: None)


def test_folders_of_running_segments_are_not_looked_at_with_every_outcome(monkeypatch, tmp_path):
    study = study_of(monkeypatch, full(0.5), folder=tmp_path / "study")
    work = study.driver.work
    (segment,) = study.advance()
    now = 100.0
    monkeypatch.setattr("autorl.study.attempts.time.monotonic", lambda: now)
    assert work.bytes_saved(lately=True) == 0
    Path(segment.scratch).mkdir(parents=True)
    (Path(segment.scratch) / "part").write_bytes(b"x" * 7)
    now += 0.5
    assert work.bytes_saved(lately=True) == 0
    now += 1.0
    assert work.bytes_saved(lately=True) == 7
    (Path(segment.scratch) / "more").write_bytes(b"x" * 5)
    assert [work.bytes_saved(lately=True), work.bytes_saved()] == [7, 12]
    study.close()


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
    study.close()


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


# -- what a driver says of its search ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "anew"), [([], False), ([0], True), ([1], True), ([0, 1], True)]
)
def test_a_continuation_starts_anew_where_one_seed_left_no_checkpoint(monkeypatch, missing, anew):
    from dataclasses import replace

    proposals = chain(0.5, 40), chain(0.5, 100, 0)
    study = study_of(monkeypatch, *proposals, seeds={"tuning": 2, "test": 0})
    driver = study.driver
    assert driver._next.starts_anew(proposals[0]) is False
    segments = study.advance()
    assert driver._next.starts_anew(proposals[1]) is False, "nobody knows yet"
    for segment in segments:
        outcome = train(study, segment)
        if segment.seed in missing:
            outcome = replace(outcome, checkpoint=None)
        study.record(outcome)
    driver.settle()
    assert driver._next.starts_anew(proposals[1]) is anew


def test_what_a_proposal_is_predicted_to_cost_is_what_it_trains(monkeypatch):
    info = type(toy_spec().info(toy_spec().trainer))
    monkeypatch.setattr(
        info, "relative_cost", lambda self, trainer, env, config, start, until: until - start
    )
    proposals = chain(0.5, 40), chain(0.5, 100, 0), full(0.2)
    study = study_of(monkeypatch, *proposals)
    study.run()
    events = [recorded.event for recorded in study.store.events()]
    costs = [event.cost for event in events if isinstance(event, ProposalMade)]
    assert costs == [40.0, 60.0, 100.0]
