"""Outcomes of one poll and what follows from them are one transaction."""

import os
import sqlite3

import pytest
from study_support import follow, resume, run_small, small_spec, table
from test_kill import run_and_die

from autorl.core.types import SearchEnd, StudyError
from autorl.executors import InProcess
from autorl.store import Store, schema
from autorl.store.events import ProposalScored, SearchGivenUp, StudyFinished
from autorl.study import Study

SIGKILL = 9
CHANGES = {"optimizer": "tpe", "parallelism": 4, "budget": {"runs": 24}}


class Drained(InProcess):
    """All that was submitted is trained in one poll."""

    def poll(self, timeout):
        results = []
        while self._waiting:
            results += super().poll(timeout)
        return results


def die():
    os.kill(os.getpid(), SIGKILL)


def in_second_batch(moment):
    """Die around the transaction of the second poll of a session, which has several outcomes."""

    def prepare(study):
        write = study.store._write
        batches = []

        def deadly(entries):
            several = sum(entry.event.kind == "outcome" for entry in entries) > 1
            batches.extend([entries] if several else [])
            if len(batches) == 2 and moment == "before":
                die()
            if len(batches) == 2 and moment == "in":
                study.store._connection.set_trace_callback(
                    lambda sql: die() if sql.startswith("COMMIT") else None
                )
            write(entries)
            if len(batches) == 2 and moment == "after":
                die()

        study.store._write = deadly

        run = study.run
        study.run = lambda: run(executor=Drained(study.load))

    return prepare


ASHA = {"optimizer": {"name": "asha", "rungs": 3}, "parallelism": 4, "budget": {"runs": 8}}


@pytest.mark.parametrize(
    ("changes", "moment"), [(CHANGES, "before"), (ASHA, "in"), (CHANGES, "after")]
)
def test_killed_around_the_commit_of_several_outcomes(tmp_path, changes, moment):
    run_small(tmp_path / "whole", **changes)
    deaths = 0
    # Before its commit nothing of a second batch is durable: each session gets one batch further.
    while not run_and_die(tmp_path / "killed", changes, in_second_batch(moment)):
        deaths += 1
        assert deaths < 40
    assert deaths >= 2
    assert table(tmp_path / "killed") == table(tmp_path / "whole")


def commits_of(study, kinds):
    """The kinds of event in each transaction of a study, from now on."""
    write = study.store._write

    def noted(entries):
        kinds.append([entry.event.kind for entry in entries])
        write(entries)

    study.store._write = noted


def test_a_poll_is_one_transaction(tmp_path):
    study = Study.create(small_spec(**CHANGES), tmp_path / "s")
    kinds = []
    commits_of(study, kinds)
    study.run(executor=Drained(study.load))
    study.close()
    with_outcomes = [batch for batch in kinds if "outcome" in batch]
    assert with_outcomes[0].count("outcome") == 8  # 4 proposals, 2 seeds each
    assert with_outcomes[0].count("proposed") == 4
    # Before anything of a batch is durable nothing that follows from it is trained.
    assert all(batch.count("outcome") > 1 for batch in with_outcomes)
    run_small(tmp_path / "single", **CHANGES)
    assert table(tmp_path / "s") == table(tmp_path / "single")


def full_disk(study, monkeypatch):
    """Have the next batch with an outcome meet a full disk at its second scored proposal."""
    apply = schema.apply

    def full(connection, seq, event):
        if isinstance(event, ProposalScored) and event.scored.proposal == 1:
            raise sqlite3.OperationalError("database or disk is full")
        apply(connection, seq, event)

    monkeypatch.setattr(schema, "apply", full)


def test_a_batch_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    run_small(tmp_path / "whole", **CHANGES)
    study = Study.create(small_spec(**CHANGES), tmp_path / "s")
    submitted, told = [], []
    follow(study, lambda event: told.append(event.kind))
    executor = Drained(study.load)
    submit = executor.submit
    executor.submit = lambda segments: (submitted.extend(segments), submit(segments))
    full_disk(study, monkeypatch)
    with pytest.raises(StudyError, match=r"study.sqlite cannot be .*what was recorded is kept"):
        study.run(executor=executor)
    assert len(submitted) == 8, "nothing that follows from the lost batch was handed out"
    assert "outcome" not in told
    with pytest.raises(StudyError, match="open the study again"):
        study.journal.record(StudyFinished(SearchEnd.BUDGET))
    study.close()
    monkeypatch.undo()
    with sqlite3.connect(tmp_path / "s" / "study.sqlite") as connection:
        assert connection.execute("SELECT COUNT(*) FROM segments").fetchone() == (0,)
    resume(tmp_path / "s")
    assert table(tmp_path / "s") == table(tmp_path / "whole")


NOTE = SearchGivenUp("note")


def test_a_batch_in_a_batch_is_a_part_of_it_and_reads_see_what_was_recorded(tmp_path):
    store = Store.create(tmp_path / "s", "text", "")
    done = []
    with store.batch():
        store.append(NOTE)
        with store.batch():
            store.append(NOTE)
            store.when_durable(lambda: done.append(store.query("SELECT COUNT(*) FROM event")))
        assert not done
        assert store.query("SELECT COUNT(*) FROM event") == [(3,)]
        assert done == [[(3,)]]
        store.append(NOTE)
    assert store.query("SELECT COUNT(*) FROM event") == [(4,)]
    store.when_durable(lambda: done.append("at once"))
    assert done[-1] == "at once"
    store.close()
    Store.open(tmp_path / "s").close()
