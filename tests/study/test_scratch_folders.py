"""What a segment writes until it has ended lies in the study, is counted, and goes with the segment however it ends."""

import os
import sys
import textwrap
from pathlib import Path

import pytest
import yaml
from scripted import Scripted, full, study_with, toy_spec

from autorl.executors.worker import failure
from autorl.spec import load_spec
from autorl.store.checkpoints import scratch, unfinished, writing
from autorl.study import Study, attempt_files
from autorl.types import Config, Segment, Status, StudyError, TrainerSpec

# Its first attempt at each segment writes where it may, and then kills its worker, which takes it along.
SCRIPT = """
import argparse, json, os, pathlib, signal
parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float)
parser.add_argument("--seed", type=int)
parser.add_argument("--until", type=int)
parser.add_argument("--load", default="")
parser.add_argument("--save", default="")
parser.add_argument("--told", type=pathlib.Path)
args = parser.parse_args()
pathlib.Path("big.bin").write_bytes(b"0" * 100_000)
if args.save:
    pathlib.Path(args.save, "half.bin").write_bytes(b"0" * 100_000)
attempt = args.told / f"{args.seed}-{args.until}-{args.x}"
if not attempt.exists():
    attempt.write_text(os.getcwd())
    os.kill(os.getppid(), signal.SIGKILL)
    signal.pause()
others = [str(path) for path in pathlib.Path.cwd().parent.iterdir() if path != pathlib.Path.cwd()]
attempt.write_text(json.dumps([os.getcwd(), others]))
print(json.dumps({"step": args.until, "eval_return": args.x}))
"""


def hidden(folder):
    """Everything below a study that is not finished."""
    return [str(path) for path in folder.rglob(".*")]


def segment_in(folder, **changes):
    spec = TrainerSpec("synthetic")
    values = {
        "id": "3.0",
        "trainer": spec,
        "config": Config(),
        "seed": 0,
        "role": "tuning",
        "until": 1,
        "horizon": 1,
    }
    values |= {"folder": str(folder / "3.0"), "scratch": str(unfinished(folder, "3.0"))}
    return Segment(**(values | changes))


def test_scratch_lies_beside_the_checkpoint_in_writing_and_both_go(tmp_path):
    segment = segment_in(tmp_path)
    with scratch(segment) as output, writing(segment) as folder:
        assert output.parent == folder.parent == tmp_path / ".tmp-3.0"
        (output / "log").write_text("x")
        (folder / "state").write_text("y")
    assert [path.name for path in tmp_path.iterdir()] == ["3.0"]
    assert [path.name for path in (tmp_path / "3.0").iterdir()] == ["state"]


def test_scratch_needs_no_folder_to_be_there_and_may_be_asked_for_twice(tmp_path):
    segment = segment_in(tmp_path / "study" / "checkpoints")
    with scratch(segment) as first, scratch(segment) as second:
        assert first != second
        assert first.parent == second.parent == tmp_path / "study" / "checkpoints" / ".tmp-3.0"
    assert list((tmp_path / "study" / "checkpoints").iterdir()) == []


def test_without_a_study_scratch_is_a_temporary_folder(tmp_path):
    with scratch(segment_in(tmp_path, scratch="")) as output:
        (output / "log").write_text("x")
    assert not output.exists()
    assert list(tmp_path.iterdir()) == []


class Dying:
    """An executor whose workers write into their scratch folders and are then ended from outside with `kinds`."""

    slots = 8

    def __init__(self, *kinds, size=1000):
        self.kinds, self.size = list(kinds), size
        self.waiting, self.seen = [], []

    def submit(self, segments):
        for segment in segments:
            folder = Path(segment.scratch)
            self.seen.append((segment.id, sorted(path.name for path in folder.glob("*"))))
            for name in ("run-a", f"checkpoint-{os.getpid()}"):
                (folder / name).mkdir(parents=True)
                (folder / name / "half").write_bytes(b"0" * self.size)
        self.waiting += segments

    def poll(self, timeout):
        segment = self.waiting.pop(0)
        return (
            [failure(segment, self.kinds.pop(0), "ended from outside", 0.0)] if self.kinds else []
        )

    def cancel(self, segment):
        pass

    def close(self):
        pass


