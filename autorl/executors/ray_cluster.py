"""Connects to a cluster of Ray, and has segments trained there.

All that is known of Ray's interface stands here, so that the rest is tested without a cluster.
Ray is imported when a cluster is connected to: it takes a second, and is an extra.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import ceil
from types import ModuleType
from typing import Any

import psutil

from autorl.core.plain_text import last_line, one_line
from autorl.core.types import AttemptKey, InputError, Report, Resources, Segment, StudyError
from autorl.executors.ray_worker import Answer, Place, WorkerPlan, free_port, train

TASK = "autorl"  # the name that processes of Ray have while they train: `ray::autorl`
ADDRESSES = "local, auto, HOST:PORT or ray://HOST:PORT"
_ADDRESS = re.compile(r"(?:ray://)?(?P<host>\[[^\]]+\]|[^:/\s\[\]]+):(?P<port>\d{1,5})")
_KEY = "executor.address"
_NODE = "ray.io/node-id"  # a label that Ray gives each node
_CONNECT_SECONDS = 10.0
_OBJECT_STORE_BYTES = 80 * 2**20  # Ray's least; only segments and outcomes go through it
_LONGEST_SOCKET_FOLDER = 40  # characters: Ray's sockets below it may have 107 in all
_LONGEST_REASON = 300  # characters

# Defaults of a Ray that is started here.
_LOCAL_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # A worker per core would be started, 100 MB each, before there is any work.
    "RAY_enable_worker_prestart": "0",
}


@dataclass(frozen=True)
class Node:
    """A node of the cluster that is alive, and all it has."""

    id: str
    address: str
    resources: Mapping[str, float]


class WorkerLostError(Exception):
    """A worker, or the way to it, is gone."""


class WorkerEndedError(WorkerLostError):
    """A worker has ended: it is not out of reach alone."""


class WorkerUnusableError(Exception):
    """A worker could not begin on its node.

    That may not have autorl, for example.

    Attributes:
        address: of the node, "" where it is not known.
    """

    def __init__(self, message: str, address: str = "") -> None:
        super().__init__(message)
        self.address = address


def needs(resources: Resources) -> dict[str, float]:
    """Give the amounts that a segment needs, by Ray's names.

    On each of their hosts. Ray takes fractions below 1 and whole numbers above, so that these are
    rounded up.
    """
    amounts: dict[str, float] = {"CPU": resources.cpu, "GPU": resources.gpu}
    if resources.memory_gb is not None:
        amounts["memory"] = resources.memory_gb * 2**30
    amounts |= {name: float(amount) for name, amount in resources.custom.items()}
    needed = {name: amount for name, amount in amounts.items() if amount > 0}
    return {name: ceil(amount) if amount > 1 else amount for name, amount in needed.items()}


def check_address(address: str) -> None:
    """Check that Ray is installed, and how its address is written.

    Raises:
        InputError: it is not, or the address is none.
    """
    if importlib.util.find_spec("ray") is None:
        raise InputError(
            "the executor `ray` needs Ray: pip install 'autorl[ray]'", key="executor.name"
        )
    if address not in ("local", "auto") and not _ADDRESS.fullmatch(address):
        raise InputError(f"expected {ADDRESSES}, got {address!r}", key=_KEY)


def check_answers(address: str, seconds: float = _CONNECT_SECONDS) -> None:
    """Check that a server answers at an address.

    Ray itself would try for minutes.

    Raises:
        InputError: nobody answers within `seconds`.
    """
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", "")
    match = _ADDRESS.fullmatch(address)
    if match is None:
        return
    try:
        place = (match["host"].strip("[]"), int(match["port"]))
        socket.create_connection(place, timeout=seconds).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"nobody answers at {address} ({reason}): start Ray there (`ray start --head`), or use "
            "another address",
            key=_KEY,
        ) from None


class Cluster:
    """A connection to a cluster of Ray, or to our own.

    Args:
        address: `local`, `auto`, HOST:PORT or ray://HOST:PORT.
        cores: of a Ray that is started here; None = those of the machine.

    Raises:
        InputError: Ray is not installed, nobody answers at the address, or it is another Ray.
    """

    def __init__(self, address: str, cores: float | None = None) -> None:
        check_address(address)
        check_answers(address)
        self._folder = ""
        self._own = False
        self._closed = False
        self._ray = _import_ray(local=address == "local")
        # A program that has connected itself keeps its connection.
        if not self._ray.is_initialized():
            self._own = True
            with _kept_handlers(), _one_line_errors(address):
                if address == "local":
                    self._start(cores)
                else:
                    self._ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        # Whether a segment is trained again, the driver says, and a process with a GPU stays too.
        self._train = self._ray.remote(max_retries=0, max_calls=0)(_train)
        self._mailbox: Any = None

    def _start(self, cores: float | None) -> None:
        """Start a Ray of our own, which ends with this process.

        Its files lie in a temporary folder. It has no dashboard, and a token that nobody else has.
        """
        self._folder = _folder_of_sockets()
        try:
            self._ray.init(
                address="local",
                num_cpus=max(1, ceil(cores or os.cpu_count() or 1)),
                include_dashboard=False,
                log_to_driver=False,
                logging_level="CRITICAL",  # the dashboard that nobody asked for may be late
                object_store_memory=_OBJECT_STORE_BYTES,
                _temp_dir=self._folder,
            )
        except BaseException:
            self.close()
            raise

    def _end_own_processes(self) -> None:
        """Kill what a Ray of our own has left.

        One that failed to start leaves processes.
        """
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                if self._folder in " ".join(process.cmdline()):
                    process.kill()

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Turn the end of the connection into a line."""
        try:
            yield
        except (ConnectionError, self._ray.exceptions.RayError) as error:
            raise StudyError(
                f"the Ray cluster does not answer any more ({_reason(error)}); what was recorded "
                "is kept"
            ) from error

    # -- nodes -------------------------------------------------------------------------------------

    def nodes(self) -> list[Node]:
        """List the nodes that are alive.

        Raises:
            StudyError: the cluster does not answer any more.
        """
        with self._connected():
            nodes = self._ray.nodes()
        return [
            Node(node["NodeID"], node["NodeManagerAddress"], dict(node["Resources"]))
            for node in nodes
            if node["Alive"]
        ]

    # -- segments ----------------------------------------------------------------------------------

    def train(
        self,
        plan: WorkerPlan,
        segment: Segment,
        *,
        rank: int = 0,
        group: Any = None,
        variables: Mapping[str, str] | None = None,
        excluded: Collection[str] = (),
        avoid: Collection[str] = (),
    ) -> Any:
        """Have a segment trained where Ray finds room, whose answer `result` gives.

        Args:
            plan: how.
            segment: what. A host is given what the segment needs.
            rank: of the host in a gang.
            group: of a gang, from `reserve`.
            variables: of the environment of a gang.
            excluded: nodes where it cannot be.
            avoid: nodes where it is only if there is no room elsewhere.
        """
        options: dict[str, Any] = {}
        if variables is not None:
            options["runtime_env"] = {"env_vars": dict(variables)}
        if group is not None:
            options["scheduling_strategy"] = _bundle(group, rank)
        elif excluded or avoid:
            from ray.util.scheduling_strategies import NodeLabelSchedulingStrategy, NotIn

            hard, soft = ({_NODE: NotIn(*nodes)} if nodes else {} for nodes in (excluded, avoid))
            options["scheduling_strategy"] = NodeLabelSchedulingStrategy(hard, soft=soft)
        task = self._train.options(name=TASK, **_amounts(needs(segment.resources)), **options)
        return task.remote(plan, segment, rank, self._mailbox)

    def news(self) -> Any:
        """Ask for messages of running segments: a list of `(attempt, rank, message)`."""
        if self._mailbox is None:
            self._mailbox = self._open_mailbox()
        return self._mailbox.take.remote()

    def _open_mailbox(self) -> Any:
        """Start the mailbox of segments on the driver's node."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = self._ray.get_runtime_context().get_node_id()
        on_node = NodeAffinitySchedulingStrategy(node, soft=True)
        mailbox = self._ray.remote(num_cpus=0, max_restarts=-1)(_Mailbox)
        return mailbox.options(scheduling_strategy=on_node).remote()

    def reserve(self, resources: Resources) -> Any:
        """Ask for the hosts of a gang, all or none."""
        from ray.util.placement_group import placement_group

        return placement_group([needs(resources)] * resources.nodes, strategy="STRICT_SPREAD")

    def free_port(self, group: Any) -> Any:
        """Ask a gang's first host for its address and a port."""
        task = self._ray.remote(free_port)
        return task.options(num_cpus=0, scheduling_strategy=_bundle(group, 0)).remote()

    def wait(self, calls: Sequence[object], seconds: float) -> list[Any]:
        """Return the calls that have ended.

        It waits for the first of them until the time is over.

        Raises:
            StudyError: the cluster does not answer any more.
        """
        with self._connected():
            ready, pending = self._ray.wait(list(calls), num_returns=1, timeout=seconds)
            if ready and pending:
                more, _ = self._ray.wait(pending, num_returns=len(pending), timeout=0)
                ready += more
        return list(ready)

    def result(self, call: object) -> Any:
        """Return the result of an ended call.

        Raises:
            WorkerLostError: the worker is gone, or out of reach.
            WorkerUnusableError: the worker could not begin.
        """
        errors = self._ray.exceptions
        try:
            return self._ray.get(call)
        except (errors.WorkerCrashedError, errors.OutOfMemoryError) as error:
            raise WorkerEndedError(_reason(error)) from None
        except errors.RayTaskError as error:
            # Our own code, on a node that has another version of it or none.
            raise WorkerUnusableError(
                last_line(error, _LONGEST_REASON), getattr(error, "ip", "")
            ) from None
        except errors.RayError as error:
            raise WorkerLostError(_reason(error)) from None

    def cancel(self, calls: Iterable[object], group: Any = None) -> None:
        """Interrupt running calls, and give the hosts of a gang back."""
        for call in calls:
            with suppress(Exception):  # of many kinds: it is gone already, or the cluster is
                self._ray.cancel(call)
        if group is not None:
            from ray.util.placement_group import remove_placement_group

            with suppress(Exception):  # as above
                remove_placement_group(group)

    def close(self) -> None:
        """Leave the cluster. Idempotent.

        A Ray of our own ends with all its processes.
        """
        if self._closed:
            return
        self._closed = True
        if self._own:
            with _kept_handlers():
                self._ray.shutdown()
        if self._folder:
            self._end_own_processes()
            shutil.rmtree(self._folder, ignore_errors=True)


