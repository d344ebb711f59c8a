"""TRL trains on the tokens that are evaluated, and the metric `tokens` is one count in every
method."""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the extra rlhf")

from rlhf_support import importable, save, write_policy
from segments import segment, train

from autorl.core.types import EnvironmentSpec, FrozenMap
from autorl.trainers.language.models import load_policy, load_tokenizer
from autorl.trainers.language.sampling import _encode, _padded, sample
from autorl.trainers.rlhf.counted_reward import CountedReward
from autorl.trainers.trl.segment_trainer import AsItIs

PROMPTS = [*"abcd", "e a", "f b", "g c", "h d"]  # known by their first letter
PAIRS = [(prompt, "i j k", "l l") for prompt in PROMPTS[:4]]
PAIRS += [(prompt, "m", "n o p q") for prompt in PROMPTS[4:]]
ONLINE = ("rloo", "grpo", "online_dpo", "ppo")
FROM_DATA = ("dpo", "kto", "sft", "reward", "cpo", "orpo")
MENDED = ("cpo", "online_dpo", "ppo")  # where TRL differs, or a count did: always run
TOKENIZERS = ("names", "adds")  # a beginning of sequence only named, or put before every text
MOST = 5
# All of the data in one step.
STEP = {"learning_rate": 1e-3, "per_device_train_batch_size": len(PAIRS)}
CONFIG = {
    "rloo": {"num_generations": 4},
    "grpo": {"num_generations": 4},
    "kto": {"per_device_train_batch_size": 2 * len(PAIRS)},
    "cpo": {"loss_type": "simpo", "cpo_alpha": 0.0},
    "ppo": {"learning_rate": 1e-3, "batch_size": 8, "num_ppo_epochs": 1},
}


MODULE = "trl_token_rewards"
CODE = """
seen = []

def shown(prompts, completions):
    seen.extend(zip(prompts, completions))
    return [float(len(text)) for text in completions]

def other(prompts, completions):
    return [float(len(text.split())) for text in completions]
"""


def each(methods):
    return [
        pytest.param(name, marks=() if name in MENDED else pytest.mark.slow) for name in methods
    ]


