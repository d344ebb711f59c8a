"""`ray start` for a busy machine: it waits for no agent, and for its raylet for 300 s.

A raylet of Ray 2.60 waits 15 s for its agents to say which ports they have taken, and aborts then, and `ray start`
gives up after 30 s: at a load of 40 on 2 cores no node ever started. No test needs the agents of the dashboard, so the
raylet is told that they take no port, which is what those of a Ray without its extra `default` say.
"""

import time
from types import SimpleNamespace

from ray import _raylet
from ray._private import node
from ray.scripts.scripts import main

AGENTS = (
    _raylet.METRICS_AGENT_PORT_NAME,
    _raylet.METRICS_EXPORT_PORT_NAME,
    _raylet.DASHBOARD_AGENT_LISTEN_PORT_NAME,
)
start_raylet = node.Node.start_raylet


def start_raylet_at_once(self, *arguments, **options):
    for agent in AGENTS:
        _raylet.persist_port(self.get_session_dir_path(), self._node_id, agent, -1)
    return start_raylet(self, *arguments, **options)


if __name__ == "__main__":
    node.Node.start_raylet = start_raylet_at_once
    node.time = SimpleNamespace(
        sleep=time.sleep, time=time.time, monotonic=lambda: time.monotonic() / 10
    )
    main()
