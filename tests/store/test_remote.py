"""Folders behind URLs: objects, put-if-absent, and checkpoints that are whole or not there."""

import itertools
import json
import os

import pytest

from autorl.core.types import InputError, StorageError
from autorl.store import remote
from autorl.store.checkpoints import file_hashes
from autorl.store.remote import MANIFEST, Manifest, RemoteFolder, storage_url

pytest.importorskip("fsspec", reason="the extra storage is not installed")

_numbers = itertools.count()


@pytest.fixture(params=["file", "memory"])
def storage(request, tmp_path, monkeypatch):
    if request.param == "file":
        return RemoteFolder(f"file://{tmp_path}/a storage")
    monkeypatch.setattr(remote, "_FORGETS", ())
    return RemoteFolder(f"memory://remote-{os.getpid()}-{next(_numbers)}")


def checkpoint(folder):
    (folder / "deep").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "weights.bin").write_bytes(bytes(range(256)) * 9)
    (folder / "deep" / "state.json").write_text("{}")
    return folder


def test_objects_are_written_read_listed_and_removed(storage):
    assert storage.read("a/b") is None
    storage.write("a/b", b"one")
    storage.write("a/b", b"three")
    assert storage.read("a/b") == b"three"
    assert storage.objects() == {"a/b": 5}
    assert storage.below("a").objects() == {"b": 5}
    storage.remove("a/b")
    storage.remove("a/b")
    assert storage.is_empty()


def test_only_the_first_creates_an_object(storage):
    assert storage.create("lease/1.json", b"mine")
    assert not storage.create("lease/1.json", b"theirs")
    assert storage.read("lease/1.json") == b"mine"
    assert list(storage.objects()) == ["lease/1.json"]


def test_a_checkpoint_comes_back_as_it_was(storage, tmp_path):
    saved = checkpoint(tmp_path / "saved")
    manifest = storage.below("x").upload(saved)
    assert manifest.bytes == 256 * 9 + 2
    copy = tmp_path / "copy"
    copy.mkdir()
    assert storage.below("x").fetch(copy) is None
    assert file_hashes(copy) == file_hashes(saved) == dict(manifest.hashes)
    assert (copy / "empty").is_dir()
    assert storage.below("x").damage(manifest.hashes) is None


def test_an_upload_that_ends_on_the_way_leaves_no_checkpoint(storage, tmp_path, monkeypatch):
    """A checkpoint without a manifest does not exist, whatever else lies there."""
    saved = checkpoint(tmp_path / "saved")
    place = storage.below("x")

    def killed(file, name):
        if name == "weights.bin":
            raise KeyboardInterrupt
        RemoteFolder.send(place, file, name)

    monkeypatch.setattr(place, "send", killed)
    with pytest.raises(KeyboardInterrupt):
        place.upload(saved)
    assert list(storage.objects()) == ["x/deep/state.json"]
    copy = tmp_path / "copy"
    copy.mkdir()
    assert storage.below("x").fetch(copy) == "the folder is missing"


def test_a_torn_object_is_named(storage, tmp_path):
    manifest = storage.below("x").upload(checkpoint(tmp_path / "saved"))
    storage.write("x/weights.bin", b"torn")
    assert storage.below("x").damage(manifest.hashes) == "weights.bin differs from what was saved"
    storage.remove("x/weights.bin")
    assert storage.below("x").damage(manifest.hashes) == "weights.bin is missing"
    copy = tmp_path / "copy"
    copy.mkdir()
    assert storage.below("x").fetch(copy) == "weights.bin is missing"


def test_a_checkpoint_is_deleted_and_moved(storage, tmp_path):
    manifest = storage.below("x").upload(checkpoint(tmp_path / "saved"))
    assert storage.below("x").move(storage.below("damaged/x"))
    assert storage.below("damaged/x").damage(manifest.hashes) is None
    assert storage.below("x").is_empty()
    assert not storage.below("x").move(storage.below("y"))
    storage.below("damaged/x").delete()
    storage.below("damaged/x").delete()
    assert storage.is_empty()


