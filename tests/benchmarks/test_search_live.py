"""The live benchmark of searches: what is compared on which variants, and what its page says."""

import math

import numpy as np
import pytest
import search_live
from cells import Cell, Raw
from scipy.stats import ttest_1samp

from autorl.study.spec import load_spec

TASK = search_live.TASKS["PPO CartPole-v1"]


def test_every_repeat_is_another_variant_and_none_is_the_environment_itself():
    variants = TASK.family.variants[:20]
    assert len({variant.hash for variant in variants}) == 20
    names = {*search_live.CONTEXTS["CartPole-v1"]}
    assert all(set(variant.parameters) == names for variant in variants)


def test_tuning_and_test_seeds_of_all_studies_are_disjoint():
    studies = [
        search_live.study(TASK, name, repeat, 32)["seeds"]
        for name in search_live.ROWS
        for repeat in range(100)
    ]
    tuning = {seed for seeds in studies for seed in seeds["tuning"]}
    tests = {seed for seeds in studies for seed in seeds["test"]}
    assert not tuning & tests
    assert len(tests) == 100 * search_live.TESTS


@pytest.mark.parametrize("task", search_live.TASKS.values(), ids=lambda task: task.name)
def test_the_default_row_has_what_a_study_file_without_these_sections_has(task):
    document = search_live.study(task, search_live.DEFAULT, 3, 32)
    spec = load_spec(search_live.without_search(task, 3, 32))
    assert document["optimizer"] == {"name": "transfer", "prior": "auto"}
    assert document["evaluation"] == {"seeds": spec.evaluation.seeds} == {"seeds": "adaptive"}
    assert document["seeds"]["tuning"] == [300, 301, 302, 303, 304]
    seeds = {"tuning": [*spec.plan.tuning], "test": [*spec.plan.test]}
    assert load_spec(document | {"seeds": seeds}).freeze() == spec.freeze()


@pytest.mark.parametrize("task", search_live.TASKS.values(), ids=lambda task: task.name)
def test_the_study_files_are_valid_and_share_all_but_the_search(task):

    specs = [load_spec(search_live.study(task, name, 3, 32)) for name in search_live.ROWS]
    for name in ("trainer", "environment", "fidelity", "budget", "test"):
        assert len({repr(getattr(spec, name)) for spec in specs}) == 1
    assert len({spec.search_space.hash for spec in specs}) == 1


def test_the_prior_of_a_row_lacks_the_environment():
    document = search_live.study(TASK, search_live.LEFT_OUT, 0, 32)
    prior = document["optimizer"]["prior"]
    assert "autorl/ppo/Acrobot-v1" in prior
    assert not any("CartPole" in source for source in prior)
    alone = search_live.study(search_live.TASKS["SAC Pendulum-v1"], search_live.LEFT_OUT, 0, 32)
    assert alone["optimizer"]["prior"] == "none"


def cell(test, worst=0.0, default=0.0):
    return {"test": test, "worst": worst, "default": default, "informed": 5, "new": 9, "seconds": 1}


def recorded(scores, worst=0.0):
    """Finished cells of rows on DQN's two families: scores (rows, variants) of each."""
    raw = Raw(None, "code")
    cells = []
    tasks = [task for task in search_live.TASKS.values() if task.algorithm == "dqn"]
    for task, values in zip(tasks, scores, strict=True):
        for name, of_row in values.items():
            for repeat, score in enumerate(of_row):
                cells.append(Cell("dqn", task.name, name, repeat))
                raw.cells[cells[-1].key] = cell([score - 1, score + 1], worst)
    return raw, cells


def test_scores_run_from_the_worst_run_to_the_best_row_of_a_variant():
    names = ["random, fixed 3", "tpe, adaptive"]
    raw, _ = recorded([{names[0]: [50.0, 10.0], names[1]: [100.0, 10.0]}, {}], worst=0.0)
    scores = search_live.scaled(raw, "DQN CartPole-v1", names, [0, 1])
    assert scores.tolist() == [[0.5, 1.0], [1.0, 1.0]]
    # A variant on which all are as bad as the worst run tells nothing.
    raw, _ = recorded([{names[0]: [7.0], names[1]: [7.0]}, {}], worst=7.0)
    assert search_live.scaled(raw, "DQN CartPole-v1", names, [0]).tolist() == [[0.0], [0.0]]


def test_the_interval_of_one_family_is_students_of_paired_differences():
    values = np.random.default_rng(0).normal(0.1, 0.3, size=10)
    low, high = ttest_1samp(values, 0.0).confidence_interval(0.95)
    gap = search_live.over_variants([values])
    assert (gap.low, gap.high) == (pytest.approx(low), pytest.approx(high))
    assert search_live.over_variants([values[:1]]).high == math.inf


def test_families_count_alike_and_what_lies_between_them_widens_no_interval():
    values = np.random.default_rng(1).normal(0.0, 0.3, size=8)
    near = search_live.over_variants([values, values])
    far = search_live.over_variants([values + 10, values - 10])
    assert far.high - far.low == pytest.approx(near.high - near.low)
    assert far.value == pytest.approx(values.mean())


def test_the_page_orders_rows_compares_with_random_and_counts_whole_repeats_alone():
    better = {"random, fixed 3": [50.0, 40.0, 45.0], "tpe, adaptive": [100.0, 99.0, 98.0]}
    raw, cells = recorded([better, better])
    late = Cell("dqn", "DQN CartPole-v1", "tpe, adaptive", 3)  # the only one of its repeat
    raw.cells[late.key] = cell([0.0, 0.0])
    page = search_live.report(raw, [*cells, late], 1, 32)
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert "3 variants of each" in page
    assert "1 cells are missing" in page
    assert rows[2].startswith("| tpe, adaptive | 1.000 |")
    assert "| above |" in rows[2]
    assert rows[3].startswith("| random, fixed 3 | 0.454 | +0.000 |")
