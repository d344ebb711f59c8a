"""`autorl landscape importance | subset | analyse | plot`: what they print, by plain pandas."""

import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from cli_support import as_json, autorl, finished_study, query
from scipy.optimize import nnls
from scipy.stats import rankdata, spearmanr

from autorl.landscapes import Landscape, analysis

sys.path.append(str(Path(__file__).parents[1] / "landscapes" / "analysis"))
from analysis_samples import SPACE, write_sample

DATA = Path(__file__).parents[3] / "shared" / "data" / "arlbench" / "landscapes"


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
    assert (
        as_json("landscape", "importance", one, "--method", "local", "--config", 3)["configuration"]
        == 3
    )
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
    assert (
        "note: the forest explains little"
        in autorl("landscape", "importance", tmp_path / "noise").stdout
    )


def by_hand(table, subset):
    """The published procedure as a loop over scikit-learn-like folds."""
    from autorl.landscapes.analysis.subsets import k_fold

    columns = np.stack([rankdata(column) / len(column) for column in table.T], axis=1)
    correlations = []
    for train, test in k_fold(len(columns)):
        weights, _ = nnls(columns[train][:, subset], columns.mean(axis=1)[train])
        correlations.append(
            spearmanr(columns[test][:, subset] @ weights, columns.mean(axis=1)[test]).statistic
        )
    return 1 - np.mean(correlations)


def test_subset_is_the_exhaustive_answer(root):
    (found,) = as_json("landscape", "subset", root / "sample/dqn", "--size", 2, "--tolerance", 10)
    assert found["environments"] == ["A-v0", "B-v0", "C-v0"]
    means = [final_means(root / f"sample/dqn/{name}") for name in found["environments"]]
    shared = sorted(set.intersection(*(set(each.index) for each in means)))
    table = np.stack([each[shared].to_numpy() for each in means], axis=1)
    assert found["configurations"] == len(shared)
    errors = {
        tuple(found["environments"][column] for column in pair): by_hand(table, list(pair))
        for pair in combinations(range(3), 2)
    }
    assert {
        tuple(row["environments"]): pytest.approx(row["error"]) for row in found["rows"]
    } == errors
    assert tuple(found["best"]) == min(errors, key=errors.get)
    assert [row["place"] for row in found["rows"]] == [1, 2, 3]


def test_subset_first_clip_and_sizes(root):
    folders = [root / f"sample/dqn/{name}" for name in ("A-v0", "B-v0", "C-v0")]
    (few,) = as_json("landscape", "subset", *folders, "--size", 1, "--first", 20)
    assert few["configurations"] == 19  # one of the first twenty lacks a score
    (plain,) = as_json("landscape", "subset", *folders, "--size", 1, "--tolerance", 10)
    (clipped,) = as_json(
        "landscape", "subset", *folders, "--size", 1, "--clip", "A-v0=30", "--tolerance", 10
    )
    by_name = [
        {row["environments"][0]: row["error"] for row in each["rows"]} for each in (plain, clipped)
    ]
    means = [final_means(folder) for folder in folders]
    runs = (
        Landscape(folders[0])
        .sql("SELECT config_id, greatest(value, 30) AS value FROM scores WHERE step = 300")
        .df()
    )
    means[0] = runs.groupby("config_id")["value"].mean()[means[0].index]
    shared = sorted(set.intersection(*(set(each.index) for each in means)))
    table = np.stack([each[shared].to_numpy() for each in means], axis=1)
    assert by_name[1]["A-v0"] == pytest.approx(by_hand(table, [0]))
    assert by_name[1]["A-v0"] != by_name[0]["A-v0"]
    (sizes,) = as_json("landscape", "subset", *folders)
    assert [row["k"] for row in sizes["rows"]] == [1, 1, 1, 2, 2, 2]
    shown = autorl("landscape", "subset", *folders, "--size", 2, "--tolerance", 10, "--limit", 1)
    assert "dqn:" in shown.stdout
    assert "2 more" in shown.stderr


def test_subsets_are_found_algorithm_by_algorithm(root, tmp_path):
    import json
    import shutil

    shutil.copytree(root / "sample", tmp_path / "sample")
    shutil.copytree(root / "sample/dqn/A-v0", tmp_path / "sample/ppo/A-v0")
    manifest = tmp_path / "sample/ppo/A-v0/manifest.json"
    manifest.write_text(
        json.dumps(json.loads(manifest.read_text()) | {"algorithm": "ppo", "id": "sample/ppo/A-v0"})
    )
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


