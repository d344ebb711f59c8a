"""Attempts at segments: who is heard, whose checkpoint counts, and when lost workers are a failure. Issue 16, Fencing."""

from dataclasses import replace
from pathlib import Path

import pytest
from scripted import Scripted, chain, full, listed, study_with, tables, toy_spec
from study_support import checkpoint_of, saved_segments
from test_lineage import waiting_for

from autorl.core.types import Fence, FrozenMap, Outcome, Report, SegmentId, Status
from autorl.executors import InProcess
from autorl.executors.worker import failure, run_segment
from autorl.report.reading import open_view
from autorl.report.status import status_dict
from autorl.store.checkpoints import damage
from autorl.store.events import OutcomeIgnored, SegmentLost, SessionBegun
from autorl.study.folder.safety import verify

HALVES = [chain(0.5, 50, member="a"), chain(0.5, 100, 0, "a"), full(0.3)]


def halves(monkeypatch, folder=None, trainer=None, script=HALVES, **changes):
    """A study whose first segment saves a checkpoint that the second continues."""
    return study_with(
        monkeypatch,
        toy_spec(parallelism=1, **changes),
        lambda: Scripted(waiting_for(script), keeps=lambda seen: range(len(script))),
        trainer,
        folder,
    )


def begin(study):
    """Begin a session, as `run` does."""
    study.journal.record(SessionBegun(FrozenMap()))


def train(study, segment):
    return run_segment(study.load, segment, lambda report: None)


def ignored(study):
    return [
        recorded.event
        for recorded in study.store.events()
        if isinstance(recorded.event, OutcomeIgnored)
    ]


def finish(study):
    """Train what is left, without another session."""
    while segments := study.advance():
        for segment in segments:
            study.record(train(study, segment))
    return tables(study)


def whole(monkeypatch, **changes):
    study = halves(monkeypatch, **changes)
    begin(study)
    return finish(study)


# -- what counts for nothing -------------------------------------------------------------------------------------------


def test_a_second_report_of_a_segment_is_noted_once_and_counts_for_nothing(monkeypatch, capsys):
    study = halves(monkeypatch)
    begin(study)
    (first,) = study.advance()
    outcome = train(study, first)
    for _ in range(3):
        study.record(outcome)
    assert ignored(study) == [OutcomeIgnored("0.0", 1, 0, "done")]
    study.record(replace(outcome, status=Status.CRASH))
    assert [event.status for event in ignored(study)] == ["done", "crash"]
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "autorl: segment 0.0: done from attempt 0 of session 1, which does not count (any more): ignored"
    ]
    assert finish(study) == whole(monkeypatch)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_late_worker_replaces_no_recorded_checkpoint(monkeypatch, tmp_path, when):
    """Its segment was given away, and it comes back before or after the other worker has ended."""
    study = halves(monkeypatch, tmp_path / "study")
    begin(study)
    (first,) = study.advance()
    study.record(failure(first, Status.LOST, "stopped", 0.0))
    (again,) = study.advance()
    assert (again.id, first.fence, again.fence) == ("0.0", Fence(1, 0), Fence(1, 1))
    late = train(study, first) if when == "before" else None
    outcome = train(study, again)
    if late is not None:
        study.record(late)
    study.record(outcome)
    if late is None:
        study.record(train(study, first))
    saved = study.driver.work.saved[SegmentId(0, 0)]
    assert saved.path == again.folder == str(tmp_path / "study" / "checkpoints" / "0.0-1-1")
    assert saved.files
    assert damage(Path(saved.path), saved.files) is None
    assert ignored(study) == [OutcomeIgnored("0.0", 1, 0, "done")]
    assert finish(study) == whole(monkeypatch)
    study.close()
    assert verify(tmp_path / "study").problems == []
    study = halves(monkeypatch, tmp_path / "study")
    assert checkpoint_of(tmp_path / "study", "0.0").name == "0.0-1-1", "the late one is swept"


