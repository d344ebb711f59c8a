"""Modules of two studies that have one name: which are refused, and which are no danger."""

import sys
from types import ModuleType

import pytest

from autorl.core.types import InputError
from autorl.study.several_studies import refuse_equal_modules


def folder(path, imported=None, monkeypatch=None, **files):
    """A folder of modules; `imported` names the file of one that is in memory."""
    for name, content in files.items():
        file = path / (name.replace("__of__", "/") + ".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    if imported is not None:
        module = ModuleType(imported.partition("/")[0])
        module.__file__ = str(path / f"{imported}.py")
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return frozenset({str(path)})


@pytest.fixture
def clash(tmp_path, monkeypatch):
    """Whether two folders clash, or the error's text."""

    def ask(left, right, imported="own_train", of="left"):
        folders = {
            "left": folder(tmp_path / "left", **left),
            "right": folder(tmp_path / "right", **right),
        }
        if imported:
            folder(tmp_path / of, imported, monkeypatch)
        try:
            refuse_equal_modules(folders)
        except InputError as error:
            return error.message
        return None

    return ask


def test_different_modules_of_one_name_are_refused_in_words(clash, tmp_path):
    assert clash({"own_train": "a"}, {"own_train": "b"}) == (
        "left and right have different Python modules called 'own_train', in "
        f"{tmp_path / 'left'} and {tmp_path / 'right'}: rename one, or run the studies one after "
        "another"
    )


def test_what_nobody_imported_is_no_danger(clash):
    assert clash({"own_train": "a"}, {"own_train": "b"}, imported=None) is None


def test_equal_modules_and_others_are_no_danger(clash):
    assert clash({"own_train": "a"}, {"own_train": "a"}) is None
    assert clash({"own_train": "a"}, {"own_other": "b"}) is None


def test_packages_are_compared_with_all_their_modules(clash):
    left = {"own__of____init__": "", "own__of__part": "a"}
    right = {"own__of____init__": "", "own__of__part": "b"}
    assert "called 'own'" in clash(left, right, imported="own/__init__")
    assert clash(left, left, imported="own/__init__") is None


def test_a_folder_that_both_have_or_that_is_gone_is_no_danger(tmp_path, monkeypatch):
    shared = folder(tmp_path / "shared", "own_train", monkeypatch, own_train="a")
    other = folder(tmp_path / "other", own_train="b")
    refuse_equal_modules({"one": shared, "two": shared})
    refuse_equal_modules({"one": shared | other, "two": shared | other})
    refuse_equal_modules({"one": shared, "two": frozenset({str(tmp_path / "gone")})})
    with pytest.raises(InputError, match="one and three have different"):
        refuse_equal_modules({"one": shared, "two": shared, "three": other})
