"""Trained models: where a study keeps them, and how a trainer writes one for others to load."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorl.types import Checkpoint, InputError, StudyError, Trainer

if TYPE_CHECKING:
    from autorl.report.reading import StudyView

Export = Callable[[Checkpoint, Path], Path]


def exporter(trainer: Trainer) -> Export | None:
    """How the trainer writes a model: `export_model(checkpoint, file)`, its own or of its module or package.

    None for trainers whose checkpoints are their own affair (functions, commands).
    """
    module = type(trainer).__module__
    owners: list[Any] = [trainer, sys.modules[module], sys.modules.get(module.rpartition(".")[0])]
    found = (getattr(owner, "export_model", None) for owner in owners)
    return next((export for export in found if export is not None), None)


def export(view: StudyView, file: Path, seed: int | None, proposal: int | None) -> tuple[Path, str]:
    """Write the model of a proposal (default: the incumbent) trained with `seed` (default: the best on test seeds).

    Returns:
        The file written, and what is in it.

    Raises:
        InputError: the trainer has no models to export, or there is no such proposal or seed.
        StudyError: the model was not kept.
    """
    from autorl.study.study import trainer_loader

    number = view.incumbent().proposal if proposal is None else proposal
    if number not in view.driver.lineage.proposals:
        raise InputError(
            f"there is no proposal {number}; there are 0 to {len(view.driver.lineage) - 1}", key="--proposal"
        )
    spec, _ = view.spec.trainer_for(view.driver.lineage[number].config)
    write = exporter(trainer_loader(view.spec)(spec))
    if write is None:
        raise InputError(f"trainer {spec.name!r} has no models to export: it has no export_model", key="trainer")
    kept = _kept(view, number)
    if not kept:
        raise StudyError(
            f"{view.folder}: no model of proposal {number} was kept (keep.checkpoints: "
            f"{view.spec.keep.checkpoints}); `autorl test {view.folder}` trains the incumbent on test seeds"
        )
    chosen = ""
    if seed is None:
        seed = _best_seed(view, number, kept)
        chosen = f", the best of {len(kept)}: expect less of it than its own score" if len(kept) > 1 else ""
    if seed not in kept:
        have = ", ".join(map(str, sorted(kept)))
        raise InputError(f"no model of proposal {number} with seed {seed} was kept; there is seed {have}", key="--seed")
    role = "test" if seed in view.spec.plan.test else "tuning"
    segment, path = kept[seed]
    written = write(Checkpoint(segment, str(view.folder / path)), file)
    return written, f"proposal {number}, {role} seed {seed}{chosen}"


def _kept(view: StudyView, proposal: int) -> dict[int, tuple[str, str]]:
    """Segment and checkpoint folder by seed, for the checkpoints of a proposal that are still there."""
    rows = view.store.query(
        "SELECT seed, segment, checkpoint FROM segments WHERE proposal = ? AND checkpoint IS NOT NULL", (proposal,)
    )
    return {seed: (segment, path) for seed, segment, path in rows if (view.folder / path).is_dir()}


def _best_seed(view: StudyView, proposal: int, kept: dict[int, tuple[str, str]]) -> int:
    """The kept seed with the best test score; without a test, the first one kept."""
    sign = view.spec.objectives()[0].sign
    rows = view.store.query("SELECT seed, value FROM tests WHERE proposal = ? AND objective = 0", (proposal,))
    scores = {seed: sign * value for seed, value in rows if seed in kept and value is not None}
    return max(scores, key=lambda seed: (scores[seed], -seed)) if scores else min(kept)
