"""Charts and files: marks hold the numbers of their answer, axes the scale that is searched, intervals are there."""

import re
from pathlib import Path

import numpy as np
import pytest
from analysis_samples import SPACE, write_sample
from refusals import expect_error

from autorl.landscapes import analysis
from autorl.landscapes.analysis import chart_of
from autorl.landscapes.analysis.kinds import SUFFIXES
from autorl.landscapes.analysis.tables import learning_curves
from autorl.report.pages.chart import HeatMap, axis_of, positions
from autorl.space import Hyperparameter
from autorl.statistics.coverage import level_text


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    unit = SPACE.hyperparameters["learning_rate"].to_unit
    folder = tmp_path_factory.mktemp("charts")
    made = []
    for name, shift in (("A-v0", 0.1), ("B-v0", 1.0), ("C-v0", 2.0)):

        def level(config, shift=shift):
            return 100 * unit(config["learning_rate"]) + shift * config["width"]

        made.append(write_sample(folder / name, level, environment=name, configs=40, noise=5.0))
    return made


def test_every_kind_of_analysis_is_documented_and_has_a_chart():
    text = (Path(__file__).parents[3] / "docs/landscapes.md").read_text(encoding="utf-8")
    rows = text.split("| `analyse`, `plot` | says |\n| --- | --- |\n")[1].split("\n\n")[0]
    documented = [row.split("`")[1].split()[0] for row in rows.splitlines()]
    assert sorted(documented) == list(analysis.KINDS)


# What is asked, and by mark: its attribute, and the column of the answer that it holds.
MARKS = {
    ("importance", ()): ["0 values importance"],
    ("budget", ()): ["0 y correlation", "0 band high", "1 y regret"],
    ("values", ("width",)): ["0 y median", "0 band q75", "1 y best"],
    ("noise", ()): ["0 values noise_share"],
    ("redundancy", ()): ["0 values distinct"],
    ("transfer", ()): ["0 values regret"],
}


@pytest.mark.parametrize("asked", MARKS)
def test_marks_hold_the_numbers_of_their_answer(data, asked):
    kind, names = asked
    answer = analysis.analyse(data[0] if analysis.KINDS[kind].landscapes[1] else data, kind, names)
    for mark in MARKS[asked]:
        place, name, column = mark.split()
        held = getattr(chart_of(answer).marks[int(place)], name)
        held = held[1] if name == "band" else held
        assert held.ravel().tolist() == answer.table[column].tolist()


def test_importance_has_names_pairs_and_a_spread_over_trees(data):
    answer = analysis.importance(data[0], interactions=True)
    chart = chart_of(answer)
    (bars,) = chart.marks
    assert chart.y.categories[0] == "learning_rate"
    assert any("×" in name for name in chart.y.categories)
    low, high = bars.interval
    assert (high - bars.values).tolist() == pytest.approx(answer.table.spread.tolist())
    assert (low >= 0).all()
    assert "out-of-bag" in chart.about
    answer = analysis.importance(data[0], "tunability")
    tunability = chart_of(answer)
    assert tunability.marks[0].values.tolist() == answer.table.gain.tolist()
    assert tunability.marks[0].texts[0].startswith("0.001 → ")
    assert tunability.x.label == "gain over the defaults"
    local = chart_of(analysis.importance(data[0], "local"))
    assert local.marks[0].interval is None
    assert "around one configuration" in local.title


def test_dependence_and_surface(data):
    answer = analysis.analyse(data[0], "dependence", ["learning_rate"])
    chart = chart_of(answer)
    assert chart.x.scale == "log"
    assert chart.marks[0].x.tolist() == answer.table["value"].tolist()
    assert chart.marks[0].band[0].tolist() == answer.table.low.tolist()
    chosen = chart_of(analysis.analyse(data[0], "dependence", ["activation"]))
    assert chosen.x.categories == ("tanh", "relu", "silu")
    assert not chosen.marks[0].joined
    surface = analysis.analyse(data[0], "surface", ["learning_rate", "activation"])
    chart = chart_of(surface)
    heat, dots = chart.marks
    assert heat.values.shape == (16, 3)
    # A dot lies where its configuration's values are: learning rates upwards, 16 cells of them.
    rate = data[0].space.hyperparameters["learning_rate"]
    configs = [data[0].config(config_id) for config_id in data[0].grid.config_ids]
    across = [chart.x.categories.index(config["activation"]) for config in configs]
    down = [round(15.5 - 16 * rate.to_unit(config["learning_rate"]), 6) for config in configs]
    drawn = set(zip(dots.x.tolist(), dots.y.round(6).tolist(), strict=True))
    assert drawn <= set(zip(across, down, strict=True))
    assert len(dots.x) == surface.about["configurations"] == 39
    assert chart.x.categories == ("tanh", "relu", "silu")
    # The smallest learning rate is at the bottom.
    assert heat.values[-1, 0] == surface.table["mean"].iloc[0]
    assert "log scale" in chart.y.label


