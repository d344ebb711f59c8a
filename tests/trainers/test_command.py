from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import segments
from patience import wait_until
from refusals import expect_error

from autorl.core.types import (
    Config,
    EnvironmentSpec,
    FrozenMap,
    InputError,
    NotLoggedError,
    Outcome,
    Resources,
    Segment,
    Status,
    StorageError,
    TrainerSpec,
)
from autorl.executors.ray_worker import gang_environment
from autorl.testing.trainers import Case, TrainerConformance
from autorl.trainers import load

# A training script of the usual kind: flags in, one record per "episode" of 10 steps out, in the form asked for.
_SCRIPT = """
    import argparse, csv, json, pathlib, random, sys
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning-rate", "--learning_rate", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--total-timesteps", type=int, required=True)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--resume", default="")
    parser.add_argument("--save", default="")
    parser.add_argument("--form", default="json")
    parser.add_argument("--nan-at", type=int, default=-1)
    args = parser.parse_args()
    value = float(pathlib.Path(args.resume, "value").read_text()) if args.resume else 0.0
    rows = []
    for step in range(args.start + 10, args.total_timesteps + 10, 10):
        value += args.learning_rate * random.Random(args.seed * 100003 + step).random()
        score = float("nan") if step == args.nan_at else value
        rows.append({"global_step": step, "charts": {"episodic_return": score}})
        if args.form == "json":
            print(json.dumps(rows[-1]))
        if args.form == "dict":
            print("some text", {"not": "a record"})
            print({"global_step": step, "charts/episodic_return": score, "text": "x"})
        if args.form == "pairs":
            print(f"global_step={step}, charts/episodic_return=[{score}]")
    if args.form == "jsonlines":
        pathlib.Path("runs").mkdir()
        pathlib.Path("runs/log.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
    if args.form == "csv":
        with open("progress.csv", "w") as file:
            file.write("#{\\"comment\\": 1}\\nglobal_step,charts/episodic_return,note\\n")
            for row in rows:
                file.write(f"{row['global_step']},{row['charts']['episodic_return']},text\\n")
    if args.form == "tensorboard":
        from torch.utils.tensorboard import SummaryWriter
        with SummaryWriter("runs/x") as writer:
            for row in rows:
                writer.add_scalar("charts/episodic_return", row["charts"]["episodic_return"], row["global_step"])
    if args.save:
        pathlib.Path(args.save).mkdir(parents=True, exist_ok=True)
        pathlib.Path(args.save, "value").write_text(repr(value))
"""
_COMMAND = "{python} train.py --form json --seed {seed} --total-timesteps {until} --start {start}"
_METRICS = {"step": "global_step", "map": {"eval_return": "charts.episodic_return"}}


@pytest.fixture(scope="module", autouse=True)
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "train.py").write_text(textwrap.dedent(_SCRIPT))
    return folder


def command(scripts: Path, **options: Any) -> TrainerSpec:
    defaults = {"command": _COMMAND, "metrics": _METRICS, "path": str(scripts)}
    return TrainerSpec("command", FrozenMap({**defaults, **options}))


def segment(spec: TrainerSpec, config: dict[str, Any] | None = None, **changes: Any) -> Segment:
    of_run = {"until": 100, "evaluate_at": (50, 100), "seed": 3} | changes
    return segments.segment(spec, config=config or {"learning_rate": 0.5}, **of_run)


def train(spec: TrainerSpec, config: dict[str, Any] | None = None, **changes: Any) -> Outcome:
    return load(spec).train(segment(spec, config, **changes), lambda report: None)


def script(folder: Path, body: str, words: str = "{seed} {until}", **options: Any) -> TrainerSpec:
    """A program of these lines, all of whose metrics are read."""
    (folder / "script.py").write_text(body)
    line = "{python} script.py " + words
    return command(folder, **{"command": line, "metrics": {}, **options})


def returns(outcome: Outcome) -> list[tuple[int, float]]:
    return [(report.step, report.metrics["eval_return"]) for report in outcome.reports]


@pytest.fixture(scope="module")
def expected(scripts: Path) -> list[tuple[int, float]]:
    """Return the values that the script logs at steps 50 and 100, by its own formula."""
    import random

    values, total = {}, 0.0
    for step in range(10, 110, 10):
        total += 0.5 * random.Random(3 * 100003 + step).random()
        values[step] = total
    return [(50, values[50]), (100, values[100])]


