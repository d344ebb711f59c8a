"""Multi-layer perceptrons on flat parameter arrays: initialisation, forward and backward pass, in numba kernels.

The parameters of a network are one slice of the member's flat array, layer after layer: weights (fan_in, width) row by
row, then biases (width,), where width is fan_out rounded up to a multiple of `gemm.PAD`. Padding weights are zero,
receive zero gradients and stay zero. `layers` has one row per layer: fan_in, fan_out, width, offset of the weights,
offset of the biases. Width, depth and activation are run-time values: one compiled program serves every network shape.

References:
    [Saxe2014] A. Saxe et al. Exact solutions to the nonlinear dynamics of learning in deep linear networks. ICLR 2014.
    [He2015] K. He et al. Delving deep into rectifiers. ICCV 2015 (PyTorch's default for linear layers).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from autorl.population import rng
from autorl.population.gemm import PAD, gemm, gemm_add
from autorl.population.kernels import INNER, Array, kernel

TANH, RELU = 0, 1
ACTIVATIONS = {"tanh": TANH, "relu": RELU}
FAN_IN, FAN_OUT, WIDTH, WEIGHTS, BIASES = range(5)
CHUNK = 32  # rows propagated together: their activations stay in the first-level cache


class Network(NamedTuple):
    """One network of one member: views into the member's flat arrays, and scratch memory.

    Attributes:
        parameters, gradient: (n,) flat; see the module's docstring for their layout.
        layers: (L, 5) int64, the layer table.
        activation: code of the hidden activation; the last layer is linear.
        hidden: (L, rows, width) outputs of each layer.
        delta: (L, rows, width) loss gradients with respect to each layer's pre-activations.
        outputs: (rows, width) the last layer of `hidden`: the network's outputs.
        slopes: (rows, width) the last layer of `delta`: the loss gradient with respect to the outputs.
        transposed: (n,) the weights of each layer transposed, (fan_out, padded fan_in), at the layer's own offset.
        zeros: (width,) for products that start from nothing.
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


