"""Folders behind URLs: objects, put-if-absent, and checkpoints that come back as they were."""

import itertools
import os
import re

import pytest
from refusals import expect_error

from autorl.core.types import InputError, StorageError
from autorl.store import remote
from autorl.store.checkpoints import file_hashes
from autorl.store.remote import RemoteFolder, storage_url

pytest.importorskip("fsspec", reason="the extra storage is not installed")

_numbers = itertools.count()


@pytest.fixture(params=["file", "memory"])
def storage(request, tmp_path, monkeypatch):
    if request.param == "file":
        return RemoteFolder(f"file://{tmp_path}/a storage")
    monkeypatch.setattr(remote, "_FORGETS", ())
    return RemoteFolder(f"memory://remote-{os.getpid()}-{next(_numbers)}")


@pytest.fixture
def saved(tmp_path):
    folder = tmp_path / "saved"
    (folder / "deep").mkdir(parents=True)
    (folder / "weights.bin").write_bytes(bytes(range(256)) * 9)
    (folder / "deep" / "state.json").write_text("{}")
    return folder


@pytest.fixture
def copy(tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    return folder


def test_objects_are_written_read_listed_and_removed(storage, tmp_path):
    assert storage.read("a/b") is None
    storage.write("a/b", b"one")
    storage.write("a/b", b"three")
    assert storage.read("a/b") == b"three"
    assert storage.objects() == {"a/b": 5}
    assert storage.below("a").objects() == {"b": 5}
    assert storage.create("lease/1.json", b"mine")
    assert not storage.create("lease/1.json", b"theirs")
    assert storage.read("lease/1.json") == b"mine"
    (tmp_path / "file").write_bytes(b"content")
    assert not storage.receive("deep/a", tmp_path / "nothing")
    storage.send(tmp_path / "file", "deep/a")
    assert storage.receive("deep/a", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == b"content"
    assert sorted(storage.objects()) == ["a/b", "deep/a", "lease/1.json"]
    for name in ("a/b", "a/b", "deep/a", "lease/1.json"):
        storage.remove(name)
    assert storage.objects() == storage.below("nowhere").objects() == {}


def test_a_checkpoint_comes_back_as_it_was_is_moved_and_deleted(storage, saved, copy):
    hashes = storage.below("x").upload(saved)
    assert storage.below("x").fetch(copy, hashes) is None
    assert file_hashes(copy) == file_hashes(saved) == hashes
    assert storage.below("x").damage(hashes) is None
    assert storage.below("x").move(storage.below("damaged/x"))
    assert storage.below("damaged/x").damage(hashes) is None
    assert storage.below("x").objects() == {}
    assert not storage.below("x").move(storage.below("y"))
    storage.below("damaged/x").delete()
    storage.below("damaged/x").delete()
    assert storage.objects() == {}


def test_a_torn_object_is_named(storage, saved, copy):
    hashes = storage.below("x").upload(saved)
    storage.write("x/weights.bin", b"torn")
    assert storage.below("x").damage(hashes) == "weights.bin differs from what was saved"
    storage.remove("x/weights.bin")
    assert storage.below("x").damage(hashes) == "weights.bin is missing"
    assert storage.below("x").fetch(copy, hashes) == "weights.bin is missing"
    assert "\n" not in storage.below("x").damage({"a\nb": "0"})


@pytest.mark.parametrize("name", ["../../outside", "/etc/passwd", "b/../../c"])
def test_a_log_of_somebody_else_leads_nowhere(storage, tmp_path, copy, name):
    storage.write("outside", b"x")
    assert storage.below("x").fetch(copy, {name: "0"}) == f"{name} leads out of the folder"
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize(
    "use",
    [
        lambda storage, file: storage.read("it"),
        lambda storage, file: storage.receive("it", file),
        lambda storage, file: storage.damage({"it": ""}),
        lambda storage, file: storage.move(storage.below("elsewhere")),
    ],
    ids=["read", "receive", "damage", "move"],
)
def test_a_pipe_in_a_storage_is_one_line_and_is_replaced_by_what_is_sent(tmp_path, use):
    os.mkfifo(tmp_path / "it")
    storage = RemoteFolder(f"file://{tmp_path}")
    expect_error("not a regular file", use, storage, tmp_path / "copy", kind=StorageError)
    (tmp_path / "file").write_text("sent")
    storage.send(tmp_path / "file", "it")
    assert (tmp_path / "it").read_text() == "sent"


def test_a_checkpoint_with_a_link_is_not_uploaded(storage, saved):
    (saved / "deep" / "latest").symlink_to("state.json")
    assert expect_error("deep/latest", storage.below("x").upload, saved).key == "storage"
    assert storage.objects() == {}


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s5://bucket/x", "unknown protocol s5://"),
        ("memory://x", "memory:// ends with this process"),
        ("s3://bucket/x", "s3:// needs a package that is not installed"),
    ],
)
def test_a_url_nobody_knows_is_one_line(url, words):
    assert expect_error(re.escape(words), RemoteFolder, url).key == "storage"


def test_a_storage_is_tried_before_it_is_used(storage, monkeypatch, tmp_path):
    storage.check_writable()
    assert storage.objects() == {}, "nothing is left of the probe"
    monkeypatch.setattr(storage, "read", lambda name: b"other")
    expect_error("does not give back what was written", storage.check_writable)
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(InputError, match=r"^storage: file://.*/file/x cannot be written \(.*$"):
        RemoteFolder(f"file://{tmp_path}/file/x").check_writable()


@pytest.mark.parametrize("times", [3, 4])
def test_a_transfer_is_tried_four_times(storage, saved, monkeypatch, times):
    pauses = []
    monkeypatch.setattr(remote.time, "sleep", pauses.append)
    place = storage.below("x")
    failures = [StorageError("gone")] * times

    def flaky(file, name):
        if failures:
            raise failures.pop()
        RemoteFolder.send(place, file, name)

    monkeypatch.setattr(place, "send", flaky)
    if times == 4:
        expect_error("gone", place.upload, saved, kind=StorageError)
    else:
        assert storage.below("x").damage(place.upload(saved)) is None
    assert pauses == [0.5, 2.0, 8.0]


def test_a_path_is_a_folder_beside_the_study_file(tmp_path):
    assert storage_url("runs", tmp_path) == f"file://{tmp_path}/runs"
    assert storage_url("/mnt/runs", tmp_path) == "file:///mnt/runs"
    assert storage_url("s3://bucket/runs/", tmp_path) == "s3://bucket/runs"
    assert not remote.is_url("/mnt/s3:/x")
    assert remote.shown_url("s3://key:word@bucket/a\nb") == "s3://***@bucket/a\\nb"
