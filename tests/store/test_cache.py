"""The read cache: by content, bounded, and never emptied under a reader."""

import os
import shutil
from pathlib import Path

import pytest

from autorl.core.shipped import cache_folder
from autorl.core.types import InputError
from autorl.store.cache import CheckpointCache, DamagedError, cache_bound, content_key
from autorl.store.checkpoints import damage, file_hashes

KILOBYTE = 1024
NO_SIZES = ("much", "-0.5", "inf", "nan", "")


def saved(folder: Path, letter: str) -> dict[str, str]:
    folder.mkdir(parents=True)
    (folder / "weights").write_text(letter * KILOBYTE)
    return file_hashes(folder)


class Source:
    """A checkpoint elsewhere that counts how often it is fetched."""

    def __init__(self, folder: Path, letter: str) -> None:
        self.files = saved(folder, letter)
        self.folder = folder
        self.fetched = 0

    def fetch(self, target: Path, files) -> str | None:
        self.fetched += 1
        assert files == self.files
        if not self.folder.is_dir():
            return "the folder is missing"
        shutil.copytree(self.folder, target, dirs_exist_ok=True)
        return None


def use(cache, source):
    with cache.reading(source.files, source) as folder:
        return (folder / "weights").read_text()[0]


def cache_in(folder, bound=9 * KILOBYTE):
    return CheckpointCache(folder / "cache", bound)


def entries(folder):
    return {path.name for path in (folder / "cache").iterdir() if path.is_dir()}


def test_a_checkpoint_is_fetched_once(tmp_path):
    source = Source(tmp_path / "a", "a")
    cache = cache_in(tmp_path)
    assert [use(cache, source), use(cache, source)] == ["a", "a"]
    assert source.fetched == 1
    assert entries(tmp_path) == {content_key(source.files)}


def test_the_least_recently_used_go_first(tmp_path):
    sources = [Source(tmp_path / letter, letter) for letter in "abc"]
    cache = cache_in(tmp_path, 2 * KILOBYTE)
    for number, source in enumerate([*sources[:2], sources[0]]):
        use(cache, source)
        entry = tmp_path / "cache" / content_key(source.files)
        os.utime(entry, ns=(number, number))  # no luck with clocks
    use(cache, sources[2])
    keys = [content_key(source.files) for source in sources]
    assert entries(tmp_path) == {keys[0], keys[2]}


def test_what_is_read_stays_readable_although_its_entry_goes(tmp_path):
    read, other = Source(tmp_path / "a", "a"), Source(tmp_path / "b", "b")
    cache = cache_in(tmp_path, 0)
    with cache.reading(read.files, read) as first, cache.reading(read.files, read) as second:
        use(cache_in(tmp_path, 0), other)
        assert content_key(read.files) not in entries(tmp_path)
        for folder in (first, second):
            assert damage(folder, read.files) is None
    assert read.fetched == 1
    assert entries(tmp_path) == {content_key(other.files)}


def test_where_there_are_no_links_files_are_copied(monkeypatch, tmp_path):
    def refused(*names):
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refused)
    source = Source(tmp_path / "a", "a")
    cache = cache_in(tmp_path)
    assert [use(cache, source), use(cache, source)] == ["a", "a"]
    assert source.fetched == 1


def test_an_entry_that_was_changed_is_fetched_again(tmp_path):
    source = Source(tmp_path / "a", "a")
    cache = cache_in(tmp_path)
    use(cache, source)
    (tmp_path / "cache" / content_key(source.files) / "weights").write_text("torn")
    assert [use(cache, source) for _ in range(3)] == ["a"] * 3
    assert source.fetched == 2


def test_what_differs_from_what_was_saved_is_damaged(tmp_path):
    source = Source(tmp_path / "a", "a")
    (source.folder / "weights").write_text("torn")
    cache = cache_in(tmp_path)
    with pytest.raises(DamagedError, match="weights differs from what was saved"):
        use(cache, source)
    shutil.rmtree(source.folder)
    with pytest.raises(DamagedError, match="the folder is missing"):
        use(cache, source)
    assert entries(tmp_path) == set()


def test_what_a_killed_process_left_goes(tmp_path):
    cache = cache_in(tmp_path, 0)
    child = os.fork()
    if child == 0:
        with cache.temporary() as folder:
            (folder / "half").write_text("x")
            os._exit(0)
    os.waitpid(child, 0)
    assert len(entries(tmp_path)) == 1
    with cache.temporary() as folder:
        assert entries(tmp_path) == {folder.name}
    assert entries(tmp_path) == set()


@pytest.mark.parametrize(
    ("text", "bound"),
    [(None, 20 * 2**30), ("0", 0), ("0.5", 2**29), *dict.fromkeys(NO_SIZES).items()],
)
def test_the_bound_is_twenty_gigabytes_or_what_is_said(monkeypatch, text, bound):
    monkeypatch.delenv("AUTORL_CACHE_GB", raising=False)
    if text is not None:
        monkeypatch.setenv("AUTORL_CACHE_GB", text)
    if bound is None:
        with pytest.raises(InputError, match="AUTORL_CACHE_GB: expected a number of gigabytes"):
            cache_bound()
    else:
        assert cache_bound() == bound


def test_where_the_cache_lies(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("AUTORL_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder("checkpoints") == tmp_path / ".cache" / "autorl" / "checkpoints"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert cache_folder("checkpoints") == tmp_path / "x" / "autorl" / "checkpoints"
    monkeypatch.setenv("AUTORL_CACHE", str(tmp_path / "deep" / "er"))
    monkeypatch.setenv("AUTORL_CACHE_GB", "1")
    source = Source(tmp_path / "a", "a")
    cache = CheckpointCache()
    assert cache.folder == tmp_path / "deep" / "er" / "checkpoints"
    assert [use(cache, source), use(CheckpointCache(), source)] == ["a", "a"]
    assert source.fetched == 1


def test_a_checkpoint_is_taken_over_once_and_makes_room_for_itself(tmp_path):
    first, again, other = (Source(tmp_path / name, name[0]) for name in ("a", "a2", "b"))
    assert first.files == again.files
    cache = cache_in(tmp_path, KILOBYTE)
    cache.adopt(first.folder, first.files)
    cache.adopt(again.folder, again.files)
    assert again.folder.exists(), "what is there already stays as it is"
    cache.adopt(other.folder, other.files)
    assert entries(tmp_path) == {content_key(other.files)}
