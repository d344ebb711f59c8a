"""Checkpoints of SB3 runs are data: nothing that a stranger can write in them runs, and a torn one is an error."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import earlier_checkpoints
import torch
from stable_baselines3 import DQN, PPO
from typer.testing import CliRunner

from autorl.cli import app
from autorl.plain_text import counted
from autorl.store import signing
from autorl.trainers import load
from autorl.trainers.sb3 import checkpoint, files
from autorl.trainers.sb3.environment_state import capture, restore
from autorl.trainers.sb3.environments import make_environment
from autorl.types import (
    CheckpointError,
    Config,
    EnvironmentSpec,
    FrozenMap,
    Outcome,
    Segment,
    Status,
    TrainerSpec,
)

torch.set_num_threads(1)  # as the executors do
CARTPOLE = EnvironmentSpec("CartPole-v1")
NORMALISED = EnvironmentSpec("CartPole-v1", n_envs=2, normalize=True)
OPAQUE = EnvironmentSpec("trainer_environments:OpaqueTest-v0")
PPO_KWARGS = FrozenMap(n_steps=16, batch_size=16, n_epochs=1, net_arch=(8,))
DQN_KWARGS = FrozenMap(learning_starts=16, batch_size=8, buffer_size=100, net_arch=(8,))
NOT_OPENED = (
    "environment state not opened, a pickle this installation did not write (--trust opens it)"
)


class Hostile:
    """What runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.mark}",)


def train(
    folder: Path, name: str = "ppo", environment: EnvironmentSpec = CARTPOLE, **changes: Any
) -> Outcome:
    """A segment of 64 steps, or one of 64 more `after` another."""
    spec = TrainerSpec(f"sb3/{name}", PPO_KWARGS if name == "ppo" else DQN_KWARGS)
    values: dict[str, Any] = {
        "id": folder.name,
        "seed": 1,
        "role": "tuning",
        "until": 64,
        "horizon": 128,
        "episodes": 1,
    }
    before: Outcome | None = changes.pop("after", None)
    if before is not None:
        values |= {"parent": before.checkpoint, "start": before.reached, "until": 128}
    values |= {
        "save": True,
        "folder": str(folder),
        "environment": environment,
        "evaluate_at": (128,),
    }
    segment = Segment(trainer=spec, config=Config(), **(values | changes))
    return load(spec).train(segment, lambda report: None)


def networks(outcome: Outcome) -> dict[str, Any]:
    assert outcome.checkpoint is not None
    return dict(checkpoint.read(outcome.checkpoint).networks()["parameters"]["policy"])


def same(one: Outcome, other: Outcome) -> bool:
    """Whether two runs ended with the same networks, to the bit, and the same scores."""
    first, second = networks(one), networks(other)
    equal = first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )
    return equal and [report.metrics for report in one.reports] == [
        report.metrics for report in other.reports
    ]


def folder_of(outcome: Outcome) -> Path:
    assert outcome.checkpoint is not None
    return Path(outcome.checkpoint.path)


