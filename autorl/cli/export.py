"""The command export: the model of a proposal, for others to load."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autorl.cli.options import Folder, say
from autorl.report.reading import StudyView, open_view
from autorl.study.models import kept_checkpoints, seed_of_model, steps_of, whole
from autorl.study.setup import trainer_loader
from autorl.trainers.contract import ExportedModel
from autorl.types import InputError, StudyError


def export(
    folder: Folder,
    model: Annotated[
        Path, typer.Option(help="What to write: a file such as model.zip, of RLHF a new folder.")
    ],
    seed: Annotated[
        int | None, typer.Option(help="Of which training seed; default the best on test seeds.")
    ] = None,
    proposal: Annotated[
        int | None, typer.Option(help="Of which proposal; default the incumbent.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a zip of this name.")] = False,
) -> None:
    """Write a trained model for other programs.

    Of an agent: a zip that Stable-Baselines3 loads, hyperparameters of the run included, and the
    statistics of its normalisation beside it. Of an RLHF study: a folder that transformers reads
    with from_pretrained, model and tokenizer.
    """
    view = open_view(folder)
    try:
        text = write_model(view, model, seed, proposal, replace=replace)
    finally:
        view.close()
    say(text)


def write_model(
    view: StudyView, target: Path, seed: int | None, proposal: int | None, *, replace: bool = False
) -> str:
    """Write the model of a proposal trained with a seed.

    Default: the incumbent, and the seed that is best on test seeds.

    Returns:
        What was written and what is in it, for people.

    Raises:
        InputError: the trainer has no models to export, there is no such proposal or seed, the
            checkpoint is damaged, or the target is there already and may not be replaced.
        StudyError: the model was not kept.
    """
    number = view.record.incumbent().proposal if proposal is None else proposal
    if number not in view.driver.lineage.proposals:
        raise InputError(
            f"there is no proposal {number}; there are 0 to {len(view.driver.lineage) - 1}",
            key="--proposal",
        )
    spec, _ = view.spec.trainer_for(view.driver.lineage[number].config)
    trainer = trainer_loader(view.spec)(spec)
    if not trainer.model_name:
        raise InputError(f"trainer {spec.name!r} has no models to export", key="trainer")
    checkpoints = kept_checkpoints(view.record, view.folder, number)
    if not checkpoints:
        raise StudyError(
            f"{view.folder}: no model of proposal {number} was kept "
            f"(keep.checkpoints: {view.spec.keep.checkpoints}); "
            f"`autorl test {view.folder}` trains the incumbent on test seeds"
        )
    chosen = ""
    if seed is None:
        seed = seed_of_model(view.record, number, checkpoints)
        if len(checkpoints) > 1:
            chosen = f", the best of {len(checkpoints)}: expect less of it than its own score"
    if seed not in checkpoints:
        have = ", ".join(map(str, sorted(checkpoints)))
        raise InputError(
            f"no model of proposal {number} with seed {seed} was kept; there is seed {have}",
            key="--seed",
        )
    role = "test" if seed in view.spec.plan.test else "tuning"
    checkpoint = checkpoints[seed]
    steps = steps_of(view.record, number, checkpoint)
    # One that was exchanged may load, and would be exported under the score of another.
    with whole(view.record, checkpoint) as on_this_machine:
        written = trainer.export_model(on_this_machine, target, replace=replace)
    return exported_text(written, f"proposal {number}, {role} seed {seed}{chosen}; {steps}")


def exported_text(written: ExportedModel, what: str) -> str:
    """Say what the files are and what is in them, with notes."""
    files = " and ".join(str(path) for path in (written.path, *written.beside))
    lines = [f"{files}: {'load both; ' if written.beside else ''}{what}"]
    holds = f" with {written.hyperparameters}" if written.hyperparameters else ""
    lines.append(f"  for {written.kind}{holds}")
    return "\n".join([*lines, *(f"  {note}" for note in written.notes)])
