"""Rules about what is recorded: files, types, keys, seeds, status, provenance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from autorl.landscapes.croissant import CROISSANT, describe, read_croissant, structure
from autorl.landscapes.manifest import file_sha256
from autorl.landscapes.schema import (
    METRIC_TYPE,
    STATUSES,
    TABLES,
    TableName,
    config_of_row,
    hyperparameter_column,
    identifier,
)
from autorl.plain_text import shortened, shown
from autorl.types import InputError

if TYPE_CHECKING:
    from autorl.landscapes.dataset import Dataset

_SLACK = 1.1  # trained steps may pass the last evaluation by a rollout, not by much more


def files_match_manifest(landscape: Dataset) -> Iterator[str]:
    """The files are those the manifest describes.

    Compared are hashes, row counts, the space and `croissant.json` (published ones differed).

    A study's folder has no such files.
    """
    manifest = landscape.manifest
    folder = landscape.path
    if landscape.is_study:
        return
    for name, expected in manifest.files.items():
        if not (folder / name).is_file():
            yield f"{name} is missing"
        elif file_sha256(folder / name) != expected:
            yield f"{name} is not the file the manifest describes (its SHA-256 differs)"
    for name, expected in manifest.rows.items():
        count = _one(landscape, f"SELECT count(*) FROM {name}")
        if count != expected:
            yield f"{name} has {count} rows, the manifest says {expected}"
    if landscape.space.hash != manifest.space_hash:
        yield "space.yaml is not the space of the manifest (its hash differs)"
    if not (folder / CROISSANT).is_file():
        yield f"{CROISSANT} is missing"
    elif structure(read_croissant(folder)) != structure(describe(folder, manifest)):
        yield f"{CROISSANT} does not describe these files"


def typed_columns(landscape: Dataset) -> Iterator[str]:
    """Every column has its declared type, and no text hides a list.

    A published set kept lists as text.
    """
    space = landscape.space
    hyperparameters = {
        name: hyperparameter_column(item).type for name, item in space.hyperparameters.items()
    }
    tables = landscape.stored_columns()
    metrics = dict.fromkeys(
        set(tables["evals"]) - {column.name for column in TABLES["evals"]}, METRIC_TYPE
    )
    more: dict[str, dict[str, str]] = {"configs": hyperparameters, "evals": metrics}
    for table, stored in tables.items():
        expected = {column.name: column.type for column in TABLES[table]} | more.get(table, {})
        for name in sorted(set(stored) | set(expected)):
            if stored.get(name) != expected.get(name):
                declared = expected.get(name, "no such column")
                yield (
                    f"{table}.{shortened(name)} is {stored.get(name, 'missing')}, "
                    f"expected {declared}"
                )
    for table, stored in tables.items():
        yield from _nulls(landscape, table, stored)
    for name, kind in hyperparameters.items():
        if kind == "VARCHAR" and all(
            isinstance(choice, str) for choice in space.hyperparameters[name].choices
        ):
            count = _one(
                landscape,
                f"SELECT count(*) FROM configs WHERE ltrim({identifier(name)})[1] IN ('[', '{{')",
            )
            if count:
                yield f"configs.{name} holds lists or mappings written as text in {count} rows"


def _nulls(landscape: Dataset, table: TableName, stored: dict[str, str]) -> Iterator[str]:
    for column in TABLES[table]:
        if column.name in stored and not column.nullable:
            count = _one(landscape, f"SELECT count(*) FROM {table} WHERE {column.name} IS NULL")
            if count:
                yield f"{table}.{column.name} is null in {count} rows"


def references_resolve(landscape: Dataset) -> Iterator[str]:
    """Keys are unique and point at rows that exist."""
    for table, key in (("configs", "config_id"), ("runs", "run_id"), ("segments", "segment")):
        repeated = _one(landscape, f"SELECT count(*) - count(DISTINCT {key}) FROM {table}")
        if repeated:
            yield f"{repeated} rows of {table} repeat a {key}"
    pairs = (
        ("runs", "config_id", "configs", "config_id"),
        ("runs", "parent_run", "runs", "run_id"),
        ("evals", "run_id", "runs", "run_id"),
        ("segments", "run_id", "runs", "run_id"),
        ("segments", "parent", "segments", "segment"),
    )
    for table, column, target, key in pairs:
        lost = _one(
            landscape,
            f"SELECT count(*) FROM {table} WHERE {column} IS NOT NULL "
            f"AND {column} NOT IN (SELECT {key} FROM {target})",
        )
        if lost:
            yield f"{lost} rows of {table} have a {column} that is not in {target}"


def configs_keyed_by_hash(landscape: Dataset) -> Iterator[str]:
    """A configuration is one valid row with the hash of its values.

    In a published set 245 of 256 configuration ids had other hyperparameters for some seeds.
    """
    seen: dict[str, int] = {}
    rows: list[dict[Any, Any]] = (
        landscape.own_query("SELECT * FROM configs ORDER BY config_id").df().to_dict("records")
    )
    lost = sorted(
        set(landscape.space.names)
        - {row[0] for row in landscape.own_query("DESCRIBE configs").fetchall()}
    )
    if lost:
        yield f"configs lacks the hyperparameters {lost}"
        return
    for row in rows:
        number = int(row["config_id"])
        try:
            config = config_of_row(landscape.space, row)
            landscape.space.check(config)
        except InputError as error:
            yield f"configuration {number} is not in the space: {error}"
            continue
        if landscape.space.config_hash(config) != row["config_hash"]:
            yield f"configuration {number} does not have the hash of its values"
        if seen.setdefault(row["config_hash"], number) != number:
            yield f"configurations {seen[row['config_hash']]} and {number} are the same"


def seed_roles_agree(landscape: Dataset) -> Iterator[str]:
    """Every run's seed has the role the manifest gives, and one only."""
    seeds = landscape.manifest.seeds
    for seed, role in landscape.own_query(
        "SELECT DISTINCT seed, seed_role FROM runs ORDER BY ALL"
    ).fetchall():
        if role not in ("tuning", "test"):
            yield f"seed {seed} has role {shown(role)}; roles are tuning and test"
        elif seed not in seeds.get(role, ()):
            yield f"seed {seed} is used as a {role} seed but the manifest does not list it as one"


