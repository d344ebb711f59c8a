"""TPE beside Optuna's: the densities, the results taken for good, what is proposed."""

import dataclasses
import math

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution as Choice
from optuna.distributions import FloatDistribution as Real
from optuna.distributions import IntDistribution as Whole
from optuna.samplers import TPESampler
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator
from optuna.samplers._tpe.sampler import _split_trials, default_weights
from optuna.trial import TrialState, create_trial

from autorl.core.types import Failed, Proposal, Proposed, Scored, Status
from autorl.optimizers import make
from autorl.optimizers._parzen import ParzenEstimator, weights_of_age
from autorl.space import load_space
from autorl.statistics.fronts import crowded_order
from autorl.testing.optimizers import space_of

CONTINUOUS = space_of("continuous")
PARAMETERS = TPESampler(multivariate=True)._parzen_estimator_parameters
# As Optuna has them: choices by index, flipped logarithms in the unit interval, integers of more
# than a hundred values as the floats between them.
DISTRIBUTIONS = {
    "continuous": {"x": Real(0.0, 1.0), "y": Real(0.0, 1.0), "z": Real(0.0, 1.0)},
    "types": {
        "rate": Real(1e-5, 1e-1, log=True),
        "gamma": Real(0.0, 1.0),
        "layers": Whole(1, 4),
        "batch": Real(7.5, 1024.5, log=True),
        "activation": Choice((0, 1)),
        "net_arch": Choice((0, 1, 2)),
        "normalize": Choice((0, 1)),
        "width": Whole(0, 3),
    },
    "conditional": {
        "kind": Choice((0, 1)),
        "x": Real(0.0, 1.0),
        "a.depth": Whole(1, 9),
        "a.mode": Choice((0, 1)),
        "a.v.rate": Real(1e-4, 1.0, log=True),
        "b.width": Real(0.0, 1.0),
    },
    "constrained": {
        "n": Whole(1, 64, log=True),
        "m": Whole(1, 64, log=True),
        "c": Choice((0, 1, 2)),
        "d": Choice((0, 1, 2)),
        "x": Real(0.0, 1.0),
    },
}


def results(space, count, *, pending=3, objectives=1, constrained=False):
    """Configurations with outcomes: scores, failures of both kinds, and none."""
    rng = np.random.default_rng(0)
    told = []
    for number in range(count):
        values = tuple(rng.normal(size=objectives).tolist())
        broken = tuple((rng.normal(size=2) - 0.5).tolist()) if constrained else ()
        outcome = Scored(number, values, reached=10, constraints=broken, n_seeds=1 + number % 3)
        if number % 9 == 4:
            outcome = Failed(number, Status.CRASH, ())
        elif number % 9 == 7:
            outcome = Failed(number, Status.CRASH, (-3.0,) * objectives)
        told.append((space.sample(rng), outcome))
    return told + [(space.sample(rng), None) for _ in range(pending)]


def informed(space, told, *, objectives=1, weigh=False, **options):
    """A TPE that has been told results."""
    optimizer = make("tpe", space, horizon=10, n_objectives=objectives, startup=1, **options)
    optimizer.problem = dataclasses.replace(optimizer.problem, weigh_seeds=weigh)
    for number, (config, _) in enumerate(told):
        optimizer.observe(Proposed(number, Proposal(config, 10)))
    for _, outcome in told:
        if outcome is not None:
            optimizer.observe(outcome)
    return optimizer


# -- densities ----------------------------------------------------------------------------------------


def coded(space, name, value):
    """A value as Optuna is told it."""
    item = space.hyperparameters[name]
    if item.choices:
        return item.index(value)
    return item.to_unit(value) if item.scale == "flipped_log" else value


def original(distributions, space, configs, weights):
    columns = {
        name: np.array([coded(space, name, config[name]) for config in configs], dtype=float)
        for name in distributions
    }
    return _ParzenEstimator(columns, distributions, PARAMETERS, weights)


