"""Measures of a policy: exact KL, paired win rates, and streams that belong to (seed, step) alone."""

import copy
import math

import pytest
from rlhf_support import built

pytest.importorskip("transformers", reason="needs the extra rlhf")

import torch

from autorl.trainers.language.policy_metrics import (
    evaluation_prompts,
    measure,
    pair_likelihoods,
    pair_measures,
)
from autorl.trainers.language.sampling import log_likelihoods, sample, sequence_kl
from autorl.trainers.language.tasks.letters import LETTERS, golds, load
from autorl.trainers.language.tasks.tiny_models import new_policy, write_tokenizer

HELD_OUT = tuple(f"{one} {other}" for one in "abcdefgh" for other in "abcdefgh")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two untrained policies and their tokenizer."""
    folder = tmp_path_factory.mktemp("policy")
    new_policy(0, 24).save_pretrained(folder)
    write_tokenizer(folder, LETTERS)
    first, tokenizer = load(folder)
    second = new_policy(1, 24)
    for model in (first, second):
        model.lm_head.weight.data *= 8  # untrained logits are nearly flat
    return first, second, tokenizer, folder


def task(folder, **signals):
    signals = signals or {
        "gold": golds,
        "length": lambda prompts, texts: [len(t.split()) for t in texts],
    }
    return built(folder, held_out=HELD_OUT, signals=signals, training="length")


def test_the_kl_of_one_token_is_the_exact_divergence(models):
    """With completions of one token the sequence KL is a mean over prompts of a sum over the vocabulary."""
    first, second, tokenizer, _ = models
    drawn = sample(first, tokenizer, HELD_OUT, 1, seed=5)
    tokens = tokenizer(list(HELD_OUT), return_tensors="pt")["input_ids"]
    with torch.no_grad():
        p, q = (
            model.eval()(input_ids=tokens).logits[:, -1].double().log_softmax(-1)
            for model in (first, second)
        )
    exact = float((p.exp() * (p - q)).sum(-1).mean())
    assert sequence_kl(first, second, drawn) == pytest.approx(exact, rel=1e-4)
    assert sequence_kl(first, first, drawn) == 0.0


def test_the_kl_of_sequences_agrees_with_the_log_ratio_of_what_was_sampled(models):
    """Two estimators of one number; that of the log ratio is the noisier. False alarm below 1e-4 (four errors)."""
    first, second, tokenizer, _ = models
    prompts = HELD_OUT * 16
    drawn = sample(first, tokenizer, prompts, 6, seed=1)
    ratios = []
    for tokens, attention, mask in drawn.batches:
        with torch.no_grad():
            ours, theirs = (
                model.eval()(input_ids=tokens, attention_mask=attention)
                .logits[:, :-1]
                .log_softmax(-1)
                for model in (first, second)
            )
        picked = (ours - theirs).gather(-1, tokens[:, 1:, None])[..., 0]
        ratios += (picked * mask[:, 1:]).sum(1).tolist()
    mean = sum(ratios) / len(ratios)
    error = (sum((ratio - mean) ** 2 for ratio in ratios) / len(ratios) ** 2) ** 0.5
    assert abs(sequence_kl(first, second, drawn) - mean) < 4 * error + 0.05


def test_padding_changes_nothing(models):
    """A prompt sampled beside longer ones has the same likelihood as alone."""
    first, _, tokenizer, _ = models
    texts = [("a", "b c d"), ("a b c d e", "f"), ("c d", "")]
    together = log_likelihoods(first, tokenizer, texts)
    alone = [log_likelihoods(first, tokenizer, [text])[0] for text in texts]
    assert together == pytest.approx(alone, abs=1e-4)
    assert all(value < 0 for value in together)


@pytest.mark.parametrize(
    "own",
    [
        {"repetition_penalty": 1.5},
        {"no_repeat_ngram_size": 1},
        {"suppress_tokens": [5, 6]},
        {"min_p": 0.3},
    ],
)
def test_samples_are_of_the_model_itself_whatever_its_generation_configuration_asks_for(
    models, own
):
    """Instruct models ship penalties that `generate` applies unasked: KL and scores would be of another policy."""
    first, _, tokenizer, _ = models
    plain = sample(first, tokenizer, HELD_OUT, 6, seed=2)
    before = copy.deepcopy(first.generation_config)
    try:
        first.generation_config.update(**own)
        assert sample(first, tokenizer, HELD_OUT, 6, seed=2).texts == plain.texts
        assert {name: getattr(first.generation_config, name) for name in own} == own
    finally:
        first.generation_config = before


def test_the_same_seed_samples_the_same_and_leaves_the_global_stream_alone(models):
    first, _, tokenizer, _ = models
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    one = sample(first, tokenizer, HELD_OUT, 6, seed=2)
    assert torch.rand(1) == expected
    assert one.texts == sample(first, tokenizer, HELD_OUT, 6, seed=2).texts
    assert one.texts != sample(first, tokenizer, HELD_OUT, 6, seed=3).texts


def test_test_prompts_are_never_tuning_prompts_and_depend_on_seed_and_step():
    def asked(role, step, n=20):
        return evaluation_prompts(HELD_OUT, 0, role, step, n, {})

    tuning, test = (
        {prompt for step in range(9) for prompt in asked(role, step)} for role in ("tuning", "test")
    )
    assert not tuning & test
    assert asked("test", 1) == asked("test", 1) != asked("test", 2)
    assert len(asked("test", 1, 100)) == 100


def test_a_policy_ties_with_itself_up_to_chance_and_a_better_one_wins(models):
    """Self play: 256 prompts, binomial deviation 0.03. False alarm below 1e-6."""
    first, _, tokenizer, folder = models
    common = {"seed": 0, "role": "tuning", "step": 1, "n": 256}
    metrics = measure(first, first, tokenizer, task(folder), **common)
    assert metrics["win_rate"] == pytest.approx(0.5, abs=0.16)
    assert metrics["kl"] == 0.0
    of_policy = {"kl", "win_rate", "distinct", "truncated"}
    assert set(metrics) == of_policy | {"gold", "length", "reference_gold"}
    constant = task(folder, gold=lambda prompts, texts: [1.0] * len(texts), length=golds)
    assert measure(first, first, tokenizer, constant, **common)["win_rate"] == 0.5


def test_pairs_are_ranked_by_the_implicit_reward(models):
    first, second, tokenizer, _ = models
    pairs = [("a b", "c d", "e f"), ("b c", "d", "a a a")]
    swapped_pairs = [(prompt, other, one) for prompt, one, other in pairs]
    found, swapped = (
        pair_measures(*(pair_likelihoods(model, tokenizer, either) for model in (first, second)))
        for either in (pairs, swapped_pairs)
    )
    assert found["pair_margin"] == pytest.approx(-swapped["pair_margin"])
    assert found["pair_accuracy"] == 1.0 - swapped["pair_accuracy"]
    ours = pair_likelihoods(first, tokenizer, pairs)
    assert pair_measures(ours, ours) == {"pair_accuracy": 0.5, "pair_margin": 0.0, "pair_ties": 1.0}
    assert math.isfinite(found["pair_margin"])
