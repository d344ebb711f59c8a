"""The optimizer a study file describes."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING

from autorl import optimizers
from autorl.types import Optimizer

if TYPE_CHECKING:
    from autorl.spec.study_file import Spec


def optimizer_of(spec: Spec, changeable: Collection[str]) -> Optimizer:
    """The study's optimizer before it has observed anything; `changeable`: what a continued run may change."""
    space, section = spec.search_space, spec.optimizer
    options = section.options
    options |= {} if section.stop is None else {"stop": section.stop}
    options |= {} if section.rungs is None else {"rungs": section.rungs}
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
