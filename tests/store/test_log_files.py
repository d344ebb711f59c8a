"""A log keeps the beginning and the end of what was printed, and is never longer than it may be."""

import os

import pytest

from autorl.store import log_files
from autorl.store.log_files import CappedLog, log_bytes

HEAD, TAIL = 100, 50
LINE = 40  # the line in between is shorter


def numbered(count):
    return b"".join(b"%06d\n" % number for number in range(count))


def written(path, data, piece):
    log, longest = CappedLog(path, HEAD, TAIL), 0
    for begin in range(0, len(data), piece):
        log.write(data[begin : begin + piece])
        longest = max(longest, path.stat().st_size)
    log.close()
    return longest


@pytest.mark.parametrize("piece", [1, 7, 33, 64, 1000])
@pytest.mark.parametrize("lines", [0, 1, 14, 21, 22, 30, 200])
def test_head_and_tail_are_kept_and_the_line_between_says_how_much_is_not(tmp_path, piece, lines):
    data, path = numbered(lines), tmp_path / "logs" / "a.log"
    longest = written(path, data, piece)
    assert longest <= HEAD + LINE + 2 * TAIL
    if len(data) <= HEAD + TAIL:
        assert path.read_bytes() == data
    else:
        left_out = len(data) - HEAD - TAIL
        line = b"\n[autorl: %d bytes left out here]\n" % left_out
        assert path.read_bytes() == data[:HEAD] + line + data[-TAIL:]


def test_a_second_attempt_goes_on_in_the_same_log(tmp_path):
    path = tmp_path / "a.log"
    written(path, numbered(60), 20)
    written(path, b"x" * 1000, 20)
    line = b"\n[autorl: %d bytes left out here]\n" % (60 * 7 + 1000 - HEAD - TAIL)
    assert path.read_bytes() == numbered(60)[:HEAD] + line + b"x" * TAIL


def test_a_log_is_whole_where_the_writer_never_closes_it(tmp_path):
    """A kill at any moment leaves the beginning and the latest end."""
    data, path = numbered(200), tmp_path / "a.log"
    log = CappedLog(path, HEAD, TAIL)
    for begin in range(0, len(data), 13):
        log.write(data[begin : begin + 13])
        done = data[: begin + 13]
        found = path.read_bytes()
        assert found.startswith(done[:HEAD])
        assert done.endswith(found[-min(TAIL, len(done)) :])


def test_the_size_of_all_logs(tmp_path):
    assert log_bytes(tmp_path / "logs") == 0
    written(tmp_path / "logs" / "a.log", b"1234", 4)
    written(tmp_path / "logs" / "b.log", b"12", 4)
    os.symlink("/nowhere", tmp_path / "logs" / "c.log")
    written(tmp_path / "logs" / "0.1-1-0" / "progress.csv", b"123", 4)
    os.symlink("/", tmp_path / "logs" / "1.1-1-0")
    assert log_bytes(tmp_path / "logs") == 9


def test_a_process_prints_what_it_writes_into_its_own_log(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(log_files, "_printed", None)
    own, other = tmp_path / "own.log", tmp_path / "other.log"
    log_files.prints_to(str(own))
    for path in (own, other):
        with log_files.open_log(str(path)) as write:
            write("a line\n")
    assert capfd.readouterr() == ("", "a line\n")
    assert not own.exists()
    assert other.read_bytes() == b"a line\n"


def test_a_log_that_was_cut_is_told_from_one_that_was_not(tmp_path):
    """The line that says what was left out stands where the head ends, and nowhere else."""
    path = tmp_path / "a.log"
    line = b"\n[autorl: 40 bytes left out here]\n"
    path.write_bytes(b"x" * HEAD + line + b"y" * TAIL)
    written(path, b"z" * 7, 7)
    left_out = b"\n[autorl: 47 bytes left out here]\n"
    assert path.read_bytes() == b"x" * HEAD + left_out + b"y" * (TAIL - 7) + b"z" * 7
