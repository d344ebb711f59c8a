"""Parts of the landscape that a study writes: names, units, sampler and machine."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from autorl.core.types import InputError
from autorl.study.results import landscape
from autorl.study.results.landscape import from_study


def test_a_field_that_no_manifest_has_is_refused(tmp_path):
    with pytest.raises(InputError, match="allowed: description, licence, citation, url") as refused:
        from_study(tmp_path, tmp_path, licence="MIT", author="me")
    assert refused.value.key == "author"


def data_of(environment, *, name):
    import pandas as pd

    return SimpleNamespace(
        tables=SimpleNamespace(runs=pd.DataFrame({"environment": [environment]})),
        spec=SimpleNamespace(environment=SimpleNamespace(resolve=lambda: name)),
    )


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("mine/ppo/CartPole-v1", ("ppo", "CartPole-v1")),
        ("mine/ppo/ALE/Pong-v5", ("ppo", "ALE/Pong-v5")),
        ("mine/ppo", ("ppo", "")),
        ("mine", ("", "")),
    ],
)
def test_an_id_is_a_namespace_an_algorithm_and_an_environment(monkeypatch, name, names):
    monkeypatch.setattr(landscape, "landscape_name", lambda resolved: resolved)
    assert landscape._names(name, "s", data_of("x", name=None)) == names
    if names[1]:
        allowed = data_of(names[1], name=names[1])
        assert landscape._names(name, "s", allowed) == names
    with pytest.raises(InputError, match="the study trained on 'Acrobot-v1', so the id is") as no:
        landscape._names(name, "s", data_of("Acrobot-v1", name="Acrobot-v1"))
    assert (no.value.file, no.value.key) == ("s", name)


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
