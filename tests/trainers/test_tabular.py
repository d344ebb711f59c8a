"""The trainer `tabular`: conformance where it applies, look-ups against the data, failures, and whole studies."""

import pickle
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import segments
import yaml
from made_landscapes import write
from refusals import expect_error
from replay_space import SPACE

import autorl
from autorl.core.seeds import FIRST_TEST_SEED
from autorl.core.types import EnvironmentSpec, FrozenMap, InputError, Status, TrainerSpec
from autorl.landscapes import Landscape
from autorl.landscapes.importers import import_any
from autorl.study import Study
from autorl.study.spec import load_spec
from autorl.testing.trainers import Case, Runner, TrainerConformance
from autorl.trainers import load

ARLBENCH = Path(__file__).parents[3] / "shared/data/arlbench/landscapes/cc_cartpole_dqn.csv.gz"
STEPS = (100, 200, 300, 400)
SEEDS = {"tuning": (10, 11, 12, 13, 14), "test": (50, 51, 52)}
N = 40
SECONDS = 8.0
# Configurations that end badly, early, or have no test runs.
CRASHED, STOPPED, PARTLY_TESTED = 3, 4, 5


def value(number, seed, step):
    return round(number + seed / 100 + step / 1000, 4)


def cells():
    for number in range(N):
        for role, seeds in SEEDS.items():
            for seed in seeds:
                if not (number == PARTLY_TESTED and role == "test"):
                    yield number, role, seed


@pytest.fixture(scope="module")
def landscape(tmp_path_factory):
    rng = np.random.default_rng(0)
    configs = {number: SPACE.sample(rng) for number in range(N)}
    runs = []
    for number, role, seed in cells():
        status = {CRASHED: "crash", STOPPED: "stopped"}.get(number, "done")
        steps = {"crash": 250, "stopped": 300, "done": 400}[status]
        curve = {
            step: {"eval_return": value(number, seed, step), "length": float(step)}
            for step in STEPS
            if step <= steps
        }
        runs.append((number, role, seed, status, steps, SECONDS * steps / 400, curve))
    place = tmp_path_factory.mktemp("landscapes")
    return write(place, SPACE, configs, runs, steps=STEPS, seeds=SEEDS)


@pytest.fixture(scope="module")
def folder(landscape):
    return landscape.path


@pytest.fixture(scope="module")
def trainer(folder):
    return load(TrainerSpec("tabular", FrozenMap(landscape=str(folder))))


def segment(landscape, number, **changes):
    spec = TrainerSpec("tabular", FrozenMap(landscape=str(landscape.path)))
    of_run = {"id": "0.0", "until": 400, "horizon": 400, "evaluate_at": STEPS, "seed": 0}
    return segments.segment(spec, config=landscape.config(number), **of_run | changes)


def near(expected):
    """Recorded numbers have 32 bits."""
    return pytest.approx(expected, rel=1e-6)


def train(trainer, wanted):
    told = []
    outcome = trainer.train(wanted, told.append)
    assert tuple(told) == outcome.reports
    return outcome


class TestTabular(TrainerConformance):
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _case(cls, folder):
        first = Landscape(folder).config(0)
        other = next(kind for kind in ("a", "c") if kind != first["kind"])
        cls.case = Case(
            TrainerSpec("tabular", FrozenMap(landscape=str(folder))),
            configs=(first, first),
            horizon=400,
            passes=True,
            fixed=("kind", other),
        )

    @pytest.fixture(scope="class")
    @classmethod
    def runner(cls, _case, tmp_path_factory):
        return Runner(cls.case, tmp_path_factory.mktemp("conformance"))


def test_a_recorded_configuration_is_answered_by_its_run(landscape, trainer):
    for number in (0, 7, 39):
        for role, base in (("tuning", 0), ("test", FIRST_TEST_SEED)):
            for place, recorded in enumerate(SEEDS[role]):
                outcome = train(trainer, segment(landscape, number, seed=base + place, role=role))
                assert outcome.status is Status.DONE
                assert outcome.notes == ()
                assert [report.step for report in outcome.reports] == list(STEPS)
                for report in outcome.reports:
                    expected = near(value(number, recorded, report.step))
                    assert report.metrics["eval_return"] == expected
                    assert report.metrics["length"] == report.step


