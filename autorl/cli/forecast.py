"""The command forecast: where to search for a longer run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from autorl.cli.landscape_options import landscapes_of
from autorl.cli.options import AsJson, Sources, print_answer
from autorl.core.plain_text import number
from autorl.landscapes.analysis.forecast import AXES, Forecast, ceiling, forecasts, narrowed, read
from autorl.report.table import columns
from autorl.space import Hyperparameter

_Target = Annotated[float | None, typer.Option(min=1.0)]


def forecast(
    sources: Sources,
    steps: _Target = None,
    parameters: _Target = None,
    ends: bool = False,
    as_json: AsJson = False,
) -> None:
    """Say where to search for a longer run of a larger model.

    It is a range for each hyperparameter that holds the best value in 90 % of cases, or the reason
    why there is none. The sources are of one model size or several. A study file searches the
    ranges by `space: {forecast: DIR}`.

    Options:
        steps: Of the run that is planned; default the most seen.
        parameters: Of its model; default the most seen.
        ends: Count the last step of each study alone: where a rate has a schedule, a shorter run
            is no part of a longer one.
    """
    landscapes = landscapes_of(sources)
    study = read(landscapes, ends=ends)
    predictions = forecasts(study, steps, parameters)
    top = ceiling(study)
    top = top if top is None else landscapes[0].manifest.objective.sign * top
    document = {
        "target": {"steps": steps, "parameters": parameters},
        "ceiling": top,
        "hyperparameters": {
            name: _entry(study.items[name], prediction) for name, prediction in predictions.items()
        },
        "space": narrowed(landscapes[0].space, study, predictions),
    }
    rows = [_row(study.items[name], prediction) for name, prediction in predictions.items()]
    header = (
        "hyperparameter",
        "range of 90 %",
        "space",
        *(f"per decade of {axis}" for axis in AXES),
    )
    text = columns((*header, "held", "narrowed"), rows, indent="")
    if top is not None:
        text += f"\nceiling by a sigmoid: {number(top)}"
    print_answer(text, document, as_json=as_json)


def _entry(item: Hyperparameter, found: Forecast) -> dict[str, Any]:
    bounds = {"low": item.from_unit(found.low), "high": item.from_unit(found.high)}
    return asdict(found) | bounds | {"width": found.high - found.low}


def _row(item: Hyperparameter, found: Forecast) -> tuple[str, ...]:
    """Write a forecast as cells, slopes in parts of the space."""

    def interval(low: Any, high: Any, sign: str = "") -> str:
        return f"{low:{sign}.3g}..{high:{sign}.3g}"

    slopes = [found.slopes.get(axis, (None, None, False))[:2] for axis in AXES]
    return (
        item.name,
        interval(item.from_unit(found.low), item.from_unit(found.high)),
        interval(item.lower, item.upper),
        *("-" if low is None else interval(low, high, "+") for low, high in slopes),
        f"{found.covered} of {found.cells}",
        ("; ".join(found.refused) and f"no: {'; '.join(found.refused)}") or "yes",
    )
