"""Terms of PPO against sums written out, exact expectations and values worked out by hand."""

import math

import pytest

torch = pytest.importorskip("torch", reason="the terms of PPO are torch functions")

from autorl.trainers.language.ppo.terms import (  # noqa: E402
    advantages_and_returns,
    explained_variance,
    final_scores,
    kl_estimate,
    policy_loss,
    token_rewards,
    value_loss,
    whiten,
)

POLICY = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
REFERENCE = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_two_estimators_are_unbiased(estimator):
    """Their expectation under the policy, summed over a categorical with three outcomes, is the KL divergence."""
    exact = (POLICY * (POLICY / REFERENCE).log()).sum()
    found = (POLICY * kl_estimate(POLICY.log(), REFERENCE.log(), estimator)).sum()
    assert found.item() == pytest.approx(exact.item(), rel=1e-12)


def test_k2_is_half_the_squared_log_ratio_and_agrees_to_second_order():
    found = (POLICY * kl_estimate(POLICY.log(), REFERENCE.log(), "k2")).sum().item()
    by_hand = 0.5 * sum(p * math.log(p / q) ** 2 for p, q in [(0.5, 0.2), (0.3, 0.5), (0.2, 0.3)])
    assert found == pytest.approx(by_hand, rel=1e-12)
    tilt = torch.tensor([1e-3, -1e-3, 0.0], dtype=torch.float64)
    near = POLICY + tilt
    exact = (near * (near / POLICY).log()).sum().item()
    estimate = (near * kl_estimate(near.log(), POLICY.log(), "k2")).sum().item()
    assert estimate == pytest.approx(exact, rel=1e-2)


def test_k2_and_k3_are_never_negative_and_k1_is():
    x = torch.linspace(-3, 3, 101)
    zero = torch.zeros_like(x)
    assert kl_estimate(x, zero, "k1").min() < 0
    assert kl_estimate(x, zero, "k2").min() >= 0
    assert kl_estimate(x, zero, "k3").min() >= 0


def brute_force(rewards, values, length, gamma, lam):
    """A_t = sum over l of (gamma lam)^l delta_(t+l), written as the double sum it is."""
    result = []
    for t in range(length):
        total = 0.0
        for k in range(t, length):
            after = values[k + 1] if k + 1 < length else 0.0
            total += (gamma * lam) ** (k - t) * (rewards[k] + gamma * after - values[k])
        result.append(total)
    return result


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 0.95), (0.9, 0.5), (1.0, 1.0), (1.0, 0.0)])
def test_advantages_against_the_double_sum(gamma, lam):
    generator = torch.Generator().manual_seed(0)
    rewards, values = torch.randn(3, 6, generator=generator), torch.randn(3, 6, generator=generator)
    lengths = [6, 1, 4]
    mask = torch.tensor([[1.0] * n + [0.0] * (6 - n) for n in lengths])
    advantages, returns = advantages_and_returns(rewards, values, mask, gamma, lam)
    for row, length in enumerate(lengths):
        expected = brute_force(rewards[row].tolist(), values[row].tolist(), length, gamma, lam)
        assert advantages[row, :length].tolist() == pytest.approx(expected, abs=1e-5)
        assert advantages[row, length:].tolist() == [0.0] * (6 - length)
        sums = [a + v for a, v in zip(expected, values[row].tolist(), strict=False)]
        assert returns[row, :length].tolist() == pytest.approx(sums, abs=1e-5)


def test_what_lies_behind_the_end_never_matters():
    mask = torch.tensor([[1.0, 1.0, 0.0]])
    rewards, values = torch.tensor([[1.0, 2.0, 9.0]]), torch.tensor([[0.1, 0.2, 7.0]])
    base = advantages_and_returns(rewards, values, mask, 1.0, 0.95)
    rewards[0, 2], values[0, 2] = -50.0, 33.0
    other = advantages_and_returns(rewards, values, mask, 1.0, 0.95)
    assert all(torch.equal(first, second) for first, second in zip(base, other, strict=True))


