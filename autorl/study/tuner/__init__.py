"""The Python front door: `tune` and `Tuner`.

`tune` runs a whole study. `Tuner` embeds the search in a training loop of your own.
"""

from autorl.study.spec.arguments import study_overrides
from autorl.study.spec.study_file import read_study, space_study
from autorl.study.tuner.tuner import Finished, Trial, Tuner, Waiting
from autorl.study.tuner.whole_study import tune

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
