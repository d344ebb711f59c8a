"""Stochastic policies on a network's outputs: categorical, and a Gaussian with one learned deviation per dimension.

Log-probabilities, entropies and their gradients are scalars in double precision, whatever the network's precision.
The Gaussian is Stable-Baselines3's `DiagGaussianDistribution`: unbounded; the environment receives the clipped action.
"""

from __future__ import annotations

import math

from autorl.population import rng
from autorl.population.kernels import Array, kernel
from autorl.population.members import Member, draw

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


@kernel
def softmax(logits: Array, chances: Array) -> None:
    """Fill `chances` (2, n_actions) with the probability of each action and its logarithm."""
    n, top = chances.shape[1], float(logits[0])
    for j in range(1, n):
        top = max(top, float(logits[j]))
    total = 0.0
    for j in range(n):
        chances[0, j] = math.exp(logits[j] - top)
        total += chances[0, j]
    log_total = top + math.log(total)
    for j in range(n):
        chances[0, j] /= total
        chances[1, j] = logits[j] - log_total


@kernel
def sample(member: Member, outputs: Array, log_std: Array, chances: Array, action: Array) -> float:
    """Draw an action from the policy with these network outputs into `action`; returns its log-probability.

    `chances` is scratch memory, (2, n_actions); for a Gaussian policy n_actions is 0.
    """
    seed = rng.stream(member.key[0], rng.ACTION)
    if chances.shape[1] > 0:
        softmax(outputs, chances)
        left = rng.uniform(seed, draw(member, rng.ACTION))
        choice = 0
        while choice < chances.shape[1] - 1 and left >= chances[0, choice]:
            left -= chances[0, choice]
            choice += 1
        action[0] = choice
        return float(chances[1, choice])
    for i in range(len(action)):
        action[i] = outputs[i] + math.exp(log_std[i]) * rng.normal(seed, draw(member, rng.ACTION))
    return gaussian_log_prob(outputs, log_std, action)


@kernel
def gaussian_log_prob(mean: Array, log_std: Array, action: Array) -> float:
    """Log-density of `action` under independent normals."""
    total = 0.0
    for i in range(len(action)):
        z = (action[i] - mean[i]) * math.exp(-log_std[i])
        total -= 0.5 * z * z + log_std[i] + HALF_LOG_2PI
    return total


@kernel
def log_prob_and_entropy(outputs: Array, log_std: Array, chances: Array, action: Array) -> tuple[float, float]:
    """Log-probability of `action`, and the policy's entropy. Fills `chances` for `policy_gradient`."""
    if chances.shape[1] > 0:
        softmax(outputs, chances)
        entropy = 0.0
        for j in range(chances.shape[1]):
            entropy -= chances[0, j] * chances[1, j]
        return chances[1, int(action[0])], entropy
    entropy = 0.0
    for i in range(len(log_std)):
        entropy += 0.5 + HALF_LOG_2PI + log_std[i]
    return gaussian_log_prob(outputs, log_std, action), entropy


@kernel
def policy_gradient(
    outputs: Array,
    log_std: Array,
    chances: Array,
    action: Array,
    weights: tuple[float, float, float],
    delta: Array,
    log_std_gradient: Array,
) -> None:
    """Gradient of `u * log_prob + v * entropy` for weights (u, v, entropy): into `delta`, added to `log_std_gradient`.

    Categorical: d log p_a / d logit_j = [j = a] - p_j and d H / d logit_j = -p_j (log p_j + H).
    """
    by_log_prob, by_entropy, entropy = weights
    if chances.shape[1] > 0:
        chosen = int(action[0])
        for j in range(chances.shape[1]):
            p, log_p = chances[0, j], chances[1, j]
            hit = 1.0 if j == chosen else 0.0
            delta[j] = by_log_prob * (hit - p) - by_entropy * p * (log_p + entropy)
        return
    for i in range(len(action)):
        inverse = math.exp(-log_std[i])
        z = (action[i] - outputs[i]) * inverse
        delta[i] = by_log_prob * z * inverse
        log_std_gradient[i] += by_log_prob * (z * z - 1.0) + by_entropy
