"""Reads the rows of a user's data set.

It is a file (JSON lines, JSON, CSV, Parquet), a `save_to_disk` folder, or a name on a hub.
"""

from __future__ import annotations

import csv
import io
import json
import operator
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import combinations, pairwise, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np

from autorl.core.types import InputError
from autorl.trainers.language.models import missing, offline

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


Row: TypeAlias = dict[str, Any]
FORMATS = (".jsonl", ".json", ".csv", ".parquet")
_KIND = "data file or folder"
_SPLIT = "train"  # where the source names none


def local(source: str) -> Path | None:
    """Return the file or folder that `source` names, else None.

    A `:split` after a folder is left out.
    """
    path, _ = _path_and_split(source)
    return path


def _path_and_split(source: str) -> tuple[Path | None, str]:
    """Return the file or folder that `source` names, and its split."""
    before, _, after = source.rpartition(":")
    # the whole first: a folder's own name may have a colon
    for text, split in ((source, _SPLIT), (before, after or _SPLIT)):
        path = Path(text).expanduser()
        if text and path.exists():
            return path, split
    return None, source.partition(":")[2] or _SPLIT


def read_rows(source: str, key: str, subset: str | None = None) -> list[Row]:
    """Read every row of a data set, by column.

    Args:
        source: a file by its ending; a folder that `datasets` saved; or `organisation/name` on a
            hub. After the last two `:split` may follow, by default `train`.
        key: of the study file, for errors.
        subset: of a data set on a hub that has several.

    Raises:
        InputError: there is nothing there, it cannot be read, or it has no row.
    """
    path = Path(source).expanduser()
    rows = _from_file(path, key) if path.is_file() else _from_datasets(source, key, subset)
    if not rows:
        raise InputError(f"{source} has no row", key=key)
    return rows


def _from_file(path: Path, key: str) -> list[Row]:
    ending = path.suffix.lower()
    if ending not in FORMATS:
        raise InputError(f"{path}: expected a file that ends in {', '.join(FORMATS)}", key=key)
    if ending == ".parquet":
        return _parquet(path, key)
    try:
        # spreadsheets put a byte order mark before the first column's name
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8: {error.reason} at byte {error.start}", key=key
        ) from error
    if ending == ".csv":
        # as a file, not `splitlines`: values may have line ends, and U+2028 ends no row
        return list(csv.DictReader(io.StringIO(text, newline="")))
    # not `splitlines`: JSON may hold other line ends (U+2028) within a text
    lines = enumerate(text.split("\n"), start=1)
    if ending == ".json":
        rows = _parsed(text, path, key, 1)
        if not isinstance(rows, list):
            raise InputError(
                f"{path}: expected a list of mappings; one mapping a line is a .jsonl file", key=key
            )
    else:
        rows = [_parsed(line, path, key, number) for number, line in lines if line.strip()]
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise InputError(f"row {number} is not a mapping of columns", file=str(path), key=key)
    return rows


def _parsed(text: str, path: Path, key: str, line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        # the number within the parsed text, which is one line of a .jsonl file
        place = line + error.lineno - 1
        raise InputError(
            f"not JSON: {error.msg} at column {error.colno}", file=str(path), key=key, line=place
        ) from None


def _parquet(path: Path, key: str) -> list[Row]:
    import duckdb

    # its own: the module's default connection is shared by all threads
    with duckdb.connect() as connection:
        try:
            table = connection.read_parquet(str(path))
            rows = table.fetchall()
        except duckdb.Error as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"{path} is not a Parquet file: {reason}", key=key) from error
        return [dict(zip(table.columns, row, strict=True)) for row in rows]


def _from_datasets(source: str, key: str, subset: str | None) -> list[Row]:
    """Read a folder or a name that `datasets` reads."""
    import datasets
    import huggingface_hub

    if offline():  # of a process that imported these libraries before this package, too
        datasets.config.HF_HUB_OFFLINE = True
        huggingface_hub.constants.HF_HUB_OFFLINE = True
    path, split = _path_and_split(source)
    try:
        if path is not None:
            data: Any = datasets.load_from_disk(str(path))
        else:
            data = datasets.load_dataset(source.partition(":")[0], subset, split=split)
    except FileNotFoundError as error:  # before OSError, which it is one of
        if path is not None:
            raise InputError(
                f"{path} is no folder that `save_to_disk` of datasets wrote", key=key
            ) from error
        raise missing(_KIND, source, key) from error
    except OSError as error:
        raise missing(_KIND, source, key) from error
    except (ValueError, RuntimeError) as error:
        raise InputError(f"cannot read {source}: {str(error).splitlines()[0]}", key=key) from error
    # several splits, as `DatasetDict` was saved
    if isinstance(data, dict):
        if split not in data:
            raise InputError(f"{source} has no split {split!r}; it has {', '.join(data)}", key=key)
        data = data[split]
    return [dict(row) for row in data]


