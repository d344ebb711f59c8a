"""Racing: more seeds only for those that hold against the incumbent. DESIGN, contract 7."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from property_tests import examples
from scipy.stats import ttest_1samp
from scripted import Scripted, Shuffled, Toy, full, listed, run, study_with, toy_spec
from study_support import small_spec

from autorl.core.types import InputError, Scored, Status
from autorl.statistics.evaluation import Racing, SeedValue
from autorl.study import Study


def values(numbers, seeds=None, status=Status.DONE):
    seeds = seeds or range(len(numbers))
    return [
        SeedValue(seed, status, (float(value),))
        for seed, value in zip(seeds, numbers, strict=False)
    ]


# -- the rule ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "reference", "more"),
    [
        ([1.0], [], ()),
        ([1.0], [0.5], ()),
        ([1.0], [0.5] * 8, (1,)),
        ([1.0] * 2, [0.5] * 8, (2, 3)),
        ([1.0] * 4, [0.5] * 8, (4, 5, 6, 7)),
        ([1.0] * 4, [0.5] * 5, (4,)),
        ([1.0] * 8, [0.5] * 8, ()),
        ([0.4], [0.5] * 8, ()),
        ([0.5], [0.5] * 8, (1,)),
        ([1.0, 0.1], [0.5] * 8, (2, 3)),
        ([0.8, 0.1], [0.5] * 8, ()),
    ],
)
def test_seeds_double_until_the_paired_mean_is_worse(mine, reference, more):
    race = Racing(tuple(range(8)), 1, 8)
    assert race.more(values(mine), values(reference)) == more


def test_one_failed_seed_among_good_ones_settles_the_race_too():
    race = Racing((0, 1, 2, 3), 1, 4)
    mine = [*values([9.0]), SeedValue(1, Status.CRASH)]
    assert race.more(mine, values([0.5] * 4)) == ()


def test_a_seed_on_which_the_incumbent_failed_counts_for_nobody():
    race = Racing((0, 1, 2, 3), 1, 4)
    reference = [SeedValue(0, Status.CRASH), *values([0.5] * 3, [1, 2, 3])]
    assert race.more(values([0.1]), reference) == (1,)
    assert race.more(values([9.0, 0.1]), reference) == ()


@settings(max_examples=examples(200))
@given(
    differences=st.lists(st.floats(-1, 1), min_size=2, max_size=7),
    scale=st.sampled_from([1e-3, 1.0, 1e4]),
)
@example(
    differences=[-1e-5, 0.0], scale=1e-3
)  # differences (-1e-8, 0): took for constant, dropped without a test
def test_rule_t_is_scipys_one_sided_paired_test(differences, scale):
    differences = np.array(differences) * scale
    race = Racing(tuple(range(8)), 1, 8, "t")
    dropped = race.more(values(differences + 5), values([5.0] * 8)) == ()
    paired = (differences + 5) - 5
    if np.ptp(paired) > 1e-6 * scale:
        assert dropped == bool(ttest_1samp(paired, 0, alternative="less").pvalue < 0.1)


@settings(max_examples=examples(200))
@given(
    thousandths=st.lists(st.integers(-1000, 1000), min_size=1, max_size=7),
    unit=st.sampled_from([1e-300, 1e-9, 1e9]),
    rule=st.sampled_from(["mean", "t"]),
)
@example(thousandths=[-4, 1, -2, 3], unit=1e-9, rule="t")
@example(thousandths=[0, 0, 0], unit=1e-9, rule="t")
def test_racing_decides_the_same_in_any_unit_of_the_metric(thousandths, unit, rule):
    scores = np.array(thousandths) / 1000
    race = Racing(tuple(range(8)), 1, 8, rule)
    plain = race.more(values(scores), values([0.0] * 8))
    assert race.more(values(scores * unit), values([0.0] * 8)) == plain


def test_rule_t_needs_two_seeds_to_drop_anybody_and_knows_constant_differences():
    race = Racing(tuple(range(8)), 1, 8, "t")
    assert race.more(values([-100.0]), values([0.0] * 8)) == (1,)
    assert race.more(values([-1.0, -1.0]), values([0.0] * 8)) == ()
    assert race.more(values([0.0, 0.0]), values([0.0] * 8)) == (2, 3)
    assert race.more(values([1.0, 1.0]), values([0.0] * 8)) == (2, 3)


# -- in a study --------------------------------------------------------------------------------------------------------

RACE = {"evaluation": {"seeds": "racing", "min": 1, "max": 4}, "seeds": {"tuning": 4, "test": 0}}


def race_of(monkeypatch, xs, order=0, curve=None, **changes):
    optimizer = Scripted(listed(*map(full, xs)))
    trainer = Toy(curve=curve or (lambda config, seed, step: config["x"] + 0.01 * seed))
    spec = toy_spec(**{**RACE, "budget": {"runs": 100}, "parallelism": 1, **changes})
    study = study_with(monkeypatch, spec, optimizer, trainer)
    study.run(executor=Shuffled(study.load, np.random.default_rng(order)))
    return optimizer, study


def seeds_of(study):
    return dict(study.store.query("SELECT proposal, n_seeds FROM proposals"))


def test_a_challenger_that_loses_stays_at_its_first_seed_and_a_winner_gets_all(monkeypatch):
    _, study = race_of(monkeypatch, [0.5, 0.2, 0.1, 0.8, 0.7])
    assert seeds_of(study) == {0: 4, 1: 1, 2: 1, 3: 4, 4: 1}
    assert study.driver.ranking.best() == 3
    assert study.driver.charges.steps == (4 + 1 + 1 + 4 + 1) * 100


def test_a_challenger_that_wins_one_seed_and_loses_the_next_stops_at_two(monkeypatch):
    def curve(config, seed, step):
        return {0.5: [1.0, 1.0, 1.0, 1.0], 0.1: [0.0] * 4, 0.6: [1.1, 0.1, 9.0, 9.0]}[config["x"]][
            seed
        ]

    optimizer, study = race_of(monkeypatch, [0.5, 0.1, 0.6], curve=curve)
    assert seeds_of(study) == {0: 4, 1: 1, 2: 2}
    assert optimizer.told[2].values == pytest.approx((0.6,))


@pytest.mark.parametrize("lag", [1, 2, 4])
@pytest.mark.parametrize("order", range(3))
def test_nobody_ever_has_more_seeds_than_the_incumbent(monkeypatch, lag, order):
    rng = np.random.default_rng([lag, order])
    xs = list(rng.permutation(10) / 10)
    noise = rng.normal(0, 0.3, (10, 4))

    def curve(config, seed, step):
        return config["x"] + noise[xs.index(config["x"]), seed]

    optimizer, study = race_of(monkeypatch, xs, order, curve, parallelism=lag)
    latest = {}
    for event in optimizer.seen:
        if isinstance(event, Scored):
            latest[event.proposal] = event.n_seeds
            assert event.n_seeds in (1, 2, 4)
    assert latest == seeds_of(study)
    best = study.driver.ranking.best()
    assert latest[best] == 4
    for proposal, count in latest.items():
        ran = {
            row[0]
            for row in study.store.query(
                "SELECT seed FROM segments WHERE proposal = ?", (proposal,)
            )
        }
        assert ran == set(range(count)), "seeds come in a fixed order: pairs exist"
    complete = [proposal for proposal, count in latest.items() if count == 4]
    means = {proposal: xs[proposal] + noise[proposal].mean() for proposal in complete}
    assert best == max(means, key=means.get)


def test_the_reference_is_the_incumbent_at_the_proposals_own_ask(monkeypatch):
    """With lag 3, proposals 1 and 2 are asked before anything is known: they cannot race, whatever arrives first."""
    for order in range(4):
        optimizer, study = race_of(monkeypatch, [0.5, 0.9, 0.1, 0.95], order, parallelism=3)
        first = {
            number: next(
                e.n_seeds for e in optimizer.seen if isinstance(e, Scored) and e.proposal == number
            )
            for number in range(4)
        }
        assert first == {0: 1, 1: 1, 2: 1, 3: 1}, "the incumbent had one seed when 3 was asked"
        assert seeds_of(study)[study.driver.ranking.best()] == 4


@pytest.mark.parametrize("lag", [1, 3])
def test_a_better_proposal_that_was_asked_early_races_later(monkeypatch, lag):
    """Proposals 1 to 4 are asked while the incumbent has one seed; the best of all must still win in the end."""
    _, study = race_of(monkeypatch, [0.5, 0.3, 0.2, 0.9, 0.4, 0.1], parallelism=lag)
    assert study.driver.ranking.best() == 3
    assert seeds_of(study)[3] == 4
    assert seeds_of(study)[2] == 1


@pytest.mark.parametrize(
    ("seeds", "message"),
    [("racing", "every member of a population trains"), ("adaptive", "members")],
)
def test_populations_cannot_race(seeds, message):
    with pytest.raises(InputError, match=rf"evaluation.seeds: {message}"):
        Study.in_memory(small_spec(optimizer="pbt", evaluation={"seeds": seeds, "max": 2}))


@pytest.mark.parametrize(
    "optimizer", [{"name": "asha", "rungs": 3}, {"name": "random", "stop": "median", "rungs": 3}]
)
def test_a_new_seed_of_a_chain_has_the_same_cuts(tmp_path, optimizer):
    changes = {**RACE, "seeds": {"tuning": 4, "test": 0}, "budget": {"runs": 16}, "parallelism": 2}
    study = Study.create(small_spec(optimizer=optimizer, **changes), tmp_path / "study")
    run(study)
    ends = {}
    for segment, parent, begin, end, notes in study.store.query(
        "SELECT segment, parent, from_step, to_step, notes FROM segments"
    ):
        proposal, seed = map(int, segment.split("."))
        ends.setdefault(proposal, {})[seed] = (begin, end, parent is None)
        assert notes == "", "no checkpoint that was still needed had been collected"
    grown = {proposal: cuts for proposal, cuts in ends.items() if len(cuts) > 1}
    assert any(begin > 0 for cuts in grown.values() for begin, _, _ in cuts.values()), (
        "a continued proposal grew"
    )
    assert all(len(set(cuts.values())) == 1 for cuts in grown.values())


def test_only_the_shared_seeds_are_compared():
    """The incumbent is far better on the seeds the challenger does not have."""
    race = Racing(tuple(range(4)), 1, 4)
    assert race.more(values([0.6]), values([0.5, 9.0, 9.0, 9.0])) == (1,)
