"""A signal that ends a session does so wherever it strikes."""

import signal
import sys
import threading
import time
import weakref
from contextlib import nullcontext
from functools import partial

import pytest
from patience import PATIENCE

from autorl.core import signals
from autorl.core.signals import EndedBySignal, ending, held

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


@pytest.fixture(autouse=True)
def usual_handlers():
    """Handle signals as in a terminal, also where `nohup` or a shell's `&` began us: ignored."""
    usual = {
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
    }
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("strike", [strike_in_a_destructor, strike_in_a_callback])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_whose_exception_python_drops_is_sent_again(strike, name, capsys):
    with pytest.raises(EndedBySignal, match=name), ending():
        struck(strike, getattr(signal, name))
    assert capsys.readouterr().err == ""


def test_so_is_ctrl_c(capsys):
    with pytest.raises(KeyboardInterrupt), ending():
        struck(strike_in_a_destructor, signal.SIGINT)
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
    assert len(starts) >= 2  # more where a timer is done before `start` returns
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_so_is_one_that_comes_anywhere_in_the_hook(name, capsys):
    """Let the signal strike once more at every line that runs in the hook, one after another."""
    number = getattr(signal, name)
    line, struck_in_hook = 0, True
    while struck_in_hook:
        line += 1
        tracer = StrikingTracer(line, number)
        with pytest.raises(KeyboardInterrupt), ending():
            struck(partial(strike_traced, tracer), number)
        struck_in_hook = tracer.lines >= line
    assert line > 5
    assert capsys.readouterr().err == ""


def strike_traced(tracer, number):
    sys.settrace(tracer)
    try:
        strike_in_a_destructor(number)
    finally:
        sys.settrace(None)


class StrikingTracer:
    """Sends a signal to its own process at the n-th line in the hook and what it calls."""

    def __init__(self, line, number):
        self.line, self.number = line, number
        self.lines = 0

    def __call__(self, frame, event, argument):
        if event == "line":
            self.lines += 1
            if self.lines == self.line:
                signal.raise_signal(self.number)
        return self if self.is_in_hook(frame) else None

    def is_in_hook(self, frame):
        while frame is not None:
            if (
                frame.f_code.co_filename == signals.__file__
                and "hook" in frame.f_code.co_qualname.lower()
            ):
                return True
            frame = frame.f_back
        return False


def test_other_errors_that_python_drops_are_told_as_ever(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: told.append(unraisable.exc_type))

    class Broken:
        def __del__(self):
            raise RuntimeError("no signal")

    with ending():
        Broken()
    assert told == [RuntimeError]


SURROUNDINGS = pytest.mark.parametrize(
    "surrounding", [ending, nullcontext], ids=["command line", "library"]
)


def strike_within(done, error=None):
    """Strike in the inner of two held blocks, then raise an error if there is one."""
    with held():
        with held():
            signal.raise_signal(signal.SIGINT)
        done.append("the outer block went on")
        if error is not None:
            raise error
    done.append("not reached")


def strike_twice(done):
    with held():
        signal.raise_signal(signal.SIGINT)
        done.append("the first waits")
        signal.raise_signal(signal.SIGINT)
        done.append("not reached")


@SURROUNDINGS
def test_ctrl_c_waits_for_the_end_of_the_outermost_held_block(surrounding):
    done = []
    with pytest.raises(KeyboardInterrupt), surrounding():
        strike_within(done)
    assert done == ["the outer block went on"]


@SURROUNDINGS
def test_a_second_ctrl_c_waits_for_nothing(surrounding):
    done = []
    with pytest.raises(KeyboardInterrupt), surrounding():
        strike_twice(done)
    assert done == ["the first waits"]
    with held():  # and nothing is left of the first
        pass


def test_ctrl_c_in_a_held_block_that_fails_is_not_lost():
    with pytest.raises(KeyboardInterrupt) as caught:
        strike_within([], ValueError("failed"))
    assert isinstance(caught.value.__context__, ValueError)
    with held():
        pass


def test_a_held_block_leaves_other_handlers_as_they_are():
    seen = []

    def record(number, frame):
        seen.append(number)

    signal.signal(signal.SIGINT, record)
    with held():
        signal.raise_signal(signal.SIGINT)
        assert seen == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is record
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with held():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_held_block_of_another_thread_holds_no_signal():
    inside, leave = threading.Event(), threading.Event()

    def hold():
        with held():
            inside.set()
            leave.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(PATIENCE)
    try:
        with pytest.raises(EndedBySignal), ending():
            signal.raise_signal(signal.SIGTERM)
    finally:
        leave.set()
        thread.join()
