"""A search space for a reader."""

from __future__ import annotations

from collections.abc import Sequence

from autorl.core.types import Config
from autorl.report.table import columns, one_line
from autorl.report.text import value_cells, value_text
from autorl.space import Hyperparameter, Space


def space_text(space: Space, samples: Sequence[Config] = ()) -> str:
    """Lay out the space as a table, its rules, and configurations drawn."""
    rows = [
        (
            name,
            parameter.type,
            _domain(parameter),
            # Choices have an order at most, no distances.
            parameter.scale if parameter.numeric else "",
            value_text(parameter.default),
            "yes" if parameter.changeable else "",
            space.conditions[name].text if name in space.conditions else "",
        )
        for name, parameter in space.hyperparameters.items()
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
        cells = [value_cells(config, space.names) for config in samples]
        blocks.append(columns(space.names, cells, indent=""))
    return "\n\n".join(blocks)


def _domain(parameter: Hyperparameter) -> str:
    if parameter.type == "constant":
        return ""
    if parameter.choices:
        return ", ".join(value_text(choice) for choice in parameter.choices)
    return f"{value_text(parameter.lower)} to {value_text(parameter.upper)}"
