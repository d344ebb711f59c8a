"""Checkpoints of SB3 runs: nothing that a stranger writes in them runs, and a torn one is an error."""

from __future__ import annotations

import errno
import io
import os
import pickle
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import segments
import torch

from autorl.core.types import (
    CheckpointError,
    EnvironmentSpec,
    FrozenMap,
    Outcome,
    Status,
    StorageError,
    TrainerSpec,
)
from autorl.store import signing
from autorl.trainers.environment_state import (
    NotRestoredError,
    pickle_environment,
    unpickle_environment,
)
from autorl.trainers.saved_state import REPLAY, STATE, read, write
from autorl.trainers.sb3.environments import make_environment

torch.set_num_threads(1)  # as the executors do
CARTPOLE = EnvironmentSpec("CartPole-v1")
NORMALISED = EnvironmentSpec("CartPole-v1", n_envs=2, normalize=True)
OPAQUE = EnvironmentSpec("trainer_environments:OpaqueTest-v0")
PPO_KWARGS = FrozenMap(n_steps=16, batch_size=16, n_epochs=1, net_arch=(8,))
DQN_KWARGS = FrozenMap(learning_starts=16, batch_size=8, buffer_size=100, net_arch=(8,))
NOT_OPENED = (
    "environment state not opened, a pickle this installation did not write (--trust opens it): "
    "new episodes at step 64"
)


class Hostile:
    """Object that runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.mark}",)


def train(
    folder: Path, name: str = "ppo", environment: EnvironmentSpec = CARTPOLE, **changes: Any
) -> Outcome:
    """A segment of 64 steps, or one of 64 more `after` another."""
    spec = TrainerSpec(f"sb3/{name}", PPO_KWARGS if name == "ppo" else DQN_KWARGS)
    until = changes.pop("until", 64 if changes.get("after") is None else 128)
    of_run = {"horizon": 128, "episodes": 1, "evaluate_at": (128,)} | changes
    return segments.train(segments.segment(spec, environment, None, until, folder, **of_run))


def networks(outcome: Outcome) -> dict[str, Any]:
    assert outcome.checkpoint is not None
    return dict(read(folder_of(outcome) / STATE)["parameters"]["policy"])


def same(one: Outcome, other: Outcome) -> bool:
    """Whether two runs ended with the same networks, to the bit, and the same scores."""
    first, second = networks(one), networks(other)
    scores = [[report.metrics for report in outcome.reports] for outcome in (one, other)]
    equal = all(torch.equal(first[name], second[name]) for name in first)
    return first.keys() == second.keys() and equal and scores[0] == scores[1]


def folder_of(outcome: Outcome) -> Path:
    assert outcome.checkpoint is not None
    return Path(outcome.checkpoint.path)


# -- nothing runs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [STATE, REPLAY])
def test_a_file_that_holds_more_than_data_runs_nothing(tmp_path: Path, name: str) -> None:
    first = train(tmp_path / "first", "dqn")
    torch.save({"more": Hostile(tmp_path / "mark")}, folder_of(first) / name)
    with pytest.raises(CheckpointError, match=f"{name}: cannot be read"):
        train(tmp_path / "second", "dqn", after=first)
    assert not (tmp_path / "mark").exists()


def test_more_than_data_is_not_written(tmp_path: Path) -> None:
    """Nobody could read it: what a user's own optimizer keeps, for instance."""
    with pytest.raises(TypeError, match="would hold more than data"):
        write(tmp_path / STATE, {"optimizer": Hostile(tmp_path / "mark")})
    assert not (tmp_path / "mark").exists()


def test_the_order_of_axes_in_memory_comes_back(tmp_path: Path) -> None:
    """A convolution rounds by it."""
    images = np.zeros((2, 5, 4, 3), np.uint8).transpose(0, 3, 1, 2)
    write(tmp_path / STATE, {"image": images})
    assert read(tmp_path / STATE)["image"].strides == images.strides


# -- environments ------------------------------------------------------------------------------------------------------

CLASSIC = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0")
CLASSIC += ("MountainCarContinuous-v0", "FrozenLake-v1")


OWN = [f"trainer_environments:{kind}Test-v0" for kind in ("Line", "Spaces", "Opaque", "Slotted")]


@pytest.mark.parametrize("name", [*CLASSIC, *OWN])
def test_an_environment_goes_on_alike(name: str) -> None:
    spec = EnvironmentSpec(name)
    original = make_environment(spec)
    original.reset(seed=3)
    original.action_space.seed(4)
    for _ in range(5):
        original.step(original.action_space.sample())
    copy = unpickle_environment(pickle_environment(original), make_environment(spec), trust=False)
    for _ in range(60):
        action = original.action_space.sample()
        assert np.array_equal(action, copy.action_space.sample())
        ours, theirs = original.step(action), copy.step(action)
        assert list(map(_comparable, ours[:4])) == list(map(_comparable, theirs[:4]))
        if ours[2] or ours[3]:
            assert _comparable(original.reset()[0]) == _comparable(copy.reset()[0])


def _comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _comparable(part) for name, part in value.items()}
    return value.tobytes() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("kind", ["Unpicklable", "EzPickled", "Viewing"])
