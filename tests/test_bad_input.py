"""Every kind of bad input or broken surroundings: one clear line, the right exit code, and nothing recorded is lost.

Exit code 2 = the input is wrong; 1 = the study ended without a usable result (all is kept); 0 = done.
"""

import re
import sqlite3
import sys

import pytest
import yaml
from small_studies import SMALL


def write(folder, **changes):
    """A study file: the good one with some keys replaced (None removes a key)."""
    study = {key: value for key, value in {**SMALL, **changes}.items() if value is not None}
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(study, sort_keys=False))
    return path


LONG_ROLLOUT = {
    "trainer": "population/ppo",
    "space": "population/ppo",
    "environment": "CartPole-v1",
    "fidelity": {"steps": 3000, "evaluations": 3},
}
FLOAT = "{type: float, lower: 0.0, upper: 1.0}"
A2C = "trainer: sb3/a2c, space: sb3/a2c"
TEXTS = [  # keys of a study file, and what is said of them
    ("sampler: tpe", r"sampler: .*known keys: .*optimizer.* and \d+ more"),
    ("optimizer: tpee", r"optimizer.name: .*did you mean 'tpe'"),
    ("optimizer: {name: tpe, starts: 3}", r"optimizer.starts: unknown option"),
    ("trainer: sb3/ppoo", r"trainer: unknown trainer 'sb3/ppoo'.*sb3/ppo"),
    ("trainer: {name: synthetic, kwargs: {nois: 1}}", r"kwargs.*'noise'"),
    (A2C, r"study.yaml:\d*:? ?environment.id: the trainer needs an environment"),
    (f"{A2C}, environment: CartPol-v1", r"environment.*CartPole-v1"),
    (f"{A2C}, environment: 'nowhere:Env-v0'", r"environment.*nowhere"),
    (
        "trainer: sb3/sac, space: sb3/sac, environment: CartPole-v1",
        r"trainer: sb3/sac needs Box actions, CartPole-v1 has Discrete",
    ),
    (
        f"trainer: sb3/ppo, environment: CartPole-v1, space: {{learning_rat: {FLOAT}}}",
        r"learning_rat.*did you mean 'learning_rate'",
    ),
    ("space: sb3/pp", r"sb3/pp: no search space of this name.*sb3/ppo"),
    (
        "space: {hyperparameters: {x: {type: float, lower: 0.0, upper: 1.0, scale: log}}}",
        r"space.hyperparameters.x.*log",
    ),
    (
        "space: {hyperparameters: {a: {type: categorical, choices: [p, q]}, "
        f"x: {FLOAT}}}, conditions: {{x: a == p and a == q}}}}",
        r"conditions.x: ",
    ),
    (f"space: {{hyperparameters: {{x: {FLOAT}}}, constraints: [x > 2]}}", r"constraints"),
    ("limits: {memory_gb: 1}", r"limits: .*in_process.*cannot enforce"),
    ("trainer: 'python:nowhere:f'", r"trainer: no module 'nowhere'"),
    ("objective: {metric: eval_retrun}", r"objective: .*mean 'eval_return'"),
    ("constraints: [{metric: speed, min: 1}]", r"constraints: .*eval_length"),
]
FILES = [
    *((yaml.safe_load(f"{{{text}}}"), message) for text, message in TEXTS),
    # A default rollout that does not fit hides no name: there is one evaluation in 1,000 steps.
    *(
        (LONG_ROLLOUT | change, message)
        for change, message in (
            ({"trainer": "populaton/ppo"}, r"trainer: .*did you mean 'population/ppo'"),
            ({"environment": "Cartpole-v1"}, r"environment.id: .*'CartPole-v1'"),
            ({"optimizer": "bayesian"}, r"optimizer.name: no optimizer 'bayesian'"),
            ({"objective": {"metric": "eval_retrun"}}, r"objective: .*'eval_return'"),
        )
    ),
]


