"""The parts that all importers share.

These are their options, seed roles, and the way from runs to the tables of a landscape.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from autorl.core.plain_text import counted
from autorl.core.types import Config, FrozenMap, InputError
from autorl.landscapes.importers.inference import NOTE, infer_space
from autorl.landscapes.manifest import Manifest, Objective, check_id, file_sha256
from autorl.landscapes.schema import Tables, config_rows
from autorl.landscapes.write import write_landscape
from autorl.space import Space

if TYPE_CHECKING:
    import pandas as pd

NO_LICENCE = "none stated: all rights reserved"
_STEP_LIMIT = 2**53  # larger floats are not exact
TEXTS = ("description", "licence", "citation", "url", "creator")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The settings a user may give for an import.

    Attributes:
        out: folder of landscapes.
        namespace: first part of the ids, for formats that name algorithm and environment; None =
            the format's.
        id: `namespace/algorithm/environment`, for formats that do not name them.
        tuning_seeds: the lowest so many seeds tune, the others test; None = half of them.
        metric: which recorded value is the objective; `direction`: which way it is better. None =
            as the source says.
        map: for tables: `column=role`, or the path of a YAML file with such lines.
        unit: steps in one unit of the source's budget (iterations, epochs, fractions of a run).
        about: texts of the manifest: description, licence, citation, url, creator.
        study: the name of one of several studies in a storage.
    """

    out: Path
    namespace: str | None = None
    id: str | None = None
    tuning_seeds: int | None = None
    metric: str | None = None
    direction: Literal["maximize", "minimize"] | None = None
    map: tuple[str, ...] = ()
    unit: float = 1.0
    about: Mapping[str, str] = field(default_factory=dict)
    study: str | None = None
    replace: bool = False

    def __post_init__(self) -> None:
        if self.direction not in (None, "maximize", "minimize"):
            raise InputError(
                f"expected maximize or minimize, got {self.direction!r}", key="direction"
            )
        if not self.unit > 0 or not math.isfinite(self.unit):
            raise InputError(f"expected a number above 0, got {self.unit}", key="unit")
        if self.id is not None:
            check_id(self.id)
        for key in self.about:
            if key not in TEXTS:
                raise InputError(f"unknown; allowed: {', '.join(TEXTS)}", key=f"about.{key}")

    def named(self, source: Path, found: str | None = None) -> str:
        """Return the id that was given, or else the source's own.

        Raises:
            InputError: there is neither.
        """
        if self.id is None and found is None:
            message = (
                "says neither algorithm nor environment; add --id namespace/algorithm/environment"
            )
            raise InputError(message, file=str(source))
        return self.id or str(found)


@dataclass(frozen=True)
class Run:
    """One training run of a source: `metrics` are curves at `steps`, ascending.

    `seed` None: the source names none, and repetitions of a configuration are numbered. Runs of one
    configuration and seed are told apart by `member` alone.
    """

    config_id: int
    seed: int | None
    steps: Sequence[int]
    metrics: Mapping[str, Sequence[float | None]]
    status: str = "done"
    wall_seconds: float | None = None
    member: str | None = None
    start_step: int = 0
    counted: bool = True  # whether the last step is what was really trained


class Evaluation(NamedTuple):
    """A row of a source: an evaluation, its run and state."""

    config_id: int
    seed: int
    step: int
    values: Mapping[str, float | None]
    line: int
    status: str = "done"
    wall_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Source:
    """The data an importer read.

    These are configurations by the source's number, runs, and what is known about them.

    Attributes:
        about: fields of the manifest.
    """

    path: Path
    files: Sequence[Path]
    id: str
    format: str
    configs: Mapping[int, Mapping[str, object]]
    runs: Sequence[Run]
    objective: Objective
    space: Space | None = None
    roles: Mapping[str, Sequence[int]] = field(default_factory=dict)
    origin: str = "imported"
    sampler: Mapping[str, object] = field(default_factory=dict)
    evaluation: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    return_bounds: tuple[float | None, float | None] = (None, None)


