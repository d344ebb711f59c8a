"""A folder made from nothing but a storage: what is refused, and that nothing half made is left."""

import hashlib
from types import SimpleNamespace

import pytest
import yaml

from autorl.core.types import InputError
from autorl.store.lease import Holder
from autorl.study.folder import takeover
from autorl.study.folder.takeover import study_folder, take_over

URL = "file:///somewhere/storage"
STUDY = b"name: x\nbudget:\n  runs: 8\n"


class Storage:
    """Files of a storage by name."""

    def __init__(self, files):
        self.url, self.files = URL, files

    def read(self, name):
        return self.files.get(name)

    def receive(self, name, file):
        if name not in self.files:
            return False
        file.write_bytes(self.files[name])
        return True


def copy_of(name, content):
    return SimpleNamespace(file=name, sha256=hashlib.sha256(content).hexdigest())


@pytest.fixture
def storage(monkeypatch):
    """A storage of a study, which a driver may hold; `copies` are from the newest on."""

    def make(study=STUDY, copies=(("backups/2", b"newest"), ("backups/1", b"before")), holder=None):
        files = dict(copies) | ({} if study is None else {"study.yaml": study})
        made = Storage(files)
        listed = [copy_of(name, content) for name, content in copies]
        monkeypatch.setattr(takeover, "RemoteFolder", lambda url: made)
        monkeypatch.setattr(takeover, "database_copies", lambda folder: listed)
        monkeypatch.setattr(takeover, "current_holder", lambda folder: holder)
        return made

    return make


def living(**more):
    return Holder(3, host="elsewhere", pid=7, **{"seconds": 1.25, **more})


def test_the_newest_database_and_the_study_file_make_a_folder(storage, tmp_path):
    storage()
    folder = tmp_path / "deep" / "down" / "study"
    assert take_over(URL, folder) == folder
    assert (folder / "study.sqlite").read_bytes() == b"newest"
    assert yaml.safe_load((folder / "study.yaml").read_text()) == {
        "name": "x",
        "budget": {"runs": 8},
        "storage": URL,
    }
    assert list(yaml.safe_load((folder / "study.yaml").read_text())) == [
        "name",
        "budget",
        "storage",
    ]
    assert [path.name for path in folder.parent.iterdir()] == ["study"]


def test_a_study_file_that_names_its_storage_stays_as_it_is(storage, tmp_path):
    text = f"# mine\nstorage: {URL}\nname:   x\n"
    storage(text.encode())
    assert (take_over(URL, tmp_path / "study") / "study.yaml").read_text() == text


def test_a_storage_that_was_moved_is_named_anew(storage, tmp_path):
    storage(b"storage: s3://before/x\nname: x\n")
    text = (take_over(URL, tmp_path / "study") / "study.yaml").read_text()
    assert yaml.safe_load(text) == {"storage": URL, "name": "x"}


def test_an_empty_folder_is_free(storage, tmp_path):
    storage()
    (tmp_path / "study").mkdir()
    take_over(URL, tmp_path / "study")
    assert (tmp_path / "study" / "study.sqlite").is_file()


@pytest.mark.parametrize("missing", [{"study": None}, {"copies": ()}])
def test_a_storage_needs_a_study_file_and_a_copy(storage, tmp_path, missing):
    storage(**missing)
    with pytest.raises(InputError, match="holds no study") as refused:
        take_over(URL, tmp_path / "study")
    assert refused.value.key == "--storage"


def test_a_folder_that_is_not_empty_is_left(storage, tmp_path):
    storage()
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "mine").touch()
    with pytest.raises(InputError, match="is not empty"):
        take_over(URL, tmp_path / "study")
    assert [path.name for path in (tmp_path / "study").iterdir()] == ["mine"]


def test_a_living_driver_is_not_robbed(storage, tmp_path):
    storage(holder=living())
    with pytest.raises(InputError) as refused:
        take_over(URL, tmp_path / "study")
    assert "another driver works on this study (process 7 on elsewhere, epoch 3" in str(
        refused.value
    )
    assert "last there 1 s ago" in str(refused.value)
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize("holder", [None, living(released=True), living(seconds=1e6)])
def test_a_driver_that_is_gone_holds_nothing(storage, tmp_path, holder):
    storage(holder=holder)
    take_over(URL, tmp_path / "study")


@pytest.mark.parametrize(
    ("stored", "found"),
    [
        ({"backups/2": b"torn"}, b"before"),
        ({"backups/2": None}, b"before"),
        ({"backups/2": b"torn", "backups/1": b"torn"}, None),
        ({"backups/2": None, "backups/1": None}, None),
    ],
)
def test_the_newest_copy_that_is_whole_is_taken(storage, tmp_path, stored, found):
    made = storage()
    for name, content in stored.items():
        if content is None:
            del made.files[name]
        else:
            made.files[name] = content
    if found is None:
        with pytest.raises(InputError, match="no copy of the database there is whole"):
            take_over(URL, tmp_path / "study")
        assert list(tmp_path.iterdir()) == []
    else:
        assert (take_over(URL, tmp_path / "study") / "study.sqlite").read_bytes() == found


@pytest.mark.parametrize("text", [b"- a list\n", b"\xff\xfe"])
def test_what_is_no_study_file_is_refused_and_nothing_is_left(storage, tmp_path, text):
    storage(text)
    with pytest.raises(InputError, match=r"study\.yaml is no study file"):
        take_over(URL, tmp_path / "study")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(storage, tmp_path):
    storage()
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written") as refused:
        take_over(URL, tmp_path / "file" / "study")
    assert refused.value.file == str(tmp_path / "file" / "study")


def test_a_folder_that_holds_the_study_is_used_and_another_refused(monkeypatch, tmp_path):
    taken = []
    monkeypatch.setattr(takeover, "holds_study", lambda folder: folder.name == "there")
    monkeypatch.setattr(takeover, "take_over", lambda url, folder: taken.append(folder.name))
    study_folder(URL, tmp_path / "new")
    assert taken == ["new"]
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "study.yaml").write_text(f"storage: {URL}\n")
    assert study_folder(URL, tmp_path / "there") == tmp_path / "there"
    with pytest.raises(InputError, match="holds a study that is not stored in"):
        study_folder("file:///other", tmp_path / "there")
