"""Code blocks of the pages, and what the comments above them say about testing.

A comment of HTML directly above a block is invisible on the page:

    <!-- not run: REASON -->            read only: Python compiles, YAML parses, commands and options exist
    <!-- slow -->                       run in the slow tests alone
    <!-- run -->                        of a shell block: its `autorl` commands are run
    <!-- run with: OPTIONS -->          so, with these options after each `autorl tune`
    <!-- part of a study file -->       of YAML: a minimal study has the other keys
    <!-- not a study file: WHAT -->     of YAML: read only

Python and YAML blocks are run unless a comment says otherwise. A block whose first line is `# name.py`
or `# name.yaml` is a file of this name, for the blocks that follow on its page.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCED = re.compile(
    r"(?P<comments>(?:^<!--[^\n]*-->\n+)*)^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
INDENTED = re.compile(r"(?<=\n\n)(?P<text>(?:(?: {4}[^\n]*)?\n)+)", re.MULTILINE)
MARKER = re.compile(r"<!-- (?P<name>[a-z ]+?)(?:: (?P<argument>.+?))? -->")
MARKERS = {"not run", "slow", "run", "run with", "part of a study file", "not a study file"}
NEED_A_REASON = {"not run", "run with", "not a study file"}
FILE_NAME = re.compile(r"# ([\w-]+\.(?:py|yaml|yml|toml))\b")


@dataclass(frozen=True)
class Block:
    """One block of code, and where it stands."""

    page: Path
    line: int
    language: str
    text: str
    markers: dict[str, str]

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file(self) -> str | None:
        """The name of the file that the block is, where its first line says one."""
        name = FILE_NAME.match(self.text)
        return name[1] if name else None

    @property
    def is_run(self) -> bool:
        if "not run" in self.markers:
            return False
        if self.language in ("sh", "console"):
            return "run" in self.markers or "run with" in self.markers
        return self.language in ("python", "yaml")


def read_markers(text: str, place: str) -> dict[str, str]:
    """Read comments above a block; what is no marker is an error."""
    markers = {}
    for comment in text.splitlines():
        if not comment:
            continue
        marker = MARKER.fullmatch(comment)
        assert marker is not None, f"{place}: no marker: {comment}"
        name, argument = marker["name"], marker["argument"] or ""
        assert name in MARKERS, f"{place}: unknown marker {name!r}"
        assert bool(argument) == (name in NEED_A_REASON), f"{place}: {comment}"
        markers[name] = argument
    return markers


def blocks_of(page: Path) -> list[Block]:
    """Read the fenced blocks of a page, and the indented ones, as shell, in order."""
    text = page.read_text(encoding="utf-8")
    blocks = []
    for match in FENCED.finditer(text):
        line = text.count("\n", 0, match.start("text"))
        place = f"{page.relative_to(ROOT)}:{line}"
        markers = read_markers(match["comments"], place)
        blocks.append(Block(page, line, match["language"], match["text"], markers))
    # Lines are kept, so that what follows still has its number.
    rest = FENCED.sub(lambda match: "\n" * match[0].count("\n"), text)
    for match in INDENTED.finditer(rest):
        line = rest.count("\n", 0, match.start("text")) + 1
        if match["text"].strip():
            blocks.append(Block(page, line, "console", match["text"], {}))
    return sorted(blocks, key=lambda block: block.line)


def commands_of(block: Block) -> list[list[str]]:
    """Split a shell block into commands; comments, redirections and pipes are left out."""
    lines = re.sub(r"\\\n\s*", " ", block.text).splitlines()
    commands = []
    for line in lines:
        text = line.strip().removeprefix("$ ")
        if not re.match(r"(autorl|python|pip|make|pytest) ", text):
            continue
        for part in re.split(r"\s(?:&&|;)\s", text):
            commands.append(_words(part))
    return commands


def _words(text: str) -> list[str]:
    reader = shlex.shlex(text, posix=True, punctuation_chars=">|<")
    reader.whitespace_split = True
    words = []
    for word in reader:
        if set(word) <= set("><|"):
            break
        words.append(word)
    return words
