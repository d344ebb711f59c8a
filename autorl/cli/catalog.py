"""The command group `autorl list`: trainers, optimizers, search spaces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from autorl import optimizers as optimizer_room
from autorl import trainers as trainer_room
from autorl.cli.options import AsJson, print_answer
from autorl.core.plain_values import plain
from autorl.core.types import Config, InputError
from autorl.report.table import columns, one_line
from autorl.report.text import space_rules, space_table, value_cells
from autorl.space import Space, load_space
from autorl.space.yaml_format import space_names
from autorl.trainers.registry import documentation


def trainers(name: Annotated[str | None, typer.Argument()] = None, as_json: AsJson = False) -> None:
    """The trainers and what they train.

    Options:
        name: Only this one, and its options.
    """
    names = trainer_room.names()
    if name is not None:
        text = documentation(name, str(Path.cwd()))
        said = f"{name}: {trainer_room.info(name, str(Path.cwd())).description}\n\n{text}"
        print_answer(said, {"name": name, "documentation": text}, as_json=as_json)
    else:
        table = columns(("trainer", "what it trains"), names.items(), indent="")
        print_answer(table, names, as_json=as_json)


def optimizers(
    name: Annotated[str | None, typer.Argument()] = None, as_json: AsJson = False
) -> None:
    """The optimizers and their options.

    Options:
        name: Only this one.
    """
    described = []
    missing: dict[str, str] = {}
    # Asked for by name, one that is not installed is an error; in the list it is a line.
    for candidate in [name] if name is not None else optimizer_room.names():
        try:
            described.append(optimizer_room.describe(candidate, str(Path.cwd())))
        except InputError as error:
            if name is not None:
                raise
            # One whose extra is not installed hides no other: its message says what to install.
            missing[candidate] = error.message
    blocks = []
    for optimizer in described:
        several = " (several objectives)" if optimizer.multi_objective else ""
        block = f"{optimizer.name}: {optimizer.summary}{several}"
        # As an option is written in a study file.
        rows = [
            (option.name, json.dumps(option.default), option.allowed, option.help)
            for option in optimizer.options
        ]
        if rows:
            block += "\n" + columns(("option", "default", "allowed", ""), rows)
        blocks.append(block)
    blocks += [f"{name}: not installed: {reason}" for name, reason in missing.items()]
    document = {"optimizers": list(map(asdict, described)), "not_installed": missing}
    print_answer("\n\n".join(blocks), document, as_json=as_json)


def spaces(
    source: Annotated[str | None, typer.Argument(metavar="[FILE|SPACE]")] = None,
    sample: Annotated[int, typer.Option(min=0, max=100_000)] = 0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """The search spaces by name, or one of them in full.

    Options:
        source: Check and print this one: a file, or a name such as sb3/ppo.
        sample: Also draw N random configurations.
        seed: Of the draw.
    """
    if source is None:
        names = space_names()
        print_answer("\n".join(names), names, as_json=as_json)
        return
    searched = load_space(source, Path.cwd())
    rng = np.random.default_rng(seed)
    drawn = [searched.sample(rng) for _ in range(sample)]
    samples = [plain(config) for config in drawn]
    document = {**searched.to_dict(), "hash": searched.hash, "samples": samples}
    print_answer(_space_text(searched, drawn), document, as_json=as_json)


def _space_text(space: Space, samples: Sequence[Config]) -> str:
    """Lay out the space as a table, its rules, and configurations drawn."""
    blocks = [columns(*space_table(space), indent="")]
    rules = space_rules(space)
    if rules:
        blocks.append("\n".join(map(one_line, rules)))
    if samples:
        cells = [value_cells(config, space.names) for config in samples]
        blocks.append(columns(space.names, cells, indent=""))
    return "\n\n".join(blocks)
