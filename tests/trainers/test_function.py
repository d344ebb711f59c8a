from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import segments
from refusals import expect_error

from autorl.core.types import (
    Checkpoint,
    Config,
    FrozenMap,
    NotLoggedError,
    Segment,
    Status,
    TrainerSpec,
)
from autorl.testing.trainers import Case, TrainerConformance
from autorl.trainers import load

_SELF = f"python:{Path(__file__).stem}:"


def random_walk(
    config: dict[str, Any],
    *,
    seed: int,
    start: int,
    until: int,
    evaluate_at: tuple[int, ...],
    checkpoint: str | None = None,
    folder: Path | None = None,
    fork: int | None = None,
    report: Callable[..., None],
) -> None:
    """Adds `config["rate"]` times a normal draw at each step; draws are a function of (seed, fork, step)."""
    position = 0.0
    if checkpoint is not None:
        position = json.loads((Path(checkpoint) / "position.json").read_text())
    for step in range(start + 1, until + 1):
        position += (
            config["rate"] * np.random.default_rng([seed, fork or 0, step]).standard_normal()
        )
        if step in evaluate_at:
            report(step, {"eval_return": position})
    if folder is not None:
        (folder / "position.json").write_text(json.dumps(position))


def forgetful(config: dict[str, Any], *, seed: int, until: int) -> float:
    """Neither reports on the way nor saves."""
    return until * float(config["rate"]) + seed


def without_keywords(config: dict[str, Any]) -> dict[str, float]:
    return {"eval_return": config["x"], "loss": 1}


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


class TestResumableFunction(TrainerConformance):
    case = Case(
        TrainerSpec("python", FrozenMap(function=random_walk)),
        configs=(Config(rate=1.0), Config(rate=2.0)),
    )


def segment(config: dict[str, Any], **changes: Any) -> Segment:
    of_run = {"until": 10, "horizon": 10, "evaluate_at": (10,), "seed": 7} | changes
    return segments.segment("python", config=config, **of_run)


def run(function: Callable[..., Any] | str, config: dict[str, Any], **options: Any) -> Any:
    """Train a function, or a name of one, on a segment of ten steps."""
    if isinstance(function, str):
        spec = TrainerSpec(function, FrozenMap(options))
    else:
        spec = TrainerSpec("python", FrozenMap(function=function, **options))
    return segments.train(replace(segment(config), trainer=spec))


def test_a_number_is_the_value_and_the_metric_of_the_study() -> None:
    outcome = run(_SELF + "forgetful", {"rate": 0.5})
    assert outcome.reports[0].metrics == {"value": 12.0, "eval_return": 12.0}
    assert (outcome.status, outcome.reached) == (Status.DONE, 10)
    assert outcome.cost["environment_steps"] == 10
    (report,) = run(forgetful, {"rate": 1}, metric="accuracy").reports
    assert report.metrics == {"value": 17.0, "accuracy": 17.0}


def test_a_dict_holds_metrics_and_only_accepted_arguments_are_passed() -> None:
    outcome = run(without_keywords, {"x": 3})
    assert outcome.reports[0].step == 10
    assert outcome.reports[0].metrics == {"eval_return": 3.0, "loss": 1.0}


def test_every_argument_reaches_a_function_that_takes_all() -> None:
    seen: dict[str, Any] = {}

    def curious(config: dict[str, Any], **keywords: Any) -> float:
        seen.update(keywords, config=config)
        return 0.0

    run(curious, {"x": (1, 2), "nested": {"a": 1}})
    expected = {"seed": 7, "until": 10, "start": 0, "horizon": 10, "evaluate_at": (10,)}
    expected |= {"config": {"x": [1, 2], "nested": {"a": 1}}, "role": "tuning"}
    expected |= {"checkpoint": None, "folder": None}
    assert {name: seen[name] for name in expected} == expected


def test_what_is_returned_completes_what_was_reported_at_the_end() -> None:
    def both(
        config: dict[str, Any], *, report: Callable[..., None], until: int
    ) -> dict[str, float]:
        report(5, 1.0)
        report(until, {"eval_return": 2.0, "loss": 0.1})
        return {"eval_return": 3.0}

    outcome = run(both, {})
    assert [(r.step, dict(r.metrics)) for r in outcome.reports] == [
        (5, {"value": 1.0, "eval_return": 1.0}),
        (10, {"eval_return": 3.0, "loss": 0.1}),
    ]


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ((30,), "report at step 30: expected a step after 4, at most 10"),
        ((-5,), "report at step -5: expected a step after 4, at most 10"),
        ((4,), "report at step 4: expected a step after 4, at most 10"),
        ((6, 6), "report at step 6 after one at step 6: expected a later step"),
        ((8, 7), "report at step 7 after one at step 8: expected a later step"),
    ],
)
@pytest.mark.parametrize("catches", [False, True])
def test_a_report_at_a_step_the_segment_does_not_have_is_an_error(
    steps: Any, problem: str, catches: bool
) -> None:
    def counts_frames(
        config: Any, *, report: Callable[..., None], checkpoint: Any = None, folder: Any = None
    ) -> float:
        with contextlib.suppress(ValueError if catches else ()):
            for step in steps:
                report(step, 1.0)
        return 1.0

    trainer = load(TrainerSpec("python", FrozenMap(function=counts_frames)))
    continued = segment({}, start=4, parent=Checkpoint("p", "/nowhere"))
    with pytest.raises(ValueError, match=problem):
        trainer.train(continued, lambda report: None)


