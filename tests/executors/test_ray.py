"""The executor `ray` over a cluster that does what a test says; see `test_ray_cluster.py` for Ray itself."""

import dataclasses
import itertools
import socket
from pathlib import Path

import misbehaving
import pytest
import yaml
from fake_cluster import Clock, FakeCluster, outcome
from patience import wait_until
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
from autorl.executors import Limits, ray, ray_cluster
from autorl.executors.elsewhere import Code, Work
from autorl.executors.ray import Ray
from autorl.executors.ray_cluster import WorkerUnusableError, check_address, check_answers, needs
from autorl.executors.ray_worker import RayWorker, WorkerPlan, loggable
from autorl.study import Study
from autorl.study.setup import check, executor_name, trainer_loader
from autorl.study.spec import load_spec

EXAMPLE = Path(__file__).parents[2] / "examples" / "ray"
STUDY = {
    "trainer": "synthetic",
    "space": {"hyperparameters": {"x": {"type": "float", "lower": 0.0, "upper": 1.0}}},
    "fidelity": {"steps": 10},
    "budget": {"runs": 6},
}


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
    return {
        message.segment: message
        for message in executor.poll(seconds)
        if isinstance(message, Outcome)
    }


# -- how work is handed out ------------------------------------------------------------------------


def test_workers_are_asked_for_as_segments_wait_and_the_queue_stays_with_the_driver(cluster):
    executor = make(cluster)
    executor.submit([segment(0)])
    executor.poll(5.0)
    assert len(cluster.alive) == 1
    executor.submit([segment(number) for number in range(1, 10)])
    executor.poll(5.0)
    assert len(cluster.alive) == 4 == executor.slots
    assert sum(len(held) for held in cluster.held().values()) == 4
    cluster.say(name(0))
    assert outcomes(executor)[name(0)].host == "host/one"
    executor.poll(5.0)
    assert sum(len(actor.has) for actor in cluster.alive) == 4


def test_no_more_workers_than_the_study_file_allows(cluster):
    executor = make(cluster, workers=3)
    executor.submit([segment(number) for number in range(10)])
    executor.poll(5.0)
    assert len(cluster.alive) == 3 == executor.slots


def test_reports_and_the_outcome_of_an_attempt_come_once(cluster):
    executor = make(cluster, workers=1)
    executor.submit([segment(0)])
    executor.poll(5.0)
    cluster.say(name(0), step=5)
    (given,) = cluster.alive[0].has
    cluster.alive[0].told += [outcome(segment(0, attempt=7)), outcome(segment(9))]
    cluster.say(name(0))
    messages = executor.poll(5.0)
    assert [type(message) for message in messages] == [Report, Outcome]
    assert {message.key for message in messages} == {given.key}
    assert executor.poll(1.0) == []


def test_a_worker_that_is_idle_for_a_minute_is_given_back(cluster, clock):
    executor = make(cluster)
    executor.submit([segment(0)])
    executor.poll(5.0)
    cluster.say(name(0))
    assert outcomes(executor)
    clock.sleep(50)
    executor.poll(0.0)
    assert len(cluster.alive) == 1
    clock.sleep(11)
    executor.poll(0.0)
    assert cluster.alive == []
    executor.submit([segment(1)])
    executor.poll(5.0)
    assert len(cluster.alive) == 1


def test_slots_follow_nodes_that_join_and_leave(cluster, clock):
    executor = make(cluster)
    executor.submit([segment(number) for number in range(10)])
    executor.poll(5.0)
    cluster.all["three"] = dataclasses.replace(cluster.all["two"], id="three")
    clock.sleep(3)
    executor.poll(5.0)
    assert executor.slots == 6
    assert len(cluster.held()["three"]) == 2
    assert len(cluster.alive) == 6
    del cluster.all["three"]
    clock.sleep(3)
    executor.poll(0.0)
    assert executor.slots == 4


def test_an_idle_worker_of_another_size_makes_room(cluster):
    executor = make(cluster)
    executor.submit([segment(number) for number in range(4)])
    executor.poll(5.0)
    for number in range(4):
        cluster.say(name(number))
    outcomes(executor)
    executor.submit([segment(9, resources=Resources(cpu=2))])
    executor.poll(5.0)
    executor.poll(5.0)
    assert [held.id for actor in cluster.alive for held in actor.has] == [name(9)]


