"""Studies of earlier versions go on as they began: `earlier_studies.json` is what the version before made of them.

Each entry is a stored study file as that version wrote it, without its options' defaults, and the proposals it made.
"""

import json
from pathlib import Path

import pytest
import yaml

from autorl.executors import InProcess
from autorl.spec import thaw
from autorl.study import Study

EARLIER = json.loads((Path(__file__).parent / "earlier_studies.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", EARLIER)
def test_a_stored_study_makes_the_proposals_it_would_have_made(name):
    stored = EARLIER[name]
    study = Study.in_memory(thaw(yaml.safe_dump(stored["study"], sort_keys=False), "study.yaml"))
    study.run(executor=InProcess(study.load))
    made = list(study.driver.lineage.proposals.values())
    assert [(proposal.until, proposal.resume_from) for proposal in made] == [
        (until, before) for _, until, before in stored["proposals"]
    ]
    for proposal, (config, _, _) in zip(made, stored["proposals"], strict=True):
        assert dict(proposal.config) == pytest.approx(config, rel=1e-9)
