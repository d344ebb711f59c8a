"""Refuses names and values that TRL cannot train with, before a study."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import tempfile
import warnings
from collections.abc import Collection, Mapping
from contextlib import redirect_stderr, redirect_stdout
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any

from autorl.core.plain_text import did_you_mean, one_of
from autorl.core.types import InputError, freeze
from autorl.trainers.language.contract import Built
from autorl.trainers.language.models import load_policy, load_tokenizer
from autorl.trainers.language.tasks.tiny_models import new_policy, write_tokenizer
from autorl.trainers.shared import base_name, streams_kept
from autorl.trainers.trl import lora
from autorl.trainers.trl.data_sets import data_set
from autorl.trainers.trl.losses import LOSSES_WITH, unused
from autorl.trainers.trl.methods import Method
from autorl.trainers.trl.settings import CPU, OF_TASK, PROCESSES, QUIET, SHARDED, Settings

_NAMED = ("loss_type", "scale_rewards", "importance_sampling_level", "multi_objective_aggregation")
"""Arguments that are one of a few texts, which TRL's code alone knows."""
_RESERVED = {
    *OF_TASK,
    *QUIET,
    *("output_dir", "max_steps", "num_train_epochs", "seed", "data_seed", "run_name", "project"),
    *("save_steps", "save_total_limit", "save_only_model", "save_on_each_node"),
    *("load_best_model_at_end", "resume_from_checkpoint"),
    *("eval_steps", "eval_on_start", "do_train", "do_eval", "do_predict"),
    *("logging_steps", "logging_dir", "logging_first_step"),
    *("hub_model_id", "hub_token", "hub_strategy", "reward_weights", "model_init_kwargs"),
}
"""What belongs to the study or the task, or would reach out of it."""
_OF_DATA = re.compile(
    "packing|padding_free|dataset_|precompute_|max_length|truncation_|.*_only_loss"
)
"""Arguments that say how data are read, which nobody does who samples."""


def check_values(method: Method, own: Mapping[str, object], config: Mapping[str, object]) -> None:
    """Raise `InputError` if no run of a configuration could train.

    The configuration goes over the trainer's own values.
    """
    settings = Settings(method, own, config)
    for field in dataclasses.fields(method.classes()[1]):
        value = settings.values.get(field.name)
        # the exact type of the default: bool is an int to `isinstance`
        number = type(field.default) in (int, float) and field.name in settings.values
        if value is None and ("None" in str(field.type) or "Optional" in str(field.type)):
            continue
        if number and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InputError(f"expected a number, got {value!r}", key=field.name)
    for name in () if "loss_type" in config else unused(own):
        takers = ", ".join(sorted(LOSSES_WITH[name][1]))
        loss = own.get("loss_type", "sigmoid")
        raise InputError(f"the loss {loss!r} does not take it, but {takers}", key=name)
    lora.check(settings.values)
    for name, package in (("use_vllm", "vLLM"), ("deepspeed", "DeepSpeed")):
        if settings.values.get(name) and importlib.util.find_spec(package.lower()) is None:
            raise InputError(f"{package} is not installed", key=name)
    with warnings.catch_warnings():
        # TRL's own use of names transformers is renaming
        warnings.simplefilter("ignore", FutureWarning)
        # transformers starts CUDA for them, and the GPU is for the segments
        arguments = settings.arguments(0, 1, "unused", 1, cuda=False)
        _check_anchor(settings.values, arguments)
        # a subclass may know other texts
        if not method.subclass:
            _check_named(method, arguments, settings.values)


def _check_anchor(values: Collection[str], arguments: Any) -> None:
    """Raise `InputError` where the reference policy is to move and cannot."""
    fixed = {
        "an adapter, whose frozen base it is": lora.NAMES.intersection(values),
        "precompute_ref_log_probs": getattr(arguments, "precompute_ref_log_probs", False),
        "a beta of 0, which needs none": getattr(arguments, "beta", None) == 0,
    }
    for reason, holds in fixed.items():
        if holds and getattr(arguments, "sync_ref_model", False):
            message = f"the reference policy cannot move with {reason}"
            raise InputError(message, key="sync_ref_model")


