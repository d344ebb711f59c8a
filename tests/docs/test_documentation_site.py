"""The documentation is built strictly, opens without a network, and lists every dependency and page."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import autorl

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.stem for path in (ROOT / "docs").glob("*.md"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def build(source, out):
    """Build a site as `make docs` does, in a process of its own."""
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q"]
    return subprocess.run(
        [*command, "-c", str(source / "docs"), "-d", str(out / "doctrees"), str(source), str(out)],
        capture_output=True,
        text=True,
        cwd=out.parent,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for module in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(module, reason="needs the extra docs")
    out = tmp_path_factory.mktemp("built") / "site"
    out.mkdir()
    done = build(ROOT, out)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_on_the_site_and_in_its_side_bar(site, page):
    html = (site / "docs" / f"{page}.html").read_text(encoding="utf-8")
    assert "{toctree}" not in html
    if page != "index":
        start = (site / "docs" / "index.html").read_text(encoding="utf-8")
        assert f'class="reference internal" href="{page}.html"' in start


def test_nothing_is_loaded_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    loaded = re.compile(r'<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="(https?:)?//', re.I)
    assert len(pages) > len(PAGES)
    assert [page.name for page in pages if loaded.search(page.read_text(encoding="utf-8"))] == []
    sheets = list(site.rglob("*.css"))
    away = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])(?:https?:)?//")
    assert len(sheets) > 1
    assert [sheet.name for sheet in sheets if away.search(sheet.read_text("utf-8"))] == []


def test_the_top_of_the_site_leads_to_the_start_page(site):
    target = re.search(r"url=([^\"]+)", (site / "index.html").read_text(encoding="utf-8"))[1]
    assert "Five minutes" in (site / target).read_text(encoding="utf-8")


def test_a_file_outside_the_pages_can_be_reached(site):
    """A link of a page to an example is a file of the site, not an address in a repository."""
    html = (site / "docs" / "landscapes.html").read_text(encoding="utf-8")
    target = re.search(r'href="([^"]+/landscapes\.py)"', html)[1]
    assert (site / "docs" / target).resolve().read_bytes() == (
        ROOT / "examples" / "landscapes.py"
    ).read_bytes()


# -- the table of dependencies, and how to cite ------------------------------------------------------


def requirement_name(requirement):
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


def test_every_dependency_is_in_the_table():
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \|(.*)\|$", text, re.MULTILINE)
    listed = {requirement_name(name) for name, _ in rows}
    extras = PROJECT["optional-dependencies"]
    declared = {
        requirement_name(requirement)
        for group in [PROJECT["dependencies"], *extras.values()]
        for requirement in group
    }
    assert len(PROJECT["dependencies"]) <= 16
    assert declared - {"autorl"} - listed == set()
    assert {name for name in extras if f"`{name}`" not in text} == set()
    for name, cells in rows:
        assert all(cell.strip() for cell in cells.split("|")), f"{name}: an empty cell"


def test_the_citation_is_that_of_this_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == autorl.__version__ == PROJECT["version"]
    assert citation["license"] == "Apache-2.0"
    assert citation["abstract"] == PROJECT["description"]
    allowed = {"name"} | {"family-names", "given-names"}
    assert all(author and set(author) <= allowed for author in citation["authors"])
