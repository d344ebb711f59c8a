"""The queue in a study's folder: claims, heartbeats, results, and who is given up for lost.

Clocks are those of the test. The driver's tests play the workers by hand, and the workers' tests
the driver.
"""

import hashlib
import json
import threading

import pytest
from patience import PATIENCE, wait_until

from autorl.executors import Folder, InProcess, folder_worker
from autorl.executors.folder_worker import FolderWorker
from autorl.executors.queue_files import announce_finished, attempt_name, publish, published
from autorl.executors.segment_form import SegmentForm
from autorl.executors.wire import report_to_json
from autorl.types import (
    Checkpoint,
    Config,
    EnvironmentSpec,
    Fence,
    FrozenMap,
    InputError,
    Outcome,
    Report,
    Segment,
    SegmentId,
    Status,
    StudyError,
    TrainerSpec,
)

TRAINER = TrainerSpec("command", FrozenMap(environment_variables={"TOKEN": "hf_secret"}))
FACTS = {"version": "1.0", "python": "3.11.2", "source": {"sha256": "ab"}, "cpu": "znver5"}
LOST_AFTER = 80.0
BEAT = 5.0


class Clock:
    """A clock that goes on when somebody sleeps, or is put forward."""

    def __init__(self):
        self.time = 1000.0

    def now(self):
        return self.time

    def sleep(self, seconds):
        self.time += seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def study(tmp_path):
    (tmp_path / "study.yaml").write_text("name: small\n")
    (tmp_path / "checkpoints").mkdir()
    return tmp_path


def check(trainer, config):
    if set(config) - {"x"}:
        raise InputError("unknown hyperparameter", key=next(iter(config)))


def form_of(study):
    return SegmentForm(study, {"": TRAINER}, EnvironmentSpec("Env-v0"), check)


def segment_of(study, number=0, attempt=0, epoch=1, **changes):
    name = f"{number}.0-{epoch}-{attempt}"
    values = {
        "trainer": TRAINER,
        "environment": EnvironmentSpec("Env-v0"),
        "config": Config(x=0.5),
        "seed": 0,
        "role": "tuning",
        "until": 10,
        "horizon": 10,
        "evaluate_at": (5, 10),
        "folder": str(study / "checkpoints" / name),
        "scratch": str(study / "checkpoints" / f".tmp-{name}"),
        "log": str(study / "logs" / f"{number}.0.log"),
        "fence": Fence(epoch, attempt),
    }
    return Segment(id=SegmentId(number, 0), **(values | changes))


def outcome_of(segment, **changes):
    saved = Checkpoint(segment.id, segment.folder, FrozenMap(a="b"))
    values = {"checkpoint": saved, "fence": segment.fence}
    return Outcome(segment.id, Status.DONE, 10, **(values | changes))


STORAGE = "s3://bucket/studies/small"


@pytest.fixture
def storing(study):
    """Writes and reads segments of a study with a storage, on its driver and on a worker."""
    return [
        SegmentForm(folder, {"": TRAINER}, EnvironmentSpec("Env-v0"), check, storage=STORAGE)
        for folder in (study, study / "mounted elsewhere")
    ]


def stored_segment(study):
    parent = Checkpoint(SegmentId(0, 0), f"{STORAGE}/checkpoints/0.0-1-0", FrozenMap(a="b"), 3)
    return segment_of(study, storage=f"{STORAGE}/checkpoints/0.0-1-1", parent=parent, start=5)


def test_a_segment_with_a_storage_names_it_by_the_study_file_alone(study, storing):
    segment = stored_segment(study)
    body = json.loads(json.dumps(storing[0].to_json(segment)))
    assert "bucket" not in str(body)
    assert body["storage"] == "storage:checkpoints/0.0-1-1"
    assert body["parent"]["path"] == "storage:checkpoints/0.0-1-0"
    there = storing[1].from_json(body, "f")
    assert (there.storage, there.parent) == (segment.storage, segment.parent)
    saved = Checkpoint(segment.id, segment.storage, FrozenMap(c="d"), 7)
    outcome = storing[1].outcome_to_json(outcome_of(segment, checkpoint=saved))
    assert "bucket" not in str(outcome)
    assert storing[0].outcome_from_json(outcome, "f").checkpoint == saved


