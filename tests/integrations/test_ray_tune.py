"""Our optimizers and trainers inside Ray Tune; all but one test without starting Ray."""

import json
import math
import pickle
from pathlib import Path

import pytest
from refusals import expect_error

pytest.importorskip("ray.tune")

from ray import tune
from ray.tune.search import ConcurrencyLimiter
from ray.tune.trainable import trainable as trainable_of_ray

from autorl.core.types import InputError
from autorl.integrations.ray_space import space_of
from autorl.integrations.ray_tune import AutorlSearcher, trainable
from autorl.space import load_space

SPACE = {
    "x": {"type": "float", "lower": 0.0, "upper": 1.0},
    "rate": {"type": "float", "lower": 1e-4, "upper": 1.0, "scale": "log"},
    "kind": {"type": "categorical", "choices": ["a", "b"]},
}


def loss(config):
    return (config["x"] - 0.7) ** 2 + (math.log10(config["rate"]) + 2) ** 2 / 4


def searcher(optimizer="tpe", **options):
    return AutorlSearcher(SPACE, optimizer, "loss", "min", **options)


def play(made, trials, start=0):
    """Run trials one after another, and return their configurations."""
    configs = []
    for number in range(start, start + trials):
        config = made.suggest(f"t{number}")
        made.on_trial_result(f"t{number}", {"loss": 9.0})
        made.on_trial_complete(f"t{number}", {"loss": loss(config)})
        configs.append(config)
    return configs


# -- the searcher ------------------------------------------------------------------------------


def test_it_minimizes_what_it_is_told():
    losses = [loss(config) for config in play(searcher(), 60)]
    assert min(losses[30:]) < 0.02
    assert sum(losses[45:]) < sum(losses[:15]) / 3


def test_the_default_and_the_given_points_come_first():
    made = searcher("random", points_to_evaluate=[{"x": 0.25}])
    first, second = play(made, 2)
    assert first == dict(load_space(SPACE).default())
    assert (second["x"], second["kind"]) == (0.25, "a")


def test_equal_seeds_propose_equal_configurations():
    assert play(searcher(seed=3), 12) == play(searcher(seed=3), 12) != play(searcher(seed=4), 12)


def test_a_restored_searcher_goes_on_where_it_was_saved(tmp_path):
    made = searcher()
    play(made, 20)
    running = made.suggest("running")
    made.on_trial_result("running", {"loss": 0.5})
    made.save(str(tmp_path / "state.json"))
    (tmp_path / "ray").mkdir()
    restored = AutorlSearcher()  # as Ray makes it anew: everything is in the file
    restored.restore(str(tmp_path / "state.json"))
    for before_and_after in (made, restored):
        before_and_after.on_trial_complete("running", {"loss": loss(running)})
    assert play(restored, 5, start=20) == play(made, 5, start=20)
    made.save_to_dir(str(tmp_path / "ray"), "session")
    assert [path.name for path in (tmp_path / "ray").iterdir()] == ["searcher-state-session.json"]
    in_folder = AutorlSearcher()
    in_folder.restore_from_dir(str(tmp_path / "ray"))
    assert play(in_folder, 2, start=25) == play(made, 2, start=25)


def test_its_state_is_json_and_no_pickle(tmp_path):
    made = searcher()
    play(made, 3)
    made.save(str(tmp_path / "state"))
    state = json.loads((tmp_path / "state").read_text())
    assert [event["event"] for event in state["events"]] == ["proposed", "scored"] * 3
    assert made._optimizer is not None
    assert pickle.loads(pickle.dumps(made))._optimizer is None


@pytest.mark.parametrize("text", ["", "{}", '{"format": "other"}', "[1]", "\x80"])
def test_a_file_that_is_no_state_is_refused_by_its_name(tmp_path, text):
    (tmp_path / "state").write_text(text, encoding="latin-1")
    expect_error("state", searcher().restore, str(tmp_path / "state"))


def observed(made):
    return [json.loads(json.dumps(fields)) for fields in made.__getstate__()["events"]][-1]


def test_failures_have_the_worst_value_so_far():
    made = searcher("random")
    made.suggest("a")
    made.on_trial_complete("a", error=True)
    assert observed(made)["body"]["failed"]["values"] == []  # no score is known yet
    for trial, value in (("b", 2.0), ("c", 5.0)):
        made.suggest(trial)
        made.on_trial_complete(trial, {"loss": value})
    made.suggest("d")
    made.on_trial_complete("d", {"loss": math.nan})
    body = observed(made)["body"]["failed"]
    assert (body["kind"], body["values"]) == ("diverged", [-5.0])


def test_a_trial_that_a_scheduler_ends_counts_with_its_last_value():
    made = searcher("random")
    made.suggest("paused")
    made.on_trial_result("paused", {"loss": 4.0})
    made.on_trial_result("paused", {"loss": math.inf})
    made.on_trial_complete("paused")  # without a result: as Ray removes a paused trial
    assert observed(made)["body"]["scored"]["values"] == [-4.0]
    made.suggest("silent")
    made.on_trial_complete("silent", {"other": 1.0})
    assert "no result has loss" in observed(made)["body"]["failed"]["message"]