def _check_named(method: Method, arguments: Any, values: Collection[str]) -> None:
    """Raise `InputError` for a text that TRL's trainer does not know.

    It knows those its documentation names; with any other a tiny model is trained for a step.
    """
    for field in dataclasses.fields(arguments):
        if field.name not in _NAMED or field.name not in values:
            continue
        documented = {*re.findall(r"(?<!=)'(\w+)'", field.metadata.get("help", ""))}
        value = getattr(arguments, field.name)
        # one loss of DPO after the other
        for part in value if method.of_dpo else [value]:
            if part in (*documented, field.default):
                continue
            reason = _refusal(method, field.name, freeze(part))
            if reason:
                owner = method.classes()[0].__name__
                # most of its messages list what there is
                hint = one_of(part, sorted(documented)) if documented and "'" not in reason else ""
                raise InputError(f"TRL's {owner} has no {part!r}: {reason}{hint}", key=field.name)


@lru_cache(maxsize=256)
def _refusal(method: Method, name: str, value: object) -> str:
    """Return why TRL trains no step with a value, or ""."""
    small = {"per_device_train_batch_size": 2, "num_generations": 2}
    settings = Settings(method, small, {name: value})
    with (
        tempfile.TemporaryDirectory() as folder,
        streams_kept(),
        redirect_stdout(StringIO()),
        redirect_stderr(StringIO()),
    ):
        new_policy(0, 3, hidden=8, layers=1).save_pretrained(folder)
        write_tokenizer(Path(folder), "abc")
        names: Any = dict.fromkeys(("name", "training", "selection", "report"), "")
        built = Built(
            reference=Path(folder),
            prompts=("a", "b"),
            pairs=(("a", "b", "c"),) * 2,
            held_out=(),
            max_completion=2,
            signals={},
            **names,
        )
        parts = {
            "model": load_policy(built.reference),
            "train_dataset": data_set(method, built),
            "processing_class": load_tokenizer(built.reference),
        }
        if method.online:
            parts["reward_funcs"] = [lambda completions, **rest: [0.0] * len(completions)]
        silent = {"_send_telemetry": lambda trainer: None}
        kind = type("Probe", (method.classes()[0],), silent)
        try:
            kind(args=settings.arguments(0, 1, folder, 2, cuda=False), **parts).train()
        # the last: KTO names no loss it does not know
        except (ValueError, TypeError, NotImplementedError, UnboundLocalError) as error:
            return str(error).splitlines()[0]
    return ""


def check_hyperparameters(method: Method, names: Collection[str], *, gpus: int = 0) -> None:
    """Raise `InputError` for names that no space can have.

    TRL does not have them, or they are the study's.

    Args:
        method: of the trainer.
        names: of hyperparameters.
        gpus: that a segment has.
    """
    _, config_class = method.classes()
    allowed = {field.name for field in dataclasses.fields(config_class)} - _RESERVED
    allowed |= {"sft_weight"} if method.of_dpo else set()
    allowed |= {"gamma_ratio"} if method.name == "cpo" else set()
    allowed |= {"use_kl", "max_ratio"} if method.on_policy else set()
    allowed |= {*lora.NAMES, PROCESSES}
    for name in names:
        base = base_name(name)
        if base in _RESERVED:
            reason = f"is set by the study or the task, not by the space of trl/{method.name}"
        elif base in SHARDED:  # rank 0 would wait for the others for ever
            reason = f"{base} shards the policy, which a segment evaluates whole in one process"
        elif base == "deepspeed" and gpus < 2:  # accelerate ignores it on a CPU
            reason = f"{base} is for several GPUs: give segments them, `resources: {{gpu: 2}}`"
        elif method.sampled and _OF_DATA.match(base):
            reason = f"is for data: trl/{method.name} samples what it trains on"
        elif base in CPU and not gpus:
            reason = f"{base} is for a GPU: give segments one, `resources: {{gpu: 1}}`"
        elif base not in allowed:
            no_field = f"; TRL's {config_class.__name__} has no such field"
            hint = did_you_mean(base, allowed) or no_field
            reason = f"unknown hyperparameter of trl/{method.name} {base!r}{hint}"
        elif base != name and base not in method.scheduled:
            followed = ", ".join(method.scheduled)
            reason = (
                f"trl/{method.name} cannot follow a schedule of {base!r}; it can for {followed}"
            )
        else:
            continue
        raise InputError(reason, key=base)
