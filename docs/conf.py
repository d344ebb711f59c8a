"""Build the documentation site from the Markdown of this repository: `make docs`.

The source folder is the top of the repository, so that a link from a page to a file outside `docs/` is the
same link on the site and in the repository. Nothing is fetched when it is built, and nothing when it is read.
"""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]

project = "autorl"
author = "the autorl maintainers"
copyright = author
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = [
    "docs/*.md",
    "search_spaces/README.md",
    "landscapes/README.md",
    "benchmarks/results/*.md",
    "examples/*/README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
]
# What is walked through otherwise: environments, studies and caches can be large.
exclude_patterns = [".*", "autorl", "build", "dist", "priors", "site", "studies", "tests"]

myst_heading_anchors = 3
highlight_language = "text"

html_theme = "furo"
html_title = "autorl"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_search_summary = False  # a summary is fetched, which a page opened from a disk may not
html_theme_options = {"top_of_page_buttons": []}

NAVIGATION = {
    "Begin": [
        "own-environment",
        "command",
        "judge",
        "protocol",
        "embedding",
        "for-programs",
        "coming-from",
        "coming-from-hydra-and-optuna",
    ],
    "Tune": [
        "study-file",
        "/search_spaces/README",
        "optimizers",
        "priors",
        "stable-baselines3",
        "population-engine",
        "rlhf",
        "offline",
        "trackers",
        "scaling-out",
    ],
    "Data": ["landscapes-cookbook", "landscapes", "/landscapes/README", "study-folder", "cards"],
    "Extend": ["extending", "api", "/examples/plugin/README", "/examples/slurm/README"],
    "Measured": ["measured", "/benchmarks/results/*"],
    "The project": [
        "design",
        "decisions",
        "security",
        "dependencies",
        "/CONTRIBUTING",
        "/CHANGELOG",
    ],
}
"""Captions of the side bar, and the pages below each; a page that is in none fails the build."""

REDIRECT = '<!doctype html><meta http-equiv="refresh" content="0; url=docs/index.html">\n'


def toctree(caption: str, pages: list[str]) -> str:
    """Write one part of the side bar as a directive."""
    lines = "\n".join(pages)
    return f"\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {caption}\n\n{lines}\n```\n"


def add_navigation(app: Sphinx, name: str, source: list[str]) -> None:
    """Append the side bar to the start page, which has none in Markdown."""
    if name == root_doc:
        parts = [toctree(caption, pages) for caption, pages in NAVIGATION.items()]
        source[0] += "".join(parts)


def write_redirect(app: Sphinx, error: Exception | None) -> None:
    """Let the top of the site lead to the start page."""
    if error is None and app.builder.format == "html":
        Path(app.outdir, "index.html").write_text(REDIRECT, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register both with Sphinx."""
    app.connect("source-read", add_navigation)
    app.connect("build-finished", write_redirect)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
