"""The Python front door: `tune` and `Tuner`.

`tune` runs a whole study. `Tuner` embeds the search in a training loop of your own.
"""

from autorl.spec.arguments import study_overrides
from autorl.spec.sources import read_study, space_study
from autorl.tuner.trial import Finished, Trial, Waiting
from autorl.tuner.tuner import Tuner, tune

__all__ = [
    "Finished",
    "Trial",
    "Tuner",
    "Waiting",
    "read_study",
    "space_study",
    "study_overrides",
    "tune",
]
