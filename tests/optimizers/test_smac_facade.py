"""Arguments of SMAC's facades and the order of their challengers, beside SMAC itself."""

import importlib.abc
import importlib.machinery
import logging
import random
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import pytest

import autorl.optimizers
from autorl.core.types import Failed, Proposal, Proposed, Scored, Status
from autorl.optimizers import make, smac_
from autorl.optimizers.base import Record
from autorl.optimizers.smac_ import costs
from autorl.optimizers.sobol import SobolOptions, SobolSearch
from autorl.space import load_space
from autorl.space.configspace import from_configuration, to_configuration
from autorl.testing.optimizers import space_of

pytest.importorskip("smac", reason="the extra `smac` is not installed")
pytestmark = pytest.mark.cpu_seconds(300)

CONTINUOUS = space_of("continuous")
CONDITIONAL = space_of("conditional")
UNIT = {"type": "float", "lower": 0.0, "upper": 1.0}


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

    ours = {"forest": bridge._forest(scenario, most=12, n=5), "gp": bridge._gp(scenario, most=12)}
    kinds = {"forest": HyperparameterOptimizationFacade, "gp": BlackBoxFacade}
    theirs = {
        name: kind(scenario, logging_level=False, overwrite=True).meta
        for name, kind in kinds.items()
    }
    return ours, theirs


@pytest.mark.parametrize("model", ["forest", "gp"])
def test_a_facade_is_smacs_own_but_for_its_design_its_seeds_and_its_retraining(model, facades):
    ours, theirs = (part[model] for part in facades)
    meta = ours.meta
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


@pytest.mark.parametrize("model", ["forest", "gp"])
def test_random_and_local_search_go_by_one_acquisition_function(model, facades):
    facade = facades[0][model]
    maximizer = facade._acquisition_maximizer
    assert maximizer._local_search._acquisition_function is facade._acquisition_function
    assert maximizer._random_search._acquisition_function is facade._acquisition_function
    assert maximizer._local_search._seed == maximizer._random_search._seed == 7


def test_a_tree_has_at_least_two_leaves_and_at_most_as_many_as_configurations(bridge, scenario):
    leaves = [
        bridge._forest(scenario, most=1, n=n)._model.meta["max_leaf_nodes"] for n in (1, 2, 3)
    ]
    assert leaves == [2, 2, 3]


def test_a_forest_that_weighs_is_the_same_but_for_its_rows(bridge, scenario, facades):
    weights = {b"": 3}
    model = bridge._forest(scenario, most=12, n=5, weights=weights)._model
    assert model.weights is weights
    plain = facades[0]["forest"]._model
    assert type(plain).__name__ == "RandomForest"
    assert model.meta == plain.meta | {"name": "_WeightedForest"}


def test_a_weighed_row_is_there_as_often_as_it_counts(bridge, scenario, monkeypatch):
    from smac.model.random_forest.random_forest import RandomForest

    seen = []
    monkeypatch.setattr(RandomForest, "_train", lambda self, X, y: seen.append((X, y)) or self)
    configspace = scenario.configspace
    rows = np.array([config.get_array() for config in configspace.sample_configuration(3)])
    keys = [bridge._row(row) for row in rows]
    assert len(set(keys)) == 3
    weights = dict(zip(keys, (1, 3, 2), strict=True))
    model = bridge._forest(scenario, most=1, n=3, weights=weights)._model
    assert model._train(rows, np.array([[1.0], [2.0], [3.0]])) is model
    (X, y) = seen[0]
    np.testing.assert_array_equal(X, rows[[0, 1, 1, 1, 2, 2]])
    assert y.tolist() == [[1.0], [2.0], [2.0], [2.0], [3.0], [3.0]]


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


# -- the stream of challengers ------------------------------------------------------------------------


class Facade:
    """Stands for SMAC's: notes what it is told, and has challengers of its own."""

    def __init__(self, challengers, end=None):
        self.told = []
        self.runhistory = types.SimpleNamespace(add=self._add)
        self.intensifier = types.SimpleNamespace(config_selector=self._stream(challengers, end))

    def _add(self, configuration, *, cost, seed):
        self.told.append((configuration, cost, seed))

    def _stream(self, challengers, end):
        for challenger in challengers:
            logging.getLogger("smac.main").error("a remark on retries")
            warnings.warn("a remark of NumPy", stacklevel=1)
            yield challenger
        if end is not None:
            raise end


@pytest.fixture
def built(bridge, monkeypatch):
    """Record the arguments of the facades, and answer for them."""
    calls = types.SimpleNamespace(forest=[], gp=[], facade=Facade(["first", "second"]))

    def forest(scenario, most, n, weights=None):
        calls.forest.append((scenario, most, n, weights))
        assert Path(scenario.output_directory).parents[1].exists()
        return calls.facade

    def gp(scenario, most):
        calls.gp.append((scenario, most))
        return calls.facade

    monkeypatch.setattr(bridge, "_forest", forest)
    monkeypatch.setattr(bridge, "_gp", gp)
    return calls


