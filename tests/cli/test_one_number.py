"""A proposal has one number and one score, in the study, as a landscape, in plots and in the report."""

import json
import re
from pathlib import Path

import pytest
import yaml
from cli_support import as_json, autorl, finished_study, query

from autorl import load_landscape
from autorl.core.plain_text import number
from autorl.landscapes import analysis
from autorl.landscapes.analysis.kinds import chart_of

# Curves that saturate at different speeds: the mean of a curve and its end choose different configurations.
TRAINER = {"optimum": {"x": 0.2, "rate": 0.2}, "drift": 0.5, "noise": 0.05, "interaction": 0.05}
DEMO = {
    "trainer": {"name": "synthetic", "kwargs": TRAINER},
    "objective": {"metric": "eval_return", "reduce": "auc"},
    "seeds": {"tuning": 3, "test": 6},
    "budget": {"configurations": 16},
    "optimizer": "tpe",
}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return finished_study(tmp_path_factory.mktemp("one"), **DEMO)


def test_every_command_names_the_same_proposal_and_score(study, tmp_path):
    (best,) = yaml.safe_load(autorl("best", study).stdout)
    proposal, score = best["proposal"], best["tuning"]["value"]
    choice = as_json("landscape", "best", study)
    assert (choice["config_id"], choice["value"]) == (proposal, pytest.approx(score, rel=1e-10))
    assert choice["test"] == pytest.approx(best["test"]["value"], rel=1e-10)
    text = autorl("landscape", "best", study).stdout
    own = "chosen by mean over tuning seeds of auc eval_return (the study's own)"
    assert f"configuration {proposal}, {own}" in text
    assert f"tuning seeds  {number(score)}" in text
    first = as_json("landscape", "top", study, "-n", 1)[0]
    assert (first["config_id"], first["tuning_mean"]) == (proposal, pytest.approx(score, rel=1e-10))
    autorl("report", study, "--html", tmp_path / "r.html")
    cell = '<td class="number">{}</td>'.format
    report = (tmp_path / "r.html").read_text()
    assert cell(proposal) + cell(proposal) in report
    assert cell(number(score)) in report


def test_plots_draw_the_same_proposals(study, tmp_path):
    tested = {number for (number,) in query(study, "SELECT proposal FROM tests")}
    marks = chart_of(analysis.analyse(load_landscape(study), "curves")).marks
    labels = [mark.label for mark in marks]
    drawn = [int(re.sub(r"\D", "", label)) for label in labels if label.startswith("configuration")]
    ranked = [row["config_id"] for row in as_json("landscape", "top", study, "-n", 16)]
    assert drawn == [number for number in ranked if number in tested]
    (best,) = yaml.safe_load(autorl("best", study).stdout)
    assert drawn[0] == best["proposal"]
    printed = autorl("landscape", "plot", study, "curves", "--out", tmp_path / "curves.svg").stdout
    assert "the best by mean over tuning seeds of auc eval_return (the study's own)" in printed


def test_options_override_the_study_s_own_ranking(study):
    own = as_json("landscape", "best", study)
    last = as_json("landscape", "best", study, "--reduce", "last", "--by", "iqm")
    assert last["config_id"] != own["config_id"], "otherwise this study tells nothing apart"
    assert (last["reduce"], last["by"]) == ("last", "iqm")
    text = autorl("landscape", "best", study, "--reduce", "last").stdout
    assert "(aggregate the study's own, reduction as asked)" in text
    plotted = as_json("landscape", "analyse", study, "curves", "--reduce", "last")
    assert plotted["chosen_by"].startswith("mean over tuning seeds of last eval_return")
    assert "reduce" in autorl("landscape", "best", study, "--reduce", "lasst", code=2).stderr
    noise = autorl("landscape", "analyse", study, "noise", "--by", "iqm", code=2).stderr
    assert "ranks no configurations" in noise


def test_the_readme_s_query_is_the_best_of_the_landscape(tmp_path):
    """With the defaults: the mean at the last step. It runs on a landscape too."""
    folder = finished_study(tmp_path)
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    asked = re.search(r'query = """(.*?)"""', readme, re.DOTALL)[1]
    best, *_ = load_landscape(folder).sql(asked.replace("learning_rate", "rate")).fetchall()
    choice = as_json("landscape", "best", folder)
    rate, value, seeds = best[:3]
    assert (choice["config"]["rate"], choice["value"]) == (rate, pytest.approx(value))
    assert seeds == 2
    assert len(load_landscape("autorl/ppo/CartPole-v1").sql(asked).fetchall()) == 5


def test_a_configuration_that_goes_on_keeps_the_number_it_was_introduced_with(tmp_path):
    optimizer = {"name": "successive_halving", "eta": 2, "rungs": 2}
    folder = finished_study(tmp_path, optimizer=optimizer, budget={"runs": 20})
    columns = "proposal, config_id, resume_from"
    pairs = query(folder, f"SELECT {columns} FROM proposals ORDER BY proposal")
    assert any(resume is not None for _, _, resume in pairs)
    introduced: dict[int, int] = {}
    for proposal, config_id, _ in pairs:
        introduced.setdefault(config_id, proposal)
    assert all(number == first for number, first in introduced.items())
    shown = load_landscape(folder).sql("SELECT config_id FROM configs ORDER BY 1").fetchall()
    assert [number for (number,) in shown] == sorted(introduced)
    (best,) = yaml.safe_load(autorl("best", folder).stdout)
    (configuration,) = (config for number, config, _ in pairs if number == best["proposal"])
    assert best["configuration_number"] == configuration
    assert as_json("landscape", "best", folder)["config_id"] == configuration


def test_what_is_written_out_keeps_the_study_s_ranking(study, tmp_path):
    from autorl.landscapes import from_study

    from_study(study, tmp_path, "me/synthetic/one")
    place = tmp_path / "me/synthetic/one"
    manifest = json.loads((place / "manifest.json").read_text())
    evaluation = manifest["evaluation"]
    assert (evaluation["reduce"], evaluation["aggregate"]) == ("auc", "mean")
    own, written = (as_json("landscape", "best", data) for data in (study, place))
    assert written["config_id"] == own["config_id"]
    assert (written["by"], written["reduce"]) == ("mean", "auc")
    assert written["value"] == pytest.approx(own["value"], rel=1e-6)
    assert "(as recorded)" in autorl("landscape", "best", place).stdout
    (place / "manifest.json").write_text(json.dumps(manifest | {"evaluation": {}}))
    text = autorl("landscape", "best", place).stdout
    assert "chosen by iqm over tuning seeds of last eval_return (default)" in text
