"""Runs several studies at once on workers that they share.

Each study's table is the one it would have alone: what a study decides follows from its own
outcomes, and who trains them when changes nothing. An error that ends a study ends that study only.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from autorl import executors
from autorl.core.types import AutorlError, Executor, InputError
from autorl.executors.shared import SharedExecutor, StudyView, load_apart
from autorl.executors.worker import Load
from autorl.store import Store
from autorl.store.checkpoints import driving
from autorl.study.results.result import Result
from autorl.study.setup import (
    ELSEWHERE,
    executor_limits,
    executor_name,
    make_named_executor,
    trainer_loader,
)
from autorl.study.spec import Spec
from autorl.study.study import POLL_SECONDS, Progress, Study
from autorl.trainers.shared import search_folders

if TYPE_CHECKING:
    from collections.abc import Iterator


PATH_AT_START = tuple(sys.path)
"""Where Python looked for modules before any folder of a study was added."""


def module_folders(spec: Spec) -> frozenset[str]:
    """List the folders that a study imports modules of its own from.

    Folders without any Python module are left out.
    """
    named = [spec.path] if spec.path else []
    for trainer in spec.trainers.values():
        named += search_folders(trainer.kwargs)
    folders = {Path(folder).resolve() for folder in named}
    return frozenset(str(folder) for folder in folders if _modules(folder))


def refuse_equal_modules(folders: Mapping[str, frozenset[str]]) -> None:
    """Check that no study could be given a module of another.

    Call it whenever the code of a study was imported.

    Args:
        folders: `module_folders` of each study, by the name that errors call it.

    Raises:
        InputError: two studies have different modules of one name in different folders, and
            something was imported from one of these folders.
    """
    for (first, of_first), (second, of_second) in itertools.combinations(folders.items(), 2):
        pairs = itertools.product(sorted(of_first - of_second), sorted(of_second - of_first))
        for left, right in pairs:
            name = _clash(Path(left), Path(right))
            if name is not None:
                raise InputError(
                    f"{first} and {second} have different Python modules called {name!r}, in "
                    f"{left} and {right}: rename one, or run the studies one after another"
                )


def _clash(left: Path, right: Path) -> str | None:
    """Name a module that differs between two folders.

    The result is None where no module differs, or nothing was imported from either.
    """
    in_left = _modules(left)
    in_right = _modules(right)
    if not _imported(in_left) and not _imported(in_right):
        return None
    for name in sorted(in_left.keys() & in_right.keys()):
        if _content(in_left[name]) != _content(in_right[name]):
            return name
    return None


def _modules(folder: Path) -> dict[str, Path]:
    """List the modules of a folder by name.

    They are files, or the folders of packages.
    """
    try:
        entries = sorted(folder.iterdir())
    except OSError:  # it is gone: nothing can be imported
        return {}
    modules = {path.stem: path for path in entries if path.suffix == ".py"}
    packages = {path.parent.name: path.parent for path in folder.glob("*/__init__.py")}
    return {name: path for name, path in {**modules, **packages}.items() if name.isidentifier()}


def _imported(modules: Mapping[str, Path]) -> bool:
    """Say whether one of the modules is in memory."""
    for name, path in modules.items():
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and Path(file).resolve() in (path, path / "__init__.py"):
            return True
    return False


def _content(module: Path) -> list[tuple[str, bytes]]:
    files = [module] if module.is_file() else sorted(module.rglob("*.py"))
    return [(str(file.relative_to(module.parent)), file.read_bytes()) for file in files]


@dataclass(frozen=True)
class Ended:
    """How one of several studies ended.

    Attributes:
        result: None if an error ended it.
        error: the error that ended it, or None.
    """

    study: Study
    result: Result | None = None
    error: AutorlError | None = None


@dataclass(frozen=True)
class Backend:
    """Describes the executor that a study needs.

    Studies with equal ones have one executor.

    Attributes:
        name: of the executor.
        limits: of one segment.
        settings: the section `executor` of the study file without its name and number of workers,
            as JSON.
        folders: that modules of the study's own are imported from.
    """

    name: str
    limits: executors.Limits
    settings: str
    folders: frozenset[str]


def backend_of(spec: Spec) -> Backend:
    """Say which executor a study needs."""
    return Backend(
        executor_name(spec),
        executor_limits(spec),
        spec.executor.model_dump_json(exclude={"name", "workers"}),
        module_folders(spec),
    )


def shared_workers(specs: Sequence[Spec], workers: int | None = None) -> int:
    """Return how many segments of all studies are trained at once.

    It is `workers`, else the most that one of the studies asks for, else one for each core.
    """
    asked = [spec.executor.workers for spec in specs if spec.executor.workers is not None]
    return workers or max(asked, default=os.cpu_count() or 1)


def check_shareable(specs: Sequence[Spec]) -> None:
    """Check that one set of workers can serve all of these studies.

    Raises:
        InputError: devices are assigned by one executor, and the studies need several.
    """
    assigns = any(spec.needs_gpu for spec in specs if executor_name(spec) not in ELSEWHERE)
    if assigns and len({backend_of(spec) for spec in specs}) > 1:
        message = (
            "studies that share devices need the same executor, `limits`, `resources` and folder "
            "of Python modules: run them one after another, or give all the same"
        )
        raise InputError(message, key="executor.devices")


def run_together(
    studies: Sequence[Study],
    workers: int | None = None,
    progress: Callable[[Study, Progress], None] | None = None,
) -> list[Ended]:
    """Search, then test, for all studies at once.

    Returns when all are done.

    Args:
        studies: whose trainers are loaded by the names in their study files.
        workers: segments trained at once, of all studies; None: `shared_workers`.
        progress: called with a study and where it stands whenever one of its segments has ended.

    Returns:
        How each study ended, in their order. A study that ended with an error is kept.

    Raises:
        InputError: the studies cannot share workers. Nothing was trained then.
    """
    specs = [study.spec for study in studies]
    check_shareable(specs)
    shared = SharedExecutor()
    try:
        views = views_of(shared, studies, shared_workers(specs, workers))
        sharers = [_Sharer(study, view) for study, view in zip(studies, views, strict=True)]
        for sharer in sharers:
            sharer.begin()
        while any(sharer.ended is None for sharer in sharers):
            shared.poll(POLL_SECONDS)
            for sharer in sharers:
                sharer.take(progress)
    finally:
        # Before `clear`: a worker that still trains would write into what is removed. A thread
        # cannot be stopped alone, so what a failed study has left waits for the end of all.
        shared.close()
        for study in studies:
            study.driver.work.clear()
    return [sharer.ended for sharer in sharers if sharer.ended is not None]


class _Sharer:
    """One of several studies while they run.

    Attributes:
        ended: None while it goes on.
    """

    def __init__(self, study: Study, view: StudyView) -> None:
        self.study = study
        self.ended: Ended | None = None
        self._view = view
        self._finished = 0

    def begin(self) -> None:
        """Hand out the first segments."""
        with self._ending():
            if self.study.begin_session():
                self._go_on()
            else:
                self.ended = Ended(self.study, self.study.result())

    def take(self, progress: Callable[[Study, Progress], None] | None) -> None:
        """Record what its workers have sent, and go on."""
        messages = self._view.poll(0)
        if self.ended is not None or not messages:
            return
        with self._ending():
            self._finished += self.study.take(self._view, messages)
            self._go_on()
            if progress is not None:
                progress(self.study, self.study.progress(self._finished))

    def _go_on(self) -> None:
        if not self.study.hand_out(self._view):
            self.ended = Ended(self.study, self.study.end_session())

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Let an error of this study end it alone."""
        try:
            with driving(self.study.store.folder):
                yield
        except AutorlError as error:
            self.ended = Ended(self.study, error=error)
            self._view.close()


class Served(Protocol):
    """Describes what shares workers: a study, or the runs of one configuration."""

    spec: Spec
    store: Store
    load: Load


def views_of(shared: SharedExecutor, studies: Sequence[Served], workers: int) -> list[StudyView]:
    """Make the executors that the studies need, and each study's view."""
    needed = [backend_of(study.spec) for study in studies]
    # One fork server imports for all: it is started with the modules of every study.
    preload = {
        module
        for study in studies
        for trainer in study.spec.trainers.values()
        for module in study.load(trainer).preload
    }
    pools: dict[Backend, Executor] = {}
    # Modules importable before any study came are importable for each of them.
    folders = frozenset[str]().union(*(backend.folders for backend in needed))
    folders -= frozenset(PATH_AT_START)
    for backend, study in zip(needed, studies, strict=True):
        if backend not in pools:
            foreign = sorted(folders - backend.folders)
            load = functools.partial(load_apart, trainer_loader(study.spec), foreign)
            pools[backend] = make_named_executor(
                backend.name, study.spec, load, workers, sorted(preload), study.store.folder
            )
    return [
        shared.view(f"{number}-{study.spec.name}", pools[backend])
        for number, (backend, study) in enumerate(zip(needed, studies, strict=True))
    ]
