"""A landscape as one HTML file: what matters, is best, is noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autorl.core.plain_text import number
from autorl.core.plain_values import plain
from autorl.core.types import InputError
from autorl.landscapes import Landscape, analysis
from autorl.landscapes.analysis import Answer
from autorl.report.configurations import COMPLETE, ConfigurationRow
from autorl.report.exploring import chosen, parallel, slices
from autorl.report.importance import noise_text
from autorl.report.pages.chart import Axis, Chart, Line
from autorl.report.pages.document import (
    Block,
    Figure,
    Headline,
    Row,
    Section,
    Table,
    Text,
    page,
    small,
    tried,
)
from autorl.report.text import value_cells, value_text
from autorl.trainers.language.overoptimization import fit, frontier, policies

_MOST_ROWS = 500
_MOST_DEPENDENCES = 4
_MOST_POLICIES = 800
_MOST_NOTES = 4


def landscape_html(data: Landscape) -> str:
    """Write the report of a landscape.

    A study's folder may be read as one. An analysis that cannot answer with these data says so in
    its place.
    """
    manifest = data.manifest
    matters, order = _matters(data)
    trials, ranked = _trials(data)
    label = f"{manifest.objective.metric} (mean over seeds)"
    space = data.space
    cautions = [Text(text, "caution") for text in manifest.notes[:10]]
    sections = [
        Section("best", "Result", [*_best(data), *cautions], half=True),
        Section("data", "Data", [_facts(data)], half=True),
        Section("importance", "What matters", [Row(matters), *_dependences(data, order)]),
        Section("ranking", "Best configurations", ranked),
        Section(
            "configurations",
            "Configurations",
            [*parallel(space, trials, label), *slices(space, trials, label)],
        ),
        Section("learning", "Learning", _learning(data)),
        Section("noise", "Noise and choice", _noise(data)),
        Section("proxy", "Proxy and gold", _proxy(data)),
        Section("provenance", "Provenance", [_provenance(data)]),
    ]
    return page(manifest.id, manifest.description, sections)


def landscape_blocks(data: Landscape) -> list[Block]:
    """Make the parts that are shown beside the code that reads it."""
    curves = _answered(data, "curves", "learning curves")
    return [Text(data.manifest.description), *_best(data), _facts(data), *curves]


def _facts(data: Landscape) -> Table:
    manifest = data.manifest
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
    return Table((), rows)


def _best(data: Landscape) -> list[Block]:
    """Say which configuration is best, by test seeds where there are any."""

    def say() -> list[Block]:
        choice = data.best()
        ranked = f"Ranked by {choice.by} of {choice.reduce}, {choice.origin}."
        name = f"Configuration {choice.config_id} is best"
        tuning = f"{number(choice.value)} on {choice.seeds} seeds (optimistic: chosen by it)"
        if choice.test is None:
            return [Headline(f"{name}: {tuning}.", "", ranked)]
        headline = Headline(
            number(choice.test), f"{name}: score on test seeds", f"{tuning}. {ranked}"
        )
        if not choice.tasks:
            return [headline]
        gaps = (
            f"Gap by seeds {number(choice.gap_of_seeds)}, by tasks {number(choice.gap_of_tasks)}."
        )
        rows = [[value.task, number(value.tuning), number(value.test)] for value in choice.tasks]
        return [headline, Text(gaps), Table(("task", "tuning seeds", "test seeds"), rows)]

    return tried(say, "best configuration")


def _dependences(data: Landscape, order: list[str]) -> list[Block]:
    """Draw how the score depends on what matters most."""
    figures = [
        block
        for name in order[:_MOST_DEPENDENCES]
        for block in _answered(data, "dependence", f"dependence on {name}", [name])
    ]
    if not order:
        return []
    return [*small(figures), *_answered(data, "interaction", "interaction", order[:8])]


def _trials(data: Landscape) -> tuple[list[ConfigurationRow], list[Block]]:
    """Read configurations with their scores, and write the table of the best.

    Returns:
        The data of the charts, and the table.
    """
    try:
        top = data.top(len(data.grid.config_ids))
    except InputError as error:
        return [], [Text(f"best configurations: {error.message}.", "note")]
    names = data.space.names
    score = str(top.columns[1])
    records = top.to_dict("records")
    trials = []
    for place, row in enumerate(records):
        number_of = int(row["config_id"])
        config = data.config(number_of)
        trials.append(ConfigurationRow(number_of, COMPLETE, _score(row[score]), place == 0, config))
    scores = [str(name) for name in top.columns if name not in names and name != "config_id"]
    rows = []
    for trial, row in zip(trials[:_MOST_ROWS], records, strict=False):
        values = (number(_score(row[name])) for name in scores)
        rows.append([trial.number, *values, *value_cells(trial.values, names)])
    header = ["configuration", *(name.replace("_", " ") for name in scores), *names]
    blocks: list[Block] = [Table(header, rows, sortable=True)]
    more = len(trials) - len(rows)
    if more > 0:
        blocks.append(Text(f"{more} more are in the landscape's tables.", "note"))
    maximize = data.manifest.objective.direction == "maximize"
    return chosen(trials, maximize=maximize), blocks


def _score(value: Any) -> float | None:
    return None if value is None or np.isnan(value) else float(value)


def _learning(data: Landscape) -> list[Block]:
    names = {
        "curves": "learning curves",
        "budget": "early choice",
        "over-time": "importance over time",
    }
    return [Row([block for kind, name in names.items() for block in _answered(data, kind, name)])]


def _noise(data: Landscape) -> list[Block]:
    """Describe seed noise, and draw what choosing and phases change."""

    def seed_noise() -> list[Block]:
        return [noise_text(analysis.analyse(data, "noise").table.iloc[0].to_dict())]

    def redundancy() -> list[Block]:
        row = analysis.analyse(data, "redundancy").table.iloc[0]
        text = (
            f"Seed noise lets one tell {row['distinct']:.0f} results apart of "
            f"{row['configurations']:.0f}; {row['as_good_as_best']:.0f} are as good as the best."
        )
        return [Text(text)]

    figures = _answered(data, "tunability", "tunability")
    if len(data.phases) > 1:
        figures += _answered(data, "phases", "phases")
    said = [*tried(seed_noise, "seed noise"), *tried(redundancy, "redundancy")]
    return [*said, Row(figures)]


def _proxy(data: Landscape) -> list[Block]:
    """Draw gold over the distance from the reference policy.

    Empty without a proxy.
    """
    if not {"kl", "proxy", "gold", "reference_gold"} <= set(data.metrics):
        return []
    return tried(lambda: [Figure(_gold_chart(data), "proxy")], "over-optimisation")


def _gold_chart(data: Landscape) -> Chart:
    role = "test" if "test" in data.manifest.seeds else "tuning"
    every = policies(data, role).head(_MOST_POLICIES)
    distance = np.sqrt(np.maximum(every["kl"].to_numpy(float), 0.0))
    names = [
        f"configuration {number_of}, step {step:,}, proxy {number(proxy)}"
        for number_of, step, proxy in zip(
            every["config_id"], every["step"], every["proxy"], strict=True
        )
    ]
    marks = [
        Line.dots("gold of all policies", distance, every["gold"], names, muted=True),
        Line.dots("proxy of the same", distance, every["proxy"], names),
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


def _provenance(data: Landscape) -> Table:
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
    return Table((), [(name, value) for name, value in rows if str(value)])


def _pairs(values: Any) -> str:
    return ", ".join(f"{name} {value_text(plain(value))}" for name, value in values.items())


def _answered(data: Landscape, kind: str, name: str, about: Sequence[str] = ()) -> list[Block]:
    """Draw an analysis, or say why there is none."""
    return tried(lambda: [_drawn(analysis.analyse(data, kind, about))], name)


def _drawn(answer: Answer) -> Figure:
    """Draw an answer with its notes below."""
    return Figure(analysis.chart_of(answer), answer.kind, answer.notes[:_MOST_NOTES])


def _matters(data: Landscape) -> tuple[list[Block], list[str]]:
    """Draw importances, and return the hyperparameters by importance."""
    try:
        answer = analysis.importance(data)
    except InputError as error:
        return [Text(f"importance: {error.message}.", "note")], []
    order = [str(name) for name in answer.table["hyperparameter"]]
    surface = _answered(data, "surface", "surface", order[:2]) if len(order) > 1 else []
    return [_drawn(answer), *surface], order
