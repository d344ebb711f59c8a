"""The default configuration is trained as far as the incumbent, with its seeds, where the search did not."""

from itertools import groupby

import pytest
from scripted import Scripted, Toy, chain, full, listed, run, study_with, toy_spec
from study_support import RACING, small_spec

from autorl.core.types import Proposed, Status
from autorl.report.text import result_dict, result_text
from autorl.study import Study
from autorl.study.proposing import BASELINE

TESTED = {"seeds": {"tuning": 2, "test": 6}, "parallelism": 1, "test": {"top": 1, "baseline": True}}


def by_x(config, seed, step):
    return config["x"] * step / 100


def compared(monkeypatch, *proposals, trainer=None, folder=None, keeps=(), **changes):
    """A tested study of these proposals that has run, its result, and its optimizer."""
    optimizer = Scripted(listed(*proposals), keeps=lambda seen: keeps)
    spec = toy_spec(**TESTED | changes)
    study = study_with(monkeypatch, spec, optimizer, trainer or Toy(curve=by_x), folder)
    return study, run(study), optimizer


def baselines(study):
    return study.store.query(
        "SELECT proposal, until, resume_from, n_seeds FROM proposals WHERE origin = ?", (BASELINE,)
    )


def test_a_default_left_at_a_rung_goes_on_to_the_length_of_the_incumbent(monkeypatch, tmp_path):
    trainer = Toy(curve=by_x)
    proposals = (chain(0.5, 40), chain(0.9, 40), chain(0.9, 100, 1))
    more = {"trainer": trainer, "folder": tmp_path / "study", "keeps": (1,)}
    study, result, _ = compared(monkeypatch, *proposals, **more)
    assert baselines(study) == [(3, 100, 0, 2)]
    trained = [
        (segment.id, segment.start, segment.until)
        for segment in trainer.segments
        if segment.role == "tuning"
    ]
    assert trained[-2:] == [("3.0", 40, 100), ("3.1", 40, 100)], "from where the search left it"
    assert (result.default.proposal, result.default.until, result.default.tuning) == (3, 100, 0.5)
    assert result.difference.low == pytest.approx(0.4)
    assert result.beyond == 120
    assert study.driver.charges.steps == 2 * (40 + 40 + 60)
    assert "120 steps beyond the budget" in result_text(result)
    assert result_dict(result)["beyond_budget_steps"] == 120
    study.close()


def test_the_optimizer_is_not_told_of_it_and_is_asked_the_same_when_the_search_goes_on(monkeypatch):
    """A budget of 2 + 1 asks with the same numbers and random streams as one of 3."""
    xs = [0.9, 0.7, 0.8]
    asks = []
    for first, more in ((2, 1), (3, 0)):
        optimizer = Scripted(lambda number, seen: full(xs[number]))
        spec = toy_spec(**{**TESTED, "seeds": {"tuning": 1, "test": 1}}, budget={"runs": first})
        study = study_with(monkeypatch, spec, optimizer, Toy(curve=by_x))
        run(study)
        if more:
            study.extend(more)
            run(study)
        told = [event for event in optimizer.seen if isinstance(event, Proposed)]
        assert [event.proposal.config["x"] for event in told] == xs
        assert len(optimizer.told) == 3
        assert len(baselines(study)) == 1, "not trained again"
        asks.append(
            [call for call, _ in groupby(optimizer.calls) if call[0] == "ask"]
        )  # `extend` asks what comes next
    assert asks[0] == asks[1]


def test_a_default_that_failed_on_the_way_failed(monkeypatch):
    trainer = Toy(
        curve=by_x,
        before=lambda one: Status.DIVERGED if one.config["x"] == 0.5 and one.until > 30 else None,
    )
    _, result, _ = compared(monkeypatch, full(0.9), chain(0.5, 40), trainer=trainer)
    assert len([one for one in trainer.segments if one.role == "tuning"]) == 4, "not trained again"
    assert (result.default.until, result.default.test, len(result.default.failures)) == (
        100,
        None,
        6,
    )


def test_a_race_the_default_lost_early_is_run_to_the_incumbents_seeds(monkeypatch):
    study, result, optimizer = compared(monkeypatch, full(0.9), full(0.2), full(0.5), **RACING)
    assert (result.incumbent.proposal, result.default.proposal) == (0, 2)
    assert study.driver.tuning_seeds(2) == study.driver.tuning_seeds(0) == (0, 1, 2)
    assert (result.beyond, baselines(study)) == (200, [])
    assert optimizer.told[2].n_seeds == 1, "what the race told, no more"


@pytest.mark.parametrize(
    "changes",
    [
        {"test": {"top": 1, "baseline": False}},
        {"seeds": {"tuning": 2, "test": 0}},
        {"landscape": {"id": "mine/toy/toy"}},
    ],
    ids=["off", "untested", "landscape"],
)
def test_where_nothing_is_compared_nothing_is_added(monkeypatch, changes):
    study, result, _ = compared(monkeypatch, full(0.9), **changes)
    assert result.beyond == 0
    assert baselines(study) == []


METHODS = {
    "asha": {"optimizer": "asha"},
    "hyperband": {"optimizer": "hyperband"},
    "bohb": {"optimizer": "bohb"},
    "dehb": {"optimizer": "dehb"},
    "pbt": {"optimizer": "pbt"},
    "pb2": {"optimizer": "pb2"},
    "median": {"optimizer": {"name": "random", "stop": "median", "rungs": 3}},
    "racing": {"evaluation": {"seeds": "racing", "min": 1, "max": 2}},
}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_difference_to_the_default_at_equal_length(method):
    study = Study.in_memory(
        small_spec(**METHODS[method], budget={"runs": 24}, seeds={"tuning": 2, "test": 3})
    )
    result = run(study)
    default = study.driver.default_runs.longest()[0]
    assert study.driver.lineage[default].until == result.incumbent.until
    assert set(study.driver.tuning_seeds(default)) == set(
        study.driver.tuning_seeds(result.incumbent.proposal)
    )
    same = study.driver.lineage.root(default) == study.driver.lineage.root(
        result.incumbent.proposal
    )
    assert same or result.difference is not None
