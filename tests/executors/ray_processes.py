"""A cluster of Ray on this machine, whose nodes are separate processes that can be killed."""

import os
import secrets
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress

from patience import wait_until

from autorl.os_processes import descendants, end_descendants

# `ray start`, which in Ray 2.60 gives up after 30 s by a clock of its own: here after 300. On a busy
# machine more than that passed before the head had answered.
START = """
import time
from types import SimpleNamespace
from ray._private import node
from ray.scripts.scripts import main

node.time = SimpleNamespace(
    sleep=time.sleep, time=time.time, monotonic=lambda: time.monotonic() / 10
)
main()
"""
# A raylet of Ray 2.60 waits 15 s for agents to say which ports they have taken, and then aborts: at
# a load of 40 on 2 cores none ever started. It does not wait for ports that it is given.
AGENT_PORTS = (
    "--dashboard-agent-grpc-port",
    "--dashboard-agent-listen-port",
    "--runtime-env-agent-port",
    "--metrics-export-port",
)


def free_ports(count):
    """Ports that nobody listened at a moment ago."""
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for bound in sockets:
            bound.bind(("127.0.0.1", 0))
        return [bound.getsockname()[1] for bound in sockets]


class Nodes:
    """A head without cores, and nodes, each a tree of processes below `ray start --block`.

    Attributes:
        address: of the head, as `executor.address` takes it.
        variables: of all of them, with the token that a driver needs.
    """

    def __init__(self, variables, logs, folder=None):
        """Start the head.

        Args:
            variables: of the environment of all nodes.
            logs: folder for what they print.
            folder: of Ray's own files, with a short path; None: `TMPDIR` of `variables`.
        """
        self.variables = variables | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
        }
        self.logs = logs
        self.started = []
        (port,) = free_ports(1)
        self.head = self._start(
            "--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false",
            "--temp-dir", str(folder or variables["TMPDIR"]),
        )  # fmt: skip
        self.address = f"127.0.0.1:{port}"

    def add(self, *options):
        node = self._start(f"--address={self.address}", "--num-cpus=1", *options)
        return node

    def _start(self, *options):
        """Start a node and wait until it has joined; a port may have been taken meanwhile."""
        for attempt in range(5):
            log = self.logs / f"node-{len(self.started)}-{attempt}.log"
            ports = free_ports(len(AGENT_PORTS))
            given = [f"{option}={port}" for option, port in zip(AGENT_PORTS, ports, strict=True)]
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [sys.executable, "-c", START, "start", *options, *given, "--block"],
                    env=self.variables,
                    stdout=output,
                    stderr=output,
                )
            self.started.append(process)

            def joined_or_ended(process=process, log=log):
                return process.poll() is not None or "--block" in log.read_text()

            wait_until(joined_or_ended)
            if process.poll() is None:
                return process
        raise AssertionError(log.read_text())

    def kill(self, node):
        """Kill the raylet of a node and all below it, as when a machine vanishes."""
        for target in [node.pid, *descendants(node.pid)]:
            with suppress(ProcessLookupError):
                os.kill(target, signal.SIGKILL)
        node.wait()

    def close(self):
        for node in self.started:
            if node.poll() is None:
                end_descendants(node.pid)
                node.kill()
                node.wait()
