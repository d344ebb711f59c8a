"""One call per question about landscapes.

An `Answer` holds what it was computed on, its rows, and what a figure needs.

`importance` and `subset` have arguments of their own; `analyse` asks every other question by its
name. The command line and the figures work on these answers, so a table, a JSON document and a
picture never disagree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from autorl.core.plain_text import counted
from autorl.core.types import InputError
from autorl.landscapes.analysis._answer import Answer, Question, fitted, left_out, weak
from autorl.landscapes.analysis.forest import landscape_forest
from autorl.landscapes.analysis.kinds import KINDS
from autorl.landscapes.analysis.subsets import TOLERANCE, select_subset, size_table
from autorl.landscapes.analysis.tables import common_seeds, task_table
from autorl.landscapes.analysis.tunability import tuning_gains
from autorl.landscapes.analysis.variance import fanova, local_importance
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.ranking import SeedSet
from autorl.space import unknown_key

Method: TypeAlias = Literal["fanova", "local", "tunability"]
METHODS: tuple[Method, ...] = ("fanova", "local", "tunability")


def analyse(
    source: Dataset | Sequence[Dataset],
    kind: str,
    names: Sequence[str] = (),
    seeds: SeedSet | None = None,
    step: int | None = None,
    *,
    by: str | None = None,
    reduce: str | None = None,
) -> Answer:
    """Answer one of `KINDS` about a landscape, or about several.

    Args:
        source: one landscape; noise, tunability and redundancy take any number, transfer at least
            two.
        kind: one of `KINDS`.
        names: hyperparameters: one for dependence and values, two for surface, any for interaction
            (none = all pairs).
        seeds: the seed role; None = all, or tuning where only some configurations have test seeds
            (a study). Where something is chosen (curves, transfer), None = chosen on tuning seeds
            and shown on test seeds, if there are both.
        step: of the evaluation, None = the last; budget, curves, over-time, phases and transfer
            look at their own.
        by: of curves: the aggregate over seeds the best are chosen by; None = the study's own, else
            the mean.
        reduce: of curves: the reduction of a run's curve they are chosen by; None = the study's
            own, else `last`.

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
    if step is not None and not asked.at_step:
        raise InputError(f"{kind} looks at its own steps and takes none", key="step")
    # Kinds that choose need to know whether the user named the seeds.
    if seeds is None and not asked.chooses:
        seeds = common_seeds(data, step)
    if not asked.ranks and (by is not None or reduce is not None):
        key = "by" if by is not None else "reduce"
        raise InputError(f"{kind} ranks no configurations", key=key)
    return asked.answer(data, Question(kind, tuple(names), seeds, step, by, reduce))


def importance(
    data: Dataset,
    method: Method = "fanova",
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
    about = {"method": method, **fitted(data, forest, seeds, step)}
    if method == "fanova":
        table = fanova(forest, pairs=interactions).rename(
            columns={"first": "hyperparameter", "second": "with"}
        )
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
    notes = weak(forest) + left_out(data, len(forest.targets), seeds)
    return Answer.of("importance", [data], about, table, notes)


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
    import pandas as pd

    seeds = seeds or common_seeds(landscapes)
    table = task_table(landscapes, seeds, first, clip)
    about = {
        "environments": list(table.environments),
        "configurations": len(table.config_ids),
        "seeds": seeds,
    }
    if size is None:
        sizes = size_table(table.values, table.environments)
        return Answer.of("subset", landscapes, about, sizes)
    # The training lengths are the costs.
    selection = select_subset(
        table.values, table.environments, size, tolerance=tolerance, costs=table.costs
    )
    rows = [{"place": place, **vars(tie)} for place, tie in enumerate(selection.near_ties, 1)]
    about |= {
        "size": size,
        "candidates": selection.n_candidates,
        "tolerance": tolerance,
        "near_ties": len(rows),
        "best": list(selection.best.environments),
        "cheapest": list(selection.cheapest.environments),
    }
    return Answer.of("subset", landscapes, about, pd.DataFrame(rows))
