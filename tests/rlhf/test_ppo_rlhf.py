"""PPO on a tiny language model: determinism, continuation, hyperparameters, and that it learns."""

import copy
import statistics

import pytest
from rlhf_support import built as tiny
from rlhf_support import write_policy

torch = pytest.importorskip("torch", reason="PPO on language models needs torch")
pytest.importorskip("transformers", reason='PPO on language models needs "autorl[rlhf]"')

from autorl.core.types import InputError  # noqa: E402
from autorl.trainers.language import passes, sampling  # noqa: E402
from autorl.trainers.language.ppo.algorithm import PPO, NotFiniteError, _merged  # noqa: E402
from autorl.trainers.language.ppo.settings import DEFAULTS, Settings, align, settings_at  # noqa: E402
from autorl.trainers.language.rewards.composition import at_steps  # noqa: E402

WORDS = "abcdef"
CONFIG = {"learning_rate": 3e-3, "batch_size": 32, "temperature": 1.0}
CONFIG |= {"num_ppo_epochs": 2, "num_mini_batches": 2}


def share_of_a(prompts, completions):
    return [text.split().count("a") / max(1, len(text.split())) for text in completions]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    write_policy(folder, WORDS)
    prompts = ("a", "b c", "c d e", "f", "d d", "e a b")
    return tiny(folder, prompts=prompts, signals={"proxy": share_of_a}, training="proxy")


@pytest.fixture
def make(built):
    torch.set_num_threads(1)
    return lambda seed=0, horizon=16, **change: PPO(
        built, CONFIG | change, seed, horizon, share_of_a
    )


def weights(trainer):
    models = (trainer.policy, trainer.value)
    return torch.cat([p.detach().flatten() for model in models for p in model.parameters()])


def test_a_new_learning_rate_is_used_after_a_checkpoint_and_read_back(make):
    """The saved optimizer carries its own; TRL's trainers go on with that one."""
    parent = make()
    parent.train_to(4)
    child = make(learning_rate=1e-5, kl_coef=0.7, value_learning_rate=2e-4)
    child.load(copy.deepcopy(parent.state()))
    assert [group["lr"] for group in child.optimizer.param_groups] == [1e-5, 2e-4]
    before = weights(child)
    child.train_to(8)
    applied = child.applied()
    asked = {"learning_rate": 1e-5, "kl_coef": 0.7, "value_learning_rate": 2e-4}
    assert asked.items() <= applied.items()
    of_policy = sum(p.numel() for p in child.policy.parameters())
    moved = (weights(child) - before)[:of_policy].abs().max().item()
    # 4 steps of Adam move a weight by some learning rates at most.
    assert 0 < moved < 4 * 1e-5 * 1.5


def test_a_schedule_of_the_temperature_does_not_change_what_ratios_are_taken_to(make):
    """With hardly any learning every ratio is one, at whatever temperature the completions were sampled."""
    schedule = {"temperature": 0.7, "temperature.shape": "linear", "temperature.end": 1.2}
    trainer = make(learning_rate=1e-12, num_ppo_epochs=4, cliprange=0.01, **schedule)
    trainer.train_to(16)
    assert trainer.logs["clip_fraction"] == 0.0


def test_the_reference_is_never_the_checkpoint(make, built):
    parent = make(kl_coef=0.0)
    parent.train_to(16)
    child = make()
    child.load(parent.state())
    fresh = make()
    for mine, original in zip(child.reference.parameters(), fresh.policy.parameters(), strict=True):
        assert torch.equal(mine, original)
    child.train_to(20)
    assert child.logs["kl"] > 0.05


def test_it_learns_and_the_kl_coefficient_holds_it_back(make):
    free, held = (make(horizon=60, kl_coef=beta, missing_eos="none") for beta in (0.0, 3.0))
    free.train_to(4)
    before = free.logs["reward"]
    free.train_to(60)
    held.train_to(60)
    assert before < 0.3
    assert free.logs["reward"] > before + 0.3
    assert held.logs["reward"] < free.logs["reward"] - 0.1
    assert held.logs["kl"] < free.logs["kl"]


