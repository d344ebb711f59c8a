"""Priors of studies: found, refused or skipped, kept in the study file, and independent of the landscape afterwards."""

import json
import re
import shutil

import numpy as np
import pytest
import yaml
from landscape_samples import SPACE, write
from refusals import expect_error
from typer.testing import CliRunner

from autorl.cli import app
from autorl.core.types import InputError
from autorl.optimizers.priors.build import build_prior
from autorl.optimizers.priors.sources import automatic_tables, read_table
from autorl.optimizers.priors.study_prior import study_prior_of
from autorl.optimizers.priors.table import load_prior, save_prior, unit_scores
from autorl.report.html import report_html
from autorl.report.plan import make_plan
from autorl.report.plan_text import plan_text
from autorl.report.reading import open_view
from autorl.report.text import result_dict, result_text
from autorl.study import Study
from autorl.study.spec import load_spec, thaw


def study(folder, prior="auto", **changes):
    space = SPACE.to_dict()
    return {
        "name": "of-a-prior",
        "path": str(folder),
        "trainer": "population/dqn",
        "environment": "Acrobot-v1",
        "space": space,
        "optimizer": {"name": "transfer", "prior": prior},
        "fidelity": {"steps": 400},
        "budget": {"configurations": 16},
        "seeds": {"tuning": 1, "test": 0},
        **changes,
    }


def named(here, prior, **changes):
    return load_spec(study(here, prior, **changes))


# By kind of source: the optimizer, and where the study file holds the data.
KINDS = {
    "prior": ({"name": "transfer"}, "prior_data", lambda data: data["tasks"]["values"]),
    "curves": ({"name": "random", "stop": "learned"}, "curve_data", lambda data: data["sources"]),
}


def beginning(here, kind, sources="auto", **changes):
    """A study that begins with these priors or curves, and what it holds of them."""
    optimizer, data, entries = KINDS[kind]
    spec = named(here, "none", optimizer={**optimizer, kind: sources}, **changes)
    return spec, entries(spec.optimizer.options[data])


@pytest.mark.parametrize("kind", KINDS)
def test_a_named_landscape_is_in_the_study_file_and_may_go(here, kind):
    folder = write(here / "landscapes")
    spec, (source,) = beginning(here, kind, [str(folder)])
    assert source["source"] == "sample/dqn/CartPole-v1"
    _, (three,) = beginning(here, kind, [str(folder)], seeds={"tuning": 3, "test": 0})
    assert (source["rows"], three["rows"]) == {"prior": (12, 12), "curves": (36, 12)}[kind]
    text = spec.freeze()
    shutil.rmtree(folder)
    assert thaw(text, "study.yaml").freeze() == text
    with pytest.raises(InputError, match="no landscape, study or prior file") as caught:
        beginning(here, kind, [str(folder)])
    assert caught.value.key == f"optimizer.{kind}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_landscape_of_another_algorithm_is_refused_and_auto_skips_it(here, kind):
    folder = write(here / "landscapes", algorithm="ppo")
    with pytest.raises(InputError, match="the algorithm ppo, this study trains dqn") as caught:
        beginning(here, kind, [str(folder)])
    assert caught.value.key == f"optimizer.{kind}"
    assert beginning(here, kind)[1] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_study_is_the_same_when_its_landscapes_have_changed(here, kind):
    write(here / "landscapes")
    spec, before = beginning(here, kind)
    stored = thaw(spec.freeze(), "study.yaml")
    write(here / "landscapes", "Pendulum-v1", seed=1)
    later, after = beginning(here, kind)
    assert (len(before), len(after)) == (1, 2)
    assert later.same_study(stored)
    assert not named(here, "none").same_study(stored)


def test_an_automatic_prior_takes_its_algorithm_and_says_what_it_cannot_read(here):
    write(here / "landscapes")
    write(here / "landscapes", "Pendulum-v1", seed=1)
    write(here / "landscapes", algorithm="ppo")
    damaged = write(here / "landscapes", "Taxi-v3", seed=2)
    (damaged / "runs.parquet").write_bytes(b"torn")
    gathered = automatic_tables(here, ("dqn",))
    sources = [table.source for group in gathered.groups for table in group]
    assert sources == ["sample/dqn/CartPole-v1", "sample/dqn/Pendulum-v1"]
    assert len(gathered.skipped) == 2
    assert gathered.skipped[0].startswith("landscapes/dqn/Taxi-v3: ")
    assert gathered.skipped[1] == "sample/ppo/CartPole-v1: of another algorithm"
    left_out = automatic_tables(here, ("dqn",), "sample/dqn/CartPole-v1")
    assert len([table for group in left_out.groups for table in group]) == 1
    assert left_out.skipped[0] == "sample/dqn/CartPole-v1: the study replays it"


