"""The kinds of analysis by name: how each is answered and drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from autorl.landscapes.analysis import charts
from autorl.landscapes.analysis._answer import Answer, Question, fitted, left_out, scored, weak
from autorl.landscapes.analysis._chart import Chart
from autorl.landscapes.analysis.dependence import (
    dependence_surface,
    dependence_table,
    interaction_table,
)
from autorl.landscapes.analysis.fidelity import budget_table
from autorl.landscapes.analysis.forest import Forest, landscape_forest
from autorl.landscapes.analysis.noise import icc_interval, seed_noise
from autorl.landscapes.analysis.phases import compare_phases, phase_scores
from autorl.landscapes.analysis.progress import best_curves, importance_by_step
from autorl.landscapes.analysis.redundancy import redundancy_of
from autorl.landscapes.analysis.tables import final_scores, task_table
from autorl.landscapes.analysis.transfer import best_single, transfer_regret
from autorl.landscapes.analysis.tunability import tunability_of
from autorl.landscapes.analysis.values import values_table
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.ranking import SeedSet
from autorl.space import unknown_key
from autorl.types import InputError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Kind:
    """A kind of analysis: its answer, its chart, and what it takes.

    Attributes:
        about: one line of help.
        names: fewest and most hyperparameters.
        landscapes: fewest and most landscapes; None = any number.
        at_step: whether it looks at one step, which can be given.
        chooses: whether it chooses on tuning seeds and shows test seeds.
        ranks: whether it ranks configurations, by an aggregate and a reduction.
    """

    answer: Callable[[Sequence[Dataset], Question], Answer]
    chart: Callable[[Answer], Chart]
    about: str
    names: tuple[int, int] = (0, 0)
    landscapes: tuple[int, int | None] = (1, 1)
    at_step: bool = True
    chooses: bool = False
    ranks: bool = False


def _of_forest(
    data: Sequence[Dataset], ask: Question, kind: str, table: Callable[[Forest], pd.DataFrame]
) -> Answer:
    (landscape,) = data
    for name in ask.names:
        if name not in landscape.space.names:
            raise InputError(unknown_key(name, landscape.space.names), key="hyperparameter")
    forest = landscape_forest(landscape, ask.seeds or "all", ask.step)
    about = {"hyperparameters": list(ask.names), **fitted(landscape, forest, ask.seeds, ask.step)}
    notes = weak(forest) + left_out(landscape, len(forest.targets), about["seeds"])
    return Answer(kind, (landscape.manifest.id,), about, table(forest), notes, tuple(data))


def _dependence(data: Sequence[Dataset], ask: Question) -> Answer:
    return _of_forest(
        data, ask, "dependence", lambda forest: dependence_table(forest, ask.names[0])
    )


def _surface(data: Sequence[Dataset], ask: Question) -> Answer:
    def rows(forest: Forest) -> pd.DataFrame:
        wide = dependence_surface(forest, ask.names[0], ask.names[1])
        return wide.reset_index().melt(
            id_vars=ask.names[0], var_name=ask.names[1], value_name="mean"
        )

    return _of_forest(data, ask, "surface", rows)


def _interaction(data: Sequence[Dataset], ask: Question) -> Answer:
    return _of_forest(
        data, ask, "interaction", lambda forest: interaction_table(forest, ask.names or None)
    )


def _values(data: Sequence[Dataset], ask: Question) -> Answer:
    (landscape,) = data
    table = values_table(landscape, ask.names[0], ask.seeds or "all", ask.step)
    about = {"hyperparameters": list(ask.names), **scored(landscape, ask.seeds, ask.step)}
    about["configurations"] = int(table["n"].sum())
    notes = left_out(landscape, about["configurations"], about["seeds"])
    return Answer("values", (landscape.manifest.id,), about, table, notes, tuple(data))


def _budget(data: Sequence[Dataset], ask: Question) -> Answer:
    (landscape,) = data
    table = budget_table(landscape, ask.seeds or "all")
    return Answer(
        "budget",
        (landscape.manifest.id,),
        scored(landscape, ask.seeds, None),
        table,
        (),
        tuple(data),
    )


def _over_time(data: Sequence[Dataset], ask: Question) -> Answer:
    (landscape,) = data
    table, skipped = importance_by_step(landscape, ask.seeds or "all")
    notes = (
        (f"nothing to explain at steps {', '.join(map(str, skipped))}: all scores equal",)
        if skipped
        else ()
    )
    return Answer(
        "over-time",
        (landscape.manifest.id,),
        scored(landscape, ask.seeds, None),
        table,
        notes,
        tuple(data),
    )


def _curves(data: Sequence[Dataset], ask: Question) -> Answer:
    (landscape,) = data
    choose, show = _chosen_and_shown(data, ask.seeds)
    rule = landscape.rule(ask.by, ask.reduce, default="mean")
    table, band = best_curves(landscape, choose, show, rule=rule)
    about = {**scored(landscape, show, None), "chosen_on": choose}
    about["chosen_by"] = rule.text(landscape.manifest.objective.metric, choose)
    optimistic = (
        ["chosen and shown on the same seeds: the curves are optimistic"] if choose == show else []
    )
    notes = (*optimistic, *left_out(landscape, int(band.attrs["configurations"]), show))
    return Answer(
        "curves", (landscape.manifest.id,), about, table, notes, tuple(data), {"band": band}
    )


def _phases(data: Sequence[Dataset], ask: Question) -> Answer:
    import pandas as pd

    (landscape,) = data
    phases = phase_scores(landscape, ask.seeds or "all")
    comparison = compare_phases(phases.scores)
    count = len(comparison.best)
    rows = [
        {
            "best_in": source + 1,
            "config_id": int(phases.config_ids[comparison.best[source]]),
            "used_in": target + 1,
            "regret": float(comparison.regret[source, target]),
            "correlation": float(comparison.correlation[source, target]),
        }
        for source in range(count)
        for target in range(count)
    ]
    about = {
        **scored(landscape, ask.seeds, None),
        "configurations": len(phases.config_ids),
        "starts": phases.starts.tolist(),
        "ends": phases.ends.tolist(),
        "schedule_gain": comparison.schedule_gain,
    }
    del about["step"]
    return Answer("phases", (landscape.manifest.id,), about, pd.DataFrame(rows), (), tuple(data))


def _noise(data: Sequence[Dataset], ask: Question) -> Answer:
    def row(landscape: Dataset) -> dict[str, Any]:
        scores = final_scores(landscape, ask.seeds or "all", ask.step).final
        components = seed_noise(scores)
        low, high = icc_interval(scores)
        return {
            "icc": components.icc,
            "low": low,
            "high": high,
            "noise_share": components.noise_share,
            "seed_sd": float(np.sqrt(components.within)),
            "configurations": components.n_configurations,
            "seeds": components.n_seeds,
            "seeds_for_0.9": components.seeds_for(0.9),
        }

    return _per_landscape(data, ask, "noise", row)


def _tunability(data: Sequence[Dataset], ask: Question) -> Answer:
    curves = {}

    def row(landscape: Dataset) -> dict[str, Any]:
        means = final_scores(landscape, ask.seeds or "all", ask.step).means
        measured = tunability_of(means)
        curves[landscape.manifest.id] = measured
        return {
            "tunability": measured.value,
            "area": measured.area,
            "near_best": measured.near_best,
            "best": float(means.max()),
            "median": float(np.median(means)),
            "configurations": len(means),
        }

    answer = _per_landscape(data, ask, "tunability", row)
    return Answer(
        answer.kind,
        answer.landscapes,
        answer.about,
        answer.table,
        answer.notes,
        answer.data,
        curves,
    )


def _redundancy(data: Sequence[Dataset], ask: Question) -> Answer:
    def row(landscape: Dataset) -> dict[str, Any]:
        measured = redundancy_of(final_scores(landscape, ask.seeds or "all", ask.step).final)
        return {
            "epsilon": measured.epsilon,
            "configurations": measured.n,
            "distinct": measured.distinct,
            "redundant": measured.share,
            "as_good_as_best": measured.as_good,
            "expected_trials": measured.expected_trials,
        }

    return _per_landscape(data, ask, "redundancy", row)


def _per_landscape(
    data: Sequence[Dataset], ask: Question, kind: str, row: Callable[[Dataset], dict[str, Any]]
) -> Answer:
    """Answer with a row per landscape.

    With several, one that cannot be analysed is left out and named in the notes.
    """
    import pandas as pd

    rows = []
    notes = []
    for landscape in data:
        try:
            rows.append({"landscape": landscape.manifest.id, **row(landscape)})
        except InputError as error:
            if len(data) == 1:
                raise
            notes.append(f"{landscape.manifest.id} is left out: {error.message}")
    if not rows:
        raise InputError(f"{kind}: none of {len(data)} landscapes can be analysed; {notes[0]}")
    about = {"seeds": ask.seeds or "all", "step": ask.step or "last"}
    answered = tuple(entry["landscape"] for entry in rows)
    return Answer(kind, answered, about, pd.DataFrame(rows), tuple(notes), tuple(data))


def _transfer(data: Sequence[Dataset], ask: Question) -> Answer:
    import pandas as pd

    choose, show = _chosen_and_shown(data, ask.seeds)
    shown = task_table(data, show)
    chosen = task_table(data, choose)
    ids = np.intersect1d(shown.config_ids, chosen.config_ids)
    tables = [table.values[np.searchsorted(table.config_ids, ids)] for table in (shown, chosen)]
    regrets = transfer_regret(tables[0], shown.environments, tables[1])
    single = best_single(*tables)
    rows = [
        {
            "best_in": source,
            "config_id": int(ids[regrets.best[row]]),
            "used_in": target,
            "regret": float(regrets.regret[row, column]),
            "percentile": float(regrets.percentile[row, column]),
        }
        for row, source in enumerate(regrets.environments)
        for column, target in enumerate(regrets.environments)
    ]
    about = {
        "configurations": len(ids),
        "chosen_on": choose,
        "seeds": show,
        "mean_regret_elsewhere": regrets.mean_loss,
        "best_single": {"config_id": int(ids[single.row]), "mean_regret": single.mean_loss},
    }
    optimistic = (
        ("chosen and scored on the same seeds: regret at home is 0",) if choose == show else ()
    )
    names = tuple(landscape.manifest.id for landscape in data)
    return Answer("transfer", names, about, pd.DataFrame(rows), optimistic, tuple(data))


def _chosen_and_shown(data: Sequence[Dataset], seeds: SeedSet | None) -> tuple[SeedSet, SeedSet]:
    """Give the seeds to choose on, and those to show."""
    if seeds is not None:
        return seeds, seeds
    every_has_both = all({"tuning", "test"} <= set(landscape.grid.roles) for landscape in data)
    return ("tuning", "test") if every_has_both else ("all", "all")


_SEVERAL = (1, None)  # any number of landscapes
KINDS = MappingProxyType(
    {
        "budget": Kind(_budget, charts.budget, "how early training tells the end", at_step=False),
        "curves": Kind(
            _curves,
            charts.curves,
            "learning curves of the best configurations",
            at_step=False,
            chooses=True,
            ranks=True,
        ),
        "dependence": Kind(
            _dependence, charts.dependence, "partial dependence on a hyperparameter", names=(1, 1)
        ),
        "interaction": Kind(
            _interaction,
            charts.interaction,
            "how strongly hyperparameters interact, H squared",
            names=(0, 99),
        ),
        "noise": Kind(
            _noise,
            charts.noise,
            "share of variance that is seed noise, a row per landscape",
            landscapes=_SEVERAL,
        ),
        "over-time": Kind(_over_time, charts.over_time, "importance at every step", at_step=False),
        "phases": Kind(
            _phases,
            charts.phases,
            "what the best configuration of one phase misses in another",
            at_step=False,
        ),
        "redundancy": Kind(
            _redundancy,
            charts.redundancy,
            "configurations that cannot be told apart, a row per landscape",
            landscapes=_SEVERAL,
        ),
        "surface": Kind(
            _surface, charts.surface, "partial dependence on two hyperparameters", names=(2, 2)
        ),
        "transfer": Kind(
            _transfer,
            charts.transfer,
            "what the best configuration of one environment misses in another",
            landscapes=(2, None),
            at_step=False,
            chooses=True,
        ),
        "tunability": Kind(
            _tunability,
            charts.tunability,
            "what choosing gains over a typical configuration, a row per landscape",
            landscapes=_SEVERAL,
        ),
        "values": Kind(_values, charts.values, "scores by value of a hyperparameter", names=(1, 1)),
    }
)
"""What `analyse` answers. Whoever adds a kind adds it here, and its chart to `charts`."""

CHARTS: Mapping[str, Callable[[Answer], Chart]] = MappingProxyType(
    {"importance": charts.importance, "subset": charts.subset}
    | {name: kind.chart for name, kind in KINDS.items()}
)
"""The charts of all answers: of `KINDS`, and of the two with arguments of their own."""


def chart_of(answer: Answer) -> Chart:
    """Make the chart of an answer of any kind."""
    return CHARTS[answer.kind](answer)
