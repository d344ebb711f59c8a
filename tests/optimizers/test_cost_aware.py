"""Cost-aware search: the front, continuation along it, costs that are known and costs that are predicted."""

import functools
import math

import numpy as np
import pytest

from autorl.optimizers import make
from autorl.optimizers.cost_aware import _targets
from autorl.testing.optimizers import space_of
from autorl.testing.simulation import replayed, simulate
from autorl.types import Failed, InputError, Proposed, Scored, Status

SPACE = space_of("continuous")
STEPS = (20, 30, 45, 67, 100)


def cost_aware(space=SPACE, **options):
    return lambda: make(
        "cost_aware", space, horizon=100, **{"startup": 6, "candidates": 48, **options}
    )


def saturating(number, proposal):
    """Better near 0.3, and with longer training."""
    values = np.array(list(proposal.config.values()))
    return 1 - math.exp(-proposal.until / 40) - float(((values - 0.3) ** 2).sum())


def after(outcomes, **options):
    """An optimizer that has observed runs of (length, score), and the generator of the next ask."""
    optimizer = cost_aware(**options)()
    for number, (until, score) in enumerate(outcomes):
        config = SPACE.from_unit(np.full(3, 0.1 + 0.05 * number))
        proposal = optimizer.ask(np.random.default_rng(number))
        optimizer.observe(Proposed(number, type(proposal)(config, until)))
        optimizer.observe(Scored(number, (score,), reached=until))
    return optimizer


def test_lengths_are_even_on_the_logarithm_and_end_at_the_horizon():
    assert cost_aware()().steps == STEPS
    assert cost_aware(lengths=1)().steps == (100,)
    assert make("cost_aware", SPACE, horizon=3, lengths=8).steps == (1, 2, 3)


def test_the_front_holds_what_no_run_of_at_most_its_cost_beats():
    optimizer = after([(100, 5.0), (20, 3.0), (45, 2.0), (30, 4.0), (20, 1.0), (67, 4.0)])
    assert optimizer._front == [1, 3, 0]
    assert sorted(optimizer.keeps()) == [1, 3], "a full run cannot be trained on"
    optimizer.observe(Scored(3, (2.5,), reached=30, n_seeds=2))
    assert optimizer._front == [1, 5, 0], (
        "a later score supersedes: what it hid is on the front again"
    )
    assert sorted(optimizer.keeps()) == [1], (
        "the checkpoint of 5 is gone: it was not kept meanwhile"
    )


def test_failures_and_infeasible_runs_are_never_on_the_front():
    optimizer = after([(20, 1.0), (100, 2.0)])
    for number, event in [
        (2, Scored(2, (9.0,), reached=20, constraints=(0.1,))),
        (3, Failed(3, Status.CRASH, (9.0,))),
    ]:
        proposal = optimizer.ask(np.random.default_rng(number))
        optimizer.observe(Proposed(number, proposal))
        optimizer.observe(event)
    assert optimizer._front == [0, 1]


def test_failures_and_infeasible_runs_rank_below_every_score():
    optimizer = after([(20, -50.0), (30, 2.0), (45, 2.0)])
    for number, event in [
        (3, Failed(3, Status.CRASH, (9.0,))),
        (4, Scored(4, (9.0,), constraints=(1.0,))),
    ]:
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
        optimizer.observe(event)
    values = _targets([optimizer.history[number] for number in range(5)], 0)[0]
    assert values[3] < values[4] < values[0] < values[1]
    assert values[1] == values[2]
    assert values.sum() == pytest.approx(0, abs=1.0)


def test_costs_are_standardized_and_come_back_by_their_centre_and_unit():
    optimizer = make("cost_aware", SPACE, horizon=100, n_objectives=2)
    costs = [100.0, 2000.0, 50.0]
    for number, cost in enumerate(costs):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
        optimizer.observe(Scored(number, (0.5, -cost), reached=100))
    values, centre, unit = _targets([optimizer.history[number] for number in range(3)], 1)
    assert values.mean() == pytest.approx(0.0, abs=1e-12)
    assert values.std() == pytest.approx(1.0)
    np.testing.assert_allclose(np.sinh(centre + unit * values), costs)