def test_curves_are_chosen_on_tuning_seeds_and_shown_on_test_seeds(one):
    found = as_json("landscape", "analyse", one, "curves")
    assert (found["chosen_on"], found["seeds"]) == ("tuning", "test")
    chosen = final_means(one, "tuning").sort_values(ascending=False).index[:5].tolist()
    assert [row["config_id"] for row in found["rows"] if row["step"] == 300] == chosen
    shown = final_means(one, "test")
    assert [row["mean"] for row in found["rows"] if row["step"] == 300] == pytest.approx(
        shown[chosen].tolist()
    )
    assert all(row["low"] <= row["mean"] <= row["high"] for row in found["rows"])
    assert (
        "optimistic" in as_json("landscape", "analyse", one, "curves", "--seeds", "all")["notes"][0]
    )


def test_transfer_is_chosen_on_tuning_seeds_and_scored_on_test_seeds(root):
    found = as_json("landscape", "analyse", root, "transfer")
    assert (found["chosen_on"], found["seeds"]) == ("tuning", "test")
    folders = {name: root / f"sample/dqn/{name}" for name in ("A-v0", "B-v0", "C-v0")}
    tuning, test = (
        {name: final_means(folder, role) for name, folder in folders.items()}
        for role in ("tuning", "test")
    )
    shared = sorted(
        set.intersection(*(set(each.index) for means in (tuning, test) for each in means.values()))
    )
    for row in found["rows"]:
        best = tuning[row["best_in"]][shared].idxmax()
        there = test[row["used_in"]][shared]
        assert row["config_id"] == best
        assert row["regret"] == pytest.approx(
            (there.max() - there[best]) / (there.max() - there.min()), abs=1e-6
        )
    shown = autorl("landscape", "analyse", root, "transfer").stdout
    assert "mean regret elsewhere" in shown
    assert "worst_in" in shown


