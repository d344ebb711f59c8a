"""Files that a stranger may have placed are opened without waiting, and must be regular."""

import os
import socket

import pytest
from refusals import expect_error

from autorl.core.regular_files import open_regular, read_regular
from autorl.landscapes._views import read_own_space
from autorl.landscapes.manifest import Manifest, file_sha256
from autorl.optimizers.priors.table import load_prior
from autorl.store.lock import FolderLock, lock_holder


def test_a_file_is_read_through_a_link(tmp_path):
    (tmp_path / "file").write_text("é", encoding="utf-8")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link") == "é"


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "socket"])
def test_what_is_not_a_file_is_refused_at_once(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    path = "/dev/zero" if kind == "device" else "it"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        os.mkdir(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
    with pytest.raises(OSError, match=r"not a regular file|No such device"):
        open_regular(path)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("manifest.json", Manifest.read),
        ("space.yaml", read_own_space),
        ("prior.json", lambda folder: load_prior(folder / "prior.json")),
    ],
)
def test_a_pipe_in_a_folder_of_somebody_else_is_one_line(tmp_path, name, read):
    os.mkfifo(tmp_path / name)
    expect_error("not a regular file", read, tmp_path)


def test_a_pipe_among_the_files_of_a_manifest_is_not_hashed(tmp_path):
    os.mkfifo(tmp_path / "runs.parquet")
    with pytest.raises(OSError, match="not a regular file"):
        file_sha256(tmp_path / "runs.parquet")


def test_a_lock_that_is_a_link_leaves_the_file_it_leads_to(tmp_path):
    (tmp_path / "mine").write_text("mine")
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "study.lock").symlink_to(tmp_path / "mine")
    assert expect_error("is a link", FolderLock, folder).file == str(folder / "study.lock")
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_lock_that_is_a_pipe_does_not_wait(tmp_path):
    os.mkfifo(tmp_path / "study.lock")
    with pytest.raises(OSError, match="not a regular file"):
        FolderLock(tmp_path)
    assert lock_holder(tmp_path) is None