@pytest.mark.parametrize(
    "path",
    [
        "storage:checkpoints/..",
        "storage:checkpoints/a/b",
        "storage:checkpoints/",
        "storage:lease/1",
        "storage:/etc/x",
        "s3://other/checkpoints/0.0-1-1",
        "checkpoints/0.0-1-1",
    ],
)
def test_a_segment_goes_nowhere_but_into_the_storage_of_its_study(study, storing, path):
    body = {**storing[0].to_json(stored_segment(study)), "storage": path}
    with pytest.raises(InputError, match="expected storage:checkpoints/NAME"):
        storing[1].from_json(body, "f")


def test_a_study_without_a_storage_takes_nothing_from_one(study, storing):
    body = storing[0].to_json(stored_segment(study))
    with pytest.raises(InputError, match="and a study with a storage"):
        form_of(study).from_json(body, "f")


@pytest.mark.parametrize("path", [f"{STORAGE}/checkpoints/9.0-1-0", "the study's folder"])
def test_a_checkpoint_elsewhere_than_in_the_storage_is_refused(study, storing, clock, capsys, path):
    driver = Folder(storing[0], FACTS, lost_after=LOST_AFTER, now=clock.now, sleep=clock.sleep)
    segment = stored_segment(study)
    driver.submit([segment])
    worker = Played(study)
    worker.form = storing[0]
    worker.claim()
    place = segment.folder if path.startswith("the") else path
    worker.bring(outcome_of(segment, checkpoint=Checkpoint(segment.id, place, FrozenMap(a="b"))))
    assert driver.poll(0.0) == []
    assert "expected the checkpoint s3://bucket" in capsys.readouterr().err
    right = Checkpoint(segment.id, segment.storage, FrozenMap(a="b"), 4)
    worker.bring(outcome_of(segment, checkpoint=right))
    (outcome,) = driver.poll(0.0)
    assert outcome.checkpoint == right
    driver.close()


# -- the driver's side, with workers that the test plays -------------------------------------------


@pytest.fixture
def driver(study, clock):
    made = Folder(form_of(study), FACTS, lost_after=LOST_AFTER, now=clock.now, sleep=clock.sleep)
    yield made
    made.close()


def session_of(study):
    return study / "queue" / json.loads((study / "queue" / "driver.json").read_text())["session"]


class Played:
    """A worker that the test plays."""

    def __init__(self, study, name="node-1"):
        self.place = session_of(study)
        self.form = form_of(study)
        self.name = name
        self.count = 0
        self.sent = 0

    def claim(self):
        file = published(self.place / "waiting")[0]
        (self.place / "waiting" / file).rename(self.place / "claimed" / f"{file}~{self.name}")
        return json.loads((self.place / "claimed" / f"{file}~{self.name}").read_text())

    def beat(self, *segments):
        self.count += 1
        holds = [attempt_name(segment) for segment in segments]
        body = {"count": self.count, "host": "node", "slots": 2, "holds": holds}
        publish(self.place / "workers" / self.name, body)

    def send(self, *messages, **more):
        path = self.place / "results" / f"{self.name}~{self.sent:08d}"
        publish(path, {"host": "node", "messages": list(messages), **more})
        self.sent += 1

    def bring(self, outcome):
        self.send({"outcome": self.form.outcome_to_json(outcome)})

    @property
    def claims(self):
        return published(self.place / "claimed")


def test_a_segment_in_the_queue_names_no_code_no_secret_and_no_place_outside_the_study(
    study, driver
):
    parent = Checkpoint(SegmentId(0, 0), str(study / "checkpoints" / "0.0-1-0"))
    driver.submit([segment_of(study, 1, parent=parent, start=5)])
    body = Played(study).claim()
    assert "trainer" not in body
    assert "environment" not in body
    assert "hf_secret" not in json.dumps(body)
    assert (body["folder"], body["log"]) == ("checkpoints/1.0-1-0", "logs/1.0.log")
    assert body["parent"]["path"] == "checkpoints/0.0-1-0"
    assert body["config"] == {"x": 0.5}


