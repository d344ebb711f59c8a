"""Finds what a user means by the sides of a judgement."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autorl.core.plain_text import one_line, shown
from autorl.core.types import Config, InputError
from autorl.space import parse_document
from autorl.store.folder import holds_study
from autorl.study.judging.runs import FILE, Side
from autorl.study.results.record import open_record
from autorl.study.spec import Spec
from autorl.study.spec.study_file import is_file, load_spec, override, parse_override, read_study

_SEED = "{seed}"


@dataclass(frozen=True)
class Source:
    """Says how the texts A and B are read.

    Attributes:
        study: study file or search space that revisions and configurations are of.
        run: command that revisions and folders are run by, in place of a study.
        overrides: values of the study file by dotted key.
    """

    study: str | None = None
    run: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)


def side_of(text: str, source: Source, worktrees: Path) -> Side:
    """Find what a text names.

    In this order: a study's folder (its incumbent), a study file or a file of a configuration, a
    command with `{seed}`, values `name=value,...` or `default` of the study, a folder, and a git
    revision.

    Args:
        text: the user's.
        source: how it is read.
        worktrees: folder that revisions are checked out in.

    Raises:
        InputError: it is none of these.
    """
    path = Path(text)
    if path.is_dir() and holds_study(path):
        with open_record(path) as record:
            return Side(text, record.spec, record.incumbent().config)
    if path.is_file():
        content = parse_document(path.read_text(encoding="utf-8"), text).data
        if source.study is not None and isinstance(content, Mapping) and "space" not in content:
            return _configured(text, content, source)
        return _default(text, read_study(text, dict(source.overrides)))
    if _SEED in text:
        return _command(text, text, source, Path.cwd())
    if source.study is not None and (text == "default" or "=" in text):
        values = [] if text == "default" else text.split(",")
        return _configured(text, dict(map(parse_override, values)), source)
    if path.is_dir() and source.run is not None:
        return _command(text, source.run, source, path.resolve())
    if source.study is None and source.run is None:
        raise InputError(
            f"{shown(text)} is no study, study file or command with {_SEED}: for a revision or a "
            "configuration give --study or --run"
        )
    return _revision(text, source, worktrees)


def _default(label: str, spec: Spec, code: str = "", root: str = "") -> Side:
    return Side(label, spec, spec.search_space.default(), code, root)


def _configured(label: str, values: Mapping[str, Any], source: Source) -> Side:
    spec = read_study(str(source.study), dict(source.overrides))
    default = spec.search_space.default()
    return Side(label, spec, spec.search_space.config({**default, **values}))


def _command(
    label: str, command: str, source: Source, folder: Path, code: str = "", root: str = ""
) -> Side:
    own_steps = "{until}" not in command
    kwargs: dict[str, Any] = {"command": command, "arguments": "none", "own_steps": own_steps}
    if own_steps:
        kwargs["metrics"] = {"step": "-"}  # a key that no record has: the last value counts
    study: dict[str, Any] = {
        "name": "judged",
        "trainer": {"name": "command", "kwargs": kwargs},
        # A study has a space; of this one nothing reaches the command.
        "space": {"edit": [0, 1]},
        "objective": {"metric": "score"},
        "fidelity": {"steps": 1, "evaluations": 1},
        "budget": {"runs": 96},
        "path": str(folder),
    }
    for key, value in source.overrides.items():
        override(study, key, value)
    return Side(label, load_spec(study), Config(), code or _tree_of(folder), root)


def _tree_of(folder: Path) -> str:
    """Hash the Python files of a folder, which a command may import."""
    total = hashlib.sha256()
    books = {path.parent for path in folder.rglob(FILE)}  # revisions are checked out in them
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder)
        if not books.intersection(path.parents) and not any(p.startswith(".") for p in name.parts):
            total.update(name.as_posix().encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def _revision(text: str, source: Source, worktrees: Path) -> Side:
    """Check a revision out in a worktree of its own."""
    file = None if source.study is None or not is_file(source.study) else Path(source.study)
    place = Path.cwd() if file is None else file.resolve().parent
    top = Path(_git(place, text, "rev-parse", "--show-toplevel"))
    commit = _git(place, text, "rev-parse", "--verify", "--quiet", f"{text}^{{commit}}")
    tree = _git(place, text, "rev-parse", f"{commit}^{{tree}}")
    worktree = (worktrees / commit[:16]).resolve()
    if not (worktree / ".git").exists():
        worktree.parent.mkdir(parents=True, exist_ok=True)
        _git(top, text, "worktree", "add", "--detach", "--force", str(worktree), commit)
    # A kill may have left it half checked out.
    _git(worktree, text, "reset", "--hard", "--quiet", commit)
    folder = worktree / place.relative_to(top)
    label = f"{text} ({commit[:9]})" if not commit.startswith(text) else text
    if source.run is not None:
        return _command(label, source.run, source, folder, tree, str(worktree))
    overrides = dict(source.overrides)
    study = str(source.study)
    if file is not None:
        # The study file is a part of the edit, unless that revision has none.
        of_revision = folder / file.name
        study = str(of_revision if of_revision.is_file() else file)
        overrides["path"] = str(folder)
    return _default(label, read_study(study, overrides), tree, str(worktree))


def _git(folder: Path, text: str, *arguments: str) -> str:
    try:
        command = ["git", "-C", str(folder), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    except OSError as error:
        raise InputError(f"git cannot be run ({error.strerror})") from error
    if done.returncode:
        why = one_line(done.stderr.strip().partition("\n")[0]) or "it is not found"
        raise InputError(f"{shown(text)} is no revision of a git repository at {folder} ({why})")
    return done.stdout.strip()
