"""What stands at which address of the live page.

    /                          the list of studies, or the page of the only one
    /state                     the list as it is now
    /study/KEY                 the page of a study
    /study/KEY/state           its first parts as they are now
    /study/KEY/runs?sort=...   a page of its table of runs
    /study/KEY/curve           the incumbent over the budget
    /page.css, /page.js        style and script

A KEY is a hash of the study's folder: no part of an address is ever part of a path. JSON has the
HTML of places on the page (`parts`) and a `revision`, which is its ETag: who has it gets 304.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autorl import __version__
from autorl.plain_text import shown
from autorl.report.live import LiveStudy, Trace
from autorl.report.reading import TracePoint
from autorl.report.web.pages import (
    STUDY_PLACES,
    StudyPage,
    choice_of,
    curve,
    runs,
    script,
    shell,
    studies,
    study_page,
    style,
)
from autorl.store.folder import holds_study
from autorl.types import InputError

HTML = "text/html; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"
_DEPTH = 3
"""Folders are looked into so deep: `studies/NAME`, `studies/compare/OPTIMIZER/REPEAT`."""
_MOST_ENTRIES = 10_000
_READING_SECONDS = 0.3
"""Time one answer takes to read studies: a list of many fills while it is shown."""


@dataclass(frozen=True)
class Answer:
    """The answer to a request.

    Attributes:
        etag: of its body; empty for what is made anew each time.
        location: where the browser goes instead.
    """

    status: int
    kind: str
    body: bytes
    etag: str = ""
    location: str = ""


def text_answer(status: int, text: str) -> Answer:
    """Answer with a line of text, such as an error."""
    return Answer(status, TEXT, f"{text}\n".encode())


@dataclass(frozen=True)
class _Served:
    """A study that is served: its folder, its parts, and its curve."""

    key: str
    folder: Path
    page: LiveStudy[StudyPage]
    trace: LiveStudy[tuple[TracePoint, ...]]


class StudySite:
    """Answers requests for studies.

    Any thread may ask.

    Args:
        folders: of studies, or that have studies in them, also such as appear later.
        seconds: between two questions of a page.
    """

    def __init__(self, folders: Sequence[Path], seconds: float = 2.0) -> None:
        self._folders = folders
        self._seconds = seconds
        self._lock = threading.Lock()
        self._studies: dict[str, _Served] = {}
        self._looked: dict[str, float] = {}

    def answer(self, path: str, query: Mapping[str, str], etag: str = "") -> Answer:
        """Answer a GET of `path`, whose sender has what `etag` names."""
        fixed: dict[str, Callable[[], Answer]] = {
            "/": self._front_page,
            "/state": lambda: self._list(etag),
            "/page.css": lambda: _asset("text/css", style(), etag),
            "/page.js": lambda: _asset("text/javascript", script(), etag),
        }
        if path in fixed:
            return fixed[path]()
        parts = path.split("/")
        study = self._study(parts[2]) if parts[1] == "study" and len(parts) in (3, 4) else None
        if study is None:
            return text_answer(404, "nothing is here")
        try:
            return self._of_study(study, "".join(parts[3:]), query, etag)
        except InputError as error:
            status = 400 if error.file is None else 503
            return text_answer(status, str(error))

    def folders(self) -> list[Path]:
        """List the folders of studies that there are now."""
        return [study.folder for study in self._present()]

    def _of_study(self, study: _Served, part: str, query: Mapping[str, str], etag: str) -> Answer:
        if part == "":
            page = shell(study.folder.name, f"/study/{study.key}", STUDY_PLACES, self._seconds)
            return Answer(200, HTML, page.encode())
        if part == "curve":
            return self._curve(study, etag)
        if part not in ("state", "runs"):
            return text_answer(404, "nothing is here")
        look = study.page.look()
        if _quoted(look.revision) == etag:
            return Answer(304, _JSON, b"", etag)
        read = look.value
        parts: Mapping[str, str] = read.parts
        if part == "runs":
            choice = choice_of(query, read.study.names)
            parts = {"runs": runs(read.study, choice)}
        return _json(look.revision, read.name, parts)

    def _curve(self, study: _Served, etag: str) -> Answer:
        look = study.trace.look()
        if _quoted(look.revision) == etag:
            return Answer(304, _JSON, b"", etag)
        page = study.page.look().value
        return _json(look.revision, page.name, {"curve": curve(look.value, page.result)})

    def _front_page(self) -> Answer:
        present = self._present()
        if len(self._folders) == 1 and len(present) == 1 and holds_study(self._folders[0]):
            return Answer(303, TEXT, b"", location=f"/study/{present[0].key}")
        page = shell("Studies", "", ("studies",), self._seconds)
        return Answer(200, HTML, page.encode())

    def _list(self, etag: str) -> Answer:
        present = self._present()
        # Those that were never read come first, then those whose last look is longest ago.
        end = time.monotonic() + _READING_SECONDS
        problems = {}
        for study in sorted(present, key=lambda study: self._looked.get(study.key, 0.0)):
            if time.monotonic() > end:
                break
            try:
                study.page.look()
            except InputError as error:
                problems[study.key] = error.message
            self._looked[study.key] = time.monotonic()
        rows = [
            (f"/study/{study.key}", *self._row(study, problems.get(study.key, "")))
            for study in present
        ]
        unread = sum(study.key not in self._looked for study in present)
        html = f"<h1>Studies</h1>{studies(rows)}"
        revision = hashlib.sha256(f"{unread} {html}".encode()).hexdigest()[:16]
        if _quoted(revision) == etag:
            return Answer(304, _JSON, b"", etag)
        return _json(revision, "Studies", {"studies": html}, unread=unread)

    def _row(self, study: _Served, problem: str) -> tuple[str, tuple[str, ...]]:
        """Return a study's name and cells in the list."""
        look = study.page.latest()
        if problem or look is None:
            return study.folder.name, (problem or "not read yet",)
        return look.value.name, look.value.summary

    def _study(self, key: str) -> _Served | None:
        # Looked for in the folders only where it is new: pages ask all the time.
        if key not in self._studies:
            self._present()
        return self._studies.get(key)

    def _present(self) -> list[_Served]:
        """List the studies that there are now."""
        folders = dict.fromkeys(
            path.resolve() for folder in self._folders for path in _study_folders(folder, _DEPTH)
        )
        with self._lock:
            for folder in folders:
                key = hashlib.sha256(str(folder).encode("utf-8", "surrogateescape")).hexdigest()[
                    :12
                ]
                if key not in self._studies:
                    trace = LiveStudy(folder, Trace())
                    self._studies[key] = _Served(key, folder, LiveStudy(folder, study_page), trace)
            return [study for study in self._studies.values() if study.folder in folders]


