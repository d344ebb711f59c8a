"""A signal that strikes while a process is started leaves none that nobody ends."""

import signal
import sys

import misbehaving
import pytest
from test_executors import segment

from autorl.executors import processes
from autorl.signals import EndedBySignal, ending

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends signals to itself")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_process_that_a_signal_found_half_started_is_ended(monkeypatch, number):
    usual = signal.signal(number, signal.SIG_DFL)  # `nohup` ignores one of them
    started = []
    start = processes.start_connected

    def struck(*arguments, **options):
        started.append(start(*arguments, **options))
        signal.raise_signal(number)
        return started[-1]

    monkeypatch.setattr(processes, "start_connected", struck)
    executor = processes.Processes(misbehaving.load, 1)
    with pytest.raises(EndedBySignal), ending():
        executor.submit([segment("0.0", "hang")])
    signal.signal(number, usual)
    ((process, _),) = started
    executor.close()
    survived = process.is_alive()
    process.kill()
    assert not survived
