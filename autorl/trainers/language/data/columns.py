"""The meaning of columns: prompts, pairs, completions, labels and texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, TypeGuard

from autorl.core.types import InputError
from autorl.trainers.language.data.rows import Row
from autorl.trainers.language.data.splits import comparable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

COLUMNS = ("prompt", "chosen", "rejected", "ranking", "completion", "label", "text")
_MEANINGS = (
    "prompt · prompt, chosen, rejected · prompt, ranking · prompt, completion · "
    "prompt, completion, label · text"
)
# a CSV has texts; a column of 0 and 1 with gaps comes as floats
_LABELS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}


@dataclass(frozen=True)
class Example:
    """One row.

    Attributes:
        prompt: "" for a text without one.
        pairs: (better, worse) completions of the prompt.
        completion, label: one completion, and whether it is wanted; None where there is none.
        row: every column as it was.
    """

    prompt: str
    pairs: tuple[tuple[str, str], ...] = ()
    completion: str | None = None
    label: bool | None = None
    row: Mapping[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """The prompt, or the text where it has none."""
        return self.prompt or self.completion or ""

    @cached_property
    def key(self) -> str:
        """Key that training and held-out rows may not share."""
        return comparable(self.identity)

    @property
    def equal_pairs(self) -> int:
        """The number of its pairs of two equal answers."""
        return sum(better.strip() == worse.strip() for better, worse in self.pairs)


class Reader:
    """Reads rows as examples.

    Args:
        columns: our name -> the data's, for those that differ.
        render: the text of a prompt given as messages; called only for such.
        source: of the rows, for errors.

    Raises:
        InputError: a name that is none of ours.
    """

    def __init__(
        self, columns: Mapping[str, str], render: Callable[[Sequence[object]], str], source: str
    ) -> None:
        for name in columns:
            if name not in COLUMNS:
                raise InputError(
                    f"unknown column {name!r}; allowed: {', '.join(COLUMNS)}",
                    key="environment.kwargs.columns",
                )
        self.names = {name: columns.get(name, name) for name in COLUMNS}
        self.renamed = columns
        self.render = render
        self.source = source

    def examples(self, rows: Sequence[Row]) -> list[Example]:
        """Return every row as an example.

        Raises:
            InputError: naming the row, what is wrong with it and what is allowed.
        """
        have = {name for name in COLUMNS if self.names[name] in rows[0]}
        for name in self.renamed:
            if name not in have:
                raise self._wrong(
                    1, f"no column {self.names[name]!r}; there are {', '.join(rows[0])}"
                )
        return [self._example(number, row, have) for number, row in enumerate(rows, start=1)]

    def _example(self, number: int, row: Row, have: set[str]) -> Example:
        # TRL's implicit prompt: all of two conversations but the last message
        if {"chosen", "rejected"} <= have and "prompt" not in have:
            return self._implicit(number, row)
        if "prompt" not in have:
            if "text" not in have:
                raise self._wrong(number, f"its columns are {', '.join(row)}; expected {_MEANINGS}")
            return Example("", completion=self._text(number, row, "text"), row=row)
        prompt = self._prompt(number, self._value(number, row, "prompt"))
        pairs: tuple[tuple[str, str], ...] = ()
        if {"chosen", "rejected"} <= have:
            pairs = ((self._text(number, row, "chosen"), self._text(number, row, "rejected")),)
        elif "ranking" in have:
            pairs = self._ranked(number, row)
        if "completion" not in have:
            return Example(prompt, pairs, row=row)
        label = self._label(number, row) if "label" in have else None
        return Example(prompt, pairs, self._text(number, row, "completion"), label, row)

    def _implicit(self, number: int, row: Row) -> Example:
        """Read two conversations that share all but the last message."""
        chosen, rejected = (self._value(number, row, name) for name in ("chosen", "rejected"))
        if not (_is_messages(chosen) and _is_messages(rejected)) or len(chosen) < 2:
            raise self._wrong(
                number, "chosen and rejected are texts, so a column `prompt` is needed"
            )
        # as lists, so that a tuple of the same messages is equal
        if list(chosen[:-1]) != list(rejected[:-1]):
            raise self._wrong(number, "chosen and rejected differ before their last message")
        pair = (str(chosen[-1]["content"]), str(rejected[-1]["content"]))
        return Example(self.render(chosen[:-1]), (pair,), row=row)

    def _ranked(self, number: int, row: Row) -> tuple[tuple[str, str], ...]:
        """Return every pair of a list of completions, best first."""
        ranking = self._value(number, row, "ranking")
        is_list = isinstance(ranking, list | tuple) and len(ranking) >= 2
        if not is_list or not all(isinstance(text, str) for text in ranking):
            raise self._wrong(
                number, f"expected in {self.names['ranking']!r} at least two texts, the best first"
            )
        # in the order of the ranking, so the first of each pair is the better one
        return tuple(combinations(ranking, 2))

    def _label(self, number: int, row: Row) -> bool:
        value = self._value(number, row, "label")
        text = str(value).lower()
        if text not in _LABELS:
            raise self._wrong(
                number, f"expected true or false in {self.names['label']!r}, got {value!r}"
            )
        return _LABELS[text]

    def _prompt(self, number: int, value: object) -> str:
        if _is_messages(value):
            return self.render(value)
        if not isinstance(value, str) or not value:
            raise self._wrong(
                number, f"expected a text or messages in {self.names['prompt']!r}, got {value!r}"
            )
        return value

    def _text(self, number: int, row: Row, name: str) -> str:
        """Return a text, or the one message of an answer."""
        value = self._value(number, row, name)
        if _is_messages(value) and len(value) == 1:
            value = value[0]["content"]
        if not isinstance(value, str):
            raise self._wrong(
                number, f"expected a text or one message in {self.names[name]!r}, got {value!r:.80}"
            )
        return value

    def _value(self, number: int, row: Row, name: str) -> Any:
        # None: a line of a CSV that is too short, or a null of Parquet
        value = row.get(self.names[name])
        if value is None:
            raise self._wrong(number, f"nothing in column {self.names[name]!r}")
        return value

    def _wrong(self, number: int, message: str) -> InputError:
        return InputError(
            f"row {number}: {message}", file=self.source, key="environment.kwargs.data"
        )


def _is_messages(value: object) -> TypeGuard[Sequence[Mapping[str, object]]]:
    """Whether a value is a conversation as chat models have it."""
    return (
        isinstance(value, list | tuple)
        and len(value) > 0
        and all(isinstance(part, Mapping) and {"role", "content"} <= set(part) for part in value)
    )


def chat_renderer(
    load_tokenizer: Callable[[], PreTrainedTokenizerBase],
) -> Callable[[Sequence[Any]], str]:
    """Return a function that renders messages as text for a chat model.

    It does so by the template of the model's tokenizer, which is loaded when first needed.
    """
    # data of plain texts needs no tokenizer, nor one with a template
    loaded: list[Any] = []

    def render(messages: Sequence[object]) -> str:
        if not loaded:
            loaded.append(load_tokenizer())
        tokenizer = loaded[0]
        if not tokenizer.chat_template:
            raise InputError(
                "the data has messages and the model no chat template",
                key="environment.kwargs.model",
            )
        text = str(
            tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=True
            )
        )
        first = tokenizer.bos_token
        # the tokenizer would put a second beginning of sequence before the template's
        adds_it = tokenizer("")["input_ids"][:1] == [tokenizer.bos_token_id]
        return text.removeprefix(first) if first and adds_it else text

    return render
