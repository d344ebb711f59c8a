"""A first stage: what the second begins with, and what is trained once."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the extra rlhf")

from rlhf_support import one_thread  # noqa: F401
from segments import segment, train
from test_trl_contract import task as task_of_contract

from autorl.core.types import FrozenMap, Status
from autorl.store.checkpoints import STAGES, file_hash
from autorl.trainers.trl.segment_trainer import TRLRun

task = task_of_contract
SFT = {"learning_rate": 1e-2, "per_device_train_batch_size": 8}
FIRST = {"first.steps": 2} | {f"first.{name}": value for name, value in SFT.items()}


def stage(name, task, config, until, folder, **more):
    scratch = str(folder.parent / f".tmp-{folder.name}")
    of_run = {"episodes": 4, "seed": 3, "horizon": until, "scratch": scratch, **more}
    return train(segment(f"trl/{name}", task, SFT | config, until, folder, **of_run))


def model(outcome):
    return file_hash(Path(outcome.checkpoint.path) / "model.safetensors")


def test_the_second_begins_with_what_the_first_has_trained_once(task, tmp_path, monkeypatch):
    """Against two trainings by hand, the second of a task whose policy the first made."""
    alone = stage("sft", task, {}, 2, tmp_path / "sft")
    files = FrozenMap({**task.kwargs, "model": alone.checkpoint.path})
    after = stage("dpo", replace(task, kwargs=files), {}, 4, tmp_path / "dpo")
    trained, train_run = [], TRLRun.train
    monkeypatch.setattr(
        TRLRun, "train", lambda run, to: trained.append(run.name) or train_run(run, to)
    )
    whole = stage("dpo", task, FIRST, 4, tmp_path / "whole")
    assert model(whole) == model(after) != model(alone)
    assert trained == ["trl/sft", "trl/dpo"]
    half = stage("dpo", task, FIRST, 2, tmp_path / "half", horizon=4, evaluate_at=())
    (kept,) = (tmp_path / STAGES).iterdir()
    again = stage("dpo", task, FIRST, 4, tmp_path / "again", after=half)
    assert trained[2:] == ["trl/dpo"] * 2
    assert model(again) == model(whole)
    assert again.reports[-1].metrics == whole.reports[-1].metrics
    sampled = [one.reports[-1].metrics["tokens"] for one in (alone, after, whole)]
    assert sampled[0] + sampled[1] == sampled[2]
    (kept / "model.safetensors").unlink()
    with pytest.raises(OSError, match="safetensors"):
        stage("dpo", task, FIRST, 4, tmp_path / "torn")


def test_a_first_stage_that_diverges_is_the_end_of_the_run(task, tmp_path):
    outcome = stage("dpo", task, FIRST | {"first.learning_rate": 1e30}, 2, tmp_path / "one")
    assert (outcome.status, outcome.reached) == (Status.DIVERGED, 0)
    assert outcome.message.startswith("in the first stage: parameters are not finite")
    assert not (tmp_path / STAGES).exists()
