from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from population_helpers import CARTPOLE, SMALL, advanced, make

from autorl.population import networks, ppo, rng
from autorl.population.descent import adam
from autorl.population.networks import layer_table, layer_views, network, orthogonal, uniform_fan_in

SEED = rng.derived(11, rng.INITIALISE)


def _filled(sizes, activation="tanh", rows=7, dtype=np.float64):
    count = networks.parameter_count(sizes)
    parameters = np.zeros(count, dtype)
    uniform_fan_in(parameters, sizes, SEED)
    code = networks.ACTIVATIONS[activation]
    return network(parameters, np.zeros(count, dtype), sizes, code, rows)


shapes = st.lists(st.integers(1, 13), min_size=3, max_size=5)


@settings(max_examples=25)
@given(
    sizes=shapes,
    rows=st.integers(1, 5),
    activation=st.sampled_from(["tanh", "relu"]),
    seed=st.integers(0, 999),
)
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
    for index in range(len(net.layers)):
        weights, biases = layer_views(flat, net.layers, index)
        value = value @ weights + biases
        if index < len(net.layers) - 1:
            value = torch.tanh(value) if activation == "tanh" else torch.relu(value)
    np.testing.assert_allclose(
        net.outputs[:rows, : sizes[-1]], value.detach().numpy(), rtol=1e-12, atol=1e-12
    )
    (value * torch.tensor(slopes)).sum().backward()
    scale = np.abs(flat.grad.numpy()).max() + 1e-300
    assert np.abs(net.gradient - flat.grad.numpy()).max() / scale < 1e-10
    np.testing.assert_allclose(inputs[:, : sizes[0]], start.grad.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("sizes", [(4, 64, 2), (30, 30, 7), (64, 5, 9)])
def test_orthogonal_weights_are_orthogonal_and_padding_is_zero(sizes):
    parameters = np.full(networks.parameter_count(sizes), 3.0)
    orthogonal(parameters, sizes, [1.5, 0.2], SEED)
    layers = layer_table(sizes)
    for index, gain in enumerate([1.5, 0.2]):
        weights, biases = layer_views(parameters, layers, index)
        small = weights if len(weights) >= weights.shape[1] else weights.T
        np.testing.assert_allclose(
            small.T @ small, gain**2 * np.eye(min(weights.shape)), atol=1e-12
        )
        assert (biases == 0.0).all()
        weights[:] = 0.0
    assert (parameters == 0.0).all()


def test_torch_defaults_are_uniform_within_one_over_root_fan_in():
    sizes = (16, 200, 40)
    parameters = np.zeros(networks.parameter_count(sizes))
    uniform_fan_in(parameters, sizes, SEED)
    for index, bound in enumerate((1.0 / math.sqrt(16), 1.0 / math.sqrt(200))):
        weights, biases = layer_views(parameters, layer_table(sizes), index)
        assert np.abs(weights).max() <= bound
        assert np.abs(biases).max() <= bound
        np.testing.assert_allclose(weights.std(), bound / math.sqrt(3), rtol=0.05)
        np.testing.assert_allclose(biases.std(), bound / math.sqrt(3), rtol=0.2)


def test_more_rows_change_nothing_but_the_scratch_memory():
    net = _filled((3, 5, 2), rows=2)
    wide = networks.with_rows(net, 9)
    assert wide.parameters is net.parameters
    assert wide.outputs.shape[0] == 9
    assert networks.with_rows(wide, 3) is wide


@pytest.mark.parametrize("shape", [(3, 8), (16, 4), (17, 12), (64, 64), (23, 256)])
def test_a_transpose_leaves_what_is_wider(shape):
    rows, columns = shape
    matrix = np.arange(rows * columns, dtype=np.float32).reshape(shape)
    out = np.full((columns, rows + 3), -1.0, np.float32)
    networks.transpose(out, matrix)
    np.testing.assert_array_equal(out[:, :rows], matrix.T)
    assert (out[:, rows:] == -1.0).all()


def test_padding_weights_stay_zero():
    state = advanced("ppo", 1, (3,), **{**SMALL, "net_width": 5})
    _, hp, _ = make("ppo", 1, **{**SMALL, "net_width": 5})
    agent = ppo.make_agent(state, CARTPOLE, hp)
    for net in (agent.actor, agent.critic):
        for index in range(len(net.layers)):
            for values in layer_views(net.parameters, net.layers, index):
                assert (values != 0.0).any()
                values[:] = 0.0
        assert (net.parameters == 0.0).all()


def test_a_dead_units_moment_becomes_zero_and_its_parameter_stays():
    parameters = np.array([0.5, 0.25], np.float32)
    before = parameters.copy()
    first = np.array([2.0**-126, np.nan], np.float32)
    second = np.array([1e-9, 1e-9], np.float32)
    adam(parameters, np.zeros(2, np.float32), first, second, 900, 1e-3, 1e-8, 1.0)
    assert first[0] == 0.0
    assert parameters[0] == before[0]
    assert np.isnan(first[1])  # a diverged member remains visible
