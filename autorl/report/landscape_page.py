"""A landscape as one HTML file: what matters, is best, is noise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from html import escape
from typing import Any

import numpy as np

from autorl.landscapes import Landscape, analysis
from autorl.landscapes.analysis import Answer, Axis, Chart, Line
from autorl.plain_values import plain
from autorl.report.analysed import answered, importance_section, noise_text
from autorl.report.exploring import Trial, chosen, parallel, slices
from autorl.report.page.document import Section, page, table, tried
from autorl.report.page.draw import figure
from autorl.report.text import number, value_text
from autorl.rlhf.overoptimization import fit, frontier, policies
from autorl.types import InputError

_MOST_ROWS = 500
_MOST_DEPENDENCES = 4
_MOST_POLICIES = 800


def landscape_html(data: Landscape) -> str:
    """Write the report of a landscape.

    A study's folder may be read as one. What an analysis cannot answer with these data is said in
    its place.
    """
    manifest = data.manifest
    matters, order = importance_section(data)
    trials, ranked = _trials(data)
    label = f"{manifest.objective.metric} (mean over seeds)"
    space = data.space
    sections = [
        Section("importance", "What matters", matters + _dependences(data, order)),
        Section("best", "Best configurations", ranked),
        Section(
            "configurations",
            "Configurations",
            parallel(space, trials, label) + slices(space, trials, label),
        ),
        Section("learning", "Learning", _learning(data)),
        Section("noise", "Noise and choice", noise_text(data) + _choice(data)),
        Section("proxy", "Proxy and gold", _proxy(data)),
        Section("provenance", "Provenance", _provenance(data)),
    ]
    return page(f"{manifest.id} · autorl", _headline(data), sections)


def _headline(data: Landscape) -> str:
    manifest = data.manifest
    parts = [
        f"<h1>{escape(manifest.id)}</h1><p class=note>{escape(manifest.description)}</p>",
        tried(lambda: _best(data), "best configuration"),
    ]
    roles = ", ".join(f"{len(seeds)} {role}" for role, seeds in manifest.seeds.items())
    objective = manifest.objective
    unit = manifest.step_unit.replace("_", " ")
    rows = [
        ("algorithm", manifest.algorithm),
        ("environment", manifest.environment),
        ("objective", f"{objective.metric}, {objective.direction}"),
        ("configurations", f"{len(data.grid.config_ids):,}"),
        ("seeds", roles),
        ("evaluations", f"{len(manifest.steps)} to step {manifest.steps[-1]:,} ({unit})"),
        ("licence", manifest.licence),
    ]
    parts.append(table((), rows))
    parts += [f"<p><b>Caution:</b> {escape(text)}</p>" for text in manifest.notes[:10]]
    return "".join(parts)


def _best(data: Landscape) -> str:
    choice = data.best()
    test = "" if choice.test is None else f", on test seeds <b>{number(choice.test)}</b>"
    by = f"{choice.by} of {choice.reduce}, {choice.origin}"
    return (
        f"<p class=headline>Configuration {choice.config_id} is best: on {escape(choice.seeds)} "
        f"seeds {number(choice.value)} (optimistic: chosen by it){test}</p>"
        f"<p class=note>Ranked by {escape(by)}.</p>"
    )


def _dependences(data: Landscape, order: list[str]) -> str:
    """Draw how the score depends on what matters most."""

    def dependence(name: str) -> str:
        answer = analysis.analyse(data, "dependence", [name])
        return figure(analysis.chart_of(answer), small=True, kind="dependence")

    charts = [
        tried(partial(dependence, name), f"dependence on {name}")
        for name in order[:_MOST_DEPENDENCES]
    ]
    interaction = answered(lambda: analysis.analyse(data, "interaction", order[:8]), "interaction")
    return f'<div class="grid-of">{"".join(charts)}</div>{interaction}' if order else ""


def _trials(data: Landscape) -> tuple[list[Trial], str]:
    """Read configurations with their scores, and write the table of the best.

    Returns:
        What charts show, and the table.
    """
    try:
        top = data.top(len(data.grid.config_ids))
    except InputError as error:
        return [], f"<p class=note>best configurations: {escape(error.message)}.</p>"
    names = data.space.names
    score = str(top.columns[1])
    trials = []
    for place, row in enumerate(top.to_dict("records")):
        identifier = int(row["config_id"])
        trials.append(
            Trial(identifier, "complete", _score(row[score]), place == 0, data.config(identifier))
        )
    scores = [str(name) for name in top.columns if name not in names and name != "config_id"]
    rows = []
    for trial, row in zip(trials[:_MOST_ROWS], top.to_dict("records"), strict=False):
        values = [
            value_text(plain(trial.values[name])) if name in trial.values else "" for name in names
        ]
        rows.append([trial.number, *(number(_score(row[name])) for name in scores), *values])
    header = ["configuration", *(name.replace("_", " ") for name in scores), *names]
    more = len(trials) - len(rows)
    note = f"<p class=note>{more} more are in the landscape's tables.</p>" if more > 0 else ""
    maximize = data.manifest.objective.direction == "maximize"
    return chosen(trials, maximize=maximize), table(header, rows, sortable=True) + note


def _score(value: Any) -> float | None:
    return None if value is None or np.isnan(value) else float(value)


def _learning(data: Landscape) -> str:
    names = {
        "curves": "learning curves",
        "budget": "early choice",
        "over-time": "importance over time",
    }
    return "".join(answered(_asked(data, kind), name) for kind, name in names.items())


def _asked(data: Landscape, kind: str) -> Callable[[], Answer]:
    return lambda: analysis.analyse(data, kind)


def _choice(data: Landscape) -> str:
    """Draw what choosing gains, how many results differ, and what phases change."""
    parts = [answered(_asked(data, "tunability"), "tunability")]

    def redundancy() -> str:
        row = analysis.analyse(data, "redundancy").table.iloc[0]
        text = (
            f"Seed noise lets one tell {row['distinct']:.0f} results apart of "
            f"{row['configurations']:.0f}; {row['as_good_as_best']:.0f} are as good as the best."
        )
        return f"<p>{escape(text)}</p>"

    parts.append(tried(redundancy, "redundancy"))
    if len(data.phases) > 1:
        parts.append(answered(_asked(data, "phases"), "phases"))
    return "".join(parts)


def _proxy(data: Landscape) -> str:
    """Draw gold over the distance from the reference policy.

    Empty without a proxy.
    """
    if not {"kl", "proxy", "gold", "reference_gold"} <= set(data.metrics):
        return ""
    return tried(lambda: figure(_gold_chart(data), kind="proxy"), "over-optimisation")


def _gold_chart(data: Landscape) -> Chart:
    role = "test" if "test" in data.manifest.seeds else "tuning"
    every = policies(data, role).head(_MOST_POLICIES)
    distance = np.sqrt(np.maximum(every["kl"].to_numpy(float), 0.0))
    names = tuple(
        f"configuration {number_of}, step {step:,}, proxy {proxy:.3g}"
        for number_of, step, proxy in zip(
            every["config_id"], every["step"], every["proxy"], strict=True
        )
    )
    marks = [
        Line(
            "gold of all policies",
            distance,
            every["gold"].to_numpy(float),
            None,
            names,
            "o",
            joined=False,
            muted=True,
        ),
        Line(
            "proxy of the same",
            distance,
            every["proxy"].to_numpy(float),
            None,
            names,
            "o",
            joined=False,
        ),
    ]
    text = f"Means over {role} seeds."
    if role == "test":
        nearest = frontier(data)
        at = np.sqrt(np.maximum(nearest["kl"].to_numpy(float), 0.0))
        marks.append(
            Line(
                "gold where most proxy is had so near",
                at,
                nearest["gold"].to_numpy(float),
                None,
                marker="s",
            )
        )
        if nearest["kl"].nunique() > 2:
            origin = float(nearest["reference_gold"].mean())
            fitted = fit(nearest["kl"], nearest["gold"], origin=origin)
            grid = np.linspace(0.0, float(at.max()), 60)
            label = f"d (alpha - beta log d), R2 {fitted.r2:.2f} (Gao et al. 2023)"
            marks.append(Line(label, grid, fitted.gold(grid**2)))
    x = Axis("d = square root of KL to the reference policy", limits=(0.0, None))
    return Chart("Gold over the distance from the reference", text, x, Axis("reward"), tuple(marks))


def _provenance(data: Landscape) -> str:
    manifest = data.manifest
    packages = ", ".join(
        f"{name} {about.get('version', '') if hasattr(about, 'get') else about}"
        for name, about in manifest.packages.items()
    )
    rows = [
        ("version", manifest.version),
        ("made", manifest.created),
        ("by", manifest.creator),
        ("commit", manifest.commit),
        ("hardware", manifest.hardware),
        ("sampler", _pairs(manifest.sampler)),
        ("evaluation", _pairs(manifest.evaluation)),
        ("packages", packages),
        ("citation", manifest.citation),
        ("from", ", ".join(manifest.parents)),
        ("space", f"sha256 {data.space.hash[:16]}"),
    ]
    return table((), [(name, value) for name, value in rows if str(value)])


def _pairs(values: Any) -> str:
    return ", ".join(f"{name} {value_text(plain(value))}" for name, value in values.items())
