"""The record of a study: its frozen study file and its database, read without touching either."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from autorl.spec import SeedsSection, Spec, thaw
from autorl.store.folder import check_database, check_recorded
from autorl.store.snapshot import snapshot
from autorl.store.store import DATABASE, STUDY_FILE
from autorl.store.study_file import check_unchanged
from autorl.store.tables import StudyTables
from autorl.types import InputError


def open_copy(folder: Path) -> tuple[Spec, sqlite3.Connection]:
    """The frozen study file of a folder, and a copy of its database in memory.

    The folder may be in use, or read-only: the copy is taken in one read transaction.

    Raises:
        InputError: there is no study, its files cannot be read, its record is lost, or its study
            file was changed.
    """
    file = folder / STUDY_FILE
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"holds no study ({STUDY_FILE} is missing)", file=str(folder)) from None
    except NotADirectoryError:
        message = (
            "is a file: expected a study's folder, as `autorl tune` makes it "
            "(studies/<name>, or --out)"
        )
        raise InputError(message, file=str(folder)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read ({error})", file=str(file)) from None
    check_database(folder)
    try:
        connection = snapshot(folder / DATABASE)
        check_recorded(folder, connection)
        check_unchanged(StudyTables.of(connection).study_file(), text, file)
    except sqlite3.Error as error:
        raise InputError(f"cannot be read ({error})", file=str(folder / DATABASE)) from error
    return thaw(text, str(file)), connection


def with_added_test_seeds(spec: Spec, tables: StudyTables) -> Spec:
    """The spec with the test seeds that were added to the study later."""
    added = [seed for _, body in tables.bodies("test_seeds") for seed in body["seeds"]]
    if not added:
        return spec
    seeds = SeedsSection(tuning=list(spec.plan.tuning), test=[*spec.plan.test, *added])
    # A copy keeps the plan that it has cached.
    return spec.model_copy(update={"seeds": seeds, "plan": seeds.resolve()})
