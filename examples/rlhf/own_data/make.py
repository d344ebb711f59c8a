"""Writes what the study beside it needs: a tiny language model in `model/`, and prompts in `prompts.jsonl`.

Stands for what you have already: any causal language model in a folder, or its name on a hub, and any data set.
"""

import json
from itertools import product
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HERE = Path(__file__).parent
COLOURS = ["red", "green", "blue", "yellow", "black", "white"]
THINGS = ["cat", "house", "river", "lamp", "stone", "bird", "road", "cup"]
SPECIAL = ["<pad>", "<eos>", "<unk>"]


def main() -> None:
    words = [*SPECIAL, *COLOURS, *THINGS]
    tokenizer = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(HERE / "model")
    torch.manual_seed(0)
    size = {
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    ids = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(words), **size, **ids)).save_pretrained(
        HERE / "model"
    )
    rows = [
        {"question": f"{one} {other}", "colour": COLOURS[index % len(COLOURS)]}
        for index, (one, other) in enumerate(product(THINGS, THINGS))
    ]
    (HERE / "prompts.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
