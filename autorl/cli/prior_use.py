"""The command `autorl prior use`: a study file begins with a prior."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from autorl.cli.options import AsJson, print_json, say
from autorl.core.types import InputError
from autorl.optimizers.model_share import OPTIMIZER
from autorl.optimizers.priors.sources import AUTO, NONE, STUDIES, find_prior
from autorl.optimizers.priors.study_prior import study_prior_of
from autorl.space import read_document
from autorl.store.outputs import write_whole
from autorl.study.spec import Spec, load_spec

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
    if as_json:
        written = not dry_run
        answer = {"file": str(study), "optimizer": section, "prior": about, "written": written}
        print_json(answer)
        return
    say(lines)
    for line in about:
        say(line)
    say(f"{study}: nothing is written" if dry_run else f"{study}: written")


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
