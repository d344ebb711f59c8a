"""Whole landscapes: merged, deleted, and copied to or from a URL."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorl.core.plain_text import counted
from autorl.core.types import FrozenMap, InputError
from autorl.landscapes.croissant import CROISSANT
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.manifest import MANIFEST, Manifest
from autorl.landscapes.schema import TABLES, TableName, Tables
from autorl.landscapes.validate import validate
from autorl.landscapes.write import placed, write_landscape
from autorl.store.remote import RemoteFolder, shown_url, storage_url

if TYPE_CHECKING:
    import pandas as pd


def merge_landscapes(
    sources: Sequence[Dataset], root: str | Path, id: str, replace: bool = False
) -> Manifest:
    """Merge landscapes over one space into the landscape folder `root/id`.

    Equal configurations become one row; ids are numbered anew. The description, licence and
    provenance are the first one's; `parents` names all.

    Raises:
        InputError: fewer than two are given; their space, algorithm, environment or objective
            differs; a seed has one role here and another there; two of them trained one
            configuration with one seed.
    """
    import pandas as pd

    if len(sources) < 2:
        raise InputError("merging needs at least two landscapes")
    first = sources[0].manifest
    for source in sources[1:]:
        _check_mergeable(first, source.manifest)
    parts = []
    run_offset = 0  # above every run_id of the sources before
    numbers: dict[str, int] = {}
    for place, source in enumerate(sources):
        source.check_table("configs")
        source.check_table("segments")
        frames = {name: source.queries.table(name) for name in TABLES}
        parts.append(_renumbered(frames, numbers, run_offset, place))
        run_offset += 1 + int(frames["runs"]["run_id"].max()) if len(frames["runs"]) else 0
    merged: dict[str, Any] = {
        name: pd.concat([part[name] for part in parts], ignore_index=True) for name in TABLES
    }
    merged["configs"] = merged["configs"].drop_duplicates("config_id", ignore_index=True)
    # Two runs of a configuration and a seed from the start are copies, or cannot be compared.
    fresh = merged["runs"][merged["runs"]["start_step"] == 0]
    repeated = fresh[fresh.duplicated(["config_id", "seed", "member"])]
    if len(repeated):
        message = (
            f"{counted(len(repeated), 'run', 'are')} in two of them, e.g. of seed "
            f"{repeated['seed'].iloc[0]}: the landscapes overlap"
        )
        raise InputError(message, key="seed")
    manifests = [source.manifest for source in sources]
    manifest = dataclasses.replace(
        first,
        id=id,
        steps=tuple(sorted({step for listed in manifests for step in listed.steps})),
        seeds=FrozenMap(
            {
                role: sorted(
                    {int(seed) for listed in manifests for seed in listed.seeds.get(role, ())}
                )
                for role in ("tuning", "test")
            }
        ),
        sources=tuple(dict.fromkeys(item for listed in manifests for item in listed.sources)),
        notes=tuple(dict.fromkeys(note for listed in manifests for note in listed.notes)),
        parents=tuple(listed.id for listed in manifests),
        rows=FrozenMap(),
        files=FrozenMap(),
    )
    return write_landscape(Path(root) / id, Tables(**merged), manifest, sources[0].space, replace)


def delete_landscape(folder: str | Path) -> None:
    """Remove a landscape folder, and those above it that are empty then.

    Up to four of those are removed.

    Raises:
        InputError: it is not a landscape folder (a study's folder is not: it is where the runs are
            kept), or a link.
    """
    path = Path(folder)
    if not (path / MANIFEST).is_file():
        raise InputError("not a landscape folder; nothing was deleted", file=str(path))
    # `rmtree` refuses a link by an OSError, without a word on what to do.
    if path.is_symlink():
        raise InputError(
            f"is a link to {path.readlink()}: remove the link by hand; nothing was deleted",
            file=str(path),
        )
    # An id is a path: the folders of its namespace and algorithm were made for it.
    levels = Manifest.read(path).id.count("/") + 1
    shutil.rmtree(path)
    for parent in list(path.resolve().parents)[: levels - 1]:
        if any(parent.iterdir()):
            break
        parent.rmdir()


def upload_landscape(source: Dataset, url: str, *, replace: bool = False) -> str:
    """Copy a landscape to a folder or URL.

    Returns where it lies.

    Raises:
        InputError: it breaks a rule of `validate`, or something lies there.
        StorageError: it could not be copied.
    """
    if source.is_study:
        raise InputError("is a study: only landscapes are uploaded", file=str(source.path))
    _check_whole(source.path, str(source.path))
    target = RemoteFolder(storage_url(url, Path())).below(source.manifest.id)
    if target.objects() and not replace:
        raise InputError("exists already: add --replace", file=shown_url(target.url))
    target.delete()
    target.upload(source.path)
    return target.url


def download_landscape(url: str, root: str | Path, *, replace: bool = False) -> Manifest:
    """Copy the landscape behind a folder or URL.

    It lies at `root/ID` then, whole or not at all.

    Raises:
        InputError: there is none, it breaks a rule of `validate`, or `root/ID` exists.
        StorageError: it cannot be read.
    """
    source = RemoteFolder(storage_url(url, Path()))
    with tempfile.TemporaryDirectory() as folder:
        received = Path(folder)
        _receive(source, received, [MANIFEST])
        manifest = Manifest.read(received)
        _receive(source, received, [CROISSANT, *manifest.files])
        _check_whole(received, shown_url(source.url))
        with placed(Path(root) / manifest.id, replace=replace) as building:
            shutil.copytree(received, building, dirs_exist_ok=True)
    return manifest


def _receive(source: RemoteFolder, folder: Path, files: Sequence[str]) -> None:
    if missing := source.fetch(folder, files):
        raise InputError(f"no whole landscape: {missing}", file=shown_url(source.url))


def _check_whole(folder: Path, place: str) -> None:
    if problems := validate(folder):
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise InputError(f"{problems[0]}{more}: nothing was copied", file=place)


def _check_mergeable(first: Manifest, other: Manifest) -> None:
    for name in ("algorithm", "objective", "step_unit", "space_hash", "environment"):
        value = getattr(first, name)
        conflicting = getattr(other, name)
        if value != conflicting:
            raise InputError(
                f"{other.id} cannot be merged with {first.id}: {value!r} and {conflicting!r}",
                key=name,
            )
    for role, opposite in (("tuning", "test"), ("test", "tuning")):
        shared = sorted(set(first.seeds.get(role, ())) & set(other.seeds.get(opposite, ())))
        if shared:
            raise InputError(
                f"seeds {shared[:5]} are {role} in {first.id} and {opposite} in {other.id}",
                key="seeds",
            )


def _renumbered(
    frames: dict[TableName, pd.DataFrame], numbers: dict[str, int], run_offset: int, place: int
) -> dict[TableName, pd.DataFrame]:
    """Renumber the tables of one source.

    They get config_ids by hash (`numbers`, extended), shifted run_ids, and segments named by
    source.
    """
    configs = frames["configs"]
    ids = {
        int(old): numbers.setdefault(str(key), len(numbers))
        for old, key in zip(configs["config_id"], configs["config_hash"], strict=True)
    }
    runs = frames["runs"]
    segments = frames["segments"]
    return {
        "configs": configs.assign(config_id=configs["config_id"].map(ids)),
        "runs": runs.assign(
            run_id=runs["run_id"] + run_offset,
            config_id=runs["config_id"].map(ids),
            # Nullable: where no run has a parent, the column has no type of numbers.
            parent_run=runs["parent_run"].astype("Int64") + run_offset,
        ),
        "evals": frames["evals"].assign(run_id=frames["evals"]["run_id"] + run_offset),
        "segments": segments.assign(
            # Names of segments are unique within a source only.
            segment=f"{place}/" + segments["segment"],
            parent=f"{place}/" + segments["parent"].astype("str").where(segments["parent"].notna()),
            run_id=segments["run_id"] + run_offset,
            config_id=segments["config_id"].map(ids),
        ),
    }
