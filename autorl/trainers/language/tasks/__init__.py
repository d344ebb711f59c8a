"""The tasks by name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from threading import RLock

from autorl.core.numbers import check_number
from autorl.core.shipped import cache_folder
from autorl.core.types import FrozenMap, InputError
from autorl.trainers.language.contract import INSTANCE, Built, Task, without_instance

_TASKS = {  # task -> "module:object", imported when asked for
    "letters-goldproxy": "autorl.trainers.language.tasks.letters:GOLDPROXY",
    "letters-pairs": "autorl.trainers.language.tasks.letters:PAIRS",
    "sort-verifiable": "autorl.trainers.language.tasks.sorting:SORT",
    "tiny-sentiment": "autorl.trainers.language.tasks.sentiment:SENTIMENT",
    "files": "autorl.trainers.language.tasks.files:FILES",
}


def tasks() -> tuple[str, ...]:
    """Return the names of the tasks.

    They are those of the package, and `files` for a user's own.
    """
    return tuple(_TASKS)


def task(name: str, kwargs: Mapping[str, object] | None = None) -> Task:
    """Return the task of that name, with the options of a study.

    Raises:
        InputError: there is none. The message names those there are.
    """
    if name not in _TASKS:
        raise InputError(
            f"unknown RLHF task {name!r}; there are {', '.join(_TASKS)}", key="environment"
        )
    module, _, attribute = _TASKS[name].partition(":")
    registered: Task = getattr(importlib.import_module(module), attribute)
    return registered.with_options(kwargs or {})


def build(name: str, kwargs: Mapping[str, object], folder: Path | None = None) -> Built:
    """Build the task `name` with the environment arguments of a study.

    The `instance` is among them.

    The result is kept for the process's life.

    Raises:
        InputError: no such task, or an option it does not have.
    """
    options = FrozenMap(without_instance(kwargs))
    instance = kwargs.get(INSTANCE, 0)
    check_number(instance, f"environment.kwargs.{INSTANCE}", 0, whole=True)
    return _built(name, instance, tuple(sorted(options.items())), folder or cache_folder("rlhf"))


# the options are a tuple because a cache needs keys that hash
@lru_cache(maxsize=8)
def _built(
    name: str, instance: int, options: tuple[tuple[str, object], ...], folder: Path
) -> Built:
    from tqdm import tqdm

    # Its own lock is a semaphore, which a worker that is ended leaves behind with a warning.
    tqdm.set_lock(RLock())
    return task(name, dict(options)).build(instance, folder, **dict(options))


__all__ = ["build", "task", "tasks"]
