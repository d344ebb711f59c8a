"""The storage that a study file names."""

import pytest

from autorl.study.folder.checks import storage_of


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
