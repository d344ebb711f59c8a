"""SMAC as a proposer: what it is told, what it leaves behind, and that it is as good as the original."""

import gc
import logging
import math
import random
import tempfile
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from mixed_task import MIXED, mixed

from autorl.core.types import Config, Failed, Proposal, Proposed, Scored, Status
from autorl.optimizers import make, smac_
from autorl.optimizers.base import Record
from autorl.optimizers.priors.mapping import places_of
from autorl.optimizers.smac_ import _Fit, costs
from autorl.optimizers.sobol import SobolOptions, SobolSearch
from autorl.space import Space, load_space
from autorl.space.configspace import from_configuration, to_configuration
from autorl.space.prior import log_prior
from autorl.testing.optimizers import assert_alike, score, space_of
from autorl.testing.simulation import simulate

pytest.importorskip("smac", reason="the extra `smac` is not installed")

CONTINUOUS = space_of("continuous")
# A fit takes a second or two, and much more on a busy machine.
pytestmark = pytest.mark.cpu_seconds(900)


def scored(number: int, value: float, constraints: tuple[float, ...] = ()) -> Record:
    result = Scored(number, (value,), constraints=constraints)
    return Record(number, Proposal(CONTINUOUS.default(), 10), result)


def test_costs_of_scored_failed_infeasible_and_pending_proposals():
    records = (
        scored(0, 3.0),
        scored(1, -1.0),
        scored(2, 9.0, constraints=(0.5, -1.0)),
        scored(3, 8.0, constraints=(math.inf,)),
        Record(4, Proposal(CONTINUOUS.default(), 10), Failed(4, Status.CRASH, (-1.0,))),
        Record(5, Proposal(CONTINUOUS.default(), 10), Failed(5, Status.CRASH, ())),
        Record(6, Proposal(CONTINUOUS.default(), 10)),
        scored(7, 9.0, constraints=(0.25,)),
    )
    assert [(record.id, cost) for record, cost in costs(records)] == [
        (0, -3.0),
        (1, 1.0),
        (2, 5.0),  # worst feasible cost 1, range of scores 4, the largest finite violation
        (3, 5.0),
        (4, 1.0),
        (7, 3.0),
        (6, 2.0),  # pending: the mean
    ]
    assert costs(records[6:7]) == []


@pytest.mark.slow
def test_it_leaves_nothing_behind_and_says_nothing(tmp_path, monkeypatch, capfd, recwarn):
    monkeypatch.chdir(tmp_path)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    gc.collect()  # what another test left is no warning of this one
    recwarn.clear()
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002  (the global generator is what must not be touched)
    before = (
        random.getstate(),
        np.random.get_state()[1].tolist(),  # noqa: NPY002
        logging.root.level,
        logging.getLogger("smac").level,
    )
    handlers = list(logging.root.handlers)
    simulation = simulate(
        lambda: make("smac", CONTINUOUS, horizon=10, startup=3, refit=3), score(CONTINUOUS), 9
    )
    assert [p.origin for p in simulation.proposals].count("smac, fitted anew") == 2
    after = (
        random.getstate(),
        np.random.get_state()[1].tolist(),  # noqa: NPY002
        logging.root.level,
        logging.getLogger("smac").level,
    )
    assert after == before
    assert logging.root.handlers == handlers
    assert [path.name for path in tmp_path.iterdir()] == ["temporary"]
    assert list(temporary.iterdir()) == []
    assert capfd.readouterr() == ("", "")
    assert [str(w.message) for w in recwarn] == []
    assert not Path("smac3_output").exists()


@pytest.mark.parametrize(
    ("results", "refit", "expected"),
    [(1, None, 1), (19, None, 1), (35, None, 3), (500, None, 8), (500, 2, 2)],
)
def test_a_fit_serves_the_more_proposals_the_more_results_it_knows(results, refit, expected):
    optimizer = make("smac", CONTINUOUS, horizon=10, refit=refit)
    optimizer.observe(Proposed(0, Proposal(CONTINUOUS.default(), 10)))
    fit = _Fit(0, (*(scored(number, 1.0) for number in range(results)), *optimizer.history))
    assert optimizer._serves(fit) == expected


@pytest.mark.slow
def test_the_gaussian_process_replays_too():
    space = space_of("conditional")
    factory = lambda: make("smac", space, horizon=100, startup=4, refit=2, model="gp")  # noqa: E731
    whole = simulate(factory, score(space), 9, lag=2)
    assert simulate(factory, score(space), 9, lag=2, kill=True).fingerprint() == whole.fingerprint()


# -- what is asked of SMAC, and what becomes of its answers, with another in its place ---------------


