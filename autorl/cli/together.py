"""Reads the files of several studies that run together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from autorl.core.types import InputError
from autorl.space import read_document
from autorl.study import Study
from autorl.study.results.models import with_start
from autorl.study.setup import check, trainer_loader
from autorl.study.several_studies import check_shareable, module_folders, refuse_equal_modules
from autorl.study.spec import Spec
from autorl.study.tuner import read_study

_ENDINGS = (".yaml", ".yml", ".json")


def sources_of(arguments: Sequence[str]) -> list[str]:
    """List the study files and spaces that the arguments of `tune` name.

    A folder stands for the study files in it, in the order of their names. Files of search spaces,
    which often lie beside, are left out.

    Raises:
        InputError: a folder has no study file.
    """
    sources: list[str] = []
    for argument in arguments:
        files = [argument]
        if is_folder_of_studies(argument):
            files = [str(path) for path in _files(Path(argument)) if not _is_space(path)]
        if not files:
            raise InputError("has search spaces, but no study file", file=argument)
        sources += files
    return sources


def is_folder_of_studies(argument: str) -> bool:
    """Say whether an argument of `tune` is a folder with files.

    If not, it is a file or the name of a space.
    """
    return Path(argument).is_dir() and bool(_files(Path(argument)))


def read_studies(sources: Sequence[str], overrides: Mapping[str, object]) -> list[Spec]:
    """Read several studies, and check all before one begins.

    Raises:
        InputError: one is wrong, two have one name, or they cannot run together.
    """
    specs: dict[str, Spec] = {}
    for source in sources:
        if source in specs:
            raise InputError("is named twice", file=source)
        specs[source] = read_study(source, dict(overrides))
        _refuse_equal_modules(specs)  # to read a study may import a class that it names
    by_name: dict[str, str] = {}
    for source, spec in specs.items():
        first = by_name.setdefault(spec.name, source)
        if first != source:
            raise InputError(
                f"{first} has the name {spec.name!r} too: they would share a folder",
                file=source,
                key="name",
            )
    for spec in specs.values():
        check(with_start(spec), trainer_loader(spec))
        _refuse_equal_modules(specs)
    check_shareable([*specs.values()])
    return [*specs.values()]


def open_studies(folders: Sequence[Path], *, trust: bool) -> list[Study]:
    """Open several studies that are to go on together.

    Raises:
        InputError: one cannot be opened, one is named twice, or they cannot run together. None is
            open then.
    """
    with ExitStack() as opened:  # their locks go with them
        studies: list[Study] = []
        for folder in folders:
            studies.append(opened.enter_context(closing(Study.open(folder, trust=trust))))
            _refuse_equal_modules({str(study.store.folder): study.spec for study in studies})
        check_shareable([study.spec for study in studies])
        opened.pop_all()
    return studies


def _refuse_equal_modules(specs: Mapping[str, Spec]) -> None:
    refuse_equal_modules({name: module_folders(spec) for name, spec in specs.items()})


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in _ENDINGS and path.is_file())


def _is_space(path: Path) -> bool:
    data = read_document(path).data
    return isinstance(data, Mapping) and "hyperparameters" in data
