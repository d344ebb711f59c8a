"""A configuration as arguments of TRL's class, to train elsewhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from autorl.core.masking import masked
from autorl.core.plain_values import plain
from autorl.core.types import InputError, TrainerSpec
from autorl.trainers.info import Arguments
from autorl.trainers.rlhf.trainer import all_values
from autorl.trainers.trl.methods import find
from autorl.trainers.trl.settings import DEFAULTS, OF_TASK, PROCESSES, Settings

# not transformers' `linear`, which always ends at 0
_DECAYS = {
    "linear": ("polynomial", "lr_end", {"power": 1.0}),
    "cosine": ("cosine_with_min_lr", "min_lr", {}),
}
"""The scheduler of transformers that decays as a schedule does, and its name of the last value."""


def trl_arguments(
    trainer: TrainerSpec, config: Mapping[str, object], horizon: int, end: int | None = None
) -> Arguments:
    """Return a configuration as arguments of the method's configuration class in TRL.

    `max_steps` is `end`, the step the score is of, where that is before the horizon, over which
    schedules go. A decay of the learning rate is given as the scheduler of transformers that does
    the same. Other schedules TRL cannot follow: their argument is the value at the start, and a
    note says how it goes on.

    Args:
        trainer: its name and options.
        config: hyperparameters by name.
        horizon: optimizer steps of a full run.
        end: the step to train to.

    Raises:
        InputError: TRL is not installed, or has no such method.
    """
    method = find(trainer.name.partition("/")[2], trainer.kwargs.get("data"))
    settings = Settings(method, {}, all_values(trainer, config, DEFAULTS))
    try:
        _, owner = method.classes()
    except ImportError as error:
        raise InputError(
            'the names of its arguments are read from TRL: pip install "autorl[rlhf]"'
        ) from error
    fields = {field.name for field in dataclasses.fields(owner)}
    translated = settings.translated(settings.at(0, horizon))
    steps = -(-(end or horizon) // settings.stride) * settings.stride
    values = {name: value for name, value in translated.items() if name in fields}
    values["max_steps"] = steps
    count = settings.values.get(PROCESSES, 1)
    values["per_device_train_batch_size"] //= count
    if trainer.kwargs.get("device", "cpu") == "cpu":
        values["bf16"] = False  # TRL's default is half precision
    notes: list[str] = []
    if count > 1:
        notes.append(f"of each of {count} processes: torchrun --nproc-per-node {count}")
    if end is not None and end < horizon:
        notes.append(f"step {end} of {horizon}: schedules go over {horizon}")
    for name in settings.scheduled:
        decay = _decay(settings.values, steps, horizon) if name == "learning_rate" else {}
        # A warm-up begins with its last value.
        if settings.values[f"{name}.shape"] == "warmup" and name in values:
            values[name] = settings.values[name]
        values |= decay
        suffix = "" if decay else f", which {owner.__name__} cannot say"
        start = settings.values[name]
        last = settings.values[f"{name}.end"]
        shape = settings.values[f"{name}.shape"]
        goes = f"{name} goes from {start!r} to {last!r} by step {horizon} ({shape})"
        notes.append(f"{goes}{suffix}")
    further = [
        f"{name}={plain(value)!r}" for name, value in translated.items() if name not in fields
    ]
    notes += [f"not arguments of {owner.__name__}: {', '.join(further)}"] if further else []
    notes += [f"{name} is the task's" for name in OF_TASK if name in fields]
    return Arguments(masked(values), tuple(notes))


def _decay(values: Mapping[str, Any], steps: int, horizon: int) -> dict[str, Any]:
    """Return the schedule of the learning rate as a scheduler of transformers.

    Empty where none does the same: where the learning rate rises, has another shape, is changed by
    a scheduler the configuration names, or ends elsewhere than at the horizon. Only a line that
    ends before it is a line still.
    """
    # half of a cosine is no shorter cosine
    if steps > horizon or (steps < horizon and values["learning_rate.shape"] != "linear"):
        return {}
    decay = _DECAYS.get(values["learning_rate.shape"])
    warm = any(values.get(name) for name in ("warmup_steps", "warmup_ratio"))
    if (
        decay is None
        or warm
        or values["lr_scheduler_type"] != "constant"
        # transformers refuses a polynomial whose end is not below its start
        or values["learning_rate.end"] >= values["learning_rate"]
    ):
        return {}
    kind, end, further = decay
    start = values["learning_rate"]
    last = values["learning_rate.end"]
    reached = last if steps == horizon else start + (last - start) * steps / horizon
    return {"lr_scheduler_type": kind, "lr_scheduler_kwargs": {end: reached, **further}}
