"""The table of commands: complete, in step with the commands, and free of what they import."""

import inspect
import subprocess
import sys

import pytest
from cli_support import autorl

from autorl.cli.app import COMMANDS
from autorl.cli.landscape import COMMANDS as LANDSCAPE_COMMANDS
from autorl.cli.lazy import load
from autorl.cli.prior import COMMANDS as PRIOR_COMMANDS

ENTRIES = [
    pytest.param(name, source, id=f"{group}{name}")
    for group, table in (
        ("", COMMANDS),
        ("landscape ", LANDSCAPE_COMMANDS),
        ("prior ", PRIOR_COMMANDS),
    )
    for name, source in table.items()
    if name not in ("landscape", "prior")  # groups
]


def first_paragraph(text):
    return " ".join(inspect.cleandoc(text).split("\n\n")[0].split())


@pytest.mark.parametrize(("name", "source"), ENTRIES)
def test_the_table_says_what_the_command_says_of_itself(name, source):
    command = load(name, source.target)
    assert command.name == name
    assert first_paragraph(command.help) == source.summary


def test_a_group_is_loaded_with_its_own_commands():
    group = load("landscape", "autorl.cli.landscape:app")
    assert list(group.commands) == list(LANDSCAPE_COMMANDS)


@pytest.mark.parametrize("arguments", [[], ["landscape"], ["--version"], ["tuen"]])
def test_what_lists_commands_imports_none_of_them(arguments):
    code = (
        f"import sys; from autorl.cli import app; app({arguments!r}, standalone_mode=False); "
        "print(*sorted(name for name in sys.modules if name.startswith('autorl.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.splitlines()[-1].split()) - {"autorl.cli.landscape"} == {
        "autorl.cli",
        "autorl.cli.app",
        "autorl.cli.lazy",
        "autorl.cli.options",
        "autorl.plain_text",
        "autorl.signals",
        "autorl.types",
        "autorl.types.contracts",
        "autorl.types.errors",
    }


def test_a_mistyped_command_is_answered_with_the_nearest():
    assert "Did you mean 'tune'?" in autorl("tuen", code=2).stderr
    assert "Did you mean 'build'?" in autorl("landscape", "bulid", code=2).stderr
