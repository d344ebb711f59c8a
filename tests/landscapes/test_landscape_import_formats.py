"""Recognising formats, options of an import, inferred spaces."""

import json

import numpy as np
import pytest
from refusals import expect_error
from typer.testing import CliRunner

from autorl.cli.app import app
from autorl.core.types import InputError
from autorl.landscapes.importers import FORMATS, import_any
from autorl.landscapes.importers.common import seed_roles
from autorl.landscapes.importers.inference import clean_name, flatten, infer_space, table_rows


def test_what_nobody_knows_is_one_clear_line(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    result = CliRunner().invoke(
        app, ["landscape", "import", str(tmp_path / "notes.txt"), "--out", str(tmp_path)]
    )
    assert result.exit_code == 2
    text = result.stderr.strip()
    assert len(text.splitlines()) == 1
    assert "not recognised" in text
    assert all(name in text for name in FORMATS)
    with pytest.raises(InputError, match="unknown format 'xml'; allowed: arlbench, "):
        import_any(tmp_path, tmp_path / "out", format="xml")
    expect_error("no such file", import_any, tmp_path / "absent", tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"direction": "up"}, "expected maximize or minimize"),
        ({"unit": 0}, "above 0"),
        ({"id": "one/two"}, "namespace/algorithm/environment"),
        ({"about": {"license": "MIT"}}, "unknown; allowed: description, licence"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, message):
    expect_error(message, import_any, tmp_path, tmp_path / "out", **options)


@pytest.mark.parametrize(
    ("format", "message"),
    [
        ("arlbench", r"no \.csv"),
        ("arlbench-runs", "none of the folders rs, smac, smac_mf, pbt"),
        ("hpo-rl-bench", "no files <environment>_<ALGORITHM>"),
        ("ray", "no trial folders"),
        ("deepcave", r"history\.jsonl: missing"),
    ],
)
def test_folders_without_such_files_are_refused(tmp_path, format, message):
    expect_error(message, import_any, tmp_path, tmp_path / "out", format=format, metric="return")


def test_half_of_the_seeds_tune():
    assert seed_roles([4, 2, 9], None) == {2: "tuning", 4: "tuning", 9: "test"}
    assert seed_roles([4, 2, 9], 1) == {2: "tuning", 4: "test", 9: "test"}
    expect_error(r"1\.\.3, got 4", seed_roles, [4, 2, 9], 4)


def test_an_inferred_space_holds_every_configuration():
    rng = np.random.default_rng(1)
    configs = []
    for _ in range(60):
        config = {
            "lr": float(10 ** rng.uniform(-5, -1)),
            "decay": float(rng.uniform(0.001, 1)),
            "width": int(rng.integers(1, 9)),
            "flag": bool(rng.integers(2)),
            "layers": int(rng.integers(1, 4)),
            "shape": ((16,), (32, 32))[rng.integers(2)],
            "fixed": "x",
        }
        config |= {"second": 0.5 + rng.random()} if config["layers"] >= 2 else {}
        config |= {"rate": rng.random()} if config["flag"] else {}
        configs.append(config)
    space = infer_space(configs)
    kinds = {name: (item.type, item.scale) for name, item in space.hyperparameters.items()}
    assert kinds == {
        "lr": ("float", "log"),
        "decay": ("float", "linear"),
        "width": ("int", "linear"),
        "flag": ("categorical", "linear"),
        "layers": ("int", "linear"),
        "shape": ("categorical", "linear"),
        "fixed": ("constant", "linear"),
        "second": ("float", "linear"),
        "rate": ("float", "linear"),
    }
    assert all(set(space.config(config)) == set(config) for config in configs)


def test_what_cannot_be_inferred_is_said():
    with pytest.raises(
        InputError, match="missing in 1 of 2 configurations, and no other"
    ) as caught:
        infer_space([{"a": 1, "b": 2}, {"a": 1}])
    assert caught.value.key == "b"
    expect_error("not a finite number", infer_space, [{"a": float("inf")}, {"a": 1.0}])
    expect_error("no hyperparameters", infer_space, [{}])


def test_foreign_names_and_cells():
    assert flatten({"model": {"net width": 3, "1": 2}, "lr:0": 1}) == {
        "model.net_width": 3,
        "model.1": 2,
        "lr_0": 1,
    }
    assert [clean_name(name) for name in ("1st", "a b", "_x", "a..b")] == [
        "_1st",
        "a_b",
        "_x",
        "a.b",
    ]
    rows = table_rows(
        {"a": [1.0, float("nan"), 3.0], "b": [0.5, 1.0, 2.0], "c": ["x", float("nan"), "y"]}
    )
    expected = '[{"a": 1, "b": 0.5, "c": "x"}, {"b": 1.0}, {"a": 3, "b": 2.0, "c": "y"}]'
    assert json.dumps(rows) == expected
