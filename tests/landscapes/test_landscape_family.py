"""Landscapes of a family of tasks: what is drawn, what is built, and that priors and tests share nothing."""

from __future__ import annotations

import json

import pytest
import yaml
from typer.testing import CliRunner

from autorl.cli import app
from autorl.core.types import EnvironmentSpec, FrozenMap, InputError, TrainerSpec
from autorl.landscapes import Landscape, from_study
from autorl.population.task_families import read_task_family
from autorl.population.variants import variant
from autorl.study.building import build_plans, plan_family, used_variants
from autorl.study.spec import load_spec
from autorl.trainers import load

FAMILY = {
    "name": "cartpole-physics",
    "environment": "CartPole-v1",
    "purpose": "prior",
    "seed": 0,
    "count": 3,
    "parameters": {
        "gravity": {"type": "float", "lower": 5.0, "upper": 20.0, "scale": "log"},
        "reward_scale": {"type": "categorical", "choices": [1.0, 2.0]},
    },
}
TASK = '''
def train(config, *, seed, until, environment):
    """Score x by how near it is to gravity, in the environment's own rewards."""
    parameters = environment["kwargs"]
    with open(__file__ + ".log", "a") as log:
        log.write("trained\\n")
    distance = abs(config["x"] - parameters["gravity"] / 20) + seed * 1e-9
    return -distance * parameters.get("reward_scale", 1.0)
'''


@pytest.fixture
def files(tmp_path):
    """A study file without an environment, and a file of a family."""
    (tmp_path / "task.py").write_text(TASK)
    study = {
        "name": "toy",
        "trainer": {"name": f"python:{tmp_path / 'task.py'}:train"},
        "space": {"hyperparameters": {"x": {"type": "float", "lower": 0.0, "upper": 1.0}}},
        "optimizer": "sobol",
        "budget": {"configurations": 2},
        "seeds": {"tuning": 1, "test": 1},
        "objective": {"metric": "eval_return"},
        "executor": {"name": "in_process"},
        "landscape": {"id": "my/toy/CartPole-v1", "bounds": [-1, 0]},
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    (tmp_path / "family.yaml").write_text(yaml.safe_dump(FAMILY, sort_keys=False))
    return tmp_path


def trainings(folder):
    return len((folder / "task.py.log").read_text().splitlines())


def build(folder, *options, code=0):
    arguments = ["landscape", "build", folder / "study.yaml", "--family", folder / "family.yaml"]
    places = ["--out", folder / "out", "--study", folder / "studies", "--quiet"]
    words = [str(word) for word in (*arguments, *places, *options)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == code, result.output
    return result


def test_a_family_is_a_function_of_its_file():
    first, again = (read_task_family(FAMILY) for _ in range(2))
    assert first.variants == again.variants
    assert len({item.hash for item in first.variants}) == 3
    more = read_task_family({**FAMILY, "count": 5})
    assert more.variants[:3] == first.variants
    assert more.hash == first.hash
    assert all(5 <= item.parameters["gravity"] <= 20 for item in more.variants)
    for change in ({"seed": 1}, {"name": "other"}, {"purpose": "examination"}):
        other = read_task_family({**FAMILY, **change})
        assert other.hash != first.hash
        assert not {item.hash for item in other.variants} & {item.hash for item in more.variants}


def test_environments_of_a_family_keep_what_else_was_asked_for():
    family = read_task_family(FAMILY)
    specs = family.environments(EnvironmentSpec(kwargs=FrozenMap(render_mode=None), n_envs=4))
    assert [spec.id for spec in specs] == ["CartPole-v1"] * 3
    assert all(spec.n_envs == 4 and "render_mode" in spec.kwargs for spec in specs)
    assert specs[0].kwargs["gravity"] == family.variants[0].parameters["gravity"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 0}, r"count: expected a whole number in 1\.\.100000, got 0"),
        ({"purpose": "test"}, "purpose: expected prior or examination, got 'test'"),
        ({"environment": "CartPole-v0"}, "environment: .*did you mean 'CartPole-v1'"),
        ({"name": "a/b"}, "name: expected letters"),
        ({"sed": 1}, "sed: unknown key; did you mean 'seed'|sed: unknown key"),
        ({"parameters": {}}, "parameters: expected a mapping"),
        (
            {"parameters": {"gravity": {"type": "float", "lower": 0.0, "upper": 9.0}}},
            r"parameters.gravity: expected a number in \[0.1, 1000\], got 0",
        ),
        (
            {"parameters": {"gravty": {"type": "float", "lower": 1.0, "upper": 9.0}}},
            "parameters.gravty: unknown parameter.*'gravity'",
        ),
        ({"parameters": {"gravity": {"type": "float", "lower": 9.0}}}, r"parameters\.gravity"),
    ],
)
def test_mistakes_of_a_family_are_named(change, message):
    with pytest.raises(InputError, match=message):
        read_task_family({**FAMILY, **change})


