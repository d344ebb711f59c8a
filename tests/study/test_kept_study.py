"""A study that was written once, in today's format, is read, checked and gone on with.

A change of the format, or of the keys of study files, needs another kept study by `python
tests/study/test_kept_study.py` and a higher `SCHEMA_VERSION` where tables or events differ.
"""

import gzip
import json
import os
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path

import pytest
from study_support import StoppedError, run_small, small_spec, stop_after, table

from autorl.report.reading import open_view
from autorl.report.status import status_dict
from autorl.study import Study
from autorl.study.folder.safety import verify

KEPT = Path(__file__).parent / "kept_study.sqlite.gz"
STUDY = {
    "fidelity": {"steps": 100, "evaluations": 2},
    "budget": {"runs": 4},
    "seeds": {"tuning": 2, "test": 2},
    "parallelism": 1,
    "test": {"top": 1, "baseline": False},
}


@pytest.fixture
def kept(tmp_path):
    folder = tmp_path / "kept"
    folder.mkdir()
    database = folder / "study.sqlite"
    database.write_bytes(gzip.decompress(KEPT.read_bytes()))
    with closing(sqlite3.connect(database)) as connection:
        ((body,),) = connection.execute("SELECT body FROM event WHERE kind = 'study_file'")
    (folder / "study.yaml").write_text(json.loads(body)["text"], encoding="utf-8")
    return folder


def test_a_kept_study_is_read_and_checked(kept):
    view = open_view(kept)
    facts = status_dict(view)
    scores = view.record.tables.ranked(), view.record.tuning_score(0)
    assert (facts["name"], facts["state"], facts["proposals"]) == (
        "small",
        "stopped",
        {"scored": 1},
    )
    assert (facts["incumbent"]["proposal"], facts["budget_used"]) == (0, 0.5)
    assert scores == ([0], 1.0347844001211022)
    assert verify(kept).problems == []


def test_a_kept_study_goes_on_to_the_result_of_a_new_one(kept, tmp_path):
    study = Study.open(kept)
    result = study.run()
    study.close()
    anew = run_small(tmp_path / "anew", **STUDY)
    assert result.test.iqm == pytest.approx(anew.test.iqm)
    of_kept, of_new = table(kept), table(tmp_path / "anew")
    for name in ("proposals", "runs", "segments", "tests"):
        assert len(of_kept[name]) == len(of_new[name])
    assert of_kept["configurations"] == of_new["configurations"]
    assert verify(kept).problems == []


def keep():
    """Keep one of two proposals of the study, with `/` for the folder it was read in."""
    os.chdir("/")
    with tempfile.TemporaryDirectory() as folder:
        study = Study.create(small_spec(**STUDY), Path(folder))
        stop_after(study, 5)
        with suppress(StoppedError):
            study.run()
        study.close()
        with closing(sqlite3.connect(Path(folder) / "study.sqlite")) as connection:
            connection.executescript("PRAGMA journal_mode = DELETE; VACUUM")
        KEPT.write_bytes(gzip.compress((Path(folder) / "study.sqlite").read_bytes(), mtime=0))


if __name__ == "__main__":
    keep()
