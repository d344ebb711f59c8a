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
from autorl.rlhf.held_out import HeldOut, draw, whole
from autorl.rlhf.measures import METRICS
from autorl.rlhf.models import load_tokenizer, model_folder
from autorl.rlhf.records import local, read_rows
from autorl.rlhf.signals import RewardModel, function_signal, is_function
from autorl.rlhf.task import OF_DATA, Built, Pair, Signal, resolve_options
from autorl.seeds import digest
from autorl.types import InputError

DATA = "data"  # the training signal of a method that has none
_KEY = "environment.kwargs"
_DATA_SETS = ("data", "prompts", "held_out")
_JUDGED = ("win_rate", "best_of_16")
_SHARE = 0.2  # held out, unless said otherwise
_MOST = 512  # held-out pairs, or completions, an evaluation reads


class Files:
    """The task `files`; see the module, and `autorl.rlhf.task.Task`.

    What is held out is held out of everything that is trained on: with a share, of the prompts of `data` and `prompts`
    together; with a data set of its own, rows of `data` and `prompts` whose prompt it has too are dropped, not refused.
    All of a prompt's rows are for training, for tuning seeds or for test seeds. Prompts that differ by blanks, letter
    case or Unicode form alone are one prompt, asked as it is first written.

    Selecting by the training signal is refused by the trainer, unless the study says `allow_proxy_selection: true`: a
    checked answer is honestly both.

    Further options:
        prompts: a data set of prompts to sample from instead of those of the data, or for data that has none (`text`).
        subset: of a data set on a hub that has several.
    """

    name = "files"
    options: Mapping[str, Any] = MappingProxyType(
        {
            **dict.fromkeys(
                ("model", "data", "prompts", "subset", "training", "selection", "report")
            ),
            "columns": MappingProxyType({}),
            "held_out": _SHARE,
            "max_completion": 64,
            "signals": MappingProxyType({}),
        }
    )
    ensemble: Sequence[str] = ()
    probed: Sequence[str] = ()

    def __init__(
        self, signals: Sequence[str] = (), training: str = "", selection: str = "", report: str = ""
    ) -> None:
        self.signals = tuple(signals)
        self.training, self.selection, self.report = training, selection, report

    def with_options(self, options: Mapping[str, Any]) -> Files:
        """The task with the three names the user has given.

        Raises:
            InputError: one of them is missing.
        """
        for name in ("training", "selection", "report"):
            if not isinstance(options.get(name), str):
                raise InputError(
                    "not given: the task files has none of its own, name a signal",
                    key=f"{_KEY}.{name}",
                )
        signals = options.get("signals", {})
        names = tuple(signals) if isinstance(signals, Mapping) else ()
        return Files(names, options["training"], options["selection"], options["report"])

    def check(self, options: Mapping[str, Any]) -> Sequence[str]:
        """Do everything but train: files are read, reward models loaded, and each signal is called once."""
        built = self._assemble(0, resolve_options(self.options, options, self.name))
        _try_signals(built)
        have = {
            "prompts": True,
            "pairs": built.pairs,
            "labelled": built.labelled,
            "completions": built.completions,
        }
        return [kind for kind, rows in have.items() if rows]

    def notes(self, options: Mapping[str, Any]) -> Sequence[str]:
        """What is noteworthy of the data, whatever the instance."""
        chosen = resolve_options(self.options, options, self.name)
        _check(chosen)
        return _Data(chosen, model_folder(chosen["model"], f"{_KEY}.model"), 0).notes

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
            signals={
                name: _signal(name, source, data) for name, source in chosen["signals"].items()
            },
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
            notes=data.notes,
            bounds={
                "win_rate": (0.0, 1.0),
                "distinct": (0.0, 1.0),
                "length": (0.0, float(chosen["max_completion"])),
            },
        )

    def _check_names(self, signals: Mapping[str, Any]) -> None:
        for name in signals:
            if name in (*METRICS, DATA):
                raise InputError(
                    f"{name!r} is a metric of every task: call the signal otherwise",
                    key=f"{_KEY}.signals",
                )
        known = {
            "training": (*signals, DATA),
            "selection": (*signals, *METRICS),
            "report": (*signals, *METRICS),
        }
        for name, allowed in known.items():
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"unknown metric {getattr(self, name)!r}; allowed: {', '.join(allowed)}",
                    key=f"{_KEY}.{name}",
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

    found = {
        name: absolute(kwargs[name], _is_there) for name in ("model", *_DATA_SETS) if name in kwargs
    }
    signals = kwargs.get("signals")
    if isinstance(
        signals, Mapping
    ):  # `rewards:gold` is a function, also where there is a folder `rewards`
        found["signals"] = {
            name: absolute(source, os.path.exists) for name, source in signals.items()
        }
    return {**kwargs, **found}


