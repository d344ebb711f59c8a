"""Tables of tasks from landscapes, studies' folders and prior files.

A score is the mean over *tuning* seeds at the end of a run, less its standard error: of two
configurations that look alike the one that is surer. Curves are reduced as the landscape itself
does. Test seeds choose nothing here either: a study may share its own with an earlier study of the
same task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from autorl.core.plain_text import did_you_mean, listed
from autorl.core.shipped import shipped_folder
from autorl.core.types import InputError
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.library import find_landscape, is_study, shipped_root
from autorl.landscapes.manifest import MANIFEST, Manifest
from autorl.optimizers.base import Surroundings
from autorl.optimizers.priors.families import algorithm_of
from autorl.optimizers.priors.packed import Array
from autorl.optimizers.priors.table import (
    FEWEST,
    Curves,
    Prior,
    TaskTable,
    evenly,
    load_prior,
    unit_scores,
)
from autorl.space.canonical import sha256

AUTO = "auto"
NONE = "none"
MOST_ROWS = 256
"""Configurations of a table: those of a larger landscape are thinned out, the best 64 stay."""
_BEST_ROWS = 64
MOST_TASKS = 32
"""Tables that a study takes; what comes later is left out, and said."""
MOST_SEEDS = 3  # of the curves of a configuration
MOST_POINTS = 20
"""Evaluations of a curve: those of a longer one are thinned out evenly, the last stays."""
_MOST_NAMED = 6  # sources in a line
STUDIES = "studies"  # a folder, and as `auto` with the studies in it
LANDSCAPES = "landscapes"
PRIORS = "priors"


T = TypeVar("T")


@dataclass
class Gathered:
    """Tables that were read, and a line for everything that was not.

    Attributes:
        groups: the tables of each source: several of a prior file, one of a landscape.
        skipped: `source: why not`.
    """

    groups: list[list[TaskTable]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def usable(
        self, make: Callable[[TaskTable], T], key: str, *, named: bool
    ) -> tuple[list[T], tuple[str, ...]]:
        """Return what the tables become, and a line for everything else.

        Args:
            make: of a table; its `InputError` says why it cannot be used.
            key: of the option that names the sources.
            named: whether a source of which nothing can be used is an error, or a line.

        Raises:
            InputError: `named`, and there is such a source.
        """
        made: dict[TaskTable, T] = {}
        skipped = [*self.skipped]
        for tables in self.groups:
            lines = []
            for table in tables:
                try:
                    made[table] = make(table)
                except InputError as error:
                    lines.append(f"{table.source}: {error.message}")
            if named and len(lines) == len(tables):
                raise InputError("; ".join(lines), key=key)
            skipped += lines
        skipped += [
            f"{table.source}: a study takes {MOST_TASKS} tables at most"
            for table in [*made][MOST_TASKS:]
        ]
        return [*made.values()][:MOST_TASKS], tuple(skipped)


def check_sources(value: object, key: str, what: str, words: Sequence[str]) -> None:
    """Check an option: one of the words, or a list of sources.

    Args:
        value: of the option.
        key: of the option, as `optimizer.prior`.
        what: a study with `none` is without.
        words: that stand for sources, or for none.

    Raises:
        InputError: it is none of what it may be.
    """
    if value in words:
        return
    if isinstance(value, str) or not isinstance(value, Sequence):
        message = f"expected {', '.join(words)} or a list of landscapes, got {value!r}"
        raise InputError(message, key=key)
    wrong = [name for name in value if not isinstance(name, str)]
    if wrong or not value:
        message = "expected ids or folders of landscapes in the list"
        message += f", got {wrong[0]!r}" if wrong else f", got none: `none` is without {what}"
        raise InputError(message, key=key)


def gather(value: str | Sequence[str], surroundings: Surroundings, key: str) -> Gathered:
    """Read an option: `auto`, `studies` or a list of sources.

    Raises:
        InputError: a source that it names cannot be used.
    """
    around = surroundings
    if isinstance(value, str):
        studies = value == STUDIES
        return automatic_tables(around.folder, around.algorithms, around.replays, studies=studies)
    try:
        return named_tables(value, around.folder, around.algorithms)
    except InputError as error:
        raise InputError(error.message, file=error.file, key=key) from None


def read_table(folder: Path) -> TaskTable:
    """Read the table of a landscape or of a study's folder.

    Raises:
        InputError: it cannot be read, or has too few scores, or all are equal.
    """
    data = Dataset(folder)
    manifest = data.manifest
    try:
        bounds, n_seeds = _lower_bounds(data)
        rows = np.flatnonzero(~np.isnan(bounds))
        rows = _thinned(rows, bounds)
        # Two studies of one trainer and environment would be landscapes of one id.
        source = f"{STUDIES}/{folder.name}" if data.is_study else manifest.id
        return TaskTable(
            source=source,
            algorithm=algorithm_of(manifest.algorithm),
            environment=manifest.environment,
            configs=tuple(data.config(int(data.grid.config_ids[row])) for row in rows),
            scores=unit_scores(bounds[rows]),
            n_seeds=n_seeds,
            sha256=sha256(manifest.to_dict()),
            licence=manifest.licence,
            citation=manifest.citation,
            curves=read_curves(data),
        )
    except InputError as error:
        raise InputError(error.message, file=error.file or str(folder)) from None


def read_curves(data: Dataset) -> Curves | None:
    """Read the curves of a landscape or study, else None.

    Runs that lack an evaluation, such as stopped ones, are left out. There are as many seeds of
    each configuration as enough configurations have.
    """
    grid = data.grid
    columns = grid.columns(len(grid.steps) - 1)
    columns = [columns[place] for place in evenly(len(columns), MOST_POINTS)]
    curves = data.manifest.objective.sign * grid.whole_curves("tuning", columns).astype(np.float64)
    complete = np.asarray(np.isfinite(curves).all(axis=-1))  # (configurations, seeds)
    for count in range(min(MOST_SEEDS, complete.shape[1]), 0, -1):
        rows = np.flatnonzero(complete.sum(axis=1) >= count)
        if len(rows) < FEWEST or not columns:
            continue
        rows = rows[evenly(len(rows), MOST_ROWS)]
        fractions = grid.steps[columns] / grid.steps[-1]
        try:
            units = unit_scores(np.array([curves[row][complete[row]][:count] for row in rows]))
        except InputError:
            return None
        return Curves(tuple(float(round(fraction, 6)) for fraction in fractions), units)
    return None


def _lower_bounds(data: Dataset) -> tuple[Array, int]:
    """Return mean less standard error of each configuration at the last step.

    NaN without any score; with it the number of tuning seeds.
    """
    grid = data.grid
    reduction = data.rule().reduction
    reduced = grid.reduced(reduction, len(grid.steps) - 1)
    places = grid.seed_positions("tuning")
    values = reduction.sign(data.manifest.objective.sign) * reduced[:, places]
    counted = ~np.isnan(values)
    # A race trains some configurations with fewer seeds than others.
    number = np.maximum(counted.sum(axis=1), 1)
    means = np.where(counted, values, 0.0).sum(axis=1) / number
    squares = np.where(counted, (values - means[:, None]) ** 2, 0.0).sum(axis=1)
    errors = np.sqrt(squares / np.maximum(number - 1, 1) / number)
    means = np.where(counted.any(axis=1), means, np.nan)
    # Not below the worst mean: a configuration that succeeds once is no worse than one that never
    # does. If successes are so rare that no bound is above it, means remain.
    worst = np.nanmin(means, initial=np.inf)
    bounds = np.maximum(means - errors, worst)
    rare = not np.nanmax(bounds, initial=-np.inf) > worst
    return (means if rare else bounds), len(places)


def _thinned(rows: np.ndarray, means: Array) -> np.ndarray:
    """Return at most `MOST_ROWS` rows: the best, and the others evenly."""
    if len(rows) <= MOST_ROWS:
        return rows
    order = rows[np.argsort(-means[rows], kind="stable")]
    lower = order[_BEST_ROWS:]
    lower = lower[evenly(len(lower), MOST_ROWS - _BEST_ROWS)]
    return np.sort(np.concatenate([order[:_BEST_ROWS], lower]))


def named_tables(names: Sequence[str], folder: Path | None, algorithms: Sequence[str]) -> Gathered:
    """Read the tables of sources that a study names.

    Args:
        names: ids, folders, or prior files; relative ones begin at `folder`, then here.
        folder: of the study file.
        algorithms: of the study; empty: any.

    Raises:
        InputError: one of them is nowhere, cannot be read, or is of another algorithm.
    """
    gathered = Gathered()
    for name in names:
        tables: Sequence[TaskTable] = ()
        if (landscape := find_landscape(name, folder=folder)) is not None:
            tables = [read_table(landscape)]
        else:
            tables = read_prior(find_prior(name, folder)).tasks
        wrong = [table for table in tables if algorithms and table.algorithm not in algorithms]
        if wrong:
            message = (
                f"{name} is of the algorithm {wrong[0].algorithm}, "
                f"this study trains {', '.join(algorithms)}"
            )
            raise InputError(message, key="optimizer.prior")
        gathered.groups.append([*tables])
    return gathered


def find_prior(name: str, folder: Path | None = None) -> Path:
    """Find a prior file by its path or its name.

    A name is that of a file without `.json`: below `priors/` of `folder`, of this one, or of the
    package.

    Raises:
        InputError: there is none.
    """
    places = [Path(name)] if folder is None else [folder / name, Path(name)]
    path = next((place for place in places if place.is_file()), None)
    if path is not None:
        return path
    files = {file.stem: file for file in reversed(prior_files(_bases(folder)))}
    if name not in files:
        message = f"no landscape, study or prior file {name!r}{did_you_mean(name, sorted(files))}"
        raise InputError(message, key="optimizer.prior")
    return files[name]


def read_prior(file: Path) -> Prior:
    """Read a prior file whose tables know its name.

    Raises:
        InputError: as `load_prior` does.
    """
    prior = load_prior(file)
    return replace(prior, tasks=tuple(replace(task, prior=file.stem) for task in prior.tasks))


def automatic_tables(
    folder: Path | None, algorithms: Sequence[str], without: str = "", *, studies: bool = False
) -> Gathered:
    """Read every table of these algorithms that lies where tables lie.

    These are, in this order: prior files and landscapes below the study file's folder and below
    this one, those of the package, and, where they are asked for, studies of the two folders. The
    first of two tables with one id is taken.

    Args:
        folder: of the study file.
        algorithms: of the study; empty: nothing is taken.
        without: a source that is left out: the landscape that a study replays.
        studies: whether those of studies are taken.
    """
    gathered = Gathered()
    if not algorithms:
        return gathered
    taken: dict[str, str] = {}  # of each table its id and its hash
    unrelated: dict[str, None] = {}  # left out for the algorithm
    for source in _sources(_bases(folder), studies=studies):
        label = _label(source)
        tables: list[TaskTable] = []
        try:
            for offer in _offers(source):
                sha256 = taken.get(offer.source, offer.sha256)
                if offer.algorithm not in algorithms:
                    unrelated[source.stem if source.is_file() else offer.source] = None
                elif offer.source == without:
                    gathered.skipped.append(f"{offer.source}: the study replays it")
                elif sha256 != offer.sha256:
                    message = f"another table of the id {offer.source} was taken"
                    gathered.skipped.append(f"{label}: {message}")
                elif offer.source not in taken:
                    tables.append(read_table(source) if offer.table is None else offer.table)
        except InputError as error:
            gathered.skipped.append(f"{label}: {error.message}")
        else:
            taken |= {table.source: table.sha256 for table in tables}
            gathered.groups.append(tables)
    if unrelated:
        names = listed(unrelated, _MOST_NAMED)
        gathered.skipped.append(f"{names}: of another algorithm")
    return gathered


@dataclass(frozen=True)
class _Offer:
    """A table of a source, itself where it is read already."""

    source: str
    algorithm: str
    sha256: str
    table: TaskTable | None = None


def _offers(source: Path) -> Iterator[_Offer]:
    """List the tables of a prior file, a landscape or a study.

    Raises:
        InputError: it cannot be read.
    """
    if source.is_file():
        tables = read_prior(source).tasks
    elif (source / MANIFEST).is_file():
        # The manifest alone says whether tables are worth loading; a study has none.
        manifest = Manifest.read(source)
        algorithm = algorithm_of(manifest.algorithm)
        content = sha256(manifest.to_dict())
        yield _Offer(manifest.id, algorithm, content)
        return
    else:
        tables = (read_table(source),)
    for table in tables:
        yield _Offer(table.source, table.algorithm, table.sha256, table)


def _label(source: Path) -> str:
    """Name a source by the end of its path."""
    if source.is_file():
        return source.stem
    parts = 2 if is_study(source) else 3  # a landscape's id
    return "/".join(source.parts[-parts:])


def _bases(folder: Path | None) -> list[Path]:
    """List the folders that sources lie below."""
    return [base for base in dict.fromkeys([folder, Path.cwd()]) if base is not None]


def _sources(bases: Sequence[Path], *, studies: bool) -> Iterator[Path]:
    """List prior files, folders of landscapes and folders of studies."""
    shipped = shipped_folder(PRIORS)
    yield from _files(_folders(bases, PRIORS, shipped))
    yield from _landscapes(_folders(bases, LANDSCAPES, shipped_root()))
    # After all of the user's: who made a landscape anew means that one.
    yield from _files([shipped])
    yield from _landscapes([shipped_root()])
    for root in _folders(bases, STUDIES, None) if studies else ():
        yield from (path for path in sorted(root.iterdir()) if is_study(path))


def prior_files(bases: Sequence[Path]) -> list[Path]:
    """List the prior files below folders, and those of the package."""
    shipped = shipped_folder(PRIORS)
    return _files([*_folders(bases, PRIORS, shipped), shipped])


def _files(roots: Sequence[Path | None]) -> list[Path]:
    return [file for root in roots if root is not None for file in sorted(root.glob("*.json"))]


def _folders(bases: Sequence[Path], name: str, of_package: Path | None) -> list[Path]:
    """List the folders of a name, each once, without the package's.

    In a checkout the working folder's is the package's: its tables were read twice, and what was
    left out of them was said twice.
    """
    different: dict[Path, Path] = {}
    for folder in (base / name for base in bases):
        if folder.is_dir():
            different.setdefault(folder.resolve(), folder)
    excluded = None if of_package is None else of_package.resolve()
    return [folder for place, folder in different.items() if place != excluded]


def _landscapes(roots: Sequence[Path | None]) -> Iterator[Path]:
    """List the folders with a manifest below `roots`, hidden ones left out."""
    for root in filter(None, roots):
        for file in sorted(root.rglob(MANIFEST)):
            if not any(part.startswith(".") for part in file.relative_to(root).parts):
                yield file.parent
