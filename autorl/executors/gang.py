"""The environment variables of a gang: one segment on several hosts.

Each host of a gang runs the command of the segment once. `torchrun` and `accelerate launch` start
a process for every GPU there; a script that is started without them is one process a host.
"""

from __future__ import annotations


def gang_environment(rank: int, world_size: int, address: str, port: int) -> dict[str, str]:
    """Make the variables by which a host finds its gang.

    `RANK` and `WORLD_SIZE` count hosts: launchers replace them for the processes they start.
    `PET_...` are the defaults of `torchrun`'s own options, so that it needs none of them.

    Args:
        rank: number of this host, from 0; host 0 is the one the others connect to.
        world_size: number of hosts.
        address: of host 0, as the others reach it.
        port: free on host 0.

    Raises:
        ValueError: there is no host of this rank.
    """
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank}: expected one from 0 to {world_size - 1}")
    node = str(rank)
    nodes = str(world_size)
    return {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "WORLD_SIZE": nodes,
        "RANK": node,
        "LOCAL_WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "NNODES": nodes,
        "NODE_RANK": node,
        "PET_NNODES": nodes,
        "PET_NODE_RANK": node,
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": str(port),
    }
