"""The optimizer `transfer`: conformance with a prior, what evidence does to it, and how tables are mapped."""

import numpy as np
import pytest
from refusals import expect_error

from autorl.core.types import Config, InputError, Proposal
from autorl.optimizers import make
from autorl.optimizers.priors.build import fitted_prior
from autorl.optimizers.priors.ensemble import gains
from autorl.optimizers.priors.families import family_of
from autorl.optimizers.priors.mapping import map_task, proposable
from autorl.optimizers.priors.packed import pack, unpack
from autorl.optimizers.priors.sources import Gathered
from autorl.optimizers.priors.study_prior import study_prior_of
from autorl.optimizers.priors.table import Prior, TaskTable, load_prior, save_prior
from autorl.space import load_space
from autorl.testing.optimizers import SPACES, OptimizerConformance, score, space_of
from autorl.testing.simulation import simulate

UNIT = {"type": "float", "lower": 0.0, "upper": 1.0}
LOG = {"type": "float", "scale": "log"}
SQUARE = load_space({"hyperparameters": {"x": UNIT, "y": UNIT, "z": UNIT}})


def table(space, count=24, source="tests/kit/task", objective=None, environment="Task-v0"):
    """A task whose scores are those of the kit's objective, or of another one."""
    configs = tuple(space.sample(np.random.default_rng(number)) for number in range(count))
    value = objective or (lambda config: score(space)(0, Proposal(config, 100)))
    values = np.array([value(config) for config in configs])
    scores = (values - values.min()) / np.ptp(values)
    return TaskTable(source, "kit", environment, configs, scores, 3)


def prior_data(space, *tables, environment=None):
    gathered = Gathered([[entry] for entry in tables])
    return fitted_prior(gathered, space, environment, named=True).to_dict()


@pytest.fixture(scope="class")
def kit_prior(request, tmp_path_factory):
    """A file of four tasks: each of the kit's spaces has one of its own, and parts of others."""
    file = tmp_path_factory.mktemp("priors") / "kit.json"
    tables = tuple(table(space_of(name), source=f"tests/kit/{name}") for name in SPACES)
    save_prior(Prior("kit", tables), file)
    request.cls.options = {"prior": [str(file)], "startup": 4}


@pytest.mark.usefixtures("kit_prior")
class TestConformanceWithAPrior(OptimizerConformance):
    optimizer = "transfer"


# -- what evidence does -------------------------------------------------------------------------


def played(data, objective, count=32):
    """A study of `count` results, and the share of the prior after it."""

    def factory():
        return make("transfer", SQUARE, horizon=100, budget=40, prior_data=data, startup=4)

    made = simulate(factory, lambda number, proposal: objective(proposal.config), count)
    optimizer = factory()
    for event in made.events:
        optimizer.observe(event)
    return made, optimizer._share_of_prior([*optimizer.history])[0]


def peak(config):
    return -((config["x"] - 0.2) ** 2 + (config["y"] - 0.9) ** 2)


def test_a_prior_that_is_reversed_is_given_up():
    right = prior_data(SQUARE, table(SQUARE, 64, objective=peak))
    reversed_ = prior_data(SQUARE, table(SQUARE, 64, objective=lambda config: -peak(config)))
    good, _ = played(right, peak)
    bad, left = played(reversed_, peak)
    assert left < 0.05
    arms = [proposal.meta.get("arm") for proposal in bad.proposals]
    assert arms[20:].count("plain") >= 10
    early = max(event.values[0] for event in good.scored[:5])
    assert early > max(event.values[0] for event in bad.scored[:5])
    assert bad.best > -0.1  # and what its own results say is found all the same


@pytest.mark.parametrize(("sign", "least", "most"), [(1, 0.65, 0.65), (-1, 0.0, 0.2)])
def test_trust_is_measured_on_the_tables_not_taken_from_a_name(sign, least, most):
    """Four tasks of one family that agree are trusted, and four that oppose each other are not."""
    tables = [
        table(SQUARE, 32, f"t{number}", lambda config, s=sign**number: s * peak(config))
        for number in range(4)
    ]
    (trust,) = fitted_prior(
        Gathered([[entry] for entry in tables]), SQUARE, "Task-v3", named=True
    ).trust.values()
    assert least <= trust.share <= most
    # One table cannot be left out: nothing is known of it.
    (alone,) = fitted_prior(Gathered([tables[:1]]), SQUARE, "Task-v3", named=True).trust.values()
    assert alone.share == 0.5


