import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path

import misbehaving
import pytest
from patience import PATIENCE, wait_until
from segments import segment_of

from autorl import executors
from autorl.core.types import Config, InputError, Outcome, Resources, Status, TrainerSpec
from autorl.executors import Limits, processes, threads
from autorl.executors.devices import Capacity, visible_device
from autorl.executors.processes import start_output
from autorl.store.log_files import HEAD, TAIL

MISBEHAVING = TrainerSpec("misbehaving")
FOLDERS = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
HERE = f"import sys; sys.path[:0] = {FOLDERS!r}\nimport test_executors as t"


def segment(name, act="train", log=None, **values):
    config = Config(act=act, **values)
    return segment_of(name, trainer=MISBEHAVING, config=config, evaluate_at=(5, 10), log=log)


def drain(executor, n, until=lambda reports: True):
    """Outcomes and reports once there are `n` outcomes and `until` holds of the reports."""
    outcomes, reports = {}, []

    def enough():
        for message in executor.poll(0.5):
            if isinstance(message, Outcome):
                outcomes[message.segment] = message
            else:
                reports.append(message)
        return len(outcomes) >= n and until(reports)

    wait_until(enough)
    return outcomes, reports


class Clock:
    """The clock an executor reads, which a test puts forward instead of waiting."""

    def __init__(self):
        self.ahead = 0.0

    def monotonic(self):
        return time.monotonic() + self.ahead


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    for module in (processes, threads):
        monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture(params=["in_process", "threads", "processes"])
def executor(request):
    slots = 1 if request.param == "in_process" else 2
    made = executors.make(request.param, misbehaving.load, slots)
    yield made
    made.close()


def test_every_segment_gives_its_reports_and_one_outcome(executor):
    executor.submit([segment(f"s{number}") for number in range(5)])
    outcomes, reports = drain(executor, 5)
    assert sorted(outcomes) == [f"s{number}" for number in range(5)]
    ends = {(outcome.status, outcome.reached) for outcome in outcomes.values()}
    assert ends == {(Status.DONE, 10)}
    points = sorted((report.segment, int(report.step)) for report in reports)
    assert points == [(f"s{number}", step) for number in range(5) for step in (5, 10)]
    assert executor.poll(0.0) == []


@pytest.mark.parametrize(
    ("act", "status", "message"),
    [
        ("raise", Status.CRASH, "ValueError: first line"),
        ("input", Status.CRASH, "trainer.kwargs.x: no such option"),
        ("memory-error", Status.OUT_OF_MEMORY, "MemoryError"),
        ("float", Status.DIVERGED, "NaN in the weights"),
    ],
)
def test_what_a_trainer_raises_is_an_outcome(executor, tmp_path, act, status, message):
    log = tmp_path / "logs" / "s.log"
    executor.submit([segment("bad", act, str(log)), segment("good")])
    outcomes, _ = drain(executor, 2)
    assert outcomes["bad"].status is status
    assert outcomes["bad"].message.startswith(message)
    assert "\n" not in outcomes["bad"].message
    assert "Traceback" in log.read_text()
    assert outcomes["good"].status is Status.DONE


@pytest.mark.parametrize("name", ["threads", "processes"])
def test_time_limit_ends_the_slow_segment_and_spares_the_other(name, clock):
    executor = executors.make(name, misbehaving.load, 2, limits=Limits(seconds=10_000))
    executor.submit([segment("slow", "hang"), segment("good"), segment("late")])
    outcomes, _ = drain(executor, 2, lambda reports: "slow" in {it.segment for it in reports})
    assert set(outcomes) == {"good", "late"}
    clock.ahead = 10_001
    outcomes |= drain(executor, 1)[0]
    executor.close()
    assert outcomes["slow"].status is Status.TIMEOUT
    assert "limits.segment_seconds = 10000" in outcomes["slow"].message
    assert outcomes["good"].status is outcomes["late"].status is Status.DONE


def test_memory_limit_names_the_limit():
    limits = Limits(memory_bytes=300 * 2**20)
    executor = executors.make("processes", misbehaving.load, 1, limits=limits)
    executor.submit([segment("hog", "hog"), segment("good")])
    outcomes, _ = drain(executor, 2)
    executor.close()
    assert outcomes["hog"].status is Status.OUT_OF_MEMORY
    assert "limits.memory_gb" in outcomes["hog"].message
    assert outcomes["good"].status is Status.DONE


def test_a_timeout_kills_the_whole_process_group(tmp_path, clock):
    pid_file = tmp_path / "pid"
    executor = executors.make("processes", misbehaving.load, 1, limits=Limits(seconds=10_000))
    executor.submit([segment("slow", "hang-with-child", pid_file=str(pid_file))])
    wait_until(pid_file.read_text)
    clock.ahead = 10_001
    outcomes, _ = drain(executor, 1)
    executor.close()
    assert outcomes["slow"].status is Status.TIMEOUT
    assert wait_until(lambda: gone(int(pid_file.read_text())))


def test_processes_have_one_thread_and_their_device():
    capacity = Capacity(groups=(("3", "5"),))
    executor = executors.make("processes", misbehaving.load, 2, capacity=capacity)
    needs = Resources(gpu=1.0)
    executor.submit([replace(segment(name), resources=needs) for name in ("a", "b")])
    outcomes, _ = drain(executor, 2)
    executor.close()
    assert sorted(outcome.applied["cuda"] for outcome in outcomes.values()) == ["3", "5"]
    assert {outcome.applied["omp"] for outcome in outcomes.values()} == {"1"}
    assert len({outcome.cost["pid"] for outcome in outcomes.values()}) == 2


