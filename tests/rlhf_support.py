"""Shared by tests of language models: rewards of a user, rows in files, tiny tasks."""

import json
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from autorl.trainers.language.contract import Built
from autorl.trainers.language.tasks.files import FILES
from autorl.trainers.language.tasks.letters import LETTERS
from autorl.trainers.language.tasks.tiny_models import new_policy, write_tokenizer


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Torch trains in one thread: a file of tests imports this, and all of them do."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@contextmanager
def importable(name, code, folder, monkeypatch):
    """The module `name` with this code, written to `folder`; forgotten at the end."""
    (folder / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(folder)
    try:
        yield
    finally:
        sys.modules.pop(name, None)


def save(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def built(reference=Path(), **changes):
    """A task of one signal `gold`, which is also trained on, unless `changes` say otherwise."""
    fields = {"name": "tiny", "reference": reference, "prompts": ("a b",), "held_out": ("c d",)}
    fields |= {"max_completion": 6, "training": "gold", "selection": "gold", "report": "gold"}
    return Built(**fields | changes)


def write_policy(folder, words=LETTERS, seed=0):
    """Save an untrained policy of one small layer, and its tokenizer."""
    new_policy(seed, len(words), hidden=16, layers=1).save_pretrained(folder)
    write_tokenizer(folder, words)


def files_options(folder, data, **more):
    """Options of the task `files` for rows; no model is read. Lists among `more` are rows too."""
    (folder / "config.json").write_text("{}")
    names = dict.fromkeys(("selection", "report"), "log_likelihood")
    options = {"model": str(folder), "training": "data", **names, "data": data, **more}
    return {
        name: save(folder / f"{name}.jsonl", rows) if isinstance(rows, list) else rows
        for name, rows in options.items()
        if rows is not None
    }


def build_files(folder, data, instance=0, **more):
    options = files_options(folder, data, **more)
    return FILES.with_options(options).build(instance, folder, **options)
