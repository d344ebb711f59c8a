"""Seed plans and streams: disjoint by construction, a function of their arguments alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import expect_error

from autorl.core.seeds import SeedPlan, digest, evaluation_seeds, generator, integer_seed


def test_counts_are_tuning_from_0_and_test_from_100():
    plan = SeedPlan(3, 4)
    assert (plan.tuning, plan.test) == ((0, 1, 2), (100, 101, 102, 103))
    assert (plan.of("tuning"), plan.of("test")) == (plan.tuning, plan.test)
    assert SeedPlan() == SeedPlan(3, 10)
    assert SeedPlan([7, 3], []).test == ()


@pytest.mark.parametrize(
    ("tuning", "test", "key", "message"),
    [
        ([1, 2, 3], [3, 4], "seeds", r"seeds \[3\] are in both tuning and test"),
        (101, 1, "seeds", r"seeds \[100\] are in both"),
        (0, 3, "seeds.tuning", "at least one tuning seed"),
        ([], 3, "seeds.tuning", "at least one tuning seed"),
        (-1, 3, "seeds.tuning", "cannot be negative, got -1"),
        (3, -2, "seeds.test", "cannot be negative, got -2"),
        ([1, 1], 3, "seeds.tuning", "listed twice"),
        ([1, -1], 3, "seeds.tuning", "got -1"),
        ([2**31], 3, "seeds.tuning", "got 2147483648"),
        ([True], 3, "seeds.tuning", "got True"),
        (True, 3, "seeds.tuning", "expected a count or a list"),
        (3, 2.5, "seeds.test", "expected a count or a list"),
        (3, [1.5], "seeds.test", r"got 1\.5"),
        ("12", 3, "seeds.tuning", "got '1'"),
        (None, 3, "seeds.tuning", "got None"),
    ],
)
def test_bad_plans_are_input_errors(tuning, test, key, message):
    assert expect_error(message, SeedPlan, tuning, test).key == key


@given(
    seeds=st.lists(st.integers(0, 2**31 - 1), min_size=2, max_size=5, unique=True),
    steps=st.lists(st.integers(0, 10**9), min_size=1, max_size=3, unique=True),
)
def test_no_test_episode_was_ever_a_tuning_episode(seeds, steps):
    """Not even for the same seed and step: the roles have different parities."""
    tuning, test = (
        {value for s in seeds for step in steps for value in evaluation_seeds(s, role, step, 16)}
        for role in ("tuning", "test")
    )
    assert not tuning & test
    assert all(0 <= value < 2**31 for value in tuning | test)


def test_evaluation_seeds_are_distinct_within_an_evaluation_and_between_steps():
    first, second = evaluation_seeds(3, "tuning", 100, 500), evaluation_seeds(3, "tuning", 200, 500)
    assert len(set(first)) == len(set(second)) == 500
    assert len(set(first) & set(second)) < 5
    assert evaluation_seeds(3, "tuning", 100, 32) != evaluation_seeds(4, "tuning", 100, 32)
    assert evaluation_seeds(3, "tuning", 100, 0) == []


def test_streams_differ_by_seed_purpose_and_every_key():
    arguments = [
        (seed, purpose, *keys)
        for seed in (0, 1)
        for purpose in ("ask", "noise")
        for keys in [(), (0,), (1,)]
    ]
    arguments += [(0, "ask", *keys) for keys in (("0",), (0, 1), ("0", 1), ("01",), (1, 0))]
    digests = [digest(*each) for each in arguments]
    assert len(set(digests)) == len(digests)
    draws = {generator(*each).random() for each in arguments}
    assert len(draws) == len(arguments)
    assert all(0 <= integer_seed(*each) < 2**31 for each in arguments)


def test_the_streams_are_those_stored_studies_were_made_with():
    """Written down once; a change here changes what every stored study would draw."""
    assert digest(0, "training") == 340128945191406576239224754385097054169
    assert generator(0, "ask", 0).random() == 0.26243863631626607
    assert integer_seed(7, "algorithm", "x") == 517611776
    assert evaluation_seeds(0, "test", 100, 3) == [1384015211, 308318381, 912149117]