def constant(distributions):
    """The constant that our logarithms of densities lack."""
    reals = [real for real in distributions.values() if isinstance(real, Real)]
    widths = [
        math.log(real.high / real.low) if real.log else real.high - real.low for real in reals
    ]
    return sum(math.log(width) + 0.5 * math.log(2 * math.pi) for width in widths)


@pytest.mark.parametrize("weigh", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 30, 200])
@pytest.mark.parametrize("name", sorted(DISTRIBUTIONS))
def test_densities_are_optunas(name, count, weigh, monkeypatch):
    """Good and bad results have one for each group; pending ones are among the bad."""
    stable = np.argsort
    # Optuna leaves open which of equal values comes first.
    monkeypatch.setattr(
        np, "argsort", lambda array, **how: stable(array, **{**how, "kind": "stable"})
    )
    space = space_of(name)
    told = results(space, count)
    optimizer = informed(space, told, weigh=weigh)
    optimizer.ask(np.random.default_rng(0))
    good = set(optimizer._good())
    assert len(good) == min(25, math.ceil(0.1 * sum(bool(o and o.values) for _, o in told)))
    draws = np.random.default_rng(1)
    seen = set()
    for group in optimizer._groups:
        names = [space.names[place] for place in group.places]
        seen.update(names)
        distributions = {one: DISTRIBUTIONS[name][one] for one in names}
        others = iter([space.sample(draws) for _ in range(400)])
        tried = [config for config in others if names[0] in config][:40]
        points = np.array([group.point(config) for config in tried])
        for side, density in zip((True, False), group.densities, strict=True):
            numbers = [
                number
                for number, (config, _) in enumerate(told)
                if names[0] in config and (number in good) == side
            ]
            seeds = [getattr(told[n][1], "n_seeds", 1) if weigh else 1 for n in numbers]
            weights = default_weights(len(numbers)) * seeds
            configs = [told[number][0] for number in numbers]
            theirs = original(distributions, space, configs, weights.astype(float))
            asked = {one: np.array([coded(space, one, c[one]) for c in tried]) for one in names}
            mine = density.log_density(points, weights) - constant(distributions)
            np.testing.assert_allclose(mine, theirs.log_pdf(asked), rtol=0, atol=1e-9)
    assert seen == DISTRIBUTIONS[name].keys()


@pytest.mark.parametrize("n", [0, 1, 24, 25, 26, 60])
def test_later_members_count_more(n):
    np.testing.assert_array_equal(weights_of_age(n), default_weights(n))


@pytest.mark.parametrize("name", sorted(DISTRIBUTIONS))
def test_what_is_kept_from_ask_to_ask_has_the_bits_of_what_is_built_at_once(name):
    """Also where scores are superseded, so that results turn from good to bad and back."""
    space = space_of(name)
    told = results(space, 160, pending=0)
    draws = np.random.default_rng(2)
    kept = make("tpe", space, horizon=10, startup=1)
    events = []

    def observe(event):
        events.append(event)
        kept.observe(event)

    for number, (config, outcome) in enumerate(told):
        observe(Proposed(number, Proposal(config, 10)))
        observe(outcome)
        if number % 3 == 0:
            earlier = told[int(draws.integers(number + 1))][1]
            if isinstance(earlier, Scored):
                observe(dataclasses.replace(earlier, values=(float(draws.normal()),)))
        answer = kept.ask(np.random.default_rng(number))
        if number % 20 == 19:
            fresh = make("tpe", space, horizon=10, startup=1)
            for event in events:
                fresh.observe(event)
            assert fresh.ask(np.random.default_rng(number)) == answer
            for mine, theirs in zip(kept._groups, fresh._groups, strict=True):
                pairs = [
                    (mine.densities, theirs.densities),
                    (mine.feasibility._densities, theirs.feasibility._densities),
                ]
                for one, other in (two for pair in pairs for two in zip(*pair, strict=True)):
                    rows = one.rows
                    np.testing.assert_array_equal(rows, other.rows)
                    np.testing.assert_array_equal(one._factors[rows], other._factors[rows])
                    for column in one._logs:
                        logs = one._logs[column][rows]
                        np.testing.assert_array_equal(logs, other._logs[column][rows])