def test_what_a_worker_brings_comes_back_with_the_drivers_own_path(study, driver):
    segment = segment_of(study)
    driver.submit([segment])
    worker = Played(study)
    worker.claim()
    report = Report(segment.id, 5, {"eval_return": 1.0}, segment.fence)
    worker.send({"report": report_to_json(report)})
    worker.bring(outcome_of(segment))
    first, second = driver.poll(1.0)
    assert first == report
    assert second == outcome_of(segment, host="node")
    assert worker.claims == []
    assert driver.poll(0.0) == []


def test_a_folder_that_is_mounted_elsewhere_on_the_worker_makes_no_difference(study, driver):
    elsewhere = study.parent / "elsewhere"
    elsewhere.symlink_to(study)
    driver.submit([segment_of(study)])
    body = Played(study).claim()
    read = form_of(elsewhere).from_json(body, "file")
    assert read == segment_of(elsewhere)
    back = form_of(elsewhere).outcome_to_json(outcome_of(read))
    assert form_of(study).outcome_from_json(back, "file") == outcome_of(segment_of(study))


def looks(driver, clock, count):
    """What the driver finds in so many looks after its workers."""
    found = []
    for _ in range(count):
        clock.sleep(BEAT)
        found += driver.poll(0.0)
    return found


def test_a_worker_without_heartbeats_is_lost_and_one_that_beats_is_not(study, driver, clock):
    segment = segment_of(study)
    driver.submit([segment])
    worker = Played(study)
    worker.claim()
    for _ in range(40):
        worker.beat(segment)
        assert looks(driver, clock, 1) == []
    assert driver.slots == 2
    assert looks(driver, clock, 15) == []
    (lost,) = looks(driver, clock, 1)
    assert (lost.status, lost.preempted, lost.host) == (Status.LOST, True, "node")
    assert lost.key == segment.key
    assert "no heartbeat of worker node-1 for 80 seconds" in lost.message
    assert worker.claims == []  # by that the worker knows, should it come back


def test_a_driver_that_was_stopped_itself_has_seen_no_silence(study, driver, clock):
    segment = segment_of(study)
    driver.submit([segment])
    worker = Played(study)
    worker.claim()
    worker.beat(segment)
    looks(driver, clock, 2)
    clock.sleep(86_400.0)
    assert looks(driver, clock, 1) == []
    worker.beat(segment)
    assert looks(driver, clock, 15) == []


def test_a_claim_that_its_worker_does_not_know_of_is_lost(study, driver, clock):
    driver.submit([segment_of(study)])
    worker = Played(study)
    worker.claim()
    found = []
    for _ in range(20):
        worker.beat()
        found += looks(driver, clock, 1)
    assert [outcome.status for outcome in found] == [Status.LOST]


def test_a_segment_whose_file_vanished_is_lost_and_one_that_waits_is_not(study, driver, clock):
    driver.submit([segment_of(study, 0), segment_of(study, 1)])
    place = session_of(study)
    (place / "waiting" / published(place / "waiting")[0]).unlink()
    (lost,) = looks(driver, clock, 40)
    assert lost.segment == "0.0"
    assert lost.preempted


def test_a_result_that_comes_after_its_segment_was_given_away_keeps_its_old_fence(
    study, driver, clock
):
    first = segment_of(study)
    driver.submit([first])
    late = Played(study, "late")
    late.claim()
    assert [outcome.status for outcome in looks(driver, clock, 20)] == [Status.LOST]
    second = segment_of(study, attempt=1)
    driver.submit([second])
    worker = Played(study, "other")
    worker.claim()
    late.bring(outcome_of(first))
    (dropped,) = driver.poll(0.0)
    assert dropped.key == first.key != second.key  # the driver knows it by that, and notes it
    worker.bring(outcome_of(second))
    (outcome,) = driver.poll(0.0)
    assert outcome.key == second.key


