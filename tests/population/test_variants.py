"""Variants of the engine's environments: their equations, noise, names, and what is refused."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from numba import njit
from population_helpers import SMALL, make
from refusals import expect_error

from autorl.core.types import EnvironmentSpec, FrozenMap
from autorl.population import engine
from autorl.population.environments import ENVIRONMENTS, Environment, find_environment
from autorl.population.gymnasium_variants import make as make_gymnasium
from autorl.population.variants import NATIVE, PARAMETERS, Variant, landscape_name, variant

# Parameters of a variant, and the attributes of Gymnasium's environment that they are.
_CARTPOLE = {"gravity": 5.0, "masscart": 2.0, "masspole": 0.4, "length": 0.9, "force_mag": 14.0}
_CARTPOLE |= {"tau": 0.03}
_CAR, _POWER = {"force": 0.0013, "gravity": 0.0021}, {"power": 0.0023}
_PENDULUM = {"g": 5.0, "m": 0.6, "l": 1.4, "max_torque": 3.0, "max_speed": 6.0, "dt": 0.04}
_LINKS = {"link_length_1": 1.3, "link_mass_1": 0.7, "link_mass_2": 1.9, "link_moi": 1.2}
CHANGED = {
    "Acrobot-v1": (
        {**_LINKS, "link_com_1": 0.6, "link_com_2": 0.3, "torque": 2.5},
        {name.upper(): value for name, value in _LINKS.items()}
        | {"LINK_COM_POS_1": 0.6, "LINK_COM_POS_2": 0.3, "AVAIL_TORQUE": [-2.5, 0.0, 2.5]},
    ),
    "CartPole-v1": (_CARTPOLE, _CARTPOLE | {"total_mass": 2.4, "polemass_length": 0.4 * 0.9}),
    "MountainCar-v0": (_CAR, _CAR),
    "MountainCarContinuous-v0": (_POWER, _POWER),
    "Pendulum-v1": (_PENDULUM, _PENDULUM),
}
SPREAD = {
    "Acrobot-v1": [np.pi, np.pi, 4 * np.pi, 9 * np.pi],
    "CartPole-v1": [3.0, 2.0, 0.3, 2.0],
    "Pendulum-v1": [4 * np.pi, 8.0],
}


def random_state(generator, name):
    """A state from all over the environment's, as Gymnasium keeps it."""
    if name in SPREAD:
        return generator.uniform(-1, 1, len(SPREAD[name])) * SPREAD[name]
    state = generator.uniform([-1.2, -0.07], [0.6, 0.07])
    return state.astype(np.float32).astype(np.float64) if "Continuous" in name else state


def random_action(generator, environment):
    """An action as the engine gives it, and as Gymnasium takes it."""
    if environment.n_actions:
        choice = int(generator.integers(environment.n_actions))
        return np.array([choice], np.float64), choice
    action = generator.uniform(*environment.bounds)
    return action, action


def first_state(environment, start=None):
    """A state of a variant with no noise yet."""
    state = environment.states(1)[0]
    if start is not None:
        state[: len(start)] = start
    return state


