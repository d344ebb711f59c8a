"""The compiled programs do what their pages say in plain Python, up to rounding."""

from __future__ import annotations

import numpy as np
import pytest
from population_helpers import (
    CARTPOLE,
    DQN,
    OFF_POLICY,
    PENDULUM,
    SMALL,
    advanced,
    trained_in_python,
)

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
