"""Whether an incumbent keeps within the constraints of its study: on the seeds it was chosen by, and on test seeds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from autorl.evaluation import COST_METRICS
from autorl.store.query import Query
from autorl.study.beside import mean_of_tests
from autorl.study.chosen import chosen, link_at

if TYPE_CHECKING:
    from autorl.evaluation import Constraint
    from autorl.spec import Spec


def limit_caveats(query: Query, spec: Spec, proposal: int) -> list[str]:
    """What a reader must know of the constraints that the proposal does not keep, means over seeds.

    Test runs never change what was chosen, so a constraint that held on tuning seeds may be broken on them.
    """
    ((stored,),) = query("SELECT constraints FROM proposals WHERE proposal = ?", (proposal,))
    rules = spec.judge().constraints
    found = []
    broken = [
        rule.label for rule, far in zip(rules, json.loads(stored or "[]"), strict=False) if far > 0
    ]
    if broken:
        found.append(
            f"no proposal keeps within the constraints: on tuning seeds the incumbent breaks {', '.join(broken)}"
        )
    for rule in rules:
        value = _on_test_seeds(query, rule, proposal)
        if value is not None and rule.violation(value) > 0:
            found.append(f"on test seeds the incumbent breaks {rule.label}: {value:.4g}")
    return found


def _on_test_seeds(query: Query, rule: Constraint, proposal: int) -> float | None:
    """What the constraint is about, at the step the incumbent's test runs are read at; None if it was not tested."""
    if rule.metric not in COST_METRICS:
        return mean_of_tests(query, proposal, rule.metric)
    rows = query(
        f"SELECT {rule.metric} FROM runs WHERE start_step = 0 AND seed_role = 'test' "
        "AND status IN ('done', 'stopped') AND run_id IN "
        "(SELECT run_id FROM segments WHERE proposal = ?)",
        (link_at(query, proposal, chosen(query, proposal).end),),
    )
    return float(np.mean([value for (value,) in rows])) if rows else None
