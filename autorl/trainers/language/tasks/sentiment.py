"""`tiny-sentiment`: real text and real raters.

A small model of film reviews is pushed towards what people rate high. The proxy is a bag-of-words
Bradley-Terry model of single raters' opinions on 10,605 snippets of film reviews; the gold is the
sentiment analyser VADER. Both can be exploited ("funny funny funny"): report gold beside `kl` and
`distinct`.

Nothing of the texts comes with this package. They are in the source archive of vaderSentiment 3.3.2
(its wheel has the analyser only):

    pip install vaderSentiment==3.3.2
    pip download --no-deps --no-binary :all: vaderSentiment==3.3.2 --dest FOLDER
    export AUTORL_RATINGS=FOLDER/vaderSentiment-3.3.2.tar.gz

References:
    [Hutto2014] Hutto and Gilbert, "VADER: A Parsimonious Rule-based Model for Sentiment Analysis of
        Social Media Text", ICWSM 2014: analyser, snippets (of Pang and Lee 2005) and ratings.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import io
import os
import re
import tarfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from autorl.core.numbers import check_number
from autorl.core.seeds import digest
from autorl.core.shipped import cache_folder
from autorl.core.types import InputError
from autorl.trainers.language.contract import Built, Task
from autorl.trainers.language.tasks.tiny_models import EOS, SPECIAL, stored, write_reference

ARCHIVE = "vaderSentiment-3.3.2.tar.gz"
_SHA256 = "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9"
_INNER = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
_SNIPPETS = "hutto_ICWSM_2014/movieReviewSnippets_"
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
PROMPT = 2  # words
COMPLETION = 14  # words
VOCABULARY = 1500  # words


@dataclass(frozen=True)
class Snippet:
    """A rated text: its known words, and its raters' scores.

    A score is from -4 to 4.
    """

    words: tuple[str, ...]
    ratings: tuple[int, ...]


def snippets(archive: Path) -> tuple[list[Snippet], list[str]]:
    """Read the rated film reviews, cut to the commonest words.

    Returns:
        The reviews, and those words.

    Raises:
        InputError: the archive is not there, or is not the one this task is defined on.
    """
    texts, ratings = _read(_content(archive))
    split = {
        number: _WORD.findall(text.lower()) for number, text in texts.items() if number in ratings
    }
    counts = Counter(word for words in split.values() for word in words)
    # ties by the word: the vocabulary is a function of the texts, not of their order
    by_count = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    vocabulary = [word for word, _ in by_count[:VOCABULARY]]
    allowed = set(vocabulary)
    rated = [
        Snippet(tuple(word for word in words if word in allowed), ratings[number])
        for number, words in split.items()
    ]
    return [snippet for snippet in rated if len(snippet.words) > PROMPT], vocabulary


@dataclass(frozen=True)
class WordReward:
    """A reward model on words: the proxy.

    It is the sum of their weights, so repeating a good one pays without end.
    """

    weights: Mapping[str, float]

    def __call__(self, prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        return [sum(self.weights.get(word, 0.0) for word in text.split()) for text in completions]

    @classmethod
    def fit(
        cls, pairs: Sequence[tuple[Sequence[str], Sequence[str]]], ridge: float = 1.0
    ) -> WordReward:
        """Fit the Bradley-Terry model of (better, worse) texts with an L2 penalty."""
        from scipy.optimize import minimize
        from scipy.sparse import csr_array

        words = sorted({word for pair in pairs for text in pair for word in text})
        number = {word: index for index, word in enumerate(words)}
        entries = [
            (row, number[word], sign)
            for row, pair in enumerate(pairs)
            for text, sign in zip(pair, (1.0, -1.0), strict=True)
            for word in text
        ]
        rows, columns, signs = zip(*entries, strict=True)
        # sums what falls together
        table = csr_array((signs, (rows, columns)), shape=(len(pairs), len(number)))

        def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
            margins = table @ weights
            # exp overflows beyond 709
            wrong = 1.0 / (1.0 + np.exp(np.clip(margins, -500, 500)))
            value = float(np.logaddexp(0.0, -margins).sum() + 0.5 * ridge * weights @ weights)
            return value, ridge * weights - table.T @ wrong

        fitted = minimize(loss, np.zeros(len(number)), jac=True, method="L-BFGS-B")
        return cls({word: round(float(fitted.x[index]), 6) for word, index in number.items()})


def gold(prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
    """Return VADER's compound sentiment of each completion, -1 to 1."""
    return [float(_analyser().polarity_scores(text)["compound"]) for text in completions]