def test_trials_that_are_not_open_are_ignored():
    made = searcher("random")
    play(made, 1)
    made.on_trial_complete("t0", {"loss": 0.0})
    made.on_trial_complete("unknown", {"loss": 0.0})
    assert len(made.__getstate__()["events"]) == 2


def test_a_grid_ends_the_search():
    space = {"kind": SPACE["kind"]}
    made = AutorlSearcher(space, {"name": "grid"}, "loss", "min", budget=10)
    answers = [made.suggest(f"t{number}") for number in range(4)]
    assert [answer["kind"] for answer in answers[:2]] == ["a", "b"]
    assert answers[2:] == [made.FINISHED] * 2


def test_several_objectives_have_a_direction_each():
    made = AutorlSearcher(SPACE, "random", ["loss", "speed"], ["min", "max"])
    made.suggest("a")
    made.on_trial_complete("a", {"loss": 2.0, "speed": 3.0})
    assert observed(made)["body"]["scored"]["values"] == [-2.0, 3.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"optimizer": "asha"}, "optimizer.name: 'asha' cuts or continues runs"),
        ({"optimizer": "pbt"}, "optimizer.name: 'pbt' cuts or continues runs"),
        ({"optimizer": {"name": "tpe", "stop": "median"}}, "optimizer.stop: not here"),
        ({"optimizer": "nobody"}, "nobody"),
        ({"mode": "best"}, "mode: expected max or min, got 'best'"),
        ({"mode": ["min", "max"]}, "mode: expected one mode for each metric"),
        ({"points_to_evaluate": [{"x": 7.0}]}, "x"),
    ],
)
def test_what_is_wrong_is_said_when_it_is_made(arguments, message):
    with pytest.raises(InputError, match=message):
        AutorlSearcher(**{"space": SPACE, "metric": "loss", "mode": "min", **arguments})


def test_a_missing_metric_is_said_at_the_first_trial():
    expect_error("metric: expected the metric and its mode", AutorlSearcher(SPACE).suggest, "a")


# -- spaces of Ray -----------------------------------------------------------------------------


def test_the_domains_of_a_param_space_are_searched():
    param_space = {
        "constant": 5,
        "x": tune.uniform(-1.0, 2.0),
        "model": {"rate": tune.loguniform(1e-4, 1e-1), "layers": tune.randint(1, 4)},
        "kind": tune.choice(["a", "b"]),
        "batch": tune.qrandint(16, 64, 16),
        "tau": tune.quniform(0.0, 0.3, 0.1),
    }
    made = AutorlSearcher(optimizer="random")
    assert made.set_search_properties("loss", "min", param_space, num_samples=40)
    assert made.__getstate__()["budget"] == 40
    drawn = [made.suggest(f"t{number}") for number in range(40)]
    assert {*drawn[0]} == {"x", "model", "kind", "batch", "tau"}
    assert {config["model"]["layers"] for config in drawn} == {1, 2, 3}
    assert {config["batch"] for config in drawn} == {16, 32, 48, 64}
    assert {config["tau"] for config in drawn} == {0.0, 0.1, 0.2, 0.3}
    assert all(1e-4 <= config["model"]["rate"] <= 1e-1 for config in drawn)
    assert not made.set_search_properties(None, None, param_space)
    assert space_of({"steps": 5, "model": {"name": "small"}}) is None


@pytest.mark.parametrize(
    ("domain", "name"),
    [
        (tune.randn(), "a/b"),
        (tune.qloguniform(1e-3, 1.0, 1e-3), "a/b"),
        (tune.grid_search([1, 2]), "a/b"),
        (tune.sample_from(lambda spec: 1), "a/b"),
    ],
    ids=["normal", "log and quantum", "grid", "function"],
)
def test_a_domain_that_no_space_has_is_refused_by_its_name(domain, name):
    expect_error(name, space_of, {"a": {"b": domain}})


# -- trainers ----------------------------------------------------------------------------------

CONFIG = {"x": 0.6, "rate": 0.3}
SYNTHETIC = {"optimum": {"x": 0.7, "rate": 0.2}, "noise": 0.1}


@pytest.fixture
def trial(tmp_path, monkeypatch):
    """Make trials outside of Ray, which keep their folders below the test's."""
    monkeypatch.setattr(trainable_of_ray, "DEFAULT_STORAGE_PATH", str(tmp_path / "ray"))
    begun = []

    def begin(config=CONFIG, **arguments):
        options = {"steps": 100, "kwargs": SYNTHETIC, **arguments}
        begun.append(trainable("synthetic", **options)(config=dict(config)))
        return begun[-1]

    yield begin
    for made in begun:
        made.stop()
        assert not made._work.exists()