def told_of(space, count):
    exported = space.to_configspace()
    rng = np.random.default_rng(0)
    return exported, [
        (to_configuration(space, exported, space.sample(rng)), float(number))
        for number in range(count)
    ]


def test_the_scenario_is_one_without_seeds_or_an_end_of_its_own(bridge, built):
    exported, told = told_of(CONTINUOUS, 3)
    assert list(bridge.challengers(exported, told, 11, "forest", 9)) == ["first", "second"]
    ((scenario, most, n, weights),) = built.forest
    assert (scenario.configspace, scenario.seed) == (exported, 11)
    assert scenario.deterministic is True
    assert scenario.n_trials >= 10**9
    assert (most, n, weights) == (9, 3, None)
    # SMAC asks for seed 0 of a deterministic scenario.
    assert built.facade.told == [(configuration, cost, 0) for configuration, cost in told]
    assert built.gp == []


def test_the_gaussian_process_is_built_alone(bridge, built):
    exported, told = told_of(CONTINUOUS, 2)
    assert list(bridge.challengers(exported, told, 12, "gp", 5)) == ["first", "second"]
    ((scenario, most),) = built.gp
    assert (scenario.seed, most, built.forest) == (12, 5, [])


def test_counts_belong_to_rows(bridge, built):
    exported, told = told_of(CONDITIONAL, 3)
    list(bridge.challengers(exported, told, 0, "forest", 5, [2, 1, 4]))
    ((_, _, _, weights),) = built.forest
    keys = [bridge._row(configuration.get_array()) for configuration, _ in told]
    assert weights == dict(zip(keys, (2, 1, 4), strict=True))
    with pytest.raises(ValueError, match="zip"):
        list(bridge.challengers(exported, told, 0, "forest", 5, [2, 1]))


def test_its_folder_is_gone_and_its_remarks_are_dropped(
    bridge, built, monkeypatch, tmp_path, caplog
):
    monkeypatch.setattr(bridge.tempfile, "tempdir", str(tmp_path))
    exported, told = told_of(CONTINUOUS, 2)
    stream = bridge.challengers(exported, told, 0, "forest", 5)
    assert list(tmp_path.iterdir()) == []
    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always")
        assert next(stream) == "first"
        assert list(tmp_path.iterdir()) == []
        (folder,) = {call[0].output_directory for call in built.forest}
        assert folder.is_relative_to(tmp_path)
        assert folder.relative_to(tmp_path).parts[0].startswith("autorl-smac-")
        # Between two challengers the caller is not silenced.
        logging.getLogger("smac").error("of the caller")
        warnings.warn("of the caller", stacklevel=1)
        assert next(stream) == "second"
    assert [record.message for record in caplog.records] == ["of the caller"]
    assert [str(remark.message) for remark in remarks] == ["of the caller"]


def test_an_exhausted_space_ends_the_stream(bridge, built):
    from smac.main.exceptions import ConfigurationSpaceExhaustedException

    exported, told = told_of(CONTINUOUS, 2)
    built.facade = Facade(["only"], ConfigurationSpaceExhaustedException())
    assert list(bridge.challengers(exported, told, 0, "forest", 5)) == ["only"]
    built.facade = Facade([], KeyError("a fault"))
    with pytest.raises(KeyError, match="a fault"):
        list(bridge.challengers(exported, told, 0, "forest", 5))


def test_smac_itself_ends_where_every_choice_was_told(bridge, capfd, caplog):
    space = load_space({"hyperparameters": {"c": {"type": "categorical", "choices": ["a", "b"]}}})
    exported = space.to_configspace()
    told = [(to_configuration(space, exported, space.config({"c": c})), 1.0) for c in "ab"]
    with caplog.at_level(logging.DEBUG):
        assert list(bridge.challengers(exported, told[:1], 0, "forest", 5)) == [told[1][0]]
        assert list(bridge.challengers(exported, told, 0, "forest", 5)) == []
    assert [record for record in caplog.records if record.name.startswith("smac")] == []
    assert capfd.readouterr() == ("", "")


# -- the optimizer around it --------------------------------------------------------------------------


def test_constants_are_not_searched_and_lengthen_no_design():
    """Ten hyperparameters for each that is searched: of the kit's types nine, one has one choice."""
    assert make("smac", space_of("types"), horizon=10).startup == 90
    assert make("smac", CONDITIONAL, horizon=10).startup == 60
    assert make("smac", space_of("types"), horizon=10, budget=39).startup == 9
    assert make("smac", CONTINUOUS, horizon=10, budget=7, startup=19).startup == 19
    fixed = load_space({"hyperparameters": {"c": {"type": "constant", "value": 1}}})
    assert make("smac", fixed, horizon=10).startup == 1


def test_the_design_skips_what_breaks_a_rule():
    space = space_of("constrained")
    optimizer = make("smac", space, horizon=10, startup=9, seed=4)
    for number in range(9):
        proposal = optimizer.ask(np.random.default_rng(number))
        optimizer.observe(Proposed(number, proposal))
        optimizer.observe(Scored(number, (float(number),), reached=10))
    points = SobolSearch(optimizer.problem, SobolOptions(seed=4))
    indices = [record.proposal.meta["index"] for record in list(optimizer.history)[1:]]
    valid = [n for n in range(indices[-1] + 1) if space.is_valid(space.from_unit(points.point(n)))]
    assert indices == valid
    assert len(indices) < indices[-1] + 1


