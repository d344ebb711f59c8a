"""A study as jobs of submitit's local executor has the table of the one in this process, whatever is killed."""

import os
import random
import signal

import pytest
from study_support import run_small, small_spec, table

from autorl.core.os_processes import descendants
from autorl.executors import Slurm
from autorl.store.events import SegmentEnded, SegmentLost
from autorl.store.folder import JOBS
from autorl.study import Study
from autorl.study.setup import make_executor

pytest.importorskip("submitit", reason="the extra `slurm` is not installed")
SMALL = {"budget": {"runs": 6}, "seeds": {"tuning": 1, "test": 1}, "test": {"top": 1}}
EXECUTOR = {"name": "slurm", "cluster": "local", "batch": 3}


def drawn(segment):
    return random.Random(str(segment)).random() < 0.3


@pytest.mark.cpu_seconds(200)  # each job is a Python that imports this package
def test_jobs_that_are_killed_at_random_change_nothing(monkeypatch, tmp_path):
    run_small(tmp_path / "whole", **SMALL)
    killed = []
    submit = Slurm._submit

    def submit_and_kill(self, needs, batches):
        """Kill the jobs of half of all first attempts, drawn by their segments."""
        before = list(self._running)
        submit(self, needs, batches)
        for job in [job for job in self._running if job not in before]:
            attempts = job.segments.values()
            if any(segment.fence.attempt == 0 and drawn(segment.id) for segment in attempts):
                killed.extend(segment.id for segment in attempts)
                root = int(job.handle.job_id)
                for pid in (root, *descendants(root)):
                    os.kill(pid, signal.SIGKILL)

    monkeypatch.setattr(Slurm, "_submit", submit_and_kill)
    study = Study.create(small_spec(executor=EXECUTOR, **SMALL), tmp_path / "study")
    study.run()
    events = [recorded.event for recorded in study.store.events()]
    outcomes = {event.segment for event in events if type(event) is SegmentEnded}
    lost = [event.segment for event in events if type(event) is SegmentLost]
    study.close()
    assert sorted(lost) == sorted(killed)
    assert {name for name in outcomes if drawn(name)} <= {*lost}
    assert 0 < len({*lost} & outcomes) < len(outcomes)
    assert table(tmp_path / "study") == table(tmp_path / "whole")
    assert not (tmp_path / "study" / JOBS).exists()


def test_a_study_in_memory_has_no_jobs():
    study = Study.in_memory(small_spec(executor=EXECUTOR))
    with pytest.raises(Exception, match="the folder of a study") as refused:
        make_executor(study.spec, study.load)
    assert refused.value.key == "executor.name"