def test_whitening_over_the_tokens_that_count():
    values = torch.tensor([[1.0, 2.0, 100.0], [3.0, 6.0, -100.0]])
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
    white = whiten(values, mask)
    counted = white[mask.bool()]
    assert counted.mean().item() == pytest.approx(0.0, abs=1e-6)
    assert counted.std().item() == pytest.approx(1.0, abs=1e-5)
    assert white[:, 2].tolist() == [0.0, 0.0]
    kept = whiten(values, mask, shift_mean=False)[mask.bool()]
    assert kept.mean().item() == pytest.approx(3.0, abs=1e-5)
    assert kept.std().item() == pytest.approx(1.0, abs=1e-5)


def test_one_token_can_be_whitened():
    assert torch.isfinite(whiten(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0]]))).all()


@pytest.mark.parametrize(
    ("handling", "expected"),
    [("none", [0.5, 3.0]), ("subtract", [0.5, 2.0]), ("replace", [0.5, -1.0])],
)
def test_a_missing_end_is_penalised(handling, expected):
    scores, ended = torch.tensor([0.5, 3.0]), torch.tensor([True, False])
    assert final_scores(scores, ended, handling, 1.0).tolist() == expected


def test_the_score_falls_on_the_last_token_and_kl_on_each():
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    kl = torch.tensor([[0.1, 0.2, 9.0], [0.3, -0.1, 0.5]])
    rewards = token_rewards(torch.tensor([2.0, -1.0]), kl, mask, 0.5)
    assert rewards[0].tolist() == pytest.approx([-0.05, 1.9, 0.0])
    assert rewards[1].tolist() == pytest.approx([-0.15, 0.05, -1.25])


def test_the_policy_loss_is_clipped_on_the_side_that_would_gain():
    """Ratios 1.5 and 0.5 at clip 0.2. Advantage +1: min(1.5, 1.2), min(0.5, 0.8); -1: max(1.5, 1.2), max(0.5, 0.8)."""
    new = torch.tensor([[1.5, 0.5, 1.0]]).log()
    mask = torch.tensor([[1.0, 1.0, 0.0]])
    for advantage, expected in ((1.0, -(1.2 + 0.5) / 2), (-1.0, (1.5 + 0.8) / 2)):
        advantages = torch.tensor([[advantage, advantage, 5.0]])
        loss, share = policy_loss(new, torch.zeros(1, 3), advantages, mask, 0.2)
        assert (loss.item(), share.item()) == pytest.approx((expected, 0.5))


def test_a_huge_ratio_on_padding_gives_no_nan():
    mask = torch.tensor([[1.0, 0.0]])
    new = torch.tensor([[0.0, 500.0]])
    loss, _ = policy_loss(new, torch.zeros(1, 2), mask, mask, 0.2)
    assert loss.item() == -1.0


def test_explained_variance_is_of_the_tokens_that_count():
    """Returns 0, 2, errors 1, -1 about a mean of 0: all of it unexplained; errors 0, 0: none."""
    mask = torch.tensor([[1.0, 1.0, 0.0]])
    returns = torch.tensor([[0.0, 2.0, 9.0]])
    values = torch.tensor([[1.0, 1.0, -5.0]])
    assert explained_variance(values, returns, mask) == 0.0
    assert explained_variance(returns + 3, returns, mask) == 1.0
    assert math.isnan(explained_variance(values, values, mask))


@pytest.mark.parametrize(
    ("target", "clip", "expected"), [(3.0, 0.2, 3.24), (0.0, 0.2, 4.0), (3.0, None, 1.0)]
)
def test_the_value_loss_takes_the_larger_of_the_two_errors(target, clip, expected):
    """New 2, old 1, target 3: error 1; kept within 0.2 of the old value it is 1.2, error 3.24. Target 0: 4."""
    old = torch.ones(1, 1)
    loss = value_loss(2 * old, old, target * old, old, clip)
    assert loss.item() == pytest.approx(0.5 * expected)
