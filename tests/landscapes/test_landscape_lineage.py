"""The shipped lineage of a population: what its build file says, who copied whom, schedules on held-out seeds."""

from pathlib import Path

import duckdb
import pytest

from autorl.landscapes import Landscape
from autorl.landscapes.validate import validate
from autorl.study.building import build_spec

ROOT = Path(__file__).parents[2] / "landscapes"
NAME = "autorl/pbt-ppo/CartPole-v1"


@pytest.fixture(scope="module")
def spec():
    return build_spec(ROOT / f"{NAME}.yaml")


@pytest.fixture(scope="module")
def data():
    return Landscape(ROOT / NAME)


def table(name):
    return duckdb.sql(f"SELECT * FROM '{ROOT / NAME / name}.parquet'").df()


def test_it_is_what_its_build_file_says(spec, data):
    manifest = data.manifest
    assert spec.landscape.id == manifest.id == NAME
    assert data.space.hash == spec.search_space.hash
    assert (manifest.seeds["tuning"], manifest.seeds["test"]) == (spec.plan.tuning, spec.plan.test)
    assert manifest.steps == spec.evaluation_steps
    assert manifest.sampler["name"] == spec.optimizer.name == "pbt"
    assert manifest.licence
    assert len(manifest.commit) == 40
    assert validate([ROOT / NAME]) == []


def test_parents_are_segments_of_the_same_seed_that_end_where_their_children_begin():
    segments = table("segments").set_index("segment")
    children = segments[segments.parent.notna()]
    parents = segments.loc[children.parent]
    assert (parents.seed.to_numpy() == children.seed.to_numpy()).all()
    assert (parents.to_step.to_numpy() == children.from_step.to_numpy()).all()
    copies = children[parents.member.to_numpy() != children.member.to_numpy()]
    assert len(copies) > 50
    assert segments[segments.parent.isna()].from_step.eq(0).all()


def test_only_what_is_changeable_differs_between_a_run_and_its_parent(data):
    runs = table("runs").set_index("run_id")
    children = runs[runs.parent_run.notna()]
    fixed = set(data.space.names) - data.space.changeable
    assert fixed == {"n_envs"}
    for run in children.itertuples():
        before, after = data.config(runs.loc[run.parent_run].config_id), data.config(run.config_id)
        assert {name: before[name] for name in fixed} == {name: after[name] for name in fixed}
    assert (
        children.config_id.to_numpy() != runs.loc[children.parent_run].config_id.to_numpy()
    ).mean() > 0.5


def test_tuning_and_test_seeds_do_not_meet():
    runs = table("runs")
    roles = runs.groupby("seed_role").seed.agg(set)
    assert not roles["tuning"] & roles["test"]
    schedules = runs[(runs.seed_role == "test") & runs.parent_run.notna()]
    assert set(schedules.seed) == roles["test"], (
        "a schedule with changes was retrained on every held-out seed"
    )
