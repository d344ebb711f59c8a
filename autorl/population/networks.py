"""Multi-layer perceptrons on flat parameter arrays, in numba kernels.

The parameters of a network are one slice of the member's flat array, layer after layer: weights,
then biases (width,), where width is fan_out rounded up to a multiple of `gemm.PAD`. A hidden
layer's weights are (fan_in, width). The last layer has few outputs and many inputs, so its weights
lie the other way, (fan_out, padded fan_in): each output is a contiguous dot product, and no product
of matrices is narrower than a hidden layer. Padding weights are zero, receive zero gradients and
stay zero. `layers` has one row per layer: fan_in, fan_out, width, offset of the weights, offset of
the biases. Width, depth and activation are run-time values: one compiled program serves every
network shape.

References:
    [Lillicrap2016] T. Lillicrap et al. Continuous control with deep reinforcement learning. ICLR
        2016.
    [Saxe2014] A. Saxe et al. Exact solutions to the nonlinear dynamics of learning in deep linear
        networks. ICLR 2014.
    [He2015] K. He et al. Delving deep into rectifiers. ICCV 2015 (PyTorch's default for linear
        layers).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from autorl.population import rng
from autorl.population.elementary import tanh
from autorl.population.gemm import GATED, PAD, PLAIN, RECTIFIED, gemm
from autorl.population.kernels import Array, aligned_zeros, kernel

TANH = 0
RELU = 1
ACTIVATIONS = {"tanh": TANH, "relu": RELU}
FAN_IN, FAN_OUT, WIDTH, WEIGHTS, BIASES = range(5)
# Word and code of a width: 400 units, then 300 in every further layer [Lillicrap2016].
TAPERED = ("400-300", 0)
_BAND = 32  # rows transposed together: they stay in the first-level cache
CHUNK = 32  # rows propagated together: their activations stay in the first-level cache


class Network(NamedTuple):
    """A network of one member: views into flat arrays, and scratch memory.

    Attributes:
        parameters, gradient: (n,) flat; see the module's docstring for their layout.
        layers: (L, 5) int64, the layer table.
        activation: code of the hidden activation; the last layer is linear.
        hidden: (L, rows, width) outputs of each layer.
        delta: (L, rows, width) loss gradients with respect to each layer's pre-activations.
        outputs: (rows, width) the last layer of `hidden`: the network's outputs.
        slopes: (rows, width) the last layer of `delta`: the loss gradient with respect to the
            outputs.
        transposed: (n,) the weights of the hidden layers transposed, (width, padded fan_in), one
            after the other.
        zeros: (width,) for products that start from nothing.
        ones: (1, rows) for sums over rows.
    """

    parameters: Array
    gradient: Array
    layers: Array
    activation: int
    hidden: Array
    delta: Array
    outputs: Array
    slopes: Array
    transposed: Array
    zeros: Array
    ones: Array


@kernel
def padded(n: int) -> int:
    """Round `n` up to a multiple of `PAD`."""
    return (n + PAD - 1) // PAD * PAD


def layer_table(sizes: Sequence[int]) -> Array:
    """Make the layer table of a network with these layer sizes.

    Sizes begin with the inputs; the table has the shape (len(sizes) - 1, 5).
    """
    rows = []
    offset = 0
    for index, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        width = padded(fan_out)
        count = fan_in * width if index < len(sizes) - 2 else fan_out * padded(fan_in)
        rows.append((fan_in, fan_out, width, offset, offset + count))
        offset += count + width
    return np.array(rows, dtype=np.int64)


def parameter_count(sizes: Sequence[int]) -> int:
    """Return the length of a network's flat parameter array.

    Padding is included.
    """
    _, _, width, _, biases = layer_table(sizes)[-1]
    return int(biases + width)


def hidden_sizes(inputs: int, width: int, depth: int, outputs: int) -> tuple[int, ...]:
    """Return layer sizes with `depth` hidden layers, as `hidden_widths` has them."""
    return (inputs, *hidden_widths(width, depth), outputs)


def hidden_widths(width: int, depth: int) -> tuple[int, ...]:
    """Return the widths of hidden layers, equal or those of `TAPERED`."""
    if width == TAPERED[1]:
        return (400, *(300 for _ in range(depth - 1)))
    return (width,) * depth


def network(
    parameters: Array, gradient: Array, sizes: Sequence[int], activation: int, rows: int
) -> Network:
    """Make a network over the flat slices `parameters` and `gradient`.

    It has scratch memory for `rows` rows; `activation` is a code.
    """
    assert len(sizes) > 2, "a network has at least one hidden layer"
    layers = layer_table(sizes)
    dtype = parameters.dtype
    width = max(padded(size) for size in sizes)
    transposed = sum(padded(fan_in) * padded(fan_out) for fan_in, fan_out in pairwise(sizes[:-1]))
    hidden, delta = aligned_zeros((2, len(layers), rows, width), dtype)
    return Network(
        parameters=parameters,
        gradient=gradient,
        layers=layers,
        activation=activation,
        hidden=hidden,
        delta=delta,
        outputs=hidden[-1],
        slopes=delta[-1],
        transposed=aligned_zeros(transposed, dtype),
        zeros=np.zeros(width, dtype),
        ones=np.ones((1, rows), dtype),
    )


def with_rows(net: Network, rows: int) -> Network:
    """Return the network with scratch memory for at least `rows` rows."""
    layers, present, width = net.hidden.shape
    if rows <= present:
        return net
    hidden, delta = aligned_zeros((2, layers, rows, width), net.hidden.dtype)
    ones = np.ones((1, rows), hidden.dtype)
    return net._replace(hidden=hidden, delta=delta, outputs=hidden[-1], slopes=delta[-1], ones=ones)


def with_delta_of(net: Network, other: Network) -> Network:
    """Return the network with another's `delta`, where it has the same shape.

    Only within a backward pass it holds anything, and what all passes use stays in the cache. Their
    slopes remain apart.
    """
    return net._replace(delta=other.delta) if net.delta.shape == other.delta.shape else net


# ---- initialisation


def orthogonal(
    parameters: Array, sizes: Sequence[int], gains: Sequence[float], seed: Array
) -> None:
    """Fill `parameters` with orthogonal weights and zero biases [Saxe2014].

    `gains` scale the weights, one per layer.
    """
    parameters[:] = 0.0
    layers = layer_table(sizes)
    for index, gain in enumerate(gains):
        weights, _ = layer_views(parameters, layers, index)
        fan_in, fan_out = weights.shape
        counters = np.arange(weights.size, dtype=np.uint64)
        draws = rng.normal_array(_substream(seed, index), counters)
        # Columns can be orthonormal where there are no more of them than rows.
        tall = draws.reshape(max(fan_in, fan_out), min(fan_in, fan_out))
        _orthonormalise(tall)
        weights[:] = gain * (tall if fan_in >= fan_out else tall.T)


def uniform_fan_in(parameters: Array, sizes: Sequence[int], seed: Array) -> None:
    """Fill `parameters` with PyTorch's default for linear layers [He2015].

    Weights and biases are uniform in +-1/sqrt(fan_in).
    """
    parameters[:] = 0.0
    layers = layer_table(sizes)
    for index in range(len(layers)):
        weights, biases = layer_views(parameters, layers, index)
        counters = np.arange(weights.size + biases.size, dtype=np.uint64)
        # `kaiming_uniform_` with a = sqrt(5), as PyTorch calls it, is this bound.
        draws = (2.0 * rng.uniform_array(_substream(seed, index), counters) - 1.0) / math.sqrt(
            len(weights)
        )
        weights[:] = draws[: weights.size].reshape(weights.shape)
        biases[:] = draws[weights.size :]


def layer_views(parameters: Any, layers: Array, index: int) -> tuple[Any, Any]:
    """Return weights and biases of one layer as views without the padding.

    Shapes: (..., fan_in, fan_out) and (..., fan_out).

    `parameters` is flat, or a stack of flat arrays (..., n), of NumPy or PyTorch.
    """
    fan_in, fan_out, width, weights, biases = layers[index].tolist()
    flat = parameters[..., weights:biases]
    stack = parameters.shape[:-1]
    if index < len(layers) - 1:
        matrix = flat.reshape(*stack, fan_in, width)[..., :fan_out]
    else:
        matrix = flat.reshape(*stack, fan_out, padded(fan_in))[..., :fan_in].swapaxes(-1, -2)
    return matrix, parameters[..., biases : biases + fan_out]


def _substream(seed: Array, index: int) -> Array:
    return rng.stream_array(seed, np.array([index], np.uint64))


def _orthonormalise(matrix: Array) -> None:
    """Orthonormalise the columns by Gram and Schmidt's method, applied twice.

    The result is the Q of a QR whose R has a positive diagonal.

    Plain NumPy sums in a fixed order: LAPACK's QR may differ in the last bits with the number of
    threads.
    """
    for column in range(matrix.shape[1]):
        vector = matrix[:, column]
        # Twice is enough (Kahan, in Parlett 1980); once is not for nearly parallel columns.
        for _ in range(2):
            before = matrix[:, :column]
            vector -= (before * (before * vector[:, None]).sum(axis=0)).sum(axis=1)
        vector /= math.sqrt(float((vector * vector).sum()))


# ---- the two passes


@kernel
def forward(net: Network, inputs: Array, rows: int) -> None:
    """Propagate inputs[:rows] (rows, fan_in) to `net.outputs[:rows]`."""
    last = len(net.layers) - 1
    before = inputs
    for index in range(last):
        fan_in, width, weights, biases = _layer(net.layers, index)
        matrix = net.parameters[weights:biases].reshape(fan_in, width)
        start = net.parameters[biases : biases + width]
        out = net.hidden[index]
        then = RECTIFIED if net.activation == RELU else PLAIN
        gemm(out, before, matrix, start, out, then, rows, width, fan_in)
        if net.activation == TANH:
            apply_tanh(out, rows, width)
        before = out
    fan_in, fan_out, weights, biases = _head(net.layers)
    head = net.parameters[weights:biases].reshape(fan_out, fan_in)
    dot_products(net.outputs, before, head, net.parameters[biases:], rows)


@kernel
def prepare_backward(net: Network) -> None:
    """Transpose the weights of the hidden layers for `backward`.

    Once is enough for all rows that use the same weights.
    """
    position = 0
    for index in range(len(net.layers) - 1):
        fan_in, width, weights, biases = _layer(net.layers, index)
        columns = padded(fan_in)
        out = net.transposed[position : position + width * columns].reshape(width, columns)
        transpose(out, net.parameters[weights:biases].reshape(fan_in, width))
        position += width * columns


@kernel
def backward(net: Network, inputs: Array, rows: int) -> None:
    """Add the gradient of all parameters to `net.gradient`.

    Reads the activations of the last `forward` over the same `inputs`, the weights of the last
    `prepare_backward`, and the loss gradient with respect to the outputs in `net.slopes[:rows]`
    (padding columns zero).
    """
    last = len(net.layers) - 1
    fan_in, fan_out, weights, biases = _head(net.layers)
    head = net.gradient[weights:biases].reshape(fan_out, fan_in)
    hidden = net.hidden[last - 1]
    gemm(head, net.slopes.T, hidden, head, head, PLAIN, fan_out, fan_in, rows)
    # The sum over rows, as a product with a row of ones.
    width = net.layers[last, WIDTH]
    sums = net.gradient[biases : biases + width].reshape(1, width)
    gemm(sums, net.ones, net.slopes, sums, sums, PLAIN, 1, width, rows)
    backward_head(net, rows)
    position = len(net.transposed)
    for index in range(last - 1, -1, -1):
        fan_in, width, weights, biases = _layer(net.layers, index)
        before = inputs if index == 0 else net.hidden[index - 1]
        delta = net.delta[index]
        slopes = net.gradient[weights:biases].reshape(fan_in, width)
        gemm(slopes, before.T, delta, slopes, slopes, PLAIN, fan_in, width, rows)
        sums = net.gradient[biases : biases + width].reshape(1, width)
        gemm(sums, net.ones, delta, sums, sums, PLAIN, 1, width, rows)
        columns = padded(fan_in)
        position -= width * columns
        # The inputs of the first layer are data: nobody asks for their gradient here.
        if index > 0:
            backward_layer(net, index, position, net.delta[index - 1], rows)


@kernel
def backward_inputs(net: Network, out: Array, rows: int) -> None:
    """Fill `out` with the loss gradient with respect to the inputs.

    Its first `rows` rows are written, (rows, padded fan_in). Parameters get no gradient.
    """
    backward_head(net, rows)
    position = len(net.transposed)
    for index in range(len(net.layers) - 2, -1, -1):
        columns = padded(net.layers[index, FAN_IN])
        position -= net.layers[index, WIDTH] * columns
        target = out if index == 0 else net.delta[index - 1]
        backward_layer(net, index, position, target, rows)


@kernel
def backward_head(net: Network, rows: int) -> None:
    """Propagate the loss gradient from the outputs through the head.

    The result is with respect to the pre-activations of the last hidden layer.
    """
    last = len(net.layers) - 1
    fan_in, fan_out, weights, biases = _head(net.layers)
    head = net.parameters[weights:biases].reshape(fan_out, fan_in)
    gate = net.hidden[last - 1]
    then = GATED if net.activation == RELU else PLAIN
    delta = net.delta[last - 1]
    gemm(delta, net.slopes, head, net.zeros, gate, then, rows, fan_in, fan_out)
    if net.activation == TANH:
        slope_tanh(delta, gate, rows, fan_in)


@kernel
def backward_layer(net: Network, index: int, position: int, out: Array, rows: int) -> None:
    """Fill `out` with the loss gradient by a hidden layer's inputs.

    If these are the outputs of another layer, it is by that layer's pre-activations. The layer's
    transposed weights begin at `position`.
    """
    width = net.layers[index, WIDTH]
    columns = padded(net.layers[index, FAN_IN])
    transposed = net.transposed[position : position + width * columns].reshape(width, columns)
    gate = net.hidden[max(index - 1, 0)]
    then = GATED if index > 0 and net.activation == RELU else PLAIN
    gemm(out, net.delta[index], transposed, net.zeros, gate, then, rows, columns, width)
    if index > 0 and net.activation == TANH:
        slope_tanh(out, gate, rows, columns)


@kernel
def dot_products(out: Array, rows_of: Array, head: Array, start: Array, rows: int) -> None:
    """Compute out[r, j] = start[j] + rows_of[r] . head[j].

    For the first `rows` rows and every row j of `head`.
    """
    for r in range(rows):
        row = rows_of[r]
        for j in range(head.shape[0]):
            weights = head[j]
            total = head.dtype.type(0.0)
            for k in range(head.shape[1]):
                total += row[k] * weights[k]
            out[r, j] = start[j] + total


@kernel
def gather(out: Array, table: Array, rows: Array) -> None:
    """Copy rows: out[r] = table[rows[r]] for every r."""
    for r in range(len(rows)):
        for j in range(table.shape[1]):
            out[r, j] = table[rows[r], j]


@kernel
def pick(out: Array, values: Array, rows: Array) -> None:
    """Copy numbers: out[r] = values[rows[r]] for every r."""
    for r in range(len(rows)):
        out[r] = values[rows[r]]


@kernel
def _layer(layers: Array, index: int) -> tuple[int, int, int, int]:
    return (
        layers[index, FAN_IN],
        layers[index, WIDTH],
        layers[index, WEIGHTS],
        layers[index, BIASES],
    )


@kernel
def _head(layers: Array) -> tuple[int, int, int, int]:
    """Return the place of the last layer.

    Padded fan_in, fan_out, offsets of its weights (fan_out, padded fan_in) and of its biases.
    """
    fan_in = layers[-1, FAN_IN]
    fan_out = layers[-1, FAN_OUT]
    return padded(fan_in), fan_out, layers[-1, WEIGHTS], layers[-1, BIASES]


@kernel
def transpose(out: Array, matrix: Array) -> None:
    """Transpose: out[:columns, :rows] = matrix.T.

    `out` may be wider.
    """
    rows, columns = matrix.shape
    banded = rows // _BAND * _BAND
    # In bands of a constant height: 256 x 256 read column by column take 47 microseconds, not 10.
    for top in range(0, banded, _BAND):
        for j in range(columns):
            for i in range(_BAND):
                out[j, top + i] = matrix[top + i, j]
    for i in range(banded, rows):
        for j in range(columns):
            out[j, i] = matrix[i, j]


# ---- activations, those that are no part of a product


@kernel
def apply_tanh(out: Array, rows: int, width: int) -> None:
    """Apply tanh to out[:rows, :width] in place."""
    for r in range(rows):
        row = out[r]
        for j in range(width):
            row[j] = tanh(row[j])


@kernel
def slope_tanh(delta: Array, out: Array, rows: int, width: int) -> None:
    """Multiply delta[:rows, :width] by the derivative of tanh, given its outputs `out`."""
    unit = out.dtype.type(1.0)
    for r in range(rows):
        slope = delta[r]
        value = out[r]
        for j in range(width):
            # tanh' = 1 - tanh^2: the outputs are enough.
            slope[j] *= unit - value[j] * value[j]
