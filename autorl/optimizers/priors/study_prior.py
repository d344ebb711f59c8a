"""The prior of one study: what its frozen study file holds.

A study never depends on a file that may change, move or disappear. The tables, mapped to its space,
and the parameters of their surrogates therefore stand in its study file, and with it in its log: a
landscape of 256 configurations takes about 6 kB, and tasks of one design share most of it.

Arrays are numbers of 16 bits, compressed, as text: data that nothing is executed of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from autorl.core.plain_text import counted
from autorl.core.types import InputError
from autorl.optimizers.model_share import sources_text
from autorl.optimizers.priors.families import family_of
from autorl.optimizers.priors.mapping import BEYOND, MappedTask, searched
from autorl.optimizers.priors.packed import opened, pack, sealed, unpack
from autorl.space import Space

_KEY = "optimizer.prior_data"
_SPAN = 1 + 2 * BEYOND


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
    tasks: tuple[MappedTask, ...]
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
            packed = pack((task.units + BEYOND) / _SPAN)
            tasks.append(
                {name: value for name, value in vars(task).items() if name != "units"}
                | {
                    "rows": len(task.scores),
                    "design": designs.setdefault(packed, len(designs)),
                    "recorded": "".join("01"[int(flag)] for flag in task.recorded),
                    "scores": pack(task.scores),
                    "logs": list(task.logs),
                }
            )
        return sealed(
            {
                "names": list(self.names),
                "trust": self.trust,
                "skipped": list(self.skipped),
                "designs": list(designs),
                "tasks": tasks,
                "family": self.family,
            }
        )

    def lines(self) -> tuple[str, ...]:
        """Describe which sources it is made of, and which not and why."""
        left_out = [f"no part of the prior: {line}" for line in self.skipped]
        if not self.tasks:
            head = "no prior: no landscape of this algorithm was found that can be used"
            return (head, *left_out)
        names = sources_text((task.prior, task.source) for task in self.tasks)
        related = [
            bool(self.family) and family_of(task.environment) == self.family for task in self.tasks
        ]
        family = f", {sum(related)} of the family {self.family}" if self.family else ""
        head = (
            f"prior of {counted(len(self.tasks), 'task')}{family}: {names}; hash "
            f"{self.sha256[:12]}, trusted in {self.trust:.0%} of the proposals before evidence; "
            "see `autorl prior show NAME`"
        )
        used = [
            f"prior: {task.source} (weight {task.weight:.2f}{', of the family' * kin}): {task.note}"
            for task, kin in zip(self.tasks, related, strict=True)
        ]
        return (head, *used, *left_out)


def searched_names(space: Space) -> tuple[str, ...]:
    """Name the hyperparameters that the columns of a prior stand for."""
    return tuple(item.name for item in searched(space))


def study_prior_of(content: Mapping[str, Any], space: Space) -> StudyPrior:
    """Read the prior of a study.

    Raises:
        InputError: it was changed, is none, or was made for another space.
    """
    with opened(content, _KEY) as body:
        names = tuple(body["names"])
        tasks = []
        for entry in body["tasks"]:
            rows = entry.pop("rows")
            units = unpack(body["designs"][entry.pop("design")], (rows, len(names)))
            read = {
                "units": units * _SPAN - BEYOND,
                "scores": unpack(entry["scores"], (rows,)),
                "recorded": np.array([flag == "1" for flag in entry["recorded"]]),
                "logs": tuple(entry["logs"]),
            }
            tasks.append(MappedTask(**entry | read))
        made = StudyPrior(
            names, tuple(tasks), float(body["trust"]), tuple(body["skipped"]), body["family"]
        )
    if names != searched_names(space):
        raise InputError("was made for another space", key=f"{_KEY}.names")
    return made
