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
import socket
import subprocess
import sys
import threading
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import IO, Any, NamedTuple

from autorl.core.masking import VARIABLES, without_values
from autorl.core.os_processes import (
    ProcessLostError,
    die_with_parent,
    end_marked,
    ended_from_outside,
    exit_text,
)
from autorl.core.plain_text import one_of
from autorl.core.plain_values import plain
from autorl.core.types import (
    Checkpoint,
    Config,
    EnvironmentSpec,
    FrozenMap,
    InputError,
    Outcome,
    Report,
    Resources,
    Segment,
    TrainerSpec,
)
from autorl.store.checkpoints import reading, scratch, writing, written
from autorl.store.log_files import open_log
from autorl.trainers.contract import AnyChange, Change, FixedValue, Trainer
from autorl.trainers.metrics import Collector, MetricSource, parse_line
from autorl.trainers.shared import Diverged, check_names, check_start, search_folders
from autorl.trainers.user_code import Told

# An environment variable by which all that a command starts is known, in any session.
MARK = "AUTORL_COMMAND"


class Command(NamedTuple):
    """A running command, and the thread that ends what it leaves behind."""

    process: subprocess.Popen[str]
    watch: threading.Thread


def start(arguments: Sequence[str], folder: Path, variables: Mapping[str, str]) -> Command:
    """Start a command in `folder`, its output to be read.

    On Linux what it has started ends when it does.

    A process that it leaves behind would hold its output open, and whoever reads that would wait
    for it.

    Raises:
        FileNotFoundError: there is no such program.
    """
    mark = uuid.uuid4().hex
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

    def end_what_it_leaves() -> None:
        process.wait()
        end_marked(MARK, mark)

    watch = threading.Thread(target=end_what_it_leaves, daemon=True)
    watch.start()
    return Command(process, watch)


@contextmanager
def stop(command: Command) -> Iterator[None]:
    """Kill a command if the block is left before it has ended.

    Waits until what it has started is gone.
    """
    try:
        yield
    finally:
        if command.process.poll() is None:
            command.process.kill()
        # Nothing holds the output open then: the copying thread comes to its end.
        command.watch.join()


PLACEHOLDERS = ("gpus", "nnodes", "node_rank", "master_addr", "master_port")
"""Placeholders of a command. A hyperparameter of the same name takes its place."""

_GANG = {
    "nnodes": "NNODES",
    "node_rank": "NODE_RANK",
    "master_addr": "MASTER_ADDR",
    "master_port": "MASTER_PORT",
}


def placeholder_values(needs: Resources) -> dict[str, object]:
    """Give the values of `PLACEHOLDERS` where a segment runs.

    A gang's are in the environment of this process, where its executor has put them
    (`autorl.executors.ray_worker`).

    Raises:
        InputError: the segment is one of a gang, and this process is on none of its hosts.
    """
    gpus = {"gpus": math.ceil(needs.gpu)}
    if needs.nodes == 1:
        # Two segments on one host would meet at the launchers' default port.
        return {
            **gpus,
            "nnodes": 1,
            "node_rank": 0,
            "master_addr": "127.0.0.1",
            "master_port": free_port(),
        }
    missing = [variable for variable in _GANG.values() if variable not in os.environ]
    if missing:
        raise InputError(
            f"{needs.nodes} hosts need an executor that sets {missing[0]}, such as `ray`",
            key="resources.nodes",
        )
    return gpus | {name: os.environ[variable] for name, variable in _GANG.items()}


