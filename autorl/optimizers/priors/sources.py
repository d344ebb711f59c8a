"""Tables of tasks from landscapes, studies' folders and prior files.

A score is the mean over *tuning* seeds at the end of a run, less its standard error: of two
configurations that look alike the one that is surer. Curves are reduced as the landscape itself
does. Test seeds choose nothing here either: a study may share its own with an earlier study of the
same task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from autorl.core.plain_text import did_you_mean, listed
from autorl.core.shipped import shipped_folder
from autorl.core.types import InputError
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.library import find_landscape, is_study, shipped_root
from autorl.landscapes.manifest import MANIFEST, Manifest
from autorl.optimizers.priors.curves import read_curves, unit_scores
from autorl.optimizers.priors.table import Array, Prior, TaskTable, load_prior
from autorl.space.canonical import sha256

AUTO = "auto"
NONE = "none"
MOST_ROWS = 256
"""Configurations of a table: those of a larger landscape are thinned out, the best 64 stay."""
_BEST_ROWS = 64
_MOST_NAMED = 6  # sources in a line
STUDIES = "studies"  # a folder, and as `auto` with the studies in it
LANDSCAPES = "landscapes"
PRIORS = "priors"


@dataclass
class Gathered:
    """Tables that were read, and a line for everything that was not.

    Attributes:
        groups: the tables of each source: several of a prior file, one of a landscape.
        skipped: `source: why not`.
    """

    groups: list[list[TaskTable]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def source_names(
    value: object, key: str, what: str, words: Sequence[str] = (AUTO, NONE)
) -> list[str] | None:
    """Return the sources that an option names.

    The result is None where the value is one of the words.

    Args:
        value: of the option.
        key: of the option, as `optimizer.prior`.
        what: a study with `none` is without.
        words: that stand for sources, or for none.

    Raises:
        InputError: it is none of what it may be.
    """
    if value in words:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence):
        message = f"expected {', '.join(words)} or a list of landscapes, got {value!r}"
        raise InputError(message, key=key)
    wrong = [name for name in value if not isinstance(name, str)]
    if wrong or not value:
        message = "expected ids or folders of landscapes in the list"
        message += f", got {wrong[0]!r}" if wrong else f", got none: `none` is without {what}"
        raise InputError(message, key=key)
    return list(value)


def algorithm_of(name: str) -> str:
    """Return the last part of a trainer's name: `ppo` of `sb3/ppo`."""
    return name.rpartition("/")[2]


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


def _lower_bounds(data: Dataset) -> tuple[Array, int]:
    """Return mean less standard error of each configuration at the last step.

    NaN without any score; with it the number of tuning seeds.
    """
    grid = data.grid
    reduced = grid.reduced(data.rule().reduction, len(grid.steps) - 1)
    places = grid.seed_positions("tuning")
    values = data.manifest.objective.sign * reduced[:, places]
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
    places = np.linspace(0, len(lower) - 1, MOST_ROWS - _BEST_ROWS).round().astype(np.int64)
    return np.sort(np.concatenate([order[:_BEST_ROWS], lower[places]]))


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
        tables = _tables_of(name, folder)
        wrong = [table for table in tables if algorithms and table.algorithm not in algorithms]
        if wrong:
            message = (
                f"{name} is of the algorithm {wrong[0].algorithm}, "
                f"this study trains {', '.join(algorithms)}"
            )
            raise InputError(message, key="optimizer.prior")
        gathered.groups.append(tables)
    return gathered


def _tables_of(name: str, folder: Path | None) -> list[TaskTable]:
    places = [Path(name)] if folder is None else [folder / name, Path(name)]
    file = next((place for place in places if place.is_file()), None)
    if file is not None:
        return list(read_prior(file).tasks)
    landscape = find_landscape(name, folder=folder)
    if landscape is not None:
        return [read_table(landscape)]
    return list(read_prior(find_prior(name, folder)).tasks)


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
    search = _Search(algorithms, without)
    if not algorithms:
        return search.gathered
    for source in _sources(_bases(folder), studies=studies):
        try:
            search.take(source)
        except InputError as error:
            search.gathered.skipped.append(f"{_label(source)}: {error.message}")
    if search.of_other_algorithms:
        names = listed(search.of_other_algorithms, _MOST_NAMED)
        search.gathered.skipped.append(f"{names}: of another algorithm")
    return search.gathered