def gathered(rows: Iterable[Evaluation]) -> list[Run]:
    """Gather the rows of one configuration and seed into a run.

    It ended as its row with the largest step did.

    Raises:
        InputError: two rows are of the same configuration, seed and step.
    """
    groups: dict[tuple[int, int], list[Evaluation]] = {}
    for row in rows:
        groups.setdefault((row.config_id, row.seed), []).append(row)
    runs = []
    for (config_id, seed), listed in groups.items():
        listed.sort(key=lambda row: row.step)
        for before, row in pairwise(listed):
            if before.step == row.step:
                message = "another row has the same configuration, seed and step"
                raise InputError(message, line=max(before.line, row.line))
        last = listed[-1]
        metrics = {name: [row.values[name] for row in listed] for name in last.values}
        steps = [row.step for row in listed]
        runs.append(Run(config_id, seed, steps, metrics, last.status, last.wall_seconds))
    return runs


def read_object(file: Path, text: str | None = None, line: int | None = None) -> dict[str, Any]:
    """Read a JSON object from a file or a line of it.

    Raises:
        InputError: it is not one.
    """
    try:
        values = json.loads(file.read_text(encoding="utf-8") if text is None else text)
    except (OSError, ValueError) as error:
        raise InputError(f"not JSON: {error}", file=str(file), line=line) from None
    if not isinstance(values, dict):
        raise InputError("expected a JSON object", file=str(file), line=line)
    return values


@contextmanager
def errors_naming(file: Path) -> Iterator[None]:
    """Name the source in errors about its values."""
    try:
        yield
    except InputError as error:
        raise error.in_file(str(file)) from None


def write_source(source: Source, options: Options) -> Manifest:
    """Write what was read as the landscape folder `options.out / source.id`.

    Raises:
        InputError: configurations outside the space, a run that is there twice, more tuning seeds
            than seeds, or the folder exists.
    """
    with errors_naming(source.path):
        # An import of nothing would look like a success.
        if not any(run.steps for run in source.runs):
            raise InputError("no evaluation was found in it", key=source.objective.metric)
        space = source.space or infer_space(list(source.configs.values()))
        ids, configs = _distinct(space, source.configs)
        runs, notes = _identified(source.runs, ids, source.objective.metric)
        seeds = sorted({seed for run in runs if (seed := run.seed) is not None})
        roles = {int(seed): role for role in source.roles for seed in source.roles[role]}
        # Roles of a part of the seeds would be mixed with made-up ones: all are assigned then.
        if not roles or not set(seeds) <= set(roles):
            roles = seed_roles(seeds, options.tuning_seeds)
        rows = config_rows(space, configs, source.origin)
    steps = sorted({step for run in runs for step in run.steps})
    newest = max(file.stat().st_mtime for file in source.files)
    ending = {"at": "end"} if _gaps(runs, steps) else {}
    inferred = () if source.space else (NOTE,)
    _, algorithm, environment = source.id.split("/", 2)
    about: dict[str, Any] = {
        "licence": NO_LICENCE,
        "description": f"Imported from {source.format}.",
        "created": datetime.fromtimestamp(newest, UTC).date().isoformat(),
        **source.about,
        **options.about,
    }
    manifest = Manifest(
        id=source.id,
        algorithm=algorithm,
        environment=environment,
        objective=source.objective,
        return_bounds=source.return_bounds,
        steps=tuple(steps),
        seeds=FrozenMap(
            {role: sorted(s for s in seeds if roles[s] == role) for role in ("tuning", "test")}
        ),
        sampler=FrozenMap(source.sampler),
        evaluation=FrozenMap({**ending, **source.evaluation}),
        sources=(fingerprint(source.path, source.files),),
        notes=(*inferred, *source.notes, *notes),
        **about,
    )
    runs_table = _run_rows(runs, roles).assign(algorithm=algorithm, environment=environment)
    # Sources do not say how their runs were cut, so each run is one segment.
    segments = runs_table[["run_id", "seed", "member", "config_id"]].assign(
        segment="run-" + runs_table["run_id"].astype("str"),
        parent=None,
        from_step=runs_table["start_step"],
        to_step=runs_table.pop("last_step"),
    )
    tables = Tables(rows, runs_table, _eval_rows(runs), segments)
    return write_landscape(options.out / source.id, tables, manifest, space, options.replace)


