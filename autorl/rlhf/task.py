"""What an RLHF task is: prompts, preference pairs, reward signals and a reference policy, built offline.

A task names three things that most tools confuse: the signal a policy is *trained* on (a proxy), the metric a study
*selects* by, and the metric it *reports*. Optimising a proxy hard makes the true reward fall (Gao, Schulman and Hilton
2023), so a study that selects by its own training signal picks the worst configuration it has seen.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from autorl.types import FrozenMap, InputError

Signal: TypeAlias = Callable[[Sequence[str], Sequence[str]], list[float]]
"""prompts, completions -> one value each."""

Pair: TypeAlias = tuple[str, str, str]
"""prompt, chosen completion, rejected completion."""

_TASKS = {  # task -> "module:object", imported when asked for
    "letters-goldproxy": "autorl.rlhf.letters:GOLDPROXY",
    "letters-pairs": "autorl.rlhf.letters_pairs:PAIRS",
    "sort-verifiable": "autorl.rlhf.sorting:SORT",
    "tiny-sentiment": "autorl.rlhf.sentiment:SENTIMENT",
    "files": "autorl.rlhf.files:FILES",
}
_SHARED_OPTIONS = ("instance",)
OF_DATA = "data: "
"""How a note on a task's data begins."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """One instance of a task, on disk and in memory.

    Attributes:
        instance: seed of the task itself (its source, its pairs, its reward model); apart from tuning and test seeds.
        reference: folder of the reference policy and its tokenizer; `from_pretrained` reads both without a network.
        prompts, pairs: for training; `pairs` is empty where the task has none.
        completions, labelled: (prompt, completion) to imitate, and (prompt, completion, wanted) to learn from, where a
            task has them apart from its pairs; the prompt is "" for plain text.
        held_out, held_out_pairs, held_out_completions: for evaluation only, disjoint from those.
        test_pairs, test_completions: what test seeds are evaluated on, if not on those of tuning seeds; of `held_out`
            each role always has its own half.
        max_completion: most tokens of a completion, end of sequence included.
        signals: every reward by name, e.g. `proxy` and `gold`.
        training: the signal a policy is trained on.
        selection: the metric a study selects by unless it says otherwise; by the training signal it must say so.
        report: the metric results are reported in; win rates are by this signal where it is one.
        ensemble: signals that `reward.rule` puts together unless `reward.signals` names others; empty = none.
        bounds: smallest and largest value of a metric, where known.
        notes: what a reader of the results must know of the data, e.g. how many rows were left out.
        probe: further metrics of a policy that no signal gives (greedy accuracy, pass@k): called with the policy, the
            tokenizer, held-out prompts and a seed.
    """

    name: str
    instance: int
    reference: Path
    prompts: tuple[str, ...]
    held_out: tuple[str, ...]
    max_completion: int
    signals: Mapping[str, Signal]
    training: str
    selection: str
    report: str
    pairs: tuple[Pair, ...] = ()
    held_out_pairs: tuple[Pair, ...] = ()
    test_pairs: tuple[Pair, ...] | None = None
    completions: tuple[tuple[str, str], ...] = ()
    labelled: tuple[tuple[str, str, bool], ...] = ()
    held_out_completions: tuple[tuple[str, str], ...] = ()
    test_completions: tuple[tuple[str, str], ...] | None = None
    ensemble: tuple[str, ...] = ()
    bounds: Mapping[str, tuple[float, float]]
    notes: tuple[str, ...] = ()
    probe: Callable[[Any, Any, Sequence[str], int], dict[str, float]] | None = None


class Task(Protocol):
    """A task by name. Its attributes are known without building anything.

    Attributes:
        options: the knobs of the task with their defaults, e.g. `pairs: 512`, `flips: 0.2`.
        training, selection, report: as in `Built`.
        signals: names of the signals a built task has.
        probed: names of what its `probe` measures.
        ensemble: as in `Built`.
    """

    @property
    def name(self) -> str: ...

    @property
    def options(self) -> Mapping[str, Any]: ...

    @property
    def training(self) -> str: ...

    @property
    def selection(self) -> str: ...

    @property
    def report(self) -> str: ...

    @property
    def signals(self) -> Sequence[str]: ...

    @property
    def probed(self) -> Sequence[str]: ...

    @property
    def ensemble(self) -> Sequence[str]: ...

    def with_options(self, options: Mapping[str, Any]) -> Task:
        """The task whose names are those these options make. Nothing is built, and no value is checked (`check`)."""
        ...

    def check(self, options: Mapping[str, Any]) -> Sequence[str]:
        """What a built task is made to train on: some of `prompts`, `pairs`, `labelled`, `completions`.

        Called before a study begins.

        Raises:
            InputError: the options cannot be built.
        """
        ...

    def notes(self, options: Mapping[str, Any]) -> Sequence[str]:
        """`Built.notes` before anything is built."""
        ...

    def build(self, instance: int, folder: Path, **options: Any) -> Built:
        """The task's instance, from `folder` if it was built before: a function of (instance, options) alone.

        Raises:
            InputError: an option is unknown or out of range.
        """
        ...


class Fixed:
    """What tasks share whose names are the same whatever their options."""

    name = ""
    options: Mapping[str, Any] = MappingProxyType({})
    ensemble: Sequence[str] = ()
    probed: Sequence[str] = ()
    kinds: Sequence[str] = ("prompts",)

    def with_options(self, options: Mapping[str, Any]) -> Any:
        """The task itself."""
        return self

    def check(self, options: Mapping[str, Any]) -> Sequence[str]:
        """What the task has to train on.

        Raises:
            InputError: an option the task does not have, or one out of range.
        """
        self.check_values(resolve_options(self.options, options, self.name))
        return self.kinds

    def notes(self, options: Mapping[str, Any]) -> Sequence[str]:
        """Nothing: the data is the task's own."""
        return ()

    def check_values(self, chosen: Mapping[str, Any]) -> None:
        """Raise `InputError` for a value out of range; `chosen` has every option."""


