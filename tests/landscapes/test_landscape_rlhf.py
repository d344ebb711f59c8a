"""Landscapes of RLHF: what is recorded of a study, and what the shipped ones hold."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from autorl.landscapes import list_landscapes, load_landscape, shipped_root
from autorl.rlhf.overoptimization import fit, fit_landscape, frontier, policies
from autorl.spec import load_spec
from autorl.study import Study
from autorl.study.landscape import from_study
from autorl.trainers.families import rlhf_hash

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
            assert (
                np.median([fit(each.kl, each.gold, form, origin=origin).r2 for each in curves])
                > 0.9
            )

    def test_it_is_not_a_falling_line(self):
        """A line through the frontier, which has no maximum, explains far less."""
        points = frontier(load_landscape(RLOO))
        assert len(points) > 30
        assert points.config_id.nunique() > 15
        points = points[points.gold > -2.8]
        distance = np.sqrt(points.kl.clip(lower=0))
        line = np.polyval(np.polyfit(distance, points.gold, 1), distance)
        assert (
            1 - np.sum((points.gold - line) ** 2) / np.sum((points.gold - points.gold.mean()) ** 2)
            < 0.8
        )

    def test_much_of_it_over_optimises(self):
        ends = policies(load_landscape(RLOO)).groupby("config_id").gold.agg(["max", "last"])
        assert (ends["last"] < ends["max"] - 0.1).mean() > 0.25
        reference = policies(load_landscape(RLOO)).reference_gold.mean()
        assert (ends["last"] < reference).mean() > 0.2
        assert ends["max"].max() > 0.6

    @pytest.mark.parametrize(("by", "low", "high"), [("gold", 0.6, 0.72), ("proxy", -3.0, -2.5)])
    def test_random_search_of_sixteen_configurations(self, by, low, high):
        """What a study of the same budget has to beat: the median over 1,000 draws (0.665 by gold, -2.93 by proxy)."""
        data, rng = load_landscape(RLOO), np.random.default_rng(0)
        tuning, test = (policies(data, role) for role in ("tuning", "test"))
        best = tuning.loc[tuning.groupby("config_id")[by].idxmax()].merge(
            test, on=["config_id", "step"]
        )
        draws = (best.iloc[rng.choice(len(best), 16, replace=False)] for _ in range(1000))
        assert (
            low < np.median([each.loc[each[f"{by}_x"].idxmax(), "gold_y"] for each in draws]) < high
        )


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


def ends(name, role, *metrics):
    """Means over the seeds of a role at the last step, a row for each configuration."""
    data = load_landscape(name)
    means = ", ".join(f"avg({metric}) AS {metric}" for metric in metrics)
    return data.sql(
        f"SELECT config_id, learning_rate, {means} FROM evals JOIN runs USING (run_id) JOIN configs USING (config_id) "
        f"WHERE seed_role = '{role}' AND step = {data.manifest.steps[-1]} GROUP BY ALL ORDER BY config_id"
    ).df()


@pytest.mark.skipif(SORT not in RLHF, reason="not in this checkout")
class TestSorting:
    """A verifiable reward on which three fair metrics want three learning rates."""

    @staticmethod
    def ends(role):
        return ends(SORT, role, "exact", "greedy", "pass_at_8", "reference_exact")

    @pytest.mark.parametrize("role", ["tuning", "test"])
    def test_beyond_a_learning_rate_nothing_is_left(self, role):
        table = self.ends(role)
        far, near = table[table.learning_rate > 6e-4], table[table.learning_rate < 2e-4]
        assert len(far) > 20 < len(near)
        assert far.exact.max() < 0.2 < table.reference_exact.mean()
        assert near.exact.median() > table.reference_exact.mean() + 0.05

    @pytest.mark.parametrize("role", ["tuning", "test"])
    def test_sampling_wants_a_higher_learning_rate_than_the_greedy_answer(self, role):
        table = self.ends(role)
        top = {metric: table.nlargest(8, metric) for metric in ("exact", "greedy", "pass_at_8")}
        rates = {metric: np.exp(np.log(each.learning_rate).mean()) for metric, each in top.items()}
        assert rates["exact"] > 1.5 * rates["greedy"]
        assert rates["exact"] > 1.5 * rates["pass_at_8"]
        assert set(top["exact"].config_id) != set(top["greedy"].config_id)


@pytest.mark.skipif(DPO not in RLHF, reason="not in this checkout")
class TestPairs:
    """The usual measure of training on preferences, accuracy on held-out pairs, finds who has hardly moved."""

    @staticmethod
    def ends(role):
        return ends(DPO, role, "gold", "pair_accuracy", "kl", "reference_gold")

    def test_selecting_by_pair_accuracy_finds_a_far_worse_policy_than_selecting_by_gold(self):
        tuning, test = self.ends("tuning"), self.ends("test").set_index("config_id")
        by_pairs, by_gold = (
            test.loc[tuning.config_id[tuning[by].idxmax()]] for by in ("pair_accuracy", "gold")
        )
        assert by_gold.gold > 0.6
        assert by_pairs.gold < by_pairs.reference_gold + 0.15
        assert by_pairs.kl < 0.1 < by_gold.kl

    @pytest.mark.parametrize("role", ["tuning", "test"])
    def test_pair_accuracy_ranks_configurations_the_wrong_way_round(self, role):
        table = self.ends(role)
        assert spearmanr(table.pair_accuracy, table.gold).statistic < -0.2
        assert table.gold.max() - table.gold.min() > 0.9

    def test_some_configurations_learn_and_then_fall(self):
        table = policies(load_landscape(DPO)).groupby("config_id").gold.agg(["max", "last"])
        assert (table["max"] - table["last"] > 0.5).any()
