"""The default configuration is trained as far as the incumbent, with its seeds, where the search did not."""

import re
from itertools import groupby

import pytest
import yaml
from refusals import expect_error
from scripted import Scripted, Toy, chain, full, listed, run, study_with, toy_spec
from study_support import RACING, small_spec

from autorl.core.types import InputError, Proposed, Status
from autorl.report.plan import make_plan
from autorl.report.plan_text import plan_text
from autorl.report.studies import compare_studies, study_table
from autorl.report.text import result_dict, result_text
from autorl.study import Study
from autorl.study.proposing import BASELINE
from autorl.study.results.record import StudyRecord
from autorl.study.spec import load_spec

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


# -- baselines of the study file -------------------------------------------------------------------

PAPER = {"paper": {"x": 0.95}, "bad one": {"x": 0.1}}


def test_named_baselines_are_tested_and_never_told_or_ranked(monkeypatch, tmp_path):
    """One is better than the incumbent on tuning and test seeds, and stays a baseline."""
    folder = tmp_path / "study"
    proposals = (full(0.9), full(0.5), full(0.2))
    study, result, optimizer = compared(
        monkeypatch, *proposals, folder=folder, budget={"runs": 6}, baselines=PAPER
    )
    assert len(optimizer.told) == 3
    assert (result.incumbent.proposal, result.beyond) == (0, 400)
    entries = {entry.label: entry for entry in result.entries}
    assert list(entries) == ["incumbent", "default", "baseline bad one", "baseline paper"]
    paper = entries["baseline paper"]
    assert (paper.tuning, paper.test.iqm) == pytest.approx((0.95, 0.95))
    assert (paper.difference.low, paper.difference.high) == pytest.approx((-0.05, -0.05))
    text = result_text(result)
    assert "-0.05 [-0.05, -0.05]" in text
    assert "loses on the test seeds: 0.9, and baseline paper has 0.95 (IQM)" in text
    assert "the baselines were trained 400 steps beyond the budget" in text
    found = result_dict(result)["candidates"]
    assert found[2]["incumbent_minus_it"]["low"] == pytest.approx(0.8)
    record = StudyRecord(study.spec, study.store, folder)
    assert record.best_of_runs(9) == study.driver.ranking.ordered() == [0, 1, 2]
    study.close()
    table = study_table(compare_studies([folder, second_study(monkeypatch, tmp_path)]))
    assert "baseline paper (IQM)" in table[0]


def second_study(monkeypatch, folder):
    study, _, _ = compared(
        monkeypatch, full(0.8), full(0.5), full(0.2), folder=folder / "second", budget={"runs": 6}
    )
    study.close()
    return folder / "second"


def test_a_search_that_goes_on_keeps_its_named_baselines(monkeypatch):
    study, _, _ = compared(
        monkeypatch, full(0.9), full(0.7), full(0.8), budget={"runs": 4}, baselines=PAPER
    )
    study.extend(2)
    run(study)
    origins = study.store.query("SELECT origin FROM proposals WHERE origin LIKE 'baseline %'")
    assert sorted(origins) == [("baseline bad one",), ("baseline paper",)]


def test_the_dry_run_counts_them():
    spec = small_spec(baselines={"a": {"x": 0.4}, "b": {}}, seeds={"tuning": 2, "test": 3})
    plain = small_spec(seeds={"tuning": 2, "test": 3})
    with_them, without = (make_plan(each) for each in (spec, plain))
    assert with_them.test.segments - without.test.segments == 2 * 3
    assert with_them.baseline.segments - without.baseline.segments == 2 * 2
    assert "the default configuration, a, b as far as the incumbent" in plan_text(with_them)


WRONG = {
    "value": ({"paper": {"x": 2}}, "baselines.paper.x: 2"),
    "name": ({"paper": {"y": 2}}, "baselines.paper.y: unknown hyperparameter"),
    "kind": ({"paper": 3}, "baselines.paper: should be a mapping of keys"),
    "empty": ({"": {}}, "baselines"),
    "preset": ({"paper": {"zoo": "ppo.yml", "ent": "a"}}, "baselines.paper.ent: unknown key"),
    "no presets": (
        {"paper": {"zoo": "ppo.yml"}},
        "baselines.paper: the format of RL Baselines3 Zoo is for",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_baseline_is_one_line(name):
    changes, expected = WRONG[name]
    expect_error(re.escape(expected), small_spec, baselines=changes)


def test_baselines_need_test_seeds():
    with pytest.raises(InputError, match="this study has a landscape, or no test seeds"):
        small_spec(baselines=PAPER, seeds={"tuning": 2, "test": 0})


def test_an_entry_of_the_zoo_is_a_baseline(tmp_path):
    (tmp_path / "ppo.yml").write_text(
        "CartPole-v1:\n  n_envs: 8\n  n_timesteps: !!float 1e5\n  policy: MlpPolicy\n"
        "  learning_rate: 0.002\n"
    )
    file = tmp_path / "study.yaml"
    study = {
        "trainer": "sb3/ppo",
        "environment": {"id": "CartPole-v1", "n_envs": 8},
        "space": {"learning_rate": "log(1e-5, 1e-1)"},
        "fidelity": {"steps": 100_000},
        "budget": {"runs": 8},
        "baselines": {"zoo": {"zoo": "ppo.yml"}},
    }
    file.write_text(yaml.safe_dump(study))
    assert load_spec(file).baselines == {"zoo": {"learning_rate": 0.002}}
    file.write_text(yaml.safe_dump({**study, "baselines": {"a": {"zoo": "p.yml"}}}))
    expect_error(r"p\.yml: file not found", load_spec, file)
