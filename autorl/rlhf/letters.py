"""`letters-goldproxy`: over-optimisation of a proxy reward, in seconds on one core.

A Markov source over 24 letters is learnt by a two-layer reference policy. The gold reward is an inverted U in the
number of good letters; the proxy is a linear Bradley-Terry reward model fitted to a few noisy comparisons by gold, and
grows without bound. Optimised lightly, the proxy raises gold; optimised hard, it ruins it (Gao, Schulman and Hilton
2023, "Scaling Laws for Reward Model Overoptimization").
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from autorl.rlhf.measures import half
from autorl.rlhf.models import load_policy, load_tokenizer
from autorl.rlhf.sampling import sample
from autorl.rlhf.task import Built, Fixed, Pair, cached, resolve_options
from autorl.seeds import digest
from autorl.types import InputError

LETTERS = tuple("abcdefghijklmnopqrstuvwx")
SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
GOOD, BAD = frozenset("abcdef"), frozenset("ghij")
PROMPT, COMPLETION = 2, 12  # letters of a prompt; most tokens of a completion
PEAK = 4  # good letters at which gold is best
_VERSION = 1  # of everything the cached files depend on; raise it when that changes
_HELD_OUT = 192  # of the 576 prompts there are
_MODELS = 64  # most of an ensemble


@dataclass(frozen=True)
class Source:
    """The Markov source: letter follows letter by `transitions` (24 x 24); sequences end early with chance `p_end`."""

    transitions: np.ndarray
    p_end: float = 0.06

    @classmethod
    def of(cls, instance: int) -> Source:
        """The source of a task instance. Good letters are rare in it, repeats rarer."""
        rng = np.random.default_rng(
            7 + instance
        )  # instance 0: the source the documented figures were measured on
        size = len(LETTERS)
        table = rng.dirichlet(np.full(size, 0.35), size=size) + 0.004
        table[:, [LETTERS.index(letter) for letter in GOOD]] *= 0.6
        table[np.arange(size), np.arange(size)] *= 0.05
        return cls(table / table.sum(axis=1, keepdims=True))

    def sample(self, n: int, rng: np.random.Generator) -> list[list[int]]:
        """Sequences of letters 0..23: a prompt of two uniform letters and a completion of 3 to 12."""
        cumulative = self.transitions.cumsum(axis=1)
        letters = np.empty((n, PROMPT + COMPLETION), dtype=int)
        letters[:, :PROMPT] = rng.integers(len(LETTERS), size=(n, PROMPT))
        ended = np.full(n, PROMPT + COMPLETION)
        for position in range(PROMPT, PROMPT + COMPLETION):
            if position > PROMPT + 2:
                stops = (rng.random(n) < self.p_end) & (ended == PROMPT + COMPLETION)
                ended[stops] = position
            drawn = (cumulative[letters[:, position - 1]] < rng.random(n)[:, None]).sum(axis=1)
            letters[:, position] = np.minimum(drawn, len(LETTERS) - 1)
        return [row[:end].tolist() for row, end in zip(letters, ended, strict=True)]


def gold(completion: str) -> float:
    """1 at four good letters, 0 at none and at eight, negative beyond; 0.25 less for each bad one; -1 if empty."""
    letters = completion.split()
    if not letters:
        return -1.0
    share = sum(letter in GOOD for letter in letters) / PEAK
    return share * (2.0 - share) - 0.25 * sum(letter in BAD for letter in letters)


def golds(prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
    """Gold as a signal: it depends on the completion alone."""
    return [gold(completion) for completion in completions]


def counts(completions: Sequence[str]) -> np.ndarray:
    """How often each letter occurs, (n, 24): all the linear proxy sees."""
    return np.array(
        [[text.split().count(letter) for letter in LETTERS] for text in completions], dtype=float
    )


@dataclass(frozen=True)
class LinearReward:
    """A reward model on letter counts: the proxy."""

    weights: np.ndarray

    def __call__(self, prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        return [float(value) for value in counts(completions) @ self.weights]

    @classmethod
    def fit(cls, pairs: Sequence[Pair], ridge: float = 1.0, iterations: int = 25) -> LinearReward:
        """The Bradley-Terry model of (prompt, chosen, rejected) triples, by Newton's method with an L2 penalty."""
        differences = counts([chosen for _, chosen, _ in pairs]) - counts(
            [rejected for _, _, rejected in pairs]
        )
        weights = np.zeros(differences.shape[1])
        for _ in range(iterations):
            wrong = 1.0 / (1.0 + np.exp(differences @ weights))
            gradient = differences.T @ wrong - ridge * weights
            curvature = (
                differences * (wrong * (1.0 - wrong))[:, None]
            ).T @ differences + ridge * np.eye(len(weights))
            weights = weights + np.linalg.solve(curvature, gradient)
        return cls(weights)

    def accuracy(self, pairs: Sequence[Pair]) -> float:
        """Share of pairs ranked as labelled."""
        differences = counts([chosen for _, chosen, _ in pairs]) - counts(
            [rejected for _, _, rejected in pairs]
        )
        return float((differences @ self.weights > 0).mean())


