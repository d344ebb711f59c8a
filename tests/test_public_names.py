"""The page of public names and the modules it names say the same."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def names_by_module(page):
    """The names in the first column of each section's table; a section is headed by its module."""
    sections = re.split(r"^## `([\w.]+)`$", page, flags=re.MULTILINE)[1:]
    tables = zip(sections[::2], sections[1::2], strict=True)
    return {
        module: [
            name
            for row in re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE)
            for name in re.findall(r"`(\w+)`", row)
        ]
        for module, text in tables
    }


LISTED = names_by_module(PAGE)


def test_the_page_lists_the_front_doors():
    assert {"autorl", "autorl.trainers", "autorl.optimizers", "autorl.testing"} <= set(LISTED)
    core = [
        name for module, names in LISTED.items() if "statistics" not in module for name in names
    ]
    assert 40 <= len(core) <= 90


@pytest.mark.parametrize("module", LISTED)
def test_a_section_is_what_its_module_exports(module):
    """Names listed for a module without `__all__` must be defined there."""
    names = LISTED[module]
    home = importlib.import_module(module)
    assert len(names) == len(set(names))
    if hasattr(home, "__all__"):
        assert sorted(names) == sorted(home.__all__)
    else:
        assert [name for name in names if getattr(home, name).__module__ != module] == []


def imports_of(source):
    """List imports of Python source from this package, as (module, name)."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    of_ours = [node for node in nodes if (node.module or "").split(".")[0] == "autorl"]
    return {(node.module, alias.name) for node in of_ours for alias in node.names}


def code_of(path):
    """The Python code of a file, of its code blocks where it is a document."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return [text]
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


OWN_PAGES = {"docs/landscapes.md", "docs/rlhf.md", "examples/landscapes.py"}  # name more doors
SHOWN = [
    path
    for pattern in ("*.md", "docs/*.md", "examples/**/*.py")
    for path in ROOT.glob(pattern)
    if path.relative_to(ROOT).as_posix() not in OWN_PAGES
]


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_documents_and_examples_import_is_public(path):
    imported = {pair for code in code_of(path) for pair in imports_of(code)}
    modules = {(module.rpartition(".")[0], module.rpartition(".")[2]) for module in LISTED}
    listed = {(module, name) for module, names in LISTED.items() for name in names}
    assert imported - listed - modules == set()