COLUMNS = (
    *("prompt", "chosen", "rejected", "ranking", "completion", "label", "text"),
    *("messages", "tools"),
)
_MEANINGS = (
    "prompt · prompt, chosen, rejected · prompt, ranking · prompt, completion · "
    "prompt, completion, label · messages · text"
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
        chat: the messages that the prompt was rendered from, empty where it was a text.
    """

    prompt: str
    pairs: tuple[tuple[str, str], ...] = ()
    completion: str | None = None
    label: bool | None = None
    row: Mapping[str, Any] = field(default_factory=dict)
    chat: Sequence[Any] = ()

    @property
    def identity(self) -> str:
        """The prompt, or the text where it has none."""
        return self.prompt or self.completion or ""

    @cached_property
    def key(self) -> str:
        """Key that training and held-out rows may not share."""
        return comparable(self.identity)

    @property
    def said(self) -> str:
        """The text of its messages, without the chat template."""
        # A system message may be the same for all prompts, as the template is.
        texts = [str(part.get("content") or "") for part in self.chat if part["role"] != "system"]
        return comparable("\n".join(texts)) if texts else self.key


class _WrongRowError(Exception):
    """Says what is wrong with a row."""


class Reader:
    """Reads rows as examples.

    Args:
        columns: our name -> the data's, for those that differ.
        render: as `chat_renderer` makes it; called for messages alone.
        source: of the rows, for errors.

    Raises:
        InputError: a name that is none of ours.
    """

    def __init__(self, columns: Mapping[str, str], render: Callable[..., str], source: str) -> None:
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
        examples: list[Example] = []
        try:
            for name in self.renamed:
                if name not in have:
                    columns = ", ".join(rows[0])
                    raise _WrongRowError(f"no column {self.names[name]!r}; there are {columns}")
            for row in rows:
                examples.append(self._example(row, have))
        except _WrongRowError as error:
            message = f"row {len(examples) + 1}: {error}"
            key = "environment.kwargs.data"
            raise InputError(message, file=self.source, key=key) from None
        return examples

    def _example(self, row: Row, have: set[str]) -> Example:
        if "prompt" not in have:
            # TRL's implicit prompt: what two conversations share
            if {"chosen", "rejected"} <= have:
                return self._implicit(row)
            if "messages" in have:
                return self._conversation(row)
            if "text" not in have:
                raise _WrongRowError(f"its columns are {', '.join(row)}; expected {_MEANINGS}")
            return Example("", completion=self._answer(row, "text", ()), row=row)
        prompt = self._value(row, "prompt")
        chat = prompt if _is_messages(prompt) else ()
        if chat:
            prompt = self.render(chat, self._tools(row))
        if not isinstance(prompt, str) or not prompt:
            raise self._wrong("a text or messages", "prompt", repr(prompt))
        if not chat and self._tools(row):
            raise _WrongRowError("tools are for a chat template: the prompt is a text, no messages")
        pairs = self._pairs(row, have, chat)
        if "completion" not in have:
            return Example(prompt, pairs, row=row, chat=chat)
        label = None
        if "label" in have:
            value = self._value(row, "label")
            label = _LABELS.get(str(value).lower())
            if label is None:
                raise self._wrong("true or false", "label", repr(value))
        return Example(prompt, pairs, self._answer(row, "completion", chat), label, row, chat)

    def _pairs(self, row: Row, have: set[str], chat: Sequence[Any]) -> tuple[tuple[str, str], ...]:
        """Return the (better, worse) answers of a row with a prompt."""
        if {"chosen", "rejected"} <= have:
            return ((self._answer(row, "chosen", chat), self._answer(row, "rejected", chat)),)
        if "ranking" not in have:
            return ()
        ranking = self._value(row, "ranking")
        is_list = isinstance(ranking, list | tuple) and len(ranking) >= 2
        if not is_list or not all(isinstance(text, str) for text in ranking):
            name = self.names["ranking"]
            raise _WrongRowError(f"expected in {name!r} at least two texts, the best first")
        # in the order of the ranking, so the first of each pair is the better one
        return tuple(combinations(ranking, 2))

    def _implicit(self, row: Row) -> Example:
        """Read two conversations: their common beginning is the prompt."""
        chosen, rejected = (self._value(row, name) for name in ("chosen", "rejected"))
        if not (_is_messages(chosen) and _is_messages(rejected)):
            raise _WrongRowError("chosen and rejected are texts, so a column `prompt` is needed")
        # An answer is at least the last message, that of two equal conversations too.
        most = min(len(chosen), len(rejected)) - 1
        agree = map(operator.eq, chosen[:most], rejected)
        shared = sum(takewhile(bool, agree))
        if not shared:
            raise _WrongRowError("chosen and rejected begin differently: they have no prompt")
        chat = chosen[:shared]
        tools = self._tools(row)
        better = self._continued(chat, chosen[shared:], tools)
        worse = self._continued(chat, rejected[shared:], tools)
        return Example(self.render(chat, tools), ((better, worse),), row=row, chat=chat)

    def _conversation(self, row: Row) -> Example:
        """Read a conversation, whose prompt ends before its first answer."""
        talk = self._value(row, "messages")
        roles = [part.get("role") for part in talk] if _is_messages(talk) else []
        if "assistant" not in roles[1:] or roles[0] == "assistant":
            raise self._wrong("a question and an answer", "messages", f"{talk!r:.80}")
        first = roles.index("assistant")
        chat = talk[:first]
        tools = self._tools(row)
        answer = self._continued(chat, talk[first:], tools)
        return Example(self.render(chat, tools), completion=answer, row=row, chat=chat)

    def _answer(self, row: Row, name: str, chat: Sequence[Any]) -> str:
        """Return an answer: a text, or messages as the template writes them."""
        value = self._value(row, name)
        if _is_messages(value) and chat:
            return self._continued(chat, value, self._tools(row))
        if _is_messages(value) and len(value) == 1:
            value = value[0].get("content")
        if not isinstance(value, str):
            expected = "a text or messages" if chat else "a text or one message"
            raise self._wrong(expected, name, f"{value!r:.80}")
        return value

    def _continued(self, chat: Sequence[Any], answer: Sequence[Any], tools: Any) -> str:
        """Return what the chat template writes of an answer after its prompt."""
        begin = self.render(chat, tools)
        text = self.render([*chat, *answer], tools, answered=True)
        if not text.startswith(begin):
            raise _WrongRowError("the chat template writes the prompt differently before an answer")
        return text[len(begin) :]

    def _tools(self, row: Row) -> Any:
        """Return the tools of a row, None where it has none."""
        tools = row.get(self.names["tools"])
        if isinstance(tools, str):  # data sets keep lists of mixed types as JSON
            try:
                tools = json.loads(tools)
            except json.JSONDecodeError:
                raise self._wrong("a list of tools", "tools", f"{tools!r:.80}") from None
        if tools and not isinstance(tools, list | tuple):
            raise self._wrong("a list of tools", "tools", f"{tools!r:.80}")
        return tools or None

    def _value(self, row: Row, name: str) -> Any:
        # None: a line of a CSV that is too short, or a null of Parquet
        value = row.get(self.names[name])
        if value is None:
            raise _WrongRowError(f"nothing in column {self.names[name]!r}")
        return value

    def _wrong(self, expected: str, name: str, value: str) -> _WrongRowError:
        return _WrongRowError(f"expected {expected} in {self.names[name]!r}, got {value}")


def _is_messages(value: object) -> TypeGuard[Sequence[Mapping[str, object]]]:
    """Whether a value is a conversation as chat models have it."""
    return (
        isinstance(value, list | tuple)
        and len(value) > 0
        and all(isinstance(part, Mapping) and "role" in part for part in value)
    )


def chat_renderer(load_tokenizer: Callable[[], PreTrainedTokenizerBase]) -> Callable[..., str]:
    """Return a function that renders messages as text for a chat model.

    It does so by the template of the model's tokenizer, which is loaded when first needed. It is
    called with messages, the tools that the model is told of (None), and `answered`: whether they
    end with an answer, which is then without its end of sequence; trainers add that themselves.
    """
    load = lru_cache(load_tokenizer)  # data of plain texts needs none, nor one with a template

    def render(messages: Sequence[object], tools: Any = None, *, answered: bool = False) -> str:
        tokenizer: Any = load()
        if not tokenizer.chat_template:
            raise InputError(
                "the data has messages and the model no chat template",
                key="environment.kwargs.model",
            )
        text = str(
            tokenizer.apply_chat_template(
                list(messages), tools=tools, tokenize=False, add_generation_prompt=not answered
            )
        )
        if answered and tokenizer.eos_token and text.rstrip().endswith(tokenizer.eos_token):
            text = text.rstrip().removesuffix(tokenizer.eos_token)
        first = tokenizer.bos_token
        # the tokenizer would put a second beginning of sequence before the template's
        adds_it = tokenizer("")["input_ids"][:1] == [tokenizer.bos_token_id]
        return text.removeprefix(first) if first and adds_it else text

    return render


@dataclass(frozen=True)
class HeldOut:
    """Rows that no run is trained on.

    Attributes:
        halves: every held-out prompt (the text itself where it has none), as `comparable` writes
            it, in random order, and the half it belongs to: 0 for tuning seeds, 1 for test seeds.
        prompts: those that evaluations sample from, one of each half in turn, beginning with tuning
            seeds.
    """

    halves: Mapping[str, int]
    prompts: tuple[str, ...]


def comparable(text: str) -> str:
    """Write a text so that equal prompts are equal texts.

    Blanks, letter case and Unicode form do not make it another prompt.

    A blank counts only between two words: `3 + 4 ?` is `3+4?`, and `1 23` is not `12 3`.
    """
    # twice: casefold takes some letters apart (U+01F0); not NFKC, to which x² is x2
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    words = re.sub(r"\s+", " ", folded).strip()
    # a text of blanks alone stays itself, not the empty text
    return re.sub(r"(?<!\w) | (?!\w)", "", words) or text


def near_duplicates(held: Sequence[str], texts: Iterable[str]) -> dict[str, str]:
    """Return texts that have most words of a held-out text, in order.

    Most is more than half; in order are runs of 8 words, or of all words of a shorter held-out
    text, which has at least 3. The rule is that of Lambert et al., "Tulu 3", 2024.

    Args:
        held: held-out texts, as `comparable` writes them.
        texts: others, written so.

    Returns:
        The first such held-out text by the text.
    """
    words_of = [re.findall(r"\w+", text) for text in held]
    places: dict[tuple[str, ...], list[tuple[int, int]]] = {}
    # By the first two words: few words of a text begin a run, so few runs are cut out of it.
    lengths: dict[tuple[str, str], set[int]] = {}
    for number, words in enumerate(words_of):
        length = min(8, len(words))
        for place in range(len(words) - length + 1) if length >= 3 else ():
            run = tuple(words[place : place + length])
            places.setdefault(run, []).append((number, place))
            lengths.setdefault((run[0], run[1]), set()).add(length)
    near: dict[str, str] = {}
    for text in dict.fromkeys(texts):
        words = re.findall(r"\w+", text)
        covered: dict[int, set[int]] = {}
        for place, begin in enumerate(pairwise(words)):
            for length in lengths.get(begin, ()):
                for number, first in places.get(tuple(words[place : place + length]), ()):
                    covered.setdefault(number, set()).update(range(first, first + length))
        for number in sorted(covered):
            if 2 * len(covered[number]) > len(words_of[number]):
                near.setdefault(text, held[number])
    return near


def hold_out_share(
    learnt: Sequence[str], sampled: Sequence[str], share: float, rng: np.random.Generator
) -> HeldOut:
    """Hold out a share of the prompts of the data sets.

    One is learnt from, the other is sampled from, and a prompt is held out of both. To hold out
    just that share of either, three groups are drawn from one after the other: prompts that are
    only learnt from, those that are in both, and those that are only sampled from. Each half has
    as many prompts of either, give or take one.

    Args:
        learnt: a prompt for each row that is trained on.
        sampled: prompts to sample from; the same as `learnt` where there is one data set.
        share: of the different ones, in 0..1.
        rng: decides which.

    Raises:
        InputError: the share of either is fewer than two prompts, one for each half.
    """
    # not sets, whose order changes with the hash seed
    learnt_once = dict.fromkeys(learnt)
    sampled_once = dict.fromkeys(sampled)
    groups = (
        [key for key in learnt_once if key not in sampled_once],
        [key for key in learnt_once if key in sampled_once],
        [key for key in sampled_once if key not in learnt_once],
    )
    # each data set gets its exact count: three shares, rounded one by one, could miss it
    of_both = round(share * len(groups[1]))
    only_learnt = _count(len(learnt_once), share) - of_both
    only_sampled = _count(len(sampled_once), share) - of_both
    held = [
        group[index]
        for group, count in zip(groups, (only_learnt, of_both, only_sampled), strict=True)
        for index in rng.permutation(len(group))[:count]
    ]
    # prompts sampled from begin at `only_learnt`: they alternate as `policy_metrics.half` reads
    halves = {key: (place - only_learnt) % 2 for place, key in enumerate(held)}
    return HeldOut(halves, tuple(held[only_learnt:]))


def hold_out_all(prompts: Sequence[str], rng: np.random.Generator) -> HeldOut:
    """Hold out all of a data set, in random order and halves.

    Raises:
        InputError: there are not two different prompts, one for each half.
    """
    different = list(dict.fromkeys(prompts))
    _count(len(different), 1.0)
    held = [different[index] for index in rng.permutation(len(different))]
    return HeldOut({key: place % 2 for place, key in enumerate(held)}, tuple(held))


def _count(different: int, share: float) -> int:
    """Return how many of so many different prompts are held out."""
    count = round(share * different)
    if count < 2:
        raise InputError(
            f"{different} different prompts give {count} held-out ones; at least two are needed",
            key="environment.kwargs.held_out",
        )
    return count
