"""The optimizer `transfer` by its formulas: shares of the arms, evidence, weights, and what is looked at."""

import functools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from autorl.core.types import FrozenMap, InputError, Proposal, Proposed, Scored
from autorl.optimizers import find, make, transfer
from autorl.optimizers.base import Surroundings
from autorl.optimizers.priors import sources
from autorl.optimizers.priors.build import fitted_prior
from autorl.optimizers.priors.sources import Gathered
from autorl.optimizers.priors.study_prior import StudyPrior, study_prior_of
from autorl.optimizers.priors.table import TaskTable
from autorl.space import load_space
from autorl.store.events import ENQUEUED
from autorl.study.spec import load_spec
from autorl.study.spec.study_file import thaw

UNIT = {"type": "float", "lower": 0.0, "upper": 1.0}
SQUARE = load_space({"hyperparameters": {"x": UNIT, "y": UNIT}})


def config(number):
    return SQUARE.from_unit(np.random.default_rng([7, number]).random(2))


@functools.cache
def prior_of(tasks):
    """Return a prior of tasks, each better towards another corner."""
    configs = tuple(config(1000 + number) for number in range(12))
    tables = []
    for task in range(tasks):
        values = np.array([one["x"] if task else one["y"] for one in configs])
        scores = (values - values.min()) / np.ptp(values)
        tables.append(TaskTable(f"tests/{task}", "kit", f"Task{task}-v0", configs, scores, 3))
    return fitted_prior(Gathered([[table] for table in tables]), SQUARE, None, named=True).to_dict()


def built(*, trust=0.8, tasks=1, **options):
    chosen = {"budget": 40, "prior_data": prior_of(tasks), **options}
    optimizer = make("transfer", SQUARE, horizon=10, **chosen)
    optimizer.prior = replace(optimizer.prior, trust=trust)
    return optimizer


def observe(optimizer, number, arm=None, value=None):
    meta = FrozenMap() if arm is None else FrozenMap(arm=arm, due=0.0)
    optimizer.observe(Proposed(number, Proposal(config(number), 10, meta=meta)))
    if value is not None:
        optimizer.observe(Scored(number, (value,)))


# -- shares ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trust", "budget", "proposed", "share"),
    [
        (0.8, 40, 9, 0.0),  # ten proposals that a trusted prior makes alone
        (0.8, 40, 10, 0.2),
        (0.8, 12, 5, 0.0),  # or half of the budget
        (0.8, 12, 6, 0.2),
        (0.8, 400, 12, 0.2),
        (0.8, 400, 16, 0.7140),  # odds 4 : 1, times (12 / 16)^8
        (0.8, 400, 24, 0.95),  # neither arm has less than 0.05
        (0.5, 40, 9, 0.0),
        (0.5, 40, 10, 0.5),
        (0.1, 40, 0, 0.9),
        (0.1, 40, 10, 0.9),
        (0.02, 40, 10, 0.95),
        (0.99, 40, 10, 0.05),
    ],
)
def test_the_share_of_plain_search_before_evidence(trust, budget, proposed, share):
    optimizer = built(trust=trust, budget=budget)
    for number in range(proposed):
        observe(optimizer, number)
    assert optimizer._share_of_plain(informed=False) == pytest.approx(share, abs=1e-4)


def test_without_tasks_all_is_plain_search():
    optimizer = make("transfer", SQUARE, horizon=10, prior="none")
    assert optimizer._share_of_plain(informed=False) == 1.0
    assert optimizer.outline() == ("no prior: prior is none",)


def test_evidence_is_the_z_of_the_rank_sum_test():
    optimizer = built()
    values = {"prior": [0.1, 0.9, 0.4, 0.35], "plain": [0.2, 0.5, 0.7, 0.8, 0.6, 0.95]}
    number = 0
    assert optimizer._evidence() == 0.0
    for arm, scores in values.items():
        for value in scores:
            observe(optimizer, number, arm, value)
            number += 1
        if arm == "prior":
            assert optimizer._evidence() == 0.0, "nothing to compare with"
    observe(optimizer, number, "plain")  # a pending one has no part in it
    observe(optimizer, number + 1, value=9.0)  # nor what is of neither arm
    n, m = len(values["prior"]), len(values["plain"])
    larger = mannwhitneyu(values["prior"], values["plain"]).statistic
    z = (larger - n * m / 2) / math.sqrt(n * m * (n + m + 1) / 12)
    assert optimizer._evidence() == pytest.approx(z)
    # Odds 4 : 1, times exp(2 z).
    share = 1 / (1 + 4 * math.exp(2 * z))
    assert 0.2 < share < 0.95
    assert optimizer._share_of_plain(informed=True) == pytest.approx(share)
    assert optimizer._share_of_plain(informed=False) == pytest.approx(0.2)


