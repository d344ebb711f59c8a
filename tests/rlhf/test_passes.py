"""Passes within a bound of memory: the body once, the head over blocks of the positions that count."""

import copy
import subprocess
import sys

import pytest
from rlhf_support import write_policy

pytest.importorskip("transformers", reason="needs the extra rlhf")

import torch
import transformers

from autorl.core.types import EnvironmentSpec, FrozenMap, InputError, TrainerSpec
from autorl.trainers import load
from autorl.trainers.language.models import load_policy, load_tokenizer
from autorl.trainers.language.passes import bounded, in_parts, sequences_at_once
from autorl.trainers.language.sampling import Samples, log_likelihoods, sample, sequence_kl

SMALL = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
}
TINY = 2e-4  # GiB: a few hundred positions of 50 words


def model_of(family, seed=0, **changes):
    """An untrained model whose distributions are not flat."""
    torch.manual_seed(seed)
    config = getattr(transformers, f"{family}Config")(**{**SMALL, **changes})
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    model.get_output_embeddings().weight.data *= 20
    return model


def drawn(words, count, length, prompt):
    """Random completions after prompts padded left."""
    torch.manual_seed(1)
    tokens = torch.randint(1, words, (count, length))
    attention = torch.ones_like(tokens)
    attention[0, : prompt // 2] = 0
    mask = torch.zeros_like(tokens)
    for row, most in enumerate(torch.randint(1, length - prompt + 1, (count,)).tolist()):
        mask[row, prompt : prompt + most] = 1
    attention[:, prompt:] = mask[:, prompt:]
    return Samples(("",) * count, (), (), (), ((tokens, attention, mask),))


def full_table(model, tokens, attention):
    positions = {"position_ids": (attention.cumsum(1) - 1).clamp(min=0)}
    if isinstance(model, transformers.BloomForCausalLM):
        positions = {}
    with torch.no_grad():
        logits = model(input_ids=tokens, attention_mask=attention, **positions).logits
    return logits[:, :-1].double().log_softmax(-1)


def exact_kl(policy, reference, samples):
    ((tokens, attention, mask),) = samples.batches
    ours, theirs = (full_table(model, tokens, attention) for model in (policy, reference))
    return float(((ours.exp() * (ours - theirs)).sum(-1) * mask[:, 1:]).sum() / len(tokens))


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("Llama", {}),
        ("Gemma2", {"final_logit_softcapping": 3.0}),
        ("Cohere", {"logit_scale": 0.3}),
        ("Bloom", {"n_layer": 2, "n_head": 2}),
        ("Mixtral", {"num_local_experts": 2, "output_router_logits": True}),
    ],
)
def test_blocks_have_the_logits_of_the_model_itself(family, changes):
    """Models that cap or scale their logits, take no positions, or say more than states."""
    policy, reference = (model_of(family, seed, **changes) for seed in (0, 1))
    samples = drawn(50, 6, 24, 8)
    exact = exact_kl(policy, reference, samples)
    with bounded(TINY):
        assert sequence_kl(policy, reference, samples) == pytest.approx(exact, rel=1e-5)
    assert exact > 0.1
    assert "forward" not in vars(policy.base_model)