@pytest.mark.parametrize(
    "body",
    [
        {"sizes": {"../../outside": 1}},
        {"sizes": {"/etc/passwd": 1}},
        {"links": {"a": "b"}},
        {"sizes": {"a": 1, "./a/b": 1}},
        {"sizes": {"a": 1}, "folders": ["a"]},
        {"folders": ["../up"]},
        {"sizes": {"a": -1}},
        {"sizes": ["a"]},
        ["a"],
        {"sizes": {"a": 1, "b": -1}},
        {"sizes": {"a": "1"}},
        {"sizes": {"a\0b": 1}},
        {"sizes": {"": 1}},
        {"sizes": {"a": 1}, "links": ["a"]},
        {"sizes": {"a": 1}, "sha256": ["a"]},
        {"sizes": {"a": 1}, "folders": "ab"},
        {"sha256": {"b/../c": "0"}},
    ],
)
def test_a_manifest_of_somebody_else_leads_nowhere(body):
    with pytest.raises(ValueError, match=r"a name |a size is|no mapping|no links"):
        Manifest.parse(json.dumps(body))


def test_a_storage_makes_no_link(storage, tmp_path):
    """A name below a link would lead anywhere, and what lies there would be replaced."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("mine")
    body = {"links": {"in": str(victim), "in/file": "/anything"}}
    storage.write(f"x/{MANIFEST}", json.dumps(body).encode())
    copy = tmp_path / "copy"
    copy.mkdir()
    assert storage.below("x").fetch(copy) == f"{MANIFEST} cannot be read"
    assert (list(copy.iterdir()), (victim / "file").read_text()) == ([], "mine")


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
def test_a_pipe_in_a_storage_is_one_line(tmp_path, use):
    (tmp_path / MANIFEST).write_text("{}")
    os.mkfifo(tmp_path / "it")
    with pytest.raises(StorageError, match="not a regular file"):
        use(RemoteFolder(f"file://{tmp_path}"), tmp_path / "copy")


def test_a_pipe_is_replaced_by_what_is_sent(tmp_path):
    (tmp_path / "file").write_text("sent")
    os.mkfifo(tmp_path / "it")
    RemoteFolder(f"file://{tmp_path}").send(tmp_path / "file", "it")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "it"]
    assert (tmp_path / "it").read_text() == "sent"


def test_a_checkpoint_with_a_link_is_not_uploaded(storage, tmp_path):
    saved = checkpoint(tmp_path / "saved")
    (saved / "deep" / "latest").symlink_to("state.json")
    with pytest.raises(InputError, match="deep/latest") as error:
        storage.below("x").upload(saved)
    assert error.value.key == "storage"
    assert storage.is_empty()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s5://bucket/x", "unknown protocol s5://"),
        ("memory://x", "memory:// ends with this process"),
        ("s3://bucket/x", "s3:// needs a package that is not installed"),
    ],
)
def test_a_url_nobody_knows_is_one_line(url, words):
    with pytest.raises(InputError) as error:
        RemoteFolder(url)
    assert words in str(error.value)
    assert error.value.key == "storage"
    assert "\n" not in str(error.value)


def test_a_storage_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(
        InputError, match=r"^storage: file://.*/file/x cannot be written \("
    ) as error:
        RemoteFolder(f"file://{tmp_path}/file/x").check_writable()
    assert "\n" not in str(error.value)


def test_messages_show_no_secrets():
    assert remote.shown_url("s3://key:word@bucket/x") == "s3://***@bucket/x"


def test_a_transfer_is_tried_again(storage, tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "_WAITS", (0.0, 0.0))
    place = storage.below("x")
    failures = [StorageError("gone"), StorageError("gone")]

    def flaky(name, content):
        if failures:
            raise failures.pop()
        RemoteFolder.write(place, name, content)

    monkeypatch.setattr(place, "write", flaky)
    manifest = place.upload(checkpoint(tmp_path / "saved"))
    assert storage.below("x").damage(manifest.hashes) is None


def test_a_path_is_a_folder_beside_the_study_file(tmp_path):
    assert storage_url("runs", tmp_path) == f"file://{tmp_path}/runs"
    assert storage_url("/mnt/runs", tmp_path) == "file:///mnt/runs"
    assert storage_url("s3://bucket/runs/", tmp_path) == "s3://bucket/runs"


def test_a_manifest_is_read_as_it_was_written():
    manifest = Manifest({"b": 0, "a": 2}, {"b": "0", "a": "1"}, ("f", "f/g"))
    assert Manifest.parse(manifest.text()) == manifest
    other = Manifest({"a": 2, "b": 0}, {"a": "1", "b": "0"}, ("f", "f/g"))
    assert other.text() == manifest.text(), "in one order"
    assert Manifest.parse("{}") == Manifest({}, {}, ())


def test_folders_of_a_manifest_come_in_any_order(storage, tmp_path):
    body = {"folders": ["a/b", "a", "c"]}
    storage.write(f"x/{MANIFEST}", json.dumps(body).encode())
    copy = tmp_path / "copy"
    copy.mkdir()
    assert storage.below("x").fetch(copy) is None
    assert (copy / "a" / "b").is_dir()


def test_a_checkpoint_without_files_is_one(storage, tmp_path):
    saved = tmp_path / "saved"
    (saved / "empty").mkdir(parents=True)
    manifest = storage.below("deep/x").upload(saved)
    assert (manifest.bytes, manifest.folders) == (0, ("empty",))
    copy = tmp_path / "copy"
    copy.mkdir()
    assert storage.below("deep/x").fetch(copy) is None
    assert [path.name for path in copy.iterdir()] == ["empty"]


def test_what_lies_in_a_storage_is_sent_and_received(storage, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"content")
    assert not storage.receive("deep/a", tmp_path / "nothing")
    storage.send(file, "deep/a")
    storage.send(file, "deep/b")
    assert storage.receive("deep/a", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == b"content"
    assert not storage.is_empty()
    assert storage.objects() == {"deep/a": 7, "deep/b": 7}
    assert storage.below("nowhere").objects() == {}


def test_a_transfer_that_fails_for_good_is_tried_four_times(storage, tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(remote.time, "sleep", pauses.append)
    tried = []

    def gone(name):
        tried.append(name)
        raise StorageError("gone")

    monkeypatch.setattr(storage, "read", gone)
    with pytest.raises(StorageError, match="gone"):
        storage.fetch(tmp_path)
    assert (pauses, tried) == ([0.5, 2.0, 8.0], [MANIFEST] * 4)


def test_a_storage_that_gives_back_something_else_is_refused(storage, monkeypatch):
    storage.check_writable()
    assert storage.is_empty(), "nothing is left of the probe"
    monkeypatch.setattr(storage, "read", lambda name: b"other")
    with pytest.raises(InputError, match="does not give back what was written"):
        storage.check_writable()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(28, "No space left"), "No space left"),
        (ValueError(" two\n lines "), "two lines"),
        (ValueError(), "ValueError"),
    ],
)
def test_errors_of_other_packages_are_one_line(error, reason):
    assert remote._reason(error) == reason


def test_long_errors_are_cut_and_urls_are_one_line(storage):
    assert len(remote._reason(ValueError("word " * 100))) == 120
    assert "\n" not in remote.shown_url("s3://bucket/a\nb")


def test_names_of_files_in_messages_are_one_line(storage):
    storage.write(f"x/{MANIFEST}", json.dumps({"sizes": {"a\nb": 1}}).encode())
    assert "\n" not in storage.below("x").damage({"a\nb": "0"})
    assert storage.below("y").damage({}) == "the folder is missing"
    for unreadable in (b"[1", b"[" * 200_000, b'{"folders": [1]}'):
        storage.write(f"y/{MANIFEST}", unreadable)
        assert storage.below("y").damage({}) == f"{MANIFEST} cannot be read"


def test_what_has_a_protocol_is_a_url():
    assert remote.is_url("s3://bucket/x")
    assert not remote.is_url("/mnt/s3:/x")
