"""Metrics of single episodes: tails of their values, and values of `info`."""

import numpy as np
import pytest

from autorl.core.types import EnvironmentSpec, FrozenMap, InputError
from autorl.statistics import cvar, quantile
from autorl.statistics.episodes import add_info, base_metric, episode_metrics, tails, tails_of

RETURNS = np.array([3.0, -1.0, 7.0, 2.0, 2.5, 0.0, 9.0])


def test_tails_are_the_aggregates_of_the_statistics():
    asked = ("r_cvar_20", "r_upper_cvar_20", "r_quantile_20", "r_cvar_100", "r", "other_cvar_20")
    found = tails({"r": RETURNS}, asked)
    assert found == {
        "r_cvar_20": cvar(0.2)(RETURNS),
        "r_upper_cvar_20": -cvar(0.2)(-RETURNS),
        "r_quantile_20": quantile(0.2)(RETURNS),
        "r_cvar_100": pytest.approx(RETURNS.mean()),
    }
    assert found["r_cvar_20"] < RETURNS.mean() < found["r_upper_cvar_20"]


@pytest.mark.parametrize("name", ["r_cvar_0", "r_cvar_101", "r_cvar_07", "r_cvar_5.5", "_cvar_5"])
def test_other_numbers_make_no_tail(name):
    assert base_metric(name) == name
    assert tails_of(["r"], [name]) == []


def test_info_is_summed_or_last_and_success_as_it_was():
    task = EnvironmentSpec(
        info=FrozenMap(cost="sum", level="last"),
        metrics=("eval_cost_upper_cvar_50", "eval_return_cvar_50"),
    )
    infos = [{}, {}]
    for values, costs in zip(infos, ([1.0, 2.0], []), strict=True):
        for cost in costs:
            add_info(values, task.info, "sum", {"cost": cost, "level": 9})
        add_info(values, task.info, "last", {"level": True, "cost": 9})
    infos[0]["success_rate"] = 1.0
    metrics = episode_metrics(np.array([1.0, 5.0]), [2, 4], infos, task)
    assert metrics == {
        "eval_return": 3.0,
        "eval_return_std": 2.0,
        "eval_length": 3.0,
        "eval_cost": 1.5,  # an episode that never gave it cost nothing
        "eval_level": 1.0,
        "eval_success_rate": 1.0,  # of the episodes that say it
        "eval_cost_upper_cvar_50": 3.0,
        "eval_return_cvar_50": 1.0,
    }


def test_an_info_that_is_not_there_or_no_number_is_one_line():
    task = EnvironmentSpec(info=FrozenMap(cots="sum"))
    with pytest.raises(InputError, match=r"environment\.info: no evaluation episode gave 'cots'"):
        episode_metrics(RETURNS, RETURNS, [{}] * len(RETURNS), task)
    with pytest.raises(InputError, match=r"environment.info: info\['cots'\] is no number: .*many"):
        add_info({}, task.info, "sum", {"cots": "many"})
