"""Why a search is over: a value of a closed set, in the event that freezes the candidates."""

import re

import pytest
from study_support import StoppedError, part_of, resume, run_small, small_spec, table

from autorl.core.types import InputError, Scored, SearchEnd, StudyError
from autorl.report.html import result_blocks
from autorl.report.live import watched
from autorl.report.reading import open_view
from autorl.report.status import status_dict, status_text
from autorl.report.text import result_dict, result_text
from autorl.store.events import CandidatesFrozen, StudyFinished
from autorl.study import Study
from autorl.study.proposing import converged

FEW = {"seeds": {"tuning": 1, "test": 1}, "parallelism": 1}
GRID = {"name": "grid", "levels": 2}
PBT = {"name": "pbt", "population": 3, "generations": 2, "retrain": 0}
ONE = {
    "space": {"x": {"type": "float", "lower": 0.0, "upper": 1.0}},
    "trainer": {"optimum": {"x": 0.5}, "interaction": 0.0},
}
ADAPTIVE = {"evaluation": {"seeds": "adaptive"}, "seeds": {"tuning": 3, "test": 1}, **ONE}


def reasons(study, kind=CandidatesFrozen):
    events = (recorded.event for recorded in study.store.events())
    return [event.search_end for event in events if isinstance(event, kind)]


def ended(folder, **changes):
    """The reason in the log of a finished study, the text of its result, and its cautions."""
    study = Study.create(small_spec(**changes), folder)
    result = study.run()
    (why,) = reasons(study)
    assert reasons(study, StudyFinished) == [why]
    assert (study.driver.search_end, result.search_end) == (why, why)
    study.close()
    view = open_view(folder)
    assert view.record.search_end is why
    warnings = status_dict(view)["warnings"]
    return why, result.search_end_text, [text for text in warnings if "of the budget" in text]


USED_UP = "the budget was used up"
NO_MORE = "what was left of the budget paid for no further proposal"


@pytest.mark.parametrize(
    ("changes", "why", "text"),
    [
        ({"budget": {"runs": 4}}, SearchEnd.BUDGET, USED_UP),
        ({"budget": {"runs": 2.5}}, SearchEnd.BUDGET, NO_MORE),
        ({"budget": {"configurations": 3}}, SearchEnd.BUDGET, USED_UP),
        ({"optimizer": GRID, **ONE}, SearchEnd.OPTIMIZER, "grid has tried every point of its grid"),
        ({"optimizer": PBT}, SearchEnd.OPTIMIZER, "pbt has trained all its generations"),
        ({"optimizer": PBT, "budget": {"runs": 3}}, SearchEnd.BUDGET, USED_UP),
    ],
    ids=["runs", "rest", "configurations", "grid", "pbt", "pbt-exact"],
)
def test_the_reason_is_recorded_and_said(tmp_path, changes, why, text):
    caution = f"81% of the budget is unused: {text}; a larger plan needs a new study"
    found = ended(tmp_path / "study", **FEW, **changes)
    assert found == (why, text, [caution] if why is SearchEnd.OPTIMIZER else [])


def test_the_time_of_the_budget_is_a_reason(tmp_path, monkeypatch):
    """Half an hour for each proposal, on a clock of the test."""
    monkeypatch.setattr(Study, "hours", lambda study: 0.5 * len(study.driver.lineage))
    found = ended(tmp_path / "study", **FEW, budget={"hours": 1})
    assert found[:2] == (SearchEnd.HOURS, "the time of the budget was up")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"optimizer": "random", "budget": {"runs": 9}}, SearchEnd.BUDGET),
        ({"optimizer": GRID, "budget": {"runs": 40}}, SearchEnd.OPTIMIZER),
        ({"optimizer": GRID, "budget": {"hours": 1000}}, SearchEnd.OPTIMIZER),
    ],
    ids=["budget", "optimizer", "optimizer-hours"],
)
def test_an_adaptive_study_has_the_reason_it_stopped_exploring_for(tmp_path, changes, why):
    assert ended(tmp_path / "study", **ADAPTIVE, **changes)[0] is why


def test_a_test_that_is_asked_for_ends_the_search_and_more_budget_opens_it(tmp_path):
    folder = part_of(tmp_path / "study", 12, **FEW)
    view = open_view(folder)
    assert (view.record.search_end, view.record.search_end_text) == (None, "")
    assert "search ended" not in status_text(view)
    study = Study.open(folder)
    result = study.run(search=False)
    assert (result.search_end, reasons(study)) == (SearchEnd.TEST, [SearchEnd.TEST])
    view = open_view(folder)
    (caution,) = [text for text in status_dict(view)["warnings"] if "of the budget" in text]
    assert caution.endswith("(`autorl resume --runs +N` opens it again)")
    assert "the test was asked for before the budget was used up" in caution
    study.extend(1)
    assert (study.driver.search_end, study.result().search_end) == (None, None)
    result = study.run()
    assert result.search_end is SearchEnd.BUDGET
    assert reasons(study) == [SearchEnd.TEST, SearchEnd.BUDGET]


