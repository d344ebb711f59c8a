"""`letters-goldproxy`: over-optimisation of a proxy reward, in seconds on one core.

A Markov source over 24 letters is learnt by a two-layer reference policy. The gold reward is an
inverted U in the number of good letters; the proxy is a linear Bradley-Terry reward model fitted to
a few noisy comparisons by gold, and grows without bound. Optimised lightly, the proxy raises gold;
optimised hard, it ruins it [Gao2023].

References:
    [Gao2023] Gao, Schulman and Hilton, "Scaling Laws for Reward Model Overoptimization", 2023.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from autorl.core.numbers import check_number, is_number
from autorl.core.seeds import digest
from autorl.core.types import InputError
from autorl.trainers.language.contract import Built, Pair, Task
from autorl.trainers.language.models import load_policy, load_tokenizer
from autorl.trainers.language.policy_metrics import half
from autorl.trainers.language.sampling import sample
from autorl.trainers.language.tasks.tiny_models import EOS, SPECIAL, stored, write_reference

LETTERS = tuple("abcdefghijklmnopqrstuvwx")
GOOD = frozenset("abcdef")
BAD = frozenset("ghij")
PROMPT = 2  # letters
COMPLETION = 12  # most tokens
_P_END = 0.06  # chance at each letter that a sequence ends early
PEAK = 4  # good letters at which gold is best
_HELD_OUT = 192  # of the 576 prompts there are
_MODELS = 64  # most of an ensemble
HIDDEN = 64  # of the policy that the documented figures were measured on
LAYERS = 2


def transitions(instance: int) -> np.ndarray:
    """Return the Markov source of an instance: chances that letters follow letters.

    It is (24, 24). Good letters are rare in it, repeats rarer.
    """
    # instance 0 is the source the documented figures were measured on
    rng = np.random.default_rng(7 + instance)
    size = len(LETTERS)
    # + 0.004: any letter may follow any other, so no text has the likelihood 0
    table = rng.dirichlet(np.full(size, 0.35), size=size) + 0.004
    table[:, [LETTERS.index(letter) for letter in GOOD]] *= 0.6
    table[np.arange(size), np.arange(size)] *= 0.05
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def sequences(table: np.ndarray, n: int, rng: np.random.Generator) -> list[list[int]]:
    """Draw n sequences of letters 0..23 from a source.

    Each is a prompt of two uniform letters and a completion of 3 to 12.
    """
    cumulative = table.cumsum(axis=1)
    letters = np.empty((n, PROMPT + COMPLETION), dtype=int)
    letters[:, :PROMPT] = rng.integers(len(LETTERS), size=(n, PROMPT))
    ended = np.full(n, PROMPT + COMPLETION)
    for position in range(PROMPT, PROMPT + COMPLETION):
        if position > PROMPT + 2:
            # only the first end counts, whatever is drawn behind it
            stops = (rng.random(n) < _P_END) & (ended == PROMPT + COMPLETION)
            ended[stops] = position
        drawn = (cumulative[letters[:, position - 1]] < rng.random(n)[:, None]).sum(axis=1)
        # rounding may leave the last cumulative sum below 1, and a draw above it
        letters[:, position] = np.minimum(drawn, len(LETTERS) - 1)
    return [row[:end].tolist() for row, end in zip(letters, ended, strict=True)]


def gold(completion: str) -> float:
    """Score a completion by its letters.

    The score is 1 at four good ones, 0 at none and at eight, negative beyond.

    0.25 less for each bad letter; -1 if empty.
    """
    letters = completion.split()
    if not letters:
        return -1.0
    share = sum(letter in GOOD for letter in letters) / PEAK
    return share * (2.0 - share) - 0.25 * sum(letter in BAD for letter in letters)


def golds(prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
    """Score n completions by gold, whatever the prompts."""
    return [gold(completion) for completion in completions]


def counts(completions: Sequence[str]) -> np.ndarray:
    """Count how often each letter occurs, (n, 24).

    It is all the linear proxy sees.
    """
    return np.array(
        [[text.split().count(letter) for letter in LETTERS] for text in completions], dtype=float
    )


@dataclass(frozen=True)
class LinearReward:
    """A reward model on letter counts: the proxy. `weights`: (24,)."""

    weights: np.ndarray

    def __call__(self, prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        return [float(value) for value in counts(completions) @ self.weights]

    @classmethod
    def fit(cls, pairs: Sequence[Pair], ridge: float = 1.0, iterations: int = 25) -> LinearReward:
        """Fit the Bradley-Terry model of pairs with an L2 penalty.

        The method is Newton's.
        """
        _, chosen, rejected = zip(*pairs, strict=True)
        differences = counts(chosen) - counts(rejected)
        weights = np.zeros(differences.shape[1])
        for _ in range(iterations):
            wrong = 1.0 / (1.0 + np.exp(differences @ weights))
            gradient = differences.T @ wrong - ridge * weights
            weighted = differences * (wrong * (1.0 - wrong))[:, None]
            curvature = weighted.T @ differences + ridge * np.eye(len(weights))
            # the penalty keeps the curvature invertible: no eigenvalue is below `ridge`
            weights = weights + np.linalg.solve(curvature, gradient)
        return cls(weights)


def reference(
    instance: int, folder: Path, steps: int = 200, hidden: int = HIDDEN, layers: int = LAYERS
) -> Path:
    """Return the folder of the reference policy and its tokenizer.

    It is trained once on the instance's source, in some 10 s. Wider ones are trained with a rate
    that falls as the width grows.
    """
    size = {} if (hidden, layers) == (HIDDEN, LAYERS) else {"hidden": hidden, "layers": layers}

    def write(target: Path) -> dict[str, object]:
        offset = len(SPECIAL)
        corpus = sequences(transitions(instance), 8192, _generator(instance, "corpus"))
        rows = [[*(letter + offset for letter in row), EOS] for row in corpus]
        rate = 6e-3 * min(1.0, HIDDEN / hidden)
        write_reference(
            target, LETTERS, rows, steps, instance, hidden=hidden, layers=layers, lr=rate
        )
        return {}

    return stored(folder, "letters-reference", instance, {"steps": steps, **size}, write)[0]


def split_prompts(instance: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split all prompts of two letters at random.

    Returns those for training and those held out.
    """
    prompts = [
        text((first, second)) for first in range(len(LETTERS)) for second in range(len(LETTERS))
    ]
    order = _generator(instance, "prompts").permutation(len(prompts))
    shuffled = [prompts[index] for index in order]
    return tuple(shuffled[_HELD_OUT:]), tuple(shuffled[:_HELD_OUT])


