"""Scores of an algorithm's configurations by task, and their file.

A prior file is JSON. Configurations that several tasks share stand in it once, column by column:

    {"format": "autorl prior", "version": 1, "algorithm": "ppo", "licence": ..., "sha256": ...,
     "designs": [{"columns": {"learning_rate": [0.0003, ...], ...}, "inactive": {"tau": [4, 7]}}],
     "tasks": [{"source": "autorl/ppo/CartPole-v1", "design": 0, "scores": [0.41, ...], ...}],
     "portfolio": [{"learning_rate": 0.0003, ...}, ...]}

A task may have `curves`: learning curves as text (`Curves`). `inactive` names the rows at which
a hyperparameter has no value; null is a value. Nothing in the file is code, and its hash is over
everything but the hash itself. A file that passes on data of others has their licence's text as
`notice`; `built_with` is the command that makes the file again.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autorl.core.plain_text import counted, shortened, shown
from autorl.core.plain_values import plain
from autorl.core.regular_files import read_regular
from autorl.core.types import Config, InputError
from autorl.optimizers.priors.packed import Array, pack, unpack
from autorl.space.canonical import is_number, sha256
from autorl.store.outputs import free_output, write_whole

FORMAT = "autorl prior"
VERSION = 1
FEWEST = 8
"""Configurations that a table needs: fewer say nothing about a space."""
_DIGITS = 6  # significant digits of a float in a file
_SCORE_DIGITS = 4  # decimals of a score between 0 and 1
_LARGEST_FILE = 50_000_000  # bytes: more is no prior
_LOW = 0.05  # quantile that counts as the worst: a diverged run may lie at -1e22
_TEXTS = ("sha256", "licence", "citation")


@dataclass(frozen=True, eq=False)
class Curves:
    """Learning curves of one task.

    Attributes:
        fractions: evaluations as parts of a full run, ascending to 1, shape (points,).
        values: between 0 and 1, larger is better, shape (configurations, seeds, points).
    """

    fractions: tuple[float, ...]
    values: Array

    def __post_init__(self) -> None:
        fractions = np.array(self.fractions)
        ascending = bool(np.all(np.diff(fractions, prepend=0.0) > 0)) and fractions[-1] == 1.0
        if not ascending or self.values.ndim != 3 or self.values.shape[-1] != len(fractions):
            message = f"values of shape {self.values.shape} at {shown(str(self.fractions))}"
            raise InputError(f"no learning curves: {message}")

    def to_dict(self) -> dict[str, Any]:
        """Return its content for a prior file, in JSON types."""
        return {
            "fractions": list(self.fractions),
            "shape": list(self.values.shape),
            "values": pack(self.values),
        }


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """Return at most `most` places of `count`, from end to end."""
    places = np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)
    return np.unique(places)


def unit_scores(values: Array) -> Array:
    """Scale scores to 0 for the worst and 1 for the best.

    A score below the 5 % quantile counts as the worst, unless it is the best.

    Raises:
        InputError: all are equal, or there are none.
    """
    if not values.size:
        raise InputError("no configuration has a score")
    high = float(values.max())
    low = float(np.quantile(values, _LOW))
    low = low if high > low else float(values.min())
    if not high > low:
        raise InputError("all configurations score the same")
    return np.asarray(np.clip((values - low) / (high - low), 0.0, 1.0))


@dataclass(frozen=True, eq=False)
class TaskTable:
    """Configurations that were trained on one task, with their scores.

    Attributes:
        source: id of the landscape, or `studies/` and the name of a study's folder.
        algorithm: `ppo` for `sb3/ppo`, `population/ppo` and a landscape `.../ppo/...`.
        environment: what was trained on.
        configs: n configurations, by the names they were recorded with.
        scores: shape (n,), 0 the worst and 1 the best configuration.
        n_seeds: tuning seeds that a score is the mean of, at most.
        sha256: of the manifest, which holds the hash of every file.
        licence, citation: of the data.
        prior: name of the prior file that it was read from, "" of a landscape or study.
        curves: learning curves, of other configurations too; None where there are none.
    """

    source: str
    algorithm: str
    environment: str
    configs: tuple[Config, ...]
    scores: Array
    n_seeds: int = 1
    sha256: str = ""
    licence: str = ""
    citation: str = ""
    curves: Curves | None = None
    prior: str = ""

    def __post_init__(self) -> None:
        if len(self.configs) != len(self.scores):
            raise InputError(f"{len(self.scores)} scores of {len(self.configs)} configurations")
        if len(self.configs) < FEWEST:
            message = (
                f"{counted(len(self.configs), 'scored configuration', 'are')} too few: {FEWEST} "
                "are needed"
            )
            raise InputError(message)
        if not np.isfinite(self.scores).all():
            raise InputError("a score is not finite")

    @property
    def names(self) -> tuple[str, ...]:
        """Hyperparameters of the configurations, in the order they come up."""
        return tuple(dict.fromkeys(name for config in self.configs for name in config))


@dataclass(frozen=True, eq=False)
class Prior:
    """Tables of one algorithm, and the portfolio made of them.

    Attributes:
        tasks: one table for each.
        portfolio: configurations to try first, best first: each adds most to the best score so far,
            in the mean over tasks.
        description, licence, citation: of the file.
        notice: text that a licence wants passed on with the data.
        built_with: the command that makes the file.
    """

    algorithm: str
    tasks: tuple[TaskTable, ...]
    portfolio: tuple[Config, ...] = ()
    description: str = ""
    licence: str = ""
    citation: str = ""
    notice: str = ""
    built_with: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the file, its hash included."""
        designs: dict[tuple[Config, ...], int] = {}
        tasks: list[dict[str, Any]] = []
        for task in self.tasks:
            design = designs.setdefault(task.configs, len(designs))
            entry = {"source": task.source, "environment": task.environment, "design": design}
            entry |= {"n_seeds": task.n_seeds} | {name: getattr(task, name) for name in _TEXTS}
            entry |= {"scores": [round(float(score), _SCORE_DIGITS) for score in task.scores]}
            tasks.append(entry | ({} if task.curves is None else {"curves": task.curves.to_dict()}))
        content: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "algorithm": self.algorithm,
            "description": self.description,
            "licence": self.licence,
            "citation": self.citation,
            "designs": [_columns(configs) for configs in designs],
            "tasks": tasks,
            "portfolio": [_rounded(plain(config)) for config in self.portfolio],
        }
        texts = {"notice": self.notice, "built_with": self.built_with}
        content |= {name: text for name, text in texts.items() if text}
        return content | {"sha256": sha256(content)}

    @property
    def sha256(self) -> str:
        """Hash of the content of the file."""
        return str(self.to_dict()["sha256"])


