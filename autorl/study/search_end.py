"""Words why the search of a study is over."""

from __future__ import annotations

from autorl.optimizers import find
from autorl.optimizers.base import BaseOptimizer
from autorl.spec import Spec
from autorl.types import InputError, SearchEnd


def search_end_text(why: SearchEnd, spec: Spec, used: float) -> str:
    """Say why a search is over.

    Args:
        why: as its events say.
        spec: the study file.
        used: share of the budget.
    """
    match why:
        case SearchEnd.BUDGET if used < 1:
            return "what was left of the budget paid for no further proposal"
        case SearchEnd.BUDGET:
            return "the budget was used up"
        case SearchEnd.HOURS:
            return "the time of the budget was up"
        case SearchEnd.OPTIMIZER:
            return f"{spec.optimizer.name} {_done_text(spec)}"
        case SearchEnd.TEST:
            return "the test was asked for before the budget was used up"
        case SearchEnd.NOT_RECORDED:
            return "not recorded"


def unspent_text(why: SearchEnd, spec: Spec, used: float) -> str:
    """Say why budget is left, and what can be done.

    Empty where nothing can be: the time is up, or the next proposal costs more than a full run.
    """
    unused = f"{1 - used:.0%} of the budget is unused: {search_end_text(why, spec, used)}"
    again = "a larger plan needs a new study"
    opens = "`autorl resume --runs +N` opens it again"
    match why:
        case SearchEnd.OPTIMIZER:
            return f"{unused}; {again}"
        case SearchEnd.TEST:
            extensible = spec.budget.runs is not None or spec.budget.configurations is not None
            return f"{unused} ({opens})" if extensible else unused
        case SearchEnd.NOT_RECORDED:
            return (
                "the search ended before its budget was used, and why is not recorded: by "
                f"`autorl test` ({opens}), or because the optimizer had nothing more to propose "
                f"(then {again})"
            )
        case _:
            return ""


def _done_text(spec: Spec) -> str:
    try:
        return find(spec.optimizer.name, spec.path).done_text
    except InputError:  # a study is read where it was not made
        return BaseOptimizer.done_text
