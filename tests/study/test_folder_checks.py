"""Whether a log belongs to its folder and its search space, and what storage a study file names."""

from types import SimpleNamespace

import pytest

from autorl.core.types import InputError
from autorl.study.folder.checks import check_covers_folder, storage_of


def tables(space=None, proposals=0):
    recorded = SimpleNamespace(space=space)
    return SimpleNamespace(study_file=lambda: recorded, count_events=lambda event: proposals)


# -- the folder --------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    for name in ("0.0-1-0", "3.0-1-0", "2.1@40-1-0", "mine", ".tmp-9.0-1-0"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    (tmp_path / "logs").mkdir()
    for name in ("0.0.log", "3.0.log", "10.0.log"):
        (tmp_path / "logs" / name).touch()
    return tmp_path


def test_a_database_that_is_older_than_its_folder_is_refused(folder):
    check_covers_folder(tables(proposals=11), folder)
    with pytest.raises(InputError) as refused:
        check_covers_folder(tables(proposals=10), folder)
    assert refused.value.file == str(folder / "study.sqlite")
    assert refused.value.message.startswith("ends with 10 proposals, but logs/10.0.log is of a")
    assert f"`autorl backup {folder} COPY`" in refused.value.message


# -- the storage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "storage"),
    [
        (b"name: x\nstorage: s3://bucket/x\n", "s3://bucket/x"),
        (b"name: x\n", None),
        (b"name: x\nstorage: 3\n", None),
        (b"- a list\n", None),
        (b"a: [\n", None),
        (b"\xff\xfe", None),
    ],
)
def test_the_storage_is_what_the_study_file_names(tmp_path, text, storage):
    (tmp_path / "study.yaml").write_bytes(text)
    assert storage_of(tmp_path) == storage
