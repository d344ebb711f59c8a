"""Says where the tuning winner does not win on test seeds."""

from __future__ import annotations

from autorl.report.text import interval_text, number
from autorl.spec import Spec
from autorl.statistics import iqm
from autorl.study import Result
from autorl.study.estimates import difference, paired


def loss_text(spec: Spec, result: Result) -> str:
    """Say that the tuning winner loses on test seeds.

    Empty where nothing that was trained as long is better there, or nothing was tested.
    """
    test = result.test
    if test is None:
        return ""
    sign = spec.objectives()[0].sign
    # At unequal length the difference would be of training time too.
    length = result.entries[0].until
    rivals = [
        (entry, entry.test)
        for entry in result.entries[1:]
        if entry.test is not None and entry.until == length
    ]
    better = [(entry, rival) for entry, rival in rivals if sign * (rival.iqm - test.iqm) > 0]
    if not better:
        return ""
    entry, rival = max(better, key=lambda pair: sign * pair[1].iqm)
    name = "the default configuration"
    if entry.label != "default":
        name = f"proposal {entry.proposal} ({entry.label} by tuning score)"
    text = (
        f"The tuning winner loses on the test seeds: {name} has {number(rival.iqm)} there, "
        f"the winner (proposal {result.incumbent.proposal}) {number(test.iqm)} (IQM)."
    )
    of_winner, of_rival = paired(test, rival)
    span = difference(spec, test, rival)
    if span is not None:
        change = iqm(of_winner) - iqm(of_rival)
        text += (
            f" Difference on the same seeds {number(change)}, 95 % interval {interval_text(span)}"
        )
        text += ": it may be noise." if span.low <= 0 <= span.high else "."
    return text + " Test seeds judge and never choose, so the incumbent stays what it is."
