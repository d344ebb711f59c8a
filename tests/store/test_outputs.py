"""Places where commands and functions may write: no file of others is replaced unasked."""

import pytest

from autorl.core.types import InputError
from autorl.store import Store
from autorl.store.outputs import MARK, free_output

NOTES = "notes of somebody else"


@pytest.fixture
def place(tmp_path):
    (tmp_path / "study" / "checkpoints").mkdir(parents=True)
    (tmp_path / "study" / "study.sqlite").write_text("")
    (tmp_path / "landscape").mkdir()
    for name in ("manifest.json", "space.yaml"):
        (tmp_path / "landscape" / name).write_text("{}")
    (tmp_path / "notes.html").write_text(NOTES)
    (tmp_path / "ours.html").write_text(f"<html>{MARK}</html>")
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "nowhere.html").symlink_to(tmp_path / "missing")
    (tmp_path / "database.html").symlink_to(tmp_path / "study" / "study.sqlite")
    return tmp_path


@pytest.mark.parametrize("name", ["new.html", "deep/new.HTML", "ours.html", "study/report.html"])
def test_a_free_name_and_a_page_of_ours_are_taken(place, name):
    assert free_output(place / name, (".html",)) == place / name


@pytest.mark.parametrize(
    ("name", "replace", "problem"),
    [
        ("notes.html", False, "is there already"),
        ("folder.html", False, "is there already"),
        ("nowhere.html", True, "is there already"),
        ("database.html", True, "lies among the files of"),
        ("new.yaml", True, "ends in .html"),
        ("study/study.sqlite", True, "ends in .html"),
        ("study/other.html", True, "lies among the files of"),
        ("study/checkpoints/report.html", True, "lies among the files of"),
        ("landscape/deep/new.html", True, "lies among the files of"),
        ("a" * 300 + ".html", False, "cannot be written"),
    ],
)
def test_any_other_name_is_refused(place, name, replace, problem):
    with pytest.raises(InputError, match=problem):
        free_output(place / name, (".html",), replace=replace)


@pytest.mark.parametrize("inside", ["study", "study/checkpoints/new", "landscape", "link"])
def test_no_study_is_made_among_the_files_of_others(place, inside):
    (place / "link").symlink_to(place / "study" / "new")
    before = sorted(place.rglob("*"))
    folder = place / inside if inside == "link" else place / inside / "x"
    with pytest.raises(InputError, match="lies among the files of") as error:
        Store.create(folder, "{}", "")
    assert error.value.file == str(folder)
    assert sorted(place.rglob("*")) == before


def test_what_is_there_is_replaced_where_the_user_says_so(place):
    assert free_output(place / "notes.html", (".html",), replace=True) == place / "notes.html"
