"""Phases: which agents are kept for the phase that begins with one of them."""

import numpy as np
import pytest

from autorl.optimizers import make
from autorl.space import load_space
from autorl.types import InputError, Proposal, Proposed, Scored

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
