"""The tables of `autorl/population/*.py` are the only place that lists hyperparameters."""

import importlib
from pathlib import Path

import pytest
from population_helpers import CARTPOLE, make, trained_in_python

from autorl.core.types import InputError
from autorl.population import a2c, engine, export, ppo
from autorl.population.hyperparameters import Fixed, Setting, read_back, record
from autorl.population.sb3_arguments import sb3_arguments
from autorl.space import load_space

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "population-engine.md"
SMALL = {"n_steps": 4, "batch_size": 4, "n_epochs": 1, "net_width": 2}


def table() -> str:
    """Every hyperparameter of the engine with its default for each algorithm that has it."""
    algorithms = [engine.find_algorithm(name) for name in engine.ALGORITHMS]
    names = dict.fromkeys(name for algorithm in algorithms for name in algorithm.settings)
    rows = [["hyperparameter", *(f"`{algorithm.name}`" for algorithm in algorithms)]]
    rows.append(["---"] * len(rows[0]))
    for name in names:
        defaults = [algorithm.settings.get(name) for algorithm in algorithms]
        rows.append([f"`{name}`", *("" if one is None else shown(one.default) for one in defaults)])
    return "\n".join(" | ".join(["", *row, ""]).strip() for row in rows)


def shown(default) -> str:
    return str(default).lower() if isinstance(default, bool) else f"{default}"


def test_the_page_has_the_table():
    assert table() in PAGE.read_text(encoding="utf-8"), f"put this into {PAGE.name}:\n{table()}"


@pytest.mark.parametrize("name", engine.ALGORITHMS)
def test_search_spaces_have_these_defaults(name):
    settings = engine.find_algorithm(name).settings
    space = load_space(f"population/{name}")
    searched = {one.name: one.default for one in space.hyperparameters.values()}
    # A memory of a million transitions is more than these tasks fill.
    others = {"learning_rate.shape", "learning_rate.end", "buffer_size"}
    assert {key: value for key, value in searched.items() if key not in others} == {
        key: settings[key].default for key in searched if key not in others
    }


@pytest.fixture(params=[None, "argument"])
def added(request, monkeypatch):
    """A hyperparameter that stands in the table of PPO alone; a place in Stable-Baselines3."""
    setting = Setting(0.5, lower=0.0, sb3=request.param, sb3_note="" if request.param else "why")
    monkeypatch.setitem(ppo.HYPERPARAMETERS, "advantage_clip", setting)
    importlib.reload(a2c)
    yield request.param
    monkeypatch.undo()
    importlib.reload(a2c)


def test_a_hyperparameter_is_added_in_one_place(added):
    pytest.importorskip("stable_baselines3")
    config = {**SMALL, "advantage_clip": 0.25}
    assert "| `advantage_clip` | 0.5 | 0.5 |  |  |  |  |" in table()
    state = trained_in_python("ppo", 3, 1, CARTPOLE, **config)
    assert engine.steps(state) == 4
    algorithm, hp, _ = make("ppo", 3, **config)
    assert read_back(algorithm.settings, hp, config, 4)["advantage_clip"] == 0.25
    of_a2c = record(a2c.ALGORITHM.settings, {"advantage_clip": 0.25}, 1000)
    assert a2c.as_ppo(of_a2c).advantage_clip == 0.25
    if added is None:
        assert export.to_sb3(algorithm, state, CARTPOLE, hp).n_steps == 4
        (note,) = sb3_arguments(algorithm, hp).notes
        assert note == "Stable-Baselines3 has no advantage_clip=0.25: why"
        assert sb3_arguments(algorithm, make("ppo", 3)[1]).notes == (), "its default does nothing"
    else:
        match = r"advantage_clip of PPO .* `sb3` in autorl/population/ppo.py"
        with pytest.raises(InputError, match=match):
            export.to_sb3(algorithm, state, CARTPOLE, hp)


def test_a_special_case_has_what_the_table_says():
    settings = a2c.ALGORITHM.settings
    assert not {
        name for name, one in ppo.HYPERPARAMETERS.items() if isinstance(one.case, Fixed)
    } & set(settings)
    assert (settings["n_steps"].default, settings["gamma"].default) == (5, 0.99)
    hp = record(settings, {"n_steps": 8, "n_envs": 2, "rms_prop_eps": 1e-3}, 1000)
    made = a2c.as_ppo(hp)
    assert (made.n_epochs, made.optimizer_eps, made.n_steps) == (1, 1e-3, 8)
    assert made.batch_size >= 16
    assert made.clip_range == made.target_kl == float("inf")
