"""The name of a study is the name of one folder: one line, before anything is made."""

import re

import pytest
import yaml
from small_studies import SMALL as GOOD
from test_bad_input import in_process as in_process

from autorl import tune
from autorl.core.types import InputError

NAMES = {
    "out of studies": ("../../evil", "no path, got '../../evil'"),
    "absolute": ("/nowhere/evil", "no path, got '/nowhere/evil'"),
    "two folders": ("a/b", "no path, got 'a/b'"),
    "two folders of Windows": ("a\\b", "no path"),
    "the working folder": ("..", "no path, got '..'"),
    "studies itself": (".", "no path, got '.'"),
    "null character": ("a\0b", r"without control characters, got 'a\\x00b'"),
    "line feed": ("a\nb", r"without control characters, got 'a\\nb'"),
    "terminal escape": ("\x1b[31mred", "without control characters"),
    "lone surrogate": ("a\udc80", "without control characters"),
    "5,000 characters": ("x" * 5000, "at most 255 bytes, got 5000"),
    "256 bytes of 128 characters": ("é" * 128, "at most 255 bytes, got 256"),
    "blanks": ("  ", "expected a name"),
}


@pytest.mark.parametrize("case", NAMES)
def test_a_name_that_is_no_folder_name_is_one_line(tmp_path, case, in_process, monkeypatch):
    name, message = NAMES[case]
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    path = tmp_path / "work" / "f.yaml"
    path.write_text(yaml.safe_dump(GOOD | {"name": name}), encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    code, output, error = in_process("tune", path, "-q")
    assert code == 2, output + error
    assert len(error.splitlines()) == 1, error
    assert len(error) < 300
    assert re.search(f"f.yaml:[0-9]+: name: .*{message}", error), error
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("command", ["tune", "compare"])
def test_a_folder_that_cannot_be_is_one_line(tmp_path, command, in_process, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.yaml").write_text(yaml.safe_dump(GOOD))
    more = ["--optimizers", "random,sobol"] if command == "compare" else []
    code, output, error = in_process(command, "f.yaml", "--out", "x" * 300, "-q", *more)
    assert code == 2, output + error
    assert len(error.splitlines()) == 1, error
    assert "cannot be a study's folder (" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.yaml"]


def test_a_folder_that_cannot_be_is_an_input_error_in_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for out in ("x" * 300, "a\0b"):
        with pytest.raises(InputError, match="cannot be a study's folder"):
            tune(GOOD, out=out)
    assert list(tmp_path.iterdir()) == []


def test_names_of_255_bytes_and_hidden_ones_are_folders(tmp_path, monkeypatch, in_process):
    monkeypatch.chdir(tmp_path)
    for name in ("é" * 127 + "x", ".hidden", "-dashed", "with blanks"):
        (tmp_path / "f.yaml").write_text(
            yaml.safe_dump(GOOD | {"name": name, "budget": {"runs": 2}})
        )
        code, output, error = in_process("tune", "f.yaml", "-q")
        assert code == 0, output + error
        assert (tmp_path / "studies" / name / "study.yaml").is_file()
