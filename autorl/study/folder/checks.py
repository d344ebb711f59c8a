"""Checks that a study's log belongs to its folder and search space."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from autorl.core.plain_text import counted
from autorl.core.types import InputError
from autorl.space import parse_document
from autorl.space.document import Dumper
from autorl.store.events import ProposalMade
from autorl.store.folder import DATABASE, STUDY_FILE
from autorl.store.tables import StudyTables
from autorl.study.spec import Spec

# proposal.seed, with @step where a run ends before its proposal does, and then epoch and attempt:
# `12.101@500-1-0`. Logs are named without these two.
SEGMENT_NAME = re.compile(r"(?P<segment>(?P<proposal>\d+)\.\d+(@\d+)?)(-\d+-\d+)?(?P<log>\.log)?")


def check_space(spec: Spec, tables: StudyTables, folder: Path) -> None:
    """Refuse a search space read as another than the study began with.

    Raises:
        InputError: naming the study file.
    """
    if tables.study_file().space != spec.search_space.hash:
        raise InputError(
            "this version of autorl reads another search space there: "
            "go on with the version that began the study",
            file=str(folder / STUDY_FILE),
            key="space",
        )


def storage_of(folder: Path) -> str | None:
    """Return the storage that a study's file names.

    The result is None where the file names none, or cannot be read.
    """
    try:
        text = (folder / STUDY_FILE).read_text(encoding="utf-8")
        document = parse_document(text, STUDY_FILE).data
    except (OSError, UnicodeDecodeError, InputError):
        return None
    storage = document.get("storage") if isinstance(document, dict) else None
    return storage if isinstance(storage, str) else None


def with_storage(text: str, url: str | None) -> str:
    """Return a study file that names a storage, or none."""
    document = parse_document(text, STUDY_FILE).data
    if not isinstance(document, dict) or document.get("storage") == url:
        return text
    sections = {**document, "storage": url}
    if url is None:
        del sections["storage"]
    return str(yaml.dump(sections, Dumper=Dumper, sort_keys=False))


def check_covers_folder(tables: StudyTables, folder: Path) -> None:
    """Refuse a log that is older than its folder.

    It does not know the proposals that checkpoints or logs are of. A proposal is recorded before
    anything of it is trained, so no kill leaves a folder like that.

    Raises:
        InputError: naming the database.
    """
    proposals = tables.count_events(ProposalMade)
    folders = [folder / name for name in ("checkpoints", "logs")]
    numbered = [
        (int(match["proposal"]), entry)
        for parent in folders
        if parent.is_dir()
        for entry in parent.iterdir()
        if (match := SEGMENT_NAME.fullmatch(entry.name))
    ]
    number, newest = max(numbered, default=(-1, folder))
    if number >= proposals:
        name = newest.relative_to(folder).as_posix()
        raise InputError(
            f"ends with {counted(proposals, 'proposal')}, but {name} is of a later one: "
            "the database is older than its folder; nothing was changed: put the newest one back, "
            "or go on in a copy of what is recorded "
            f"(`autorl backup {folder} COPY`)",
            file=str(folder / DATABASE),
        )
