"""The space of a study that `space: {forecast: DIR}` says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autorl.core.numbers import is_number
from autorl.core.plain_text import shown
from autorl.core.types import InputError
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.forecast import forecasts, narrowed, read
from autorl.landscapes.library import find_landscape
from autorl.space.document import unknown_key

_KEY = "forecast"
_KEYS = (_KEY, "steps", "parameters", "ends")


def write_out_forecast(data: dict[str, Any]) -> list[str]:
    """Replace a forecast by the space it predicts.

    The target's steps are those of the study unless it says `steps`.

    Returns:
        A line for each hyperparameter.

    Raises:
        InputError: there is no such study, or it narrows nothing.
    """
    stated = data.get("space")
    if not isinstance(stated, dict) or _KEY not in stated:
        return []
    for key in stated:
        if key not in _KEYS:
            raise InputError(unknown_key(key, _KEYS), key="space")
    fidelity = data.get("fidelity")
    steps = fidelity.get("steps") if isinstance(fidelity, dict) else None
    target = {"steps": stated.get("steps", steps), "parameters": stated.get("parameters")}
    for name, value in target.items():
        if value is not None and not is_number(value, 1):
            raise InputError(f"expected a number from 1, got {shown(value)}", key=f"space.{name}")
    names = stated[_KEY] if isinstance(stated[_KEY], list) else [stated[_KEY]]
    sources = []
    for name in names:
        place = find_landscape(str(name), folder=data["path"])
        if place is None:
            raise InputError(f"no study and no landscape {shown(name)}", key=f"space.{_KEY}")
        sources.append(Dataset(Path(place)))
    study = read(sources, ends=bool(stated.get("ends", False)))
    predictions = forecasts(study, **target)
    lines = [
        f"forecast of {name}: "
        + (f"kept whole, {'; '.join(prediction.refused)}" if prediction.refused else "narrowed")
        for name, prediction in predictions.items()
    ]
    if all(prediction.refused for prediction in predictions.values()):
        raise InputError(f"narrows nothing: {'. '.join(lines)}", key=f"space.{_KEY}")
    data["space"] = narrowed(sources[0].space, study, predictions)
    return lines
