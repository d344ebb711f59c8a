"""Checkpoints where they lie, in the folder of a study, in its storage or elsewhere, and their sizes."""

from types import SimpleNamespace

from autorl.core.types import Checkpoint, SegmentId, StorageError
from autorl.study.checkpoints import CheckpointSizes, remove_own

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


def test_only_the_studys_own_checkpoints_are_removed(tmp_path):
    offsite = Offsite()
    own, callers = tmp_path / "checkpoints" / "0.0-1-0", tmp_path / "mine"
    folder_at(own)
    folder_at(callers)
    remove_own(store_of(tmp_path, offsite), [str(own), str(callers), URL, OTHER])
    assert (own.exists(), callers.exists()) == (False, True)
    assert offsite.asked == [("remove", [URL])]


def test_what_a_storage_does_not_remove_is_said(tmp_path, capsys):
    remove_own(store_of(tmp_path, Offsite(fails=True)), [URL])
    said = "autorl: s3://bucket/x does not answer: checkpoints that nobody needs are left there\n"
    assert capsys.readouterr().err == said


# -- sizes -------------------------------------------------------------------------------------------------------------


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
    sizes.add(first, Checkpoint(first, URL, size=99))
    assert sizes.total() == 119, "what was uploaded"
