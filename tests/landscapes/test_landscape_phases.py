"""Landscapes in phases: every configuration goes on from the best agent of the phase before, with any workers alike."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from landscape_samples import run_study
from refusals import expect_error

from autorl.core.types import Done, Proposed, Scored, Wait
from autorl.landscapes import Landscape, from_study
from autorl.landscapes.analysis.tables import phase_scores
from autorl.landscapes.validate import validate
from autorl.optimizers import make
from autorl.space import load_space
from autorl.study import Study
from autorl.study.spec import load_spec

SPACE = {
    "hyperparameters": {
        "x": {"type": "float", "lower": 0.0, "upper": 1.0, "changeable": True},
        "kind": {"type": "categorical", "choices": ["a", "b"], "changeable": True},
        "size": {"type": "constant", "value": 3},
    }
}
STUDY = {
    "name": "phases",
    "trainer": {"name": "synthetic", "kwargs": {"optimum": {"x": 0.7}, "noise": 0.1, "rollout": 7}},
    "space": SPACE,
    "fidelity": {"steps": 90, "evaluations": 9},
    "budget": {"configurations": 6},
    "seeds": {"tuning": 2, "test": 2},
    "evaluation": {"aggregate": "iqm"},
    "optimizer": {"name": "phases", "phases": 3},
    "test": {"top": 18},
    "keep": {"checkpoints": "none"},
    "executor": {"name": "in_process"},
    "landscape": {"id": "my/synthetic/bowl", "bounds": [-2, 2], "licence": "CC0"},
}
COLUMNS = (
    "run_id, config_id, seed, seed_role, parent_run, start_step, member, status, environment_steps"
)
TABLES = (
    f"SELECT {COLUMNS} FROM runs ORDER BY run_id",
    "SELECT * FROM reports ORDER BY run_id, step, metric",
)


def run(folder, **changes):
    return run_study(folder, {**STUDY, **changes})


def tables(folder):
    with closing(sqlite3.connect(folder / "study.sqlite")) as connection:
        return [connection.execute(query).fetchall() for query in TABLES]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return run(tmp_path_factory.mktemp("phases") / "study")


@pytest.fixture(scope="module")
def landscape(study, tmp_path_factory):
    root = tmp_path_factory.mktemp("landscapes")
    from_study(study, root)
    return Landscape(root / "my/synthetic/bowl")


def test_every_phase_trains_every_configuration_from_the_best_of_the_one_before(landscape):
    assert landscape.phases == (0, 30, 60)
    runs = landscape.sql("SELECT * FROM runs").df()
    assert runs.groupby(["start_step", "seed"])["config_id"].nunique().tolist() == [6] * 12
    scores = landscape.sql("SELECT run_id, step, value FROM scores").df()
    config_of, seed_of = runs.set_index("run_id").config_id, runs.set_index("run_id").seed
    for before, start in ((0, 30), (30, 60)):
        earlier = runs[(runs.start_step == before) & (runs.seed_role == "tuning")]
        ends = (
            scores[scores.run_id.isin(earlier.run_id) & (scores.step == start)]
            .set_index("run_id")
            .value
        )
        best = ends.groupby(config_of).mean().idxmax()  # the IQM of two values is their mean
        parents = runs[runs.start_step == start].set_index("run_id").parent_run
        assert set(parents.map(config_of)) == {best}
        # Seed by seed, so test seeds stay apart.
        assert (parents.map(seed_of) == seed_of[parents.index]).all()


def test_the_written_landscape_is_valid_and_its_phases_can_be_compared(landscape):
    assert [str(problem) for problem in validate(landscape.path)] == []
    assert landscape.manifest.sampler == {"name": "phases", "seed": 0, "phases": 3}
    scores, _, starts, ends = phase_scores(landscape)
    assert scores.shape == (3, 6, 4)
    assert (starts, ends) == ([0, 30, 60], [30, 60, 90])


def test_best_is_of_the_first_phase_and_refused_later(landscape):
    value = landscape.sql(
        "SELECT avg(value) FROM scores JOIN (SELECT run_id FROM runs WHERE start_step = 0) USING (run_id) "
        "WHERE seed_role = 'tuning' AND step = 30 GROUP BY config_id ORDER BY 1 DESC LIMIT 1"
    ).fetchall()[0][0]
    assert landscape.best(step=30, by="mean").value == pytest.approx(value)
    expect_error(r"phases begin at steps 0, 30, 60.* up to 30", landscape.best)
    expect_error("phases begin at", landscape.top, step=60)
    expect_error("in phases", landscape.objective)


def test_more_workers_give_the_same_tables(study, tmp_path):
    assert tables(run(tmp_path / "two", executor={"name": "threads", "workers": 2})) == tables(
        study
    )


def test_a_study_stopped_anywhere_goes_on_to_the_same_tables(study, tmp_path):
    folder, after = tmp_path / "stopped", 0
    Study.create(load_spec(STUDY), folder).close()
    while True:
        again = Study.open(folder)
        pool = again.advance()
        if not pool:
            break
        for segment in pool[: 1 + after % 5]:  # the others are lost with the driver
            again.record(again.load(segment.trainer).train(segment, lambda report: None))
        after += 1
        again.close()
    again.close()
    assert after > 10
    assert tables(folder) == tables(study)


def test_what_failed_is_tried_again_in_every_phase_but_begins_none(tmp_path):
    trainer = {
        "name": "synthetic",
        "kwargs": {"optimum": {"x": 0.7}, "nan": {"above": {"x": 0.65}}},
    }
    data = Landscape(run(tmp_path / "failing", trainer=trainer))
    failed = {
        row[0] for row in data.sql("SELECT run_id FROM runs WHERE status = 'diverged'").fetchall()
    }
    assert failed
    assert not failed & {row[0] for row in data.sql("SELECT parent_run FROM runs").fetchall()}
    tuning = "SELECT count(*) FROM runs WHERE seed_role = 'tuning' GROUP BY start_step"
    assert data.sql(tuning).fetchall() == [(12,)] * 3


def test_without_a_survivor_it_ends():
    optimizer = make("phases", load_space(SPACE), horizon=90, budget=1, changeable={"x", "kind"})
    first = optimizer.ask(np.random.default_rng(0))
    optimizer.observe(Proposed(0, first))
    assert isinstance(optimizer.ask(np.random.default_rng(0)), Wait)
    optimizer.observe(Scored(0, (1.0,), reached=30, resumable=False))
    assert isinstance(optimizer.ask(np.random.default_rng(0)), Done)
