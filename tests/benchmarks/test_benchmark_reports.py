"""Reports of `benchmarks/`: names, ranks, comparisons, kept cells."""

import arlbench_replay
import asking
import cells
import comparisons
import numpy as np
import optimizers_live as live
import optimizers_report
import optimizers_tables
import pytest
import rlhf
from cells import Cell, Raw
from comparisons import Share, Summary, label, ranked

from autorl import optimizers
from autorl.core.types import Config


def test_every_optimizer_that_learns_is_named_without_its_model():
    learning = {name for name in optimizers.names() if optimizers.find(name).learns}
    originals = {name for name in comparisons.WITHOUT_MODEL if name not in optimizers.names()}
    assert set(comparisons.WITHOUT_MODEL) - originals == learning
    assert originals == set(optimizers_tables.ORIGINALS)


def test_what_an_original_tried_is_counted_as_proposals_are():
    tried = [optimizers_tables.Tried(Config(x=number), informed=number > 0) for number in (0, 1, 1)]
    assert asking.count(tried) == {"informed": 1, "new": 2}


@pytest.mark.parametrize(
    ("method", "found", "name"),
    [
        ("tpe", Share(0, 16), "tpe (0 of 16 by the model: random search)"),
        ("bohb", Share(3, 26), "bohb (3 of 26 by the model: mostly hyperband)"),
        ("smac x", Share(2.5, 8), "smac x (2.5 of 8 by the model: mostly a Sobol design)"),
        ("tpe", Share(8, 16), "tpe"),
        ("random, 320 runs", Share(0, 320), "random, 320 runs"),
    ],
)
def test_a_row_names_what_ran(method, found, name):
    assert label(method, found) == name


def test_what_never_left_its_start_up_is_not_ranked():
    values = {"random": [1.0, 2.0], "tpe": [9.0, 9.0], "gp": [3.0, 1.0]}
    scores = {method: np.array(scores) for method, scores in values.items()}
    found = {"random": Share(0, 16), "tpe": Share(0, 16), "gp": Share(1, 16)}
    assert [ranked(method, found[method]) for method in scores] == [True, False, True]
    ranks = optimizers_report.mean_ranks(scores, found)
    assert ranks == {"random": 1.5, "gp": 1.5}
    assert optimizers_report.in_order(list(scores), ranks) == ["random", "gp", "tpe"]


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-1.0, 2.0, "not told apart"),
        (0.0, 2.0, "not told apart"),
        (0.1, 2.0, "above"),
        (-2.0, -0.1, "**below**"),
    ],
)
def test_an_interval_that_holds_0_tells_nothing_apart(low, high, verdict):
    assert Summary((low + high) / 2, low, high).verdict == verdict


def test_comparisons_with_a_baseline_are_corrected_for_their_number():
    baseline = np.arange(10.0)
    better = baseline + np.arange(1.0, 11.0)
    alone = comparisons.corrected({"random": baseline, "a": better}, "random")
    assert alone == {"a": pytest.approx(2 / 2**10)}
    scores = {"random": baseline, "a": better, "b": better, "same": baseline}
    several = comparisons.corrected(scores, "random")
    assert several == {"a": pytest.approx(6 / 2**10), "b": pytest.approx(6 / 2**10), "same": 1.0}


# -- kept cells --------------------------------------------------------------------------------------------------------


def test_cells_of_other_code_are_kept_but_not_taken_up(tmp_path):
    path, cell = tmp_path / "raw.jsonl", Cell("live", "task", "tpe", 0)
    old = Raw(path, "old")
    old.keep(cell, {"test": [1.0], "seconds": 30.0})
    new = Raw(path, "new")
    assert cell in old
    assert cell not in new
    new.keep(cell, {"test": [2.0], "seconds": 60.0})
    assert [Raw(path, code).value(cell, "test") for code in ("old", "new")] == [1.0, 2.0]
    assert len(path.read_text().splitlines()) == 2


def test_a_cell_that_a_kill_has_cut_is_measured_again(tmp_path):
    path = tmp_path / "raw.jsonl"
    cells = [Cell("live", "task", "tpe", repeat) for repeat in range(3)]
    raw = Raw(path, "code")
    for cell in cells[:2]:
        raw.keep(cell, {"test": [1.0], "seconds": 30.0})
    path.write_text(path.read_text()[:-5])
    again = Raw(path, "code")
    assert [cell in again for cell in cells] == [True, False, False]
    again.keep(cells[2], {"test": [3.0], "seconds": 30.0})
    assert [cell in Raw(path, "code") for cell in cells] == [True, False, True]


def test_the_code_version_ignores_what_only_prints_and_sees_what_measures(monkeypatch, tmp_path):
    for name, text in {"measuring": "A = 1\n", "other": "A = 1\n"}.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr(cells, "HERE", tmp_path)
    # Parsing ours takes 4 seconds.
    monkeypatch.setattr("autorl.__file__", str(tmp_path / "package" / "__init__.py"))

    def version(*names):
        cells.code_version.cache_clear()
        return cells.code_version(*names)

    before = version("measuring")
    assert version("measuring") == before
    (tmp_path / "other.py").write_text("A = 2\n")
    (tmp_path / "measuring.py").write_text('"""Says more."""\nA = 1  # one\n')
    assert version("measuring") == before
    (tmp_path / "measuring.py").write_text("A = 2\n")
    assert version("measuring") != before
    cells.code_version.cache_clear()