class StandIn:
    """Answers for SMAC with points that depend on the seed of a fit alone, best first."""

    def __init__(self, space, monkeypatch, first=()):
        self.space = space
        self.first = list(first)
        self.calls = []
        monkeypatch.setattr(smac_, "_bridge", lambda: self)

    def answers(self, seed, count):
        exported = self.space.to_configspace()
        streamed = islice(self._stream(exported, seed), count)
        return [from_configuration(self.space, configuration) for configuration in streamed]

    def _stream(self, exported, seed):
        for config in self.first:
            yield to_configuration(self.space, exported, config)
        rng = np.random.default_rng(seed)
        while True:
            drawn = self.space.decode(rng.random(len(self.space.names)), rng)
            yield to_configuration(self.space, exported, drawn)

    def challengers(self, exported, told, seed, model, most, weigh, counts=None):
        self.calls.append((len(told), seed, model, most, counts))
        self.weigh = weigh
        return islice(self._stream(exported, seed), most)


def begun(space, startup=2, **options):
    """An optimizer whose design is used up, with as many scores."""
    optimizer = make("smac", space, horizon=10, startup=startup, **options)
    for number in range(startup):
        proposal = optimizer.ask(np.random.default_rng(number))
        optimizer.observe(Proposed(number, proposal))
        optimizer.observe(Scored(number, (float(number),), reached=10))
    return optimizer


def ask(optimizer, number):
    """The next proposal, which is observed."""
    proposal = optimizer.ask(np.random.default_rng(number))
    assert optimizer.ask(np.random.default_rng(number)) == proposal
    optimizer.observe(Proposed(number, proposal))
    return proposal


def test_the_challengers_of_a_fit_are_proposed_in_their_order(monkeypatch):
    smac = StandIn(CONTINUOUS, monkeypatch)
    optimizer = begun(CONTINUOUS, refit=3)
    made = [ask(optimizer, number) for number in range(2, 9)]
    seeds_of_fits = [int(np.random.default_rng(number).integers(2**31)) for number in (2, 5, 8)]
    first, second, third = (smac.answers(seed, 3) for seed in seeds_of_fits)
    assert [proposal.config for proposal in made] == [*first, *second, third[0]]
    assert [proposal.origin for proposal in made] == [
        *["smac, fitted anew", "smac", "smac"] * 2,
        "smac, fitted anew",
    ]
    assert [proposal.meta["place"] for proposal in made] == [1, 2, 3, 1, 2, 3, 1]
    assert [proposal.meta.get("seed") for proposal in made[::3]] == seeds_of_fits
    assert all(proposal.informed for proposal in made)
    # Pending proposals are told too; each fit is made once, also where it serves several asks.
    assert smac.calls == [
        (told, seed, "forest", 32, None)
        for told, seed in zip((2, 5, 8), seeds_of_fits, strict=True)
    ]


def test_what_expected_improvements_are_multiplied_by(monkeypatch):
    """Densities of priors, where vectors lie, and where runs have failed the chance that one does not."""
    scale = {"lower": 0.9, "upper": 0.999, "scale": "flipped_log", "prior": {"centre": 0.99}}
    entries = {
        "gamma": {"type": "float", **scale},
        "kind": {"choices": ["p", [1], 2], "prior": {"centre": 2, "confidence": "low"}},
        "size": {"type": "ordinal", "choices": [8, 16]},
        "rate": "log(1e-4, 1)",
    }
    space = load_space({"hyperparameters": entries, "conditions": {"rate": "kind == 'p'"}})
    smac = StandIn(space, monkeypatch)
    optimizer = begun(space, startup=8)
    ask(optimizer, 8)
    configs = [space.sample(np.random.default_rng(seed)) for seed in range(30)]
    exported = space.to_configspace()
    vectors = [to_configuration(space, exported, config).get_array() for config in configs]
    items = list(space.hyperparameters.values())
    by_prior = log_prior(items, places_of(space, configs), 8)
    np.testing.assert_allclose(smac.weigh(np.array(vectors)), by_prior, atol=1e-6)
    assert np.ptp(by_prior) > 1
    for number in (0, 1):
        optimizer.observe(Failed(number, Status.CRASH, (0.0,)))
    ask(optimizer, 9)
    failed, others = (
        [to_configuration(space, exported, optimizer.history[n].proposal.config).get_array()]
        for n in (1, 7)
    )
    assert smac.weigh(np.array(failed)) < smac.weigh(np.array(others)) - 0.5