def _is_there(source: str) -> bool:
    return local(source) is not None


class _Data:
    """The rows of a study's data sets, split into training and the held-out halves of tuning and test seeds.

    One set of prompts is held out of all of them: a share of the prompts of `data` and `prompts` together, or the data
    set `held_out`. Rows of such a prompt are left out of training wherever they stand, so a held-out set may overlap
    with the data it is to judge.

    Attributes:
        notes: how many rows that leaves out, and how many pairs have equal answers.
    """

    def __init__(self, chosen: Mapping[str, Any], reference: Path, instance: int) -> None:
        self._chosen, self._render = chosen, chat_renderer(partial(load_tokenizer, reference))
        rng = np.random.default_rng(digest(instance, "held-out prompts"))
        every = self._read("data", chosen["columns"])
        apart = (
            self._read("held_out", chosen["columns"]) if isinstance(chosen["held_out"], str) else []
        )
        given = self._read("prompts", {}) if chosen["prompts"] is not None else []
        held = self._held_out(every, apart, given, rng)
        self.train = [example for example in every if example.key not in held.halves]
        rows: dict[str, list[Example]] = {key: [] for key in held.halves}
        for example in apart or every:
            if example.key in rows:
                rows[example.key].append(example)
        self.tuning, self.test = (
            [example for key, of in held.halves.items() if of == half for example in rows[key]]
            for half in (0, 1)
        )
        asked = given or [*self.train, *self.tuning, *self.test]
        if not all(example.prompt for example in asked):
            raise InputError(
                "a text has no prompt to sample from: name a data set of prompts",
                key=f"{_KEY}.prompts",
            )
        as_written: dict[str, str] = {}
        for example in (*apart, *every, *given):
            as_written.setdefault(example.key, example.told_by)
        self.held_out = tuple(as_written[key] for key in held.prompts)
        self.prompts = tuple(
            dict.fromkeys(example.prompt for example in asked if example.key not in held.halves)
        )
        if not self.prompts or not self.train:
            raise InputError(
                "nothing is left to train on: all of the data is held out too", key=f"{_KEY}.data"
            )
        self.rows = self._columns([*every, *given], apart)
        self.notes = (*_left_out([*every, *given], apart), *_equal_pairs(every))

    def _read(self, option: str, columns: Mapping[str, str]) -> list[Example]:
        source = self._chosen[option]
        rows = read_rows(source, f"{_KEY}.{option}", self._chosen["subset"])
        return Reader(columns, self._render, source).examples(rows)

    def _held_out(
        self,
        every: Sequence[Example],
        apart: Sequence[Example],
        given: Sequence[Example],
        rng: np.random.Generator,
    ) -> HeldOut:
        """What is held out; of texts without a prompt nothing can be sampled, then a share of `prompts` is too."""
        asked = [example.key for example in given]
        if not apart:
            data = [example.key for example in every]
            return draw(data, asked or data, self._chosen["held_out"], rng)
        held = whole([example.key for example in apart], rng)
        if not given or all(example.prompt for example in apart):
            return held
        rest = [key for key in asked if key not in held.halves]
        more = draw(rest, rest, _SHARE, rng)
        return HeldOut({**held.halves, **more.halves}, more.prompts)

    def _columns(
        self, rows: Sequence[Example], apart: Sequence[Example]
    ) -> list[tuple[str, Mapping[str, Any]]]:
        """Each prompt that completions are sampled for with its columns: of the held-out set where that has it."""
        there, sampled = {example.key for example in apart}, {*self.prompts, *self.held_out}
        counting = [*(example for example in rows if example.key not in there), *apart]
        return [(example.prompt, example.row) for example in counting if example.prompt in sampled]