def test_a_seed_past_the_last_one_is_refused_or_says_that_it_repeats(landscape, trainer):
    config = landscape.config(0)
    for seed, role in ((5, "tuning"), (103, "test"), (99, "test")):
        with pytest.raises(InputError, match=rf"{role} seeds, .*seed {seed} would repeat one of"):
            train(trainer, segment(landscape, 0, seed=seed, role=role))
        expect_error("would repeat", landscape.objective(), config, seed=seed, role=role)
    options = FrozenMap(landscape=str(landscape.path), wrap_seeds=True)
    wrapping = load(TrainerSpec("tabular", options))
    first, sixth = (train(wrapping, segment(landscape, 0, seed=seed)) for seed in (0, 5))
    assert [one.metrics for one in sixth.reports] == [one.metrics for one in first.reports]
    assert "what seed 0 does" in sixth.notes[0]
    of_test = train(wrapping, segment(landscape, 0, seed=104, role="test"))
    assert "what seed 101 does" in of_test.notes[0]
    wrapped = landscape.objective(wrap_seeds=True)
    again = pickle.loads(pickle.dumps(wrapped))
    assert wrapped(config, seed=6) == wrapped(config, seed=1) == again(config, seed=6)


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ({"tuning": 6, "test": 3}, "seeds.tuning: .* records 5 tuning seeds, 0..4 .* seed 5 would"),
        ({"tuning": 5}, "seeds.test: .* records 3 test seeds, 100..102 .* seed 103 would repeat"),
        ({"tuning": [10, 11], "test": 1}, "seeds.tuning: .* seed 10 would repeat"),
    ],
)
def test_a_study_with_more_seeds_than_are_recorded_does_not_begin(folder, tmp_path, seeds, message):
    expect_error(message, Study.create, study_over(folder, SPACE, seeds=seeds), tmp_path / "study")
    assert not (tmp_path / "study").exists()
    wrapping = {"name": "tabular", "kwargs": {"landscape": str(folder), "wrap_seeds": True}}
    Study.in_memory(study_over(folder, SPACE, trainer=wrapping, seeds=seeds)).close()
    # Test seeds count only if they are used.
    unused = {"seeds": {"tuning": 5, "test": 10}, "test": {"top": 0}}
    Study.in_memory(study_over(folder, SPACE, **unused)).close()


