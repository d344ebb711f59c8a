"""Spaces that extend others: only what is named changes."""

import pytest
from refusals import expect_error

from autorl.space import load_space
from autorl.space.extend import extended as extend
from autorl.study.spec import load_spec

BASE = """
hyperparameters:
  rate:
    {type: float, lower: 1e-5, upper: 0.1, scale: log, default: 1e-3, changeable: true, schedule: [constant, linear]}
  batch: {type: ordinal, choices: [8, 16, 32, 64], default: 16}
  target: {choices: [true, false]}
  interval: {type: int, lower: 1, upper: 100, default: 10}
conditions: {interval: target == true}
forbidden: [{batch: 64, target: false}]
constraints: ["batch <= limit"]
constants: {limit: 48}
"""


@pytest.fixture
def base(tmp_path, monkeypatch):
    (tmp_path / "base.yaml").write_text(BASE)
    monkeypatch.chdir(tmp_path)
    return load_space("base.yaml")


def extended(**more):
    return load_space({"extends": "base.yaml", **more})


def test_with_nothing_beside_it_the_space_is_the_base(base):
    assert extended().hash == base.hash


def test_what_is_narrowed_keeps_everything_else(base):
    found = extended(hyperparameters={"rate": {"lower": 1e-4, "upper": 1e-2}}).hyperparameters
    rate = found["rate"]
    before = base.hyperparameters["rate"]
    assert (rate.lower, rate.upper, rate.default) == (1e-4, 1e-2, 1e-3)
    assert (rate.scale, rate.changeable) == (before.scale, before.changeable)
    assert {"rate.shape", "rate.end"} <= set(found)
    assert (found["rate.end"].lower, found["rate.end"].upper) == (1e-4, 1e-2)
    others = {name for name in base.names if not name.startswith("rate")}
    assert all(found[name] == base.hyperparameters[name] for name in others)


@pytest.mark.parametrize(
    ("name", "entry", "key"),
    [
        ("rate", {"upper": 1e9}, "upper"),
        ("rate", {"lower": 1e-6, "upper": 1e-2}, "lower"),
        ("interval", {"lower": 0}, "lower"),
    ],
)
def test_bounds_are_widened_only_by_an_entry_with_a_type(base, name, entry, key):
    error = expect_error("", extended, hyperparameters={name: entry})
    assert error.key == f"hyperparameters.{name}.{key}"
    assert f"{entry[key]} is outside" in error.message
    whole = {"lower": 1, "upper": 100} | entry | {"type": "float"}
    assert extended(hyperparameters={name: whole}).hyperparameters[name].upper == whole["upper"]


def test_a_default_that_narrower_bounds_exclude_is_the_nearest_bound(base):
    assert extended(hyperparameters={"rate": {"lower": 1e-2}}).default()["rate"] == 1e-2
    assert extended(hyperparameters={"interval": {"upper": 4}}).default()["interval"] == 4
    assert extended(hyperparameters={"batch": {"choices": [8, 32]}}).default()["batch"] in (8, 32)
    narrower = extended(hyperparameters={"rate": {"lower": 1e-2, "default": 0.05}})
    assert narrower.default()["rate"] == 0.05


def test_what_is_fixed_is_in_every_configuration_where_its_condition_holds(base):
    found = extended(hyperparameters={"rate": {"value": 2e-3}, "interval": {"value": 7}})
    assert found.default()["rate"] == 2e-3
    assert found.default()["interval"] == 7
    assert "rate.shape" not in found.names
    assert "interval" not in found.config({"rate": 2e-3, "batch": 16, "target": False})


def test_what_is_left_out_goes_with_its_condition(base):
    assert set(extended(hyperparameters={"interval": None}).names) == set(base.names) - {"interval"}


def test_a_forbidden_combination_keeps_the_values_that_are_left():
    base = {
        "hyperparameters": {"a": {"choices": [1, 2, 3]}, "b": {"choices": ["x", "y"]}},
        "forbidden": [{"a": [2, 3], "b": "x"}, {"a": 1, "b": "y"}],
    }
    narrow = {"extends": "base", "hyperparameters": {"a": {"choices": [2, 1]}, "b": {"value": "x"}}}
    assert extend(narrow, lambda name: base)["forbidden"] == [{"a": [2], "b": "x"}]


