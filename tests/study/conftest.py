"""Closes studies and views that a test leaves open."""

from contextlib import suppress

import pytest

from autorl.core.types import StudyError
from autorl.report.reading import StudyView
from autorl.study import Study


@pytest.fixture(autouse=True)
def all_closed(tmp_path):
    """Let the studies and views go that a test has left open; `tmp_path` is there until then."""
    opened = []

    def watch(patch, kind):
        begin, close = kind.__init__, kind.close

        def remembered(self, *given, **named):
            begin(self, *given, **named)
            opened.append(self)

        def forgotten(self):
            close(self)
            if self in opened:  # it may be closed twice
                opened.remove(self)

        patch.setattr(kind, "__init__", remembered)
        patch.setattr(kind, "close", forgotten)

    with pytest.MonkeyPatch.context() as patch:
        for kind in (Study, StudyView):
            watch(patch, kind)
        yield
        for one in list(opened):
            with suppress(StudyError):  # of another thread
                one.close()