def _left_out(rows: Sequence[Example], apart: Sequence[Example]) -> tuple[str, ...]:
    """How many rows have a prompt of the held-out data set; empty where none has."""
    held = {example.key for example in apart}
    exact = {example.told_by for example in apart}
    left_out = [example for example in rows if example.key in held]
    if not left_out:
        return ()
    near = sum(example.told_by not in exact for example in left_out)
    text = f"{OF_DATA}{len(left_out)} of {len(rows)} rows have a held-out prompt and are left out of training"
    return (
        f"{text}; {near} of them differ from it by blanks, letter case or Unicode form alone"
        if near
        else text,
    )


def _equal_pairs(examples: Sequence[Example]) -> tuple[str, ...]:
    """How many pairs prefer an answer to itself; empty where none does."""
    equal = sum(example.equal_pairs for example in examples)
    pairs = sum(len(example.pairs) for example in examples)
    text = (
        f"{OF_DATA}{equal} of {pairs} pairs have two equal answers, of which nothing can be learnt"
    )
    return (text,) if equal else ()


def _try_signals(built: Built) -> None:
    """Call every signal on two held-out prompts, with answers of the data where it has any."""
    answers = (
        [text for _, text in built.completions]
        or [better for _, better, _ in built.pairs]
        or built.prompts
    )
    prompts = list(built.held_out[:2])
    for signal in built.signals.values():
        signal(prompts, [answers[number % len(answers)] for number in range(len(prompts))])


def _signal(name: str, source: str, data: _Data) -> Signal:
    key = f"{_KEY}.signals.{name}"
    if is_function(source):
        return function_signal(source, data.rows, key)
    return RewardModel(model_folder(source, key), key)


def _pairs(examples: Sequence[Example]) -> tuple[Pair, ...]:
    return tuple(
        (example.prompt, better, worse) for example in examples for better, worse in example.pairs
    )


def _completions(examples: Sequence[Example]) -> tuple[tuple[str, str], ...]:
    """What a model may imitate: completions that are not labelled as unwanted."""
    wanted = [one for one in examples if one.completion is not None and one.label is not False]
    return tuple((one.prompt, str(one.completion)) for one in wanted)


def _labelled(examples: Sequence[Example]) -> tuple[tuple[str, str, bool], ...]:
    return tuple(
        (one.prompt, str(one.completion), one.label) for one in examples if one.label is not None
    )


def _check(chosen: Mapping[str, Any]) -> None:
    for name in ("model", "data"):
        if not isinstance(chosen[name], str):
            raise InputError(
                f"expected a folder, a file or a name on a hub, got {chosen[name]!r}",
                key=f"{_KEY}.{name}",
            )
    for name in ("columns", "signals"):
        values = chosen[name]
        if not isinstance(values, Mapping) or not all(
            isinstance(value, str) for value in values.values()
        ):
            raise InputError(
                f"expected a mapping of names to texts, got {values!r}", key=f"{_KEY}.{name}"
            )
    for name in ("prompts", "subset"):
        if chosen[name] is not None and not isinstance(chosen[name], str):
            raise InputError(f"expected a text, got {chosen[name]!r}", key=f"{_KEY}.{name}")
    held = chosen["held_out"]
    if not isinstance(held, str) and not (isinstance(held, float) and 0 < held < 1):
        raise InputError(
            f"expected a share in 0..1 or a data set, got {held!r}", key=f"{_KEY}.held_out"
        )
    most = chosen["max_completion"]
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise InputError(
            f"expected a whole number above 0, got {most!r}", key=f"{_KEY}.max_completion"
        )
