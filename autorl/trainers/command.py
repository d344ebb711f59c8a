"""Runs any training script as a trainer.

The configuration goes in as flags or a file, metrics come out of what it writes.

    trainer:
      name: command
      kwargs:
        command: "{python} ppo.py --env-id {environment}"
        seed_flag: --seed
        steps_flag: --total-timesteps
        metrics: {from: tensorboard, step: step, map: {eval_return: charts/episodic_return}}
        reduce_last: 20

Each segment runs in a fresh folder that is removed afterwards; files the command names are looked
for in the working folder of the study. A script that takes `{checkpoint}` and `{save_to}` is
resumable; any other trains from scratch.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any, Literal

from pydantic import Field

from autorl.core.masking import VARIABLES, without_values
from autorl.core.os_processes import (
    ProcessLostError,
    die_with_parent,
    end_marked,
    ended_from_outside,
    exit_text,
)
from autorl.core.plain_values import plain
from autorl.core.types import (
    Checkpoint,
    EnvironmentSpec,
    InputError,
    Resources,
    Segment,
    TrainerSpec,
)
from autorl.store.checkpoints import reading, scratch, written
from autorl.store.log_files import open_log
from autorl.store.outputs import new_folder
from autorl.trainers.contract import ExportedModel, FixedValue
from autorl.trainers.metrics import Collector, MetricSource, OwnPath, parse_line
from autorl.trainers.options import Count, Text, read_options
from autorl.trainers.shared import check_names, search_folders
from autorl.trainers.user_code import Told, UserTrainer

# An environment variable by which all that a command starts is known, in any session.
MARK = "AUTORL_COMMAND"


@contextmanager
def running(
    arguments: Sequence[str],
    folder: Path,
    variables: Mapping[str, str],
    errors: Callable[[str], object],
) -> Iterator[subprocess.Popen[str]]:
    """Run a command in `folder`, killed when the block is left.

    Its output is to be read. On Linux what it has started ends when it does: a process that it
    leaves behind would hold its output open, and whoever reads that would wait for it.

    Args:
        arguments: its words.
        folder: it works in.
        variables: of its environment.
        errors: is given the lines of its standard error.

    Raises:
        InputError: there is no such program.
    """
    mark = uuid.uuid4().hex
    try:
        process = subprocess.Popen(
            arguments,
            cwd=folder,
            env={**variables, MARK: mark},
            # A script that asks for input fails at once: nobody is there to answer.
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A byte that is no UTF-8 must not end the reading.
            errors="replace",
            preexec_fn=die_with_parent,
        )
    except FileNotFoundError as error:
        message = f"the program {arguments[0]!r} was not found"
        raise InputError(message, key="trainer.kwargs.command") from error

    def end_what_it_leaves() -> None:
        process.wait()
        end_marked(MARK, mark)

    def copy() -> None:
        for line in _lines(process.stderr):
            errors(line)

    # Both outputs are read at once, since a full pipe stops the command.
    threads = [threading.Thread(target=act, daemon=True) for act in (end_what_it_leaves, copy)]
    for thread in threads:
        thread.start()
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        # Nothing holds the output open once the first has ended: the second comes to its end.
        for thread in threads:
            thread.join()


_GANG = ("nnodes", "node_rank", "master_addr", "master_port")
PLACEHOLDERS = ("gpus", *_GANG)
"""Placeholders of a command. A hyperparameter of the same name takes its place."""


def placeholder_values(needs: Resources) -> dict[str, object]:
    """Give the values of `PLACEHOLDERS` where a segment runs.

    A gang's are in the environment of this process, where its executor has put them
    (`autorl.executors.ray_worker`).

    Raises:
        InputError: the segment is one of a gang, and this process is on none of its hosts.
    """
    values: Sequence[object]
    if needs.nodes == 1:
        # Two segments on one host would meet at the launchers' default port.
        with socket.socket() as listener:
            listener.bind(("", 0))
            values = (1, 0, "127.0.0.1", listener.getsockname()[1])
    else:
        missing = [name.upper() for name in _GANG if name.upper() not in os.environ]
        if missing:
            raise InputError(
                f"{needs.nodes} hosts need an executor that sets {missing[0]}, such as `ray`",
                key="resources.nodes",
            )
        values = [os.environ[name.upper()] for name in _GANG]
    return {"gpus": math.ceil(needs.gpu), **dict(zip(_GANG, values, strict=True))}


def resolved_variables(variables: object) -> dict[str, str]:
    """Return the texts of environment variables by name.

    A name without a value has that of this process, as it is now.

    Raises:
        InputError: no mapping of names to single values, or a name without a value that is not set
            here. No message holds a value.
    """
    key = f"trainer.kwargs.{VARIABLES}"
    if variables is None:
        return {}
    if not isinstance(variables, Mapping):
        message = "expected names with values, or without to take them from the environment"
        raise InputError(message, key=key)
    texts = {}
    for name, value in variables.items():
        # No process can be given such a name.
        if not name or "=" in name or "\0" in name:
            message = "expected the name of an environment variable before each colon"
            raise InputError(message, key=key)
        if value is None and name not in os.environ:
            message = "has no value here and is not set in the environment"
            raise InputError(message, key=f"{key}.{name}")
        if not isinstance(value, str | int | float | None) or "\0" in str(value):
            message = "expected one text or number, or no value to take it from the environment"
            raise InputError(message, key=f"{key}.{name}")
        texts[name] = os.environ[name] if value is None else str(value)
    return texts


# Names only: other braces of a command (JSON, shell) stay as they are.
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w.\-/]*)\}")
# `--name`, or `name=`, `+name=` and `++name=` as Hydra writes overrides.
_FLAG = re.compile(r"(?:--([A-Za-z][\w.\-/]*)|\+{0,2}([A-Za-z_][\w.\-/]*)=)")
_OWN = (
    *("python", "config_file", "seed", "until", "start", "length", "horizon", "checkpoint"),
    *("save_to", "output", "environment"),
)
_LAST_LINES = 3  # of a command's output, for a message
_LONGEST_LINE = 2**20  # characters of a line of output


@dataclass(frozen=True)
class Options:
    """The options of `trainer: {name: command, kwargs: {...}}`, see `CommandTrainer`."""

    command: Annotated[
        str | tuple[str | float, ...], Field(min_length=1), "a command line or a list of its words"
    ]
    python: Text = None
    arguments: Literal["flags", "none"] = "flags"
    style: Literal["kebab", "snake", "equals", "hydra"] = "kebab"
    booleans: Literal["value", "flag"] = "value"
    config_file: Annotated[Literal["yaml", "json"] | None, "yaml or json"] = None
    seed_flag: Text = None
    steps_flag: Text = None
    own_steps: bool = False
    checkpoint_flag: Text = None
    save_flag: Text = None
    saves_in: OwnPath = None
    continue_with: Annotated[str, "words of a command line"] = ""
    metrics: Any = None
    reduce_last: Count = 1
    environment_variables: Any = None
    path: Annotated[str | tuple[str, ...], "a folder or a list of them"] = ()
    changes: Annotated[tuple[str, ...] | None, "a list of hyperparameters"] = None


class CommandTrainer(UserTrainer):
    """Runs segments by running a command.

    Options (`trainer.kwargs`):
        command: the command, as a list or as one line split like a shell would (no shell runs it).
            Placeholders: `{python}` (this interpreter), `{seed}`, `{until}`, `{start}`, `{length}`
            (steps between them), `{horizon}`, `{environment}` (its id), `{output}` (the segment's
            folder), `{config_file}`, `{checkpoint}` (empty from scratch), `{save_to}`, and `{name}`
            of any hyperparameter. For `torchrun` and `accelerate launch`: `{gpus}` of this host,
            `{nnodes}`, `{node_rank}`, `{master_addr}`, `{master_port}`.
        python: the interpreter of `{python}`; default this one.
        arguments: `flags` appends every hyperparameter the command does not name; `none` does not.
        style: `kebab` --learning-rate 0.1 · `snake` --learning_rate 0.1 · `equals`
            --learning_rate=0.1 · `hydra` learning_rate=0.1. A list is one flag with several values
            (kebab, snake) or JSON (equals, hydra).
        booleans: `value` --flag True · `flag` --flag or --no-flag.
        config_file: `yaml` or `json`: write the hyperparameters to `{config_file}` instead of
            passing flags.
        seed_flag, steps_flag: flags that get the seed and `until`, if the command does not name
            `{seed}` and `{until}`.
        own_steps: the command has its number of steps from elsewhere, and is told none.
        checkpoint_flag, save_flag: flags that get the folder to continue from and the one to save
            in, if there is one.
        saves_in: a folder, in the segment's, that the program saves in and resumes from; it is
            there again where a run goes on.
        continue_with: words behind the command where a run goes on, for a program whose own flags
            resume it, such as `trainer.resume_from_path={checkpoint}/global_step_{start}`.
        metrics: where the metrics are. `from`: `stdout` (the default), `jsonlines`, `csv`,
            `tensorboard` or `trainer_state` (of transformers); `path`: the file or a pattern, in
            the segment's folder; `step`: the step's key in a record (`step`); `step_scale`: steps
            of the study to one of a record's (1); `rank`: key of the process's rank, of which 0
            is read; `map`: metric name in the study -> key in the record (every number as named);
            `sum`: likewise, for counts of each record, such as tokens, that a budget adds up.
        reduce_last: a metric is the mean of this many of its latest values (1).
        environment_variables: added to those of this process. One without a value (null) must be
            set in it: so no secret stands in the study file. Values are masked in messages and
            everywhere but in `study.yaml`.
        path: folder the command's files and modules are in; default the working folder of the
            study.
        changes: hyperparameters a continued segment may change; default all, for a resumable
            script.
    """

    preload = ("autorl.trainers.command",)

    def __init__(self, spec: TrainerSpec) -> None:
        self.options = options = read_options(Options, spec.kwargs)
        command = options.command
        try:
            words = shlex.split(command) if isinstance(command, str) else map(str, command)
            self.more = shlex.split(options.continue_with)
        except ValueError as error:
            message = f"cannot be split into words ({error})"
            raise InputError(message, key="trainer.kwargs.command") from None
        self.command = tuple(words)
        self.used = {name for word in self.command for name in _PLACEHOLDER.findall(word)}
        self.named = self.used.union(_PLACEHOLDER.findall(options.continue_with))
        self.metrics = MetricSource.parse(options.metrics or {}, options.reduce_last)
        self.folders = search_folders(spec.kwargs)
        self.changeable = options.changes
        self.model_name = "model" if self.resumable else ""
        # For its errors, before anything trains: the values are taken again where the command runs.
        resolved_variables(options.environment_variables)
        for names, flag, what in (
            (("seed",), "seed_flag", "seed"),
            (("until", "length"), "steps_flag", "number of steps"),
        ):
            if flag == "steps_flag" and options.own_steps:
                continue
            if self.used.isdisjoint(names) and getattr(options, flag) is None:
                raise InputError(
                    f"nothing tells the command its {what}: name {{{names[0]}}} or set {flag}",
                    key="trainer.kwargs",
                )
        if (options.config_file is None) != ("config_file" not in self.used):
            raise InputError(
                "config_file: yaml (or json) and {config_file} go together",
                key="trainer.kwargs.config_file",
            )

    @property
    def resumable(self) -> bool:
        loads = "checkpoint" in self.named or self.options.checkpoint_flag is not None
        saves = "save_to" in self.used or self.options.save_flag is not None
        return self.options.saves_in is not None or (loads and saves)

    def check(self, environment: EnvironmentSpec, hyperparameters: Collection[str]) -> None:
        """Check placeholders, and that every hyperparameter reaches the command."""
        allowed = {*_OWN, *PLACEHOLDERS, *hyperparameters}
        check_names(sorted(self.named), allowed, "placeholder", "trainer.kwargs.command")
        # The value of the study would take its place.
        for name in sorted(set(hyperparameters) & set(_OWN)):
            raise InputError(
                f"{{{name}}} has a meaning of its own in a command; rename the hyperparameter",
                key=name,
            )
        lost = sorted(set(hyperparameters) - self.used)
        if lost and self.options.config_file is None and self.options.arguments == "none":
            raise InputError(
                f"{lost[0]!r} never reaches the command: name it, or set arguments: flags",
                key="trainer.kwargs",
            )
        if "environment" in self.used and environment.id is None:
            raise InputError(
                "the command names {environment}, the study has none", key="environment.id"
            )

    def reported_metrics(self, environment: EnvironmentSpec) -> Collection[str] | None:
        """List the metrics and counts that are named, if any metric is."""
        return {*self.metrics.map, *self.metrics.sum} if self.metrics.map else None

    def check_tasks(self, environments: Sequence[EnvironmentSpec]) -> None:
        """Check that the command is told the id of each task."""
        names = [environment.id for environment in environments]
        if "environment" not in self.used or len(set(names)) < len(names):
            raise InputError(
                "a command knows a task by {environment}, its id: name it, an id for each task",
                key="tasks",
            )

    def fixed_values(self) -> tuple[FixedValue, ...]:
        """Return flags that the command, or an option, has already.

        A second one would be passed beside them.
        """
        options = self.options
        if options.arguments == "none" or options.config_file is not None:
            return ()
        words = [("command", word) for word in self.command]
        for place in ("seed_flag", "steps_flag", "checkpoint_flag", "save_flag"):
            words.append((place, getattr(options, place) or ""))
        return tuple(
            FixedValue(place, (name,), fills_in=False)
            for place, word in words
            for name in _flag_names(word)
            if name not in self.used
        )

    def export_model(
        self, checkpoint: Checkpoint, target: str | Path, *, replace: bool = False
    ) -> ExportedModel:
        """Copy what the program has saved to a new folder."""
        if replace:
            message = "a model that is a folder replaces nothing: give another name"
            raise InputError(message, key="--replace")
        with new_folder(Path(target)) as folder:
            shutil.copytree(checkpoint.path, folder, dirs_exist_ok=True)
        return ExportedModel(Path(target), "the program that saved it")

    def load_model(self, checkpoint: Checkpoint) -> Path:
        """Return the folder that the program saved."""
        return Path(checkpoint.path)

    def run(self, segment: Segment, course: Told, folder: Path | None) -> None:
        # The end is a point too: a run has a last score whatever the study asks for on the way.
        points = sorted({*segment.evaluate_at, segment.until})
        collector = Collector(self.metrics, points, segment.start, segment.until)
        course.cost = collector.totals

        def tell(done: list[tuple[int, dict[str, float]]]) -> None:
            for step, metrics in done:
                course.tell(step, metrics)

        with scratch(segment) as output:
            saves = output / (self.options.saves_in or "")
            if self.options.saves_in and segment.parent:
                # A copy: a program that writes there must not change the checkpoint.
                shutil.copytree(segment.parent.path, saves)
            words = self._command_line(segment, output, folder)
            printed = self._run(segment, words, output, lambda record: tell(collector.add(record)))
            # Files are read once, when the command has ended and closed them.
            with reading(output):
                records = self.metrics.records(output, segment.until)
            for record in records:
                tell(collector.add(record))
            tell(collector.finish(printed))
            if self.options.saves_in and folder is not None and saves.is_dir():
                for path in saves.iterdir():
                    shutil.move(path, folder)

    def _command_line(self, segment: Segment, output: Path, folder: Path | None) -> list[str]:
        options = self.options
        config = segment.config
        parent = segment.parent.path if segment.parent else ""
        file = output / f"config.{options.config_file}" if options.config_file else None
        if file is not None:
            with written(output):
                file.write_text(_document(options.config_file, plain(config)))
        filled = {
            **config,
            "python": os.path.expanduser(options.python or sys.executable),
            "seed": segment.seed,
            "until": segment.until,
            "start": segment.start,
            "length": segment.until - segment.start,
            "horizon": segment.horizon,
            "environment": segment.environment.id,
            "output": output,
            "config_file": file,
            "checkpoint": parent,
            "save_to": folder or "",
        }
        # A hyperparameter may bear one of these names, and comes first.
        if (self.named - set(filled)) & set(PLACEHOLDERS):
            filled = {**placeholder_values(segment.resources), **filled}
        words = [
            _filled(word, filled) if _PLACEHOLDER.search(word) else self._located(word)
            for word in (*self.command, *(self.more if parent else ()))
        ]
        if options.arguments == "flags" and file is None:
            # Sorted: the order of a set of texts differs from process to process.
            for name in sorted(set(config) - self.used):
                words += self._flags(name, config[name])
        for flag, value in (
            (options.seed_flag, segment.seed),
            (options.steps_flag, segment.until),
            (options.checkpoint_flag, parent),
            (options.save_flag, folder),
        ):
            if flag is not None and value not in ("", None):
                # Hydra's `seed=` takes its value in the same word.
                words += [f"{flag}{value}"] if flag.endswith("=") else [flag, str(value)]
        return words

    def _flags(self, name: str, value: object) -> list[str]:
        style = self.options.style
        if value is None:
            return []
        if style == "hydra":
            return [f"{name}={_text(value)}"]
        flag = "--" + (name.replace("_", "-") if style == "kebab" else name)
        if isinstance(value, bool) and self.options.booleans == "flag":
            return [flag if value else f"--no-{flag[2:]}"]
        if style == "equals":
            return [f"{flag}={_text(value)}"]
        return [flag, *map(_text, value if isinstance(value, tuple) else (value,))]

    def _located(self, word: str) -> str:
        """Return a file of the user's as an absolute path.

        The command runs in its own folder.
        """
        for folder in self.folders or (".",):
            path = Path(folder) / word
            if word and not word.startswith("-") and path.is_file():
                # Not resolved: the link of a virtual environment is what makes it one.
                return str(path.absolute())
        return word

    def _run(
        self,
        segment: Segment,
        words: list[str],
        output: Path,
        take: Callable[[dict[str, object]], None],
    ) -> list[str]:
        """Run the command to its end, and return its last lines.

        Its output goes to the log, and to `take` where it is read for metrics.
        """
        modules = [str(Path(folder).resolve()) for folder in self.folders or (".",)]
        modules += filter(None, [os.environ.get("PYTHONPATH")])
        configured = resolved_variables(self.options.environment_variables)
        variables = {
            **os.environ,
            # The command runs in a folder of its own, its modules lie in the study's.
            "PYTHONPATH": os.pathsep.join(modules),
            # Into a pipe Python writes in blocks, so metrics would all come at the end.
            "PYTHONUNBUFFERED": "1",
            **configured,
        }
        last = deque[str](maxlen=_LAST_LINES)
        errors = deque[str](maxlen=1)

        def keep(line: str, *kept: deque[str]) -> None:
            log(line)
            for lines in kept if line.strip() else ():
                lines.append(line.strip())

        with (
            _log(segment) as log,
            running(words, output, variables, lambda line: keep(line, errors, last)) as process,
        ):
            for line in _lines(process.stdout):
                keep(line, last)
                record = parse_line(line) if self.metrics.from_ == "stdout" else None
                if record is not None:
                    take(record)
            code = process.wait()
        # Messages are printed and stored, the values of variables may be secrets.
        secrets = configured.values()
        if code:
            reason = without_values(errors[0], secrets) if errors else "no error output"
            message = f"the command ended with {exit_text(code)}: {reason}"
            raise ProcessLostError(message) if ended_from_outside(code) else RuntimeError(message)
        return [without_values(line, secrets) for line in last]


def _flag_names(token: str) -> list[str]:
    """Return the hyperparameters a word of a command can set.

    Such words are `--learning-rate`, `--learning_rate=1`, `+learning_rate=1`.
    """
    match = _FLAG.match(token)
    if match is None:
        return []
    name = match.group(1) or match.group(2)
    names = [name, name.replace("-", "_")]
    # `--no-flag` sets the same hyperparameter as `--flag`.
    names += [part.removeprefix("no_") for part in names if part.startswith("no_")]
    # Each once, in the order they were found: `lr` reads the same with `-` and `_`.
    return list(dict.fromkeys(names))


def _filled(token: str, values: Mapping[str, object]) -> str:
    """Replace the placeholders of a token.

    Other braces stay as they are.
    """

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in values:
            raise InputError(
                f"the command names {{{name}}}, which this configuration does not have "
                f"(inactive?); pass it as a flag",
                key="trainer.kwargs.command",
            )
        return _text(values[name])

    return _PLACEHOLDER.sub(value, token)


def _text(value: object) -> str:
    return json.dumps(plain(value)) if isinstance(value, tuple | Mapping) else str(value)


def _document(form: str | None, config: Mapping[str, object]) -> str:
    if form == "json":
        return json.dumps(config, indent=2)
    import yaml

    return str(yaml.safe_dump(config, sort_keys=True))


@contextmanager
def _log(segment: Segment) -> Iterator[Callable[[str], object]]:
    """Open what appends text to the segment's log.

    It is standard output where the segment has none.
    """
    if segment.log is None:
        yield sys.stdout.write
        return
    with open_log(segment.log) as write:
        yield write


def _lines(source: IO[str] | None) -> Iterator[str]:
    """Yield the lines of a source.

    One that never ends comes in pieces, so that it needs no more memory than a piece.
    """
    assert source is not None
    return iter(lambda: source.readline(_LONGEST_LINE), "")
