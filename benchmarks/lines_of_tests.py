"""Records which test runs which line of the package: a plugin of pytest for `mutation.py --lines`.

    pip install coverage
    PYTHONPATH=benchmarks python -m pytest -p lines_of_tests --lines FOLDER -n 2 -m "not slow" -q

Writes one file for each process of pytest. Lines that run as a module is imported belong to no
test. What a test runs in another program is not seen.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lines", help="folder for the lines that each test runs")


def pytest_configure(config: pytest.Config) -> None:
    folder = config.getoption("lines")
    if folder is not None and not config.getoption("numprocesses", None):
        config.pluginmanager.register(Recorder(Path(folder)), "lines-recorder")


class Recorder:
    """Watches the tests of one process.

    Args:
        folder: for the file that says what they ran.
    """

    def __init__(self, folder: Path) -> None:
        import coverage  # not needed to read what was written

        self._folder = folder
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()
        self._coverage = coverage.Coverage(
            data_file=None, source=[str(ROOT / "autorl")], config_file=False
        )
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        begun = time.process_time()
        try:
            return (yield)
        finally:
            self._seconds[item.nodeid] = time.process_time() - begun
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:  # it notices nothing, or everything
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        tests_of = {}
        for file in data.measured_files():
            by_line = data.contexts_by_lineno(file)
            numbers = {
                str(line): sorted({*tests} - self._failed - {""}) for line, tests in by_line.items()
            }
            tests_of[Path(file).relative_to(ROOT).as_posix()] = numbers
        self._folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"tests_of": tests_of, "seconds": self._seconds})
        (self._folder / f"lines-{os.getpid()}.json").write_text(text, encoding="utf-8")


class TestLines:
    """The tests that run a line, as `Recorder` wrote them."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        files = sorted(folder.glob("lines-*.json"))
        if not files:
            raise SystemExit(f"{folder}: no lines-*.json of a run with --lines")
        self._tests: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._seconds: dict[str, float] = {}
        for file in files:
            stored = json.loads(file.read_text(encoding="utf-8"))
            self._seconds.update(stored["seconds"])
            for name, by_line in stored["tests_of"].items():
                for line, tests in by_line.items():
                    self._tests[name, int(line)].update(tests)

    def tests_of(self, file: str, first: int, last: int, cpu_seconds: float) -> list[str]:
        """List the tests that run a line of a file, the quickest first, as far as the time goes."""
        tests = set[str]().union(*(self._tests[file, line] for line in range(first, last + 1)))
        chosen: list[str] = []
        for test in sorted(tests, key=lambda test: (self._seconds[test], test)):
            cpu_seconds -= self._seconds[test]
            if cpu_seconds < 0:
                break
            chosen.append(test)
        return chosen
