"""The kinds of analysis: one table answers and draws each.

An `Answer` holds what it was computed on, its rows, and what a figure needs. The command line and
the figures work on these answers, so a table, a JSON document and a picture never disagree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from autorl.core.plain_text import counted
from autorl.core.types import InputError
from autorl.landscapes.analysis import charts, scores
from autorl.landscapes.analysis._answer import Answer, fitted, left_out, scored
from autorl.landscapes.analysis.card import report_card
from autorl.landscapes.analysis.forest import (
    dependence_surface,
    dependence_table,
    interaction_table,
    landscape_forest,
    local_importance,
    tuning_gains,
)
from autorl.landscapes.analysis.subsets import TOLERANCE, select_subset, size_table
from autorl.landscapes.analysis.tables import (
    Curves,
    best_curves,
    common_seeds,
    final_scores,
    learning_curves,
    paired_tables,
    phase_scores,
    task_table,
)
from autorl.landscapes.analysis.values import performance_by_value
from autorl.landscapes.analysis.variance import fanova
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.ranking import SeedSet
from autorl.landscapes.regression import configurations
from autorl.report.pages.chart import Chart
from autorl.report.pages.document import Figure, Section, page
from autorl.report.pages.vega import picture
from autorl.space import unknown_key
from autorl.store.outputs import free_output, write_output

if TYPE_CHECKING:
    import pandas as pd

_SEVERAL = (1, None)  # any number of landscapes
_PAIRS = (2, None)
METHODS = ("fanova", "local", "tunability")
SUFFIXES = (".png", ".svg", ".pdf", ".html")


@dataclass(frozen=True)
class Question:
    """The question asked of landscapes.

    Attributes:
        kind: one of `KINDS`.
        names: hyperparameters.
        asked: the seeds that were named, None = none; `seeds` are those that count then.
        by, reduce: how configurations are ranked; None: as the landscape recorded
            (`Landscape.rule`).
        method: of importance.
    """

    kind: str
    names: tuple[str, ...]
    asked: SeedSet | None
    seeds: SeedSet
    step: int | None
    by: str | None
    reduce: str | None
    method: str | None


# The landscapes are those of the question, in its order: of most kinds one.
Answering: TypeAlias = Callable[[Sequence[Dataset], Question], Answer]


@dataclass(frozen=True, kw_only=True)
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


KINDS: dict[str, Kind] = {}
"""What `analyse` answers. Whoever adds a kind registers it, and writes its chart in `charts`."""


def _kind(chart: Callable[[Answer], Chart], about: str, **takes: Any) -> Callable[..., Answering]:
    """Register the answer of a kind, named as its chart."""

    def registered(answer: Answering) -> Answering:
        name = chart.__name__.replace("_", "-")
        KINDS[name] = Kind(answer=answer, chart=chart, about=about, **takes)
        return answer

    return registered


def analyse(
    source: Dataset | Sequence[Dataset],
    kind: str,
    names: Sequence[str] = (),
    seeds: SeedSet | None = None,
    step: int | None = None,
    *,
    by: str | None = None,
    reduce: str | None = None,
    method: str | None = None,
) -> Answer:
    """Answer one of `KINDS` about a landscape, or about several.

    Args:
        source: one landscape; noise, tunability and redundancy take any number, transfer and subset
            at least two.
        kind: one of `KINDS`.
        names: hyperparameters: one for dependence and values, two for surface, any for interaction
            (none = all pairs).
        seeds: the seed role; None = all, or tuning where only some configurations have test seeds
            (a study). If something is chosen (curves, transfer), None = chosen on tuning seeds
            and shown on test seeds, if there are both.
        step: of the evaluation, None = the last; budget, curves, over-time, phases, subset and
            transfer look at their own.
        by: of curves: the aggregate over seeds the best are chosen by; None = the study's own, else
            the mean.
        reduce: of curves: the reduction of a run's curve they are chosen by; None = the study's
            own, else `last`.
        method: of importance: one of `METHODS`.

    Raises:
        InputError: unknown kind, another number of hyperparameters or landscapes, a step where none
            is taken, or the analysis is impossible with these data.
    """
    if kind not in KINDS:
        raise InputError(unknown_key(kind, KINDS), key="kind")
    asked = KINDS[kind]
    data = [source] if isinstance(source, Dataset) else list(source)
    least, most = asked.names
    # Counts are checked here, so that no answer has to look whether its names are there.
    if not least <= len(names) <= most:
        several = f"{least} to {most} hyperparameters"
        expected = counted(least, "hyperparameter") if least == most else several
        how = f": `{' '.join(['-p NAME'] * max(1, least))}` on the command line" if most else ""
        raise InputError(f"{kind} takes {expected}, got {len(names)}{how}", key="hyperparameter")
    fewest, limit = asked.landscapes
    if len(data) < fewest or (limit is not None and len(data) > limit):
        expected = "one landscape" if limit else f"at least {counted(fewest, 'landscape')}"
        raise InputError(f"{kind} takes {expected}, got {len(data)}", key="landscape")
    # Refuse a step that the analysis ignores: an answer must not seem to heed it.
    for key, refused, reason in (
        ("step", step is not None and not asked.at_step, "looks at its own steps and takes none"),
        ("by", by is not None and not asked.ranks, "ranks no configurations"),
        ("reduce", reduce is not None and not asked.ranks, "ranks no configurations"),
        ("method", method is not None and kind != "importance", "has no method: importance has"),
    ):
        if refused:
            raise InputError(f"{kind} {reason}", key=key)
    # Kinds that choose need to know whether the user named the seeds.
    counting = seeds or ("all" if asked.chooses else common_seeds(data, step))
    question = Question(kind, tuple(names), seeds, counting, step, by, reduce, method)
    return asked.answer(data, question)


def importance(
    data: Dataset,
    method: str = "fanova",
    seeds: SeedSet | None = None,
    step: int | None = None,
    *,
    interactions: bool = False,
    config_id: int | None = None,
) -> Answer:
    """Measure how much each hyperparameter matters.

    A random forest over the configurations' mean scores tells.

    Args:
        data: the landscape.
        method: `fanova`: share of the variance over the whole space. `local`: the same around one
            configuration. `tunability`: what tuning it alone gains over one configuration, in units
            of the score.
        seeds: the seed role that is averaged over; None = all, or tuning where only some have test
            seeds (a study).
        step: of the evaluation, None = the last.
        interactions: whether `fanova` adds the shares of pairs.
        config_id: for `local` (default: the best by its mean) and `tunability` (default: the
            space's defaults).

    Raises:
        InputError: unknown method, an argument another method takes, or nothing to
            explain.
    """
    if method not in METHODS:
        raise InputError(
            f"expected {', '.join(METHODS[:-1])} or {METHODS[-1]}, got {method!r}", key="method"
        )
    if interactions and method != "fanova":
        raise InputError(f"only fanova knows interactions, not {method}", key="interactions")
    if config_id is not None and method == "fanova":
        raise InputError(
            "fanova looks at the whole space; local and tunability at one configuration",
            key="config",
        )
    # One choice of seeds for forest, best configuration and notes.
    seeds = seeds or common_seeds([data], step)
    forest = landscape_forest(data, seeds, step)
    about, notes = fitted(data, forest, seeds, step)
    about = {"method": method, **about}
    if method == "fanova":
        table = fanova(forest, pairs=interactions)
        # The second name is None in every row if there are no pairs.
        table = table if interactions else table.drop(columns="with")
    elif method == "local":
        # The forest predicts means, so "best" falls back on the mean too, not on the usual IQM.
        if config_id is None:
            aggregate = data.rule(default="mean").aggregate
            config_id = data.best(seeds, aggregate, step).config_id
        about["configuration"] = config_id
        table = local_importance(forest, data.config(config_id))
    else:
        about["configuration"] = "the defaults" if config_id is None else config_id
        reference = data.space.default() if config_id is None else data.config(config_id)
        table = tuning_gains(forest, reference)
    return Answer("importance", (data,), about, table, notes)


def subset(
    landscapes: Sequence[Dataset],
    size: int | None = None,
    *,
    seeds: SeedSet | None = None,
    first: int | None = None,
    clip: Mapping[str, float] | None = None,
    tolerance: float = TOLERANCE,
) -> Answer:
    """Find the few environments that represent all of these (see `subsets`).

    The answer has the near-ties of one size, or compares sizes.

    Args:
        landscapes: one per environment, over the same hyperparameters.
        size: number of environments; None = the best three subsets of each size up to 6.
        seeds: the seed role that is averaged over; None = all, or tuning where only some have test
            seeds (a study).
        first: only configurations with an id below this one (ARLBench: 128).
        clip: {environment: lowest score that counts}.
        tolerance: how far above the smallest error a near-tie may be.

    Raises:
        InputError: fewer than two landscapes, nothing in common, or a size that is not smaller than
            their number.
    """
    seeds = seeds or common_seeds(landscapes)
    tasks = task_table(landscapes, seeds, first, clip)
    about: dict[str, Any] = {
        "environments": tasks.environments,
        "configurations": len(tasks.config_ids),
        "seeds": seeds,
    }
    if size is None:
        table = size_table(tasks.values, tasks.environments)
        return Answer("subset", tuple(landscapes), about, table)
    # The training lengths are the costs.
    costs = [float(data.manifest.steps[-1]) for data in landscapes]
    table = select_subset(tasks.values, tasks.environments, size, tolerance=tolerance, costs=costs)
    cheapest = table.sort_values(["cost", "error"], kind="stable").iloc[0]
    about |= {
        "size": size,
        "candidates": math.comb(len(landscapes), size),
        "tolerance": tolerance,
        "near_ties": len(table),
        "best": list(table["environments"].iloc[0]),
        "cheapest": list(cheapest["environments"]),
    }
    return Answer("subset", tuple(landscapes), about, table)


@_kind(charts.importance, "how much each hyperparameter matters")
def _importance(data: Sequence[Dataset], ask: Question) -> Answer:
    method = ask.method or METHODS[0]
    pairs = method == METHODS[0]  # the other methods have no shares of pairs
    return importance(data[0], method, ask.seeds, ask.step, interactions=pairs)


@_kind(charts.subset, "few environments that represent all", landscapes=_PAIRS, at_step=False)
def _subset(data: Sequence[Dataset], ask: Question) -> Answer:
    return subset(data, seeds=ask.seeds)


def _of_forest(
    chart: Callable[[Answer], Chart],
    about: str,
    names: tuple[int, int],
    table: Callable[..., pd.DataFrame],
) -> None:
    """Register a kind whose table comes from a forest."""

    @_kind(chart, about, names=names)
    def answer(data: Sequence[Dataset], ask: Question) -> Answer:
        (landscape,) = data
        # Before the fit, and among all names: a forest has no column for a constant.
        for name in ask.names:
            if name not in landscape.space.names:
                raise InputError(unknown_key(name, landscape.space.names), key="hyperparameter")
        forest = landscape_forest(landscape, ask.seeds, ask.step)
        about, notes = fitted(landscape, forest, ask.seeds, ask.step)
        about = {"hyperparameters": list(ask.names), **about}
        rows = table(forest, *ask.names)
        return Answer(ask.kind, (landscape,), about, rows, notes, {"forest": forest})


_of_forest(charts.dependence, "partial dependence on a hyperparameter", (1, 1), dependence_table)
_of_forest(
    charts.interaction,
    "how strongly hyperparameters interact, H squared",
    (0, 99),  # none named: all pairs
    interaction_table,
)
_of_forest(charts.surface, "partial dependence on two hyperparameters", (2, 2), dependence_surface)


@_kind(charts.values, "scores by value of a hyperparameter", names=(1, 1))
def _values(data: Sequence[Dataset], ask: Question) -> Answer:
    (landscape,) = data
    curves = final_scores(landscape, ask.seeds, ask.step)
    configs = configurations(landscape, curves.config_ids)
    table = performance_by_value(landscape.space, configs, curves.means, ask.names[0])
    about = {"hyperparameters": list(ask.names), **scored(landscape, ask.seeds, ask.step)}
    about["configurations"] = len(configs)
    notes = left_out(landscape, len(configs), ask.seeds)
    return Answer(ask.kind, (landscape,), about, table, notes)


@_kind(charts.budget, "how early training tells the end", at_step=False)
def _budget(data: Sequence[Dataset], ask: Question) -> Answer:
    import pandas as pd

    (landscape,) = data
    curves = learning_curves(landscape, ask.seeds)
    steps = {"step": curves.steps, "fraction": curves.steps / curves.steps[-1]}
    table = pd.DataFrame(steps | scores.early_choice(curves.values))
    return Answer(ask.kind, (landscape,), scored(landscape, ask.seeds), table)


@_kind(charts.over_time, "importance at every step", at_step=False)
def _over_time(data: Sequence[Dataset], ask: Question) -> Answer:
    import pandas as pd

    (landscape,) = data
    steps = learning_curves(landscape, ask.seeds).steps.tolist()
    parts = []
    skipped = []
    for step in steps:
        # Early steps at which no configuration has learned anything yet have no variance to share.
        # Equal scores at the last step are the forest's error: there is nothing to explain.
        if np.ptp(final_scores(landscape, ask.seeds, step).means) == 0.0 and step != steps[-1]:
            skipped.append(step)
            continue
        forest = landscape_forest(landscape, ask.seeds, step)
        parts.append(fanova(forest).assign(step=step, out_of_bag=forest.out_of_bag))
    columns = ["step", "hyperparameter", "importance", "spread", "out_of_bag"]
    table = pd.concat(parts, ignore_index=True)[columns]
    note = f"nothing to explain at steps {', '.join(map(str, skipped))}: all scores equal"
    about = scored(landscape, ask.seeds)
    return Answer(ask.kind, (landscape,), about, table, (note,) if skipped else ())


@_kind(
    charts.curves,
    "learning curves of the best configurations",
    at_step=False,
    chooses=True,
    ranks=True,
)
def _curves(data: Sequence[Dataset], ask: Question) -> Answer:
    (landscape,) = data
    choose, show = _chosen_and_shown(data, ask.asked)
    rule = landscape.rule(ask.by, ask.reduce, default="mean")
    curves = learning_curves(landscape, show)
    grid = landscape.grid
    ranked = grid.config_ids[landscape.ranked(choose, rule, grid.step_position(None))].tolist()
    table, band = best_curves(curves, ranked)
    about = {**scored(landscape, show), "chosen_on": choose}
    about["chosen_by"] = rule.text(landscape.manifest.objective.metric, choose)
    notes = left_out(landscape, len(curves.values), show)
    if choose == show:
        notes = ("chosen and shown on the same seeds: the curves are optimistic", *notes)
    return Answer(ask.kind, (landscape,), about, table, notes, {"band": band})


@_kind(charts.phases, "what the best configuration of one phase misses in another", at_step=False)
def _phases(data: Sequence[Dataset], ask: Question) -> Answer:
    import pandas as pd

    (landscape,) = data
    values, config_ids, starts, ends = phase_scores(landscape, ask.seeds)
    best, correlation, regret, gain = scores.compare_phases(values)
    rows = [
        {
            "best_in": source + 1,
            "config_id": int(config_ids[best[source]]),
            "used_in": target + 1,
            "regret": float(regret[source, target]),
            "correlation": float(correlation[source, target]),
        }
        for source, target in np.ndindex(regret.shape)
    ]
    about = {
        **scored(landscape, ask.seeds),
        "configurations": len(config_ids),
        "starts": starts,
        "ends": ends,
        "schedule_gain": gain,
    }
    # The end of every phase was looked at, not one step.
    del about["step"]
    return Answer(ask.kind, (landscape,), about, pd.DataFrame(rows))


@_kind(
    charts.noise, "share of variance that is seed noise, a row per landscape", landscapes=_SEVERAL
)
def _noise(data: Sequence[Dataset], ask: Question) -> Answer:
    return _per_landscape(data, ask, lambda curves: scores.seed_noise(curves.final))


@_kind(
    charts.redundancy,
    "configurations that cannot be told apart, a row per landscape",
    landscapes=_SEVERAL,
)
def _redundancy(data: Sequence[Dataset], ask: Question) -> Answer:
    return _per_landscape(data, ask, lambda curves: scores.redundancy(curves.final))


@_kind(
    charts.tunability,
    "what choosing gains over a typical configuration, a row per landscape",
    landscapes=_SEVERAL,
)
def _tunability(data: Sequence[Dataset], ask: Question) -> Answer:
    drawn = []

    def row(curves: Curves) -> dict[str, Any]:
        means = curves.means
        measured, curve = scores.tunability(means)
        drawn.append(curve)
        more = {"best": float(means.max()), "median": float(np.median(means))}
        return {**measured, **more, "configurations": len(means)}

    # The figure draws the whole curves, of which the table has three numbers each.
    return _per_landscape(data, ask, row, {"curves": drawn})


def _per_landscape(
    data: Sequence[Dataset],
    ask: Question,
    row: Callable[[Curves], dict[str, Any]],
    detail: Mapping[str, Any] = MappingProxyType({}),
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
            measured = row(final_scores(landscape, ask.seeds, ask.step))
            rows.append({"landscape": landscape.manifest.id, **measured})
            answered.append(landscape)
        except InputError as error:
            # One landscape has no other row to show.
            if len(data) == 1:
                raise
            notes.append(f"{landscape.manifest.id} is left out: {error.message}")
    if not rows:
        raise InputError(f"{ask.kind}: none of {len(data)} landscapes can be analysed; {notes[0]}")
    about = {"seeds": ask.seeds, "step": ask.step or "last"}
    return Answer(ask.kind, tuple(answered), about, pd.DataFrame(rows), tuple(notes), detail)


@_kind(
    charts.transfer,
    "what the best configuration of one environment misses in another",
    landscapes=_PAIRS,
    at_step=False,
    chooses=True,
)
def _transfer(data: Sequence[Dataset], ask: Question) -> Answer:
    import pandas as pd

    choose, show = _chosen_and_shown(data, ask.asked)
    chosen, shown = paired_tables(data, (choose, show))
    ids = shown.config_ids
    best, regret, percentile = scores.transfer(shown.values, chosen.values)
    rows = [
        {
            "best_in": source,
            "config_id": int(ids[best[row]]),
            "used_in": target,
            "regret": float(regret[row, column]),
            "percentile": float(percentile[row, column]),
        }
        for row, source in enumerate(shown.environments)
        for column, target in enumerate(shown.environments)
    ]
    # An environment's own best is no transfer.
    elsewhere = regret[:-1][~np.eye(len(data), dtype=bool)]
    about = {
        "configurations": len(ids),
        "chosen_on": choose,
        "seeds": show,
        "mean_regret_elsewhere": float(elsewhere.mean()),
        "best_single": {"config_id": int(ids[best[-1]]), "mean_regret": float(regret[-1].mean())},
    }
    optimistic = "chosen and scored on the same seeds: regret at home is 0"
    notes = (optimistic,) if choose == show else ()
    return Answer(ask.kind, tuple(data), about, pd.DataFrame(rows), notes)


@_kind(charts.card, "report card of an algorithm", landscapes=_PAIRS, at_step=False, chooses=True)
def _card(data: Sequence[Dataset], ask: Question) -> Answer:
    return report_card(data, *_chosen_and_shown(data, ask.asked))


def _chosen_and_shown(data: Sequence[Dataset], seeds: SeedSet | None) -> tuple[SeedSet, SeedSet]:
    """Give the seeds to choose on, and those to show."""
    if seeds is not None:
        return seeds, seeds
    # The best of many on some seeds was lucky there: other seeds show what it is worth.
    every_has_both = all({"tuning", "test"} <= set(landscape.grid.roles) for landscape in data)
    return ("tuning", "test") if every_has_both else ("all", "all")


KINDS = dict(sorted(KINDS.items()))


def chart_of(answer: Answer) -> Chart:
    """Make the chart of an answer of any kind."""
    return KINDS[answer.kind].chart(answer)


def save(answer: Answer, path: str | Path, *, replace: bool = False) -> Path:
    """Draw an answer into a file, the same file every time.

    The suffix decides: .png, .svg, .pdf, or .html that is interactive and needs no network. A
    figure of ours is replaced, any other file with `replace` alone.

    Raises:
        InputError: another suffix, no such folder, a file that is not ours, or a place in a study
            or a landscape.
    """
    target = free_output(path, SUFFIXES, replace=replace)
    suffix = target.suffix.lower()
    if not target.parent.is_dir():
        raise InputError("no such folder", file=str(target.parent))
    chart = chart_of(answer)
    if suffix == ".html":
        figure = Figure(chart, answer.kind, answer.notes)
        write_output(target, page(chart.title, "", [Section("figure", "", [figure])]))
    else:
        target.write_bytes(picture(chart, suffix))
    return target
