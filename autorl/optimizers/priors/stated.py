"""Beliefs of a user about hyperparameters, as a task of the prior.

    beliefs: {learning_rate: {centre: 3.0e-4, confidence: 0.8}, gamma: {centre: 0.99}}

The task's configurations are drawn around the centres, one half, and anywhere; its scores fall with
the distance from the centres, over a width of half a range without confidence and next to nothing
with confidence 1. Like every task it weighs less the worse it ranks the study's own results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autorl.core.plain_text import did_you_mean, shown
from autorl.core.types import InputError
from autorl.optimizers.priors.mapping import places_of, proposable, searched
from autorl.optimizers.priors.table import TaskTable, unit_scores
from autorl.space import Space
from autorl.space.canonical import is_number

SOURCE = "stated beliefs"
CONFIDENCE = 0.5
"""That of a belief which states none."""
_KEY = "optimizer.beliefs"
_DRAWN = 64  # configurations around the centres, and as many anywhere
_WIDEST = 0.5  # of a range
_NARROWEST = 0.02


def check_beliefs(beliefs: Mapping[str, Any], space: Space) -> None:
    """Check what a user says of hyperparameters.

    Raises:
        InputError: an unknown hyperparameter or key, or a value that it cannot have.
    """
    names = [item.name for item in searched(space)]
    for name, belief in beliefs.items():
        key = f"{_KEY}.{name}"
        if name not in names:
            raise InputError(
                f"no hyperparameter that is searched{did_you_mean(name, names)}", key=key
            )
        if not isinstance(belief, Mapping) or "centre" not in belief:
            message = f"expected {{centre: VALUE, confidence: 0 to 1}}, got {shown(belief)}"
            raise InputError(message, key=key)
        unknown = set(belief) - {"centre", "confidence"}
        if unknown:
            hint = did_you_mean(min(unknown), ["centre", "confidence"])
            raise InputError(f"unknown key {shown(min(unknown))}{hint}", key=key)
        item = space.hyperparameters[name]
        problem = item.problem(item.canonical(belief["centre"]))
        if problem:
            raise InputError(problem, key=f"{key}.centre")
        confidence = belief.get("confidence", CONFIDENCE)
        if not is_number(confidence) or not 0 <= confidence <= 1:
            message = f"expected a number from 0 to 1, got {shown(confidence)}"
            raise InputError(message, key=f"{key}.confidence")


def stated_table(
    beliefs: Mapping[str, Any], space: Space, algorithm: str, environment: str
) -> TaskTable:
    """Make the table of what a user believes, which `check_beliefs` has accepted.

    Args:
        beliefs: by hyperparameter.
        space: of the study.
        algorithm: of the study.
        environment: of the study: the table is of its family.
    """
    items = searched(space)
    rng = np.random.default_rng(0)  # the same table for the same beliefs
    centres = np.full(len(items), np.nan)
    widths = np.ones(len(items))
    for place, item in enumerate(items):
        if item.name in beliefs:
            belief = beliefs[item.name]
            centres[place] = item.to_unit(item.canonical(belief["centre"]))
            confidence = belief.get("confidence", CONFIDENCE)
            widths[place] = max(_NARROWEST, _WIDEST * (1.0 - confidence))
    believed = ~np.isnan(centres)
    anywhere = rng.random((2 * _DRAWN, len(items)))
    near = centres + widths * rng.standard_normal((2 * _DRAWN, len(items)))
    units = np.where(believed & (np.arange(2 * _DRAWN)[:, None] < _DRAWN), near, anywhere)
    # The first is what was said; whatever was not is at its default.
    defaults = np.array([item.to_unit(item.default) for item in items])
    units[0] = np.where(believed, centres, defaults)
    configs = tuple(dict.fromkeys(proposable(space, row) for row in units))
    off = (places_of(space, configs) - centres)[:, believed] / widths[believed]
    scores = unit_scores(np.exp(-0.5 * (off**2).mean(axis=1)))
    return TaskTable(SOURCE, algorithm, environment, configs, scores)
