"""Writes what a study has recorded as a landscape.

It can do so while the driver runs.

    study.yaml -> Spec -> space, manifest          study.sqlite -> StudyTables -> tables

A reader never holds up the driver and writes nothing to the study: what it sees is the moment the
database was copied. Nothing that the study names is imported, neither modules nor classes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorl import trainers
from autorl.core.masking import shareable
from autorl.core.plain_text import counted, shown
from autorl.core.types import FrozenMap, InputError
from autorl.landscapes.library import Recording
from autorl.landscapes.manifest import Manifest, Objective, check_id
from autorl.landscapes.schema import TABLES, Tables, config_rows
from autorl.landscapes.write import write_landscape
from autorl.population.variants import landscape_name, stated_variant
from autorl.statistics.evaluation import COST_METRICS
from autorl.store.provenance import package
from autorl.store.rows import RunRow, SegmentRow
from autorl.store.sessions import changes
from autorl.store.store import STUDY_FILE
from autorl.store.tables import StudyTables
from autorl.study.results.record import open_copy, with_added_test_seeds
from autorl.study.spec import Spec

if TYPE_CHECKING:
    import pandas as pd

    from autorl.space import Space

ABOUT = ("description", "licence", "citation", "url", "creator", "commit", "hardware")
"""Fields of a manifest that a study does not know."""
SCORE = "score"
"""The metric of a study with tasks: its objective on their scale."""
_NAMESPACE = "studies"
_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_.:/-]+")
_OF_DAMAGED_VALUES = (
    sqlite3.Error,
    LookupError,
    TypeError,
    AttributeError,
    ValueError,
    ArithmeticError,
    RecursionError,
)


@dataclasses.dataclass(frozen=True)
class StudyRecording(Recording):
    """The record of a study as a landscape.

    Attributes:
        pending: how many proposals have no score.
        spec: the study file, with test seeds that were added later.
    """

    pending: int
    spec: Spec


def read_study(folder: Path) -> StudyRecording:
    """Read the study in `folder` as it is now.

    Its id is `studies/<trainer>/<environment or name>`. An objective or constraint that is a cost
    (`wall_seconds`, `peak_memory_mb`, ...) is a metric at the last evaluation of each run.

    Raises:
        InputError: there is no study, or its files cannot be read.
    """
    try:
        spec, connection = open_copy(folder)
        with closing(connection):
            return _recording(spec, StudyTables.of(connection), folder)
    except InputError as error:
        raise error.in_file(str(folder)) from None  # some name a key and no file
    except _OF_DAMAGED_VALUES as error:
        raise InputError(f"cannot be read as a study ({shown(error)})", file=str(folder)) from None


def from_study(
    study: str | Path,
    root: str | Path,
    id: str | None = None,
    *,
    bounds: tuple[float | None, float | None] | None = None,
    replace: bool = False,
    **about: str,
) -> Manifest:
    """Write what a study recorded to the landscape folder `root/id`.

    Arguments that are not given are taken from the `landscape` section of the study file.

    Args:
        study: the study's folder.
        root: where landscapes are kept.
        id: `namespace/algorithm/environment`; the environment is the study's, verbatim.
        bounds: smallest and largest value the objective can take.
        replace: whether an existing landscape may be replaced.
        about: fields of the manifest a study does not know: description, licence, citation, url,
            creator, commit, hardware.

    Raises:
        InputError: no study or nothing recorded in it, no id or a wrong one, a wrong field, or the
            folder exists.
    """
    unknown = sorted(set(about) - set(ABOUT))
    if unknown:
        raise InputError(f"unknown field; allowed: {', '.join(ABOUT)}", key=unknown[0])
    data = read_study(Path(study))
    if data.tables.runs.empty:
        raise InputError("has recorded no run yet", file=str(study))
    section = data.spec.landscape
    id = id or (None if section is None else section.id)
    if id is None:
        raise InputError(
            "the study file names none: give one, namespace/algorithm/environment",
            key="landscape.id",
        )
    check_environment(id, data.spec, str(study))
    # `landscape.id` may name the algorithm otherwise than the trainer does.
    _, algorithm, environment = id.split("/", 2)
    runs = data.tables.runs
    if data.spec.tasks is None:
        runs = runs.assign(environment=environment)
    # In a study that chooses between algorithms each run keeps the name of its own.
    if runs["algorithm"].nunique() == 1:
        runs["algorithm"] = algorithm
    notes = data.manifest.notes
    if data.spec.start is not None:
        notes += (f"Every run began from the policy {Path(str(data.spec.start.model)).name}.",)
    if data.pending:
        notes += (f"Written while {counted(data.pending, 'proposal', 'were')} pending.",)
    variant = stated_variant(data.spec.environment.resolve())
    task = environment if variant is None else variant.text
    if data.spec.tasks is not None:
        task = data.spec.task_names or task
    description = f"{counted(len(data.tables.configs), 'configuration')} of {algorithm} on {task}."
    stated = {name: getattr(section, name, None) for name in ABOUT}
    facts: dict[str, Any] = {"description": description}
    facts |= {name: value for name, value in stated.items() if value} | about
    if bounds is None:
        bounds = (None, None) if section is None else section.bounds
    manifest = dataclasses.replace(
        data.manifest,
        id=id,
        notes=notes,
        algorithm=algorithm,
        environment=environment,
        return_bounds=(bounds[0], bounds[1]),
        rows=FrozenMap(),
        **facts,
    )
    tables = dataclasses.replace(data.tables, runs=runs)
    return write_landscape(Path(root) / id, tables, manifest, data.space, replace)


def check_environment(id: str, spec: Spec, file: str | None) -> None:
    """Check that an id can name the landscape of a study.

    Raises:
        InputError: it is no id, or of another environment than the study's.
    """
    check_id(id)
    # One of several tasks has a name of its own.
    name = None if spec.tasks is not None else landscape_name(spec.environment.resolve())
    # An environment's own name may have slashes: ALE/Pong-v5.
    if name and id.split("/", 2)[2] != name:
        variant = stated_variant(spec.environment.resolve())
        task = name if variant is None else variant.text
        message = f"the study trains on {task}: expected namespace/algorithm/{name}, got {id}"
        raise InputError(message, file=file, key="landscape.id")


def _recording(stored: Spec, study: StudyTables, folder: Path) -> StudyRecording:
    if not study.has_log():
        raise InputError("holds a study that has recorded nothing yet", file=str(folder))
    # Seeds that were added later are events: the stored file does not have them.
    spec = with_added_test_seeds(stored, study)
    # Nothing is imported for it, unlike `search_space`, which may ask a user's optimizer.
    space = spec.frozen_space
    tables = _tables(study, space, spec)
    measured = {int(step) for step in tables.evals["step"].unique()}
    fewest, most = _steps_off(tables)
    manifest = dataclasses.replace(
        _manifest(study, spec, folder),
        steps=tuple(sorted({*spec.evaluation_steps, *measured} - {0})),
        evaluation=FrozenMap(
            episodes=spec.fidelity.episodes,
            reduce=spec.objective[0].reduce,
            aggregate=spec.evaluation.aggregate,
            steps=list(spec.evaluation_steps),
            overshoot=max(0, fewest, most),
            undershoot=-min(0, fewest, most),
        ),
        space_hash=space.hash,
        rows=FrozenMap({str(name): len(tables[name]) for name in TABLES}),
    )
    return StudyRecording(manifest, space, tables, len(study.pending()), spec)


# -- tables ----------------------------------------------------------------------------------------


def _tables(study: StudyTables, space: Space, spec: Spec) -> Tables:
    import pandas as pd

    listed = study.configs()
    configs = config_rows(space, {config.first: config.values for config in listed}, origin="")
    configs["origin"] = [config.origin for config in listed]
    runs = pd.DataFrame(study.runs(), columns=RunRow._fields)
    if spec.tasks is not None or stated_variant(spec.environment.resolve()) is None:
        runs["environment"] = runs["environment"].fillna(_environment(spec))
    else:
        # The study's tables name the environment, not its variant.
        runs["environment"] = _environment(spec)
    segments = pd.DataFrame(study.segments(), columns=SegmentRow._fields)
    evals = _evals(study, spec.stated_metrics)
    if _objective(spec) == SCORE:
        evals[SCORE] = _scores(spec, runs, evals)
    return Tables(configs, runs, evals, segments)


def _objective(spec: Spec) -> str:
    """Name the metric that runs are ranked by.

    With tasks that have scales it is their score.
    """
    metric = spec.objective[0].metric
    return metric if spec.tasks is None or not spec.tasks.scales(metric) else SCORE


def _scores(spec: Spec, runs: pd.DataFrame, evals: pd.DataFrame) -> pd.Series[float]:
    """Write the objective on the scale that the tasks share."""
    metric = spec.objective[0].metric
    seeds = evals["run_id"].map(runs.set_index("run_id")["seed"])
    scores = evals[metric].astype(float)
    judge = spec.judge()
    for seed in seeds.unique():
        of_seed = seeds == seed
        scores[of_seed] = judge.scaled(int(seed), metric, scores[of_seed].to_numpy())
    return scores


def _environment(spec: Spec) -> str:
    """Return the environment's name, which says the variant.

    It is that of the study for a task inside a trainer, and for several tasks.
    """
    name = None if spec.tasks is not None else landscape_name(spec.environment.resolve())
    return name or spec.name


def _evals(study: StudyTables, stated: Sequence[str]) -> pd.DataFrame:
    """Make one column for each metric.

    The first of those that the study states, its objective, has one even if nothing was measured
    yet.
    """
    import pandas as pd

    long = pd.DataFrame(study.evaluations(), columns=["run_id", "step", "metric", "value"])
    taken = sorted({"run_id", "step"} & set(long["metric"]))
    if taken:
        raise InputError(f"a metric has the name of a column of 'evals': {taken[0]}", key="metric")
    evals = long.pivot(index=["run_id", "step"], columns="metric", values="value").reset_index()
    evals.columns.name = None
    # Updates between evaluations have metrics of training alone.
    measured = [name for name in stated if name in evals]
    evals = evals.dropna(subset=measured, how="all") if measured else evals
    # A cost is known of whole runs: it stands at the last evaluation.
    last = evals.groupby("run_id")["step"].transform("max") == evals["step"]
    for cost in COST_METRICS:
        if cost in stated:
            evals[cost] = evals["run_id"].map(study.costs(cost)).astype(float).where(last)
    if stated[0] not in evals:
        evals[stated[0]] = pd.Series(index=evals.index, dtype=float)
    return evals


def _steps_off(tables: Tables) -> tuple[int, int]:
    """Find by how many steps runs were trained past their nominal end.

    These are the fewest and the most. Runs end with a whole rollout. Negative: they were trained
    for fewer.
    """
    run_id = tables.runs["run_id"]
    last = run_id.map(tables.evals.groupby("run_id")["step"].max())
    start = run_id.map(tables.segments.groupby("run_id")["from_step"].min())
    past = start + tables.runs["environment_steps"] - last
    # One that failed ends anywhere.
    past = past[tables.runs["status"] == "done"].dropna()
    return (int(past.min()), int(past.max())) if len(past) else (0, 0)


# -- manifest --------------------------------------------------------------------------------------


def _manifest(study: StudyTables, spec: Spec, folder: Path) -> Manifest:
    """Make the manifest without what depends on the tables.

    That is steps, evaluation, rows and the hash of the space.
    """
    objective = spec.objective[0]
    environment = _environment(spec)
    name = spec.trainer.name if spec.trainer is not None else "algorithms"
    latest = study.newest_time()
    penalty = None if spec.stated_penalty is None else float(spec.stated_penalty)
    created = datetime.fromtimestamp(latest, UTC).date().isoformat() if latest else ""
    file = folder / STUDY_FILE
    return Manifest(
        id=_NOT_IN_AN_ID.sub("-", f"{_NAMESPACE}/{name}/{environment}"),
        description=f"Study {spec.name}.",
        algorithm=name,
        environment=environment,
        steps=(spec.fidelity.steps,),
        step_unit=_step_unit(spec),
        seeds=FrozenMap(tuning=list(spec.plan.tuning), test=list(spec.plan.test)),
        licence="",
        objective=Objective(_objective(spec), objective.direction, penalty=penalty),
        sampler=_sampler(spec),
        trainer=_trainer(spec),
        sources=(FrozenMap(path=STUDY_FILE, sha256=hashlib.sha256(file.read_bytes()).hexdigest()),),
        created=created,
        **_sessions(study.sessions()),
    )


def _step_unit(spec: Spec) -> Any:
    """Name what the study's trainers count.

    It is environment steps where they differ or do not say.
    """
    names = [part.trainer.name for part in spec.parts.values()]
    units = {trainers.installed_info(name).step_unit for name in names}
    unit = units.pop() if len(units) == 1 else None
    return unit or "environment_steps"


def _sampler(spec: Spec) -> FrozenMap:
    """Return the optimizer's name, and its seed or the study's.

    And the phases of one that has them.
    """
    options = spec.optimizer.options
    sampler = {"name": spec.optimizer.name, "seed": options.get("seed", spec.seed)}
    if "phases" in options:
        sampler["phases"] = options["phases"]
    return FrozenMap(sampler)


def _trainer(spec: Spec) -> FrozenMap:
    """Return trainer and environment as the study file has them.

    They are without secrets and folders.
    """
    stated = shareable(spec.model_dump(mode="json", exclude_unset=True))
    if spec.trainer is not None:
        trainer = dict(stated["trainer"])
    else:
        parts = {name: part["trainer"] for name, part in stated["algorithms"].items()}
        trainer = {"name": "algorithms", **parts}
    environment = {"id": None, **stated.get("environment", {})}
    variant = stated_variant(spec.environment.resolve())
    # By its hash whoever builds a prior or judges one sees that the other has not used it.
    if variant is not None:
        environment["variant"] = variant.hash
    if spec.tasks is not None:
        trainer["tasks"] = stated["tasks"]
    if spec.landscape is not None and spec.landscape.family is not None:
        environment["family"] = spec.landscape.family.model_dump(mode="json")
    return FrozenMap({**trainer, "environment": environment})


def _sessions(sessions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Describe packages and machine of a study's sessions.

    There is a note for each difference between sessions.
    """
    if not sessions:
        return {}
    first = sessions[0]
    source = dict(first.get("source", {}))
    commit = source.pop("commit", "")
    packages = {"autorl": FrozenMap(version=first["version"], **source)}
    for name, version in first.get("packages", {}).items():
        packages[name] = package(name, version)
    differing = changes(sessions).items()
    return {
        "packages": FrozenMap(packages),
        "commit": commit,
        "hardware": _hardware(first),
        "notes": tuple(
            f"Its sessions used {name} {', then '.join(seen)}." for name, seen in differing
        ),
    }


def _hardware(session: Mapping[str, Any]) -> str:
    """Name the machine of a session: `x86_64, znver5 (AMD EPYC), 2 cores`.

    The CPU type decides which results are the same to the bit.
    """
    if "machine" not in session:
        return ""
    # "1 cores" too: manifests of studies stay what they were.
    parts = (session["machine"], session.get("cpu", ""), f"{session['cores']} cores")
    return ", ".join(part for part in parts if part)
