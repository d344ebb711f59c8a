"""The task `files`: a model, data and rewards of the user's own, from folders and files or by their name on a hub.

    environment:
      id: files
      kwargs:
        model: models/base                     # a folder, or organisation/name[@revision]
        data: data/prompts.jsonl               # .jsonl .json .csv .parquet, save_to_disk, organisation/name:split
        columns: {prompt: question}            # where names differ
        held_out: 0.2                          # a share of the prompts, drawn by `instance`; or a data set of its own
        max_completion: 64                     # tokens
        signals: {proxy: "my_rewards:proxy", gold: "my_rewards:gold", judge: models/reward}
        training: proxy                        # `data` where a method learns from the data alone
        selection: gold                        # a signal, or another metric of an evaluation
        report: judge

The three names have no default: what a policy is trained on, what a study selects by and what it reports are decisions.
Nothing is downloaded unless HF_HUB_OFFLINE=0 is set.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from autorl.rlhf.examples import Example, Reader, chat_renderer
from autorl.rlhf.measures import METRICS
from autorl.rlhf.models import load_tokenizer, model_folder
from autorl.rlhf.records import local, read_rows
from autorl.rlhf.signals import RewardModel, function_signal, is_function
from autorl.rlhf.task import Built, Pair, Signal, resolve_options
from autorl.seeds import digest
from autorl.types import InputError

DATA = "data"  # the training signal of a method that has none
_KEY = "environment.kwargs"
_DATA_SETS = ("data", "prompts", "held_out")
_JUDGED = ("win_rate", "best_of_16")
_MOST = 512  # held-out pairs, or completions, an evaluation reads


class Files:
    """The task `files`; see the module, and `autorl.rlhf.task.Task`.

    Further options:
        prompts: a data set of prompts to sample from, for data that has none (`text`).
        subset: of a data set on a hub that has several.
    """

    name = "files"
    options: Mapping[str, Any] = MappingProxyType(
        {
            **dict.fromkeys(("model", "data", "prompts", "subset", "training", "selection", "report")),
            "columns": MappingProxyType({}),
            "held_out": 0.2,
            "max_completion": 64,
            "signals": MappingProxyType({}),
        }
    )
    ensemble: Sequence[str] = ()
    probed: Sequence[str] = ()

    def __init__(self, signals: Sequence[str] = (), training: str = "", selection: str = "", report: str = "") -> None:
        self.signals = tuple(signals)
        self.training, self.selection, self.report = training, selection, report

    def with_options(self, options: Mapping[str, Any]) -> Files:
        """The task with the three names the user has given.

        Raises:
            InputError: one of them is missing.
        """
        for name in ("training", "selection", "report"):
            if not isinstance(options.get(name), str):
                raise InputError("not given: the task files has none of its own, name a signal", key=f"{_KEY}.{name}")
        signals = options.get("signals", {})
        names = tuple(signals) if isinstance(signals, Mapping) else ()
        return Files(names, options["training"], options["selection"], options["report"])

    def check(self, options: Mapping[str, Any]) -> Sequence[str]:
        """Everything but training: files are read, functions imported, reward models loaded."""
        built = self._assemble(0, resolve_options(self.options, options, self.name))
        have = {"prompts": True, "pairs": built.pairs, "labelled": built.labelled, "completions": built.completions}
        return [kind for kind, rows in have.items() if rows]

    def build(self, instance: int, folder: Path, **options: Any) -> Built:
        """The task's instance. Nothing is cached: the data is read again in each process."""
        return self._assemble(instance, resolve_options(self.options, options, self.name))

    def _assemble(self, instance: int, chosen: Mapping[str, Any]) -> Built:
        _check(chosen)
        self._check_names(chosen["signals"])
        reference = model_folder(chosen["model"], f"{_KEY}.model")
        data = _Data(chosen, reference, instance)
        return Built(
            name=self.name,
            instance=instance,
            reference=reference,
            prompts=data.prompts,
            held_out=data.held_out,
            max_completion=chosen["max_completion"],
            signals={name: _signal(name, source, data) for name, source in chosen["signals"].items()},
            training=self.training,
            selection=self.selection,
            report=self.report,
            pairs=_pairs(data.train),
            held_out_pairs=_pairs(data.tuning)[:_MOST],
            test_pairs=_pairs(data.test)[:_MOST],
            completions=_completions(data.train),
            labelled=_labelled(data.train),
            held_out_completions=_completions(data.tuning)[:_MOST],
            test_completions=_completions(data.test)[:_MOST],
            bounds={"win_rate": (0.0, 1.0), "distinct": (0.0, 1.0), "length": (0.0, float(chosen["max_completion"]))},
        )

    def _check_names(self, signals: Mapping[str, Any]) -> None:
        for name in signals:
            if name in (*METRICS, DATA):
                raise InputError(
                    f"{name!r} is a metric of every task: call the signal otherwise", key=f"{_KEY}.signals"
                )
        known = {"training": (*signals, DATA), "selection": (*signals, *METRICS), "report": (*signals, *METRICS)}
        for name, allowed in known.items():
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"unknown metric {getattr(self, name)!r}; allowed: {', '.join(allowed)}", key=f"{_KEY}.{name}"
                )
        same = self.selection in signals and signals[self.selection] == signals.get(self.training)
        if same or self.selection == self.training:
            raise InputError(
                f"{self.selection!r} is what policies are trained on: name another metric to select by",
                key=f"{_KEY}.selection",
            )
        if not {self.selection, self.report} & set(signals):
            for name in ("selection", "report"):
                if getattr(self, name) in _JUDGED:
                    raise InputError(
                        f"{getattr(self, name)} is by a signal that selects or reports: name one of the two",
                        key=f"{_KEY}.{name}",
                    )