def test_the_own_family_weighs_ten_times_another_however_many_tasks_that_has():
    own = table(SQUARE, source="a", environment="CartPole-v1")
    others = [table(SQUARE, source=f"b{n}", environment="ALE/Pong-v5") for n in range(3)]
    data = prior_data(SQUARE, own, *others, environment="Acrobot-v1")
    weights = [task["weight"] for task in data["tasks"]["values"]]
    assert weights[0] == pytest.approx(10 * sum(weights[1:]), rel=1e-4)
    assert sum(weights) == pytest.approx(1, abs=1e-5)
    assert family_of("letters-goldproxy") == family_of("letters-pairs") == "letters"


def test_a_portfolio_adds_what_improves_most():
    values = np.array([[1.0, 0.0, 0.9], [0.0, 1.0, 0.6]])
    half = np.array([0.5, 0.5])
    assert int(gains(values, np.zeros(2), half).argmax()) == 2
    # After the third the first adds 0.05 and the second 0.2.
    assert gains(values, values[:, 2], half) == pytest.approx([0.0505, 0.2005, 0.00075])


@pytest.mark.parametrize(("sign", "places"), [(1, [1, 2]), (-1, [0, 1])])
def test_a_prior_that_is_trusted_comes_before_the_default(sign, places):
    """The earliest of equal results is chosen: a trusted prior decides between them."""
    tables = [
        table(SQUARE, 32, f"t{number}", lambda config, s=sign**number: s * peak(config))
        for number in range(4)
    ]
    data = prior_data(SQUARE, *tables, environment="Task-v3")
    best = tables[0].configs[int(tables[0].scores.argmax())]
    warm = Config(x=0.1, y=0.1, z=0.1)

    def factory():
        return make(
            "transfer", SQUARE, horizon=100, budget=40, prior_data=data, initial=[best, warm]
        )

    made = simulate(factory, lambda number, proposal: 0.0, 8)
    origins = [proposal.origin for proposal in made.proposals]
    assert [origins.index("default"), origins.index("warm start")] == places
    assert origins.count("default") == 1
    assert origins.count("warm start") == 2
    assert (made.proposals[0].meta.get("arm") == "prior") is (sign == 1)
    assert len({proposal.config for proposal in made.proposals}) == 8


# -- mapping ------------------------------------------------------------------------------------


def recorded(rows, scores=None):
    configs = tuple(Config(row) for row in rows)
    values = np.linspace(0, 1, len(configs)) if scores is None else np.array(scores)
    return TaskTable("a/ppo/Task-v0", "ppo", "Task-v0", configs, values)


def test_other_names_ranges_and_choices_are_mapped():
    space = load_space(
        {
            "hyperparameters": {
                "learning_rate": {**LOG, "lower": 1e-4, "upper": 1e-2, "default": 1e-3},
                "batch_size": {"type": "ordinal", "choices": [32, 128], "default": 32},
                "vf_coef": {**UNIT, "default": 0.25},
                "activation": {"type": "categorical", "choices": ["tanh", "relu"]},
            }
        }
    )
    rows = [
        {
            "learning_rate": rate,
            "minibatch_size": size,
            "activation": "swish" if rate > 0.5 else "relu",
            "momentum": 0.9,
        }
        for rate in (1e-3, 1e-5, 1.0)
        for size in (32, 64, 128, 512)
    ]
    mapped = map_task(recorded(rows), space)
    assert len(mapped.units) == 8  # without the choice that the space does not have
    rates, sizes, coefficients, _ = mapped.units.T
    assert rates[0] == pytest.approx(0.5)
    assert rates[4] == pytest.approx(-0.5)  # a half of the range below it, on the logarithm
    assert sizes[:4] == pytest.approx([0.25, 0.5, 0.75, 1.25])
    assert coefficients == pytest.approx(0.25)  # what was not recorded is at the default
    assert mapped.recorded.tolist() == [True, True, False, False]
    assert "not recorded: vf_coef" in mapped.note
    assert "not in the space: momentum" in mapped.note
    moved = proposable(space, mapped.units[7])
    assert moved["learning_rate"] == 1e-4
    assert moved["batch_size"] == 128
    assert moved["activation"] == "relu"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"q": float(n)} for n in range(9)], "shares no hyperparameter with the space: it has q"),
        ([{"x": 0.5} for n in range(9)], "no hyperparameter that it shares with the space differs"),
        ([{"x": "text"} for n in range(9)], "shares no hyperparameter with the space"),
    ],
)
def test_a_table_that_shares_nothing_is_refused_or_skipped_with_a_line(rows, message):
    gathered = Gathered([[recorded(rows)]])
    with pytest.raises(InputError, match=message) as caught:
        fitted_prior(gathered, SQUARE, None, named=True)
    assert caught.value.key == "optimizer.prior"
    made = fitted_prior(gathered, SQUARE, None, named=False)
    assert made.tasks == ()
    assert message in made.skipped[0]
    assert any(message in line for line in made.lines())


