"""Commands about what there is: space, trainers, optimizers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from autorl import optimizers as optimizer_room
from autorl import trainers as trainer_room
from autorl.cli.options import AsJson, print_json, say
from autorl.plain_values import plain
from autorl.report.catalog import optimizer_dict, optimizers_text
from autorl.report.spaces import space_text
from autorl.report.table import columns
from autorl.space import load_space
from autorl.types import InputError


def space(
    source: Annotated[
        str, typer.Argument(metavar="FILE|SPACE", help="A search-space file, or a name: sb3/ppo.")
    ],
    sample: Annotated[
        int, typer.Option(min=0, max=100_000, help="Also draw N random configurations.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of the draw.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Check a search space and print it."""
    searched = load_space(source, Path.cwd())
    rng = np.random.default_rng(seed)
    drawn = [searched.sample(rng) for _ in range(sample)]
    if as_json:
        samples = [plain(config) for config in drawn]
        print_json({**searched.to_dict(), "hash": searched.hash, "samples": samples})
    else:
        say(space_text(searched, drawn))


def trainers(as_json: AsJson = False) -> None:
    """The trainers and what they train."""
    names = trainer_room.names()
    if as_json:
        print_json(names)
    else:
        say(columns(("trainer", "what it trains"), names.items(), indent=""))


def optimizers(
    name: Annotated[str | None, typer.Argument(help="Only this one.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """The optimizers and their options."""
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
    if as_json:
        documents = [optimizer_dict(description) for description in described]
        print_json({"optimizers": documents, "not_installed": missing})
    else:
        say(optimizers_text(described, missing))
