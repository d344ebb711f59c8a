"""A study's folder as a landscape, also while a driver runs: its SQLite tables as frames with the landscape's columns.

The database is copied into memory in one read transaction (`mode=ro`), so a reader never holds up the driver and never
writes there. What is read is the moment of the copy.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorl.landscapes.manifest import Manifest, Objective
from autorl.landscapes.schema import TABLES, TableName, Tables, config_rows
from autorl.landscapes.write import write_landscape
from autorl.masking import shareable
from autorl.plain_text import shown
from autorl.space import Space, compile_algorithms, load_space, parse_document
from autorl.store.folder import check_database, check_recorded
from autorl.store.provenance import package
from autorl.store.sessions import changes, recorded_sessions
from autorl.store.snapshot import snapshot
from autorl.store.store import DATABASE, STUDY_FILE
from autorl.store.study_file import check_unchanged, recorded_study_file
from autorl.types import FrozenMap, InputError, step_unit

if TYPE_CHECKING:
    import pandas as pd

COST_METRICS = (
    "wall_seconds",
    "environment_steps",
)  # objectives that are columns of `runs`, not of `evals`
ABOUT = ("description", "licence", "citation", "url", "creator", "commit", "hardware")
_NAMESPACE = "studies"
_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_.:/-]+")


@dataclasses.dataclass(frozen=True)
class StudyData:
    """What a study has recorded, as a landscape.

    Attributes:
        pending: proposals without a score.
        section: the `landscape` section of the study file.
    """

    manifest: Manifest
    space: Space
    tables: Tables
    pending: int
    section: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def is_study(folder: Path) -> bool:
    """Whether `folder` holds a study."""
    return (folder / STUDY_FILE).is_file()


def read_study(folder: Path) -> StudyData:
    """The study in `folder` as it is now. Its id is `studies/<trainer>/<environment or name>`.

    An objective that is a cost (`wall_seconds`, `environment_steps`) is a metric at the last evaluation of each run.

    Raises:
        InputError: there is no study, or its files cannot be read.
    """
    path = folder / STUDY_FILE
    try:
        text = path.read_text(encoding="utf-8")
        document = parse_document(text, str(path)).data
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"holds no study that can be read: {error}", file=str(folder)) from None
    try:
        check_database(folder)
        with closing(snapshot(folder / DATABASE)) as connection:
            check_recorded(folder, connection)
            recorded = recorded_study_file(
                lambda sql, values: connection.execute(sql, values).fetchall()
            )
            check_unchanged(recorded, text, path)
            return _read(connection, folder, document)
    except InputError as error:
        raise InputError(
            error.message, file=error.file or str(folder), key=error.key, line=error.line
        ) from None
    except (
        sqlite3.Error,
        LookupError,
        TypeError,
        AttributeError,
        ValueError,
        ArithmeticError,
        RecursionError,
    ) as error:
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

    What is not given is taken from the `landscape` section of the study file.

    Args:
        study: the study's folder.
        root: where landscapes are kept.
        id: `namespace/algorithm/environment`; the environment is the study's, verbatim.
        bounds: smallest and largest value the objective can take.
        replace: whether an existing landscape may be replaced.
        about: fields of the manifest a study does not know: description, licence, citation, url, creator, commit,
            hardware.

    Raises:
        InputError: no study or nothing recorded in it, no id or a wrong one, a wrong field, or the folder exists.
    """
    unknown = sorted(set(about) - set(ABOUT))
    if unknown:
        raise InputError(f"unknown field; allowed: {', '.join(ABOUT)}", key=unknown[0])
    data = read_study(Path(study))
    if data.tables.runs.empty:
        raise InputError("has recorded no run yet", file=str(study))
    section = data.section
    if (id := id or section.get("id")) is None:
        raise InputError(
            "the study file names none: give one, namespace/algorithm/environment",
            key="landscape.id",
        )
    manifest = dataclasses.replace(data.manifest, id=id)
    algorithm, environment = _names(id, str(study), data)
    runs = data.tables.runs.assign(environment=environment)
    if runs["algorithm"].nunique() == 1:
        runs["algorithm"] = algorithm
    if data.pending:
        notes = (
            *manifest.notes,
            f"Written while {data.pending} proposals of the study were pending.",
        )
        manifest = dataclasses.replace(manifest, notes=notes)
    description = f"{len(data.tables.configs)} configurations of {algorithm} on {environment}."
    known: dict[str, Any] = {"description": description}
    known |= {name: section[name] for name in ABOUT if section.get(name)} | about
    limits = section.get("bounds", (None, None)) if bounds is None else bounds
    tables = dataclasses.replace(data.tables, runs=runs)
    manifest = dataclasses.replace(
        manifest,
        algorithm=algorithm,
        environment=environment,
        return_bounds=tuple(limits),
        rows=FrozenMap(),
        **known,
    )
    return write_landscape(Path(root) / id, tables, manifest, data.space, replace)


