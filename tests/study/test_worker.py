"""A worker of a study in a shared folder: what it is made with, and which configurations it refuses."""

import hashlib
import inspect

import pytest
from study_support import small_spec

from autorl.spec import load_spec
from autorl.study import worker as worker_module
from autorl.study.worker import make_worker
from autorl.types import Config, InputError


@pytest.fixture
def study(tmp_path):
    def make(**changes):
        spec = small_spec(**{"executor": {"name": "folder"}, **changes})
        (tmp_path / "study.yaml").write_text(spec.freeze())
        (tmp_path / "study.sqlite").touch()
        return tmp_path

    return make


def made(monkeypatch, folder, **options):
    """What a `FolderWorker` is made with."""
    seen = {}

    def note(form, make_executor, digest, facts, **more):
        seen.update(more, form=form, digest=digest, facts=facts, make_executor=make_executor)

    monkeypatch.setattr(worker_module, "FolderWorker", note)
    make_worker(folder, **options)
    return seen


def test_a_worker_trains_one_segment_at_once_and_waits_half_an_hour_unless_told(monkeypatch, study):
    folder = study()
    seen = made(monkeypatch, folder)
    options = ("slots", "idle_seconds", "most_segments", "trust")
    assert [seen[name] for name in options] == [1, 1800.0, None, False]
    assert seen["digest"] == hashlib.sha256((folder / "study.yaml").read_bytes()).hexdigest()
    given = {"slots": 3, "idle_seconds": 7.0, "most_segments": 2, "trust": True}
    seen = made(monkeypatch, folder, **given)
    assert {name: seen[name] for name in options} == given


def test_the_defaults_are_those_of_the_worker_itself():
    from autorl.executors.folder_worker import FolderWorker

    own, other = (
        {name: one.default for name, one in inspect.signature(made).parameters.items()}
        for made in (make_worker, FolderWorker.__init__)
    )
    names = ("slots", "idle_seconds", "most_segments", "trust")
    assert {name: own[name] for name in names} == {name: other[name] for name in names}


def test_what_is_no_study_of_the_folder_executor_is_refused(study, tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        make_worker(tmp_path / "gone")
    with pytest.raises(InputError, match=r"holds no study \(study.yaml is missing\)"):
        make_worker(tmp_path)
    folder = study(executor={"name": "processes"})
    with pytest.raises(InputError, match="expected folder, got processes") as refused:
        make_worker(folder)
    assert (refused.value.file, refused.value.key) == (
        str(folder / "study.yaml"),
        "executor.name",
    )
    (folder / "study.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="is no text"):
        make_worker(folder)


def test_a_configuration_is_refused_that_no_algorithm_with_the_trainer_can_have():
    part = {"trainer": "synthetic", "space": {"x": {"type": "float", "lower": 0, "upper": 1}}}
    wide = {**part, "space": {"x": {"type": "float", "lower": 0, "upper": 5}}}
    other = {
        "trainer": {"name": "synthetic", "kwargs": {"noise": 0.5}},
        "space": {"x": {"type": "float", "lower": 0, "upper": 99}},
    }
    spec = load_spec(
        {
            "algorithms": {"one": part, "two": wide, "three": other},
            "fidelity": {"steps": 10},
            "budget": {"runs": 8},
        }
    )
    trainer = spec.trainers["one"]
    for value in (0.5, 4.0):
        worker_module._check(spec, trainer, Config({"x": value}))
    with pytest.raises(InputError, match="x"):
        worker_module._check(spec, trainer, Config({"x": 50.0}))
    worker_module._check(spec, spec.trainers["three"], Config({"x": 50.0}))
