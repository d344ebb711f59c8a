"""The commands of `autorl prior`: list, show, build, suggest and use."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from autorl.cli.options import AsJson, print_answer, print_json, say
from autorl.core.plain_text import counted
from autorl.core.plain_values import plain
from autorl.core.types import Config, InputError
from autorl.landscapes.library import find_landscape
from autorl.optimizers.model_share import OPTIMIZER
from autorl.optimizers.priors.build import build_prior, fitted_prior
from autorl.optimizers.priors.ensemble import Ensemble, greedy
from autorl.optimizers.priors.families import algorithm_of
from autorl.optimizers.priors.sources import (
    AUTO,
    NONE,
    STUDIES,
    automatic_tables,
    find_prior,
    named_tables,
    prior_files,
    read_table,
)
from autorl.optimizers.priors.study_prior import study_prior_of
from autorl.optimizers.priors.table import Prior, load_prior, save_prior
from autorl.report.table import columns
from autorl.report.text import value_text
from autorl.space import load_space, read_document
from autorl.store.outputs import write_whole
from autorl.study.spec import Spec, load_spec


def list_all(as_json: AsJson = False) -> None:
    """The prior files below ./priors and in the package."""
    priors = [(file, load_prior(file)) for file in prior_files([Path.cwd()])]
    rows = [
        (file.stem, prior.algorithm, len(prior.tasks), prior.sha256[:12], prior.description, file)
        for file, prior in priors
    ]
    header = ("name", "algorithm", "tasks", "hash", "description", "file")
    text = "no prior files: `autorl prior build` makes one of landscapes"
    text = columns(header, rows, indent="") if rows else text
    document = [{"file": str(file), **_summary(prior)} for file, prior in priors]
    print_answer(text, document, as_json=as_json)


def show(
    source: Annotated[str, typer.Argument(metavar="FILE|NAME")], as_json: AsJson = False
) -> None:
    """Describe a prior file: tasks, licences, portfolio, hash.

    Options:
        source: A prior file, or a name of `autorl prior list`.
    """
    prior = load_prior(find_prior(source))
    tasks = [
        (task.source, task.environment, len(task.configs), task.n_seeds, task.licence)
        for task in prior.tasks
    ]
    lines = [
        f"{prior.algorithm}: {prior.description or 'no description'}",
        f"hash {prior.sha256}, licence {prior.licence or 'not stated'}",
        prior.citation,
        prior.built_with and f"built with {prior.built_with}",
        columns(("task", "environment", "configurations", "seeds", "licence"), tasks),
        "portfolio, best first:",
        _configurations(prior.portfolio),
        prior.notice and f"\n{prior.notice}",
    ]
    document = {**_summary(prior), "portfolio": [plain(config) for config in prior.portfolio]}
    print_answer("\n".join(filter(None, lines)), document, as_json=as_json)


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
    of = f"{counted(len(prior.tasks), 'task')} of {prior.algorithm}"
    text = f"{file}: {of}, {file.stat().st_size:,} bytes"
    print_answer(text, {"file": str(file), **_summary(prior)}, as_json=as_json)


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
    totals = ensemble.weights @ ensemble.values
    chosen = greedy(ensemble.values, ensemble.weights, top)
    chosen = sorted(chosen, key=lambda place: -totals[place])
    portfolio = [ensemble.pool[place] for place in chosen]
    scores = totals[chosen]
    best = [made.tasks[task].environment for task in ensemble.values[:, chosen].argmax(axis=0)]
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


AUTOMATIC = (AUTO, STUDIES, NONE)
"""What `prior` may be besides a list of sources."""


def use(
    source: Annotated[str, typer.Argument(metavar="FILE|NAME")],
    study: Annotated[Path, typer.Argument(metavar="STUDY.yaml")],
    dry_run: bool = False,
    as_json: AsJson = False,
) -> None:
    """Let a study file begin with a prior.

    Writes `optimizer: {name: transfer, prior: [...]}` into the file, after the prior was read and
    mapped to the study's space; one of another algorithm is refused. The rest of the file stays as
    it is, comments too, and so do `stop`, `rungs` and other options of `transfer`. A file is named
    relative to the study file. `auto` takes every landscape and prior of the algorithm that is
    found, `studies` the studies in `./studies` as well, `none` is a search without. Studies that
    have begun keep what they began with.

    Options:
        source: A prior file, a name of `autorl prior list`, `auto`, `studies` or `none`.
        study: A study file.
        dry_run: Print the lines and write nothing.
    """
    before = read_document(study).data
    if not isinstance(before, Mapping):
        raise InputError("expected a mapping of keys", file=str(study))
    section = _section(before.get("optimizer"), _reference(source, study))
    # Refuses what does not suit the study, before anything is written.
    spec = load_spec(study, {"optimizer": section})
    lines = yaml.safe_dump({"optimizer": section}, sort_keys=False).rstrip("\n")
    about = _about(spec)
    if not dry_run:
        _write(study, _changed(study, section, lines))
    written = not dry_run
    document = {"file": str(study), "optimizer": section, "prior": about, "written": written}
    text = [lines, *about, f"{study}: {'written' if written else 'nothing is written'}"]
    print_answer("\n".join(text), document, as_json=as_json)


def _reference(source: str, study: Path) -> str | list[str]:
    """Return what `prior` is in the study file."""
    if source in AUTOMATIC:
        return source
    folder = study.resolve().parent
    path = Path(source)
    if not path.is_file():
        find_prior(source, folder)
        return [source]
    try:
        return [Path(os.path.relpath(path.resolve(), folder)).as_posix()]
    except ValueError:  # another drive
        return [str(path.resolve())]


def _section(earlier: object, prior: str | list[str]) -> dict[str, Any]:
    """Return the optimizer's section: options that stay, and the prior."""
    options = dict(earlier) if isinstance(earlier, Mapping) else {"name": earlier}
    if options.get("name") != OPTIMIZER:
        options = {name: options[name] for name in ("stop", "rungs") if options.get("stop")}
    resolved = ("name", "prior", "prior_data")
    unchanged = {name: value for name, value in options.items() if name not in resolved}
    return {"name": OPTIMIZER, "prior": prior} | unchanged