def _names(id: str, study: str, data: StudyData) -> tuple[str, str]:
    """Algorithm and environment of an id. Raises InputError if the environment is not the study's."""
    _, algorithm, environment = (*id.split("/", 2), "", "")[:3]
    found = data.tables.runs["environment"].iloc[0]
    trained = data.manifest.trainer["environment"]["id"]
    if trained is not None and environment != trained:
        raise InputError(
            f"the study trained on {found!r}, so the id is namespace/algorithm/{found}",
            file=study,
            key=id,
        )
    return algorithm, environment


def _read(connection: sqlite3.Connection, folder: Path, document: Mapping[str, Any]) -> StudyData:
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'event'").fetchone() is None:
        raise InputError("holds a study that has recorded nothing yet", file=str(folder))
    environment = (
        document["environment"]["id"] if document["environment"].get("id") else document["name"]
    )
    space, objective = _space(document), document["objective"][0]
    tables = _tables(connection, space, environment, objective["metric"])
    manifest = _manifest(connection, document, environment, folder)
    last = document["fidelity"]["steps"]
    planned = {
        last * k // document["fidelity"]["evaluations"]
        for k in range(1, document["fidelity"]["evaluations"] + 1)
    }
    steps = tuple(sorted({*planned, *(int(step) for step in tables.evals["step"].unique())} - {0}))
    rows = FrozenMap({str(name): len(tables[name]) for name in TABLES})
    beyond = _beyond(tables)
    lengths = {"overshoot": max(0, *beyond), "undershoot": -min(0, *beyond)}
    evaluation = FrozenMap(manifest.evaluation, steps=sorted(planned - {0}), **lengths)
    manifest = dataclasses.replace(
        manifest, steps=steps, evaluation=evaluation, space_hash=space.hash, rows=rows
    )
    (pending,) = connection.execute(
        "SELECT count(*) FROM proposals WHERE status = 'pending'"
    ).fetchone()
    return StudyData(manifest, space, tables, pending, document.get("landscape") or {})


def _beyond(tables: Tables) -> tuple[int, int]:
    """Fewest and most steps runs were trained past their last nominal step: they end with a whole rollout."""
    run_id = tables.runs["run_id"]
    last = run_id.map(tables.evals.groupby("run_id")["step"].max())
    start = run_id.map(tables.segments.groupby("run_id")["from_step"].min())
    past = (start + tables.runs["environment_steps"] - last)[
        tables.runs["status"] == "done"
    ].dropna()
    return (int(past.min()), int(past.max())) if len(past) else (0, 0)


def _space(document: Mapping[str, Any]) -> Space:
    """The search space as the study resolves it."""
    ours = {"n_envs": document["environment"]["n_envs"], "horizon": document["fidelity"]["steps"]}

    def load(source: Any) -> Space:
        space = load_space(source)
        used = {
            name: value
            for name, value in ours.items()
            if name in (*space.missing, *space.constants)
        }
        return space.with_constants(used) if used else space

    parts = {name: load(part["space"]) for name, part in document.get("algorithms", {}).items()}
    return compile_algorithms(parts) if parts else load(document["space"])


def _number(connection: sqlite3.Connection) -> None:
    """A table of what `config_id` is in the landscape: the first proposal of the configuration.

    So it is in the database of a study too, unless an earlier version made it, which counted from 1.
    """
    connection.execute(
        "CREATE TEMP TABLE numbers AS SELECT config_id, min(proposal) AS number FROM proposals GROUP BY config_id"
    )


def _tables(connection: sqlite3.Connection, space: Space, environment: str, metric: str) -> Tables:
    _number(connection)
    listed = connection.execute(
        "SELECT number, origin, config FROM configs JOIN numbers USING (config_id) ORDER BY number"
    ).fetchall()
    configs = config_rows(
        space, {number: json.loads(text) for number, _, text in listed}, origin=""
    )
    configs["origin"] = [origin for _, origin, _ in listed]
    runs = _frame(connection, "runs", "ORDER BY run_id")
    runs["environment"] = runs["environment"].fillna(environment)
    segments = _frame(connection, "segments", "ORDER BY segments.rowid")
    return Tables(configs, runs, _evals(connection, runs, metric), segments)


def _frame(connection: sqlite3.Connection, name: TableName, order: str) -> pd.DataFrame:
    import pandas as pd

    columns = [column.name for column in TABLES[name]]
    shown = ", ".join(
        "number" if column == "config_id" else f"{name}.{column}" for column in columns
    )
    rows = connection.execute(
        f"SELECT {shown} FROM {name} JOIN numbers USING (config_id) {order}"
    ).fetchall()
    return pd.DataFrame(rows, columns=columns)


