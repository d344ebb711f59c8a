"""Arguments and options that several commands share.

They have the help below, where a command's docstring has no other.

Options:
    folder: The study's folder.
    as_json: Print one JSON object instead of text.
    quiet: No progress.
    workers: Segments trained at once; never changes a result.
    settings: Any key of the study file.
    storage: Where checkpoints and copies of the database lie: a folder, or s3://, gs://, ...
    replace: Replace what is there.
    trust: Open pickles in checkpoints that others wrote, which can run anything (docs/security.md).
    source: An id, a landscape folder, or a study's folder.
    sources: Ids or folders; a folder of many, such as arlbench/dqn, too.
    by: Aggregate over seeds to rank by: mean, median, iqm, cvar(0.2), quantile(0.25); default as
        the study did.
    reduce: What a run's curve is ranked by: last, best, auc, mean_last(k); default as the study
        did, else last.
    seeds: Seeds that count: tuning, test or all.
    step: Last step that counts; default the last there is.
    limit: Rows to print; 0 = all. --json prints all.
    out: Folder landscapes are kept in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from autorl.core.plain_text import printable
from autorl.core.types import InputError

Folder = Annotated[Path, typer.Argument(metavar="DIR")]
AsJson = Annotated[bool, typer.Option("--json")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q")]
Workers = Annotated[int | None, typer.Option(min=1, max=10_000)]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")]
Storage = Annotated[str | None, typer.Option(metavar="URL")]
Source = Annotated[str, typer.Argument(metavar="LANDSCAPE")]
Sources = Annotated[list[str], typer.Argument(metavar="LANDSCAPE...")]
Limit = Annotated[int, typer.Option(min=0)]


def say(text: object = "", *, err: bool = False) -> None:
    """Print text on standard output or standard error.

    Control characters in text of others do not reach a terminal.
    """
    typer.echo(printable(str(text)), err=err)


def say_line(text: object, *, err: bool = False) -> None:
    """Print one line.

    A line feed in text of others is escaped too: it cannot pass for a line of ours.
    """
    typer.echo(printable(str(text), keep_lines=False), err=err)


def print_json(document: object) -> None:
    """Print one JSON document on standard output.

    Numbers that JSON does not have are an error, not `NaN`.
    """
    import json

    typer.echo(json.dumps(document, indent=2, allow_nan=False))


def print_answer(text: object, document: object, *, as_json: bool) -> None:
    """Print an answer as text, or as a JSON document."""
    if as_json:
        print_json(document)
    else:
        say(text)


def print_json_rows(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a JSON list of objects as `print_json` does, row by row."""
    import json

    separator = "["
    for row in rows:
        text = json.dumps(dict(zip(header, row, strict=True)), indent=2, allow_nan=False)
        # The bytes that `json.dumps` of the whole list has, for an answer of any length.
        typer.echo(separator + "\n  " + text.replace("\n", "\n  "), nl=False)
        separator = ","
    end = "[]" if separator == "[" else "\n]"
    typer.echo(end)


def key_texts(entries: Sequence[str], allowed: Sequence[str]) -> dict[str, str]:
    """Read `--about KEY=TEXT` options, with keys of `allowed`.

    Raises:
        InputError: an entry without `=`, or another key.
    """
    texts = {}
    for entry in entries:
        key, separator, text = entry.partition("=")
        if not separator or key.strip() not in allowed:
            raise InputError(
                f"expected KEY=TEXT with a key of {', '.join(allowed)}, got {entry!r}",
                key="--about",
            )
        texts[key.strip()] = text.strip()
    return texts
