"""Analyses of landscapes.

They say what matters, what transfers, what is noise, and which environments represent the others.
"""

from autorl.landscapes.analysis._answer import Answer
from autorl.landscapes.analysis.kinds import (
    KINDS,
    METHODS,
    analyse,
    chart_of,
    importance,
    save,
    subset,
)

__all__ = ["KINDS", "METHODS", "Answer", "analyse", "chart_of", "importance", "save", "subset"]
