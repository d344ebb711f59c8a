"""The table of commands: complete, in step with the commands, and free of what they import."""

import inspect
import subprocess
import sys

import pytest
from cli_support import autorl

from autorl.cli.app import LANDSCAPE, LIST, PRIOR, SECTIONS
from autorl.cli.lazy import load, summary

STUDY, EDIT, MORE = SECTIONS.values()
TABLES = {"": {**STUDY, **EDIT, **MORE}, "landscape ": LANDSCAPE, "prior ": PRIOR, "list ": LIST}
ENTRIES = [
    pytest.param(name, target, id=f"{group}{name}")
    for group, table in TABLES.items()
    for name, target in table.items()
    if isinstance(target, str)
]


def first_paragraph(text):
    return " ".join(inspect.cleandoc(text).split("\n\n")[0].split())


@pytest.mark.parametrize(("name", "target"), ENTRIES)
def test_a_list_says_what_the_command_says_of_itself(name, target):
    command = load(name, target)
    assert command.name == name
    assert first_paragraph(command.help) == summary(target) != ""


def test_a_person_can_hold_the_list():
    assert list(STUDY) == ["tune", "resume", "watch", "best", "export", "report"]
    assert len({**STUDY, **MORE}) <= 22


@pytest.mark.parametrize("arguments", [[], ["landscape"], ["--version"], ["tuen"]])
def test_what_lists_commands_imports_none_of_them(arguments):
    code = (
        f"import sys; from autorl.cli import app; app({arguments!r}, standalone_mode=False); "
        "print(*sorted(name for name in sys.modules if name.startswith('autorl.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.splitlines()[-1].split()) == {
        "autorl.cli",
        "autorl.cli.app",
        "autorl.cli.lazy",
        "autorl.cli.options",
        "autorl.core",
        "autorl.core.garbage",
        "autorl.core.plain_text",
        "autorl.core.signals",
        "autorl.core.types",
        "autorl.core.types.contracts",
        "autorl.core.types.errors",
    }


def test_a_mistyped_command_is_answered_with_the_nearest():
    assert "Did you mean 'tune'?" in autorl("tuen", code=2).stderr
    assert "Did you mean 'build'?" in autorl("landscape", "bulid", code=2).stderr
