"""The cells a benchmark measures, the file that keeps finished ones, and which code a cell was measured by."""

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).parent
PACKAGES = (
    "numpy",
    "numba",
    "scikit-learn",
    "torch",
    "optuna",
    "cmaes",
    "smac",
    "dehb",
    "trl",
    "transformers",
)
PRINTS_ONLY = ("cli", "report")  # rooms of the package that decide nothing about a figure


@dataclass(frozen=True, order=True)
class Cell:
    """One number to be measured: a method on a task in a repeat."""

    part: str
    task: str
    method: str
    repeat: int

    @property
    def key(self) -> str:
        return f"{self.part}|{self.task}|{self.method}|{self.repeat}"


@functools.cache
def code_version(*measuring: str) -> str:
    """A hash of the package, of the benchmark modules named and of the versions of the libraries that search or train.

    Comments, docstrings and layout do not count, nor do the rooms of the package that only print.
    """
    import autorl
    from autorl.core.source_code import code_hash

    root = Path(autorl.__file__).parent
    package = [
        path for path in root.rglob("*.py") if path.relative_to(root).parts[0] not in PRINTS_ONLY
    ]
    total = hashlib.sha256(code_hash(package, root).encode())
    total.update(code_hash([HERE / f"{name}.py" for name in measuring], HERE).encode())
    total.update(repr([(name, installed(name)) for name in PACKAGES]).encode())
    return total.hexdigest()[:16]


def installed(package: str) -> str:
    """The version of a package; empty if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


class Raw:
    """Finished cells by key, kept in a file of JSON lines.

    A cell is a line, which begins with the version of the code that measured it. Cells of another version stay in the
    file, and are taken for estimates of the time only.

    Attributes:
        cells: those of this version, by `Cell.key`.
        stale: those of other versions, by version and key.
    """

    def __init__(self, path: Path | None, code: str) -> None:
        self.path, self.code = path, code
        self.cells: dict[str, Any] = {}
        self.stale: dict[str, Any] = {}
        text = path.read_text(encoding="utf-8") if path and path.exists() else ""
        # What follows the last line's end is a cell that a kill has cut.
        for line in text.split("\n")[:-1]:
            recorded, key, cell = json.loads(line)
            if recorded == code:
                self.cells[key] = cell
            else:
                self.stale[f"{recorded}|{key}"] = cell
        if path and text and not text.endswith("\n"):
            path.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")

    def keep(self, cell: Cell, result: Mapping[str, Any]) -> None:
        self.cells[cell.key] = dict(result)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([self.code, cell.key, self.cells[cell.key]]) + "\n")

    def __contains__(self, cell: Cell) -> bool:
        return cell.key in self.cells

    def value(self, cell: Cell, name: str) -> float:
        return float(np.mean(self.cells[cell.key][name]))

    def values(
        self, part: str, task: str, method: str, repeats: int, name: str
    ) -> NDArray[np.float64]:
        return np.array(
            [self.value(Cell(part, task, method, number), name) for number in range(repeats)]
        )

    def estimate(self, cells: Iterable[Cell]) -> str:
        """CPU time of the cells that are missing, as text.

        A cell is taken to cost the median of those recorded by any version for the same task and method, else for the
        same task.
        """
        recorded: dict[tuple[str, ...], list[float]] = {}
        for key, cell in [*self.stale.items(), *self.cells.items()]:
            part, task, method, _ = key.split("|")[-4:]
            for like in ((part, task, method), (part, task)):
                recorded.setdefault(like, []).append(cell["seconds"])
        spent, unknown, number = dict[str, float](), 0, 0
        for cell in (cell for cell in cells if cell not in self):
            number += 1
            alike = recorded.get((cell.part, cell.task, cell.method)) or recorded.get(
                (cell.part, cell.task)
            )
            unknown += alike is None
            spent[cell.part] = spent.get(cell.part, 0.0) + (
                float(np.median(alike)) if alike else 0.0
            )
        parts = ", ".join(f"{part} {seconds / 60:.1f}" for part, seconds in spent.items())
        text = f"{number} cells to run: about {sum(spent.values()) / 60:.0f} CPU-minutes ({parts or 'none'})"
        return text + (
            f"; of {unknown} of them nothing is recorded and nothing is counted" if unknown else ""
        )


def timed(measure: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """What `measure` returns, with the CPU seconds of this process that it took."""
    began = time.process_time()
    result = measure()
    return {**result, "seconds": time.process_time() - began}
