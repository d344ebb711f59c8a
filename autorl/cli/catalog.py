"""The command group `autorl list`: trainers, optimizers, search spaces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from autorl import optimizers as optimizer_room
from autorl import trainers as trainer_room
from autorl.cli.options import AsJson, print_json, say
from autorl.core.plain_values import plain
from autorl.core.types import InputError
from autorl.report.catalog import optimizer_dict, optimizers_text
from autorl.report.spaces import space_text
from autorl.report.table import columns
from autorl.space import load_space
from autorl.space.yaml_format import space_names
from autorl.trainers.registry import documentation

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def start() -> None:
    """The trainers, optimizers and search spaces there are."""


@app.command()
def trainers(
    name: Annotated[
        str | None, typer.Argument(help="Only this one, and its options.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The trainers and what they train."""
    names = trainer_room.names()
    if name is not None:
        text = documentation(name, str(Path.cwd()))
        if as_json:
            print_json({"name": name, "documentation": text})
        else:
            say(f"{name}: {trainer_room.info(name, str(Path.cwd())).description}\n\n{text}")
    elif as_json:
        print_json(names)
    else:
        say(columns(("trainer", "what it trains"), names.items(), indent=""))


@app.command()
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


@app.command()
def spaces(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE|SPACE]",
            help="Check and print this one: a file, or a name such as sb3/ppo.",
            show_default=False,
        ),
    ] = None,
    sample: Annotated[
        int, typer.Option(min=0, max=100_000, help="Also draw N random configurations.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of the draw.")] = 0,
    as_json: AsJson = False,
) -> None:
    """The search spaces by name, or one of them in full."""
    if source is None:
        names = space_names()
        if as_json:
            print_json(names)
        else:
            say("\n".join(names))
        return
    searched = load_space(source, Path.cwd())
    rng = np.random.default_rng(seed)
    drawn = [searched.sample(rng) for _ in range(sample)]
    if as_json:
        samples = [plain(config) for config in drawn]
        print_json({**searched.to_dict(), "hash": searched.hash, "samples": samples})
    else:
        say(space_text(searched, drawn))
