from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from autorl.population import networks, rng
from autorl.population.networks import PAD, layer_table, layer_views, network, orthogonal, uniform_fan_in

SEED = rng.derived(11, rng.INITIALISE)


@njit
def _tanh_all(x, out):
    for i in range(len(x)):
        out[i] = networks.tanh(x[i])


def _filled(sizes, activation="tanh", rows=7, dtype=np.float64):
    count = networks.parameter_count(sizes)
    parameters = np.zeros(count, dtype)
    uniform_fan_in(parameters, sizes, SEED)
    return network(parameters, np.zeros(count, dtype), sizes, activation, rows)


def _reference(net, x, activation):
    for index, layer in enumerate(net.layers):
        weights, biases = layer_views(net.parameters, layer)
        x = x @ weights[: x.shape[1]] + biases
        x = x[:, : layer[networks.FAN_OUT]]
        if index < len(net.layers) - 1:
            x = np.tanh(x) if activation == "tanh" else np.maximum(x, 0.0)
    return x


shapes = st.lists(st.integers(1, 13), min_size=2, max_size=5)


@settings(max_examples=40, deadline=None)
@given(sizes=shapes, rows=st.integers(1, 7), activation=st.sampled_from(["tanh", "relu"]))
def test_forward_is_the_composition_of_its_layers(sizes, rows, activation):
    net = _filled(sizes, activation)
    x = np.random.default_rng(0).normal(size=(rows, sizes[0]))
    networks.forward(net, x, rows)
    np.testing.assert_allclose(net.outputs[:rows, : sizes[-1]], _reference(net, x, activation), rtol=1e-12, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(sizes=shapes, rows=st.integers(1, 5), activation=st.sampled_from(["tanh", "relu"]), seed=st.integers(0, 999))
def test_backward_is_autograd(sizes, rows, activation, seed):
    torch = pytest.importorskip("torch")
    net, generator = _filled(sizes, activation), np.random.default_rng(seed)
    x, slopes = generator.normal(size=(rows, sizes[0])), generator.normal(size=(rows, sizes[-1]))
    networks.forward(net, x, rows)
    networks.prepare_backward(net)
    net.slopes[:rows, : sizes[-1]] = slopes
    networks.backward(net, x, rows)
    inputs = np.zeros((rows, networks.padded(sizes[0])))
    networks.backward_inputs(net, inputs, rows)
    flat = torch.tensor(net.parameters, requires_grad=True)
    value = start = torch.tensor(x, requires_grad=True)
    for index, (fan_in, fan_out, width, weights, biases) in enumerate(net.layers.tolist()):
        matrix = flat[weights : weights + fan_in * width].reshape(fan_in, width)[:, :fan_out]
        value = value @ matrix + flat[biases : biases + fan_out]
        if index < len(net.layers) - 1:
            value = torch.tanh(value) if activation == "tanh" else torch.relu(value)
    (value * torch.tensor(slopes)).sum().backward()
    scale = np.abs(flat.grad.numpy()).max() + 1e-300
    assert np.abs(net.gradient - flat.grad.numpy()).max() / scale < 1e-10
    np.testing.assert_allclose(inputs[:, : sizes[0]], start.grad.numpy(), rtol=1e-10, atol=1e-12)


def test_tanh_in_float32_is_within_35e_8_and_never_beyond_one():
    x = np.linspace(-12, 12, 400_001).astype(np.float32)
    out = np.zeros_like(x)
    _tanh_all(x, out)
    assert np.abs(out - np.tanh(x.astype(np.float64))).max() < 3.5e-7
    assert np.abs(out).max() <= 1.0


def test_tanh_in_float64_is_exact():
    x = np.linspace(-3, 3, 101)
    out = np.zeros_like(x)
    _tanh_all(x, out)
    np.testing.assert_allclose(out, np.tanh(x), rtol=1e-15)


@pytest.mark.parametrize(("fan_in", "fan_out"), [(4, 64), (64, 2), (30, 30)])
def test_orthogonal_weights_are_orthogonal(fan_in, fan_out):
    sizes = (fan_in, fan_out)
    parameters = np.full(networks.parameter_count(sizes), 3.0)
    orthogonal(parameters, sizes, [1.5], SEED)
    weights, biases = layer_views(parameters, layer_table(sizes)[0])
    small = weights[:, :fan_out] if fan_in >= fan_out else weights[:, :fan_out].T
    np.testing.assert_allclose(small.T @ small, 1.5**2 * np.eye(min(sizes)), atol=1e-12)
    assert (biases == 0.0).all()
    assert (weights[:, fan_out:] == 0.0).all()


def test_torch_defaults_are_uniform_within_one_over_root_fan_in():
    sizes = (16, 200)
    parameters = np.zeros(networks.parameter_count(sizes))
    uniform_fan_in(parameters, sizes, SEED)
    weights, biases = layer_views(parameters, layer_table(sizes)[0])
    bound = 1.0 / math.sqrt(16)
    assert np.abs(weights).max() <= bound
    assert np.abs(biases).max() <= bound
    np.testing.assert_allclose([weights.std(), biases.std()], bound / math.sqrt(3), rtol=0.1)


def test_padding_is_to_whole_vectors():
    assert [networks.padded(n) for n in (1, 4, 5, 64)] == [PAD, PAD, 2 * PAD, 64]


def test_more_rows_change_nothing_but_the_scratch_memory():
    net = _filled((3, 5, 2), rows=2)
    wide = networks.with_rows(net, 9)
    assert wide.parameters is net.parameters
    assert wide.outputs.shape[0] == 9
    assert networks.with_rows(wide, 3) is wide
