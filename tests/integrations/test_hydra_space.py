"""Search spaces and sweeps of Hydra become ours, and configurations become overrides."""

import json

import pytest
from refusals import expect_error

pytest.importorskip("hydra", reason="needs hydra-core, of the extra `hydra`")

from hydra.core.override_parser.overrides_parser import OverridesParser

from autorl.core.types import Config
from autorl.integrations.hydra_space import Searched, override_text, overrides_of, read_searched

PARSER = OverridesParser.create()
REAL = {"type": "float", "lower": 0.0, "upper": 1.0, "scale": "linear"}
WHOLE = {"type": "int", "lower": 1, "upper": 8, "scale": "linear"}


def swept(*texts):
    searched = Searched()
    for override in PARSER.parse_overrides(list(texts)):
        searched.add(override)
    return searched


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("x=interval(0, 1)", REAL),
        ("x=tag(log, interval(1e-5, 0.1))", REAL | {"lower": 1e-5, "upper": 0.1, "scale": "log"}),
        ("x=int(interval(1, 8))", WHOLE),
        ("x=tag(log, int(interval(2, 8)))", WHOLE | {"lower": 2, "scale": "log"}),
        ("x=range(1, 9)", WHOLE),
        ("x=range(0, 1, 0.25)", {"type": "ordinal", "choices": [0.0, 0.25, 0.5, 0.75]}),
        ("x=range(0, 10, 5)", {"type": "ordinal", "choices": [0, 5]}),
        ("x=choice(32, 64)", {"choices": [32, 64]}),
        ("x=a,'b c',null", {"choices": ["a", "b c", None]}),
        ("x=choice([64, 64], [32])", {"choices": [[64, 64], [32]]}),
        ("x=choice(3)", {"value": 3}),
    ],
)
def test_a_sweep_of_hydra_is_a_hyperparameter(text, entry):
    searched = swept(text)
    assert searched.definition == {"hyperparameters": {"x": entry}}
    assert searched.start_from({}).names == ("x",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x=tag(big, interval(0, 1))", "params.x: expected one of the tags log, flipped_log"),
        ("x=range(5, 5)", "params.x: the range is empty"),
        ("x=range(0, 1, 0.00001)", "expected at most 10,000 values"),
    ],
)
def test_a_sweep_without_a_counterpart_is_refused(text, message):
    expect_error(message, swept, text)


def test_keys_that_add_are_overridden_by_their_keys():
    searched = swept("+x=interval(0, 1)", "db@dst=choice(mysql, postgres)")
    space = searched.start_from({})
    assert set(space.names) == {"x", "db/dst"}
    config = Config({"x": 0.5, "db/dst": "mysql"})
    assert sorted(overrides_of(config, searched.keys)) == ["+x=0.5", "db@dst=mysql"]


def test_the_applications_own_values_are_the_default_configuration(tmp_path):
    source = {
        "hyperparameters": {
            "lr": "log(1e-5, 1e-1)",
            "units": [32, 64],
            "gamma": {"type": "float", "lower": 0.9, "upper": 1.0, "default": 0.97},
            "tau": "uniform(0, 1)",
        }
    }
    searched = read_searched(source, tmp_path)
    own = {"lr": 3e-4, "units": 64, "gamma": 0.99, "tau": 5.0}
    default = searched.start_from(own).default()
    assert dict(default) == {"lr": 3e-4, "units": 64, "gamma": 0.97, "tau": 0.5}


def test_own_values_that_a_rule_forbids_are_no_default(tmp_path):
    source = {"hyperparameters": {"a": "int(1, 8)", "b": "int(4, 8)"}, "constraints": ["a <= b"]}
    searched = read_searched(source, tmp_path)
    assert dict(searched.start_from({"a": 4, "b": 5}).default()) == {"a": 4, "b": 5}
    assert dict(searched.start_from({"a": 8, "b": 4}).default())["a"] < 8


HYPERSWEEPER = {
    "hyperparameters": {
        "solver": {"type": "categorical", "choices": ["lbfgs", "sgd"], "default_value": "sgd"},
        "algorithm.lr": {"type": "uniform_float", "lower": 1e-6, "upper": 0.01, "log": True},
        "buffer": {"type": "uniform_int", "lower": 5e3, "upper": 5e4, "default": 10000},
        "batch": {"type": "uniform_int", "lower": 30, "upper": 300},
    },
    "conditions": [{"child": "batch", "parent": "solver", "type": "IN", "values": ["sgd"]}],
    "seed": 4,
}
ARLBENCH = {
    "seed": 0,
    "hyperparameters": {
        "hp_config.target": {"type": "categorical", "choices": [True, False], "default": True},
        "hp_config.tau": {"type": "uniform_float", "lower": 0.01, "upper": 1.0, "default": 1.0},
    },
    "conditions": [
        {"child": "hp_config.tau", "parent": "hp_config.target", "value": True, "type": "EQ"}
    ],
}


def test_spaces_of_arlbench_are_read(tmp_path):
    space = read_searched(ARLBENCH, tmp_path).start_from({"hp_config.target": False})
    default = space.default()
    assert dict(default) == {"hp_config.target": True, "hp_config.tau": 1.0}
    assert sorted(overrides_of(default, {})) == ["hp_config.target=true", "hp_config.tau=1.0"]
    assert set(space.config({"hp_config.target": False})) == {"hp_config.target"}


def test_spaces_of_hypersweeper_are_read(tmp_path):
    searched = read_searched(HYPERSWEEPER, tmp_path)
    space = searched.start_from({"algorithm.lr": 1e-3, "buffer": 6000})
    assert dict(space.default()) == {
        "solver": "sgd",
        "algorithm.lr": 1e-3,
        "buffer": 10000,
        "batch": 165,
    }
    lr = space.hyperparameters["algorithm.lr"]
    assert (lr.type, lr.lower, lr.upper, lr.scale) == ("float", 1e-6, 0.01, "log")
    assert "batch" not in space.config({"solver": "lbfgs", "algorithm.lr": 1e-3, "buffer": 6000})


def test_spaces_in_files_are_read(tmp_path):
    items = [entry | {"name": name} for name, entry in HYPERSWEEPER["hyperparameters"].items()]
    file = tmp_path / "space.json"
    file.write_text(json.dumps(HYPERSWEEPER | {"hyperparameters": items}))
    assert read_searched("space.json", tmp_path).definition == (
        read_searched(HYPERSWEEPER, tmp_path).definition
    )
    (tmp_path / "space.yaml").write_text("hyperparameters: {x: 'uniform(0, 1)'}")
    assert read_searched("space.yaml", tmp_path).start_from({"x": 0.1}).default()["x"] == 0.5
    expect_error(r"nowhere\.yaml", read_searched, "nowhere.yaml", tmp_path)


@pytest.mark.parametrize(
    "source", [3, {"hyperparameters": {"x": {"type": "uniform_float", "lower": 0.0}}}]
)
def test_what_is_no_space_is_refused(tmp_path, source):
    expect_error(r"hydra\.sweeper\.search_space", read_searched, source, tmp_path)


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 3, 1e-05, "tanh", "true", "null", "a b", "it's", "a,b=c", "${x}", "", "1e3"),
        *([64, 64], {"a": [1, "b c"]}, "back\\slash", "NaN", "/tmp/some-file.pt"),
    ],
)
def test_values_come_back_as_they_were(value):
    (override,) = PARSER.parse_overrides([f"x={override_text(value)}"])
    assert override.value() == value
    assert type(override.value()) is type(value)
