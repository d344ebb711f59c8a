"""A run of a language model on disk.

It is the folder its trainer writes, and what we add to it.

TRL's trainers write model, optimizer, scheduler and random streams. The model in a checkpoint loads
with `from_pretrained`. It is never what a run is continued *from* by path: a trainer built on it
would take it for the reference policy and measure KL against itself.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorl.store.checkpoints import writing
from autorl.types import Checkpoint, InputError, Segment

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_OURS = "autorl.json"
_LEFT_OUT = ("training_args.bin", "README.md")
"""Paths and host of the machine it was saved on; a model card."""
_MODEL = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
"""What `from_pretrained` reads."""
_STATE = (_OURS, "trainer_state.json")
_NONE = "not a checkpoint of a trainer of language models"


def save(segment: Segment, source: Path, state: Mapping[str, object]) -> Checkpoint:
    """Move the checkpoint written to `source` to its place.

    `state` (JSON) goes with it.
    """
    with writing(segment) as folder:
        for path in sorted(source.iterdir()):
            if path.name not in _LEFT_OUT:
                # a copy would need the disk space of a model twice
                shutil.move(path, folder / path.name)
        (folder / _OURS).write_text(
            json.dumps(dict(state), sort_keys=True) + "\n", encoding="utf-8"
        )
    return Checkpoint(segment.id, segment.folder)


def load_state(checkpoint: Checkpoint, method: str, reference: str) -> dict[str, Any]:
    """Return what `save` was given.

    Args:
        checkpoint: that `save` returned.
        method: of the trainer that continues it.
        reference: hash of the reference policy in use.

    Raises:
        InputError: the folder is no checkpoint of this method, or was trained against another
            reference policy.
    """
    path = Path(checkpoint.path) / _OURS
    if not path.is_file():
        raise InputError(f"{checkpoint.path} is {_NONE}")
    state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if state["method"] != method:
        raise InputError(f"{checkpoint.path} is a checkpoint of {state['method']}, not of {method}")
    if state["reference"] != reference:
        raise InputError(
            f"{checkpoint.path} was trained against another reference policy ({state['reference']})"
        )
    return state


def model_files(checkpoint: Checkpoint) -> list[Path]:
    """Return the files of a checkpoint that are its model and tokenizer.

    Raises:
        InputError: it is no checkpoint of a trainer of language models.
    """
    folder = Path(checkpoint.path)
    # `rlhf/ppo` and TRL write both
    if not (folder / _OURS).is_file() or not (folder / "config.json").is_file():
        raise InputError(f"{checkpoint.path} is {_NONE}")
    return sorted(
        {path for pattern in _MODEL for path in folder.glob(pattern) if path.name not in _STATE}
    )


def weights_hash(model: PreTrainedModel) -> str:
    """Return a hash of every weight of a model, by name."""
    digest = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        digest.update(name.encode())
        # as float32: NumPy has no bfloat16
        digest.update(weight.detach().cpu().contiguous().float().numpy().tobytes())
    return digest.hexdigest()[:16]
