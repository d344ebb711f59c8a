"""The prior of one study: what its frozen study file holds.

A study never depends on a file that may change, move or disappear. The tables, mapped to its space,
therefore stand in its study file, and with it in its log: a landscape of 256 configurations takes
about 6 kB, and tasks of one design share most of it.

Arrays are numbers of 16 bits, compressed, as text: data that nothing is executed of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from autorl.core.plain_text import counted
from autorl.core.types import InputError
from autorl.optimizers.model_share import sources_text
from autorl.optimizers.priors.families import family_of
from autorl.optimizers.priors.mapping import BEYOND, MappedTask, searched
from autorl.optimizers.priors.packed import opened, pack, sealed, unpack
from autorl.optimizers.priors.trust import Belief, Trust
from autorl.space import Space

_KEY = "optimizer.prior_data"
_SPAN = 1 + 2 * BEYOND
VALUES = "values"
PLACES = "places"
"""Readings of earlier tables: an optimum keeps its value, or its place in the range."""


@dataclass(frozen=True, eq=False)
class StudyPrior:
    """The prior of a study.

    Attributes:
        names: searched hyperparameters, the columns of the tables.
        readings: what it is made of, as tasks of the study's space: by `VALUES`, and by `PLACES` as
            well where recorded ranges differ from the study's.
        trust: in each reading, before evidence.
        skipped: a line for each source that is no part of it.
        family: of the study's environment, "" where that is not known.
    """

    names: tuple[str, ...]
    readings: Mapping[str, tuple[MappedTask, ...]] = field(default_factory=dict)
    trust: Mapping[str, Trust] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    family: str = ""

    @property
    def tasks(self) -> tuple[MappedTask, ...]:
        """The tasks, read by value."""
        return self.readings.get(VALUES, ())

    @cached_property
    def sha256(self) -> str:
        """Hash of its content."""
        return str(self.to_dict()["sha256"])

    def to_dict(self) -> dict[str, Any]:
        """Return its content for a study file, in JSON types."""
        designs: dict[str, int] = {}
        return sealed(
            {
                "names": list(self.names),
                "trust": {name: dataclasses.asdict(trust) for name, trust in self.trust.items()},
                "skipped": list(self.skipped),
                "tasks": {
                    name: [_packed(task, designs) for task in tasks]
                    for name, tasks in self.readings.items()
                },
                "designs": list(designs),
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
        share = max(trust.share for trust in self.trust.values())
        head = (
            f"prior of {counted(len(self.tasks), 'task')}{family}: {names}; hash "
            f"{self.sha256[:12]}, makes {share:.0%} of the proposals before evidence; "
            "see `autorl prior show NAME`"
        )
        if PLACES in self.readings:
            head += f". Recorded ranges differ: {', '.join(map(self._read, self.trust))}"
        used = [
            f"prior: {task.source} (weight {task.weight:.2f}{', of the family' * kin}): {task.note}"
            for task, kin in zip(self.tasks, related, strict=True)
        ]
        return (head, *used, *left_out)

    def _read(self, reading: str) -> str:
        """Describe the trust in one reading."""
        trust = self.trust[reading]
        hits, agreement = (
            f"{belief.mean:.2f} +- {belief.deviation:.2f}"
            for belief in (trust.hits, trust.agreement)
        )
        return f"read by {reading} {trust.share:.0%} (hits {hits}, agreement {agreement})"


def _packed(task: MappedTask, designs: dict[str, int]) -> dict[str, Any]:
    """Return a task's content, which names its places by number in `designs`."""
    units = pack((task.units + BEYOND) / _SPAN)
    return {name: value for name, value in vars(task).items() if name != "units"} | {
        "rows": len(task.scores),
        "design": designs.setdefault(units, len(designs)),
        "recorded": "".join("01"[int(flag)] for flag in task.recorded),
        "scores": pack(task.scores),
    }


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
        readings = {}
        for name, entries in body["tasks"].items():
            readings[name] = tuple(_opened(entry, body["designs"], len(names)) for entry in entries)
        trust = {
            name: Trust(**{key: Belief(**belief) for key, belief in beliefs.items()})
            for name, beliefs in body["trust"].items()
        }
        made = StudyPrior(names, readings, trust, tuple(body["skipped"]), body["family"])
    if names != searched_names(space):
        raise InputError("was made for another space", key=f"{_KEY}.names")
    return made


def _opened(entry: dict[str, Any], designs: Sequence[str], width: int) -> MappedTask:
    rows = entry.pop("rows")
    units = unpack(designs[entry.pop("design")], (rows, width))
    read = {
        "units": units * _SPAN - BEYOND,
        "scores": unpack(entry["scores"], (rows,)),
        "recorded": np.array([flag == "1" for flag in entry["recorded"]]),
    }
    return MappedTask(**entry | read)