def test_a_cancelled_attempt_yields_nothing_and_its_worker_hears_of_it(cluster):
    executor = make(cluster, workers=1)
    executor.submit([segment(0), segment(1), segment(2)])
    executor.poll(5.0)
    (actor,) = cluster.alive
    executor.cancel(segment(1))
    executor.cancel(segment(0, attempt=3))
    assert [held.id for held in actor.has] == [name(0)]
    executor.cancel(segment(0))
    assert actor.has == []
    actor.told.append(outcome(segment(0)))
    assert executor.poll(5.0) == []
    assert [held.id for held in actor.has] == [name(2)]


def test_close_ends_the_workers_whether_they_answer_or_not_and_can_be_repeated(cluster, clock):
    executor = make(cluster)
    executor.submit([segment(number) for number in range(4)])
    executor.poll(5.0)
    cluster.alive[0].silent = True
    before = clock.now
    executor.close()
    executor.close()
    assert clock.now - before < 6
    assert cluster.alive == []
    assert cluster.closed == 1


# -- losses ----------------------------------------------------------------------------------------


def test_a_worker_that_died_on_a_node_that_lives_counts_against_its_segment(cluster):
    executor = make(cluster, workers=1)
    executor.submit([segment(0), segment(1)])
    executor.poll(5.0)
    cluster.lose(cluster.actor_of(name(0)), certain=True)
    lost = outcomes(executor)[name(0)]
    assert (lost.status, lost.preempted, lost.host) == (Status.LOST, False, "host/one")
    assert lost.fence == Fence(1, 0)
    assert "gone" in lost.message


@pytest.mark.parametrize("gone", [True, False])
def test_a_worker_out_of_reach_is_judged_with_its_node(cluster, clock, gone):
    executor = make(cluster, workers=1)
    executor.submit([segment(0)])
    executor.poll(5.0)
    cluster.lose(cluster.actor_of(name(0)), certain=False)
    begun = clock.now
    assert executor.poll(10.0) == []
    if gone:
        del cluster.all["one"]
    lost = outcomes(executor, 60.0)[name(0)]
    assert (lost.status, lost.preempted) == (Status.LOST, gone)
    assert clock.now - begun < 32


def test_a_node_that_was_told_to_go_is_no_sign_against_its_segment(cluster):
    executor = make(cluster, workers=1)
    executor.submit([segment(0)])
    executor.poll(5.0)
    cluster.lose(cluster.actor_of(name(0)), certain=True, preempted=True)
    assert outcomes(executor)[name(0)].preempted


def test_a_lost_segment_is_tried_again_on_another_node(cluster):
    executor = make(cluster)
    executor.submit([segment(0)])
    executor.poll(5.0)
    first = cluster.actor_of(name(0)).node
    cluster.lose(cluster.actor_of(name(0)), certain=True)
    outcomes(executor)
    executor.submit([segment(0, attempt=1)])
    executor.poll(5.0)
    assert cluster.actor_of(name(0)).node != first
    executor.submit([segment(number) for number in (1, 2, 3)])
    executor.poll(5.0)
    for number in range(4):
        cluster.say(name(number), Status.LOST if number == 1 else Status.DONE)
    where = cluster.alive[[1, 0, 2, 3][0]].node
    outcomes(executor)
    executor.submit([segment(1, attempt=1)])
    executor.poll(5.0)
    assert cluster.actor_of(name(1)).node != where, "of free workers the one elsewhere"


def test_where_there_is_no_other_node_it_is_tried_again_on_the_same(clock):
    cluster = FakeCluster(clock, one={"CPU": 1.0})
    executor = make(cluster)
    executor.submit([segment(0)])
    executor.poll(5.0)
    cluster.lose(cluster.actor_of(name(0)), certain=True)
    outcomes(executor)
    executor.submit([segment(0, attempt=1)])
    executor.poll(5.0)
    assert cluster.held() == {"one": [name(0)]}


def test_an_outcome_of_a_lost_attempt_is_dropped(cluster):
    executor = make(cluster, workers=1)
    executor.submit([segment(0)])
    executor.poll(5.0)
    cluster.lose(cluster.actor_of(name(0)), certain=True)
    outcomes(executor)
    executor.submit([segment(0, attempt=1)])
    executor.poll(5.0)
    cluster.actor_of(name(0)).told.append(outcome(segment(0)))
    assert executor.poll(2.0) == []
    cluster.say(name(0))
    assert outcomes(executor)[name(0)].fence == Fence(1, 1)


