"""Addresses of the live page.

    /                            the list of studies, or the page of the only one
    /state                       the list as it is now
    /study/KEY                   the page of a study: its report
    /study/KEY/state             the parts of it as they are now
    /page.css /page.js /vega.js  style, script, and the library that draws charts

A KEY is a hash of the study's folder: no part of an address is ever part of a path. JSON has the
parts of a page with the names of their contents, and a `revision`, which is its ETag: who has it
gets 304.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from autorl import __version__
from autorl.core.plain_text import number, shortened
from autorl.core.types import InputError
from autorl.report.html import about, study_sections
from autorl.report.live import LiveStudy
from autorl.report.pages.document import (
    Block,
    Link,
    Live,
    Section,
    Table,
    Text,
    page,
    parts,
    script,
    style,
)
from autorl.report.pages.vega import library
from autorl.report.reading import Replayed, StudyView, studies_below
from autorl.report.status import state
from autorl.report.text import interval_text
from autorl.store.folder import holds_study

HTML = "text/html; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"
_LONGEST_NAME = 60
_HEADER = ("study", "state", "budget", "tuning score", "test score (IQM)", "proposals", "failed")
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


_Page = tuple[str, str, Sequence[Section]]
"""A study as it is shown: name, a line about it, sections."""


@dataclass(frozen=True)
class _Served:
    """A study that is served: cells in the list, and page."""

    key: str
    folder: Path
    summary: LiveStudy[tuple[str, ...]]
    page: LiveStudy[_Page]


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

    def answer(self, path: str, etag: str = "") -> Answer:
        """Answer a GET of `path`, whose sender has what `etag` names."""
        fixed: dict[str, Callable[[], Answer]] = {
            "/": self._front_page,
            "/state": lambda: self._list_state(etag),
            "/page.css": lambda: _asset("text/css", style(), etag),
            "/page.js": lambda: _asset("text/javascript", script(), etag),
            "/vega.js": lambda: _asset("text/javascript", library(), etag),
        }
        if path in fixed:
            return fixed[path]()
        names = path.split("/")
        study = self._study(names[2]) if names[1] == "study" and len(names) in (3, 4) else None
        if study is None or names[3:] not in ([], ["state"]):
            return text_answer(404, "nothing is here")
        try:
            look = study.page.look()
        except InputError as error:
            return text_answer(503, str(error))
        if names[3:]:
            return _state(look.revision, partial(parts, look.value[2]), etag)
        live = Live(f"/study/{study.key}", self._seconds)
        return Answer(200, HTML, page(*look.value, live).encode())

    def folders(self) -> list[Path]:
        """List the folders of studies at this moment."""
        return [study.folder for study in self._present()]

    def _front_page(self) -> Answer:
        present = self._present()
        if len(self._folders) == 1 and len(present) == 1 and holds_study(self._folders[0]):
            return Answer(303, TEXT, b"", location=f"/study/{present[0].key}")
        sections, _ = self._list()
        return Answer(200, HTML, page("Studies", "", sections, Live("", self._seconds)).encode())

    def _list_state(self, etag: str) -> Answer:
        sections, unread = self._list()
        written = parts(sections)
        revision = _hash(repr((unread, written)).encode())
        return _state(revision, lambda: written, etag, unread)

    def _list(self) -> tuple[list[Section], int]:
        """Make the list of studies, and say how many were never read."""
        present = self._present()
        # Studies never read come first, then by the age of the last look.
        end = time.monotonic() + _READING_SECONDS
        problems = {}
        for study in sorted(present, key=lambda study: self._looked.get(study.key, 0.0)):
            if time.monotonic() > end:
                break
            try:
                study.summary.look()
            except InputError as error:
                problems[study.key] = error.message
            self._looked[study.key] = time.monotonic()
        rows = [_row(study, problems.get(study.key, "")) for study in present]
        unread = sum(study.key not in self._looked for study in present)
        none: list[Block] = [Text("No study here yet.")]
        return [Section("studies", "", [Table(_HEADER, rows)] if rows else none)], unread

    def _study(self, key: str) -> _Served | None:
        # Looked for in the folders only where it is new: pages ask all the time.
        if key not in self._studies:
            self._present()
        return self._studies.get(key)

    def _present(self) -> list[_Served]:
        """List the studies that there are now."""
        folders = dict.fromkeys(
            path.resolve() for folder in self._folders for path in studies_below(folder)
        )
        with self._lock:
            for folder in folders:
                key = _hash(str(folder).encode("utf-8", "surrogateescape"))
                if key not in self._studies:
                    looks = (LiveStudy(folder, _summary), LiveStudy(folder, _reader()))
                    self._studies[key] = _Served(key, folder, *looks)
            return [study for study in self._studies.values() if study.folder in folders]


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _asset(kind: str, text: str, etag: str) -> Answer:
    return _unless_known(_hash(text.encode()), f"{kind}; charset=utf-8", text.encode, etag)


def _state(
    revision: str, write: Callable[[], Sequence[tuple[str, ...]]], etag: str, unread: int = 0
) -> Answer:
    def body() -> bytes:
        return json.dumps({"revision": revision, "parts": write(), "unread": unread}).encode()

    return _unless_known(revision, _JSON, body, etag)


def _unless_known(revision: str, kind: str, write: Callable[[], bytes], etag: str) -> Answer:
    """Answer with a body that the browser lacks.

    Another version of this package may say the same of a study in other HTML.
    """
    name = f'"{__version__}-{revision}"'
    return Answer(304, kind, b"", name) if name == etag else Answer(200, kind, write(), name)


def _reader() -> Callable[[StudyView], _Page]:
    """Return what makes the page of one study.

    It follows the incumbent over the events.
    """
    followed: Replayed | None = None

    def read(view: StudyView) -> _Page:
        nonlocal followed
        followed = view.replayed if followed is None else followed.followed(view)
        # A copy, because the page is made later and the fold goes on meanwhile.
        trace = list(followed.trace)
        return view.spec.name, about(view), study_sections(view, trace, live=True)

    return read


def _summary(view: StudyView) -> tuple[str, ...]:
    """Return the cells of a study in the list."""
    record = view.record
    result = view.found
    tuning = "-" if result is None else number(result.tuning)
    test = "-"
    if result is not None and result.test is not None:
        test = f"{number(result.test.iqm)} {interval_text(result.test.iqm_interval)}"
    budget = f"{record.spent.budget_used(view.spec):.0%}"
    proposals = sum(record.tables.count_proposals().values())
    failures = len(record.tables.failures())
    return (view.spec.name, state(view), budget, tuning, test, str(proposals), str(failures))


def _row(study: _Served, problem: str) -> list[object]:
    """Return a study's cells in the list, the first with its address."""
    look = study.summary.latest
    name = study.folder.name
    cells = [problem or "not read yet"]
    if look is not None and not problem:
        name, *cells = look.value
    cells += [""] * (len(_HEADER) - 1 - len(cells))
    return [Link(shortened(name, _LONGEST_NAME), f"/study/{study.key}"), *cells]
