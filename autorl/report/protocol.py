"""Says in what the protocols of studies differ.

Scores of studies are comparable where they had the same budget, searched the same space, and were
chosen and judged on the same seeds, by the same objective on the same environment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autorl.core.plain_text import counted, listed, shortened
from autorl.core.plain_values import plain
from autorl.space import Space
from autorl.study.budget import Spent
from autorl.study.spec import Spec

_LONGEST = 48


@dataclass(frozen=True)
class Difference:
    """A part of the protocol that differs between studies.

    Attributes:
        part: its name.
        values: its value in each study, by name.
        fatal: whether scores have no common meaning at all.
    """

    part: str
    values: Mapping[str, str]
    fatal: bool = False

    @property
    def text(self) -> str:
        """The difference in words, by the studies of each value."""
        by_value: dict[str, list[str]] = {}
        for study, value in self.values.items():
            by_value.setdefault(value, []).append(study)
        said = "; ".join(
            f"{listed(studies, 3)}: {shortened(value, _LONGEST)}"
            for value, studies in by_value.items()
        )
        return f"{self.part} ({said})"


def protocol_differences(studies: Mapping[str, tuple[Spec, Spent]]) -> list[Difference]:
    """List the parts of the protocol that differ between studies.

    Args:
        studies: study file and what was spent, by the study's name.
    """
    protocols = {name: _protocol(spec, spent) for name, (spec, spent) in studies.items()}
    differences = []
    spaces = {name: spec.search_space for name, (spec, _) in studies.items()}
    for part in next(iter(protocols.values())):
        values = {name: protocol[part] for name, protocol in protocols.items()}
        if len(set(values.values())) < 2:
            continue
        if part == "space":
            values = _spaces(spaces)
        differences.append(Difference(part, values, fatal=part == "objective"))
    return differences


def _protocol(spec: Spec, spent: Spent) -> dict[str, str]:
    first = spec.objective[0]
    evaluation = spec.evaluation
    environment = spec.environment
    around = {"kwargs": environment.kwargs, "wrappers": environment.wrappers}
    named = ", ".join(f"{name} {plain(value)}" for name, value in around.items() if value)
    return {
        "objective": f"{first.direction} {first.metric}",
        "environment": f"{environment.id or 'its own task'}{f' ({named})' if named else ''}",
        "budget": _budget(spec, spent),
        "space": spec.search_space.hash,
        "tuning seeds": str(list(spec.plan.tuning)),
        "test seeds": str(list(spec.plan.test)),
        "length": counted(spec.fidelity.steps, spec.step, form=","),
        "score": f"{first.reduce} of a run, {evaluation.aggregate} over seeds",
        "evaluation": f"{counted(spec.fidelity.evaluations, 'time')}, "
        f"{counted(spec.fidelity.episodes, 'episode')}",
    }


def _budget(spec: Spec, spent: Spent) -> str:
    stated = spec.budget.model_dump(exclude_none=True)
    extended = {
        name: value + (spent.extra_runs if name in ("runs", "configurations") else 0)
        for name, value in stated.items()
    }
    return ", ".join(
        counted(value, name.removesuffix("s").replace("_", " "), form="g")
        for name, value in extended.items()
    )


def _spaces(spaces: Mapping[str, Space]) -> dict[str, str]:
    """Say of each space what differs from the first."""
    first = next(iter(spaces.values()))
    texts = {}
    for name, space in spaces.items():
        added = sorted(set(space.names) - set(first.names))
        missing = sorted(set(first.names) - set(space.names))
        changed = [
            item
            for item in space.names
            if item in first.names and space.hyperparameters[item] != first.hyperparameters[item]
        ]
        parts = {"also": added, "without": missing, "other": changed}
        said = ", ".join(f"{word} {listed(names, 3)}" for word, names in parts.items() if names)
        text = said or f"the same {len(space)} with other constraints"
        texts[name] = counted(len(first), "hyperparameter") if space.hash == first.hash else text
    return texts


def text_of(differences: Sequence[Difference]) -> str:
    """Write differences as a part of a line."""
    return ", ".join(difference.text for difference in differences)