class TestCommand(TrainerConformance):
    """The script from scratch only: it is not given a checkpoint."""

    case = Case(
        TrainerSpec("command"),
        configs=(Config(learning_rate=0.5), Config(learning_rate=0.6)),
        resumable=False,
    )
    case_horizon = 100

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _in_the_scripts_folder(cls, scripts: Path) -> None:
        cls.case = Case(
            command(scripts), configs=cls.case.configs, horizon=cls.case_horizon, resumable=False
        )


class TestResumableCommand(TestCommand):
    """The same script with `{checkpoint}` and `{save_to}`."""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _in_the_scripts_folder(cls, scripts: Path) -> None:
        spec = command(scripts, checkpoint_flag="--resume", command=_COMMAND + " --save={save_to}")
        cls.case = Case(spec, configs=cls.case.configs, horizon=cls.case_horizon)

    def test_exploit_draws_new_random_streams(self, runner: Any) -> None:  # type: ignore[override]
        pytest.skip("the script derives its draws from the seed and the step alone")


def test_a_program_may_resume_in_the_folder_that_it_saves_in(
    scripts: Path, tmp_path: Path, expected: list[tuple[int, float]]
) -> None:
    spec = command(
        scripts,
        command=_COMMAND.replace("{start}", "{start} --save") + " runs/{start}-{length}",
        continue_with="--resume runs/0-50",
        saves_in="runs",
    )
    half = train(spec, until=50, evaluate_at=(50,), folder=str(tmp_path / "half"), save=True)
    assert half.checkpoint is not None
    of_rest = {"start": 50, "evaluate_at": (100,), "folder": str(tmp_path / "whole"), "save": True}
    rest = train(spec, parent=half.checkpoint, **of_rest)
    assert [*returns(half), *returns(rest)] == expected
    assert [path.name for path in Path(half.checkpoint.path).iterdir()] == ["0-50"]
    assert {path.name for path in (tmp_path / "whole").iterdir()} == {"0-50", "50-50"}


FLAT = {"map": {"eval_return": "charts/episodic_return"}}


@pytest.mark.parametrize(
    ("form", "metrics"),
    [
        ("json", {}),
        ("dict", FLAT),
        ("pairs", FLAT),
        ("jsonlines", {"from": "jsonlines", "path": "runs/*.jsonl"}),
        ("csv", {"from": "csv", "path": "progress.csv", **FLAT}),
        ("tensorboard", {"from": "tensorboard", **FLAT}),
    ],
)
def test_metrics_come_from_wherever_the_script_writes_them(
    scripts: Path, form: str, metrics: dict[str, Any], expected: list[tuple[int, float]]
) -> None:
    if form == "tensorboard":
        pytest.importorskip("tensorboard")
        pytest.importorskip("torch")
    spec = command(scripts, command=_COMMAND.replace("json", form), metrics={**_METRICS, **metrics})
    outcome = train(spec)
    error = 1e-6 if form == "tensorboard" else 0.0  # its numbers have 32 bits
    assert returns(outcome) == [(step, pytest.approx(at, rel=error)) for step, at in expected]
    assert (outcome.status, outcome.reached) == (Status.DONE, 100)
    assert outcome.cost["environment_steps"] == 100


