"""The optimizer `transfer` by its formulas: shares of the arms, evidence, readings, and plain search."""

import functools
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau, norm

from autorl.core.types import Config, FrozenMap, InputError, Proposal, Proposed, Scored
from autorl.optimizers import find, make, transfer
from autorl.optimizers._own_results import ranks
from autorl.optimizers.base import Surroundings
from autorl.optimizers.priors import sources
from autorl.optimizers.priors.build import fitted_prior
from autorl.optimizers.priors.sources import Gathered
from autorl.optimizers.priors.study_prior import PLACES, VALUES, StudyPrior
from autorl.optimizers.priors.table import TaskTable
from autorl.optimizers.priors.trust import Belief, Trust
from autorl.optimizers.process import Process, normal_scores, rows_of
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


def built(*, trust=None, tasks=1, **options):
    """Make an optimizer whose trust is (hits, agreement), a mean and a deviation each."""
    chosen = {"budget": 40, "prior_data": prior_of(tasks), **options}
    optimizer = make("transfer", SQUARE, horizon=10, **chosen)
    if trust is not None:
        hits, agreement = (Belief(*belief) for belief in trust)
        optimizer.readings[VALUES].trust = Trust(hits, agreement)
    return optimizer


def observe(optimizer, number, arm=None, value=None):
    meta = FrozenMap() if arm is None else FrozenMap(arm=arm, due=0.0)
    optimizer.observe(Proposed(number, Proposal(config(number), 10, meta=meta)))
    if value is not None:
        optimizer.observe(Scored(number, (value,)))


# -- shares ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trust", "share"),
    [
        (((0.9, 1.0), (0.4, 0.2)), 0.65),  # at most
        (((0.0, 1.0), (0.4, 0.2)), 0.5),
        (((0.9, 1.0), (-0.1, 0.2)), norm.cdf(-1.0)),  # the lesser of the two decides
        (((-3.0, 1.0), (0.4, 0.2)), norm.cdf(-6.0)),
    ],
)
def test_the_share_of_the_prior_before_evidence(trust, share):
    optimizer = built(trust=trust)
    assert optimizer._share_of_prior([])[0] == pytest.approx(share)
    # Shares are added up, and plain search proposes whenever the sum passes 1.
    arms = []
    for number in range(12):
        proposal = optimizer.ask(np.random.default_rng(number))
        optimizer.observe(Proposed(number, proposal))
        arms.append(proposal.meta.get("arm"))
    assert arms.count("plain") == math.floor(round(11 * (1 - share), 9))


def test_without_tasks_all_is_plain_search():
    optimizer = make("transfer", SQUARE, horizon=10, prior="none")
    assert optimizer._share_of_prior([]) == (0.0, None)
    assert optimizer.outline() == ("no prior: prior is none",)


def test_evidence_of_both_arms_and_of_all_results_moves_the_share():
    optimizer = built(trust=((0.5, 1.0), (0.3, 0.3)))
    results = {
        "prior": [0.1, 0.9, 0.4, 0.35],
        "plain": [0.2, 0.5, 0.7, 0.8, 0.6, 0.95],
        None: [9.0, 0.0],
    }
    number = 0
    for arm, scores in results.items():
        for value in scores:
            observe(optimizer, number, arm, value)
            number += 1
    observe(optimizer, number, "plain")  # a pending one has no part in it
    records = [record for record in optimizer.history if record.values]
    values = np.array([record.values[0] for record in records])
    # Of twelve results three are the best quarter: 9.0 of neither arm, 0.95 and 0.9.
    first = Belief(0.5, 1.0).given(
        math.log(1.5 / 3.5) - math.log(1.5 / 5.5), 1 / 1.5 + 1 / 3.5 + 1 / 1.5 + 1 / 5.5
    )
    expected = optimizer.readings[VALUES].expected([record.proposal.config for record in records])
    tau = kendalltau(expected, values).statistic
    second = Belief(0.3, 0.3).given(tau, 2 * 29 / (9 * 12 * 11))
    share = norm.cdf(2 * min(first.mean / first.deviation, second.mean / second.deviation))
    assert optimizer._share_of_prior(records)[0] == pytest.approx(min(0.65, share))


def test_the_reading_that_agrees_better_proposes():
    """Recorded between 0 and 0.2, the best lies at 0.1: at that value, or at half of a range."""
    configs = tuple(Config(x=0.2 * place, y=0.5) for place in np.linspace(0, 1, 21))
    scores = np.array([1 - abs(config["x"] - 0.1) * 10 for config in configs])
    table = TaskTable("tests/narrow", "kit", "Task-v0", configs, scores, 3)
    data = fitted_prior(Gathered([[table]]), SQUARE, None, named=True).to_dict()
    for best, reading in ((0.1, VALUES), (0.5, PLACES)):
        optimizer = make("transfer", SQUARE, horizon=10, budget=40, prior_data=data)
        for number, x in enumerate(np.linspace(0, 1, 9)):
            optimizer.observe(Proposed(number, Proposal(Config(x=x, y=0.5), 10)))
            optimizer.observe(Scored(number, (-abs(x - best),)))
        chosen = optimizer._share_of_prior([*optimizer.history])[1]
        assert chosen.name == reading
        config, origin = optimizer._next_of(chosen)
        assert config["x"] == pytest.approx(best, abs=0.05)
        assert origin == "transfer, portfolio, from tests/narrow"


