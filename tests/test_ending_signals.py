"""A signal that ends a session does so wherever it strikes."""

import signal
import sys
import threading
import time
import weakref

import pytest
from patience import PATIENCE

from autorl.signals import EndedBySignal, ending

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends signals to itself")


class Thing:
    """Can be referred to weakly."""


def struck(strike, number):
    """Go on after a signal until its exception comes."""
    strike(number)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        time.sleep(0.01)


def strike_in_a_destructor(number):
    class Struck:
        def __del__(self):
            signal.raise_signal(number)

    Struck()


def strike_in_a_callback(number):
    thing = Thing()
    reference = weakref.ref(thing, lambda gone: signal.raise_signal(number))
    del thing
    assert reference() is None


@pytest.mark.parametrize("strike", [strike_in_a_destructor, strike_in_a_callback])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_whose_exception_python_drops_is_sent_again(strike, name, capsys):
    with pytest.raises(EndedBySignal, match=name), ending():
        struck(strike, getattr(signal, name))
    assert capsys.readouterr().err == ""


@pytest.fixture
def ctrl_c():
    """What Python does at SIGINT, also where a shell began us in the background and it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.SIGINT
    signal.signal(signal.SIGINT, before)


def test_so_is_ctrl_c(ctrl_c, capsys):
    with pytest.raises(KeyboardInterrupt), ending():
        struck(strike_in_a_destructor, ctrl_c)
    assert capsys.readouterr().err == ""


def test_so_is_one_that_comes_before_the_first_is_dealt_with(monkeypatch, capsys):
    starts = []

    class SlowToStart(threading.Timer):
        def start(self):
            super().start()
            starts.append(self)
            if len(starts) == 1:
                self.join()  # the signal has been sent

    monkeypatch.setattr(threading, "Timer", SlowToStart)
    with pytest.raises(EndedBySignal, match="SIGTERM"), ending():
        struck(strike_in_a_destructor, signal.SIGTERM)
    assert len(starts) == 2
    assert capsys.readouterr().err == ""


def test_other_errors_that_python_drops_are_told_as_ever(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: told.append(unraisable.exc_type))

    class Broken:
        def __del__(self):
            raise RuntimeError("no signal")

    with ending():
        Broken()
    assert told == [RuntimeError]