@pytest.mark.parametrize("name", sorted(DISTRIBUTIONS))
def test_the_probability_of_no_failure_follows_bayes_rule(name, monkeypatch):
    """From Optuna's densities of the failed and of the others; pending ones are neither."""
    stable = np.argsort
    monkeypatch.setattr(
        np, "argsort", lambda array, **how: stable(array, **{**how, "kind": "stable"})
    )
    space = space_of(name)
    told = results(space, 40)
    optimizer = informed(space, told)
    draws = [space.sample(np.random.default_rng(seed)) for seed in range(60)]
    for group in optimizer._groups:
        names = [space.names[place] for place in group.places]
        distributions = {one: DISTRIBUTIONS[name][one] for one in names}
        tried = [config for config in draws if names[0] in config]
        asked = {one: np.array([coded(space, one, c[one]) for c in tried]) for one in names}
        likelihoods = []
        for failed in (False, True):
            configs = [
                config
                for config, outcome in told
                if outcome is not None
                and names[0] in config
                and isinstance(outcome, Failed) == failed
            ]
            density = original(distributions, space, configs, np.ones(len(configs)))
            likelihoods.append((len(configs) + 1) * np.exp(density.log_pdf(asked)))
        expected = likelihoods[0] / (likelihoods[0] + likelihoods[1])
        points = np.array([group.point(config) for config in tried])
        found = group.feasibility.log_probability(points)
        np.testing.assert_allclose(np.exp(found), expected, rtol=1e-9)


A_THIRD_FAILS = [lambda c: c["x"] > 2 / 3, lambda c: c["y"] < 1 / 3]


def late_failures(name, fails, studies):
    """Return the failed share of the trials 40 to 79, over several studies."""
    late = []
    for seed in range(studies):
        optimizer = make(name, CONTINUOUS, horizon=10)
        for number in range(80):
            proposal = optimizer.ask(np.random.default_rng([seed, number]))
            optimizer.observe(Proposed(number, proposal))
            config = proposal.config
            value = -((config["x"] - 0.4) ** 2) - (config["y"] - 0.6) ** 2
            outcome = Scored(number, (value,), reached=10)
            if fails(config):
                outcome = Failed(number, Status.OUT_OF_MEMORY, (-1.0,))
            optimizer.observe(outcome)
            late += [fails(config)] * (number >= 40)
    return np.mean(late)


@pytest.mark.parametrize("fails", A_THIRD_FAILS)
def test_where_a_third_of_the_space_fails_few_proposals_do(fails):
    """Random draws fail in a third; at most a tenth of TPE's later draws do."""
    assert late_failures("tpe", fails, studies=3) <= 0.1