def test_a_table_is_made_of_tuning_seeds(here):
    folder = write(here / "landscapes")
    table = read_table(folder)
    assert table.n_seeds == 3
    assert table.scores.max() == 1
    assert table.algorithm == "dqn"


def test_scores_are_scaled_from_the_low_quantile_to_the_best():
    values = np.array([-1e22, *np.linspace(0, 1, 39)])
    scores = unit_scores(values)
    assert scores[0] == scores[1] == 0
    assert scores[-1] == 1
    assert np.all(np.diff(scores) >= 0)
    assert scores[20] == pytest.approx(0.47, abs=0.02)
    assert unit_scores(np.array([0.0, *[1.0] * 39]))[[0, 1]].tolist() == [0, 1]
    expect_error("all configurations score the same", unit_scores, np.ones(9))


def test_a_prior_file_is_a_source(here):
    folders = [write(here / "landscapes"), write(here / "landscapes", "Pendulum-v1", seed=1)]
    tables = [read_table(folder) for folder in folders]
    prior = build_prior(tables, SPACE)
    assert prior.licence == "https://opensource.org/license/apache-2-0"
    assert len(prior.portfolio) == 12
    save_prior(prior, here / "dqn.json")
    assert load_prior(here / "dqn.json").sha256 == prior.sha256
    data = named(here, ["dqn.json"]).optimizer.options["prior_data"]
    direct = named(here, [str(folder) for folder in folders]).optimizer.options["prior_data"]
    rows = [[task["rows"] for task in made["tasks"]["values"]] for made in (data, direct)]
    assert rows[0] == rows[1]
    content = json.loads((here / "dqn.json").read_text())
    assert len(content["designs"]) == 1
    expect_error("is there twice", build_prior, [tables[0], tables[0]], SPACE)


def test_the_dry_run_says_what_the_prior_is_made_of(here):
    folder = write(here / "landscapes")
    plan = make_plan(named(here, [str(folder)], trainer={"name": "synthetic"}, environment={}))
    assert any("sample/dqn/CartPole-v1" in line for line in plan.outline)
    without = make_plan(named(here, "none", trainer={"name": "synthetic"}, environment={}))
    assert without.outline == ("no prior: prior is none",)
    # The data themselves are for nobody's eyes.
    text = plan_text(plan)
    assert "prior_data: sha256 " in text
    assert "designs" not in text


def synthetic(here, folder):
    """A study on the synthetic trainer that begins with a landscape."""
    return named(
        here,
        [str(folder)],
        trainer={"name": "synthetic", "kwargs": {"optimum": {"width": 0.7}, "noise": 0.1}},
        environment={},
        parallelism=3,
        executor={"name": "in_process"},
    )


def proposed(study):
    return [proposal.config for proposal in study.driver.lineage.proposals.values()]


def test_a_study_goes_on_without_its_landscape_to_the_same_table(here):
    landscape = write(here / "landscapes")
    spec = synthetic(here, landscape)
    whole = Study.in_memory(synthetic(here, landscape))
    whole.run()
    Study.create(spec, here / "study").close()
    shutil.rmtree(landscape)
    resumed = Study.open(here / "study")
    resumed.run()
    assert len(proposed(resumed)) == 16
    assert proposed(resumed) == proposed(whole)
    resumed.close()
    whole.close()


def test_earlier_studies_are_read_where_they_are_asked_for(here):
    Study.create(synthetic(here, write(here / "gone")), here / "studies" / "first").run()
    for asked, sources in ((False, []), (True, ["studies/first"])):
        gathered = automatic_tables(here, ("synthetic",), studies=asked)
        assert [table.source for group in gathered.groups for table in group] == sources


def prior_file(here, *environments, name="dqn"):
    """A prior file below `priors/`, of landscapes that are gone afterwards."""
    tables = [
        read_table(write(here / "gone", environment, seed=seed))
        for seed, environment in enumerate(environments)
    ]
    (here / "priors").mkdir(exist_ok=True)
    save_prior(build_prior(tables, SPACE), here / "priors" / f"{name}.json")
    shutil.rmtree(here / "gone")


def test_a_prior_file_has_a_name(here):
    prior_file(here, "CartPole-v1", "Pendulum-v1")
    data = named(here, ["dqn"]).optimizer.options["prior_data"]
    assert [task["prior"] for task in data["tasks"]["values"]] == ["dqn", "dqn"]
    expect_error(r"prior file 'dqm'; did you mean 'dqn'\?", named, here, ["dqm"])