# -- plain search --------------------------------------------------------------------------------


def test_plain_search_takes_the_largest_bound_of_what_it_draws():
    optimizer = make("transfer", SQUARE, horizon=10, prior="none", budget=40)
    for number in range(12):
        observe(optimizer, number, value=config(number)["x"])
    rng = np.random.default_rng(3)
    records = [*optimizer.history]
    chosen = optimizer._by_results(records, np.random.default_rng(3))
    units = np.array([[record.proposal.config[name] for name in "xy"] for record in records])
    process = Process(rows_of(SQUARE, units), normal_scores(ranks(records)))
    mean = process.mean(rows_of(SQUARE, units))
    drawn = optimizer._candidates(units[np.argsort(-mean)], rng)
    assert drawn.shape == (512, 2)
    assert ((drawn >= 0) & (drawn <= 1)).all()
    mean, deviation = process.at(rows_of(SQUARE, drawn))
    assert [chosen["x"], chosen["y"]] == pytest.approx(drawn[(mean + 2 * deviation).argmax()])


def test_a_space_of_constants_has_one_configuration():
    space = load_space({"hyperparameters": {"c": {"type": "categorical", "choices": ["a"]}}})
    optimizer = make("transfer", space, horizon=10, prior="none", budget=40)
    for number in range(10):
        proposal = optimizer.ask(np.random.default_rng(number))
        optimizer.observe(Proposed(number, proposal))
        optimizer.observe(Scored(number, (float(number),)))
    assert proposal.config == Config(c="a")


def test_an_enqueued_configuration_is_not_a_draw_of_an_arm():
    optimizer = built()
    meta = FrozenMap(arm="plain", due=0.75)
    taken = Proposal(config(0), 10, origin=ENQUEUED, meta=meta)
    optimizer.observe(Proposed(0, taken))
    assert (optimizer._arms, optimizer._due) == ({}, 0.0)
    # It is not proposed again, and its result is known.
    assert config(0) in optimizer.history.configs
    optimizer.observe(Scored(0, (1.0,)))
    assert list(optimizer._latest) == [0]


# -- what a study file names -------------------------------------------------------------------------

TRANSFER = find("transfer")


@pytest.mark.parametrize(
    "options", [{"prior": "none"}, {"prior": ["nowhere"], "prior_data": {"version": 1}}]
)
def test_what_needs_no_look_up_stays_as_it_is(options):
    assert TRANSFER.resolved_options(options, Surroundings(SQUARE)) is options


def test_what_was_not_looked_up_is_refused():
    with pytest.raises(InputError, match="looked up when a study file is read"):
        TRANSFER(built().problem, TRANSFER.Options(prior=["a"]))


AROUND = Surroundings(SQUARE, ("ppo", "dqn"), "CartPole-v1", "a/landscape", Path("here"))


@pytest.mark.parametrize(
    ("value", "call"),
    [
        ("auto", (("ppo", "dqn"), "a/landscape", False)),
        ("studies", (("ppo", "dqn"), "a/landscape", True)),
        (["a", "b"], (["a", "b"], ("ppo", "dqn"))),
    ],
)
def test_sources_are_looked_for_by_word_or_name(monkeypatch, value, call):
    def automatic(folder, algorithms, replays, *, studies):
        return (folder, algorithms, replays, studies)

    def named(names, folder, algorithms):
        return (folder, names, algorithms)

    monkeypatch.setattr(sources, "automatic_tables", automatic)
    monkeypatch.setattr(sources, "named_tables", named)
    assert sources.gather(value, AROUND, "optimizer.prior") == (Path("here"), *call)


@pytest.mark.parametrize(
    ("options", "value", "named"),
    [
        ({}, "auto", False),
        ({"prior": "studies"}, "studies", False),
        ({"prior": ["a", "b"]}, ["a", "b"], True),
    ],
)
def test_which_sources_a_prior_is_made_of(monkeypatch, options, value, named):
    seen = []

    def fitted(gathered, space, environment, **how):
        seen.append((gathered, space, environment, how))
        return StudyPrior(("x", "y"))

    monkeypatch.setattr(transfer, "gather", lambda *asked: seen.append(asked) or Gathered())
    monkeypatch.setattr(transfer, "fitted_prior", fitted)
    resolved = TRANSFER.resolved_options(options, AROUND)
    made = (Gathered(), SQUARE, "CartPole-v1", {"named": named})
    assert seen == [(value, AROUND, "optimizer.prior"), made]
    assert resolved == {**options, "prior_data": StudyPrior(("x", "y")).to_dict()}


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
        ({"optimizer": {"candidates": 48}}, "tpe"),
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
