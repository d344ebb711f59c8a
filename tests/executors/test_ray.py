"""The executor `ray` over a cluster that does what a test says; see `test_ray_cluster.py` for Ray itself."""

import dataclasses
import socket
from pathlib import Path

import misbehaving
import pytest
import yaml
from fake_cluster import Clock, FakeCluster, outcome
from refusals import expect_error
from segments import segment_of

from autorl.core.types import (
    Config,
    Fence,
    FrozenMap,
    InputError,
    Outcome,
    Report,
    Resources,
    SegmentId,
    Status,
    StudyError,
    TrainerSpec,
)
from autorl.executors import Limits, ray, ray_cluster, ray_worker
from autorl.executors.elsewhere import Code, Work
from autorl.executors.ray import Ray
from autorl.executors.ray_cluster import WorkerUnusableError, check_address, check_answers, needs
from autorl.executors.ray_worker import WorkerPlan, loggable, train
from autorl.study import Study
from autorl.study.setup import check, executor_name, trainer_loader
from autorl.study.spec import load_spec

EXAMPLE = Path(__file__).parents[2] / "examples" / "ray"
STUDY = {"trainer": "synthetic", "space": {"x": "uniform(0, 1)"}}
STUDY |= {"fidelity": {"steps": 10}, "budget": {"runs": 6}}


def segment(number, attempt=0, **values):
    made = {"trainer": TrainerSpec("misbehaving"), "config": Config(act="train")}
    return segment_of(number, **made, evaluate_at=(5, 10), fence=Fence(1, attempt), **values)


def name(number):
    return SegmentId(number, 0)


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(ray, "time", made)
    return made


@pytest.fixture
def cluster(clock):
    return FakeCluster(clock, one={"CPU": 2.0, "memory": 8 * 2.0**30}, two={"CPU": 2.0})


def make(cluster, **options):
    return Ray(Work(misbehaving.load), cluster, **options)


def outcomes(executor, seconds=5.0):
    found = [one for one in executor.poll(seconds) if isinstance(one, Outcome)]
    return {message.segment: message for message in found}


# -- how work is handed out ------------------------------------------------------------------------


def test_the_nodes_get_what_they_have_room_for_and_the_queue_stays_with_the_driver(cluster):
    executor = make(cluster)
    executor.submit([segment(number) for number in range(10)])
    executor.poll(5.0)
    assert len(cluster.tasks) == 4 == executor.slots
    cluster.say(name(0))
    executor.poll(5.0)
    assert sorted(task.segment.id for task in cluster.tasks) == [name(n) for n in (1, 2, 3, 4)]
    fewer = make(cluster, workers=3)
    fewer.submit([segment(number) for number in range(10, 20)])
    assert len(cluster.tasks) == 7
    assert fewer.slots == 3


def test_reports_come_at_once_and_each_once(cluster):
    executor = make(cluster, workers=1)
    executor.submit([segment(0)])
    executor.poll(0.0)
    cluster.post(name(0), step=5)
    cluster.posted.append((segment(0, attempt=7).key, 0, Report(name(0), 5, {})))
    assert [message.step for message in executor.poll(5.0)] == [5]
    cluster.post(name(0), step=10)
    cluster.say(name(0))
    cluster.posted.clear()  # the outcome comes before the last news
    messages = executor.poll(5.0)
    assert [type(message) for message in messages] == [Report, Outcome]
    assert {message.key for message in messages} == {segment(0).key}
    assert executor.poll(1.0) == []


def test_slots_follow_nodes_that_join_and_leave(cluster, clock):
    executor = make(cluster)
    executor.submit([segment(number) for number in range(10)])
    executor.poll(5.0)
    cluster.all["three"] = dataclasses.replace(cluster.all["two"], id="three")
    clock.sleep(3)
    executor.poll(5.0)
    assert executor.slots == 6 == len(cluster.tasks)
    assert len(cluster.held()["three"]) == 2
    del cluster.all["three"]
    clock.sleep(3)
    executor.poll(0.0)
    assert executor.slots == 4


