"""Metrics of a training script: read, and reduced to points.

They are read from what it writes; the points are those a study asks for.

Sources: lines of standard output (see `metric_lines`), JSON lines, CSV, TensorBoard event files,
and the `trainer_state.json` that transformers keeps in its checkpoints. Nothing is ever evaluated:
text is parsed.
"""

from __future__ import annotations

import ast
import csv
import json
import math
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator

from autorl.core.plain_text import did_you_mean, listed, shortened
from autorl.core.types import FrozenMap, InputError, NotLoggedError
from autorl.trainers.options import Count, Positive, Text, read_options

_NON_FINITE = {"nan": math.nan, "NaN": math.nan, "inf": math.inf, "Infinity": math.inf}
# Np.float64(0.5), as NumPy 2 prints it.
_SCALARS = ("float64", "float32", "float16", "int64", "int32", "tensor")
# A name, and a value without spaces, on a line of such pairs.
_PAIR = re.compile(r"([A-Za-z_][\w./-]*)\s*=\s*([^\s,;|]+)(?:[\s,;|]+|$)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_RAY = re.compile(r"^\([\w.:-]+(?: pid=\d+)?(?:, ip=[\d.]+)?\)\s*")
_RANK = re.compile(r"^\[(?:rank|default)(\d+)\]:\s?")
_VERL = re.compile(r"(?:^|\s)step:(\d+)((?: - \S+:\S+)+)\s*$")
_OPENRLHF = re.compile(r"[Gg]lobal[ _]step (\d+)(?::|, eval_metrics:) (\{.*\})\s*$")


def parse_line(line: str) -> dict[str, Any] | None:
    """Read the record on a line of output, or None.

    A step that stands in the text around comes under the key `step`.
    """
    text = _COLOUR.sub("", line).strip()
    rank = _RANK.match(text)
    # Every rank prints the same: one record of a step is enough.
    if rank is not None and int(rank.group(1)):
        return None
    if rank is not None:
        text = text[rank.end() :]
    text = _RAY.sub("", text)
    if text.startswith("{") and text.endswith("}"):
        return _mapping(text)
    match = _OPENRLHF.search(text)
    if match:
        record = _mapping(match.group(2))
        return None if record is None else {"step": int(match.group(1)), **record}
    match = _VERL.search(text)
    if match:
        return {"step": int(match.group(1)), **_pairs(match.group(2))}
    return dict(_PAIR.findall(text)) if text and not _PAIR.sub("", text) else None


def number(value: object) -> float | None:
    """Read a number, or its text, as a float, else None.

    Such texts are `'0.2141'`, `'np.float64(0.5)'` and `'[0.5]'`, an array of one.
    """
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            value = _literal(value.strip())
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
    # A truth value is an `int` to Python, and no measurement.
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _mapping(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    # Not JSON: perhaps a dict as Python prints it, with None, True and single quotes.
    except ValueError:
        value = _literal(text)
    return value if isinstance(value, dict) else None


def _pairs(text: str) -> dict[str, float]:
    """Read pairs joined by colons as numbers by name.

    They look like ` - critic/score/mean:0.5 - val-core/data/acc:np.float64(0.25)`.
    """
    items = (item.rpartition(":") for item in text.split(" - ") if item)
    values = {name: number(value) for name, _, value in items}
    return {name: value for name, value in values.items() if value is not None}


def _literal(text: str) -> Any:
    try:
        tree = _Constants().visit(ast.parse(text, mode="eval"))
        return ast.literal_eval(tree)
    # All that `ast.literal_eval` may raise on malformed text, by its documentation.
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return None


class _Constants(ast.NodeTransformer):
    """Turns `nan`, `inf` and wrapped scalars, as Python prints them, to constants.

    `literal_eval` takes those.
    """

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_NON_FINITE[node.id]) if node.id in _NON_FINITE else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        # Again, for `np.float64(nan)`.
        is_scalar = name in _SCALARS and len(node.args) == 1
        inner: ast.expr = self.visit(node.args[0]) if is_scalar else node
        return inner


def _relative(path: str | None) -> str | None:
    # Another place would be one file for all segments, which run side by side.
    if Path(path or "").is_absolute() or ".." in Path(path or "").parts:
        raise ValueError
    return path


OwnPath: TypeAlias = Annotated[
    str | None, AfterValidator(_relative), "a path relative to the segment's own folder"
]


@dataclass(frozen=True)
class MetricSource:
    """The place of a script's metrics.

    It is the option `metrics` of the `command` trainer.

    Attributes:
        from_: `stdout`, `jsonlines`, `csv`, `tensorboard` or `trainer_state`.
        path: the file, or a pattern, relative to the segment's working folder; if not given, every
            event file for TensorBoard, and of the files `trainer_state.json` the one that has come
            farthest.
        step: key of the training step in a record. A record without one belongs to the last step.
        step_scale: steps of the study to one step of a record, for programs that count something
            else.
        rank: key of the process's rank in a record, for programs that print on every rank; others
            than 0 are left out.
        map: metric name in the study -> key in the record (dots go into nested objects); empty =
            every number as named.
        sum: name of a count -> key in the record whose values are added up over the segment, for
            budgets that count it.
        reduce_last: a metric at an evaluation point is the mean of this many of the latest logged
            values up to it.
    """

    from_: Literal["stdout", "jsonlines", "csv", "tensorboard", "trainer_state"] = "stdout"
    path: OwnPath = None
    step: Annotated[str, "a key"] = "step"
    step_scale: Positive = 1.0
    rank: Text = None
    map: Annotated[Mapping[str, str], "a key for each metric"] = FrozenMap()
    sum: Annotated[Mapping[str, str], "a key for each count"] = FrozenMap()
    reduce_last: Count = 1

    @classmethod
    def parse(cls, options: object, reduce_last: int) -> MetricSource:
        """Read the options `metrics` and `reduce_last` of a study file.

        Raises:
            InputError: an unknown key or source, or a missing path.
        """
        key = "trainer.kwargs.metrics"
        source = replace(read_options(cls, options, key), reduce_last=reduce_last)
        if source.from_ in ("jsonlines", "csv") and source.path is None:
            message = f"metrics from {source.from_} need the path of the file"
            raise InputError(message, key=f"{key}.path")
        return source

    def records(self, folder: Path, until: int) -> list[dict[str, Any]]:
        """Read every record in the files under `folder`, in step order.

        Empty for `stdout`, which is not a file, and where the file is missing.
        """
        if self.from_ == "stdout":
            return []
        pattern, _, read = _FILES[self.from_]
        paths = sorted(folder.glob(self.path or pattern))
        if self.from_ == "trainer_state" and paths:  # each holds everything since the start
            paths = [max(paths, key=lambda path: int(json.loads(path.read_text())["global_step"]))]
        records = [record for path in paths for record in read(path, self.step)]

        def order(record: Mapping[str, object]) -> float:
            step = number(record.get(self.step))
            return until if step is None else step

        # Stable, so that records of one step stay in the order of their files.
        return sorted(records, key=order)

    @property
    def expected(self) -> str:
        """Describe the output that a command must write."""
        if self.from_ == "stdout":
            return 'expected lines {"step": 100, "eval_return": 0.5} or step=100 eval_return=0.5'
        return f"it wrote no record to a {self.path or _FILES[self.from_][1]}"


_FAR = 10  # times the length of a run; less may be the end of one long rollout


class Collector:
    """Collects records and tells the metrics at each evaluation point.

    It does so as soon as a later record closes the point.
    """

    def __init__(self, source: MetricSource, points: Iterable[int], start: int, until: int) -> None:
        self.source = source
        self.pending = deque(sorted(points))
        self.several = len(self.pending) > 1
        self.until = until
        self.step = start
        self.farthest: float | None = None  # step of a record that has one, as the program counts
        self.history: dict[str, list[tuple[int, float]]] = {}
        self.seen: set[str] = set()
        self.totals: dict[str, float] = {}  # of `sum`

    def add(self, record: Mapping[str, object]) -> list[tuple[int, dict[str, float]]]:
        """Take a record.

        Returns the (point, metrics) pairs that are now complete.
        """
        if self.source.rank is not None and number(record.get(self.source.rank)):
            return []
        counters = (self.source.step, self.source.rank)
        measured = {str(name): value for name, value in record.items() if name not in counters}
        self.seen.update(measured)
        for name, key in self.source.sum.items():
            value = number(_look_up(record, key))
            if value is not None and math.isfinite(value):
                self.totals[name] = self.totals.get(name, 0.0) + value
        mapped = {name: _look_up(record, key) for name, key in self.source.map.items()}
        numbers = {name: number(value) for name, value in (mapped or measured).items()}
        metrics = {name: value for name, value in numbers.items() if value is not None}
        if not metrics:
            return []
        counted = number(record.get(self.source.step))
        if counted is not None:
            self.farthest = max(counted, self.farthest or 0.0)
        # A summary printed at the end has no step: it is of the end.
        # Between two steps of the study it is of the later one.
        scaled = math.nan if counted is None else round(counted * self.source.step_scale, 6)
        step = self.until if counted is None else math.ceil(scaled)
        # Several records may share a step, so a point is closed by the first that is later.
        done = self._close(step) if step > self.step else []
        self.step = max(self.step, step)
        for name, value in metrics.items():
            self.history.setdefault(name, []).append((step, value))
        return done

    def finish(self, printed: Collection[str] = ()) -> list[tuple[int, dict[str, float]]]:
        """Return the points still open.

        At the last one all that was logged counts, also past it (a whole last rollout).

        Args:
            printed: the last lines of the command's output, for messages.

        Raises:
            NotLoggedError: a metric was never logged.
            RuntimeError: steps are counted in another unit than the study's.
        """
        self._check_logged(printed)
        self._check_unit()
        last_steps = [(point, point if point < self.until else math.inf) for point in self.pending]
        self.pending.clear()
        return [(point, means) for point, last in last_steps if (means := self._reduced(last))]

    def _check_logged(self, printed: Collection[str]) -> None:
        """Check that every metric of the study was logged, as a number."""
        if not self.seen:
            raise NotLoggedError(
                f"the command logged nothing: {self.source.expected}; its output ended with "
                f"{' | '.join(map(shortened, printed)) or 'no line at all'}"
            )
        logged = f"logged were: {listed(sorted(self.seen))}"
        if not self.history and not self.source.map:
            raise NotLoggedError(f"the command logged no number; {logged}")
        for name, key in (*self.source.map.items(), *self.source.sum.items()):
            if name in self.history or name in self.totals:
                continue
            if key in self.seen:
                raise NotLoggedError(f"the command logged {key!r}, but not as a number")
            hint = did_you_mean(key, self.seen, logged)
            raise NotLoggedError(f"the command logged nothing named {key!r}{hint}")

    def _check_unit(self) -> None:
        """Check that the script logs in the unit of the study's steps.

        A program that logs every k <= until steps logs one beyond until / 2; earlier points would
        be of other steps.

        A single point is whatever was logged last, so nothing is said of it.
        """
        if not self.several or self.farthest is None:
            return
        last = self.farthest * self.source.step_scale
        # Below: the unit is coarser than the study's. Far above: it is finer.
        if self.until / 2 <= last <= _FAR * self.until:
            return
        raise RuntimeError(
            f"the last record is of step {last:.12g} of {self.until}, so the curve would not be by "
            "the study's steps: "
            "in `metrics` name another `step` key, or say by `step_scale` how many of the study's "
            "one of a record is"
        )

    def _close(self, step: int) -> list[tuple[int, dict[str, float]]]:
        """Close points below `step`: no later record can belong to them."""
        closed = []
        # The last point waits for `finish`: what is logged past it counts too.
        while self.pending and self.pending[0] < min(step, self.until):
            closed.append(self.pending.popleft())
        return [(point, metrics) for point in closed if (metrics := self._reduced(point))]

    def _reduced(self, point: float) -> dict[str, float]:
        """Average the last `reduce_last` values of each metric up to a point."""
        means = {}
        for name, logged in self.history.items():
            # From the end: a long log is not walked through at every point.
            newest_first = (value for step, value in reversed(logged) if step <= point)
            values = list(islice(newest_first, self.source.reduce_last))
            if values:
                # `fsum` rounds once, so the order of the values does not matter.
                means[name] = math.fsum(values) / len(values)
        return means


def _json_lines(path: Path, step: str) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        record = parse_line(line)
        if record is not None:
            yield record


def _history(path: Path, step: str) -> Iterator[dict[str, Any]]:
    yield from json.loads(path.read_text())["log_history"]


def _csv_rows(path: Path, step: str) -> Iterator[dict[str, Any]]:
    with path.open(newline="") as file:
        # SB3's monitor files begin with a comment.
        lines = (line for line in file if not line.startswith("#"))
        for row in csv.DictReader(lines):
            # `DictReader` keeps surplus cells of a row under None.
            yield {name: number(text) for name, text in row.items() if name is not None}


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
            # As torch's SummaryWriter writes it; newer TensorBoards hand it on as a tensor.
            elif value.HasField("simple_value"):
                yield {step: event.step, value.tag: value.simple_value}


def _look_up(record: Mapping[str, object], key: str) -> Any:
    if key in record:
        return record[key]
    # A key with dots may be a name (`charts/a.b`) or lead into nested objects, as verl writes them.
    head, _, inner_key = key.partition(".")
    inner = record.get(head)
    return _look_up(inner, inner_key) if inner_key and isinstance(inner, Mapping) else None


_FILES: Mapping[str, tuple[str, str, Callable[[Path, str], Iterator[dict[str, Any]]]]] = {
    "jsonlines": ("", "", _json_lines),
    "csv": ("", "", _csv_rows),
    "tensorboard": ("**/events.out.tfevents.*", "TensorBoard event file", _events),
    "trainer_state": ("**/trainer_state.json", "trainer_state.json", _history),
}
"""Sources that are files: pattern, name and reader of each."""