def test_cancelled_segments_are_taken_from_the_queue_and_from_workers_and_bring_nothing(
    study, driver
):
    waiting, claimed = segment_of(study, 1), segment_of(study, 0)
    driver.submit([claimed, waiting])
    worker = Played(study)
    worker.claim()
    driver.cancel(waiting)
    driver.cancel(claimed)
    driver.cancel(claimed)
    assert published(session_of(study) / "waiting") == []
    assert worker.claims == []
    worker.bring(outcome_of(claimed))
    assert driver.poll(0.0) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda body: {**body, "messages": [{"outcome": {}}]}, "segment: the key is missing"),
        (lambda body: {**body, "code": "x"}, "expected the keys host, messages"),
        (lambda body: {**body, "messages": [{"run": "x"}]}, "expected a report or an outcome"),
        (lambda body: {**body, "messages": 3}, "expected the keys host, messages"),
    ],
)
def test_a_result_that_is_none_is_kept_aside_and_said(study, driver, capsys, change, words):
    segment = segment_of(study)
    driver.submit([segment])
    worker = Played(study)
    worker.claim()
    good = {"outcome": worker.form.outcome_to_json(outcome_of(segment))}
    body = change({"host": "node", "messages": [good]})
    publish(worker.place / "results" / "node-1~00000000", body)
    assert driver.poll(0.0) == []
    assert published(worker.place / "refused") == ["node-1~00000000"]
    assert words in capsys.readouterr().err
    worker.sent = 1
    worker.bring(outcome_of(segment))
    assert len(driver.poll(0.0)) == 1


@pytest.mark.parametrize(
    "path", ["/etc", "checkpoints/../..", "../x", "checkpoints/9.0-1-0", "logs/x", ""]
)
def test_a_checkpoint_anywhere_else_than_asked_for_is_refused(study, driver, capsys, path):
    segment = segment_of(study)
    driver.submit([segment])
    worker = Played(study)
    worker.claim()
    body = worker.form.outcome_to_json(outcome_of(segment))
    body["checkpoint"]["path"] = path
    worker.send({"outcome": body})
    assert driver.poll(0.0) == []
    assert "a result is refused" in capsys.readouterr().err


def test_the_next_driver_removes_the_queue_of_one_that_was_killed(study, clock):
    killed = Folder(form_of(study), FACTS, now=clock.now, sleep=clock.sleep)
    killed.submit([segment_of(study)])
    before = session_of(study)
    driver = Folder(form_of(study), FACTS, now=clock.now, sleep=clock.sleep)
    assert session_of(study) != before
    assert not before.exists()
    driver.submit([segment_of(study, epoch=2)])
    (file,) = published(session_of(study) / "waiting")
    assert file.endswith("~0.0-2-0")
    driver.close()
    killed.close()


def state(study):
    return json.loads((study / "queue" / "driver.json").read_text())["state"]


def test_workers_are_told_when_the_driver_ends_and_when_the_study_has_finished(study, clock):
    announce_finished(study)  # a study that never had a queue
    assert not (study / "queue").exists()
    driver = Folder(form_of(study), FACTS, now=clock.now, sleep=clock.sleep)
    assert state(study) == "running"
    driver.close()
    driver.close()
    assert state(study) == "ended"
    assert [entry.name for entry in (study / "queue").iterdir()] == ["driver.json"]
    announce_finished(study)
    assert state(study) == "finished"


def test_a_queue_that_was_removed_ends_the_study_with_one_line(study, driver):
    import shutil

    shutil.rmtree(study / "queue")
    with pytest.raises(StudyError, match="No such file or directory; what was recorded is kept"):
        driver.submit([segment_of(study)])


def test_a_segment_of_another_study_is_no_segment_of_this_one(study, driver):
    with pytest.raises(ValueError, match="of another study"):
        driver.submit([segment_of(study, trainer=TrainerSpec("other"))])
    with pytest.raises(ValueError, match="not in the study's folder"):
        driver.submit([segment_of(study, folder="/elsewhere/0.0-1-0")])


# -- the worker's side -----------------------------------------------------------------------------


class Trained:
    """An executor that brings an outcome when the test says so."""

    def __init__(self):
        self.running = {}
        self.ready = []
        self.cancelled = []
        self.closed = 0
        self.interrupts = False

    def submit(self, segments):
        self.running.update({segment.key: segment for segment in segments})

    def finish(self, segment, **changes):
        del self.running[segment.key]
        self.ready.append(outcome_of(segment, **changes))

    def poll(self, timeout):
        if self.interrupts:
            raise KeyboardInterrupt
        ready, self.ready = self.ready, []
        return ready

    def cancel(self, segment):
        self.running.pop(segment.key, None)
        self.cancelled.append(segment)

    def close(self):
        self.closed += 1
        self.running.clear()


