"""The prior of one study: what its frozen study file holds.

A study never depends on a file that may change, move or disappear. The tables, mapped to its space,
and the parameters of their surrogates therefore stand in its study file, and with it in its log: a
landscape of 256 configurations takes about 6 kB, and tasks of one design share most of it.

Arrays are numbers of 16 bits, compressed, as text: data that nothing is executed of.
"""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from autorl.core.plain_text import counted
from autorl.core.types import InputError
from autorl.optimizers.priors.families import family_of
from autorl.optimizers.priors.mapping import BEYOND, MappedTask, searched
from autorl.optimizers.priors.packed import LEVELS, checked, pack, unpack, unreadable
from autorl.optimizers.priors.table import Array
from autorl.optimizers.priors.used import sources_text
from autorl.space import Space
from autorl.space.canonical import sha256

VERSION = 1
MOST_TASKS = 32
"""Tables that a study takes; what comes later is left out, and said."""
_KEY = "optimizer.prior_data"


@dataclass(frozen=True, eq=False)
class StudyTask:
    """A task as a study knows it.

    Attributes:
        source, environment: where its table is from.
        units, scores, recorded: as `MappedTask` has them.
        logs: parameters of its surrogate, as `_pb2_gp.fit` gives them.
        weight: what it counts before the study has results; those of a prior have the sum 1.
        sha256: of the source's manifest.
        note: what it shares with the space.
        prior: name of the prior file that it is from, "" of a landscape or study.
    """

    source: str
    environment: str
    units: Array
    scores: Array
    recorded: np.ndarray
    logs: tuple[float, ...]
    weight: float = 1.0
    sha256: str = ""
    note: str = ""
    prior: str = ""


@dataclass(frozen=True, eq=False)
class StudyPrior:
    """The prior of a study.

    Attributes:
        names: searched hyperparameters, the columns of the tables.
        tasks: what it is made of.
        trust: part of the proposals that follow it before evidence.
        skipped: a line for each source that is no part of it.
        family: of the study's environment, "" where that is not known.
    """

    names: tuple[str, ...]
    tasks: tuple[StudyTask, ...]
    trust: float = 0.0
    skipped: tuple[str, ...] = ()
    family: str = ""

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StudyPrior) and self.sha256 == other.sha256

    @cached_property
    def sha256(self) -> str:
        """Hash of its content."""
        return str(self.to_dict()["sha256"])

    def to_dict(self) -> dict[str, Any]:
        """Return its content for a study file, in JSON types."""
        designs: dict[str, int] = {}
        tasks = []
        for task in self.tasks:
            packed = pack((task.units + BEYOND) / (1 + 2 * BEYOND))
            entry = {
                "source": task.source,
                "environment": task.environment,
                "sha256": task.sha256,
                "note": task.note,
                "rows": len(task.scores),
                "design": designs.setdefault(packed, len(designs)),
                "recorded": "".join("01"[int(flag)] for flag in task.recorded),
                "scores": pack(task.scores),
                "logs": list(task.logs),
                "weight": task.weight,
                "prior": task.prior,
            }
            tasks.append(entry)
        content = {
            "version": VERSION,
            "names": list(self.names),
            "trust": self.trust,
            "skipped": list(self.skipped),
            "designs": list(designs),
            "tasks": tasks,
            "family": self.family,
        }
        return {"sha256": sha256(content)} | content

    def lines(self) -> tuple[str, ...]:
        """Describe which sources it is made of, and which not and why."""
        left_out = [f"no part of the prior: {line}" for line in self.skipped]
        if not self.tasks:
            head = "no prior: no landscape of this algorithm was found that can be used"
            return (head, *left_out)
        names = sources_text((task.prior, task.source) for task in self.tasks)
        related = sum(map(self._related, self.tasks))
        family = f", {related} of the family {self.family}" if self.family else ""
        head = (
            f"prior of {counted(len(self.tasks), 'task')}{family}: {names}; hash "
            f"{self.sha256[:12]}, trusted in {self.trust:.0%} of the proposals before evidence; "
            "see `autorl prior show NAME`"
        )
        used = [
            f"prior: {task.source} (weight {task.weight:.2f}"
            f"{', of the family' * self._related(task)}): {task.note}"
            for task in self.tasks
        ]
        return (head, *used, *left_out)

    def _related(self, task: StudyTask) -> bool:
        return bool(self.family) and family_of(task.environment) == self.family


def searched_names(space: Space) -> tuple[str, ...]:
    """Name the hyperparameters that the columns of a prior stand for."""
    return tuple(item.name for item in searched(space))


def quantized(task: MappedTask) -> MappedTask:
    """Return a task with numbers as a study file holds them."""
    span = 1 + 2 * BEYOND
    units = np.rint((task.units + BEYOND) / span * LEVELS) / LEVELS * span - BEYOND
    scores = np.rint(task.scores * LEVELS) / LEVELS
    return MappedTask(task.table, units, scores, task.recorded, task.note)


def study_prior_of(content: Mapping[str, Any], space: Space) -> StudyPrior:
    """Read the prior of a study.

    Raises:
        InputError: it was changed, is none, or was made for another space.
    """
    body = checked(content, VERSION, _KEY)
    names = searched_names(space)
    if tuple(body["names"]) != names:
        raise InputError("was made for another space", key=f"{_KEY}.names")
    try:
        tasks = tuple(_task(entry, body["designs"], len(names)) for entry in body["tasks"])
        trust = float(body["trust"])
        return StudyPrior(names, tasks, trust, tuple(body["skipped"]), body["family"])
    except (KeyError, TypeError, ValueError, IndexError, zlib.error, binascii.Error) as error:
        raise unreadable(error, _KEY) from None


def _task(entry: Mapping[str, Any], designs: Sequence[str], columns: int) -> StudyTask:
    rows = int(entry["rows"])
    units = unpack(designs[entry["design"]], (rows, columns))
    return StudyTask(
        source=entry["source"],
        environment=entry["environment"],
        units=units * (1 + 2 * BEYOND) - BEYOND,
        scores=unpack(entry["scores"], (rows,)),
        recorded=np.array([flag == "1" for flag in entry["recorded"]]),
        logs=tuple(entry["logs"]),
        weight=float(entry["weight"]),
        sha256=entry["sha256"],
        note=entry["note"],
        prior=entry["prior"],
    )
