"""Compiles the population engine: `autorl doctor --warm`."""

from __future__ import annotations

from collections.abc import Sequence

from autorl.cli.options import print_json, say
from autorl.core.plain_text import one_of
from autorl.core.types import InputError
from autorl.population import engine, kernels, warming


def warm(algorithms: Sequence[str], as_json: bool) -> None:
    """Compile the population engine, and print what was compiled.

    Args:
        algorithms: of `engine.ALGORITHMS`; all where there are none.
        as_json: print one document instead of a line for each program.

    Raises:
        InputError: there is no such algorithm, or the cache cannot be written.
    """
    for name in algorithms:
        if name not in engine.ALGORITHMS:
            message = f"{name!r} is none of the population engine{one_of(name, engine.ALGORITHMS)}"
            raise InputError(message, key="ALGORITHM")
    prepared: list[kernels.Prepared] = []

    def listener(program: kernels.Prepared) -> None:
        prepared.append(program)
        if not as_json:
            verdict = "compiled" if program.compiled else "there"
            say(f"{verdict:8} {program.seconds:6.1f} s  {program.name}")

    try:
        warming.warm(algorithms or engine.ALGORITHMS, listener)
    except OSError as error:
        raise kernels.unwritable(error) from error
    if as_json:
        print_json([program._asdict() for program in prepared])
