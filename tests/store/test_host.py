"""Which process a number means, and whether it lives."""

import os
import socket
from pathlib import Path

from autorl.store.host import host_identity, lives


def test_a_place_is_a_host_since_it_was_started_and_its_process_numbers():
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    numbers = os.stat("/proc/self/ns/pid").st_ino
    assert host_identity() == f"{socket.gethostname()}-{boot}-{numbers}"


def test_a_process_of_another_user_lives_and_is_not_touched(monkeypatch):
    sent = []

    def refused(pid, signal):
        sent.append(signal)
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    assert lives(1)
    assert sent == [0]
