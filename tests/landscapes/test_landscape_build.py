"""`autorl landscape build`: what a build file says, what it costs, and what the manifest remembers of it."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import autorl
from autorl.cli import app
from autorl.core.source_code import code_hash
from autorl.landscapes import Landscape, from_study
from autorl.space import load_space
from autorl.store.provenance import own_source
from autorl.study import Study
from autorl.study.building import build_cost, plan_build
from autorl.study.session import cpu
from autorl.study.spec import load_spec
from autorl.trainers import info
from autorl.trainers.families import engine_hash

STUDY = {
    "name": "bowl",
    "trainer": {"name": "synthetic", "kwargs": {"optimum": {"x": 0.7}, "noise": 0.1}},
    "space": {
        "hyperparameters": {"x": {"type": "float", "lower": 0.0, "upper": 1.0, "changeable": True}}
    },
    "fidelity": {"steps": 90, "evaluations": 3},
    "optimizer": "sobol",
    "budget": {"configurations": 4},
    "seeds": {"tuning": 2, "test": 3},
    "executor": {"name": "in_process"},
    "landscape": {"id": "my/synthetic/bowl", "bounds": [-3, 3], "licence": "CC0", "creator": "me"},
}


def build(folder, *options, code=0, **changes):
    """Run the command on a file with these keys; the landscape goes to `folder/out`."""
    file = folder / "build.yaml"
    file.write_text(yaml.safe_dump({**STUDY, **changes}, sort_keys=False))
    fixed = ("--out", folder / "out", "--study", folder / "study", "--quiet")
    arguments = ["landscape", "build", file, *fixed, *options]
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def test_the_file_says_what_is_written_and_options_come_before_it(tmp_path):
    build(tmp_path)
    manifest = Landscape(tmp_path / "out" / "my/synthetic/bowl").manifest
    named = (manifest.algorithm, manifest.environment, manifest.licence, manifest.creator)
    assert named == ("synthetic", "bowl", "CC0", "me")
    assert manifest.return_bounds == (-3.0, 3.0)
    assert manifest.description == "4 configurations of synthetic on bowl."
    assert manifest.sampler == {"name": "sobol", "seed": 0}
    build(tmp_path, "--id", "your/synthetic/bowl", "--bounds", "-5", "5", "--about", "licence=MIT")
    manifest = Landscape(tmp_path / "out" / "your/synthetic/bowl").manifest
    found = (manifest.return_bounds, manifest.licence, manifest.creator)
    assert found == ((-5.0, 5.0), "MIT", "me")


@pytest.mark.parametrize(
    ("landscape", "changes", "message"),
    [
        (None, {}, "landscape.id"),
        ({"id": "bowl"}, {}, "namespace/algorithm/environment"),
        ({"id": "my/ppo/Acrobot-v1"}, {"environment": "CartPole-v1"}, "/CartPole-v1"),
        ({"id": "my/a/b", "bounds": [1, 0]}, {}, "[low, high]"),
        ({"id": "my/a/b", "bound": [0, 1]}, {}, "did you mean 'bounds'"),
        ({"id": "my/a/b"}, {"optimizer": {"name": "phases", "phases": 1}}, "int >= 2"),
    ],
)
def test_mistakes_are_named_before_anything_is_trained(tmp_path, landscape, changes, message):
    found = build(tmp_path, code=2, landscape=landscape, **changes)
    assert message in found.stderr
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize("limits", [(5, 1), (1, 1)])
def test_bounds_in_the_wrong_order_are_refused_before_anything_is_trained(tmp_path, limits):
    found = build(tmp_path, "--bounds", *limits, code=2)
    assert "landscape.bounds: should be [low, high]" in found.stderr
    found = build(tmp_path, code=2, landscape={**STUDY["landscape"], "bounds": list(limits)})
    assert "landscape.bounds: should be [low, high]" in found.stderr
    with pytest.raises(autorl.InputError) as caught:
        autorl.build_landscape(STUDY, tmp_path, study=tmp_path / "study", bounds=limits)
    assert caught.value.key == "landscape.bounds"
    assert not (tmp_path / "study").exists()


def test_bounds_that_scores_have_left_are_refused_and_no_training_is_lost(tmp_path):
    landscape = {**STUDY["landscape"], "bounds": [0.9, 3]}
    found = build(tmp_path, code=2, landscape=landscape)
    rule = r"landscape.bounds: \d+ values lie outside \[0.9, 3.0\], from .* --bounds LOW HIGH"
    assert re.search(rule, found.stderr)
    assert not (tmp_path / "out").exists()
    trained = segments(tmp_path / "study")
    found = build(tmp_path, "--bounds", 0, 0.1, code=2)
    assert re.search("landscape.bounds: .* values lie outside", found.stderr)
    build(tmp_path, "--bounds", -5, 5, landscape=landscape)
    assert Landscape(tmp_path / "out" / "my/synthetic/bowl").manifest.return_bounds == (-5.0, 5.0)
    corrected = {**landscape, "bounds": [-4, 4], "creator": "you"}
    build(tmp_path, "--replace", landscape=corrected)
    manifest = Landscape(tmp_path / "out" / "my/synthetic/bowl").manifest
    assert (manifest.return_bounds, manifest.creator) == ((-4.0, 4.0), "you")
    assert segments(tmp_path / "study") == trained, "nothing is trained again"


def segments(study):
    with closing(sqlite3.connect(study / "study.sqlite")) as database:
        return database.execute("SELECT * FROM segments ORDER BY rowid").fetchall()


@pytest.mark.parametrize("optimizer", ["sobol", {"name": "phases", "phases": 3}])
def test_the_cost_is_what_is_then_recorded(tmp_path, optimizer):
    cost = json.loads(build(tmp_path, "--dry-run", "--json", optimizer=optimizer).stdout)
    assert not (tmp_path / "study").exists()
    assert not (tmp_path / "out").exists()
    build(tmp_path, optimizer=optimizer)
    data = Landscape(tmp_path / "out" / "my/synthetic/bowl")
    assert cost["landscape"] == data.manifest.id
    rows = data.manifest.rows
    assert (cost["runs"], cost["evaluations"]) == (rows["runs"], rows["evals"])
    assert cost["steps"] == data.sql("SELECT sum(environment_steps) FROM runs").fetchall()[0][0]
    assert cost["ends"] == ([90] if optimizer == "sobol" else [30, 60, 90])


def test_the_cost_as_text(tmp_path):
    shown = build(tmp_path, "--dry-run", optimizer={"name": "phases", "phases": 3}).stdout
    for part in ("nothing is written", "4 by phases", "30, 60, 90", "2 tuning + 3 test", "MiB"):
        assert part in shown


def test_the_python_door_writes_what_the_command_writes(tmp_path):
    build(tmp_path)
    finished = []
    data = autorl.build_landscape(
        tmp_path / "build.yaml",
        tmp_path / "python",
        study=tmp_path / "another study",
        about={"licence": "MIT"},
        workers=1,
        progress=lambda progress: finished.append(progress.finished_segments),
    )
    assert data.path == tmp_path / "python" / "my/synthetic/bowl"
    assert finished[-1] == 4 * (2 + 3)
    assert (data.manifest.licence, data.manifest.creator) == ("MIT", "me")
    scores = "SELECT config_id, seed, step, value FROM scores ORDER BY ALL"
    command = Landscape(tmp_path / "out" / "my/synthetic/bowl")
    assert data.sql(scores).fetchall() == command.sql(scores).fetchall()


def test_the_python_door_takes_a_mapping_and_keys_of_the_study_file(tmp_path):
    folders = {"study": tmp_path / "study", "id": "your/synthetic/bowl"}
    data = autorl.build_landscape(STUDY, tmp_path, **folders, fidelity__steps=60, seed=3)
    assert data.manifest.id == "your/synthetic/bowl"
    assert data.manifest.steps[-1] == 60
    assert data.manifest.sampler == {"name": "sobol", "seed": 3}
    with pytest.raises(autorl.InputError, match="is there already"):
        autorl.build_landscape(STUDY, tmp_path, **folders, fidelity__steps=60, seed=3)
    with pytest.raises(autorl.InputError, match="holds another study"):
        autorl.build_landscape(STUDY, tmp_path, **folders, fidelity__steps=60, replace=True)
    with pytest.raises(autorl.InputError, match="fidelty"):
        autorl.build_landscape(STUDY, tmp_path, **folders, fidelty__steps=60)


def test_the_example_of_the_documentation_runs(tmp_path, monkeypatch, capsys):
    text = (Path(__file__).parents[2] / "docs/landscapes.md").read_text(encoding="utf-8")
    example = text.split("data = autorl.build_landscape(")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    exec("import autorl\ndata = autorl.build_landscape(" + example)
    assert capsys.readouterr().out.startswith("Config")
    data = Landscape(tmp_path / "landscapes/me/synthetic/bowl")
    assert (data.manifest.rows["configs"], data.manifest.rows["runs"]) == (8, 40)


def test_a_plan_counts_what_a_population_does_not_know_beforehand(tmp_path):
    overrides = {"executor.name": "processes"}
    plan = plan_build(STUDY, study=tmp_path / "study", overrides=overrides)
    cost = build_cost(plan, workers=2)
    assert (cost.configurations, cost.runs, cost.steps, cost.workers) == (4, 20, 1800, 2)
    lineage = plan_build(STUDY, overrides={"optimizer": "pbt", "budget": {"runs": 16}})
    assert lineage.is_lineage
    with pytest.raises(autorl.InputError, match="depend on scores"):
        build_cost(lineage)


@pytest.mark.slow
def test_the_speed_of_the_engine_is_measured_without_a_trace(tmp_path):
    changes = {
        "trainer": "population/ppo",
        "environment": "CartPole-v1",
        "space": "population/ppo-small",
        "fidelity": {"steps": 20_480, "evaluations": 10, "episodes": 2},
        "landscape": {"id": "my/ppo/CartPole-v1"},
    }
    cost = json.loads(build(tmp_path, "--dry-run", "--json", **changes).stdout)
    assert 0 < cost["seconds"] < 3600
    assert cost["study_bytes"] > cost["landscape_bytes"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["build.yaml"]


def test_the_manifest_says_which_machine_and_code_made_it(tmp_path):
    build(tmp_path)
    manifest = Landscape(tmp_path / "out" / "my/synthetic/bowl").manifest
    assert cpu() in manifest.hardware
    source = own_source()
    own = {"version": autorl.__version__, "sha256": source["sha256"]}
    assert manifest.packages["autorl"] == own
    assert manifest.commit == source.get("commit", "")
    assert info("population/ppo").source_hashes() == {"engine": engine_hash()}


def test_the_code_is_that_of_the_training_not_of_the_export(tmp_path, monkeypatch):
    now = {"sha256": "a" * 64, "engine": "b" * 64, "commit": "c" * 40}
    monkeypatch.setattr("autorl.study.session.own_source", lambda: now)
    study = Study.create(load_spec(STUDY), tmp_path / "study")
    study.run()
    study.close()
    monkeypatch.undo()
    manifest = from_study(tmp_path / "study", tmp_path / "out")
    own = {"version": autorl.__version__, "sha256": "a" * 64, "engine": "b" * 64}
    assert manifest.packages["autorl"] == own
    assert manifest.commit == "c" * 40


def test_comments_do_not_count_as_code(tmp_path):
    file = tmp_path / "engine.py"

    def hashed(text):
        file.write_text(text)
        return code_hash([file], tmp_path)

    plain = hashed('def f(x):\n    """What."""\n    return x + 1\n')
    assert hashed("# Why.\ndef f(x):\n    return (x\n            + 1)\n") == plain
    assert hashed("def f(x):\n    return x + 2\n") != plain


def test_the_space_is_that_of_the_study_file(tmp_path):
    """Its hash does not depend on the horizon unless a constraint does."""
    spaces = []
    for steps in (90, 180):
        folder = tmp_path / str(steps)
        folder.mkdir()
        build(folder, fidelity={"steps": steps, "evaluations": 3})
        spaces.append(Landscape(folder / "out" / "my/synthetic/bowl").space)
    assert spaces[0].hash == spaces[1].hash == load_space(STUDY["space"]).hash
