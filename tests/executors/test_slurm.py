"""Segments as jobs: how they are shared out, what a job that is gone means, and what it costs nobody."""

import pickle
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import misbehaving
import pytest
from segments import segment_of

from autorl import executors
from autorl.core.types import (
    Config,
    Fence,
    Outcome,
    Report,
    Resources,
    Status,
    StudyError,
    TrainerSpec,
)
from autorl.executors import Limits, Slurm, SlurmCluster, slurm
from autorl.executors.elsewhere import Code, Work


def segments(count, first=0, **values):
    """Return `count` segments of a trainer that does as its configuration says."""
    made = {"trainer": TrainerSpec("misbehaving"), "config": Config(act="train")}
    made |= {"evaluate_at": (5, 10), **values}
    return [segment_of(number, **made) for number in range(first, first + count)]


class Handle:
    """A job of submitit, whose state a test writes."""

    def __init__(self, folder, number, batch):
        self.job_id = str(number)
        self.batch = batch
        self.paths = SimpleNamespace(result_pickle=folder / f"{number}_0_result.pkl")
        self.state = "PENDING"
        self.cancelled = False

    def cancel(self, check):
        self.cancelled = True

    def get_info(self, mode):
        assert mode == "cache"
        return {"NodeList": "node7"}

    def ends(self, kind="success", value=None):
        """Leave the result of a job: what its segments said, unless the test says otherwise."""
        said = []
        for segment in self.batch:
            said.append(Report(segment.id, 5, {"eval_return": 1.0}, segment.fence))
            said.append(Outcome(segment.id, Status.DONE, reached=10, fence=segment.fence))
        value = said if value is None else value
        self.paths.result_pickle.write_bytes(pickle.dumps((kind, value)))


class Jobs:
    """submitit's executor and the cluster behind it, without either."""

    name = "slurm"

    def __init__(self, folder):
        self.folder = folder
        self.handles = []
        self.asked = []
        self.arrays = 0
        self.refusal = None
        self.cleared = 0

    def clear(self):
        self.cleared += 1

    def jobs(self, needs):
        if self.refusal is not None:
            raise self.refusal
        self.asked.append(needs)
        return self

    @contextmanager
    def batch(self):
        self.arrays += 1
        yield

    def submit(self, function, work, batch, driver):
        assert (function, driver) == (slurm.train, None)
        self.handles.append(Handle(self.folder, len(self.handles), batch))
        return self.handles[-1]

    @property
    def sizes(self):
        return [len(handle.batch) for handle in self.handles]


@pytest.fixture
def jobs(tmp_path):
    return Jobs(tmp_path)


def executor(jobs, **options):
    return Slurm(Work(misbehaving.load), jobs, **options)


def test_segments_that_need_the_same_share_a_job_and_jobs_an_array(jobs):
    made = executor(jobs, workers=9, batch=3)
    wide = Resources(cpu=2.0, gpu=0.5, memory_gb=1.5)
    made.submit([*segments(4), *segments(6, first=4, resources=wide)])
    assert jobs.sizes == [3, 1, 3, 2]
    assert jobs.asked == [
        {"cpus_per_task": 3},
        {"cpus_per_task": 1},
        {"cpus_per_task": 6, "gpus_per_node": 2, "mem_gb": 4.5},
        {"cpus_per_task": 4, "gpus_per_node": 1, "mem_gb": 3.0},
    ]
    assert jobs.arrays == 0
    jobs.handles[0].ends()
    assert len(made.poll(0)) == 6
    assert jobs.sizes == [3, 1, 3, 2, 1], "as many as there are workers, and then the next"
    alike = executor(jobs, batch=2)
    alike.submit(segments(4))
    assert jobs.arrays == 1


def test_what_a_job_said_is_said_once_and_only_of_attempts_it_has(jobs):
    made = executor(jobs, batch=2)
    first, second = segments(2)
    made.submit([first, second])
    (handle,) = jobs.handles
    assert made.poll(0) == []
    made.cancel(first)
    assert not handle.cancelled
    handle.ends()
    assert {message.segment for message in made.poll(0)} == {second.id}
    assert made.poll(0) == []


@pytest.mark.parametrize(
    ("state", "blameless"),
    [
        *((state, None) for state in ("PENDING", "RUNNING", "UNKNOWN", "REQUEUED", "SUSPENDED")),
        *((state, True) for state in ("PREEMPTED", "NODE_FAIL", "CANCELLED by 1", "CANCELLED+")),
        *((state, False) for state in ("FAILED", "TIMEOUT", "OUT_OF_MEMORY", "COMPLETED")),
    ],
)
def test_a_job_that_is_gone_is_lost_and_never_a_score(jobs, monkeypatch, state, blameless):
    monkeypatch.setattr(slurm, "_VISIBLE_SECONDS", 0.0)
    made = executor(jobs)
    (segment,) = segments(1, fence=Fence(2, 1))
    made.submit([segment])
    jobs.handles[0].state = state
    if blameless is None:  # it is under way
        assert made.poll(0) == []
        return
    (lost,) = made.poll(0)
    assert (lost.key, lost.status, lost.preempted) == (segment.key, Status.LOST, blameless)
    assert lost.host == "node7"
    assert state[:9].rstrip("+") in lost.message