@pytest.mark.parametrize(("tries", "drawn"), [(0, True), (1, False)])
def test_the_design_ends_after_so_many_points_that_cannot_be_used(tries, drawn, monkeypatch):
    space = space_of("constrained")
    optimizer = make("smac", space, horizon=10, startup=9)
    optimizer.observe(Proposed(0, optimizer.ask(np.random.default_rng(0))))
    points = SobolSearch(optimizer.problem, SobolOptions(seed=0))
    first = next(n for n in range(99) if space.is_valid(space.from_unit(points.point(n))))
    monkeypatch.setattr(smac_, "SKIPS", first + tries)
    proposal = optimizer.ask(np.random.default_rng(3))
    assert (proposal.origin == "smac, at random: the design is used up") == drawn
    assert (proposal.config == space.sample(np.random.default_rng(3))) == drawn


@pytest.mark.parametrize(("penalty", "origin"), [((), "smac, design 1"), ((-1.0,), "model")])
def test_a_failure_counts_as_a_score_where_it_has_a_penalty(penalty, origin, monkeypatch):
    optimizer = make("smac", CONTINUOUS, horizon=10, startup=2)
    for number in range(2):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
    optimizer.observe(Failed(0, Status.CRASH, penalty))
    chosen = CONTINUOUS.sample(np.random.default_rng(8))
    monkeypatch.setattr(optimizer, "_candidates", lambda fit: (chosen,))
    proposal = optimizer.ask(np.random.default_rng(2))
    if origin == "model":
        assert (proposal.config, proposal.origin) == (chosen, "smac, fitted anew")
    else:
        assert (proposal.origin, proposal.informed) == (origin, False)


def record(number, result):
    return Record(number, Proposal(CONTINUOUS.default(), 10), result)


def test_a_pending_proposal_beside_one_score_has_that_cost():
    told = costs((record(0, Scored(0, (3.0,))), record(1, None), record(2, None)))
    assert [(one.id, cost) for one, cost in told] == [(0, -3.0), (1, -3.0), (2, -3.0)]


def test_no_more_challengers_are_looked_at_than_are_asked_for(monkeypatch):
    """SMAC's stream has no end; where all it says was proposed, a configuration is drawn."""
    exported = CONTINUOUS.to_configspace()
    again = to_configuration(CONTINUOUS, exported, CONTINUOUS.default())
    looked = []

    def endless(space, told, seed, model, most, counts):
        while True:
            looked.append(most)
            assert len(looked) <= 100, "the stream is read for ever"
            yield again

    monkeypatch.setattr(smac_, "_bridge", lambda: types.SimpleNamespace(challengers=endless))
    optimizer = make("smac", CONTINUOUS, horizon=10, startup=1)
    optimizer.observe(Proposed(0, optimizer.ask(np.random.default_rng(0))))
    optimizer.observe(Scored(0, (1.0,), reached=10))
    proposal = optimizer.ask(np.random.default_rng(1))
    assert proposal.origin == "smac, at random: nothing new was found"
    assert looked == [32] * 32


def test_costs_and_rows_are_told_in_one_order(monkeypatch):
    given = []

    def spy(space, told, seed, model, most, counts):
        given.append((told, counts))
        return iter(())

    monkeypatch.setattr(smac_, "_bridge", lambda: types.SimpleNamespace(challengers=spy))
    optimizer = make("smac", CONTINUOUS, horizon=10, startup=3)
    rng = np.random.default_rng(0)
    configs = [CONTINUOUS.sample(rng) for _ in range(4)]
    for number, config in enumerate(configs):
        optimizer.observe(Proposed(number, Proposal(config, 10)))
    for number, value in ((1, 4.0), (2, 2.0), (3, 9.0)):
        optimizer.observe(Scored(number, (value,), n_seeds=2, reached=10))
    optimizer.ask(np.random.default_rng(9))
    ((told, counts),) = given
    exported = CONTINUOUS.to_configspace()
    assert [from_configuration(CONTINUOUS, configuration) for configuration, _ in told] == [
        *configs[1:],
        configs[0],
    ]
    assert [cost for _, cost in told] == [-4.0, -2.0, -9.0, -5.0]
    assert counts is None
    assert len(told[0][0].get_array()) == len(exported)


def test_importing_smac_leaves_the_global_generator_alone(monkeypatch):
    """Part of what it imports draws from it: here a module in its place does."""
    name = "autorl.optimizers._smac_facade"

    class Drawing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, fullname, path, target=None):
            return importlib.machinery.ModuleSpec(name, self) if fullname == name else None

        def exec_module(self, module):
            module.drawn = random.random()

    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr(autorl.optimizers, "_smac_facade", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Drawing(), *sys.meta_path])
    random.seed(5)
    expected = random.random()
    random.seed(5)
    module = smac_._bridge()
    monkeypatch.delattr(autorl.optimizers, "_smac_facade")
    assert module.drawn == expected
    assert random.random() == expected
