"""Parts of the landscape that a study writes: names, units, sampler and machine."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from study_support import small_spec

from autorl.core.types import FrozenMap, InputError
from autorl.landscapes.schema import Tables
from autorl.study.results import landscape
from autorl.study.results.landscape import from_study


def test_a_field_that_no_manifest_has_is_refused(tmp_path):
    with pytest.raises(InputError, match="allowed: description, licence, citation, url") as refused:
        from_study(tmp_path, tmp_path, licence="MIT", author="me")
    assert refused.value.key == "author"


def test_the_sampler_has_its_own_seed_or_the_studys():
    spec = small_spec(seed=7, optimizer={"name": "tpe", "seed": 3})
    assert landscape._sampler(spec) == FrozenMap(name="tpe", seed=3)
    zero = small_spec(seed=7, optimizer={"name": "tpe", "seed": 0})
    assert landscape._sampler(zero) == FrozenMap(name="tpe", seed=0)
    assert landscape._sampler(small_spec(seed=7, optimizer="tpe"))["seed"] == 7
    assert "phases" not in landscape._sampler(spec)
    phases = ["learning_rate", "gamma"]
    of_phases = SimpleNamespace(
        optimizer=SimpleNamespace(name="phases", options={"phases": phases}), seed=1
    )
    assert landscape._sampler(of_phases) == FrozenMap(name="phases", seed=1, phases=phases)


@pytest.mark.parametrize(
    ("units", "unit"),
    [
        (["environment_steps"], "environment_steps"),
        (["optimizer_steps"], "optimizer_steps"),
        (["optimizer_steps", "optimizer_steps"], "optimizer_steps"),
        (["optimizer_steps", "environment_steps"], "environment_steps"),
        ([None], "environment_steps"),
        (["optimizer_steps", None], "environment_steps"),
    ],
)
def test_steps_are_of_the_unit_that_all_trainers_count(monkeypatch, units, unit):
    monkeypatch.setattr(
        landscape.trainers, "installed_info", lambda name: SimpleNamespace(step_unit=units[name])
    )
    parts = {
        str(place): SimpleNamespace(trainer=SimpleNamespace(name=place))
        for place in range(len(units))
    }
    spec = SimpleNamespace(trainer=None, algorithms=parts)
    assert landscape._step_unit(spec) == unit
    if len(units) == 1:
        spec = SimpleNamespace(trainer=SimpleNamespace(name=0), algorithms=None)
        assert landscape._step_unit(spec) == unit


def session(**more):
    return {"version": "1.2", "machine": "x86_64", "cores": 2, **more}


def test_the_machine_is_that_of_the_first_session():
    assert landscape._hardware(session(cpu="znver5 (AMD EPYC)")) == (
        "x86_64, znver5 (AMD EPYC), 2 cores"
    )
    assert landscape._hardware(session()) == "x86_64, 2 cores"
    assert landscape._hardware({"version": "1.2"}) == ""


def test_sessions_name_packages_commit_and_what_changed():
    first = session(source={"commit": "abc", "modified": "no"}, packages={"numpy": "2.0"})
    described = landscape._sessions([first, session(version="1.3")])
    assert described["packages"]["autorl"] == FrozenMap(version="1.2", modified="no")
    assert described["packages"]["numpy"]["version"] == "2.0"
    assert (described["commit"], described["hardware"]) == ("abc", "x86_64, 2 cores")
    assert len(described["notes"]) == 1
    assert described["notes"][0].endswith("1.2, then 1.3.")
    assert landscape._sessions([first])["notes"] == ()
    assert landscape._sessions([]) == {}


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


def tables_of(*runs):
    """Runs of (status, step they begin at, steps trained, last evaluation)."""
    import pandas as pd

    rows = list(enumerate(runs))
    return Tables(
        pd.DataFrame(),
        pd.DataFrame(
            {
                "run_id": [number for number, _ in rows],
                "status": [run[0] for _, run in rows],
                "environment_steps": [float(run[2]) for _, run in rows],
            }
        ),
        pd.DataFrame(
            {"run_id": [number for number, _ in rows], "step": [run[3] for _, run in rows]}
        ),
        pd.DataFrame(
            {"run_id": [number for number, _ in rows], "from_step": [run[1] for _, run in rows]}
        ),
    )


@pytest.mark.parametrize(
    ("runs", "off"),
    [
        ([("done", 0, 100, 100)], (0, 0)),
        ([("done", 0, 108, 100), ("done", 40, 63, 100), ("done", 0, 96, 100)], (-4, 8)),
        ([("done", 0, 100, 100), ("crash", 0, 10, 100)], (0, 0)),
        ([("crash", 0, 10, 100)], (0, 0)),
    ],
)
def test_runs_are_so_many_steps_off_their_nominal_end(runs, off):
    assert landscape._steps_off(tables_of(*runs)) == off


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
