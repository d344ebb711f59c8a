"""How many of a study's proposals are its model's, read from its tables."""

from __future__ import annotations

from autorl.optimizers import find
from autorl.optimizers.model_share import ModelShare
from autorl.spec import Spec
from autorl.store.query import Query
from autorl.types import InputError


def study_share(query: Query) -> ModelShare | None:
    """Counted from the study's tables; None where an earlier version made some, which did not record it."""
    searched = "proposals JOIN standing USING (proposal) WHERE NOT baseline"
    ((unknown,),) = query("SELECT count(*) FROM standing WHERE informed IS NULL")
    if unknown:
        return None
    ((total,),) = query(f"SELECT count(*) FROM {searched}")
    ((new, modelled),) = query(
        "SELECT count(*), coalesce(sum(informed), 0) FROM standing WHERE proposal IN "
        f"(SELECT min(proposal) FROM {searched} GROUP BY config_id)"
    )
    return ModelShare(new, modelled, total - new)


def optimizer_learns(spec: Spec) -> bool:
    """Whether the study's optimizer is one that has a model; False where a user's own class is not there to ask."""
    try:
        return find(spec.optimizer.name, spec.path).learns
    except InputError:  # a study is read where it was not made
        return False


def search_ended(query: Query) -> bool:
    """Whether the search is over, so that its counts are final."""
    return bool(query("SELECT 1 FROM event WHERE kind IN ('frozen', 'finished') LIMIT 1"))
