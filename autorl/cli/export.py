"""The command export: the model of a proposal, for others to load."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

from autorl.cli.options import Folder, say
from autorl.core.types import Config, InputError, ProposalId
from autorl.report.reading import StudyView, open_view
from autorl.study.results.models import KeptModel, kept_model, steps_of, whole


def export(
    folder: Folder,
    model: Path | None = None,
    seed: int | None = None,
    proposal: int | None = None,
    replace: bool = False,
    adapter: bool = False,
) -> None:
    """Write a trained model for other programs.

    For an agent it is a zip that Stable-Baselines3 loads, hyperparameters of the run included, and
    the statistics of its normalisation beside it. For an RLHF study it is a folder that
    transformers reads with from_pretrained, model and tokenizer. A LoRA adapter is merged into the
    model that it is for. For a command it is the folder that its program saved.

    Options:
        model: What to write: a file, of RLHF a new folder; default model.zip, of RLHF model.
        seed: Of which training seed; default the median by test score.
        proposal: Of which proposal; default the incumbent.
        replace: Replace a zip of this name.
        adapter: Write a LoRA adapter alone.
    """
    with closing(open_view(folder)) as view:
        say(write_model(view, model, seed, proposal, replace=replace, adapter=adapter))


def write_model(
    view: StudyView,
    target: Path | None,
    seed: int | None,
    proposal: int | None,
    *,
    replace: bool = False,
    adapter: bool = False,
) -> str:
    """Write the model of a proposal trained with a seed.

    Default: the incumbent, and the median by test score.

    Returns:
        Lines that describe the files and their contents.

    Raises:
        InputError: the trainer has no models to export, there is no such proposal or seed, the
            checkpoint is damaged, or the target is there already and may not be replaced.
        StudyError: the model was not kept.
    """
    number, _, model = chosen_model(view, seed, proposal)
    steps = steps_of(view.record, number, model.checkpoint)
    # One that was exchanged may load, and would be exported under the score of another.
    with whole(view.record, model.checkpoint) as on_this_machine:
        trainer = model.trainer
        write = (
            trainer.export_adapter if adapter else partial(trainer.export_model, replace=replace)
        )
        written = write(on_this_machine, target or Path(trainer.model_name))
    files = " and ".join(str(path) for path in (written.path, *written.beside))
    holds = f" with {written.hyperparameters}" if written.hyperparameters else ""
    lines = [
        f"{files}: {'load both; ' if written.beside else ''}{model.name}; {steps}",
        f"  for {written.kind}{holds}",
        *(f"  {note}" for note in written.notes),
    ]
    return "\n".join(lines)


def chosen_model(
    view: StudyView, seed: int | None, proposal: int | None
) -> tuple[ProposalId, Config, KeptModel]:
    """Find the model that the options of a command name.

    Raises:
        InputError, StudyError: as `kept_model` does, and for a proposal there is not.
    """
    number = view.record.incumbent().proposal if proposal is None else proposal
    count = sum(view.record.tables.count_proposals().values())
    if not 0 <= number < count:
        message = f"there is no proposal {number}; there are 0 to {count - 1}"
        raise InputError(message, key="--proposal")
    config = view.record.lineage(number)[number].config
    return number, config, kept_model(view.record, view.folder, number, config, seed)
