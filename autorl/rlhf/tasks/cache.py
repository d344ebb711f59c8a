"""The folder of built tasks, each made once for all processes."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from importlib.metadata import version
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
        content: what its result depends on besides the libraries, in JSON types.
        make: fills an empty folder.
    """
    # transformers 4 does not read the tokenizers that transformers 5 writes
    written_by = {"transformers": version("transformers").partition(".")[0]}
    # equal options give the same folder in whatever order they were given
    text = json.dumps({**content, **written_by}, sort_keys=True)
    final = folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if final.exists():
        return final
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".{final.name}.lock").open("w") as lock:
        # the kernel lets it go with the file, also of a process that was killed
        fcntl.flock(lock, fcntl.LOCK_EX)
        if final.exists():
            return final
        # the name is fixed, under the lock: what a killed process left is removed, not collected
        scratch = folder / f".tmp-{final.name}"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        make(scratch)
        (scratch / "content.json").write_text(text + "\n", encoding="utf-8")
        # atomic on one file system: nobody sees half a task
        scratch.rename(final)
    return final
