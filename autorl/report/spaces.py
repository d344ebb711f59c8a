"""A search space for a reader."""

from __future__ import annotations

from collections.abc import Sequence

from autorl.report.table import columns, one_line
from autorl.report.text import value_text
from autorl.space import Hyperparameter, Space
from autorl.types import Config


def space_text(space: Space, samples: Sequence[Config] = ()) -> str:
    """The space as a table, its rules, and configurations drawn from it."""
    rows = [
        (
            name,
            one.type,
            _domain(one),
            one.scale if one.numeric else "",
            value_text(one.default),
            "yes" if one.changeable else "",
            space.conditions[name].text if name in space.conditions else "",
        )
        for name, one in space.hyperparameters.items()
    ]
    header = ("hyperparameter", "type", "domain", "scale", "default", "changeable", "active if")
    blocks = [columns(header, rows, indent="")]
    rules = [clause.describe() for clause in space.forbidden]
    rules += [constraint.describe() for constraint in space.constraints]
    if space.constants:
        rules.append(
            "constants: "
            + ", ".join(f"{name} = {value:g}" for name, value in space.constants.items())
        )
    if rules:
        blocks.append("\n".join(map(one_line, rules)))
    if samples:
        cells = [
            [value_text(config[name]) if name in config else "" for name in space.names]
            for config in samples
        ]
        blocks.append(columns(space.names, cells, indent=""))
    return "\n\n".join(blocks)


def _domain(one: Hyperparameter) -> str:
    if one.type == "constant":
        return ""
    if one.choices:
        return ", ".join(value_text(choice) for choice in one.choices)
    return f"{value_text(one.lower)} to {value_text(one.upper)}"
