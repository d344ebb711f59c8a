"""What a reader must know of an RLHF run that learnt nothing, of cut texts, and of the data: read from a study."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from autorl.rlhf.contract import DATA_NOTE
from autorl.rlhf.tasks import task, tasks
from autorl.store.query import Query
from autorl.study.beside import noted
from autorl.study.chosen import chosen, link_at

if TYPE_CHECKING:
    from autorl.spec import Spec

_MANY_CUT = 0.1  # share of completions; below it few texts are lost
_MANY_EQUAL = 0.9  # share of groups that teach nothing


def rlhf_caveats(query: Query, spec: Spec, proposal: int) -> list[str]:
    """Cautions about the training and the texts of a proposal; none for a study of no RLHF task.

    Read at the last evaluation of its runs, those on test seeds if there are any; and what was noted of the data.
    """
    if spec.environment.id not in tasks():
        return []
    found = [note for note in noted(query) if note.startswith(DATA_NOTE)]
    equal = _last(query, proposal, "reward_zero_std")
    if equal == 1.0:
        found.append(
            "every completion got the same reward as the others of its group: nothing could be learnt"
        )
    elif equal is not None and equal >= _MANY_EQUAL:
        found.append(
            f"in {_percent(equal)} of the groups of completions all got the same reward: they taught nothing"
        )
    if _last(query, proposal, "kl") == 0.0:
        found.append("KL to the reference policy is 0 after training: the policy has not moved")
    options = task(spec.environment.id, spec.environment.kwargs).options
    cut = _last(query, proposal, "truncated") if "max_completion" in options else None
    if cut is not None and cut >= _MANY_CUT:
        most = spec.environment.kwargs.get("max_completion", options["max_completion"])
        found.append(f"{_percent(cut)} of completions were cut at max_completion ({most} tokens)")
    ties = _last(query, proposal, "pair_ties")
    if ties:
        found.append(
            f"{_percent(ties)} of the held-out pairs are ties, each of which counts half in pair_accuracy"
        )
    return found


def _last(query: Query, proposal: int, metric: str) -> float | None:
    """The mean over the runs of a proposal of a metric at their last evaluation; None where none has it."""
    of_tests = link_at(query, proposal, chosen(query, proposal).end)
    rows = query(
        "SELECT seed_role, run_id, value FROM evals JOIN runs USING (run_id) WHERE metric = ? AND value IS NOT NULL "
        "AND step > 0 AND run_id IN (SELECT run_id FROM segments WHERE proposal IN (?, ?)) ORDER BY run_id, step",
        (metric, proposal, of_tests),
    )
    last = {(role, run): value for role, run, value in rows}
    tested = [value for (role, _), value in last.items() if role == "test"]
    values = tested or list(last.values())
    return float(np.mean(values)) if values else None


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
