"""The record of a study: typed rows of its tables, and one result for who runs and who reads it."""

import dataclasses
from types import SimpleNamespace

import pytest
from study_support import small_spec

from autorl.core.types import StudyError
from autorl.report.reading import open_view
from autorl.store import Store
from autorl.store.events import Candidate
from autorl.store.rows import Link, RunValue
from autorl.study import Study
from autorl.study.results.record import StudyRecord


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


def test_a_proposal_that_was_never_made_is_named():
    study = Study.in_memory(small_spec())
    study.run()
    record = StudyRecord(study.spec, study.store, None)
    assert record.candidate_steps(99) == Candidate("", 99)
    for ask in (record.lineage, record.until):
        with pytest.raises(StudyError, match="proposal 99 is not in this study"):
            ask(99)
    assert dataclasses.asdict(record.spent)["begun"] == record.tables.count_begun()


# -- rows made up ------------------------------------------------------------------------------------------------------


def record_of(spec=None, **rows):
    """A record whose tables give these rows, by the name of what is asked."""
    record = StudyRecord(spec or small_spec(), Store.in_memory(), None)
    answers = {
        name: answer if callable(answer) else lambda *asked, answer=answer: answer
        for name, answer in rows.items()
    }
    record.tables = SimpleNamespace(**answers)
    return record


CHAIN = {4: Link({}, 100, 3), 3: Link({}, 60, 1), 1: Link({}, 40, None)}


def test_an_optimizer_that_cannot_be_read_does_not_learn():
    spec = small_spec(optimizer="tpe")
    assert record_of(spec=spec).optimizer_learns
    section = spec.optimizer.model_copy(update={"name": "gone:Optimizer"})
    assert not record_of(spec=spec.model_copy(update={"optimizer": section})).optimizer_learns


MEASURED = [
    RunValue("test", 1, 5, 0.5),
    RunValue("test", 1, 10, 2.0),
    RunValue("test", 2, 5, 1.5),
    RunValue("test", 2, 10, 4.0),
    RunValue("test", 3, 5, 99.0),
    RunValue("tuning", 0, 10, -50.0),
]


@pytest.mark.parametrize(("step", "mean"), [(None, 3.0), (10, 3.0), (9, 1.0), (5, 1.0), (4, None)])
def test_a_metric_of_tests_is_read_at_the_step_of_the_score(step, mean):
    """Run 3 failed."""
    succeeded = [SimpleNamespace(run_id=number) for number in (1, 2)]
    record = record_of(values=MEASURED, tested_runs=succeeded, link=CHAIN.__getitem__)
    record.candidate_steps = lambda proposal: Candidate("", 1, step)
    assert record.mean_of_tests(1, "kl") == mean


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        (MEASURED, (2.0 + 4.0 + 99.0) / 3),
        (MEASURED[-1:], -50.0),
        ([RunValue("tuning", 0, 0, 7.0), RunValue("tuning", 1, 1, 3.0)], 3.0),
        ([RunValue("test", 0, 0, 7.0), RunValue("tuning", 1, 5, 3.0)], 3.0),
        ([], None),
    ],
)
def test_a_metric_at_the_end_is_of_test_runs_if_there_are_any(values, mean):
    record = record_of(values=values, link=CHAIN.__getitem__)
    record.candidate_steps = lambda proposal: Candidate("", 4)
    assert record.mean_at_end(4, "kl") == mean
