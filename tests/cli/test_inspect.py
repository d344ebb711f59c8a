"""status, best, report, export: read-only, and equal to what the database holds."""

import json
import re

import pytest
import yaml
from cli_support import as_json, autorl, contents, finished_study, query, study_file

from autorl.core.plain_text import number


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return finished_study(tmp_path_factory.mktemp("inspect"))


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    """A study where every configuration with x > 0.6 crashes, and one seed of those with x < 0.3 is NaN."""
    kwargs = {"crash": {"above": {"x": 0.6}}, "nan": {"below": {"x": 0.3}, "seeds": [1]}}
    return finished_study(
        tmp_path_factory.mktemp("failing"), trainer={"name": "synthetic", "kwargs": kwargs}
    )


def ranked(folder):
    """(score, proposal, configuration) by tuning score, the best first."""
    joined = "proposals JOIN configurations USING (config_id)"
    rows = query(folder, f"SELECT score, proposal, config FROM {joined}")
    found = [(json.loads(score)[0], number, json.loads(config)) for score, number, config in rows]
    return sorted(found, key=lambda row: (-row[0], row[1]))


def test_a_finished_study_is_looked_at_and_nothing_is_written(folder):
    before = contents(folder)
    found = as_json("watch", folder)
    score, proposal, _ = ranked(folder)[0]
    assert found["incumbent"] == {"proposal": proposal, "tuning": score, "n_seeds": 2}
    assert (found["state"], found["driver"], found["budget_used"]) == ("finished", None, 1.0)
    assert (found["proposals"], found["unscored"]) == ({"scored": 8}, [])
    assert found["test_runs"] == {"done": 18, "planned": 18}
    assert found["last_event"]["kind"] == "finished"
    assert autorl("watch", folder, "--once").stdout
    lines = autorl("best", folder, "--top", 4, "--format", "table").stdout.splitlines()
    assert len(lines) == 5
    assert lines[1].split()[0] == str(proposal)
    unknown = autorl("best", folder, "--format", "toml", code=2).stderr
    assert "yaml, json, kwargs, cli, table" in unknown
    model = folder.parent / "m.zip"
    refused = autorl("export", folder, "--model", model, code=2).stderr
    assert "'synthetic' has no models to export" in refused
    assert not model.exists()
    assert contents(folder) == before


def test_a_winner_that_loses_on_test_seeds_is_said_by_status_and_best(folder):
    loss = as_json("resume", folder, "--quiet")["loss"]
    assert "loses on the test seeds" in loss
    assert loss in autorl("watch", folder, "--once").stdout
    assert loss in autorl("best", folder).stderr


def test_status_shows_the_test_score_before_the_tuning_score(folder):
    """The numbers are those of the result that `resume` prints of a finished study."""
    found, result = as_json("watch", folder), as_json("resume", folder, "--quiet")
    assert (found["test"], found["gap"]) == (result["test"], result["gap"])
    assert found["test"]["n_seeds"] == 6
    lines = autorl("watch", folder, "--once").stdout.splitlines()
    names = [line.split("  ")[0] for line in lines]
    assert names.index("test score") < names.index("gap") < names.index("incumbent")
    test, span = found["test"], found["test"]["iqm_interval"]
    interval = f"[{number(span['low'])}, {number(span['high'])}]"
    expected = f"{number(test['iqm'])} (IQM), {interval}, 6 held-out seeds"
    assert lines[names.index("test score")].split(maxsplit=2)[2] == expected
    gap = number(result["tuning"]["value"] - test["value"])
    assert lines[names.index("gap")].split()[1] == f"{gap}:"


def test_status_tells_steps_that_were_trained_from_those_that_were_charged(folder, tmp_path):
    found = as_json("watch", folder)
    assert found["trained_tuning_steps"] == found["tuning_steps"] == 1600
    assert "100% (1,600 tuning steps)" in autorl("watch", folder, "--once").stdout
    long = finished_study(tmp_path, trainer={"name": "synthetic", "kwargs": {"rollout": 60}})
    of_tuning = "SELECT SUM(environment_steps) FROM runs WHERE seed_role = 'tuning'"
    ((trained,),) = query(long, of_tuning)
    found, text = as_json("watch", long), autorl("watch", long, "--once").stdout
    assert (found["tuning_steps"], found["trained_tuning_steps"]) == (1600, trained)
    assert f"100% (1,600 nominal tuning steps charged, {trained:,.0f} trained)" in text
    caution = "the incumbent trained 60 steps for nominal 100"
    assert any(caution in warning for warning in found["warnings"])
    assert caution in text


