"""Metrics of a training script: read from what it writes, reduced to the points a study asks for.

Sources: JSON lines, CSV, TensorBoard event files, and lines of standard output that are JSON objects or Python dict
literals. Nothing is ever evaluated: text is parsed as JSON or as a literal.
"""

from __future__ import annotations

import ast
import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autorl.trainers._shared import check_names, nearest
from autorl.types import InputError

SOURCES = ("stdout", "jsonlines", "csv", "tensorboard")
_NON_FINITE = {"nan": math.nan, "NaN": math.nan, "inf": math.inf, "Infinity": math.inf}


@dataclass(frozen=True)
class MetricSource:
    """Where a script's metrics are: the option `metrics` of the `command` trainer.

    Attributes:
        source: `stdout`, `jsonlines`, `csv` or `tensorboard` (the key is `from` in a file).
        path: the file, or a pattern, relative to the segment's working folder; for TensorBoard, every event file if not
            given.
        step: key of the training step in a record. A record without one belongs to the last step.
        map: metric name in the study -> key in the record (dots go into nested objects); empty = every number as named.
        reduce_last: a metric at an evaluation point is the mean of this many of the latest logged values up to it.
    """

    source: str = "stdout"
    path: str | None = None
    step: str = "step"
    map: Mapping[str, str] = field(default_factory=dict)
    reduce_last: int = 1

    @classmethod
    def parse(cls, options: Mapping[str, Any], reduce_last: int) -> MetricSource:
        """From the study file. Raises `InputError` for an unknown key or source, or a missing path."""
        check_names(options, ("from", "path", "step", "map"), "key", "trainer.kwargs.metrics")
        source = options.get("from", "stdout")
        if source not in SOURCES:
            raise InputError(
                f"unknown source {source!r}{nearest(str(source), SOURCES)}; allowed: {', '.join(SOURCES)}",
                key="trainer.kwargs.metrics.from",
            )
        if source in ("jsonlines", "csv") and "path" not in options:
            raise InputError(f"metrics from {source} need the path of the file", key="trainer.kwargs.metrics.path")
        if Path(options.get("path") or "").is_absolute():
            raise InputError(
                f"expected a path relative to the segment's own folder, got {options['path']!r}",
                key="trainer.kwargs.metrics.path",
            )
        if reduce_last < 1:
            raise InputError(f"expected a count of at least 1, got {reduce_last}", key="trainer.kwargs.reduce_last")
        step, mapping = str(options.get("step", "step")), dict(options.get("map", {}))
        return cls(source, options.get("path"), step, mapping, reduce_last)

    def records(self, folder: Path, until: int) -> list[dict[str, Any]]:
        """Every record in the files under `folder`, in step order; empty for `stdout`, which is not a file."""
        if self.source == "stdout":
            return []
        paths = sorted(folder.glob(self.path or "**/events.out.tfevents.*"))
        if not paths:
            raise FileNotFoundError(f"the command wrote no {self.path or 'TensorBoard event file'}")
        readers = {"jsonlines": _json_lines, "csv": _csv_rows, "tensorboard": _events}
        found = [record for path in paths for record in readers[self.source](path, self.step)]
        return sorted(found, key=lambda record: float(_number(record.get(self.step), until)))