def seed_roles(seeds: Sequence[int], tuning_seeds: int | None) -> dict[int, str]:
    """Assign roles to seeds that have none.

    The lowest `tuning_seeds` (None = half, rounded up) tune, the others test.

    Raises:
        InputError: there are not so many.
    """
    ordered = sorted(int(seed) for seed in seeds)
    count = (len(ordered) + 1) // 2 if tuning_seeds is None else tuning_seeds
    if not 1 <= count <= len(ordered):
        raise InputError(f"tuning_seeds must lie in 1..{len(ordered)}, got {count}")
    return {seed: "tuning" if place < count else "test" for place, seed in enumerate(ordered)}


def fingerprint(path: Path, files: Sequence[Path]) -> FrozenMap:
    """Make the entry of a manifest's `sources`.

    It has one hash over a file, or over the names and contents of several.
    """
    if list(files) == [path]:
        return FrozenMap(path=path.name, sha256=file_sha256(path))
    digest = hashlib.sha256()
    # Sorted: the order of a folder's files differs between file systems.
    for file in sorted(files):
        digest.update(f"{file.relative_to(path).as_posix()} {file_sha256(file)}\n".encode())
    return FrozenMap(path=path.name, files=len(files), sha256=digest.hexdigest())


def whole_step(value: float, unit: float, row: str) -> int:
    """Convert a budget of the source to a whole number of steps.

    Raises:
        InputError: it is not one.
    """
    steps = value * unit
    # Fractions of a run miss a whole number by round-off: 0.29 * 100 is 28.999999999999996.
    if not math.isfinite(steps) or abs(steps - round(steps)) > 1e-6 * max(1.0, abs(steps)):
        message = (
            f"the budget {value} is not a whole number of steps; "
            "--unit N says how many steps 1 stands for"
        )
        raise InputError(message, key=row)
    if abs(steps) >= _STEP_LIMIT:
        raise InputError(f"the budget {value} is more steps than can be counted (2^53)", key=row)
    return round(steps)


def metric_column(name: str) -> str:
    """Turn a foreign metric's name into a column of `evals`."""
    clean = re.sub(r"\W+", "_", name).strip("_") or "value"
    # `evals` has columns run_id and step of its own, and no name may begin with a digit.
    return f"metric_{clean}" if clean in ("run_id", "step") or clean[0].isdigit() else clean


def id_part(text: str) -> str:
    """Turn a foreign name into a part of a landscape's id."""
    return re.sub(r"[^A-Za-z0-9_.:-]+", "_", text).strip(".") or "unnamed"


def _distinct(
    space: Space, configs: Mapping[int, Mapping[str, object]]
) -> tuple[dict[int, int], dict[int, Config]]:
    """Give equal configurations one id.

    Returned are the id of each of the source's numbers (the first number with equal values), and
    the configurations by id.
    """
    by_hash: dict[str, int] = {}
    ids: dict[int, int] = {}
    distinct: dict[int, Config] = {}
    for number, values in configs.items():
        try:
            config = space.config(values)
        except InputError as error:
            raise InputError(error.message, key=f"configuration {number}: {error.key}") from None
        ids[number] = by_hash.setdefault(space.config_hash(config), number)
        distinct.setdefault(ids[number], config)
    return ids, distinct