def dying_study(monkeypatch, folder, **changes):
    optimizer = Scripted(
        lambda number, seen: full(number / 20, until=50), keeps=lambda seen: range(99)
    )
    return study_with(monkeypatch, toy_spec(**changes), optimizer, folder=folder)


@pytest.mark.parametrize("kind", [Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.CRASH])
def test_segments_ended_from_outside_and_a_study_that_gives_up_leave_nothing(
    monkeypatch, tmp_path, kind
):
    study = dying_study(monkeypatch, tmp_path / "study", parallelism=5)
    pool = Dying(kind, kind, kind)
    with pytest.raises(StudyError, match="the first 3 proposals failed"):
        study.run(executor=pool)
    assert len(pool.seen) > 3, "others were running when the study gave up"
    assert hidden(tmp_path / "study") == []
    study.close()


def test_what_a_lost_worker_left_is_gone_when_its_segment_is_handed_out_again(
    monkeypatch, tmp_path
):
    study = dying_study(monkeypatch, tmp_path / "study", parallelism=1, failures={"retries": 2})
    pool = Dying(*[Status.LOST] * 9)
    with pytest.raises(StudyError):
        study.run(executor=pool)
    assert pool.seen == [(f"{number}.0", []) for number in range(3) for _ in range(3)]
    assert hidden(tmp_path / "study") == []
    study.close()


def test_what_running_segments_write_counts_as_disk(monkeypatch, tmp_path):
    limit = 1 / 1024  # GiB: one MiB
    monkeypatch.setattr(attempt_files, "_LOOK_SECONDS", -1.0)  # with every outcome
    study = dying_study(monkeypatch, tmp_path / "study", parallelism=3, limits={"disk_gb": limit})
    with pytest.raises(StudyError, match=r"over limits.disk_gb"):
        study.run(executor=Dying(Status.CRASH, size=400_000))
    assert hidden(tmp_path / "study") == []
    study.close()


@pytest.mark.slow
def test_a_worker_of_a_command_killed_while_it_saves_leaves_nothing(tmp_path):
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "told").mkdir()
    study = {
        "trainer": {
            "name": "command",
            "kwargs": {
                "command": [
                    sys.executable,
                    str(tmp_path / "script.py"),
                    "--told",
                    str(tmp_path / "told"),
                ],
                "seed_flag": "--seed",
                "steps_flag": "--until",
                "checkpoint_flag": "--load",
                "save_flag": "--save",
                "metrics": {"step": "step"},
            },
        },
        "space": {"hyperparameters": {"x": {"type": "float", "lower": 0.0, "upper": 1.0}}},
        "fidelity": {"steps": 10, "evaluations": 1},
        "budget": {"runs": 2},
        "seeds": {"tuning": 1, "test": 1},
        "optimizer": "random",
        "executor": {"name": "processes", "workers": 2},
        "test": {"top": 0},
    }
    study = Study.create(load_spec(study), tmp_path / "study")
    study.run()
    assert study.store.query("SELECT COUNT(*) FROM event WHERE kind = 'attempt'")[0][0] >= 3
    assert {status for (status,) in study.store.query("SELECT status FROM segments")} == {"done"}
    study.close()
    told = [yaml.safe_load(path.read_text()) for path in (tmp_path / "told").iterdir()]
    assert told
    for folder, others in told:
        assert Path(folder).parent.parent == tmp_path / "study" / "checkpoints"
        assert all(Path(other).name.startswith("checkpoint-") for other in others), (
            "nothing of the first attempt"
        )
        assert len(others) <= 1
    assert hidden(tmp_path / "study") == []