def test_of_two_tables_of_one_id_the_first_is_taken_and_the_other_named_if_it_differs(here):
    prior_file(here, "CartPole-v1")
    write(here / "landscapes", "CartPole-v1", seed=0)
    same = automatic_tables(here, ("dqn",))
    assert [table.prior for group in same.groups for table in group] == ["dqn"]
    assert same.skipped == []
    shutil.rmtree(here / "landscapes")
    write(here / "landscapes", "CartPole-v1", seed=5)
    other = automatic_tables(here, ("dqn",))
    assert [table.prior for group in other.groups for table in group] == ["dqn"]
    assert other.skipped == [
        "landscapes/dqn/CartPole-v1: another table of the id sample/dqn/CartPole-v1 was taken"
    ]


def test_the_users_own_come_before_those_of_the_package(here, monkeypatch, tmp_path_factory):
    package = tmp_path_factory.mktemp("package")
    prior_file(package, "CartPole-v1", name="shipped")
    kinds = {"priors": package / "priors"}
    monkeypatch.setattr("autorl.optimizers.priors.sources.shipped_folder", kinds.get)
    shipped = automatic_tables(here, ("dqn",))
    assert [table.prior for group in shipped.groups for table in group] == ["shipped"]
    write(here / "landscapes", "CartPole-v1", seed=5)
    own = automatic_tables(here, ("dqn",))
    assert [table.prior for group in own.groups for table in group] == [""]
    assert own.skipped == ["shipped: another table of the id sample/dqn/CartPole-v1 was taken"]


def test_the_dry_run_says_why_a_prior_is_trusted(here):
    prior_file(here, "CartPole-v1", "Pendulum-v1")
    write(here / "landscapes", "Pong-v5", seed=3)
    data = named(here, "auto").optimizer.options["prior_data"]
    head, *lines = study_prior_of(data, SPACE).lines()
    start = "prior of 3 tasks, 2 of the family classic control: dqn (2 tasks), sample/dqn/Pong-v5; "
    assert head.startswith(start)
    assert re.search(r", makes \d+% of the proposals before evidence; ", head)
    assert ", of the family)" in lines[0]
    assert ", of the family)" not in lines[2]
    other = named(here, "auto", trainer="population/ppo").optimizer.options["prior_data"]
    assert study_prior_of(other, SPACE).lines() == (
        "no prior: no landscape of this algorithm was found that can be used",
        "no part of the prior: dqn, sample/dqn/Pong-v5: of another algorithm",
    )


def test_a_prior_without_a_family_of_the_study_says_so(here):
    prior_file(here, "CartPole-v1")
    data = named(here, "auto", environment="LunarLander-v3").optimizer.options["prior_data"]
    prior = study_prior_of(data, SPACE)
    assert prior.lines()[0].startswith("prior of 1 task, 0 of the family box2d: dqn (1 task); ")


def test_a_result_names_its_prior_and_counts_its_proposals(here):
    landscape = write(here / "landscapes")
    spec = synthetic(here, landscape)
    study = Study.create(spec, here / "study")
    result = study.run()
    proposals = study.driver.lineage.proposals.values()
    configs = {}
    for proposal in proposals:
        configs.setdefault(proposal.config, proposal.meta.get("arm"))
    study.close()
    hash_ = spec.optimizer.options["prior_data"]["sha256"]
    of_prior = list(configs.values()).count("prior")
    assert 0 < of_prior < len(configs)
    assert (result.prior.proposed, result.prior.new) == (of_prior, len(configs))
    line = (
        f"prior: sample/dqn/CartPole-v1, hash {hash_[:12]}: "
        f"{of_prior} of {len(configs)} new configurations"
    )
    assert line in result_text(result)
    assert result_dict(result)["prior"]["sha256"] == hash_
    view = open_view(here / "study")
    try:
        page = report_html(view)
    finally:
        view.close()
    assert line in page
    assert f"prior_data: sha256 {hash_}" in page
    assert "designs" not in page
    run = CliRunner().invoke
    best = run(app, ["best", str(here / "study")]).stdout
    assert best.startswith(f"# {line}\n")
    assert yaml.safe_load(best)[0]["label"] == "incumbent"
    assert line not in run(app, ["best", str(here / "study"), "--format", "cli"]).stdout


def test_a_result_without_a_prior_has_no_line_of_it(here):
    spec = named(here, "none", trainer={"name": "synthetic"}, environment={})
    study = Study.in_memory(spec)
    result = study.run()
    study.close()
    assert result.prior is None
    assert "prior" not in result_text(result)


def test_a_prior_file_that_cannot_be_read_is_a_line_or_an_error(here):
    prior_file(here, "CartPole-v1")
    torn = here / "priors" / "torn.json"
    torn.write_text((here / "priors" / "dqn.json").read_text()[:-30])
    gathered = automatic_tables(here, ("dqn",))
    assert [table.prior for group in gathered.groups for table in group] == ["dqn"]
    (line,) = gathered.skipped
    assert line.startswith("torn: no prior: not JSON")
    expect_error("no prior: not JSON", named, here, ["torn"])