def comparisons(
    policy: Path,
    instance: int,
    prompts: Sequence[str],
    n: int,
    flips: float = 0.0,
    purpose: str = "pairs",
) -> tuple[Pair, ...]:
    """Sample at most n pairs by `policy`, ranked by gold, no ties.

    A share `flips` of them is ranked the wrong way.
    """
    rng = _generator(instance, purpose)
    asked = [prompts[index] for index in rng.integers(len(prompts), size=n)]
    doubled = [prompt for prompt in asked for _ in range(2)]
    model, tokenizer = load(policy)
    texts = sample(model, tokenizer, doubled, COMPLETION, digest(instance, purpose) % 2**31).texts
    pairs: list[Pair] = []
    # a chance for each, ties included: `flips` changes labels, not texts
    for prompt, first, second, chance in zip(
        asked, texts[::2], texts[1::2], rng.random(n), strict=True
    ):
        if gold(first) == gold(second):
            continue
        chosen, rejected = sorted((first, second), key=gold, reverse=True)
        if chance < flips:
            chosen, rejected = rejected, chosen
        pairs.append((prompt, chosen, rejected))
    return tuple(pairs)


class GoldProxy(Task):
    """The task `letters-goldproxy`, described in the module.

    Options:
        pairs: comparisons drawn for the proxy; ties by gold are left out, about one in ten.
        flips: share of them that is labelled the wrong way; held-out pairs are labelled right.
        models: proxies in an ensemble. Above 1 there are signals `proxy_0`, `proxy_1`, ... beside
            `proxy`, each fitted to a bootstrap sample of the comparisons; `reward.rule` puts them
            together.
        hidden, layers: width (a multiple of 8) and depth of the reference policy. Comparisons are
            of the standard policy's completions, whatever the size.
    """

    name = "letters-goldproxy"
    options: Mapping[str, Any] = MappingProxyType(
        {"pairs": 512, "flips": 0.2, "models": 1, "hidden": HIDDEN, "layers": LAYERS}
    )
    training = "proxy"
    selection = "gold"
    report = "gold"
    kinds = ("prompts", "pairs")

    def __init__(self, models: int = 1) -> None:
        self.ensemble = tuple(f"proxy_{number}" for number in range(models)) if models > 1 else ()
        self.signals = ("proxy", *self.ensemble, "gold")

    def with_options(self, options: Mapping[str, object]) -> GoldProxy:
        models = options.get("models", 1)
        # `check` says what is wrong with another number
        if isinstance(models, int) and 1 < models <= _MODELS:
            return type(self)(models)
        return self

    def check_values(self, chosen: Mapping[str, object]) -> None:
        check_number(chosen["pairs"], "environment.kwargs.pairs", 16, whole=True)
        check_number(chosen.get("models", 1), "environment.kwargs.models", 1, _MODELS, whole=True)
        check_number(chosen["layers"], "environment.kwargs.layers", 1, 16, whole=True)
        hidden = chosen["hidden"]
        if not isinstance(hidden, int) or hidden not in range(8, 1025, 8):
            message = f"expected a multiple of 8 up to 1024, got {hidden!r}"
            raise InputError(message, key="environment.kwargs.hidden")
        if not is_number(chosen["flips"], 0, math.nextafter(0.5, 0)):
            raise InputError(
                f"expected a share in 0..0.5, got {chosen['flips']!r}",
                key="environment.kwargs.flips",
            )

    def build(self, instance: int, folder: Path, **options: Any) -> Built:
        chosen = self.resolved(options)
        policy = reference(instance, folder)
        # fitted anew from the stored pairs: what is cached does not depend on their number
        models = chosen.pop("models", 1)
        size = {"hidden": chosen.pop("hidden"), "layers": chosen.pop("layers")}
        _, saved = stored(
            folder, self.name, instance, chosen, lambda _: _drawn(policy, instance, chosen)
        )
        pairs = tuple((a, b, c) for a, b, c in saved["pairs"])
        held_out = [(a, b, c) for a, b, c in saved["held_out_pairs"]]
        of_test = set(half(saved["held_out"], "test"))
        proxies = bootstrapped(pairs, instance, models) if models > 1 else {}
        return self.built(
            reference=reference(instance, folder, **size),
            prompts=tuple(saved["prompts"]),
            held_out=tuple(saved["held_out"]),
            pairs=pairs,
            held_out_pairs=tuple(pair for pair in held_out if pair[0] not in of_test),
            test_pairs=tuple(pair for pair in held_out if pair[0] in of_test),
            max_completion=COMPLETION,
            signals={"proxy": LinearReward(np.array(saved["weights"])), **proxies, "gold": golds},
            ensemble=tuple(proxies),
        )


