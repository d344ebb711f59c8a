"""The folder of built tasks, each made once for all processes."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder of built tasks.

    It is `rlhf` in `$AUTORL_CACHE`, else in the user's cache.
    """
    user = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return Path(os.environ.get("AUTORL_CACHE") or user / "autorl") / "rlhf"


def cached(
    folder: Path, name: str, content: Mapping[str, object], make: Callable[[Path], None]
) -> Path:
    """Return the folder that `make` fills, made once for each `content`.

    It is written aside and renamed, under a lock: workers that start together build it once, and it
    exists whole or not at all.

    Args:
        folder: where it lies.
        name: its name begins so.
        content: everything its result depends on, in JSON types.
        make: fills an empty folder.
    """
    text = json.dumps(content, sort_keys=True)
    final = folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if final.exists():
        return final
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / f".{final.name}.lock"):
        if final.exists():
            return final
        scratch = folder / f".tmp-{final.name}"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        make(scratch)
        (scratch / "content.json").write_text(text + "\n", encoding="utf-8")
        scratch.rename(final)
    return final


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the file lock `path`.

    It goes with the process that holds it.
    """
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