def free_port() -> int:
    """Find a port of this host that nothing listens on now."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        port: int = listener.getsockname()[1]
        return port


_VARIABLES = f"trainer.kwargs.{VARIABLES}"


def checked_variables(options: Mapping[str, object]) -> FrozenMap:
    """Check what the options say of environment variables.

    Returns a value, or None, by name.

    Raises:
        InputError: no mapping of names to single values, or a name without a value that is not set
            here. No message holds a value.
    """
    variables = options.get(VARIABLES, FrozenMap())
    if not isinstance(variables, Mapping):
        raise InputError(
            "expected names with values, or without to take them from the environment",
            key=_VARIABLES,
        )
    # For its errors, before anything trains: the values are taken again where the command runs.
    resolved_variables(variables)
    return FrozenMap(variables)


def resolved_variables(variables: Mapping[str, object]) -> dict[str, str]:
    """Return texts by name.

    A name without a value has that of this process, as it is now.
    """
    return {name: _variable_text(name, value) for name, value in variables.items()}


def _variable_text(name: str, value: object) -> str:
    # No process can be given such a name.
    if not name or "=" in name or "\0" in name:
        raise InputError(
            "expected the name of an environment variable before each colon", key=_VARIABLES
        )
    if value is None:
        if name not in os.environ:
            raise InputError(
                "has no value here and is not set in the environment", key=f"{_VARIABLES}.{name}"
            )
        return os.environ[name]
    if not isinstance(value, str | int | float) or "\0" in str(value):
        raise InputError(
            "expected one text or number, or no value to take it from the environment",
            key=f"{_VARIABLES}.{name}",
        )
    return str(value)


# Names only: other braces of a command (JSON, shell) stay as they are.
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w.\-/]*)\}")
# `--name`, or `name=`, `+name=` and `++name=` as Hydra writes overrides.
_FLAG = re.compile(r"(?:--([A-Za-z][\w.\-/]*)|\+{0,2}([A-Za-z_][\w.\-/]*)=)")
_OWN = (
    "python",
    "config_file",
    "seed",
    "until",
    "start",
    "horizon",
    "checkpoint",
    "save_to",
    "output",
    "environment",
)
_LAST_LINES = 3  # of a command's output, for a message
_LONGEST_LINE = 2**20  # characters of a line of output
_STYLES = ("kebab", "snake", "equals", "hydra")


@dataclass(frozen=True)
class CommandTrainer(Trainer):
    """Runs segments by running a command.

    The fields are the options of `trainer: {name: command, kwargs: {...}}`.

    Attributes:
        command: the command, as a list or as one line split like a shell would (no shell runs it).
            Placeholders: `{python}` (this interpreter), `{seed}`, `{until}`, `{start}`,
            `{horizon}`, `{environment}` (its id), `{output}` (the segment's folder),
            `{config_file}`, `{checkpoint}` (empty from scratch), `{save_to}`, and `{name}` of any
            hyperparameter. For `torchrun` and `accelerate launch`: `{gpus}` of this host,
            `{nnodes}`, `{node_rank}`, `{master_addr}`, `{master_port}`.
        arguments: `flags` appends every hyperparameter the command does not name; `none` does not.
        style: `kebab` --learning-rate 0.1 · `snake` --learning_rate 0.1 · `equals`
            --learning_rate=0.1 · `hydra` learning_rate=0.1. A list is one flag with several values
            (kebab, snake) or JSON (equals, hydra).
        booleans: `value` --flag True · `flag` --flag or --no-flag.
        config_file: `yaml` or `json`: write the hyperparameters to `{config_file}` instead of
            passing flags.
        seed_flag, steps_flag: flags that get the seed and `until`, if the command does not name
            `{seed}` and `{until}`.
        checkpoint_flag, save_flag: flags that get the folder to continue from and the one to save
            in, if there is one.
        metrics: where the metrics are. `from`: `stdout` (the default), `jsonlines`, `csv`,
            `tensorboard` or `trainer_state` (of transformers); `path`: the file or a pattern, in
            the segment's folder; `step`: the step's key in a record (`step`); `step_scale`: steps
            of the study to one of a record's (1); `rank`: key of the process's rank, of which 0
            is read; `map`: metric name in the study -> key in the record (every number as named).
        reduce_last: a metric is the mean of this many of its latest values (1).
        environment_variables: added to those of this process. One without a value (null) must be
            set in it: so no secret stands in the study file. Values are masked in messages and
            everywhere but in `study.yaml`.
        path: folder the command's files and modules are in; default the working folder of the
            study.
        changes: hyperparameters a continued segment may change; default all, for a resumable
            script.
    """

    command: tuple[str, ...]
    metrics: MetricSource
    arguments: str = "flags"
    style: str = "kebab"
    booleans: str = "value"
    config_file: str | None = None
    seed_flag: str | None = None
    steps_flag: str | None = None
    checkpoint_flag: str | None = None
    save_flag: str | None = None
    environment_variables: Mapping[str, Any] = field(default_factory=FrozenMap)
    folders: tuple[str, ...] = ()
    changeable: tuple[str, ...] | None = None

    @property
    def resumable(self) -> bool:
        used = self._placeholders()
        loads = "checkpoint" in used or self.checkpoint_flag is not None
        return loads and ("save_to" in used or self.save_flag is not None)

    @property
    def changes(self) -> Mapping[str, Change]:
        if not self.resumable:
            return {}
        return AnyChange() if self.changeable is None else dict.fromkeys(self.changeable, "apply")

    @property
    def preload(self) -> tuple[str, ...]:
        return ("autorl.trainers.command",)

    def check(self, environment: EnvironmentSpec, hyperparameters: Collection[str]) -> None:
        """Check placeholders, and that every hyperparameter reaches the command."""
        used = self._placeholders()
        check_names(
            sorted(used),
            {*_OWN, *PLACEHOLDERS, *hyperparameters},
            "placeholder",
            "trainer.kwargs.command",
        )
        # The value of the study would take its place.
        for name in sorted(set(hyperparameters) & set(_OWN)):
            raise InputError(
                f"{{{name}}} has a meaning of its own in a command; rename the hyperparameter",
                key=name,
            )
        lost = sorted(set(hyperparameters) - used)
        if lost and self.config_file is None and self.arguments == "none":
            raise InputError(
                f"{lost[0]!r} never reaches the command: name it, or set arguments: flags",
                key="trainer.kwargs",
            )
        if "environment" in used and environment.id is None:
            raise InputError(
                "the command names {environment}, the study has none", key="environment.id"
            )

    def fixed_values(self) -> tuple[FixedValue, ...]:
        """Return flags that the command, or an option, has already.

        A second one would be passed beside them.
        """
        if self.arguments == "none" or self.config_file is not None:
            return ()
        used = self._placeholders()
        flags = [("command", name) for token in self.command for name in _flag_names(token)]
        for place in ("seed_flag", "steps_flag", "checkpoint_flag", "save_flag"):
            flags += [(place, name) for name in _flag_names(getattr(self, place) or "")]
        return tuple(
            FixedValue(place, (name,), fills_in=False) for place, name in flags if name not in used
        )

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        check_start(segment, self.resumable)
        # The end is a point too: a run has a last score whatever the study asks for on the way.
        points = sorted({*segment.evaluate_at, segment.until})
        collector = Collector(self.metrics, points, segment.start, segment.until)
        course = Told(segment, report)

        def tell(done: list[tuple[int, dict[str, float]]]) -> None:
            for step, metrics in done:
                course.tell(step, metrics)

        saved = None
        saves = segment.save and self.resumable
        saving = writing(segment, theirs=True) if saves else nullcontext()
        try:
            with scratch(segment) as output, saving as folder:
                arguments = self._command_line(segment, output, folder)
                printed = self._run(
                    segment, arguments, output, lambda record: tell(collector.add(record))
                )
                # Files are read once, when the command has ended and closed them.
                with reading(output):
                    records = self.metrics.records(output, segment.until)
                for record in records:
                    tell(collector.add(record))
                tell(collector.finish(printed))
                if folder is not None and not any(folder.iterdir()):
                    raise RuntimeError("the command saved nothing in the folder it was given")
            saved = Checkpoint(segment.id, segment.folder) if folder is not None else None
        # The reports so far stay, and the outcome says where it diverged.
        except Diverged:
            pass
        return course.ended(saved)

    def _placeholders(self) -> set[str]:
        return {name for token in self.command for name in _PLACEHOLDER.findall(token)}

    def _command_line(self, segment: Segment, output: Path, folder: Path | None) -> list[str]:
        config = segment.config
        parent = segment.parent.path if segment.parent else ""
        file = output / f"config.{self.config_file}" if self.config_file else None
        if file is not None:
            with written(output):
                file.write_text(_document(self.config_file, config))
        values = {
            "python": sys.executable,
            "seed": segment.seed,
            "until": segment.until,
            "start": segment.start,
            "horizon": segment.horizon,
            "environment": segment.environment.id,
            "output": output,
            "config_file": file,
            "checkpoint": parent,
            "save_to": folder if folder is not None else "",
        }
        filled = {**config, **values}
        # A hyperparameter may bear one of these names, and comes first.
        if (self._placeholders() - set(filled)) & set(PLACEHOLDERS):
            filled = {**placeholder_values(segment.resources), **filled}
        tokens = [
            _filled(token, filled) if _PLACEHOLDER.search(token) else self._located(token)
            for token in self.command
        ]
        if self.arguments == "flags" and file is None:
            # Sorted: the order of a set of texts differs from process to process.
            for name in sorted(set(config) - self._placeholders()):
                tokens += self._flags(name, config[name])
        flags = ((self.seed_flag, segment.seed), (self.steps_flag, segment.until))
        for flag, value in (*flags, (self.checkpoint_flag, parent), (self.save_flag, folder)):
            if flag is not None and value not in ("", None):
                # Hydra's `seed=` takes its value in the same word.
                tokens += [f"{flag}{value}"] if flag.endswith("=") else [flag, str(value)]
        return tokens

    def _flags(self, name: str, value: object) -> list[str]:
        if value is None:
            return []
        if self.style == "hydra":
            return [f"{name}={_text(value)}"]
        flag = "--" + (name.replace("_", "-") if self.style == "kebab" else name)
        if isinstance(value, bool) and self.booleans == "flag":
            return [flag if value else f"--no-{flag[2:]}"]
        if self.style == "equals":
            return [f"{flag}={_text(value)}"]
        return [
            flag,
            *([_text(item) for item in value] if isinstance(value, tuple) else [_text(value)]),
        ]

    def _located(self, token: str) -> str:
        """Return a file of the user's as an absolute path.

        The command runs in its own folder.
        """
        for folder in self.folders or (".",):
            path = Path(folder) / token
            if token and not token.startswith("-") and path.is_file():
                # Not resolved: the link of a virtual environment is what makes it
                # one.
                return str(path.absolute())
        return token

    def _run(
        self,
        segment: Segment,
        arguments: list[str],
        output: Path,
        take: Callable[[dict[str, object]], None],
    ) -> list[str]:
        """Run the command to its end, and return its last lines.

        Its output goes to the log, and to `take` where it is read for metrics.
        """
        modules = os.pathsep.join(str(Path(folder).resolve()) for folder in self.folders or (".",))
        inherited = os.environ.get("PYTHONPATH")
        configured = resolved_variables(self.environment_variables)
        variables = {
            **os.environ,
            # The command runs in a folder of its own, its modules lie in the study's.
            "PYTHONPATH": modules + (os.pathsep + inherited if inherited else ""),
            # Into a pipe Python writes in blocks, so metrics would all come at the end.
            "PYTHONUNBUFFERED": "1",
            **configured,
        }
        try:
            command = start(arguments, output, variables)
        except FileNotFoundError as error:
            raise InputError(
                f"the program {arguments[0]!r} was not found", key="trainer.kwargs.command"
            ) from error
        process = command.process
        last = deque[str](maxlen=_LAST_LINES)
        errors = deque[str](maxlen=1)
        assert process.stdout is not None
        assert process.stderr is not None
        # Left from the last: a command that still runs is killed before its output is waited for.
        # Both outputs are read at once, since a full pipe stops the command.
        with _log(segment) as log, _copying(process.stderr, log, (errors, last)), stop(command):
            for line in _lines(process.stdout):
                log(line)
                _keep(line, (last,))
                record = parse_line(line) if self.metrics.source == "stdout" else None
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


_READ = ("command", "metrics", "environment_variables", "folders", "changeable")
_PLAIN = {item.name for item in fields(CommandTrainer)} - {*_READ}
_OPTIONS = (*_PLAIN, *_READ[:3], "reduce_last", "path", "changes")


def make(spec: TrainerSpec) -> CommandTrainer:
    """Make the trainer `command` from its options.

    Raises:
        InputError: an unknown option or value.
    """
    options = spec.kwargs
    check_names(options, _OPTIONS, "option of command", "trainer.kwargs")
    command = options.get("command")
    if not command or not isinstance(command, str | tuple):
        raise InputError(
            "expected a command line or a list of its words", key="trainer.kwargs.command"
        )
    allowed = {"arguments": ("flags", "none"), "style": _STYLES, "booleans": ("value", "flag")}
    for name, choices in {**allowed, "config_file": ("yaml", "json")}.items():
        if name in options and options[name] not in choices:
            hint = one_of(options[name], choices)
            raise InputError(f"got {options[name]!r}{hint}", key=f"trainer.kwargs.{name}")
    metrics = MetricSource.parse(options.get("metrics", FrozenMap()), options.get("reduce_last", 1))
    trainer = CommandTrainer(
        command=_words(command),
        metrics=metrics,
        folders=search_folders(options),
        environment_variables=checked_variables(options),
        changeable=options.get("changes"),
        **{name: options[name] for name in options if name in _PLAIN},
    )
    _check_reach(trainer)
    return trainer


def _words(command: str | tuple[object, ...]) -> tuple[str, ...]:
    if not isinstance(command, str):
        return tuple(str(word) for word in command)
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise InputError(
            f"cannot be split into words ({error})", key="trainer.kwargs.command"
        ) from None


def _check_reach(trainer: CommandTrainer) -> None:
    used = trainer._placeholders()
    for name, flag in (("seed", "seed_flag"), ("until", "steps_flag")):
        if name not in used and getattr(trainer, flag) is None:
            what = "seed" if name == "seed" else "number of steps"
            raise InputError(
                f"nothing tells the command its {what}: name {{{name}}} or set {flag}",
                key="trainer.kwargs",
            )
    if (trainer.config_file is None) != ("config_file" not in used):
        raise InputError(
            "config_file: yaml (or json) and {config_file} go together",
            key="trainer.kwargs.config_file",
        )


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


def _document(form: str | None, config: Config) -> str:
    if form == "json":
        return json.dumps(plain(config), indent=2)
    import yaml

    return str(yaml.safe_dump(plain(config), sort_keys=True))


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


@contextmanager
def _copying(
    source: IO[str], log: Callable[[str], object], last: Sequence[deque[str]]
) -> Iterator[None]:
    """Copy `source` to the log until it ends.

    `last` keeps its last lines.
    """

    def copy() -> None:
        for line in _lines(source):
            log(line)
            _keep(line, last)

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _keep(line: str, last: Sequence[deque[str]]) -> None:
    """Keep a line that is not blank."""
    for lines in last if line.strip() else ():
        lines.append(line.strip())


def _lines(source: IO[str]) -> Iterator[str]:
    """Yield the lines of a source.

    One that never ends comes in pieces, so that it needs no more memory than a piece.
    """
    return iter(lambda: source.readline(_LONGEST_LINE), "")
