"""Setting up a study: its executor, its limits, and refusals before anything is trained."""

from types import SimpleNamespace

import pytest
from study_support import SPACE, small_spec

from autorl import executors
from autorl.core.types import Config, InputError, Resources
from autorl.study import setup
from autorl.study.setup import (
    changeable,
    choices_of,
    executor_limits,
    executor_name,
    local_executor_name,
    make_executor,
    ray_address,
    trainer_loader,
)
from autorl.study.spec import load_spec


def spec_of(*best, name=None, limits=None, devices=(), needs=({},), **executor):
    """A study of trainers that run best on these executors."""
    limits = {"segment_seconds": None, "memory_gb": None} | (limits or {})
    section = {"name": name, "devices": list(devices), "workers": None, "address": None}
    section |= {"autoscaler": False} | executor
    return SimpleNamespace(
        executor=SimpleNamespace(**section),
        limits=SimpleNamespace(**limits),
        trainers={str(place): place for place in range(len(best))},
        environment=SimpleNamespace(id=""),
        info=lambda place: SimpleNamespace(executor_for=lambda environment: best[place]),
        resources_by_algorithm={
            str(place): Resources(**asked) for place, asked in enumerate(needs)
        },
        storage=executor.get("storage"),
    )


# -- which executor ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("best", "stated", "name"),
    [
        (["processes"], None, "processes"),
        (["processes"], "threads", "threads"),
        (["processes"], "in_process", "in_process"),
        (["processes", "threads"], None, "processes"),
        (["processes", "threads"], "threads", "threads"),
        (["threads"], None, "threads"),
        (["threads"], "processes", "threads"),
        (["threads"], "in_process", "in_process"),
        (["threads", "in_process"], None, "processes"),
        (["in_process"], None, "in_process"),
        (["in_process", "in_process"], None, "in_process"),
        (["in_process"], "processes", "processes"),
        (["processes"], "ray", "processes"),
    ],
)
def test_segments_run_on_what_suits_their_trainers(best, stated, name):
    spec = spec_of(*best, name=stated)
    assert local_executor_name(spec) == name
    assert executor_name(spec) == (stated if stated == "ray" else name)


@pytest.mark.parametrize(
    "asking",
    [
        {"limits": {"segment_seconds": 60.0}},
        {"limits": {"memory_gb": 1.0}},
        {"devices": ["0"]},
        {"needs": [{}, {"gpu": 1.0}]},
        {"limits": {"memory_gb": 1.0}, "devices": ["0"]},
    ],
)
def test_what_limits_and_devices_ask_for_runs_in_a_process_of_its_own(asking):
    assert local_executor_name(spec_of("in_process", "in_process", **asking)) == "processes"


def test_limits_are_seconds_and_bytes():
    assert executor_limits(spec_of()) == executors.Limits()
    limits = executor_limits(spec_of(limits={"segment_seconds": 7.5, "memory_gb": 1.5}))
    assert limits == executors.Limits(7.5, 3 * 2**29)


# -- how it is made ----------------------------------------------------------------------------------------------------


def of_ray(monkeypatch, spec, workers=None):
    """Return the arguments that a cluster's executor is made with."""
    made = {}

    def cluster(address, cores):
        made["cores"] = cores

    monkeypatch.setattr(executors, "Cluster", cluster)
    monkeypatch.setattr(executors, "Ray", lambda work, of, **more: made.update(more))
    monkeypatch.setattr(setup.os, "cpu_count", lambda: 4)
    setup._make_ray(spec, None, workers)
    return made


@pytest.mark.parametrize(
    ("best", "limits", "kind"),
    [
        (["threads"], {"memory_gb": 1.0}, "threads"),
        (["in_process"], {}, "threads"),
        (["in_process"], {"memory_gb": 1.0}, "processes"),
        (["threads", "in_process"], {}, "threads"),
        (["threads", "in_process"], {"segment_seconds": 9.0}, "processes"),
        (["threads", "processes"], {}, "processes"),
        (["processes"], {}, "processes"),
    ],
)
def test_who_looks_a_value_up_has_no_process_of_its_own_elsewhere(best, limits, kind):
    work = setup._work_elsewhere(spec_of(*best, limits=limits), None, ["numpy"])
    assert (work.kind, work.preload) == (kind, ("numpy",))
    assert (work.limits.memory_bytes is None) is ("memory_gb" not in limits)


@pytest.mark.parametrize(("workers", "cores"), [(None, None), (1, 4), (2, 6.0), (4, 12.0)])
def test_a_ray_of_the_studys_own_has_room_for_its_workers(monkeypatch, workers, cores):
    """Segments need one core, or three."""
    spec = spec_of("processes", "processes", needs=[{"cpu": 1.0}, {"cpu": 3.0}])
    made = of_ray(monkeypatch, spec, workers)
    assert (made["workers"], made["cores"]) == (workers, cores)


def test_a_machine_that_does_not_say_its_cores_has_one(monkeypatch):
    spec = spec_of("processes", needs=[{"cpu": 0.25}])
    made = of_ray(monkeypatch, spec, 2)
    assert made["cores"] == 4
    monkeypatch.setattr(setup.os, "cpu_count", lambda: None)
    setup._make_ray(spec, None, 2)
    assert made["cores"] == 1