def test_a_cancelled_attempt_yields_nothing_and_makes_room(cluster):
    executor = make(cluster, workers=1)
    executor.submit([segment(0), segment(1), segment(2)])
    executor.poll(5.0)
    (task,) = cluster.tasks
    executor.cancel(segment(1))
    executor.cancel(segment(0, attempt=3))
    assert cluster.tasks == [task]
    executor.cancel(segment(0))
    assert executor.poll(5.0) == []
    assert [task.segment.id for task in cluster.tasks] == [name(2)]
    executor.close()
    executor.close()
    assert cluster.tasks == []
    assert cluster.closed == 1


# -- losses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("certain", "gone"), [(True, False), (True, True), (False, True), (False, False)]
)
def test_a_lost_worker_is_judged_with_its_node(cluster, clock, certain, gone):
    executor = make(cluster, workers=1)
    executor.submit([segment(0), segment(1)])
    executor.poll(5.0)
    if certain and gone:
        del cluster.all["one"]
    cluster.lose(cluster.task_of(name(0)), certain=certain)
    begun = clock.now
    if not certain:
        assert not outcomes(executor, 10.0)
        if gone:
            del cluster.all["one"]
    lost = outcomes(executor, 60.0)[name(0)]
    assert (lost.status, lost.preempted, lost.host) == (Status.LOST, gone, "host/one")
    assert lost.fence == Fence(1, 0)
    assert "gone" in lost.message
    assert clock.now - begun < 32


def test_a_lost_segment_is_tried_again_on_another_node_where_there_is_one(cluster):
    executor = make(cluster)
    executor.submit([segment(0)])
    for attempt, node in enumerate(("one", "two", "one")):
        executor.poll(5.0)
        assert cluster.held() == {node: [name(0)]}
        cluster.lose(cluster.task_of(name(0)), certain=True)
        lost = outcomes(executor)[name(0)]
        assert lost.fence == Fence(1, attempt)
        if attempt == 1:
            del cluster.all["two"]
        executor.submit([segment(0, attempt=attempt + 1)])


# -- nodes that cannot be used ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("differs", "line"),
    [
        ({"python": "3.9.1"}, "it has Python 3.9.1, the driver"),
        ({"version": "0.0.1"}, "it has autorl 0.0.1, the driver"),
        ({"source": "ab" * 32}, "other source files (abababababab, the driver"),
        ({}, ""),
    ],
)
def test_code_that_differs_from_the_drivers_is_one_line(differs, line):
    assert line in Code(**differs).difference(Code())
    assert bool(Code(**differs).difference(Code())) is bool(differs)


@pytest.mark.parametrize("begins", [True, False])
def test_a_node_that_cannot_be_used_is_one_line_and_gets_nothing(cluster, capsys, begins):
    error = "it has Python 3.9.1, the driver 3.11.7"
    if begins:
        cluster.problems["one"] = error
    else:
        cluster.unusable["one"] = WorkerUnusableError(error, cluster.all["one"].address)
    executor = make(cluster)
    executor.submit([segment(number) for number in range(6)])
    for _ in range(5):
        refused = outcomes(executor)
        assert all(lost.preempted for lost in refused.values())
        executor.submit([segment(lost.proposal) for lost in refused])
    assert set(cluster.held()) == {"two"}
    assert executor.slots == 2
    told = capsys.readouterr().err
    assert told.count("3.9.1") == 1
    assert told.startswith("autorl: node one of the Ray cluster is not used: ")
    cluster.problems["two"] = error
    cluster.lose(cluster.tasks[0], certain=True)
    with pytest.raises(StudyError, match="no node of the Ray cluster can be used"):
        [executor.poll(5.0) for _ in range(9)]
    executor.close()


