"""Models and tokenizers of the package's tasks, trained in seconds."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorl.core.seeds import digest

if TYPE_CHECKING:
    from transformers import PreTrainedModel


_VERSION = 1  # of everything the cached files depend on; raise it when that changes


def stored(
    folder: Path,
    name: str,
    instance: int,
    options: Mapping[str, object],
    write: Callable[[Path], Mapping[str, object]],
    **more: object,
) -> tuple[Path, dict[str, Any]]:
    """Return the folder of an instance and what `write` returned, made once.

    It is written aside and renamed, under a lock: workers that start together build it once, and it
    exists whole or not at all.

    Args:
        folder: where it lies.
        name: of the task.
        instance: of the task.
        options: that decide what is written, in JSON types.
        write: writes files into an empty folder, and returns the rest in JSON types.
        **more: what else decides it, besides the libraries.
    """
    content = {"what": name, "version": _VERSION, "instance": instance, "options": options, **more}
    # transformers 4 does not read the tokenizers that transformers 5 writes
    content["transformers"] = version("transformers").partition(".")[0]
    # equal options give the same folder in whatever order they were given
    text = json.dumps(content, sort_keys=True)
    final = folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if not final.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f".{final.name}.lock").open("w") as lock:
            # the kernel lets it go with the file, also of a process that was killed
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not final.exists():
                _fill(final, text, write)
    return final, json.loads((final / "task.json").read_text(encoding="utf-8"))


def _fill(final: Path, content: str, write: Callable[[Path], Mapping[str, object]]) -> None:
    # the name is fixed, under the lock: what a killed process left is removed, not collected
    scratch = final.with_name(f".tmp-{final.name}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    (scratch / "task.json").write_text(json.dumps(write(scratch)), encoding="utf-8")
    (scratch / "content.json").write_text(content + "\n", encoding="utf-8")
    # atomic on one file system: nobody sees half a task
    scratch.rename(final)


SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
"""Tokens 0 to 3 of every vocabulary."""
EOS = SPECIAL.index("<eos>")


def write_tokenizer(folder: Path, words: Sequence[str]) -> None:
    """Save a word-level tokenizer over `words`, the special tokens first."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate((*SPECIAL, *words))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
    fast: Any = PreTrainedTokenizerFast
    fast(tokenizer_object=tokenizer, padding_side="left", **names).save_pretrained(folder)


def new_policy(seed: int, words: int, hidden: int = 64, layers: int = 2) -> Any:
    """Make a small Llama-type model with fresh weights.

    Its tokens are the words and the special ones.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(SPECIAL) + words,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=EOS,
        tie_word_embeddings=False,
    )
    # transformers initialises weights from the global stream only
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def write_reference(
    folder: Path,
    words: Sequence[str],
    rows: Sequence[Sequence[int]],
    steps: int,
    instance: int,
    *,
    prefix: str = "",
    hidden: int = 64,
    layers: int = 2,
    **fitting: Any,
) -> None:
    """Train a policy over `words`, and save it with its tokenizer.

    Args:
        folder: to save in.
        words: the vocabulary besides the special tokens.
        rows: to be fitted, see `fit_policy`.
        steps: of AdamW.
        instance: of the task, with `prefix` the seed of weights and batches.
        prefix: of the task's random streams.
        hidden: width of the model.
        layers: its depth.
        **fitting: further options of `fit_policy`.
    """
    drawn = digest(instance, f"{prefix}initialisation") % 2**31
    policy = new_policy(drawn, len(words), hidden, layers)
    fit_policy(policy, rows, steps, digest(instance, f"{prefix}batches") % 2**31, **fitting)
    policy.save_pretrained(folder)
    write_tokenizer(folder, words)


def fit_policy(
    model: PreTrainedModel,
    rows: Sequence[Sequence[int]],
    steps: int,
    seed: int,
    lr: float = 6e-3,
    given: int = 0,
    cycle: bool = True,
) -> None:
    """Fit a model to rows of tokens by maximum likelihood.

    Args:
        model: is changed in place.
        rows: n token rows of any lengths, end of sequence included.
        steps: of AdamW, 128 rows each.
        seed: of the batches.
        lr: learning rate, the highest of a cycle.
        given: tokens at the beginning of a row that are read, not learnt.
        cycle: whether the learning rate goes through one cosine cycle, or stays.
    """
    import torch

    longest = max(map(len, rows))
    tokens = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    attention = (torch.arange(longest) < torch.tensor([[len(row)] for row in rows])).long()
    # -100 is what the losses of transformers leave out
    labels = tokens.masked_fill(attention == 0, -100)
    labels[:, :given] = -100
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    # a factor of 1 throughout: the loop is the same with a cycle and without
    schedule: Any = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    if cycle:
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=lr, total_steps=steps, pct_start=0.1
        )
    # of the batches alone: weights were drawn by another seed
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        chosen = torch.randint(len(rows), (128,), generator=generator)
        loss = model(
            input_ids=tokens[chosen], attention_mask=attention[chosen], labels=labels[chosen]
        ).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