def test_an_environment_whose_copy_would_be_another_is_not_saved(kind: str) -> None:
    env = make_environment(EnvironmentSpec(f"trainer_environments:{kind}Test-v0"))
    env.reset(seed=1)
    assert pickle_environment(env) == b""


def test_an_environment_is_not_taken_for_another() -> None:
    state = pickle_environment(make_environment(CARTPOLE))
    with pytest.raises(NotRestoredError, match="is of another environment"):
        unpickle_environment(state, make_environment(EnvironmentSpec("Acrobot-v1")), trust=False)
    with pytest.raises(NotRestoredError, match="cannot be read"):
        unpickle_environment(state[:-9], make_environment(CARTPOLE), trust=True)


def test_a_run_goes_on_where_its_environment_was_saved(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", environment=OPAQUE, until=128)
    first = train(tmp_path / "first", environment=OPAQUE)
    second = train(tmp_path / "second", environment=OPAQUE, after=first)
    assert second.notes == ()
    assert same(second, whole)
    key = signing.key_file()
    assert key is not None
    assert key.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_signed_environments_go_on_in_processes_of_their_own(tmp_path: Path) -> None:
    beside = EnvironmentSpec(OPAQUE.id, n_envs=2, vec_env="subproc")
    whole, first = (
        train(tmp_path / "whole", environment=beside, until=128),
        train(tmp_path / "first", environment=beside),
    )
    second = train(tmp_path / "second", environment=beside, after=first)
    assert second.notes == ()
    assert same(second, whole)


def test_a_pickled_environment_of_another_installation_is_opened_on_trust_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(tmp_path / "whole", environment=OPAQUE, until=128)
    first = train(tmp_path / "first", environment=OPAQUE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
    second = train(tmp_path / "second", environment=OPAQUE, after=first)
    assert second.status is Status.DONE
    assert second.notes == (NOT_OPENED,)
    trusted = train(tmp_path / "trusted", environment=OPAQUE, after=first, trust=True)
    assert trusted.notes == ()
    assert same(trusted, whole)


def test_a_pickled_environment_that_was_exchanged_is_not_opened(tmp_path: Path) -> None:
    first = train(tmp_path / "first")
    file = folder_of(first) / STATE
    state = read(file)
    signature = state["environments"][0][:64]
    hostile = zlib.compress(pickle.dumps(Hostile(tmp_path / "mark")))
    for forged in (signature, b"\xff" * 64):
        state["environments"] = [forged + hostile]
        write(file, state)
        second = train(tmp_path / "second", after=first)
        assert second.notes == (NOT_OPENED,)
    assert not (tmp_path / "mark").exists()


def test_without_a_place_for_a_key_episodes_start_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    first = train(tmp_path / "first", environment=OPAQUE)
    assert train(tmp_path / "second", environment=OPAQUE, after=first).notes == (NOT_OPENED,)


class FailingFile(io.FileIO):
    """A file whose read number `at` the disk does not answer."""

    at = 0

    def readinto(self, buffer: Any) -> int:
        self.at -= 1
        if self.at < 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().readinto(buffer)


@pytest.mark.parametrize("at", range(2))
def test_a_disk_that_does_not_give_a_file_is_no_torn_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    write(tmp_path / STATE, {"weights": torch.zeros(50_000)})
    monkeypatch.setattr(FailingFile, "at", at)
    monkeypatch.setattr(Path, "open", lambda path, mode: io.BufferedReader(FailingFile(path)))
    with pytest.raises(StorageError, match="Input/output error"):
        read(tmp_path / STATE)


# -- torn files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [STATE, REPLAY])
def test_a_truncated_file_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    first = train(tmp_path / "first", "dqn")
    path = folder_of(first) / name
    whole = path.read_bytes()
    for tenth in range(10):
        path.write_bytes(whole[: len(whole) * tenth // 10])
        with pytest.raises(CheckpointError, match=name) as caught:
            train(tmp_path / "second", "dqn", after=first)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "second").exists()
    path.write_bytes(whole)
    assert train(tmp_path / "second", "dqn", after=first).status is Status.DONE


@pytest.mark.parametrize(
    ("name", "path", "message"),
    [
        (STATE, ("parameters", "policy.optimizer"), "Names of parameters do not match"),
        (STATE, ("parameters", "policy", "q_net.q_net.0.bias"), "Error"),
        (STATE, ("streams",), "streams"),
        (REPLAY, ("arrays", "rewards"), "rewards"),
    ],
)
def test_what_is_missing_is_named(
    tmp_path: Path, name: str, path: tuple[str, ...], message: str
) -> None:
    first = train(tmp_path / "first", "dqn")
    state = read(folder_of(first) / name)
    target: Any = state
    for part in path[:-1]:
        target = target[part]
    del target[path[-1]]
    write(folder_of(first) / name, state)
    with pytest.raises(CheckpointError, match=rf"{name}: is not of this model \(.*{message}"):
        train(tmp_path / "second", "dqn", after=first)


def test_rows_of_another_type_are_not_converted(tmp_path: Path) -> None:
    first = train(tmp_path / "first", "dqn")
    state = read(folder_of(first) / REPLAY)
    state["arrays"]["rewards"] = state["arrays"]["rewards"].astype(float)
    write(folder_of(first) / REPLAY, state)
    with pytest.raises(CheckpointError, match="rewards has another shape or type"):
        train(tmp_path / "second", "dqn", after=first)
