"""LoRA: its hyperparameters, and the adapter that is trained."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autorl.core.numbers import check_number
from autorl.core.types import InputError
from autorl.trainers.language.models import load_shape
from autorl.trainers.trl.methods import Method

_PREFIX = "lora."
_FIELDS = {
    "r": "r",
    "alpha": "lora_alpha",
    "dropout": "lora_dropout",
    "target_modules": "target_modules",
    "rslora": "use_rslora",
    "dora": "use_dora",
}
"""Fields of peft's configuration by our names."""
NAMES = frozenset(f"{_PREFIX}{name}" for name in (*_FIELDS, "base"))


def adapter(method: Method, values: Mapping[str, Any]) -> Any:
    """Return peft's configuration of an adapter, or None for a whole model."""
    chosen = {name.removeprefix(_PREFIX): value for name, value in values.items() if name in NAMES}
    if not chosen:
        return None
    from peft import LoraConfig

    fields = {_FIELDS[name]: value for name, value in chosen.items() if name in _FIELDS}
    kind = "SEQ_CLS" if method.data == "ranking" else "CAUSAL_LM"
    # peft's own default are the matrices of attention alone
    return LoraConfig(**{"target_modules": "all-linear", "task_type": kind, **fields})


def check_modules(method: Method, values: Mapping[str, Any], folder: Path) -> None:
    """Raise `InputError` for modules that a folder's model has not."""
    import torch
    from peft import get_peft_model

    with torch.device("meta"):
        try:
            get_peft_model(load_shape(folder), adapter(method, values))
        except ValueError as error:
            raise InputError(str(error), key="trainer.kwargs.lora.target_modules") from error


def check(values: Mapping[str, Any]) -> None:
    """Raise `InputError` for a value that no adapter can have."""
    chosen = {name: values[name] for name in NAMES & values.keys()}
    for name, value in chosen.items():
        match name.removeprefix(_PREFIX):
            case "r":
                check_number(value, name, 1, whole=True)
            case "alpha":
                check_number(value, name, 0)
            case "dropout":
                check_number(value, name, 0, 0.99)
            case "rslora" | "dora" if not isinstance(value, bool):
                raise InputError(f"expected true or false, got {value!r}", key=name)
            case "target_modules" if not isinstance(value, str | list):
                message = f"expected all-linear or names of modules, got {value!r}"
                raise InputError(message, key=name)
            case "base" if value != "nf4":
                raise InputError(f"expected nf4, got {value!r}", key=name)
            case "base" if importlib.util.find_spec("bitsandbytes") is None:
                raise InputError("nf4 needs bitsandbytes, which is not installed", key=name)