def test_a_weighed_improvement_is_smacs_times_the_weight():
    from autorl.optimizers._smac_facade import _Weighed

    model = SimpleNamespace(predict_marginalized=lambda X: (X, np.ones_like(X)))
    improvements = []
    for weigh in (equal, lambda vectors: np.log(vectors[:, 0])):
        weighed = _Weighed(weigh, log=False)
        weighed._model = model
        weighed._eta = 0.5
        improvements.append(weighed._compute(np.array([[0.25], [0.5]])))
    np.testing.assert_allclose(improvements[1], improvements[0] * [[0.25], [0.5]])


def test_a_resumed_study_goes_on_with_the_fit_it_was_in(monkeypatch):
    smac = StandIn(CONTINUOUS, monkeypatch)
    factory = lambda: make("smac", CONTINUOUS, horizon=10, startup=2, refit=4)  # noqa: E731
    whole = simulate(factory, score(CONTINUOUS), 12, lag=2)
    expected = whole.fingerprint()
    calls = set(smac.calls)
    assert simulate(factory, score(CONTINUOUS), 12, lag=2, kill=True).fingerprint() == expected
    assert set(smac.calls) == calls


def test_what_was_proposed_or_breaks_a_rule_is_left_out(monkeypatch):
    size = {"type": "int", "lower": 1, "upper": 64, "default": 2}
    space = load_space({"hyperparameters": {"n": size, "m": size}, "constraints": ["n * m <= 64"]})
    default = space.default()
    broken = Config(n=33, m=2)
    others = [Config(n=n, m=2) for n in (3, 5, 7)]
    StandIn(space, monkeypatch, [default, broken, others[0], others[0], others[1], others[2]])
    optimizer = begun(space, startup=1, refit=3)
    assert ask(optimizer, 1).config == others[0]
    # The second is proposed by somebody else meanwhile: it is passed over.
    optimizer.observe(Proposed(2, Proposal(others[1], 10)))
    third = ask(optimizer, 3)
    assert (third.config, third.meta["place"]) == (others[2], 3)


def test_where_smac_has_nothing_new_a_configuration_is_drawn(monkeypatch):
    StandIn(CONTINUOUS, monkeypatch, [CONTINUOUS.default()] * 32)
    proposal = ask(begun(CONTINUOUS), 2)
    assert proposal.origin == "smac, at random: nothing new was found"
    assert proposal.config == _drawn_after_a_seed(2)
    assert proposal.informed


def _drawn_after_a_seed(number):
    rng = np.random.default_rng(number)
    rng.integers(2**31)
    return CONTINUOUS.sample(rng)


def test_the_design_goes_on_until_there_is_a_score_and_ends_where_it_has_nothing_new(monkeypatch):
    monkeypatch.setattr(smac_, "SKIPS", 16)
    space = load_space({"hyperparameters": {"n": {"type": "int", "lower": 1, "upper": 3}}})
    optimizer = make("smac", space, horizon=10, startup=1)
    made = [ask(optimizer, number) for number in range(3)]
    assert {proposal.config["n"] for proposal in made} == {1, 2, 3}
    points = SobolSearch(optimizer.problem, SobolOptions(seed=0))
    indices = [proposal.meta["index"] for proposal in made[1:]]
    assert indices == sorted(indices)
    for proposal, index in zip(made[1:], indices, strict=True):
        assert space.from_unit(points.point(index)) == proposal.config
        assert proposal.origin == f"smac, design {index}"
    optimizer.observe(Proposed(3, Proposal(space.default(), 10)))  # what has no index moves nothing
    assert optimizer._index == indices[-1] + 1
    last = ask(optimizer, 4)
    assert (last.origin, last.informed) == ("smac, at random: the design is used up", False)


def original(space: Space, objective, n: int, seed: int) -> float:
    """SMAC itself on the same problem: the default configuration, its own Sobol design of 10, its own fits."""
    from smac import HyperparameterOptimizationFacade, Scenario

    def cost(config, seed: int = 0) -> float:
        return -objective(from_configuration(space, config))

    with tempfile.TemporaryDirectory() as folder:
        scenario = Scenario(
            space.to_configspace(),
            output_directory=Path(folder),
            deterministic=True,
            n_trials=n,
            seed=seed,
            use_default_config=True,
        )
        kind = HyperparameterOptimizationFacade
        facade = kind(
            scenario,
            cost,
            initial_design=kind.get_initial_design(scenario, n_configs=9),
            logging_level=False,
            overwrite=True,
        )
        best = facade.optimize()
        return objective(from_configuration(space, best))


