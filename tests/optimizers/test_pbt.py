"""Population-based training: who continues, who copies whom, what may change."""

import math

import numpy as np
import pytest

from autorl.optimizers import make
from autorl.optimizers.conformance import space_of
from autorl.optimizers.simulation import simulate
from autorl.types import Done, Failed, InputError, Proposed, Scored, Status, Wait

SPACE = space_of("types")
CHANGEABLE = {"rate", "gamma"}


def factory(**options):
    chosen = {"population": 4, "generations": 5} | options
    return lambda: make("pbt", SPACE, horizon=100, changeable=CHANGEABLE, **chosen)


def started(scores, **options):
    """An optimizer whose first generation has these outcomes."""
    optimizer = factory(population=len(scores), **options)()
    for number in range(len(scores)):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
    for number, value in enumerate(scores):
        outcome = Failed(number, Status.DIVERGED, (-9.0,)) if value is None else Scored(number, (value,), reached=20)
        optimizer.observe(outcome)
    return optimizer


def generation(optimizer, first, count):
    answers = []
    for number in range(first, first + count):
        answers.append(optimizer.ask(np.random.default_rng(number)))
        optimizer.observe(Proposed(number, answers[-1]))
    return answers


def test_a_generation_is_waited_for_and_the_last_ends_it():
    optimizer = started([1.0, 2.0, 3.0, 4.0], generations=2)
    generation(optimizer, 4, 4)
    assert optimizer.ask(np.random.default_rng(8)) == Done()
    assert list(optimizer.keeps()) == []
    waiting = factory()()
    generation(waiting, 0, 4)
    assert waiting.ask(np.random.default_rng(4)) == Wait()


def test_bottom_quarter_copies_top_quarter_and_the_rest_continues():
    optimizer = started([0.0, 3.0, 9.0, 4.0, 5.0, 1.0, 8.0, 2.0])
    answers = generation(optimizer, 8, 8)
    assert {member for member, a in enumerate(answers) if a.resume_from != member} == {0, 5}
    for member, answer in enumerate(answers):
        donor = optimizer.history[answer.resume_from].proposal
        assert answer.member == str(member)
        assert answer.until == 40
        if member in {0, 5}:
            assert answer.resume_from in {2, 6}
            assert answer.origin.startswith(f"exploit member {answer.resume_from}, explore ")
        else:
            assert answer.config == donor.config


def test_explore_changes_only_what_is_changeable_and_stays_in_bounds():
    simulation = simulate(factory(population=8, generations=10, step=0.5), lambda i, p: p.config["rate"], 80)
    explored = 0
    for proposal in simulation.proposals:
        if proposal.resume_from is None:
            continue
        parent = simulation.proposals[proposal.resume_from].config
        changed = {name for name in parent if parent[name] != proposal.config[name]}
        assert changed <= CHANGEABLE
        explored += bool(changed)
        SPACE.check(proposal.config)
    assert explored >= 9


def test_a_failed_member_is_replaced_by_a_clone_of_a_survivor():
    answers = generation(started([None, 3.0, 9.0, 4.0]), 4, 4)
    assert answers[0].resume_from == 2
    assert answers[2].resume_from == 2
    assert answers[2].origin == "continue"


def test_an_unresumable_or_self_stopped_member_is_replaced_and_never_copied():
    optimizer = started([1.0, 2.0, 3.0, 4.0])
    optimizer.observe(Scored(3, (4.0,), reached=20, resumable=False))
    optimizer.observe(Scored(2, (3.0,), reached=13))
    answers = generation(optimizer, 4, 4)
    assert [answer.resume_from for answer in answers] == [1, 1, 1, 1]


def test_a_population_that_died_out_starts_again():
    answers = generation(started([None, None, None]), 3, 3)
    assert [(answer.resume_from, answer.until) for answer in answers] == [(None, 40)] * 3
    assert len({answer.config for answer in answers}) == 3


def test_kept_are_the_parents_still_needed_and_the_running_generation():
    optimizer = started([1.0, 2.0, 3.0, 4.0])
    assert list(optimizer.keeps()) == [0, 1, 2, 3]
    generation(optimizer, 4, 2)
    assert list(optimizer.keeps()) == [0, 1, 2, 3, 4, 5]
    generation(optimizer, 6, 2)
    assert list(optimizer.keeps()) == [4, 5, 6, 7]


@pytest.mark.parametrize(("budget", "members"), [(math.inf, 8), (20.5, 20), (1.0, 2), (500.0, 64)])
def test_the_budget_decides_the_population(budget, members):
    assert make("pbt", SPACE, horizon=100, budget=budget, changeable=CHANGEABLE).population == members


def test_nothing_changeable_is_an_input_error():
    with pytest.raises(InputError, match="changeable: true"):
        make("pbt", SPACE, horizon=100)


def test_pbt_beats_training_the_same_population_without_copying():
    """The quadratic of Jaderberg et al. 2017, figure 2: each member sees only half of the surrogate's gradient."""
    space = space_of("continuous")

    def best(quantile, seed):
        theta = {}

        def objective(number, proposal):
            weights = np.array(theta[proposal.resume_from] if proposal.resume_from is not None else (0.9, 0.9))
            h = np.array([proposal.config["x"], proposal.config["y"]])
            for _ in range(4):
                weights = weights - 0.04 * 2 * h * weights
            theta[number] = tuple(weights)
            return 1.2 - float(weights @ weights)

        optimizer = lambda: make(  # noqa: E731
            "pbt", space, horizon=100, changeable={"x", "y"}, population=6, generations=10, quantile=quantile
        )
        return simulate(optimizer, objective, 60, seed=seed).best

    gains = [best(0.34, seed) - best(0.0, seed) for seed in range(8)]
    assert np.mean(gains) > 0
    assert sum(gain >= 0 for gain in gains) >= 6
