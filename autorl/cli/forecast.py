"""The command forecast: where to search for a longer run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from autorl.cli.landscape_options import landscapes_of
from autorl.cli.options import AsJson, Sources, print_answer
from autorl.core.plain_text import number
from autorl.landscapes import forecast as analysis
from autorl.report.table import columns, table_of

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
    study = analysis.read(landscapes, ends=ends)
    predictions = analysis.forecasts(study, steps, parameters)
    top = analysis.ceiling(study)
    top = top if top is None else landscapes[0].manifest.objective.sign * top
    document = {
        "target": {"steps": steps, "parameters": parameters},
        "ceiling": top,
        "hyperparameters": {
            name: asdict(it)
            | dict(zip(("low", "high"), study.bounds(name, it), strict=True))
            | {"width": it.high - it.low}
            for name, it in predictions.items()
        },
        "space": analysis.narrowed(landscapes[0].space, study, predictions),
    }
    rows = [_row(study, name, prediction) for name, prediction in predictions.items()]
    text = columns(*table_of(rows), indent="")
    if top is not None:
        text += f"\nceiling by a sigmoid: {number(top)}"
    print_answer(text, document, as_json=as_json)


def _row(study: analysis.Study, name: str, found: analysis.Forecast) -> dict[str, str]:
    """Write a forecast as cells, slopes in parts of the space."""

    def interval(low: Any, high: Any, sign: str = "") -> str:
        return "-" if low is None else f"{low:{sign}.3g}..{high:{sign}.3g}"

    slopes = {axis: found.slopes.get(axis, (None, None, False))[:2] for axis in analysis.AXES}
    return {
        "hyperparameter": name,
        "range of 90 %": interval(*study.bounds(name, found)),
        "space": interval(study.items[name].lower, study.items[name].upper),
        **{f"per decade of {axis}": interval(*ends, "+") for axis, ends in slopes.items()},
        "held": f"{found.covered} of {found.cells}",
        "narrowed": f"no: {'; '.join(found.refused)}" if found.refused else "yes",
    }