@pytest.mark.parametrize("method", ["write_text", "open"])
def test_a_disk_that_is_busy_is_not_the_commands(
    scripts: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Neither when its configuration is written nor when its metrics are read."""
    plain = getattr(Path, method)

    def busy(path: Path, *given: Any, **named: Any) -> Any:
        if path.name in ("config.json", "progress.csv"):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
        return plain(path, *given, **named)

    monkeypatch.setattr(Path, method, busy)
    metrics = {**_METRICS, "from": "csv", "path": "progress.csv"}
    options = {"command": _COMMAND.replace("json", "csv"), "metrics": metrics}
    if method == "write_text":
        options |= {"command": "{python} x {config_file} {seed} {until}", "config_file": "json"}
    with pytest.raises(StorageError, match="busy"):
        train(command(scripts, **options), {"learning_rate": 0.1})


def test_the_last_logged_values_are_averaged(scripts: Path) -> None:
    values = dict(returns(train(command(scripts), evaluate_at=tuple(range(10, 110, 10)))))
    averaged = returns(train(command(scripts, reduce_last=3)))
    means = [(end, sum(values[end - back] for back in (0, 10, 20)) / 3) for end in (50, 100)]
    assert averaged == [(step, pytest.approx(mean)) for step, mean in means]


def test_values_logged_past_the_end_count_at_the_end(scripts: Path) -> None:
    outcome = train(
        command(scripts), until=95, evaluate_at=(45, 95)
    )  # the script logs at 40, 50, ..., 100
    whole = dict(returns(train(command(scripts), evaluate_at=tuple(range(10, 110, 10)))))
    assert returns(outcome) == [(45, whole[40]), (95, whole[100])]


@pytest.mark.parametrize(
    ("style", "booleans", "words"),
    [
        ("kebab", "value", ["--deep", "True", "--learning-rate", "0.5", "--net-arch", "64", "64"]),
        ("kebab", "flag", ["--deep", "--learning-rate", "0.5", "--net-arch", "64", "64"]),
        ("snake", "value", ["--deep", "True", "--learning_rate", "0.5", "--net_arch", "64", "64"]),
        ("equals", "value", ["--deep=True", "--learning_rate=0.5", "--net_arch=[64, 64]"]),
        ("hydra", "value", ["deep=True", "learning_rate=0.5", "net_arch=[64, 64]"]),
    ],
)
def test_hyperparameters_become_flags(
    tmp_path: Path, style: str, booleans: str, words: list[str]
) -> None:
    file = tmp_path / "argv.json"
    body = "import json, sys\nprint(json.dumps({'x': 1}))\n"
    body += f"open({str(file)!r}, 'w').write(json.dumps(sys.argv[1:]))"
    line = "{seed} {until} --env={environment}"
    spec = script(tmp_path, body, line, style=style, booleans=booleans)
    config = {"learning_rate": 0.5, "net_arch": [64, 64], "deep": True, "absent": None}
    load(spec).check(EnvironmentSpec("CartPole-v1"), set(config))
    train(spec, config, environment=EnvironmentSpec("CartPole-v1"))
    assert json.loads(file.read_text()) == ["3", "100", "--env=CartPole-v1", *words]


@pytest.mark.parametrize(("form", "parse"), [("json", "json.load"), ("yaml", "yaml.safe_load")])
def test_hyperparameters_go_into_a_file(tmp_path: Path, form: str, parse: str) -> None:
    body = f"import json, sys, yaml\nconfig = {parse}(open(sys.argv[1]))\n"
    body += "print(json.dumps({'x': config['lr'], 'n': len(config['arch'])}))"
    spec = script(tmp_path, body, "{config_file} {seed} {until}", config_file=form)
    assert train(spec, {"lr": 0.001, "arch": [1, 2]}).reports[-1].metrics == {"x": 0.001, "n": 2.0}


def test_a_hyperparameter_named_in_the_command_is_not_repeated(tmp_path: Path) -> None:
    body = "import sys\nprint({'count': len(sys.argv), 'lr': float(sys.argv[1])})"
    spec = script(tmp_path, body, "{lr} {seed} {until}")
    assert train(spec, {"lr": 0.25}).reports[-1].metrics == {"count": 4.0, "lr": 0.25}


def test_each_segment_has_its_own_folder_and_the_variables_asked_for(tmp_path: Path) -> None:
    body = "import os\nopen('left_over', 'x').close()\nprint({'x': float(os.environ['SCALE'])})"
    spec = script(tmp_path, body, environment_variables={"SCALE": 4})
    for _ in range(2):  # open(..., "x") would fail in a folder used before
        assert train(spec).reports[-1].metrics == {"x": 4.0}
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]


def test_a_nan_metric_is_a_divergence(scripts: Path, tmp_path: Path) -> None:
    outcome = train(command(scripts, command=_COMMAND + " --nan-at 70"))
    assert outcome.status is Status.DONE  # neither 50 nor 100 sees the value at 70
    line = _COMMAND.replace("json", "dict") + " --nan-at 100 --save={save_to}"
    spec = command(scripts, command=line, checkpoint_flag="--resume", metrics={**_METRICS, **FLAT})
    diverged = train(spec, save=True, folder=str(tmp_path / "saved"))
    assert diverged.status is Status.DIVERGED
    assert (diverged.reached, len(diverged.reports), diverged.checkpoint) == (50, 1, None)
    assert "eval_return = nan" in diverged.message
    assert not (tmp_path / "saved").exists()


def test_a_script_that_ends_early_is_charged_whole_and_its_last_values_stand(
    tmp_path: Path,
) -> None:
    spec = script(tmp_path, "print('step=60 eval_return=7')")
    outcome = train(spec, evaluate_at=(70, 100))
    assert (outcome.status, outcome.reached) == (Status.DONE, 100)
    assert returns(outcome) == [(70, 7.0), (100, 7.0)]
    with pytest.raises(RuntimeError, match=r"of step 60 of 200.*`step_scale`"):
        train(spec, until=200, horizon=200, evaluate_at=(100, 200))


def test_a_failing_script_raises_with_its_last_line_and_everything_is_in_the_log(
    tmp_path: Path,
) -> None:
    log = tmp_path / "logs" / "s.log"
    body = "print('so far so good')\nraise SystemError('the simulator is gone')\n"
    with pytest.raises(RuntimeError, match="exit code 1: SystemError: the simulator is gone"):
        train(script(tmp_path, body), log=str(log))
    assert "so far so good" in log.read_text()
    assert "Traceback" in log.read_text()


@pytest.mark.parametrize(
    ("text", "metrics", "message"),
    [
        ("", {}, r"step=100 eval_return=0\.5; .* ended with no line"),
        ("a\nb\nhi ho\nc", {}, r"ended with (?!.*a \|).* \| c$"),
        ("step=3 other=text", {}, "no number; logged were: other"),
        ("step=3 other=text", {"map": {"eval_return": "other"}}, "'other', but not as a number"),
        (
            *("step=3 a=0 b=1", {"map": {"eval_return": "eval_return"}}),
            r"'eval_return'; logged were: a, b$",
        ),
        (
            *("global_step=3 charts/episodic_return=1", {"map": {"x": "charts/episodic_retrun"}}),
            "did you mean 'charts/episodic_return'",
        ),
        ("step=3 a=0", {"from": "csv", "path": "log.csv"}, r"no record to a log\.csv"),
    ],
)
def test_a_script_that_says_nothing_or_something_else_names_what_was_missed(
    tmp_path: Path, text: str, metrics: dict[str, Any], message: str
) -> None:
    with pytest.raises(NotLoggedError, match=message):
        train(script(tmp_path, f"print({text!r})", metrics=metrics))


def test_nothing_printed_is_ever_executed(tmp_path: Path) -> None:
    line = "{'x': __import__('os').getpid()}"
    spec = script(tmp_path, f'print("""{line}""")\nprint({{"x": 1.5}})\n')
    assert train(spec).reports[-1].metrics == {"x": 1.5}


def test_the_script_dies_with_the_worker(tmp_path: Path) -> None:
    spec = script(
        tmp_path,
        "import os, pathlib, time\n"
        "pathlib.Path(__file__).with_name('pid').write_text(str(os.getpid()))\n"
        "time.sleep(7200)",
    )
    worker = textwrap.dedent(f"""
        from autorl.trainers import load
        from autorl.core.types import *
        spec = TrainerSpec("command", FrozenMap({dict(spec.kwargs)!r}))
        segment = Segment(id="s", trainer=spec, config=Config(), seed=0, role="tuning", until=1, horizon=1)
        load(spec).train(segment, print)
    """)
    process = subprocess.Popen([sys.executable, "-c", worker])
    pid = wait_until(lambda: int((tmp_path / "pid").read_text()))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert wait_until(lambda: not _alive(pid))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"command": ""}, "expected a command line"),
        ({"command": "{python} train.py {until}"}, "nothing tells the command its seed"),
        ({"command": "{python} train.py {seed}"}, "nothing tells the command its number of steps"),
        ({"style": "kebap"}, "did you mean 'kebab'"),
        ({"config_file": "toml"}, "expected yaml or json"),
        ({"config_file": "yaml"}, "go together"),
        ({"metrics": {"from": "tensorbord"}}, "did you mean 'tensorboard'"),
        ({"metrics": {"form": "csv"}}, "unknown option 'form'"),
        ({"metrics": {"from": "csv"}}, "need the path of the file"),
        (
            {"metrics": {"from": "csv", "path": "/tmp/x.csv"}},
            "relative to the segment's own folder",
        ),
        ({"saves_in": "../x"}, "relative to the segment's own folder"),
        ({"reduce_last": 0}, "above 0"),
        ({"comand": "x"}, "did you mean 'command'"),
    ],
)
def test_wrong_options_say_what_is_allowed(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    expect_error(message, load, command(tmp_path, **options))


@pytest.mark.parametrize(
    ("options", "name", "message"),
    [
        (
            *({"command": "{python} train.py {seed} {until} {learning_rat}"}, "learning_rate"),
            "did you mean 'learning_rate'",
        ),
        (
            *({"command": "{python} x.py {seed} {until} {node_rankk}"}, "x"),
            "unknown placeholder 'node_rankk'; did you mean 'node_rank'",
        ),
        ({"arguments": "none"}, "gamma", "'gamma' never reaches the command"),
        ({}, "seed", "rename the hyperparameter"),
        ({"command": _COMMAND + " {environment}"}, "x", "the study has none"),
    ],
)
def test_check_sees_what_cannot_reach_the_command(
    tmp_path: Path, options: dict[str, Any], name: str, message: str
) -> None:
    expect_error(message, load(command(tmp_path, **options)).check, EnvironmentSpec(), {name})


def test_a_program_that_does_not_exist_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the program 'no-such-program' was not found"):
        train(command(tmp_path, command="no-such-program {seed} {until}"))


def test_the_interpreter_is_the_one_that_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the program '/.*/no-such-python' was not found"):
        train(command(tmp_path, python="~/no-such-python"))


_TOLD = (
    "import json, os, sys; print(json.dumps({'step': 100, 'eval_return': 1.0})); "
    "print(sys.argv[1:], [os.environ.get(name) for name in ('RANK', 'WORLD_SIZE', 'MASTER_ADDR')])"
)
_LAUNCHER = ("{gpus}", "{nnodes}", "{node_rank}", "{master_addr}", "{master_port}")


def told(tmp_path: Path, needs: Resources, **config: Any) -> str:
    """The words and variables a command was given by its launcher's placeholders."""
    words = ("{python}", "-S", "-c", _TOLD, *_LAUNCHER, "{seed}", "{until}")
    spec = TrainerSpec("command", FrozenMap(command=words, arguments="none"))
    log = tmp_path / "s.log"
    values = {"learning_rate": 0.5, **config}
    load(spec).train(segment(spec, values, resources=needs, log=str(log)), lambda report: None)
    return log.read_text().splitlines()[1]


def test_launchers_are_told_of_one_host_and_a_free_port_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    # Of the job the driver runs in, not of the segment.
    monkeypatch.setenv("MASTER_ADDR", "10.9.9.9")
    lines = {told(tmp_path / str(number), Resources(gpu=2.0)) for number in range(2)}
    match = [
        re.match(r"\['2', '1', '0', '127.0.0.1', '(\d+)', '3', '100'\]", line) for line in lines
    ]
    ports = {int(found[1]) for found in match if found is not None}
    assert len(match) == len(lines)
    assert all(1024 <= port < 65536 for port in ports)
    shared = told(tmp_path / "shared", Resources(gpu=0.25), nnodes="from the space")
    assert shared.startswith("['1', 'from the space', '0', '127.0.0.1'")


def test_launchers_are_told_of_their_gang_and_the_variables_pass_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = Resources(gpu=4.0, nodes=3)
    for name in gang_environment(0, 2, "x", 1):
        monkeypatch.delenv(name, raising=False)
    expect_error(
        r"resources\.nodes: 3 hosts need an executor that sets NNO", told, tmp_path / "alone", needs
    )
    for name, value in gang_environment(1, 3, "10.0.0.7", 4711).items():
        monkeypatch.setenv(name, value)
    assert told(tmp_path / "gang", needs) == (
        "['4', '3', '1', '10.0.0.7', '4711', '3', '100'] ['1', '3', '10.0.0.7']"
    )