def curve(made, iterations):
    return [made.train() for _ in range(iterations)]


def test_a_trial_reports_our_metrics_at_every_iteration(trial):
    results = curve(trial(evaluations=4), 4)
    assert [result["timesteps_total"] for result in results] == [25, 50, 75, 100]
    assert [result["training_iteration"] for result in results] == [1, 2, 3, 4]
    assert [result["done"] for result in results] == [False, False, False, True]
    scores = [result["eval_return"] for result in results]
    whole = trial(evaluations=1).train()
    assert scores[-1] == whole["eval_return"]  # the cuts have changed nothing
    assert scores == sorted(scores)


def test_the_seed_of_a_configuration_is_that_of_its_run(trial):
    runs = [trial({**CONFIG, "seed": seed}).train()["eval_return"] for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_a_checkpoint_is_gone_on_from_in_another_process(trial, tmp_path):
    made = trial()
    curve(made, 3)
    made.save(str(tmp_path / "saved"))
    rest = curve(made, 7)
    restored = trial()
    restored.restore(str(tmp_path / "saved"))
    again = curve(restored, 7)
    scores = [[result["eval_return"] for result in results] for results in (again, rest)]
    assert scores[0] == scores[1]


def test_an_exploit_goes_on_with_its_own_configuration_and_streams(trial, tmp_path, monkeypatch):
    donor = trial()
    curve(donor, 5)
    donor.save(str(tmp_path / "saved"))
    copied = trial()
    monkeypatch.setattr(type(copied), "trial_id", "another")
    assert copied.reset({**CONFIG, "x": 0.1})
    copied.restore(str(tmp_path / "saved"))
    segment = copied._segment()
    assert (segment.start, segment.until, segment.config["x"]) == (50, 60, 0.1)
    assert segment.fork is not None
    copied._until = 50
    assert copied.train()["timesteps_total"] == 60
    assert copied._segment().fork is None


def test_a_reset_trial_starts_from_step_0(trial):
    made = trial()
    first = made.train()["eval_return"]
    curve(made, 2)
    assert made.reset(dict(CONFIG))
    assert made.train()["eval_return"] == first
    assert len(list(made._work.iterdir())) == 1  # no checkpoint of before is left


def test_a_failed_training_is_an_error_with_its_kind(trial):
    with pytest.raises(RuntimeError, match="crash: RuntimeError: synthetic crash"):
        curve(trial(kwargs={**SYNTHETIC, "crash": 1.0}), 10)


def test_a_function_that_cannot_be_resumed_is_one_iteration(trial, tmp_path, monkeypatch):
    monkeypatch.setattr(trainable_of_ray, "DEFAULT_STORAGE_PATH", str(tmp_path / "ray"))
    (tmp_path / "ours_in_ray.py").write_text(
        "def train(config, *, seed, until):\n    return config['x'] * until\n"
    )
    made = trainable("python:ours_in_ray:train", steps=8, folder=tmp_path)(config={"x": 0.5})
    result = made.train()
    made.stop()
    assert (result["value"], result["done"]) == (4.0, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"trainer": "sb3/nobody"}, "unknown trainer 'sb3/nobody'"),
        ({"evaluations": 0}, "evaluations: expected a number of 1 or more, got 0"),
        ({"kwargs": {"nothing": 1}}, "nothing"),
    ],
)
def test_what_no_trial_could_train_is_refused_at_once(arguments, message):
    expect_error(message, trainable, **{"trainer": "synthetic", "steps": 100, **arguments})


def test_an_environment_that_cannot_be_trained_in_is_refused_with_the_first_configuration(trial):
    expect_error("synthetic trains in no environment", trial, environment="CartPole-v1")


@pytest.mark.slow
@pytest.mark.cpu_seconds(900)
def test_a_tuner_of_ray_uses_both(tmp_path, monkeypatch):
    import ray

    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "600")
    monkeypatch.setenv("HOME", str(tmp_path))
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    try:
        tuner = tune.Tuner(
            trainable("synthetic", steps=20, evaluations=2, kwargs=SYNTHETIC),
            param_space={"x": tune.uniform(0.0, 1.0), "rate": tune.loguniform(1e-4, 1.0)},
            tune_config=tune.TuneConfig(
                metric="eval_return",
                mode="max",
                num_samples=6,
                search_alg=ConcurrencyLimiter(AutorlSearcher(optimizer="tpe"), max_concurrent=2),
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(storage_path=str(tmp_path), name="ours", verbose=0),
        )
        results = tuner.fit()
    finally:
        ray.shutdown()
    assert not results.errors
    assert [result.metrics["timesteps_total"] for result in results] == [20] * 6
    (state,) = Path(tmp_path, "ours").glob("searcher-state-*.json")
    kinds = [fields["event"] for fields in json.loads(state.read_text())["events"]]
    assert kinds.count("proposed") == kinds.count("scored") == 6
