"""The record of a study: typed rows of its tables, and one result for who runs and who reads it."""

import dataclasses
import sqlite3

import pytest
from study_support import small_spec

from autorl.report.reading import open_view
from autorl.store import Store
from autorl.store.tables import StudyTables
from autorl.study import Study
from autorl.study.record import CandidateSteps, StudyRecord
from autorl.types import StudyError


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": {"name": "asha", "rungs": 2}, "keep": {"checkpoints": "lineage"}},
        {
            "objective": [
                {"metric": "eval_return"},
                {"metric": "eval_length", "direction": "minimize"},
            ],
            "trainer": {"nan": {"above": {"x": 0.9}}},
        },
        {"objective": {"metric": "eval_return", "reduce": "best"}},
    ],
)
def test_who_runs_a_study_and_who_reads_its_folder_have_one_result(tmp_path, changes):
    study = Study.create(small_spec(**changes), tmp_path / "study")
    result = study.run()
    assert result.entries
    assert result == study.result()
    study.close()
    view = open_view(tmp_path / "study")
    assert view.result() == result
    view.close()


def test_a_study_that_has_recorded_nothing_has_no_rows():
    tables = StudyTables(Store.in_memory().query)
    assert tables.has_log()
    assert not tables.holds_events()
    assert (tables.last_event(), tables.newest_time(), tables.study_file()) == (None, None, None)
    assert (tables.sessions(), tables.hours(), tables.kinds()) == ([], 0.0, [])
    assert (tables.proposals(), tables.runs(), tables.segments()) == ([], [], [])
    assert tables.count_trained_anew("note") == (0, 0)
    assert not StudyTables.of(sqlite3.connect(":memory:")).has_log()


def test_rows_say_what_a_study_did():
    study = Study.in_memory(small_spec())
    study.run()
    tables = study.tables
    assert [row.proposal for row in tables.proposals(2)] == [0, 1]
    assert all(row.first == tables.introduced(row.proposal) for row in tables.proposals())
    assert {run.config_id for run in tables.runs()} == {config.first for config in tables.configs()}
    trained = tables.training_by("seed_role")
    by_role = {
        role: sum(run.environment_steps for run in tables.runs() if run.seed_role == role)
        for role in ("tuning", "test")
    }
    assert {role: taken.environment_steps for role, taken in trained.items()} == by_role
    best = study.result().incumbent.proposal
    assert tables.tests()
    assert {row.seed for row in tables.tests() if row.proposal == best} == set(study.spec.plan.test)
    study.close()


def test_a_proposal_that_was_never_made_is_named():
    study = Study.in_memory(small_spec())
    study.run()
    record = StudyRecord(study.spec, study.store, None)
    assert record.candidate_steps(99) == CandidateSteps()
    for ask in (record.schedule, record.until, lambda number: record.lineage([number])):
        with pytest.raises(StudyError, match="proposal 99 is not in this study"):
            ask(99)
    assert dataclasses.asdict(record.spent)["begun"] == record.tables.count_begun()
    study.close()
