"""`autorl landscape importance | subset | analyse | plot`: what they print, by plain pandas."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from cli_support import as_json, autorl, finished_study, query

from autorl.landscapes import Landscape, analysis

sys.path.append(str(Path(__file__).parents[1] / "landscapes" / "analysis"))
from analysis_samples import SPACE, write_sample


def unit(name, config):
    return SPACE.hyperparameters[name].to_unit(config[name])


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Three environments of one algorithm: two alike, and one that another hyperparameter decides."""
    root = tmp_path_factory.mktemp("landscapes")
    levels = {
        "A-v0": lambda c: 100 * unit("learning_rate", c),
        "B-v0": lambda c: 100 * unit("learning_rate", c) + 20 * unit("width", c),
        "C-v0": lambda c: 100 * unit("width", c) + 5 * unit("learning_rate", c),
    }
    for name, level in levels.items():
        write_sample(root / f"sample/dqn/{name}", level, environment=name, configs=40, noise=5.0)
    return root


@pytest.fixture
def one(root):
    return root / "sample/dqn/A-v0"


def final_means(folder, role=None):
    """Mean final score by configuration, complete ones only, by pandas."""
    data = Landscape(folder)
    rows = data.sql("SELECT * FROM scores WHERE step = 300").df()
    rows = rows if role is None else rows[rows.seed_role == role]
    table = rows.pivot(index="config_id", columns="seed", values="value").dropna()
    return table.mean(axis=1)


def test_importance(one):
    pytest.importorskip("sklearn")
    found = as_json("landscape", "importance", one, "--seeds", "tuning")
    assert (found["method"], found["seeds"], found["step"]) == ("fanova", "tuning", 300)
    assert found["configurations"] == len(final_means(one, "tuning"))
    assert found["rows"][0]["hyperparameter"] == "learning_rate"
    assert sum(row["importance"] for row in found["rows"]) <= 1 + 1e-9
    table = analysis.importance(Landscape(one), seeds="tuning").table
    assert [row["importance"] for row in found["rows"]] == pytest.approx(table.importance.tolist())
    shown = autorl("landscape", "importance", one, "--step", 200).stdout
    assert "step            200" in shown
    assert "learning_rate" in shown


def test_importance_of_pairs_and_around_a_configuration(one):
    pytest.importorskip("sklearn")
    pairs = as_json("landscape", "importance", one, "--interactions")["rows"]
    assert len(pairs) == 5 + 10
    assert sum(row["with"] is None for row in pairs) == 5
    local = as_json("landscape", "importance", one, "--method", "local")
    assert local["configuration"] == final_means(one).idxmax()
    asked = ("landscape", "importance", one, "--method", "local", "--config", 3)
    assert as_json(*asked)["configuration"] == 3
    gains = as_json("landscape", "importance", one, "--method", "tunability")
    assert gains["configuration"] == "the defaults"
    best = gains["rows"][0]
    assert (best["hyperparameter"], best["reference"]) == ("learning_rate", 1e-3)
    assert best["gain"] > 20
    assert best["best"] > 1e-2


def test_a_forest_that_explains_nothing_says_so(tmp_path):
    pytest.importorskip("sklearn")
    write_sample(tmp_path / "noise", lambda config: 0.0, configs=40)
    found = as_json("landscape", "importance", tmp_path / "noise")
    assert found["out_of_bag"] < 0.5
    assert "mostly noise" in found["notes"][0]
    shown = autorl("landscape", "importance", tmp_path / "noise").stdout
    assert "note: the forest explains little" in shown


def test_subset_first_clip_and_sizes(root):
    folders = [root / f"sample/dqn/{name}" for name in ("A-v0", "B-v0", "C-v0")]
    one = ("landscape", "subset", *folders, "--size", 1)
    (few,) = as_json(*one, "--first", 20)
    assert few["configurations"] == 19  # one of the first twenty lacks a score
    (plain,) = as_json(*one, "--tolerance", 10)
    (clipped,) = as_json(*one, "--clip", "A-v0=30", "--tolerance", 10)
    before, after = (
        {row["environments"][0]: row["error"] for row in each["rows"]} for each in (plain, clipped)
    )
    assert after["A-v0"] != before["A-v0"]
    table = analysis.subset([*map(Landscape, folders)], size=1, tolerance=10).table
    asked = zip(table.environments, table.error, strict=True)
    assert before == pytest.approx({names[0]: error for names, error in asked})
    (sizes,) = as_json("landscape", "subset", *folders)
    assert [row["k"] for row in sizes["rows"]] == [1, 1, 1, 2, 2, 2]
    shown = autorl("landscape", "subset", *folders, "--size", 2, "--tolerance", 10, "--limit", 1)
    assert "dqn:" in shown.stdout
    assert "2 more" in shown.stderr


