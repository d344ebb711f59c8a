"""Analyses of landscapes.

They say what matters, what transfers, what is noise, and which environments represent the others.
The functions of plain arrays below the answers have modules of their own.
"""

from autorl.landscapes.analysis._answer import Answer
from autorl.landscapes.analysis.answers import METHODS, analyse, importance, subset
from autorl.landscapes.analysis.kinds import CHARTS, KINDS, chart_of
from autorl.landscapes.analysis.plots import save

__all__ = [
    "CHARTS",
    "KINDS",
    "METHODS",
    "Answer",
    "analyse",
    "chart_of",
    "importance",
    "save",
    "subset",
]
