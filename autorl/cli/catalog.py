"""Commands about what there is: space, trainers, optimizers, doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autorl.cli.options import AsJson, print_json, say
from autorl.plain_values import plain


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
    import numpy as np

    from autorl.report.spaces import space_text
    from autorl.space import load_space

    found = load_space(source, Path.cwd())
    rng = np.random.default_rng(seed)
    drawn = [found.sample(rng) for _ in range(sample)]
    if as_json:
        print_json(
            {**found.to_dict(), "hash": found.hash, "samples": [plain(config) for config in drawn]}
        )
    else:
        say(space_text(found, drawn))


def trainers(as_json: AsJson = False) -> None:
    """The trainers and what they train."""
    from autorl import trainers as room
    from autorl.report.text import columns

    known = room.names()
    if as_json:
        print_json(known)
    else:
        say(columns(("trainer", "what it trains"), known.items(), indent=""))


def optimizers(
    name: Annotated[str | None, typer.Argument(help="Only this one.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """The optimizers and their options."""
    from autorl import optimizers as room
    from autorl.types import InputError

    described, missing = [], dict[str, str]()
    for one in [name] if name is not None else room.names():
        try:
            described.append(room.describe(one, str(Path.cwd())))
        except InputError as error:
            if name is not None:
                raise
            missing[one] = error.message
    if as_json:
        from autorl.report.catalog import optimizer_dict

        print_json(
            {"optimizers": [optimizer_dict(one) for one in described], "not_installed": missing}
        )
        return
    from autorl.report.catalog import optimizers_text

    say(optimizers_text(described, missing))


def doctor(
    folder: Annotated[Path, typer.Option("--out", help="Folder studies will be kept in.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Check this installation.

    Versions, extras, cores, GPUs, write permission, child processes. Exit code 1 if something is broken.
    """
    from autorl.cli.checkup import examine

    checks = examine(folder)
    if as_json:
        print_json([vars(check) for check in checks])
    else:
        for check in checks:
            say(f"{check.verdict:8} {check.name:22} {check.detail}".rstrip())
    if any(check.verdict == "broken" for check in checks):
        raise typer.Exit(1)
