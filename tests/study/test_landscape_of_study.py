"""Parts of the landscape that a study writes: names, units, sampler and machine."""

from pathlib import Path

import pytest

from autorl.core.types import InputError
from autorl.study.results import landscape
from autorl.study.results.landscape import from_study


def test_a_field_that_no_manifest_has_is_refused(tmp_path):
    with pytest.raises(InputError, match="allowed: description, licence, citation, url") as refused:
        from_study(tmp_path, tmp_path, licence="MIT", author="me")
    assert refused.value.key == "author"


def test_a_damaged_study_is_named_by_its_folder(tmp_path, monkeypatch):
    def damaged(folder):
        raise InputError("is wrong", key="seed")

    monkeypatch.setattr(landscape, "open_copy", damaged)
    with pytest.raises(InputError) as refused:
        landscape.read_study(Path("s"))
    assert (refused.value.file, refused.value.key) == ("s", "seed")

    def in_a_file(folder):
        raise InputError("is wrong", file="s/study.yaml")

    monkeypatch.setattr(landscape, "open_copy", in_a_file)
    with pytest.raises(InputError) as refused:
        landscape.read_study(Path("s"))
    assert refused.value.file == "s/study.yaml"
