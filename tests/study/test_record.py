"""The record of a study: typed rows of its tables, and one result for who runs and who reads it."""

import dataclasses
import sqlite3
from types import SimpleNamespace

import pytest
from study_support import small_spec

from autorl.core.types import SearchEnd, StudyError
from autorl.report.reading import open_view
from autorl.store import Store
from autorl.store.events import BudgetExtended, CandidatesFrozen, ModelsNamed, StudyFinished
from autorl.store.rows import ChargedRow, Link, ProposalCounts, RunValue
from autorl.store.tables import StudyTables
from autorl.study import Study
from autorl.study.results.record import CandidateSteps, StudyRecord, with_added_test_seeds


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
    assert not tables.kinds()
    assert (tables.last_event(), tables.newest_time()) == (None, None)
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


# -- rows made up ------------------------------------------------------------------------------------------------------


def record_of(hours_given=None, spec=None, **rows):
    """A record whose tables give these rows, by the name of what is asked."""
    record = StudyRecord(spec or small_spec(), Store.in_memory(), None, hours_given)
    answers = {
        name: answer if callable(answer) else lambda *asked, answer=answer: answer
        for name, answer in rows.items()
    }
    record.tables = SimpleNamespace(**answers)
    return record


@pytest.mark.parametrize(("direction", "score"), [("maximize", -4.0), ("minimize", 4.0)])
def test_a_tuning_score_is_in_the_metrics_own_direction(direction, score):
    spec = small_spec(objective={"direction": direction})
    assert record_of(spec=spec, ranked_value=-4.0).tuning_score(3) == score


@pytest.mark.parametrize(("ranked", "best"), [([], None), ([7], 7)])
def test_the_incumbent_is_the_first_of_the_ranking(ranked, best):
    asked = []
    record = record_of(ranked=lambda count: asked.append(count) or ranked)
    assert (record.best, asked) == (best, [1])


CHAIN = {4: Link({}, 100, 3), 3: Link({}, 60, 1), 1: Link({}, 40, None)}


@pytest.mark.parametrize(
    ("step", "link"), [(None, 4), (100, 4), (61, 4), (60, 3), (41, 3), (40, 1), (1, 1)]
)
def test_the_link_of_a_step_is_the_one_that_trains_through_it(step, link):
    assert record_of(link=CHAIN.__getitem__).link_at(4, step) == link


def test_a_proposal_is_charged_for_the_seeds_its_chain_was_given():
    """Tuning seeds 0 and 1 are the first ones of every proposal."""
    rows = [  # continuations first
        ChargedRow(4, 100, 40, 1, 0, 0, "[0, 1, 2]"),
        ChargedRow(3, 100, 40, 2, 0, 1, None),
        ChargedRow(2, 40, 0, None, 1, 0, "[5]"),
        ChargedRow(1, 40, 0, None, 0, 0, None),
        ChargedRow(0, 70, 0, None, 1, 0, None),
    ]
    # 4: three seeds of 60. 3: two of 100, anew. 2, a baseline: one of 40. 1: those of 4. 0: none.
    charged = 3 * 60 + 2 * 100 + 40 + 3 * 40
    record = record_of(charged=rows, count_begun=3, hours=0.0, link=CHAIN.__getitem__)
    record.events = lambda kind: []
    assert (record.spent.charged_steps, record.spent.begun) == (charged, 3)
    record = record_of(charged=rows, count_begun=3, hours=0.0, link=CHAIN.__getitem__)
    record.events = lambda kind: [BudgetExtended(0.0, (4,)), BudgetExtended(0.0, (3, 1))]
    # The first two seeds of three proposals are given back, one of which began a configuration.
    assert record.spent.charged_steps == charged - 2 * (60 + 100 + 40)
    assert (record.spent.begun, record.spent.extra_runs) == (2, 0.0)


def test_the_seeds_of_a_continuation_pass_to_every_link_before_it():
    rows = [
        ChargedRow(3, 100, 60, 2, 0, 0, "[0, 1, 2, 3]"),
        ChargedRow(2, 60, 40, 1, 0, 0, "[4]"),
        ChargedRow(1, 40, 0, None, 0, 0, None),
    ]
    record = record_of(charged=rows)
    record.events = lambda kind: []
    assert record._charged_steps() == 4 * 40 + 5 * 20 + 5 * 40


def test_what_was_added_to_the_budget_is_summed():
    record = record_of(1.5, charged=[], count_begun=2)
    record.events = lambda kind: [BudgetExtended(0.5), BudgetExtended(1.5)]
    spent = record.spent
    assert (spent.extra_runs, spent.begun, spent.hours, spent.charged_steps) == (2.0, 2, 1.5, 0)


@pytest.mark.parametrize(("given", "hours"), [(None, 7.0), (0.0, 0.0), (2.0, 2.0)])
def test_hours_are_those_given_or_those_recorded(given, hours):
    assert record_of(given, hours=lambda: 7.0).hours == hours


def test_the_share_of_the_model_is_counted():
    share = record_of(counts_of_search=ProposalCounts(10, 6, 4)).share
    assert (share.new, share.modelled, share.continued) == (6, 4, 4)


FROZEN = CandidatesFrozen((), (), SearchEnd.OPTIMIZER)
FINISHED = StudyFinished(SearchEnd.TEST)


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([], None),
        ([FROZEN], SearchEnd.OPTIMIZER),
        ([ModelsNamed((), SearchEnd.BUDGET)], SearchEnd.BUDGET),
        ([FINISHED], SearchEnd.TEST),
        ([FROZEN, FINISHED], SearchEnd.TEST),
        ([FROZEN, FINISHED, BudgetExtended(1)], None),
        ([FINISHED, BudgetExtended(1), FROZEN], SearchEnd.OPTIMIZER),
    ],
)
def test_a_search_is_over_from_the_latest_event_that_says_so_until_the_budget_grows(events, why):
    record = record_of()
    record.events = lambda *kinds: [event for event in events if isinstance(event, kinds)]
    assert (record.search_end, record.search_ended) == (why, why is not None)


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
    record.candidate_steps = lambda proposal: CandidateSteps(step)
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
    record.candidate_steps = lambda proposal: CandidateSteps()
    assert record.mean_at_end(4, "kl") == mean


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_the_best_of_each_run_comes_once(count):
    roots = {8: 1, 7: 1, 6: 2, 5: 3}
    record = record_of(ranked=[7, 8, 6, 5])
    record.incumbent = lambda: SimpleNamespace(proposal=8)
    record.lineage = lambda proposals: SimpleNamespace(root=roots.__getitem__)
    assert record.best_of_runs(count) == [8, 6, 5][:count]


def test_added_test_seeds_are_a_part_of_the_plan():
    spec = small_spec(seeds={"tuning": 2, "test": 3})
    assert with_added_test_seeds(spec, SimpleNamespace(added_test_seeds=lambda: ())) is spec
    more = with_added_test_seeds(spec, SimpleNamespace(added_test_seeds=lambda: (103, 105)))
    assert more.plan.test == (100, 101, 102, 103, 105)
    assert more.plan.tuning == (0, 1)
    assert spec.plan.test == (100, 101, 102)