# -- nodes that cannot be used ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("differs", "line"),
    [
        ({"python": "3.9.1"}, "it has Python 3.9.1, the driver"),
        ({"version": "0.0.1"}, "it has autorl 0.0.1, the driver"),
        ({"source": "ab" * 32}, "other source files (abababababab)"),
        ({}, ""),
    ],
)
def test_code_that_differs_from_the_drivers_is_one_line(differs, line):
    assert line in Code(**differs).difference(Code())
    assert bool(Code(**differs).difference(Code())) is bool(differs)


def test_a_node_that_cannot_be_used_is_one_line_and_gets_nothing(cluster, capsys):
    cluster.problems["one"] = "it has Python 3.9.1, the driver 3.11.7"
    executor = make(cluster)
    executor.submit([segment(number) for number in range(6)])
    for _ in range(5):
        executor.poll(5.0)
    assert set(cluster.held()) == {"two"}
    assert executor.slots == 2
    told = capsys.readouterr().err
    assert told.count("3.9.1") == 1
    assert told.startswith("autorl: node one of the Ray cluster is not used: ")
    cluster.all.pop("two")
    cluster.problems["three"] = cluster.problems["one"]
    cluster.all["three"] = dataclasses.replace(cluster.all["one"], id="three")
    for actor in cluster.alive:
        cluster.lose(actor, certain=False)

    def poll_often():
        for _ in range(9):
            executor.poll(5.0)

    with pytest.raises(StudyError, match="no node of the Ray cluster can be used"):
        poll_often()
    executor.close()


def test_the_node_of_a_worker_that_cannot_begin_is_not_used(cluster, capsys):
    error = "ModuleNotFoundError: No module named 'autorl'"
    cluster.unusable["one"] = WorkerUnusableError(error, cluster.all["one"].address)
    executor = make(cluster)
    executor.submit([segment(0), segment(1)])
    for _ in range(3):
        executor.poll(5.0)
    assert set(cluster.held()) == {"two"}
    assert "No module named 'autorl'" in capsys.readouterr().err


def test_with_a_storage_a_node_need_not_see_the_study_folder(cluster, tmp_path):
    executor = make(cluster)
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    log = str(tmp_path / "elsewhere" / "0.0.log")
    stored = segment(0, scratch=str(checkpoints / ".tmp-0.0"), storage="s3://b/0.0", log=log)
    executor.submit([stored])
    assert cluster.alive[0].plan.probe == ""
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
    plan = cluster.alive[0].plan
    assert (plan.probe, plan.probe_text) == (str(probe), probe.read_text())
    assert RayWorker(plan).describe().problem == ""
    unseen = RayWorker(dataclasses.replace(plan, probe_text="other")).describe()
    assert f"does not see the study folder {tmp_path}" in unseen.problem
    executor.close()
    assert list(checkpoints.iterdir()) == []


def test_what_no_node_has_is_one_line_unless_nodes_may_come(cluster, capsys):
    with pytest.raises(InputError) as found:
        make(cluster).submit([segment(0, resources=Resources(gpu=2))])
    assert (
        str(found.value)
        == "resources: no node of the Ray cluster has 2 GPU (the most a node has: 0 GPU)"
    )
    with pytest.raises(InputError, match="3 CPU"):
        make(cluster).submit([segment(0, resources=Resources(cpu=3))])
    with pytest.raises(InputError, match="on each of 3 nodes"):
        make(cluster).submit([segment(0, resources=Resources(nodes=3))])
    executor = make(cluster, workers=2, autoscaler=True)
    executor.submit([segment(0, resources=Resources(gpu=2))])
    assert "waiting for the autoscaler" in capsys.readouterr().err
    assert [actor.amounts for actor in cluster.alive] == [{"CPU": 1, "GPU": 2}]


# -- gangs -----------------------------------------------------------------------------------------

PAIR = Resources(nodes=2)


def gang_of(cluster, executor):
    executor.submit(
        [segment(0, resources=PAIR, save=True, folder="f", log="/l/0.0.log", scratch="")]
    )
    executor.poll(5.0)
    return cluster.gangs[-1]


