"""Blocks of the pages run: Python, study files, and the command lines that are marked for it.

Blocks that do not run are read: every command and option exists, Python compiles, YAML parses.
`code_blocks.py` says how a block is marked.
"""

import contextlib
import io
import logging
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version

import code_blocks
import pytest
import typer
import yaml
from code_blocks import ROOT, blocks_of, commands_of, read_markers
from typer.testing import CliRunner

import autorl
from autorl import trainers
from autorl.cli import app
from autorl.cli.lazy import LazyCommand, load
from autorl.core.types import InputError
from autorl.population.task_families import read_task_family
from autorl.report.plan import make_plan
from autorl.study.building import plan_build
from autorl.study.spec.comparison import read_comparison
from autorl.study.tuner import read_study

PAGES = sorted(
    path
    for pattern in (
        "*.md",
        "docs/*.md",
        "search_spaces/*.md",
        "landscapes/*.md",
        "examples/**/*.md",
    )
    for path in ROOT.glob(pattern)
)
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
SPACE_KEYS = {"hyperparameters", "conditions", "forbidden", "constraints", "constants", "extends"}
MINIMAL = {
    "trainer": {"name": "synthetic", "kwargs": {"optimum": 0.7}},
    "space": {"x": {"type": "float", "lower": 0.0, "upper": 1.0, "changeable": True}},
    "fidelity": {"steps": 100},
    "budget": {"runs": 8},
}
PROGRAMS = {
    "ALE/": "ale-py",
    "mlflow": "mlflow-skinny",
    "wandb:": "wandb",
    "optuna": "optuna",
    "ConfigSpace": "configspace",
    "stable_baselines3": "stable-baselines3",
    "sb3/": "stable-baselines3",
    "trl/": "trl",
    "rlhf": "trl",
}
"""Text in a block, and the package that it needs."""
SLOW = (pytest.mark.slow, pytest.mark.cpu_seconds(600))
# Typer brings its own copy of click in some versions and the package in others.
USAGE_ERROR = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")


def page_name(page):
    return page.relative_to(ROOT).as_posix()


def need_packages(block):
    """Skip a page whose block needs a package that is not installed."""
    for text, package in PROGRAMS.items():
        if text in block.text:
            try:
                version(package)
            except PackageNotFoundError:
                pytest.skip(f"{block.place} needs {package}")


# -- what every block must be -------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_blocks_can_be_read(page):
    blocks = blocks_of(page)
    for block in blocks:
        if block.language == "python":
            compile(block.text, block.place, "exec")
        elif block.language in ("yaml", "toml"):
            assert read_data(block) is not None, block.place
    languages = {"python", "yaml", "toml", "sh", "console"}
    assert {block.language for block in blocks} <= languages


def read_data(block):
    if block.language == "toml":
        return tomllib.loads(block.text)
    return yaml.safe_load(block.text)


def refusal(arguments):
    """Parse a command line as `autorl` does, and run nothing; what is wrong with it, or None."""
    command = typer.main.get_command(app)
    name, rest = "autorl", list(arguments)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        name, *rest = rest
        if name not in command.commands:
            return f"no command {name!r}"
        command = command.commands[name]
        if isinstance(command, LazyCommand):
            command = load(command.name, command._target)
    if not hasattr(command, "commands"):
        try:
            command.make_context(name, rest)
        except USAGE_ERROR as error:
            return error.format_message()
    return None


COMMANDS = [
    (block, command)
    for block in BLOCKS
    if block.language in ("sh", "console")
    for command in commands_of(block)
]


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_commands_and_options_exist(page):
    for block, (program, *arguments) in COMMANDS:
        if block.page != page:
            continue
        if program == "autorl":
            assert refusal(arguments) is None, f"{block.place}: autorl {' '.join(arguments)}"
        elif program == "make":
            assert f"\n{arguments[0]}:" in (ROOT / "Makefile").read_text(), block.place
        elif program == "pip":
            for argument in arguments:
                assert extras_of(argument) <= declared_extras(), f"{block.place}: {argument}"
    assert len(COMMANDS) > 100


def extras_of(requirement):
    """Extras of this package in an argument of pip: `.[sb3]` and `autorl[sb3]`."""
    named = re.match(r"(?:\.|autorl)\[([\w,]+)\]", requirement)
    return set(named[1].split(",")) if named else set()


def declared_extras():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return set(project["optional-dependencies"])


# -- what is run --------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder; what a study puts on the path, and modules from here, are forgotten."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in set(sys.modules) - before:
        origin = getattr(sys.modules[name], "__file__", None) or ""
        if origin.startswith(str(tmp_path)):
            del sys.modules[name]
    trainers.load.cache_clear()


