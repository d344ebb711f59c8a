"""A user's reward signals: Python functions, and reward models in folders."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autorl.core.types import InputError
from autorl.trainers.language.contract import Signal
from autorl.trainers.language.models import load_reward_model, load_tokenizer
from autorl.trainers.language.rewards.functions import UserSignal, import_function
from autorl.trainers.language.sampling import model_rewards

_WITH_A_NAME = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)
_GIVEN = ("prompts", "completions")


def is_function(source: str) -> bool:
    """Whether a signal is `module:function` rather than a reward model."""
    # a folder may have a colon in its name
    return ":" in source and not Path(source).expanduser().exists()


def function_signal(
    source: str, rows: Iterable[tuple[str, Mapping[str, object]]], key: str
) -> Signal:
    """Make the function `module:function` a signal.

    It is called with `prompts` and `completions`, lists of texts, and returns a number for each.
    Any further parameter is a column of the data, looked up by prompt (`def exact(prompts,
    completions, answer)`); one with a default keeps that where the data has no such column. With
    `**rest` it gets every column that has one value for each prompt, like a reward function of
    TRL. It may be asynchronous, as there.

    Args:
        source: `module:function`.
        rows: prompt and columns of each row of the data; of every prompt it will be called with.
        key: of the study file, for errors.

    Raises:
        InputError: it cannot be imported, does not take completions, or takes a column that is not
            there, has two values for one prompt, or none for some.
    """
    function = import_function(source, key)
    parameters = inspect.signature(function).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind in _WITH_A_NAME]
    takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    if "completions" not in names:
        # called by position: any two names will do
        if len(names) != 2:
            raise InputError(
                f"{source} must take prompts and completions, not ({', '.join(names)})", key=key
            )
        return UserSignal(function, source, key)
    needed = {
        parameter.name: parameter.default is parameter.empty
        for parameter in parameters
        if parameter.kind in _WITH_A_NAME and parameter.name not in _GIVEN
    }
    columns = _columns(rows, source, key, needed, takes_all)
    for name, without_default in needed.items():
        if without_default and name not in columns:
            raise InputError(f"{source} takes {name!r}, and the data has no such column", key=key)

    def score(prompts: Sequence[str], completions: Sequence[str]) -> Any:
        arguments: dict[str, Any] = {
            name: [values[prompt] for prompt in prompts] for name, values in columns.items()
        }
        if takes_all or "prompts" in names:
            arguments["prompts"] = list(prompts)
        return function(completions=list(completions), **arguments)

    return UserSignal(score, source, key)


class RewardModel:
    """A scalar reward model in a folder, as a signal.

    `trl/reward` trains such models.

    Raises:
        InputError: its head has more than one output.
    """

    def __init__(self, folder: Path, key: str) -> None:
        import torch

        # a head that the folder lacks is drawn from the global stream
        with torch.random.fork_rng(devices=[]):
            self.model = load_reward_model(folder)
            self.tokenizer = load_tokenizer(folder)
        outputs = self.model.config.num_labels
        if outputs != 1:
            raise InputError(
                f"{folder} is no reward model: expected one output, its head has {outputs}", key=key
            )

    def __call__(self, prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        texts = list(zip(prompts, completions, strict=True))
        return model_rewards(self.model, self.tokenizer, texts)


def same_sources(signals: object, trained: Collection[str]) -> set[str]:
    """Return the signals that are trained on, by another name.

    They have the source of a signal that is trained on, or their source itself is trained on.

    Args:
        signals: the option `signals` of a task: a function or model by the name of each signal.
        trained: names of signals, and functions, that a run is trained on.
    """
    sources = dict(signals) if isinstance(signals, Mapping) else {}
    used = {*trained, *(sources[name] for name in trained if name in sources)}
    return {name for name, source in sources.items() if source in used}


def _columns(
    rows: Iterable[tuple[str, Mapping[str, object]]],
    source: str,
    key: str,
    named: Collection[str],
    takes_all: bool,
) -> dict[str, dict[str, Any]]:
    """Return columns as prompt -> value.

    They are those that are named, or all that have one value for each prompt.
    """
    columns: dict[str, dict[str, Any]] = {}
    prompts: set[str] = set()
    left_out = {*_GIVEN}
    for prompt, row in rows if named or takes_all else ():
        prompts.add(prompt)
        for name in row if takes_all else named:
            if name not in row or name in left_out:
                continue
            values = columns.setdefault(name, {})
            # values are looked up by prompt: of two for one prompt none is right
            if values.setdefault(prompt, row[name]) != row[name]:
                left_out.add(name)
                if name in named:
                    raise InputError(
                        f"{source} takes {name!r}, which has two values for the prompt {prompt!r}",
                        key=key,
                    )
    for name, values in columns.items():
        # a further column that is not whole is left out in silence, a named one is an error
        missing = prompts - set(values)
        if missing:
            left_out.add(name)
            if name in named:
                raise InputError(
                    f"{source} takes {name!r}, which has no value for the prompt {min(missing)!r}",
                    key=key,
                )
    return {name: values for name, values in columns.items() if name not in left_out}
