"""Figures: what is drawn is what the tables say, files are reproducible, and a missing matplotlib is named."""

import sys

import numpy as np
import pandas as pd
import pytest
from analysis_samples import SPACE, write_sample

from autorl.landscapes.analysis import plots
from autorl.landscapes.analysis.fidelity import budget_correlation, early_choice_regret
from autorl.landscapes.analysis.noise import landscape_noise, seed_noise
from autorl.landscapes.analysis.phases import compare_phases
from autorl.landscapes.analysis.tables import Curves
from autorl.landscapes.analysis.transfer import transfer_regret
from autorl.landscapes.analysis.tunability import tunability_of
from autorl.landscapes.analysis.values import performance_by_value
from autorl.space import Hyperparameter
from autorl.types import InputError

RNG = np.random.default_rng(0)
VALUES = RNG.normal(size=(20, 4, 5)).cumsum(axis=2)
IMPORTANCE = pd.DataFrame(
    {
        "first": ["lr", "lr", "width"],
        "second": [None, "width", None],
        "importance": [0.6, 0.3, 0.1],
        "spread": [0.1] * 3,
    }
)


@pytest.fixture
def drawing():
    pytest.importorskip("matplotlib")


def axes_of(figure):
    return figure.axes[0]


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"pip install 'autorl\[plots\]'"):
        plots.plot_importance(IMPORTANCE)


def test_a_wrong_suffix_is_named(tmp_path):
    with pytest.raises(InputError, match=r"ends in .png, .svg, .pdf; got 'a.gif'"):
        plots.save(None, tmp_path / "a.gif")


def test_wrong_requests_are_named(tmp_path):
    data = write_sample(tmp_path / "a", lambda config: float(config["width"]), configs=6)
    with pytest.raises(InputError, match="did you mean 'importance'"):
        plots.draw(data, "importence")
    with pytest.raises(InputError, match=r"surface takes 2 hyperparameters, got \['width'\]"):
        plots.draw(data, "surface", ["width"])
    with pytest.raises(InputError, match="takes none"):
        plots.draw(data, "budget", step=100)
    with pytest.raises(InputError, match="no phases"):
        plots.draw(data, "phases")


