"""Changes between the sessions of a study are one line in `resume`, `watch`, the result and the
report."""

import hashlib
import json
import sqlite3
import sys
from pathlib import Path

import pytest
import yaml
from small_studies import SMALL
from typer.testing import CliRunner

from autorl.cli import app
from autorl.core.seeds import SeedPlan
from autorl.report.html import report_html
from autorl.report.reading import open_view
from autorl.store.provenance import _recorded_hash
from autorl.store.sessions import changes, changes_text
from autorl.study import Study
from autorl.study.results.landscape import read_study
from autorl.study.session import installed_version, session, user_files
from autorl.study.spec import load_spec
from autorl.study.tuner import tune

CHANGED = "sessions computed with other code, so one session may give another table: "


def small(folder, **changes):
    path = folder / "small.yaml"
    study = SMALL | {"fidelity": {"steps": 10, "evaluations": 2}, "budget": {"runs": 4}}
    path.write_text(yaml.safe_dump(study | changes))
    return path


def autorl(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.fixture
def other_numba(tmp_path, monkeypatch):
    """Another version of Optuna, as package tools see it; gives (installed version, other version)."""
    from importlib.metadata import version

    installed = version("numba")
    metadata = tmp_path / "site" / "numba-0.0.7.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: numba\nVersion: 0.0.7\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    assert version("numba") == "0.0.7"
    for looked_up in (installed_version, _recorded_hash):
        looked_up.cache_clear()
    yield installed, "0.0.7"
    for looked_up in (installed_version, _recorded_hash):
        looked_up.cache_clear()


def test_another_version_is_said_by_resume_status_result_and_report(tmp_path, monkeypatch, request):
    folder = tmp_path / "study"
    assert autorl("tune", small(tmp_path), "--out", folder, "-q").exit_code == 0
    assert CHANGED not in autorl("watch", folder, "--once").output
    line = CHANGED + "numba {}, then {}".format(*request.getfixturevalue("other_numba"))
    resumed = autorl("resume", folder, "--runs", "+4", "-q")
    assert resumed.exit_code == 0
    assert f"caution: {line}" in resumed.stderr.splitlines()
    assert f"  caution: {line}" in resumed.stdout.splitlines()
    assert line in autorl("watch", folder, "--once").stdout
    assert line in json.loads(autorl("watch", folder, "--json").stdout)["warnings"]
    assert line in json.loads(autorl("resume", folder, "-q", "--json").stdout)["caveats"]
    view = open_view(folder)
    assert line in report_html(view)
    assert line.partition(": ")[2] in " ".join(read_study(folder).manifest.notes)


def test_an_edited_function_and_an_edited_script_are_named(tmp_path):
    (tmp_path / "mine.py").write_text("def f(config, *, seed):\n    return config['x']\n")
    spec = load_spec(
        small(
            tmp_path,
            trainer="python:mine:f",
            fidelity={"steps": 10, "evaluations": 1},
            objective={},
        )
    )
    before = session(spec, user_files(spec))
    (tmp_path / "mine.py").write_text("def f(config, *, seed):\n    return 2 * config['x']\n")
    after = session(spec, user_files(spec))
    assert list(changes([before, after])) == ["mine.py"]
    (tmp_path / "train.sh").write_text("true\n")
    command = {
        "name": "command",
        "kwargs": {"command": "bash train.sh {seed} {until} {x}", "metrics": {}},
    }
    assert list(user_files(load_spec(small(tmp_path, trainer=command)))) == ["train.sh"]
    command["kwargs"]["command"] = (
        f"{sys.executable} {tmp_path / 'train.sh'} {{seed}} {{until}} {{x}}"
    )
    assert list(user_files(load_spec(small(tmp_path, trainer=command)))) == ["train.sh"]
    by_file = load_spec(small(tmp_path, trainer=f"python:{tmp_path / 'mine.py'}:f", objective={}))
    assert list(user_files(by_file)) == ["mine.py"]


def test_a_session_records_the_file_of_a_function_given_to_tune(tmp_path):
    space = {"x": {"type": "float", "lower": 0.0, "upper": 1.0}}
    plan = SeedPlan(1, 0)
    tune(lambda config, *, seed: 1.0, space, runs=1, seeds=plan, out=tmp_path / "study")
    view = open_view(tmp_path / "study")
    (facts,) = view.sessions()
    file = Path(__file__)
    assert facts["files"] == {file.name: hashlib.sha256(file.read_bytes()).hexdigest()}


def test_every_kind_of_change_is_named_once():
    first = {
        "version": "1",
        "python": "3.11.1",
        "packages": {"numpy": "2.0", "torch": "2.4"},
        "cpu": "znver4 (A)",
    }
    first["source"] = {"sha256": "a" * 64}
    assert changes([first, first]) == {}
    assert changes_text([first, first]) is None
    code = first | {"source": {"sha256": "b" * 64}}
    assert changes([first, code]) == {"autorl's code": ("aaaaaaaa", "bbbbbbbb")}
    assert changes([first, code | {"version": "2"}]) == {"autorl": ("1", "2")}
    other = first | {"python": "3.12.0", "packages": {"numpy": "2.1"}, "cpu": "znver5 (B)"}
    assert changes_text([first, other, first]) == (
        f"{CHANGED}Python 3.11.1, then 3.12.0, then 3.11.1; the CPU znver4 (A), then znver5 (B), then znver4 (A); "
        "numpy 2.0, then 2.1, then 2.0"
    )


def test_the_session_records_what_touches_results(tmp_path):
    study = Study.create(load_spec(small(tmp_path)), tmp_path / "study")
    study.run()
    study.close()
    with sqlite3.connect(tmp_path / "study" / "study.sqlite") as connection:
        ((text,),) = connection.execute("SELECT body FROM event WHERE kind = 'session'")
    facts = json.loads(text)["facts"]
    expected = {"numpy", "scipy", "numba", "ConfigSpace", "gymnasium", "pandas"}
    assert expected <= set(facts["packages"])
    assert facts["source"]["sha256"]
    assert facts["cpu"]