# -- what the prior expects least ----------------------------------------------------------------


def drawn_by(optimizer, count=60, *, informed=False):
    """Return y of each configuration that plain search draws."""
    return [
        optimizer._next_of_plain(np.random.default_rng(seed), informed=informed)[0]["y"]
        for seed in range(count)
    ]


def test_draws_leave_out_where_the_prior_expects_least():
    """The task's score is y, so with half left out draws lie in the upper half."""
    assert min(drawn_by(built(leave_out=0.5))) > 0.3
    assert min(drawn_by(built(leave_out=0.0))) < 0.1
    plain = [SQUARE.sample(np.random.default_rng(seed))["y"] for seed in range(60)]
    assert drawn_by(built(leave_out=0.0)) == plain
    assert drawn_by(make("transfer", SQUARE, horizon=10, prior="none")) == plain, "no prior"


@pytest.mark.parametrize(("sign", "contradicted"), [(1, False), (-1, True)])
def test_results_that_contradict_the_prior_give_it_no_say_in_draws(sign, contradicted):
    optimizer = built(leave_out=0.5, explore=1.0)
    for number in range(8):
        observe(optimizer, number, value=sign * config(number)["y"])
    assert (min(drawn_by(optimizer, informed=True)) < 0.1) is contradicted
    # Which results a start-up has seen depends on how fast they came.
    assert min(drawn_by(optimizer, informed=False)) > 0.3


def test_an_enqueued_configuration_is_not_a_draw_of_an_arm():
    optimizer = built()
    meta = FrozenMap(arm="plain", due=0.75)
    taken = Proposal(config(0), 10, origin=ENQUEUED, meta=meta)
    optimizer.observe(Proposed(0, taken))
    assert (optimizer._arms, optimizer._due) == ({}, 0.0)
    # It is not proposed again, and its result is known.
    assert config(0) in optimizer._proposed
    optimizer.observe(Scored(0, (1.0,)))
    assert len(optimizer._own._log) == 1


# -- how much confirms ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trust", "runs", "share"),
    [
        (0.8, 20, 0.4),
        (0.5, 50, 0.4),
        (0.8, 100, 0.2),
        (0.8, 134, None),
        (0.8, math.inf, None),
        (0.49, 20, None),
        (0.1, 20, None),
    ],
)
def test_a_trusted_prior_leaves_more_of_the_budget_to_the_choice(trust, runs, share):
    assert find("transfer").confirming_share({"prior_data": {"trust": trust}}, runs) == share


@pytest.mark.parametrize("data", [None, {}, {"trust": "much"}, [1], {"trust": None}])
def test_without_a_prior_the_usual_share_confirms(data):
    assert find("transfer").confirming_share({"prior_data": data}, 20) is None
    assert find("random").confirming_share({}, 20) is None


# -- what a study file names -------------------------------------------------------------------------

TRANSFER = find("transfer")
BELIEFS = {"x": {"centre": 0.25}}


@pytest.mark.parametrize(
    "options",
    [
        {"prior": "none"},
        {"prior": "none", "beliefs": {}},
        {"prior": ["nowhere"], "prior_data": {"version": 1}},
        {"prior": "none", "beliefs": BELIEFS, "prior_data": {"version": 1}},
    ],
)
def test_what_needs_no_look_up_stays_as_it_is(options):
    assert TRANSFER.resolved_options(options, Surroundings(SQUARE)) is options


@pytest.mark.parametrize("environment", ["CartPole-v1", None])
def test_beliefs_alone_are_a_task_of_the_studys_environment(environment):
    options = {"prior": "none", "beliefs": BELIEFS, "startup": 4}
    resolved = TRANSFER.resolved_options(options, Surroundings(SQUARE, ("a",), environment))
    assert {name: resolved[name] for name in options} == options
    (task,) = study_prior_of(resolved["prior_data"], SQUARE).tasks
    assert (task.source, task.environment) == ("stated beliefs", environment or "")