def save_prior(prior: Prior, file: str | Path, *, replace: bool = False) -> None:
    """Write a prior to a file, whole or not at all.

    Raises:
        InputError: it cannot lie there, or a file is there and may not be replaced.
    """
    path = free_output(file, (".json",), replace=replace)
    # One line a value would be ten times as long: one line an entry of the outermost mapping.
    content = prior.to_dict()
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in content.items()]
    write_whole(path, "{" + ",\n ".join(lines) + "}\n")


def load_prior(file: str | Path) -> Prior:
    """Read a prior from a file.

    Raises:
        InputError: there is none, it is no prior, of a later version, or not what was written.
    """
    path = Path(file)
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise InputError("too large for a prior", file=str(path))
        content = json.loads(read_regular(path))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(path)) from None
    except (ValueError, RecursionError) as error:  # UnicodeError is a ValueError
        message = f"no prior: not JSON ({shortened(str(error))})"
        raise InputError(message, file=str(path)) from None
    try:
        return prior_of(content)
    except InputError as error:
        raise error.in_file(str(path)) from None


def prior_of(content: object) -> Prior:
    """Make a prior of the content of its file.

    Raises:
        InputError: it is no prior, of a later version, or does not have its hash.
    """
    if not isinstance(content, Mapping) or content.get("format") != FORMAT:
        raise InputError(f"no prior: expected a JSON object with the format {FORMAT!r}")
    if content.get("version") != VERSION:
        message = f"version {shown(content.get('version'))}; this package reads {VERSION}"
        raise InputError(message, key="version")
    stated = content.get("sha256")
    if stated != sha256({name: item for name, item in content.items() if name != "sha256"}):
        raise InputError("does not have its hash: it was changed or is torn", key="sha256")
    try:
        designs = [_configs(design) for design in content["designs"]]
        tasks = tuple(
            TaskTable(
                source=str(task["source"]),
                algorithm=str(content["algorithm"]),
                environment=str(task["environment"]),
                configs=designs[task["design"]],
                scores=np.array(task["scores"], dtype=np.float64),
                n_seeds=int(task["n_seeds"]),
                **{name: str(task[name]) for name in _TEXTS},
                curves=_curves(task["curves"]) if "curves" in task else None,
            )
            for task in content["tasks"]
        )
        return Prior(
            algorithm=str(content["algorithm"]),
            tasks=tasks,
            portfolio=tuple(Config(config) for config in content["portfolio"]),
            description=str(content["description"]),
            licence=str(content["licence"]),
            citation=str(content["citation"]),
            notice=str(content.get("notice", "")),
            built_with=str(content.get("built_with", "")),
        )
    # The hash holds, so whoever wrote it wrote another format.
    except (KeyError, TypeError, ValueError, IndexError, zlib.error) as error:
        raise InputError(f"no prior: {type(error).__name__}: {shown(str(error))}") from None


def _curves(content: Mapping[str, Any]) -> Curves:
    return Curves(tuple(content["fractions"]), unpack(content["values"], tuple(content["shape"])))


def _columns(configs: Sequence[Config]) -> dict[str, Any]:
    names = dict.fromkeys(name for config in configs for name in config)
    columns = {name: [_rounded(plain(config.get(name))) for config in configs] for name in names}
    inactive = {
        name: [row for row, config in enumerate(configs) if name not in config] for name in names
    }
    return {"columns": columns, "inactive": {name: rows for name, rows in inactive.items() if rows}}


def _configs(design: Mapping[str, Any]) -> tuple[Config, ...]:
    columns = design["columns"]
    length = max((len(values) for values in columns.values()), default=0)
    absent = {name: set(rows) for name, rows in design["inactive"].items()}
    return tuple(
        Config(
            {
                name: values[row]
                for name, values in columns.items()
                if row not in absent.get(name, ())
            }
        )
        for row in range(length)
    )


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if is_number(value) and isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    return value
