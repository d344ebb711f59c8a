"""The prior files of the package: small, attributed, made again to the byte, and found by studies of their algorithm."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import shipped_priors

from autorl.landscapes.importers.arlbench_spaces import arlbench_tasks
from autorl.optimizers.priors.mapping import map_task
from autorl.optimizers.priors.sources import automatic_tables, find_prior
from autorl.optimizers.priors.table import load_prior, save_prior
from autorl.space import load_space
from autorl.study.spec import load_spec

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "priors"
NAMES = {"arlbench-dqn", "arlbench-ppo", "autorl-dqn", "autorl-ppo", "autorl-sac"}
ARLBENCH = ROOT.parent / "shared" / "data" / "arlbench"
MOST_BYTES = 2_000_000


@pytest.fixture(scope="module")
def priors():
    return {file.stem: load_prior(file) for file in sorted(FOLDER.glob("*.json"))}


def test_they_are_small_together(priors):
    assert set(priors) == NAMES
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < MOST_BYTES


def test_each_says_where_it_is_from(priors):
    for name, prior in priors.items():
        assert prior.algorithm == name.rpartition("-")[2]
        assert prior.tasks
        assert len(prior.portfolio) == 32
        assert prior.built_with.startswith("python benchmarks/shipped_priors.py")
        assert prior.licence.startswith("https://")
        assert all(len(task.sha256) == 64 and task.licence for task in prior.tasks)


def test_those_of_arlbench_carry_its_licence_and_nothing_of_its_examination(priors):
    known = {task.environment for task in arlbench_tasks().values()}
    of_arlbench = {name: prior for name, prior in priors.items() if name.startswith("arlbench")}
    assert {name: len(prior.tasks) for name, prior in of_arlbench.items()} == {
        "arlbench-dqn": 13,
        "arlbench-ppo": 6,
    }
    for prior in of_arlbench.values():
        assert "Copyright (c) 2024, AutoML Hannover" in prior.notice
        assert "Redistributions of source code must retain" in prior.notice
        assert 'THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS"' in (
            prior.notice
        )
        assert "ARLBench" in prior.citation
        assert prior.licence == "https://opensource.org/license/bsd-3-clause"
        assert {task.environment for task in prior.tasks} <= known
        assert all(task.source.startswith(f"arlbench/{prior.algorithm}/") for task in prior.tasks)
    with pytest.raises(ValueError, match="no prior is made of ARLBench's tables of sac"):
        shipped_priors.arlbench_prior("sac", ARLBENCH)


def test_hyperparameters_have_the_names_of_stable_baselines3(priors):
    for algorithm, shared in (("ppo", 8), ("dqn", 7)):
        space = load_space(f"sb3/{algorithm}")
        table = priors[f"arlbench-{algorithm}"].tasks[0]
        assert map_task(table, space).recorded.sum() == shared
        assert set(table.names) & set(space.names) >= {"learning_rate", "batch_size"}
    renamed = shipped_priors.renamed
    assert renamed({"clip_eps": 0.2, "minibatch_size": 64}) == {"clip_range": 0.2, "batch_size": 64}
    without = {"use_target_network": False}
    assert renamed(without) == without | {"target_update_interval": 1}
    with_one = {"use_target_network": True, "target_update_interval": 50}
    assert renamed(with_one) == with_one


def made_again(prior, tmp_path):
    save_prior(prior, tmp_path / "again.json")
    return (tmp_path / "again.json").read_bytes()


@pytest.mark.parametrize(
    "algorithm", ["sac", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ppo", "dqn"))]
)
def test_one_of_our_landscapes_is_made_again_to_the_byte(algorithm, tmp_path, priors):
    exact = shipped_priors.own_prior(algorithm)
    assert made_again(exact, tmp_path) == (FOLDER / f"autorl-{algorithm}.json").read_bytes()
    for table, stored in zip(exact.tasks, priors[f"autorl-{algorithm}"].tasks, strict=True):
        assert np.abs(table.scores - stored.scores).max() <= 0.5e-4 + 1e-12
        order, rounded = (np.sign(np.subtract.outer(x, x)) for x in (table.scores, stored.scores))
        # Rounding makes some pairs equal and turns none round.
        assert (order * rounded >= 0).all()
        assert ((order != 0) & (rounded == 0)).mean() < 0.05


@pytest.mark.slow
@pytest.mark.skipif(not ARLBENCH.is_dir(), reason="needs ARLBench's tables")
@pytest.mark.parametrize("algorithm", shipped_priors.OF_ARLBENCH)
def test_one_of_arlbench_is_made_again_to_the_byte(algorithm, tmp_path):
    again = made_again(shipped_priors.arlbench_prior(algorithm, ARLBENCH), tmp_path)
    assert again == (FOLDER / f"arlbench-{algorithm}.json").read_bytes()


@pytest.mark.parametrize(
    ("algorithm", "names"),
    [
        ("ppo", {"arlbench-ppo", "autorl-ppo"}),
        ("dqn", {"arlbench-dqn", "autorl-dqn"}),
        ("sac", {"autorl-sac"}),
    ],
)
def test_an_algorithm_finds_its_own_anywhere(algorithm, names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gathered = automatic_tables(None, (algorithm,))
    tables = [table for group in gathered.groups for table in group]
    # The landscapes of the package are in them already, and are not read again.
    assert {table.prior for table in tables} == names
    assert len({table.source for table in tables}) == len(tables)
    *unreadable, others = gathered.skipped
    assert others.endswith(": of another algorithm")
    # Its configurations change within a run: none of them has a score of its own.
    assert all(line.startswith("autorl-phases/ppo/") for line in unreadable)
    assert {find_prior(name).stem for name in names} == names


@pytest.mark.parametrize("trainer", ["sb3/sac", "population/sac"])
def test_a_study_begins_with_the_shipped_prior_of_its_algorithm(trainer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = {
        "name": "of-the-package",
        "trainer": trainer,
        "space": trainer,
        "environment": "Pendulum-v1",
        "optimizer": {"name": "transfer"},
        "fidelity": {"steps": 10_000},
        "budget": {"configurations": 16},
    }
    spec = load_spec(content)
    data = spec.optimizer.options["prior_data"]
    assert {task["prior"] for task in data["tasks"]["values"]} == {"autorl-sac"}
    assert json.loads(json.dumps(data))["family"] == "classic control"
    without = load_spec(content, {"optimizer.prior": "none"})
    assert "prior_data" not in without.optimizer.options