def check_yaml(block, folder):
    """Check a study file as `autorl tune --dry-run` does; a space, a build file and a family as theirs."""
    data = yaml.safe_load(block.text)
    if "not a study file" in block.markers:
        return
    file = folder / (block.file or f"block-{block.line}.yaml")
    file.write_text(block.text)
    if set(data) <= SPACE_KEYS:
        assert len(autorl.load_space(file)) > 0
    elif {"parameters", "purpose"} <= set(data):
        assert len(read_task_family(file).environments()) == data["count"]
    elif "compare" in data:
        assert read_comparison(str(file), {}, {})[1]
    elif "landscape" in data:
        assert plan_build(file, study=folder / "of-a-build").spec.plan.tuning
    else:
        if "part of a study file" in block.markers:
            file.write_text(yaml.safe_dump({**MINIMAL, **data}, sort_keys=False))
        plan = make_plan(read_study(str(file)))
        assert plan.search.segments > 0, block.place


def keep_optuna_logging():
    """Give Optuna's log a stream that is open."""
    # Handler and formatter keep the stderr of Optuna's import: of a command that has ended, or none.
    for handler in logging.getLogger("optuna").handlers:
        if isinstance(handler, logging.StreamHandler) and getattr(handler.stream, "closed", True):
            handler.stream = sys.stderr  # `setStream` flushes the closed one first
            handler.setFormatter(logging.Formatter())


def run_python(block, folder):
    if block.file:
        (folder / block.file).write_text(block.text)
        return
    printed, errors = io.StringIO(), io.StringIO()
    code = compile(block.text, block.place, "exec")
    keep_optuna_logging()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        exec(code, {"__name__": "__main__"})
    assert "Traceback" not in errors.getvalue(), block.place
    if re.search(r"^print\(", block.text, re.MULTILINE):
        assert printed.getvalue().strip(), f"{block.place} prints nothing"


def run_commands(block):
    more = block.markers.get("run with", "").split()
    for program, *arguments in commands_of(block):
        if program != "autorl":
            continue
        extra = more if arguments[0] == "tune" else []
        done = CliRunner().invoke(app, [*arguments, *extra])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0, f"{block.place}: autorl {arguments}: {done.output}"
        assert done.output.strip(), f"{block.place}: autorl {arguments} prints nothing"


def run_page(page, folder, *, slow):
    """Run the blocks of a page in order, in one folder; how many were run."""
    count = 0
    for block in blocks_of(page):
        if not block.is_run or ("slow" in block.markers and not slow):
            continue
        need_packages(block)
        count += 1
        if block.language == "python":
            run_python(block, folder)
        elif block.language == "yaml":
            check_yaml(block, folder)
        else:
            run_commands(block)
    return count


def to_run(page, *, slow):
    blocks = [block for block in blocks_of(page) if block.is_run]
    return any(("slow" in block.markers) == slow for block in blocks)


@pytest.mark.parametrize(
    ("page", "slow"),
    [pytest.param(page, False, id=page_name(page)) for page in PAGES if to_run(page, slow=False)]
    + [
        pytest.param(page, True, id=f"{page_name(page)}-slow", marks=SLOW)
        for page in PAGES
        if to_run(page, slow=True)
    ],
)
def test_what_a_page_shows_runs(page, slow, folder):
    assert run_page(page, folder, slow=slow) > 0


# -- the checks themselves ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    ["tuen ppo.yaml", "tune ppo.yaml --dry", "landscape bset x", "best studies/x --top 0", "best"],
)
def test_a_command_line_that_autorl_would_refuse_is_noticed(line):
    assert refusal(line.split())
    assert refusal(["tune", "ppo.yaml", "--dry-run"]) is None


def test_blocks_keep_their_order_markers_and_lines(folder, monkeypatch):
    page = folder / "page.md"
    monkeypatch.setattr(code_blocks, "ROOT", folder)
    page.write_text(
        "One\n\n    autorl tune a.yaml --runs 3     # a comment\n    autorl best s > b.txt\n\n"
        "<!-- slow -->\n<!-- run with: --runs 2 -->\n```sh\nautorl tune b.yaml \\\n  --seed 1\n```\n\n"
        "<!-- not run: it needs a GPU -->\n```python\n# c.py\nx = 1\n```\n"
        "```yaml\ntrainer: synthetic\nspace: {x: 'uniform(0, 1)'}\nfidelty: {steps: 9}\n```\n"
    )
    first, second, third, fourth = blocks_of(page)
    assert [" ".join(words) for words in commands_of(first)] == [
        "autorl tune a.yaml --runs 3",
        "autorl best s",
    ]
    assert second.markers == {"slow": "", "run with": "--runs 2"}
    assert commands_of(second) == [["autorl", "tune", "b.yaml", "--seed", "1"]]
    assert (third.file, third.is_run) == ("c.py", False)
    assert [block.line for block in (first, second, third, fourth)] == [3, 8, 14, 18]
    with pytest.raises(InputError, match="fidelity"):
        check_yaml(fourth, folder)


@pytest.mark.parametrize("comment", ["<!-- sloow -->", "<!-- not run -->", "<!-- Not a marker -->"])
def test_a_misspelt_marker_is_an_error(comment):
    with pytest.raises(AssertionError):
        read_markers(comment, "page:1")
