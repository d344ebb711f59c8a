"""The kinds of analysis by name: how each is answered and drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from autorl.core.types import InputError
from autorl.landscapes.analysis import charts
from autorl.landscapes.analysis._answer import Answer, Question, fitted, left_out, scored, weak
from autorl.landscapes.analysis.dependence import (
    dependence_surface,
    dependence_table,
    interaction_table,
    surface_places,
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
from autorl.report.pages import Chart
from autorl.space import unknown_key

if TYPE_CHECKING:
    import pandas as pd


# The landscapes are those of the question, in its order: of most kinds one.
Answering: TypeAlias = Callable[[Sequence[Dataset], Question], Answer]


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

    answer: Answering
    chart: Callable[[Answer], Chart]
    about: str
    names: tuple[int, int] = (0, 0)
    landscapes: tuple[int, int | None] = (1, 1)
    at_step: bool = True
    chooses: bool = False
    ranks: bool = False


def _nothing_beside(forest: Forest, names: tuple[str, ...]) -> dict[str, object]:
    return {}


def _of_forest(
    table: Callable[[Forest, tuple[str, ...]], pd.DataFrame],
    detail: Callable[[Forest, tuple[str, ...]], dict[str, object]] = _nothing_beside,
) -> Answering:
    """Make the answer of a kind whose table comes from a forest.

    `detail` gives what its figure shows beside the table.
    """

    def answer(data: Sequence[Dataset], ask: Question) -> Answer:
        (landscape,) = data
        # Before the fit, and among all names: a forest has no column for a constant.
        for name in ask.names:
            if name not in landscape.space.names:
                raise InputError(unknown_key(name, landscape.space.names), key="hyperparameter")
        seeds = ask.seeds or "all"
        forest = landscape_forest(landscape, seeds, ask.step)
        about = {"hyperparameters": list(ask.names), **fitted(landscape, forest, seeds, ask.step)}
        notes = weak(forest) + left_out(landscape, len(forest.targets), seeds)
        rows = table(forest, ask.names)
        return Answer.of(ask.kind, data, about, rows, notes, detail(forest, ask.names))

    return answer


def _surface_rows(forest: Forest, names: tuple[str, ...]) -> pd.DataFrame:
    """List the dependence on two hyperparameters by pairs of values."""
    first, second = names
    wide = dependence_surface(forest, first, second)
    return wide.reset_index().melt(id_vars=first, var_name=second, value_name="mean")


def _surface_detail(forest: Forest, names: tuple[str, ...]) -> dict[str, object]:
    """Give places and scores of the configurations that the surface is of."""
    first, second = names
    return {"places": surface_places(forest, first, second), "scores": forest.targets}


def _values(data: Sequence[Dataset], ask: Question) -> Answer:
    (landscape,) = data
    seeds = ask.seeds or "all"
    table = values_table(landscape, ask.names[0], seeds, ask.step)
    count = int(table["n"].sum())
    about = {"hyperparameters": list(ask.names), **scored(landscape, seeds, ask.step)}
    about["configurations"] = count
    return Answer.of(ask.kind, data, about, table, left_out(landscape, count, seeds))


def _budget(data: Sequence[Dataset], ask: Question) -> Answer:
    (landscape,) = data
    table = budget_table(landscape, ask.seeds or "all")
    return Answer.of(ask.kind, data, scored(landscape, ask.seeds, None), table)


def _over_time(data: Sequence[Dataset], ask: Question) -> Answer:
    (landscape,) = data
    table, skipped = importance_by_step(landscape, ask.seeds or "all")
    notes: tuple[str, ...] = ()
    # Early steps at which no configuration has learned anything yet have no variance to share.
    if skipped:
        notes = (f"nothing to explain at steps {', '.join(map(str, skipped))}: all scores equal",)
    return Answer.of(ask.kind, data, scored(landscape, ask.seeds, None), table, notes)


def _curves(data: Sequence[Dataset], ask: Question) -> Answer:
    (landscape,) = data
    choose, show = _chosen_and_shown(data, ask.seeds)
    rule = landscape.rule(ask.by, ask.reduce, default="mean")
    table, band = best_curves(landscape, choose, show, rule=rule)
    about = {**scored(landscape, show, None), "chosen_on": choose}
    about["chosen_by"] = rule.text(landscape.manifest.objective.metric, choose)
    notes = left_out(landscape, int(band.attrs["configurations"]), show)
    if choose == show:
        notes = ("chosen and shown on the same seeds: the curves are optimistic", *notes)
    return Answer.of(ask.kind, data, about, table, notes, {"band": band})


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
    # The end of every phase was looked at, not one step.
    del about["step"]
    return Answer.of(ask.kind, data, about, pd.DataFrame(rows))


def _noise(data: Sequence[Dataset], ask: Question) -> Answer:
    def row(landscape: Dataset) -> dict[str, object]:
        scores = final_scores(landscape, ask.seeds or "all", ask.step).final
        components = seed_noise(scores)
        low, high = icc_interval(scores)
        return {
            "icc": components.icc,
            "low": low,
            "high": high,
            # Not 1 - icc: an estimate below 0 would be more than all of the variance.
            "noise_share": components.noise_share,
            "seed_sd": float(np.sqrt(components.within)),
            "configurations": components.n_configurations,
            "seeds": components.n_seeds,
            "seeds_for_0.9": components.seeds_for(0.9),
        }

    return _per_landscape(data, ask, row)


def _tunability(data: Sequence[Dataset], ask: Question) -> Answer:
    curves = {}

    def row(landscape: Dataset) -> dict[str, object]:
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

    # The figure draws the whole curves, of which the table has three numbers each.
    return replace(_per_landscape(data, ask, row), detail=curves)


def _redundancy(data: Sequence[Dataset], ask: Question) -> Answer:
    def row(landscape: Dataset) -> dict[str, object]:
        measured = redundancy_of(final_scores(landscape, ask.seeds or "all", ask.step).final)
        return {
            "epsilon": measured.epsilon,
            "configurations": measured.n,
            "distinct": measured.distinct,
            "redundant": measured.share,
            "as_good_as_best": measured.as_good,
            "expected_trials": measured.expected_trials,
        }

    return _per_landscape(data, ask, row)


def _per_landscape(
    data: Sequence[Dataset], ask: Question, row: Callable[[Dataset], dict[str, object]]
) -> Answer:
    """Answer with a row per landscape.

    With several, one that cannot be analysed is left out and named in the notes.
    """
    import pandas as pd

    rows = []
    answered = []
    notes = []
    for landscape in data:
        try:
            rows.append({"landscape": landscape.manifest.id, **row(landscape)})
            answered.append(landscape.manifest.id)
        except InputError as error:
            # One landscape has no other row to show.
            if len(data) == 1:
                raise
            notes.append(f"{landscape.manifest.id} is left out: {error.message}")
    if not rows:
        raise InputError(f"{ask.kind}: none of {len(data)} landscapes can be analysed; {notes[0]}")
    about = {"seeds": ask.seeds or "all", "step": ask.step or "last"}
    return Answer(ask.kind, tuple(answered), about, pd.DataFrame(rows), tuple(notes), tuple(data))


def _transfer(data: Sequence[Dataset], ask: Question) -> Answer:
    import pandas as pd

    choose, show = _chosen_and_shown(data, ask.seeds)
    # By configuration and environment: mean scores over the seeds of a role.
    shown = task_table(data, show)
    chosen = task_table(data, choose)
    # A configuration may lack a score for some seed of one role: both tables need the same rows.
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
    optimistic: tuple[str, ...] = ()
    if choose == show:
        optimistic = ("chosen and scored on the same seeds: regret at home is 0",)
    return Answer.of(ask.kind, data, about, pd.DataFrame(rows), optimistic)


def _chosen_and_shown(data: Sequence[Dataset], seeds: SeedSet | None) -> tuple[SeedSet, SeedSet]:
    """Give the seeds to choose on, and those to show."""
    if seeds is not None:
        return seeds, seeds
    # The best of many on some seeds was lucky there: other seeds show what it is worth.
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
            _of_forest(lambda forest, names: dependence_table(forest, names[0])),
            charts.dependence,
            "partial dependence on a hyperparameter",
            names=(1, 1),
        ),
        "interaction": Kind(
            # None named: all pairs.
            _of_forest(lambda forest, names: interaction_table(forest, names or None)),
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
            _of_forest(_surface_rows, _surface_detail),
            charts.surface,
            "partial dependence on two hyperparameters",
            names=(2, 2),
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