def hash_of(study):
    return hashlib.sha256((study / "study.yaml").read_bytes()).hexdigest()


class Bench:
    """A worker, and the driver whom the test plays."""

    def __init__(self, folder, clock, **options):
        self.study, self.clock, self.executors = folder, clock, []
        self.driver = Folder(
            form_of(folder), FACTS, lost_after=LOST_AFTER, now=clock.now, sleep=clock.sleep
        )
        values = {"facts": FACTS, "study": hash_of(folder)} | options
        self.worker = FolderWorker(
            form_of(folder), self.make, now=clock.now, sleep=clock.sleep, **values
        )

    def make(self):
        self.executors.append(Trained())
        return self.executors[-1]

    @property
    def executor(self):
        return self.executors[-1]

    @property
    def place(self):
        return session_of(self.study)

    def beat(self):
        """Have the driver beat, as its thread does every few seconds."""
        count = json.loads((self.place / "driver.beat").read_text())["count"]
        publish(self.place / "driver.beat", {"count": count + 1})

    def turns(self, count=1):
        for _ in range(count):
            self.clock.sleep(2.0)
            self.worker.turn()

    def join(self, *segments):
        """Have the worker take these segments."""
        self.driver.submit(segments)
        self.turns()
        self.beat()
        self.turns(2)

    def results(self):
        names = published(self.place / "results")
        bodies = [json.loads((self.place / "results" / name).read_text()) for name in names]
        return [message for body in bodies for message in body["messages"]]


@pytest.fixture
def bench(study, clock):
    made = []

    def make(**options):
        made.append(Bench(study, clock, **options))
        return made[-1]

    yield make
    for entry in made:
        entry.worker._leave()
        entry.driver.close()


def test_a_worker_trains_what_it_claims_and_no_more_than_its_slots(study, bench):
    worked = bench(slots=2)
    segments = [segment_of(study, number) for number in range(3)]
    worked.join(*segments)
    running = list(worked.executor.running.values())
    assert len(running) == 2
    assert set(running) <= set(segments)
    assert len(published(worked.place / "waiting")) == 1
    worked.executor.finish(running[0])
    worked.turns(2)
    assert worked.driver.poll(0.0) == [outcome_of(running[0], host=worked.worker.host)]
    worked.turns()
    assert len(worked.executor.running) == 2
    assert worked.worker.reason_to_end() is None


def test_a_worker_takes_nothing_before_the_driver_has_shown_that_it_lives(study, bench):
    worked = bench()
    worked.driver.submit([segment_of(study)])
    worked.turns(10)
    assert worked.executors == []
    worked.beat()
    worked.turns(2)
    assert len(worked.executor.running) == 1


def test_a_worker_takes_no_more_from_a_driver_that_has_fallen_silent(study, bench, clock, capsys):
    worked = bench(slots=2)
    worked.join(segment_of(study, 0))
    for _ in range(60):
        worked.turns()
    assert "no heartbeat of the driver for 80 seconds" in capsys.readouterr().err
    worked.driver.submit([segment_of(study, 1)])
    worked.turns(3)
    assert len(worked.executor.running) == 1  # it goes on with what it has
    worked.beat()
    worked.turns(2)
    assert len(worked.executor.running) == 2


def test_a_worker_that_comes_back_drops_what_was_given_away(study, bench, capsys):
    worked = bench()
    segment = segment_of(study)
    worked.join(segment)
    (study / "checkpoints" / "0.0-1-0").mkdir()
    (study / "checkpoints" / "0.0-1-1").mkdir()
    worked.executor.finish(segment)
    (claim,) = published(worked.place / "claimed")
    (worked.place / "claimed" / claim).unlink()  # by the driver, while the worker was stopped
    worked.turns()
    assert worked.results() == []
    assert "segment 0.0 was given away or cancelled" in capsys.readouterr().err
    assert [entry.name for entry in (study / "checkpoints").iterdir()] == ["0.0-1-1"]
    assert worked.worker.ended == 0


def test_a_cancelled_segment_is_ended_at_the_next_heartbeat(study, bench):
    worked = bench()
    segment = segment_of(study)
    worked.join(segment)
    worked.driver.cancel(segment)
    worked.turns(4)
    assert worked.executor.cancelled == [segment]
    assert worked.results() == []


