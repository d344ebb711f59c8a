"""The compiled programs do what their pages say in plain Python, up to rounding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import outside_tasks  # noqa: F401 - registers the environments
import pytest
from population_helpers import (
    CARTPOLE,
    DQN,
    OFF_POLICY,
    PENDULUM,
    SMALL,
    advanced,
    make,
    trained_in_python,
)

from autorl.core.types import EnvironmentSpec, FrozenMap
from autorl.population import kernels
from autorl.population.outside import worlds_of
from autorl.trainers.outside_environments import outside_environment

_PPO = {**SMALL, "clip_range_vf": 0.2, "ent_coef": 0.01, "learning_rate": 1e-2}
_STOPS = {"optimizer": "rmsprop", "normalize_advantage": False, "target_kl": 0.01}
_DQN = {**DQN, "learning_rate": 3e-3, "target_update_interval": 6, "tau": 0.7}
_ALL = {"double": True, "dueling": True, "prioritized": True, "n_steps": 3}
_SLOW = {**OFF_POLICY, "learning_rate": 3e-3, "tau": 0.1}
_OTHER = {"n_critics": 1, "gradient_steps": 3, "policy_delay": 1}
_OTHER |= {"noise_type": "ornstein-uhlenbeck", "noise_std": 0.5}
CASES = [
    ("ppo", CARTPOLE, _PPO),
    ("ppo", CARTPOLE, {**_PPO, **_STOPS}),
    ("ppo", PENDULUM, _PPO),
    ("ppo", PENDULUM, {**_PPO, **_STOPS}),
    ("dqn", CARTPOLE, _DQN),
    ("dqn", CARTPOLE, {**_DQN, "double": True, "prioritized": True, "gradient_steps": -1}),
    ("dqn", CARTPOLE, {**_DQN, "dueling": True}),
    ("dqn", CARTPOLE, {**_DQN, "n_steps": 4}),
    ("dqn", CARTPOLE, {**_DQN, **_ALL}),
    ("sac", PENDULUM, _SLOW),
    ("sac", PENDULUM, {**_SLOW, "ent_coef": 0.2, "gradient_steps": 3, "target_update_interval": 2}),
    ("td3", PENDULUM, {**_SLOW, "noise_std": 0.3}),
    ("td3", PENDULUM, {**_SLOW, **_OTHER}),
]
# (relative, absolute) tolerances of rows of a memory and of parameters
TOLERANCES = {"ppo": ((1e-3, 1e-3), (2e-3, 2e-4)), "dqn": ((1e-3, 1e-4), (2e-3, 2e-4))}
_OF_OTHERS = ((5e-3, 1e-3), (5e-3, 5e-4))


@pytest.mark.parametrize(("name", "environment", "config"), CASES)
@pytest.mark.filterwarnings("ignore:overflow encountered")  # hashing in plain Python
def test_a_program_does_what_its_page_says_in_plain_python(name, environment, config):
    iterations = 2 if name == "ppo" else 6
    compiled = advanced(name, 5, (iterations,), environment, **config)
    plain = trained_in_python(name, 5, iterations, environment, **config)
    of_rows, of_parameters = TOLERANCES.get(name, _OF_OTHERS)
    close = {"parameters": of_parameters, "rows": of_rows, "noise": of_rows, "states": of_rows}
    for part, names in {
        "member": ("counts", "counters", "parameters", "states"),
        "target": ("updates", "parameters"),
        "replay": ("rows",),
        "exploration": ("noise",),
    }.items():
        for field in names:
            if hasattr(compiled.get(part), field):
                left, right = (getattr(state[part], field) for state in (compiled, plain))
                rtol, atol = close.get(field, (0, 0))
                np.testing.assert_allclose(left, right, rtol=rtol, atol=atol, err_msg=field)


_REPLAY = {
    **OFF_POLICY,
    "batch_size": 16,
    "buffer_size": 500,
    "net_width": 16,
    "learning_starts": 20,
}
_ROLLOUT = {"n_steps": 32, "batch_size": 32, "n_epochs": 2, "net_width": 16, "learning_rate": 1e-2}
_ROLLOUT |= {"clip_range_vf": 0.2, "ent_coef": 0.01}
OUTSIDE = EnvironmentSpec("outside_tasks:Outside/CartPole-v1", n_envs=2)
OUTSIDE_PENDULUM = replace(OUTSIDE, id="outside_tasks:Outside/Pendulum-v1")


@pytest.mark.parametrize(
    ("name", "spec", "config"),
    [
        ("ppo", OUTSIDE, _ROLLOUT),
        ("ppo", OUTSIDE_PENDULUM, _ROLLOUT),
        ("dqn", OUTSIDE, {"n_steps": 3, "prioritized": True, "exploration_fraction": 0.03}),
        ("sac", OUTSIDE_PENDULUM, {"reward_scale": 0.5}),
        ("td3", OUTSIDE_PENDULUM, {"noise_std": 0.3}),
        ("dqn", replace(OUTSIDE, normalize=True), {"n_steps": 3, "exploration_fraction": 0.03}),
        ("sac", replace(OUTSIDE_PENDULUM, normalize=True), {"n_steps": 3}),
    ],
)
def test_programs_outside_do_what_their_pages_say(name, spec, config, monkeypatch):
    """A few rounds of steps and updates: the rest of a run is Python in both cases."""
    environment = outside_environment(spec)
    if spec.normalize:
        environment = replace(environment, normalize=FrozenMap())
    config = {"n_envs": 3, "learning_rate": 1e-3, **config}
    rounds, steps, updates = 1, 32 * 3, 6
    if name != "ppo":
        config = {**_REPLAY, **config}
        rounds, steps, updates = 4, 4 * 4 * 3, 3
    states = []
    for programs in ("compiled", "plain"):
        if programs == "plain":
            monkeypatch.setattr(
                kernels.Program, "prepared", lambda program, *arguments: program.py_func
            )
        algorithm, hp, state = make(name, 5, environment, np.float32, **config)
        with np.errstate(over="ignore"), worlds_of(environment, state) as worlds:
            algorithm.bind(state, environment, hp, worlds).advance(rounds)
        states.append(state)
    compiled, plain = (state["member"] for state in states)
    assert np.array_equal(compiled.counts, plain.counts)
    assert compiled.counts.tolist()[:2] == [steps, updates]
    assert np.array_equal(compiled.counters, plain.counters)
    np.testing.assert_allclose(compiled.parameters, plain.parameters, rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(compiled.states, plain.states, rtol=1e-3, atol=1e-3)
    if name != "ppo":
        rows = [state["replay"].rows[:48] for state in states]
        np.testing.assert_allclose(rows[0], rows[1], rtol=1e-3, atol=1e-3)
