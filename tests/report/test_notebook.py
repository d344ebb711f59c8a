"""What notebooks show of values: tables with text escaped, charts as pictures, progress in place."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import autorl
from autorl.landscapes.analysis import analyse, chart_of
from autorl.study import Progress
from autorl.study.spec import load_spec

ROOT = Path(__file__).parents[2]
STUDY = {
    "name": "bowl",
    "note": "<b>mine</b>",
    "trainer": {"name": "synthetic", "kwargs": {"optimum": {"x": 0.7}, "noise": 0.1}},
    "space": {"x": "uniform(0, 1)"},
    "fidelity": {"steps": 90, "evaluations": 3},
    "optimizer": "sobol",
    "budget": {"configurations": 8},
    "seeds": {"tuning": 2, "test": 3},
}
PICTURE = 'src="data:image/svg+xml;base64,'


def test_a_space_is_a_table_with_its_rules():
    space = autorl.load_space(
        {
            "hyperparameters": {"policy": ["<script>", "b"], "n": "int(1, 8)", "m": "int(1, 8)"},
            "constraints": ["n * m <= 1000"],
        }
    )
    shown = space._repr_html_()
    assert "<td>int</td>" in shown.replace('"', "").replace(" class=number", "")
    assert "n * m &lt;= 1000" in shown
    assert "&lt;script&gt;" in shown
    assert "<script" not in shown


def test_a_study_its_result_and_its_landscape_show_what_they_have(tmp_path):
    study = autorl.Study.in_memory(load_spec(STUDY))
    assert "No proposal has been scored yet" in study._repr_html_()
    study.run()
    autorl.tune(STUDY, out=tmp_path / "bowl")
    with_folder = autorl.Study.open(str(tmp_path / "bowl"))
    shown = [study._repr_html_(), with_folder._repr_html_()]
    with_folder.close()
    assert shown[0] == shown[1]
    assert shown[0].count(PICTURE) == 2
    assert "&lt;b&gt;mine" in shown[0]
    assert "sobol, finished" in shown[0]
    data = autorl.load_landscape(tmp_path / "bowl")
    answer = analyse(data, "budget")
    for value in (autorl.tune(STUDY), data, answer, chart_of(answer)):
        text = value._repr_html_()
        assert text.count(PICTURE) == 1
        assert "<script" not in text


def test_progress_takes_the_place_of_what_was_shown(monkeypatch):
    said = []
    shown = SimpleNamespace(update=said.append)
    display = SimpleNamespace(HTML=str, display=lambda text, display_id: said.append(0) or shown)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    show = autorl.LiveProgress()
    for settled in (1, 1, 2):
        show(Progress("search", 4, settled, 2, 3, settled / 4, -1.5, 0, 0.1))
    bar = '<progress max="1" value="0.500"></progress>'
    text = "search: 2 proposals done, proposal 0 has -1.5 (tuning)"
    assert said == [0, f"{bar} {text}"]


def test_the_notebook_runs_and_shows_tables_and_plots(tmp_path):
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(ROOT / "examples" / "notebook.ipynb", 4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, resources=resources).execute()
    shown = [
        output["data"]["text/html"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "text/html" in output.get("data", {})
    ]
    assert ["<table" in text for text in shown] == [True, False, True, True, True, True]
    assert ["<progress" in text for text in shown] == [False, True, False, True, False, False]
    assert [text.count(PICTURE) for text in shown] == [0, 0, 1, 2, 1, 1]
    assert 'value="1.000"' in shown[1]
