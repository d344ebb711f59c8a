"""A signal that strikes while a process is started leaves none that nobody ends."""

import signal
import sys

import misbehaving
import pytest
from test_executors import segment

from autorl.core.signals import ending
from autorl.executors import processes

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends signals to itself")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_process_that_a_signal_found_half_started_is_ended(monkeypatch, number):
    # `nohup` ignores one of them, a shell's `&` another.
    default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    usual = signal.signal(number, default)
    started = []
    start = processes.start_connected

    def struck(*arguments, **options):
        started.append(start(*arguments, **options))
        signal.raise_signal(number)
        return started[-1]

    monkeypatch.setattr(processes, "start_connected", struck)
    executor = processes.Processes(misbehaving.load, 1)
    with pytest.raises(KeyboardInterrupt), ending():
        executor.submit([segment("0.0", "hang")])
    signal.signal(number, usual)
    ((process, _),) = started
    executor.close()
    survived = process.is_alive()
    process.kill()
    assert not survived
