"""Crash, timeout, out of memory, diverged, lost: what each costs and what goes on. DESIGN, contract 3."""

import errno
import os
import sqlite3
import time
from dataclasses import replace
from operator import attrgetter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Scripted, Shuffled, Toy, full, listed, run, study_with, tables, toy_spec
from study_support import small_spec

from autorl.core.types import Failed, Status, StorageError, StudyError
from autorl.executors.worker import NO_STORAGE
from autorl.study import Study
from autorl.study import study as studies
from autorl.study.several_studies import run_together

KINDS = [Status.CRASH, Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.DIVERGED]


def failing(ids, kind=Status.CRASH):
    """A trainer that fails in the segments named, and otherwise returns x."""
    return Toy(before=lambda segment: kind if segment.id in ids else None)


def run_listed(monkeypatch, xs, trainer, **changes):
    optimizer = Scripted(listed(*map(full, xs)))
    study = study_with(monkeypatch, toy_spec(**{"parallelism": 1, **changes}), optimizer, trainer)
    return run(study), optimizer, study


@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_proposal_is_told_with_its_kind_and_the_worst_score_so_far(monkeypatch, kind):
    result, optimizer, study = run_listed(monkeypatch, [0.7, 0.3, 0.9, 0.8], failing({"2.0"}, kind))
    assert optimizer.told[2] == Failed(2, kind, (0.3,), f"told to be {kind.value}")
    assert result.counts == {kind.value: 1, "scored": 3}
    assert study.store.query("SELECT status FROM runs WHERE run_id = 20000") == [(kind.value,)]


# -- lost --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_lost_is_retried_and_then_a_failure(monkeypatch, retries):
    trainer = failing({"1.0"}, Status.LOST)
    _, optimizer, study = run_listed(
        monkeypatch, [0.7, 0.3, 0.5], trainer, failures={"retries": retries}
    )
    assert [segment.id for segment in trainer.segments].count("1.0") == retries + 1
    assert optimizer.told[1] == Failed(1, Status.LOST, (0.7,), "told to be lost")
    assert study.store.query("SELECT COUNT(*) FROM event WHERE kind = 'attempt'") == [
        (retries + 1,)
    ]


def test_lost_once_leaves_the_table_as_if_nothing_had_happened(monkeypatch):
    found = []
    for lose in (False, True):
        lost = set() if lose else {f"{number}.0" for number in range(9)}

        def before(segment, lost=lost):
            known = segment.id in lost
            lost.add(segment.id)
            return None if known else Status.LOST

        _, optimizer, study = run_listed(
            monkeypatch, [0.7, 0.3, 0.5], Toy(before=before), parallelism=3
        )
        found.append((tables(study), optimizer.calls))
    assert found[0] == found[1]


# -- the study ends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag", [1, 2, 8])
@pytest.mark.parametrize("kind", [Status.CRASH, Status.TIMEOUT, Status.OUT_OF_MEMORY])
def test_three_failures_before_any_success_end_the_study(monkeypatch, lag, kind):
    optimizer = Scripted(lambda number, seen: full(number / 40))
    trainer = Toy(before=lambda segment: kind)
    study = study_with(
        monkeypatch, toy_spec(budget={"runs": 30}, parallelism=lag), optimizer, trainer
    )
    with pytest.raises(StudyError, match=f"3 proposals failed, the last with: told to be {kind}"):
        run(study)
    assert sorted(optimizer.told) == [0, 1, 2]


def test_a_study_whose_cause_of_crashes_was_removed_goes_on(tmp_path):
    broken = {"reported": "wrong"}

    def load(spec):
        return Toy(curve=lambda config, seed, step: {broken["reported"]: config["x"]})

    study = Study.create(toy_spec(), tmp_path / "study", load)
    for _ in range(2):
        with pytest.raises(StudyError, match=r"run 0.0 failed: .*'eval_return'.*reported wrong"):
            run(study)
        assert study.store.query("SELECT COUNT(*) FROM segments") == [(0,)]
        study.close()
        study = Study.open(tmp_path / "study", load)
    broken["reported"] = "eval_return"
    assert run(study).counts == {"scored": 8}, "the run that logged nothing is trained again"


def test_a_metric_that_is_missing_after_a_success_is_a_crash(monkeypatch):
    def curve(config, seed, step):
        return {"eval_return" if config["x"] < 0.15 else "wrong": config["x"]}

    optimizer = Scripted(listed(full(0.1), full(0.2), full(0.3)))
    study = study_with(monkeypatch, toy_spec(parallelism=1), optimizer, Toy(curve=curve))
    assert run(study).counts == {"crash": 2, "scored": 1}


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5])
def test_restarts_among_the_crashes_do_not_give_more_tries(tmp_path, stride):
    """Two crashes, a kill, a resume: the third crash ends the study as it would have without the kill."""

    def load(spec):
        return Toy(before=lambda segment: Status.CRASH)

    study = Study.create(toy_spec(parallelism=1, budget={"runs": 20}), tmp_path / "study", load)
    ended = False
    while not ended:
        for _ in range(stride):
            try:
                segments = study.advance()
            except StudyError:
                ended = True
                break
            for segment in segments:
                study.record(study.load(None).train(segment, lambda report: None))
        study.close()
        study = Study.open(tmp_path / "study", load)
    assert study.store.query("SELECT COUNT(*) FROM proposals") == [(3,)]


