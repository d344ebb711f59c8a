"""Arguments that tell `torchrun` and `accelerate launch` where a segment runs."""

from __future__ import annotations

import math
import os
import socket

from autorl.core.types import InputError, Resources

PLACEHOLDERS = ("gpus", "nnodes", "node_rank", "master_addr", "master_port")
"""Placeholders of a command. A hyperparameter of the same name takes its place."""

_VARIABLES = {
    "nnodes": "NNODES",
    "node_rank": "NODE_RANK",
    "master_addr": "MASTER_ADDR",
    "master_port": "MASTER_PORT",
}


def placeholder_values(needs: Resources) -> dict[str, object]:
    """Give the values of `PLACEHOLDERS` where a segment runs.

    A gang's are in the environment of this process, where its executor has put them
    (`autorl.executors.gang`).

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
    missing = [variable for variable in _VARIABLES.values() if variable not in os.environ]
    if missing:
        raise InputError(
            f"{needs.nodes} hosts need an executor that sets {missing[0]}, such as `ray`",
            key="resources.nodes",
        )
    return gpus | {name: os.environ[variable] for name, variable in _VARIABLES.items()}


def free_port() -> int:
    """Find a port of this host that nothing listens on now."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        port: int = listener.getsockname()[1]
        return port
