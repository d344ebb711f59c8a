"""`autorl compare DIR DIR ...`: finished studies side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autorl.cli.options import print_json, say
from autorl.cli.report import write_page
from autorl.core.types import InputError
from autorl.report.studies import compare_studies as compared
from autorl.report.studies import comparison_dict, comparison_text
from autorl.report.studies_page import comparison_html
from autorl.store.folder import holds_study

_DEPTH = 3
"""Folders are looked into so deep: `studies/compare/OPTIMIZER/seed-0`."""


def compare_studies(
    sources: Sequence[str], *, unequal: bool, html: Path | None, as_json: bool
) -> None:
    """Compare studies, print it, and write a page if asked."""
    folders = [folder for source in sources for folder in _studies_in(Path(source))]
    comparison = compared(folders, unequal=unequal)
    if as_json:
        print_json(comparison_dict(comparison))
    else:
        say(comparison_text(comparison))
    if html is not None:
        write_page(html, comparison_html(comparison), err=as_json)


def _studies_in(folder: Path) -> list[Path]:
    """List the studies in a folder, or the folder that is one.

    Raises:
        InputError: there is none.
    """
    if not folder.is_dir():
        raise InputError(
            "is not a folder: expected a study's folder, or a folder of studies "
            "(a study file needs --optimizers)",
            file=str(folder),
        )
    studies = _below(folder, _DEPTH)
    if not studies:
        raise InputError("holds no study", file=str(folder))
    return studies


def _below(folder: Path, depth: int) -> list[Path]:
    if holds_study(folder):
        return [folder]
    if not depth:
        return []
    inside = sorted(path for path in folder.iterdir() if path.is_dir())
    return [study for path in inside for study in _below(path, depth - 1)]
