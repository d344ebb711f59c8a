"""Signals sent to the processes of a running study: nothing is lost, and the table is that of a quiet study."""

import os
import signal
import sys

import pytest
from signal_studies import Session, begun, gated_study, hold, release
from study_support import table

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def quiet(tmp_path):
    """The table of an undisturbed study."""

    def run(file):
        code, _, error = Session("tune", file, "--out", tmp_path / "quiet", "--quiet").end()
        assert (code, error) == (0, "")
        return table(tmp_path / "quiet")

    return run


@pytest.mark.parametrize("trainer", ["command", "python"])
def test_a_study_whose_segments_are_killed_ends_with_the_table_of_a_quiet_one(tmp_path, quiet, trainer):
    file = gated_study(tmp_path, trainer)
    expected = quiet(file)
    hold(tmp_path)
    session = Session("tune", file, "--out", tmp_path / "killed", "--quiet")
    for pid in begun(tmp_path, 2):
        os.kill(pid, signal.SIGKILL)
    begun(tmp_path, 4)
    release(tmp_path)
    code, _, error = session.end()
    assert (code, error) == (0, "")
    assert table(tmp_path / "killed") == expected
    assert session.wait_until_gone()