@pytest.mark.parametrize("options", [{"prior": ["a"]}, {"prior": "none", "beliefs": BELIEFS}])
def test_what_was_not_looked_up_is_refused(options):
    with pytest.raises(InputError, match="looked up when a study file is read"):
        TRANSFER(built().problem, TRANSFER.Options(**options))


AROUND = Surroundings(SQUARE, ("ppo", "dqn"), "CartPole-v1", "a/landscape", Path("here"))


@pytest.mark.parametrize(
    ("value", "call"),
    [
        ("auto", (("ppo", "dqn"), "a/landscape", False)),
        ("studies", (("ppo", "dqn"), "a/landscape", True)),
        (["a", "b"], (["a", "b"], ("ppo", "dqn"))),
        ("none", None),
    ],
)
def test_sources_are_looked_for_by_word_or_name(monkeypatch, value, call):
    def automatic(folder, algorithms, replays, *, studies):
        return (folder, algorithms, replays, studies)

    def named(names, folder, algorithms):
        return (folder, names, algorithms)

    monkeypatch.setattr(sources, "automatic_tables", automatic)
    monkeypatch.setattr(sources, "named_tables", named)
    expected = Gathered() if call is None else (Path("here"), *call)
    assert sources.gather(value, AROUND, "optimizer.prior") == expected


@pytest.mark.parametrize(
    ("options", "value", "named", "beliefs"),
    [
        ({}, "auto", False, []),
        ({"prior": "auto", "beliefs": {}}, "auto", False, []),
        ({"prior": "studies"}, "studies", False, []),
        ({"beliefs": BELIEFS}, "auto", False, ["stated beliefs"]),
        ({"prior": "none", "beliefs": BELIEFS}, "none", False, ["stated beliefs"]),
        ({"prior": ["a", "b"], "beliefs": BELIEFS}, ["a", "b"], True, ["stated beliefs"]),
    ],
)
def test_which_sources_a_prior_is_made_of(monkeypatch, options, value, named, beliefs):
    seen = []

    def fitted(gathered, space, environment, **how):
        tables = [table.source for group in gathered.groups for table in group]
        seen.append((tables, space, environment, how))
        return StudyPrior(("x", "y"), ())

    monkeypatch.setattr(transfer, "gather", lambda *asked: seen.append(asked) or Gathered())
    monkeypatch.setattr(transfer, "fitted_prior", fitted)
    resolved = TRANSFER.resolved_options(options, AROUND)
    made = (beliefs, SQUARE, "CartPole-v1", {"named": named})
    assert seen == [(value, AROUND, "optimizer.prior"), made]
    assert resolved == {**options, "prior_data": StudyPrior(("x", "y"), ()).to_dict()}


# -- the share of a budget that confirms -------------------------------------------------------------


@pytest.mark.parametrize(
    ("optimizer", "evaluation", "share"),
    [
        ({"beliefs": BELIEFS}, {"seeds": "adaptive"}, 0.4),
        ({"beliefs": BELIEFS}, {"seeds": "adaptive", "share": 0.2}, 0.2),
        ({"beliefs": BELIEFS}, {"seeds": "fixed"}, None),
        ({}, {"seeds": "adaptive"}, None),
    ],
)
def test_the_share_of_a_trusted_prior_is_written_into_the_study(optimizer, evaluation, share):
    spec = load_spec(
        {
            "trainer": "synthetic",
            "space": {"hyperparameters": {"x": UNIT, "y": UNIT}},
            "optimizer": {"name": "transfer", "prior": "none"} | optimizer,
            "evaluation": evaluation,
            "seeds": {"tuning": 5, "test": 0},
            "fidelity": {"steps": 8},
            "budget": {"runs": 24},
        }
    )
    assert spec.evaluation.share == share
    frozen = thaw(spec.freeze(), "study.yaml")
    assert frozen.evaluation.share == share
    assert frozen.policy() == spec.policy()


# -- the study that names no optimizer -----------------------------------------------------------------


