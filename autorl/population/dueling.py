"""The dueling network of deep Q-learning: streams of value and advantages.

    Q(s, a) = V(s) + A(s, a) - mean over b of A(s, b)                  (equation 9 [Wang2016])

As in the paper's experiment without images, the streams part before the last hidden layer: half of
its units are the value's, the others the advantages', and the layers before it are shared. The
network is therefore one of `networks` with one output more: column j is A(s, j), the last one V(s).
Weights of the head that lead from one stream to the other are zero and get no gradient.

Advantages and Q-values are largest at the same action. Since the head is linear, a head of
Q-values alone (`folded`) computes the same numbers.

References:
    [Wang2016] Z. Wang et al. Dueling network architectures for deep reinforcement learning. ICML
        2016.
"""

from __future__ import annotations

import math

from autorl.population.kernels import Array, kernel
from autorl.population.networks import BIASES, FAN_IN, WEIGHTS, Network, layer_table, layer_views


def part_streams(parameters: Array, sizes: tuple[int, ...]) -> None:
    """Make two streams of a freshly drawn head.

    Each is uniform in +-1/sqrt(units of its stream), PyTorch's default for a layer of its own.
    """
    layers = layer_table(sizes)
    weights, biases = layer_views(parameters, layers, len(layers) - 1)
    units = len(weights)
    of_value = units // 2
    weights[:of_value, :-1] = 0.0
    weights[of_value:, -1] = 0.0
    # Drawn for all units of the layer: wider where a stream has fewer.
    for columns, of_stream in ((slice(0, -1), units - of_value), (slice(-1, None), of_value)):
        weights[:, columns] *= math.sqrt(units / of_stream)
        biases[columns] *= math.sqrt(units / of_stream)


def folded(weights: Array, biases: Array) -> tuple[Array, Array]:
    """Return the head whose outputs are the Q-values.

    From weights (fan_in, n_actions + 1) and biases to (fan_in, n_actions) and (n_actions,).
    """
    advantages = weights[:, :-1]
    of_bias = biases[:-1]
    centred = advantages - advantages.mean(axis=1, keepdims=True)
    return centred + weights[:, -1:], of_bias - of_bias.mean() + biases[-1]


@kernel
def aggregate(net: Network, rows: int, n_actions: int) -> None:
    """Turn advantages into Q-values, in the first `rows` rows of the outputs."""
    for r in range(rows):
        outputs = net.outputs[r]
        total = 0.0
        for j in range(n_actions):
            total += outputs[j]
        level = outputs[n_actions] - total / n_actions
        for j in range(n_actions):
            outputs[j] += level


@kernel
def slopes_of_streams(net: Network, rows: int, n_actions: int) -> None:
    """Turn slopes by the Q-values into those by advantages and value.

    In the first `rows` rows: dQ_a / dA_j = [j = a] - 1 / n_actions, dQ_a / dV = 1.
    """
    for r in range(rows):
        slopes = net.slopes[r]
        total = 0.0
        for j in range(n_actions):
            total += slopes[j]
        for j in range(n_actions):
            slopes[j] -= total / n_actions
        slopes[n_actions] = total


@kernel
def keep_streams_apart(net: Network, n_actions: int) -> None:
    """Zero the gradient of the weights that would join the two streams."""
    layer = net.layers[len(net.layers) - 1]
    units = layer[FAN_IN]
    columns = len(net.gradient[layer[WEIGHTS] : layer[BIASES]]) // (n_actions + 1)
    head = net.gradient[layer[WEIGHTS] : layer[BIASES]].reshape(n_actions + 1, columns)
    of_value = units // 2
    for j in range(n_actions):
        for k in range(of_value):
            head[j, k] = 0.0
    for k in range(of_value, units):
        head[n_actions, k] = 0.0