def test_nothing_scored_is_a_study_error(monkeypatch):
    optimizer = Scripted(listed(full(0.1), full(0.2)))
    trainer = Toy(before=lambda segment: Status.DIVERGED)
    for test_seeds in (0, 3):
        study = study_with(
            monkeypatch, toy_spec(seeds={"tuning": 1, "test": test_seeds}), optimizer, trainer
        )
        with pytest.raises(StudyError, match="no proposal was scored"):
            run(study)


def test_a_disk_that_fails_while_saving_is_tried_again_then_ends_the_session(tmp_path, monkeypatch):
    """Nothing is lost, and no configuration is charged."""
    pauses = []
    monkeypatch.setattr(studies, "PAUSES", (0.01, 0.02))
    clock = SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic)
    monkeypatch.setattr(studies, "time", clock)  # not of all modules: git is waited for in turns
    changes = {"keep": {"checkpoints": "lineage"}, "failures": {"retries": 3}}
    whole = Study.create(small_spec(**changes), tmp_path / "whole")
    run(whole)
    full_at = ["2.1", *["5.0"] * 4]  # one time, and once too often

    class Full(Shuffled):
        def poll(self, timeout):
            found = super().poll(timeout)
            if found and found[0].segment in full_at:
                full_at.remove(found[0].segment)
                message = f"{NO_STORAGE}: [Errno 28]"
                return [replace(found[0], status=Status.LOST, message=message, preempted=True)]
            return found

    study = Study.create(small_spec(**changes), tmp_path / "full")
    with pytest.raises(StudyError, match=rf"{NO_STORAGE}.*what was recorded is kept"):
        study.run(executor=Full(study.load, np.random.default_rng(0)))
    study.close()
    assert [pause for pause in pauses if pause] == [0.01, 0.01, 0.02, 0.02]
    study = Study.open(tmp_path / "full")
    study.run(executor=Full(study.load, np.random.default_rng(0)))
    assert tables(study) == tables(whole)
    assert study.driver.work.attempts._losses == {}
    assert study.store.query("SELECT COUNT(*) FROM event WHERE kind = 'attempt'") == [(4,)]


def answering(error):
    """A function or a connection that the disk answers with an error."""

    def called(*args):
        raise error

    return called


def stale(place):
    return OSError(errno.ESTALE, os.strerror(errno.ESTALE), place)


LOST = SimpleNamespace(
    execute=answering(sqlite3.OperationalError("disk I/O error")), in_transaction=False
)
HARMS = {
    "database": (("store", "_connection", LOST), StorageError, "disk I/O error.*autorl resume"),
    "checkpoints": (
        ("driver.work.files", "begin", answering(stale("study/checkpoints/0.0"))),
        StorageError,
        "answered 'Stale file handle' .*autorl resume",
    ),
    "user": (("driver.work.files", "begin", answering(stale("of/a/user"))), OSError, "of/a/user"),
}


@pytest.mark.parametrize(("harm", "error", "line"), HARMS.values(), ids=HARMS)
@pytest.mark.parametrize(
    "drive", [Study.run, lambda study: answering(run_together([study], 1)[0].error)()]
)
def test_a_disk_that_fails_the_driver_is_one_line(tmp_path, monkeypatch, harm, error, line, drive):
    monkeypatch.chdir(tmp_path)
    study = Study.create(small_spec(), tmp_path / "study")
    place, name, answer = harm
    monkeypatch.setattr(attrgetter(place)(study), name, answer)
    with pytest.raises(error, match=line):
        drive(study)
    monkeypatch.undo()
    study.close()
    study = Study.open(tmp_path / "study")
    run(study)


@settings(max_examples=15)
@given(
    fate=st.lists(st.sampled_from([None, None, *KINDS, Status.STOPPED]), min_size=12, max_size=12),
    penalty=st.sampled_from(["worst", -1.0]),
)
def test_every_failure_is_told_once_and_its_penalty_is_the_running_minimum(fate, penalty):
    """Against a fold written here: one seed, proposals in order."""
    xs = [(7 * number % 12) / 16 for number in range(12)]
    trainer = Toy(before=lambda segment: fate[int(segment.id.split(".")[0])])
    optimizer = Scripted(listed(*map(full, xs)))
    with pytest.MonkeyPatch.context() as patch:
        spec = toy_spec(parallelism=4, budget={"runs": 12}, failures={"penalty": penalty})
        study = study_with(patch, spec, optimizer, trainer)
        try:
            run(study)
        except StudyError:
            if fate[:3] != [Status.CRASH] * 3 and study.driver.ranking:
                assert "crashed" in str(optimizer.told)
    worst = ()
    for number, event in optimizer.told.items():
        if fate[number] is None or fate[number] is Status.STOPPED:
            assert event.values == (xs[number],)
            worst = (min([xs[number], *worst]),)
        else:
            assert event.values == ((penalty,) if penalty != "worst" else worst)
            assert event.kind is fate[number]