def test_a_worker_that_is_told_to_end_hands_back_what_it_has(study, bench):
    worked = bench()
    segment = segment_of(study)
    worked.join(segment)
    assert len(published(worked.place / "workers")) == 1
    worked.executor.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        worked.worker.run()
    assert worked.executor.closed
    (lost,) = worked.driver.poll(0.0)
    assert (lost.key, lost.status, lost.preempted) == (segment.key, Status.LOST, True)
    assert lost.host == worked.worker.host
    assert published(worked.place / "workers") == []
    assert published(worked.place / "claimed") == []


def test_a_worker_goes_on_with_the_next_driver(study, bench, clock, capsys):
    worked = bench()
    old = segment_of(study)
    worked.join(old)
    first = worked.executor
    # The driver was killed: it has said nothing.
    worked.driver = Folder(
        form_of(study), FACTS, lost_after=LOST_AFTER, now=clock.now, sleep=clock.sleep
    )
    new = segment_of(study, epoch=2)
    worked.join(new)
    assert first.closed
    assert "another driver has begun: 1 segment is given up" in capsys.readouterr().err
    assert list(worked.executor.running.values()) == [new]
    worked.executor.finish(new)
    worked.turns(2)
    assert [outcome.key for outcome in worked.driver.poll(0.0)] == [new.key]


def test_a_worker_waits_for_a_driver_that_has_ended_and_ends_with_the_study(study, bench, clock):
    worked = bench(idle_seconds=600.0)
    worked.join(segment_of(study))
    worked.driver.close()
    worked.turns(2)
    assert worked.executor.closed
    assert worked.worker.reason_to_end() is None
    announce_finished(study)
    assert worked.worker.run() == "the study has finished"


def test_a_worker_ends_when_it_was_idle_for_long_enough(study, bench, clock):
    worked = bench(idle_seconds=600.0)
    worked.join(segment_of(study))
    clock.sleep(3600.0)
    worked.turns()
    assert worked.worker.reason_to_end() is None  # it trains
    worked.executor.finish(segment_of(study))
    began = clock.now()
    assert worked.worker.run() == "nothing to train for 10 minutes"
    assert 600.0 <= clock.now() - began < 620.0


def test_a_worker_ends_after_as_many_segments_as_it_was_told(study, bench):
    worked = bench(slots=3, most_segments=2)
    segments = [segment_of(study, number) for number in range(4)]
    worked.join(*segments)
    running = list(worked.executor.running.values())
    assert len(running) == 2
    for segment in running:
        worked.executor.finish(segment)
    assert worked.worker.run() == "it has trained as many segments as it was to"
    assert len(worked.driver.poll(0.0)) == 2


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"python": "3.12.1"}, "Python 3.12.1 here, 3.11.2 at the driver"),
        ({"version": "0.9"}, "autorl 0.9 here, 1.0 at the driver"),
        ({"source": {"sha256": "cd"}}, "autorl's code cd here, ab at the driver"),
    ],
)
def test_a_worker_with_other_code_refuses_in_one_line(study, bench, facts, words):
    worked = bench(facts=FACTS | facts)
    with pytest.raises(InputError) as error:
        worked.worker.run()
    assert words in str(error.value)
    assert "one study is trained by one version" in str(error.value)


def test_a_worker_says_what_else_differs_and_goes_on(study, bench, capsys):
    worked = bench(facts=FACTS | {"cpu": "skylake"})
    worked.join(segment_of(study))
    assert "the CPU skylake here, znver5 at the driver" in capsys.readouterr().err
    assert len(worked.executor.running) == 1


def test_a_worker_with_another_study_file_refuses_in_one_line(study, bench):
    worked = bench(study="0" * 64)
    with pytest.raises(InputError, match=r"study\.yaml: differs from what the driver has read"):
        worked.worker.run()


def test_pickles_of_others_are_opened_only_by_a_worker_that_is_told_to(study, bench):
    worked = bench()
    segment = segment_of(study, trust=True)
    worked.driver.submit([segment])
    worked.turns()
    worked.beat()
    with pytest.raises(InputError, match="with --trust too"):
        worked.worker.run()
    assert worked.executors == []
    (lost,) = worked.driver.poll(0.0)
    assert lost.preempted  # the segment is for another worker
    trusting = bench(trust=True)
    trusting.join(segment)
    assert len(trusting.executor.running) == 1