@pytest.mark.usefixtures("drawing")
class TestFigures:
    def test_importance(self):
        axes = axes_of(plots.plot_importance(IMPORTANCE))
        assert [bar.get_width() for bar in axes.patches] == pytest.approx([0.1, 0.3, 0.6])
        assert [tick.get_text() for tick in axes.get_yticklabels()] == ["width", "lr x width", "lr"]
        local = IMPORTANCE.rename(columns={"first": "hyperparameter"})[["hyperparameter", "importance"]]
        assert len(axes_of(plots.plot_importance(local)).patches) == 3

    @pytest.mark.parametrize(
        ("item", "scale"),
        [
            (SPACE.hyperparameters["learning_rate"], "log"),
            (SPACE.hyperparameters["width"], "linear"),
            (Hyperparameter.real("gamma", 0.8, 0.9999, scale="flipped_log"), "function"),
        ],
    )
    def test_dependence_is_on_the_scale_that_is_searched(self, item, scale):
        values = [item.from_unit(unit) for unit in (0.1, 0.5, 0.9)]
        table = pd.DataFrame({"value": values, "mean": [1.0, 2, 3], "low": [0.0, 1, 2], "high": [2.0, 3, 4]})
        axes = axes_of(plots.plot_dependence(table, item))
        assert axes.get_xscale() == scale
        assert axes.lines[0].get_ydata().tolist() == [1, 2, 3]
        assert axes.lines[0].get_xdata().tolist() == values

    def test_dependence_on_choices(self):
        item = SPACE.hyperparameters["activation"]
        table = pd.DataFrame({"value": item.choices, "mean": [1.0, 2, 3], "low": [0.0, 1, 2], "high": [2.0, 3, 4]})
        labels = axes_of(plots.plot_dependence(table, item)).get_xticklabels()
        assert [label.get_text() for label in labels] == ["tanh", "relu", "silu"]

    def test_surface_and_transfer(self):
        index = pd.Index([0.1, 0.2], name="lr")
        surface = pd.DataFrame([[1.0, 2, 3], [4, 5, 6]], index=index, columns=pd.Index(list("abc"), name="act"))
        axes = axes_of(plots.plot_surface(surface))
        assert axes.images[0].get_array().tolist() == surface.to_numpy().tolist()
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("act", "lr")
        found = transfer_regret(RNG.random((9, 3)), ["x", "y", "z"])
        axes = axes_of(plots.plot_transfer(found))
        assert axes.images[0].get_array().tolist() == found.regret.tolist()
        assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "y", "z"]
        phases = compare_phases(RNG.random((3, 6, 2)))
        assert axes_of(plots.plot_phases(phases)).images[0].get_array().tolist() == phases.regret.tolist()

    def test_budget(self):
        correlation, regret = budget_correlation(VALUES)[-1], early_choice_regret(VALUES)
        fractions = np.arange(1, 6) / 5
        table = pd.DataFrame({"fraction": fractions, "correlation": correlation, "regret": regret})
        axes = axes_of(plots.plot_budget(table))
        assert axes.lines[0].get_ydata().tolist() == correlation.tolist()
        assert axes.lines[1].get_ydata().tolist() == regret.tolist()

    def test_values(self):
        configs = [SPACE.sample(np.random.default_rng(number)) for number in range(30)]
        table = performance_by_value(SPACE, configs, RNG.random(30), "activation")
        axes = axes_of(plots.plot_values(table, "activation"))
        assert axes.lines[-1].get_ydata().tolist() == table["best"].tolist()

    def test_tunability_and_noise(self):
        found = {"a": tunability_of([1.0, 2, 3]), "b": tunability_of([1.0, 1, 3])}
        axes = axes_of(plots.plot_tunability(found))
        assert [line.get_ydata().tolist() for line in axes.lines] == [each.curve.tolist() for each in found.values()]
        noise = {"a": seed_noise(VALUES[:, :, 0]), "b": seed_noise(VALUES[:, :, -1])}
        bars = axes_of(plots.plot_noise(noise)).patches
        assert [bar.get_width() for bar in bars] == pytest.approx([each.noise_share for each in noise.values()])

    def test_curves(self):
        curves = Curves(VALUES, np.arange(20), np.arange(4), np.arange(1, 6) * 100)
        axes = axes_of(plots.plot_curves(curves, 7))
        assert len(axes.lines) == 5
        assert axes.lines[-1].get_ydata().tolist() == VALUES[7].mean(axis=0).tolist()
        with pytest.raises(InputError, match="configuration 20 has no score"):
            plots.plot_curves(curves, 20)

    def test_one_call_draws_each_kind_of_a_landscape(self, tmp_path):
        pytest.importorskip("sklearn")
        data = write_sample(tmp_path / "a", lambda config: float(config["width"]), configs=24)
        names = {0: [], 1: ["width"], 2: ["width", "activation"]}
        for kind, count in plots.KINDS.items():
            if kind != "phases":
                assert axes_of(plots.draw(data, kind, names[count], "tuning")).get_title(loc="left")
        shares = axes_of(plots.draw(data, "noise", step=100)).patches
        assert shares[0].get_width() == pytest.approx(landscape_noise(data, step=100).noise_share)

    @pytest.mark.parametrize("suffix", plots.SUFFIXES)
    def test_a_file_is_the_same_every_time(self, tmp_path, suffix):
        written = [plots.save(plots.plot_importance(IMPORTANCE), tmp_path / f"{n}{suffix}") for n in (1, 2)]
        assert written[0].read_bytes() == written[1].read_bytes()
        starts = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
        assert written[0].read_bytes().startswith(starts[suffix])
