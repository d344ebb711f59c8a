"""compare DIR DIR: refusals that name what differs, scores in pairs, and the page."""

import json
import re
import subprocess
import sys
from html import escape

import numpy as np
import pytest
from report_support import STUDY, run_study

from autorl.core.types import InputError
from autorl.report.studies import compare_studies, comparison_html, protocol_differences
from autorl.statistics import iqm
from autorl.study.budget import Spent
from autorl.study.spec import load_spec


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("compared")
    return {name: run_study(root / name, optimizer=name) for name in ("random", "sobol")} | {
        "root": root
    }


def test_a_pair_is_compared_on_the_seeds_it_shares(folders):
    comparison = compare_studies([folders["random"], folders["sobol"]])
    (pair,) = comparison.pairs
    scores = {study.name: study.scores for study in comparison.studies}
    first, second = (scores[name] for name in (pair.first, pair.second))
    assert pair.paired
    assert pair.shared_seeds == tuple(sorted(first)) == (100, 101, 102, 103, 104)
    assert pair.difference == pytest.approx(iqm(list(first.values())) - iqm(list(second.values())))
    assert pair.difference >= 0  # the best test score is first
    better = [np.sign(a - b) for a in first.values() for b in second.values()]
    assert pair.improvement == pytest.approx(np.mean([(sign + 1) / 2 for sign in better]))
    assert comparison.differences == ()
    other_way = compare_studies([folders["sobol"], folders["random"]])
    assert comparison.pairs == other_way.pairs
    assert [study.name for study in comparison.studies] == [
        study.name for study in other_way.studies
    ]
    with pytest.raises(InputError, match="at least two studies, got 1"):
        compare_studies([folders["random"], folders["random"]])


UNEQUAL = {
    "budget": ({"budget": {"runs": 8}}, "budget (random: 16 runs; other: 8 runs)"),
    "space": (
        {"space": {"x": {"type": "float", "lower": 0.0, "upper": 2.0, "changeable": True}}},
        "space (random: 1 hyperparameter; other: other x)",
    ),
    "tuning": (
        {"seeds": {"tuning": [0, 2], "test": 5}},
        "tuning seeds (random: [0, 1]; other: [0, 2])",
    ),
    "test": (
        {"seeds": {"tuning": 2, "test": [100, 101, 102, 203, 204]}},
        "test seeds (random: [100, 101, 102, 103, 104]; other: [100, 101, 102, 203, 204])",
    ),
    "length": (
        {"fidelity": {"steps": 200, "evaluations": 5}, "budget": {"runs": 16}},
        "length (random: 100 steps; other: 200 steps)",
    ),
    "score": (
        {"objective": {"metric": "eval_return", "reduce": "auc"}},
        "score (random: last of a run, mean over seeds; other: auc of a run, mean over seeds)",
    ),
}


def test_the_space_of_another_trainer_is_no_difference():
    """PPO and SAC at equal budgets are an equal comparison; two spaces of PPO are none."""
    study = {
        "environment": "Pendulum-v1",
        "fidelity": {"steps": 20_000, "evaluations": 4},
        "budget": {"runs": 8},
        "optimizer": "random",
    }
    ppo, sac = (
        load_spec({**study, "trainer": f"population/{name}", "space": f"population/{name}-small"})
        for name in ("ppo", "sac")
    )
    spent = Spent(0, 0, 0.0, 0.0)
    assert protocol_differences({"ppo": (ppo, spent), "sac": (sac, spent)}) == []
    other = ppo.changed(space={"learning_rate": "log(1e-4, 1e-2)"})
    found = protocol_differences({"ppo": (ppo, spent), "sac": (sac, spent), "o": (other, spent)})
    assert [it.part for it in found] == ["space"]


@pytest.mark.parametrize("part", UNEQUAL)
def test_unequal_protocols_are_refused_in_a_line_that_names_what_differs(folders, tmp_path, part):
    changes, expected = UNEQUAL[part]
    other = run_study(tmp_path / "other", **changes)
    with pytest.raises(InputError) as refused:
        compare_studies([folders["random"], other])
    assert str(refused.value) == (
        f"studies differ in {expected}; --unequal compares them and says so"
    )
    told = compare_studies([folders["random"], other], unequal=True)
    assert [difference.text for difference in told.differences] == [expected]
    page = comparison_html(told)
    assert page.index("Not an equal comparison") < page.index('<div class="headline')
    assert page.index(escape(expected)) < page.index("<table>")


def test_test_seeds_that_are_not_shared_are_no_pairs(folders, tmp_path):
    other = run_study(tmp_path / "other", seeds={"tuning": 2, "test": [200, 201, 202, 203, 204]})
    (pair,) = compare_studies([folders["random"], other], unequal=True).pairs
    assert not pair.paired
    assert pair.shared_seeds == ()


def test_other_metrics_are_refused_whatever_is_said(folders, tmp_path):
    objective = {"metric": "environment_steps", "direction": "minimize"}
    other = run_study(tmp_path / "other", objective=objective)
    with pytest.raises(InputError, match="cannot be compared: they differ in objective"):
        compare_studies([folders["random"], other], unequal=True)


def test_less_is_better_puts_the_smallest_first(tmp_path):
    objective = {"metric": "eval_return", "direction": "minimize"}
    studies = [
        run_study(tmp_path / name, optimizer=name, objective=objective)
        for name in ("random", "sobol")
    ]
    comparison = compare_studies(studies)
    first, second = (study.result.test.iqm for study in comparison.studies)
    assert first <= second
    (pair,) = comparison.pairs
    assert pair.difference == pytest.approx(first - second)
    assert pair.interval.low <= pair.difference <= pair.interval.high


def test_the_page_has_its_charts_and_keeps_hostile_names_as_text(folders, tmp_path):
    hostile = run_study(tmp_path / "<script>alert(1)<script>")
    page = comparison_html(compare_studies([folders["random"], hostile]))
    assert page.count("<script") == 2  # the library and our own
    assert "&lt;script&gt;" in page
    assert set(re.findall(r'data-chart="([^"]*)"', page)) == {"seeds", "curves", "cost"}
    assert str(tmp_path) not in page


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "autorl", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_reads_folders_of_studies_and_writes_the_page(folders, tmp_path):
    page = tmp_path / "deep" / "c.html"
    done = command("compare", folders["root"], "--html", page, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {study["study"] for study in document["studies"]} == {"random", "sobol"}
    assert document["unequal"] == []
    assert "Anytime curves" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--repeats", 2], "--repeats: is for a study file"),
        (["--out", "x"], "--out: is for a study file"),
    ],
)
def test_options_of_the_other_comparison_are_refused(folders, arguments, message):
    done = command("compare", folders["random"], folders["sobol"], *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert STUDY["name"] not in done.stdout
