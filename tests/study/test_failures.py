"""Crash, timeout, out of memory, diverged, lost: what each costs and what goes on. DESIGN, contract 3."""

import math
import os
import resource
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Scripted, Shuffled, Toy, full, listed, run, study_with, tables, toy_spec
from study_support import small_spec

from autorl.executors.worker import NO_SPACE, run_segment
from autorl.study import Study
from autorl.types import Failed, Outcome, Scored, Status, StudyError

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


def test_the_penalty_is_the_worst_at_the_time_it_is_told_not_later(monkeypatch):
    _, optimizer, _ = run_listed(monkeypatch, [0.7, 0.5, 0.1, 0.6], failing({"1.0", "3.0"}))
    assert optimizer.told[1].values == (0.7,)
    assert optimizer.told[3].values == (0.1,)


def test_the_penalty_of_a_minimised_metric_is_the_largest(monkeypatch):
    _, optimizer, study = run_listed(
        monkeypatch, [0.7, 0.3, 0.9], failing({"2.0"}), objective={"direction": "minimize"}
    )
    assert optimizer.told[2].values == (-0.7,), "optimizers always see larger is better"
    assert study.store.query("SELECT score FROM proposals WHERE proposal = 2") == [("[0.7]",)]


@pytest.mark.parametrize(("direction", "told"), [("maximize", -5.0), ("minimize", 5.0)])
def test_a_number_is_a_penalty_in_the_metrics_own_direction(monkeypatch, direction, told):
    _, optimizer, _ = run_listed(
        monkeypatch,
        [0.7, 0.3],
        failing({"0.0"}),
        failures={"penalty": -5.0},
        objective={"direction": direction},
    )
    assert optimizer.told[0].values == (told,)


def test_before_anything_was_told_a_failure_has_no_value(monkeypatch):
    _, optimizer, _ = run_listed(monkeypatch, [0.7, 0.3], failing({"0.0"}))
    assert optimizer.told[0] == Failed(0, Status.CRASH, (), "told to be crash")


def test_the_penalty_is_taken_at_the_same_fidelity(monkeypatch):
    script = [full(0.9, until=50), full(0.2, until=50), full(0.8), full(0.1)]
    optimizer = Scripted(listed(*script, full(0.3, until=50), full(0.3)))
    trainer = failing({"4.0", "5.0"})
    run(study_with(monkeypatch, toy_spec(parallelism=1), optimizer, trainer))
    assert optimizer.told[4].values == pytest.approx((0.1,)), "x = 0.2 at half the steps"
    assert optimizer.told[5].values == pytest.approx((0.1,)), "x = 0.1 at all of them"


def test_one_failed_seed_scores_the_penalty_and_makes_the_proposal_unresumable(monkeypatch):
    _, optimizer, _ = run_listed(
        monkeypatch,
        [0.4, 0.8],
        failing({"1.1"}),
        seeds={"tuning": 3, "test": 0},
        budget={"runs": 6},
    )
    event = optimizer.told[1]
    assert isinstance(event, Scored)
    assert event.values == pytest.approx(((0.8 + 0.4 + 0.8) / 3,))
    assert event.spread == pytest.approx((np.std([0.8, 0.4, 0.8], ddof=1),))
    assert (event.resumable, event.n_seeds) == (False, 3)
    assert optimizer.told[0].resumable


def test_a_failed_seed_before_anything_was_told_scores_the_worst_of_its_siblings(monkeypatch):
    trainer = failing({"0.2"})
    trainer.curve = lambda config, seed, step: config["x"] + seed
    _, optimizer, _ = run_listed(monkeypatch, [0.4], trainer, seeds={"tuning": 3, "test": 0})
    assert optimizer.told[0].values == pytest.approx(((0.4 + 1.4 + 0.4) / 3,))


def test_a_run_that_stopped_itself_is_scored_but_not_resumed(monkeypatch):
    _, optimizer, _ = run_listed(monkeypatch, [0.4, 0.8], failing({"1.0"}, Status.STOPPED))
    assert optimizer.told[1].values == (0.8,)
    assert not optimizer.told[1].resumable


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_metric_that_is_not_finite_is_diverged(monkeypatch, value):
    trainer = Toy(curve=lambda config, seed, step: value if config["x"] == 0.3 else config["x"])
    _, optimizer, study = run_listed(monkeypatch, [0.7, 0.3], trainer)
    assert optimizer.told[1].kind is Status.DIVERGED
    assert study.store.query("SELECT status FROM segments WHERE segment = '1.0'") == [("diverged",)]