class Collector:
    """Collects records and tells the metrics at each evaluation point as soon as a later record closes it."""

    def __init__(self, source: MetricSource, points: Iterable[int], start: int, until: int) -> None:
        self.source = source
        self.pending = sorted(points)
        self.until = until
        self.step = start
        self.history: dict[str, list[tuple[int, float]]] = {}
        self.seen: set[str] = set()

    def add(self, record: Mapping[str, Any]) -> list[tuple[int, dict[str, float]]]:
        """Take a record; returns the (point, metrics) pairs that are now complete."""
        self.seen.update(str(name) for name in record)
        metrics = self._metrics(record)
        if not metrics:
            return []
        step = int(_number(record.get(self.source.step), self.until))
        done = self._close(step) if step > self.step else []
        self.step = max(self.step, step)
        for name, value in metrics.items():
            self.history.setdefault(name, []).append((step, value))
        return done

    def finish(self) -> list[tuple[int, dict[str, float]]]:
        """The points still open. At the last one all that was logged counts, also past it (a whole last rollout).

        Raises:
            RuntimeError: a metric was never logged.
        """
        for name, key in self.source.map.items() or {"any metric": ""}.items():
            if not self.history or (self.source.map and name not in self.history):
                logged = f"; it logged {', '.join(sorted(self.seen))}" if self.seen else ""
                raise RuntimeError(f"the command never logged {key or name}{nearest(key, self.seen)}{logged}")
        points, self.pending = self.pending, []
        reduced = [(point, self._reduced(math.inf if point >= self.until else point)) for point in points]
        return [(point, metrics) for point, metrics in reduced if metrics]

    def _close(self, step: int) -> list[tuple[int, dict[str, float]]]:
        """Points below `step` are complete: no later record can belong to them."""
        closed = [point for point in self.pending if point < step and point < self.until]
        self.pending = self.pending[len(closed) :]
        return [(point, metrics) for point in closed if (metrics := self._reduced(point))]

    def _reduced(self, point: float) -> dict[str, float]:
        upto = {name: [value for step, value in values if step <= point] for name, values in self.history.items()}
        last = self.source.reduce_last
        return {name: math.fsum(v[-last:]) / len(v[-last:]) for name, v in upto.items() if v}

    def _metrics(self, record: Mapping[str, Any]) -> dict[str, float]:
        if self.source.map:
            found = {name: _look_up(record, key) for name, key in self.source.map.items()}
        else:
            found = {str(name): value for name, value in record.items() if name != self.source.step}
        return {name: float(value) for name, value in found.items() if _is_number(value)}


def parse_line(line: str) -> dict[str, Any] | None:
    """The record on a line of output: a JSON object or a Python dict literal (NaN and infinities allowed), or None."""
    text = line.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return None
    try:
        value = json.loads(text)
    except ValueError:
        value = _literal(text)
    return value if isinstance(value, dict) else None


def _literal(text: str) -> Any:
    try:
        tree = _Constants().visit(ast.parse(text, mode="eval"))
        return ast.literal_eval(tree)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return None


class _Constants(ast.NodeTransformer):
    """`nan` and `inf`, as Python prints them, to constants that `literal_eval` takes."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.copy_location(ast.Constant(_NON_FINITE[node.id]), node) if node.id in _NON_FINITE else node


def _json_lines(path: Path, step: str) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        record = parse_line(line)
        if record is not None:
            yield record


def _csv_rows(path: Path, step: str) -> Iterator[dict[str, Any]]:
    with path.open(newline="") as file:
        lines = (line for line in file if not line.startswith("#"))  # SB3's monitor files begin with a comment
        for row in csv.DictReader(lines):
            yield {name: _number(text, None) for name, text in row.items() if name is not None}


def _events(path: Path, step: str) -> Iterator[dict[str, Any]]:
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
        from tensorboard.util.tensor_util import make_ndarray
    except ModuleNotFoundError as error:
        raise InputError(
            'metrics from tensorboard need tensorboard: pip install "autorl[integrations]"',
            key="trainer.kwargs.metrics",
        ) from error
    for event in EventFileLoader(str(path)).Load():
        for value in event.summary.value:
            if value.HasField("tensor") and not value.tensor.tensor_shape.dim:
                yield {step: event.step, value.tag: float(make_ndarray(value.tensor))}
            elif value.HasField("simple_value"):
                yield {step: event.step, value.tag: value.simple_value}


def _look_up(record: Mapping[str, Any], key: str) -> Any:
    if key in record:
        return record[key]
    head, _, rest = key.partition(".")
    inner = record.get(head)
    return _look_up(inner, rest) if rest and isinstance(inner, Mapping) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any, missing: Any) -> Any:
    """`value` as a number, or `missing` where it is none (an empty CSV cell, a record without a step)."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return missing
