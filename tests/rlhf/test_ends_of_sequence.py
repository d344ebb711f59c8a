"""A model whose turns end with a second token: every end of its generation configuration ends a completion."""

import pytest
from rlhf_support import built

torch = pytest.importorskip("torch", reason="needs the extra rlhf")
pytest.importorskip("transformers", reason="needs the extra rlhf")

from autorl.trainers.language.policy_metrics import measure, pair_likelihoods  # noqa: E402
from autorl.trainers.language.ppo.algorithm import PPO  # noqa: E402
from autorl.trainers.language.sampling import ends_of_sequence, log_likelihoods, sample  # noqa: E402
from autorl.trainers.language.tasks.letters import load  # noqa: E402
from autorl.trainers.language.tasks.tiny_models import new_policy, write_tokenizer  # noqa: E402

WORDS = ("a", "b", "c", "d", "<turn>")
EOS, TURN = 2, 8  # ids: that of the tokenizer, and the end of a turn
PROMPTS = tuple(f"{first} {second}" for first in "abcd" for second in "abcd") * 4
MOST = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An untrained model of nine tokens, each about as likely as the others; two of them end a turn."""
    folder = tmp_path_factory.mktemp("turns")
    model = new_policy(0, len(WORDS), hidden=16, layers=1)
    model.generation_config.eos_token_id = [EOS, TURN]
    model.save_pretrained(folder)
    write_tokenizer(folder, WORDS)
    torch.set_num_threads(1)
    return folder


def words(prompts, completions):
    return [float(len(text.split())) for text in completions]


def tiny(folder):
    task = {"prompts": PROMPTS, "held_out": PROMPTS, "max_completion": MOST}
    return built(folder, signals={"gold": words}, **task)


def generated_lengths(model, tokenizer):
    """Tokens before the end of completions by `generate`, which reads the generation configuration of the model."""
    as_tensors = {"return_tensors": "pt", "padding": True, "return_token_type_ids": False}
    encoded = tokenizer(list(PROMPTS), **as_tensors)
    torch.manual_seed(0)
    with torch.no_grad():
        tokens = model.eval().generate(**encoded, do_sample=True, top_k=0, max_new_tokens=MOST)
    completions = tokens[:, encoded["input_ids"].shape[1] :].tolist()
    is_end = [[token in (EOS, TURN) for token in row] for row in completions]
    return [row.index(True) if any(row) else len(row) for row in is_end]


@pytest.mark.parametrize(
    ("configured", "ends"),
    [(None, (EOS,)), (EOS, (EOS,)), (TURN, (EOS, TURN)), ([TURN, EOS], (EOS, TURN))],
)
def test_the_ends_are_those_of_the_generation_configuration_and_of_the_tokenizer(
    folder, configured, ends
):
    model, tokenizer = load(folder)
    model.generation_config.eos_token_id = configured
    assert ends_of_sequence(model, tokenizer) == ends


def test_a_completion_ends_where_generate_ends_it(folder):
    """Token by token the same draws: the same lengths, mean 3.4; of one end alone it is 8.2."""
    model, tokenizer = load(folder)
    drawn = sample(model, tokenizer, PROMPTS, MOST, seed=0)
    assert list(drawn.lengths) == generated_lengths(model, tokenizer)
    ((tokens, _, mask),) = drawn.batches
    for row, counted, ended in zip(tokens, mask.bool(), drawn.ended, strict=True):
        completion = row[counted].tolist()
        assert not {EOS, TURN} & set(completion[:-1])
        assert ended == (completion[-1] in (EOS, TURN))
    last = {int(row[counted][-1]) for row, counted in zip(tokens, mask.bool(), strict=True)}
    assert last >= {EOS, TURN}
    assert not any("<turn>" in text for text in drawn.texts)


def test_every_measure_is_of_the_text_before_the_end(folder):
    model, tokenizer = load(folder)
    metrics = measure(model, model, tokenizer, tiny(folder), seed=0, role="tuning", step=1, n=32)
    drawn = sample(model, tokenizer, PROMPTS, MOST, seed=0)
    assert metrics["length"] == pytest.approx(sum(drawn.lengths) / len(drawn.lengths), abs=2.0)
    assert metrics["length"] < 6  # of one end alone 8
    assert metrics["gold"] <= metrics["length"]  # special tokens are no words
    assert metrics["truncated"] < 0.2


def test_ppo_trains_on_the_text_before_the_end(folder):
    config = {"learning_rate": 1e-3, "batch_size": 32, "num_ppo_epochs": 1, "temperature": 1.0}
    trainer = PPO(tiny(folder), config, 0, 4, words)
    rollouts, roll_out = [], trainer._rollout

    def noting(*given):
        rollouts.append(roll_out(*given))
        return rollouts[-1]

    trainer._rollout = noting
    trainer.train_to(1)
    ((rollout,)) = rollouts
    completions = rollout.tokens[:, -rollout.mask.shape[1] :]
    pairs = zip(completions, rollout.mask.bool(), strict=True)
    rows = [row[counted].tolist() for row, counted in pairs]
    assert all(not {EOS, TURN} & set(row[:-1]) for row in rows)
    last = [row[-1] for row in rows]
    assert TURN in last
    share = sum(token in (EOS, TURN) for token in last) / len(last)
    assert trainer.logs["ended"] == pytest.approx(share)


def test_a_completion_that_brings_its_own_end_gets_no_second_one(folder):
    """As TRL, which adds the end of the tokenizer where a text does not end with it."""
    model, tokenizer = load(folder)
    texts = ("c d", "c d <eos>", "c d <turn>")
    plain, twice, turn = log_likelihoods(model, tokenizer, [("a b", text) for text in texts])
    assert twice == pytest.approx(plain)
    ids = torch.tensor([tokenizer("a b c d <turn>")["input_ids"]])
    with torch.no_grad():
        chances = model.eval()(input_ids=ids).logits[0, :-1].log_softmax(-1)
    steps = chances.gather(-1, ids[0, 1:, None])[:, 0]
    assert turn == pytest.approx(float(steps[1:].sum()), abs=1e-4)
    both = pair_likelihoods(model, tokenizer, [("a b", "c d", "c d <turn>")])
    assert both == pytest.approx([plain, turn])
