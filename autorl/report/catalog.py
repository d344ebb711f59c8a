"""Optimizers for a reader."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from autorl.optimizers.registry import Description
from autorl.report.table import columns


def optimizers_text(described: Sequence[Description], missing: Mapping[str, str]) -> str:
    """Lay out each optimizer with its options.

    An option has its name, its default, what is allowed and what it does.
    """
    blocks = []
    for optimizer in described:
        title = f"{optimizer.name}: {optimizer.summary}"
        if optimizer.multi_objective:
            title += " (several objectives)"
        lines = [title]
        if optimizer.options:
            rows = [
                # As it is written in a study file.
                (option.name, json.dumps(option.default), option.allowed, option.help)
                for option in optimizer.options
            ]
            lines.append(columns(("option", "default", "allowed", ""), rows))
        blocks.append("\n".join(lines))
    blocks += [f"{name}: not installed: {reason}" for name, reason in missing.items()]
    return "\n\n".join(blocks)


def optimizer_dict(described: Description) -> dict[str, Any]:
    """Return the same as JSON types."""
    return {
        "name": described.name,
        "summary": described.summary,
        "multi_objective": described.multi_objective,
        "options": [
            {
                "name": option.name,
                "default": option.default,
                "allowed": option.allowed,
                "help": option.help,
            }
            for option in described.options
        ],
    }
