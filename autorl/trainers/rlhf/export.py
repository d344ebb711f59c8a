"""Writes a trained model for others.

It is the folder of `save_pretrained`, and nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from autorl.core.types import Checkpoint, InputError
from autorl.store.checkpoints import sync_tree
from autorl.store.outputs import free_output
from autorl.trainers.contract import ExportedModel
from autorl.trainers.language.models import FILES, load_policy, load_reward_model
from autorl.trainers.saved_state import STATE

_CONFIG = "config.json"
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx")


def export_model(
    checkpoint: Checkpoint, target: str | Path, *, replace: bool = False
) -> ExportedModel:
    """Copy a checkpoint's model to a folder for `from_pretrained`.

    That reads it offline.

    It is a language model (`AutoModelForCausalLM`), or from `trl/reward` a sequence classifier
    (`AutoModelForSequenceClassification`): configuration, weights as safetensors, tokenizer and
    generation configuration. The folder appears whole or not at all.

    Args:
        checkpoint: of a trainer of language models.
        target: a name that is free.
        replace: refused: a folder is never replaced.

    Raises:
        InputError: something has this name, it is the name of a file, it lies in the checkpoint, it
            cannot be written, or the checkpoint is of another trainer.
    """
    source = Path(checkpoint.path)
    folder = Path(target)
    files = model_files(checkpoint)
    if replace:
        raise InputError(
            "a model that is a folder replaces nothing: give another name", key="--replace"
        )
    if folder.suffix.lower() in _ARCHIVES:
        raise InputError(
            "a language model is a folder, as transformers writes and reads it, and no "
            f"{folder.suffix} file: expected a name such as "
            f"{folder.with_suffix('').name or 'model'}",
            file=str(folder),
        )
    free_output(folder)
    if folder.resolve().is_relative_to(source.resolve()):
        raise InputError(
            "lies in the checkpoint, which stays as it is: give another name", file=str(folder)
        )
    # beside the target: a rename is atomic on one file system alone
    scratch = folder.with_name(f".tmp-{folder.name}-{os.getpid()}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch.mkdir()
        _copy(files, scratch)
        sync_tree(scratch)
        # fails where a file, or a folder that is not empty, has come meanwhile
        scratch.rename(folder)
    # an interrupt leaves nothing behind either
    except BaseException as error:
        shutil.rmtree(scratch, ignore_errors=True)
        if isinstance(error, OSError):
            raise InputError(f"cannot be written ({error.strerror})", file=str(folder)) from error
        raise
    return ExportedModel(folder, "transformers, from_pretrained: model and tokenizer")


def load_model(checkpoint: Checkpoint) -> Any:
    """Load a language model or a classifier in single precision.

    It is of transformers' own class.
    """
    model_files(checkpoint)
    folder = Path(checkpoint.path)
    (architecture,) = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))["architectures"]
    if architecture.endswith("ForSequenceClassification"):
        return load_reward_model(folder)
    return load_policy(folder)


def model_files(checkpoint: Checkpoint) -> list[Path]:
    """Return the files of a checkpoint that are its model and tokenizer.

    Raises:
        InputError: it is no checkpoint of a trainer of language models.
    """
    folder = Path(checkpoint.path)
    # `rlhf/ppo` and TRL write both
    if not (folder / STATE).is_file() or not (folder / _CONFIG).is_file():
        raise InputError(f"{checkpoint.path} is not a checkpoint of a trainer of language models")
    files = {path for pattern in FILES for path in folder.glob(pattern)}
    return sorted(files - {folder / "trainer_state.json"})


def _copy(files: list[Path], folder: Path) -> None:
    """Copy the files of a model into an empty folder."""
    for path in files:
        if path.name == _CONFIG:
            # TRL switches the cache of keys and values off to train; that is not the model's
            config = json.loads(path.read_text(encoding="utf-8"))
            config.pop("use_cache", None)
            (folder / _CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        else:
            shutil.copyfile(path, folder / path.name)
