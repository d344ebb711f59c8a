"""`autorl landscape`: every command on small data, its JSON, and its exit codes."""

import json
import shutil

import pytest
import yaml
from cli_support import STUDY, as_json, autorl, finished_study, query

from autorl.landscapes import Landscape, from_study, list_landscapes

ID = "my/synthetic/bowl"


def build_file(folder, **changes):
    values = {
        **STUDY,
        "optimizer": "sobol",
        "budget": {"configurations": 6},
        "seeds": {"tuning": 2, "test": 2},
        **changes,
    }
    (folder / "build.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    return folder / "build.yaml"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return finished_study(tmp_path_factory.mktemp("studies"))


@pytest.fixture(scope="module")
def root(study, tmp_path_factory):
    root = tmp_path_factory.mktemp("landscapes")
    from_study(study, root, ID, licence="CC0")
    return root


@pytest.fixture(params=["landscape", "study"])
def source(request, study, root):
    return root / ID if request.param == "landscape" else study


def test_list_and_info(root, source):
    (row,) = as_json("landscape", "list", "local", "--root", root)
    runs = Landscape(root / ID).sql("SELECT run_id FROM runs").fetchall()
    assert (row["landscape"], row["configurations"], row["runs"]) == (ID, 8, len(runs))
    assert ID in autorl("landscape", "list", "local", "--root", root).stdout
    found = as_json("landscape", "info", source)
    assert found["rows"]["configs"] == 8
    assert found["status"] == {"done": found["rows"]["runs"]}
    assert "maximize eval_return" in autorl("landscape", "info", source).stdout


def test_without_a_command_it_says_what_there_is():
    shown = autorl("landscape").stdout
    assert all(f"\n  {name} " in shown for name in ("list", "best", "import", "build"))


def test_query_best_top_and_curve_agree_with_the_database(study, source):
    scores = "metric = 'eval_return' AND step = 100 AND seed_role = 'tuning'"
    means = query(
        study,
        f"SELECT config_id, AVG(value) FROM reports JOIN runs USING (run_id) WHERE {scores} "
        "GROUP BY config_id ORDER BY 2 DESC",
    )
    by_mean = ("landscape", "best", source, "--by", "mean")
    best = as_json(*by_mean)
    assert (best["config_id"], best["value"]) == (means[0][0], pytest.approx(means[0][1]))
    assert f"configuration {means[0][0]}, chosen by mean" in autorl(*by_mean).stdout
    top = as_json("landscape", "top", source, "--by", "mean", "-n", 3)
    assert [row["config_id"] for row in top] == [number for number, _ in means[:3]]
    assert any(row["only_b"] is None for row in as_json("landscape", "top", source, "-n", 8))
    curve = as_json("landscape", "curve", source, means[0][0])
    assert len(curve) == 5 * len({row["seed"] for row in curve})
    asked = "SELECT count(*) AS n, max(step) AS last FROM evals"
    stored = query(study, "SELECT count(*) FROM reports WHERE metric = 'eval_return'")[0][0]
    assert as_json("landscape", "query", source, asked) == [{"n": stored, "last": 100}]
    limited = autorl("landscape", "query", source, "SELECT step FROM evals", "--limit", 2)
    assert limited.stdout.split() == ["step", "20", "40"]
    assert "more rows" in limited.stderr


def test_validate_exits_with_1_if_a_rule_is_broken(root, tmp_path):
    assert "no problems" in autorl("landscape", "validate", root).stdout
    shutil.copytree(root / ID, tmp_path / "faulty")
    (tmp_path / "faulty" / "croissant.json").unlink()
    (problem,) = as_json("landscape", "validate", tmp_path / "faulty", code=1)
    assert problem["rule"] == "files_match_manifest"


def test_import_is_recognised_and_replaces_when_told(root, tmp_path):
    out = tmp_path / "out"
    autorl("landscape", "export", root / ID, tmp_path / "run")
    (row,) = as_json("landscape", "import", tmp_path / "run", "--out", out)
    assert (row["landscape"], row["configurations"]) == (ID, 8)
    again = ("landscape", "import", tmp_path / "run", "--out", out)
    assert "is there already" in autorl(*again, code=2).stderr
    autorl(*again, "--tuning-seeds", 2, "--replace")
    assert "no such file" in autorl("landscape", "import", tmp_path / "nothing", code=2).stderr


def test_a_landscape_of_the_package_is_not_deleted(root, monkeypatch):
    for module in ("autorl.landscapes.library", "autorl.cli.landscape_files"):
        monkeypatch.setattr(f"{module}.shipped_root", lambda: root)
    for options in ((), ("--yes",)):
        said = autorl("landscape", "delete", root / ID, *options, code=2).stderr
        assert "come with the package: nothing was deleted" in said
    assert (root / ID / "manifest.json").is_file()


@pytest.mark.parametrize("command", ["import", "build"])
@pytest.mark.parametrize("entry", ["licence", "owner=me"])
def test_a_text_about_a_landscape_has_a_key_that_is_known(tmp_path, command, entry):
    file, options = build_file(tmp_path), ["--id", ID, "--out", tmp_path / "out", "--about", entry]
    message = autorl("landscape", command, file, *options, code=2).stderr
    assert "expected KEY=TEXT with a key of description, licence, citation, url, creator" in message
    assert f"got {entry!r}" in message


def test_export_merge_and_delete(root, study, tmp_path):
    assert as_json("landscape", "export", study, tmp_path / "flat.csv")["rows"] > 0
    assert as_json("landscape", "export", root / ID, tmp_path / "study.db")["trials"] == 8
    autorl("landscape", "export", study, tmp_path / "flat.csv", code=2)
    out = tmp_path / "out"
    merging = ("landscape", "merge", root / ID, study, "--id", "x/synthetic/bowl", "--out", out)
    assert "cannot be merged" in autorl(*merging, code=2).stderr
    from_study(study, out, ID)
    assert "add --yes" in autorl("landscape", "delete", out / ID, "--json", code=2).stderr
    autorl("landscape", "delete", out / ID, "--yes")
    assert list_landscapes(out) == {}
    assert "nothing was deleted" in autorl("landscape", "delete", study, "--yes", code=2).stderr
    assert (study / "study.sqlite").is_file()


def test_build_trains_every_configuration_on_every_seed_and_goes_on(tmp_path):
    file, out, folder = build_file(tmp_path), tmp_path / "out", tmp_path / "study"
    options = ("--id", ID, "--out", out, "--study", folder, "--quiet")
    plan = as_json("landscape", "build", file, *options, "--dry-run")
    assert json.dumps(plan)
    assert not folder.exists()
    (row,) = as_json(
        "landscape", "build", file, *options, "--about", "licence=CC0", "--bounds", "-2", "2"
    )
    assert (row["configurations"], row["runs"], row["evaluations"]) == (6, 24, 120)
    built = Landscape(out / ID)
    assert built.sql(
        "SELECT DISTINCT n FROM (SELECT count(*) AS n FROM runs GROUP BY config_id)"
    ).fetchall() == [(4,)]
    assert built.manifest.sampler["name"] == "sobol"
    assert built.manifest.licence == "CC0"
    autorl("landscape", "validate", out / ID)
    assert "is there already" in autorl("landscape", "build", file, *options, code=2).stderr
    rows = built.sql("FROM evals").fetchall()
    autorl("landscape", "build", file, *options, "--replace")
    assert Landscape(out / ID).sql("FROM evals").fetchall() == rows
    other = autorl("landscape", "build", file, *options, "--replace", "--set", "seed=1", code=2)
    assert "another study" in other.stderr


def test_a_build_that_was_stopped_goes_on_to_the_same_rows(tmp_path):
    from autorl.study import Study
    from autorl.study.building import build_spec

    file, out = build_file(tmp_path), tmp_path / "out"
    study = Study.create(build_spec(file), tmp_path / "cut")
    for segment in study.advance()[:3]:
        study.record(study.load(segment.trainer).train(segment, lambda report: None))
    study.close()
    tables = []
    for name in ("cut", "whole"):
        places = ("--id", f"{name}/a/b", "--out", out, "--study", tmp_path / name)
        autorl("landscape", "build", file, *places, "--quiet")
        tables.append(
            Landscape(out / f"{name}/a/b").sql(
                "SELECT config_hash, seed, step, eval_return FROM evals JOIN runs USING (run_id) "
                "JOIN configs USING (config_id) ORDER BY ALL"
            )
        )
    assert tables[0].fetchall() == tables[1].fetchall()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": "tpe"}, "would leave out"),
        ({"optimizer": {"name": "random", "stop": "median"}}, "would leave out"),
        ({"evaluation": {"seeds": "racing", "min": 1, "max": 2}}, "expected fixed"),
        ({"budget": {"hours": 1}}, "configurations or runs"),
    ],
)
def test_a_build_file_that_would_leave_holes_is_refused(tmp_path, changes, message):
    file = build_file(tmp_path, **changes)
    assert message in autorl("landscape", "build", file, "--id", ID, code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("info", "nothing/at/all"), "no landscape"),
        (("list", "remote"), "local, shipped or all"),
        (("merge", "a", "--id", ID), "no landscape"),
    ],
)
def test_wrong_words_exit_with_2(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in autorl("landscape", *arguments, code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("best", "--seeds", "validation"), "tuning, test or all"),
        (("best", "--by", "vibes"), "vibes"),
        (("best", "--step", "7"), "the nearest is"),
        (("curve", "99"), "no configuration 99"),
        (("query", "DROP VIEW configs"), "reads"),
        (("query", "SELECT nothing FROM runs"), "nothing"),
    ],
)
def test_wrong_questions_exit_with_2(source, arguments, message):
    command, *rest = arguments
    assert message in autorl("landscape", command, source, *rest, code=2).stderr
