"""Tasks, the second axis beside seeds: pairs, scales, both gaps, and one table after any kill."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from made_landscapes import write
from refusals import expect_error
from study_support import StoppedError, stop_after, table

from autorl.core.seeds import SeedPlan, generator
from autorl.core.types import InputError, SegmentId, Status
from autorl.landscapes import from_study, load_landscape
from autorl.report.html import report_html
from autorl.report.learning import curves_chart
from autorl.report.reading import open_view
from autorl.report.studies import compare_studies, study_table
from autorl.report.text import result_dict, result_text
from autorl.space import load_space
from autorl.statistics import iqm
from autorl.statistics.evaluation import Curve, Judge, Objective, normalised
from autorl.study import Study
from autorl.study.results.cautions import seen_cautions
from autorl.study.results.estimates import told_apart
from autorl.study.setup import check, trainer_loader
from autorl.study.spec import OptimizerSection, load_spec
from autorl.trainers.contract import Trainer
from autorl.trainers.shared import Course

SEEN: list[tuple[str, str | None, int]] = []


class OnTask(Trainer):
    """Scores by how near `x` is to the task's `best`, in the task's own unit."""

    @property
    def resumable(self):
        return False

    def train(self, segment, report):
        task = segment.environment.kwargs
        SEEN.append((segment.id, segment.environment.id, segment.seed))
        course = Course(segment, report)
        x = segment.config["x"]
        for step in segment.evaluate_at:
            noise = generator(segment.seed, "noise", step).normal(0, 0.05)
            near = 1 - abs(x - task["best"]) + noise
            course.add(step, {"eval_return": task["low"] + task["unit"] * near * step / 100})
        return course.outcome(segment.until, segment.config, lambda: None)


def task(best, low=0.0, unit=1.0, **more):
    """A task whose scores lie from `low` to about `low + unit`."""
    kwargs = {"best": best, "low": low, "unit": unit}
    return {"id": f"T{best}", "kwargs": kwargs, "scale": [low, low + unit], **more}


TASKS = {"tuning": [task(0.2), task(0.4, 10, 100)], "test": [task(0.9, -5, 2)]}
STUDY = {
    "trainer": "test_tasks:OnTask",
    "path": str(Path(__file__).parent),
    "tasks": TASKS,
    "space": {"x": "uniform(0, 1)"},
    "fidelity": {"steps": 100, "evaluations": 2, "episodes": 1},
    "budget": {"runs": 24},
    "seeds": {"tuning": 2, "test": 3},
    "optimizer": "random",
    "parallelism": 2,
    "executor": {"name": "in_process"},
    "test": {"top": 2},
}
RULES = {
    "fixed": {},
    "racing": {"evaluation": {"seeds": "racing", "min": 1}},
    "adaptive": {"evaluation": {"seeds": "adaptive", "share": 0.4}},
}


def studied(folder, **changes):
    study = Study.create(load_spec(STUDY | changes), folder)
    study.run()
    return study


def test_a_plan_crosses_seeds_with_tasks_one_seed_of_each_first():
    plan = SeedPlan(2, 2).on_tasks(["a", "b"], ["c"])
    assert plan.tuning == (0, 10000, 1, 10001)
    assert plan.test == (100, 10100, 20100, 101, 10101, 20101)
    assert plan.parts(20101) == (2, 101)
    assert [pair for pair in plan.test if plan.judges(pair)] == [20100, 20101]
    assert (plan.text("tuning"), plan.text("test")) == (
        "[0, 1] on each of 2 tasks",
        "[100, 101] on each of 3 tasks",
    )
    assert plan.pair_text(10001) == "seed 1 of b"
    assert SeedPlan(2, 2).parts(20101) == (0, 20101), "without tasks any seed is one"
    assert all(map(SeedPlan(1, 2).on_tasks(["a"], []).judges, (100, 101)))


@pytest.mark.parametrize(
    ("scale", "values", "expected"),
    [
        ([10, 20], [10, 15, 25], [0, 0.5, 1.5]),
        ([0, 1, 10], [-1, 0, 1, 5.5, 10, 99], [0, 0, 0.5, 0.75, 1, 1]),
        ([0, 0, 0, 6, 9], [0, 3, 6], [0.25, 0.5, 0.75]),
    ],
)
def test_two_scores_make_a_line_and_more_are_quantiles(scale, values, expected):
    assert normalised(np.array(values), scale).tolist() == pytest.approx(expected)


def test_a_judge_reads_curves_on_the_scale_of_their_task():
    objective = Objective("loss", "best", "minimize")
    judge = Judge([objective], scales=[{"loss": [0, 10]}, {"loss": [100, 200]}])

    def curve(pair, *values):
        points = tuple({"loss": value} for value in values)
        return Curve(tuple(range(1, 1 + len(values))), points, {}, Status.DONE, pair)

    # The raw losses of the second task are larger throughout: they would choose step 3.
    curves = [curve(0, 9.0, 1.0, 5.0), curve(10000, 150.0, 130.0, 110.0)]
    assert judge.best_step(curves) == 2
    assert judge.value(10000, curves[1]).values == pytest.approx((-0.1,))
    assert judge.at_step(10000, curves[1], 2).values == pytest.approx((-0.3,))
    assert judge.value(0, curve(0, 1.0, float("inf"))).status is Status.DIVERGED


def test_scores_gaps_and_tables_are_those_of_the_tasks(tmp_path):
    SEEN.clear()
    study = studied(tmp_path / "s")
    result = study.result()
    best = result.incumbent.config["x"]

    def score(place, seed):
        noise = generator(seed, "noise", 100).normal(0, 0.05)
        return 1 - abs(best - (0.2, 0.4, 0.9)[place]) + noise

    tuning = np.mean([score(place, seed) for place in (0, 1) for seed in (0, 1)])
    seen = np.mean([score(place, seed) for place in (0, 1) for seed in (100, 101, 102)])
    new = [score(2, seed) for seed in (100, 101, 102)]
    assert result.tuning == pytest.approx(tuning)
    assert result.test.iqm == pytest.approx(iqm(new))
    assert list(result.test.seeds) == [20100, 20101, 20102]
    assert result.tasks.seeds == pytest.approx(tuning - seen)
    assert result.tasks.tasks == pytest.approx(seen - np.mean(new))
    assert result.gap == pytest.approx(result.tasks.seeds + result.tasks.tasks)
    assert [(row.task, row.role) for row in result.tasks.scores] == [
        ("T0.2", "tuning"), ("T0.4", "tuning"), ("T0.9", "test"),
    ]  # fmt: skip
    assert result.tasks.scores[2].tuning is None
    assert result.tasks.scores[1].test.value == pytest.approx(
        np.mean([score(1, seed) for seed in (100, 101, 102)])
    )
    # 1 is the best rank: of three candidates on every seed of the test task
    assert sum(result.tasks.ranks.values()) == pytest.approx(6)
    text = result_text(result)
    assert "by seeds" in text
    assert "by tasks" in text
    assert "3 held-out seeds x 1 task" in text
    assert result_dict(result)["tasks"]["gap_of_tasks"] == pytest.approx(result.tasks.tasks)
    rows = result.trials()
    ran = rows[(rows["role"] == "tuning") & (rows["proposal"] == result.incumbent.proposal)]
    assert ran["task"].tolist() == ["T0.2", "T0.4"] * 2
    assert ran["seed"].tolist() == [0, 0, 1, 1]
    assert rows[rows["task"] == "T0.9"]["role"].unique().tolist() == ["test"]
    # The trainer has the environment of the task, and the seed itself.
    trained = {SegmentId.parse(segment).seed: (name, seed) for segment, name, seed in SEEN}
    assert trained[10001] == ("T0.4", 1)
    assert trained[20102] == ("T0.9", 102)


def test_landscape_report_and_comparison_part_the_gap_as_the_result_does(tmp_path):
    study = studied(tmp_path / "s")
    result = study.result()
    study.close()
    data = load_landscape(tmp_path / "s")
    choice = data.best()
    assert data.manifest.objective.metric == "score"
    assert choice.tuning == pytest.approx(result.tuning)
    assert choice.test == pytest.approx(result.test.value)
    assert choice.gap_of_seeds == pytest.approx(result.tasks.seeds)
    assert choice.gap_of_tasks == pytest.approx(result.tasks.tasks)
    assert [value.task for value in choice.tasks] == ["T0.2", "T0.4", "T0.9"]
    made = from_study(tmp_path / "s", tmp_path / "made", "toys/toy/three", licence="CC0")
    assert made.environment == "three"
    again = load_landscape(tmp_path / "made" / made.id).best()
    assert again.gap_of_tasks == pytest.approx(choice.gap_of_tasks, abs=1e-6)
    # In their own unit the scores of the second task are the largest.
    ((raw,),) = data.sql("SELECT avg(eval_return) FROM evals JOIN runs USING (run_id) "
                      "WHERE environment = 'T0.4' AND step = 100").fetchall()  # fmt: skip
    assert raw > 40
    view = open_view(tmp_path / "s")
    page = report_html(view)
    curves = curves_chart(view.record, result)
    assert "seed 101 of T0.9" in page
    assert "by tasks" in page
    assert max(max(line.y) for line in curves.marks if len(line.y)) < 2, "curves of the test task"
    studied(tmp_path / "t", seed=1).close()
    comparison = compare_studies([tmp_path / "s", tmp_path / "t"])
    assert comparison.pairs[0].shared_seeds == (20100, 20101, 20102)
    header, _ = study_table(comparison)
    assert {"by seeds", "by tasks"} <= set(header)
    turned = {"tuning": TASKS["tuning"][::-1], "test": TASKS["test"]}
    studied(tmp_path / "u", tasks=turned).close()
    expect_error(r"differ in .*tasks", compare_studies, [tmp_path / "s", tmp_path / "u"])
    unequal = compare_studies([tmp_path / "s", tmp_path / "u"], unequal=True)
    assert not unequal.pairs[0].paired, "a pair of the same number is of another task"


def test_a_seed_that_decides_is_the_mean_over_the_test_tasks(tmp_path):
    tasks = {**TASKS, "test": [task(0.9), task(0.95)]}
    study = studied(tmp_path / "s", tasks=tasks, seeds={"tuning": 1, "test": 5})
    result = study.result()
    verdict = told_apart(study.spec, result.entries[0], result.default, 5)
    assert verdict.verdicts["first", "second"] in ("larger", "smaller", "equal")


@pytest.mark.parametrize("rule", RULES)
def test_after_a_kill_at_any_event_the_table_is_that_of_a_quiet_study(tmp_path, rule):
    changes = {**RULES[rule], "seeds": {"tuning": 3, "test": 2}}
    quiet = studied(tmp_path / "quiet", **changes)
    total = len(list(quiet.store.events()))
    quiet.close()
    for count in range(5, total, max(1, total // 4)):
        folder = tmp_path / str(count)
        study = Study.create(load_spec(STUDY | changes), folder)
        stop_after(study, count)
        with pytest.raises(StoppedError):
            study.run()
        study.close()
        study = Study.open(folder)
        study.run()
        study.close()
        assert table(folder) == table(tmp_path / "quiet"), count


def test_racing_adds_pairs_and_adaptive_a_seed_of_every_task(tmp_path):
    racing = studied(tmp_path / "racing", **RULES["racing"])
    counts = {len(racing.tables.tuning_seeds(number)) for number in racing.tables.ranked()}
    assert counts == {1, 2, 4} or counts == {1, 4}, "pairs double"
    assert racing.tables.tuning_seeds(racing.result().incumbent.proposal) == [0, 10000, 1, 10001]
    racing.close()
    seeds = {"tuning": 4, "test": 2}
    adaptive = studied(tmp_path / "adaptive", seeds=seeds, **RULES["adaptive"])
    counts = {len(adaptive.tables.tuning_seeds(number)) for number in adaptive.tables.ranked()}
    assert min(counts) == 2
    assert max(counts) > 2
    assert not any(count % 2 for count in counts), "every score is of both tasks"
    assert adaptive.driver.charges.steps <= 24 * 100


def test_more_test_seeds_are_trained_on_every_task(tmp_path):
    study = studied(tmp_path / "s")
    study.add_test_seeds(4)
    study.run()
    result = study.result()
    assert list(result.test.seeds) == [20100, 20101, 20102, 20103]
    assert len(result.tasks.scores[0].test.seeds) == 4


def test_without_test_tasks_the_result_is_of_new_seeds_on_all_tasks(tmp_path):
    study = studied(tmp_path / "s", tasks={"tuning": TASKS["tuning"]})
    result = study.result()
    assert len(result.test.seeds) == 6
    assert result.test.tasks == {0: "T0.2", 1: "T0.4"}
    assert result.test.run_text(10101) == "seed 101 of T0.4"
    # Tasks are strata: their own difference is not in the interval.
    assert result.test.interval.high - result.test.interval.low < 0.2
    assert result.tasks.tasks is None
    assert result.gap == pytest.approx(result.tasks.seeds)


def test_a_failed_task_is_counted_on_that_task(tmp_path):
    harmed = task(0.9, float("nan"), 2, scale=[0, 1])
    study = studied(tmp_path / "s", tasks={**TASKS, "test": [task(0.5), harmed]})
    result = study.result()
    assert [row.failed for row in result.tasks.scores] == [0, 0, 0, 3]
    assert len(result.test.seeds) == 3
    assert result.test.failed == 3


def test_the_frozen_file_holds_tasks_that_depend_on_no_other_file(tmp_path):
    family = {
        "name": "poles", "environment": "CartPole-v1", "purpose": "prior", "count": 2,
        "parameters": {"gravity": {"type": "float", "lower": 5, "upper": 20}},
    }  # fmt: skip
    other = {"family": family, "purpose": "examination", "count": 1, "scale": [0, 500]}
    spec = load_spec(
        STUDY
        | {
            "trainer": "population/ppo",
            "space": {"learning_rate": "log(1e-4, 1e-2)"},
            "fidelity": {"steps": 8000, "evaluations": 1},
            "environment": {"n_envs": 4},
            "tasks": {"tuning": [{"family": family, "scale": [0, 500]}], "test": [other]},
            "executor": {},
        }
    )
    assert [section.id for section in spec.environments] == ["CartPole-v1"] * 3
    assert {section.n_envs for section in spec.environments} == {4}
    drawn = [section.kwargs["gravity"] for section in spec.environments]
    assert len(set(drawn)) == 3
    assert spec.environment.kwargs == {"gravity": drawn[0]}
    again = load_spec(STUDY | {"tasks": TASKS})
    written = again.model_dump(mode="json", exclude_none=True)
    assert load_spec(written).freeze() == again.freeze()


def test_a_landscape_is_a_task_whose_scores_are_quantiles_of_its_own(tmp_path):
    space = load_space({"x": "uniform(0, 1)"})
    configs = {number: {"x": number / 4} for number in range(5)}

    def made(name, values):
        runs = [
            (number, role, seed, "done", 10, 1.0, {10: {"eval_return": value + seed % 5 / 10}})
            for number, value in enumerate(values)
            for role, seed in (("tuning", 0), ("tuning", 1), ("test", 5), ("test", 6))
        ]
        return write(
            tmp_path, space, configs, runs, steps=(10,), id=f"toys/toy/{name}",
            environment=name, seeds={"tuning": [0, 1], "test": [5, 6]},
        )  # fmt: skip

    landscapes = [
        made("A", [0, 1, 2, 3, 4]),
        made("B", [90, 80, 300, 100, 70]),
        made("C", range(5)),
    ]
    study = {
        "trainer": "tabular",
        "tasks": {"tuning": ["toys/toy/A", "toys/toy/B"], "test": [{"landscape": "toys/toy/C"}]},
        "path": str(tmp_path),
        "space": {"x": "uniform(0, 1)"},
        "fidelity": {"steps": 10, "evaluations": 1},
        "budget": {"runs": 40},
        "seeds": {"tuning": 2, "test": 2},
        "optimizer": "random",
    }
    spec = load_spec(study)
    scores = landscapes[1].grid.at(0).values[:, [0, 1]]
    assert spec.tasks.tuning[1].scale == pytest.approx(
        np.quantile(scores, np.linspace(0, 1, 21)).tolist()
    )
    ran = Study.create(spec, tmp_path / "s")
    result = ran.run()
    # 2 is second in A and first in B; 3 and 4 are better in A alone.
    assert 0.375 < result.incumbent.config["x"] < 0.625
    assert [row.task for row in result.tasks.scores] == ["A", "B", "C"]
    assert 0 <= result.tuning <= 1
    ran.close()
    with pytest.raises(InputError, match=r"tasks\.test\[0\]: trainer tabular needs `landscape`"):
        load_spec(study | {"tasks": {"tuning": ["toys/toy/A"], "test": [{"id": "C"}]}})
    with pytest.raises(InputError, match=r"tasks\.tuning\[0\]\.landscape: no landscape 'toys/D'"):
        load_spec(study | {"tasks": {"tuning": ["toys/D"]}})


PAIR = [task(0.2), task(0.4)]
BAD = {
    "in both lists": (
        {"tasks": {"tuning": [task(0.2)], "test": [task(0.2, name="again")]}},
        "tasks: lists again both in tuning and in test: they must be disjoint",
    ),
    "twice": ({"tasks": {"tuning": [task(0.2), task(0.2, name="b")]}}, "tasks: lists b twice"),
    "one name": (
        {"tasks": {"tuning": [task(0.2, name="a"), task(0.4, name="a")]}},
        "tasks: two tasks are called a: give one of them a `name`",
    ),
    "none": ({"tasks": {"tuning": []}}, "tasks: `tuning` needs at least one task"),
    "a list": ({"tasks": ["T1"]}, "tasks: should be a mapping of keys"),
    "no scale": (
        {"tasks": {"tuning": ["T1", "T2"]}},
        r"tasks\.tuning\[0\]: T1 has no scale for eval_return: .* `scale: \[low, high\]`",
    ),
    "half a scale": (
        {"tasks": {"tuning": ["T1"], "test": [task(0.2)]}},
        r"tasks\.tuning\[0\]: T1 has no scale",
    ),
    "of another metric": (
        {"tasks": {"tuning": [task(0.2, scale={"kl": [0, 1]})]}},
        r"tasks\.tuning\[0\]: T0.2 has no scale for eval_return",
    ),
    "descending": (
        {"tasks": {"tuning": [task(0.2, scale=[5, 1])]}},
        r"tasks\.tuning\[0\]\.scale: should be ascending scores such as \[low, high\]",
    ),
    "unknown key": (
        {"tasks": {"tuning": [task(0.2, colour=1)]}},
        r"tasks\.tuning\[0\]\.colour: unknown key",
    ),
    "a landscape": (
        {"tasks": {"tuning": [{"landscape": "a/b/c"}]}},
        r"tasks\.tuning\[0\]: trainer test_tasks:OnTask takes no `landscape`",
    ),
    "family": (
        {"tasks": {"tuning": [{"family": {"name": "a"}}]}},
        r"tasks\.tuning\[0\]\.family\.environment: is missing",
    ),
    "another environment": (
        {"environment": "Z"},
        r"environment\.id: is Z, and the first task T0.2: say it there alone",
    ),
    "a large seed": (
        {"seeds": {"tuning": [10_000]}},
        r"seeds\.tuning: with `tasks` a seed is below 10000, got 10000",
    ),
    "half a level": (
        {"evaluation": {"seeds": "adaptive", "min": 1}},
        "evaluation: adaptive compares means over all tasks: min and max are multiples of the 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_task_is_refused_in_one_line(name):
    changes, message = BAD[name]
    expect_error(message, load_spec, STUDY | changes)


@pytest.mark.parametrize(
    ("command", "tasks"),
    [
        ("run {x} {seed} {until}", PAIR),
        ("run {x} {seed} {until} {environment}", [task(0.2), {**task(0.4), "id": "T0.2"}]),
    ],
)
def test_a_command_must_be_told_each_task(command, tasks):
    named = [{**entry, "name": str(number)} for number, entry in enumerate(tasks)]
    trainer = {"name": "command", "kwargs": {"command": command}}
    spec = load_spec(STUDY | {"trainer": trainer, "tasks": {"tuning": named}})
    with pytest.raises(InputError, match=r"tasks: a command knows a task by \{environment\}"):
        check(spec, trainer_loader(spec))


def test_a_number_of_environments_holds_for_every_task():
    trainer = {"name": "population/ppo", "kwargs": {"n_envs": 4}}
    tasks = {"tuning": ["CartPole-v1"], "test": [{"id": "CartPole-v1", "kwargs": {"gravity": 5.0}}]}
    spec = load_spec(STUDY | {"trainer": trainer, "tasks": tasks, "executor": {}})
    assert [section.n_envs for section in spec.environments] == [4, 4]


def test_a_prior_with_runs_of_a_test_task_is_named():
    tasks = {"tuning": [{"id": "CartPole-v1", "scale": [0, 500]}], "test": []}
    tasks["test"] = [{"id": name, "scale": [-500, 0]} for name in ("Acrobot-v1", "MountainCar-v0")]
    content = {"tasks": {"values": [{"environment": "Acrobot-v1"}, {"environment": "Ant-v5"}]}}
    spec = load_spec(STUDY | {"tasks": tasks})
    assert seen_cautions(spec) == []
    section = OptimizerSection(name="transfer", prior_data=content)
    (caution,) = seen_cautions(spec.changed(optimizer=section))
    assert caution.startswith("the prior has recorded runs of Acrobot-v1: no new task")


def test_several_objectives_have_scales_by_metric():
    objectives = [{"metric": "a"}, {"metric": "b", "direction": "minimize"}]
    both = [{**entry, "scale": {"a": [0, 1], "b": [5, 9]}} for entry in PAIR]
    spec = load_spec(STUDY | {"objective": objectives, "tasks": {"tuning": both}})
    point = ({"a": 0.5, "b": 7.0},)
    value = spec.judge().value(10000, Curve((1,), point, {}, Status.DONE, 10000))
    assert value.values == (0.5, -0.5)
    with pytest.raises(InputError, match=r"has no scale for b: .*\{metric: \[low, high\]\}"):
        load_spec(STUDY | {"objective": objectives, "tasks": {"tuning": PAIR}})


def test_variants_of_one_environment_may_be_compared_as_measured():
    entries = [{"id": "T", "name": name, "kwargs": {"a": name}} for name in "bc"]
    spec = load_spec(STUDY | {"tasks": {"tuning": entries[:1], "test": entries[1:]}})
    assert spec.tasks.scales("eval_return") == []
    assert dataclasses.replace(spec.environments[1], kwargs={}) == dataclasses.replace(
        spec.environments[0], kwargs={}
    )
