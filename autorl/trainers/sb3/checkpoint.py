"""The whole state of an SB3 run on disk, so that n + n steps through a checkpoint equal 2n.

A checkpoint folder holds `model.zip` (what `PPO.load` reads), `training.pkl` (counters, streams, environments, the
configuration), `replay_buffer.pkl` and `vecnormalize.pkl` (what `VecNormalize.load` reads) where there are such.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from autorl.space.schedules import remaining_schedule
from autorl.store.checkpoints import writing
from autorl.trainers import _streams as streams
from autorl.trainers._shared import ExportedModel, base_name, zip_target
from autorl.trainers.sb3.algorithms import CALLABLES
from autorl.trainers.sb3.environments import freeze_all
from autorl.types import Checkpoint, InputError, Segment

_MODEL, _TRAINING, _BUFFER, _NORMALISER = "model.zip", "training.pkl", "replay_buffer.pkl", "vecnormalize.pkl"
_COUNTERS = ("num_timesteps", "_n_updates", "_episode_num", "_n_calls", "exploration_rate")
_LATEST = ("_last_obs", "_last_episode_starts", "_last_original_obs", "ep_info_buffer", "ep_success_buffer")
NORMALISER_ENDING = ".vecnormalize.pkl"
_RECORDS = ("ep_info_buffer", "ep_success_buffer")
_ENTROPY = ("ent_coef_optimizer", "log_ent_coef", "ent_coef_tensor")


def save(model: Any, venv: Any, segment: Segment, values: dict[str, Any]) -> Checkpoint:
    """Write the checkpoint of `segment`. The model is left as it was."""
    with writing(segment) as folder:
        with _portable(model, values):
            model.save(folder / _MODEL)
        state = {
            "class": type(model).__name__,
            "n_envs": model.n_envs,
            "values": values,
            "counters": {name: getattr(model, name) for name in _COUNTERS if hasattr(model, name)},
            "latest": {name: getattr(model, name) for name in _LATEST},
            "noise": [getattr(noise, "noise_prev", None) for noise in _noises(model)],
            "environments": freeze_all(venv),
            "streams": streams.global_state(),
            "spaces": [streams.space_state(space) for space in (model.action_space, model.observation_space)],
        }
        normaliser = model.get_vec_normalize_env()
        if normaliser is not None:
            normaliser.save(str(folder / _NORMALISER))
            state["normaliser_returns"] = normaliser.returns  # VecNormalize does not save them
        _dump(state, folder / _TRAINING)
        if getattr(model, "replay_buffer", None) is not None:
            _dump(_buffer_state(model.replay_buffer), folder / _BUFFER)
    return Checkpoint(segment.id, segment.folder)


def load_state(checkpoint: Checkpoint) -> dict[str, Any]:
    """Everything of a checkpoint but the networks and the replay buffer."""
    path = Path(checkpoint.path) / _TRAINING
    if not path.is_file():
        raise InputError(f"{checkpoint.path} is not a checkpoint of an sb3 trainer")
    with path.open("rb") as file:
        state: dict[str, Any] = pickle.load(file)
    return state


def restore_model(model: Any, checkpoint: Checkpoint, state: dict[str, Any]) -> None:
    """Put networks, optimizer moments, replay buffer, normaliser and counters back into a model built from its config.

    What the configuration decides (learning rate and other options of the optimizers, discounts in the buffers) stays
    as the constructor set it: a saved value never overrides it.
    """
    folder = Path(checkpoint.path)
    _restore_networks(model, folder, state["values"].get("ent_coef") == state["asked"].get("ent_coef"))
    normaliser = model.get_vec_normalize_env()
    if normaliser is not None:
        _restore_normaliser(normaliser, folder, state["normaliser_returns"])
    if getattr(model, "replay_buffer", None) is not None:
        with (folder / _BUFFER).open("rb") as file:
            _restore_buffer(model.replay_buffer, pickle.load(file))
    for name, value in state["counters"].items():
        setattr(model, name, value)


def end_episodes(model: Any) -> None:
    """Mark the latest transition of the replay buffer as truncated: the environments start new episodes after it."""
    buffer = getattr(model, "replay_buffer", None)
    if buffer is None:
        return
    latest = (buffer.pos - 1) % buffer.buffer_size
    buffer.dones[latest] = 1.0
    if buffer.handle_timeout_termination:
        buffer.timeouts[latest] = 1.0


def restore_latest(model: Any, state: dict[str, Any]) -> None:
    """Put the records of the latest episodes back and, where the environments were restored, the one in progress."""
    for name, value in state["latest"].items():
        if state["environments"] or name in _RECORDS:
            setattr(model, name, value)
    for noise, previous in zip(_noises(model), state["noise"], strict=True):
        if previous is not None:
            noise.noise_prev = previous


def restore_streams(model: Any, state: dict[str, Any]) -> None:
    """Put every random stream back; the last thing to restore, since building a model draws from them."""
    for space, saved in zip((model.action_space, model.observation_space), state["spaces"], strict=True):
        streams.set_space_state(space, saved)
    streams.set_global_state(state["streams"])


def export_model(checkpoint: Checkpoint, file: str | Path, *, replace: bool = False) -> ExportedModel:
    """Copy the model of a checkpoint to `file`, a zip that SB3's `load` reads; a normaliser goes beside it.

    Where training normalised, `<file>.vecnormalize.pkl` holds the statistics, for `VecNormalize.load`.

    Raises:
        InputError: the checkpoint is not of an sb3 trainer, or a file is there already.
    """
    source = Path(checkpoint.path)
    if not (source / _MODEL).is_file():
        raise InputError(f"{checkpoint.path} is not a checkpoint of an sb3 trainer")
    normalised = (source / _NORMALISER).is_file()
    target = zip_target(file, replace=replace, beside=[NORMALISER_ENDING] if normalised else [])
    shutil.copyfile(source / _MODEL, target)
    beside = target.with_suffix(NORMALISER_ENDING)
    if normalised:
        shutil.copyfile(source / _NORMALISER, beside)
    state = load_state(checkpoint)
    return ExportedModel(
        path=target,
        kind=".".join(("stable_baselines3", *([state["class"]] if "class" in state else []))),
        beside=(beside,) if normalised else (),
        hyperparameters="all hyperparameters of the run, Stable-Baselines3's defaults included",
        notes=_further(state, (source / _BUFFER).is_file(), normalised),
    )


def _further(state: dict[str, Any], with_memory: bool, normalised: bool) -> tuple[str, ...]:
    """What somebody who trains an exported model further has to know."""
    values = state["values"]
    held = sorted(base_name(name) for name, value in values.items() if name.endswith(".shape") and value != "constant")
    notes = ["`learn` goes on with the run's optimizer moments" + " and an empty replay memory" * with_memory]
    if "n_envs" in state:
        notes.insert(0, f"`set_env` takes a vectorised environment of n_envs={state['n_envs']}, as the run had")
    if normalised:
        notes.append("`VecNormalize.load` reads the statistics: the agent saw normalised observations or rewards")
    notes += [
        f"{name} went from {values[name]!r} to {values[f'{name}.end']!r} ({values[f'{name}.shape']}), "
        "Stable-Baselines3 keeps it at the last value"
        for name in held
        if name not in CALLABLES
    ]
    return tuple(notes)


@contextmanager
def _portable(model: Any, values: Mapping[str, Any]) -> Iterator[None]:
    """Schedules replaced by ones that load without this package: constants, or functions of the progress remaining."""
    from stable_baselines3.common.utils import FloatSchedule

    remaining = model._current_progress_remaining
    portable: dict[str, Any] = {}
    for name in CALLABLES:
        schedule = model.lr_schedule if name == "learning_rate" else getattr(model, name, None)
        if schedule is None:
            continue
        shape, portable[name] = values.get(f"{name}.shape", "constant"), schedule(remaining)
        if shape != "constant":
            portable[name] = remaining_schedule(float(values[name]), float(values[f"{name}.end"]), shape)
    portable["lr_schedule"] = FloatSchedule(portable["learning_rate"])
    portable |= {name: FloatSchedule(portable[name]) for name in CALLABLES[1:] if name in portable}
    original = {name: getattr(model, name) for name in portable}
    vars(model).update(portable)
    try:
        yield
    finally:
        vars(model).update(original)


def _restore_networks(model: Any, folder: Path, same_entropy: bool) -> None:
    from stable_baselines3.common.save_util import load_from_zip_file, recursive_getattr
    from torch.optim import Optimizer

    _, parameters, variables = load_from_zip_file(folder / _MODEL, device=model.device, load_data=False)
    own_networks, own_variables = model._get_torch_save_params()
    for name in (*own_networks, *own_variables):  # of a truncated zip, SB3 reads what is left and says nothing
        if name not in {**parameters, **(variables or {})} and (same_entropy or name not in _ENTROPY):
            raise InputError(f"is damaged: it has no {name}", file=str(folder / _MODEL))
    for name, saved in parameters.items():
        if name in _ENTROPY and not same_entropy:
            continue
        part = recursive_getattr(model, name)
        if isinstance(part, Optimizer):
            options = [{key: group[key] for key in group if key != "params"} for group in part.param_groups]
            part.load_state_dict(dict(saved))
            for group, own in zip(part.param_groups, options, strict=True):
                group.update(own)
        else:
            part.load_state_dict(saved)
    for name, saved in (variables or {}).items():
        if same_entropy and name == "log_ent_coef" and saved is not None:
            model.log_ent_coef.data = saved.data


def _restore_normaliser(normaliser: Any, folder: Path, returns: Any) -> None:
    with (folder / _NORMALISER).open("rb") as file:
        saved = pickle.load(file)
    normaliser.ret_rms, normaliser.returns = saved.ret_rms, returns
    normaliser.old_reward = saved.old_reward
    if normaliser.norm_obs:
        normaliser.obs_rms = saved.obs_rms
    if hasattr(saved, "old_obs"):
        normaliser.old_obs = saved.old_obs


def _noises(model: Any) -> list[Any]:
    noise = getattr(model, "action_noise", None)
    return [] if noise is None else list(getattr(noise, "noises", [noise]))


def _buffer_state(buffer: Any) -> dict[str, Any]:
    """The filled part of a replay buffer; a buffer of a million steps that holds a thousand costs a thousand."""
    rows = buffer.buffer_size if buffer.full else min(buffer.pos + 1, buffer.buffer_size)
    arrays = {name: value for name, value in vars(buffer).items() if _is_storage(value, buffer.buffer_size)}
    return {
        "rows": rows,
        "pos": buffer.pos,
        "full": buffer.full,
        "arrays": {n: _head(a, rows) for n, a in arrays.items()},
    }


def _restore_buffer(buffer: Any, saved: dict[str, Any]) -> None:
    buffer.pos, buffer.full = saved["pos"], saved["full"]
    for name, rows in saved["arrays"].items():
        own = getattr(buffer, name)
        for key, value in rows.items() if isinstance(rows, dict) else [(None, rows)]:
            (own if key is None else own[key])[: saved["rows"]] = value


def _is_storage(value: Any, size: int) -> bool:
    if isinstance(value, dict):
        return bool(value) and all(_is_storage(item, size) for item in value.values())
    return isinstance(value, np.ndarray) and value.ndim > 0 and value.shape[0] == size


def _head(value: Any, rows: int) -> Any:
    return {key: item[:rows] for key, item in value.items()} if isinstance(value, dict) else value[:rows]


def _dump(value: Any, path: Path) -> None:
    with path.open("wb") as file:
        pickle.dump(value, file, protocol=pickle.HIGHEST_PROTOCOL)