def _identified(
    runs: Sequence[Run], ids: Mapping[int, int], metric: str
) -> tuple[list[Run], tuple[str, ...]]:
    """Give every run its distinct configuration and a seed.

    Returned are the runs, curves cleaned, by configuration and seed, and notes for the manifest.
    """
    identified: dict[tuple[int, int, str], Run] = {}
    repeated = unnamed = 0
    for run in runs:
        config_id = ids[run.config_id]
        member = run.member or ""
        seed = run.seed or 0
        # Repetitions without a seed are numbered 0, 1, ... in the order of the source.
        while run.seed is None and (config_id, seed, member) in identified:
            seed += 1
        clean = _cleaned(dataclasses.replace(run, config_id=config_id, seed=seed), metric)
        unnamed += run.seed is None
        # HPO-RL-Bench has the files of two runs twice; other results for one seed are an error.
        first = identified.setdefault((config_id, seed, member), clean)
        if first is clean:
            continue
        if (first.steps, first.metrics) != (clean.steps, clean.metrics):
            raise InputError(
                f"configuration {run.config_id} was trained twice with seed {seed}, with different "
                "results"
            )
        repeated += 1
    notes = []
    if repeated:
        notes.append(f"{repeated} exact copies of runs were left out.")
    if unnamed:
        notes.append(
            f"The source names no seeds for {counted(unnamed, 'run')}: repetitions of a "
            "configuration are numbered."
        )
    return [identified[key] for key in sorted(identified)], tuple(notes)


def _cleaned(run: Run, metric: str) -> Run:
    """Leave out evaluations before training.

    Values that are not finite are missing. A run without a value of the objective somewhere has
    failed, whatever the source says: diverged.
    """
    keep = [place for place, step in enumerate(run.steps) if step > 0]
    metrics = {
        name: [_finite(curve[place]) for place in keep] for name, curve in run.metrics.items()
    }
    broken = run.status in ("done", "stopped") and None in metrics.get(metric, [None])
    steps = [run.steps[place] for place in keep]
    if sorted(set(steps)) != steps:
        raise InputError(
            f"the steps of configuration {run.config_id} with seed {run.seed} do not rise: "
            f"{steps[:6]}"
        )
    status = "diverged" if broken else run.status
    return dataclasses.replace(run, steps=steps, metrics=metrics, status=status)


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _run_rows(runs: Sequence[Run], roles: Mapping[int, str]) -> pd.DataFrame:
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for run in runs:
        last = run.steps[-1] if run.steps else run.start_step
        # Nominal steps are no cost: `environment_steps` stays empty.
        trained = float(last - run.start_step) if run.counted else None
        named = ("config_id", "seed", "member", "status", "start_step", "wall_seconds")
        values = {name: getattr(run, name) for name in named}
        values |= {"seed_role": roles[run.seed or 0], "last_step": last}
        rows.append({"run_id": len(rows), "environment_steps": trained, **values})
    return pd.DataFrame(rows).assign(parent_run=None)


def _eval_rows(runs: Sequence[Run]) -> pd.DataFrame:
    import pandas as pd

    names = dict.fromkeys(name for run in runs for name in run.metrics)
    columns: dict[str, list[Any]] = {
        "run_id": [number for number, run in enumerate(runs) for _ in run.steps],
        "step": [step for run in runs for step in run.steps],
    }
    for name in names:
        missing = [None]
        columns[name] = [
            value for run in runs for value in run.metrics.get(name, missing * len(run.steps))
        ]
    return pd.DataFrame(columns)


def _gaps(runs: Sequence[Run], steps: Sequence[int]) -> bool:
    """Tell whether a finished run lacks an evaluation that others have.

    The evaluation lies before the last one of the run.
    """
    done = [run for run in runs if run.status == "done" and run.steps]
    return any(len(run.steps) < sum(step <= run.steps[-1] for step in steps) for run in done)
