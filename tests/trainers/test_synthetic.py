from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import segments
from refusals import expect_error

from autorl.core.types import Config, EnvironmentSpec, FrozenMap, Segment, Status, TrainerSpec
from autorl.testing.trainers import Case, TrainerConformance
from autorl.trainers import load


def spec(**kwargs: Any) -> TrainerSpec:
    return TrainerSpec("synthetic", FrozenMap(kwargs))


def segment(config: Config, tmp_path: Path | None = None, **changes: Any) -> Segment:
    of_run = {"until": 1000, "horizon": 1000, "evaluate_at": (250, 500, 1000), "seed": 0}
    of_run |= {"folder": Path(tmp_path or "/") / "s", "save": False}
    return segments.segment(spec(), config=config, **of_run | changes)


class TestSynthetic(TrainerConformance):
    case = Case(
        spec(noise=0.1, interaction=0.01, drift=0.3),
        configs=(Config(x=0.2, y=0.5), Config(x=0.7, y=0.5)),
        horizon=1000,
    )


class TestSyntheticRollouts(TrainerConformance):
    case = Case(
        spec(noise=0.1, rollout=48, optimum={"lr": 1e-3}, log=["lr"], bounds={"lr": [1e-5, 1e-1]}),
        configs=(Config(lr=1e-4), Config(lr=2e-3)),
        horizon=960,
    )


def test_the_score_of_the_optimum_is_the_height_and_falls_quadratically() -> None:
    options = {"bounds": {"lr": [1e-5, 1e-1]}, "log": ["lr"], "height": 2.0}
    trainer: Any = load(spec(optimum={"lr": 1e-3, "gamma": 0.9}, **options))
    best = Config(trainer.optimum)
    assert trainer.score(best, 0, 1000, 1000) == pytest.approx(2.0, abs=1e-8)
    # lr one decade off is 0.25 of the unit interval, weights are equal: quality 1 - 0.25^2 / 2
    farther = trainer.score(Config(best, lr=1e-2), 0, 1000, 1000)
    assert farther == pytest.approx(2.0 * (1 - 0.25**2 / 2), abs=1e-8)


def test_the_curve_saturates_and_training_reports_the_closed_form() -> None:
    trainer: Any = load(spec(rate=3.0, noise=0.2))
    config = Config(x=0.3)
    outcome = trainer.train(segment(config, seed=5), lambda report: None)
    scores = [report.metrics["eval_return"] for report in outcome.reports]
    assert scores == [trainer.score(config, 5, step, 1000) for step in (250, 500, 1000)]
    noise = scores[-1] - 1.0
    expected = (1 - np.exp(-3 * 0.5)) / (1 - np.exp(-3)) + noise
    assert scores[1] == pytest.approx(expected, abs=1e-8)


def test_seed_noise_is_common_to_all_configurations() -> None:
    trainer: Any = load(spec(noise=0.5))
    differences = [
        trainer.score(Config(x=0.3), seed, 9, 10) - trainer.score(Config(x=0.8), seed, 9, 10)
        for seed in range(5)
    ]
    assert np.ptp(differences) < 1e-12
    spread = np.std([trainer.score(Config(x=0.3), seed, 10, 10) for seed in range(200)])
    assert 0.4 < spread < 0.6  # 200 normal draws: 4 standard errors of 0.5 are 0.1


def test_a_moving_optimum_rewards_following_it(tmp_path: Path) -> None:
    trainer: Any = load(spec(optimum={"x": 0.2}, drift=0.6))
    half = segment(Config(x=0.35), tmp_path, until=500, evaluate_at=(500,), save=True)
    own = {"id": "t", "parent": trainer.train(half, print).checkpoint, "start": 500}
    scores = {}
    for x in (0.35, 0.65):
        after = segment(Config(x=x), tmp_path, evaluate_at=(1000,), **own)
        scores[x] = trainer.train(after, lambda report: None).reports[-1].metrics["eval_return"]
    assert scores[0.65] > scores[0.35]
    best_constant = trainer.score(Config(x=0.5), 0, 1000, 1000)
    assert scores[0.65] > best_constant


