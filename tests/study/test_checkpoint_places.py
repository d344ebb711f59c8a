"""Checkpoints where they lie, in the folder of a study, in its storage or elsewhere, and their sizes."""

from types import SimpleNamespace

from autorl.core.types import Checkpoint, SegmentId, StorageError
from autorl.study.checkpoints import CheckpointSizes, bytes_of, is_there, remove_own, set_aside_own

URL = "s3://bucket/x/checkpoints/0.0-1-0"
OTHER = "s3://elsewhere/0.0-1-0"


class Offsite:
    """A storage that notes what it is asked for, or fails."""

    def __init__(self, fails=False):
        self.asked, self._fails = [], fails

    def _note(self, *call):
        if self._fails:
            raise StorageError("s3://bucket/x does not answer")
        self.asked.append(call)
        return f"{call[0]}: done"

    def remove(self, urls):
        return self._note("remove", urls)

    def set_aside(self, url):
        return self._note("set aside", url)

    def sweep(self, urls):
        return self._note("sweep", urls)


def store_of(tmp_path, offsite=None):
    own = tmp_path / "checkpoints"
    own.mkdir(exist_ok=True)
    return SimpleNamespace(
        offsite=offsite, owns=lambda path: str(path) == URL or str(path).startswith(f"{own}/")
    )


def folder_at(path, size=5):
    path.mkdir(parents=True)
    (path / "state").write_bytes(b"x" * size)
    return str(path)


# -- places ------------------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_there_unless_it_is_the_studys_own_and_gone(tmp_path):
    store = store_of(tmp_path)
    own = folder_at(tmp_path / "checkpoints" / "0.0-1-0")
    assert is_there(store, own)
    assert not is_there(store, str(tmp_path / "checkpoints" / "gone"))
    assert is_there(store, str(tmp_path / "of-the-caller")), "the caller's own is not looked for"
    assert is_there(store, URL), "whether it is shows when it is fetched"


def test_only_the_studys_own_checkpoints_are_removed(tmp_path):
    offsite = Offsite()
    own, callers = tmp_path / "checkpoints" / "0.0-1-0", tmp_path / "mine"
    folder_at(own)
    folder_at(callers)
    assert remove_own(store_of(tmp_path, offsite), [str(own), str(callers), URL, OTHER]) == []
    assert (own.exists(), callers.exists()) == (False, True)
    assert offsite.asked == [("remove", [URL])]


def test_what_a_storage_does_not_remove_is_said(tmp_path):
    assert remove_own(store_of(tmp_path, Offsite(fails=True)), [URL]) == [
        "s3://bucket/x does not answer: checkpoints that nobody needs are left there"
    ]


def test_a_damaged_checkpoint_is_set_aside_where_it_lies(tmp_path):
    offsite = Offsite()
    store = store_of(tmp_path, offsite)
    own = tmp_path / "checkpoints" / "0.0-1-0"
    folder_at(own)
    assert set_aside_own(store, OTHER) == f"left in {OTHER}"
    assert "damaged" in set_aside_own(store, str(own))
    assert (tmp_path / "checkpoints" / "damaged" / "0.0-1-0").is_dir()
    assert offsite.asked == []
    assert set_aside_own(store, URL) == "set aside: done"
    assert offsite.asked == [("set aside", URL)]
    failing = store_of(tmp_path, Offsite(fails=True))
    assert set_aside_own(failing, URL) == "left there (s3://bucket/x does not answer)"


# -- sizes -------------------------------------------------------------------------------------------------------------


def test_the_size_of_a_checkpoint_is_that_of_its_folder_or_what_was_uploaded(tmp_path):
    assert bytes_of(Checkpoint(SegmentId(0, 0), folder_at(tmp_path / "a", 7))) == 7
    assert bytes_of(Checkpoint(SegmentId(0, 0), URL, size=99)) == 99


def test_sizes_add_up_while_checkpoints_come_and_go(tmp_path):
    sizes = CheckpointSizes()
    assert sizes.total() == 0
    first, second = SegmentId(0, 0), SegmentId(1, 0)
    sizes.add(first, Checkpoint(first, folder_at(tmp_path / "a", 7)))
    sizes.add(second, Checkpoint(second, folder_at(tmp_path / "b", 20)))
    assert sizes.total() == sizes.total() == 27
    sizes.add(first, Checkpoint(first, folder_at(tmp_path / "c", 100)))
    assert sizes.total() == 120, "it took the place of the earlier one"
    sizes.remove(first)
    sizes.remove(first)
    assert sizes.total() == 20