# -- the whole report --------------------------------------------------------------------------------------------------


def live_cells(methods, repeats=4):
    rng = np.random.default_rng(0)
    raw, wanted = Raw(None, "code"), []
    for task in list(live.TASKS)[:2]:
        for method, informed in methods.items():
            for repeat in range(repeats):
                wanted.append(Cell("live", task, method, repeat))
                raw.keep(wanted[-1], {
                    "test": rng.uniform(0, 400, 3).tolist(), "worst": 5.0, "tuning": 400.0, "default": 100.0,
                    "steps": 1e6, "informed": informed, "new": 16,
                })  # fmt: skip
    return raw, wanted


def test_the_live_report_labels_and_leaves_unranked_what_was_random_search():
    raw, wanted = live_cells({"random": 0, "tpe": 0, "bohb": 3, "smac": 12})
    text = optimizers_report.report(raw, wanted, ["live"], ray=False)
    rows = [line for line in text.splitlines() if line.startswith("| tpe")]
    assert len(rows) == 3, "two tasks and all of them"
    name = "| tpe (0 of 16 by the model: random search) | 4 | 0 of 16 |"
    assert all(line.startswith(name) for line in rows)
    assert [line.split(" | ")[-2].strip() for line in rows[:2]] == ["-", "-"]
    assert rows[2].endswith("| - |")
    assert "| bohb (3 of 16 by the model: mostly hyperband) |" in text
    assert "| smac | 4 | 12 of 16 |" in text
    assert "the 3 comparisons of a table" in text
    assert text.count(f"| {optimizers_report.DEFAULT} |") == 2


# -- ARLBench ----------------------------------------------------------------------------------------------------------


def replayed(tasks=6):
    """A table of results in which one engine never left its start-up."""
    rng = np.random.default_rng(0)
    counts = {"random": (0, 32), "tpe": (0, 32), "smac": (24, 32), "SMAC3, forest": (18, 32)}
    counts["random, 320 runs"] = (0, 320)
    results = []
    for number in range(tasks):
        engines = {}
        for name, (informed, new) in counts.items():
            figures = {"informed": informed, "new": new, "seconds": 60.0}
            engines[name] = {"judged": rng.random(5).tolist(), **figures}
        published = {title: rng.random(5).tolist() for title in arlbench_replay.PUBLISHED.values()}
        scores = {name: record["judged"] for name, record in engines.items()} | published
        spent = dict.fromkeys(arlbench_replay.PUBLISHED, 32.0)
        results.append({
            "task": f"task {number}", "correlation": 0.8, "spent": spent, "agreement": spent, "engines": engines,
            "scores": scores | {arlbench_replay.RECORDED: rng.random(5).tolist()},
        })  # fmt: skip
    return arlbench_replay.Table(results)


def test_arlbench_is_compared_like_for_like_first():
    text = arlbench_replay.report(replayed())
    overview, like, random, published = text.split("\n| optimizer |")[1:5]
    tpe = next(line for line in overview.splitlines() if line.startswith("| tpe"))
    assert tpe.startswith("| tpe (0 of 32 by the model: random search) | 32 | 0 of 32 |")
    assert tpe.endswith("| - | - |")
    assert "| smac | 32 | 24 of 32 |" in overview
    assert "Like for like, against SMAC3, forest" in overview
    assert "the 3 comparisons of" in " ".join(overview.split())
    assert "320 runs" not in like
    assert "random search on recorded runs" not in like
    assert {line.split(" | ")[-1].removesuffix(" |") for line in like.splitlines() if line.startswith("| smac")} <= {
        "above", "**below**", "not told apart",
    }  # fmt: skip
    assert "| SMAC3, forest |" in random
    assert "rank of SMAC" in published


# -- RLHF --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("informed", "name"), [(0, "tpe (0 of 8 by the model: random search)"), (6, "tpe")]
)
def test_rlhf_says_what_tuned_and_what_its_intervals_cover(informed, name):
    given = rlhf.options(["--parts", "methods", "pbt", "--repeats", "2"])
    rng, raw = np.random.default_rng(0), Raw(None, "code")
    for cell in rlhf.wanted(given):
        raw.keep(cell, {
            "test": rng.random(6).tolist(), "tuning": 0.5, "default": 0.4, "changes": 0, "steps": 1152.0,
            "completions": 100.0, "tokens": 100.0, "informed": informed, "new": 8, "seconds": 100.0,
            "beside": {"kl": 1.0, "proxy": 2.0, "reference_gold": 0.1},
        })  # fmt: skip
    text = rlhf.report(raw, given)
    assert f"(tuned by {name})" in text
    assert f"| 0 | trl/ppo | {informed} of 8 |" in text
    assert text.count("test seeds of these searches: not told apart. By repeat: ") == 2
