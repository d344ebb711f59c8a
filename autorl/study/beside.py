"""What an RLHF result says beside its score: the other metrics of the incumbent on test seeds, and the warning a proxy
deserves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from autorl.rlhf.contract import Task
from autorl.rlhf.rewards import options as reward_options
from autorl.rlhf.rewards.user_signals import same_sources
from autorl.rlhf.tasks import task, tasks
from autorl.store.query import Query
from autorl.study.chosen import chosen, link_at
from autorl.study.setup import choices_of

if TYPE_CHECKING:
    from autorl.spec import Spec

REFERENCE = "reference_"
_ALWAYS = ("kl", "win_rate", "length", "distinct")


def beside(query: Query, spec: Spec, proposal: int) -> dict[str, float]:
    """Means over test seeds, at the step the incumbent is read at; empty for a study of no RLHF task.

    The report metric and what the reference policy scores by it, the training signal, and how far the policy has moved.
    """
    if spec.environment.id not in tasks():
        return {}
    about = task(spec.environment.id, spec.environment.kwargs)
    wanted = dict.fromkeys(
        (about.report, REFERENCE + about.report, about.selection, about.training, *_ALWAYS)
    )
    own = {objective.metric for objective in spec.objective}
    found = {name: mean_of_tests(query, proposal, name) for name in wanted if name not in own}
    return {name: value for name, value in found.items() if value is not None}


def proxy_caveat(spec: Spec, metrics: Mapping[str, float]) -> str | None:
    """What selecting by the training signal has led to, measured on test seeds."""
    if not spec.allow_proxy_selection or spec.environment.id not in tasks():
        return None
    about = task(spec.environment.id, spec.environment.kwargs)
    trained = {about.training, *about.ensemble, *maybe_trained_on(spec, about)}
    trained |= same_sources(spec.environment.kwargs.get("signals"), trained)
    chosen = next(
        (objective.metric for objective in spec.objective if objective.metric in trained), None
    )
    if chosen is None:
        return None
    text = f"selected by {chosen!r}, {'the signal it was' if chosen == about.training else 'which it can be'} trained on"
    if chosen == about.report:
        return text
    gold, reference = metrics.get(about.report), metrics.get(REFERENCE + about.report)
    if gold is None or reference is None:
        return text
    verdict = "worse" if gold < reference else "better"
    return (
        f"{text}: on test seeds its {about.report} is {gold:.3g}, {verdict} than the {reference:.3g} of the reference "
        "policy that training started from"
    )


def maybe_trained_on(spec: Spec, about: Task) -> frozenset[str]:
    """Signals that some configuration of some trainer of a study trains on."""
    found: frozenset[str] = frozenset()
    for algorithm, trainer in spec.trainers.items():
        choices = choices_of(spec, f"{algorithm}." if algorithm else "")
        found |= reward_options.maybe_trained_on(
            trainer.kwargs, choices, about.training, about.ensemble
        )
    return found


def mean_of_tests(query: Query, proposal: int, metric: str) -> float | None:
    """The mean of a metric over a proposal's test runs that succeeded, at the step it is scored at; None of none."""
    step = chosen(query, proposal).step
    rows = query(
        "SELECT run_id, step, value FROM evals WHERE metric = ? AND value IS NOT NULL AND run_id IN (SELECT run_id "
        "FROM segments JOIN runs USING (run_id) WHERE proposal = ? AND seed_role = 'test' "
        "AND runs.status IN ('done', 'stopped')) ORDER BY run_id, step",
        (metric, link_at(query, proposal, step)),
    )
    latest = {run: value for run, at, value in rows if step is None or at <= step}
    return float(np.mean(list(latest.values()))) if latest else None


def noted(query: Query) -> list[str]:
    """What trainers noted about segments, each once."""
    return [text for (text,) in query("SELECT note FROM noted ORDER BY note")]