def test_a_family_has_no_more_variants_than_there_are():
    two = {"reward_scale": FAMILY["parameters"]["reward_scale"]}
    with pytest.raises(InputError, match="1 different variants, not 3"):
        _ = read_task_family({**FAMILY, "parameters": two}).variants


def test_a_build_writes_one_landscape_for_each_variant_and_goes_on(files):
    family = read_task_family(files / "family.yaml")
    plans = plan_family(files / "study.yaml", family, studies=files / "studies")
    next(build_plans(plans, files / "out", lambda study: study.run()))
    assert trainings(files) == 4
    build(files)
    assert trainings(files) == 12, "two configurations, two seeds, three variants, each once"
    for item in family.variants:
        landscape = Landscape(files / "out" / "my/toy" / item.name)
        manifest = landscape.manifest
        assert manifest.environment == item.name
        assert item.text in manifest.description
        environment = manifest.trainer["environment"]
        assert dict(environment["kwargs"]) == dict(item.parameters)
        assert environment["variant"] == item.hash
        assert dict(environment["family"]) == family.about
        scale = item.parameters.get("reward_scale", 1.0)
        assert manifest.return_bounds == (-scale, 0.0)
        assert landscape.sql("SELECT DISTINCT environment FROM runs").fetchall() == [(item.name,)]
    build(files)
    assert trainings(files) == 12
    (files / "study.yaml").write_text(
        (files / "study.yaml").read_text().replace("configurations: 2", "configurations: 3")
    )
    assert "holds another study" in build(files, code=2).stderr


def test_priors_and_examinations_share_no_variant(files):
    build(files)
    used = used_variants(files / "out")
    assert used.keys() == {item.hash for item in read_task_family(FAMILY).variants}
    message = build(files, "--apart-from", files / "out", code=2).stderr
    assert "cartpole-physics: 3 of its 3 variants are among those of" in message
    assert "3 of its 3" in build(files, "--apart-from", files / "family.yaml", code=2).stderr
    examination = {**FAMILY, "purpose": "examination"}
    (files / "family.yaml").write_text(yaml.safe_dump(examination))
    shown = json.loads(build(files, "--apart-from", files / "out", "--dry-run", "--json").stdout)
    assert shown["family"]["purpose"] == "examination"
    assert shown["remaining"] == 3
    assert shown["runs"] == 12
    assert {row["landscape"] for row in shown["variants"]} == {
        f"my/toy/{item.name}" for item in read_task_family(examination).variants
    }
    assert "for examination" in build(files, "--dry-run").stdout


def test_a_family_of_another_environment_is_refused(files):
    text = (files / "study.yaml").read_text()
    (files / "study.yaml").write_text(text + "environment: Acrobot-v1\n")
    assert "is of CartPole-v1, not Acrobot-v1" in build(files, code=2).stderr
    assert "--id: each variant has its own" in build(files, "--id", "a/b/c", code=2).stderr


def test_a_landscape_of_a_variant_cannot_take_the_name_of_its_environment(files):
    text = (files / "study.yaml").read_text()
    environment = {"environment": {"id": "CartPole-v1", "kwargs": {"gravity": 6.0}}}
    (files / "study.yaml").write_text(text + yaml.safe_dump(environment))
    name = variant("CartPole-v1", {"gravity": 6.0}).name
    arguments = ["landscape", "build", files / "study.yaml", "--out", files / "out"]
    arguments += ["--study", files / "one", "--quiet"]
    refused = CliRunner().invoke(app, [str(word) for word in arguments])
    assert refused.exit_code == 2
    said = f"trains on CartPole-v1 with gravity=6: expected namespace/algorithm/{name}"
    assert said in refused.stderr
    arguments += ["--id", f"my/toy/{name}"]
    built = CliRunner().invoke(app, [str(word) for word in arguments])
    assert built.exit_code == 0, built.output
    with pytest.raises(InputError, match=name):
        from_study(files / "one", files / "out", "my/toy/CartPole-v1")
    # Recorded runs of a variant do not answer for its environment.
    replay = load(TrainerSpec("tabular", FrozenMap(landscape=str(files / "out/my/toy" / name))))
    replay.check(load_spec(files / "study.yaml").environment.resolve(), {"x"})
    with pytest.raises(InputError, match=f"is of {name}, not CartPole-v1"):
        replay.check(EnvironmentSpec("CartPole-v1"), {"x"})
