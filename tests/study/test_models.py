"""The model that is kept is the one whose score is reported: runs trained for it end at the chosen step."""

from types import SimpleNamespace

import pytest
from scripted import Scripted, Toy, chain, full, listed, run, study_with, tables, toy_spec
from test_lineage import waiting_for

from autorl.core.types import Config, Exploit, StudyError
from autorl.report.reading import open_view
from autorl.study.results import models as models_module
from autorl.study.results.models import kept_checkpoints, load_model, seed_of_model, steps_of
from autorl.study.results.record import StudyRecord

BEST = {
    "objective": {"reduce": "best"},
    "fidelity": {"steps": 100, "evaluations": 4},
    "parallelism": 1,
}


def peaked(config, seed, step):
    """A curve whose best step is 25 for x below 0.5, else 75."""
    return config["x"] - abs(step - (25 if config["x"] < 0.5 else 75)) / 100


def searched(monkeypatch, folder, curve, *xs, **changes):
    """A study of full runs in a folder that has run, its result, and its trainer."""
    trainer = Toy(curve=curve)
    optimizer = Scripted(listed(*map(full, xs)))
    study = study_with(monkeypatch, toy_spec(**BEST, **changes), optimizer, trainer, folder)
    return study, run(study), trainer


def segments(study, role):
    rows = "SELECT segment, from_step, to_step FROM segments JOIN runs USING (run_id) WHERE seed_role = ?"
    return sorted(study.store.query(rows, (role,)))


def kept(study, proposal):
    """Which segments the kept models of a proposal are of, by seed."""
    record = StudyRecord(study.spec, study.store, study.store.folder)
    found = kept_checkpoints(record, study.store.folder, proposal)
    return {seed: checkpoint.segment for seed, checkpoint in found.items()}


def test_a_test_run_ends_at_the_step_of_its_score(monkeypatch, tmp_path):
    changes = {"seeds": {"tuning": 2, "test": 2}, "test": {"top": 2}}
    study, result, trainer = searched(monkeypatch, tmp_path / "s", peaked, 0.2, 0.9, **changes)
    tests = [segment for segment in trainer.segments if segment.role == "test"]
    assert {(segment.id, segment.until, segment.horizon) for segment in tests} == {
        ("1.100@75", 75, 100),
        ("1.101@75", 75, 100),
        ("0.100@25", 25, 100),
        ("0.101@25", 25, 100),
    }
    assert result.test.seeds == {100: 0.9, 101: 0.9}
    assert kept(study, 1) == {100: "1.100@75", 101: "1.101@75"}
    assert str(result.steps) == "model and score are of step 75 of 100"
    assert study.store.query(
        "SELECT environment_steps FROM runs WHERE seed_role = 'test' ORDER BY 1"
    ) == [(25.0,), (25.0,), (75.0,), (75.0,)]


def test_candidates_cut_at_different_steps_of_one_link_leave_each_curve_once(monkeypatch, tmp_path):
    """Proposal 1 continues 0 to a better score at step 100; its sibling 2 and 0 itself are best at step 25."""

    def curve(config, seed, step):
        return {0.5: 0.2 + (step == 25) * 0.5, 0.9: 0.8 + step / 1000, 0.1: 0.0}[config["y"]]

    script = [
        chain(0.5, 50, member="a"),
        chain(0.5, 100, 0, "a", y=0.9),
        chain(0.5, 100, Exploit(0, "b"), "b", y=0.1),
    ]
    optimizer = Scripted(waiting_for(script), keeps=lambda seen: range(3))
    spec = toy_spec(**BEST, seeds={"tuning": 1, "test": 1}, test={"top": 3})
    study = study_with(monkeypatch, spec, optimizer, Toy(curve=curve), tmp_path / "study")
    result = run(study)
    assert [(entry.proposal, entry.test.value) for entry in result.entries] == [
        (1, pytest.approx(0.9)),
        (0, pytest.approx(0.7)),
        (2, pytest.approx(0.7)),
    ]
    assert segments(study, "test") == [("0.100", 0, 50), ("0.100@25", 0, 25), ("1.100", 50, 100)]
    rows = study.store.query("SELECT run_id, environment_steps FROM runs WHERE seed_role = 'test'")
    assert rows == [(5000, 50.0), (15000, 50.0)], "the part trained twice counts once"
    assert study.store.query("SELECT step FROM reports WHERE run_id = 5000 ORDER BY step") == [
        (25,),
        (50,),
    ]
    assert kept(study, 1)[100] == "1.100"


