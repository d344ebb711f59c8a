"""Describes each session that works on a study.

The recorded facts let other people train the same again.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from autorl import __version__
from autorl.executors.devices import thread_count
from autorl.store.provenance import own_source
from autorl.store.sessions import changes_text
from autorl.store.tables import StudyTables
from autorl.study.spec import Spec
from autorl.trainers.info import module_files, module_of, modules_of
from autorl.trainers.shared import search_folders

_PACKAGES = (
    *("numpy", "scipy", "numba", "llvmlite", "pandas", "duckdb", "ConfigSpace", "cmaes", "smac"),
    *("scikit-learn", "torch", "gymnasium", "stable-baselines3", "mujoco", "ale-py", "box2d"),
    *("box2d-py", "optuna"),
)


def session(spec: Spec, files: Mapping[str, str]) -> dict[str, object]:
    """Describe the session that begins now.

    These are versions, the code that trains, the user's own files by hash (`user_files`), and the
    kind of machine.
    """
    described = [spec.info(trainer) for trainer in spec.trainers.values()]
    packages = [*_PACKAGES, *(name for info in described for name in info.packages)]
    installed = {name: installed_version(name) for name in packages}
    versions = {name: version for name, version in installed.items() if version is not None}
    machine = {
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }
    # Sums over more threads are rounded in another order: other last digits.
    threads = 1
    if {info.executor for info in described} == {"processes"}:
        threads = max(map(thread_count, spec.resources_by_algorithm.values()))
    source = dict(own_source())
    for info in described:
        source |= info.source_hashes()
    code = {
        "version": __version__,
        "source": source,
        "python": platform.python_version(),
        "packages": versions,
    }
    return {**code, "files": files, "cpu": cpu(), "threads": threads, **machine}


@functools.cache  # 2.5 ms a package
def installed_version(package: str) -> str | None:
    """Return the version of an installed package.

    The result is None if it is not installed.
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def changes_by_now(tables: StudyTables, spec: Spec) -> str | None:
    """Name in one line what a session that would begin now changes.

    The result is None where it differs in nothing from the recorded sessions.
    """
    before = tables.sessions()
    return changes_text([*before, session(spec, user_files(spec))]) if before else None


def user_files(spec: Spec, function: Callable[..., object] | None = None) -> dict[str, str]:
    """Hash the user's own modules and scripts that the study file names.

    The hash is SHA-256, by their path in their folder. Modules that these import in turn, and
    installed packages, are not among them.

    Args:
        spec: the study file.
        function: of the caller, whose module is one of them; a notebook has no file.
    """
    digests = {}
    files = list(_named_files(spec))
    file = getattr(sys.modules.get(getattr(function, "__module__", "")), "__file__", None)
    if file is not None:
        files.append((Path(file).parent, Path(file).name))
    for folder, name in files:
        shown = Path(name).name if Path(name).is_absolute() else name
        # A file that is gone or unreadable is not recorded: no reason not to train.
        with suppress(OSError):
            digests[shown] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    return digests


def _named_files(spec: Spec) -> Iterator[tuple[Path, str]]:
    modules = [module_of(spec.environment.id or ""), module_of(spec.optimizer.name)]
    modules += modules_of(spec.optimizer.options)
    for wrapper in spec.environment.wrappers:
        modules += [
            module_of(name) for name in ([wrapper] if isinstance(wrapper, str) else wrapper)
        ]
    for trainer in spec.trainers.values():
        folders = [Path(folder) for folder in search_folders(trainer.kwargs) or (spec.path or ".",)]
        yield from _first(folders, spec.info(trainer).user_files(trainer))
    beside_file = [Path(spec.path or ".")]
    for module in modules:
        yield from _first(beside_file, module_files(module))


def _first(folders: list[Path], names: list[str]) -> Iterator[tuple[Path, str]]:
    """Find each file of `names` in the first folder that has it."""
    for name in names:
        folder = next((folder for folder in folders if (folder / name).is_file()), None)
        if folder is not None:
            yield folder, name


def cpu() -> str:
    """Name the CPU type compiled code is made for, `znver5 (AMD EPYC)`.

    Results are the same to the bit on one type.
    """
    from llvmlite.binding import get_host_cpu_name

    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        lines = []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), ""
    )
    return f"{get_host_cpu_name()} ({model or platform.processor() or 'model unknown'})"