def test_an_outcome_of_an_earlier_session_counts_for_nothing(monkeypatch, tmp_path):
    study = halves(monkeypatch, tmp_path / "study")
    begin(study)
    (first,) = study.advance()
    late = train(study, first)
    study.close()
    study = halves(monkeypatch, tmp_path / "study")
    begin(study)
    assert study.driver.work.attempts.epoch == 2
    (again,) = study.advance()
    assert again.fence == Fence(2, 0)
    assert again.folder != first.folder
    study.record(late)
    assert study.driver.work.outcome_of("0.0") is None
    assert ignored(study) == [OutcomeIgnored("0.0", 1, 0, "done")]
    study.record(train(study, again))
    assert study.driver.work.outcome_of("0.0").fence == Fence(2, 0)
    assert saved_segments(tmp_path / "study") == {"0.0"}, "what was left of session 1 is removed"
    assert finish(study) == whole(monkeypatch)


@pytest.mark.parametrize("name", ["99.0", "no segment\nat all"])
def test_an_outcome_of_no_segment_is_ignored(monkeypatch, tmp_path, capsys, name):
    study = halves(monkeypatch, tmp_path / "study")
    begin(study)
    study.record(Outcome(name, Status.DONE, 100))
    assert len(capsys.readouterr().err.splitlines()) == 1
    study.close()
    study = halves(monkeypatch, tmp_path / "study")
    (event,) = ignored(study)
    assert (event.epoch, event.attempt, event.status) == (0, 0, "done")
    assert finish(study) == whole(monkeypatch)


def test_reports_of_attempts_that_do_not_live_are_noted(monkeypatch):
    study = halves(monkeypatch)
    begin(study)
    (first,) = study.advance()
    work = study.driver.work
    assert work.take_report(Report(first.id, 50, {}, first.fence))
    assert ignored(study) == []
    assert not work.take_report(Report(first.id, 50, {}, Fence(1, 7)))
    assert not work.take_report(Report(first.id, 60, {}, Fence(1, 7)))
    assert ignored(study) == [OutcomeIgnored("0.0", 1, 7, "running")]


# -- backup copies -----------------------------------------------------------------------------------------------------


def copied(monkeypatch, folder):
    """A study with two live attempts at its first segment."""
    study = halves(monkeypatch, folder)
    begin(study)
    (first,) = study.advance()
    copy = study.driver.work.copy(first.id)
    assert study.advance() == [], "whoever asks for a copy submits it"
    return study, first, copy


@pytest.mark.parametrize("winner", [0, 1])
def test_the_first_good_outcome_wins_and_others_go(monkeypatch, tmp_path, winner):
    study, *attempts = copied(monkeypatch, tmp_path / "study")
    outcomes = [train(study, attempt) for attempt in attempts]
    study.record(outcomes[winner])
    work = study.driver.work
    (superseded,) = work.drain_superseded()
    assert superseded is attempts[1 - winner]
    assert work.drain_superseded() == []
    work.files.discard(superseded, late=True)
    assert saved_segments(tmp_path / "study") == {"0.0"}
    assert checkpoint_of(tmp_path / "study", "0.0") == Path(attempts[winner].folder)
    study.record(outcomes[1 - winner])
    assert [event.attempt for event in ignored(study)] == [1 - winner]
    assert work.outcome_of("0.0").fence == attempts[winner].fence
    assert finish(study) == whole(monkeypatch)


@pytest.mark.parametrize("fails", [Status.LOST, Status.TIMEOUT, Status.CRASH])
@pytest.mark.parametrize("first_to_fail", [0, 1])
def test_of_two_attempts_the_good_one_counts(monkeypatch, tmp_path, fails, first_to_fail):
    study, *attempts = copied(monkeypatch, tmp_path / "study")
    study.record(failure(attempts[first_to_fail], fails, "told to fail", 0.0))
    assert study.advance() == [], "the other one is still running"
    assert study.driver.work.outcome_of("0.0") is None
    study.record(train(study, attempts[1 - first_to_fail]))
    assert study.driver.work.outcome_of("0.0").status is Status.DONE
    assert finish(study) == whole(monkeypatch)


