"""Adaptive seeds: explore with few, confirm the best with more. DESIGN, contract 7."""

import numpy as np
import pytest
from scripted import Scripted, Shuffled, Toy, full, listed, run, study_with, toy_spec
from study_support import small_spec

from autorl.core.types import InputError, Status
from autorl.executors.worker import run_segment
from autorl.study import Study
from autorl.study.results.record import StudyRecord

ADAPTIVE = {
    "evaluation": {"seeds": "adaptive"},
    "seeds": {"tuning": 4, "test": 2},
    "budget": {"runs": 14},
}
SHARE = {**ADAPTIVE, "evaluation": {"seeds": "adaptive", "share": 0.4}}
UNTESTED = {**SHARE, "seeds": {"tuning": 4, "test": 0}}
ASHA = {**SHARE, "optimizer": {"name": "asha", "rungs": 3}, "budget": {"runs": 8}}


def adaptive_of(monkeypatch, xs, order=0, curve=None, before=lambda segment: None, **changes):
    """A study of scripted configurations: 10 runs, of which 4 confirm."""
    optimizer = Scripted(listed(*map(full, xs)))
    trainer = Toy(curve or (lambda config, seed, step: config["x"] + 0.01 * seed), before)
    changes = {"budget": {"runs": 10}, **changes}
    study = study_with(monkeypatch, toy_spec(**{**UNTESTED, **changes}), optimizer, trainer)
    study.run(executor=Shuffled(study.load, np.random.default_rng(order)))
    return optimizer, study


def seeds_of(study):
    return dict(study.store.query("SELECT proposal, n_seeds FROM proposals"))


def granted(study):
    events = [recorded.event for recorded in study.store.events()]
    return [
        (event.proposals, event.seeds, event.levels) for event in events if event.kind == "confirm"
    ]


def in_memory(**changes):
    study = Study.in_memory(small_spec(**{**UNTESTED, **changes}))
    run(study)
    return study


# -- who gets more seeds -------------------------------------------------------------------------


def test_the_best_two_of_six_get_all_that_is_kept_for_them(monkeypatch):
    optimizer, study = adaptive_of(monkeypatch, [0.5, 0.2, 0.1, 0.8, 0.7, 0.3, 0.9])
    assert [number for call, number in optimizer.order if call == "ask"] == [0, 1, 2, 3, 4, 5]
    assert seeds_of(study) == {0: 1, 1: 1, 2: 1, 3: 3, 4: 3, 5: 1}
    assert granted(study) == [((3, 4), (0, 1), (2,)), ((3, 4), (0, 1, 2), ())]
    assert study.driver.ranking.best() == 3
    assert study.driver.charges.steps == 1000


def test_failed_proposals_are_not_confirmed_and_failed_seeds_count(monkeypatch):
    def before(segment):
        doomed = segment.config["x"] == 0.9 or (segment.config["x"] == 0.8 and segment.seed == 1)
        return Status.CRASH if doomed else None

    _, study = adaptive_of(monkeypatch, [0.5, 0.9, 0.1, 0.8, 0.7, 0.3], before=before)
    assert seeds_of(study) == {0: 1, 1: 0, 2: 1, 3: 3, 4: 3, 5: 1}
    assert study.driver.ranking.best() == 4, "the failed seed of 3 scores the worst so far"
    assert study.driver.charges.steps == 1000


# -- the budget ----------------------------------------------------------------------------------


@pytest.mark.parametrize("runs", [1, 2, 3, 5, 8, 13.5, 32])
def test_the_budget_is_charged_exactly(runs):
    study = in_memory(evaluation={"seeds": "adaptive"}, budget={"runs": runs})
    assert study.driver.charges.steps == int(runs) * 100
    counts = list(seeds_of(study).values())
    assert sum(counts) == int(runs)
    best = study.driver.ranking.best()
    assert seeds_of(study)[best] == max(counts)
    assert max(counts) > 1 or runs < 3


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "tpe"},
        {"optimizer": "grid", "budget": {"runs": 60}},
        {"optimizer": "sobol", "budget": {"environment_steps": 1400}},
        {"optimizer": {"name": "asha", "rungs": 3}},
        {"optimizer": {"name": "hyperband", "rungs": 3}},
        {"optimizer": {"name": "random", "stop": "median", "rungs": 3}, "budget": {"runs": 20}},
        {"evaluation": {"seeds": "adaptive", "min": 2, "max": 3}, "budget": {"runs": 21}},
        {
            "objective": [
                {"metric": "eval_return"},
                {"metric": "environment_steps", "direction": "minimize"},
            ]
        },
        {"trainer": {"crash": 0.3}},
        {"asynchronous": True},
    ],
    ids=lambda changes: "-".join(map(str, changes.values()))[:40],
)
def test_the_budget_is_kept_and_the_incumbent_has_the_most_seeds(changes):
    study = in_memory(**changes)
    driver = study.driver
    best = driver.ranking.best()
    first = len(driver.policy.first)
    assert driver.charges.steps <= driver.budget.steps
    # The rest pays for no full proposal.
    assert driver.budget.steps - driver.charges.steps < 100 * first
    longest = [n for n in driver.ranking.ordered() if driver.lineage[n].until == 100]
    assert driver.ranking[best].n_seeds == max(driver.ranking[n].n_seeds for n in longest) > first
    assert StudyRecord(study.spec, study.store, None).spent.charged_steps == driver.charges.steps