def tasks() -> tuple[str, ...]:
    """The names of the tasks: those that come with the package, and `files` for a user's own."""
    return tuple(_TASKS)


def task(name: str, kwargs: Mapping[str, Any] | None = None) -> Task:
    """The task of that name, as the environment arguments of a study make it.

    Raises:
        InputError: there is none; the message names those there are.
    """
    if name not in _TASKS:
        raise InputError(
            f"unknown RLHF task {name!r}; there are {', '.join(_TASKS)}", key="environment"
        )
    module, _, attribute = _TASKS[name].partition(":")
    found: Task = getattr(importlib.import_module(module), attribute)
    return found.with_options(kwargs or {})


def resolve_options(
    known: Mapping[str, Any], given: Mapping[str, Any], name: str
) -> dict[str, Any]:
    """The task's options with those given on top.

    Raises:
        InputError: an option the task does not have.
    """
    for option in given:
        if option not in known:
            raise InputError(
                f"{name} has no option {option!r}; allowed: {', '.join((*_SHARED_OPTIONS, *known))}",
                key="environment.kwargs",
            )
    return {**known, **given}


@lru_cache(maxsize=8)
def _built(name: str, instance: int, options: tuple[tuple[str, Any], ...], folder: Path) -> Built:
    return task(name, dict(options)).build(instance, folder, **dict(options))


def build(name: str, kwargs: Mapping[str, Any], folder: Path | None = None) -> Built:
    """The task `name` with the environment arguments of a study, `instance` among them; kept for the process's life.

    Raises:
        InputError: no such task, or an option it does not have.
    """
    options = FrozenMap({key: value for key, value in kwargs.items() if key not in _SHARED_OPTIONS})
    instance = kwargs.get("instance", 0)
    if isinstance(instance, bool) or not isinstance(instance, int) or instance < 0:
        raise InputError(
            f"expected a whole number, got {instance!r}", key="environment.kwargs.instance"
        )
    return _built(name, instance, tuple(sorted(options.items())), folder or cache_folder())


def cache_folder() -> Path:
    """Where built tasks are kept: `rlhf` in `$AUTORL_CACHE`, else in the user's cache folder."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return Path(os.environ.get("AUTORL_CACHE") or user / "autorl") / "rlhf"


def cached(
    folder: Path, name: str, content: Mapping[str, Any], make: Callable[[Path], None]
) -> Path:
    """The folder `make` fills, made once for each `content`: everything its result depends on, in JSON types.

    Written aside and renamed, under a lock: workers that start together build it once, and it exists whole or not at
    all.
    """
    text = json.dumps(content, sort_keys=True)
    final = folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if final.exists():
        return final
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / f".{final.name}.lock"):
        if final.exists():
            return final
        scratch = folder / f".tmp-{final.name}"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        make(scratch)
        (scratch / "content.json").write_text(text + "\n", encoding="utf-8")
        scratch.rename(final)
    return final


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the file lock `path`; it goes with the process that holds it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
