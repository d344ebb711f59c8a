"""`autorl worker`: what it refuses in one line, and when it ends."""

from pathlib import Path

import pytest
from cli_support import STUDY, autorl, study_file

from autorl.spec import load_spec

FOLDER = {"executor": {"name": "folder"}}


def waiting_study(folder, **changes):
    """The folder of a study that nobody drives yet, as its workers see it."""
    folder.mkdir()
    text = load_spec({**STUDY, **changes}).freeze()
    (folder / "study.yaml").write_text(text, encoding="utf-8")
    return folder


def complaint(*arguments):
    result = autorl("worker", *arguments, code=2)
    (line,) = result.stderr.splitlines()
    return line


def test_a_folder_that_is_none_or_holds_no_study_is_one_line(tmp_path):
    assert complaint(tmp_path / "none").endswith("none: no such folder")
    (tmp_path / "file").touch()
    assert complaint(tmp_path / "file").endswith("file: no such folder")
    assert "holds no study (study.yaml is missing)" in complaint(tmp_path)


@pytest.mark.parametrize("name", ["in_process", "processes", None])
def test_a_study_of_another_executor_is_one_line_that_says_what_to_write(tmp_path, name):
    folder = waiting_study(tmp_path / "study", executor={"name": name})
    line = complaint(folder)
    assert "study.yaml: executor.name: expected folder, got" in line


def test_a_study_file_that_is_torn_is_one_line(tmp_path):
    folder = waiting_study(tmp_path / "study", **FOLDER)
    text = (folder / "study.yaml").read_text(encoding="utf-8")
    (folder / "study.yaml").write_text(text[: len(text) // 2], encoding="utf-8")
    assert "study.yaml" in complaint(folder)
    (folder / "study.yaml").write_bytes(b"\xff\xfe\x00")
    assert "is no text" in complaint(folder)


def test_a_queue_of_something_else_is_one_line(tmp_path):
    folder = waiting_study(tmp_path / "study", **FOLDER)
    (folder / "queue").mkdir()
    (folder / "queue" / "driver.json").write_text('{"session": 1}')
    line = autorl("worker", folder, "--quiet", code=2).stderr
    assert "queue/driver.json: state: the key is missing" in line


def test_a_worker_without_a_driver_ends_when_it_was_idle(tmp_path):
    folder = waiting_study(tmp_path / "study", **FOLDER)
    result = autorl("worker", folder, "--idle-minutes", "0.001")
    assert "1 at once" in result.stderr
    assert "ends: nothing to train for 0.00" in result.stderr
    assert result.stdout == ""
    assert [entry.name for entry in folder.iterdir()] == ["study.yaml"]


def test_a_number_of_workers_is_refused_where_workers_come_by_themselves(tmp_path):
    for study, options, key in [
        ({"executor": {"name": "folder", "workers": 2}}, [], "executor.workers"),
        (FOLDER, ["--workers", "2"], "executor.workers"),
    ]:
        file = study_file(tmp_path, **study)
        result = autorl("tune", file, "--out", tmp_path / "out", *options, code=2)
        assert f"{key}: the `folder` executor runs as many segments at once as" in result.stderr
    assert not Path(tmp_path / "out").exists()


@pytest.mark.parametrize("value", ["0", "0.5", "-3"])
def test_a_worker_is_not_lost_at_once(tmp_path, value):
    file = study_file(tmp_path, **FOLDER)
    out = tmp_path / "out"
    options = ["--set", f"executor.lost_after={value}", "--dry-run"]
    assert "executor.lost_after" in autorl("tune", file, "--out", out, *options, code=2).stderr
