"""The whole state of an SB3 run on disk.

It is so complete that n + n steps through a checkpoint equal 2n.

What a continued run needs: weights and optimizer moments, counters (schedules are functions of
them), replay buffer, statistics of the normaliser, random streams of Python, NumPy, torch and the
spaces, and the environments with their episodes. `files` says how it lies on disk; a rollout buffer
is empty where a run can be cut.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from autorl.plain_values import plain_mappings
from autorl.store.checkpoints import writing
from autorl.trainers import _streams as streams
from autorl.trainers._space_streams import set_space_state, space_state
from autorl.trainers.sb3 import earlier_files, files
from autorl.trainers.sb3.environments import freeze_all
from autorl.trainers.sb3.files import NETWORKS, REPLAY, STATE, Saved, check_same_names, reason_of
from autorl.trainers.sb3.normaliser import normaliser_state, restore_normaliser
from autorl.trainers.sb3.plain_data import NotPlainError, Writer
from autorl.trainers.sb3.spaces import space_as_data
from autorl.types import Checkpoint, CheckpointError, InputError, Segment

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.buffers import ReplayBuffer
    from stable_baselines3.common.vec_env import VecEnv

_Arrays: TypeAlias = NDArray[np.generic] | dict[str, NDArray[np.generic]]
_COUNTERS = ("num_timesteps", "_n_updates", "_episode_num", "_n_calls", "exploration_rate")
# The last is what a normaliser made the first from: replay buffers hold it unnormalised.
_LATEST = ("_last_obs", "_last_episode_starts", "_last_original_obs")
# Of a recurrent policy: what it remembers of the episodes in progress.
_MEMORY = "_last_lstm_states"
_RECORDS = ("ep_info_buffer", "ep_success_buffer")
_ENTROPY_OPTIMIZER = "ent_coef_optimizer"
_ENTROPY = "log_ent_coef"
_NEEDED = (
    "class",
    "n_envs",
    "values",
    "counters",
    "latest",
    "noise",
    "streams",
    "spaces",
    "normaliser",
    "definition",
)


def save(
    model: BaseAlgorithm,
    venv: VecEnv,
    segment: Segment,
    values: Mapping[str, object],
    *,
    losses: Mapping[str, float],
) -> Checkpoint:
    """Write the checkpoint of `segment`, with the losses of the latest update.

    The model is left as it was.
    """
    normaliser = model.get_vec_normalize_env()
    state = {
        "class": type(model).__name__,
        "n_envs": model.n_envs,
        "horizon": segment.horizon,
        "values": plain_mappings(values),
        "counters": {name: getattr(model, name) for name in _COUNTERS if hasattr(model, name)},
        "latest": {name: getattr(model, name) for name in _LATEST} | _records(model),
        # Ornstein-Uhlenbeck noise goes on from its last value.
        "noise": [getattr(noise, "noise_prev", None) for noise in _noises(model)],
        "streams": streams.global_state(),
        "spaces": [space_state(space) for space in (model.action_space, model.observation_space)],
        "definition": [
            space_as_data(space) for space in (venv.observation_space, venv.action_space)
        ],
        "normaliser": None
        if normaliser is None
        else normaliser_state(normaliser, normaliser.returns),
    }
    # Only where there are some: checkpoints of other runs stay what they were.
    if hasattr(model, _MEMORY):
        state["memory"] = _memory(model)
    if losses:
        state["losses"] = dict(losses)
    parts: dict[str, Mapping[str, Any]] = {STATE: state, NETWORKS: _networks_state(model)}
    buffer = getattr(model, "replay_buffer", None)
    if buffer is not None:
        parts[REPLAY] = _buffer_state(buffer)
    with writing(segment) as folder:
        files.write(folder, parts, freeze_all(venv))
    return Checkpoint(segment.id, segment.folder)


def read(checkpoint: Checkpoint, *, trust: bool = False) -> Saved:
    """Read a checkpoint of this or an earlier version.

    `trust` opens pickles of an earlier one, whatever is in them.

    Raises:
        CheckpointError: a file of it is missing, torn or not what it should be.
        InputError: it is not of an sb3 trainer.
    """
    folder = Path(checkpoint.path)
    if (folder / files.DOCUMENT).is_file():
        saved = files.read(folder)
    elif earlier_files.are_in(folder):
        saved = earlier_files.read(folder, trust=trust)
    else:
        raise InputError(f"{checkpoint.path} is not a checkpoint of an sb3 trainer")
    missing = [name for name in _NEEDED if name not in saved.state]
    if missing:
        raise CheckpointError(f"holds no {missing[0]}", file=saved.file(STATE))
    return saved


def restore_model(model: BaseAlgorithm, saved: Saved, asked: Mapping[str, object]) -> None:
    """Put a saved state back into a model built from its config.

    It has networks, optimizer moments, replay buffer, normaliser and counters.

    What the configuration decides (learning rate and other options of the optimizers, discounts in
    the buffers) stays as the constructor set it: a saved value never overrides it. `asked` are the
    hyperparameters of the model.

    Raises:
        CheckpointError: a network, an optimizer or an array that the model has is not there, or has
            another shape.
    """
    state = saved.state
    # From fixed to learned, or to another value: what was saved is of the old one.
    same_entropy = state["values"].get("ent_coef") == asked.get("ent_coef")
    restore_networks(model, saved, same_entropy=same_entropy, keep_options=True)
    normaliser = model.get_vec_normalize_env()
    if normaliser is not None:
        restore_normaliser(normaliser, state["normaliser"], saved.file(STATE))
    buffer = getattr(model, "replay_buffer", None)
    if buffer is not None:
        if saved.replay is None:
            raise CheckpointError("the replay buffer is missing", file=saved.file(REPLAY))
        _restore_buffer(buffer, saved.replay(), saved.file(REPLAY))
    restore_counters(model, saved)


def restore_counters(model: BaseAlgorithm, saved: Saved) -> None:
    """Put back how many steps and updates were made.

    Schedules are functions of them.
    """
    for name, value in saved.state["counters"].items():
        # Only these: a file must not set any other attribute of the model.
        if name in _COUNTERS:
            setattr(model, name, value)


def restore_networks(
    model: BaseAlgorithm, saved: Saved, *, same_entropy: bool = True, keep_options: bool = False
) -> None:
    """Put weights and optimizer moments into a model.

    `same_entropy` says that SAC's entropy coefficient is learned or fixed as it was. With
    `keep_options` the optimizers keep their own learning rate and other options.

    Raises:
        CheckpointError: a network or an optimizer of the model is missing, or is another one. Names
            the file.
    """
    if saved.state["class"] not in (type(model).__name__, ""):  # early versions did not record it
        raise CheckpointError(
            f"is of {saved.state['class']}, not of {type(model).__name__}", file=saved.file(STATE)
        )
    networks = saved.networks()
    file = saved.file(NETWORKS)
    parameters = networks.get("parameters")
    variables = networks.get("variables")
    if not isinstance(parameters, dict) or not isinstance(variables, dict):
        raise CheckpointError("holds no networks", file=file)
    ignored = set() if same_entropy else {_ENTROPY_OPTIMIZER}
    of_model = model.get_parameters()
    check_same_names(parameters.keys() - ignored, of_model.keys() - ignored, file)
    # Sorted: of several damages every process names the same.
    for name in sorted(of_model.keys() - ignored):
        part = operator.attrgetter(name)(model)
        try:
            if isinstance(part, torch.optim.Optimizer):
                _restore_optimizer(part, parameters[name], keep_options=keep_options)
            else:
                part.load_state_dict(parameters[name])
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"{name} is not that of the model ({reason_of(error)})", file=file
            ) from error
    learned = getattr(model, _ENTROPY, None)
    if same_entropy and learned is not None:
        value = variables.get(_ENTROPY)
        if not torch.is_tensor(value) or value.shape != learned.shape:
            raise CheckpointError(f"{_ENTROPY} is missing", file=file)
        # In place: the optimizer refers to this tensor.
        with torch.no_grad():
            learned.copy_(value)


def end_episodes(model: BaseAlgorithm) -> None:
    """Mark the latest transition of the replay buffer as truncated.

    The environments start new episodes after it.
    """
    buffer = getattr(model, "replay_buffer", None)
    if buffer is None:
        return
    latest = (buffer.pos - 1) % buffer.buffer_size
    # Done and timed out together: sampling bootstraps the value of its last state (`dones * (1 -
    # timeouts)`) but joins no later step to it.
    buffer.dones[latest] = 1.0
    if buffer.handle_timeout_termination:
        buffer.timeouts[latest] = 1.0


def restore_latest(model: BaseAlgorithm, saved: Saved, *, same_episodes: bool) -> None:
    """Put the records of the latest episodes back.

    Where the environments were restored, the one in progress is put back too.
    """
    latest = saved.state["latest"]
    for name in (*_LATEST, *_RECORDS):
        # The latest observation is of the episode in progress, the records are of those that ended.
        if same_episodes or name in _RECORDS:
            setattr(model, name, latest[name])
    if same_episodes and hasattr(model, _MEMORY):
        _restore_memory(model, saved)
    for noise, previous in zip(_noises(model), saved.state["noise"], strict=True):
        if previous is not None:
            noise.noise_prev = previous


def restore_streams(model: BaseAlgorithm, saved: Saved) -> None:
    """Put every random stream back.

    It is the last thing to restore, since building a model draws from them.
    """
    for space, state in zip(
        (model.action_space, model.observation_space), saved.state["spaces"], strict=True
    ):
        set_space_state(space, state)
    streams.set_global_state(saved.state["streams"])


def _memory(model: BaseAlgorithm) -> list[Any]:
    """Return the arrays that a recurrent policy remembers, or none."""
    states = getattr(model, _MEMORY, ())
    return [state.cpu().numpy() for pair in states for state in pair]


def _restore_memory(model: BaseAlgorithm, saved: Saved) -> None:
    """Put back what a recurrent policy remembers of the episodes in progress.

    Raises:
        CheckpointError: it is missing, or of another network.
    """
    states = getattr(model, _MEMORY)
    of_model = [state for pair in states for state in pair]
    arrays = saved.state.get("memory") or []
    if [np.shape(array) for array in arrays] != [tuple(state.shape) for state in of_model]:
        raise CheckpointError(
            "the memory of the recurrent policy is missing or has another shape",
            file=saved.file(STATE),
        )
    # In place: pairs of tensors in a tuple of a class of sb3-contrib.
    for state, array in zip(of_model, arrays, strict=True):
        state.copy_(torch.as_tensor(array))


def _records(model: BaseAlgorithm) -> dict[str, Any]:
    """Return the latest episodes, as far as they are plain data.

    Others may have put more beside return and length.
    """
    infos = model.ep_info_buffer
    successes = model.ep_success_buffer
    assert infos is not None
    assert successes is not None
    return {
        "ep_info_buffer": deque(
            ({name: value for name, value in info.items() if _is_plain(value)} for info in infos),
            infos.maxlen,
        ),
        "ep_success_buffer": deque(
            (value for value in successes if _is_plain(value)), successes.maxlen
        ),
    }


def _is_plain(value: object) -> bool:
    try:
        Writer().write(value)
    except NotPlainError:
        return False
    return True


def _networks_state(model: BaseAlgorithm) -> dict[str, Any]:
    """Return weights and optimizers by SB3's names.

    SAC's entropy coefficient is neither, and is added if it is learned.
    """
    learned = getattr(model, _ENTROPY, None)
    return {
        "parameters": model.get_parameters(),
        "variables": {} if learned is None else {_ENTROPY: learned},
    }


def _restore_optimizer(
    optimizer: torch.optim.Optimizer, saved: Mapping[str, object], *, keep_options: bool
) -> None:
    options = [
        {name: group[name] for name in group if name != "params"}
        for group in optimizer.param_groups
    ]
    # It replaces the options too; they are put back below.
    optimizer.load_state_dict(dict(saved))
    for parameter, moments in optimizer.state.items():
        for name, moment in moments.items():
            # Adam counts its steps in a tensor without dimensions. Another shape would fail only at
            # the first update.
            if torch.is_tensor(moment) and moment.ndim and moment.shape != parameter.shape:
                raise ValueError(f"{name} has another shape than its parameter")
    if keep_options:
        for group, options_of_group in zip(optimizer.param_groups, options, strict=True):
            group.update(options_of_group)


def _noises(model: BaseAlgorithm) -> list[Any]:
    noise = getattr(model, "action_noise", None)
    return [] if noise is None else list(getattr(noise, "noises", [noise]))


def _buffer_state(buffer: ReplayBuffer) -> dict[str, Any]:
    """Return the filled part of a replay buffer.

    A buffer of a million steps that holds a thousand costs a thousand.
    """
    rows = _rows(buffer, buffer.pos, buffer.full)
    arrays: dict[str, _Arrays] = {}
    for name, array in _storage(buffer).items():
        if isinstance(array, dict):  # observations of several parts
            arrays[name] = {key: part[:rows] for key, part in array.items()}
        else:
            arrays[name] = array[:rows]
    return {"rows": rows, "pos": buffer.pos, "full": buffer.full, "arrays": arrays}


def _restore_buffer(buffer: ReplayBuffer, saved: Mapping[str, Any], file: str) -> None:
    """Fill a new replay buffer.

    Raises:
        CheckpointError: an array is missing or has another shape or type, or the position is none.
    """
    try:
        position, full, rows, arrays = (saved[name] for name in ("pos", "full", "rows", "arrays"))
        inside = (
            isinstance(position, int)
            and 0 <= position < buffer.buffer_size
            and isinstance(full, bool)
        )
        if not inside or rows != _rows(buffer, position, full):
            raise CheckpointError(
                f"position {position!r} with {rows!r} rows is none of this replay buffer", file=file
            )
        storage = _storage(buffer)
        check_same_names(arrays, storage, file)
        pairs = [
            pair for name in storage for pair in _pairs(name, storage[name], arrays[name], file)
        ]
        for name, target, source in pairs:
            if source.shape != (rows, *target.shape[1:]) or source.dtype != target.dtype:
                raise CheckpointError(
                    f"{name} of the replay buffer has another shape or type", file=file
                )
        # Only once all are checked: no buffer is left half filled.
        for _, target, source in pairs:
            target[:rows] = source
        buffer.pos = position
        buffer.full = full
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"the replay buffer is not whole ({reason_of(error)})", file=file
        ) from error


def _pairs(name: str, own: _Arrays, saved: Any, file: str) -> list[tuple[str, Any, Any]]:
    """Pair the arrays of a buffer with what was saved of them.

    Observations of several parts have one for each.
    """
    if not isinstance(own, dict):
        return [(name, own, saved)]
    check_same_names(saved, own, file)
    return [(f"{name}.{key}", own[key], saved[key]) for key in own]


def _rows(buffer: ReplayBuffer, position: int, full: bool) -> int:
    """Count the rows in use.

    The next one is too, as it may hold the latest observation.
    """
    if full:
        return int(buffer.buffer_size)
    return int(min(position + 1, buffer.buffer_size))


def _storage(buffer: ReplayBuffer) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(buffer).items()
        if _is_storage(value, buffer.buffer_size)
    }


def _is_storage(value: object, size: int) -> bool:
    if isinstance(value, dict):
        return bool(value) and all(_is_storage(item, size) for item in value.values())
    return isinstance(value, np.ndarray) and value.ndim > 0 and value.shape[0] == size
