"""The commands of `autorl prior`: list, show, build and suggest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from autorl.cli.options import AsJson, print_json, say
from autorl.core.plain_text import counted
from autorl.core.plain_values import plain
from autorl.core.types import Config, InputError
from autorl.landscapes.library import find_landscape
from autorl.optimizers.priors.build import build_prior, fitted_prior
from autorl.optimizers.priors.ensemble import Ensemble, greedy
from autorl.optimizers.priors.families import algorithm_of
from autorl.optimizers.priors.sources import (
    automatic_tables,
    find_prior,
    named_tables,
    prior_files,
    read_table,
)
from autorl.optimizers.priors.table import Prior, load_prior, save_prior
from autorl.report.table import columns
from autorl.report.text import value_text
from autorl.space import load_space


def list_all(as_json: AsJson = False) -> None:
    """The prior files below ./priors and in the package."""
    priors = [(file, load_prior(file)) for file in prior_files([Path.cwd()])]
    if as_json:
        print_json([{"file": str(file), **_summary(prior)} for file, prior in priors])
        return
    rows = [
        (file.stem, prior.algorithm, len(prior.tasks), prior.sha256[:12], prior.description, file)
        for file, prior in priors
    ]
    if rows:
        header = ("name", "algorithm", "tasks", "hash", "description", "file")
        say(columns(header, rows, indent=""))
    else:
        say("no prior files: `autorl prior build` makes one of landscapes")


def show(
    source: Annotated[str, typer.Argument(metavar="FILE|NAME")], as_json: AsJson = False
) -> None:
    """Describe a prior file: tasks, licences, portfolio, hash.

    Options:
        source: A prior file, or a name of `autorl prior list`.
    """
    prior = load_prior(find_prior(source))
    if as_json:
        portfolio = [plain(config) for config in prior.portfolio]
        print_json({**_summary(prior), "portfolio": portfolio})
        return
    say(f"{prior.algorithm}: {prior.description or 'no description'}")
    say(f"hash {prior.sha256}, licence {prior.licence or 'not stated'}")
    for text in (prior.citation, prior.built_with and f"built with {prior.built_with}"):
        if text:
            say(text)
    tasks = [
        (task.source, task.environment, len(task.configs), task.n_seeds, task.licence)
        for task in prior.tasks
    ]
    say(columns(("task", "environment", "configurations", "seeds", "licence"), tasks))
    say("portfolio, best first:")
    say(_configurations(prior.portfolio))
    if prior.notice:
        say(f"\n{prior.notice}")


def build(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    sources: Annotated[list[str], typer.Argument(metavar="LANDSCAPE...")],
    space: Annotated[str, typer.Option(metavar="FILE|SPACE")],
    description: str = "",
    replace: bool = False,
    as_json: AsJson = False,
) -> None:
    """Make a prior file of landscapes and studies of one algorithm.

    Options:
        file: A prior file.
        sources: Ids or folders, of studies too.
        space: What the portfolio is made for: sb3/ppo.
        description: One line about it.
    """
    tables = []
    for source in sources:
        folder = find_landscape(source)
        if folder is None:
            raise InputError(f"no landscape or study {source!r}", key="LANDSCAPE")
        tables.append(read_table(folder))
    prior = build_prior(tables, load_space(space, Path.cwd()), description=description)
    save_prior(prior, file, replace=replace)
    if as_json:
        print_json({"file": str(file), **_summary(prior)})
    else:
        say(
            f"{file}: {counted(len(prior.tasks), 'task')} of {prior.algorithm}, "
            f"{file.stat().st_size:,} bytes"
        )


def suggest(
    space: Annotated[str, typer.Argument(metavar="SPACE")],
    env: Annotated[str | None, typer.Option(metavar="ID")] = None,
    prior: Annotated[list[str] | None, typer.Option(metavar="SOURCE")] = None,
    top: Annotated[int, typer.Option(min=1, max=100)] = 8,
    as_json: AsJson = False,
) -> None:
    """Configurations to try first, according to landscapes.

    Options:
        space: A search space by its name: sb3/ppo.
        env: What is to be trained on.
        prior: A landscape, study or prior file.
        top: How many.
    """
    searched = load_space(space, Path.cwd())
    # `ppo-small` is a space of `ppo`.
    algorithms = (algorithm_of(space).split("-")[0],)
    gathered = named_tables(prior or (), Path.cwd(), algorithms)
    if not prior:
        gathered = automatic_tables(Path.cwd(), algorithms)
    made = fitted_prior(gathered, searched, env, named=bool(prior))
    if not made.tasks:
        raise InputError("; ".join(made.lines()), key="suggest")
    ensemble = Ensemble(made.tasks, searched)
    chosen = greedy(ensemble.values, ensemble.weights, top)
    portfolio = [ensemble.pool[place] for place in chosen]
    by_task = ensemble.values[:, chosen]
    scores = ensemble.weights @ by_task
    order = np.argsort(-scores, kind="stable")
    portfolio = [portfolio[place] for place in order]
    scores = scores[order]
    best = [made.tasks[task].environment for task in by_task[:, order].argmax(axis=0)]
    if as_json:
        rows = [
            {"config": plain(config), "score": round(float(score), 4), "best_on": environment}
            for config, score, environment in zip(portfolio, scores, best, strict=True)
        ]
        print_json({"prior": list(made.lines()), "sha256": made.sha256, "portfolio": rows})
        return
    say(made.lines()[0])
    say()
    say("score: weighted mean over tasks, 0 the worst and 1 the best configuration recorded there")
    say("best on: its best task; one with a low score covers a task on which the others fail")
    leading = [
        (f"{score:.2f}", environment) for score, environment in zip(scores, best, strict=True)
    ]
    say(_configurations(portfolio, leading))


def _summary(prior: Prior) -> dict[str, Any]:
    return {
        "algorithm": prior.algorithm,
        "description": prior.description,
        "licence": prior.licence,
        "citation": prior.citation,
        "notice": prior.notice,
        "built_with": prior.built_with,
        "sha256": prior.sha256,
        "tasks": [task.source for task in prior.tasks],
    }


def _configurations(
    configs: Sequence[Config], leading: Sequence[tuple[str, str]] | None = None
) -> str:
    """Lay configurations out as a table, led by score and best task."""
    names = list(dict.fromkeys(name for config in configs for name in config))
    rows = []
    for number, config in enumerate(configs):
        cells = [value_text(config.get(name, "-")) for name in names]
        rows.append([*(() if leading is None else leading[number]), *cells])
    return columns([*([] if leading is None else ["score", "best on"]), *names], rows)