@pytest.mark.parametrize("given", ["toys/toy/Toy-v0", "landscapes/toys/toy/Toy-v0"])
def test_a_study_is_resumed_from_another_working_folder(folder, tmp_path, monkeypatch, given):
    """The landscape is found beside the study file, and the stored study names its folder."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    shutil.copytree(folder.parents[2], home / "landscapes")
    elsewhere.mkdir()
    kwargs = {"landscape": given}
    file = home / "study.yaml"
    trainer = {"name": "tabular", "kwargs": kwargs}
    spec = study_over(folder, SPACE, trainer=trainer, budget={"runs": 12})
    text = yaml.safe_load(spec.freeze())
    text["trainer"]["kwargs"] = kwargs
    del text["path"]
    file.write_text(yaml.safe_dump(text))
    monkeypatch.chdir(tmp_path)
    with closing(Study.create(load_spec(file), home / "study")) as study:
        study.run()
    monkeypatch.chdir(elsewhere)
    with closing(Study.open(home / "study")) as again:
        assert again.spec.trainer.kwargs["landscape"] == str(home / "landscapes/toys/toy/Toy-v0")
        again.extend(runs=12)
        assert again.run().test is not None


def test_an_evaluation_between_two_recorded_steps_is_the_earlier_one(landscape, trainer):
    outcome = train(trainer, segment(landscape, 2, until=450, evaluate_at=(50, 199, 200, 310, 450)))
    assert [report.step for report in outcome.reports] == [50, 199, 200, 310, 450]
    found = [report.metrics["eval_return"] for report in outcome.reports]
    assert found == near([value(2, 10, step) for step in (100, 100, 200, 300, 400)])
    assert outcome.reached == 450


def begun(landscape, number, folder, until, *points):
    place = {"save": True, "folder": str(folder / str(until)), "until": until}
    return segment(landscape, number, evaluate_at=points, **place)


def test_a_segment_goes_on_to_the_first_recorded_step(landscape, trainer, tmp_path):
    assert [trainer.align(landscape.config(2), step) for step in (30, 100, 130)] == [100, 100, 130]
    first = train(trainer, begun(landscape, 2, tmp_path, 30, 30))
    assert (first.reached, first.cost["environment_steps"]) == (100, 100)
    assert first.reports[0].metrics["eval_return"] == near(value(2, 10, 100))
    more = {"parent": first.checkpoint, "start": 100, "evaluate_at": (200, 400)}
    assert train(trainer, segment(landscape, 2, **more)).cost["environment_steps"] == 300
    with pytest.raises(InputError, match="checkpoint is at step 100"):
        train(trainer, segment(landscape, 2, **more | {"start": 200}))
    with pytest.raises(InputError, match="end at step 400"):
        train(trainer, segment(landscape, 0, until=500, evaluate_at=(500,)))


def test_the_cost_is_the_recorded_one(landscape, trainer, tmp_path):
    first = train(trainer, begun(landscape, 0, tmp_path, 100, 100))
    more = {"parent": first.checkpoint, "start": 100, "evaluate_at": (200, 300, 400)}
    whole, second = (train(trainer, segment(landscape, 0, **own)) for own in ({}, more))
    runs = (whole, first, second)
    assert [run.cost["environment_steps"] for run in runs] == [400, 100, 300]
    assert [run.cost["wall_seconds"] for run in runs] == pytest.approx([SECONDS, 2.0, 6.0])


def test_a_recorded_failure_happens_at_its_step(landscape, trainer, tmp_path):
    first = train(trainer, begun(landscape, CRASHED, tmp_path, 200, 100, 200))
    assert (first.status, first.reached) == (Status.DONE, 200)
    more = {"parent": first.checkpoint, "start": 200, "evaluate_at": (300, 400)}
    then = train(trainer, segment(landscape, CRASHED, **more))
    assert (then.status, then.reached, then.reports) == (Status.CRASH, 250, ())
    assert "recorded as crash" in then.message
    whole = train(trainer, begun(landscape, CRASHED, tmp_path, 400, *STEPS))
    assert (whole.status, whole.reached, whole.checkpoint) == (Status.CRASH, 250, None)
    assert [report.step for report in whole.reports] == [100, 200]


def test_a_recorded_stop_is_a_stop(landscape, trainer):
    outcome = train(trainer, segment(landscape, STOPPED))
    assert (outcome.status, outcome.reached) == (Status.STOPPED, 300)
    assert [report.step for report in outcome.reports] == [100, 200, 300]


def test_a_configuration_without_test_runs_has_no_test_score(landscape, trainer):
    assert train(trainer, segment(landscape, PARTLY_TESTED)).status is Status.DONE
    with pytest.raises(InputError, match="not trained with test seed 50"):
        train(trainer, segment(landscape, PARTLY_TESTED, seed=100, role="test"))


def distance(a, b):
    """The definition, one hyperparameter at a time."""
    total = 0.0
    for name, item in SPACE.hyperparameters.items():
        if (name in a) != (name in b):
            total += 1
        elif name in a and item.type == "categorical":
            total += a[name] != b[name]
        elif name in a:
            total += (item.to_unit(a[name]) - item.to_unit(b[name])) ** 2
    return total


def test_neighbours_are_all_that_can_answer_by_distance(landscape):
    replay = landscape.objective()
    rng = np.random.default_rng(2)
    recorded = [landscape.config(number) for number in range(N)]
    for _ in range(20):
        config = SPACE.sample(rng)
        rows, distances = replay.neighbours(config)
        squares = [distance(config, recorded[row]) for row in rows]
        assert rows[0] == replay.row(config)
        assert sorted(rows.tolist()) == list(range(N))
        assert distances == pytest.approx(np.sqrt(squares))
        assert (np.diff(distances) >= 0).all()


def test_what_is_not_given_has_the_default(landscape):
    replay = landscape.objective()
    assert replay.row({"x": 0.1}) == replay.row(SPACE.config({"x": 0.1, "rate": 1e-2, "kind": "a"}))


def test_exact_takes_recorded_configurations_only(landscape):
    objective = landscape.objective("exact")
    assert objective(landscape.config(9), seed=1, until=250) == near(value(9, 11, 200))
    expect_error("is not in toys/toy/Toy-v0", objective, SPACE.sample(np.random.default_rng(5)))


def test_the_objective_is_the_grid_and_can_be_pickled(landscape):
    objective = landscape.objective()
    assert (objective.direction, objective.horizon) == ("maximize", 400)
    assert objective.space == landscape.space
    copy = pickle.loads(pickle.dumps(objective))
    for number in (0, CRASHED, STOPPED):
        config = landscape.config(number)
        expected = landscape.grid.lookup(number, 12, 300)
        assert objective(config, seed=2, until=399) == expected == copy(config, seed=2, until=399)
    worst = near(value(0, 10, 100))  # of those recorded
    assert objective(landscape.config(CRASHED)) == worst
    expect_error("before step 100", objective, landscape.config(0), until=99)


@pytest.mark.parametrize(
    ("trainer", "options", "message"),
    [
        ("tabular", {}, "is missing"),
        ("tabular", {"landscape": "nothing/at/all"}, "no landscape"),
        ("tabular", {"lookup": "closest"}, "allowed: exact, nearest"),
        ("tabular", {"wrap_seeds": "yes"}, "expected true or false, got 'yes'"),
        ("tabular", {"look_up": "exact"}, "did you mean 'lookup'"),
        ("surrogate", {"min_correlation": 2}, "in -1..1, got 2"),
        ("surrogate", {"trees": 8}, "of at least 32, got 8"),
    ],
)
def test_wrong_options_are_named(folder, trainer, options, message):
    given = {"landscape": str(folder), **options} if options else {}
    with pytest.raises(InputError, match=message):
        load(TrainerSpec(trainer, FrozenMap(given))).check(EnvironmentSpec(), ())


def test_another_space_or_environment_is_refused(trainer):
    trainer.check(EnvironmentSpec("Toy-v0"), SPACE.names)
    expect_error("Toy-v0, not CartPole", trainer.check, EnvironmentSpec("CartPole-v1"), SPACE.names)
    expect_error("did you mean 'rate'", trainer.check, EnvironmentSpec(), {"rates"})


def test_the_memory_of_a_look_up_is_no_metric(folder, tmp_path):
    bound = [{"metric": "peak_memory_mb", "max": 500}]
    with pytest.raises(InputError, match="constraints: unknown metric 'peak_memory_mb'"):
        Study.create(study_over(folder, SPACE, constraints=bound), tmp_path / "study")


def study_over(folder, space, **changes):
    values = {"trainer": {"name": "tabular", "kwargs": {"landscape": str(folder)}}}
    values |= {"space": space.to_dict(), "fidelity": {"steps": 400, "evaluations": 4}}
    values |= {"budget": {"runs": 60}, "seeds": {"tuning": 3, "test": 3}, "test": {"top": 1}}
    return load_spec({**values, "executor": {"name": "in_process"}, **changes})


@pytest.mark.parametrize(("optimizer", "runs"), [("random", 60), ("tpe", 60), ("asha", 20)])
def test_a_study_over_a_landscape_finds_a_good_configuration(
    folder, landscape, tmp_path, optimizer, runs
):
    spec = study_over(folder, SPACE, optimizer=optimizer, budget={"runs": runs})
    with closing(Study.create(spec, tmp_path / "study")) as study:
        result = study.run()

    def score(number, role="tuning"):
        return np.mean([value(number, seed, 400) for seed in SEEDS[role][:3]])

    assert result.tuning >= sorted(score(number) for number in range(N))[N // 2]
    row = landscape.objective().row(result.incumbent.config)
    assert result.tuning == near(score(row))
    assert result.test.value == near(score(row, "test"))


def test_an_objective_is_tuned_like_any_function(landscape):
    objective = landscape.objective()
    options = {"runs": 24, "optimizer": "random", "seeds": autorl.SeedPlan(2, 3)}
    result = autorl.tune(objective, objective.space, steps=objective.horizon, **options)
    config = result.incumbent.config
    expected = np.mean([objective(config, seed=seed) for seed in (0, 1)])
    assert result.tuning == pytest.approx(expected)
    expected = np.mean([objective(config, seed=100 + seed, role="test") for seed in range(3)])
    assert result.test.value == pytest.approx(expected)


@pytest.mark.skipif(not ARLBENCH.is_file(), reason="needs the ARLBench files beside the checkout")
@pytest.mark.parametrize("optimizer", ["random", "tpe"])
def test_arlbench_replayed(tmp_path, optimizer):
    options = {"tuning_seeds": 5, "namespace": "arlbench", "replace": False}
    (manifest,) = import_any(ARLBENCH, tmp_path, **options)
    folder = tmp_path / manifest.id
    data = Landscape(folder)
    changes = {"fidelity": {"steps": 50_000, "evaluations": 10}, "budget": {"runs": 96}}
    changes |= {"seeds": {"tuning": 3, "test": 5}, "environment": {"id": "CartPole-v1"}}
    spec = study_over(folder, data.space, optimizer=optimizer, **changes)
    with closing(Study.in_memory(spec)) as study:
        result = study.run()
    row = data.objective().row(result.incumbent.config)
    tuning = data.grid.values[row, data.grid.seed_positions("tuning")[:3], -1]
    assert result.tuning == pytest.approx(float(tuning.mean()), rel=1e-6)
    test = data.grid.values[row, data.grid.seed_positions("test"), -1]
    assert result.test.value == pytest.approx(float(test.mean()), rel=1e-6)
    assert result.tuning > float(np.median(data.grid.values[:, :, -1].mean(axis=1)))