def test_nan_in_the_middle_of_a_curve_is_diverged_although_the_last_value_is_fine(monkeypatch):
    trainer = Toy(
        curve=lambda config, seed, step: (
            math.nan if (config["x"], step) == (0.3, 50) else config["x"]
        )
    )
    _, optimizer, _ = run_listed(monkeypatch, [0.7, 0.3], trainer)
    assert optimizer.told[1].kind is Status.DIVERGED


def test_nan_in_a_metric_nobody_needs_is_kept_and_harmless(monkeypatch):
    trainer = Toy(curve=lambda config, seed, step: {"eval_return": config["x"], "kl": math.nan})
    result, _, study = run_listed(monkeypatch, [0.7, 0.3], trainer)
    assert result.counts == {"scored": 2}
    assert len(study.store.query("SELECT * FROM evals WHERE metric = 'kl'")) == 4


def test_a_missing_metric_is_a_crash_that_names_what_was_reported(monkeypatch):
    trainer = Toy(curve=lambda config, seed, step: {"loss": 1.0, "reward": 2.0})
    with pytest.raises(StudyError, match="'eval_return'; the trainer reported loss, reward"):
        run_listed(monkeypatch, [0.7, 0.3, 0.1, 0.2], trainer)


@pytest.mark.parametrize("constraints", [[], [{"metric": "kl", "max": 1.0}]])
def test_a_run_that_ends_before_its_first_evaluation_is_a_crash_that_says_so(
    monkeypatch, constraints
):
    def train(segment, report):
        return Outcome(segment.id, Status.STOPPED, segment.start)

    trainer = Toy()
    trainer.train = train
    with pytest.raises(StudyError, match="needs metric 'eval_return'; the trainer reported none"):
        run_listed(monkeypatch, [0.1] * 4, trainer, constraints=constraints)


def test_the_error_of_the_trainer_is_recorded(monkeypatch):
    def before(segment):
        if segment.id == "1.0":
            raise ZeroDivisionError("clip range is 0\nmore")

    _, optimizer, _ = run_listed(monkeypatch, [0.7, 0.3], Toy(before=before))
    assert optimizer.told[1].message == "ZeroDivisionError: clip range is 0"


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


def test_attempts_are_counted_over_restarts(monkeypatch, tmp_path):
    trainer = failing({"1.0"}, Status.LOST)

    def at():
        return study_with(
            monkeypatch,
            toy_spec(parallelism=1),
            lambda: Scripted(listed(full(0.1), full(0.2))),
            trainer,
            tmp_path / "s",
        )

    study = at()
    for _ in range(3):  # proposal 0, then two attempts at proposal 1
        for segment in study.advance():
            study.record(run_segment(study.load, segment, lambda report: None))
    study.close()
    study = at()
    result = run(study)
    assert [segment.id for segment in trainer.segments].count("1.0") == 4, "three retries in all"
    assert result.counts == {"lost": 1, "scored": 1}
    study.close()


# -- the study ends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag", [1, 2, 8])
@pytest.mark.parametrize("kind", [Status.CRASH, Status.TIMEOUT, Status.OUT_OF_MEMORY])
def test_three_failures_before_any_success_end_the_study(monkeypatch, lag, kind):
    optimizer = Scripted(lambda number, seen: full(number / 40))
    trainer = Toy(before=lambda segment: kind)
    study = study_with(
        monkeypatch, toy_spec(budget={"runs": 30}, parallelism=lag), optimizer, trainer
    )
    with pytest.raises(
        StudyError, match=f"first 3 proposals failed, the last with: told to be {kind}"
    ):
        run(study)
    assert sorted(optimizer.told) == [0, 1, 2]


def test_crashes_after_a_success_do_not_end_the_study(monkeypatch):
    optimizer = Scripted(lambda number, seen: full(number / 40))
    trainer = Toy(
        before=lambda segment: (
            Status.CRASH if int(segment.id.split(".")[0]) in {0, 1, 3, 4, 5} else None
        )
    )
    study = study_with(monkeypatch, toy_spec(), optimizer, trainer)
    assert run(study).counts == {"crash": 5, "scored": 3}


def test_runs_that_diverge_do_not_end_the_study(monkeypatch):
    """That is what configurations do, not a study that is wrong."""
    optimizer = Scripted(lambda number, seen: full(number / 40))
    trainer = Toy(
        before=lambda segment: Status.DIVERGED if int(segment.id.split(".")[0]) < 5 else None
    )
    assert run(study_with(monkeypatch, toy_spec(), optimizer, trainer)).counts == {
        "diverged": 5,
        "scored": 3,
    }