def test_a_test_that_is_asked_for_when_the_budget_is_used_up_is_not_the_reason(tmp_path):
    folder = part_of(tmp_path / "study", 6, **FEW, budget={"runs": 2})
    study = Study.open(folder)
    assert (study.driver.ended, study.driver.budget.used) == (False, 1.0)
    assert study.run(search=False).search_end is SearchEnd.BUDGET


def test_every_page_says_it_where_one_looks(tmp_path):
    run_small(tmp_path / "study", **FEW, optimizer=PBT)
    view = open_view(tmp_path / "study")
    result = view.result()
    text = "pbt has trained all its generations"
    assert f"search ended: {text}" in result_text(result)
    assert result_dict(result)["search_end"] == "optimizer"
    assert status_dict(view)["search_end"] == "optimizer"
    assert ("search ended", text) in watched(view).facts
    rows = [row for block in result_blocks(view, result) for row in getattr(block, "rows", ())]
    assert ("search ended", "", text) in rows


def test_a_search_that_was_given_up_is_stopped_and_not_over(tmp_path):
    study = Study.create(small_spec(trainer={"crash": 1.0}), tmp_path / "study")
    with pytest.raises(StudyError, match="the first 3 proposals failed"):
        study.run()
    study.close()
    view = open_view(tmp_path / "study")
    assert view.record.search_end is None
    stands = r"stopped because the first 3 proposals failed.*: go on with `autorl resume"
    assert re.search(stands, status_text(view))


def test_a_session_that_goes_on_after_the_freeze_keeps_the_reason(tmp_path):
    study = Study.create(small_spec(**FEW, **ONE, optimizer=GRID), tmp_path / "study")
    record = study.journal.record

    def until_frozen(event):
        record(event)
        if isinstance(event, CandidatesFrozen):
            raise StoppedError

    study.journal.record = until_frozen
    with pytest.raises(StoppedError):
        study.run()
    study.close()
    study = Study.open(tmp_path / "study")
    assert study.driver.search_end is SearchEnd.OPTIMIZER
    study.run()
    assert reasons(study, StudyFinished) == [SearchEnd.OPTIMIZER]
    study.add_test_seeds(2)
    assert study.run(search=False).search_end is SearchEnd.OPTIMIZER


# -- early, by what was reached ----------------------------------------------------------------------------------------

EARLY = {
    "target": ({"target": 1.06}, SearchEnd.TARGET, "the incumbent is as good as the target, 1.06"),
    "converged": (
        {"converged": 4},
        SearchEnd.CONVERGED,
        "the latest 4 configurations improved no more than seed noise does",
    ),
}
LONG = {"seeds": {"tuning": 2, "test": 1}, "trainer": {"noise": 0.0}, **ONE}


@pytest.mark.parametrize("rule", ["fixed", "adaptive", "racing"])
@pytest.mark.parametrize("end", list(EARLY))
def test_a_search_ends_early_and_the_table_is_the_same_after_a_kill(tmp_path, end, rule):
    budget, why, text = EARLY[end]
    study = {**LONG, "budget": {"runs": 200} | budget, "evaluation": {"seeds": rule}}
    found = ended(tmp_path / "whole", **study)
    assert found[:2] == (why, text)
    whole = Study.open(tmp_path / "whole")
    assert whole.driver.budget.used < 0.5
    with pytest.raises(InputError, match=f"would train nothing: budget.{end} has ended the search"):
        whole.extend(2)
    best = whole.driver.ranking.best()
    lacking = rule != "fixed" and whole.driver.ranking[best].n_seeds < 2
    assert not lacking  # confirmed before the search was over
    whole.close()
    for events in (9, 17):
        folder = part_of(tmp_path / f"part-{events}", events, **study)
        resume(folder)
        assert table(folder) == table(tmp_path / "whole")


def test_a_target_is_in_the_direction_of_the_metric(tmp_path):
    changes = {"objective": {"direction": "minimize"}, "budget": {"runs": 200, "target": 0.9}}
    study = Study.in_memory(small_spec(**LONG | changes))
    assert study.run().search_end is SearchEnd.TARGET
    assert study.driver.best_score(100) <= 0.9


@pytest.mark.parametrize(
    ("scores", "patience", "over"),
    [
        ([0.0, 1.0, 0.9], 1, True),
        ([0.0, 1.0], 1, False),  # one score is no history
        ([0.0, 0.5, 1.0], 1, False),  # an improvement of half the range
        ([0.0, 1.0, 1.05, 0.3], 2, True),  # 0.05, with a standard error of 0.1
        ([0.0, 1.0, 1.25, 0.3], 2, False),
        ([0.7, 0.7, 0.7], 1, True),
    ],
)
def test_a_search_has_converged_when_the_latest_improve_no_more_than_noise(scores, patience, over):
    """Spread 0.2 over four seeds: a standard error of 0.1."""
    events = [Scored(number, (score,), (0.2,), 4) for number, score in enumerate(scores)]
    assert converged(events, patience) is over


def test_an_early_end_needs_one_objective(tmp_path):
    objectives = [{"metric": "eval_return"}, {"metric": "eval_length"}]
    with pytest.raises(InputError, match=r"budget.target.*one objective, got 2"):
        small_spec(objective=objectives, budget={"runs": 4, "target": 1.0})