def complete_or_explained(landscape: Dataset) -> Iterator[str]:
    """A `done` run has every evaluation after its start.

    A published curve stopped at 37 of 100.
    """
    for status, count in landscape.own_query(
        "SELECT status, count(*) FROM runs GROUP BY status"
    ).fetchall():
        if status not in STATUSES:
            yield f"{count} runs have status {shown(status)}; allowed: {', '.join(STATUSES)}"
    planned = landscape.manifest.evaluation.get("steps", landscape.manifest.steps)
    expected = "=" if landscape.manifest.evaluation.get("at") == "end" else "<="
    undershoot = landscape.manifest.evaluation.get("undershoot", 0)
    missing = landscape.own_query(
        "SELECT run_id, count(*) FROM runs "
        "CROSS JOIN (SELECT unnest(CAST(? AS BIGINT[])) AS step) AS planned "
        "ANTI JOIN evals USING (run_id, step) "
        "WHERE status = 'done' AND planned.step > start_step AND (environment_steps IS NULL "
        f"OR planned.step {expected} start_step + environment_steps + CAST(? AS BIGINT)) "
        "AND run_id NOT IN (SELECT parent_run FROM runs WHERE parent_run IS NOT NULL) "
        "GROUP BY run_id ORDER BY run_id",
        [list(planned), undershoot],
    ).fetchall()
    if missing:
        run, count = missing[0]
        yield f"{len(missing)} runs are marked done but lack evaluations, e.g. run {run}: {count}"


def counted_steps(landscape: Dataset) -> Iterator[str]:
    """Steps are counted environment steps.

    Published "10,000 steps" were really a rollout of 16,384. Runs that end with a whole rollout
    past or before the last evaluation are so where the manifest says by how much; what goes on from
    such a run has so many steps less or more to go.
    """
    if landscape.manifest.step_unit != "environment_steps":
        return
    overshoot = landscape.manifest.evaluation.get("overshoot", 0)
    undershoot = landscape.manifest.evaluation.get("undershoot", 0)
    wrong = landscape.own_query(
        "SELECT run_id, environment_steps, max(step) - start_step AS steps "
        "FROM runs JOIN evals USING (run_id) WHERE status = 'done' "
        "GROUP BY run_id, environment_steps, start_step "
        "HAVING environment_steps < steps - CAST(? AS BIGINT) "
        "- CASE WHEN start_step > 0 THEN CAST(? AS BIGINT) ELSE 0 END "
        "OR environment_steps > greatest(CAST(? AS DOUBLE) * steps, steps + CAST(? AS BIGINT) "
        "+ CASE WHEN start_step > 0 THEN CAST(? AS BIGINT) ELSE 0 END) ORDER BY run_id",
        [undershoot, overshoot, _SLACK, overshoot, undershoot],
    ).fetchall()
    if wrong:
        run, steps, last = wrong[0]
        yield (
            f"in {len(wrong)} runs environment_steps is not the last step, "
            f"e.g. run {run}: {steps:.0f} and {last}"
        )


def provenance_recorded(landscape: Dataset) -> Iterator[str]:
    """The code or files that made the data are known by hash.

    Two builds of one version string once differed.
    """
    manifest = landscape.manifest
    if not manifest.licence and not landscape.is_study:
        yield "the manifest states no licence"
    if not (manifest.packages or manifest.sources or manifest.commit):
        yield "neither packages, sources nor a commit say what made the data"
    for name, package in manifest.packages.items():
        if not (package.get("sha256") or package.get("commit")):
            yield (
                f"package {shortened(name)} is identified by its version alone; "
                "record its sha256 or commit"
            )
    for source in manifest.sources:
        if not source.get("sha256"):
            yield f"source {shown(source.get('path'))} has no sha256"


def _one(landscape: Dataset, query: str) -> Any:
    return landscape.own_query(query).fetchall()[0][0]
