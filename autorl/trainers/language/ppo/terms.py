"""The terms of PPO on token sequences, each a pure function.

KL estimates, advantages, whitening, losses, rewards. Shapes: b sequences x t completion tokens. A
mask is 1.0 on tokens that count (end of sequence included) and 0.0 on the padding behind them;
values under a 0 never matter.

References:
    [Schulman2020] Schulman, "Approximating KL Divergence", 2020: the estimators k1, k2, k3.
    [Schulman2016] Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage
        Estimation", 2016.
    [Huang2024] Huang et al., "The N+ Implementation Details of RLHF with PPO: A Case Study on
        TL;DR", 2024.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from autorl.trainers.language.ppo.settings import Estimator, MissingEos


def kl_estimate(log_policy: Tensor, log_reference: Tensor, estimator: Estimator = "k1") -> Tensor:
    """Estimate KL(policy || reference) at each token sampled from the policy [Schulman2020].

    With x = log policy - log reference: k1 = x, unbiased and of either sign; k2 = x^2 / 2, never
    negative and biased; k3 = exp(-x) - 1 + x, never negative and unbiased. All (b, t), in nats.
    """
    difference = log_policy - log_reference
    if estimator == "k1":
        return difference
    if estimator == "k2":
        return 0.5 * difference.square()
    # expm1 keeps the digits that exp(-x) - 1 loses where the policies are near
    return torch.expm1(-difference) + difference


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Average over the tokens that count, of all sequences together.

    Long sequences weigh more.
    """
    return (values * mask).sum() / mask.sum()


def whiten(values: Tensor, mask: Tensor, *, shift_mean: bool = True) -> Tensor:
    """Scale to unit variance over the tokens that count, (b, t).

    Elsewhere values are 0.

    The mean becomes 0, or stays as it was where not `shift_mean`.
    """
    mean = masked_mean(values, mask)
    count = mask.sum()
    # Bessel's correction, as `torch.var`; clamped because one token has no variance
    variance = masked_mean((values - mean).square(), mask) * count / (count - 1).clamp(min=1)
    # 1e-8: equal values have variance 0
    whitened = (values - mean) * torch.rsqrt(variance + 1e-8)
    return (whitened if shift_mean else whitened + mean) * mask


def advantages_and_returns(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, gae_lambda: float
) -> tuple[Tensor, Tensor]:
    """Return generalised advantages and value targets, each (b, t) [Schulman2016].

    Behind the last token that counts the value is 0.
    """
    # what stands on padding must not reach the tokens before it
    rewards = rewards * mask
    values = values * mask
    # A_t = delta_t + gamma lambda A_(t+1), from the end [Schulman2016, equation 16]
    advantage = torch.zeros(len(rewards))
    steps: list[Tensor] = []
    for t in reversed(range(rewards.shape[1])):
        after = values[:, t + 1] if t + 1 < rewards.shape[1] else torch.zeros(len(rewards))
        error = rewards[:, t] + gamma * after - values[:, t]
        advantage = error + gamma * gae_lambda * advantage
        steps.append(advantage)
    advantages = torch.stack(steps[::-1], dim=1) * mask
    return advantages, advantages + values


def policy_loss(
    log_new: Tensor, log_old: Tensor, advantages: Tensor, mask: Tensor, clip_range: float
) -> tuple[Tensor, Tensor]:
    """Return the clipped surrogate loss, and the clip fraction.

    The fraction is the share of tokens at which clipping counts.
    """
    # masked before exp: an infinite ratio on padding times a mask of 0 is NaN
    ratio = torch.exp((log_new - log_old) * mask)
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - clip_range, 1 + clip_range)
    # the larger loss is the smaller of the two objectives (PPO, Schulman et al. 2017, equation 7)
    loss = masked_mean(torch.maximum(plain, clipped), mask)
    return loss, masked_mean((clipped > plain).float(), mask)


def value_loss(
    new: Tensor, old: Tensor, returns: Tensor, mask: Tensor, clip_range: float | None
) -> Tensor:
    """Return half the mean squared error of predicted returns.

    With `clip_range` the error at a token is the larger of two: of the prediction, and of the
    prediction kept that near to the old one.
    """
    error = (new - returns).square()
    if clip_range is not None:
        near = old + (new - old).clamp(-clip_range, clip_range)
        error = torch.maximum(error, (near - returns).square())
    return 0.5 * masked_mean(error, mask)


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> float:
    """Return the share of the variance of returns that values explain.

    It is NaN where all returns are the same.
    """
    counted = mask > 0
    errors = (returns - values)[counted]
    variance = returns[counted].var(correction=0)
    return math.nan if variance == 0 else float(1 - errors.var(correction=0) / variance)


def final_scores(scores: Tensor, ended: Tensor, handling: MissingEos, penalty: float) -> Tensor:
    """Penalise or replace the scores (b,) of unended completions.

    An unended completion has no end of sequence.

    [Huang2024] replaces them (by -1): a policy must learn to end, and the score of a cut text means
    little.
    """
    if handling == "none":
        return scores
    cut = scores - penalty if handling == "subtract" else torch.full_like(scores, -penalty)
    return torch.where(ended, scores, cut)


def token_rewards(scores: Tensor, kl: Tensor, mask: Tensor, kl_coef: float) -> Tensor:
    """Return the reward of each token, (b, t).

    It is -kl_coef * KL at every token that counts, plus the score at the last of them.
    """
    # tokens that count come first, so their number gives the last of them
    last = mask.sum(dim=1).long() - 1
    rewards = -kl_coef * kl * mask
    rows = torch.arange(len(rewards))
    rewards[rows, last] = rewards[rows, last] + scores
    return rewards