def test_hosts_of_a_gang_know_each_other_and_rank_0_speaks_for_all(cluster):
    executor = make(cluster)
    first, second = gang_of(cluster, executor)
    assert first.variables["MASTER_ADDR"] == second.variables["MASTER_ADDR"] == "10.0.0.0"
    assert first.variables["MASTER_PORT"] == "4711"
    assert [actor.variables["RANK"] for actor in (first, second)] == ["0", "1"]
    assert second.variables["WORLD_SIZE"] == "2"
    (own,), (other,) = first.has, second.has
    assert own.save
    assert not other.save
    assert (other.folder, other.log) == ("", "/l/0.0.rank1.log")
    second.told.append(outcome(other))
    assert executor.poll(2.0) == []
    first.told.append(outcome(own))
    assert outcomes(executor)[name(0)].status is Status.DONE
    assert cluster.alive == []


def test_one_of_a_gang_that_fails_fails_all(cluster):
    executor = make(cluster)
    _, second = gang_of(cluster, executor)
    second.told.append(outcome(second.has[0], Status.CRASH))
    failed = outcomes(executor)[name(0)]
    assert failed.status is Status.CRASH
    assert failed.message.startswith("rank 1: ")
    assert cluster.alive == []


def test_one_of_a_gang_that_is_lost_loses_all(cluster):
    executor = make(cluster)
    _, second = gang_of(cluster, executor)
    cluster.lose(second, certain=True)
    lost = outcomes(executor)[name(0)]
    assert (lost.status, lost.preempted, lost.host) == (Status.LOST, False, "host/two")
    assert cluster.alive == []


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
    with pytest.raises(
        InputError, match=r"executor.address: expected local, auto, HOST:PORT or ray://HOST:PORT"
    ):
        check_address(address)


def test_without_ray_the_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(ray_cluster.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"executor.name: .*pip install 'autorl\[ray\]'"):
        check_address("local")


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_an_address_nobody_answers_is_one_line(form, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = form.format(free.getsockname()[1])
        with pytest.raises(InputError, match=f"nobody answers at {address}"):
            check_answers(address)
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(InputError, match=f"nobody answers at {address}"):
            check_answers("auto")
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


def test_a_worker_runs_a_segment_as_the_other_executors_do_and_ends_what_runs(tmp_path):
    log = tmp_path / "logs" / "0.log"
    work = Work(misbehaving.load, limits=Limits(memory_bytes=2**40))
    worker = RayWorker(WorkerPlan(work))
    messages = worker.exchange(segment(0, log=str(log)), 0.1)

    def enough(kind):
        messages.extend(worker.exchange(None, 0.5))
        return any(type(message) is kind for message in messages)

    wait_until(lambda: enough(Outcome))
    assert [message.status for message in messages if isinstance(message, Outcome)] == [Status.DONE]
    assert "training 0.0" in log.read_text()
    messages[:] = worker.exchange(dataclasses.replace(segment(1), config=Config(act="hang")), 0.1)
    wait_until(lambda: enough(Report))
    worker.cancel(segment(1))
    assert worker.exchange(None, 0.1) == []
    worker.close()
    worker.close()


class Told:
    """An executor whose polls return what they are told to, and `[]` then."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def submit(self, segments):
        pass

    def cancel(self, segment):
        pass

    def poll(self, timeout):
        return self.answers.pop(0) if self.answers else []


def exchanged(monkeypatch, *answers):
    """Return a worker's answers, at once and later, if its executor says these things."""
    executor = Told(*answers)
    monkeypatch.setattr(Work, "executor", lambda work: executor)
    return RayWorker(WorkerPlan(Work(misbehaving.load))).exchange(None, 0.1), executor.answers


def test_a_report_and_the_outcome_that_follows_it_are_one_answer(monkeypatch):
    point = Report(segment(0).id, 4, {"score": 0.5})
    assert exchanged(monkeypatch, [point], [outcome(segment(0))]) == (
        [point, outcome(segment(0))],
        [],
    )


def test_a_report_alone_is_not_kept_for_long(monkeypatch):
    ticks = itertools.count(step=0.004)
    monkeypatch.setattr("autorl.executors.ray_worker.time.monotonic", lambda: next(ticks))
    point = Report(segment(0).id, 4, {"score": 0.5})
    answer, left = exchanged(monkeypatch, [point], [], [], [outcome(segment(0))])
    assert answer == [point]
    assert left == [[outcome(segment(0))]]
