"""Paths of checkpoints: as they are stored, where they lie, and whose they are."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from autorl.store import Store
from autorl.store.store import located, shown_folder

URL = "memory://bucket/study"


@pytest.fixture
def store(tmp_path):
    opened = Store.create(tmp_path / "s", "text", "")
    yield opened
    opened.close()


def test_what_lies_in_the_folder_is_stored_relative_to_it(store, monkeypatch):
    saved = store.checkpoints / "1.0-1-0"
    assert store.relative(str(saved)) == "checkpoints/1.0-1-0"
    monkeypatch.chdir(store.folder.parent)
    assert store.relative("s/checkpoints/1.0") == "checkpoints/1.0"
    for elsewhere in ("/mnt/other/1.0", f"{URL}/checkpoints/1.0"):
        assert store.relative(elsewhere) == elsewhere
    assert store.locate("checkpoints/1.0-1-0") == str(saved)


def test_what_lies_in_the_storage_is_stored_relative_to_it(store):
    store.offsite = SimpleNamespace(url=URL)
    assert store.relative(f"{URL}/checkpoints/1.0-1-0") == "checkpoints/1.0-1-0"
    assert store.relative(f"{URL}-2/checkpoints/1.0") == f"{URL}-2/checkpoints/1.0"
    assert store.locate("checkpoints/1.0-1-0") == f"{URL}/checkpoints/1.0-1-0"
    (store.checkpoints / "1.0-1-0").mkdir(parents=True)
    assert store.locate("checkpoints/1.0-1-0") == str(store.checkpoints / "1.0-1-0")


def test_a_store_in_memory_stores_paths_as_they_are():
    store = Store.in_memory()
    assert store.relative("/tmp/x") == store.locate("/tmp/x") == "/tmp/x"
    assert store.locate("x") == "x"
    store.close()


@pytest.mark.parametrize("storage", [None, URL])
def test_a_whole_path_leads_where_it_says(tmp_path, storage):
    for stored in ("/mnt/x", "s3://bucket/x"):
        assert located(stored, tmp_path, storage) == stored


@pytest.mark.parametrize(
    ("name", "owned"), [("1.0-1-0", True), ("", False), (".", False), ("..", False), ("a/b", False)]
)
def test_a_study_owns_what_lies_among_its_checkpoints(store, name, owned):
    place = f"{store.checkpoints}/{name}"
    assert store.owns(place) is owned
    url = f"{URL}/checkpoints/{name}"
    assert not store.owns(url), "it has no storage"
    store.offsite = SimpleNamespace(url=URL)
    assert store.owns(url) is owned
    assert not store.owns(f"{URL}/logs/{name}")
    assert store.owns(place) is owned


def test_a_study_owns_nothing_else(store):
    assert store.owns(store.checkpoints / "1.0")
    for other in (store.checkpoints, store.folder, Path("/mnt/checkpoints/1.0"), "1.0"):
        assert not store.owns(other)


def test_a_folder_is_named_from_where_one_works(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert shown_folder(tmp_path / "here" / "s") == "s"
    assert shown_folder(tmp_path / "s") == str(tmp_path / "s")