def test_kl_and_likelihoods_equal_those_of_the_full_table(tmp_path):
    """8,000 words x 64 tokens, in passes of one sequence and blocks of a few positions."""
    write_policy(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    policy, reference = (model_of("Llama", seed, vocab_size=8000) for seed in (0, 1))
    samples = drawn(8000, 4, 64, 16)
    texts = [("a b c", " ".join("abcdef"[place % 6] for place in range(60))), ("d", "e")]
    exact = exact_kl(policy, reference, samples)
    likelihoods = []
    for prompt, completion in texts:
        start = tokenizer(prompt)["input_ids"]
        ids = torch.tensor([start + tokenizer(completion)["input_ids"] + [tokenizer.eos_token_id]])
        table = full_table(policy, ids, torch.ones_like(ids))[0]
        likelihoods.append(float(table.gather(-1, ids[0, 1:, None])[len(start) - 1 :].sum()))
    with bounded(0.002):
        assert sequences_at_once(policy.config, 64) == 8
        assert sequence_kl(policy, reference, samples) == pytest.approx(exact, rel=1e-5)
        assert log_likelihoods(policy, tokenizer, texts) == pytest.approx(likelihoods, rel=1e-5)


def test_without_a_reference_the_base_of_the_adapter_is_it():
    peft = pytest.importorskip("peft", reason="needs the extra rlhf")
    base = model_of("Llama")
    adapted = peft.get_peft_model(copy.deepcopy(base), peft.LoraConfig(target_modules="all-linear"))
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    samples = drawn(50, 6, 24, 8)
    with bounded(TINY):
        kl = sequence_kl(adapted, None, samples)
    assert kl == sequence_kl(adapted, base, samples) > 0.1


def test_a_device_without_memory_halves_the_bound_until_the_pass_fits():
    config = model_of("Llama").config
    asked = []

    def work(part):
        asked.append((part.start, part.stop))
        if part.stop - part.start > 40:
            raise torch.OutOfMemoryError
        return part.stop - part.start

    with bounded(0.01):
        assert sequences_at_once(config, 64) == 117
        assert sum(in_parts(config, 64, 120, work)) == 120
        assert asked == [(0, 117), (0, 58), (0, 29), (29, 58), (58, 87), (87, 116), (116, 120)]

    def never(part):
        raise torch.OutOfMemoryError

    with bounded(0.001), pytest.raises(torch.OutOfMemoryError):
        list(in_parts(config, 64, 20, never))


def test_a_smaller_bound_samples_as_many_completions(tmp_path):
    write_policy(tmp_path)
    policy, tokenizer = load_policy(tmp_path), load_tokenizer(tmp_path)
    with bounded(1e-5):
        samples = sample(policy, tokenizer, ["a b", "a", "c d e"], 5, seed=0)
    assert len(samples.batches) == len(samples.texts) == 3


def test_the_option_is_a_number_and_the_dry_run_says_what_it_gives():
    pytest.importorskip("trl", reason="needs the extra rlhf")
    with pytest.raises(InputError, match=r"expected a number of at least 0.01, got 'all'"):
        load(TrainerSpec("trl/rloo", FrozenMap(evaluation_memory_gb="all")))
    trainer = load(TrainerSpec("trl/rloo", FrozenMap(evaluation_memory_gb=0.01)))
    sizes = trainer.sizes(EnvironmentSpec("letters-goldproxy"), 256, ["beta"])
    assert sizes["a checkpoint"] == (
        "about 1.0 MiB, of a test seed 0.3 (the weights); 85,824 parameters"
    )
    adapted = trainer.sizes(EnvironmentSpec("letters-goldproxy"), 256, ["lora.r"])
    assert adapted["a checkpoint"] == "the adapter and its optimizer; 85,824 parameters"
    assert sizes["an evaluation"].startswith("163 of 256 completions at once, up to 14 tokens each")


MEASURED = """
import resource, torch
from transformers import LlamaConfig, LlamaForCausalLM
from autorl.trainers.language.sampling import Samples, sequence_kl
words, length, count = 151_936, 1024, 16
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(vocab_size=words, hidden_size=16, intermediate_size=32,
    num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
    max_position_embeddings=length)).eval()
tokens = torch.randint(0, words, (count, length))
ones = torch.ones_like(tokens)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
before = peak()
sequence_kl(model, model, Samples(("",) * count, (), (), (), ((tokens, ones, ones),)))
print(peak() - before)
"""


@pytest.mark.more
@pytest.mark.cpu_seconds(600)
def test_a_large_vocabulary_fits():
    """One layer, 151,936 words, 16 sequences of 1,024 tokens: whole tables would take 46 GiB."""
    run = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert float(run.stdout) <= 2.0