def test_status_lists_failures_with_their_messages(failing):
    found = as_json("watch", failing)
    failed = "status NOT IN ('done', 'stopped')"
    rows = query(failing, f"SELECT segment, message FROM segments WHERE {failed}")
    assert {(one["segment"], one["message"]) for one in found["failures"]} == set(rows)
    assert {one["kind"] for one in found["failures"]} == {"crash", "diverged"}
    text = autorl("watch", failing, "--once").stdout
    assert f"{len(rows)} segments" in text
    assert "synthetic crash at step 50" in text
    assert "logs/" in text


def test_best_gives_the_whole_configuration_in_the_order_of_the_space(folder):
    found = yaml.safe_load(autorl("best", folder, "--top", 3).stdout)
    expected = ranked(folder)[:3]
    assert [one["proposal"] for one in found] == [proposal for _, proposal, _ in expected]
    assert [one["configuration"] for one in found] == [config for _, _, config in expected]
    assert list(found[0]["configuration"])[:3] == ["x", "rate", "kind"]
    assert found[0]["tuning"] == {"value": pytest.approx(expected[0][0], rel=1e-11), "n_seeds": 2}
    assert found[0]["test"]["n_seeds"] == 6
    assert found[2]["test"] is None
    assert found == json.loads(autorl("best", folder, "--top", 3, "--format", "json").stdout)


def test_a_schedule_is_given_change_by_change(tmp_path):
    optimizer = {"name": "pbt", "population": 4, "generations": 4, "quantile": 0.5}
    trainer = {"name": "synthetic", "kwargs": {"optimum": {"x": 0.1}, "drift": 0.8}}
    folder = finished_study(tmp_path, trainer=trainer, optimizer=optimizer, budget={"runs": 8})
    (found,) = yaml.safe_load(autorl("best", folder).stdout)
    result = as_json("resume", folder, "--quiet")
    assert len(found["schedule"]) > 1
    assert found["schedule"] == result["incumbent"]["schedule"]
    assert found["schedule"][0]["from_step"] == 0
    assert found["configuration"] == found["schedule"][-1]["configuration"]
    printed = autorl("best", folder, "--format", "kwargs").stdout
    assert printed.count("from step") == len(found["schedule"])


def test_before_anything_is_scored_there_is_a_status_but_no_best(tmp_path):
    file = study_file(tmp_path, trainer={"name": "synthetic", "kwargs": {"crash": 1.0}})
    autorl("tune", file, "--out", tmp_path / "s", "--quiet", code=1)
    found = as_json("watch", tmp_path / "s")
    assert found["incumbent"] is None
    assert found["state"] == "stopped"
    assert "no proposal was scored" in autorl("best", tmp_path / "s", code=1).stderr
    autorl("report", tmp_path / "s")
    assert "No proposal has been scored" in (tmp_path / "s" / "report.html").read_text()


@pytest.mark.parametrize("command", ["watch", "best", "report", "resume", "test"])
def test_a_folder_without_a_study_is_bad_input(tmp_path, command):
    assert "holds no study" in autorl(command, tmp_path, code=2).stderr


@pytest.mark.parametrize("command", ["watch", "best", "resume"])
def test_a_folder_of_studies_names_them(folder, command):
    error = autorl(command, folder.parent, code=2).stderr
    assert f"{folder.parent}: holds no study" in error
    assert f"the studies in it: {folder}" in error


def test_a_note_is_shown_and_may_be_changed(tmp_path):
    path, out = study_file(tmp_path), tmp_path / "noted"
    autorl("tune", path, "--out", out, "--note", "a first try", "--quiet")
    assert "# note: a first try\n" in autorl("best", out).stdout
    assert "note" not in autorl("best", out, "--format", "json").stdout
    assert "a first try" in autorl("watch", out).stdout
    file = out / "study.yaml"
    file.write_text(file.read_text().replace("a first try", "of <June>"))
    autorl("report", out, "--html", tmp_path / "r.html")
    assert "of &lt;June&gt;" in (tmp_path / "r.html").read_text()
    assert "note" in autorl("doctor", out).stdout


