"""Calls a function in a process of its own at each call.

The function goes there by value, as Gymnasium sends environments to its workers (cloudpickle), so a
lambda or a function of a script or notebook will do.
"""

from __future__ import annotations

import functools
import pickle
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from autorl.core.os_processes import ProcessLostError
from autorl.core.plain_text import shortened
from autorl.core.types import InputError, Status, TrainerSpec
from autorl.executors.children import adopt, exit_code, fork_server, kill_group, start_connected
from autorl.executors.worker import Load, ended_worker
from autorl.trainers.contract import Trainer
from autorl.trainers.function import FunctionTrainer
from autorl.trainers.live_trial import LiveTrial, TrialStopped


def by_value(function: Callable[..., object]) -> bytes:
    """Pickle a function by value, whatever module or script it is of.

    Raises:
        InputError: something it refers to cannot be pickled.
    """
    # Late: importing Gymnasium takes longer than all of this package.
    from gymnasium.vector.utils import CloudpickleWrapper

    try:
        return pickle.dumps(CloudpickleWrapper(function))
    except Exception as error:  # of any class: user code is asked for its state
        problem = shortened(f"{type(error).__name__}: {error}")
        raise InputError(
            f"the function cannot be sent to a worker process ({problem}): keep what cannot be "
            "pickled inside of it, or run it in threads",
            key="executor",
        ) from error


def loader(code: bytes, options: Mapping[str, Any]) -> Load:
    """Return the loader of a pickled `f(config, *, seed, ...)`."""
    return functools.partial(_trainer, code, dict(options))


def _trainer(code: bytes, options: dict[str, Any], spec: TrainerSpec) -> Trainer:
    return FunctionTrainer(pickle.loads(code).fn, options)


class FunctionProcesses:
    """Calls `f(trial)` in a new process, which ends with the call.

    The trial of the process reports to that of the caller and asks it when to stop, so a process
    waits where its run is compared with others.

    Args:
        function: is sent to the process by value.

    Raises:
        InputError: the function cannot be pickled.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self._code = by_value(function)
        self._context = fork_server([__name__])
        self._guard = threading.Lock()
        self._running: set[BaseProcess] = set()

    def __call__(self, trial: LiveTrial) -> object:
        """Call the function, and return what it returns.

        Raises:
            ProcessLostError: something outside has ended the process.
            Exception: what the function raises, or that its process crashed.
        """
        # Only the line is not sent: it belongs to this process.
        sent = replace(trial, line=_NO_LINE)
        with self._guard:  # starting changes variables of this process for a moment
            process, connection = start_connected(
                self._context, _child, (self._code, sent), duplex=True
            )
            self._running.add(process)
        try:
            return _relay(process, connection, trial)
        finally:
            with self._guard:
                self._running.discard(process)
                kill_group(process)
            connection.close()

    def close(self) -> None:
        """End every process."""
        with self._guard:
            for process in self._running:
                kill_group(process)


class _Pipe:
    """The line of a trial in its own process."""

    def __init__(self, connection: Connection | None) -> None:
        self._connection = connection

    def report(self, step: int, value: object) -> None:
        if self._ask("report", step, value):
            raise TrialStopped("the study has stopped this run")

    def should_stop(self) -> bool:
        return self._ask("should_stop")

    def _ask(self, *request: object) -> bool:
        assert self._connection is not None, "the trial was used in another process than its own"
        self._connection.send(request)
        return bool(self._connection.recv())


_NO_LINE = _Pipe(None)


def _relay(process: BaseProcess, connection: Connection, trial: LiveTrial) -> object:
    """Answer what a process asks for until its function has ended."""
    try:
        while True:
            match connection.recv():
                case ("report", step, value):
                    connection.send(_reported(trial, step, value))
                case ("should_stop",):
                    connection.send(trial.should_stop())
                case ("returned", value):
                    return value
                case ("raised", error):
                    raise error
    except (EOFError, ConnectionError) as error:
        status, message = ended_worker(exit_code(process))
        if status is Status.LOST:
            raise ProcessLostError(message) from error
        raise RuntimeError(message) from error


def _reported(trial: LiveTrial, step: int, value: Any) -> bool:
    """Pass a report on, and say whether the run is stopped."""
    try:
        trial.report(step, value)
    except TrialStopped:
        return True
    return False


def _child(connection: Connection, code: bytes, trial: LiveTrial) -> None:
    adopt({})
    try:
        value = pickle.loads(code).fn(replace(trial, line=_Pipe(connection)))
        connection.send(("returned", value))
    except BaseException as error:  # noqa: BLE001 - user code: raised again by the caller
        connection.send(("raised", _portable(error)))
    connection.close()


def _portable(error: BaseException) -> BaseException:
    """Return a portable error with the traceback of this process."""
    text = "".join(traceback.format_exception(error))
    copied: object = None
    with suppress(Exception):  # a class of the user's may fail in any way
        copied = pickle.loads(pickle.dumps(error))
    if not isinstance(copied, type(error)):
        copied = RuntimeError(f"{type(error).__name__}: {error}")
    assert isinstance(copied, BaseException)
    copied.add_note(text)
    return copied
