"""The benchmark of searches: what a prior may hold, what a study is told and judged by, and what the page says."""

import math
from itertools import product

import numpy as np
import pandas as pd
import pytest
import search
import search_report
import search_rows
import search_tasks
from cells import Cell, Raw

from autorl.core.types import Config
from autorl.study import Study
from autorl.study.spec import load_spec

TASKS = [
    "atari_pong_dqn", "atari_qbert_dqn", "cc_cartpole_dqn", "cc_cartpole_ppo", "brax_ant_sac",
]  # fmt: skip
CONFIGURATIONS = 12
SEEDS = 10


def toy_rows(offset: float) -> pd.DataFrame:
    """A landscape as ARLBench stores it: configurations x seeds x 2 checkpoints of one hyperparameter."""
    rows = []
    for number, seed, budget in product(range(CONFIGURATIONS), range(SEEDS), (50, 100)):
        # Noise that differs between seeds, and makes tuning and held-out seeds disagree.
        score = offset + number * budget / 100 + 2.5 * math.sin(7 * seed * number)
        rows.append((number, seed, budget, score, (number + 0.5) / CONFIGURATIONS))
    columns = ["run_id", "seed", "budget", "performance", "hp_config.rate"]
    return pd.DataFrame(rows, columns=columns)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two imported toy tasks of one algorithm and different families, and their reversals."""
    data = tmp_path_factory.mktemp("data")
    (data / "landscapes").mkdir()
    for offset, name in enumerate(("toy_first_dqn", "other_second_dqn")):
        toy_rows(offset).to_csv(data / "landscapes" / f"{name}.csv.gz", index=False)
    names = search_tasks.task_names(data, ("dqn",))
    target = tmp_path_factory.mktemp("imported")
    return search_tasks.import_tasks(data, names, target, misleading=True)


@pytest.fixture(scope="module")
def task(folders):
    return search_tasks.Task("toy_first_dqn", folders.whole["toy_first_dqn"], "table")


# -- tasks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held_out", "others"),
    [
        ("", []),
        ("task", ["atari_qbert_dqn", "cc_cartpole_dqn"]),
        ("reversed", ["atari_qbert_dqn", "cc_cartpole_dqn"]),
        ("family", ["cc_cartpole_dqn"]),
    ],
)
def test_a_prior_lacks_the_task_other_algorithms_and_perhaps_the_family(held_out, others):
    assert search_tasks.prior_tasks("atari_pong_dqn", TASKS, held_out) == others


def test_tables_of_sac_are_opened_by_the_examination_alone(tmp_path):
    (tmp_path / "landscapes").mkdir()
    for name in TASKS:
        (tmp_path / "landscapes" / f"{name}.csv.gz").touch()
    arguments = ["--data", str(tmp_path)]
    assert search.options(arguments).tasks == sorted(TASKS[:4])
    assert search.options([*arguments, "--exam"]).tasks == ["brax_ant_sac"]
    with pytest.raises(SystemExit):
        search.options([*arguments, "--tasks", "brax_ant_sac"])


def test_a_misleading_landscape_has_reversed_ranks_and_the_same_scores(folders):
    whole, swapped = (
        search_tasks.Task("toy", place["toy_first_dqn"], "table").table
        for place in (folders.whole, folders.reversed)
    )
    order = np.argsort(whole.mean(axis=1))
    assert np.array_equal(swapped[order], whole[order[::-1]])
    # The misleading prior of a task is of the others, and of the reversed ones.
    assert folders.prior("toy_first_dqn", "reversed") == [folders.reversed["other_second_dqn"]]


def test_seeds_that_tune_never_judge(task):
    splits = [task.split(repeat) for repeat in range(20)]
    for split in splits:
        assert sorted(split.tuning + split.judging) == list(range(SEEDS))
        assert len(split.tuning) == search_tasks.TUNING
    assert len({tuple(sorted(split.tuning)) for split in splits}) > 10


def test_seeds_drawn_anew_are_judged_by_all(folders):
    drawn = search_tasks.Task("toy_first_dqn", folders.whole["toy_first_dqn"], "drawn")
    splits = [drawn.split(repeat) for repeat in range(20)]
    assert all(split.judging == list(range(SEEDS)) for split in splits)
    assert {len(split.tuning) for split in splits} == {search_tasks.TUNING}
    assert min(len(set(split.tuning)) for split in splits) < search_tasks.TUNING
    row = search_rows.rows()["random, adaptive"]
    found = search_rows.run_row(row, drawn, folders, 24, 0)
    means = drawn.table.mean(axis=1)
    assert min(abs(means - found["judged"])) < 1e-9


def test_a_prior_at_the_own_places_has_the_tasks_configurations_and_the_scores_of_another(
    folders, tmp_path
):
    first, second = folders.whole["toy_first_dqn"], folders.whole["other_second_dqn"]
    search_tasks.move(second, first, tmp_path / "moved")
    moved, here, there = (
        search_tasks.Task("toy", str(place), "table")
        for place in (tmp_path / "moved", first, second)
    )
    assert moved.space.to_dict() == here.space.to_dict()
    assert np.array_equal(moved.table, there.table)


def test_scores_are_shares_of_the_recorded_range(task):
    means = task.table.mean(axis=1)
    assert (means.min(), means.max()) == pytest.approx((0.0, 1.0))


def test_a_recorded_configuration_answers_for_one_proposed_one_alone(task):
    first, second = (task.landscape.config(number) for number in (0, 1))
    near = Config({**first, "rate": first["rate"] + 0.02})
    assert task.answering(near, set()) == first
    assert task.answering(near, {first}) == second
    # A recorded one answers for itself, though another was answered by it, and rounded too.
    rounded = Config({**first, "rate": first["rate"] + 1e-6})
    assert task.answering(first, {first}) == task.answering(rounded, {first}) == first
    everyone = {task.landscape.config(number) for number in range(CONFIGURATIONS)}
    assert task.answering(near, everyone) == first


def test_a_study_is_told_and_judged_by_what_answers(task):
    answering = search_rows.Answering(task, "eval_return", task.split(0))
    first = task.landscape.config(0)
    near = [Config({**first, "rate": first["rate"] + gap}) for gap in (0.02, 0.03)]
    answers = [answering.answer(config) for config in [*near, near[0]]]
    assert answers == [first, task.landscape.config(1), first]


# -- rows --------------------------------------------------------------------------------------------------------------


def test_a_study_trains_the_tuning_seeds_of_its_repeat_alone(task, folders, monkeypatch):
    asked = []
    answer = task.score
    monkeypatch.setattr(task, "score", lambda *args: asked.append(args[1]) or answer(*args))
    task.final.__self__._final.clear()
    answering = search_rows.Answering(task, "eval_return", task.split(3))
    row = search_rows.rows()["random, fixed 5"]
    spec = load_spec(search_rows.study(row, task, folders, 20, 3))
    study = Study.in_memory(spec, lambda _: search_tasks.trainer_of(task.folder))
    study.run(executor=answering)
    study.close()
    assert set(asked) == set(task.split(3).tuning)
    assert (len(asked), set(answering.seeds_of.values())) == (20, {5})


def test_the_score_is_of_held_out_seeds_and_the_losses_add_up_to_the_regret(task, folders):
    found = search_rows.run_row(search_rows.rows()["random, fixed 3"], task, folders, 24, 1)
    split = task.split(1)
    held_out = task.table[:, split.judging].mean(axis=1)
    assert min(abs(held_out - found["judged"])) < 1e-9
    regret = held_out.max() - found["judged"]
    assert found["search_loss"] + found["choice_loss"] == pytest.approx(regret)
    assert (found["informed"], found["new"]) == (0, 8)
    assert 1 <= found["met"] <= 8


def test_the_curve_is_what_smaller_budgets_choose(task, folders, monkeypatch):
    monkeypatch.setattr(search_rows, "CURVE", (12, 24, 36))
    row = search_rows.rows()[search_rows.REFERENCE]
    whole = search_rows.run_row(row, task, folders, 36, 2)
    alone = [search_rows.run_row(row, task, folders, runs, 2) for runs in search_rows.CURVE]
    assert whole["curve"] == pytest.approx([found["judged"] for found in alone])


class Recorded:
    """A task of the plain baseline: its table alone."""

    def __init__(self, table, name="a_x_dqn"):
        self.name = name
        self.table = np.array(table, dtype=float)

    def split(self, repeat):
        return search_tasks.Split([0, 1], [2, 3])


def test_a_portfolio_adds_what_the_chosen_ones_lack():
    # Configuration 0 is best in the mean; 2 is best where 0 fails, 1 only where 0 is good already.
    first = Recorded([[1.0], [0.9], [0.0], [0.2]])
    second = Recorded([[0.5], [0.4], [1.0], [0.2]])
    assert search_rows.greedy_portfolio((first, second), "c_z_dqn", 2) == [0, 2]
    # A relative weighs ten times as much.
    relative = Recorded(second.table, "c_y_dqn")
    assert search_rows.greedy_portfolio((first, relative), "c_z_dqn", 2) == [2, 0]


def test_the_baseline_confirms_by_tuning_seeds_and_is_judged_by_others():
    # By the first seed 0 is best, by both tuning seeds 1; 2 is best on the held-out seeds.
    task = Recorded([[1.0, 0.0, 0.3, 0.3], [0.9, 0.9, 0.5, 0.7], [0.1, 0.1, 1.0, 1.0]])
    found = search_rows.run_baseline("random", task, [], 29, 0)  # two are confirmed
    assert found["judged"] == pytest.approx(0.6)
    assert found["new"] == 3
    assert (found["search_loss"], found["choice_loss"]) == pytest.approx((0.0, 0.4))


def test_plain_random_search_chooses_by_three_seeds_among_so_many_configurations(task):
    found = [search_rows.run_plain(task, runs, 0) for runs in (9, 3 * CONFIGURATIONS, 768)]
    assert [figures["new"] for figures in found] == [3, CONFIGURATIONS, CONFIGURATIONS]
    split = task.split(0)
    best = int(task.table[:, split.tuning[:3]].mean(axis=1).argmax())
    judged = float(task.table[best, split.judging].mean())
    assert [figures["judged"] for figures in found[1:]] == pytest.approx([judged, judged])
    assert found[1]["search_loss"] == 0.0


# -- the page ----------------------------------------------------------------------------------------------------------


def test_runs_needed_are_read_off_the_curve():
    curve = np.linspace(0.0, 1.1, len(search_rows.CURVE))
    assert search_report.runs_needed(curve, -1.0) == 24
    assert search_report.runs_needed(curve, 0.05) == pytest.approx(28)
    assert search_report.runs_needed(curve, 0.1) == pytest.approx(32)
    assert search_report.runs_needed(curve, 1.2) == math.inf
    # A dip is not taken for worse: the best so far counts.
    assert search_report.runs_needed(np.where(curve > 1.05, 0.0, curve), 1.0) == pytest.approx(576)


def test_a_multiplier_beyond_the_curve_is_a_bound():
    curves = np.tile(np.linspace(0.0, 1.1, len(search_rows.CURVE)), (4, 1))
    found = search_report.multiplier(curves, np.full(4, 0.5), 24)
    assert found.value == pytest.approx(96 / 24)
    assert search_report.multiplier_text(found, 24) == "4 [4, 4]"
    beyond = search_report.multiplier(curves, np.full(4, 2.0), 24)
    assert search_report.multiplier_text(beyond, 24) == "> 32 [> 32, > 32]"


def finished(methods, tasks=("a_x_dqn", "b_y_dqn"), repeats=2):
    """Cells with made-up results: each method's score, a little noise by task."""
    raw, cells = Raw(None, "code"), []
    same = {
        "search_loss": 0.1,
        "choice_loss": 0.2,
        "informed": 0,
        "new": 8,
        "met": 7,
        "moved": 0.5,
        "far": 0.2,
    }
    same |= {"curve": list(np.linspace(0.2, 0.9, len(search_rows.CURVE))), "seconds": 1.0}
    each = product(methods.items(), enumerate(tasks), range(repeats))
    for (method, score), (place, task), repeat in each:
        figures = same | {"judged": score + 0.01 * place * score}
        if method.endswith("adaptive"):
            figures |= {"stated": 0.9, "right": float(repeat)}
        measurements = [search_rows.at_runs(method, runs) for runs in search_rows.RUNS]
        if method in (search_rows.REFERENCE, search_rows.PLAIN):
            measurements.append(search_rows.curve_of(method))
        for measurement in measurements:
            cells.append(Cell("table", task, measurement, repeat))
            raw.keep(cells[-1], figures)
    return raw, cells