@pytest.mark.parametrize(
    ("commands", "name", "harm", "said"),
    [
        ("watch best", "study.sqlite", lambda data: data[:5000] + b"\xff" * 3000, "malformed"),
        ("report", "study.sqlite", lambda data: b"", "is empty (0 bytes)"),
        ("watch resume export", "study.sqlite", lambda data: None, "is missing"),
        (
            "watch resume",
            "study.yaml",
            lambda data: data.replace(b"noise: 0.1", b"noise: 0.3"),
            "trainer.kwargs.noise (was 0.1, is 0.3)",
        ),
    ],
)
def test_a_harmed_study_is_one_line_and_left_alone(tmp_path, commands, name, harm, said):
    folder = finished_study(tmp_path)
    left = harm((folder / name).read_bytes())
    (folder / name).unlink()
    if left is not None:
        (folder / name).write_bytes(left)
    before = contents(folder)
    for command in commands.split():
        error = autorl(command, folder, code=2).stderr
        assert name in error
        assert said in error
    assert contents(folder) == before


@pytest.mark.parametrize("options", [(), ("--replace",)])
@pytest.mark.parametrize("name", ["study.sqlite", "study.yaml", "page.html"])
def test_a_report_replaces_nothing_of_its_study(folder, name, options):
    before = contents(folder)
    assert name in autorl("report", folder, "--html", folder / name, *options, code=2).stderr
    assert contents(folder) == before


def test_a_report_replaces_its_own_page_and_no_other(folder, tmp_path):
    page, notes = tmp_path / "page.html", tmp_path / "notes.html"
    notes.write_text("mine")
    for _ in range(2):
        autorl("report", folder, "--html", page)
    error = autorl("compare", folder, folder, "--unequal", "--html", notes, code=2).stderr
    assert "notes.html: is there already" in error
    assert notes.read_text() == "mine"


def test_the_report_is_one_file_with_the_numbers_of_the_result(folder, tmp_path):
    result = as_json("resume", folder, "--quiet")
    written = autorl("report", folder, "--html", tmp_path / "deep" / "r.html").stdout.strip()
    text = (tmp_path / "deep" / "r.html").read_text()
    assert written == str(tmp_path / "deep" / "r.html")
    for value in (result["test"]["value"], result["tuning"]["value"], result["gap"]):
        assert number(value) in text
    tested, tuned = (f">{number(result[role]['value'])}<" for role in ("test", "tuning"))
    assert text.index(tested) < text.index(tuned)
    assert text.count("<script>") == 2  # the library and our own
    text = re.sub(r"<(script)>.*?</\1>", "", text, flags=re.DOTALL)
    text = text.replace("https://vega.github.io/schema/", "")  # a name that nobody loads
    for part in ("http://", "https://", "<script ", " src=", "@import", "url("):
        assert part not in text


def test_export_writes_the_checkpoint_of_a_test_seed(tmp_path, monkeypatch):
    """With a trainer that can export: which checkpoint it is given, and the errors around it."""
    from autorl.trainers import synthetic
    from autorl.trainers.contract import ExportedModel

    def export_model(self, checkpoint, file, *, replace=False):
        file.write_text(checkpoint.segment)
        return ExportedModel(file, "nothing")

    monkeypatch.setattr(synthetic.Synthetic, "export_model", export_model)
    monkeypatch.setattr(synthetic.Synthetic, "model_name", "model.zip")
    folder = finished_study(tmp_path)
    proposal = ranked(folder)[0][1]
    scores = dict(query(folder, "SELECT seed, value FROM tests WHERE label = 'incumbent'"))
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "model.zip"
    text = autorl("export", folder).stdout
    median = sorted(scores, key=scores.get)[(len(scores) - 1) // 2]
    assert target.read_text() == f"{proposal}.{median}"
    assert f"test seed {median}, the median of {len(scores)}" in text
    autorl("export", folder, "--model", target, "--seed", 102)
    assert target.read_text() == f"{proposal}.102"
    assert "no model" in autorl("export", folder, "--model", target, "--seed", 0, code=2).stderr
    assert "0 to 7" in autorl("export", folder, "--model", target, "--proposal", 99, code=2).stderr
    untested = "proposal NOT IN (SELECT proposal FROM tests)"
    ((number,),) = query(folder, f"SELECT MIN(proposal) FROM proposals WHERE {untested}")
    refused = autorl("export", folder, "--model", target, "--proposal", number, code=1).stderr
    assert "was kept" in refused