@pytest.fixture
def earlier(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Checkpoints are written as by earlier versions until this is undone."""
    monkeypatch.setattr(checkpoint, "save", earlier_checkpoints.save)
    return monkeypatch


# -- nothing runs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_a_run_goes_on_without_unpickling_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    whole, first = train(tmp_path / "whole", name, until=128), train(tmp_path / "first", name)
    assert {path.suffix for path in folder_of(first).iterdir()} == {".json", ".npz"}

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("something was unpickled")

    with monkeypatch.context() as patched:
        for module, function in (
            (pickle, "load"),
            (pickle, "loads"),
            (pickle, "Unpickler"),
            (torch, "load"),
        ):
            patched.setattr(module, function, refuse)
        second = train(tmp_path / "second", name, after=first)
    assert second.notes == ()
    assert same(second, whole)


def test_a_hostile_pickle_beside_a_checkpoint_is_not_looked_at(tmp_path: Path) -> None:
    whole, first = train(tmp_path / "whole", until=128), train(tmp_path / "first")
    for name in ("training.pkl", "replay_buffer.pkl", "vecnormalize.pkl", "model.zip"):
        (folder_of(first) / name).write_bytes(pickle.dumps(Hostile(tmp_path / "mark")))
    assert same(train(tmp_path / "second", after=first), whole)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("name", ["training.pkl", "replay_buffer.pkl", "vecnormalize.pkl"])
def test_a_hostile_pickle_of_an_earlier_version_is_one_line(
    tmp_path: Path, earlier: pytest.MonkeyPatch, name: str
) -> None:
    first = train(tmp_path / "first", "dqn", EnvironmentSpec("CartPole-v1", normalize=True))
    earlier.undo()
    (folder_of(first) / name).write_bytes(pickle.dumps(Hostile(tmp_path / "mark")))
    with pytest.raises(
        CheckpointError, match=rf"{name}: is a pickle that asks for \w+\.system: not opened"
    ) as caught:
        train(
            tmp_path / "second", "dqn", EnvironmentSpec("CartPole-v1", normalize=True), after=first
        )
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "mark").exists()


def test_a_hostile_model_of_an_earlier_version_is_not_opened(
    tmp_path: Path, earlier: pytest.MonkeyPatch
) -> None:
    """Its document holds pickles in base64: what runs is not what is read."""
    import base64
    import zipfile

    first = train(tmp_path / "first")
    earlier.undo()
    path, hostile = (
        folder_of(first) / "model.zip",
        base64.b64encode(pickle.dumps(Hostile(tmp_path / "mark"))).decode(),
    )
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    document = json.loads(contents["data"])
    for entry in document.values():
        if isinstance(entry, dict) and ":serialized:" in entry:
            entry[":serialized:"] = hostile
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (contents | {"data": json.dumps(document).encode()}).items():
            archive.writestr(name, content)
    with pytest.raises(CheckpointError, match=r"model\.zip: is a pickle that asks for"):
        train(tmp_path / "second", after=first)
    assert not (tmp_path / "mark").exists()


# -- environments ------------------------------------------------------------------------------------------------------

CLASSIC = (
    "CartPole-v1",
    "Pendulum-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "FrozenLake-v1",
)


@pytest.mark.parametrize(
    "name", [*CLASSIC, "trainer_environments:LineTest-v0", "trainer_environments:SpacesTest-v0"]
)
def test_the_state_of_an_environment_is_data_that_goes_on_alike(name: str) -> None:
    spec = EnvironmentSpec(name)
    original, copy = make_environment(spec), make_environment(spec)
    original.reset(seed=3)
    original.action_space.seed(4)
    for _ in range(5):
        original.step(original.action_space.sample())
    captured = capture(original, lambda: make_environment(spec))
    assert captured is not None
    document, arrays = captured
    restore(copy, json.loads(json.dumps(document)), arrays)
    for _ in range(60):
        action = original.action_space.sample()
        assert np.array_equal(action, copy.action_space.sample())
        ours, theirs = original.step(action), copy.step(action)
        assert [_comparable(part) for part in ours[:4]] == [
            _comparable(part) for part in theirs[:4]
        ]
        if ours[2] or ours[3]:
            assert _comparable(original.reset()[0]) == _comparable(copy.reset()[0])


def _comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _comparable(part) for name, part in value.items()}
    return value.tobytes() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize(
    "kind", ["Unpicklable", "EzPickled", "Opaque", "Slotted", "Changing", "Viewing"]
)
def test_an_environment_whose_state_is_not_all_plain_is_not_saved_as_data(kind: str) -> None:
    spec = EnvironmentSpec(f"trainer_environments:{kind}Test-v0")
    env = make_environment(spec)
    env.reset(seed=1)
    assert capture(env, lambda: make_environment(spec)) is None


def test_an_environment_that_is_no_data_is_not_built_a_second_time() -> None:
    """A second simulator may need a licence or a port that the first one holds."""
    env = make_environment(EnvironmentSpec("trainer_environments:UnpicklableTest-v0"))
    env.reset(seed=1)

    def refuse() -> Any:
        raise AssertionError("it was built")

    assert capture(env, refuse) is None


def test_an_environment_that_is_no_data_goes_on_where_it_was_saved(tmp_path: Path) -> None:
    whole, first = (
        train(tmp_path / "whole", environment=OPAQUE, until=128),
        train(tmp_path / "first", environment=OPAQUE),
    )
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
    whole, first = (
        train(tmp_path / "whole", environment=OPAQUE, until=128),
        train(tmp_path / "first", environment=OPAQUE),
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
    second = train(tmp_path / "second", environment=OPAQUE, after=first)
    assert second.status is Status.DONE
    assert second.notes == (f"{NOT_OPENED}: new episodes at step 64",)
    trusted = train(tmp_path / "trusted", environment=OPAQUE, after=first, trust=True)
    assert trusted.notes == ()
    assert same(trusted, whole)


def test_a_pickled_environment_that_was_exchanged_is_not_opened(tmp_path: Path) -> None:
    first = train(tmp_path / "first", environment=OPAQUE)
    path = folder_of(first) / "state.npz"
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays["environment0.pickle"] = np.frombuffer(
        pickle.dumps(Hostile(tmp_path / "mark")), np.uint8
    )
    np.savez(path, allow_pickle=False, **arrays)
    second = train(tmp_path / "second", environment=OPAQUE, after=first)
    assert second.notes == (f"{NOT_OPENED}: new episodes at step 64",)
    assert not (tmp_path / "mark").exists()


def test_without_a_place_for_a_key_episodes_start_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    first = train(tmp_path / "first", environment=OPAQUE)
    assert train(tmp_path / "second", environment=OPAQUE, after=first).notes == (
        f"{NOT_OPENED}: new episodes at step 64",
    )


def test_text_in_the_state_of_an_environment_is_not_restored(tmp_path: Path) -> None:
    """A stranger could name a file in it."""
    first = train(tmp_path / "first")
    path = folder_of(first) / files.DOCUMENT
    text = path.read_text(encoding="utf-8")
    assert '["gravity", 9.8]' in text
    path.write_text(
        text.replace('["gravity", 9.8]', '["gravity", "/etc/passwd"]'), encoding="utf-8"
    )
    second = train(tmp_path / "second", after=first)
    assert second.notes == ("environment state is of another environment: new episodes at step 64",)


# -- torn files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["state.json", "state.npz", "networks.npz", "replay.npz"])
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


@pytest.mark.parametrize("name", ["model.zip", "training.pkl", "replay_buffer.pkl"])
def test_a_truncated_file_of_an_earlier_version_is_an_error_that_names_it(
    tmp_path: Path, earlier: pytest.MonkeyPatch, name: str
) -> None:
    """Of a truncated `model.zip` nothing was restored and training went on with new networks."""
    first = train(tmp_path / "first", "dqn")
    earlier.undo()
    path = folder_of(first) / name
    whole = path.read_bytes()
    for tenth in range(10):
        path.write_bytes(whole[: len(whole) * tenth // 10])
        with pytest.raises(CheckpointError, match=name):
            train(tmp_path / "second", "dqn", after=first)


@pytest.mark.parametrize(
    ("part", "path", "message"),
    [
        (
            "networks",
            ("parameters", "policy.optimizer"),
            r"networks\.npz: policy\.optimizer is missing",
        ),
        ("networks", ("parameters", "policy"), r"networks\.npz: policy is missing"),
        (
            "networks",
            ("parameters", "policy", "q_net.q_net.0.bias"),
            r"networks\.npz: policy is not that of the model",
        ),
        ("replay", ("arrays", "rewards"), r"replay\.npz: rewards is missing"),
        ("state", ("streams",), r"state\.npz: holds no streams"),
    ],
)
def test_what_is_missing_is_named(
    tmp_path: Path, part: str, path: tuple[str, ...], message: str
) -> None:
    first = train(tmp_path / "first", "dqn")
    folder = folder_of(first)
    saved = files.read(folder)
    assert saved.replay is not None
    parts = {"state": dict(saved.state), "networks": saved.networks(), "replay": saved.replay()}
    target: Any = parts[part]
    for name in path[:-1]:
        target = target[name]
    del target[path[-1]]
    shutil.rmtree(folder)
    folder.mkdir()
    assert saved.environments is not None
    files.write(folder, parts, list(saved.environments))
    with pytest.raises(CheckpointError, match=message):
        train(tmp_path / "second", "dqn", after=first)


# -- earlier versions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "environment"), [("ppo", NORMALISED), ("dqn", CARTPOLE)])
def test_a_checkpoint_of_an_earlier_version_goes_on(
    tmp_path: Path, earlier: pytest.MonkeyPatch, name: str, environment: EnvironmentSpec
) -> None:
    """Everything in it but the environments is read as data; on trust they are opened and nothing has changed."""
    first = train(tmp_path / "first", name, environment)
    earlier.undo()
    whole = train(tmp_path / "whole", name, environment, until=128)
    second = train(tmp_path / "second", name, environment, after=first)
    assert second.notes == (f"{NOT_OPENED}: new episodes at step 64",)
    assert (folder_of(second) / files.DOCUMENT).is_file()
    assert not same(second, whole)
    trusted = train(tmp_path / "trusted", name, environment, after=first, trust=True)
    assert trusted.notes == ()
    assert same(trusted, whole)


def test_a_checkpoint_of_an_earlier_version_is_exported_from_its_data(
    tmp_path: Path, earlier: pytest.MonkeyPatch
) -> None:
    first, other = train(tmp_path / "first", "dqn"), train(tmp_path / "other", "ppo", NORMALISED)
    earlier.undo()
    assert first.checkpoint is not None
    assert other.checkpoint is not None
    written = load(TrainerSpec("sb3/dqn", DQN_KWARGS)).export_model(
        first.checkpoint, tmp_path / "dqn.zip"
    )  # type: ignore[attr-defined]
    model, theirs = DQN.load(written.path), DQN.load(folder_of(first) / "model.zip")
    assert all(
        torch.equal(theirs.policy.state_dict()[key], value)
        for key, value in model.policy.state_dict().items()
    )
    assert (model.num_timesteps, model.observation_space) == (64, theirs.observation_space)
    written = load(TrainerSpec("sb3/ppo", PPO_KWARGS)).export_model(
        other.checkpoint, tmp_path / "ppo.zip"
    )  # type: ignore[attr-defined]
    assert len(written.beside) == 1
    assert PPO.load(written.path).n_envs == 2
    assert any("is a program" in note for note in written.notes)


STUDY = """
trainer: {name: sb3/dqn, kwargs: {learning_starts: 16, batch_size: 8, buffer_size: 100, net_arch: [8]}}
environment: {id: CartPole-v1}
space: {learning_rate: {type: float, lower: 0.001, upper: 0.01, default: 0.002}}
fidelity: {steps: 64, evaluations: 2, episodes: 1}
optimizer: {name: successive_halving, rungs: 2, eta: 2}
budget: {runs: 4}
seeds: {tuning: 1, test: []}
keep: {checkpoints: lineage}
parallelism: 1
executor: {name: in_process}
"""


@pytest.mark.parametrize("kind", ["own", "hostile", "trusted"])
def test_a_study_of_an_earlier_version_is_resumed_with_one_line(
    tmp_path: Path, earlier: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "study.yaml").write_text(STUDY, encoding="utf-8")
    folder = tmp_path / "study"
    begun = CliRunner().invoke(
        app, ["tune", str(tmp_path / "study.yaml"), "--out", str(folder), "-q"]
    )
    assert begun.exit_code == 0, begun.output
    with closing(sqlite3.connect(folder / "study.sqlite")) as connection:
        ((begun_continued,),) = connection.execute(
            "SELECT COUNT(*) FROM segments WHERE from_step > 0"
        ).fetchall()
        connection.execute(
            "UPDATE event SET body = json_remove(body, '$.checkpoint_files'), hash = NULL"
        )
        connection.commit()
    earlier.undo()
    pickled = sorted((folder / "checkpoints").glob("*/training.pkl"))
    assert pickled
    for path in pickled if kind == "hostile" else []:
        path.write_bytes(pickle.dumps(Hostile(tmp_path / "mark")))
    trust = ["--trust"] if kind == "trusted" else []
    resumed = CliRunner().invoke(app, ["resume", str(folder), "--runs", "+2", "-q", *trust])
    what = "opened, whatever they run" if trust else "read as data: their environments start anew"
    line = f"caution: pickles in {counted(len(pickled), 'checkpoint')} of an earlier version are {what}"
    assert resumed.exit_code == 0, resumed.output
    said = [text for text in resumed.stderr.splitlines() if "pickle" in text]
    assert said[0] == line
    damaged = ["is damaged" in text and "asks for" in text for text in said[1:]]
    assert all(damaged)
    assert bool(damaged) == (kind == "hostile")
    with closing(sqlite3.connect(folder / "study.sqlite")) as connection:
        continued = connection.execute(
            "SELECT notes, status FROM segments WHERE from_step > 0"
        ).fetchall()
        ((failed,),) = connection.execute(
            "SELECT COUNT(*) FROM segments WHERE status != 'done'"
        ).fetchall()
    notes = [text for text, _ in continued[begun_continued:]]
    assert any(NOT_OPENED in text for text in notes) == (kind == "own")
    assert failed == 0, "damage is charged to no configuration"
    assert not (tmp_path / "mark").exists()