def test_interaction_is_symmetric_with_an_empty_diagonal(data):
    answer = analysis.analyse(data[0], "interaction", ["width", "learning_rate", "target"])
    (heat,) = chart_of(answer).marks
    assert isinstance(heat, HeatMap)
    assert np.isnan(np.diag(heat.values)).all()
    assert np.array_equal(heat.values, heat.values.T, equal_nan=True)
    assert np.nanmax(heat.values) == answer.table.interaction.max()


def test_intervals_lie_around_what_they_are_of(data):
    curves = analysis.analyse(data[0], "curves")
    first = curves.table[curves.table.place == 1]
    everyone, best, *_ = chart_of(curves).marks
    assert everyone.y.tolist() == curves.detail["band"]["median"].tolist()
    assert best.y.tolist() == first["mean"].tolist()
    assert best.band[0].tolist() == first["low"].tolist()
    found = learning_curves(data[0])
    scores = found.values[np.searchsorted(found.config_ids, first.config_id.iloc[0])]
    assert (scores.min(axis=0) <= first["low"]).all()
    assert (first["low"] < first["mean"]).all()
    assert (scores.max(axis=0) >= first["high"]).all()
    assert (first["high"] > first["mean"]).all()
    assert f"mean, {level_text('mean', len(scores))}interval" in chart_of(curves).about
    (bars,) = chart_of(analysis.analyse(data, "noise")).marks
    low, high = bars.interval
    assert ((low <= bars.values) & (bars.values <= high)).all()
    transfer = chart_of(analysis.analyse(data, "transfer"))
    assert transfer.y.categories == ("A-v0", "B-v0", "C-v0")
    assert "chosen on tuning seeds, scored on test seeds" in transfer.about


def test_over_time(data):
    answer = analysis.analyse(data[0], "over-time")
    first = chart_of(answer).marks[0]
    assert first.label == "learning_rate"
    assert first.x.tolist() == [100, 200, 300]
    for step, share in zip(first.x, first.y, strict=True):
        table = analysis.importance(data[0], step=int(step)).table.set_index("hyperparameter")
        assert share == pytest.approx(table.importance["learning_rate"])


def test_subsets_and_tunability(data):
    assert [mark.y[0] for mark in chart_of(analysis.analyse(data, "tunability")).marks] == [1.0] * 3
    sizes = analysis.subset(data)
    best, *_ = chart_of(sizes).marks
    assert best.y.tolist() == (1 - sizes.table[sizes.table.place == 1].error).tolist()
    two = analysis.subset(data, 2, tolerance=10)
    chart = chart_of(two)
    assert chart.marks[0].values.tolist() == (1 - two.table.error).tolist()
    assert chart.y.categories[0] == ", ".join(two.about["best"])


def test_a_landscape_that_is_minimised_says_so(tmp_path):
    data = write_sample(
        tmp_path / "a", lambda config: float(config["width"]), configs=16, direction="minimize"
    )
    answer = analysis.analyse(data, "values", ["width"])
    assert chart_of(answer).y.label == "−eval_return"
    assert answer.table["mean"].max() < 0


def test_a_flipped_logarithm_is_spread_out_near_one():
    item = Hyperparameter.real("gamma", 0.8, 0.9999, scale="flipped_log")
    axis = axis_of(item)
    names = [
        "0.8",
        "0.9",
        "0.95",
        "0.98",
        "0.99",
        "0.995",
        "0.998",
        "0.999",
        "0.9995",
        "0.9998",
        "0.9999",
    ]
    assert [name for _, name in axis.ticks] == names
    assert positions(item, [0.9, 0.99, 0.999]) == pytest.approx([1, 2, 3])
    assert axis_of(Hyperparameter.integer("n", 1, 1024, scale="log")).scale == "log"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_replaces_ours_and_no_other(data, tmp_path, suffix):
    answer = analysis.analyse(data[0], "values", ["width"])
    target = tmp_path / f"a{suffix}"
    first = analysis.save(answer, target).read_bytes()
    second = analysis.save(answer, target).read_bytes()
    if suffix != ".pdf":  # vl-convert numbers its objects anew each time
        assert first == second
    target.write_bytes(b"of somebody else")
    expect_error("is there already", analysis.save, answer, target)
    expect_error("no such folder", analysis.save, answer, tmp_path / "nowhere" / target.name)


def test_a_page_is_complete_and_needs_no_network(data, tmp_path):
    answer = analysis.analyse(data[0], "values", ["width"])
    text = analysis.save(answer, tmp_path / "a.html").read_text()
    assert len(text) < 3_000_000
    asked = re.sub(r"<(script|style)>.*?</\1>", "", text, flags=re.DOTALL)
    assert not re.search(r'(src|href)="(?!data:,")', asked)
    assert "<h1>Scores by value of width</h1>" in text