def test_several_landscapes_at_once(root):
    found = as_json("landscape", "analyse", root, "noise")
    assert [row["landscape"][-4:] for row in found["rows"]] == ["A-v0", "B-v0", "C-v0"]
    assert all(row["low"] <= row["icc"] <= row["high"] for row in found["rows"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("importance", "{one}", "--method", "shap"),
            "expected fanova, local or tunability, got 'shap'",
        ),
        (
            ("importance", "{one}", "--method", "local", "--interactions"),
            "only fanova knows interactions",
        ),
        (("importance", "{one}", "--config", "3"), "looks at the whole space"),
        (("importance", "{one}", "--seeds", "both"), "tuning, test or all"),
        (("importance", "{one}", "--step", "7"), "the nearest is 100"),
        (("subset", "{one}", "--size", "1"), "at least two landscapes"),
        (("subset", "{root}", "--size", "3"), "1 to 2"),
        (("subset", "{root}", "--clip", "A-v0"), "expected ENVIRONMENT=NUMBER, got 'A-v0'"),
        (
            ("subset", "{root}", "--clip", "Z-v0=1"),
            "--clip: no landscape of environment 'Z-v0'; there are A-v0",
        ),
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


def test_without_scikit_learn_the_package_is_named(one, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    assert "needs scikit-learn" in autorl("landscape", "importance", one, code=2).stderr


def test_a_study_that_tested_few_configurations_is_analysed_on_its_tuning_seeds(tmp_path):
    study = finished_study(tmp_path, budget={"runs": 40})
    found = as_json("landscape", "analyse", study, "values", "-p", "kind")
    assert (found["seeds"], found["configurations"]) == ("tuning", 20)
    means = query(
        study,
        "SELECT AVG(value) FROM evals JOIN runs USING (run_id) WHERE metric = 'eval_return' AND step = 100 "
        "AND seed_role = 'tuning' GROUP BY config_id ORDER BY 1 DESC",
    )
    assert max(row["best"] for row in found["rows"]) == pytest.approx(means[0][0])
    tested = as_json("landscape", "analyse", study, "curves")
    assert (tested["chosen_on"], tested["seeds"]) == ("tuning", "test")
    assert "have no score for every seed (test) and are left out" in tested["notes"][-1]
    everything = as_json("landscape", "analyse", study, "noise", "--seeds", "all")
    assert everything["rows"][0]["configurations"] == len(
        {row["config_id"] for row in tested["rows"]}
    )
    pytest.importorskip("sklearn")
    assert as_json("landscape", "importance", study)["configurations"] == 20


def test_plot_writes_what_it_is_asked_for(one, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="the extra plots is not installed")
    pytest.importorskip("plotly", reason="the extra plots is not installed")
    monkeypatch.chdir(tmp_path)
    assert autorl("landscape", "plot", one, "values", "-p", "width").stdout.split() == [
        "dqn-A-v0-values-width.png"
    ]
    assert Path("dqn-A-v0-values-width.png").read_bytes().startswith(b"\x89PNG")
    found = as_json(
        "landscape", "plot", one, "budget", "--out", tmp_path / "b.svg", "--seeds", "test"
    )
    assert (found["kind"], found["file"]) == ("budget", str(tmp_path / "b.svg"))
    assert "test seeds" in (tmp_path / "b.svg").read_text()
    autorl("landscape", "plot", one, "curves", "--out", tmp_path / "c.html")
    assert "Best configurations" in (tmp_path / "c.html").read_text()


@pytest.mark.parametrize("kind", ["transfer", "noise", "redundancy", "tunability", "subset"])
def test_plot_of_many_landscapes(root, tmp_path, kind):
    pytest.importorskip("matplotlib", reason="the extra plots is not installed")
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
        (
            "surface",
            ["-p", "learning_rate", "-p", "width"],
            ["learning_rate (log scale)", "predicted eval_return"],
        ),
        ("interaction", ["-p", "learning_rate", "-p", "width"], ["How strongly"]),
        ("over-time", [], ["environment steps"]),
    ],
)
def test_plot_of_a_forest(one, tmp_path, kind, options, words):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib", reason="the extra plots is not installed")
    autorl("landscape", "plot", one, kind, *options, "--out", tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{one}", "valuez"), "did you mean 'values'"),
        (("{one}", "noise", "--out", "a.gif"), "ends in .png"),
        (("{one}", "noise", "--method", "local"), "only importance has a method"),
        (("{one}", "importance", "-p", "width"), "takes no hyperparameters"),
        (("{root}", "importance"), "takes one landscape, got 3"),
        (("{root}", "subset", "--step", "100"), "takes none"),
        (("{one}", "surface", "-p", "width"), "takes 2 hyperparameters, got 1"),
    ],
)
def test_wrong_plots_exit_with_2(one, root, arguments, message):
    filled = [argument.format(one=one, root=root) for argument in arguments]
    assert message in autorl("landscape", "plot", *filled, code=2).stderr


@pytest.mark.parametrize(
    ("suffix", "module", "name"),
    [("png", "matplotlib.figure", "matplotlib"), ("html", "plotly.graph_objects", "plotly")],
)
def test_a_missing_extra_is_one_clear_line(one, tmp_path, monkeypatch, suffix, module, name):
    monkeypatch.setitem(sys.modules, module, None)
    message = autorl(
        "landscape", "plot", one, "noise", "--out", tmp_path / f"a.{suffix}", code=2
    ).stderr
    assert message.strip() == f"autorl: this figure needs {name}: pip install 'autorl[plots]'"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="ARLBench's raw files are not beside the checkout")
def test_the_published_subset_of_arlbench_comes_out_of_the_command(tmp_path):
    autorl("landscape", "import", DATA, "--out", tmp_path)
    (found,) = as_json(
        "landscape", "subset", tmp_path / "arlbench/dqn", "--size", 4, "--first", 128
    )
    assert (len(found["environments"]), found["candidates"]) == (13, 715)
    published = ["Acrobot-v1", "BattleZone-v5", "MiniGrid-DoorKey-5x5", "MiniGrid-FourRooms"]
    assert published in [row["environments"] for row in found["rows"]]
    assert found["best"] == published
    both = as_json(
        "landscape",
        "subset",
        tmp_path,
        "--size",
        4,
        "--first",
        128,
        "--clip",
        "LunarLander-v2=-200",
    )
    assert {each["algorithm"]: len(each["landscapes"]) for each in both} == {"dqn": 13, "ppo": 6}
    assert next(each for each in both if each["algorithm"] == "dqn")["best"] == published
