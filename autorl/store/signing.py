"""Signatures of files by this installation.

The key is the user's own, made at first use.

The key lies in `$XDG_CONFIG_HOME/autorl/key` (default `~/.config/autorl/key`), readable by its
owner alone. It never leaves the machine and nothing is lost with it but the trust in what it
signed.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

_BYTES = 32


def sign(purpose: str, data: bytes) -> str | None:
    """Return the HMAC-SHA256 of `data` for a purpose, in hex.

    The result is None where no private key can be kept.
    """
    key = _key(make=True)
    return None if key is None else _digest(key, purpose, data)


def is_signed(purpose: str, data: bytes, signature: str) -> bool:
    """Tell whether a signature is this installation's, of `data` and purpose."""
    key = _key(make=False)
    # In constant time: how long the comparison takes tells nothing of the right signature.
    return key is not None and hmac.compare_digest(_digest(key, purpose, data), signature)


def key_file() -> Path | None:
    """Return where the key lies or would lie.

    The result is None where the user has no home.
    """
    configured = os.environ.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(configured):  # the specification ignores relative ones
        return Path(configured) / "autorl" / "key"
    try:
        return Path.home() / ".config" / "autorl" / "key"
    except RuntimeError:
        return None


def _digest(key: bytes, purpose: str, data: bytes) -> str:
    # With the purpose: a signature for one is worth nothing for another.
    return hmac.new(key, purpose.encode() + b"\0" + data, hashlib.sha256).hexdigest()


def _key(*, make: bool) -> bytes | None:
    """Return the key, None without one.

    There is none where none can be made, or others can read it or put it there.
    """
    path = key_file()
    if path is None:
        return None
    try:
        if make and not path.exists():
            _make(path)
        with path.open("rb") as file:
            status = os.fstat(file.fileno())  # of what is read, wherever the path leads by now
            private = (
                not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO) and status.st_uid == os.geteuid()
            )
            key = file.read()
    except OSError:
        return None
    return key if private and len(key) == _BYTES else None


def _make(path: Path) -> None:
    """Write a new key in one step.

    If several processes do it at once, one wins and all use its key.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    scratch = path.with_name(f".key-{os.getpid()}-{secrets.token_hex(4)}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            # Not `rename`, which would replace a key that another process uses already.
            os.link(scratch, path)
    finally:
        scratch.unlink()