@pytest.mark.parametrize(("changes", "message"), FILES, ids=[message for _, message in FILES])
def test_a_wrong_study_file_is_one_line_and_exit_code_2(tmp_path, changes, message, in_process):
    path = write(tmp_path, **changes)
    code, _, error = in_process("tune", path, "--out", tmp_path / "out")
    assert code == 2, error
    one_line(error, message)
    assert not (tmp_path / "out").exists()


FAILED = "the first 3 proposals failed, the last with: "
HANGS = "import time; time.sleep(7200)"
FUNCTIONS = [
    ("raise RuntimeError('no such thing')", "3 proposals failed.*RuntimeError: no such thing"),
    ("return float('nan')", "no proposal was scored"),
    ("return 'good'", "3 proposals failed.*not a number"),
    (HANGS, FAILED),
    (f"x = bytearray(600 * 2**20); {HANGS}", FAILED),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", FAILED),
    ("import sys; sys.exit(3)", FAILED),
]


@pytest.mark.parametrize(("body", "message"), FUNCTIONS, ids=[body for body, _ in FUNCTIONS])
def test_a_trainer_that_fails_ends_the_study_and_keeps_all(tmp_path, body, message, in_process):
    (tmp_path / "broken.py").write_text(f"def f(config, *, seed):\n    {body}\n")
    surroundings = {}
    if message == FAILED:  # what would take the driver along has a process of its own
        surroundings = {
            "executor": {"name": "processes", "workers": 2},
            "limits": {"segment_seconds": 2 if body == HANGS else 600, "memory_gb": 0.5},
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
    one_line(error, message)
    with sqlite3.connect(tmp_path / "out" / "study.sqlite") as study:
        kinds = {kind for (kind,) in study.execute("SELECT status FROM segments")}
        assert kinds, "the failures are not recorded"
        assert not kinds & {"done", "stopped"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return None", "returned nothing and reported nothing"),
        ("return {'other': 1.0}", "metric 'value'; the trainer reported other"),
    ],
)
def test_a_metric_that_is_never_logged_ends_the_study_in_its_first_run(
    tmp_path, body, message, in_process
):
    count = f"open({str(tmp_path / 'calls')!r}, 'a').write('x')"
    (tmp_path / "broken.py").write_text(f"def f(config, *, seed):\n    {count}\n    {body}\n")
    executor = {"name": "in_process"}
    path = write(
        tmp_path, trainer=f"python:{tmp_path / 'broken.py'}:f", fidelity=None, executor=executor
    )
    code, _, error = in_process("tune", path, "--out", tmp_path / "out")
    assert code == 1, error
    one_line(error, message)
    assert (tmp_path / "calls").read_text() == "x"


def one_line(error, message):
    assert len(error.strip().splitlines()) == 1, error
    assert re.search(message, error), error


def test_a_read_only_folder_is_one_line(tmp_path, in_process):
    """Root may write anywhere, so the folder is one nobody can write: a file stands where a parent should be."""
    (tmp_path / "file").write_text("")
    code, _, error = in_process("tune", write(tmp_path), "--out", tmp_path / "file" / "out")
    assert code == 2
    one_line(error, "cannot be written")


TUNE = ["tune", "study.yaml"]
COMMANDS = [
    (["tune", "nowhere.yaml"], "nowhere.yaml"),
    ([*TUNE, "--set", "parallelism"], "--set: expected key=value"),
    ([*TUNE, "--set", "paralelism=4"], "did you mean 'parallelism'"),
    (["tun", "study.yaml"], "No such command 'tun'"),
    ([*TUNE, "--worker", "2"], "No such option"),
    (["resume", "out", "--runs", "some"], "runs"),
]


@pytest.mark.parametrize(("arguments", "message"), COMMANDS, ids=[text for _, text in COMMANDS])
def test_a_wrong_command_line_is_exit_code_2(tmp_path, arguments, message, in_process, monkeypatch):
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
