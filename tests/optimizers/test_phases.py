"""Phases: which agents are kept for the phase that begins with one of them."""

import math

import numpy as np
import pytest

from autorl.core.types import (
    Done,
    Exploit,
    Failed,
    InputError,
    Proposal,
    Proposed,
    Scored,
    Status,
    Wait,
)
from autorl.optimizers import make
from autorl.optimizers.sobol import SobolOptions, SobolSearch
from autorl.space import load_space

SPACE = load_space({"x": {"type": "float", "lower": 0.0, "upper": 1.0, "changeable": True}})


def test_a_single_configuration_is_enough():
    optimizer = make("phases", SPACE, horizon=100, changeable={"x"}, configurations=1)
    assert isinstance(optimizer.ask(np.random.default_rng(0)), Proposal)
    with pytest.raises(InputError, match="configurations"):
        make("phases", SPACE, horizon=100, changeable={"x"}, configurations=0)


def test_kept_are_those_that_may_begin_the_next_phase_and_the_one_the_present_began_with():
    optimizer = make("phases", SPACE, horizon=100, changeable={"x"}, phases=2, configurations=2)
    for number in range(2):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
    assert sorted(optimizer.keeps()) == [0, 1]
    optimizer.observe(Scored(0, (2.0,), reached=50))
    assert sorted(optimizer.keeps()) == [0, 1], "the other may still be better"
    optimizer.observe(Scored(1, (1.0,), reached=50))
    assert list(optimizer.keeps()) == [0]
    for number, kept in ((2, [0]), (3, [])):
        proposal = optimizer.ask(np.random.default_rng(number))
        assert (proposal.resume_from, proposal.until) == (0, 100)
        optimizer.observe(Proposed(number, proposal))
        assert list(optimizer.keeps()) == kept, "nobody goes on from the last phase"


@pytest.mark.parametrize(
    ("budget", "options", "count"),
    [(math.inf, {}, 64), (7.9, {}, 7), (0.5, {}, 1), (7.9, {"configurations": 3}, 3)],
)
def test_a_phase_has_as_many_configurations_as_the_budget_affords(budget, options, count):
    optimizer = make("phases", SPACE, horizon=100, changeable={"x"}, budget=budget, **options)
    assert optimizer.configurations == optimizer.planned_configurations() == count


def test_every_phase_goes_on_from_the_best_of_the_one_before():
    optimizer = make(
        "phases",
        SPACE,
        horizon=90,
        changeable={"x"},
        configurations=3,
        seed=2,
        initial=({"x": 0.25},),
    )
    rng = np.random.default_rng(0)
    made = []
    for values in ((1.0, 3.0, 2.0), (5.0, 4.0, 6.0), (0.0, 0.0, 0.0)):
        first = len(made)
        for number in range(first, first + 3):
            made.append(optimizer.ask(rng))
            optimizer.observe(Proposed(number, made[-1]))
        last_phase = made[-1].until == 90
        assert optimizer.ask(rng) == (Done() if last_phase else Wait())
        for number, value in enumerate(values, start=first):
            optimizer.observe(Scored(number, (value,), reached=made[-1].until))
    assert optimizer.ask(rng) == Done()
    point = SPACE.from_unit(SobolSearch(optimizer.problem, SobolOptions(2)).point(0))
    configs = [SPACE.default(), SPACE.config({"x": 0.25}), point]
    assert [proposal.config for proposal in made] == configs * 3
    assert [proposal.until for proposal in made] == [30] * 3 + [60] * 3 + [90] * 3
    parents = [None, Exploit(1, stream="phase 2"), Exploit(5, stream="phase 3")]
    assert [proposal.parent for proposal in made] == [one for one in parents for _ in range(3)]
    assert [proposal.origin for proposal in made] == [
        *("default", "warm start", "sobol 0"),
        *["phase 2 from proposal 1"] * 3,
        *["phase 3 from proposal 5"] * 3,
    ]
    assert [proposal.member for proposal in made[::3]] == ["phase 1", "phase 2", "phase 3"]
    assert [proposal.meta["phase"] for proposal in made] == [0] * 3 + [1] * 3 + [2] * 3
    assert [proposal.informed for proposal in made] == [False] * 3 + [True] * 6
    assert all(proposal.retain for proposal in made)


def test_a_phase_that_nobody_survived_is_the_last():
    optimizer = make("phases", SPACE, horizon=90, changeable={"x"}, configurations=1)
    optimizer.observe(Proposed(0, optimizer.ask(np.random.default_rng(0))))
    optimizer.observe(Failed(0, Status.CRASH, (1.0,)))
    assert optimizer.ask(np.random.default_rng(1)) == Done()
    assert list(optimizer.keeps()) == []


def test_what_cannot_change_is_refused_unless_it_is_constant():
    unit = {"type": "float", "lower": 0.0, "upper": 1.0}
    space = load_space({"hyperparameters": {"x": unit, "c": {"type": "constant", "value": 1}}})
    assert make("phases", space, horizon=90, changeable={"x"}).ask(np.random.default_rng(0))
    with pytest.raises(InputError, match="but x cannot change during training"):
        make("phases", space, horizon=90)
