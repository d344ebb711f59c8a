"""Rules that a data set of the landscape format keeps.

They are about what is recorded (files, types, keys, seeds, status, provenance), about the numbers
(order of steps, bounds, failures, copied seeds, shifted rows), and about several data sets at once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from autorl.core.plain_text import counted, shortened, shown
from autorl.core.types import InputError
from autorl.landscapes.croissant import CROISSANT, describe, read_croissant, structure
from autorl.landscapes.manifest import file_sha256
from autorl.landscapes.schema import (
    STATUSES,
    TABLES,
    as_json,
    config_of_row,
    declared_columns,
    hyperparameter_column,
    identifier,
)
from autorl.statistics.arrays import finite
from autorl.statistics.comparison import spearman

if TYPE_CHECKING:
    from autorl.landscapes.dataset import Dataset

_SLACK = 1.1  # trained steps may pass the last evaluation by a rollout, not by much more
_COPIED = 0.5  # share of identical curves at which one seed is a copy of another
# Three published seeds of Enduro shared 42 to 46 % of their evaluations, other pairs 5 %.
_REUSED = 0.2  # share of equal evaluations at which two seeds seem to share evaluation episodes ...
_REUSED_FACTOR = 4.0  # ... if it is this many times the median over pairs of seeds
_SIGMAS = 4.0  # that a fall in rank correlation exceeds chance by
_ALMOST_ONE = 0.9999  # Fisher's transformation of 1 is infinite
_CONFIGURATIONS = 8  # fewer say nothing about ranks
_ENOUGH = 20  # evaluations needed to say what share is equal
# Two published sets had the last checkpoints of other runs: it fell to -0.02 and 0.21.
_DROP = 0.4  # fall in rank correlation between neighbouring steps that learning does not explain


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
    # A name of `rows` may stand in a query: the manifest allows those of tables alone.
    for name, expected in manifest.rows.items():
        count = landscape.queries.number(f"SELECT count(*) FROM {name}")
        if count != expected:
            yield f"{name} has {counted(count, 'row')}, the manifest says {expected}"
    if landscape.space.hash != manifest.space_hash:
        yield "space.yaml is not the space of the manifest (its hash differs)"
    if not (folder / CROISSANT).is_file():
        yield f"{CROISSANT} is missing"
    # Prose may be edited by hand; hashes, columns and types may not.
    elif structure(read_croissant(folder)) != structure(describe(folder, manifest)):
        yield f"{CROISSANT} does not describe these files"


def typed_columns(landscape: Dataset) -> Iterator[str]:
    """Every column has its declared type, and no text hides a list.

    A published set kept lists as text.
    """
    space = landscape.space
    # Read from the files: a landscape cannot be opened while columns it needs are wrong.
    tables = landscape.stored_columns()
    for table, stored in tables.items():
        declared = declared_columns(table, stored, space)
        for name in sorted({*stored, *declared}):
            kind = stored.get(name, "missing")
            expected = declared[name].type if name in declared else "no such column"
            if kind != expected:
                yield f"{table}.{shortened(name)} is {kind}, expected {expected}"
    # Every wrong column is named before the first query, which opens the landscape and may fail.
    for table, stored in tables.items():
        for column in TABLES[table]:
            if column.name in stored and not column.nullable:
                count = landscape.queries.number(
                    f"SELECT count(*) FROM {table} WHERE {column.name} IS NULL"
                )
                if count:
                    yield f"{table}.{column.name} is null in {counted(count, 'row')}"
    # Choices of other types than text are JSON in the tables, so a bracket is right there.
    for name, item in space.hyperparameters.items():
        if hyperparameter_column(item).type == "VARCHAR" and not as_json(item):
            count = landscape.queries.number(
                f"SELECT count(*) FROM configs WHERE ltrim({identifier(name)})[1] IN ('[', '{{')"
            )
            if count:
                yield (
                    f"configs.{name} holds lists or mappings written as text in "
                    f"{counted(count, 'row')}"
                )


def references_resolve(landscape: Dataset) -> Iterator[str]:
    """Keys are unique and point at rows that exist."""
    for table, key in (("configs", "config_id"), ("runs", "run_id"), ("segments", "segment")):
        repeated = landscape.queries.number(f"SELECT count(*) - count(DISTINCT {key}) FROM {table}")
        if repeated:
            yield f"{table} has {counted(repeated, 'row')} with a {key} that another row has"
    pairs = (
        ("runs", "config_id", "configs", "config_id"),
        ("runs", "parent_run", "runs", "run_id"),
        ("evals", "run_id", "runs", "run_id"),
        ("segments", "run_id", "runs", "run_id"),
        ("segments", "parent", "segments", "segment"),
    )
    for table, column, target, key in pairs:
        lost = landscape.queries.number(
            f"SELECT count(*) FROM {table} WHERE {column} IS NOT NULL "
            f"AND {column} NOT IN (SELECT {key} FROM {target})"
        )
        if lost:
            yield f"{table} has {counted(lost, 'row')} with a {column} that is not in {target}"


def configs_keyed_by_hash(landscape: Dataset) -> Iterator[str]:
    """A configuration is one valid row with the hash of its values.

    In a published set 245 of 256 configuration ids had other hyperparameters for some seeds.
    """
    seen: dict[str, int] = {}
    rows: list[dict[Any, Any]] = (
        landscape.queries.ask("SELECT * FROM configs ORDER BY config_id").df().to_dict("records")
    )
    lost = sorted(set(landscape.space.names) - set(landscape.queries.stored_types("configs")))
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
    for seed, role in landscape.queries.rows(
        "SELECT DISTINCT seed, seed_role FROM runs ORDER BY ALL"
    ):
        if role not in ("tuning", "test"):
            yield f"seed {seed} has role {shown(role)}; roles are tuning and test"
        elif seed not in seeds.get(role, ()):
            yield f"seed {seed} is used as a {role} seed but the manifest does not list it as one"


def complete_or_explained(landscape: Dataset) -> Iterator[str]:
    """A `done` run has every evaluation after its start.

    A published curve stopped at 37 of 100.
    """
    for status, count in landscape.queries.runs_by_status().items():
        if status not in STATUSES:
            yield (
                f"{counted(count, 'run', 'have')} status {shown(status)}; allowed: "
                f"{', '.join(STATUSES)}"
            )
    planned = landscape.manifest.evaluation.get("steps", landscape.manifest.steps)
    expected = "=" if landscape.manifest.evaluation.get("at") == "end" else "<="
    undershoot = landscape.manifest.evaluation.get("undershoot", 0)
    # A run that was given fewer steps (a rung) lacks nothing after them. One that another run
    # continues ends where that begins.
    due = (
        "SELECT run_id, step FROM runs "
        "CROSS JOIN (SELECT unnest(CAST(? AS BIGINT[])) AS step) AS planned "
        "WHERE status = 'done' AND step > start_step AND (environment_steps IS NULL "
        f"OR step {expected} start_step + environment_steps + CAST(? AS BIGINT)) "
        "AND run_id NOT IN (SELECT parent_run FROM runs WHERE parent_run IS NOT NULL)"
    )
    # Sums of hashes tell which runs may lack one: pairs of all runs and steps need much memory.
    sums = "run_id, count(*) AS steps, sum(CAST(hash(step) >> 1 AS BIGINT)) AS hashes"
    missing = landscape.queries.rows(
        f"WITH due AS NOT MATERIALIZED ({due}), suspect AS (SELECT run_id FROM "
        f"(SELECT {sums} FROM due GROUP BY run_id) "
        f"ANTI JOIN (SELECT {sums} FROM evals GROUP BY run_id) USING (run_id, steps, hashes)) "
        "SELECT run_id, count(*) FROM due SEMI JOIN suspect USING (run_id) "
        "ANTI JOIN (SELECT run_id, step FROM evals SEMI JOIN suspect USING (run_id)) "
        "USING (run_id, step) GROUP BY run_id ORDER BY run_id",
        [list(planned), undershoot],
    )
    if missing:
        run, count = missing[0]
        yield (
            f"{counted(len(missing), 'run', 'are')} marked done without all evaluations, e.g. run "
            f"{run}: {count}"
        )


def counted_steps(landscape: Dataset) -> Iterator[str]:
    """Steps are counted environment steps.

    Published "10,000 steps" were really a rollout of 16,384.
    """
    if landscape.manifest.step_unit != "environment_steps":
        return
    overshoot = landscape.manifest.evaluation.get("overshoot", 0)
    undershoot = landscape.manifest.evaluation.get("undershoot", 0)
    # Trainers that work in whole rollouts end past or before the last evaluation, by as much as the
    # manifest says; what goes on from such a run has so many steps less or more to go.
    wrong = landscape.queries.rows(
        "SELECT run_id, environment_steps, last - start_step AS steps FROM runs "
        "JOIN (SELECT run_id, max(step) AS last FROM evals GROUP BY run_id) USING (run_id) "
        "WHERE status = 'done' AND (environment_steps < steps - CAST(? AS BIGINT) "
        "- CASE WHEN start_step > 0 THEN CAST(? AS BIGINT) ELSE 0 END "
        "OR environment_steps > greatest(CAST(? AS DOUBLE) * steps, steps + CAST(? AS BIGINT) "
        "+ CASE WHEN start_step > 0 THEN CAST(? AS BIGINT) ELSE 0 END)) ORDER BY run_id",
        [undershoot, overshoot, _SLACK, overshoot, undershoot],
    )
    if wrong:
        run, steps, last = wrong[0]
        yield (
            f"in {counted(len(wrong), 'run')} environment_steps is not the last step, "
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


def steps_increase(landscape: Dataset) -> Iterator[str]:
    """A run's evaluations are stored at rising steps after its start.

    No step occurs twice. In a published data set a counter was reset.
    """
    early = landscape.queries.number(
        "SELECT count(*) FROM evals JOIN runs USING (run_id) WHERE step <= start_step"
    )
    if early:
        yield f"{counted(early, 'evaluation', 'lie')} at or before the start of their run"
    # No ORDER BY: this checks the order in the files.
    back, run = landscape.queries.rows(
        "SELECT count(*), first(run_id) FROM (SELECT run_id, step, lag(run_id) OVER () AS run, "
        "lag(step) OVER () AS before FROM evals) WHERE run_id = run AND step <= before"
    )[0]
    if back:
        yield (
            f"{counted(back, 'evaluation', 'do')} not come after the one before, e.g. in run {run}"
        )
    steps = landscape.queries.rows("SELECT DISTINCT step FROM evals")
    unknown = sorted({row[0] for row in steps} - set(landscape.manifest.steps))
    if unknown:
        yield f"evaluations at steps the manifest does not list: {unknown[:5]}"


def bounded_returns(landscape: Dataset) -> Iterator[str]:
    """Values lie in the range of the environment.

    Published traces held another environment's values.
    """
    yield from landscape.queries.outside(*landscape.manifest.return_bounds)


def failures_marked(landscape: Dataset) -> Iterator[str]:
    """A missing value belongs to a run marked as failed.

    No average then drops it unseen; a published notebook did.
    """
    count, run = landscape.queries.rows(
        "SELECT count(*), min(run_id) FROM measured JOIN runs USING (run_id) WHERE value IS NULL "
        "AND status IN ('done', 'stopped')"
    )[0]
    if count:
        yield (
            f"{counted(count, 'value', 'are')} missing in runs that are not marked as failed, e.g. "
            f"run {run}"
        )


def independent_seeds(landscape: Dataset) -> Iterator[str]:
    """No seed is a copy of another.

    In a published set seed 0 equalled seed 3 in 501 of 573 groups.
    """
    for first, second, identical, telling in _curves(landscape).identical:
        if identical > _COPIED * telling:
            yield f"seed {second} repeats seed {first} in {identical} of {telling} configurations"


def distinct_curves(landscape: Dataset) -> Iterator[str]:
    """Seeds of a configuration have their own curves and evaluation episodes."""
    copied = set()
    for first, second, identical, telling in _curves(landscape).identical:
        if identical > _COPIED * telling:
            copied.add((first, second))
        else:
            yield (
                f"seeds {first} and {second} have the same curve in {identical} of {telling} "
                "configurations"
            )
    equal = _curves(landscape).equal
    typical = float(np.median([share for _, _, share in equal])) if equal else 0.0
    for first, second, share in equal:
        if share > max(_REUSED, _REUSED_FACTOR * typical) and (first, second) not in copied:
            yield (
                f"seeds {first} and {second} share {share:.0%} of their evaluations; "
                f"other pairs {typical:.0%}"
            )


def adjacent_checkpoints_agree(landscape: Dataset) -> Iterator[str]:
    """Ranks of configurations change gradually from step to step.

    Published last rows belonged to other runs.
    """
    steps = landscape.grid.steps
    means = _curves(landscape).means
    if len(means) < _CONFIGURATIONS:
        return
    # Bounds the difference of two correlations after Fisher's transformation.
    allowed = _SIGMAS * np.sqrt(2 / (len(means) - 3))
    # The bar is the best agreement before, not the last: noise may have lowered that one.
    best = -1.0
    for position in range(1, len(steps)):
        # Infinite values end the rule, and are reported so.
        before, now = (finite(means[:, at], "scores") for at in (position - 1, position))
        agreement = float(spearman(before, now))
        if (
            agreement < best - _DROP
            and np.arctanh(min(best, _ALMOST_ONE)) - np.arctanh(agreement) > allowed
        ):
            yield (
                f"configurations at step {steps[position]} rank unlike those at step "
                f"{steps[position - 1]} (correlation {agreement:.2f}, before {best:.2f}): "
                "rows of other runs?"
            )
            return
        best = max(best, agreement)


@dataclass(frozen=True, eq=False)
class _Curves:
    """The facts about a landscape's curves that rules look at.

    Attributes:
        identical: pairs of seeds with identical curves: (seed, seed, configurations with identical
            curves, configurations with curves worth comparing).
        equal: pairs of seeds with enough evaluations: (seed, seed, share of equal ones). Values
            that over 1 % of all cells have are left out.
        means: over seeds, of configurations with all scores: (configurations, steps).
    """

    identical: list[tuple[int, int, int, int]]
    equal: list[tuple[int, int, float]]
    means: npt.NDArray[np.float64]


@lru_cache(maxsize=1)  # three rules, one after the other, look at all curves of one landscape
def _curves(landscape: Dataset) -> _Curves:
    grid = landscape.grid
    count = len(grid.seeds)
    curves, cells = np.zeros((2, 2, count, count), dtype=np.int64)
    means = []
    # A floor, or the highest return there is, is shared without shared episodes.
    common = landscape.queries.common_values(max(2, math.prod(grid.shape) // 100))
    for rows in grid.blocks():
        values = grid.curves(rows).values
        complete = ~np.isnan(values).any(axis=2)
        # A value between the least and the greatest is a third one.
        low, high = (limit(values, axis=2, keepdims=True) for limit in (np.min, np.max))
        telling = complete & ((low < values) & (values < high)).any(axis=2)
        # Curves too, by a number each: a dictionary of a million curves grew faster than the
        # data.
        numbers = np.where(telling, _numbered(values), np.nan)[:, :, np.newaxis]
        curves += equal_values(numbers, np.array([]))
        cells += equal_values(values, common)
        means.append(values[np.all(complete, axis=1)].astype(np.float64).mean(axis=1))
    seeds = grid.seeds.tolist()
    pairs = [(i, j, seeds[i], seeds[j]) for i, j in combinations(range(count), 2)]
    together, telling_both = curves.tolist()
    equal, comparable = cells.tolist()
    return _Curves(
        [(a, b, together[i][j], telling_both[i][j]) for i, j, a, b in pairs if together[i][j]],
        [
            (a, b, equal[i][j] / comparable[i][j])
            for i, j, a, b in pairs
            if comparable[i][j] >= _ENOUGH
        ],
        np.concatenate(means),
    )


def _numbered(values: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float64]:
    """Number the curves of (configurations, seeds, steps): equal ones have one number.

    Unequal ones have another, but for 1 in 2^40 or so.
    """
    curves = values + values.dtype.type(0)  # 0 and -0 are equal, their bits are not
    bits = curves.view(f"u{curves.itemsize}")
    factors = np.random.default_rng(0).integers(2**64, size=values.shape[2], dtype=np.uint64)
    numbers = np.unique((bits * factors).sum(axis=2), return_inverse=True)[1]
    return numbers.reshape(values.shape[:2]).astype(np.float64)


def equal_values(
    values: npt.NDArray[np.floating[Any]], common: npt.NDArray[np.floating[Any]]
) -> npt.NDArray[np.int64]:
    """Count equal and comparable evaluations by pairs of seeds: (2, seeds, seeds).

    Values that are `common` are left out.
    """
    cells = np.moveaxis(values, 1, 2).reshape(-1, values.shape[1])
    usable = ~np.isnan(cells) & ~np.isin(cells, common)
    comparable = (usable.T.astype(np.float64) @ usable.astype(np.float64)).astype(np.int64)
    cells = np.where(usable, cells, np.nan)  # NaN equals nothing
    # In most cells no two seeds are equal, and sorting alone is cheap.
    ordered = np.sort(cells, axis=1)
    cells = cells[(ordered[:, 1:] == ordered[:, :-1]).any(axis=1)]
    # No loop over pairs: with a thousand seeds that were copies it took over 200 s.
    equal = np.zeros_like(comparable)
    for place, seed in enumerate(cells.T):
        equal[place] = (cells == seed[:, None]).sum(axis=0)
    return np.stack([equal, comparable])


def distinct_data(landscapes: Sequence[Dataset]) -> Iterator[tuple[str, str]]:
    """No two data sets hold the same scores.

    Two published comparison tables were one file.
    """
    seen: dict[tuple[int, int | None], str] = {}
    for landscape in landscapes:
        name = landscape.manifest.id
        # A sum of hashes, because the ids and the order of runs may be others in a copy.
        digest = landscape.queries.rows(
            "SELECT count(*), sum(CAST(hash(value) >> 1 AS BIGINT)) FROM measured"
        )[0]
        if seen.setdefault(digest, name) != name:
            yield name, f"holds the same scores as {seen[digest]}"


def one_name_per_task(landscapes: Sequence[Dataset]) -> Iterator[tuple[str, str]]:
    """An environment has one name.

    One was published as lunar_lander_continuous and as continuous_lunar_lander.
    """
    seen: dict[tuple[str, str, tuple[str, ...]], str] = {}
    for landscape in landscapes:
        manifest = landscape.manifest
        namespace = manifest.id.split("/")[0]
        words = re.findall(r"[A-Z]?[a-z]+|[0-9]+|[A-Z]+", manifest.environment)
        # Sorted: the words of the two names stood in another order.
        key = (namespace, manifest.algorithm, tuple(sorted(word.lower() for word in words)))
        earlier = seen.setdefault(key, manifest.environment)
        if earlier != manifest.environment:
            yield (
                manifest.id,
                f"its environment {manifest.environment!r} looks like {earlier!r} "
                "under another name",
            )
