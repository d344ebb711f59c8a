"""Needs of segments beside the resources of this machine, and how many run at once."""

import pytest
from refusals import expect_error
from study_support import small_spec

from autorl.core.types import InputError
from autorl.executors import machine
from autorl.executors.devices import Capacity
from autorl.study import setup as placing
from autorl.study.setup import capacity, segments_at_once
from autorl.study.spec import load_spec


@pytest.fixture(autouse=True)
def machine_of_four_cores(monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 4.0)
    monkeypatch.setattr(machine, "memory_gb", lambda: 8.0)
    monkeypatch.setattr(placing.os, "cpu_count", lambda: 6)


def spec_of(resources=None, devices=("0", "1"), **executor):
    more = {} if resources is None else {"resources": resources}
    return small_spec(executor={"name": "processes", "devices": list(devices), **executor}, **more)


def two_algorithms(one=None, two=None):
    part = {"trainer": "synthetic", "space": {"x": {"type": "float", "lower": 0, "upper": 1}}}
    return load_spec(
        {
            "algorithms": {
                "one": part | ({"resources": one} if one else {}),
                "two": part | ({"resources": two} if two else {}),
            },
            "fidelity": {"steps": 10},
            "budget": {"runs": 8},
            "executor": {"name": "processes", "devices": ["0", "1"]},
        }
    )


# -- what counts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resources", "counted"),
    [
        (None, Capacity()),
        ({"cpu": 1}, Capacity(cpu=4.0)),
        ({"cpu": 2}, Capacity(cpu=4.0)),
        ({"memory_gb": 1}, Capacity(memory_gb=8.0)),
        ({"gpu": 1}, Capacity(groups=(("0", "1"),))),
        ({"gpu": 0}, Capacity()),
    ],
)
def test_what_nobody_asks_for_is_not_counted(resources, counted):
    assert capacity(spec_of(resources)) == counted


def test_missing_gpus_are_the_fault_of_the_algorithm_that_asks(monkeypatch):
    def none_here(devices):
        raise InputError("none here", key="resources.gpu")

    monkeypatch.setattr(machine, "gpu_groups", none_here)
    refused = expect_error("", capacity, two_algorithms(two={"gpu": 1}))
    assert (refused.key, refused.message) == ("algorithms.two.resources.gpu", "none here")


# -- how many at once --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resources", "workers", "asked", "count"),
    [
        (None, None, None, 6),
        (None, 3, None, 3),
        (None, 3, 2, 2),
        ({"cpu": 1}, None, None, 4),
        ({"cpu": 1}, 3, None, 3),
        ({"cpu": 1}, 3, 2, 2),
        ({"cpu": 1}, 9, None, 4),
        ({"cpu": 1}, 3, 9, 4),
        ({"gpu": 0.5}, None, None, 4),
        ({"gpu": 1}, 9, None, 2),
        ({"memory_gb": 0.5}, None, None, 6),
        ({"memory_gb": 0.5}, 12, None, 12),
        ({"memory_gb": 2}, None, None, 4),
        ({"memory_gb": 2}, 3, None, 3),
        ({"memory_gb": 9}, 3, None, 1),
        ({"cpu": 9}, 3, None, 1),
    ],
)
def test_workers_cores_memory_and_gpus_bound_how_many_run_at_once(resources, workers, asked, count):
    executor = {} if workers is None else {"workers": workers}
    assert segments_at_once(spec_of(resources, **executor), "processes", asked) == count


def test_where_only_some_segments_need_a_gpu_the_others_have_a_core_each():
    """Two devices: sixteen eighths; but those without a GPU would all begin at once."""
    assert segments_at_once(two_algorithms(one={"gpu": 0.125}), "processes") == 6
    both = two_algorithms(one={"gpu": 0.125}, two={"gpu": 0.125})
    assert segments_at_once(both, "processes") == 16
