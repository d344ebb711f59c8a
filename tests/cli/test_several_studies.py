"""Several study files in one command: `tune A B`, `tune FOLDER`, `resume A B`."""

import json

import cli_support
import pytest
import yaml
from cli_support import SPACE, as_json, autorl, query

from autorl.study import Study
from autorl.study.several_studies import run_together
from autorl.study.spec import load_spec


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def study_file(folder, name, **changes):
    return cli_support.study_file(folder, f"{name}.yaml", name=name, **changes)


def two_files(folder, **changes):
    return [
        study_file(folder, name, seed=seed, **changes)
        for seed, name in enumerate(("first", "second"))
    ]


def scores(folder):
    return query(folder, "SELECT * FROM reductions ORDER BY 1, 2, 3"), query(
        folder, "SELECT config_id FROM configurations ORDER BY 1"
    )


def test_two_files_run_to_the_results_they_have_alone(tmp_path):
    first, second = two_files(tmp_path)
    shown = autorl("tune", first, second).stdout
    for name, file in (("first", first), ("second", second)):
        autorl("tune", file, "--out", tmp_path / "alone" / name, "--quiet")
        assert scores(tmp_path / "studies" / name) == scores(tmp_path / "alone" / name)
        assert f"== {tmp_path / 'studies' / name}\n" in shown
        assert f"{name}: test " in shown  # lines of progress name their study


def test_a_folder_stands_for_its_study_files(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    two_files(folder)
    (folder / "space.yaml").write_text(yaml.safe_dump(SPACE))
    (folder / "notes.txt").write_text("not a study")
    answers = as_json("tune", folder, "--out", tmp_path / "kept", "--quiet")
    assert [answer["study"] for answer in answers] == ["first", "second"]
    assert [answer["error"] for answer in answers] == [None, None]
    assert all(answer["result"]["test_runs"] == {"done": 6, "failed": 0} for answer in answers)
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["first", "second"]


def test_a_dry_run_says_every_plan_and_writes_nothing(tmp_path):
    files = two_files(tmp_path, executor={"name": "processes"})
    text = autorl("tune", *files, "--dry-run", "--workers", 3).stdout
    assert text.count("== studies/") == 2
    assert "2 studies share 3 workers" in text
    plans = as_json("tune", *files, "--dry-run")
    assert len(plans) == 2
    assert not (tmp_path / "studies").exists()


def test_one_failed_study_is_said_in_the_exit_code_and_the_others_have_results(tmp_path):
    good = study_file(tmp_path, "good")
    trainer = {"name": "synthetic", "kwargs": {"crash": 1.0}}
    bad = study_file(tmp_path, "bad", trainer=trainer)
    run = autorl("tune", bad, good, "--quiet", "--json", code=1)
    failed, scored = json.loads(run.stdout)
    assert failed["result"] is None
    assert "crash" in failed["error"]
    assert scored["result"]["test_runs"]["done"] == 6
    assert f"autorl: 1 of 2 studies failed: {tmp_path / 'studies' / 'bad'};" in run.stderr


def test_what_is_wrong_with_one_file_is_said_before_any_study_is_begun(tmp_path):
    good = study_file(tmp_path, "good")
    same = tmp_path / "same.yaml"
    same.write_text(good.read_text())
    wrong = study_file(tmp_path, "wrong", optimizer="nobody")
    (tmp_path / "spaces").mkdir()
    (tmp_path / "spaces" / "space.yaml").write_text(yaml.safe_dump(SPACE))
    for arguments, message in [
        ([good, wrong], "wrong.yaml:"),
        ([good, same], f"{same}: name: {good} has the name 'good' too"),
        ([good, good], f"{good}: is named twice"),
        ([tmp_path / "spaces"], "spaces: has search spaces, but no study file"),
    ]:
        assert message in autorl("tune", *arguments, code=2).stderr
    assert not (tmp_path / "studies").exists()


def test_a_study_that_exists_stops_all_before_they_begin(tmp_path):
    first, second = two_files(tmp_path)
    autorl("tune", second, "--quiet")
    assert "holds a study already" in autorl("tune", first, second, code=2).stderr
    assert not (tmp_path / "studies" / "first").exists()


def test_interrupted_studies_are_resumed_together(tmp_path):
    first, second = two_files(tmp_path)
    begun = [
        Study.create(load_spec(file), tmp_path / "studies" / file.stem) for file in (first, second)
    ]

    def interrupt(study, progress):
        if progress.finished_segments == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_together(begun, progress=interrupt)
    for study in begun:
        study.close()
    autorl("resume", "studies/first", "studies/second", "--quiet")
    for name, file in (("first", first), ("second", second)):
        autorl("tune", file, "--out", tmp_path / "alone" / name, "--quiet")
        assert scores(tmp_path / "studies" / name) == scores(tmp_path / "alone" / name)


def test_a_budget_is_extended_one_study_at_a_time(tmp_path):
    autorl("tune", *two_files(tmp_path), "--quiet")
    folders = ["studies/first", "studies/second"]
    refused = autorl("resume", *folders, "--runs", "+2", code=2).stderr
    assert "--runs: expected one study to extend" in refused
    autorl("resume", *folders, "--quiet")  # nothing is left to do, which is no error