def test_over_a_base_of_its_kind_a_short_form_leaves_the_rest_as_it_is(base):
    short = {"rate": "log(1e-4, 1e-2)", "batch": [8, 16], "target": True}
    found = extended(hyperparameters=short).hyperparameters
    rate, batch, target = (found[name] for name in short)
    assert (*rate.bounds, rate.default, rate.changeable) == (1e-4, 1e-2, 1e-3, True)
    assert (batch.type, batch.choices, batch.default) == ("ordinal", (8, 16), 16)
    assert (target.type, target.default) == ("constant", True)


def test_over_a_base_of_another_kind_a_short_form_replaces_it(base):
    short = {"rate": [1e-3, 1e-2], "batch": "int(8, 32)", "target": "uniform(0, 1)"}
    found = extended(hyperparameters=short, conditions={"interval": "target > 0.5"}).hyperparameters
    kinds = {name: found[name].type for name in short}
    assert kinds == {"rate": "categorical", "batch": "int", "target": "float"}


@pytest.mark.parametrize("entry", [48, [16, 48], "int(16, 64)"])
def test_a_constant_of_the_base_is_fixed_or_searched(base, entry):
    found = extended(hyperparameters={"limit": entry})
    assert "limit" in found.hyperparameters
    assert "limit" not in found.constants
    assert found.constraints[0].names == {"batch", "limit"}


def test_rules_and_constants_are_added_and_new_hyperparameters_too(base):
    found = extended(
        hyperparameters={"gamma": {"type": "float", "lower": 0.9, "upper": 1.0}},
        conditions={"gamma": "target == false"},
        constraints=["batch >= 16"],
        constants={"limit": 24},
    )
    assert "gamma" not in found.default()
    for batch, allowed in ((8, False), (16, True), (32, False)):
        config = {**found.default(), "batch": batch}
        if allowed:
            found.check(config)
        else:
            expect_error("", found.check, config)


def test_an_extension_can_be_extended_from_another_folder(base, tmp_path, monkeypatch):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "one.yaml").write_text(
        "extends: ../base.yaml\nhyperparameters: {batch: {value: 8}}\n"
    )
    (tmp_path / "more" / "two.yaml").write_text(
        "extends: one.yaml\nhyperparameters: {rate: {upper: 1e-2}}\n"
    )
    monkeypatch.chdir(tmp_path / "more")
    found = load_space(tmp_path / "more" / "two.yaml")
    assert found.default()["batch"] == 8
    assert found.hyperparameters["rate"].upper == 1e-2


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"hyperparameters": {"rat": {"upper": 1}}},
            "rat: base.yaml has none.*did you mean 'rate'",
        ),
        ({"hyperparameters": {"rat": None}}, "did you mean 'rate'"),
        ({"hyperparameters": {"new": {"upper": 1}}}, "a new one needs a type"),
        ({"hyperparameters": {"rate": {"uper": 1}}}, "rate.uper: .*did you mean 'upper'"),
        ({"hyperparameters": {"rate": {"upper": "x"}}}, "rate.upper: expected a number"),
        ({"hyperparameters": {"target": None}}, "target"),
        ({"hyperparameters": [1]}, "hyperparameters: expected a mapping"),
        ({"constraints": "batch < 3"}, "constraints: expected a list"),
        ({"extends": "nowhere"}, "extends: nowhere: no search space"),
        ({"extends": 3}, "extends: expected the name or file"),
    ],
)
def test_mistakes_are_named(base, more, message):
    expect_error(message, load_space, {"extends": "base.yaml", **more})


def test_a_file_that_extends_itself_is_refused(base, tmp_path):
    (tmp_path / "loop.yaml").write_text("extends: other.yaml\n")
    (tmp_path / "other.yaml").write_text("extends: loop.yaml\n")
    expect_error(r"loop\.yaml:1: extends: .* extends itself", load_space, "loop.yaml")


def test_an_override_changes_one_key_of_a_named_space_and_the_stored_study_has_it_written_out(base):
    study = {
        "trainer": "synthetic",
        "space": "base.yaml",
        "fidelity": {"steps": 10},
        "budget": {"runs": 3},
    }
    spec = load_spec(
        study,
        {"space.hyperparameters.batch": {"value": 32}, "space.hyperparameters.rate.upper": 0.01},
    )
    assert spec.search_space.default()["batch"] == 32
    assert spec.search_space.hyperparameters["rate"].upper == 0.01
