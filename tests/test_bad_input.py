"""Every kind of bad input or broken surroundings: one clear line, the right exit code, and nothing recorded is lost.

Exit code 2 = the input is wrong; 1 = the study ended without a usable result (all is kept); 0 = done.
"""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
import yaml
from patience import PATIENCE

GOOD = {
    "trainer": {"name": "synthetic", "kwargs": {"optimum": {"x": 0.7}, "noise": 0.05}},
    "space": {"x": {"type": "float", "lower": 0.0, "upper": 1.0}},
    "fidelity": {"steps": 100, "evaluations": 2},
    "budget": {"runs": 8},
    "seeds": {"tuning": 2, "test": 2},
    "optimizer": "random",
    "executor": {"name": "in_process"},
}


def autorl(*arguments, cwd=None, environment=None, timeout=PATIENCE):
    """Run the command line as a user does; (exit code, standard output, standard error)."""
    done = subprocess.run(
        [sys.executable, "-m", "autorl", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
    )
    return done.returncode, done.stdout, done.stderr


def write(folder, **changes):
    """A study file: the good one with some keys replaced (None removes a key)."""
    study = {key: value for key, value in {**GOOD, **changes}.items() if value is not None}
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(study, sort_keys=False))
    return path


def with_space(**entry):
    return {
        "space": {"hyperparameters": {"x": {"type": "float", "lower": 0.0, "upper": 1.0, **entry}}}
    }


