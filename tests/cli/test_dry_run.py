"""--dry-run: the counts are those of the study that is then run, and nothing is written."""

import re

import pytest
from cli_support import as_json, autorl, contents, query, study_file

from autorl.executors import machine
from autorl.study.tuner import read_study
from autorl.trainers.info import TrainerInfo


def planned(tmp_path, **changes):
    return as_json("tune", study_file(tmp_path, **changes), "--dry-run")


def said(tmp_path, **changes):
    return autorl("tune", study_file(tmp_path, **changes), "--dry-run").stdout


def counted(folder, role):
    ((segments, steps),) = query(
        folder,
        "SELECT COUNT(*), SUM(to_step - from_step) FROM segments JOIN runs USING (run_id) WHERE seed_role = ?",
        role,
    )
    return segments, steps


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": "tpe"},
        {"optimizer": "cmaes", "budget": {"configurations": 5}},
        {"budget": {"environment_steps": 900}},
        {"optimizer": {"name": "hyperband", "rungs": 2}, "budget": {"runs": 30}},
        {"optimizer": {"name": "pbt", "population": 4, "generations": 3}, "budget": {"runs": 8}},
    ],
    ids=["random", "tpe", "cmaes", "steps", "hyperband", "pbt"],
)
def test_the_counts_are_those_of_the_study(tmp_path, changes):
    plan = planned(tmp_path, **changes)
    folder = tmp_path / "s"
    autorl("tune", study_file(tmp_path, **changes), "--out", folder, "--quiet")
    more = query(
        folder,
        "SELECT segment, to_step - from_step FROM segments JOIN proposals USING (proposal) "
        "JOIN runs USING (run_id) WHERE proposals.origin LIKE 'default, as far%' AND seed_role = 'tuning'",
    )
    segments, steps = counted(folder, "tuning")
    beyond = sum(each for _, each in more)
    search = plan["search"]
    assert (search["segments"], search["steps"]) == (segments - len(more), steps - beyond)
    ((proposals,),) = query(folder, "SELECT COUNT(*) FROM proposals")
    assert search["proposals"] + bool(more) == proposals
    assert len(more) <= plan["baseline"]["segments"]
    assert beyond <= plan["baseline"]["steps"]
    segments, steps = counted(folder, "test")
    assert segments <= plan["test"]["segments"]
    assert steps <= plan["test"]["steps"]


def test_full_runs_with_fixed_seeds_are_counted_exactly_and_the_rest_says_that_it_depends(tmp_path):
    assert planned(tmp_path)["exact"] is True
    assert planned(tmp_path, evaluation={"seeds": "racing", "min": 1, "max": 2})["exact"] is False
    stopped = {"optimizer": {"name": "tpe", "stop": "median", "rungs": 4}}
    plan = planned(tmp_path, **stopped)
    assert (plan["exact"], plan["rungs"]) == (False, [25, 50, 75, 100])
    assert "counts depend on the scores" in said(tmp_path, **stopped)


def test_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = study_file(tmp_path)
    before = contents(tmp_path)
    text = autorl("tune", file, "--dry-run").stdout
    assert contents(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]
    parts = ("8 in 16 segments", "[0, 1]", "[100, 101", "keep: incumbent")
    assert all(part in text for part in (*parts, "at most 3 candidates, 18 segments"))


@pytest.mark.parametrize(("limit", "more"), [(None, False), (3, False), (4, True)])
def test_steps_of_evaluation_are_counted(limit, more, tmp_path, monkeypatch):
    monkeypatch.setattr(TrainerInfo, "longest_episode", lambda *_: limit)
    fidelity = {"steps": 100, "evaluations": 4, "episodes": 8}
    plan = planned(tmp_path, fidelity=fidelity)
    runs = plan["search"]["segments"] + plan["test"]["segments"]
    assert plan["evaluation_steps"] == (limit and runs * 4 * 8 * limit)
    text = said(tmp_path, fidelity=fidelity)
    assert ("caution: evaluation may take more steps than training" in text) == more