def test_runs_of_the_front_are_trained_on_from_their_checkpoints_once():
    simulation = simulate(cost_aware(), saturating, 60, lag=4)
    proposals = simulation.proposals
    continued = [p for p in proposals if p.resume_from is not None]
    assert len(continued) >= 5
    for proposal in continued:
        parent = proposals[proposal.resume_from]
        assert proposal.config == parent.config
        assert proposal.until > parent.until
    parents = [p.resume_from for p in continued]
    assert len(set(parents)) == len(parents)


def test_all_costs_of_the_front_are_visited():
    proposals = simulate(cost_aware(), saturating, 80).proposals[30:]
    counts = {step: sum(p.until == step for p in proposals) for step in STEPS}
    assert min(counts.values()) >= 3, counts


def test_a_cost_that_is_an_objective_is_predicted():
    """Large x is a little better and ten times as dear: cheap runs are found that were never dictated."""

    def objective(number, proposal):
        x, y = proposal.config["x"], proposal.config["y"]
        return 0.2 * x - (y - 0.3) ** 2, -proposal.until * 10**x

    options = {"n_objectives": 2, "startup": 6, "candidates": 48}
    factory = functools.partial(make, "cost_aware", SPACE, horizon=100, **options)
    simulation = simulate(factory, objective, 50)
    optimizer = replayed(factory, simulation.events)
    front = [optimizer.history[number] for number in optimizer._front]
    costs = [-record.values[1] for record in front]
    assert costs == sorted(costs)
    assert len(front) >= 4
    candidates = optimizer._neighbours(np.random.default_rng(0))
    rows = optimizer._encoding.rows(candidates, optimizer.steps)
    predicted = optimizer._costs(candidates, rows)
    true = np.arcsinh([one.until * 10 ** one.config["x"] for one in candidates])
    assert np.corrcoef(predicted, true)[0, 1] > 0.9


def test_more_than_two_objectives_are_refused():
    with pytest.raises(InputError, match="a score and a cost"):
        make("cost_aware", SPACE, horizon=100, n_objectives=3)


def test_the_models_are_those_of_an_uninterrupted_study_after_scores_changed():
    """Parameters are fitted to what was known then, so a resumed study has the same, whatever superseded it."""
    optimizer = cost_aware(refit=4)()
    events = []
    for number in range(16):
        proposal = optimizer.ask(np.random.default_rng(number))
        told = [
            Proposed(number, proposal),
            Scored(number, (saturating(number, proposal),), reached=proposal.until),
        ]
        if number > 2:
            told.append(
                Scored(number - 2, (0.01 * number,), reached=told[0].proposal.until, n_seeds=2)
            )
        for event in told:
            optimizer.observe(event)
            events.append(event)
    fresh = replayed(cost_aware(refit=4), events)
    assert fresh.ask(np.random.default_rng(99)) == optimizer.ask(np.random.default_rng(99))


def test_better_than_hyperband_with_equal_steps():
    def best(name, seed, **options):
        simulation = simulate(
            lambda: make(name, SPACE, horizon=100, **options), saturating, 60, seed=seed
        )
        spent, found = 0, -math.inf
        for scored in simulation.scored:
            proposal = simulation.proposals[scored.proposal]
            start = (
                0
                if proposal.resume_from is None
                else simulation.proposals[proposal.resume_from].until
            )
            spent += proposal.until - start
            if spent <= 2000 and proposal.until == 100:
                found = max(found, scored.values[0])
        return found

    wins = sum(
        best("cost_aware", s, startup=6, candidates=48) > best("hyperband", s) for s in range(6)
    )
    assert wins == 6  # by chance once in 64 seeds
