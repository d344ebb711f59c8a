"""Gradient descent on flat parameter arrays.

Clipping by the global norm, Adam, RMSprop, Polyak averaging. Semantics and defaults are PyTorch's,
so that a member and its Stable-Baselines3 counterpart take the same step.

References:
    [Kingma2015] D. Kingma, J. Ba. Adam: a method for stochastic optimization. ICLR 2015.
    [Tieleman2012] T. Tieleman, G. Hinton. Lecture 6.5: RMSprop. Coursera, 2012.
"""

from __future__ import annotations

import math

from autorl.population.hyperparameters import Record
from autorl.population.kernels import Array, kernel
from autorl.population.members import Member

ADAM = 0
RMSPROP = 1
OPTIMIZERS = {"adam": ADAM, "rmsprop": RMSPROP}
BETA_1 = 0.9
BETA_2 = 0.999
RMSPROP_ALPHA = 0.99
LEAST = 2.0**-126  # the smallest normal number of single precision


@kernel
def norm_of(gradient: Array) -> float:
    """Return the Euclidean norm of `gradient`."""
    square = gradient.dtype.type(0.0)
    for i in range(len(gradient)):
        square += gradient[i] * gradient[i]
    return math.sqrt(square)


@kernel
def clip_scale(norm: float, max_norm: float) -> float:
    """Return the factor that brings a gradient's norm down to `max_norm`.

    It is 1 where the norm is below already.
    """
    # As `torch.nn.utils.clip_grad_norm_` does, 1e-6 included.
    return min(1.0, max_norm / (norm + 1e-6))


@kernel
def average(measures: Array, index: int, value: float, number: int) -> None:
    """Average a measure over updates, of which this is `number`, from 1.

    The latest hundred or so count: all weigh the same at first, then the weight of one decays by
    1 % with each that follows.
    """
    if number == 1:
        measures[index] = value
    else:
        measures[index] += max(1.0 / number, 0.01) * (value - measures[index])


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
    """Make one Adam update of the parameters [Kingma2015].

    First moments below the smallest normal number are zero.

    Args:
        parameters: (n,), changed in place.
        gradient: (n,).
        first: first moments (n,), changed in place.
        second: second moments (n,), changed in place.
        step: number of the update, from 1.
        rate: learning rate.
        epsilon: added to the root of the second moment.
        scale: factor of the gradient.
    """
    # Constants of the parameters' type: doubles would make every operation one of doubles.
    real = parameters.dtype.type
    beta_1 = real(BETA_1)
    new_share_1 = real(1.0 - BETA_1)
    beta_2 = real(BETA_2)
    new_share_2 = real(1.0 - BETA_2)
    factor = real(scale)
    eps = real(epsilon)
    zero = real(0.0)
    least = real(LEAST)
    size = real(rate / (1.0 - BETA_1**step))
    root = real(1.0 / math.sqrt(1.0 - BETA_2**step))
    for i in range(len(parameters)):
        g = factor * gradient[i]
        mean = beta_1 * first[i] + new_share_1 * g
        # For a dead unit it would halt at a subnormal number, with which all arithmetic is slow: a
        # fifth of all in TD3 on Pendulum. No parameter notices.
        mean = zero if abs(mean) < least else mean
        square = beta_2 * second[i] + new_share_2 * g * g
        # Epsilon joins the corrected root, as in algorithm 1 [Kingma2015] and in PyTorch.
        parameters[i] -= size * mean / (root * math.sqrt(square) + eps)
        first[i] = mean
        second[i] = square


@kernel
def rmsprop(
    parameters: Array, gradient: Array, square: Array, rate: float, epsilon: float, scale: float
) -> None:
    """Make one RMSprop update of the parameters [Tieleman2012].

    Args:
        parameters: (n,), changed in place.
        gradient: (n,).
        square: mean squares (n,), changed in place.
        rate: learning rate.
        epsilon: added to the root of the mean square.
        scale: factor of the gradient.
    """
    real = parameters.dtype.type
    keep = real(RMSPROP_ALPHA)
    new_share = real(1.0 - RMSPROP_ALPHA)
    factor = real(scale)
    eps = real(epsilon)
    size = real(rate)
    for i in range(len(parameters)):
        g = factor * gradient[i]
        square[i] = keep * square[i] + new_share * g * g
        # Epsilon outside the root, as in PyTorch; TensorFlow has it inside.
        parameters[i] -= size * g / (math.sqrt(square[i]) + eps)


@kernel
def descend(
    member: Member,
    gradient: Array,
    hp: Record,
    pace: tuple[float, int],
    scale: float,
    part: tuple[int, int],
) -> None:
    """Make one Adam update of a part of a member's parameters.

    `part` is its begin and end, `pace` the learning rate and the number of the update.
    """
    # Adam moves each number by itself: parts are Stable-Baselines3's optimizers.
    values = member.parameters[part[0] : part[1]]
    slopes = gradient[part[0] : part[1]]
    first = member.moments[0][part[0] : part[1]]
    second = member.moments[1][part[0] : part[1]]
    adam(values, slopes, first, second, pace[1], pace[0], hp.optimizer_eps, scale)


@kernel
def polyak(target: Array, online: Array, tau: float) -> None:
    """Move `target` towards `online` by the share `tau`.

    target = (1 - tau) * target + tau * online.
    """
    new = target.dtype.type(tau)
    old = target.dtype.type(1.0) - new
    for i in range(len(target)):
        target[i] = old * target[i] + new * online[i]