DEFAULT = {
    "trainer": "population/ppo",
    "environment": "CartPole-v1",
    "space": "population/ppo-small",
    "fidelity": {"steps": 4_000, "evaluations": 2},
    "budget": {"runs": 24},
}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "transfer"),
        ({"optimizer": {"prior": "none"}}, "transfer"),
        ({"optimizer": {"startup": 3}}, "transfer"),
        ({"optimizer": {"stop": "median"}}, "transfer"),
        ({"optimizer": "tpe"}, "tpe"),
        ({"optimizer": {"name": "tpe", "startup": 3}}, "tpe"),
        ({"optimizer": {"most_results": 200}}, "tpe"),
        ({"objective": {"metric": "eval_return", "direction": "minimize"}}, "tpe"),
        ({"objective": {"metric": "wall_seconds", "direction": "minimize"}}, "tpe"),
        ({"objective": [{"metric": "eval_return"}, {"metric": "steps"}]}, "tpe"),
        ({"trainer": "python:math:sqrt"}, "tpe"),
    ],
)
def test_the_default_is_transfer_where_the_algorithm_has_a_prior(changes, name):
    spec = load_spec(DEFAULT | changes)
    assert spec.optimizer.name == name
    assert thaw(spec.freeze(), "study.yaml").optimizer.name == name


@pytest.mark.parametrize(
    ("changes", "rule", "tuning"),
    [
        ({}, "adaptive", 5),
        ({"seeds": {"test": 4}}, "adaptive", 5),
        ({"optimizer": {"prior": "none"}}, "adaptive", 5),
        ({"seeds": {"tuning": 2}}, "fixed", 2),
        ({"evaluation": {"aggregate": "iqm"}}, "fixed", 3),
        ({"optimizer": "transfer"}, "fixed", 3),
        ({"optimizer": "random"}, "fixed", 3),
    ],
)
def test_the_seeds_of_a_study_that_leaves_optimizer_and_seeds_to_the_defaults(
    changes, rule, tuning
):
    spec = load_spec(DEFAULT | changes)
    assert (spec.evaluation.seeds, len(spec.plan.tuning)) == (rule, tuning)
    assert len(spec.plan.test) == changes.get("seeds", {}).get("test", 10)


def test_the_default_is_what_the_long_form_says():
    optimizer = {"name": "transfer", "prior": "auto"}
    said = {"optimizer": optimizer, "evaluation": {"seeds": "adaptive"}, "seeds": {"tuning": 5}}
    assert load_spec(DEFAULT).freeze() == load_spec(DEFAULT | said).freeze()


def test_without_a_prior_of_its_algorithm_a_study_has_the_other_default(monkeypatch):
    monkeypatch.setattr(sources, "automatic_tables", lambda *arguments, **options: Gathered())
    spec = load_spec(DEFAULT)
    assert (spec.optimizer.name, spec.evaluation.seeds) == ("tpe", "fixed")


def test_a_study_by_default_stays_the_same_when_priors_come_and_go(monkeypatch):
    with_prior = load_spec(DEFAULT)
    monkeypatch.setattr(sources, "automatic_tables", lambda *arguments, **options: Gathered())
    without = load_spec(DEFAULT)
    assert (with_prior.optimizer.name, without.optimizer.name) == ("transfer", "tpe")
    for spec in (with_prior, without):
        for begun in (with_prior, without):
            stored = thaw(begun.freeze(), "study.yaml")
            assert spec.same_study(stored), (spec.optimizer.name, begun.optimizer.name)
            assert not load_spec(DEFAULT | {"budget": {"runs": 25}}).same_study(stored)
            assert not load_spec(DEFAULT | {"seeds": {"tuning": 4}}).same_study(stored)
    stored = thaw(with_prior.freeze(), "study.yaml")
    assert not load_spec(DEFAULT | {"optimizer": "tpe"}).same_study(stored)
    assert not load_spec(DEFAULT | {"optimizer": {"prior": "none"}}).same_study(stored)


def test_a_prior_is_looked_up_once_to_choose_the_default_and_to_use_it(monkeypatch):
    looked = []
    automatic = sources.automatic_tables

    def counting(*arguments, **options):
        looked.append(options)
        return automatic(*arguments, **options)

    monkeypatch.setattr(sources, "automatic_tables", counting)
    assert load_spec(DEFAULT).optimizer.name == "transfer"
    assert looked == [{"studies": False}]
