"""The proposals of the model: the same numbers in dry run, result, status, report and compare."""

import pytest
from cli_support import as_json, autorl, query, study_file
from test_compare import compared

NEVER = "never left its start-up: this is random search"
LATE = {"optimizer": "tpe", "parallelism": 8}  # 8 proposals, all in flight before the first score


def test_the_counts_agree_everywhere(tmp_path):
    file, folder = study_file(tmp_path, optimizer="tpe", parallelism=1), tmp_path / "s"
    expected = {"total": 8, "by_model": 6, "continued": 0}
    text = "8 new configurations (6 by the model, 2 of the start-up)"
    dry = ("tune", file, "--dry-run")
    said = [autorl(*dry).stdout, autorl("tune", file, "--out", folder).stdout]
    said.append(autorl("watch", folder, "--once").stdout)
    autorl("report", folder)
    said.append((folder / "report.html").read_text())
    assert all(text in part for part in said)
    for command in (dry, ("watch", folder)):
        assert as_json(*command)["new_configurations"] == expected
    informed = "SUM(json_extract(body, '$.proposed.proposal.informed'))"
    assert query(folder, f"SELECT {informed} FROM event WHERE kind = 'proposed'") == [(6,)]


@pytest.mark.parametrize(
    ("name", "package"),
    [
        *(("tpe", "scipy"), ("gp", "scipy"), ("cmaes", "cmaes"), ("nsga2", "scipy")),
        pytest.param("smac", "smac", marks=pytest.mark.slow),
    ],
)
def test_the_dry_run_counts_what_the_model_would_make_without_asking_it(tmp_path, name, package):
    pytest.importorskip(package)
    file = study_file(tmp_path, optimizer=name, parallelism=2, budget={"runs": 24})
    planned = as_json("tune", file, "--dry-run")["new_configurations"]
    result = as_json("tune", file, "--out", tmp_path / "s", "--quiet")
    assert planned == result["new_configurations"]
    assert planned["by_model"] >= 6


def test_a_study_that_never_left_its_start_up_says_so(tmp_path):
    file, folder = study_file(tmp_path, **LATE), tmp_path / "s"
    planned = as_json("tune", file, "--dry-run")
    result = as_json("tune", file, "--out", folder, "--quiet")
    assert result["new_configurations"]["by_model"] == 0
    texts = (planned["cautions"], result["caveats"], as_json("watch", folder)["warnings"])
    assert all(any(NEVER in text for text in said) for said in texts)


def test_promotions_are_counted_apart(tmp_path):
    alone = {"baseline": False}
    file = study_file(tmp_path, optimizer="bohb", budget={"runs": 32}, parallelism=1, test=alone)
    counts = as_json("tune", file, "--out", tmp_path / "s", "--quiet")["new_configurations"]
    columns = "COUNT(*) FILTER (WHERE resume_from IS NULL), COUNT(resume_from)"
    ((new, continued),) = query(tmp_path / "s", f"SELECT {columns} FROM proposals")
    assert (counts["total"], counts["continued"]) == (new, continued)
    assert 0 < counts["by_model"] < new


def test_compare_says_it_for_each_optimizer(tmp_path):
    file = study_file(tmp_path, **LATE, seeds={"tuning": 2, "test": 3})
    command = compared(file, "random,tpe", repeats=2)
    found = as_json(*command)
    rows = {row["method"]: row for row in found["rows"]}
    assert rows["tpe"]["share"] == {"new": 16, "modelled": 0, "continued": 0}
    assert (rows["tpe"]["learns"], rows["random"]["learns"]) == (True, False)
    assert any(f"tpe {NEVER}" in text for text in found["caveats"])
    assert "0 of 16" in autorl(*command).stdout