def reference(instance: int, folder: Path, steps: int = 200) -> Path:
    """Folder of the reference policy and its tokenizer, trained once on the instance's source (some 10 s)."""
    content = {
        "what": "letters-reference",
        "version": _VERSION,
        "instance": instance,
        "steps": steps,
    }
    return cached(
        folder,
        "letters-reference",
        content,
        lambda target: _train_reference(instance, target, steps),
    )


def split_prompts(instance: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Every prompt of two letters in random order: those for training and those held out."""
    every = [
        text((first, second)) for first in range(len(LETTERS)) for second in range(len(LETTERS))
    ]
    order = [every[index] for index in _generator(instance, "prompts").permutation(len(every))]
    return tuple(order[_HELD_OUT:]), tuple(order[:_HELD_OUT])


def comparisons(
    policy: Path,
    instance: int,
    prompts: Sequence[str],
    n: int,
    flips: float = 0.0,
    purpose: str = "pairs",
) -> tuple[Pair, ...]:
    """At most n pairs of completions by `policy`, ranked by gold and a share `flips` of them the wrong way; no ties."""
    rng = _generator(instance, purpose)
    prompts = [prompts[index] for index in rng.integers(len(prompts), size=n)]
    both = [prompt for prompt in prompts for _ in range(2)]
    model, tokenizer = load(policy)
    texts = sample(model, tokenizer, both, COMPLETION, digest(instance, purpose) % 2**31).texts
    pairs: list[Pair] = []
    for prompt, one, other, chance in zip(
        prompts, texts[::2], texts[1::2], rng.random(n), strict=True
    ):
        if gold(one) == gold(other):
            continue
        better, worse = (one, other) if gold(one) > gold(other) else (other, one)
        pairs.append((prompt, worse, better) if chance < flips else (prompt, better, worse))
    return tuple(pairs)


class GoldProxy(Fixed):
    """The task `letters-goldproxy`; see `autorl.rlhf.task.Task`.

    Options:
        pairs: comparisons drawn for the proxy; ties by gold are left out, about one in ten.
        flips: share of them that is labelled the wrong way; held-out pairs are labelled right.
        models: proxies in an ensemble. Above 1 there are signals `proxy_0`, `proxy_1`, ... beside `proxy`, each fitted
            to a bootstrap sample of the comparisons; `reward.rule` puts them together.
    """

    name = "letters-goldproxy"
    options: Mapping[str, Any] = MappingProxyType({"pairs": 512, "flips": 0.2, "models": 1})
    training = "proxy"
    selection = "gold"
    report = "gold"
    kinds = ("prompts", "pairs")

    def __init__(self, models: int = 1) -> None:
        self.ensemble = tuple(f"proxy_{number}" for number in range(models)) if models > 1 else ()

    @property
    def signals(self) -> tuple[str, ...]:
        return ("proxy", *self.ensemble, "gold")

    def with_options(self, options: Mapping[str, Any]) -> GoldProxy:
        models = options.get("models", 1)
        known = (
            isinstance(models, int) and 1 < models <= _MODELS
        )  # `check` says what is wrong with another
        return type(self)(models) if known else self

    def check_values(self, chosen: Mapping[str, Any]) -> None:
        _check(chosen)

    def build(self, instance: int, folder: Path, **options: Any) -> Built:
        chosen = resolve_options(self.options, options, self.name)
        _check(chosen)
        policy = reference(instance, folder)
        models = chosen.pop(
            "models", 1
        )  # fitted anew from the stored pairs: what is cached does not depend on it
        content = {"what": self.name, "version": _VERSION, "instance": instance, "options": chosen}
        data = cached(
            folder, self.name, content, lambda target: _write(target, policy, instance, chosen)
        )
        stored = json.loads((data / "task.json").read_text(encoding="utf-8"))
        pairs = tuple((a, b, c) for a, b, c in stored["pairs"])
        held_out = [(a, b, c) for a, b, c in stored["held_out_pairs"]]
        of_test = set(half(stored["held_out"], "test"))
        proxies = bootstrapped(pairs, instance, models) if models > 1 else {}
        return Built(
            name=self.name,
            instance=instance,
            reference=policy,
            prompts=tuple(stored["prompts"]),
            held_out=tuple(stored["held_out"]),
            pairs=pairs,
            held_out_pairs=tuple(pair for pair in held_out if pair[0] not in of_test),
            test_pairs=tuple(pair for pair in held_out if pair[0] in of_test),
            max_completion=COMPLETION,
            signals={"proxy": LinearReward(np.array(stored["weights"])), **proxies, "gold": golds},
            training=self.training,
            selection=self.selection,
            report=self.report,
            ensemble=tuple(proxies),
            bounds={
                "gold": (-4.0, 1.0),
                "win_rate": (0.0, 1.0),
                "distinct": (0.0, 1.0),
                "length": (0.0, COMPLETION),
            },
        )


GOLDPROXY = GoldProxy()


def text(letters: Sequence[int]) -> str:
    """Letters 0..23 as a tokenizer's text: words of one letter."""
    return " ".join(LETTERS[letter] for letter in letters)


def load(folder: Path) -> tuple[Any, Any]:
    """The policy and the tokenizer of a folder, without a network."""
    return load_policy(folder), load_tokenizer(folder)


def write_tokenizer(folder: Path, words: Sequence[str] = LETTERS) -> None:
    """Save a word-level tokenizer over `words`, the special tokens first."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate((*SPECIAL, *words))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
    fast: Any = PreTrainedTokenizerFast
    fast(tokenizer_object=tokenizer, padding_side="left", **names).save_pretrained(folder)


def new_policy(seed: int, words: int, hidden: int = 64, layers: int = 2, longest: int = 64) -> Any:
    """A small Llama-type model with fresh weights over `words` words and the special tokens."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(SPECIAL) + words,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=longest,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def fit_policy(
    model: Any,
    rows: Sequence[Sequence[int]],
    steps: int,
    seed: int,
    batch: int = 128,
    lr: float = 6e-3,
    given: int = 0,
    cycle: bool = True,
) -> None:
    """Maximum likelihood of token rows (end of sequence included; ragged).

    The first `given` tokens of a row are read, not learnt. The learning rate goes through one cosine cycle, or stays.
    """
    import torch

    longest = max(map(len, rows))
    tokens = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    attention = (torch.arange(longest) < torch.tensor([[len(row)] for row in rows])).long()
    labels = tokens.masked_fill(attention == 0, -100)
    labels[:, :given] = -100
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    schedule: Any = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    if cycle:
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=lr, total_steps=steps, pct_start=0.1
        )
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        picked = torch.randint(len(rows), (batch,), generator=generator)
        loss = model(
            input_ids=tokens[picked], attention_mask=attention[picked], labels=labels[picked]
        ).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def _train_reference(instance: int, target: Path, steps: int) -> None:
    offset = len(SPECIAL)
    corpus = Source.of(instance).sample(8192, _generator(instance, "corpus"))
    rows = [[*(letter + offset for letter in row), 2] for row in corpus]
    model = new_policy(digest(instance, "initialisation") % 2**31, len(LETTERS))
    fit_policy(model, rows, steps, digest(instance, "batches") % 2**31)
    model.save_pretrained(target)
    write_tokenizer(target)


