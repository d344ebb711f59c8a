"""The optimizer a study file describes."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from autorl import optimizers
from autorl.types import InputError, Optimizer

if TYPE_CHECKING:
    from autorl.spec.study_file import Spec


def cuts_of(spec: Spec) -> tuple[int, ...]:
    """Steps at which the study's optimizer ends segments of runs; the horizon alone where its options are wrong."""
    try:
        return optimizers.cuts(spec.optimizer.name, spec.fidelity.steps, **_options(spec))
    except InputError:  # `optimizer_of` raises it, with the line of the study file
        return (spec.fidelity.steps,)


def _options(spec: Spec) -> dict[str, Any]:
    """The options of the optimizer, with those of `stop`."""
    section = spec.optimizer
    options = section.options
    options |= {} if section.stop is None else {"stop": section.stop}
    options |= {} if section.rungs is None else {"rungs": section.rungs}
    return options


def optimizer_of(spec: Spec, changeable: Collection[str]) -> Optimizer:
    """The study's optimizer before it has observed anything; `changeable`: what a continued run may change."""
    space, section = spec.search_space, spec.optimizer
    options = _options(spec)
    if "seed" in {field.name for field in dataclasses.fields(optimizers.find(section.name).Options)}:
        options.setdefault("seed", spec.seed)  # a scrambled sequence is a function of the study's seed
    return optimizers.make(
        section.name,
        space,
        horizon=spec.fidelity.steps,
        budget=spec.full_runs,
        n_objectives=len(spec.objective),
        changeable=changeable,
        initial=[space.config(config) for config in spec.starts],
        **options,
    )
