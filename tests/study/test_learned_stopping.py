"""A study with `stop: learned`: the same table with any workers, kills and failures."""

import numpy as np
import pytest
from study_support import RACING, small_spec

from autorl.optimizers.priors.study_curves import SourceCurves, StudyCurves
from autorl.study import Study

PART = np.array([0.25, 0.5, 0.75, 1.0])
LEVEL = np.linspace(0, 1, 40)[:, None]
CURVES = StudyCurves(
    (SourceCurves("kit", "kit", tuple(PART.tolist()), LEVEL * np.sqrt(PART)),)
).to_dict()
RULE = {
    "name": "random",
    "stop": "learned",
    "rungs": 3,
    "grace": 0,
    "peers": 2,
    "threshold": 0.4,
    "check": 3,
    "curve_data": CURVES,
}
LEARNED = {"optimizer": RULE}
FAILING = {**LEARNED, "trainer": {"crash": 0.2, "nan": {"above": {"x": 0.8}, "seeds": [1]}}}
MINIMIZED = {**LEARNED, "objective": {"metric": "eval_return", "direction": "minimize"}}
RACING = {**LEARNED, **RACING, "seeds": {"tuning": 3, "test": 0}}


def lengths(changes):
    """Steps of each run and its final score, in order."""
    study = Study.in_memory(small_spec(**changes))
    study.run()
    proposals = study.driver.lineage.proposals
    reached = {}
    for number, proposal in proposals.items():
        reached[proposal.meta.get("root", number)] = proposal.until
    study.close()
    return list(reached.values())


@pytest.mark.parametrize("changes", [LEARNED, FAILING, MINIMIZED, RACING])
def test_some_runs_are_stopped_and_some_are_not(changes):
    steps = lengths({"seeds": {"tuning": 2, "test": 0}, **changes})
    assert 100 in steps
    assert min(steps) < 100
    assert len(steps) > 8  # the budget of eight full runs
