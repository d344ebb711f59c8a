from __future__ import annotations

import math

import pytest
from population_helpers import OFF_POLICY, PENDULUM, advanced


def test_a_fixed_temperature_stays_and_a_learned_one_moves():
    fixed = advanced("sac", 1, (6,), PENDULUM, **OFF_POLICY, ent_coef=0.3)["member"]
    learned = advanced("sac", 1, (6,), PENDULUM, **OFF_POLICY)["member"]
    assert fixed.parameters[-1] == pytest.approx(math.log(0.3))
    assert learned.parameters[-1] != 0.0