def test_a_study_that_goes_on_and_chooses_another_step_is_tested_at_it(monkeypatch, tmp_path):
    """A further tuning seed moves the best step of the incumbent from 25 to 75."""
    curves = {0: {25: 0.6, 50: 0, 75: 0.5, 100: 0}, 1: {25: 0.1, 50: 0, 75: 0.9, 100: 0}}

    def curve(config, seed, step):
        return config["x"] * curves.get(seed, {25: 0.3, 50: 0.2, 75: 0.4, 100: 0.1})[step]

    racing = {"evaluation": {"seeds": "racing", "min": 1, "max": 2}, "budget": {"runs": 1}}
    changes = {**racing, "seeds": {"tuning": 2, "test": 1}, "test": {"top": 1}}
    study, first, _ = searched(monkeypatch, tmp_path / "s", curve, 1.0, 0.1, **changes)
    assert first.test.value == 0.4, "racing brings the incumbent to both seeds: step 75"
    study.extend(2)  # racing has used one run more than the budget had
    assert run(study).test.value == 0.4
    assert segments(study, "test") == [("0.100@75", 0, 75)]


def test_untested_the_incumbent_is_trained_to_its_step_again(monkeypatch, tmp_path):
    arguments = (monkeypatch, tmp_path / "study", peaked, 0.2, 0.9)
    study, result, trainer = searched(*arguments, seeds={"tuning": 2, "test": 0})
    assert [segment.id for segment in trainer.segments[4:]] == ["1.0@75", "1.1@75"]
    assert kept(study, 1) == {0: "1.0@75", 1: "1.1@75"}
    assert str(result.steps) == "model and score are of step 75 of 100"
    assert study.store.query("SELECT DISTINCT environment_steps FROM runs") == [(100.0,)], (
        "the curves are there once"
    )
    assert study.store.query("SELECT value FROM reports WHERE run_id = 10000 ORDER BY step")[2] == (
        0.9,
    )
    before = tables(study)
    study.close()
    view = open_view(tmp_path / "study")
    checkpoint = kept_checkpoints(view.record, view.folder, 1)[0]
    assert steps_of(view.record, 1, checkpoint).model == 75
    assert steps_of(view.record, 0, None).score is None, "it was no candidate"
    study, *_ = searched(*arguments, seeds={"tuning": 2, "test": 0})
    assert tables(study) == before


@pytest.mark.parametrize("keep", ["none", "top"])
def test_without_test_seeds_what_keep_names_is_trained_to_its_step(monkeypatch, tmp_path, keep):
    changes = {"seeds": {"tuning": 1, "test": 0}, "keep": {"checkpoints": keep}, "test": {"top": 2}}
    _, _, trainer = searched(monkeypatch, tmp_path / "s", peaked, 0.2, 0.9, 0.6, **changes)
    assert [segment.id for segment in trainer.segments[3:]] == (
        [] if keep == "none" else ["1.0@75", "2.0@75"]
    )


# -- rows made up ------------------------------------------------------------------------------------------------------


def row(seed, value, status="done", proposal=1):
    return SimpleNamespace(proposal=proposal, seed=seed, value=value, status=status)


@pytest.mark.parametrize(
    ("direction", "rows", "seed"),
    [
        ("maximize", [row(100, 1.0), row(101, 3.0), row(102, 2.0)], 102),
        ("maximize", [row(100, 1.0), row(101, 3.0)], 100),
        ("minimize", [row(100, 1.0), row(101, 3.0)], 101),
        ("maximize", [row(102, 3.0), row(101, 3.0), row(100, 1.0)], 101),
        ("maximize", [row(100, 1.0), row(101, 9.0, "crash"), row(102, None)], 100),
        ("maximize", [row(100, 1.0, "stopped"), row(102, 0.5)], 102),
        ("maximize", [row(100, 1.0), row(101, 9.0, proposal=2), row(103, 9.0)], 100),
        ("maximize", [], 100),
        ("maximize", [row(102, 9.0, "crash")], 100),
    ],
)
def test_the_model_is_of_the_median_test_seed_that_is_kept(direction, rows, seed):
    record = SimpleNamespace(
        spec=toy_spec(objective={"direction": direction}),
        tables=SimpleNamespace(tests=lambda: rows),
    )
    assert seed_of_model(record, 1, {102: None, 101: None, 100: None}) == seed


def test_a_model_that_was_not_kept_is_said(monkeypatch, tmp_path):
    study = study_with(
        monkeypatch,
        toy_spec(keep={"checkpoints": "none"}),
        Scripted(listed(full(0.2))),
        folder=tmp_path / "study",
    )
    run(study)
    study.close()
    loaded = SimpleNamespace(model_name="model.zip")
    monkeypatch.setattr(models_module, "trainer_loader", lambda spec: lambda trainer: loaded)
    with pytest.raises(StudyError, match=r"proposal 0 was kept \(keep.checkpoints: none\)"):
        load_model(tmp_path / "study", 0, Config({"x": 0.2, "y": 0.5}), None)
