"""Learning curves of landscapes in a study with `stop: learned`: read, refused, kept in its study file."""

import numpy as np
from landscape_samples import SPACE, write

from autorl.landscapes.dataset import Dataset
from autorl.landscapes.manifest import Objective
from autorl.optimizers.priors.sources import read_curves
from autorl.report.plan import make_plan
from autorl.report.plan_text import plan_text
from autorl.study.spec import load_spec


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
    assert any("probability below 0.02" in line for line in plan.outline)
    text = plan_text(plan)
    assert "curve_data: sha256 " in text
    without = make_plan(study(here, {"curves": "none"}, **trained))
    assert any("learned has 0 learning curves to begin with" in line for line in without.cautions)
    dear = make_plan(study(here, {"name": "transfer", "curves": [str(folder)]}, **trained))
    assert any("of 1 task" in line for line in dear.outline)
    assert any("no prior" in line for line in dear.outline)
