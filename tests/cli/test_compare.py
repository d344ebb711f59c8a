"""compare FILE: the numbers of its table are those of the studies it ran, and it goes on where it stopped."""

import json
import shutil

import numpy as np
import pytest
import yaml
from cli_support import as_json, autorl, query, study_file

from autorl import load_landscape
from autorl.statistics import iqm

SMALL = {"budget": {"runs": 8}, "seeds": {"tuning": 2, "test": 3}, "test": {"top": 0}}


def compared(file, optimizers="random,sobol", repeats=1):
    """The words of a command that compares optimizers in the folder `c` beside a study file."""
    options = ("--optimizers", optimizers, "--repeats", repeats, "--out", file.parent / "c")
    return ("compare", file, *options, "--quiet")


def test_the_table_is_made_of_the_test_scores_of_the_studies(tmp_path):
    file = study_file(tmp_path, **SMALL)
    found = as_json(*compared(file, repeats=2))
    rows = {row["method"]: row for row in found["rows"]}
    means = {}
    for name in ("random", "sobol"):
        for seed in (0, 1):
            folder = tmp_path / "c" / name / f"seed-{seed}"
            values = query(folder, "SELECT value FROM tests WHERE label = 'incumbent'")
            means[name, seed] = iqm([value for (value,) in values])
            assert rows[name]["tests"][str(seed)] == pytest.approx(means[name, seed])
        assert rows[name]["test"] == pytest.approx((means[name, 0] + means[name, 1]) / 2)
        assert query(tmp_path / "c" / name / "seed-0", "SELECT COUNT(*) FROM proposals") == [(4,)]
    better = [1.0 if means["random", seed] > means["sobol", seed] else 2.0 for seed in (0, 1)]
    ranks = {it["method"]: it["rank"] for it in found["overall"]["standings"]}
    assert ranks == pytest.approx({"random": np.mean(better), "sobol": 3.0 - np.mean(better)})
    assert any("fewer than 5" in text for text in found["caveats"])


MATRIX = {
    "methods": {
        "random": "random",
        "wide": {"optimizer": "sobol", "space": {"x": "uniform(0, 1)", "rate": "log(1e-4, 1)"}},
    },
    "tasks": {"near": {}, "far/v1": {"trainer.kwargs.optimum": {"x": 0.1, "rate": 0.01}}},
    "repeats": 1,
    "scale": {"near": [0.0, 1.0]},
}


def test_methods_are_studied_on_tasks_as_their_keys_say(tmp_path):
    file = study_file(tmp_path, **SMALL, compare=MATRIX)
    out = ("--out", tmp_path / "c", "--quiet")
    pages = ("--html", tmp_path / "c.html", "--latex", tmp_path / "c.tex")
    found = as_json("compare", file, *out, *pages)
    assert {row["task"] for row in found["rows"]} == {"near", "far/v1"}
    assert found["overall"]["scales"]["near"] == [0.0, 1.0]
    assert "Critical difference" in (tmp_path / "c.html").read_text()
    assert r"\toprule" in (tmp_path / "c.tex").read_text()
    spec = yaml.safe_load(
        (tmp_path / "c" / "wide" / "far-v1" / "seed-0" / "study.yaml").read_text()
    )
    assert spec["optimizer"]["name"] == "sobol"
    assert spec["trainer"]["kwargs"]["optimum"] == {"x": 0.1, "rate": 0.01}
    assert spec["name"] == "small-wide-far-v1-0"
    assert set(spec["space"]["hyperparameters"]) == {"x", "rate"}
    # Without the study that is gone, each is only read.
    shutil.rmtree(tmp_path / "c" / "wide" / "near")
    assert as_json("compare", file, *out) == found
    more = as_json("compare", file, *out, "--set", "compare.repeats=2")
    assert more["repeats"] == 2
    assert (tmp_path / "c" / "random" / "near" / "seed-1").is_dir()