@pytest.mark.parametrize("count", [2000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_transitions_are_those_of_gymnasium_with_its_attributes_changed(name, changed, count):
    parameters, attributes = CHANGED[name] if changed else ({}, {})
    environment, reference = find_environment(name, parameters), gymnasium.make(name).unwrapped
    for attribute, value in attributes.items():
        setattr(reference, attribute, value)
    if changed and name == "Pendulum-v1":
        reference.action_space = gymnasium.spaces.Box(-3.0, 3.0, (1,))
    generator, size = np.random.default_rng(0), ENVIRONMENTS[name].state_size
    state, key = first_state(environment), np.uint64(0)
    action = np.zeros(1)
    observation = np.zeros(environment.observation_size, np.float32)
    ours = np.zeros((count, size + len(observation) + 2))
    theirs = np.zeros_like(ours)
    for i in range(count):
        state[:size] = random_state(generator, name)
        action[:], given = random_action(generator, environment)
        reference.state = state[:size].copy()
        if name == "CartPole-v1":
            reference.steps_beyond_terminated = None
        seen, *rewarded, _, _ = reference.step(given)
        theirs[i] = [*reference.state, *seen, *rewarded]
        rewarded = environment.step(state, action, key)
        environment.observe(state, observation)
        ours[i] = [*state[:size], *observation, *rewarded]
    np.testing.assert_allclose(ours[:, :size], theirs[:, :size], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(ours[:, size:-2], theirs[:, size:-2], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours[:, -2], theirs[:, -2], rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(ours[:, -1], theirs[:, -1])
    assert ours[:, -1].sum() > count / 1000 or name == "Pendulum-v1"  # endings were among them


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_the_factory_changes_the_same_attributes_of_gymnasiums_environment(name):
    parameters, attributes = CHANGED[name]
    inner = make_gymnasium(name, **parameters).unwrapped
    assert {attribute: getattr(inner, attribute) for attribute in attributes} == attributes
    environment = find_environment(name, parameters)
    if not environment.n_actions:
        assert [*inner.action_space.low, *inner.action_space.high] == [*environment.bounds.flat]


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_defaults_of_the_parameters_are_the_constants_of_the_equations(name):
    environment = ENVIRONMENTS[name]
    table = {key: entry.default for key, entry in PARAMETERS[name].items()}
    assert len(table.keys() - NATIVE[name].physics.keys()) == 4
    assert table["max_episode_steps"] == environment.time_limit
    assert all(entry.low <= entry.default <= entry.high for entry in PARAMETERS[name].values())
    assert find_environment(name, table) is environment
    assert set(CHANGED[name][0]) == set(NATIVE[name].physics)


def test_all_variants_of_an_environment_are_compiled_once():
    five, long = (
        find_environment("CartPole-v1", parameters)
        for parameters in ({"gravity": 5}, {"length": 1})
    )
    assert (five.reset, five.step, five.observe) == (long.reset, long.step, long.observe)
    assert five.states(2)[1, -6:].tolist() == [5.0, 1.0, 0.1, 0.5, 10.0, 0.02]


def test_a_time_limit_alone_leaves_the_functions_of_the_environment():
    environment = find_environment("CartPole-v1", {"max_episode_steps": 40})
    assert environment.time_limit == 40
    assert environment.step is ENVIRONMENTS["CartPole-v1"].step


NOISY = {"observation_noise": 0.3, "random_action_probability": 0.25, "reward_scale": 2.0}


def test_noise_of_an_observation_is_of_the_step_and_not_of_who_looks():
    environment = find_environment("CartPole-v1", NOISY)
    state, action = first_state(environment), np.zeros(1)
    seen, again = np.zeros(4, np.float32), np.zeros(4, np.float32)
    noise = np.zeros((2000, 4))
    for i in range(len(noise)):
        key = np.uint64(i)
        environment.reset(state, key)
        environment.observe(state, seen)
        environment.observe(state, again)
        assert np.array_equal(seen, again)
        noise[i] = seen - state[:4]
    assert np.abs(noise.mean(axis=0)).max() < 0.03
    np.testing.assert_allclose(noise.std(axis=0), 0.3, rtol=0.06)
    assert np.abs(np.corrcoef(noise.T) - np.eye(4)).max() < 0.08
    before = state[4:8].copy()
    key = np.uint64(5)
    reward, _ = environment.step(state, action, key)
    assert reward == 2.0
    assert not np.any(state[4:8] == before)


def test_random_actions_come_with_their_probability():
    environment = find_environment("MountainCar-v0", {"random_action_probability": 0.6})
    state, action = first_state(environment), np.ones(1)
    done = np.zeros(6000)
    for i in range(len(done)):
        state[:2] = (-0.5, 0.0)
        key = np.uint64(i)
        environment.step(state, action, key)
        done[i] = state[4]
    # Of three actions drawn uniformly one is the one that was chosen.
    np.testing.assert_allclose(
        [np.mean(done == choice) for choice in range(3)], [0.2, 0.6, 0.2], atol=0.02
    )
    assert action[0] == 1.0  # the policy's own record of what it chose


def test_noise_in_a_continuous_action_stays_within_its_bounds():
    environment = find_environment("Pendulum-v1", {"action_noise": 0.5, "max_torque": 1.0})
    state, action = first_state(environment), np.full(1, 0.2)
    done = np.zeros(4000)
    for i in range(len(done)):
        state[:2] = 0.0
        key = np.uint64(i)
        environment.step(state, action, key)
        done[i] = state[5]
    assert done.min() >= -1.0
    assert done.max() == 1.0
    assert np.median(done) == pytest.approx(0.2, abs=0.03)
    middle = np.quantile(done, [0.1587, 0.5])
    assert middle[1] - middle[0] == pytest.approx(0.5, rel=0.06)


VARIANT = {"gravity": 5.0, "length": 0.8, "max_episode_steps": 30, **NOISY}


def test_another_number_of_environments_keeps_the_parameters():
    environment = find_environment("CartPole-v1", VARIANT)
    _, _, state = make("ppo", 1, environment, **SMALL)
    assert engine.set_environments(state, environment, 5)
    assert np.array_equal(state["member"].states, environment.states(5))
    assert state["member"].states[4, -6:].tolist() == [5.0, 1.0, 0.1, 0.8, 10.0, 0.02]


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("CartPole-v1", {"gravty": 5}, r"environment.kwargs.gravty: .*did you mean 'gravity'"),
        (
            "CartPole-v1",
            {"zeal": 5},
            r"zeal: unknown parameter; those of CartPole-v1: gravity, mass",
        ),
        ("CartPole-v1", {"masscart": 11}, r"masscart: expected a number in \[0.1, 10\], got 11"),
        ("CartPole-v1", {"masscart": "1"}, r"expected a number in \[0.1, 10\], got '1'"),
        ("CartPole-v1", {"masscart": True}, "got True"),
        ("CartPole-v1", {"masscart": float("nan")}, "got nan"),
        ("CartPole-v1", {"max_episode_steps": 1.5}, r"a whole number in \[1, 1e\+06\], got 1.5"),
        ("CartPole-v1", {"max_episode_steps": float("inf")}, "whole number"),
        ("Pendulum-v1", {"random_action_probability": 0.1}, "unknown parameter"),
        ("MountainCar-v0", {"random_action_probability": 1.1}, r"\[0, 1\], got 1.1"),
        ("population_environments:COUNTER", {"gravity": 1.0}, "of your own takes none"),
    ],
)
def test_wrong_parameters_are_named(name, parameters, message):
    expect_error(message, find_environment, name, parameters)


def test_the_hash_of_a_variant_is_of_what_differs_and_never_changes():
    five = variant("CartPole-v1", {"length": 0.5, "gravity": 5})
    assert five == variant("CartPole-v1", {"gravity": 5.0})
    assert five == Variant("CartPole-v1", FrozenMap(gravity=5.0))
    assert five.text == "CartPole-v1 with gravity=5"
    assert five.name == f"CartPole-v1-variant-{five.hash[:10]}"
    assert five.hash == "edb9b7b886b6579f"
    assert variant("CartPole-v1", {}).name == "CartPole-v1"
    assert five.hash != variant("CartPole-v1", {"gravity": 6}).hash
    limit = variant("CartPole-v1", {"max_episode_steps": 40.0})
    assert limit.hash == variant("CartPole-v1", {"max_episode_steps": 40}).hash
    assert type(limit.parameters["max_episode_steps"]) is int
    stated = EnvironmentSpec("CartPole-v1", kwargs=FrozenMap(max_episode_steps=40.0))
    assert landscape_name(stated) == limit.name


def test_names_of_landscapes():
    def name(id, **kwargs):
        return landscape_name(EnvironmentSpec(id, kwargs=FrozenMap(kwargs)))

    changed = variant("CartPole-v1", {"gravity": 5})
    assert name("CartPole-v1", gravity=5) == changed.name
    assert name("CartPole-v1") == name("CartPole-v1", gravity=9.8) == "CartPole-v1"
    assert name("LunarLander-v3", gravity=-5.0) == "LunarLander-v3"
    assert name(None) is None
    assert name("Pendulum-v1", g=5.0) == variant("Pendulum-v1", {"g": 5}).name


# -- Gymnasium's own environments ------------------------------------------------------------------


def test_the_registered_environment_is_the_variant():
    made = gymnasium.make(
        "autorl.population.gymnasium_variants:autorl/CartPole-v1",
        gravity=5,
        reward_scale=2.0,
        max_episode_steps=600,
    )
    assert made.unwrapped.gravity == 5
    assert made.spec.max_episode_steps == 600
    made.reset(seed=0)
    assert made.step(0)[1] == 2.0
    layers = str(made)
    assert layers.count("TimeLimit") == 1
    plain = gymnasium.make("autorl/CartPole-v1")
    assert plain.spec.max_episode_steps == 500


def episode(env, seed):
    """Observations and rewards of a few steps with one action."""
    rows = [env.reset(seed=seed)[0]]
    rewards = []
    for _ in range(8):
        observation, reward, *_ = env.step(1)
        rows.append(observation)
        rewards.append(reward)
    return np.array(rows), rewards


def test_noise_of_the_factory_is_decided_by_the_seed():
    noisy, exact = (
        make_gymnasium("CartPole-v1", observation_noise=0.3),
        gymnasium.make("CartPole-v1"),
    )
    rows, rewards = episode(noisy, 1)
    again, _ = episode(noisy, 1)
    other, _ = episode(noisy, 2)
    assert np.array_equal(rows, again)
    assert not np.array_equal(rows, other)
    assert rows.dtype == np.float32
    assert noisy.observation_space.contains(rows[0] * 1e6)
    assert rewards == [1.0] * 8
    assert 0.15 < (rows - episode(exact, 1)[0])[0].std() < 0.8


def test_actions_of_the_factory_are_disturbed():
    env = make_gymnasium("Pendulum-v1", action_noise=1.0)
    env.reset(seed=0)
    torques = []
    for _ in range(200):
        env.step(np.array([1.5], np.float32))
        torques.append(float(env.unwrapped.last_u))
    assert max(torques) == 2.0
    assert min(torques) < 0.5
    random = make_gymnasium("MountainCar-v0", random_action_probability=1.0)
    random.reset(seed=0)
    speeds = {round(float(random.step(1)[0][1]) * 1e4) for _ in range(30)}
    assert len(speeds) > 5


def test_wrong_values_are_refused_by_the_factory_before_it_builds():
    expect_error("masspole", make_gymnasium, "CartPole-v1", masspole=2)


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_spaces_time_limit_and_first_states_are_gymnasiums(name):
    environment, reference = ENVIRONMENTS[name], gymnasium.make(name)
    assert reference.spec.max_episode_steps == environment.time_limit
    assert reference.observation_space.shape == (environment.observation_size,)
    if environment.n_actions:
        assert reference.action_space.n == environment.n_actions
    else:
        np.testing.assert_allclose(
            [reference.action_space.low, reference.action_space.high], environment.bounds
        )
    ours, theirs = np.zeros((4000, environment.state_size)), []
    for i in range(len(ours)):
        environment.reset(ours[i], np.uint64(i))
        reference.reset(seed=i)
        theirs.append(np.array(reference.unwrapped.state, np.float64))
    width = np.ptp(theirs, axis=0)
    np.testing.assert_allclose(ours.mean(axis=0), np.mean(theirs, axis=0), atol=0.03 * width.max())
    np.testing.assert_allclose(ours.std(axis=0), np.std(theirs, axis=0), rtol=0.05)
    np.testing.assert_allclose(ours.min(axis=0), np.min(theirs, axis=0), atol=0.01 * width.max())


def test_unknown_environments_are_refused_with_the_nearest_name():
    expect_error("CartPole-v1", find_environment, "CartPole-v2")
    expect_error("cannot load", find_environment, "no_such_module:X")
    expect_error("not an autorl", find_environment, "math:pi")


@njit
def _reset(state, key):
    state[0] = 0.0


@njit
def _step(state, action, key):
    state[0] += action[0]
    return state[0], state[0] >= 3.0


@njit
def _observe(state, observation):
    observation[0] = state[0]


COUNTER = Environment("Counter", 1, 1, 10, _reset, _step, _observe, n_actions=2)
BROKEN = Environment("Broken", 1, 1, 10, _reset, _observe, _observe, n_actions=2)


def test_a_users_environment_is_found_and_checked():
    assert find_environment(f"{__name__}:COUNTER") is COUNTER
    expect_error("step", find_environment, f"{__name__}:BROKEN")
