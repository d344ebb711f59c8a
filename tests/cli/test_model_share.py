"""How many proposals are the model's: the same numbers in the dry run, the result, the status, the report, compare."""

import importlib.util

import pytest
from cli_support import as_json, autorl, query, study_file
from test_compare import compared

NEVER = "never left its start-up: this is random search"
LATE = {"optimizer": "tpe", "parallelism": 8}  # 8 proposals, all in flight before the first score


def test_the_counts_agree_everywhere(tmp_path):
    file, folder = study_file(tmp_path, optimizer="tpe", parallelism=1), tmp_path / "s"
    expected = {"total": 8, "by_model": 6, "continued": 0}
    assert as_json("tune", file, "--dry-run")["new_configurations"] == expected
    text = "8 new configurations (6 by the model, 2 of the start-up)"
    assert text in autorl("tune", file, "--dry-run").stdout
    assert text in autorl("tune", file, "--out", folder).stdout
    assert as_json("watch", folder)["new_configurations"] == expected
    assert text in autorl("watch", folder, "--once").stdout
    autorl("report", folder)
    assert text in (folder / "report.html").read_text()
    informed = query(
        folder,
        "SELECT SUM(json_extract(body, '$.proposed.proposal.informed')) FROM event WHERE kind = 'proposed'",
    )
    assert informed == [(6,)]


@pytest.mark.parametrize(
    "name", ["tpe", "gp", "cmaes", "nsga2", pytest.param("smac", marks=pytest.mark.slow)]
)
def test_the_dry_run_counts_what_the_model_would_make_without_asking_it(tmp_path, name):
    if (
        name in ("gp", "smac")
        and importlib.util.find_spec({"gp": "torch", "smac": "smac"}[name]) is None
    ):
        pytest.skip("not installed")
    file, folder = (
        study_file(tmp_path, optimizer=name, parallelism=2, budget={"runs": 24}),
        tmp_path / "s",
    )
    planned = as_json("tune", file, "--dry-run")["new_configurations"]
    result = as_json("tune", file, "--out", folder, "--quiet")
    assert planned == result["new_configurations"]
    assert planned["by_model"] >= 6


def test_a_study_that_never_left_its_start_up_says_so(tmp_path):
    file, folder = study_file(tmp_path, **LATE), tmp_path / "s"
    assert any(NEVER in text for text in as_json("tune", file, "--dry-run")["cautions"])
    result = as_json("tune", file, "--out", folder, "--quiet")
    assert result["new_configurations"]["by_model"] == 0
    assert any(NEVER in text for text in result["caveats"])
    assert any(NEVER in text for text in as_json("watch", folder)["warnings"])


def test_promotions_are_counted_apart(tmp_path):
    alone = {"baseline": False}
    file = study_file(tmp_path, optimizer="bohb", budget={"runs": 32}, parallelism=1, test=alone)
    result = as_json("tune", file, "--out", tmp_path / "s", "--quiet")
    counts = result["new_configurations"]
    ((new, continued),) = query(
        tmp_path / "s",
        "SELECT COUNT(*) FILTER (WHERE resume_from IS NULL), COUNT(resume_from) FROM proposals",
    )
    assert (counts["total"], counts["continued"]) == (new, continued)
    assert 0 < counts["by_model"] < new


def test_compare_says_it_for_each_optimizer(tmp_path):
    file = study_file(tmp_path, **LATE, seeds={"tuning": 2, "test": 3})
    command = compared(file, "random,tpe", repeats=2)
    found = as_json(*command)
    rows = {row["optimizer"]: row["new_configurations"] for row in found["optimizers"]}
    assert rows["tpe"] == {"total": 16, "by_model": 0, "continued": 0}
    assert rows["random"]["by_model"] is None
    assert any(f"tpe {NEVER}" in text for text in found["caveats"])
    assert "0 of 16" in autorl(*command).stdout
