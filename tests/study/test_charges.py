"""Charges of a search and its baseline: every (proposal, seed) once."""

import pytest
from scripted import chain

from autorl.core.seeds import SeedPlan
from autorl.core.types import Proposed
from autorl.study.budget import Charges
from autorl.study.lineage import Lineage


@pytest.fixture
def charges():
    """0 trains 40 steps, 1 goes on to 100, 2 trains 70 of its own."""
    lineage = Lineage(SeedPlan(3, 0))
    for number, proposal in enumerate((chain(0.9, 40), chain(0.9, 100, 0), chain(0.2, 70))):
        lineage.observe(Proposed(number, proposal))
    return Charges(lineage)


def test_a_seed_of_a_proposal_costs_the_steps_it_trains(charges):
    assert charges.steps == 0
    assert [charges.of(number) for number in range(3)] == [40, 60, 70]
    charges.anew.add(1)
    assert [charges.of(number) for number in range(3)] == [40, 100, 70]


def test_every_seed_of_a_proposal_is_charged_once(charges):
    charges.add([0], [0, 1])
    assert charges.steps == 80
    charges.add([0, 1], [0, 1, 2])
    assert charges.steps == 80 + 40 + 3 * 60
    charges.add([0, 1], [2])
    assert charges.steps == 300


def test_a_baseline_costs_what_nobody_has_paid_for(charges):
    charges.add([0], [0])
    assert charges.beyond(1, [0, 1]) == 60 + 40 + 60
    charges.add_beyond(1, [0])
    assert charges.beyond(1, [0, 1]) == 40 + 60, "the first seed was paid for by both"
    assert charges.steps == 40, "nothing of it is charged to the search"
    charges.add_beyond(1, [0, 1])
    assert charges.beyond(1, [0, 1]) == 0
    assert charges.beyond(2, [0]) == 70