def padded(n: int) -> int:
    """`n` rounded up to a multiple of `PAD`."""
    return -(-n // PAD) * PAD


def layer_table(sizes: Sequence[int]) -> Array:
    """The layer table of a network with these layer sizes, inputs first; shape (len(sizes) - 1, 5)."""
    rows, offset = [], 0
    for fan_in, fan_out in pairwise(sizes):
        width = padded(fan_out)
        rows.append((fan_in, fan_out, width, offset, offset + fan_in * width))
        offset += (fan_in + 1) * width
    return np.array(rows, dtype=np.int64)


def parameter_count(sizes: Sequence[int]) -> int:
    """Length of the flat parameter array of a network with these layer sizes, padding included."""
    return sum((fan_in + 1) * padded(fan_out) for fan_in, fan_out in pairwise(sizes))


def hidden_sizes(inputs: int, width: int, depth: int, outputs: int) -> tuple[int, ...]:
    """Layer sizes of a perceptron with `depth` hidden layers of `width` units."""
    return (inputs, *(width for _ in range(depth)), outputs)


def network(parameters: Array, gradient: Array, sizes: Sequence[int], activation: str, rows: int) -> Network:
    """A network over the flat slices `parameters` and `gradient`, with scratch memory for `rows` rows."""
    layers, dtype = layer_table(sizes), parameters.dtype
    width = max(padded(size) for size in sizes)
    transposed = sum(padded(fan_in) * padded(fan_out) for fan_in, fan_out in pairwise(sizes))
    hidden, delta = np.zeros((2, len(layers), rows, width), dtype)
    return Network(
        parameters=parameters,
        gradient=gradient,
        layers=layers,
        activation=ACTIVATIONS[activation],
        hidden=hidden,
        delta=delta,
        outputs=hidden[-1],
        slopes=delta[-1],
        transposed=np.zeros(transposed, dtype),
        zeros=np.zeros(width, dtype),
    )


def with_rows(net: Network, rows: int) -> Network:
    """The same network with scratch memory for at least `rows` rows."""
    layers, present, width = net.hidden.shape
    if rows <= present:
        return net
    hidden, delta = np.zeros((2, layers, rows, width), net.hidden.dtype)
    return net._replace(hidden=hidden, delta=delta, outputs=hidden[-1], slopes=delta[-1])


# ---------------------------------------------------------------------------------------------------- initialisation


def orthogonal(parameters: Array, sizes: Sequence[int], gains: Sequence[float], seed: Array) -> None:
    """Fill `parameters` with orthogonal weights [Saxe2014] scaled by `gains` (one per layer) and zero biases."""
    parameters[:] = 0.0
    for index, (layer, gain) in enumerate(zip(layer_table(sizes), gains, strict=True)):
        weights, _ = layer_views(parameters, layer)
        fan_in, fan_out = int(layer[FAN_IN]), int(layer[FAN_OUT])
        tall = _normals(_substream(seed, index), (max(fan_in, fan_out), min(fan_in, fan_out)))
        _orthonormalise(tall)
        weights[:, :fan_out] = gain * (tall if fan_in >= fan_out else tall.T)


def uniform_fan_in(parameters: Array, sizes: Sequence[int], seed: Array) -> None:
    """Fill `parameters` with PyTorch's default for linear layers: uniform in +-1/sqrt(fan_in), biases too [He2015]."""
    parameters[:] = 0.0
    for index, layer in enumerate(layer_table(sizes)):
        weights, biases = layer_views(parameters, layer)
        fan_in, fan_out = int(layer[FAN_IN]), int(layer[FAN_OUT])
        counters = np.arange((fan_in + 1) * fan_out, dtype=np.uint64)
        draws = (2.0 * rng.uniform_array(_substream(seed, index), counters) - 1.0) / math.sqrt(fan_in)
        weights[:, :fan_out] = draws[: fan_in * fan_out].reshape(fan_in, fan_out)
        biases[:fan_out] = draws[fan_in * fan_out :]


def layer_views(parameters: Array, layer: Array) -> tuple[Array, Array]:
    """Weights (fan_in, width) and biases (width,) of one layer, as views."""
    fan_in, _, width, weights, biases = (int(value) for value in layer)
    return parameters[weights : weights + fan_in * width].reshape(fan_in, width), parameters[biases : biases + width]


def _substream(seed: Array, index: int) -> Array:
    return rng.stream_array(seed, np.array([index], np.uint64))


def _normals(seed: Array, shape: tuple[int, int]) -> Array:
    return rng.normal_array(seed, np.arange(shape[0] * shape[1], dtype=np.uint64)).reshape(shape)


def _orthonormalise(matrix: Array) -> None:
    """Gram and Schmidt's method, applied twice, to the columns: the Q of a QR whose R has a positive diagonal.

    Plain NumPy sums in a fixed order: LAPACK's QR may differ in the last bits with the number of threads.
    """
    for column in range(matrix.shape[1]):
        vector = matrix[:, column]
        for _ in range(2):
            before = matrix[:, :column]
            vector -= (before * (before * vector[:, None]).sum(axis=0)).sum(axis=1)
        vector /= math.sqrt(float((vector * vector).sum()))


# --------------------------------------------------------------------------------------------------- the two passes


@kernel
def forward(net: Network, inputs: Array, rows: int) -> None:
    """Propagate inputs[:rows] (rows, fan_in) to `net.outputs[:rows]`."""
    last = len(net.layers) - 1
    for index in range(last + 1):
        fan_in, width, weights, biases = _layer(net.layers, index)
        matrix = net.parameters[weights:biases].reshape(fan_in, width)
        out = net.hidden[index]
        before = inputs if index == 0 else net.hidden[index - 1]
        gemm(out, before, matrix, net.parameters[biases : biases + width], rows, width, fan_in)
        if index < last:
            activate(out, rows, width, net.activation)


@kernel
def prepare_backward(net: Network) -> None:
    """Transpose the weights for `backward`: once for all rows that use the same weights."""
    position = 0
    for index in range(len(net.layers)):
        fan_in, width, weights, biases = _layer(net.layers, index)
        columns = _padded(fan_in)
        out = net.transposed[position : position + width * columns].reshape(width, columns)
        transpose(out, net.parameters[weights:biases].reshape(fan_in, width))
        position += width * columns


@kernel
def backward(net: Network, inputs: Array, rows: int) -> None:
    """Add the gradient of all parameters to `net.gradient`.

    Reads the activations of the last `forward` over the same `inputs`, the weights of the last `prepare_backward`, and
    the loss gradient with respect to the outputs in `net.slopes[:rows]` (padding columns zero).
    """
    position = len(net.transposed)
    for index in range(len(net.layers) - 1, -1, -1):
        fan_in, width, weights, biases = _layer(net.layers, index)
        before = inputs if index == 0 else net.hidden[index - 1]
        delta = net.delta[index]
        gemm_add(net.gradient[weights:biases].reshape(fan_in, width), before.T, delta, fan_in, width, rows)
        _add_rows(net.gradient[biases : biases + width], delta, rows)
        columns = _padded(fan_in)
        position -= width * columns
        if index > 0:
            transposed = net.transposed[position : position + width * columns].reshape(width, columns)
            gemm(net.delta[index - 1], delta, transposed, net.zeros, rows, columns, width)
            deactivate(net.delta[index - 1], net.hidden[index - 1], rows, columns, net.activation)


@kernel
def backward_inputs(net: Network, out: Array, rows: int) -> None:
    """out[:rows] = the loss gradient with respect to the inputs (rows, padded fan_in); parameters get no gradient."""
    position = len(net.transposed)
    for index in range(len(net.layers) - 1, -1, -1):
        fan_in, width, _, _ = _layer(net.layers, index)
        columns = _padded(fan_in)
        position -= width * columns
        transposed = net.transposed[position : position + width * columns].reshape(width, columns)
        target = out if index == 0 else net.delta[index - 1]
        gemm(target, net.delta[index], transposed, net.zeros, rows, columns, width)
        if index > 0:
            deactivate(target, net.hidden[index - 1], rows, columns, net.activation)


@kernel
def gather(out: Array, table: Array, rows: Array) -> None:
    """out[r] = table[rows[r]] for every r."""
    for r in range(len(rows)):
        for j in range(table.shape[1]):
            out[r, j] = table[rows[r], j]


@kernel
def _layer(layers: Array, index: int) -> tuple[int, int, int, int]:
    return layers[index, FAN_IN], layers[index, WIDTH], layers[index, WEIGHTS], layers[index, BIASES]


@kernel
def _padded(n: int) -> int:
    return (n + PAD - 1) // PAD * PAD


@kernel
def transpose(out: Array, matrix: Array) -> None:
    """out[:columns, :rows] = matrix.T; `out` may be wider."""
    rows, columns = matrix.shape
    for j in range(columns):
        for i in range(rows):
            out[j, i] = matrix[i, j]


@kernel
def _add_rows(out: Array, matrix: Array, rows: int) -> None:
    for r in range(rows):
        row = matrix[r]
        for j in range(len(out)):
            out[j] += row[j]


# ------------------------------------------------------------------------------------------------------ activations

# tanh(x) = x P(x^2) / Q(x^2), both of degree 4, fitted by iteratively reweighted least squares on |x| <= LIMIT towards
# the smallest maximal error: 3.5e-7 in float32, never above 1 in magnitude. It vectorises; the library's tanh does not.
_LIMIT = 7.9
_P = (9.99999974e-01, 1.34444549e-01, 3.57169978e-03, 2.19034807e-05, 1.52597742e-08)
_Q = (1.0, 4.67777771e-01, 2.61644271e-02, 3.41174930e-04, 8.53058484e-07)
_P32, _Q32, _LIMIT32 = tuple(map(np.float32, _P)), tuple(map(np.float32, _Q)), np.float32(_LIMIT)


def tanh(x: Any) -> Any:
    """Hyperbolic tangent of a scalar in its own precision; this body serves plain Python."""
    return np.tanh(x)


@overload(tanh, jit_options=INNER, inline="always")
def _tanh(x: Any) -> Callable[[Any], Any]:
    def library(x: Any) -> Any:
        return math.tanh(x)

    def rational(x: Any) -> Any:
        x = min(max(x, -_LIMIT32), _LIMIT32)
        y = x * x
        p = (((_P32[4] * y + _P32[3]) * y + _P32[2]) * y + _P32[1]) * y + _P32[0]
        q = (((_Q32[4] * y + _Q32[3]) * y + _Q32[2]) * y + _Q32[1]) * y + _Q32[0]
        return x * p / q

    return rational if x == types.float32 else library


@kernel
def activate(out: Array, rows: int, width: int, activation: int) -> None:
    """Apply the activation to out[:rows, :width] in place."""
    zero = out.dtype.type(0.0)
    for r in range(rows):
        row = out[r]
        if activation == TANH:
            for j in range(width):
                row[j] = tanh(row[j])
        else:
            for j in range(width):
                row[j] = row[j] if not row[j] < zero else zero


@kernel
def deactivate(delta: Array, out: Array, rows: int, width: int, activation: int) -> None:
    """Multiply delta[:rows, :width] by the activation's derivative, given its outputs `out`."""
    zero, one = out.dtype.type(0.0), out.dtype.type(1.0)
    for r in range(rows):
        slope, value = delta[r], out[r]
        if activation == TANH:
            for j in range(width):
                slope[j] *= one - value[j] * value[j]
        else:
            for j in range(width):
                slope[j] = slope[j] if value[j] > zero else zero