def test_threads_share_one_child_and_processes_do_not_print_here(tmp_path, capfd):
    executor = executors.make("threads", misbehaving.load, 2)
    executor.submit([segment("a"), segment("b")])
    outcomes, _ = drain(executor, 2)
    executor.close()
    assert len({outcome.cost["pid"] for outcome in outcomes.values()}) == 1
    executor = executors.make("processes", misbehaving.load, 1)
    executor.submit([segment("c", log=str(tmp_path / "c.log"))])
    drain(executor, 1)
    executor.close()
    assert (tmp_path / "c.log").read_text() == "training c\n"
    assert "training c" not in capfd.readouterr().out


@pytest.mark.parametrize("name", ["threads", "processes"])
def test_children_die_with_a_driver_that_is_killed(name, tmp_path):
    pid_file = tmp_path / "pid"
    script = (
        f"{HERE}\nexecutor = t.executors.make({name!r}, t.misbehaving.load, 1)\n"
        f"slow = t.segment('slow', 'hang-with-child', pid_file={str(pid_file)!r})\n"
        "executor.submit([slow])\n"
        "while True: executor.poll(1.0)"
    )
    driver = subprocess.Popen([sys.executable, "-c", script])
    wait_until(pid_file.read_text)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert wait_until(lambda: gone(int(pid_file.read_text())))


def test_a_script_without_a_main_guard_can_start_processes(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        f"{HERE}\nexecutor = t.executors.make('processes', t.misbehaving.load, 1)\n"
        "executor.submit([t.segment('a')])\n"
        "outcomes, _ = t.drain(executor, 1)\n"
        "executor.close()\n"
        "print(outcomes['a'].status)\n"
    )
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "training a\ndone\n", done.stderr


def test_cancelled_segments_give_no_outcome():
    executor = executors.make("processes", misbehaving.load, 1)
    slow, waiting = segment("slow", "hang"), segment("waiting")
    executor.submit([slow, waiting, segment("good")])
    executor.cancel(slow)
    executor.cancel(waiting)
    outcomes, _ = drain(executor, 1)
    executor.close()
    assert list(outcomes) == ["good"]


def test_unknown_names_and_limits_that_cannot_be_kept_are_input_errors():
    with pytest.raises(InputError, match="known: in_process, threads, processes"):
        executors.make("celery", misbehaving.load, 1)
    with pytest.raises(InputError, match="cannot enforce limits"):
        executors.make("in_process", misbehaving.load, 1, limits=Limits(seconds=1))
    with pytest.raises(InputError, match="devices"):
        executors.check("threads", Limits(), ["0"])
    for device in ("cuda", "gpu:0", "-1", "", "0,", "0;1"):
        with pytest.raises(InputError, match=f"executor.devices: expected CUDA.*{device!r}"):
            executors.check("processes", Limits(), ["0", device])


def test_devices_are_named_as_cuda_visible_devices_names_them():
    assert [visible_device(name) for name in (0, "1", "cuda:2", " 3")] == ["0", "1", "2", "3"]
    assert visible_device("cuda:0, 3") == "0,3"
    with pytest.raises(InputError, match="'0,cuda:0' names a device twice"):
        visible_device("0,cuda:0")
    assert visible_device("GPU-8932f937-d72c") == "GPU-8932f937-d72c"


def gone(pid):
    """Whether a process has ended, if only as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def dies_at_once(spec):
    os._exit(7)


def test_a_child_that_cannot_even_start_a_segment_does_not_restart_for_ever(tmp_path):
    executor = executors.make("threads", dies_at_once, 1)
    executor.submit([segment("a"), segment("b")])
    outcomes, _ = drain(executor, 2)
    executor.close()
    assert {outcome.status for outcome in outcomes.values()} == {Status.LOST}


def test_segments_that_wait_in_the_child_are_not_lost_with_the_one_that_killed_it():
    executor = executors.make("threads", misbehaving.load, 1)
    executor.submit([segment("dies", "die"), *(segment(f"s{number}") for number in range(4))])
    outcomes, _ = drain(executor, 5)
    executor.close()
    assert outcomes.pop("dies").status is Status.LOST
    assert {outcome.status for outcome in outcomes.values()} == {Status.DONE}


def test_a_log_holds_the_beginning_and_the_end_of_what_anything_in_a_segment_prints(tmp_path):
    """The audit printed 100 MB in each of 8 segments and had 800 MB of logs."""
    made = executors.make("processes", misbehaving.load, 2)
    logs = [tmp_path / "logs" / f"{number}.log" for number in range(2)]
    made.submit([segment(log.stem, act="print", log=str(log), megabytes=4) for log in logs])
    outcomes, _ = drain(made, 2)
    made.close()
    assert {outcome.status for outcome in outcomes.values()} == {Status.DONE}
    for log in logs:
        text = log.read_bytes()
        assert len(text) < HEAD + TAIL + 100
        assert text.removeprefix(f"training {log.stem}\n".encode()).startswith(b"first\n")
        assert b"bytes left out here]" in text[HEAD : HEAD + 100]
        assert b"last\n" in text[-100:]


def test_a_log_whose_study_folder_is_gone_is_no_line_and_makes_no_folder(tmp_path, capfd):
    """Text printed while a study's folder is removed was a second line beside the driver's."""
    reader, writer = Pipe(duplex=False)
    output = start_output(reader, str(tmp_path / "gone" / "logs" / "0.0.log"))
    os.write(writer.fileno(), b"printed")
    writer.close()
    output.join(PATIENCE)
    assert capfd.readouterr().err == ""
    assert not (tmp_path / "gone").exists()
