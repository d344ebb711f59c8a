"""The tables of `autorl/population/*.py` are the only place that lists hyperparameters."""

import importlib
import math
from pathlib import Path

import numpy as np
import pytest
from population_helpers import (
    CARTPOLE,
    OFF_POLICY,
    PENDULUM,
    TWO,
    advanced,
    make,
    same,
    trained_in_python,
)

from autorl.core.types import InputError
from autorl.population import a2c, engine, export, ppo, td3
from autorl.population.hyperparameters import Setting, read_back, record
from autorl.population.networks import hidden_widths
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


@pytest.mark.parametrize("kind", ["normal", "ornstein-uhlenbeck"])
def test_exploration_noise_is_that_of_stable_baselines3s_class(kind, monkeypatch):
    noises = pytest.importorskip("stable_baselines3.common.noise")
    name = {"normal": "NormalActionNoise", "ornstein-uhlenbeck": "OrnsteinUhlenbeckActionNoise"}
    theirs = getattr(noises, name[kind])(np.zeros(2), np.full(2, 0.7), dtype=np.float64)
    _, hp, state = make("td3", 3, TWO, np.float64, noise_type=kind, noise_std=0.7)
    waiting = list(np.random.default_rng(1).normal(size=(50, 2)))
    monkeypatch.setattr(
        "numpy.random.normal", lambda mean=0.0, scale=1.0, size=None: mean + scale * waiting.pop(0)
    )
    ours = state["exploration"].noise[0]
    for draws in list(waiting):
        expected = theirs()
        noise = [td3.exploration_noise(ours, i, hp.noise_type, 0.7, draws[i]) for i in range(2)]
        np.testing.assert_allclose(noise, expected, rtol=1e-12, atol=1e-15)


_ROLLOUT = {"n_envs": 3, "n_steps": 6, "net_width": 9, "learning_rate": 1e-2, "ent_coef": 0.01}
_OF_A2C = {"n_epochs": 1, "batch_size": 18, "clip_range": math.inf, "gae_lambda": 1.0}
_OF_A2C |= {"normalize_advantage": False}
_RMSPROP = {"optimizer": "rmsprop", "optimizer_eps": 3e-6}
_REPLAY = {**OFF_POLICY, "noise_std": 0.2}
_OF_DDPG = {"policy_delay": 1, "n_critics": 1, "target_noise_clip": 0.0, "target_policy_noise": 0.0}
# The special case, its own hyperparameters, the general algorithm with those that make it, shared.
SPECIAL = [
    ("ddpg", {}, "td3", _OF_DDPG, _REPLAY, PENDULUM),
    ("a2c", {"rms_prop_eps": 3e-6}, "ppo", _OF_A2C | _RMSPROP, _ROLLOUT, CARTPOLE),
    ("a2c", {"use_rms_prop": False}, "ppo", _OF_A2C, _ROLLOUT, CARTPOLE),
]


@pytest.mark.parametrize(("name", "own", "general", "made", "shared", "environment"), SPECIAL)
def test_a_special_case_trains_as_the_general_algorithm(
    name, own, general, made, shared, environment
):
    special = advanced(name, 8, (5,), environment, **shared, **own)
    assert same(special, advanced(general, 8, (5,), environment, **shared, **made))


@pytest.mark.parametrize("name", ["a2c", "td3", "ddpg"])
def test_defaults_are_those_of_stable_baselines3s_constructor(name):
    import inspect

    library = pytest.importorskip("stable_baselines3")
    parameters = inspect.signature(getattr(library, name.upper())).parameters
    settings = engine.find_algorithm(name).settings
    shared = set(settings) & set(parameters)
    assert len(shared) >= 8
    assert {key: settings[key].default for key in shared} == {
        key: parameters[key].default for key in shared
    }
    if name != "a2c":
        assert hidden_widths(int(settings["net_width"].encode("net_width", "400-300")), 2) == (
            400,
            300,
        )
