"""Losses of TRL: mixtures by name, and the options that each takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from autorl.core.types import InputError

_MIXED = {"rpo": {"sigmoid": 1.0, "sft": 1.0}, "mpo": {"sigmoid": 0.8, "bco_pair": 0.2, "sft": 1.0}}
"""Published mixtures of DPO losses and their weights (Pang et al. 2024; Wang et al. 2024)."""
_OF_LOG_RATIOS = "sigmoid sigmoid_norm ipo exo_pair robust discopop"
LOSSES_WITH: Mapping[str, tuple[Callable[[Iterable[bool]], bool], frozenset[str]]] = {
    "sft_weight": (any, frozenset({"sft"})),
    "max_ratio": (any, frozenset({"cispo"})),
    "gamma_ratio": (any, frozenset({"simpo", "alphapo"})),
    "f_divergence_type": (all, frozenset(f"{_OF_LOG_RATIOS} hinge sft".split())),
    # TRL 1.16 refuses it for the two of AOT, and crashes in the backward pass of hinge and SFT
    "use_weighting": (
        all,
        frozenset(f"{_OF_LOG_RATIOS} bco_pair nca_pair sppo_hard apo_zero apo_down".split()),
    ),
}
"""Hyperparameters that a loss takes if any, or if all, of its parts are among these."""


def of_dpo(value: object) -> dict[str, float]:
    """Return weights by loss of DPO.

    The value is `sigmoid`, `rpo`, `sigmoid+sft` or a list of losses.
    """
    if isinstance(value, str) and value in _MIXED:
        return dict(_MIXED[value])
    names = map(str, value) if isinstance(value, list) else str(value).split("+")
    return dict.fromkeys(names, 1.0)


def unused(values: Mapping[str, object]) -> list[str]:
    """Return the hyperparameters given that the loss does not take."""
    parts = of_dpo(values.get("loss_type", "sigmoid"))
    return [
        name
        for name, (rule, losses) in LOSSES_WITH.items()
        if name in values and not rule(part in losses for part in parts)
    ]


def check_smoothing(values: Mapping[str, Any]) -> None:
    """Raise `InputError` for a loss of DPO that is not so smoothed."""
    parts = of_dpo(values.get("loss_type", "sigmoid"))
    smoothing = float(values.get("label_smoothing", 0.0))
    if "robust" in parts and not 0.0 <= smoothing < 0.5:
        raise InputError(
            f"robust needs a label smoothing in 0..0.5, got {smoothing}", key="label_smoothing"
        )
    if "exo_pair" in parts and smoothing == 0.0:
        raise InputError("exo_pair needs a label smoothing above 0", key="label_smoothing")
