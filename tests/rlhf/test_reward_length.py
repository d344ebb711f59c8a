"""Length in a reward is in tokens of the policy, like the metric `length`, not in words."""

from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="needs the extra rlhf")

from autorl.trainers.language.contract import Built
from autorl.trainers.language.models import load_tokenizer
from autorl.trainers.language.rewards.options import RewardOptions
from autorl.trainers.language.sampling import sample
from autorl.trainers.language.tasks.letters import LETTERS
from autorl.trainers.language.tasks.tiny_models import new_policy, write_tokenizer


def assemble(built, options):
    """The training signal that a run's hyperparameters put together."""
    return RewardOptions.read(options).signal(built)


def built(reference):
    return Built(
        name="tiny",
        instance=0,
        reference=Path(reference),
        prompts=("a",),
        held_out=("b",),
        max_completion=8,
        signals={"nothing": lambda prompts, completions: [0.0] * len(completions)},
        training="nothing",
        selection="nothing",
        report="nothing",
        bounds={},
    )


@pytest.fixture
def by_character(tmp_path):
    """A tokenizer that has a token for every character, so a word is several."""
    from tokenizers import Regex, pre_tokenizers

    write_tokenizer(tmp_path, [*"abcdef", " "])
    tokenizer = load_tokenizer(tmp_path)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.save_pretrained(tmp_path)
    return built(tmp_path)


def test_a_limit_and_a_constraint_count_tokens(by_character):
    """`abc de` is two words and six tokens: half way into the buffer of 4, and 3 above the limit of 3."""
    batch = (["a", "a"], ["abc de", "ab"])
    limited = assemble(by_character, {"reward.length_limit": 8, "reward.length_buffer": 4})
    assert limited(*batch) == [-0.5, 0.0]
    constrained = assemble(
        by_character, {"reward.length.at_most": 3.0, "reward.lagrange_rate": 1.0}
    )
    assert constrained.learn(*batch) == [0.0, 0.0]
    assert constrained.multipliers == [1.0]  # mean 4 against 3
    assert constrained(*batch) == [-3.0, 1.0]


def test_it_is_the_length_that_evaluations_report(tmp_path):
    write_tokenizer(tmp_path, LETTERS)
    tokenizer = load_tokenizer(tmp_path)
    drawn = sample(new_policy(0, len(LETTERS), hidden=16, layers=1), tokenizer, ["a b"] * 64, 8, 0)
    special = {
        tokenizer.pad_token_id,
        tokenizer.bos_token_id,
        tokenizer.unk_token_id,
    }  # no text is left of these
    (tokens, _, mask), *_ = drawn.batches
    plain = [
        place
        for place, row in enumerate(tokens)
        if not special & set(row[mask[place].bool()].tolist())
    ]
    constrained = assemble(built(tmp_path), {"reward.length.at_most": 0.0})
    found = constrained.signals["length"](["a b"] * 64, drawn.texts)
    assert len(plain) > 20
    assert [found[place] for place in plain] == [drawn.lengths[place] for place in plain]
    assert len({found[place] for place in plain}) > 3
