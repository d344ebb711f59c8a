"""Stochastic policies on a network's outputs.

Categorical, and a Gaussian with one learned deviation per dimension.

Everything is computed for a chunk of rows at once, in double precision whatever the network's; in
the scratch arrays the row is the last index, so that each step is one vector loop. The Gaussian is
Stable-Baselines3's `DiagGaussianDistribution`: unbounded; the environment receives the clipped
action.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from autorl.population import rng
from autorl.population.elementary import exp, log
from autorl.population.kernels import Array, kernel
from autorl.population.members import Member, draw
from autorl.population.networks import CHUNK

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


class Policy(NamedTuple):
    """A policy's distribution at each row of a chunk.

    It holds the logarithms of a Gaussian's deviations, and scratch memory.

    Loops run over all `CHUNK` rows, also where fewer are asked for: their length is known to the
    compiler. The rows beyond are never used.

    Attributes:
        log_std, log_std_gradient: (action_size,) views of the parameters and of their gradient;
            empty when categorical.
        chances, log_chances: (n_actions, CHUNK) the probability of each action and its logarithm;
            empty when Gaussian.
        log_probs, entropies: (CHUNK,) of the actions last looked up.
        work: (2, CHUNK).
    """

    log_std: Array
    log_std_gradient: Array
    chances: Array
    log_chances: Array
    log_probs: Array
    entropies: Array
    work: Array


def make_policy(log_std: Array, log_std_gradient: Array, n_actions: int) -> Policy:
    """Make scratch memory around the deviations.

    `n_actions` is 0 for a Gaussian policy.
    """
    chances, log_chances = np.zeros((2, n_actions, CHUNK))
    log_probs, entropies = np.zeros((2, CHUNK))
    return Policy(
        log_std, log_std_gradient, chances, log_chances, log_probs, entropies, np.zeros((2, CHUNK))
    )


@kernel
def softmax(policy: Policy, outputs: Array) -> None:
    """Fill `chances` and `log_chances` from the logits outputs[:CHUNK]."""
    top = policy.work[0]
    totals = policy.work[1]
    # 1. The largest logit of each row; taken off, no exponential overflows.
    for j in range(len(policy.chances)):
        logits = policy.log_chances[j]
        for r in range(CHUNK):
            logits[r] = outputs[r, j]
        for r in range(CHUNK):
            top[r] = max(top[r], logits[r]) if j > 0 else logits[r]
    # 2. Exponentials and their sums.
    for r in range(CHUNK):
        totals[r] = 0.0
    for j in range(len(policy.chances)):
        logits = policy.log_chances[j]
        chances = policy.chances[j]
        for r in range(CHUNK):
            logits[r] -= top[r]
            chances[r] = exp(logits[r])
            totals[r] += chances[r]
    # 3. Normalise; from here on `top` holds the logarithms of the sums.
    for r in range(CHUNK):
        top[r] = log(totals[r])
        totals[r] = 1.0 / totals[r]
    for j in range(len(policy.chances)):
        logits = policy.log_chances[j]
        chances = policy.chances[j]
        for r in range(CHUNK):
            logits[r] -= top[r]
            chances[r] *= totals[r]


@kernel
def sample(
    member: Member, policy: Policy, outputs: Array, actions: Array, log_probs: Array
) -> None:
    """Draw an action per row from the policy with these outputs.

    `actions` are filled, and `log_probs` with theirs.

    `outputs` must have whole chunks of rows.
    """
    seed = rng.stream(member.key[0], rng.ACTION)
    rows = len(actions)
    for first in range(0, rows, CHUNK):
        end = min(first + CHUNK, rows)
        if len(policy.chances) > 0:
            softmax(policy, outputs[first:])
            choose(policy, seed, member.counters[rng.ACTION])
            # One draw a row: those of the rows beyond are not used up.
            member.counters[rng.ACTION] += end - first
            for r in range(first, end):
                actions[r, 0] = policy.work[0, r - first]
                log_probs[r] = policy.log_chances[int(actions[r, 0]), r - first]
        else:
            for r in range(first, end):
                for i in range(actions.shape[1]):
                    noise = rng.normal(seed, draw(member, rng.ACTION))
                    actions[r, i] = outputs[r, i] + math.exp(policy.log_std[i]) * noise
            gaussian_log_probs(policy, outputs[first:], actions[first:end])
            for r in range(first, end):
                log_probs[r] = policy.log_probs[r - first]


@kernel
def choose(policy: Policy, seed: int, counter: int) -> None:
    """Draw an action for every row into `work[0]`.

    The draws are `counter`, `counter` + 1, ... of stream `seed`.
    """
    choices = policy.work[0]
    remaining = policy.work[1]
    for r in range(CHUNK):
        choices[r] = 0.0
        remaining[r] = rng.uniform(seed, counter + r)
    # The last action takes what rounding leaves of the sum.
    for j in range(len(policy.chances) - 1):
        chances = policy.chances[j]
        for r in range(CHUNK):
            choices[r] += 1.0 if remaining[r] >= chances[r] else 0.0
            remaining[r] -= chances[r]


@kernel
def gaussian_log_probs(policy: Policy, mean: Array, actions: Array) -> None:
    """Fill `log_probs` with the log-density of each row of `actions`.

    The dimensions are independent normals.
    """
    rows = len(actions)
    log_probs = policy.log_probs
    for r in range(CHUNK):
        log_probs[r] = 0.0
    for i in range(len(policy.log_std)):
        log_std = float(policy.log_std[i])
        inverse = math.exp(-log_std)
        for r in range(rows):
            z = (actions[r, i] - mean[r, i]) * inverse
            log_probs[r] -= 0.5 * z * z + log_std + HALF_LOG_2PI


@kernel
def log_probs_and_entropies(policy: Policy, outputs: Array, actions: Array) -> None:
    """Fill `log_probs` and `entropies` for the rows `actions`.

    The arrays that `policy_gradient` needs are filled as well.
    """
    log_probs = policy.log_probs
    entropies = policy.entropies
    # The entropy of a normal distribution: 1/2 + log(2 pi) / 2 + log std.
    entropy = 0.0
    for i in range(len(policy.log_std)):
        entropy += 0.5 + HALF_LOG_2PI + policy.log_std[i]
    for r in range(CHUNK):
        entropies[r] = entropy
    if len(policy.chances) == 0:
        gaussian_log_probs(policy, outputs, actions)
        return
    softmax(policy, outputs)
    for j in range(len(policy.chances)):
        chances = policy.chances[j]
        log_chances = policy.log_chances[j]
        for r in range(CHUNK):
            entropies[r] -= chances[r] * log_chances[r]
    for r in range(len(actions)):
        log_probs[r] = policy.log_chances[int(actions[r, 0]), r]


@kernel
def policy_gradient(
    policy: Policy,
    outputs: Array,
    actions: Array,
    by_log_prob: Array,
    by_entropy: float,
    slopes: Array,
) -> None:
    """Compute the gradient of log-probabilities and entropies, weighted.

    It is that of sum_r by_log_prob[r] * log_prob[r] + by_entropy * entropy[r], after
    `log_probs_and_entropies`.

    Into `slopes` with respect to the outputs, added to `log_std_gradient` with respect to the
    deviations. Categorical: d log p_a / d logit_j = [j = a] - p_j and d H / d logit_j = -p_j (log
    p_j + H).
    """
    rows = len(actions)
    entropies = policy.entropies
    for j in range(len(policy.chances)):
        chances = policy.chances[j]
        log_chances = policy.log_chances[j]
        for r in range(rows):
            hit = 1.0 if actions[r, 0] == j else 0.0
            slope = by_log_prob[r] * (hit - chances[r])
            slopes[r, j] = slope - by_entropy * chances[r] * (log_chances[r] + entropies[r])
    for i in range(len(policy.log_std)):
        inverse = math.exp(-policy.log_std[i])
        total = 0.0
        for r in range(rows):
            z = (actions[r, i] - outputs[r, i]) * inverse
            slopes[r, i] = by_log_prob[r] * z * inverse
            total += by_log_prob[r] * (z * z - 1.0) + by_entropy
        policy.log_std_gradient[i] += total
