"""Holder of a study's folder, by its lock file."""

import json
import os
import socket

import pytest

from autorl.core.types import InputError
from autorl.store.folder import LOCK_FILE
from autorl.store.lock import FolderLock, lock_holder


def test_the_holder_of_a_study_is_named_while_it_holds_the_lock(tmp_path):
    assert lock_holder(tmp_path) is None
    lock = FolderLock(tmp_path)
    assert lock_holder(tmp_path) == f"process {os.getpid()} on {socket.gethostname()}"
    lock.release()
    assert lock_holder(tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"[1]", b"{}", b'{"pid": null}', b"\xff\xfe"])
def test_a_lock_file_that_names_nobody_has_no_holder(tmp_path, content):
    lock = FolderLock(tmp_path)
    (tmp_path / LOCK_FILE).write_bytes(content)
    assert lock_holder(tmp_path) is None
    with pytest.raises(InputError, match="unknown process"):
        FolderLock(tmp_path)
    lock.release()


def test_a_holder_that_is_gone_holds_nothing(tmp_path):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    held = {"pid": child, "host": socket.gethostname()}
    lock = FolderLock(tmp_path)
    (tmp_path / LOCK_FILE).write_text(json.dumps(held))
    assert lock_holder(tmp_path) is None
    lock.release()
