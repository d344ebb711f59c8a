"""Loads models and tokenizers, from a folder or the hub's cache.

The network is used only where it is allowed.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorl.core.types import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the hub's library is imported
# not *.bin: the same weights again, pickled
FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
"""What `from_pretrained` reads of a model, weights in one format."""
ADAPTER = "adapter_config.json"
"""The file that says of a folder that it has an adapter, not a model."""


def offline() -> bool:
    """Whether nothing may be downloaded: always, unless HF_HUB_OFFLINE=0 is set."""
    return os.environ.get("HF_HUB_OFFLINE", "1").lower() not in ("0", "false", "no", "off")


def model_folder(source: str, key: str) -> Path:
    """Return the folder of a model.

    It is `source` itself, or where the hub's cache has `organisation/name` or `...@revision`.

    Raises:
        InputError: it is neither.
    """
    folder = Path(source).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise InputError(
                f"{source} is not the folder of a model: it has no config.json", key=key
            )
        return folder.resolve()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    name, _, revision = source.partition("@")
    try:
        snapshot = snapshot_download(
            name, revision=revision or None, local_files_only=offline(), allow_patterns=list(FILES)
        )
    # the second: a relative path that does not exist is no name of a repository
    except (OSError, HFValidationError) as error:
        raise missing("folder of a model", source, key) from error
    return Path(snapshot)


def missing(what: str, source: str, key: str) -> InputError:
    """Make the error for a model or data set found nowhere."""
    if offline():
        return InputError(
            f"{source!r} is no {what}, and the hub's cache has nothing of that name; nothing is "
            "downloaded unless HF_HUB_OFFLINE=0 is set",
            key=key,
        )
    return InputError(
        f"{source!r} is no {what}, and the hub did not give anything of that name", key=key
    )


def load_policy(folder: Path, *, nf4: bool = False) -> Any:
    """Load a folder's language model in single precision or four bits."""
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    # transformers 5 would keep the precision of the file: bfloat16 loses small steps of Adam
    options: dict[str, Any] = {"local_files_only": True, "dtype": torch.float32}
    if nf4:
        four_bits: Any = BitsAndBytesConfig
        options["quantization_config"] = four_bits(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    return AutoModelForCausalLM.from_pretrained(folder, **options)


def load_merged(folder: Path, *, nf4: bool = False) -> Any:
    """Load a folder's adapter, merged into its base.

    Raises:
        InputError: the base is not there.
    """
    from peft import PeftConfig, PeftModel

    adapter = PeftConfig.from_pretrained(str(folder))
    base = Path(adapter.base_model_name_or_path)
    if not base.is_dir():
        raise InputError(f"the adapter's model {base} is not there: `--adapter` needs none")
    of_rewards = adapter.task_type == "SEQ_CLS"
    with warnings.catch_warnings():
        # peft's own use of names transformers is renaming
        warnings.simplefilter("ignore", FutureWarning)
        model = load_reward_model(base, 1) if of_rewards else load_policy(base, nf4=nf4)
        # merged in four bits it would be rounded to another model than the one that was scored
        model = model.dequantize() if nf4 else model
        return PeftModel.from_pretrained(model, folder).merge_and_unload()


def load_shape(folder: Path) -> Any:
    """Return the language model of a folder without its weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def load_reward_model(folder: Path, labels: int | None = None) -> Any:
    """Load the sequence classifier of a folder, in single precision.

    With `labels` it is a new head of that many outputs on a language model's body.
    """
    import torch
    from transformers import AutoModelForSequenceClassification

    head = {} if labels is None else {"num_labels": labels}
    model: Any = AutoModelForSequenceClassification.from_pretrained(
        folder, local_files_only=True, dtype=torch.float32, **head
    )
    # without it classifiers of transformers refuse more than one text at once
    if model.config.pad_token_id is None:
        model.config.pad_token_id = load_tokenizer(folder).pad_token_id
    return model


def weights_hash(model: PreTrainedModel) -> str:
    """Return a hash of every weight of a model, by name."""
    digest = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        digest.update(name.encode())
        # as float32: NumPy has no bfloat16
        digest.update(weight.detach().cpu().contiguous().float().numpy().tobytes())
    return digest.hexdigest()[:16]


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer of a folder.

    One without padding pads with its end of sequence, which is masked wherever it pads.

    Raises:
        InputError: it has no end of sequence, or the folder has no tokenizer.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    # no file, or a class of tokenizers that transformers does not know
    except (OSError, ValueError) as error:
        raise InputError(
            f"{folder} has no tokenizer that can be read: {str(error).splitlines()[0]}"
        ) from error
    if tokenizer.eos_token_id is None:
        raise InputError(f"the tokenizer in {folder} has no end of sequence")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer
