"""Runs a Python function as a trainer.

It is `python:module:function`, `python:path/to/file.py:function`, or a callable.

    def f(config, *, seed, until, checkpoint=None, report=None) -> float | dict

`config` is a plain dict. Only the keyword arguments the function accepts are passed:

    seed         of the run: the only source of randomness it should use (required: a study over
                 seeds needs it)
    until        train up to this step
    start        step the checkpoint was saved at; 0 from scratch
    horizon      the length the run is meant to have, for schedules
    checkpoint   folder a former segment of the run was saved in, or None to train from scratch
    folder       to save the training state in, or None if nobody needs it (`save_to` is the same)
    report       `report(step, value)` or `report(step, {metric: value})`: an evaluation on the
                 way, after `start` and the report before, at most at `until` (another step ends
                 the run as a crash); it returns nothing and cannot end the run: `stop: median` with
                 `rungs` in the study's `optimizer` does, between two calls. A function `f(trial)`
                 is called once (`autorl.trainers.trial_function`)
    evaluate_at  the steps the study wants evaluations at
    episodes     evaluation episodes it wants at each
    role         "tuning" or "test"
    fork         an integer if the checkpoint is another run's: derive the random streams from
                 (seed, fork)
    environment  `{id, kwargs, ...}` of the study file

A returned number is the metric `value` and the metric named by the option `metric` (default
`eval_return`) at `until`; a returned dict holds metrics by name; None means that `report` said it
all. A function that accepts `checkpoint` and `folder` is resumable; one that does not trains every
segment from scratch. A NaN or infinite metric ends the run as diverged; an exception passes
through. A scheduled hyperparameter arrives as its parts (`lr`, `lr.shape`, `lr.end`);
`autorl.space.resolve_schedules(config, step, horizon)` gives its value at a step.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorl.core.forks import ends_forked_children
from autorl.core.plain_text import did_you_mean, encodable, one_of
from autorl.core.plain_values import plain
from autorl.core.plugins import module_path
from autorl.core.types import (
    EnvironmentSpec,
    InputError,
    NotLoggedError,
    Report,
    Segment,
    TrainerSpec,
)
from autorl.trainers.shared import Diverged, check_names, not_finite, search_folders
from autorl.trainers.user_code import Told, UserTrainer, metric_value, refuse_pruning, step_number

_KEYWORDS = (
    *("seed", "until", "start", "horizon", "checkpoint", "folder", "save_to", "report"),
    *("evaluate_at", "episodes", "role", "fork", "environment"),
)
_OPTIONS = ("metric", "path", "changes", "function")


class _Reporter:
    """The object a function is given as `report`."""

    def __init__(self, tell: Callable[[int, object], None]) -> None:
        self._tell = tell

    def __call__(self, step: int, value: float | Mapping[str, float] | None) -> None:
        self._tell(step, value)

    # Hidden from mypy, which would take any attribute for one that is there.
    if not TYPE_CHECKING:
        __getattr__ = refuse_pruning


class FunctionTrainer(UserTrainer):
    """Runs segments by calling a function of the user.

    Options (`trainer.kwargs`): `metric` (name of a returned number), `path` (folders to find the
    module in; default the working folder), `changes` (hyperparameters a continued segment may
    change; default all, for a resumable function).
    """

    preload = ("autorl.trainers.function",)

    def __init__(self, function: Callable[..., object], options: Mapping[str, Any]) -> None:
        self.function = function
        self.metric = str(options.get("metric", "eval_return"))
        self.folders = search_folders(options)
        self.accepted = _accepted(function)
        self.changeable = options.get("changes")

    @property
    def resumable(self) -> bool:
        return "checkpoint" in self.accepted and bool(self.accepted & {"folder", "save_to"})

    def run(self, segment: Segment, course: Told, folder: Path | None) -> None:
        arguments = self._arguments(segment, folder, course)
        # Also while it runs: a function may import beside itself when it is called. A forked child
        # that came back would save and report a second time.
        with module_path(*self.folders), ends_forked_children():
            value = self.function(plain(segment.config), **arguments)
        if value is not None:
            self.tell_returned(course, value)
        elif not course.reports:
            raise NotLoggedError("the function returned nothing and reported nothing")

    def tell(self, course: Told, step: int, value: object) -> None:
        """Record what the function reported at a step."""
        course.tell(step_number(step), self._metrics(value))

    def tell_returned(self, course: Told, value: object) -> None:
        """Record what the function returned.

        Metrics it had reported at the segment's end already are completed, not repeated.
        """
        until = course.segment.until
        metrics = self._metrics(value)
        if not course.reports or course.reports[-1].step < until:
            course.tell(until, metrics)
            return
        # If both told the same metric, the returned value counts.
        final = Report(course.segment.id, until, {**course.reports[-1].metrics, **metrics})
        course.problem = not_finite(final)
        if course.problem:
            raise Diverged
        course.reports[-1] = final

    def _metrics(self, value: object) -> dict[str, float]:
        if isinstance(value, Mapping):
            # No database takes half a character in a name.
            named = [(encodable(str(name)), name, item) for name, item in value.items()]
            return {text: metric_value(name, item) for text, name, item in named}
        number = metric_value("value", value)
        return {"value": number, self.metric: number}

    def _arguments(self, segment: Segment, folder: Path | None, course: Told) -> dict[str, Any]:
        offered = {
            "seed": segment.seed,
            "until": segment.until,
            "start": segment.start,
            "horizon": segment.horizon,
            "checkpoint": segment.parent.path if segment.parent else None,
            "folder": folder,
            "save_to": folder,
            "report": _Reporter(lambda step, value: self.tell(course, step, value)),
            "evaluate_at": segment.evaluate_at,
            "episodes": segment.episodes,
            "role": segment.role,
            "fork": segment.fork,
            "environment": described(segment.environment),
        }
        return {name: value for name, value in offered.items() if name in self.accepted}


def described(environment: EnvironmentSpec) -> dict[str, Any]:
    """Return what a function is told of its environment."""
    return {"id": environment.id, "kwargs": plain(environment.kwargs), "n_envs": environment.n_envs}


def make(spec: TrainerSpec) -> FunctionTrainer:
    """Make the trainer of `python:module:function`.

    Or of the callable in the option `function`.
    """
    check_names(spec.kwargs, _OPTIONS, "option of python", "trainer.kwargs")
    function = spec.kwargs.get("function")
    if function is None:
        function = _import(spec.name, search_folders(spec.kwargs))
    if not callable(function):
        raise InputError(f"{spec.name!r} is not a function", key="trainer")
    return FunctionTrainer(function, spec.kwargs)


def _import(name: str, folders: tuple[str, ...]) -> Any:
    module_name, _, attribute = name.removeprefix("python:").rpartition(":")
    if not module_name or not attribute:
        raise InputError(f"expected python:module:function, got {name!r}", key="trainer")
    with module_path(*folders):
        load = _import_file if module_name.endswith(".py") else _import_module
        module = load(module_name, folders)
    if not hasattr(module, attribute):
        # A function of a script or a notebook, or one within another.
        if module_name == "__main__" or "<" in attribute:
            raise InputError(
                f"{name.removeprefix('python:')!r} was given to `tune` by a program: run that "
                "again, with the same `out` it goes on",
                key="trainer",
            )
        raise InputError(
            f"{module_name!r} has no {attribute!r}{did_you_mean(attribute, vars(module))}",
            key="trainer",
        )
    return getattr(module, attribute)


def _import_module(name: str, folders: tuple[str, ...]) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and not (name == error.name or name.startswith(error.name + ".")):
            raise  # a library the module itself needs
        raise InputError(
            f"no module {name!r} in the working folder or the option `path` (a file: "
            "python:file.py:f)",
            key="trainer",
        ) from error


def _import_file(name: str, folders: tuple[str, ...]) -> Any:
    candidates = [Path(folder) / name for folder in folders or (".",)]
    path = next((candidate.resolve() for candidate in candidates if candidate.is_file()), None)
    if path is None:
        raise InputError(
            f"no file {name!r} in {', '.join(folders) or 'the working folder'}", key="trainer"
        )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # so that what it defines can be pickled
    spec.loader.exec_module(module)
    return module


def _accepted(function: Callable[..., object]) -> frozenset[str]:
    """Choose the keyword arguments to pass, of those the protocol offers."""
    parameters = inspect.signature(function).parameters
    if not parameters:
        raise InputError(
            "the function takes no configuration; expected f(config, *, seed, until, ...)",
            key="trainer",
        )
    # `**kwargs` takes all there is.
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return frozenset(_KEYWORDS)
    # The configuration is the first, whatever its name.
    after_config = list(parameters.values())[1:]
    for parameter in after_config:
        if parameter.name not in _KEYWORDS and parameter.default is inspect.Parameter.empty:
            hint = one_of(parameter.name, _KEYWORDS, "offered")
            raise InputError(
                f"the function needs an argument {parameter.name!r} nobody gives{hint}",
                key="trainer",
            )
    return frozenset(parameter.name for parameter in after_config) & frozenset(_KEYWORDS)