def test_the_page_names_what_ran_compares_and_says_what_is_missing():
    scores = {search_rows.REFERENCE: 0.3, "tpe, fixed 3": 0.35, "random, adaptive": 0.5}
    raw, cells = finished(scores)
    text = search_report.report(raw, cells, 3, "--data DIR")
    assert "**Not finished: 3 cells are missing.**" in text
    assert "| tpe, fixed 3 (0 of 8 by the model: random search) | 0.352 |" in text
    assert "| multiplier | by the model | met | moved |" in text
    assert "| random, adaptive - random, fixed 3 | 32 | +0.201 |" in text
    assert "better on 2, worse on 0; above" in text
    assert "| random, adaptive |  |  |  |  | 0.90 / 0.50 (4) |" in text


def test_a_row_that_lacks_a_task_is_left_out():
    raw, cells = finished({search_rows.REFERENCE: 0.3, "tpe, fixed 3": 0.35})
    lacking = (search_rows.at_runs("tpe, fixed 3", 32), "b_y_dqn")
    whole = [cell for cell in cells if (cell.method, cell.task) != lacking]
    measured = search_report.Measured.of(raw, whole, "table", "dqn")
    assert measured.methods(32) == [search_rows.REFERENCE]
    assert measured.methods(96) == [search_rows.REFERENCE, "tpe, fixed 3"]