@dataclass
class _Search:
    """Tables that the search has read so far.

    Attributes:
        algorithms, without: as `automatic_tables` has them.
        taken: of each table its id and its hash.
        of_other_algorithms: what is left out for its algorithm.
    """

    algorithms: Sequence[str]
    without: str
    gathered: Gathered = field(default_factory=Gathered)
    taken: dict[str, str] = field(default_factory=dict)
    of_other_algorithms: list[str] = field(default_factory=list)

    def take(self, source: Path) -> None:
        """Read what a source adds.

        Raises:
            InputError: it cannot be read.
        """
        manifest = source / MANIFEST
        if source.is_file():
            prior = read_prior(source)
            if prior.algorithm not in self.algorithms:
                self.of_other_algorithms.append(source.stem)
                return
            tables = [table for table in prior.tasks if self._adds(table, source.stem)]
        elif not manifest.is_file() or self._promises(Manifest.read(source), source):
            # The manifest alone says whether tables are worth loading; a study has none.
            tables = [table for table in [read_table(source)] if self._adds(table, _label(source))]
        else:
            return
        self.taken |= {table.source: table.sha256 for table in tables}
        self.gathered.groups.append(tables)

    def _promises(self, manifest: Manifest, folder: Path) -> bool:
        algorithm = algorithm_of(manifest.algorithm)
        return self._is_new(manifest.id, algorithm, sha256(manifest.to_dict()), _label(folder))

    def _adds(self, table: TaskTable, label: str) -> bool:
        return self._is_new(table.source, table.algorithm, table.sha256, label)

    def _is_new(self, source: str, algorithm: str, content: str, label: str) -> bool:
        """Tell whether a table is to be taken, and note why not.

        Nothing is said of a table that another source has already brought.
        """
        if algorithm not in self.algorithms:
            self.of_other_algorithms.append(source)
        elif source == self.without:
            self.gathered.skipped.append(f"{source}: the study replays it")
        elif self.taken.get(source, content) != content:
            self.gathered.skipped.append(f"{label}: another table of the id {source} was taken")
        return algorithm in self.algorithms and source not in (self.without, *self.taken)


def _label(source: Path) -> str:
    """Name a source by the end of its path."""
    parts = 3  # a landscape's id
    if source.is_file():
        parts = 1
    elif is_study(source):
        parts = 2
    return "/".join(source.parts[-parts:])


def _bases(folder: Path | None) -> list[Path]:
    """List the folders that sources lie below."""
    return [base for base in dict.fromkeys([folder, Path.cwd()]) if base is not None]


def _sources(bases: Sequence[Path], *, studies: bool) -> Iterator[Path]:
    """List prior files, folders of landscapes and folders of studies."""
    shipped = shipped_folder(PRIORS)
    for root in _folders(bases, PRIORS, shipped):
        yield from _files(root)
    for root in _folders(bases, LANDSCAPES, shipped_root()):
        yield from _landscapes(root)
    # After all of the user's: who made a landscape anew means that one.
    yield from _files(shipped)
    if (root_of_package := shipped_root()) is not None:
        yield from _landscapes(root_of_package)
    for root in _folders(bases, STUDIES, None) if studies else ():
        yield from (path for path in sorted(root.iterdir()) if is_study(path))


def prior_files(bases: Sequence[Path]) -> list[Path]:
    """List the prior files below folders, and those of the package."""
    shipped = shipped_folder(PRIORS)
    roots = [*_folders(bases, PRIORS, shipped), shipped]
    return [file for root in roots for file in _files(root)]


def _files(root: Path | None) -> list[Path]:
    return [] if root is None else sorted(root.glob("*.json"))


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


def _landscapes(root: Path) -> Iterator[Path]:
    """List the folders with a manifest below `root`, hidden ones left out."""
    for file in sorted(root.rglob(MANIFEST)):
        parts = file.relative_to(root).parts
        if not any(part.startswith(".") for part in parts):
            yield file.parent
