"""Landscapes of RLHF: what is recorded of a study, and what the shipped ones hold."""

import numpy as np
import pytest

from autorl.landscapes import list_landscapes, load_landscape, shipped_root
from autorl.study import Study
from autorl.study.results.landscape import from_study
from autorl.study.spec import load_spec
from autorl.trainers.families import rlhf_hash
from autorl.trainers.language.overoptimization import fit, fit_landscape, policies

RLHF = [name for name in list_landscapes(shipped_root() or "landscapes") if name.startswith("trl/")]
RLOO = "trl/rloo/letters-goldproxy"
DPO = "trl/dpo/letters-pairs"
SORT = "trl/grpo/sort-verifiable"
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
    manifest = from_study(
        tmp_path / "study", tmp_path / "out", "my/rloo/letters-goldproxy", licence="CC0"
    )
    assert manifest.step_unit == "optimizer_steps"
    assert manifest.packages["trl"]["version"] == trl.__version__
    assert {"torch", "transformers", "accelerate", "datasets", "tokenizers"} <= set(
        manifest.packages
    )
    assert manifest.packages["autorl"]["rlhf"] == rlhf_hash()


@pytest.mark.parametrize("name", RLHF)
def test_every_run_was_measured_at_every_step_by_every_metric(name):
    data = load_landscape(name)
    assert data.manifest.step_unit == "optimizer_steps"
    assert data.sql("SELECT DISTINCT status FROM runs").fetchall() == [("done",)]
    assert {
        "kl",
        "length",
        "distinct",
        "win_rate",
        "tokens",
        data.manifest.objective.metric,
    } <= set(data.metrics)
    table = data.sql("SELECT * FROM evals").df()
    assert len(table) == data.manifest.rows["runs"] * len(data.manifest.steps)
    assert np.isfinite(table.to_numpy(float)).all()
    low, high = data.manifest.return_bounds
    assert table[data.manifest.objective.metric].between(low, high).all()


@pytest.mark.skipif(RLOO not in RLHF, reason="not in this checkout")
class TestRLOO:
    """Over-optimisation, on data: every number is of test seeds, every choice is made on tuning seeds."""

    @pytest.mark.parametrize("saturated", [0.05, 0.1, 0.2])
    def test_the_published_form_fits_the_frontier_and_has_a_maximum_inside(self, saturated):
        """The quadratic one: gold is quadratic in a count of letters. The logarithmic one is behind it."""
        found, other = (
            fit_landscape(load_landscape(RLOO), form, saturated) for form in ("best_of_n", "rl")
        )
        assert found.r2 > 0.95
        assert found.interior
        assert 1 < found.peak_kl < 4
        assert other.interior
        assert 0.8 < other.r2 < found.r2

    def test_the_published_form_fits_the_curves_of_configurations_that_over_optimise(self):
        """A curve a configuration, as published; those that end far below their best, whatever their fit."""
        table = policies(load_landscape(RLOO))
        origin = table.reference_gold.mean()
        curves = [
            each
            for _, each in table.groupby("config_id")
            if each.gold.max() - each.gold.iloc[-1] > 0.5
        ]
        assert len(curves) >= 16
        for form in ("rl", "best_of_n"):
            fits = [fit(each.kl, each.gold, form, origin=origin).r2 for each in curves]
            assert np.median(fits) > 0.9


@pytest.mark.parametrize("name", [name for name in RLHF if name.endswith("/letters-goldproxy")])
def test_the_policy_with_the_highest_proxy_is_worse_than_the_reference_policy(name):
    data = load_landscape(name)
    tuning, test = (
        policies(data, role).set_index(["config_id", "step"]) for role in ("tuning", "test")
    )
    by_proxy, by_gold = test.loc[tuning.proxy.idxmax()], test.loc[tuning.gold.idxmax()]
    assert by_proxy.gold < by_proxy.reference_gold - 1
    assert by_gold.gold > by_gold.reference_gold + 0.4
    assert by_proxy.proxy > by_gold.proxy