def test_a_budget_in_hours_is_not_guessed_at(tmp_path):
    plan = planned(tmp_path, budget={"hours": 1})
    assert (plan["open_ended"], plan["environment_steps"]) == (True, None)
    assert "as many as the hours allow" in said(tmp_path, budget={"hours": 1})


def test_an_environment_without_its_version_is_the_newest(tmp_path):
    space = ("tune", "population/ppo-small", "--dry-run", "--env")
    assert re.search(r"^environment +Acrobot-v1\n", autorl(*space, "Acrobot").stdout, re.MULTILINE)
    changes = {"trainer": "population/ppo", "space": "population/ppo-small"}
    for given, whole in (("CartPole", "CartPole-v1"), ("CartPole-v0", "CartPole-v0")):
        study = study_file(tmp_path, environment={"id": given}, executor={}, **changes)
        assert read_study(study).environment.id == whole


# -- resources: how many segments run at once, on which devices, with which variables ------------

DEVICES = {"name": "processes", "devices": ["0", "1", "2", "3"]}


def places(tmp_path, **changes):
    """The plan from `workers` to `checkpoints`, without the spaces of the columns."""
    rows = [" ".join(line.split()) for line in said(tmp_path, **changes).splitlines()]
    begin = next(number for number, row in enumerate(rows) if row.startswith("workers"))
    end = next(number for number, row in enumerate(rows) if row.startswith("checkpoints"))
    # How idle they will be stands behind a colon.
    return " ".join([rows[begin].partition(":")[0], *rows[begin + 1 : end]])


def test_a_study_that_asks_for_nothing_says_what_it_said(tmp_path):
    assert places(tmp_path, executor={"name": "processes", "workers": 3}) == (
        "workers 3 trains on what its code chooses"
    )


def test_two_gpus_a_segment(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 16.0)
    assert places(tmp_path, executor=DEVICES, resources={"gpu": 2, "cpu": 4}) == (
        "workers 2 trains on cuda, if its code uses it "
        "resources 4 cores, 2 GPUs a segment; at most 2 at once on this machine "
        "devices CUDA_VISIBLE_DEVICES = 0,1 (1 segment); 2,3 (1 segment) "
        "threads OMP_NUM_THREADS, OPENBLAS_NUM_THREADS, MKL_NUM_THREADS, NUMEXPR_NUM_THREADS, "
        "VECLIB_MAXIMUM_THREADS = 4"
    )


def test_a_quarter_of_a_gpu_a_segment(tmp_path):
    executor = {"name": "processes", "devices": [0, 1], "workers": 6}
    changes = {"executor": executor, "resources": {"gpu": 0.25}}
    assert places(tmp_path, **changes) == (
        "workers 6 trains on cuda, if its code uses it "
        "resources 1 core, 0.25 GPU a segment; at most 6 at once on this machine "
        "devices CUDA_VISIBLE_DEVICES = 0 (4 segments); 1 (2 segments)"
    )
    plan = planned(tmp_path, **changes)
    needs = {"cpu": 1.0, "gpu": 0.25, "memory_gb": None, "nodes": 1, "custom": {}}
    placed = {"at_once": 6, "visible_devices": {"0": 4, "1": 2}, "threads": 1}
    assert plan["workers"] == 6
    assert plan["placement"] == [{"algorithm": "", "trains_on": None, "needs": needs, **placed}]


def test_each_algorithm_has_its_own(tmp_path):
    space = {"x": {"type": "float", "lower": 0.0, "upper": 1.0}}
    part = {"trainer": "synthetic", "space": space}
    algorithms = {"large": part | {"resources": {"gpu": 4}}, "small": part}
    changes = {"trainer": None, "space": None, "algorithms": algorithms}
    text = places(tmp_path, executor=DEVICES | {"workers": 5}, **changes)
    for part in (
        "large: 1 core, 4 GPUs a segment; at most 1 at once",
        "large: CUDA_VISIBLE_DEVICES = 0,1,2,3 (1 segment)",
        "small: 1 core a segment; at most 5 at once",
        "small: CUDA_VISIBLE_DEVICES = none (5 segments)",
    ):
        assert part in text
