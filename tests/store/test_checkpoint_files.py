"""Hashes of the files of a checkpoint: taken where it is saved, recorded in the outcome event, compared later."""

import errno
import hashlib
import os
import shutil

import pytest

from autorl.store.checkpoints import damage, file_hashes, folder_size, remove, set_aside, sync_tree


@pytest.fixture
def saved(tmp_path):
    """A checkpoint of two files, one below a folder, and a link between them."""
    folder = tmp_path / "1.0"
    (folder / "inner").mkdir(parents=True)
    (folder / "weights.bin").write_bytes(bytes(range(256)) * 100)
    (folder / "inner" / "state.json").write_text('{"step": 5}')
    (folder / "latest").symlink_to("weights.bin")
    (folder / "inner" / "here").symlink_to("..")
    os.mkfifo(folder / "pipe")
    return folder


def test_every_file_has_the_hash_of_its_bytes(saved):
    hashes = file_hashes(saved)
    assert sorted(hashes) == ["inner/here", "inner/state.json", "latest", "weights.bin"]
    assert hashes["weights.bin"] == hashlib.sha256(bytes(range(256)) * 100).hexdigest()
    assert hashes["latest"] == hashlib.sha256(b"weights.bin").hexdigest()
    assert file_hashes(saved / "nowhere") == {}


def flip(folder):
    content = bytearray((folder / "weights.bin").read_bytes())
    content[1234] ^= 4
    (folder / "weights.bin").write_bytes(content)


def replace_by_folder(folder):
    (folder / "weights.bin").unlink()
    (folder / "weights.bin").mkdir()


def redirect(folder):
    (folder / "latest").unlink()
    (folder / "latest").symlink_to("inner/state.json")


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        (flip, "weights.bin differs from what was saved"),
        (lambda it: os.truncate(it / "weights.bin", 7000), "weights.bin differs from what"),
        (lambda it: os.truncate(it / "inner/state.json", 0), "inner/state.json differs from what"),
        (lambda it: (it / "weights.bin").unlink(), "weights.bin is missing"),
        (replace_by_folder, "weights.bin is missing"),
        (redirect, "latest differs from what was saved"),
        (shutil.rmtree, "the folder is missing"),
    ],
)
def test_damage_names_the_file(saved, change, phrase):
    hashes = file_hashes(saved)
    assert damage(saved, hashes) is None
    change(saved)
    assert damage(saved, hashes).startswith(phrase)


def test_other_files_do_not_count_and_without_hashes_nothing_is_checked(saved):
    hashes = file_hashes(saved)
    (saved / "left by a script").write_text("x")
    assert damage(saved, hashes) is None
    assert damage(saved / "nowhere", {}) is None


def test_damaged_checkpoints_of_one_name_are_numbered(tmp_path):
    places = []
    for content in "abc":
        folder = tmp_path / "checkpoints" / "1.0"
        folder.mkdir(parents=True)
        (folder / "weights").write_text(content)
        places.append(set_aside(folder))
    damaged = tmp_path / "checkpoints" / "damaged"
    names = ["1.0", "1.0-2", "1.0-3"]
    assert places == [f"moved to {damaged / name}" for name in names]
    assert [(damaged / name / "weights").read_text() for name in names] == ["a", "b", "c"]
    assert set_aside(tmp_path / "checkpoints" / "1.0") == "there is no such folder"


def test_the_size_of_a_folder_is_that_of_its_files_and_links(saved):
    size = 256 * 100 + len('{"step": 5}') + len("weights.bin")
    assert folder_size(saved) == size, "a link to a folder is none of its files"
    assert folder_size(saved / "nowhere") == 0


def refusing(function, name):
    """A function that the disk answers EIO for one file or folder of this name."""

    def called(path, *args, **values):
        if os.fspath(path).endswith(name):
            raise OSError(errno.EIO, "it failed", os.fspath(path))
        return function(path, *args, **values)

    return called


@pytest.mark.parametrize("look", [file_hashes, folder_size, sync_tree])
def test_a_folder_that_the_disk_does_not_list_is_never_an_empty_one(saved, monkeypatch, look):
    monkeypatch.setattr(os, "scandir", refusing(os.scandir, "inner"))
    with pytest.raises(OSError, match="it failed"):
        look(saved)


def test_what_the_disk_does_not_remove_stays_until_the_next_try(saved, monkeypatch):
    monkeypatch.setattr(os, "unlink", refusing(os.unlink, "weights.bin"))
    remove(saved)
    assert os.listdir(saved) == ["weights.bin"]
    monkeypatch.undo()
    remove(saved)
    assert not saved.exists()