# -- lost workers ------------------------------------------------------------------------------------------------------


class Hosts(InProcess):
    """Loses the workers of segment 1.0 on these hosts, one after another; (host, preempted)."""

    def __init__(self, load, losses):
        super().__init__(load)
        self.losses = list(losses)

    def poll(self, timeout):
        if self._waiting and self._waiting[0].id == "1.0" and self.losses:
            host, preempted = self.losses.pop(0)
            lost = failure(self._waiting.popleft(), Status.LOST, f"{host} is gone", 0.0)
            return [replace(lost, host=host, preempted=preempted)]
        return super().poll(timeout)


def flat(monkeypatch, folder=None, retries=3):
    return study_with(
        monkeypatch,
        toy_spec(parallelism=1, failures={"retries": retries}),
        lambda: Scripted(listed(full(0.7), full(0.3), full(0.5))),
        folder=folder,
    )


@pytest.mark.parametrize(
    ("losses", "lost"),
    [
        ([("a", False), ("b", False), ("c", False)], True),
        ([("a", False)] * 3 + [("b", True), ("c", True)], False),
    ],
    ids=["three-hosts", "preempted-do-not-count"],
)
def test_three_hosts_or_one_too_often_lose_a_segment(monkeypatch, losses, lost):
    study, reference = flat(monkeypatch), flat(monkeypatch)
    pool = Hosts(study.load, losses)
    study.run(executor=pool)
    reference.run(executor=InProcess(reference.load))
    assert pool.losses == []
    assert study.driver.work.outcome_of("1.0").status is (Status.LOST if lost else Status.DONE)
    assert (tables(study) == tables(reference)) == (not lost)
    recorded = [event.event for event in study.store.events()]
    losses_recorded = [event for event in recorded if isinstance(event, SegmentLost)]
    assert [(event.host, event.preempted) for event in losses_recorded] == losses


def test_hosts_are_counted_over_restarts(monkeypatch, tmp_path):
    study = flat(monkeypatch, tmp_path / "study")
    begin(study)
    (first,) = study.advance()
    study.record(train(study, first))
    for host in ("a", "b"):
        (segment,) = study.advance()
        study.record(replace(failure(segment, Status.LOST, "gone", 0.0), host=host))
    study.close()
    study = flat(monkeypatch, tmp_path / "study")
    assert study.driver.work.attempts._losses == {"1.0": {"a": 1, "b": 1}}
    pool = Hosts(study.load, [("c", False), ("d", False)])
    study.run(executor=pool)
    assert study.driver.work.outcome_of("1.0").status is Status.LOST
    assert pool.losses == [("d", False)], "not tried again after the third host"


def test_a_segment_that_takes_down_workers_again_and_again_is_named(monkeypatch, tmp_path):
    study = flat(monkeypatch, tmp_path / "study")
    losses = [("a", False), ("b", True), ("b", True), ("a", False), ("a", False), ("b", False)]
    study.run(executor=Hosts(study.load, losses))
    study.close()
    view = open_view(tmp_path / "study")
    warnings = status_dict(view)["warnings"]
    view.close()
    named = [text for text in warnings if "took down" in text]
    assert named == ["segment 1.0 took down 3 workers of a, see logs/1.0.log"], (
        "preempted hosts do not count, nor does one lost worker"
    )


# -- folders -----------------------------------------------------------------------------------------------------------


def test_a_name_that_a_lost_part_of_the_log_has_given_is_not_given_again(monkeypatch, tmp_path):
    """A log put back from a copy counts its sessions again."""
    study = halves(monkeypatch, tmp_path / "study")
    study.advance()  # without a session: as if its event were in the lost part
    study.close()
    later = tmp_path / "study" / "checkpoints" / "0.0-1-0"
    later.mkdir(parents=True)
    study = halves(monkeypatch, tmp_path / "study")
    begin(study)
    (first,) = study.advance()
    assert Path(first.folder).name == "0.0-1-1"
    assert later.exists()
    study.record(train(study, first))
    assert not later.exists()