@pytest.mark.slow
def test_quality_is_that_of_the_original():
    """Twelve repeats of 40 runs on a conditional, mixed space, fitted as rarely as there; false-alarm rate 1e-3."""
    repeats, n = 12, 40
    mine = [
        simulate(
            lambda seed=seed: make("smac", MIXED, horizon=1, startup=10, refit=8, seed=seed),
            lambda i, p: mixed(p.config),
            n,
            seed=1000 + seed,
        ).best
        for seed in range(repeats)
    ]
    theirs = [original(MIXED, mixed, n, seed) for seed in range(repeats)]
    assert_alike(mine, theirs)


CONDITIONAL = space_of("conditional")


@pytest.fixture(scope="module")
def bridge():
    return smac_._bridge()


@pytest.fixture(scope="module")
def scenario(tmp_path_factory):
    from smac import Scenario

    folder = tmp_path_factory.mktemp("smac")
    configspace = CONDITIONAL.to_configspace()
    return Scenario(
        configspace, output_directory=folder, deterministic=True, n_trials=10**9, seed=7
    )


@pytest.fixture(scope="module")
def facades(bridge, scenario):
    """Ours, and SMAC's own with what it is by itself."""
    from smac import BlackBoxFacade, HyperparameterOptimizationFacade

    ours = {
        "forest": bridge._facade(scenario, 12, equal, bridge._forest(scenario, 5)),
        "gp": bridge._facade(scenario, 12, equal, None),
    }
    kinds = {"forest": HyperparameterOptimizationFacade, "gp": BlackBoxFacade}
    theirs = {
        name: kind(scenario, logging_level=False, overwrite=True).meta
        for name, kind in kinds.items()
    }
    return ours, theirs


def renamed(meta):
    """Name our weighed improvement as SMAC names its own."""
    return {
        key: renamed(value) if isinstance(value, dict) else "EI" if value == "_Weighed" else value
        for key, value in meta.items()
    }


@pytest.mark.parametrize("model", ["forest", "gp"])
def test_a_facade_is_smacs_own_but_for_its_design_its_seeds_and_its_retraining(model, facades):
    ours, theirs = (part[model] for part in facades)
    meta = renamed(ours.meta)
    assert meta["config_selector"] == theirs["config_selector"] | {"retrain_after": 12}
    assert meta["intensifier"] == theirs["intensifier"] | {"max_config_calls": 1}
    assert meta["initial_design"] == theirs["initial_design"] | {"n_configs": 0}
    own = meta["acquisition_maximizer"]
    local = own["local_search"] | {"name": "LocalSearch"}
    assert own["local_search"]["name"] == "_OrderedLocalSearch"
    assert own | {"local_search": local} == theirs["acquisition_maximizer"]
    for part in ("facade", "acquisition_function", "random_design", "runhistory_encoder"):
        assert meta[part] == theirs[part]
    model_meta = theirs["model"]
    if model == "forest":
        model_meta = model_meta | {"max_leaf_nodes": 5, "n_jobs": 1}
    assert meta["model"] == model_meta
    assert ours._initial_design.select_configurations() == []


def test_local_search_starts_in_the_order_of_vectors_whatever_is_inactive(facades):
    """SMAC's own start points, of which it makes a set, sorted with -1 for what is inactive."""
    from smac.acquisition.maximizer import LocalSearch

    local = facades[0]["forest"]._acquisition_maximizer._local_search
    configspace = local._configspace
    configspace.seed(3)
    mine = local._get_initial_points([], 12, None)
    configspace.seed(3)
    theirs = LocalSearch._get_initial_points(local, [], 12, None)
    vectors = [np.nan_to_num(point.get_array(), nan=-1.0).tolist() for point in theirs]
    assert any(-1.0 in vector for vector in vectors)
    assert vectors != sorted(vectors)
    arrays = [np.nan_to_num(point.get_array(), nan=-1.0).tolist() for point in mine]
    assert arrays == sorted(vectors)


def equal(vectors):
    return np.zeros(len(vectors))


# -- the stream of challengers ------------------------------------------------------------------------


def test_smac_itself_ends_where_every_choice_was_told(bridge, capfd, caplog):
    space = load_space({"hyperparameters": {"c": {"type": "categorical", "choices": ["a", "b"]}}})
    exported = space.to_configspace()
    told = [(to_configuration(space, exported, space.config({"c": c})), 1.0) for c in "ab"]
    with caplog.at_level(logging.DEBUG):
        assert list(bridge.challengers(exported, told[:1], 0, "forest", 5, equal)) == [told[1][0]]
        assert list(bridge.challengers(exported, told, 0, "forest", 5, equal)) == []
    assert [record for record in caplog.records if record.name.startswith("smac")] == []
    assert capfd.readouterr() == ("", "")
