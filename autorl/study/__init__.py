"""Runs a study to a result.

The rooms are decisions (`driver`), segments (`work`), the test phase, and the result.
"""

from autorl.study.results.result import Entry, Estimate, Result
from autorl.study.study import Progress, Study

__all__ = ["Entry", "Estimate", "Progress", "Result", "Study"]
