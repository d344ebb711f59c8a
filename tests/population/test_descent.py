from __future__ import annotations

import numpy as np
import pytest

from autorl.population.descent import adam, clip_scale, polyak, rmsprop

torch = pytest.importorskip("torch")


def _problem():
    generator = np.random.default_rng(0)
    return generator.normal(size=20), generator.normal(size=(6, 20))


def test_adam_takes_torchs_steps():
    parameters, gradients = _problem()
    reference = torch.tensor(parameters.copy(), requires_grad=True)
    optimizer = torch.optim.Adam([reference], lr=3e-2, eps=1e-5)
    moments = np.zeros((2, 20))
    for step, gradient in enumerate(gradients, start=1):
        adam(parameters, gradient, moments[0], moments[1], step, 3e-2, 1e-5, 1.0)
        reference.grad = torch.tensor(gradient)
        optimizer.step()
        np.testing.assert_allclose(parameters, reference.detach().numpy(), rtol=1e-10, atol=1e-12)


def test_a_dead_units_moment_becomes_zero_and_its_parameter_stays():
    parameters = np.array([0.5, 0.25], np.float32)
    before = parameters.copy()
    first = np.array([2.0**-126, np.nan], np.float32)
    second = np.array([1e-9, 1e-9], np.float32)
    adam(parameters, np.zeros(2, np.float32), first, second, 900, 1e-3, 1e-8, 1.0)
    assert first[0] == 0.0
    assert parameters[0] == before[0]
    assert np.isnan(first[1])  # a diverged member remains visible


def test_rmsprop_takes_torchs_steps():
    parameters, gradients = _problem()
    reference = torch.tensor(parameters.copy(), requires_grad=True)
    optimizer = torch.optim.RMSprop([reference], lr=7e-4, alpha=0.99, eps=1e-5)
    moments = np.zeros((2, 20))
    for gradient in gradients:
        rmsprop(parameters, gradient, moments[1], 7e-4, 1e-5, 1.0)
        reference.grad = torch.tensor(gradient)
        optimizer.step()
        np.testing.assert_allclose(parameters, reference.detach().numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("max_norm", [0.1, 3.0, 1e6, np.inf])
def test_clipping_is_torchs(max_norm):
    _, gradients = _problem()
    reference = torch.tensor(gradients[0].copy())
    reference.grad = torch.tensor(gradients[0].copy())
    torch.nn.utils.clip_grad_norm_([reference], max_norm)
    np.testing.assert_allclose(
        gradients[0] * clip_scale(gradients[0], max_norm), reference.grad.numpy(), rtol=1e-12
    )


def test_polyak_averages():
    target, online = np.array([1.0, 2.0]), np.array([3.0, -2.0])
    polyak(target, online, 0.25)
    np.testing.assert_allclose(target, [1.5, 1.0])