def test_log_probabilities_do_not_depend_on_padding_or_chunks(make, built, monkeypatch):
    trainer = make()
    prompts = list(built.prompts)
    samples = sampling.sample(trainer.policy, trainer.tokenizer, prompts, 6, seed=3)
    tokens, attention, mask = _merged(samples, trainer.tokenizer.pad_token_id)
    together = trainer._log_probabilities(trainer.policy, tokens, attention, mask, 0.7)
    for row, prompt in enumerate(prompts):
        length = int(mask[row].sum())
        ids = trainer.tokenizer(prompt)["input_ids"]
        alone = torch.tensor([ids + tokens[row, -mask.shape[1] :][:length].tolist()])
        logits = trainer.policy(input_ids=alone).logits[0, len(ids) - 1 : -1] / 0.7
        expected = logits.log_softmax(-1).gather(-1, alone[0, len(ids) :, None])[:, 0]
        assert together[row, :length].tolist() == pytest.approx(expected.tolist(), abs=1e-5)
    monkeypatch.setattr(passes, "_MOST", 2)
    samples = sampling.sample(trainer.policy, trainer.tokenizer, prompts, 6, seed=3)
    assert len(samples.batches) == 3
    tokens, attention, mask = _merged(samples, trainer.tokenizer.pad_token_id)
    for row, prompt in enumerate(prompts):
        kept = tokens[row][attention[row].bool()].tolist()
        assert kept[: len(prompt.split())] == trainer.tokenizer(prompt)["input_ids"]
        assert attention[row].sum() == len(prompt.split()) + mask[row].sum()


STEPWISE = {"value_init": "zero", "lam": 1.0, "missing_eos": "none", "whiten_advantages": False}


def test_rewards_at_each_step_come_at_the_token_that_ends_it(built):
    """With values of 0 and lambda 1 the return at a token is the sum of the rewards from there on.

    A step is a word here; special tokens are none, and are left out of the text.
    """
    rewards = {word: place / 10 for place, word in enumerate(WORDS, start=1)}

    def process(prompts, texts):
        return [[rewards[word] for word in text.split()] for text in texts]

    for delta in (False, True):
        steps = at_steps(process, " ", 0.5, 0.4, delta)
        trainer = PPO(built, CONFIG | STEPWISE, 0, 16, share_of_a, steps)
        rollout = trainer._rollout(0, settings_at(trainer.config, 0, 16))  # its KL is 0 so far
        special = set(trainer.tokenizer.all_special_ids)
        total = 0.0
        for row in range(len(rollout.mask)):
            ids = rollout.tokens[row, -rollout.mask.shape[1] :][rollout.mask[row].bool()].tolist()
            places = [place for place, token in enumerate(ids) if token not in special]
            words = [trainer.tokenizer.decode([ids[place]]) for place in places]
            clip = [min(rewards[word], 0.4) - 0.4 for word in words]
            if delta and words:
                clip[-1] = 0.0
                clip = [now - after for now, after in zip(clip, [*clip[1:], 0.0], strict=True)]
            earned = [0.0] * len(ids)
            for place, reward in zip(places, clip, strict=True):
                earned[place] = 0.5 * reward
            (score,) = share_of_a([""], [" ".join(words)])
            earned[-1] += score
            total += sum(earned)
            expected = [sum(earned[place:]) for place in range(len(ids))]
            assert rollout.returns[row, : len(ids)].tolist() == pytest.approx(expected, abs=1e-5)
        assert trainer.logs["reward"] == pytest.approx(total / len(rollout.mask), abs=1e-5)


def rewards_to_come(trainer, rollout, row, scores, gamma):
    """At each token: the discounted score at the end, and the KL of the tokens from here on, taken off."""
    with torch.no_grad():
        reference = trainer._log_probabilities(
            trainer.reference, rollout.tokens, rollout.attention, rollout.mask, 1.0
        )
    length = int(rollout.mask[row].sum())
    rewards = [-0.3 * float(k) for k in (rollout.log_old - reference)[row, :length]]
    rewards[-1] += scores[row]
    return [
        sum(gamma ** (later - place) * rewards[later] for later in range(place, length))
        for place in range(length)
    ]


def texts_of(trainer, rollout):
    rows = zip(rollout.tokens[:, -rollout.mask.shape[1] :], rollout.mask.bool(), strict=True)
    return [trainer.tokenizer.decode(row[kept], skip_special_tokens=True) for row, kept in rows]


OWN = {"kl_coef": 0.3, "missing_eos": "none"}


def test_advantages_of_remax_are_over_the_reward_of_the_likeliest_completion(make):
    gamma = 0.9
    trainer = make(advantage="remax", whiten_advantages=False, gamma=gamma, **OWN)
    trainer.train_to(8)
    prompts = trainer._prompts(5, 32)
    policy, tokenizer = trainer.policy, trainer.tokenizer
    likeliest = [  # one prompt at a time, by another way of asking for it
        policy.generate(**tokenizer(prompt, return_tensors="pt"), do_sample=False, max_new_tokens=6)
        for prompt in prompts
    ]
    greedy = [
        tokenizer.decode(row[0, len(tokenizer(prompt)["input_ids"]) :], skip_special_tokens=True)
        for prompt, row in zip(prompts, likeliest, strict=True)
    ]
    rollout = trainer._rollout(5, settings_at(trainer.config, 8, 16))
    pairs = zip(
        share_of_a(prompts, texts_of(trainer, rollout)), share_of_a(prompts, greedy), strict=True
    )
    scores = [own - baseline for own, baseline in pairs]
    assert len(set(share_of_a(prompts, greedy))) > 1
    for row in range(32):
        expected = rewards_to_come(trainer, rollout, row, scores, gamma)
        assert rollout.advantages[row, : len(expected)].tolist() == pytest.approx(
            expected, abs=1e-5
        )
    assert trainer.logs["tokens"] > int(rollout.mask.sum()) + 32


