"""Makes environments of Gymnasium as a study file describes them.

Nothing here needs torch or Stable-Baselines3.
"""

from __future__ import annotations

import importlib.util
import sysconfig
import traceback
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym

import autorl
from autorl.core.plain_text import did_you_mean, printable, shortened
from autorl.core.plain_values import plain
from autorl.core.plugins import named_class
from autorl.core.types import EnvironmentSpec, InputError
from autorl.population.gymnasium_variants import make
from autorl.trainers.sb3.named_classes import with_arguments
from autorl.trainers.sb3.suites import IMAGE_WRAPPERS, suite_of
from autorl.trainers.sb3.wrappers import PACKAGE, REWARD_WEIGHTS, WeightedReward, components

# Of an environment's own space, at every environment that is made: MO-Gymnasium's deep sea said it
# fourteen times above a result. A filter for each would have other warnings repeated.
warnings.filterwarnings("ignore", message=".*precision lowered by casting")


def wrapped(
    env: gym.Env[Any, Any], wrappers: Sequence[object], folders: tuple[str, ...] = ()
) -> gym.Env[Any, Any]:
    """Put a study file's wrappers around an environment, in their order.

    Raises:
        InputError: a wrapper is missing, or does not fit.
    """
    for entry in wrappers:
        for target, kwargs in with_arguments(entry, "environment.wrappers"):
            wrapper = named_class(target, "environment.wrappers", folders=folders)
            _check_image(target, env)
            env = _wrapped(wrapper, env, target, kwargs)
    return env


def _wrapped(
    wrapper: Any, env: gym.Env[Any, Any], target: str, kwargs: Mapping[str, Any]
) -> gym.Env[Any, Any]:
    try:
        wrapped: gym.Env[Any, Any] = wrapper(env, **kwargs)
    except gym.error.DependencyNotInstalled as error:
        raise InputError(
            f"{target!r} needs a library that is missing: {error}", key="environment.wrappers"
        ) from error
    except (TypeError, ValueError, AssertionError) as error:
        text = shortened(" ".join(str(error).split()))
        raise InputError(
            f"{target!r} cannot be put around the environment: {text}", key="environment.wrappers"
        ) from error
    # An environment of its own would hide the task: every run would be of another.
    if not (isinstance(wrapped, gym.Wrapper) or hasattr(wrapped, "env")):
        raise InputError(f"{target!r} is no wrapper of environments", key="environment.wrappers")
    return wrapped


def _check_image(target: str, env: gym.Env[Any, Any]) -> None:
    """Check what wrappers of images find out only at their first frame.

    Raises:
        InputError: there is no image, or no library that changes its size.
    """
    if target not in IMAGE_WRAPPERS:
        return
    shape = env.observation_space.shape or ()
    if len(shape) != 3:
        raise InputError(
            f"{target!r} is for images of height, width and colour, the observations have the "
            f"shape {shape}",
            key="environment.wrappers",
        )
    if importlib.util.find_spec("cv2") is None:
        raise InputError(
            f'{target!r} needs OpenCV: pip install "autorl[atari]"', key="environment.wrappers"
        )


def make_task(spec: EnvironmentSpec) -> gym.Env[Any, Any]:
    """Make the task of an environment as `gymnasium.make` does, perhaps a variant.

    A reward that is a vector becomes a number, weighted by the argument `reward_weights`.

    Raises:
        InputError: the id, its module or a library it needs is missing, or its arguments are wrong.
    """
    assert spec.id is not None
    module, colon, name = spec.id.rpartition(":")
    if colon and not (module and name):
        raise InputError(
            f"expected an id as in CartPole-v1 or module:Env-v0, got {spec.id!r}",
            key="environment.id",
        )
    suite = suite_of(spec.id)
    if suite is not None:
        suite.require(spec.id)
    # Before Gymnasium, which warns of an old version and then has none of it.
    if not colon and name not in gym.registry:
        raise _unknown(spec.id, name)
    # Gymnasium's checker stops at a reward that is a vector.
    of_vectors = spec.id.partition(":")[0] == PACKAGE
    options = {"disable_env_checker": True} if of_vectors else {}
    arguments = {**options, **plain(spec.kwargs)}
    weights = arguments.pop(REWARD_WEIGHTS, None)
    try:
        task = make(spec.id, **arguments)
        if components(task):
            return WeightedReward(task, weights)
        # Any other may have an argument of this name for itself.
        return task if weights is None else make(spec.id, **arguments, reward_weights=weights)
    except ModuleNotFoundError as error:
        raise InputError(
            f"the module of {spec.id!r} cannot be imported: {error}", key="environment.id"
        ) from error
    # Before `gym.error.Error`, of which it is one.
    except gym.error.DependencyNotInstalled as error:
        raise InputError(
            f"{spec.id!r} needs a library that is missing: {error}", key="environment.id"
        ) from error
    except gym.error.Error as error:
        raise _unknown(spec.id, name) from error
    except TypeError as error:
        # Then the fault is the environment's own.
        if not spec.kwargs:
            raise
        raise InputError(
            f"{spec.id!r} does not take these arguments: {error}", key="environment.kwargs"
        ) from error


def _unknown(id: str, name: str) -> InputError:
    where = "`module:Env-v0` imports a module that registers it"
    hint = did_you_mean(name, gym.registry, where)
    return InputError(f"no environment {id!r}{hint}", key="environment.id")


_LONGEST = 300  # characters of what was raised
_ON_THE_WAY = tuple(Path(file).resolve().parent for file in (autorl.__file__, gym.__file__))
_LIBRARIES = tuple(
    Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib")
)


@contextmanager
def faults_in_one_line(spec: EnvironmentSpec) -> Iterator[None]:
    """Raise what an environment raises as an error of the study file.

    Raises:
        InputError: with type, message and place of what was raised.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        text = printable(" ".join(str(error).split()), keep_lines=False)
        raised = ": ".join(filter(None, (type(error).__name__, shortened(text, _LONGEST))))
        message = f"{spec.id!r} raised {raised}{_place(error)}"
        raise InputError(message, key="environment") from error


def _place(error: Exception) -> str:
    """Say where in the user's files something was raised.

    If none of the user's files took part, it is the last line of the environment's own package.
    """
    # Its text says the line that cannot be read; the traceback ends in what imports it.
    if isinstance(error, SyntaxError):
        return ""
    frames = [
        (Path(frame.filename), frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_file() and not _is_below(Path(frame.filename), _ON_THE_WAY)
    ]
    of_user = [frame for frame in frames if not _is_below(frame[0], _LIBRARIES)]
    if not frames:
        return ""
    path, line = (of_user or frames)[-1]
    return f" ({path}:{line})"


def _is_below(file: Path, folders: Collection[Path]) -> bool:
    return any(file.resolve().is_relative_to(folder) for folder in folders)
