"""Values of a segment in TRL's live trainer: written, and read back.

TRL's trainer is built anew for each segment and takes its arguments from the configuration. A
checkpoint brings optimizer and scheduler along with values of their own, and a schedule changes
values on the way: these are written and read back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autorl.trainers.trl.settings import Settings

if TYPE_CHECKING:
    from transformers import Trainer


def write(settings: Settings, trainer: Trainer, step: int, horizon: int, *, first: bool) -> None:
    """Put the values of `step` into TRL's trainer.

    At the first step of a segment that is all a checkpoint brings along, after it only what
    follows a schedule.
    """
    values = settings.at(step, horizon)
    if first:
        # transformers puts biases and norms, which do not decay, in the second group
        trainer.optimizer.param_groups[0]["weight_decay"] = trainer.args.weight_decay
        for group in trainer.optimizer.param_groups:
            group["eps"] = trainer.args.adam_epsilon
            group["betas"] = (trainer.args.adam_beta1, trainer.args.adam_beta2)
    # TRL restores optimizer and scheduler with their own rate, without a word
    if first or "learning_rate" in settings.scheduled:
        _set_learning_rate(trainer, values.get("learning_rate", trainer.args.learning_rate))
    for name, attribute in _attributes(settings):
        setattr(trainer, attribute, values[name])


def read_back(settings: Settings, trainer: Trainer, step: int, horizon: int) -> dict[str, Any]:
    """Return every hyperparameter, schedules at `step`.

    Raises:
        RuntimeError: the optimizer or a schedule has another value.
    """
    applied = {**settings.values, **settings.at(step, horizon)}
    group = trainer.optimizer.param_groups[0]
    in_force = [
        # not the group's rate: a warm-up lowers that for a while
        ("learning_rate", trainer.lr_scheduler.base_lrs[0]),
        ("weight_decay", group["weight_decay"]),
        ("adam_epsilon", group["eps"]),
        *zip(("adam_beta1", "adam_beta2"), group["betas"], strict=True),
        *((name, getattr(trainer, attribute)) for name, attribute in _attributes(settings)),
    ]
    for name, value in in_force:
        if name in applied and value != applied[name]:
            raise RuntimeError(
                f"hyperparameter {name} did not take: asked for {applied[name]!r}, found {value!r}"
            )
    return applied


def _attributes(settings: Settings) -> list[tuple[str, str]]:
    """Return what follows a schedule and where TRL's trainer keeps it.

    The learning rate is not among them.
    """
    places = [
        (name, name) for name in settings.scheduled if name not in ("learning_rate", "epsilon")
    ]
    if "epsilon" in settings.scheduled:
        places.append(("epsilon", "epsilon_low"))
        # one value for both sides, copied when TRL builds its trainer
        if settings.values.get("epsilon_high") is None:
            places.append(("epsilon", "epsilon_high"))
    return places


def _set_learning_rate(trainer: Trainer, value: float) -> None:
    """Set the learning rate of optimizer and scheduler.

    The scheduler would put the old one back.
    """
    scheduler = trainer.lr_scheduler
    # a scheduler with a factor (warm-up, decay) keeps it, on the new rate
    factors = [function(scheduler.last_epoch) for function in getattr(scheduler, "lr_lambdas", [])]
    for index, group in enumerate(trainer.optimizer.param_groups):
        group["initial_lr"] = value
        group["lr"] = value * (factors[index] if factors else 1.0)
    # at its next step the scheduler computes every rate from these
    scheduler.base_lrs = [value] * len(scheduler.base_lrs)
    scheduler._last_lr = [group["lr"] for group in trainer.optimizer.param_groups]