def test_with_a_storage_a_node_need_not_see_the_study_folder(cluster, tmp_path):
    executor = make(cluster)
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    log = str(tmp_path / "elsewhere" / "0.0.log")
    stored = segment(0, scratch=str(checkpoints / ".tmp-0.0"), storage="s3://b/0.0", log=log)
    executor.submit([stored])
    assert cluster.tasks[0].plan.probe == ""
    assert list(checkpoints.iterdir()) == []
    assert loggable(stored).log is None
    Path(log).parent.mkdir()
    assert loggable(stored).log == log
    executor.close()


def test_the_probe_of_the_study_folder_goes_with_the_executor(cluster, tmp_path):
    executor = make(cluster)
    checkpoints = tmp_path / "checkpoints"
    executor.submit([segment(0, scratch=str(checkpoints / ".tmp-0.0"))])
    (probe,) = checkpoints.iterdir()
    assert probe.name.startswith(".tmp-")  # which is swept if the driver is killed
    plan = cluster.tasks[0].plan
    assert (plan.probe, plan.probe_text) == (str(probe), probe.read_text())
    other = dataclasses.replace(plan, probe_text="other")
    unseen = train(other, segment(0), lambda message: None)
    assert f"does not see the study folder {tmp_path}" in unseen.problem
    executor.close()
    assert list(checkpoints.iterdir()) == []


def test_what_no_node_has_is_one_line_unless_nodes_may_come(cluster, capsys):
    found = expect_error("", make(cluster).submit, [segment(0, resources=Resources(gpu=2))])
    line = "resources: no node of the Ray cluster has 2 GPU (the most a node has: 0 GPU)"
    assert str(found) == line
    expect_error("3 CPU", make(cluster).submit, [segment(0, resources=Resources(cpu=3))])
    with pytest.raises(InputError, match="on each of 3 nodes"):
        make(cluster).submit([segment(0, resources=Resources(nodes=3))])
    executor = make(cluster, workers=2, autoscaler=True)
    executor.submit([segment(0, resources=Resources(gpu=2))])
    assert "waiting for the autoscaler" in capsys.readouterr().err
    assert [task.amounts for task in cluster.tasks] == [{"CPU": 1, "GPU": 2}]


# -- gangs -----------------------------------------------------------------------------------------

PAIR = Resources(nodes=2)


def gang_of(cluster, executor):
    place = {"save": True, "folder": "f", "log": "/l/0.0.log", "scratch": ""}
    executor.submit([segment(0, resources=PAIR, **place)])
    executor.poll(1.0)
    return cluster.tasks


def test_hosts_of_a_gang_know_each_other_and_rank_0_speaks_for_all(cluster):
    executor = make(cluster)
    first, second = gang_of(cluster, executor)
    assert first.variables["MASTER_ADDR"] == second.variables["MASTER_ADDR"] == "10.0.0.0"
    assert first.variables["MASTER_PORT"] == "4711"
    assert [task.variables["RANK"] for task in (first, second)] == ["0", "1"]
    assert second.variables["WORLD_SIZE"] == "2"
    own, other = first.segment, second.segment
    assert own.save
    assert not other.save
    assert (other.folder, other.log) == ("", "/l/0.0.rank1.log")
    cluster.answer(second, outcome(other))
    assert executor.poll(2.0) == []
    cluster.answer(first, outcome(own))
    assert outcomes(executor)[name(0)].status is Status.DONE
    assert cluster.tasks == []


def test_one_of_a_gang_that_fails_or_is_lost_ends_all(cluster):
    executor = make(cluster)
    _, second = gang_of(cluster, executor)
    cluster.answer(second, outcome(second.segment, Status.CRASH))
    failed = outcomes(executor)[name(0)]
    assert failed.status is Status.CRASH
    assert failed.message.startswith("rank 1: ")
    assert cluster.tasks == []
    _, second = gang_of(cluster, executor)
    cluster.lose(second, certain=True)
    lost = outcomes(executor)[name(0)]
    assert (lost.status, lost.preempted, lost.host) == (Status.LOST, False, "host/two")
    assert cluster.tasks == []


