"""Losses are stored with a run, and Stable-Baselines3's own log on request."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("stable_baselines3")

import torch
from segments import run, run_well, segment

from autorl.core.types import EnvironmentSpec, Fence, Outcome, SegmentId
from autorl.trainers.sb3 import trainer as trainer_module
from autorl.trainers.sb3.algorithms import ALGORITHMS

torch.set_num_threads(1)  # as the executors do
ON_POLICY = {"n_steps": 32, "net_arch": [8]}
OFF_POLICY = {"learning_starts": 16, "batch_size": 8, "buffer_size": 200, "net_arch": [8]}
CONFIGS: dict[str, dict[str, Any]] = {
    "ppo": {**ON_POLICY, "batch_size": 32, "n_epochs": 1},
    "a2c": ON_POLICY,
    "dqn": OFF_POLICY,
    "sac": {**OFF_POLICY, "train_freq": 8},
    "td3": {**OFF_POLICY, "train_freq": 8, "policy_delay": 1},
    "ddpg": {**OFF_POLICY, "train_freq": 8},
    "tqc": {**OFF_POLICY, "train_freq": 8},
    "qrdqn": OFF_POLICY,
    "crossq": {**OFF_POLICY, "train_freq": 8, "policy_delay": 1},
    "trpo": {**ON_POLICY, "batch_size": 32, "n_critic_updates": 1},
    "recurrent_ppo": {**ON_POLICY, "batch_size": 32, "n_epochs": 1, "lstm_hidden_size": 4},
    "maskable_ppo": {**ON_POLICY, "batch_size": 32, "n_epochs": 1},
}
# What `train` logs beside losses: hyperparameters and counters.
NO_LOSSES = {"n_updates", "learning_rate", "clip_range", "clip_range_vf"}


def trained(folder: Path, algorithm: str = "ppo", until: int = 64, **options: Any) -> Outcome:
    """Train a segment of a study in `folder`."""
    after: Outcome | None = options.pop("after", None)
    number = options.pop("number", 0)
    folder.mkdir(exist_ok=True)
    discrete = "Discrete" in ALGORITHMS[algorithm].actions
    environment = "CartPole-v1" if discrete else "Pendulum-v1"
    wrappers = ["trainer_environments:WithMasks"] if ALGORITHMS[algorithm].masked else []
    place = folder / "checkpoints" / str(number)
    place.parent.mkdir(exist_ok=True)
    of_run = {"after": after, "horizon": 128, "evaluate_at": (until - 20, until), "episodes": 1}
    of_run |= {"log": str(folder / "logs" / f"{number}.1.log"), "fence": Fence(2, 1)}
    of_run |= {"id": SegmentId(number, 1)}
    spec = EnvironmentSpec(environment, wrappers=tuple(wrappers))
    config = CONFIGS[algorithm]
    return run_well(segment(f"sb3/{algorithm}", spec, config, until, place, options, **of_run))


@pytest.mark.parametrize("algorithm", sorted(CONFIGS))
def test_the_losses_of_an_algorithm_are_those_its_library_logs(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = ALGORITHMS[algorithm].library
    pytest.importorskip(library, reason=f"needs {library}")
    logged: set[str] = set()
    note_losses = trainer_module._Run._note_losses

    def recording(run: Any) -> None:
        logged.update(name for name in run.model.logger.name_to_value if name.startswith("train/"))
        note_losses(run)

    monkeypatch.setattr(trainer_module._Run, "_note_losses", recording)
    outcome = trained(tmp_path, algorithm)
    names = {name.removeprefix("train/") for name in logged} - NO_LOSSES
    # Of continuous actions: CartPole has none.
    assert set(ALGORITHMS[algorithm].losses) - {"std"} == names
    metrics = outcome.reports[-1].metrics
    losses = {name for name in names if f"train_{name}" in metrics}
    assert losses | {"explained_variance"} >= names
    assert all(math.isfinite(value) for value in metrics.values())


def test_a_cut_run_reports_the_losses_of_the_uncut_one(tmp_path: Path) -> None:
    whole = trained(tmp_path, until=128)
    half = trained(tmp_path, number=1)
    rest = trained(tmp_path, until=128, number=2, after=half)
    assert [report.metrics for report in rest.reports] == [
        report.metrics for report in whole.reports
    ]
    # Evaluated before its first update: what it has is of the checkpoint.
    assert "train_approx_kl" in rest.reports[0].metrics


def test_no_file_is_written_unasked(tmp_path: Path) -> None:
    trained(tmp_path)
    assert not list((tmp_path / "logs").glob("*-*"))


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_csv_and_tensorboard_logs_lie_beside_the_segment_s(algorithm: str, tmp_path: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="needs tensorboard"
    )
    logged = trained(tmp_path / "a", algorithm, until=128, logs=["csv", "tensorboard"])
    folder = tmp_path / "a" / "logs" / "0.1-2-1"
    with (folder / "progress.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert int(rows[-1]["time/total_timesteps"]) == 128
    assert float(rows[-1]["eval/mean_reward"]) == logged.reports[-1].metrics["eval_return"]
    loss = "train/approx_kl" if algorithm == "ppo" else "train/loss"
    assert len([row for row in rows if row[loss]]) >= 3
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    scalars = events.Scalars(loss)
    assert scalars[-1].step == 128
    # The files change nothing: the same run without them is the same.
    silent = trained(tmp_path / "b", algorithm, until=128)
    assert silent.reports == logged.reports


def test_logs_that_have_no_place_are_said(tmp_path: Path) -> None:
    options = {"logs": "csv"}
    outcome = run(segment("sb3/ppo", "CartPole-v1", CONFIGS["ppo"], 32, None, options))
    assert outcome.notes == ("training logs are not kept: there is no folder of a study here",)