@pytest.mark.parametrize("step", [2.5, "5", True, math.nan, None])
def test_a_step_that_is_no_whole_number_is_an_error(step: Any) -> None:
    def f(config: dict[str, Any], *, report: Callable[..., None]) -> None:
        report(step, 1.0)

    with pytest.raises(TypeError, match=r"whole number of steps in report\(step, value\)"):
        run(f, {})


def test_whole_numbers_of_any_type_are_steps() -> None:
    def f(config: dict[str, Any], *, report: Callable[..., None]) -> None:
        for step in (1, 2.0, np.int64(3), np.float32(4)):
            report(step, 1.0)

    assert [report.step for report in run(f, {}).reports] == [1, 2, 3, 4]


@pytest.mark.parametrize("value", [math.nan, math.inf, {"eval_return": -math.inf}])
def test_a_result_that_is_not_finite_is_a_divergence(value: Any) -> None:
    outcome = run(lambda config: value, {})
    assert outcome.status is Status.DIVERGED
    assert (outcome.reports, outcome.checkpoint) == ((), None)
    assert outcome.message


def test_a_nan_report_ends_the_run_even_if_the_function_catches_everything() -> None:
    def stubborn(config: dict[str, Any], *, report: Callable[..., None]) -> float:
        report(2, 1.0)
        for step in range(3, 10):
            try:
                report(step, math.nan)
            except Exception:
                continue
        return 1.0

    outcome = run(stubborn, {})
    assert (outcome.status, outcome.reached) == (Status.DIVERGED, 2)
    assert [report.step for report in outcome.reports] == [2]


@pytest.mark.parametrize("error", [MemoryError("full"), ValueError("bad"), KeyboardInterrupt()])
def test_exceptions_pass_through_with_their_type(error: BaseException) -> None:
    def broken(config: dict[str, Any]) -> float:
        raise error

    with pytest.raises(type(error)):
        run(broken, {})


def test_a_result_that_is_no_number_is_an_error_that_names_it() -> None:
    for value in ("high", "0.5", True, np.True_, b"1", None, 10**400):
        with pytest.raises(TypeError, match="'accuracy' is not a number: "):
            run(lambda config, value=value: {"accuracy": value}, {})
    with pytest.raises(NotLoggedError, match="returned nothing and reported nothing"):
        run(lambda config: None, {})
    with pytest.raises(ValueError, match="step 2 after one at step 5"):
        run(lambda config, report: (report(5, 1.0), report(2, 1.0)), {})


def test_a_function_that_cannot_continue_says_so(tmp_path: Path) -> None:
    trainer = load(TrainerSpec(_SELF + "forgetful"))
    assert dict(trainer.changes) == {}
    place = segment({"rate": 1}, save=True, folder=str(tmp_path / "s"))
    assert trainer.train(place, lambda report: None).checkpoint is None
    assert not (tmp_path / "s").exists()


def test_a_function_that_is_given_a_folder_must_save(tmp_path: Path) -> None:
    def lazy(config: dict[str, Any], *, checkpoint: str | None, folder: Path | None) -> float:
        return 1.0

    trainer = load(TrainerSpec("python", FrozenMap(function=lazy)))
    with pytest.raises(RuntimeError, match="saved nothing"):
        trainer.train(segment({}, save=True, folder=str(tmp_path / "s")), lambda report: None)
    assert list(tmp_path.iterdir()) == []


def test_changes_can_be_restricted() -> None:
    assert "anything" in load(TrainerSpec(_SELF + "random_walk")).changes
    restricted = load(TrainerSpec(_SELF + "random_walk", FrozenMap(changes=["rate"]))).changes
    assert dict(restricted) == {"rate": "apply"}


def test_a_module_is_found_in_the_study_s_folder_and_nothing_stays_on_the_path(
    tmp_path: Path,
) -> None:
    body = "def f(config):\n    from my_helper import two\n    return two\n"
    (tmp_path / "my_study_module.py").write_text(body)
    (tmp_path / "my_helper.py").write_text("two = 2.0\n")
    before = list(sys.path)
    outcome = run("python:my_study_module:f", {}, path=str(tmp_path))
    assert outcome.reports[0].metrics["value"] == 2.0
    assert sys.path == before


def test_a_file_is_found_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train_me.py").write_text("def f(config, *, seed):\n    return seed\n")
    monkeypatch.chdir(tmp_path)
    assert run("python:code/train_me.py:f", {}).reports[0].metrics["value"] == 7.0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("python:no_such_module_at_all:f", "no module 'no_such_module_at_all'"),
        ("python:json:dumbs", "did you mean 'dumps'"),
        ("python:json", "expected python:module:function"),
        ("python:missing.py:f", "no file 'missing.py'"),
        ("python:json:__name__", "is not a function"),
    ],
)
def test_a_name_that_leads_nowhere_says_what_is_missing(name: str, message: str) -> None:
    expect_error(message, load, TrainerSpec(name))


def test_a_library_missing_inside_the_user_s_module_is_their_error(tmp_path: Path) -> None:
    (tmp_path / "needs_more.py").write_text("import no_such_library\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        load(TrainerSpec("python:needs_more:f", FrozenMap(path=str(tmp_path))))


def test_an_argument_nobody_offers_names_the_nearest() -> None:
    expect_error(r"'untill'.*did you mean 'until'", run, lambda config, untill: 1.0, {})
    expect_error("takes no configuration", run, lambda: 1.0, {})
    expect_error("unknown option of python 'metrik'", run, without_keywords, {}, metrik="x")