def test_the_prior_of_a_study_is_read_back_and_guarded_by_its_hash():
    data = prior_data(SQUARE, table(SQUARE), table(SQUARE, source="again"))
    assert len(data["designs"]) == 1  # tasks of one design share it
    again = study_prior_of(data, SQUARE)
    assert again.to_dict() == data
    assert unpack(pack(np.array([0.0, 0.25, 1.0])), (3,)) == pytest.approx([0, 0.25, 1], abs=1e-5)
    expect_error("was changed", study_prior_of, {**data, "trust": {}}, SQUARE)
    with pytest.raises(InputError, match="another space"):
        study_prior_of(data, load_space({"hyperparameters": {"x": UNIT}}))


@pytest.mark.parametrize("prior", ["autoo", [], [3], {"x": 1}])
def test_an_option_that_names_no_sources_is_refused(prior):
    with pytest.raises(InputError) as caught:
        make("transfer", SQUARE, horizon=100, prior=prior)
    assert caught.value.key == "optimizer.prior"


def test_a_prior_file_is_read_back_and_a_changed_one_refused(tmp_path):
    file = tmp_path / "prior.json"
    conditional = table(space_of("conditional"))
    prior = Prior("kit", (conditional, table(SQUARE)), conditional.configs[:2], licence="BSD-3")
    save_prior(prior, file)
    again = load_prior(file)
    assert again.sha256 == prior.sha256
    assert again.tasks[1].scores == pytest.approx(prior.tasks[1].scores, abs=1e-4)
    assert [set(config) for config in again.tasks[0].configs] == [
        set(config) for config in conditional.configs
    ]
    file.write_text(file.read_text().replace('"BSD-3"', '"BSD-2"'))
    assert expect_error("does not have its hash", load_prior, file).file == str(file)
    file.write_text("[1")
    expect_error("no prior: not JSON", load_prior, file)


@pytest.mark.parametrize(
    ("studied", "recorded_range", "scale", "expected"),
    [
        ((1e-4, 1e-2), (1e-5, 1e-3), "log", True),
        ((1e-4, 1e-2), (1.1e-4, 0.95e-2), "log", False),  # draws do not reach the ends
        ((0.0, 1.0), (0.5, 0.75), "linear", True),
        ((0.9, 0.9999), (0.5, 0.99), "flipped_log", True),
    ],
)
def test_a_place_is_a_part_of_the_recorded_range_on_the_scale_of_the_study(
    studied, recorded_range, scale, expected
):
    item = {"type": "float", "scale": scale, "lower": studied[0], "upper": studied[1]}
    space = load_space({"hyperparameters": {"x": item}})
    other = {**item, "lower": recorded_range[0], "upper": recorded_range[1]}
    drawn = load_space({"hyperparameters": {"x": other}})
    parts = np.linspace(0, 1, 33)
    rows = [dict(drawn.from_unit(np.array([part]))) for part in parts]
    by_value, by_place = (
        map_task(recorded(rows), space, by_place=place).units[:, 0] for place in (False, True)
    )
    assert np.array_equal(by_value, by_place) is not expected
    assert by_place == pytest.approx(parts if expected else by_value, abs=1e-6)


def test_places_of_ordered_choices_are_at_equal_distances():
    space = load_space({"hyperparameters": {"b": {"type": "ordinal", "choices": [16, 64, 256]}}})
    rows = [{"b": size} for size in [32, 32, 32, 128, 128, 512, 512, 512, 512]]
    units = map_task(recorded(rows), space, by_place=True).units[:, 0]
    assert units == pytest.approx([1 / 6] * 3 + [1 / 2] * 2 + [5 / 6] * 4)
