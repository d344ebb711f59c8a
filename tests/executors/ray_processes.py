"""A cluster of Ray on this machine, whose nodes are separate processes that can be killed."""

import os
import secrets
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from patience import wait_until

from autorl.core.os_processes import descendants, end_descendants

START = Path(__file__).with_name("ray_start.py")


def free_port():
    """A port that nobody listened at a moment ago."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


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
        port = free_port()
        self.head = self._start(
            "--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false",
            "--temp-dir", str(folder or variables["TMPDIR"]),
            # Else 10001, which the head of another test may have: then this one would end.
            f"--ray-client-server-port={free_port()}",
        )  # fmt: skip
        self.address = f"127.0.0.1:{port}"

    def add(self, *options):
        node = self._start(f"--address={self.address}", "--num-cpus=1", *options)
        return node

    def _start(self, *options):
        """Start a node and wait until it has joined; a port may have been taken meanwhile."""
        for attempt in range(5):
            log = self.logs / f"node-{len(self.started)}-{attempt}.log"
            arguments = ["start", *options, f"--runtime-env-agent-port={free_port()}", "--block"]
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [sys.executable, str(START), *arguments],
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
