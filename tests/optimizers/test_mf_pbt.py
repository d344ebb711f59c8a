"""Multiple frequencies: which part evolves when, who migrates, and with which hyperparameters."""

import numpy as np
import pytest
from driving import ask, generation, told

from autorl.core.types import Continue, InputError
from autorl.optimizers import make
from autorl.optimizers.pbt import Copy
from autorl.testing.optimizers import space_of
from autorl.testing.simulation import simulate

SPACE = space_of("types")
CHANGEABLE = {"rate", "gamma"}
DEFAULTS = {
    "horizon": 100,
    "changeable": CHANGEABLE,
    "population": 8,
    "generations": 5,
    "retrain": 0,
}


def build(space=SPACE, **options):
    return make("mf_pbt", space, **DEFAULTS | {"frequencies": [1, 2]} | options)


def test_every_part_evolves_at_its_own_frequency():
    simulation = simulate(
        lambda: build(population=12, generations=9, frequencies=[1, 3, 4]),
        lambda number, p: float((number * 7) % 31),
        108,
    )
    evolved = {0: set(), 1: set(), 2: set()}
    for proposal in simulation.proposals:
        if proposal.origin.startswith(("exploit", "migrate")):
            evolved[int(proposal.member) // 4].add(proposal.meta["generation"])
    assert evolved == {0: {1, 2, 3, 4, 5, 6, 7, 8}, 1: {3, 6}, 2: {4, 8}}


def test_migrants_bring_their_hyperparameters_into_a_faster_part_only():
    """Parts {0..3} and {4..7}: into the faster the whole configuration, into the slower weights alone."""
    optimizer = build()
    told(optimizer, [4.0, 3.0, 2.0, 1.0, 9.0, 8.0, 7.0, 6.0])
    fast = told(optimizer, [9.0, 8.0, 7.0, 6.0, 4.0, 3.0, 2.0, 1.0])
    assert [answer.resume_from for answer in fast] == [0, 1, 4, 0, 4, 5, 6, 7]
    assert fast[3].origin == "exploit member 0", "the lowest copies its own part's best"
    assert (fast[2].origin, fast[2].changes) == ("migrate from member 4", ())
    assert fast[2].config == fast[4].config, "unexplored"
    slow = generation(optimizer, 8)[6]
    assert slow.resume_from == 8, "the weights of the best of the faster part"
    for name in SPACE.names:
        source = fast[4] if name in CHANGEABLE else fast[0]
        assert slow.config[name] == source.config[name]


# Part 0 is {0..7}: places for migrants are 4 and 5, which have 6.0 and 3.0. The best elsewhere come from {8..15}.
@pytest.mark.parametrize(
    ("elsewhere", "migrants"),
    [
        ([1.0, 2.0], {}),
        ([4.0, 2.0], {5: 8}),  # not good enough for the first place, but for the second
        ([2.0, 7.0], {4: 9}),
        ([8.0, 7.0], {4: 8, 5: 9}),  # each migrates once
        ([3.0, 0.0], {}),  # as good as the second place
    ],
)
def test_the_best_of_other_parts_take_the_places_they_are_better_than(elsewhere, migrants):
    optimizer = build(population=16)
    told(optimizer, [10.0, 9.0, 8.0, 7.0, 6.0, 3.0, 2.0, 1.0, *elsewhere, *[0.0] * 6])
    made = generation(optimizer, 16)
    assert {n: made[n].resume_from for n in range(2, 6) if made[n].resume_from != n} == migrants
    assert {made[6].resume_from, made[7].resume_from} <= {0, 1}
    assert all(isinstance(one.parent, Continue) for one in made[:2] + made[8:])


def test_a_mixture_that_breaks_a_rule_stays_the_donors():
    """`m <= n`: what may change of the source, m, is too large for the donor's n."""
    space = space_of("constrained")
    initial = [space.config({"n": 64, "m": 64}), space.config({"n": 2, "m": 1})]
    optimizer = build(space, changeable={"m"}, initial=initial)
    told(optimizer, range(8))
    wide, narrow = optimizer.history[1], optimizer.history[2]
    rng = np.random.default_rng(0)
    assert optimizer._mixed(Copy(narrow, wide), rng) == narrow.proposal.config
    mixed = optimizer._mixed(Copy(wide, narrow), rng)
    assert mixed == {**wide.proposal.config, "m": 1}


def test_copies_explore_by_the_papers_ratios():
    optimizer = build()
    told(optimizer, range(8))
    copies = [ask(optimizer, seed) for seed in range(20)]
    assert {copy.origin for copy in copies} == {"exploit member 3"}
    rate = optimizer.history[3].proposal.config["rate"]
    assert {round(copy.config["rate"] / rate, 9) for copy in copies} == {0.8, 1.25}


@pytest.mark.parametrize(
    ("population", "generations", "frequencies"),
    [(64, 100, [1, 10, 25, 50]), (15, 100, [1, 10, 25]), (16, 30, [1, 10, 25]), (8, 11, [1, 10])],
)
def test_the_papers_frequencies_as_far_as_members_and_generations_go(
    population, generations, frequencies
):
    options = {"population": population, "generations": generations, "frequencies": None}
    assert [*build(**options).frequencies] == frequencies


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frequencies": [1, 2, 4]}, "frequencies: 3 parts need 12 members, and there are 8"),
        ({"population": 6}, "frequencies: 2 parts need 8 members, and there are 6"),
        ({"frequencies": [1, 5]}, "frequencies: a part that evolves every 5 .* never does in 5"),
        ({"frequencies": None}, "frequencies: a part that evolves every 10 .* never does in 5"),
        *(
            ({"frequencies": wrong}, "frequencies: expected two or more whole numbers, ascending")
            for wrong in ([], [1], [2, 4], [0, 1], [1, 2, 2], [1, 4, 2], [1, 2.0], [1, True], "12")
        ),
        ({"frequencies": 2}, "frequencies: expected list or null, got 2"),
        ({"synchronous": False}, "synchronous: .* expected true"),
        ({"selection": "tournament"}, "selection: expected truncation, got 'tournament'"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(InputError, match=f"optimizer.{message}"):
        build(**options)