@pytest.mark.parametrize("kind", ["crash", "nan", "stop"])
def test_failures_come_where_they_are_asked_for(kind: str) -> None:
    trainer = load(spec(**{kind: {"above": {"x": 0.9}}, "fails_at": 0.5}))
    fine = trainer.train(segment(Config(x=0.9)), lambda report: None)
    assert (fine.status, len(fine.reports)) == (Status.DONE, 3)
    if kind == "crash":
        with pytest.raises(RuntimeError, match="synthetic crash at step 500"):
            trainer.train(segment(Config(x=0.91)), lambda report: None)
        return
    failed = trainer.train(segment(Config(x=0.91)), lambda report: None)
    assert failed.status is (Status.DIVERGED if kind == "nan" else Status.STOPPED)
    assert (failed.reached, [report.step for report in failed.reports]) == (500, [250])


def test_a_fraction_of_configurations_fails_and_always_the_same() -> None:
    trainer = load(spec(nan=0.3))
    configs = [Config(x=x) for x in np.linspace(0, 1, 200).tolist()]

    def failed(config: Config, seed: int = 0) -> bool:
        return trainer.train(segment(config, seed=seed), lambda report: None).status.failed

    failures = [failed(config) for config in configs]
    assert 35 <= sum(failures) <= 85  # binomial(200, 0.3): 60 +- 4 standard deviations
    assert failures[:20] == [failed(config, 9) for config in configs[:20]]


def test_some_seeds_fail() -> None:
    trainer = load(spec(nan={"seeds": [100]}))
    assert not trainer.train(segment(Config(x=0.1), seed=0), lambda report: None).status.failed
    assert trainer.train(segment(Config(x=0.1), seed=100), lambda report: None).status.failed


def test_a_hang_never_returns() -> None:
    trainer = load(spec(hang={"above": {"x": 0.5}}))
    done = threading.Event()

    def work() -> None:
        trainer.train(segment(Config(x=0.6)), lambda report: None)
        done.set()

    threading.Thread(target=work, daemon=True).start()
    assert not done.wait(0.3)


def _child(tmp_path: Path, kwargs: dict[str, Any]) -> int:
    code = f"""
import json, resource
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
from autorl.trainers import load
from autorl.core.types import *
spec = TrainerSpec("synthetic", FrozenMap(json.loads({json.dumps(json.dumps(kwargs))})))
segment = Segment(id="s", trainer=spec, config=Config(x=0.6), seed=0, role="tuning", until=10, horizon=10)
load(spec).train(segment, print)
"""
    variables = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, cwd=tmp_path, env=variables
    ).returncode


def test_a_lost_worker_is_lost_once(tmp_path: Path) -> None:
    kwargs = {"lost_once": str(tmp_path / "marker")}
    assert _child(tmp_path, kwargs) == -signal.SIGKILL
    assert _child(tmp_path, kwargs) == 0


def test_a_memory_hog_runs_into_the_limit(tmp_path: Path) -> None:
    assert _child(tmp_path, {"memory": 1.0}) == 1


def test_wrong_options_name_the_nearest() -> None:
    expect_error("did you mean 'noise'", load, spec(noize=1))
    expect_error(
        "unknown hyperparameter 'lr'",
        load(spec(optimum={"lr": 0.1})).check,
        segment(Config()).environment,
        {"learning_rate"},
    )


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("noise", "x", "a number of at least 0"),
        ("noise", -1, "a number of at least 0"),
        ("noise", True, "a number of at least 0"),
        ("optimum", "x", "a number, or one for each"),
        ("optimum", {"x": "y"}, "a number, or one for each"),
        ("weights", {"x": -1.0}, "at least 0 for each"),
        ("bounds", {"x": [1, 0]}, "lower, upper"),
        ("log", "x", "a list of hyperparameters"),
        ("rate", 0, "above 0"),
        ("rollout", 0.5, "a whole number above 0"),
        ("crash", "often", "a fraction, or a mapping"),
        ("stop", {"above": 3}, "a fraction, or a mapping"),
        ("crash", {"abov": {"x": 1}}, "a mapping with above"),
        ("lost_once", 3, "the path of a file"),
    ],
)
def test_an_option_of_another_kind_is_refused_by_its_key(
    name: str, value: Any, allowed: str
) -> None:
    assert expect_error(allowed, load, spec(**{name: value})).key == f"trainer.kwargs.{name}"


def test_an_environment_is_refused() -> None:
    message = "synthetic trains in no environment, got 'CartPole-v1'"
    assert (
        expect_error(message, load(spec()).check, EnvironmentSpec("CartPole-v1"), {"x"}).key
        == "environment.id"
    )
    load(spec()).check(EnvironmentSpec(), {"x"})