@dataclass(frozen=True)
class Run:
    """One optimizer step: the rows that went through the model with a gradient, as (tokens without padding on their
    left, whether each counts), what was sampled in it as (prompt, text), the metrics, the checkpoint."""

    rows: Sequence[tuple[list[int], list[int]]]
    sampled: Sequence[tuple[str, str]]
    metrics: Mapping[str, float]
    checkpoint: Path

    @property
    def read(self):
        """The rows without padding."""
        return [
            tuple(token for token, counts in zip(*row, strict=True) if counts) for row in self.rows
        ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model with each tokenizer, and the data."""
    import torch
    from tokenizers.processors import TemplateProcessing

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("tokens")
    for name in TOKENIZERS:
        write_policy(folder / name)
    adds = load_tokenizer(folder / "adds")
    adds.backend_tokenizer.post_processor = TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", adds.bos_token_id)]
    )
    adds.save_pretrained(folder / "adds")
    keys = ("prompt", "chosen", "rejected")
    save(folder / "pairs.jsonl", [dict(zip(keys, pair, strict=True)) for pair in PAIRS])
    held = [{"prompt": f"{one} x", "chosen": "a", "rejected": "b"} for one in "ijkl"]
    save(folder / "held.jsonl", held)
    with pytest.MonkeyPatch.context() as patch, importable(MODULE, CODE, folder, patch):
        yield folder


@pytest.fixture(scope="module")
def trained(folder):
    """A run of a method with a tokenizer; each is done once."""
    return functools.cache(functools.partial(one_run, folder))


def one_run(folder, method, tokenizer, **more):
    import trl_token_rewards
    from transformers import LlamaModel

    if method in ONLINE:
        signals = {"proxy": f"{MODULE}:shown", "gold": f"{MODULE}:other"}
        files = {"signals": signals, "training": "proxy", "selection": "gold", "report": "gold"}
    else:
        names = dict.fromkeys(("selection", "report"), "pair_accuracy")
        files = {"training": "data", **names}
    files |= {"model": str(folder / tokenizer), "max_completion": MOST}
    files |= {"data": str(folder / "pairs.jsonl"), "held_out": str(folder / "held.jsonl")}
    own = {"guard": 0} if method == "ppo" else {"guard": 0, **STEP}
    place = folder / f"{method}-{tokenizer}-{len(more)}"
    task = EnvironmentSpec("files", FrozenMap(files))
    config = CONFIG.get(method, {}) | more
    one = segment(f"trl/{method}", task, config, 1, place, own, episodes=4, seed=3)
    rows = {}
    trl_token_rewards.seen.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LlamaModel, "forward", recorded(LlamaModel.forward, rows))
        outcome = train(one)
    # Evaluation asks held-out prompts.
    sampled = [pair for pair in trl_token_rewards.seen if pair[0] in PROMPTS]
    policy, *_ = rows.values()  # the other is the value network of PPO
    return Run(policy, sampled, outcome.reports[0].metrics, Path(outcome.checkpoint.path))


def recorded(forward, rows):
    """`forward`, noting by model what it is given where gradients are taken: sampling and evaluation take none."""
    import torch

    @functools.wraps(forward)
    def noting(self, input_ids=None, attention_mask=None, **named):
        if torch.is_grad_enabled():
            masks = torch.ones_like(input_ids) if attention_mask is None else attention_mask
            for tokens, mask in zip(input_ids.tolist(), masks.tolist(), strict=True):
                rows.setdefault(self, []).append((tokens[mask.index(1) :], mask[mask.index(1) :]))
        return forward(self, input_ids=input_ids, attention_mask=attention_mask, **named)

    return noting


def evaluated(tokenizer, texts):
    """The tokens evaluation reads of (prompt, completion), end of sequence included."""
    tokens, attention, _ = _padded(_encode(tokenizer, texts), tokenizer.pad_token_id, "cpu")
    return [tuple(row[mask.bool()].tolist()) for row, mask in zip(tokens, attention, strict=True)]


def asked(folder, tokenizer):
    """The tokens a completion is sampled from in evaluation, by prompt."""
    drawn = sample(load_policy(folder), tokenizer, PROMPTS, MOST, seed=0)
    ((tokens, attention, mask),) = drawn.batches
    prompts = attention.bool() & ~mask.bool()
    return {
        prompt: tuple(row[own].tolist())
        for prompt, row, own in zip(PROMPTS, tokens, prompts, strict=True)
    }


SEQUENCES = [(prompt, text) for prompt, *both in PAIRS for text in both]


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("method", each(FROM_DATA))
def test_a_method_that_learns_from_data_reads_what_is_evaluated(method, name, folder, trained):
    texts = [(prompt, chosen) for prompt, chosen, _ in PAIRS] if method == "sft" else SEQUENCES
    expected = evaluated(load_tokenizer(folder / name), texts)
    assert sorted(trained(method, name).read) == sorted(expected)
    assert {row.count(1) for row in expected} == ({1} if name == "adds" else {0})


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("method", each(ONLINE))
def test_an_online_method_asks_with_the_prompts_that_are_evaluated(method, name, folder, trained):
    """The prompts, token by token, and after each the completion whose text was scored."""
    tokenizer, run = load_tokenizer(folder / name), trained(method, name)
    prompts = asked(folder / name, tokenizer)
    found = []
    for row in run.read:
        (prompt,) = [prompt for prompt, ids in prompts.items() if row[: len(ids)] == ids]
        answer = row[len(prompts[prompt]) :]
        found.append((prompt, tokenizer.decode(answer, skip_special_tokens=True)))
    assert sorted(found) == sorted(run.sampled)
    assert {ids.count(1) for ids in prompts.values()} == ({1} if name == "adds" else {0})


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("method", each(FROM_DATA))
def test_tokens_of_data_are_each_sequence_once(method, name, folder, trained):
    """A pair is two sequences; KTO has as many again, every completion after another's prompt."""
    texts = [(prompt, chosen) for prompt, chosen, _ in PAIRS] if method == "sft" else SEQUENCES
    words = sum(len(f"{prompt} {text}".split()) + 1 + (name == "adds") for prompt, text in texts)
    assert trained(method, name).metrics["tokens"] == words * (2 if method == "kto" else 1)


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("method", each(ONLINE))
def test_tokens_that_were_sampled_end_with_the_end_of_sequence(method, name, folder, trained):
    """Counted in the rows themselves, whatever they were masked with; some completions end early."""
    tokenizer, run = load_tokenizer(folder / name), trained(method, name)
    prompts, total, early = asked(folder / name, tokenizer), 0, 0
    for tokens, _ in run.rows:
        (start,) = [len(ids) for ids in prompts.values() if tuple(tokens[: len(ids)]) == ids]
        completion = tokens[start : start + MOST]
        end = tokenizer.eos_token_id
        length = completion.index(end) + 1 if end in completion else MOST
        total, early = total + length, early + (length < MOST)
    assert early > 0
    assert run.metrics["tokens"] == total
    assert run.metrics["completions"] == len(run.rows)


@pytest.mark.slow
def test_sequences_laid_end_to_end_are_counted(folder):
    """SFT packs them without an attention mask."""
    run = one_run(folder, "sft", "names", packing=True, max_length=12)
    assert run.metrics["tokens"] == sum(
        len(f"{prompt} {chosen}".split()) + 1 for prompt, chosen, _ in PAIRS
    )


@pytest.mark.parametrize("method", each(["cpo", "orpo", "online_dpo"]))
def test_the_tokenizer_in_a_checkpoint_is_the_one_of_the_model(method, folder, trained):
    """The tokenizer that a method reads prompts with is for reading alone."""
    checkpoint = trained(method, "names").checkpoint
    saved, ours = load_tokenizer(checkpoint), load_tokenizer(folder / "names")
    assert (saved.bos_token, type(saved)) == ("<bos>", type(ours))
    assert saved("a b")["input_ids"] == ours("a b")["input_ids"]
    assert json.loads((checkpoint / "config.json").read_text())["bos_token_id"] == 1


def test_padding_by_the_end_of_sequence_is_not_counted():
    """A tokenizer without padding pads with its end of sequence; a model may have several ends."""
    reward = CountedReward("proxy", lambda prompts, completions: [0.0] * len(prompts))
    reward.ends = frozenset({2, 9})
    reward(["a"] * 4, [""] * 4, completion_ids=[[5, 2, 2, 2], [5, 6, 7, 8], [9, 2, 2, 2], []])
    assert reward.tokens == 2 + 4 + 1


def test_a_tokenizer_as_it_is_adds_what_it_adds_by_itself(folder):
    for name in TOKENIZERS:
        whole = load_tokenizer(folder / name)
        bare = AsItIs(whole)
        assert bare("a b", add_special_tokens=False)["input_ids"] == whole("a b")["input_ids"]
        assert bare.bos_token_id is None
        assert (bare.eos_token_id, whole.bos_token_id) == (2, 1)
