"""Studies that `autorl worker` processes train have the table of a quiet run in one process."""

import random
import signal
import sqlite3
from contextlib import closing, suppress

import pytest
import yaml
from patience import wait_until
from signal_studies import Session
from study_support import SPACE, TRAINER, run_small, small_spec, table

from autorl.executors.queue_files import published
from autorl.store.offsite import checkpoint_names
from autorl.store.remote import RemoteFolder
from autorl.study import Study
from autorl.study.setup import make_executor
from autorl.study.verify import verify
from autorl.study.worker import make_worker
from autorl.types import InputError

SHARED = {
    "executor": {"name": "folder", "lost_after": 8},
    # So long a segment sleeps: what is killed is in the middle of one.
    "trainer": {"name": "synthetic", "kwargs": {**TRAINER, "seconds": 0.2}},
}
ASHA = {"optimizer": "asha", "budget": {"runs": 10}}
PBT = {"optimizer": {"name": "pbt", "population": 4}, "budget": {"runs": 16}}
TPE = {"optimizer": "tpe"}
STORED = {**ASHA, "storage": "storage"}


def claims(folder, worker):
    """Files by which a worker holds segments."""
    with suppress(FileNotFoundError):
        pid = f"-{worker.process.pid}-"
        for claimed in (folder / "queue").glob("*/claimed"):
            return [name for name in published(claimed) if pid in name.split("~")[-1]]
    return []


def check_over(folder, quiet, *sessions):
    """The study has the table of a quiet one, and nothing is left of those who trained it."""
    assert table(folder) == table(quiet)
    verdict = verify(folder)
    assert verdict.whole, verdict.problems
    assert verdict.notes == []
    assert [entry.name for entry in (folder / "checkpoints").glob(".*")] == []
    assert [entry.name for entry in (folder / "queue").iterdir()] == ["driver.json"]
    for session in sessions:
        session.wait_until_gone()


@pytest.mark.parametrize("storage", [{}, {"storage": "s"}], ids=["folder", "storage"])
def test_of_two_workers_one_is_killed_and_the_other_ends_with_the_study(
    tmp_path, monkeypatch, storage
):
    monkeypatch.setenv("AUTORL_CACHE", str(tmp_path / "cache"))
    run_small(tmp_path / "quiet", **ASHA)
    folder = tmp_path / "shared"
    storage = {name: f"file://{tmp_path}/{value}" for name, value in storage.items()}
    changes = {**ASHA, **storage, "executor": SHARED["executor"]}
    study = Study.create(small_spec(**changes), folder)
    workers = [Session("worker", folder, "--slots", "2") for _ in range(2)]
    killed = []

    def kill_one(progress):
        """Kill the first worker that has brought something and holds more."""
        for worker in workers:
            if not killed and progress.finished_segments > 2 and claims(folder, worker):
                worker.process.kill()
                killed.append(worker)

    with closing(study):
        study.run(kill_one)
        check_stored(study)
    (dead,) = killed
    (other,) = set(workers) - {dead}
    code, _, said = other.end()
    assert (code, dead.end()[0]) == (0, -signal.SIGKILL), said
    assert "ends: the study has finished" in said
    check_over(folder, tmp_path / "quiet", *workers)


def check_stored(study):
    """Checkpoints lie in the storage alone, where there is one, and none that no event names."""
    url = study.spec.storage
    if url is None:
        return
    saved = {checkpoint.path for checkpoint in study.driver.work.saved.values()}
    stored = {f"{url}/checkpoints/{name}" for name in checkpoint_names(RemoteFolder(url))}
    assert stored == saved != set()
    assert list((study.store.folder / "checkpoints").iterdir()) == []