def test_subsets_are_found_algorithm_by_algorithm(root, tmp_path):
    shutil.copytree(root / "sample", tmp_path / "sample")
    shutil.copytree(root / "sample/dqn/A-v0", tmp_path / "sample/ppo/A-v0")
    manifest = tmp_path / "sample/ppo/A-v0/manifest.json"
    other = {"algorithm": "ppo", "id": "sample/ppo/A-v0"}
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | other))
    shown = autorl("landscape", "subset", tmp_path, "--size", 1, "--json")
    assert [each["algorithm"] for each in json.loads(shown.stdout)] == ["dqn"]
    assert "ppo is left out: " in shown.stderr
    assert "at least two landscapes" in shown.stderr
    clipped = autorl("landscape", "subset", tmp_path, "--size", 1, "--clip", "Foo=1", code=2)
    assert "--clip: no landscape of environment 'Foo'; there are A-v0" in clipped.stderr


@pytest.mark.parametrize(
    ("kind", "names", "columns"),
    [
        ("budget", [], {"step", "fraction", "correlation", "low", "high", "regret"}),
        ("curves", [], {"place", "config_id", "step", "mean", "low", "high"}),
        ("dependence", ["width"], {"value", "mean", "low", "high"}),
        ("interaction", ["width", "learning_rate"], {"first", "second", "interaction"}),
        ("noise", [], {"landscape", "icc", "low", "high", "noise_share", "seed_sd"}),
        ("over-time", [], {"step", "hyperparameter", "importance", "spread", "out_of_bag"}),
        ("redundancy", [], {"landscape", "epsilon", "distinct", "as_good_as_best"}),
        ("surface", ["width", "activation"], {"width", "activation", "mean"}),
        ("tunability", [], {"landscape", "tunability", "area", "near_best"}),
        ("values", ["width"], {"value", "n", "mean", "best"}),
    ],
)
def test_every_kind_answers(one, kind, names, columns):
    if kind in ("dependence", "interaction", "over-time", "surface"):
        pytest.importorskip("sklearn")
    options = [part for name in names for part in ("-p", name)]
    found = as_json("landscape", "analyse", one, kind, *options)
    assert found["kind"] == kind
    assert columns <= set(found["rows"][0])
    assert found["landscapes"] == ["sample/dqn/A-v0"]
    assert autorl("landscape", "analyse", one, kind, *options).stdout.startswith("landscape")


def test_several_landscapes_at_once(root):
    found = as_json("landscape", "analyse", root, "noise")
    assert [row["landscape"][-4:] for row in found["rows"]] == ["A-v0", "B-v0", "C-v0"]
    assert all(row["low"] <= row["icc"] <= row["high"] for row in found["rows"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("importance", "{one}", "--method", "shap"), "expected fanova, local or tunability, got "),
        (("importance", "{one}", "--method", "local", "--interactions"), "only fanova knows"),
        (("importance", "{one}", "--config", "3"), "looks at the whole space"),
        (("importance", "{one}", "--seeds", "both"), "tuning, test or all"),
        (("importance", "{one}", "--step", "7"), "the nearest is 100"),
        (("subset", "{one}", "--size", "1"), "at least two landscapes"),
        (("subset", "{root}", "--size", "3"), "1 to 2"),
        (("subset", "{root}", "--clip", "A-v0"), "expected ENVIRONMENT=NUMBER, got 'A-v0'"),
        (("subset", "{root}", "--clip", "Z-v0=1"), "--clip: no landscape of environment 'Z-v0'"),
        (("analyse", "{one}", "noize"), "did you mean 'noise'"),
        (("analyse", "{one}", "dependence"), "takes 1 hyperparameter, got 0"),
        (("analyse", "{one}", "values", "-p", "wdith"), "did you mean 'width'"),
        (("analyse", "{one}", "transfer"), "at least 2 landscapes, got 1"),
        (("analyse", "{root}", "budget"), "takes one landscape, got 3"),
        (("analyse", "{one}", "budget", "--step", "100"), "takes none"),
        (("analyse", "{one}", "phases"), "no phases"),
        (("analyse", "nothing/at/all", "noise"), "no landscape"),
    ],
)
def test_wrong_questions_exit_with_2(one, root, arguments, message):
    if "importance" in arguments:
        pytest.importorskip("sklearn")
    filled = [argument.format(one=one, root=root) for argument in arguments]
    assert message in autorl("landscape", *filled, code=2).stderr


