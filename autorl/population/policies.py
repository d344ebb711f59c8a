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
def log_softmax(logits: Array, out: Array) -> None:
    """out[j] = log of the probability of action j, for j < len(out)."""
    top = float(logits[0])
    for j in range(1, len(out)):
        top = max(top, float(logits[j]))
    total = 0.0
    for j in range(len(out)):
        total += math.exp(logits[j] - top)
    log_total = top + math.log(total)
    for j in range(len(out)):
        out[j] = logits[j] - log_total


@kernel
def sample(member: Member, outputs: Array, log_std: Array, log_p: Array, action: Array) -> float:
    """Draw an action from the policy with these network outputs into `action`; returns its log-probability.

    `log_p` is scratch memory with one entry per discrete action; it is empty for a Gaussian policy.
    """
    seed = rng.stream(member.key[0], rng.ACTION)
    if len(log_p) > 0:
        log_softmax(outputs, log_p)
        left = rng.uniform(seed, draw(member, rng.ACTION))
        choice = 0
        while choice < len(log_p) - 1 and left >= math.exp(log_p[choice]):
            left -= math.exp(log_p[choice])
            choice += 1
        action[0] = choice
        return float(log_p[choice])
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
def log_prob_and_entropy(outputs: Array, log_std: Array, log_p: Array, action: Array) -> tuple[float, float]:
    """Log-probability of `action`, and the policy's entropy. Fills `log_p` for `policy_gradient`."""
    if len(log_p) > 0:
        log_softmax(outputs, log_p)
        entropy = 0.0
        for j in range(len(log_p)):
            entropy -= math.exp(log_p[j]) * log_p[j]
        return log_p[int(action[0])], entropy
    entropy = 0.0
    for i in range(len(log_std)):
        entropy += 0.5 + HALF_LOG_2PI + log_std[i]
    return gaussian_log_prob(outputs, log_std, action), entropy


@kernel
def policy_gradient(
    outputs: Array,
    log_std: Array,
    log_p: Array,
    action: Array,
    weights: tuple[float, float, float],
    delta: Array,
    log_std_gradient: Array,
) -> None:
    """Gradient of `u * log_prob + v * entropy` for weights (u, v, entropy): into `delta`, added to `log_std_gradient`.

    Categorical: d log p_a / d logit_j = [j = a] - p_j and d H / d logit_j = -p_j (log p_j + H).
    """
    by_log_prob, by_entropy, entropy = weights
    if len(log_p) > 0:
        chosen = int(action[0])
        for j in range(len(log_p)):
            p = math.exp(log_p[j])
            hit = 1.0 if j == chosen else 0.0
            delta[j] = by_log_prob * (hit - p) - by_entropy * p * (log_p[j] + entropy)
        return
    for i in range(len(action)):
        inverse = math.exp(-log_std[i])
        z = (action[i] - outputs[i]) * inverse
        delta[i] = by_log_prob * z * inverse
        log_std_gradient[i] += by_log_prob * (z * z - 1.0) + by_entropy