def test_a_budget_of_configurations_has_the_confirmation_on_top():
    study = in_memory(
        budget={"configurations": 12}, evaluation={"seeds": "adaptive", "share": 0.25}
    )
    assert len(study.driver.lineage) == 12
    assert study.driver.charges.steps == 1600
    assert all(proposals for proposals, _, _ in granted(study)), "nothing more was to be explored"


def test_a_budget_of_hours_is_split_by_the_clock():
    """A full run takes a tenth of an hour."""
    changes = {**UNTESTED, "budget": {"hours": 1}}
    study = Study.in_memory(small_spec(**changes))
    driver = study.driver
    driver.budget._elapsed = lambda: driver.work.sent / 10
    driver.work.sent = 0
    while segments := driver.advance():
        for segment in segments:
            driver.work.sent += 1
            driver.record(run_segment(study.load, segment, lambda report: None))
    assert len(driver.lineage) == 6
    assert sum(seeds_of(study).values()) == 10


def test_where_nothing_can_be_confirmed_the_rest_explores(monkeypatch):
    """All that the share of the exploration pays for failed, and one proposal has all its seeds."""

    def before(segment):
        return Status.DIVERGED if segment.config["x"] < 0.5 else None

    xs = [0.1, 0.2, 0.3, 0.4, 0.45, 0.15, 0.6, 0.7]
    _, study = adaptive_of(monkeypatch, xs, before=before)
    assert granted(study)[0] == ((), (), ())
    assert seeds_of(study)[6] == seeds_of(study)[7] == 2
    assert study.driver.charges.steps == 1000


def test_more_budget_is_split_again_and_a_new_proposal_can_become_the_incumbent(monkeypatch):
    xs = [0.5, 0.2, 0.1, 0.8, 0.7, 0.3, 0.9, 0.4, 0.6, 0.05]
    optimizer, study = adaptive_of(monkeypatch, xs)
    assert study.driver.ranking.best() == 3
    study.extend(5)
    study.run(executor=Shuffled(study.load, np.random.default_rng(0)))
    assert study.driver.charges.steps == 1500
    assert seeds_of(study) == {0: 1, 1: 1, 2: 1, 3: 3, 4: 3, 5: 1, 6: 3, 7: 1, 8: 1}
    assert study.driver.ranking.best() == 6
    scored = [
        (event.proposal, event.n_seeds) for event in optimizer.seen if hasattr(event, "n_seeds")
    ]
    assert len(scored) == len(set(scored)), "who has the seeds of a level is not scored again"


# -- what is said of it --------------------------------------------------------------------------


def test_the_result_says_how_sure_the_choice_is_and_how_far_it_is_over_tuned():
    from autorl.report.text import result_dict, result_text

    study = in_memory(budget={"runs": 24})
    result = study.result()
    choice = result.choice
    assert choice.confirmed == sum(count > 1 for count in seeds_of(study).values())
    assert 0 < choice.probability <= 1
    assert choice.expected == pytest.approx(result.tuning - choice.overtuning)
    assert result_dict(result)["choice"] == vars(choice)
    said = (
        f"the best of {choice.confirmed} confirmed with probability about {choice.probability:.1f}"
    )
    assert said in result_text(result)


def test_the_dry_run_counts_what_the_study_does():
    from autorl.report.plan import make_plan
    from autorl.report.plan_text import plan_dict, plan_text

    changes = {**UNTESTED, "budget": {"runs": 20}}
    plan = make_plan(small_spec(**changes))
    study = in_memory(**changes)
    counts = list(seeds_of(study).values())
    assert plan.exact
    assert (plan.search.proposals, plan.search.segments) == (len(counts), sum(counts)) == (12, 20)
    assert vars(plan.confirmed) == {
        "explore": 1200,
        "confirm": 800,
        "proposals": sum(count > 1 for count in counts),
        "seeds": max(counts),
    }
    assert plan_dict(plan)["confirmed"]["confirm"] == 800
    text = "12 full runs explore, 8 confirm the best 4 proposals, up to 4 seeds each"
    assert text in plan_text(plan)
    assert not make_plan(small_spec(**ASHA)).exact
    # The default configuration may be the only one that is not confirmed.
    tested = make_plan(small_spec(**{**changes, "seeds": {"tuning": 4, "test": 1}}))
    assert (tested.baseline.segments, tested.baseline.steps) == (3, 300)


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evaluation": {"seeds": "adaptive", "max": 9}}, "adaptive up to more seeds than the 4"),
        ({"evaluation": {"seeds": "adaptive", "min": 4}}, "adaptive needs more seeds for the best"),
        ({"seeds": {"tuning": 1}}, "adaptive needs more seeds for the best than the 1 of every"),
        ({"evaluation": {"share": 0.2}}, "evaluation.share: is of `seeds: adaptive`"),
        ({"evaluation": {"seeds": "adaptive", "share": 0.7}}, "evaluation.share"),
        ({"budget": {"configurations": 10**9}}, "adaptive needs a budget"),
    ],
)
def test_what_cannot_be_confirmed_is_an_input_error(changes, message):
    with pytest.raises(InputError, match=message):
        small_spec(**{**ADAPTIVE, **changes})