class _Mailbox:
    """Passes on what segments say while they run."""

    def __init__(self) -> None:
        self._messages: list[tuple[AttemptKey, int, Place | Report]] = []
        import asyncio  # 45 ms of every command, of which actors alone need it

        self._some = asyncio.Event()

    async def put(self, attempt: AttemptKey, rank: int, message: Place | Report) -> None:
        self._messages.append((attempt, rank, message))
        self._some.set()

    async def take(self) -> list[tuple[AttemptKey, int, Place | Report]]:
        await self._some.wait()
        self._some.clear()
        messages = self._messages
        self._messages = []
        return messages


def _train(plan: WorkerPlan, segment: Segment, rank: int, mailbox: Any) -> Answer:
    def tell(message: Place | Report) -> None:
        mailbox.put.remote(segment.key, rank, message)

    return train(plan, segment, tell)


def _amounts(needed: Mapping[str, float]) -> dict[str, Any]:
    """Give amounts as Ray's options."""
    named = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    options: dict[str, Any] = {"num_cpus": 0, "num_gpus": 0}
    options |= {named[name]: amount for name, amount in needed.items() if name in named}
    custom = {name: amount for name, amount in needed.items() if name not in named}
    return {**options, "resources": custom}


def _bundle(group: Any, rank: int) -> object:
    """Place something on one host of a gang."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    return PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)


def _import_ray(*, local: bool) -> ModuleType:
    """Import Ray.

    For a Ray of our own the variables are set that it reads when it is imported.
    """
    if local:
        for name, value in _LOCAL_VARIABLES.items():
            os.environ.setdefault(name, value)
        # Whoever may connect runs code as this user, so others of this machine need the token.
        # If the environment has none, Ray 2.60 writes one into the user's home.
        if not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
            os.environ["RAY_AUTH_MODE"] = "token"
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    ray = importlib.import_module("ray")
    # Raylets' errors are printed on standard output, which may be JSON: the study says its own.
    if not ray.is_initialized():
        vars(importlib.import_module("ray._private.worker"))["_worker_logs_enabled"] = False
    return ray


def _folder_of_sockets() -> str:
    """Make a folder for a Ray of our own.

    Its path leaves room for the names of sockets.
    """
    place: str | None = tempfile.gettempdir()
    if len(str(place)) > _LONGEST_SOCKET_FOLDER - len("/autorl-ray-12345678"):
        place = "/tmp"
    return tempfile.mkdtemp(prefix="autorl-ray-", dir=place)


@contextmanager
def _kept_handlers() -> Iterator[None]:
    """Keep the handlers of signals and exceptions, which Ray replaces."""
    hook = sys.excepthook
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        sys.excepthook = hook
        for number, handler in handlers.items():
            if handler is not None:  # None: it was not set from Python
                signal.signal(number, handler)


@contextmanager
def _one_line_errors(address: str) -> Iterator[None]:
    """Turn an error of Ray's connecting into one line.

    Raises:
        InputError: with Ray's own first line.
    """
    try:
        yield
    except Exception as error:
        problem = f"no connection to a Ray cluster at {address}"
        if address == "local":
            problem = "Ray could not be started here"
        raise InputError(f"{problem}: {_reason(error)}", key=_KEY) from error


def _reason(error: BaseException) -> str:
    """Return the first line of an error that says something."""
    first = str(error).strip().partition("\n")[0]
    return one_line(first or type(error).__name__, _LONGEST_REASON)
