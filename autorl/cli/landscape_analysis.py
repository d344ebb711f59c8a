"""`autorl landscape importance | subset | analyse | plot`: what landscapes say.

Options:
    kind: Which; the list is above.
    names: What it is about; repeat it.
    seeds: The same; where something is chosen: chosen on tuning seeds, shown on test seeds.
    step: Step of the evaluation; default the last.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autorl.cli.landscape_options import cell, landscapes_of, role, rows_of
from autorl.cli.options import AsJson, Limit, Source, Sources, print_json, say, say_line
from autorl.core.plain_values import json_value
from autorl.core.types import InputError
from autorl.landscapes import Landscape, analysis, load_landscape
from autorl.landscapes.analysis import Answer
from autorl.report.table import columns

if TYPE_CHECKING:
    import pandas as pd

_METHODS = f"{', '.join(analysis.METHODS[:-1])} or {analysis.METHODS[-1]}"
KindName = Annotated[str, typer.Argument(metavar="KIND")]
Names = Annotated[list[str] | None, typer.Option("--hyperparameter", "-p", metavar="NAME")]


def importance(
    source: Source,
    method: str = "fanova",
    seeds: str | None = None,
    step: int | None = None,
    interactions: bool = False,
    config: int | None = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """How much each hyperparameter matters (random forest over the configurations' mean scores).

    fanova: share of the variance over the whole space. local: the same when one hyperparameter
    moves away from one configuration. tunability: what tuning it alone gains over one
    configuration, in units of the score.

    Options:
        seeds: tuning, test or all; default all, in a study that tested few of its runs tuning.
        method: fanova, local (around one configuration) or tunability.
        interactions: fanova: the shares of pairs too.
        config: local: default the best; tunability: default the space's defaults.
    """
    data = load_landscape(source)
    answer = analysis.importance(
        data, method, role(seeds), step, interactions=interactions, config_id=config
    )
    show(answer, as_json=as_json, limit=limit)


def subset(
    sources: Sources,
    size: Annotated[int | None, typer.Option(min=1)] = None,
    first: Annotated[int | None, typer.Option(min=1)] = None,
    clip: Annotated[list[str] | None, typer.Option(metavar="ENV=LOW")] = None,
    seeds: str | None = None,
    tolerance: Annotated[float, typer.Option(min=0.0)] = 0.01,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Which few environments represent all of them:
    ARLBench's method, and every subset that is nearly as good.

    Landscapes of different algorithms or hyperparameters are answered separately. ARLBench's
    own data: --first 128 --size 4.

    Options:
        seeds: tuning, test or all; default all, in a study that tested few of its runs tuning.
        size: Environments in it; default: compare the sizes 1 to 6.
        first: Only configurations with an id below this one.
        clip: Scores below LOW count as LOW; repeat it.
        tolerance: How far above the best error a near-tie may be.
    """
    limits = _limits(clip or [])
    landscapes = landscapes_of(sources)
    environments = sorted({data.manifest.environment for data in landscapes})
    # A misspelt name would clip nothing, and nobody would notice.
    for unknown in sorted(set(limits).difference(environments)):
        raise InputError(
            f"no landscape of environment {unknown!r}; there are {', '.join(environments)}",
            key="--clip",
        )
    # Environments can stand for each other only where they have the same configurations.
    groups: dict[tuple[str, ...], list[Landscape]] = {}
    for data in landscapes:
        groups.setdefault((data.manifest.algorithm, *data.space.names), []).append(data)
    algorithms = [algorithm for algorithm, *_ in groups]
    answers = []
    problems = []
    for (algorithm, *_), group in groups.items():
        inside = [data.manifest.environment for data in group]
        several = algorithms.count(algorithm) > 1
        name = f"{algorithm} on {', '.join(inside)}" if several else algorithm
        low = {environment: limits[environment] for environment in inside if environment in limits}
        try:
            answer = analysis.subset(
                group, size, seeds=role(seeds), first=first, clip=low, tolerance=tolerance
            )
            answers.append((name, algorithm, answer))
        except InputError as error:
            if len(groups) == 1:
                raise
            # One algorithm that cannot be answered does not cost the answer about the others.
            problems.append(f"{name} is left out: {error}")
    if not answers:
        raise InputError("; ".join(problems))
    for problem in problems:
        say_line(problem, err=True)
    if as_json:
        print_json(
            [{"algorithm": algorithm, **document(answer)} for _, algorithm, answer in answers]
        )
        return
    for name, _, answer in answers:
        say_line(f"{name}:")
        show(answer, as_json=False, limit=limit)


def analyse(
    sources: Sources,
    kind: KindName,
    names: Names = None,
    seeds: str | None = None,
    step: int | None = None,
    by: str | None = None,
    reduce: str | None = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Answer another question
    about landscapes; `plot` draws the same.
    """
    data = landscapes_of(sources)
    answer = analysis.analyse(data, kind, names or [], role(seeds), step, by=by, reduce=reduce)
    show(answer, as_json=as_json, limit=limit)


# By the fewest and the most hyperparameters that a kind takes.
_HINTS = {
    (1, 1): " (-p NAME)",
    (2, 2): " (-p NAME -p NAME)",
    (0, 99): " (-p NAME -p NAME ..., default all pairs)",
}
_KINDS = "\n".join(
    f"{name:14}{kind.about}{_HINTS.get(kind.names, '')}" for name, kind in analysis.KINDS.items()
)
# Made of the declared kinds, so that each is listed in one place. A line with a backspace
# keeps click from wrapping the lines.
analyse.__doc__ = f"{inspect.getdoc(analyse)}\n\n\b\n{_KINDS}"


def plot(
    sources: Sources,
    kind: KindName,
    names: Names = None,
    out: Path | None = None,
    replace: bool = False,
    method: Annotated[
        str | None, typer.Option(help=f"Of importance: {_METHODS}; default fanova.")
    ] = None,
    seeds: str | None = None,
    step: int | None = None,
    by: str | None = None,
    reduce: str | None = None,
    as_json: AsJson = False,
) -> None:
    """Draw any kind of `analyse` (see there)
    into a file.

    An .html file is interactive and complete: it opens without a network.

    Options:
        out: A .png, .svg, .pdf, or .html (interactive) file; default a .png in this folder.
    """
    data = landscapes_of(sources)
    answer = analysis.analyse(
        data, kind, names or [], role(seeds), step, by=by, reduce=reduce, method=method
    )
    written = analysis.save(answer, out or Path(f"{_stem(answer)}.png"), replace=replace)
    if as_json:
        print_json({"file": str(written), "kind": answer.kind, "notes": list(answer.notes)})
        return
    say_line(str(written))
    if "chosen_by" in answer.about:
        say_line(f"the best by {answer.about['chosen_by']}")
    for note in answer.notes:
        say_line(f"note: {note}", err=True)


def show(answer: Answer, *, as_json: bool, limit: int = 20) -> None:
    """Print an answer as text or as JSON.

    The text says what it is about, its rows and its notes.
    """
    if as_json:
        print_json(document(answer))
        return
    count = len(answer.landscapes)
    label = "landscape" if count == 1 else "landscapes"
    named = ", ".join(answer.landscapes) if count < 4 else count
    lines = {label: named, **answer.about}
    width = 2 + max(map(len, lines))
    for name, value in lines.items():
        say_line(f"{name.replace('_', ' '):{width}}{_text(value)}")
    table = _summary(answer.table) if answer.kind == "transfer" else answer.table
    shown = table.head(limit) if limit else table
    say()
    rows = (list(map(_text, row)) for row in rows_of(shown))
    say(columns([str(name) for name in shown], rows, indent=""))
    if len(shown) < len(table):
        # On standard error, so that standard output has rows alone.
        say_line(f"... and {len(table) - len(shown)} more (--limit 0 prints all)", err=True)
    for note in answer.notes:
        say_line(f"note: {note}")


def document(answer: Answer) -> dict[str, Any]:
    """Convert an answer to JSON types."""
    rows = [dict(zip(map(str, answer.table), row, strict=True)) for row in rows_of(answer.table)]
    parts = {"kind": answer.kind, "landscapes": answer.landscapes, **answer.about}
    made: dict[str, Any] = json_value({**parts, "notes": answer.notes, "rows": rows})
    return made


def _stem(answer: Answer) -> str:
    """Name a file, as in `dqn-CartPole-v1-values-learning_rate`."""
    about = answer.data[0].manifest
    parts = [about.algorithm]
    if len(answer.data) == 1:
        parts.append(about.environment)
    parts += [answer.kind, *answer.about.get("hyperparameters", [])]
    # Environments may be called ALE/Pong-v5.
    return "-".join(parts).replace("/", "_")


def _summary(table: pd.DataFrame) -> pd.DataFrame:
    """Summarise `transfer`: what each best configuration misses elsewhere."""
    # In its own environment a best configuration misses nothing.
    away = table[table["best_in"] != table["used_in"]]
    groups = away.groupby(["best_in", "config_id"], sort=False)
    worst = away.loc[groups["regret"].idxmax(), ["best_in", "used_in", "regret"]]
    summary = groups.agg(
        mean_regret=("regret", "mean"), mean_percentile=("percentile", "mean")
    ).reset_index()
    renamed = worst.rename(columns={"used_in": "worst_in", "regret": "worst_regret"})
    return summary.merge(renamed, on="best_in")


def _text(value: object) -> str:
    value = json_value(value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {cell(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(cell, value))
    return cell(value)


def _limits(texts: list[str]) -> dict[str, float]:
    """Read ENV=LOW options as numbers by environment."""
    limits = {}
    for text in texts:
        # The last one: what stands before it is the environment, whatever it is called.
        name, sign, low = text.rpartition("=")
        try:
            limits[name] = float(low)
        except ValueError:
            sign = ""
        if not sign or not name:
            raise InputError(f"expected ENVIRONMENT=NUMBER, got {text!r}", key="--clip")
    return limits