class TinySentiment(Task):
    """The task `tiny-sentiment`, described in the module.

    Options:
        pairs: comparisons the proxy is fitted to, by one random rater of each text, without ties.
        sft_steps: steps of the reference policy, 128 snippets each.
    """

    name = "tiny-sentiment"
    options: Mapping[str, Any] = MappingProxyType({"pairs": 4096, "sft_steps": 600})
    training = "proxy"
    selection = "gold"
    report = "gold"
    signals = ("proxy", "gold")

    def check_values(self, chosen: Mapping[str, object]) -> None:
        for name, value in chosen.items():
            check_number(value, f"environment.kwargs.{name}", 1, whole=True)

    def check(self, options: Mapping[str, object]) -> Sequence[str]:
        """Check the options, and return the kinds of training data.

        The task has prompts only.

        Raises:
            InputError: an option is wrong, the package of the gold is missing, or so are the
                ratings while no instance of the task was ever built here.
        """
        kinds = super().check(options)
        _check_gold()
        folder = cache_folder("rlhf")
        # a task that was built has no need of the ratings any more
        if not any(folder.glob(f"{self.name}-*")):
            _content(_archive(folder))
        return kinds

    def build(self, instance: int, folder: Path, **options: Any) -> Built:
        chosen = self.resolved(options)
        _check_gold()
        archive = _archive(folder)
        made, saved = stored(
            *(folder, self.name, instance, chosen),
            lambda target: _write(target, archive, instance, chosen),
            data=_SHA256,
        )
        return self.built(
            reference=made,
            prompts=tuple(saved["prompts"]),
            held_out=tuple(saved["held_out"]),
            max_completion=COMPLETION,
            signals={"proxy": WordReward(saved["weights"]), "gold": gold},
        )


SENTIMENT = TinySentiment()


def _check_gold() -> None:
    if importlib.util.find_spec("vaderSentiment") is None:
        needed = f'pip install "autorl[sentiment]" and set AUTORL_RATINGS to {ARCHIVE}'
        raise InputError(
            f"the gold of tiny-sentiment is the package vaderSentiment: {needed}", key="environment"
        )


def _archive(folder: Path) -> Path:
    """Return where the ratings are, or should be."""
    return Path(os.environ.get("AUTORL_RATINGS") or folder / ARCHIVE)


def _content(archive: Path) -> bytes:
    """Read the archive of ratings.

    Raises:
        InputError: it is not there, or not the one this task is defined on.
    """
    if not archive.is_file():
        raise InputError(
            f"tiny-sentiment reads human ratings from {ARCHIVE}, which is not at {archive}: run "
            "`pip download --no-deps --no-binary :all: vaderSentiment==3.3.2` and set "
            "AUTORL_RATINGS to the file",
            key="environment",
        )
    content = archive.read_bytes()
    if hashlib.sha256(content).hexdigest() != _SHA256:
        raise InputError(
            f"{archive} is not {ARCHIVE} as published: its SHA-256 differs", key="environment"
        )
    return content


def _read(content: bytes) -> tuple[dict[str, str], dict[str, tuple[int, ...]]]:
    """Read texts and ratings by number, from the archive in the archive."""
    with (
        tarfile.open(fileobj=io.BytesIO(content)) as outer,
        tarfile.open(fileobj=_member(outer, _INNER)) as inner,
    ):
        tables: list[list[list[str]]] = []
        for name in ("GroundTruth", "anonDataRatings"):
            raw: bytes = _member(inner, f"{_SNIPPETS}{name}.txt").read()
            lines = raw.decode("utf-8", errors="replace").splitlines()
            tables.append([line.lstrip("\ufeff").split("\t") for line in lines])
    texts, ratings = tables
    return {row[0]: row[2] for row in texts}, {
        row[0]: tuple(ast.literal_eval(row[3])) for row in ratings
    }


def _member(archive: tarfile.TarFile, name: str) -> Any:
    member = archive.extractfile(name)
    if member is None:
        raise InputError(f"{ARCHIVE} holds no {name}", key="environment")
    return member


def _write(
    target: Path, archive: Path, instance: int, options: Mapping[str, int]
) -> dict[str, object]:
    """Write reference policy and tokenizer, and return prompts and proxy."""
    rated, vocabulary = snippets(archive)
    order = np.random.default_rng(digest(instance, "sentiment split")).permutation(len(rated))
    share = len(rated) // 5
    train = [rated[index] for index in order[share:]]
    held = [rated[index] for index in order[:share]]
    prompts = dict.fromkeys(" ".join(snippet.words[:PROMPT]) for snippet in train)
    held_out = dict.fromkeys(" ".join(snippet.words[:PROMPT]) for snippet in held)
    number = {word: index for index, word in enumerate(vocabulary, start=len(SPECIAL))}
    longest = PROMPT + COMPLETION  # cut where a completion would be
    rows = [[*(number[word] for word in snippet.words), EOS][:longest] for snippet in train]
    steps = options["sft_steps"]
    write_reference(target, vocabulary, rows, steps, instance, prefix="sentiment ", hidden=96)
    return {
        "prompts": list(prompts),
        # several reviews may begin with the same two words
        "held_out": [prompt for prompt in held_out if prompt not in prompts],
        "weights": WordReward.fit(_comparisons(train, instance, options["pairs"])).weights,
    }


def _comparisons(
    rated: Sequence[Snippet], instance: int, n: int
) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Draw pairs of random texts, the better one first.

    Each text is judged by one of its own raters.
    """
    rng = np.random.default_rng(digest(instance, "sentiment pairs"))
    pairs = []
    for index, other_index in rng.integers(len(rated), size=(n, 2)):
        first = rated[index]
        second = rated[other_index]
        # one rater each: real disagreement is the noise of the proxy's labels
        first_rating = int(rng.choice(first.ratings))
        second_rating = int(rng.choice(second.ratings))
        if first_rating > second_rating:
            pairs.append((first.words, second.words))
        elif first_rating < second_rating:
            pairs.append((second.words, first.words))
    return pairs


@lru_cache(maxsize=1)
def _analyser() -> Any:
    return importlib.import_module("vaderSentiment.vaderSentiment").SentimentIntensityAnalyzer()