# -- amounts and addresses -------------------------------------------------------------------------


def test_needs_are_what_ray_takes():
    asked = Resources(cpu=1.5, gpu=0.25, memory_gb=1.5, custom=FrozenMap(tpu=1))
    assert needs(asked) == {"CPU": 2, "GPU": 0.25, "memory": 1.5 * 2**30, "tpu": 1.0}
    assert needs(Resources(cpu=0.5)) == {"CPU": 0.5}
    assert needs(Resources(cpu=0)) == {}


@pytest.mark.parametrize(
    "address", ["", "cluster", "host:", "http://h:1", "ray://h", "h:123456", "a b:1"]
)
def test_an_address_that_is_none_says_what_is_allowed(address):
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    expect_error(r"executor.address: expected local, auto, HOST:PORT", check_address, address)


def test_without_ray_the_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(ray_cluster.importlib.util, "find_spec", lambda name: None)
    expect_error(r"executor.name: .*pip install 'autorl\[ray\]'", check_address, "local")


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_an_address_nobody_answers_is_one_line(form, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = form.format(free.getsockname()[1])
        expect_error(f"nobody answers at {address}", check_answers, address)
        monkeypatch.setenv("RAY_ADDRESS", address)
        expect_error(f"nobody answers at {address}", check_answers, "auto")
        free.listen()
        check_answers(address)
    check_answers("local")


@pytest.mark.parametrize(
    ("executor", "key", "line"),
    [
        ({"name": "ray", "address": "nowhere"}, "executor.address", "expected local, auto"),
        ({"name": "processes", "address": "auto"}, "executor.address", "only the `ray` executor"),
        ({"name": "ray", "devices": [0]}, "executor.devices", "only the `processes` executor"),
        ({"name": "ray", "autoscaler": True}, "executor.autoscaler", "the most `workers`"),
        ({"name": "processes", "autoscaler": True}, "executor.autoscaler", "the executor `ray`"),
    ],
)
def test_a_study_file_that_asks_for_what_cannot_be_is_one_line(monkeypatch, executor, key, line):
    monkeypatch.setattr(ray_cluster.importlib.util, "find_spec", lambda name: True)
    with pytest.raises(InputError, match=line) as found:
        Study.in_memory(load_spec({**STUDY, "executor": executor}))
    assert found.value.key == key


def test_the_example_is_a_study_of_a_cluster(monkeypatch):
    monkeypatch.setattr(ray_cluster.importlib.util, "find_spec", lambda name: True)
    spec = load_spec(EXAMPLE / "study.yaml")
    check(spec, trainer_loader(spec))
    assert executor_name(spec) == "ray"
    assert spec.executor.address == "auto"
    job = yaml.safe_load((EXAMPLE / "rayjob.yaml").read_text())
    assert job["kind"] == "RayJob"
    assert "autorl tune" in job["spec"]["entrypoint"]


# -- the worker ------------------------------------------------------------------------------------


def test_a_process_trains_as_the_other_executors_do_and_keeps_its_own(tmp_path, monkeypatch):
    log = tmp_path / "logs" / "0.log"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray_worker, "_kept", {})
    work = Work(misbehaving.load, limits=Limits(memory_bytes=2**40))
    plan = WorkerPlan(work, folder=str(tmp_path))
    told = []
    answers = [train(plan, segment(n, log=str(log)), told.append) for n in (0, 1)]
    assert [answer.messages[-1].status for answer in answers] == [Status.DONE] * 2
    assert told[0] == answers[0].place
    reports = [message for answer in answers for message in answer.messages[:-1]]
    assert [message for message in told if isinstance(message, Report)] == reports
    assert "training 0.0" in log.read_text()
    (executor,) = ray_worker._kept.values()
    train(dataclasses.replace(plan, token="another"), segment(2), told.append)
    assert list(ray_worker._kept.values()) != [executor]
    ray_worker._kept.popitem()[1].close()
