"""Landscapes of RLHF: what is recorded of a study, and what the shipped ones hold."""

import pytest

from autorl.landscapes.study import from_study
from autorl.spec import load_spec
from autorl.store.provenance import rlhf_hash
from autorl.study import Study

STUDY = {
    "trainer": "trl/rloo",
    "environment": "letters-goldproxy",
    "space": "trl/rloo-tiny",
    "fidelity": {"steps": 4, "evaluations": 2, "episodes": 8},
    "optimizer": "sobol",
    "budget": {"configurations": 1},
    "seeds": {"tuning": 1, "test": 1},
    "test": {"top": 1},
    "executor": {"name": "in_process", "workers": 1},
    "keep": {"checkpoints": "none"},
}


@pytest.mark.slow
def test_the_manifest_counts_optimizer_steps_and_names_the_libraries_that_trained(tmp_path):
    trl = pytest.importorskip("trl", reason="needs the extra rlhf")
    study = Study.create(load_spec(STUDY), tmp_path / "study")
    study.run()
    study.close()
    manifest = from_study(tmp_path / "study", tmp_path / "out", "my/rloo/letters-goldproxy", licence="CC0")
    assert manifest.step_unit == "optimizer_steps"
    assert manifest.packages["trl"]["version"] == trl.__version__
    assert {"torch", "transformers", "accelerate", "datasets", "tokenizers"} <= set(manifest.packages)
    assert manifest.packages["autorl"]["rlhf"] == rlhf_hash()
