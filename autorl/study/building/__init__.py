"""Landscapes built from a study file.

Every configuration is trained on all its seeds, then the landscape is written.

The study that trains is an ordinary one and is kept in its folder; a build that was interrupted
goes on there.
"""

from autorl.study.building.build import (
    build_landscape,
    build_plans,
    is_written,
    plan_family,
    train_and_write,
    used_variants,
)
from autorl.study.building.plan import BuildCost, BuildPlan, Sizes, build_cost, plan_build

__all__ = [
    "BuildCost",
    "BuildPlan",
    "Sizes",
    "build_cost",
    "build_landscape",
    "build_plans",
    "is_written",
    "plan_build",
    "plan_family",
    "train_and_write",
    "used_variants",
]
