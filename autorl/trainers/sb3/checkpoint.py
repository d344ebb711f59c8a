"""The whole state of an SB3 run on disk.

It is so complete that n + n steps through a checkpoint equal 2n.

It has weights and optimizer moments, counters (schedules are functions of them), statistics of the
normaliser, random streams of Python, NumPy, torch and the spaces, the environments with their
episodes, and in a file of its own the replay buffer. A rollout buffer is empty where a run can be
cut. Reading the files runs nothing (`saved_state`), and the environments in them are opened where a
signature or the user vouches for them (`environment_state`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.save_util import load_from_pkl

from autorl.core.plain_text import shortened
from autorl.core.types import Checkpoint, CheckpointError, InputError, Segment, Start
from autorl.trainers import _streams as streams
from autorl.trainers import saved_state
from autorl.trainers.environment_state import bare_space
from autorl.trainers.sb3.environments import freeze_all
from autorl.trainers.sb3.settings import noises, optimizers

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.vec_env import VecEnv, VecNormalize

saved_state.OBJECTS["RunningMeanStd"] = RunningMeanStd
NORMALISER_SETTINGS = (
    "norm_obs",
    "norm_reward",
    "clip_obs",
    "clip_reward",
    "gamma",
    "epsilon",
    "norm_obs_keys",
)
_STATISTICS = ("obs_rms", "ret_rms", "returns", "old_reward", "old_obs")
_COUNTERS = ("num_timesteps", "_n_updates", "_episode_num", "_n_calls", "exploration_rate")
# The last is what a normaliser made the first from: replay buffers hold it unnormalised.
_LATEST = ("_last_obs", "_last_episode_starts", "_last_original_obs")
_EPISODES = "_current_ep_start"
_ENTROPY_OPTIMIZER = "ent_coef_optimizer"
_ENTROPY = "log_ent_coef"


def save(
    model: BaseAlgorithm,
    venv: VecEnv,
    segment: Segment,
    values: Mapping[str, object],
    trainer: str,
    *,
    losses: Mapping[str, float],
) -> Checkpoint:
    """Write the checkpoint of `segment`, with the losses of the latest update.

    The model is left as it was.
    """
    learned = getattr(model, _ENTROPY, None)
    buffer = getattr(model, "replay_buffer", None)
    state = {
        "n_envs": model.n_envs,
        "horizon": segment.horizon,
        "values": values,
        "losses": dict(losses),
        "parameters": model.get_parameters(),
        _ENTROPY: None if learned is None else learned.detach(),
        "normaliser": _normaliser_state(model.get_vec_normalize_env()),
        "counters": {name: getattr(model, name) for name in _counters(model)},
        "latest": {name: getattr(model, name) for name in _LATEST},
        "memory": _memory(model),
        # Wrappers may have put more beside return and length.
        "episodes": [
            {name: value for name, value in info.items() if _is_plain(value)}
            for info in model.ep_info_buffer or ()
        ],
        "successes": [value for value in model.ep_success_buffer or () if _is_plain(value)],
        # Ornstein-Uhlenbeck noise goes on from its last value.
        "noise": [getattr(noise, "noise_prev", None) for noise in noises(model)],
        "streams": streams.global_state(),
        "space_streams": [generator.state for generator in _generators(model)],
        "spaces": [bare_space(space) for space in (venv.observation_space, venv.action_space)],
        "environments": freeze_all(venv),
    }
    replay = None if buffer is None else _buffer_state(buffer)
    return saved_state.save(segment, trainer, model.num_timesteps, state, replay=replay)


@contextmanager
def restoring(saved: Mapping[str, Any], name: str = saved_state.STATE) -> Iterator[None]:
    """Turn errors of a model that takes on a state into `CheckpointError`.

    Args:
        saved: as `saved_state.load` gives it.
        name: of the file that is taken on.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (
        AssertionError,
        AttributeError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        message = f"is not of this model ({saved_state.reason_of(error)})"
        raise CheckpointError(message, file=str(saved["folder"] / name)) from error


def restore_model(
    model: BaseAlgorithm, saved: Mapping[str, Any], asked: Mapping[str, object]
) -> None:
    """Put a saved state back into a model built from its config.

    It has networks, optimizer moments, replay buffer, normaliser and counters.

    Values that the configuration decides (learning rate and other options of the optimizers,
    discounts in the buffers) stay as the constructor set them: a saved value never overrides it.
    `asked` are the hyperparameters of the model.

    Raises:
        CheckpointError: a file is not of this model.
    """
    # From fixed to learned, or to another value: what was saved is of the old one.
    same_entropy = saved["values"].get("ent_coef") == asked.get("ent_coef")
    options = [
        [{name: group[name] for name in group if name != "params"} for group in part.param_groups]
        for part in optimizers(model)
    ]
    restore_networks(model, saved, same_entropy=same_entropy)
    for part, groups in zip(optimizers(model), options, strict=True):
        for group, options_of_group in zip(part.param_groups, groups, strict=True):
            group.update(options_of_group)
    normaliser = model.get_vec_normalize_env()
    if normaliser is not None:
        restore_normaliser(normaliser, saved)
    buffer = getattr(model, "replay_buffer", None)
    if buffer is not None:
        state = saved_state.read(saved["folder"] / saved_state.REPLAY)
        with restoring(saved, saved_state.REPLAY):
            _restore_buffer(buffer, state)
    restore_counters(model, saved)


def restore_counters(model: BaseAlgorithm, saved: Mapping[str, Any]) -> None:
    """Put back how many steps and updates were made.

    Schedules are functions of them.
    """
    for name in _counters(model):
        if name in saved["counters"]:
            setattr(model, name, saved["counters"][name])


def restore_networks(
    model: BaseAlgorithm, saved: Mapping[str, Any], *, same_entropy: bool = True
) -> None:
    """Put weights and optimizers into a model.

    `same_entropy` says that SAC's entropy coefficient is learned or fixed as it was.

    Raises:
        CheckpointError: a network or an optimizer of the model is missing, or is another one.
    """
    with restoring(saved):
        parameters = dict(saved["parameters"])
        if not same_entropy:
            parameters.pop(_ENTROPY_OPTIMIZER, None)
            of_model = model.get_parameters()
            if _ENTROPY_OPTIMIZER in of_model:
                parameters[_ENTROPY_OPTIMIZER] = of_model[_ENTROPY_OPTIMIZER]
        model.set_parameters(parameters)
        learned = getattr(model, _ENTROPY, None)
        if same_entropy and learned is not None:
            # In place: the optimizer refers to this tensor.
            with torch.no_grad():
                learned.copy_(saved[_ENTROPY])


def restore_normaliser(normaliser: VecNormalize, saved: Mapping[str, Any]) -> None:
    """Put statistics back, while the settings stay as the constructor set them."""
    with restoring(saved):
        state = saved["normaliser"].items()
        vars(normaliser).update({name: part for name, part in state if name in _STATISTICS})


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
    if hasattr(buffer, _EPISODES):
        buffer.truncate_last_trajectory()


def restore_latest(model: Any, saved: Mapping[str, Any], *, same_episodes: bool) -> None:
    """Put the records of the latest episodes back.

    If the environments were restored, the episode in progress is put back too.
    """
    with restoring(saved):
        model.ep_info_buffer.extend(saved["episodes"])
        model.ep_success_buffer.extend(saved["successes"])
        if same_episodes:
            for name in _LATEST:
                setattr(model, name, saved["latest"][name])
            for memory, remembered in zip(_memory(model), saved["memory"], strict=True):
                memory.copy_(remembered)
        for noise, previous in zip(noises(model), saved["noise"], strict=True):
            if previous is not None:
                noise.noise_prev = previous


def begin_from(model: Any, source: Any, start: Start) -> None:
    """Put the policy of a start into a new model.

    That is its networks, the entropy coefficient that it learned where the model's is `auto`, the
    statistics of its normaliser, and what a replay memory begins with. Optimizers begin anew.

    Args:
        model: of the run, which keeps its hyperparameters.
        source: the model of the start.
        start: names the replay memory.

    Raises:
        InputError: networks or memory do not fit.
    """
    # The first line is the name of a class, `MlpPolicy` has two.
    networks = [str(part.policy).splitlines()[1:] for part in (source, model)]
    states = [part.policy.state_dict() for part in (source, model)]
    for lines, state in zip(networks, states, strict=True):
        lines += [f"{name} {tuple(numbers.shape)}" for name, numbers in state.items()]
    for saved, asked in zip_longest(*networks, fillvalue="nothing"):
        if saved != asked:
            raise _misfit(f"{saved.strip()} in the file, {asked.strip()} in the run", "model")
    model.policy.load_state_dict(states[0])
    learned = getattr(source, _ENTROPY, None)
    # A number, or `auto_0.1`, is the configuration's own beginning.
    if learned is not None and getattr(model, "ent_coef", None) == "auto":
        getattr(model, _ENTROPY).data.copy_(learned)
    normaliser = model.get_vec_normalize_env()
    seen = source.get_vec_normalize_env()
    if normaliser is not None and seen is not None:
        moments = vars(seen).keys() & {"obs_rms", "ret_rms"}
        vars(normaliser).update({name: vars(seen)[name] for name in moments})
        # Until the first episodes have begun, so that step 0 is evaluated as the model was.
        normaliser.training = False
    if start.memory is not None:
        try:
            _fill(model, start.memory)
        # A pickle of somebody else raises anything.
        except Exception as error:
            raise _misfit(saved_state.reason_of(error), "memory") from error


def _misfit(why: str, key: str) -> InputError:
    return InputError(f"does not fit this configuration: {shortened(why, 200)}", key=f"start.{key}")


def _fill(model: Any, memory: str) -> None:
    """Fill a new replay memory with recorded steps.

    The newest ones are taken, as many as fit.

    Raises:
        Exception: they are of another task or number of environments, or cannot be read.
    """
    buffer = getattr(model, "replay_buffer", None)
    if buffer is None or buffer.optimize_memory_usage or hasattr(buffer, "ep_start"):
        raise ValueError("its algorithm has no memory of whole steps")
    size = buffer.buffer_size
    places = _rows(buffer)
    if memory.endswith(".pkl"):
        saved: Any = load_from_pkl(memory)
        rows = min(saved.size(), size)
        newest = np.arange(saved.pos - rows, saved.pos) % saved.buffer_size
        arrays = {name: array[newest] for name, array in _rows(saved).items()}
    else:
        # Needs Minari.
        from autorl.trainers.offline.learner import read_transitions

        data = read_transitions(memory)
        if data.action_space != model.action_space:
            raise ValueError(f"its actions are {data.action_space}, not {model.action_space}")
        rows = min(len(data.rewards) // buffer.n_envs, size)
        columns = {
            "next_observations": data.following,
            "dones": data.ended,
            "timeouts": 0 * data.ended,
        }
        columns |= {name: getattr(data, name) for name in ("observations", "actions", "rewards")}
        arrays = {
            name: column[-rows * buffer.n_envs :]
            .reshape(rows, *places[name].shape[1:])
            .astype(places[name].dtype)
            for name, column in columns.items()
        }
    _restore_buffer(buffer, {"pos": rows % size, "full": rows == size, "arrays": arrays})


def restore_streams(model: BaseAlgorithm, saved: Mapping[str, Any]) -> None:
    """Put every random stream back.

    It is the last thing to restore, since building a model draws from them.
    """
    with restoring(saved):
        for generator, state in zip(_generators(model), saved["space_streams"], strict=True):
            generator.state = state
        streams.set_global_state(saved["streams"])


def _normaliser_state(normaliser: VecNormalize | None) -> dict[str, Any] | None:
    if normaliser is None:
        return None
    # Not all are there: `obs_rms` where observations are normalised, `old_obs` after a reset.
    names = (*NORMALISER_SETTINGS, *_STATISTICS)
    return {name: value for name, value in vars(normaliser).items() if name in names}


def _memory(model: BaseAlgorithm) -> list[torch.Tensor]:
    """Return what a recurrent policy remembers of the episodes in progress."""
    return [state for pair in getattr(model, "_last_lstm_states", ()) for state in pair]


def _counters(model: BaseAlgorithm) -> list[str]:
    """List the attributes that training counts in, those a subclass names too."""
    of_class = getattr(model, "saved_attributes", ())
    return [name for name in (*_COUNTERS, *of_class) if hasattr(model, name)]


def _is_plain(value: object) -> bool:
    return type(value) in (bool, int, float, str) or isinstance(value, np.generic)


def _generators(model: BaseAlgorithm) -> list[Any]:
    """List the generators that the spaces of a model sample from.

    A `Dict` draws nothing itself, and asking it for its generator seeds those of its parts anew.
    """
    spaces: list[Any] = [model.action_space, model.observation_space]
    parts = [
        part
        for space in spaces
        for part in (space.values() if isinstance(space, gym.spaces.Dict) else (space,))
    ]
    return [part.np_random.bit_generator for part in parts]


def _buffer_state(buffer: Any) -> dict[str, Any]:
    """Return the filled part of a replay buffer.

    A buffer of a million steps that holds a thousand costs a thousand. The next row is filled too,
    as it may hold the latest observation.
    """
    rows = buffer.buffer_size if buffer.full else min(buffer.pos + 1, buffer.buffer_size)
    arrays = {name: array[:rows] for name, array in _rows(buffer).items()}
    state = {"pos": buffer.pos, "full": buffer.full, "arrays": arrays}
    if hasattr(buffer, _EPISODES):  # of hindsight replay, whose `infos` are objects
        state[_EPISODES] = getattr(buffer, _EPISODES)
        state["infos"] = buffer.infos[:rows].tolist() if buffer.copy_info_dict else []
    return state


def _restore_buffer(buffer: Any, state: Mapping[str, Any]) -> None:
    """Fill a new replay buffer.

    Raises:
        KeyError, ValueError: an array is missing or has another shape or type.
    """
    for name, rows in _rows(buffer).items():
        saved = state["arrays"][name]
        filled = rows[: len(saved)]
        # NumPy would spread another shape, and convert another type, without a word.
        if saved.shape != filled.shape or saved.dtype != filled.dtype:
            raise ValueError(f"{name} has another shape or type")
        filled[:] = saved
    if _EPISODES in state:
        setattr(buffer, _EPISODES, state[_EPISODES])
        buffer.infos[: len(state["infos"])] = state["infos"]
    buffer.pos = state["pos"]
    buffer.full = state["full"]


def _rows(buffer: Any) -> dict[str, Any]:
    """Return the arrays of a replay buffer, whose first axis counts steps.

    Observations of several parts have an array each.
    """
    named: dict[str, Any] = {}
    for name, value in vars(buffer).items():
        if isinstance(value, dict):
            named |= {f"{name}.{part}": array for part, array in value.items()}
        else:
            named[name] = value
    return {
        name: array
        for name, array in named.items()
        if isinstance(array, np.ndarray)
        and array.ndim
        and len(array) == buffer.buffer_size
        and array.dtype != object
        and name != _EPISODES
    }