FILES = {
    "unknown key": (
        {"optimiser": "tpe"},
        r"study.yaml:\d+: optimiser: unknown key 'optimiser'; did you mean 'optimizer'",
    ),
    "unknown key in a section": (
        {"budget": {"run": 8}},
        r"study.yaml:\d+: budget.run: .*did you mean 'runs'",
    ),
    "wrong type": ({"parallelism": "many"}, r"study.yaml:\d+: parallelism: .*whole number.*'many'"),
    "boolean for a number": ({"fidelity": {"steps": True}}, r"fidelity.steps: .*whole number"),
    "missing key": ({"fidelity": None}, r"study.yaml: fidelity: is missing"),
    "no budget": ({"budget": {}}, r"budget: needs exactly one of runs, configurations"),
    "two budgets": ({"budget": {"runs": 8, "hours": 1}}, r"budget: needs exactly one of"),
    "overlapping seeds": (
        {"seeds": {"tuning": [0, 1], "test": [1, 2]}},
        r"seeds: seeds \[1\] are in both",
    ),
    "no tuning seed": ({"seeds": {"tuning": [], "test": 2}}, r"seeds.tuning: at least one"),
    "repeated seed": (
        {"seeds": {"tuning": [3, 3], "test": 2}},
        r"seeds.tuning: a seed is listed twice",
    ),
    "racing beyond the seeds": (
        {"evaluation": {"seeds": "racing", "min": 3}},
        r"evaluation: racing .*2 in seeds.tuning",
    ),
    "unknown aggregate": (
        {"evaluation": {"aggregate": "men"}},
        r"evaluation.aggregate: .*did you mean 'mean'",
    ),
    "unknown reduction": (
        {"objective": {"reduce": "finish"}},
        r"objective.reduce: unknown name 'finish'.*allowed: last",
    ),
    "unknown direction": (
        {"objective": {"direction": "up"}},
        r"objective.*direction: .*'maximize' or 'minimize'",
    ),
    "unknown optimizer": ({"optimizer": "tpee"}, r"optimizer.name: .*did you mean 'tpe'"),
    "unknown option of an optimizer": (
        {"optimizer": {"name": "tpe", "starts": 3}},
        r"optimizer.starts: unknown option",
    ),
    "unknown trainer": ({"trainer": "sb3/ppoo"}, r"trainer: unknown trainer 'sb3/ppoo'.*sb3/ppo"),
    "unknown option of a trainer": (
        {"trainer": {"name": "synthetic", "kwargs": {"nois": 1}}},
        r"kwargs.*'noise'",
    ),
    "missing environment": (
        {"trainer": "sb3/a2c", "space": "sb3/a2c"},
        r"study.yaml:\d*:? ?environment.id: the trainer needs an environment",
    ),
    "unknown environment": (
        {"trainer": "sb3/a2c", "space": "sb3/a2c", "environment": "CartPol-v1"},
        r"environment.*CartPole-v1",
    ),
    "environment module missing": (
        {"trainer": "sb3/a2c", "space": "sb3/a2c", "environment": "nowhere:Env-v0"},
        r"environment.*nowhere",
    ),
    "wrong kind of actions": (
        {"trainer": "sb3/sac", "space": "sb3/sac", "environment": "CartPole-v1"},
        r"trainer: sb3/sac needs Box actions, CartPole-v1 has Discrete",
    ),
    "hyperparameter the trainer does not have": (
        {
            "trainer": "sb3/ppo",
            "environment": "CartPole-v1",
            "space": {"learning_rat": {"type": "float", "lower": 0, "upper": 1}},
        },
        r"learning_rat.*did you mean 'learning_rate'",
    ),
    "unknown space": ({"space": "sb3/pp"}, r"sb3/pp: no search space of this name.*sb3/ppo"),
    "default outside bounds": (
        with_space(default=3),
        r"study.yaml:\d+: space.hyperparameters.x.default: ",
    ),
    "bounds reversed": (
        with_space(lower=2.0),
        r"space.hyperparameters.x.upper: upper must be greater",
    ),
    "log scale from zero": (with_space(scale="log"), r"space.hyperparameters.x.*log"),
    "contradictory condition": (
        {
            "space": {
                "hyperparameters": {
                    "a": {"type": "categorical", "choices": ["p", "q"]},
                    "x": {"type": "float", "lower": 0.0, "upper": 1.0},
                },
                "conditions": {"x": "a == p and a == q"},
            }
        },
        r"conditions.x: ",
    ),
    "space that nothing satisfies": (
        {
            "space": {
                "hyperparameters": {"x": {"type": "float", "lower": 0, "upper": 1}},
                "constraints": ["x > 2"],
            }
        },
        r"constraints",
    ),
    "warm start outside the space": (
        {"warm_start": [{"x": 2.0}]},
        r"study.yaml:\d+: warm_start\[0\].x: ",
    ),
    "limits nobody can keep": (
        {"limits": {"memory_gb": 1}},
        r"limits: .*in_process.*cannot enforce",
    ),
    "module of a function missing": (
        {"trainer": "python:nowhere:f"},
        r"trainer: no module 'nowhere'",
    ),
    "objective nobody reports": (
        {"objective": {"metric": "eval_retrun"}},
        r"objective: .*mean 'eval_return'",
    ),
    "constraint on what nobody reports": (
        {"constraints": [{"metric": "speed", "min": 1}]},
        r"constraints: .*eval_length",
    ),
    "neither trainer nor algorithms": (
        {"trainer": None},
        r"needs either `trainer` and `space`, or `algorithms`",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_a_wrong_study_file_is_one_line_and_exit_code_2(tmp_path, case, in_process):
    changes, message = FILES[case]
    path = write(tmp_path, **changes)
    code, _, error = in_process("tune", path, "--out", tmp_path / "out")
    assert code == 2, error
    assert len(error.strip().splitlines()) == 1, error
    assert re.search(message, error), error
    assert not (tmp_path / "out").exists()


RAW = {
    "not YAML": ("trainer: [sb3/ppo\nspace: x\n", r"study.yaml:\d+: not valid YAML"),
    "a key twice": (
        "budget: {runs: 8}\nbudget: {runs: 9}\n",
        r"study.yaml:2: .*'budget' is given twice",
    ),
    "empty": ("", r"study.yaml: expected a mapping"),
    "a list": ("- trainer\n", r"study.yaml: expected a mapping"),
}


@pytest.mark.parametrize("case", RAW)
def test_a_file_that_is_no_study_is_one_line_and_exit_code_2(tmp_path, case, in_process):
    text, message = RAW[case]
    (tmp_path / "study.yaml").write_text(text)
    code, _, error = in_process("tune", tmp_path / "study.yaml", "--out", tmp_path / "out")
    assert code == 2
    assert len(error.strip().splitlines()) == 1, error
    assert re.search(message, error), error


FAILED = "the first 3 proposals failed, the last with: "
FUNCTIONS = {
    "a trainer that raises": (
        "raise RuntimeError('no such thing')",
        "the first 3 proposals failed.*RuntimeError: no such thing",
    ),
    "a trainer that returns NaN": ("return float('nan')", "no proposal was scored"),
    "a trainer that returns text": ("return 'good'", "3 proposals failed.*not a number"),
    "a trainer that returns nothing": ("return None", "3 proposals failed.*returned nothing"),
    "a metric that is never reported": (
        "return {'other': 1.0}",
        "3 proposals failed.*value.*reported other",
    ),
    "a trainer that hangs": ("import time; time.sleep(7200)", FAILED),
    "a trainer that takes too much memory": (
        "x = bytearray(600 * 2**20); import time; time.sleep(7200)",
        FAILED,
    ),
    "a trainer that kills itself": (
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        FAILED,
    ),
    "a trainer that exits": ("import sys; sys.exit(3)", FAILED),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_a_trainer_that_fails_ends_the_study_with_exit_code_1_and_keeps_all(
    tmp_path, case, in_process
):
    body, message = FUNCTIONS[case]
    (tmp_path / "broken.py").write_text(f"def f(config, *, seed):\n    {body}\n")
    surroundings = {}
    if message == FAILED:  # what would take the driver along has a process of its own
        surroundings = {
            "executor": {"name": "processes", "workers": 2},
            "limits": {"segment_seconds": 2 if "hangs" in case else 600, "memory_gb": 0.5},
        }
    path = write(
        tmp_path,
        trainer=f"python:{tmp_path / 'broken.py'}:f",
        fidelity=None,
        budget={"runs": 6},
        failures={"retries": 1},
        **surroundings,
    )
    code, _, error = in_process("tune", path, "--out", tmp_path / "out")
    assert code == 1, error
    assert len(error.strip().splitlines()) == 1, error
    assert re.search(message, error), error
    with sqlite3.connect(tmp_path / "out" / "study.sqlite") as study:
        kinds = {kind for (kind,) in study.execute("SELECT status FROM segments")}
        assert kinds, "the failures are not recorded"
        assert not kinds & {"done", "stopped"}


def test_a_process_has_the_exit_code_and_the_line(tmp_path):
    (tmp_path / "broken.py").write_text("def f(config, *, seed):\n    import sys; sys.exit(3)\n")
    executor = {"name": "processes", "workers": 2}
    path = write(tmp_path, trainer="python:broken:f", fidelity=None, executor=executor)
    code, _, error = autorl("tune", path, "--out", tmp_path / "out")
    assert code == 1, error
    one_line(error, FAILED)


@pytest.fixture
def finished(tmp_path, in_process):
    """A finished study's folder."""
    code, _, error = in_process("tune", write(tmp_path), "--out", tmp_path / "done")
    assert code == 0, error
    return tmp_path / "done"


def rows(folder):
    with closing(sqlite3.connect(f"file:{folder / 'study.sqlite'}?mode=ro", uri=True)) as study:
        return study.execute("SELECT proposal, score FROM proposals ORDER BY proposal").fetchall()


def one_line(error, message):
    assert len(error.strip().splitlines()) == 1, error
    assert re.search(message, error), error


def test_a_study_folder_is_never_overwritten(tmp_path, finished, in_process):
    before = rows(finished)
    code, _, error = in_process("tune", tmp_path / "study.yaml", "--out", finished)
    assert code == 2
    one_line(error, "holds a study already.*autorl resume")
    assert rows(finished) == before


def test_a_folder_with_other_files_is_refused(tmp_path, in_process):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    code, _, error = in_process("tune", write(tmp_path), "--out", tmp_path / "out")
    assert code == 2
    one_line(error, "is not empty .thesis.tex.")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.tex"]


def test_resume_of_a_folder_without_a_study(tmp_path, in_process):
    for folder in (tmp_path, tmp_path / "missing"):
        code, _, error = in_process("resume", folder)
        assert code == 2
        one_line(error, "holds no study")


def test_a_second_driver_is_refused_and_names_the_first(tmp_path, finished, in_process):
    import fcntl

    before = rows(finished)
    with open(finished / "study.lock", "a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, _, error = in_process("resume", finished, "--runs", "+4")
    assert code == 2
    one_line(error, "another driver works on this study .process")
    assert rows(finished) == before


def test_a_torn_database_is_refused_and_left_as_it_is(finished, in_process):
    for name in ("study.sqlite-wal", "study.sqlite-shm"):
        (finished / name).unlink(missing_ok=True)
    torn = (finished / "study.sqlite").read_bytes()[:-1][:100] + b"torn" * 500
    (finished / "study.sqlite").write_bytes(torn)
    code, _, error = in_process("resume", finished)
    assert code == 2
    one_line(error, "study.sqlite: cannot be used")
    assert (finished / "study.sqlite").read_bytes() == torn


def test_a_torn_frozen_study_file_is_refused(finished, in_process):
    text = (finished / "study.yaml").read_text()
    (finished / "study.yaml").write_text(text[: len(text) // 3] + "\n  - [")
    before = rows(finished)
    code, _, error = in_process("resume", finished)
    assert code == 2
    one_line(error, "study.yaml")
    assert rows(finished) == before


def test_a_database_of_a_newer_version_is_refused(finished, in_process):
    with sqlite3.connect(finished / "study.sqlite") as study:
        study.execute("PRAGMA user_version = 99")
    code, _, error = in_process("resume", finished)
    assert code == 2
    one_line(error, "newer autorl .schema 99")


def test_a_checkpoint_that_vanished_ends_the_study_with_a_line(tmp_path, in_process):
    path = write(
        tmp_path,
        optimizer={"name": "random", "stop": "median", "rungs": 2},
        keep={"checkpoints": "lineage"},
    )
    code, _, error = in_process("tune", path, "--out", tmp_path / "out")
    assert code == 0, error
    shutil.rmtree(tmp_path / "out" / "checkpoints")
    before = rows(tmp_path / "out")
    code, _, error = in_process("resume", tmp_path / "out", "--runs", "+4")
    assert code in (0, 1)  # nothing of the past is needed, unless a chain was open
    assert rows(tmp_path / "out")[: len(before)] == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_full_disk_ends_the_study_and_keeps_what_was_recorded(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True
    ).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        path = write(tmp_path, budget={"runs": 4000})
        code, _, error = autorl("tune", path, "--out", disk / "out")
        assert code == 1, error
        one_line(error, "cannot be written|no space left")
        kept = rows(disk / "out")
        assert len(kept) > 10
        shutil.copytree(disk / "out", tmp_path / "roomy")
        assert rows(tmp_path / "roomy") == kept
        with sqlite3.connect(tmp_path / "roomy" / "study.sqlite") as study:
            assert study.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_read_only_folder_is_one_line(tmp_path, in_process):
    """Root may write anywhere, so the folder is one nobody can write: a file stands where a parent should be."""
    (tmp_path / "file").write_text("")
    code, _, error = in_process("tune", write(tmp_path), "--out", tmp_path / "file" / "out")
    assert code == 2
    one_line(error, "cannot be written")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes to read-only folders")
def test_a_folder_without_write_permission_is_one_line(tmp_path, in_process):
    (tmp_path / "locked").mkdir(mode=0o500)
    code, _, error = in_process("tune", write(tmp_path), "--out", tmp_path / "locked" / "out")
    assert code == 2
    one_line(error, "cannot be written")


COMMANDS = {
    "a study file that is missing": (["tune", "nowhere.yaml"], "nowhere.yaml"),
    "an override without a value": (
        ["tune", "study.yaml", "--set", "parallelism"],
        "--set: expected key=value",
    ),
    "an override of an unknown key": (
        ["tune", "study.yaml", "--set", "paralelism=4"],
        "did you mean 'parallelism'",
    ),
    "an unknown command": (["tun", "study.yaml"], "No such command 'tun'"),
    "an unknown option": (["tune", "study.yaml", "--worker", "2"], "No such option"),
    "a run count that is no number": (["resume", "out", "--runs", "some"], "runs"),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_a_wrong_command_line_is_exit_code_2(tmp_path, case, in_process, monkeypatch):
    arguments, message = COMMANDS[case]
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    code, _, error = in_process(*arguments)
    assert code == 2
    assert re.search(message, error), error
    assert "Traceback" not in error


@pytest.fixture
def in_process(capfd, monkeypatch):
    """The command line without a process of its own: quicker; the same entry point."""
    from autorl.cli import main

    def run(*arguments):
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["autorl", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code or 0
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run