STRANGE = {
    "a trainer": {"trainer": {"name": "command", "kwargs": {"command": "rm -r ~"}}},
    "an environment": {"environment": {"id": "module:Env"}},
    "an algorithm the study lacks": {"algorithm": "evil"},
    "a hyperparameter the study lacks": {"config": {"x": 0.1, "y": "; rm -r ~"}},
    "a checkpoint elsewhere": {
        "parent": {"segment": "0.0", "path": "../../evil/0.0", "files": {}},
    },
    "an absolute path": {"folder": "/home/me"},
    "a log elsewhere": {"log": "logs/../study.yaml"},
    "a key too many": {"pickle": "gASV"},
    "another name than its file": {"seed": 0, "id": "7.0"},
}


@pytest.mark.parametrize("strange", STRANGE)
def test_a_strangers_file_in_the_queue_runs_nothing(study, bench, strange, capsys):
    worked = bench()
    body = form_of(study).to_json(segment_of(study, 3)) | STRANGE[strange]
    publish(worked.place / "waiting" / "00000000~3.0-1-0", body)
    worked.turns()
    worked.beat()
    worked.turns(3)
    assert worked.executors == []
    assert "a segment is refused" in capsys.readouterr().err
    assert worked.driver.poll(0.0) == []
    assert "a worker refused what is no segment here" in capsys.readouterr().err


def test_a_segment_of_the_driver_that_cannot_be_read_is_lost_with_its_reason(study, bench):
    worked = bench()
    worked.driver.submit([segment_of(study)])
    (file,) = published(worked.place / "waiting")
    (worked.place / "waiting" / file).write_text("{")
    worked.turns()
    worked.beat()
    worked.turns(2)
    (lost,) = worked.driver.poll(0.0)
    assert (lost.status, lost.preempted) == (Status.LOST, False)
    assert "refused by its worker" in lost.message
    assert "is no JSON" in lost.message


def test_a_result_that_cannot_be_written_is_kept_and_written_later(
    study, bench, monkeypatch, capsys
):
    worked = bench()
    segment = segment_of(study)
    worked.join(segment)
    with monkeypatch.context() as full:

        def refuse(path, body, **options):
            raise OSError(28, "No space left on device")

        full.setattr(folder_worker, "publish", refuse)
        worked.executor.finish(segment)
        worked.turns(2)
        assert "No space left on device: tries again" in capsys.readouterr().err
        assert worked.worker.reason_to_end() is None
    worked.turns()
    assert [outcome.key for outcome in worked.driver.poll(0.0)] == [segment.key]


def test_an_outcome_that_json_has_no_form_for_is_a_crash_with_its_reason(study, bench):
    worked = bench()
    segment = segment_of(study)
    worked.join(segment)
    worked.executor.finish(segment, applied={"x": {1, 2}})
    worked.turns(2)
    (crash,) = worked.driver.poll(0.0)
    assert crash.status is Status.CRASH
    assert "TypeError: set {1, 2} cannot be sent to another machine" in crash.message


def test_claims_are_exclusive_however_many_workers_race(study):
    """Each of 150 segments is trained once and only once by six workers in threads."""
    trained = []

    class Recorder:
        def train(self, segment, report):
            trained.append(segment.id)
            return outcome_of(segment, checkpoint=None)

    driver = Folder(form_of(study), FACTS, lost_after=PATIENCE, beat_seconds=0.2)

    def make_executor():
        return InProcess(lambda spec: Recorder())

    workers = [
        FolderWorker(form_of(study), make_executor, hash_of(study), FACTS, slots=3)
        for _ in range(6)
    ]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    segments = [segment_of(study, number, folder="", scratch="") for number in range(150)]
    driver.submit(segments)
    brought = []
    wait_until(lambda: brought.extend(driver.poll(0.1)) or len(brought) >= len(segments))
    driver.close()
    announce_finished(study)
    for thread in threads:
        thread.join()
    assert sorted(trained) == sorted(segment.id for segment in segments)
    assert sorted(outcome.segment for outcome in brought) == sorted(trained)
    assert all(outcome.status is Status.DONE for outcome in brought)
    assert sum(worker.ended for worker in workers) == len(segments)