def test_a_study_whose_cause_of_crashes_was_removed_goes_on(tmp_path):
    broken = {"reported": "wrong"}

    def load(spec):
        return Toy(curve=lambda config, seed, step: {broken["reported"]: config["x"]})

    study = Study.create(toy_spec(), tmp_path / "study", load)
    with pytest.raises(StudyError):
        run(study)
    study.close()
    broken["reported"] = "eval_return"
    study = Study.open(tmp_path / "study", load)
    result = run(study)
    assert result.counts == {"crash": 3, "scored": 5}
    study.close()


def test_a_study_that_still_crashes_after_it_was_taken_up_ends_after_three_more(tmp_path):
    def load(spec):
        return Toy(before=lambda segment: Status.CRASH)

    study = Study.create(toy_spec(parallelism=1, budget={"runs": 20}), tmp_path / "study", load)
    for total in (3, 6):
        with pytest.raises(StudyError, match="first 3 proposals failed"):
            run(study)
        assert study.store.query("SELECT COUNT(*) FROM proposals WHERE status = 'crash'") == [
            (total,)
        ]
        study.close()
        study = Study.open(tmp_path / "study", load)
    study.close()


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
    study.close()


def test_nothing_scored_is_a_study_error(monkeypatch):
    optimizer = Scripted(listed(full(0.1), full(0.2)))
    trainer = Toy(before=lambda segment: Status.DIVERGED)
    for test_seeds in (0, 3):
        study = study_with(
            monkeypatch, toy_spec(seeds={"tuning": 1, "test": test_seeds}), optimizer, trainer
        )
        with pytest.raises(StudyError, match="no proposal was scored"):
            run(study)


def test_a_full_disk_while_saving_ends_the_session_and_loses_nothing(tmp_path):
    whole = Study.create(small_spec(keep={"checkpoints": "lineage"}), tmp_path / "whole")
    run(whole)
    full_at = {"2.1", "5.0"}

    class Full(Shuffled):
        def poll(self, timeout):
            found = super().poll(timeout)
            if found and found[0].segment in full_at:
                full_at.discard(found[0].segment)
                message = f"{NO_SPACE}: [Errno 28]"
                return [replace(found[0], status=Status.LOST, message=message)]
            return found

    study = Study.create(small_spec(keep={"checkpoints": "lineage"}), tmp_path / "full")
    for _ in range(2):
        with pytest.raises(StudyError, match=rf"{NO_SPACE}.*what was recorded is kept"):
            study.run(executor=Full(study.load, np.random.default_rng(0)))
        study.close()
        study = Study.open(tmp_path / "full")
    study.run(executor=Full(study.load, np.random.default_rng(0)))
    assert tables(study) == tables(whole)
    assert study.store.query("SELECT COUNT(*) FROM event WHERE kind = 'attempt'") == [(0,)], (
        "no retry was used up"
    )
    study.close()
    whole.close()


def test_a_real_file_size_limit_in_a_checkpoint_write_is_no_failure_of_the_configuration(tmp_path):
    """EFBIG is not ENOSPC: it is a crash, with its text; the study goes on."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            import signal

            study = Study.create(
                small_spec(keep={"checkpoints": "lineage"}, budget={"runs": 2}), tmp_path / "study"
            )
            segments = study.advance()
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))

            outcome = run_segment(study.load, segments[0], lambda report: None)
            code = (
                0 if outcome.status is Status.CRASH and "File too large" in outcome.message else 2
            )
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_store_that_cannot_be_written_ends_the_study_without_losing_what_it_has(tmp_path):
    study = Study.create(small_spec(), tmp_path / "study")
    segments = study.advance()
    trainer = study.load(segments[0].trainer)
    study.store._connection.execute("PRAGMA max_page_count = 1")  # as small as it already is
    outcomes = [(segment, trainer.train(segment, lambda report: None)) for segment in segments]

    def fill():
        for segment, outcome in outcomes * 200:
            work = study.driver.work
            if segment.id not in work.in_flight:
                work.attempts.begin(segment)
            study.record(outcome)

    with pytest.raises(StudyError, match=r"cannot be written .*; what was recorded is kept"):
        fill()
    recorded = study.store.query("SELECT MAX(seq) FROM event")
    study.close()
    with sqlite3.connect(tmp_path / "study" / "study.sqlite") as connection:
        assert connection.execute("SELECT MAX(seq) FROM event").fetchall() == recorded
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


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
            assert (
                fate[:3] == [Status.CRASH] * 3
                or not study.driver.ranking
                or "crashed" in str(optimizer.told)
            )
    worst = ()
    for number, event in optimizer.told.items():
        if fate[number] is None or fate[number] is Status.STOPPED:
            assert event.values == (xs[number],)
            worst = (min([xs[number], *worst]),)
        else:
            assert event.values == ((penalty,) if penalty != "worst" else worst)
            assert event.kind is fate[number]