def _write(target: Path, policy: Path, instance: int, options: Mapping[str, Any]) -> None:
    """The data of an instance: prompts, comparisons and the proxy fitted to them."""
    prompts, held_out = split_prompts(instance)
    pairs = comparisons(policy, instance, prompts, options["pairs"], options["flips"])
    clean = comparisons(policy, instance, held_out, 512, purpose="held-out pairs")
    stored = {
        "prompts": prompts,
        "held_out": held_out,
        "pairs": pairs,
        "held_out_pairs": clean,
        "weights": LinearReward.fit(pairs).weights.tolist(),
    }
    (target / "task.json").write_text(json.dumps(stored), encoding="utf-8")


def _check(options: Mapping[str, Any]) -> None:
    pairs, flips = options["pairs"], options["flips"]
    if isinstance(pairs, bool) or not isinstance(pairs, int) or pairs < 16:
        raise InputError(
            f"expected a whole number of at least 16, got {pairs!r}", key="environment.kwargs.pairs"
        )
    models = options.get("models", 1)
    if isinstance(models, bool) or not isinstance(models, int) or not 1 <= models <= _MODELS:
        raise InputError(
            f"expected a whole number in 1..{_MODELS}, got {models!r}",
            key="environment.kwargs.models",
        )
    if isinstance(flips, bool) or not isinstance(flips, int | float) or not 0 <= flips < 0.5:
        raise InputError(
            f"expected a share in 0..0.5, got {flips!r}", key="environment.kwargs.flips"
        )


def bootstrapped(pairs: Sequence[Pair], instance: int, models: int) -> dict[str, LinearReward]:
    """Reward models `proxy_0`, `proxy_1`, ..., each fitted to as many comparisons drawn with replacement.

    They share the wrong labels of the comparisons: an ensemble tells what the sample leaves open, not what is false.
    """
    found = {}
    for number in range(models):
        drawn = _generator(instance, f"bootstrap {number}").integers(len(pairs), size=len(pairs))
        found[f"proxy_{number}"] = LinearReward.fit([pairs[index] for index in drawn])
    return found


def _generator(instance: int, purpose: str) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(digest(instance, f"letters {purpose}")))
