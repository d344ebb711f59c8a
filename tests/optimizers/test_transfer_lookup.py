"""The optimizer `transfer`: which sources it looks up, when results count, and who makes a proposal."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autorl.core.types import Failed, FrozenMap, Proposal, Proposed, Scored, Status
from autorl.optimizers import find, make, transfer
from autorl.optimizers.base import Surroundings
from autorl.optimizers.priors.build import fitted_prior
from autorl.optimizers.priors.sources import Gathered
from autorl.optimizers.priors.study_prior import StudyPrior
from autorl.optimizers.priors.table import TaskTable
from autorl.space import load_space
from autorl.study.spec import load_spec
from autorl.study.spec.study_file import thaw

UNIT = {"type": "float", "lower": 0.0, "upper": 1.0}
SQUARE = load_space({"hyperparameters": {"x": UNIT, "y": UNIT}})
TRANSFER = find("transfer")
BELIEFS = {"x": {"centre": 0.25}}
AROUND = Surroundings(SQUARE, ("ppo", "dqn"), "CartPole-v1", "a/landscape", Path("here"))


def config(number):
    return SQUARE.from_unit(np.random.default_rng([7, number]).random(2))


def table(source="tests/a"):
    configs = tuple(config(1000 + number) for number in range(12))
    values = np.array([one["x"] for one in configs])
    scores = (values - values.min()) / np.ptp(values)
    return TaskTable(source, "kit", "Task-v0", configs, scores, 3)


DATA = fitted_prior(Gathered([[table()]]), SQUARE, None, named=True).to_dict()


def built(trust=0.8, **options):
    optimizer = make(
        "transfer", SQUARE, horizon=10, **{"budget": 40, "prior_data": DATA, **options}
    )
    optimizer.prior = replace(optimizer.prior, trust=trust)
    return optimizer


# -- sources --------------------------------------------------------------------------------------


@pytest.fixture
def read(monkeypatch):
    """Record each look-up and its key; every look-up brings a table of its own."""
    calls = []

    def automatic(folder, algorithms, replays, *, studies):
        calls.append(("studies" if studies else "automatic", folder, algorithms, replays))
        return Gathered([[table("tests/found")]])

    def named(names, folder, algorithms):
        calls.append((names, folder, algorithms))
        return Gathered([[table("tests/named")]])

    monkeypatch.setattr(transfer, "automatic_tables", automatic)
    monkeypatch.setattr(transfer, "named_tables", named)
    return calls


LOOKED = ("automatic", Path("here"), ("ppo", "dqn"), "a/landscape")


@pytest.mark.parametrize(
    ("options", "calls", "sources"),
    [
        ({}, [LOOKED], ["tests/found"]),
        ({"prior": "auto", "beliefs": {}}, [LOOKED], ["tests/found"]),
        ({"prior": "studies"}, [("studies", *LOOKED[1:])], ["tests/found"]),
        ({"beliefs": BELIEFS}, [LOOKED], ["stated beliefs", "tests/found"]),
        ({"prior": ["a"]}, [(["a"], Path("here"), ("ppo", "dqn"))], ["tests/named"]),
        ({"prior": "none", "beliefs": BELIEFS}, [], ["stated beliefs"]),
        (
            {"prior": ["a", "b"], "beliefs": BELIEFS},
            [(["a", "b"], Path("here"), ("ppo", "dqn"))],
            ["stated beliefs", "tests/named"],
        ),
    ],
)
def test_which_sources_are_read(monkeypatch, read, options, calls, sources):
    found = []

    def fitted(gathered, *arguments, **how):
        found.extend(table.source for tables in gathered.groups for table in tables)
        return StudyPrior(("x", "y"), ())

    monkeypatch.setattr(transfer, "fitted_prior", fitted)
    resolved = TRANSFER.resolved_options(options, AROUND)
    assert read == calls
    assert sorted(found) == sources
    assert resolved == {**options, "prior_data": StudyPrior(("x", "y"), ()).to_dict()}


@pytest.mark.parametrize(("options", "named"), [({}, False), ({"prior": ["a"]}, True)])
def test_a_source_that_cannot_be_used_is_an_error_where_it_is_named(
    monkeypatch, read, options, named
):
    seen = {}
    made = transfer.fitted_prior

    def noted(gathered, space, environment, **how):
        seen.update(how, environment=environment, space=space)
        return made(gathered, space, environment, **how)

    monkeypatch.setattr(transfer, "fitted_prior", noted)
    TRANSFER.resolved_options(options, AROUND)
    assert seen == {"named": named, "environment": "CartPole-v1", "space": SQUARE}


def test_what_a_study_stores_and_declares():
    assert TRANSFER.resolved == ("prior_data",)
    assert (TRANSFER.search_kind, TRANSFER.learns, TRANSFER.partial) == ("search", True, False)


# -- when results count ------------------------------------------------------------------------------


def played(optimizer, outcomes):
    """Proposals of the optimizer with these outcomes; the next one."""
    for number, value in enumerate(outcomes):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
        outcome = Failed(number, Status.CRASH, ())
        if value is not None:
            outcome = Scored(number, (float(value),))
        optimizer.observe(outcome)
    return optimizer.ask(np.random.default_rng(99))


@pytest.mark.parametrize(
    ("outcomes", "informed"),
    [
        ([1, 2, 3], False),
        ([1, 2, 3, 4], True),
        ([1, 2, 3, None], False),
        ([1, 2, 3, None, 5], True),
    ],
)
def test_results_have_a_part_from_the_fourth_on(outcomes, informed):
    assert played(built(startup=4), outcomes).informed is informed


def test_the_portfolio_proposes_no_configuration_twice():
    made = []
    optimizer = built(trust=0.99, startup=30, budget=400)
    for number in range(len(optimizer.ensemble.pool) + 1):
        made.append(optimizer.ask(np.random.default_rng(number)))
        optimizer.observe(Proposed(number, made[-1]))
        if number and made[-1].meta["arm"] == "plain":
            break
    by_prior = [one.config for one in made if one.meta.get("arm") == "prior"]
    assert len(by_prior) == len(set(by_prior)) >= 9
    assert set(by_prior) <= set(optimizer.ensemble.pool)


def test_the_first_of_the_portfolio_is_the_best_of_the_task():
    optimizer = built()
    optimizer.observe(Proposed(0, optimizer.ask(np.random.default_rng(0))))
    first = optimizer.ask(np.random.default_rng(1))
    pool = optimizer.ensemble.pool
    (values,) = optimizer.ensemble.values
    assert first.config == pool[int(values.argmax())]
    assert first.origin == "transfer, portfolio, most of tests/a (100%)"
    assert (first.until, first.parent, first.informed) == (10, None, False)


# -- who proposes --------------------------------------------------------------------------------------


def with_due(optimizer, due, share, monkeypatch):
    meta = FrozenMap(arm="prior", due=due)
    optimizer.observe(Proposed(0, Proposal(config(0), 10, meta=meta)))
    monkeypatch.setattr(optimizer, "_share_of_plain", lambda *, informed: share)
    return optimizer.ask(np.random.default_rng(1)).meta


@pytest.mark.parametrize(
    ("due", "share", "arm", "left"),
    [
        (0.9, 0.1, "plain", 0.0),
        (0.3, 0.6999999, "prior", 0.9999999),
        (0.7, 0.7, "plain", 0.4),
        (0.0, 1.0, "plain", 0.0),
        (0.95, 0.95, "plain", 0.9),
        (0.0, 0.0, "prior", 0.0),
    ],
)
def test_plain_search_proposes_when_shares_add_up_to_one(monkeypatch, due, share, arm, left):
    meta = with_due(built(), due, share, monkeypatch)
    assert (meta["arm"], meta["due"]) == (arm, left)


def test_nine_shares_of_a_tenth_and_one_more_are_one(monkeypatch):
    due = 0.0
    for _ in range(9):
        due += 0.1
    assert due + 0.1 < 1.0, "in floats they are not"
    assert with_due(built(), due, 0.1, monkeypatch)["arm"] == "plain"


def test_a_proposal_of_another_study_is_of_no_arm():
    """Enqueued configurations have no meta: what is due stays, and no arm is credited."""
    optimizer = built()
    optimizer.observe(Proposed(0, Proposal(config(0), 10, meta=FrozenMap(arm="plain", due=0.5))))
    optimizer.observe(Proposed(1, Proposal(config(1), 10)))
    assert (optimizer._due, dict(optimizer._arms)) == (0.5, {0: "plain"})


def test_evidence_of_one_run_each():
    """The better one of two: z = 1 / sqrt(3 / 3)."""
    optimizer = built()
    for number, (arm, value) in enumerate((("prior", 2.0), ("plain", 1.0))):
        meta = FrozenMap(arm=arm, due=0.0)
        optimizer.observe(Proposed(number, Proposal(config(number), 10, meta=meta)))
        optimizer.observe(Scored(number, (value,)))
    assert optimizer._evidence() == pytest.approx(1.0)
    optimizer.observe(Scored(1, (2.0,), n_seeds=2))
    assert optimizer._evidence() == 0.0, "a tie is evidence of nothing"
    optimizer.observe(Scored(1, (3.0,), n_seeds=3))
    assert optimizer._evidence() == pytest.approx(-1.0)


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
    monkeypatch.setattr(transfer, "automatic_tables", lambda *arguments, **options: Gathered())
    spec = load_spec(DEFAULT)
    assert (spec.optimizer.name, spec.evaluation.seeds) == ("tpe", "fixed")


def test_a_study_by_default_stays_the_same_when_priors_come_and_go(monkeypatch):
    with_prior = load_spec(DEFAULT)
    monkeypatch.setattr(transfer, "automatic_tables", lambda *arguments, **options: Gathered())
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
    automatic = transfer.automatic_tables

    def counting(*arguments, **options):
        looked.append(options)
        return automatic(*arguments, **options)

    monkeypatch.setattr(transfer, "automatic_tables", counting)
    assert load_spec(DEFAULT).optimizer.name == "transfer"
    assert looked == [{"studies": False}]
