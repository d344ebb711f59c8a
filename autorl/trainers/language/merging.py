"""The weights of several policies, merged by their differences to their start.

Differences (task vectors) are averaged, or interpolated on the sphere, each weight matrix by
itself; then `eta` says how far the merged policy is from the start.

Reference: Rame et al. (2024), WARP: On the Benefits of Weight Averaged Rewarded Policies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def slerp(first: Tensor, second: Tensor, share: float) -> Tensor:
    """Interpolate on the sphere: `first` at share 0, `second` at 1.

    With the angle W between them it is sin((1 - share) W) / sin W of `first` and sin(share W) /
    sin W of `second`; on a line where they are parallel, or one is 0.
    """
    cosine = (first * second).sum() / (first.norm() * second.norm())
    angle = torch.arccos(cosine.clamp(-1, 1))
    # not of NaN either
    if not torch.sin(angle) > 1e-6:
        return torch.lerp(first, second, share)
    parts = torch.sin((1 - share) * angle) * first + torch.sin(share * angle) * second
    return parts / torch.sin(angle)


def merged(
    start: Tensor, weights: Sequence[Tensor], ratio: Sequence[float], eta: float, method: str
) -> Tensor:
    """Merge weights by their differences to `start`, one after the other.

    Args:
        start: of the reference policy.
        weights: of the policies.
        ratio: of each, in proportion.
        eta: 0 is `start`, 1 the merged weights.
        method: `average` or `slerp`.
    """
    between: Any = torch.lerp if method == "average" else slerp
    vector = torch.zeros_like(start)
    total = 0.0
    for weight, part in zip(weights, ratio, strict=True):
        total += part
        if part:
            vector = between(vector, weight - start, part / total)
    return start + eta * vector


def all_merged(
    start: Mapping[str, Tensor],
    policies: Sequence[Mapping[str, Tensor]],
    ratio: Sequence[float] = (1, 1),
    eta: float = 1.0,
    method: str = "slerp",
) -> dict[str, Tensor]:
    """Merge all weights of policies, by name, as `merged` does each."""
    return {
        name: merged(weight, [policy[name] for policy in policies], ratio, eta, method)
        for name, weight in start.items()
    }