def test_a_result_that_a_disk_shows_late_is_waited_for(jobs, monkeypatch):
    made = executor(jobs)
    made.submit(segments(1))
    jobs.handles[0].state = "COMPLETED"
    assert made.poll(0) == []
    jobs.handles[0].ends()
    assert [type(message) for message in made.poll(0)] == [Report, Outcome]


def test_segments_of_a_lost_job_are_tried_alone(jobs, monkeypatch):
    monkeypatch.setattr(slurm, "_VISIBLE_SECONDS", 0.0)
    made = executor(jobs, batch=4)
    both = segments(2)
    made.submit(both)
    jobs.handles[0].state = "OUT_OF_MEMORY"
    assert [outcome.preempted for outcome in made.poll(0)] == [True, True]
    made.submit([replace(segment, fence=Fence(0, 1)) for segment in both])
    made.submit(segments(2, first=2))
    assert jobs.sizes == [2, 1, 1, 2]
    jobs.handles[1].state = "OUT_OF_MEMORY"
    assert [outcome.preempted for outcome in made.poll(0)] == [False]


def test_an_error_of_the_job_itself_is_a_loss_with_its_last_line(jobs):
    made = executor(jobs)
    made.submit(segments(1))
    jobs.handles[0].ends("error", "Traceback ...\nModuleNotFoundError: no module `torch`\n")
    (lost,) = made.poll(0)
    assert (lost.status, lost.preempted) == (Status.LOST, False)
    assert "no module `torch`" in lost.message


def test_a_cluster_that_refuses_a_job_ends_the_study_in_one_line(jobs):
    made = executor(jobs)
    jobs.refusal = RuntimeError("sbatch: error:\ninvalid partition `gpus`")
    with pytest.raises(StudyError, match=r"invalid partition `gpus`.*what was recorded is kept"):
        made.submit(segments(1))


def test_all_jobs_are_cancelled_at_the_end_and_their_files_removed(jobs):
    made = executor(jobs)
    assert jobs.cleared == 1, "what a killed driver has left is cleared away first"
    made.submit(segments(2))
    made.close()
    made.close()
    assert [handle.cancelled for handle in jobs.handles] == [True, True]
    assert not jobs.folder.exists()


def test_the_jobs_of_a_killed_driver_are_cancelled(monkeypatch, tmp_path):
    submitit = pytest.importorskip("submitit", reason="the extra `slurm` is not installed")
    cancelled = []
    monkeypatch.setattr(
        submitit.SlurmJob, "cancel", lambda job, check: cancelled.append(job.job_id)
    )
    for name in ("12_submitted.pkl", "13_2_submitted.pkl", "12_0_result.pkl", "12_submission.sh"):
        (tmp_path / name).touch()
    SlurmCluster(tmp_path).clear()
    assert sorted(cancelled) == ["12", "13_2"]
    assert not tmp_path.exists()


# -- a job -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["processes", "threads"])
def test_a_job_trains_all_its_segments_and_brings_what_they_said(kind):
    good, bad = segments(2)
    batch = [good, replace(bad, config=Config(act="raise"))]
    said = slurm.train(Work(misbehaving.load, kind), batch)
    outcomes = [message for message in said if isinstance(message, Outcome)]
    ends = {outcome.segment: outcome.status for outcome in outcomes}
    assert ends == {good.id: Status.DONE, bad.id: Status.CRASH}
    assert all(outcome.host for outcome in outcomes)
    assert [it.step for it in said if it.segment == good.id and type(it) is Report] == [5, 10]


def test_the_limits_of_a_segment_hold_in_a_job():
    work = Work(misbehaving.load, limits=Limits(seconds=0.2))
    said = slurm.train(work, segments(1, config=Config(act="hang")))
    assert [message.status for message in said if isinstance(message, Outcome)] == [Status.TIMEOUT]


def test_a_job_of_another_autorl_trains_nothing():
    work = Work(misbehaving.load, code=Code(source="another"))
    with pytest.raises(StudyError, match="other source files"):
        slurm.train(work, segments(1))


def test_a_job_of_this_machine_ends_with_its_driver():
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    endless = segments(1, config=Config(act="hang"))
    with pytest.raises(StudyError, match="the driver has ended"):
        slurm.train(Work(misbehaving.load), endless, ended.pid)


def test_who_has_not_submitit_is_told_how_to_get_it(monkeypatch):
    monkeypatch.setattr(executors.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(executors.InputError, match=r"autorl\[slurm\]") as refused:
        executors.check("slurm", Limits(), [])
    assert refused.value.key == "executor.name"


def test_the_script_says_what_a_job_needs(monkeypatch, tmp_path):
    submitit = pytest.importorskip("submitit", reason="the extra `slurm` is not installed")
    monkeypatch.setattr(submitit.SlurmExecutor, "affinity", classmethod(lambda cls: 2))
    cluster = SlurmCluster(tmp_path / "jobs", "slurm", 240, "gpu", {"account": "rl"})
    jobs = cluster.jobs({"cpus_per_task": 4, "gpus_per_node": 2, "mem_gb": 6.0})
    text = jobs._executor._make_submission_file_text("train", "0")
    stated = [line.removeprefix("#SBATCH --") for line in text.splitlines() if "SBATCH" in line]
    assert {"time=240", "partition=gpu", "account=rl", "no-requeue", "mem=6GB"} <= {*stated}
    assert {"cpus-per-task=4", "gpus-per-node=2"} <= {*stated}
    assert Path(tmp_path / "jobs").stat().st_mode & 0o777 == 0o700