def test_a_study_that_tested_few_configurations_is_analysed_on_its_tuning_seeds(tmp_path):
    study = finished_study(tmp_path, budget={"runs": 40})
    found = as_json("landscape", "analyse", study, "values", "-p", "kind")
    assert (found["seeds"], found["configurations"]) == ("tuning", 20)
    scores = "metric = 'eval_return' AND step = 100 AND seed_role = 'tuning'"
    means = query(
        study,
        f"SELECT AVG(value) FROM reports JOIN runs USING (run_id) WHERE {scores} "
        "GROUP BY config_id ORDER BY 1 DESC",
    )
    assert max(row["best"] for row in found["rows"]) == pytest.approx(means[0][0])
    tested = as_json("landscape", "analyse", study, "curves")
    assert (tested["chosen_on"], tested["seeds"]) == ("tuning", "test")
    assert "have no score for every seed (test) and are left out" in tested["notes"][-1]
    everything = as_json("landscape", "analyse", study, "noise", "--seeds", "all")
    shown = {row["config_id"] for row in tested["rows"]}
    assert everything["rows"][0]["configurations"] == len(shown)
    pytest.importorskip("sklearn")
    assert as_json("landscape", "importance", study)["configurations"] == 20


def test_plot_writes_what_it_is_asked_for(one, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = autorl("landscape", "plot", one, "values", "-p", "width").stdout
    assert shown.split() == ["dqn-A-v0-values-width.png"]
    assert Path("dqn-A-v0-values-width.png").read_bytes().startswith(b"\x89PNG")
    svg = tmp_path / "b.svg"
    found = as_json("landscape", "plot", one, "budget", "--out", svg, "--seeds", "test")
    assert (found["kind"], found["file"]) == ("budget", str(svg))
    assert "test seeds" in svg.read_text()
    autorl("landscape", "plot", one, "curves", "--out", tmp_path / "c.html")
    assert "Best configurations" in (tmp_path / "c.html").read_text()


@pytest.mark.parametrize("kind", ["transfer", "noise", "redundancy", "tunability", "subset"])
def test_plot_of_many_landscapes(root, tmp_path, kind):
    autorl("landscape", "plot", root, kind, "--out", tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    assert "3 landscapes" in text
    assert ("A-v0" in text) != (kind == "subset")


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("importance", [], ["Importance of hyperparameters", "learning_rate × width"]),
        ("importance", ["--method", "tunability"], ["gain over the defaults"]),
        ("dependence", ["-p", "learning_rate"], ["learning_rate (log scale)"]),
        ("surface", ["-p", "learning_rate", "-p", "width"], ["predicted eval_return"]),
        ("interaction", ["-p", "learning_rate", "-p", "width"], ["How strongly"]),
        ("over-time", [], ["environment steps"]),
    ],
)
def test_plot_of_a_forest(one, tmp_path, kind, options, words):
    pytest.importorskip("sklearn")
    autorl("landscape", "plot", one, kind, *options, "--out", tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{one}", "valuez"), "did you mean 'values'"),
        (("{one}", "noise", "--out", "a.gif"), "ends in .png"),
        (("{one}", "noise", "--method", "local"), "has no method: importance has"),
        (("{one}", "importance", "-p", "width"), "takes 0 hyperparameters, got 1"),
        (("{root}", "importance"), "takes one landscape, got 3"),
        (("{root}", "subset", "--step", "100"), "takes none"),
        (("{one}", "surface", "-p", "width"), "takes 2 hyperparameters, got 1: `-p NAME -p NAME`"),
    ],
)
def test_wrong_plots_exit_with_2(one, root, arguments, message):
    filled = [argument.format(one=one, root=root) for argument in arguments]
    assert message in autorl("landscape", "plot", *filled, code=2).stderr