UNIT = {"type": "float", "lower": 0.0, "upper": 1.0}


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_places_are_drawn_as_often_as_the_density_says(scale):
    """Each value of integers and choices, and each interval of a number."""
    few = {"type": "int", "lower": 1, "upper": 5, "scale": scale}
    many = {"type": "int", "lower": 1, "upper": 300, "scale": scale}
    letters = {"type": "categorical", "choices": ["p", "q", "r"]}
    edges = np.linspace(-0.5, 0.5, 21)
    middles = (np.linspace(-0.5, 0.5, 4001)[1:] + np.linspace(-0.5, 0.5, 4001)[:-1]) / 2
    for definition in (few, letters, UNIT, many):
        space = load_space({"hyperparameters": {"x": definition}})
        item = space.hyperparameters["x"]
        density = ParzenEstimator([item])
        rng = np.random.default_rng(0)
        for row in range(1, 7):
            density.add([float(rng.integers(3)) if item.choices else rng.random() - 0.5])
            density.enrol(row, True)
        weights = np.arange(1.0, 7.0)
        drawn = density.draw(rng, 20_000, weights)[:, 0]
        if item.type == "float":
            counts = np.histogram(drawn, edges)[0]
            shares = np.exp(density.log_density(middles[:, None], weights)).reshape(20, 200)
            shares = shares.sum(axis=1) / 4000 / math.sqrt(2 * math.pi)
        elif definition is many:
            # Between whole numbers it is that of the float, which its values share.
            counts = np.histogram(drawn, edges)[0]
            assert {item.to_unit(item.from_unit(place + 0.5)) - 0.5 for place in drawn} == {*drawn}
            continue
        else:
            values = np.unique(drawn)
            counts = np.array([(drawn == value).sum() for value in values])
            shares = np.exp(density.log_density(values[:, None], weights))
            assert len(values) == (3 if item.choices else 5)
        assert shares.sum() == pytest.approx(1.0, abs=1e-4)
        spread = np.sqrt(20_000 * shares * (1 - shares))
        assert (np.abs(counts - 20_000 * shares) < 4 * spread).all()


# -- good results --------------------------------------------------------------------------------------


def split(told):
    """The trials that Optuna takes for good; of failures it knows that they are the worst."""
    study = optuna.create_study(directions=["maximize"])
    worst = max(
        (sum(max(0.0, v) for v in getattr(o, "constraints", ())) for _, o in told), default=0
    )
    trials = []
    for number, (_, outcome) in enumerate(told):
        state = TrialState.RUNNING
        values = constraints = None
        if outcome is not None and outcome.values:
            state = TrialState.COMPLETE
            values = outcome.values
            constraints = getattr(outcome, "constraints", (worst + 1,))
        elif outcome is not None:
            continue
        named = {str(place): value for place, value in enumerate(constraints or ())}
        trial = create_trial(state=state, values=values, constraints=named)
        trial.number = number
        trials.append(trial)
    done = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    count = math.ceil(0.1 * len(done))
    below, _ = _split_trials(study, trials, min(25, count))
    return [trial.number for trial in below]


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("count", [1, 2, 12, 60, 400])
def test_the_good_results_are_those_that_optuna_takes(count, constrained):
    told = results(CONTINUOUS, count, constrained=constrained)
    assert sorted(informed(CONTINUOUS, told)._good()) == split(told)


def test_good_results_of_several_objectives_are_the_first_fronts():
    told = results(CONTINUOUS, 60, objectives=2)
    optimizer = informed(CONTINUOUS, told, objectives=2)
    scored = [n for n, (_, outcome) in enumerate(told) if isinstance(outcome, Scored)]
    order = crowded_order(np.array([told[number][1].values for number in scored]))
    count = math.ceil(0.1 * sum(bool(outcome and outcome.values) for _, outcome in told))
    assert optimizer._good() == [scored[row] for row in order[:count]]


# -- proposals -----------------------------------------------------------------------------------------


def ratios(optimizer, space, config):
    """The logarithms of good over bad density, one for each group that is active."""
    found = []
    for group in optimizer._groups:
        if space.names[group.places[0]] in config:
            likely, unlikely = group.densities
            point = np.array([group.point(config)])
            good, bad = np.ones(len(likely.rows)), weights_of_age(len(unlikely.rows))
            found.append(likely.log_density(point, good) - unlikely.log_density(point, bad))
    return np.concatenate(found)


