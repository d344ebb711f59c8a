"""Learning curves of landscapes in a study with `stop: learned`: read, refused, kept in its study file."""

import shutil

import numpy as np
import pytest
from landscape_samples import SPACE, write

from autorl.core.types import InputError
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.manifest import Objective
from autorl.optimizers.priors.sources import read_curves
from autorl.report.plan import make_plan
from autorl.report.plan_text import plan_text
from autorl.study.spec import load_spec, thaw


def study(folder, options, **changes):
    content = {
        "name": "of-curves",
        "path": str(folder),
        "trainer": "population/dqn",
        "environment": "Acrobot-v1",
        "space": SPACE.to_dict(),
        "optimizer": {"name": "random", "stop": "learned", **options},
        "fidelity": {"steps": 400},
        "budget": {"configurations": 16},
        "seeds": {"tuning": 3, "test": 0},
    }
    return load_spec(content | changes)


def curve_data(spec):
    return spec.optimizer.options["curve_data"]


def test_curves_are_of_tuning_seeds_and_larger_is_better(here):
    folder = write(here / "landscapes")
    curves = read_curves(Dataset(folder))
    assert curves.fractions == (0.25, 0.5, 0.75, 1.0)
    assert curves.values.shape[1:] == (3, 4)
    assert curves.values.min() == 0
    assert curves.values.max() == 1
    less = Objective(metric="eval_return", direction="minimize")
    turned = read_curves(Dataset(write(here / "turned", objective=less)))
    rows = [curves.values[:, :, -1].mean(axis=1), turned.values[:, :, -1].mean(axis=1)]
    assert np.corrcoef(rows)[0, 1] < -0.9


def test_the_study_file_holds_the_curves_and_the_landscape_may_go(here):
    folder = write(here / "landscapes")
    spec = study(here, {"curves": [str(folder)]})
    (source,) = curve_data(spec)["sources"]
    assert source["source"] == "sample/dqn/CartPole-v1"
    single = study(here, {"curves": [str(folder)]}, seeds={"tuning": 1, "test": 0})
    assert curve_data(single)["sources"][0]["rows"] == 3 * source["rows"]
    text = spec.freeze()
    shutil.rmtree(folder)
    stored = thaw(text, "study.yaml")
    assert stored.freeze() == text
    with pytest.raises(InputError, match="no landscape, study or prior file") as caught:
        study(here, {"curves": [str(folder)]})
    assert caught.value.key == "optimizer.curves"


def test_a_study_is_the_same_when_its_landscapes_have_changed(here):
    write(here / "landscapes")
    spec = study(here, {})
    assert len(curve_data(spec)["sources"]) == 1
    stored = thaw(spec.freeze(), "study.yaml")
    write(here / "landscapes", "Pendulum-v1", seed=1)
    later = study(here, {})
    assert len(curve_data(later)["sources"]) == 2
    assert later.same_study(stored)
    assert not study(here, {"threshold": 0.1}).same_study(stored)


def test_a_landscape_of_another_algorithm_is_refused_and_auto_skips_it(here):
    folder = write(here / "landscapes", algorithm="ppo")
    with pytest.raises(InputError, match="is of the algorithm ppo") as caught:
        study(here, {"curves": [str(folder)]})
    assert caught.value.key == "optimizer.curves"
    assert curve_data(study(here, {}))["sources"] == []


def test_auto_is_what_the_prior_of_the_optimizer_names(here):
    folder = write(here / "landscapes")
    write(here / "landscapes", "Pendulum-v1", seed=1)

    def sources(**options):
        spec = study(here, {"name": "transfer", **options})
        return [source["source"] for source in curve_data(spec)["sources"]]

    assert len(sources()) == 2
    assert sources(prior=[str(folder)]) == ["sample/dqn/CartPole-v1"]
    without = study(here, {"name": "transfer", "prior": "none"})
    assert "curve_data" not in without.optimizer.options


def test_the_dry_run_says_which_curves_there_are(here):
    folder = write(here / "landscapes")
    trained = {"trainer": {"name": "synthetic"}, "environment": {}}
    plan = make_plan(study(here, {"curves": [str(folder)]}, **trained))
    assert any("reference curves of 1 task, hash" in line for line in plan.outline)
    assert any("probability below 0.05" in line for line in plan.outline)
    text = plan_text(plan)
    assert "curve_data: sha256 " in text
    without = make_plan(study(here, {"curves": "none"}, **trained))
    assert any("learned has 0 learning curves to begin with" in line for line in without.cautions)
    dear = make_plan(study(here, {"name": "transfer", "curves": [str(folder)]}, **trained))
    assert any("of 1 task" in line for line in dear.outline)
    assert any("no prior" in line for line in dear.outline)