def test_a_member_continues_from_the_storage_whoever_saved_there(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTORL_CACHE", str(tmp_path / "cache"))
    run_small(tmp_path / "quiet", **PBT)
    folder = tmp_path / "shared"
    storage = {"storage": f"file://{tmp_path}/storage", "executor": SHARED["executor"]}
    study = Study.create(small_spec(**PBT, **storage), folder)
    workers = [Session("worker", folder, "--slots", "2") for _ in range(2)]
    with closing(study):
        study.run()
        check_stored(study)
    for worker in workers:
        code, _, said = worker.end()
        assert code == 0, said
    check_over(folder, tmp_path / "quiet", *workers)


def test_a_worker_that_sees_another_storage_than_the_driver_takes_nothing(tmp_path, monkeypatch):
    """A path of the driver's own disk, say."""
    monkeypatch.setenv("AUTORL_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "shared"
    url = f"file://{tmp_path}/storage"
    study = Study.create(small_spec(executor=SHARED["executor"], storage=url), folder)
    executor = make_executor(study.spec, study.load, folder=folder)
    worker = make_worker(folder)
    worker.turn()
    (tmp_path / "storage" / "study.yaml").unlink()
    stranger = make_worker(folder)
    with pytest.raises(InputError, match="as this machine sees it, does not hold this study"):
        stranger.run()
    executor.close()
    study.close()


class Cluster:
    """A driver and three workers, which are killed, stopped and started again.

    Attributes:
        sessions: all there ever were.
    """

    def __init__(self, folder, changes):
        self.folder = folder
        file = folder.parent / "study.yaml"
        study = {
            "name": "small",
            "space": SPACE,
            "fidelity": {"steps": 100, "evaluations": 5},
            "budget": {"runs": 16},
            "seeds": {"tuning": 2, "test": 3},
            "parallelism": 3,
            "test": {"top": 2},
        }
        file.write_text(yaml.safe_dump({**study, **changes, **SHARED}, sort_keys=False))
        self.sessions = []
        self.driver = self.start("tune", file, "--out", folder, "--quiet")
        wait_until((folder / "study.yaml").exists)
        self.workers = [self.start("worker", folder) for _ in range(3)]

    def start(self, *arguments):
        self.sessions.append(Session(*arguments))
        return self.sessions[-1]

    def ended_segments(self):
        with closing(sqlite3.connect(f"file:{self.folder}/study.sqlite?mode=ro", uri=True)) as log:
            return log.execute("SELECT count(*) FROM segments").fetchone()[0]

    def over(self):
        return self.driver.process.poll() is not None

    def wait_for_progress(self, segments):
        goal = self.ended_segments() + segments
        wait_until(lambda: self.over() or self.ended_segments() >= goal)

    def disturb(self, how, worker):
        match how:
            case "kill the driver":
                self.driver.process.kill()
                self.driver.end()
                self.driver = self.start("resume", self.folder, "--quiet")
                return
            case "kill a worker":
                worker.process.kill()
            case "end a worker":
                worker.process.terminate()
            case "stop a worker":
                wait_until(lambda: self.over() or claims(self.folder, worker))
                worker.process.send_signal(signal.SIGSTOP)
                # Until what it has was given away; then it comes back.
                wait_until(lambda: self.over() or not claims(self.folder, worker))
                worker.process.send_signal(signal.SIGCONT)
                return
        code, _, said = worker.end()
        # The last: it was ended before it had begun to listen.
        assert code in (-signal.SIGKILL, 128 + signal.SIGTERM, -signal.SIGTERM), said
        self.workers[self.workers.index(worker)] = self.start("worker", self.folder)


ACTS = ["kill a worker", "end a worker", "stop a worker", "kill the driver"]


@pytest.mark.slow
@pytest.mark.cpu_seconds(600)
@pytest.mark.parametrize(
    "changes", [ASHA, PBT, TPE, STORED], ids=["asha", "pbt", "tpe", "asha-storage"]
)
def test_three_workers_and_a_driver_killed_at_random_give_the_same_table(
    tmp_path, monkeypatch, changes
):
    monkeypatch.setenv("AUTORL_CACHE", str(tmp_path / "cache"))
    run_small(tmp_path / "quiet", **{**changes, "storage": None})
    rng = random.Random(len(str(changes)))
    cluster = Cluster(tmp_path / "shared", changes)
    acts = ACTS + rng.choices(ACTS, k=4)
    rng.shuffle(acts)
    for act in acts:
        cluster.wait_for_progress(rng.randint(1, 3))
        if cluster.over():
            break
        cluster.disturb(act, rng.choice(cluster.workers))
    code, _, said = cluster.driver.end()
    assert code == 0, said
    for worker in cluster.workers:
        code, _, said = worker.end()
        assert code == 0, said
        assert "ends: the study has finished" in said
    check_over(tmp_path / "shared", tmp_path / "quiet", *cluster.sessions)
    study = Study.open(tmp_path / "shared")
    check_stored(study)
    study.close()
