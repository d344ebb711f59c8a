"""Several studies on shared workers: each table is what it would be alone."""

import sys

import pytest
import yaml
from study_support import run_small, small_spec, table

from autorl.core.types import InputError, StudyError
from autorl.study import Study
from autorl.study.several_studies import backend_of, check_shareable, run_together, shared_workers
from autorl.study.spec import load_spec

# What differs between the studies: one learns from scores, one cuts runs, one is a population.
STUDIES = {
    "tpe": {"optimizer": {"name": "tpe"}, "parallelism": 2},
    "asha": {"optimizer": {"name": "asha"}, "parallelism": 3},
    "pbt": {"optimizer": {"name": "pbt", "population": 4, "generations": 4}},
}


@pytest.fixture
def studies(tmp_path):
    """Begin studies by name, and close them in the end."""
    begun = []

    def begin(**changes_by_name):
        for name, changes in changes_by_name.items():
            spec = small_spec(**{"name": name, **changes})
            begun.append(Study.create(spec, tmp_path / name))
        return begun

    yield begin
    for study in begun:
        study.close()


def events(study, kind):
    return sum(recorded.event.kind == kind for recorded in study.store.events())


@pytest.mark.parametrize("executor", [{"name": "in_process"}, {"name": "threads", "workers": 2}])
def test_each_table_is_the_one_the_study_has_alone(studies, tmp_path, executor):
    changes = {study: {**options, "executor": executor} for study, options in STUDIES.items()}
    ends = run_together(studies(**changes))
    for ended in ends:
        study = ended.study.spec.name
        alone = run_small(tmp_path / f"{study}-alone", **{"name": study, **STUDIES[study]})
        assert ended.error is None
        assert ended.result.test == alone.test
        assert without_folder(table(tmp_path / study), tmp_path / study) == without_folder(
            table(tmp_path / f"{study}-alone"), tmp_path / f"{study}-alone"
        )


def without_folder(rows, folder):
    return {name: repr(entries).replace(str(folder), "") for name, entries in rows.items()}


def test_the_failure_of_one_study_ends_that_one_only(studies, tmp_path):
    begun = studies(bad={"trainer": {"crash": 1.0}}, good={})
    bad, good = run_together(begun)
    assert isinstance(bad.error, StudyError)
    assert bad.result is None
    assert events(bad.study, "outcome") == 6  # the 3 proposals x 2 seeds whose crashes end a study
    assert good.error is None
    assert good.result.test is not None
    assert events(good.study, "finished") == 1
    assert events(bad.study, "finished") == 0


def test_an_interruption_keeps_what_every_study_has_recorded(studies, tmp_path):
    begun = studies(**STUDIES)

    def interrupt(study, progress):
        if progress.finished_segments == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_together(begun, progress=interrupt)
    assert all(events(study, "outcome") >= 3 for study in begun)
    for study in begun:
        study.close()
    again = [Study.open(tmp_path / name) for name in STUDIES]
    assert all(ended.error is None for ended in run_together(again))
    for study in again:
        study.close()
    for name, options in STUDIES.items():
        run_small(tmp_path / f"{name}-alone", **{"name": name, **options})
        assert scores(tmp_path / name) == scores(tmp_path / f"{name}-alone")


def scores(folder):
    return {
        name: table(folder)[name] for name in ("configurations", "proposals", "reductions", "tests")
    }


def test_workers_are_those_asked_for_or_the_most_that_one_study_asks_for():
    few = small_spec(executor={"name": "threads", "workers": 2})
    many = small_spec(executor={"name": "threads", "workers": 5})
    assert shared_workers([few, many, small_spec()]) == 5
    assert shared_workers([few, many], 3) == 3


def test_limits_of_one_study_are_not_those_of_another():
    limited = small_spec(executor={"name": "processes"}, limits={"segment_seconds": 60})
    free = small_spec(executor={"name": "processes", "workers": 4})
    same = small_spec(executor={"name": "processes", "workers": 2})
    assert backend_of(free) == backend_of(same) != backend_of(limited)


def test_one_study_that_is_given_devices_is_enough_to_refuse_different_ones():
    plain = small_spec(executor={"name": "processes"})
    listing = small_spec(executor={"name": "processes", "devices": ["0"]}, resources={"gpu": 1})
    asking = small_spec(
        executor={"name": "processes"}, resources={"gpu": 1}, limits={"segment_seconds": 60}
    )
    check_shareable([listing, listing])
    for specs in ([plain, listing], [listing, plain], [plain, asking]):
        with pytest.raises(InputError, match="studies that share devices"):
            check_shareable(specs)


# -- modules of the user's ---------------------------------------------------------------------

FUNCTION = "def train(config, *, seed, until):\n    return {value} * config['x']\n"


def function_study(folder, module, value, **changes):
    """A study of a function in a module beside its file."""
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(FUNCTION.format(value=value))
    study = {
        "trainer": f"python:{module}:train",
        "space": {"hyperparameters": {"x": {"type": "float", "lower": 0.0, "upper": 1.0}}},
        "budget": {"runs": 4},
        "seeds": {"tuning": 1, "test": 1},
        "optimizer": "random",
        "executor": {"name": "processes", "workers": 2},
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study | changes))
    return load_spec(folder / "study.yaml", {"name": folder.name})


@pytest.fixture
def imports(monkeypatch):
    """Forget in the end what a test has imported, and where from."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("ours_"):
            del sys.modules[name]


@pytest.mark.usefixtures("imports")
def test_workers_import_a_module_that_only_another_study_has_from_nowhere(tmp_path):
    """A function that imports what lies beside the other study fails as it does alone."""
    first = function_study(tmp_path / "first", "ours_left", 1.0)
    second = function_study(tmp_path / "second", "ours_right", 2.0)
    (tmp_path / "second" / "ours_right.py").write_text(
        "def train(config, *, seed, until):\n    import ours_left\n    return 1.0\n"
    )
    begun = [Study.create(spec, tmp_path / f"study-{spec.name}") for spec in (first, second)]
    left, right = run_together(begun)
    for study in begun:
        study.close()
    assert left.result.test is not None
    assert "No module named 'ours_left'" in str(right.error)