GOLDPROXY = GoldProxy()


def text(letters: Sequence[int]) -> str:
    """Write letters 0..23 as a tokenizer's text: words of one letter."""
    return " ".join(LETTERS[letter] for letter in letters)


def load(folder: Path) -> tuple[Any, Any]:
    """Load the policy and the tokenizer of a folder, without a network."""
    return load_policy(folder), load_tokenizer(folder)


def _drawn(policy: Path, instance: int, options: Mapping[str, Any]) -> dict[str, object]:
    """Draw an instance's prompts and comparisons, and fit the proxy to them."""
    prompts, held_out = split_prompts(instance)
    pairs = comparisons(policy, instance, prompts, options["pairs"], options["flips"])
    return {
        "prompts": prompts,
        "held_out": held_out,
        "pairs": pairs,
        "held_out_pairs": comparisons(policy, instance, held_out, 512, purpose="held-out pairs"),
        "weights": LinearReward.fit(pairs).weights.tolist(),
    }


def bootstrapped(pairs: Sequence[Pair], instance: int, models: int) -> dict[str, LinearReward]:
    """Fit reward models to as many comparisons drawn with replacement.

    They are `proxy_0`, `proxy_1` and so on.

    They share the wrong labels of the comparisons: an ensemble tells what the sample leaves open,
    not what is false.
    """
    proxies = {}
    for number in range(models):
        # streams by number: a larger ensemble begins with the models of a smaller one
        drawn = _generator(instance, f"bootstrap {number}").integers(len(pairs), size=len(pairs))
        proxies[f"proxy_{number}"] = LinearReward.fit([pairs[index] for index in drawn])
    return proxies


def _generator(instance: int, purpose: str) -> np.random.Generator:
    # PCG64 by name: NumPy may change what `default_rng` is, and a task stays what it was
    return np.random.Generator(np.random.PCG64(digest(instance, f"letters {purpose}")))


class LettersPairs(GoldProxy):
    """The task `letters-pairs`: the letters learnt from noisy preference pairs alone.

    The trap here is the usual measure of such training, the accuracy on held-out pairs: a policy
    that has collapsed to a few letters ranks pairs as well as the best one. Gold is measured on
    what a policy writes.

    Options:
        pairs: comparisons drawn for training; ties by gold are left out, about one in ten.
        flips: share of them that is labelled the wrong way; held-out pairs are labelled right.
        hidden, layers: of the reference policy, as of `letters-goldproxy`.
    """

    name = "letters-pairs"
    options: Mapping[str, Any] = MappingProxyType(
        {"pairs": 600, "flips": 0.2, "hidden": HIDDEN, "layers": LAYERS}
    )


PAIRS = LettersPairs()
