"""compare: the numbers of its table are those of the studies it ran, and it goes on where it stopped."""

import json
import shutil

import numpy as np
import pytest
from cli_support import as_json, autorl, query, study_file

from autorl.statistics import iqm

SMALL = {"budget": {"runs": 8}, "seeds": {"tuning": 2, "test": 3}, "test": {"top": 0}}


def compared(file, optimizers="random,sobol", repeats=1):
    """The words of a command that compares optimizers in the folder `c` beside a study file."""
    options = ("--optimizers", optimizers, "--repeats", repeats, "--out", file.parent / "c")
    return ("compare", file, *options, "--quiet")


def test_the_table_is_made_of_the_test_scores_of_the_studies(tmp_path):
    file = study_file(tmp_path, **SMALL)
    found = as_json(*compared(file, repeats=2))
    rows = {row["optimizer"]: row for row in found["optimizers"]}
    means = {}
    for name in ("random", "sobol"):
        for seed in (0, 1):
            folder = tmp_path / "c" / name / f"seed-{seed}"
            values = query(folder, "SELECT value FROM tests WHERE label = 'incumbent'")
            means[name, seed] = iqm([value for (value,) in values])
            assert rows[name]["tests"][str(seed)] == pytest.approx(means[name, seed])
        assert rows[name]["test"] == pytest.approx((means[name, 0] + means[name, 1]) / 2)
        assert query(tmp_path / "c" / name / "seed-0", "SELECT COUNT(*) FROM proposals") == [(4,)]
    ranks = [1.0 if means["random", seed] > means["sobol", seed] else 2.0 for seed in (0, 1)]
    assert rows["random"]["average_rank"] == pytest.approx(np.mean(ranks))
    assert rows["random"]["average_rank"] + rows["sobol"]["average_rank"] == pytest.approx(3.0)
    assert any("fewer than 5" in text for text in found["caveats"])


def test_it_goes_on_where_it_stopped_and_reads_what_is_finished(tmp_path):
    file = study_file(tmp_path, **SMALL)
    command = compared(file)
    found = as_json(*command)
    kept = (tmp_path / "c" / "random" / "seed-0" / "study.sqlite").read_bytes()
    shutil.rmtree(tmp_path / "c" / "sobol")
    assert as_json(*command) == found
    assert (tmp_path / "c" / "random" / "seed-0" / "study.sqlite").read_bytes() == kept
    text = autorl(*command).stdout
    assert "average rank" in text
    assert "caution: 1 study for each optimizer: fewer than" in text


def test_an_optimizer_of_the_file_keeps_its_options(tmp_path):
    file = study_file(tmp_path, **SMALL, optimizer={"name": "random", "stop": "median", "rungs": 2})
    autorl(*compared(file))
    for name, until in (("random", 50), ("sobol", 100)):
        folder = tmp_path / "c" / name / "seed-0"
        assert query(folder, "SELECT MIN(until) FROM proposals") == [(until,)]


def test_a_changed_study_file_is_refused(tmp_path):
    autorl(*compared(study_file(tmp_path, **SMALL)))
    error = autorl(*compared(study_file(tmp_path, **SMALL, parallelism=1)), code=2).stderr
    assert "holds another study" in error


def test_wrong_optimizers_are_found_before_anything_is_trained(tmp_path):
    file = study_file(tmp_path, **SMALL)
    assert "at least two" in autorl("compare", file, "--optimizers", "random", code=2).stderr
    assert "'tpe'" in autorl(*compared(file, "random,tppe"), code=2).stderr
    assert not (tmp_path / "c").exists()


def test_a_study_without_a_result_is_named_and_the_rest_goes_on(tmp_path):
    trainer = {"name": "synthetic", "kwargs": {"crash": {"below": {"x": 0.5}}}}
    file = study_file(tmp_path, **SMALL, trainer=trainer)
    command = compared(file, "grid,random")
    outcome = autorl(*command, "--json", "--set", "trainer.kwargs.crash=1.0", code=1)
    found = json.loads(outcome.stdout)
    assert [row["test"] for row in found["optimizers"]] == [None, None]
    assert any("without a result" in text for text in found["caveats"])
    assert outcome.stderr.count("proposals failed") == 2