def _about(spec: Spec) -> list[str]:
    content = spec.optimizer.options.get("prior_data")
    if not isinstance(content, Mapping):
        return ["no prior: prior is none"]
    return list(study_prior_of(content, spec.search_space).lines())


def _changed(study: Path, section: Mapping[str, Any], lines: str) -> str:
    """Return the text of a study file with another optimizer.

    Raises:
        InputError: it is written in a way that cannot be changed in place.
    """
    text = study.read_text(encoding="utf-8")
    if study.suffix == ".json":
        return json.dumps(json.loads(text) | {"optimizer": section}, indent=2) + "\n"
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    pairs = root.value if isinstance(root, yaml.MappingNode) and not root.flow_style else []
    place = next((pair for pair in pairs if pair[0].value == "optimizer"), None)
    if place is None:
        changed = text + ("" if text.endswith("\n") else "\n") + lines + "\n"
    else:
        key, value = place
        changed = text[: key.start_mark.index] + lines + text[_end(value) :]
    expected = yaml.safe_load(text) | {"optimizer": dict(section)}
    try:
        right = yaml.safe_load(changed) == expected
    except yaml.YAMLError:
        right = False
    # An anchor, `<<` or a mapping in braces: the lines are for the user to place.
    if not right:
        message = f"cannot be changed in place; it takes optimizer: {json.dumps(section)}"
        raise InputError(message, file=str(study))
    return changed


def _end(node: yaml.Node) -> int:
    """Return where the text of a value ends.

    To YAML a block mapping ends where the next key begins, after the comments between.
    """
    if not isinstance(node, yaml.CollectionNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)


def _write(file: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    try:
        write_whole(file, text)
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror})", file=str(file)) from error
