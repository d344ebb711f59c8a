"""Writes the model of a checkpoint as a zip for Stable-Baselines3.

It is built anew from data, and nothing is copied.

The zip itself is a program: SB3's format holds pickles, and `load` runs what they say. This one
says what the code here made of arrays and hyperparameters, whoever wrote the checkpoint.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorl.core.types import Checkpoint
from autorl.space.schedules import remaining_schedule
from autorl.trainers import _streams as streams
from autorl.trainers import saved_state
from autorl.trainers.agents import write_zip
from autorl.trainers.contract import ExportedModel
from autorl.trainers.sb3 import checkpoint as checkpoints
from autorl.trainers.sb3.algorithms import CALLABLES
from autorl.trainers.sb3.building import build_model
from autorl.trainers.sb3.checkpoint import NORMALISER_SETTINGS
from autorl.trainers.sb3.environments import SpacesOnly
from autorl.trainers.sb3.settings import Settings

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm


def export_model(
    algorithm: str,
    options: Mapping[str, object],
    checkpoint: Checkpoint,
    file: str | Path,
    *,
    replace: bool = False,
) -> ExportedModel:
    """Write the model of a checkpoint to `file`.

    It is a zip that SB3's `load` reads; a normaliser goes beside it.

    If training normalised, `<file>.vecnormalize.pkl` holds the statistics, for `VecNormalize.load`.
    `algorithm` is `ppo`, `sac`, ..., and `options` are the trainer's: policy and its arguments.

    Raises:
        InputError: the checkpoint is not of an sb3 trainer, is not whole, or a file is there
            already.
    """
    saved = saved_state.load(checkpoint, f"sb3/{algorithm}")
    values = saved["values"]
    with streams.preserved(), warnings.catch_warnings():
        # Warnings about buffers and batches: they were allowed when it was trained.
        warnings.simplefilter("ignore")
        settings = Settings(algorithm, options, values)
        with checkpoints.restoring(saved):
            model = _build(settings, saved)
    has_memory = (saved["folder"] / saved_state.REPLAY).exists()
    return write_zip(
        model,
        model.get_vec_normalize_env(),
        file,
        replace=replace,
        hyperparameters="all hyperparameters of the run, Stable-Baselines3's defaults included",
        n_envs=saved["n_envs"],
        learns="the run's optimizer moments" + " and an empty replay memory" * has_memory,
        notes=[
            f"{name} went from {values[name]!r} to {values[f'{name}.end']!r} "
            f"({values[f'{name}.shape']}), Stable-Baselines3 keeps it at the last value"
            for name in settings.scheduled
            if name not in CALLABLES
        ],
    )


def _build(settings: Settings, saved: Mapping[str, Any]) -> Any:
    """Build the model as it was when the checkpoint was written.

    Its environments cannot be stepped.
    """
    from stable_baselines3.common.vec_env import DummyVecEnv

    observations, actions = saved["spaces"]
    # As many as the run had: `set_env` refuses another number.
    venv: Any = DummyVecEnv([lambda: SpacesOnly(observations, actions)] * int(saved["n_envs"]))
    normalisation = saved["normaliser"]
    if normalisation is not None:
        normalisation = {name: normalisation[name] for name in NORMALISER_SETTINGS}
    # The machine it was trained on may have had another device.
    model = build_model(settings, venv, normalisation, device="cpu")
    if normalisation is not None:
        checkpoints.restore_normaliser(model.get_vec_normalize_env(), saved)
    checkpoints.restore_networks(model, saved)
    checkpoints.restore_counters(model, saved)
    # Numbers that Stable-Baselines3 cannot schedule: their value at the last step.
    settings.set_scheduled(model, int(saved["horizon"]))
    _make_portable(model, saved["values"])
    return model


def _make_portable(model: BaseAlgorithm, values: Mapping[str, Any]) -> None:
    """Replace schedules by ones that load without this package.

    They are constants, or functions of the progress remaining.
    """
    from stable_baselines3.common.utils import FloatSchedule

    portable: dict[str, Any] = {}
    for name in CALLABLES:
        schedule = model.lr_schedule if name == "learning_rate" else getattr(model, name, None)
        if schedule is None:
            continue
        shape = values.get(f"{name}.shape", "constant")
        if shape == "constant":
            # A class of this package in the zip could not be loaded without it.
            portable[name] = schedule(1.0)
        else:
            ends = (float(values[name]), float(values[f"{name}.end"]))
            portable[name] = remaining_schedule(*ends, shape)
    portable["lr_schedule"] = FloatSchedule(portable["learning_rate"])
    portable |= {name: FloatSchedule(portable[name]) for name in CALLABLES[1:] if name in portable}
    vars(model).update(portable)
