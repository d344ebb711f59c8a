"""Fixtures and hooks that make the tests independent of luck and load.

* Hypothesis draws the same examples every time. `AUTORL_HYPOTHESIS=random` draws new ones, and more of them; a failure
  prints how to repeat it. `test_random_examples.py` (slow) does that for all property tests.
* Numeric libraries have one thread, here and in every process a test starts.
* The key that signs checkpoints is made in a folder of the session, not in the user's home.
* Objects that collection has made are left out of garbage collection: modules and thousands of
  tests, walked through again and again and copied into every forked child.
* Folders of the tests lie in memory where the system has a place for them, and TMPDIR names no other: thousands of
  small checkpoints and databases are synced to disk, which took a third of the time.
* `sys.path` is after each test what it was before: trainers add the folder of their study, and a folder of one test was
  a module that another test expects to be missing.
* A test may use 120 seconds of CPU time, or what its marker `cpu_seconds(n)` says; the limit of wall-clock time is
  there for tests that wait for something that never comes, and a machine that is busy does not reach it.
* `make test` leaves dear cases to `make test-more`: `durations.json` has the CPU seconds of a case of each dear function,
  and `pytest -n auto -m "not slow" --measure` writes it anew.
"""

import gc
import json
import os
import shutil
import signal
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

THREADS = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "NUMBA", "RAYON")
CPU_SECONDS = 120.0
WALL_PER_CPU_SECOND = (
    20.0  # of the backstop: 8 busy processes beside two workers on two cores take a factor of 5
)

for library in THREADS:  # before the first import of numpy, numba or torch
    os.environ[f"{library}_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

DURATIONS = Path(__file__).with_name("durations.json")
DEAR_CASE = 0.2  # CPU seconds: all such cases are left to `make test-more`
DEAR_TABLE = 0.05  # CPU seconds a case: of such a function the first and the last case stay
measured = {}  # CPU seconds of the cases by function

MEMORY = Path("/dev/shm")  # of Linux; containers give it 64 MB unless told
MEMORY_NEEDED = 4 * 2**30  # tests keep some 0.3 GB, those of Ray take as much as they find

if (
    "TMPDIR" not in os.environ
    and os.access(MEMORY, os.W_OK)
    and shutil.disk_usage(MEMORY).free > MEMORY_NEEDED
):
    os.environ["TMPDIR"] = str(MEMORY)
    tempfile.tempdir = None  # asked for again

_CONFIGURATION = tempfile.TemporaryDirectory(
    prefix="autorl-tests-"
)  # removed when the session ends
os.environ["XDG_CONFIG_HOME"] = _CONFIGURATION.name

ON_TIME = [HealthCheck.too_slow]
settings.register_profile(
    "fixed", max_examples=30, derandomize=True, deadline=None, suppress_health_check=ON_TIME
)
settings.register_profile(
    "random",
    derandomize=False,
    deadline=None,
    suppress_health_check=ON_TIME,
    print_blob=True,
    database=None,
)
settings.load_profile(os.environ.get("AUTORL_HYPOTHESIS", "fixed"))


def cpu_limit(item):
    marker = item.get_closest_marker("cpu_seconds")
    return float(marker.args[0]) if marker is not None else CPU_SECONDS


def pytest_addoption(parser):
    parser.addoption("--measure", action="store_true", help="Write tests/durations.json anew.")


def pytest_collection_modifyitems(items):
    cases = {}
    for item in items:
        # Only up: half a CPU second took over ten of wall clock, twenty times as much, beside 32
        # processes on two cores.
        if cpu_limit(item) > CPU_SECONDS:
            item.add_marker(pytest.mark.timeout(WALL_PER_CPU_SECOND * cpu_limit(item)))
        cases.setdefault(function_of(item.nodeid), []).append(item)
    for function, seconds in json.loads(DURATIONS.read_text()).items():
        named = cases.get(function, [])
        for item in named if seconds > DEAR_CASE else named[1:-1]:
            item.add_marker(pytest.mark.more)


def function_of(nodeid):
    return nodeid.partition("[")[0]


def cpu_seconds():
    """CPU time of this process and of the children it has waited for."""
    return sum(os.times()[:4])


def pytest_runtest_logreport(report):
    for name, seconds in report.user_properties:
        if report.when == "call" and name == "cpu_seconds":
            measured.setdefault(function_of(report.nodeid), []).append(seconds)


def pytest_sessionfinish(session):
    # The workers of pytest-xdist report to this process, which alone writes.
    if session.config.getoption("--measure") and not hasattr(session.config, "workerinput"):
        means = {name: sum(cases) / len(cases) for name, cases in sorted(measured.items())}
        dear = {name: round(mean, 2) for name, mean in means.items() if mean > DEAR_TABLE}
        DURATIONS.write_text(json.dumps(dear, indent=0) + "\n")


def pytest_collection_finish():
    gc.collect()
    gc.freeze()


def pytest_unconfigure():
    gc.unfreeze()  # libraries that look for their leaks at the end would find what is frozen


@contextmanager
def limited_cpu_time(item):
    """Fail the test in the main thread once this process has used its CPU time, all threads together."""

    def fail(number, frame):
        pytest.fail(
            f"over {cpu_limit(item):g} seconds of CPU time: see `cpu_seconds` in tests/conftest.py"
        )

    before = signal.signal(signal.SIGPROF, fail)
    signal.setitimer(signal.ITIMER_PROF, cpu_limit(item))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


@pytest.fixture(autouse=True)
def same_module_path():
    """Restore `sys.path`, which trainers in this process extend by the folder of their study."""
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture
def pretended_gpus(tmp_path_factory, monkeypatch):
    """Have `nvidia-smi` list GPUs 0 to 7; nothing can train on them."""
    from autorl.executors import machine

    program = tmp_path_factory.mktemp("driver") / "nvidia-smi"
    lines = "".join(f"GPU {number}: A (UUID: GPU-{number}a)\\n" for number in range(8))
    program.write_text(f"#!/bin/sh\nprintf '{lines}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    machine._installed_gpus.cache_clear()
    yield
    machine._installed_gpus.cache_clear()


@pytest.fixture
def few_verdict_draws(monkeypatch):
    """Draw the boundaries of verdicts from fewer sessions, for speed."""
    from autorl.statistics import verdict

    monkeypatch.setattr(verdict, "_DRAWS", 4_000)
    caches = (verdict.boundary, verdict._null_wins)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    item.began = cpu_seconds()
    with limited_cpu_time(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    with limited_cpu_time(item):
        try:
            return (yield)
        finally:
            item.user_properties.append(("cpu_seconds", cpu_seconds() - item.began))