WRONG = {
    "methods": ({"methods": ["random"]}, "compare.methods"),
    "twice": ({"methods": ["random", "random"]}, "compare.methods: lists a name twice"),
    "kind": ({"methods": 3}, "expected a list of values of `optimizer`"),
    "folder": ({"methods": {"a/b": {}, "a-b": {}}}, "'a-b' is no name of a folder, or that of"),
    "no folder": ({"methods": {"..": {}, "b": {}}}, "'..' is no name of a folder"),
    "unknown": ({"tuks": [1]}, "compare.tuks: unknown key"),
    "repeats": ({"repeats": 0}, "compare.repeats"),
    "optimizer": ({"methods": ["random", "tppe"]}, "'tpe'"),
    "key": ({"methods": {"a": {"spase": "x"}, "b": {}}}, "method 'a' on 'near': unknown key"),
    "task": ({"scale": {"nea": [0, 1]}}, "compare.scale.nea: no task 'nea'; did you mean 'near'"),
    "flat": ({"scale": {"near": [1, 1]}}, "compare.scale.near: expected two different scores"),
    "unequal": (
        {"methods": {"a": {"optimizer": "random"}, "b": {"budget.runs": 9}}},
        "compare.methods: differ on near in budget (a: 8 runs; b: 9 runs)",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_section_is_one_line_before_anything_is_trained(tmp_path, name):
    changes, expected = WRONG[name]
    file = study_file(tmp_path, **SMALL, compare={**MATRIX, **changes})
    error = autorl("compare", file, "--out", tmp_path / "c", code=2).stderr
    assert expected in error
    assert not (tmp_path / "c").exists()


def test_a_file_of_several_studies_is_not_tuned(tmp_path):
    file = study_file(tmp_path, **SMALL, compare=MATRIX)
    assert "is of several studies, for `autorl compare" in autorl("tune", file, code=2).stderr
    plain = study_file(tmp_path, "plain.yaml", **SMALL)
    assert "compare.methods: is missing" in autorl("compare", plain, code=2).stderr
    assert "with methods" in autorl("compare", tmp_path, "--latex", "a.tex", code=2).stderr


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
    assert "caution: 1 study for each method: fewer than" in text


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
    assert "2 items" in autorl("compare", file, "--optimizers", "random", code=2).stderr
    assert "'tpe'" in autorl(*compared(file, "random,tppe"), code=2).stderr
    assert not (tmp_path / "c").exists()


def test_a_study_without_a_result_is_named_and_the_rest_goes_on(tmp_path):
    trainer = {"name": "synthetic", "kwargs": {"crash": {"below": {"x": 0.5}}}}
    file = study_file(tmp_path, **SMALL, trainer=trainer)
    command = compared(file, "grid,random")
    outcome = autorl(*command, "--json", "--set", "trainer.kwargs.crash=1.0", code=1)
    found = json.loads(outcome.stdout)
    assert [row["test"] for row in found["rows"]] == [None, None]
    assert any("without a result" in text for text in found["caveats"])
    assert outcome.stderr.count("proposals failed") == 2


# -- benchmark -------------------------------------------------------------------------------------

LANDSCAPE = "autorl/sac/Pendulum-v1"


def benchmarked(optimizer, folder):
    options = ("--landscape", LANDSCAPE, "--repeats", 2, "--runs", 12, "--out", folder)
    return ("benchmark", optimizer, *options, "--quiet")


def test_an_optimizer_is_benchmarked_on_recorded_runs(tmp_path):
    """Scores are the landscape's, on its scale; the same command reads what is finished."""
    data = load_landscape(LANDSCAPE)
    command = benchmarked("{name: tpe, startup: 2}", tmp_path / "b")
    found = as_json(*command)
    grid = data.grid
    test = grid.at(len(grid.steps) - 1).values[:, grid.seed_positions("test")]
    worst, best = min(test.mean(axis=1)), max(test.mean(axis=1))
    assert found["overall"]["scales"] == {LANDSCAPE: pytest.approx([worst, best])}
    assert [row["steps"] for row in found["rows"]] == [12 * grid.steps[-1]] * 2
    recorded = [iqm(scores) for scores in test]
    for row in found["rows"]:
        for score in row["tests"].values():
            assert min(abs(score - value) for value in recorded) < 1e-9
    (tpe,) = (row for row in found["rows"] if row["method"] != "random")
    assert tpe["share"]["modelled"] == 2 * 2
    shutil.rmtree(tmp_path / "b" / "random" / "autorl-sac-Pendulum-v1" / "seed-1")
    assert as_json(*command) == found


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        ("random", "OPTIMIZER: is what the others are compared with"),
        ("tppe", "no optimizer 'tppe'; did you mean 'tpe'"),
        ("{name: tpe, n: 1}", "optimizer.n: unknown option"),
        ("[a", "OPTIMIZER:1: not valid YAML"),
        ("my:Thing", "'my:Thing' cannot be imported"),
    ],
)
def test_a_wrong_optimizer_is_not_benchmarked(tmp_path, optimizer, expected):
    assert expected in autorl(*benchmarked(optimizer, tmp_path / "b"), code=2).stderr
    assert not (tmp_path / "b").exists()


def test_a_landscape_without_test_runs_is_no_benchmark():
    words = ("benchmark", "tpe", "--landscape", "autorl/pbt-ppo")
    assert "not every configuration has a run" in autorl(*words, code=2).stderr