@pytest.mark.parametrize(
    ("stated", "variable", "address"),
    [
        (None, None, "local"),
        (None, "10.0.0.1:6379", "auto"),
        ("10.0.0.2:6379", None, "10.0.0.2:6379"),
        ("10.0.0.2:6379", "10.0.0.1:6379", "10.0.0.2:6379"),
    ],
)
def test_a_cluster_is_where_the_file_or_a_variable_says(monkeypatch, stated, variable, address):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if variable:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    assert ray_address(spec_of(address=stated)) == address


def test_somebody_must_answer_where_a_study_has_a_cluster_and_only_there(monkeypatch):
    asked = []
    monkeypatch.setattr(executors, "check_answers", asked.append)
    setup.check_answers(spec_of("processes"))
    setup.check_answers(spec_of("processes", name="ray", address="10.0.0.2:6379"))
    assert asked == ["10.0.0.2:6379"]


def test_the_workers_of_a_study_are_those_asked_for_or_stated(monkeypatch):
    given = []
    monkeypatch.setattr(executors, "Cluster", lambda address, cores: None)
    monkeypatch.setattr(executors, "Ray", lambda work, of, **more: given.append(more["workers"]))
    spec = small_spec(executor={"name": "ray", "workers": 3})
    load = trainer_loader(spec)
    for workers in (None, 2):
        make_executor(spec, load, workers)
    assert given == [3, 2]


def test_who_asks_for_workers_that_in_process_has_not_is_told(tmp_path):
    spec = small_spec()
    load = trainer_loader(spec)
    with pytest.raises(InputError, match="one at a time, not 2") as refused:
        make_executor(spec, load, 2)
    assert refused.value.key == "--workers"
    assert type(make_executor(spec, load, 1)).__name__ == "InProcess"


def test_modules_are_imported_once_and_only_processes_know_what_this_machine_has(monkeypatch):
    made = []
    monkeypatch.setattr(
        executors, "make", lambda name, load, slots, **more: made.append((name, slots, more))
    )
    spec = small_spec(executor={"name": "threads", "workers": 2}, limits={"memory_gb": 1})
    machine = setup.capacity(spec)
    monkeypatch.setattr(setup, "capacity", lambda spec: machine)
    load = trainer_loader(spec)
    setup.make_named_executor("threads", spec, load)
    setup.make_named_executor("threads", spec, load, preload=["mine"])
    (name, slots, own), (_, _, given) = made
    assert (name, slots) == ("threads", 2)
    assert own["capacity"] is machine
    assert own["limits"].memory_bytes == 2**30
    assert given["preload"] == ["mine"]
    assert own["preload"] == sorted(
        {module for trainer in spec.trainers.values() for module in load(trainer).preload}
    )


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"executor": {"name": "ray", "autoscaler": True}}, "executor.autoscaler"),
        (
            {"executor": {"name": "processes", "workers": 2, "autoscaler": True}},
            "executor.autoscaler",
        ),
    ],
)
def test_what_an_executor_cannot_do_is_refused(monkeypatch, changes, key):
    monkeypatch.setattr(executors, "check", lambda *asked: None)
    with pytest.raises(InputError) as refused:
        setup._check_executor(small_spec(**changes))
    assert refused.value.key == key


@pytest.mark.parametrize(
    "executor",
    [
        {"name": "ray", "workers": 2, "autoscaler": True},
        {"name": "ray"},
        {"name": "processes", "workers": 2},
    ],
)
def test_what_an_executor_can_do_is_not(monkeypatch, executor):
    checked = []
    monkeypatch.setattr(executors, "check", lambda name, *asked: checked.append(name))
    setup._check_executor(small_spec(executor=executor))
    assert checked == [executor["name"]]


# -- hyperparameters ---------------------------------------------------------------------------------------------------


def test_hyperparameters_of_an_algorithm_are_named_without_its_prefix():
    part = {"trainer": "synthetic", "space": SPACE}
    spec = load_spec(
        {"algorithms": {"one": part, "two": part}, "fidelity": {"steps": 10}, "budget": {"runs": 8}}
    )
    choices = choices_of(spec, "one.")
    assert set(choices) == {"x", "rate", "kind", "only_b"}
    assert choices["kind"] == ("a", "b")
    assert set(choices_of(small_spec(), "")) == set(choices)


def test_what_a_continued_run_may_change_is_marked_and_supported():
    spec = small_spec()
    marked = {"x", "rate"}
    everything = changeable(spec, lambda trainer: SimpleNamespace(changes={*marked, "kind"}))
    assert everything == marked
    assert changeable(spec, lambda trainer: SimpleNamespace(changes={"x", "kind"})) == {"x"}
    assert changeable(spec, lambda trainer: SimpleNamespace(changes=())) == set()


def test_configurations_that_differ_in_floats_alone_are_alike():
    config = Config(x=0.5, kind="a", depth=3, flag=True)
    assert setup._without_floats(config) == Config(kind="a", depth=3, flag=True)