FILES = Files()


def pinned(kwargs: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """The arguments of a study with paths below the study's folder made absolute: it can be resumed anywhere."""

    def absolute(value: Any, exists: Callable[[str], bool]) -> Any:
        if not isinstance(value, str) or Path(value).expanduser().is_absolute():
            return value
        there = str(Path(folder).resolve() / value)
        return there if exists(there) else value

    found = {name: absolute(kwargs[name], _is_there) for name in ("model", *_DATA_SETS) if name in kwargs}
    signals = kwargs.get("signals")
    if isinstance(signals, Mapping):  # `rewards:gold` is a function, also where there is a folder `rewards`
        found["signals"] = {name: absolute(source, os.path.exists) for name, source in signals.items()}
    return {**kwargs, **found}


def _is_there(source: str) -> bool:
    return local(source) is not None


class _Data:
    """The rows of a study's data sets, split into training and the held-out halves of tuning and test seeds.

    A row whose prompt is in a held-out set of its own is left out of training.
    """

    def __init__(self, chosen: Mapping[str, Any], reference: Path, instance: int) -> None:
        render = chat_renderer(partial(load_tokenizer, reference))

        def read(option: str, columns: Mapping[str, str]) -> list[Example]:
            rows = read_rows(chosen[option], f"{_KEY}.{option}", chosen["subset"])
            return Reader(columns, render, chosen[option]).examples(rows)

        rng = np.random.default_rng(digest(instance, "held-out prompts"))
        own = chosen["held_out"] if isinstance(chosen["held_out"], float) else None
        every = read("data", chosen["columns"])
        apart = [] if own is not None else read("held_out", chosen["columns"])
        held = _held_out([example.key for example in apart or every], own, rng)
        self.train = [example for example in every if example.key not in held]
        rows: dict[str, list[Example]] = {key: [] for key in held}
        for example in apart or every:
            if example.key in rows:
                rows[example.key].append(example)
        self.tuning, self.test = (
            [example for key, of in held.items() if of == half for example in rows[key]] for half in (0, 1)
        )
        asked = [*self.train, *self.tuning, *self.test]
        self.rows = asked
        if chosen["prompts"] is not None:
            asked = read("prompts", {})
            self.rows = [*self.rows, *asked]
            held = _held_out([example.key for example in asked], own or 0.2, rng)
        if not all(example.prompt for example in asked):
            raise InputError("a text has no prompt to sample from: name a data set of prompts", key=f"{_KEY}.prompts")
        self.held_out = tuple(held)
        self.prompts = tuple(
            prompt for prompt in dict.fromkeys(example.prompt for example in asked) if prompt not in held
        )
        if not self.prompts or not self.train:
            raise InputError("nothing is left to train on: all of the data is held out too", key=f"{_KEY}.data")


def _held_out(keys: Sequence[str], share: float | None, rng: np.random.Generator) -> dict[str, int]:
    """Held-out prompts in random order and the half each belongs to: 0 for tuning seeds, 1 for test seeds.

    Args:
        keys: a prompt for each row.
        share: of the different ones; None = all.
        rng: decides which.

    Raises:
        InputError: there are not two, one for each half.
    """
    different = list(dict.fromkeys(keys))
    count = len(different) if share is None else round(share * len(different))
    if count < 2:
        raise InputError(
            f"{len(different)} different prompts give {count} held-out ones; at least two are needed",
            key=f"{_KEY}.held_out",
        )
    order = rng.permutation(len(different))[:count]
    return {different[index]: place % 2 for place, index in enumerate(order)}


def _signal(name: str, source: str, data: _Data) -> Signal:
    key = f"{_KEY}.signals.{name}"
    if is_function(source):
        return function_signal(source, [(example.prompt, example.row) for example in data.rows], key)
    return RewardModel(model_folder(source, key), key)


def _pairs(examples: Sequence[Example]) -> tuple[Pair, ...]:
    return tuple((example.prompt, better, worse) for example in examples for better, worse in example.pairs)


def _completions(examples: Sequence[Example]) -> tuple[tuple[str, str], ...]:
    """What a model may imitate: completions that are not labelled as unwanted."""
    wanted = [one for one in examples if one.completion is not None and one.label is not False]
    return tuple((one.prompt, str(one.completion)) for one in wanted)


def _labelled(examples: Sequence[Example]) -> tuple[tuple[str, str, bool], ...]:
    return tuple((one.prompt, str(one.completion), one.label) for one in examples if one.label is not None)


def _check(chosen: Mapping[str, Any]) -> None:
    for name in ("model", "data"):
        if not isinstance(chosen[name], str):
            raise InputError(
                f"expected a folder, a file or a name on a hub, got {chosen[name]!r}", key=f"{_KEY}.{name}"
            )
    for name in ("columns", "signals"):
        values = chosen[name]
        if not isinstance(values, Mapping) or not all(isinstance(value, str) for value in values.values()):
            raise InputError(f"expected a mapping of names to texts, got {values!r}", key=f"{_KEY}.{name}")
    for name in ("prompts", "subset"):
        if chosen[name] is not None and not isinstance(chosen[name], str):
            raise InputError(f"expected a text, got {chosen[name]!r}", key=f"{_KEY}.{name}")
    held = chosen["held_out"]
    if not isinstance(held, str) and not (isinstance(held, float) and 0 < held < 1):
        raise InputError(f"expected a share in 0..1 or a data set, got {held!r}", key=f"{_KEY}.held_out")
    most = chosen["max_completion"]
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise InputError(f"expected a whole number above 0, got {most!r}", key=f"{_KEY}.max_completion")