def _evals(connection: sqlite3.Connection, runs: pd.DataFrame, objective: str) -> pd.DataFrame:
    """One column for each metric, the objective's even if nothing was measured yet."""
    import pandas as pd

    rows = connection.execute("SELECT run_id, step, metric, value FROM evals").fetchall()
    long = pd.DataFrame(rows, columns=["run_id", "step", "metric", "value"])
    taken = sorted({"run_id", "step"} & set(long["metric"]))
    if taken:
        raise InputError(f"a metric has the name of a column of 'evals': {taken[0]}", key="metric")
    evals = long.pivot(index=["run_id", "step"], columns="metric", values="value").reset_index()
    evals.columns.name = None
    if objective in COST_METRICS:
        last = evals.groupby("run_id")["step"].transform("max") == evals["step"]
        evals[objective] = evals["run_id"].map(runs.set_index("run_id")[objective]).where(last)
    elif objective not in evals:
        evals[objective] = pd.Series(index=evals.index, dtype=float)
    return evals


def _manifest(
    connection: sqlite3.Connection, document: Mapping[str, Any], environment: str, folder: Path
) -> Manifest:
    """The manifest without what depends on the tables: steps, rows and the space's hash."""
    objective, optimizer, seeds = document["objective"][0], document["optimizer"], document["seeds"]
    penalty = document["failures"]["penalty"]
    added = [seed for body in _events(connection, "test_seeds") for seed in body["seeds"]]
    name = document["trainer"]["name"] if document.get("trainer") else "algorithms"
    (latest,) = connection.execute("SELECT max(time) FROM event").fetchone()
    file, shared = folder / STUDY_FILE, shareable(document)
    sampler = {"name": optimizer["name"], "seed": optimizer.get("seed", document["seed"])}
    if "phases" in optimizer:
        sampler["phases"] = optimizer["phases"]
    return Manifest(
        id=_NOT_IN_AN_ID.sub("-", f"{_NAMESPACE}/{name}/{environment}"),
        description=f"Study {document['name']}.",
        algorithm=name,
        environment=environment,
        steps=(document["fidelity"]["steps"],),
        step_unit=step_unit(_trainer_names(document)) or "environment_steps",
        seeds=FrozenMap(tuning=seeds["tuning"], test=[*seeds["test"], *added]),
        licence="",
        objective=Objective(
            objective["metric"],
            objective["direction"],
            penalty=None if penalty == "worst" else float(penalty),
        ),
        sampler=FrozenMap(sampler),
        evaluation=FrozenMap(
            episodes=document["fidelity"]["episodes"],
            reduce=objective["reduce"],
            aggregate=document.get("evaluation", {}).get("aggregate", "mean"),
        ),
        trainer=FrozenMap(
            {**_trainer(shared), "environment": {"id": None, **shared["environment"]}}
        ),
        sources=(FrozenMap(path=STUDY_FILE, sha256=hashlib.sha256(file.read_bytes()).hexdigest()),),
        created=datetime.fromtimestamp(latest, UTC).date().isoformat() if latest else "",
        **_sessions(recorded_sessions(lambda sql: connection.execute(sql).fetchall())),
    )


def _trainer(document: Mapping[str, Any]) -> dict[str, Any]:
    if document.get("trainer"):
        return dict(document["trainer"])
    return {
        "name": "algorithms",
        **{name: part["trainer"] for name, part in document["algorithms"].items()},
    }


def _trainer_names(document: Mapping[str, Any]) -> list[str]:
    sections = [document] if document.get("trainer") else document["algorithms"].values()
    return [section["trainer"]["name"] for section in sections]


def _events(connection: sqlite3.Connection, kind: str) -> list[dict[str, Any]]:
    rows = connection.execute(
        "SELECT body FROM event WHERE kind = ? ORDER BY seq", (kind,)
    ).fetchall()
    return [json.loads(body) for (body,) in rows]


def _sessions(sessions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Packages and machine of the sessions that worked on the study; a difference between sessions is a note."""
    if not sessions:
        return {}
    first = sessions[0]
    versions, source = first.get("packages", {}), dict(first.get("source", {}))
    commit = source.pop("commit", "")
    own = {"autorl": FrozenMap(version=first["version"], **source)}
    return {
        "packages": FrozenMap(
            own | {name: package(name, version) for name, version in versions.items()}
        ),
        "commit": commit,
        "hardware": _hardware(first),
        "notes": tuple(
            f"Its sessions used {name} {', then '.join(seen)}."
            for name, seen in changes(sessions).items()
        ),
    }


def _hardware(session: Mapping[str, Any]) -> str:
    """`x86_64, znver5 (AMD EPYC), 2 cores`: the CPU type decides which results are the same to the bit."""
    if "machine" not in session:
        return ""
    parts = (session["machine"], session.get("cpu", ""), f"{session['cores']} cores")
    return ", ".join(part for part in parts if part)
