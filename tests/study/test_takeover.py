"""A folder made from nothing but a storage: what is refused, and that nothing half made is left."""

from contextlib import closing

import pytest
import yaml
from refusals import expect_error

from autorl.core.types import InputError
from autorl.store import Store
from autorl.store.lease import Lease
from autorl.store.offsite import Offsite, database_copies
from autorl.store.remote import RemoteFolder
from autorl.study.folder.opening import study_folder, take_over

pytest.importorskip("fsspec", reason="the extra storage is not installed")

STUDY = "name: x\nbudget:\n  runs: 8\n"


@pytest.fixture
def storage(tmp_path):
    """The storage of a study whose driver has ended."""
    url = f"file://{tmp_path}/storage"
    with closing(Store.create(tmp_path / "first", STUDY, "space")) as store:
        Offsite.take(url, store).close(store)
    return RemoteFolder(url)


def test_the_newest_database_and_the_study_file_make_a_folder(storage, tmp_path):
    folder = tmp_path / "deep" / "down" / "study"
    folder.mkdir(parents=True)  # an empty one is free
    assert take_over(storage.url, folder) == folder
    (copy,) = database_copies(storage)
    assert (folder / "study.sqlite").read_bytes() == storage.read(copy.file)
    made = yaml.safe_load((folder / "study.yaml").read_text())
    assert list(made.items()) == [
        ("name", "x"), ("budget", {"runs": 8}), ("storage", storage.url)
    ]  # fmt: skip
    assert [path.name for path in folder.parent.iterdir()] == ["study"]


@pytest.mark.parametrize("stays", [True, False])
def test_a_study_file_names_the_storage_it_was_found_in(storage, tmp_path, stays):
    text = f"# mine\nstorage: {storage.url if stays else 's3://before/x'}\nname:   x\n"
    storage.write("study.yaml", text.encode())
    made = (take_over(storage.url, tmp_path / "study") / "study.yaml").read_text()
    assert (made == text) is stays
    assert yaml.safe_load(made) == {"storage": storage.url, "name": "x"}


@pytest.mark.parametrize("missing", ["study", "copy"])
def test_a_storage_needs_a_study_file_and_a_copy(storage, tmp_path, missing):
    (copy,) = database_copies(storage)
    storage.remove("study.yaml" if missing == "study" else copy.file)
    with pytest.raises(InputError, match="holds no study") as refused:
        take_over(storage.url, tmp_path / "study")
    assert refused.value.key == "--storage"


def test_a_folder_that_is_not_free_is_left(storage, tmp_path):
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "mine").touch()
    expect_error("is not empty", take_over, storage.url, tmp_path / "study")
    assert [path.name for path in (tmp_path / "study").iterdir()] == ["mine"]
    with pytest.raises(InputError, match="cannot be written") as refused:
        take_over(storage.url, tmp_path / "study" / "mine" / "below")
    assert refused.value.file == str(tmp_path / "study" / "mine" / "below")


def test_a_living_driver_is_not_robbed(storage, tmp_path):
    with closing(Store.open(tmp_path / "first")) as store:
        lease = Lease.take(storage, store.log.identity())
    with pytest.raises(InputError, match=r"another driver works on this study \(process .*epoch 2"):
        take_over(storage.url, tmp_path / "study")
    assert not (tmp_path / "study").exists()
    lease.release()
    take_over(storage.url, tmp_path / "study")


@pytest.mark.parametrize("text", [b"- a list\n", b"\xff\xfe"])
def test_what_is_no_study_file_is_refused_and_nothing_is_left(storage, tmp_path, text):
    storage.write("study.yaml", text)
    expect_error(r"study\.yaml is no study file", take_over, storage.url, tmp_path / "study")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "storage"]


def test_a_folder_that_holds_the_study_is_used_and_another_refused(storage, tmp_path):
    folder = study_folder(storage.url, tmp_path / "new")
    assert study_folder(storage.url, folder) == folder
    expect_error("holds a study that is not stored in", study_folder, "file:///other", folder)
