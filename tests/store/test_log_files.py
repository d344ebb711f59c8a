"""A log keeps the beginning and the end of what was printed, and is never longer than it may be."""

import os

import pytest

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
    begin, line, end = (
        path.read_bytes()[:HEAD],
        path.read_bytes()[HEAD:-TAIL],
        path.read_bytes()[-TAIL:],
    )
    assert begin == numbered(60)[:HEAD]
    assert line == b"\n[autorl: %d bytes left out here]\n" % (60 * 7 + 1000 - HEAD - TAIL)
    assert end == b"x" * TAIL


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