def check_folders(folders: Sequence[Path]) -> None:
    """Refuse what is no folder.

    Raises:
        InputError: naming it.
    """
    for folder in folders:
        if not folder.is_dir():
            raise InputError(
                "is no folder: expected a study's folder, or one with studies in it",
                file=shown(str(folder)),
            )


def _study_folders(folder: Path, depth: int) -> Iterator[Path]:
    """Find the folders of studies in a folder, itself included."""
    try:
        if holds_study(folder):
            yield folder
            return
        inside = sorted(path for path in folder.iterdir() if path.is_dir())[:_MOST_ENTRIES]
    except (OSError, InputError):  # of somebody else, or gone meanwhile: there is no study to show
        return
    if depth:
        for path in inside:
            yield from _study_folders(path, depth - 1)


def _asset(kind: str, text: str, etag: str) -> Answer:
    revision = hashlib.sha256(text.encode()).hexdigest()[:16]
    if _quoted(revision) == etag:
        return Answer(304, kind, b"", etag)
    return Answer(200, f"{kind}; charset=utf-8", text.encode(), _quoted(revision))


def _json(revision: str, title: str, parts: Mapping[str, str], unread: int = 0) -> Answer:
    document = {"revision": revision, "title": title, "parts": dict(parts), "unread": unread}
    return Answer(200, _JSON, json.dumps(document).encode(), _quoted(revision))


def _quoted(revision: str) -> str:
    """Write a revision as an ETag.

    Another version of this package may say the same of a study in other HTML.
    """
    return f'"{__version__}-{revision}"'
