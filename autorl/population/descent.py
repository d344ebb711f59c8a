"""Gradient descent on flat parameter arrays: clipping by the global norm, Adam, RMSprop, Polyak averaging.

Semantics and defaults are PyTorch's, so that a member and its Stable-Baselines3 counterpart take the same step.

References:
    [Kingma2015] D. Kingma, J. Ba. Adam: a method for stochastic optimization. ICLR 2015.
    [Tieleman2012] T. Tieleman, G. Hinton. Lecture 6.5: RMSprop. Coursera, 2012.
"""

from __future__ import annotations

import math

from autorl.population.kernels import Array, kernel

ADAM, RMSPROP = 0, 1
OPTIMIZERS = {"adam": ADAM, "rmsprop": RMSPROP}
BETA_1, BETA_2 = 0.9, 0.999
RMSPROP_ALPHA = 0.99


@kernel
def clip_scale(gradient: Array, max_norm: float) -> float:
    """The factor that brings the Euclidean norm of `gradient` down to `max_norm` (1 where it is below)."""
    square = gradient.dtype.type(0.0)
    for i in range(len(gradient)):
        square += gradient[i] * gradient[i]
    return min(1.0, max_norm / (math.sqrt(square) + 1e-6))


@kernel
def adam(
    parameters: Array,
    gradient: Array,
    first: Array,
    second: Array,
    step: int,
    rate: float,
    epsilon: float,
    scale: float,
) -> None:
    """Adam's update number `step` (from 1) with the gradient scaled by `scale`; both moments in place [Kingma2015]."""
    real = parameters.dtype.type
    beta_1, rest_1, beta_2, rest_2 = (
        real(BETA_1),
        real(1.0 - BETA_1),
        real(BETA_2),
        real(1.0 - BETA_2),
    )
    factor, eps = real(scale), real(epsilon)
    size = real(rate / (1.0 - BETA_1**step))
    root = real(1.0 / math.sqrt(1.0 - BETA_2**step))
    for i in range(len(parameters)):
        g = factor * gradient[i]
        first[i] = beta_1 * first[i] + rest_1 * g
        second[i] = beta_2 * second[i] + rest_2 * g * g
        parameters[i] -= size * first[i] / (root * math.sqrt(second[i]) + eps)


@kernel
def rmsprop(
    parameters: Array, gradient: Array, square: Array, rate: float, epsilon: float, scale: float
) -> None:
    """One RMSprop update with the gradient scaled by `scale`; the mean square in place [Tieleman2012]."""
    real = parameters.dtype.type
    keep, rest, factor, eps, size = (
        real(RMSPROP_ALPHA),
        real(1.0 - RMSPROP_ALPHA),
        real(scale),
        real(epsilon),
        real(rate),
    )
    for i in range(len(parameters)):
        g = factor * gradient[i]
        square[i] = keep * square[i] + rest * g * g
        parameters[i] -= size * g / (math.sqrt(square[i]) + eps)


@kernel
def polyak(target: Array, online: Array, tau: float) -> None:
    """Move `target` towards `online`: target = (1 - tau) * target + tau * online."""
    new = target.dtype.type(tau)
    old = target.dtype.type(1.0) - new
    for i in range(len(target)):
        target[i] = old * target[i] + new * online[i]
