"""Has defaults give way to what a study file says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autorl.core.types import InputError
from autorl.space import load_space
from autorl.study.spec.spec import LongRolloutError, Spec

FEWEST_EPISODES = 2  # the default's least: the return of one has no spread


def with_default_episodes(spec: Spec) -> Spec:
    """Copy a spec with fewer episodes, if nobody wrote how many.

    All evaluations of a run then take at most a tenth of its steps, or two episodes each.
    """
    fidelity = spec.fidelity
    if "episodes" in fidelity.model_fields_set or spec.longest_episode is None:
        return spec
    a_tenth = fidelity.steps // (10 * len(spec.evaluation_steps) * spec.longest_episode)
    episodes = min(fidelity.episodes, max(FEWEST_EPISODES, a_tenth))
    update = {"episodes": episodes}
    return spec.model_copy(update={"fidelity": fidelity.model_copy(update=update)})


def with_shorter_rollout(spec: Spec, written: Mapping[str, object]) -> Spec:
    """Copy a spec with defaults that give way to its file.

    First there are fewer evaluations, then a shorter default rollout. If both are written the spec
    stays as it is: its space then says which rule it breaks.

    Args:
        spec: the checked study file.
        written: the study file, before its defaults were filled in.
    """
    fidelity = written.get("fidelity")
    stated = isinstance(fidelity, Mapping) and "evaluations" in fidelity
    most = spec.fidelity.evaluations
    copy = spec
    for count in () if stated else range(most - 1, 0, -1):
        if not _has_long_rollout(copy):
            break
        fewer = spec.fidelity.model_copy(update={"evaluations": count})
        copy = spec.changed(fidelity=fewer)
    lines = [line for part in _parts(spec, written).values() for line in _moved(spec, part)]
    if copy is not spec:
        count = copy.fidelity.evaluations
        lines.append(f"fidelity.evaluations: {count}, not {most}: a rollout ends before each")
    if _has_long_rollout(copy):
        shorter = _with_shorter_defaults(copy, written)
        if shorter is None:
            return spec
        copy, shortened = shorter
        lines += shortened
    return copy.remember(given_way=lines)


def _parts(spec: Spec, written: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parts of a study file with spaces, by algorithm."""
    return {"": written} if spec.algorithms is None else written["algorithms"]


def _moved(spec: Spec, part: Mapping[str, Any]) -> list[str]:
    """Say which defaults went to a bound that the study file narrows."""
    space = part.get("space")
    if not isinstance(space, dict) or "extends" not in space:
        return []
    folder = Path(spec.path) if spec.path else None
    try:
        base = load_space(space["extends"], folder).hyperparameters
        narrowed = load_space(space, folder).hyperparameters
    except InputError:  # which the checks of the space locate
        return []
    lines = []
    for name, entry in (space.get("hyperparameters") or {}).items():
        stated = isinstance(entry, Mapping) and {"default", "type", "value"} & set(entry)
        if stated or name not in base or name not in narrowed:
            continue
        before = base[name].default
        after = narrowed[name].default
        if after != before and after in (narrowed[name].lower, narrowed[name].upper):
            lines.append(f"default of {name}: {after:g}, not {before:g}: it is the nearest bound")
    return lines


def _has_long_rollout(spec: Spec) -> bool:
    try:
        _ = spec.spaces
    except LongRolloutError:
        return True
    except InputError:  # another fault, which the checks of the space locate
        return False
    return False


def _with_shorter_defaults(spec: Spec, written: Mapping[str, Any]) -> tuple[Spec, list[str]] | None:
    """Find the longest defaults of `n_steps` that fit, where none is written."""
    lines = []
    for name, section in _parts(spec, written).items():
        alone = spec.changed(algorithms={name: spec.algorithms[name]}) if spec.algorithms else spec
        if not _has_long_rollout(alone):
            continue
        for space, line in _shorter(spec, name, section):
            if not _has_long_rollout(_with_space(alone, name, space)):
                spec = _with_space(spec, name, space)
                lines.append(f"{name}: {line}" if name else line)
                break
        else:
            return None
    return spec, lines


def _shorter(
    spec: Spec, name: str, section: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield spaces with ever shorter defaults of `n_steps`, and lines for people."""
    space = spec.parts[name].space
    stated = section.get("space")
    named = stated.get("hyperparameters") if isinstance(stated, Mapping) else None
    if isinstance(named, Mapping) and "n_steps" in named:
        return
    folder = Path(spec.path) if spec.path else None
    rollout = load_space(space, folder).hyperparameters.get("n_steps")
    default: Any = getattr(rollout, "default", 0)
    choices: Any = getattr(rollout, "choices", ())
    content: dict[str, Any] = space if isinstance(space, dict) else {"extends": space}
    for steps in sorted((n for n in choices if n < default), reverse=True):
        changed = dict(content.get("hyperparameters") or {})
        changed["n_steps"] = {**(changed.get("n_steps") or {}), "default": steps}
        line = f"default of n_steps: {steps}, not {default}: evaluations are near"
        yield {**content, "hyperparameters": changed}, line


def _with_space(spec: Spec, name: str, space: dict[str, Any]) -> Spec:
    if spec.algorithms is None:
        return spec.changed(space=space)
    part = spec.algorithms[name].model_copy(update={"space": space})
    return spec.changed(algorithms={**spec.algorithms, name: part})