def test_advantages_of_reinforce_plus_plus_are_normalised_over_the_batch(make):
    trainer = make(advantage="reinforce++", **OWN)
    trainer.train_to(8)
    rollout = trainer._rollout(5, settings_at(trainer.config, 8, 16))
    scores = share_of_a([], texts_of(trainer, rollout))
    rows = [rewards_to_come(trainer, rollout, row, scores, 1.0) for row in range(32)]
    every = [value for row in rows for value in row]
    mean, deviation = statistics.mean(every), statistics.stdev(every)
    for row, values in enumerate(rows):
        expected = [(value - mean) / deviation for value in values]
        assert rollout.advantages[row, : len(expected)].tolist() == pytest.approx(
            expected, abs=1e-4
        )


def test_without_a_value_network_a_run_continues_and_has_no_more_weights(make):
    options = {"advantage": "remax", "whiten_advantages": False, **OWN}
    whole, first, second = (make(**options) for _ in range(3))
    whole.train_to(8)
    first.train_to(4)
    second.load(copy.deepcopy(first.state()))
    second.train_to(8)
    assert torch.equal(weights(second), weights(whole))
    assert len(weights(whole)) == sum(p.numel() for p in whole.reference.parameters())


def test_every_prompt_once_before_any_again(make, built):
    trainer = make(batch_size=4)
    picked = [prompt for number in range(3) for prompt in trainer._prompts(number, 4)]
    assert sorted(picked[:6]) == sorted(built.prompts) == sorted(picked[6:])
    assert picked[:6] != picked[6:]


def test_a_value_head_of_zeros_predicts_nothing_at_first(make):
    trainer = make(value_init="zero")
    tokens, attention = torch.tensor([[4, 5, 6]]), torch.ones(1, 3, dtype=torch.long)
    assert trainer._values(tokens, attention, torch.ones(1, 2)).abs().max() == 0
    assert make()._values(tokens, attention, torch.ones(1, 2)).abs().max() > 0


def test_a_reward_that_is_not_a_number_ends_training(built):
    broken = PPO(built, CONFIG, 0, 8, lambda p, c: [float("nan")] * len(c))
    with pytest.raises(NotFiniteError, match="step 0"):
        broken.train_to(4)


@pytest.mark.parametrize(
    "change",
    [
        {"whiten_rewards": True, "kl_estimator": "k3", "cliprange_value": None},
        {"whiten_advantages": False, "kl_estimator": "k2", "missing_eos": "subtract"},
        {"max_grad_norm": 0.5},
    ],
)
def test_every_combination_of_details_trains(make, change):
    trainer = make(**change)
    trainer.train_to(4)
    assert trainer.applied().items() >= change.items()


def test_cuts_lie_between_cycles(make):
    assert [align(CONFIG, step) for step in (0, 1, 4, 5)] == [0, 4, 4, 8]
    trainer = make()
    trainer.train_to(5)
    assert trainer.step == 8


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"kl_estimator": "k4"}, "k1, k2, k3"),
        ({"missing_eos": "drop"}, "none, subtract, replace"),
        ({"batch_size": 10, "num_mini_batches": 4}, "cannot be divided"),
        ({"temperature": 0.0}, "above 0"),
        ({"advantage": "rloo"}, "gae, remax, reinforce"),
        ({"advantage": "remax", "vf_coef": 0.1}, "means nothing with advantage remax"),
    ],
)
def test_wrong_hyperparameters(config, message):
    with pytest.raises(InputError, match=message):
        settings_at(config, 0, 10)


def test_the_defaults_are_those_of_the_paper():
    paper = {"learning_rate": 3e-6, "num_ppo_epochs": 4, "num_mini_batches": 1, "lam": 0.95}
    paper |= {"cliprange": 0.2, "kl_coef": 0.05, "vf_coef": 0.1, "whiten_rewards": False}
    paper |= {"temperature": 0.7, "missing_eos": "replace", "missing_eos_penalty": 1.0}
    paper |= {"adam_epsilon": 1e-5}
    assert DEFAULTS.items() >= paper.items()
    assert Settings().cycle == 4