@pytest.mark.parametrize("name", ["continuous", "conditional", "constrained"])
def test_of_the_candidates_the_most_promising_valid_one_is_proposed(name, monkeypatch):
    space = space_of(name)
    told = results(space, 40)
    optimizer = informed(space, told)
    tried = []
    make_config = space.from_unit
    monkeypatch.setattr(
        space, "from_unit", lambda unit: tried.append(make_config(unit)) or tried[-1]
    )
    for seed in range(8):
        tried.clear()
        proposal = optimizer.ask(np.random.default_rng(seed))
        assert (proposal.origin, proposal.informed, proposal.meta) == ("tpe", True, {})
        assert proposal.config == tried[-1]
        assert all(space.violated(config) for config in tried[:-1])
        units = optimizer._groups[0].candidates(
            optimizer._good(), None, np.random.default_rng(0), 24, 40
        )
        vectors = np.full((24, len(space.names)), 0.5)
        vectors[:, optimizer._groups[0].places] = units
        configs = [make_config(vector) for vector in vectors]
        ratio = np.array([ratios(optimizer, space, config)[0] for config in configs])
        points = np.array([optimizer._groups[0].point(config) for config in configs])
        best_first = -np.log(0.1 + 0.9 * np.exp(-ratio))
        best_first += optimizer._groups[0].feasibility.log_probability(points)
        assert best_first.tolist() == pytest.approx(sorted(best_first, reverse=True))


def test_a_run_in_flight_keeps_the_next_proposals_away():
    told = results(CONTINUOUS, 40, pending=0)
    before = informed(CONTINUOUS, told)
    proposal = before.ask(np.random.default_rng(0))
    alone = ratios(before, CONTINUOUS, proposal.config)
    before.observe(Proposed(len(told), proposal))
    before.ask(np.random.default_rng(0))
    assert ratios(before, CONTINUOUS, proposal.config) < alone - 0.5


def test_the_numbers_of_proposals_may_have_gaps():
    """A baseline of the driver, which no optimizer is told of, has a number too."""
    told = results(CONTINUOUS, 40)
    gaps = make("tpe", CONTINUOUS, horizon=10, startup=1)
    for number, (config, _) in enumerate(told):
        gaps.observe(Proposed(3 * number, Proposal(config, 10)))
    for number, (_, outcome) in enumerate(told):
        if outcome is not None:
            gaps.observe(dataclasses.replace(outcome, proposal=3 * number))
    answers = [one.ask(np.random.default_rng(5)) for one in (gaps, informed(CONTINUOUS, told))]
    assert answers[0] == answers[1]


def test_where_everything_was_proposed_it_is_proposed_again():
    space = load_space({"hyperparameters": {"a": {"type": "categorical", "choices": ["p", "q"]}}})
    told = [({"a": letter}, Scored(number, (0.0,))) for number, letter in enumerate("pq")]
    optimizer = informed(space, [(space.config(config), scored) for config, scored in told])
    proposal = optimizer.ask(np.random.default_rng(0))
    assert proposal.origin == "tpe, at random: its choice was proposed before"


def test_where_no_candidate_is_valid_the_most_promising_is_repaired():
    definition = {"hyperparameters": {"x": UNIT, "y": {**UNIT, "default": 0.4}}}
    space = load_space({**definition, "constraints": ["x <= y + 0.101", "y + 0.0999 <= x"]})
    free = load_space(definition)
    told = [(free.sample(np.random.default_rng(n)), Scored(n, (-float(n),))) for n in range(30)]
    proposal = informed(space, told).ask(np.random.default_rng(0))
    assert proposal.origin == "tpe, repaired"
    assert space.is_valid(proposal.config)


def test_the_start_up_is_drawn_at_random():
    optimizer = make("tpe", CONTINUOUS, horizon=10, startup=3)
    optimizer.observe(Proposed(0, optimizer.ask(np.random.default_rng(0))))
    optimizer.observe(Scored(0, (1.0,)))
    proposal = optimizer.ask(np.random.default_rng(3))
    assert proposal.config == CONTINUOUS.sample(np.random.default_rng(3))
    assert (proposal.origin, proposal.informed) == ("tpe, start-up", False)
