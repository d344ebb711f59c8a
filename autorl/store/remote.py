"""Folders that lie anywhere `fsspec` reaches.

That may be a bucket or a shared disk, and memory in tests. A checkpoint there is the folder of its
files. The log names it, with their hashes, once all of them are there: any other is not whole.

`fsspec` is imported when a URL is used first. Put-if-absent (`create`) is one step on local disks,
and where the package of the protocol writes conditionally (`s3fs` does from 2025.7 on, says its
change log). Elsewhere, in memory too, it is a look and a write.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar

from autorl.core.masking import masked
from autorl.core.plain_text import one_line, printable
from autorl.core.regular_files import open_regular
from autorl.core.types import InputError, StorageError
from autorl.store.checkpoints import file_hashes, first_difference, stays_inside, sync_tree

_LOCAL = "file"
_FORGETS = ("memory",)  # protocols whose folders end with the process
_LONGEST_REASON = 120  # characters that are quoted of an error of another package
_WAITS = (0.5, 2.0, 8.0)  # seconds before each further try at a transfer that failed

T = TypeVar("T")


def is_url(path: str) -> bool:
    """Tell a URL from a path of this machine."""
    return "://" in path


def storage_url(text: str, folder: Path) -> str:
    """Return the URL that a study file or a command line means.

    A path without a protocol is a folder, relative to `folder`.
    """
    if is_url(text):
        return text.rstrip("/")
    # Not `as_uri`: fsspec takes a path as it stands, without escapes.
    return f"{_LOCAL}://{(folder / Path(text).expanduser()).resolve()}"


def shown_url(url: str) -> str:
    """Return a URL for messages, in one line.

    The part before an `@` is masked.
    """
    return printable(str(masked(url)), keep_lines=False)


class RemoteFolder:
    """A folder behind a URL.

    Objects are named relative to it, with `/` between folders.

    Args:
        url: with protocol.

    Raises:
        InputError: `fsspec` or the package of the protocol is missing, or nobody knows the
            protocol.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._files, self._root = _filesystem(self.url)
        self._root = self._root.rstrip("/")
        protocol = self._files.protocol
        self._local = _LOCAL in ([protocol] if isinstance(protocol, str) else protocol)
        self._made: set[str] = set()

    def below(self, name: str) -> RemoteFolder:
        """Return a folder in this one."""
        return RemoteFolder(f"{self.url}/{name}")

    def check_writable(self) -> None:
        """Write an object, read it and remove it.

        Raises:
            InputError: one of these fails.
        """
        name = f".probe-{secrets.token_hex(8)}"
        try:
            self.write(name, b"autorl")
            content = self.read(name)
            self.remove(name)
        except StorageError as error:
            raise InputError(str(error), key="storage") from error
        if content != b"autorl":
            raise InputError(
                f"{shown_url(self.url)} does not give back what was written", key="storage"
            )

    # -- single objects ----------------------------------------------------------------------------

    def read(self, name: str) -> bytes | None:
        """Return the content of an object, None where there is none."""
        with self._told("read"):
            try:
                return bytes(self._files.cat_file(self._readable(name)))
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> None:
        """Write an object whole, over one of that name."""
        path = self._path(name)
        with self._told("written"):
            self._make_parent(path)
            if not self._local:
                self._files.pipe_file(path, content)
                return
            with _aside(path, os.replace) as aside:
                _write_through(aside, content)

    def create(self, name: str, content: bytes) -> bool:
        """Write an object unless there is one of that name.

        Returns:
            Whether it was written.
        """
        path = self._path(name)
        with self._told("written"):
            self._make_parent(path)
            try:
                if not self._local:
                    self._files.pipe_file(path, content, mode="create")
                    return True
                # fsspec looks and then writes on a local disk. A link appears with its content.
                with _aside(path, os.link) as aside:
                    _write_through(aside, content)
            except FileExistsError:
                return False
            return True

    def remove(self, name: str) -> None:
        """Remove an object.

        Nothing happens where there is none.
        """
        with self._told("written"), suppress(FileNotFoundError):
            self._files.rm_file(self._path(name))

    def send(self, file: Path, name: str) -> None:
        """Copy a file of this machine to an object."""
        path = self._path(name)
        with self._told("written"):
            self._make_parent(path)
            with _aside(path, os.replace) if self._local else nullcontext(path) as target:
                self._files.put_file(str(file), target)

    def receive(self, name: str, file: Path) -> bool:
        """Copy an object to a file of this machine.

        Returns:
            False if there is no such object.
        """
        with self._told("read"):
            try:
                self._files.get_file(self._readable(name), str(file))
            except FileNotFoundError:
                return False
            return True

    def objects(self) -> dict[str, int]:
        """Return the bytes of every object below, by name."""
        with self._told("read"):
            # Some packages remember what they have listed.
            self._files.invalidate_cache()
            try:
                listed = self._files.find(self._root, detail=True)
            except FileNotFoundError:
                return {}
        start = len(self._root) + 1
        return {path[start:]: int(info.get("size") or 0) for path, info in listed.items()}

    # -- a checkpoint ------------------------------------------------------------------------------

    def upload(self, folder: Path) -> dict[str, str]:
        """Upload a local folder, and return the SHA-256 of its files.

        Raises:
            InputError: it holds a symbolic link. A storage has no links: whoever fetches a
                checkpoint need not ask where one leads.
            StorageError: it could not be copied, tried several times.
        """
        hashes = file_hashes(folder)
        if link := next((name for name in hashes if (folder / name).is_symlink()), None):
            raise InputError(
                f"the checkpoint holds a symbolic link ({one_line(link)}): a storage takes files "
                "and folders alone",
                key="storage",
            )

        def copy() -> None:
            for name in hashes:
                self.send(folder / name, name)
            if self._local:
                sync_tree(Path(self._root))

        _tried_again(copy)
        return hashes

    def fetch(self, folder: Path, files: Collection[str]) -> str | None:
        """Copy files of the checkpoint that lies here to a folder.

        Returns:
            One phrase that says which is missing. They are not compared with hashes.

        Raises:
            StorageError: the storage does not answer, tried several times.
        """
        return _tried_again(lambda: self._fetch(folder, files))

    def _fetch(self, folder: Path, files: Collection[str]) -> str | None:
        for name in sorted(files):
            if not stays_inside(name):
                return f"{one_line(name)} leads out of the folder"
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if not self.receive(name, target):
                return f"{one_line(name)} is missing"
        return None

    def damage(self, files: Mapping[str, str]) -> str | None:
        """Name what of the checkpoint here differs from its saved SHA-256.

        The result is None where nothing differs. Every object is read.
        """
        return first_difference(files, self._hash)

    def _hash(self, name: str) -> str | None:
        with self._told("read"):
            try:
                with self._files.open(self._readable(name), "rb") as file:
                    return hashlib.file_digest(file, "sha256").hexdigest()
            except FileNotFoundError:
                return None

    def delete(self) -> None:
        """Remove everything here."""
        with self._told("written"), suppress(FileNotFoundError):
            self._files.rm(self._root, recursive=True)

    def move(self, target: RemoteFolder) -> bool:
        """Move everything here to another folder of the same storage.

        Returns:
            False where there is nothing.
        """
        names = self.objects()
        if not names:
            return False
        with self._told("written"):
            for name in names:
                path = target._path(name)
                target._make_parent(path)
                self._files.cp_file(self._readable(name), path)
        self.delete()
        return True

    # -- below -------------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _readable(self, name: str) -> str:
        """Return the path of an object, which must not be a pipe."""
        path = self._path(name)
        if self._local:
            os.close(open_regular(path))
        return path

    def _make_parent(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent not in self._made:
            self._files.makedirs(parent, exist_ok=True)
            self._made.add(parent)

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Turn what a package raises into one line.

        `what` was to be done: "read" or "written".
        """
        try:
            yield
        # Each protocol has errors of its own library, with no class in common.
        except Exception as error:
            reason = _reason(error)
            raise StorageError(f"{shown_url(self.url)} cannot be {what} ({reason})") from error


@contextmanager
def _aside(path: str, place: Callable[[str, str], None]) -> Iterator[str]:
    """Name a local file that `place` renames once it is written."""
    aside = f"{path}.tmp-{secrets.token_hex(4)}"
    try:
        yield aside
        place(aside, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(aside)


def _write_through(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _tried_again(transfer: Callable[[], T]) -> T:
    """Do a transfer, and repeat it where the storage fails.

    There is a pause before each repetition.
    """
    for seconds in _WAITS:
        try:
            return transfer()
        except StorageError:
            time.sleep(seconds)
    return transfer()


def _filesystem(url: str) -> tuple[Any, str]:
    try:
        import fsspec
        from fsspec.core import url_to_fs
    except ImportError:
        raise InputError(
            "storage needs the package fsspec: pip install 'autorl[storage]'", key="storage"
        ) from None
    protocol = url.partition("://")[0]
    if protocol in _FORGETS:
        message = f"{protocol}:// ends with this process: expected a folder, or a URL such as s3://"
        raise InputError(message, key="storage")
    try:
        files, root = url_to_fs(url)
    except ImportError as error:
        raise InputError(
            f"{protocol}:// needs a package that is not installed ({_reason(error)})", key="storage"
        ) from None
    except ValueError as error:
        if protocol not in fsspec.available_protocols():
            raise InputError(
                f"unknown protocol {protocol}://: expected a folder, or a URL such as s3://, "
                "gs://, abfs:// or file://",
                key="storage",
            ) from None
        raise InputError(f"{shown_url(url)} is no URL ({_reason(error)})", key="storage") from None
    # The package of a protocol connects here, with errors of its own library.
    except Exception as error:
        raise InputError(
            f"{shown_url(url)} cannot be opened ({_reason(error)})", key="storage"
        ) from error
    return files, str(root)


def _reason(error: Exception) -> str:
    """Say in one line what an error of another package means."""
    text = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return one_line(masked(text), _LONGEST_REASON)
