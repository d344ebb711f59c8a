"""Runs that begin from a policy: it is the same to the digit, once a chain, whatever is killed."""

from __future__ import annotations

import shutil

import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")

import gymnasium as gym
import numpy as np
import segments
import stable_baselines3 as sb3
import torch
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from study_support import table
from test_kill import after_events, run_spec_and_die

from autorl.core.seeds import evaluation_seeds
from autorl.core.types import EnvironmentSpec, InputError, Status, TrainerSpec
from autorl.report.plan import make_plan
from autorl.study import Study
from autorl.study.folder.opening import create_or_open
from autorl.study.results.models import with_start
from autorl.study.results.replay import schedule_document
from autorl.study.setup import make_named_executor, trainer_loader
from autorl.study.spec import load_spec
from autorl.trainers import load

OFF_POLICY = {"learning_starts": 20, "batch_size": 8, "buffer_size": 64, "train_freq": 4}
AGENTS = {
    "ppo": ("CartPole-v1", {"n_steps": 16, "batch_size": 16, "n_epochs": 1}),
    "a2c": ("Pendulum-v1", {"n_steps": 16}),
    "dqn": ("CartPole-v1", OFF_POLICY),
    **dict.fromkeys(("sac", "td3", "ddpg"), ("Pendulum-v1", OFF_POLICY)),
}
NORMALISED = ("ppo", "sac")
NETS = {"net_arch": [8, 8]}
RATE = {"type": "float", "lower": 1e-4, "upper": 1e-2, "scale": "log", "changeable": True}
PBT = {"name": "pbt", "population": 3, "generations": 2, "quantile": 0.5}
ASHA = {"name": "asha", "rungs": 2}


def around(name, models=None):
    """The environment of an agent, with the statistics of a file if there is one."""
    env = DummyVecEnv([lambda: gym.make(AGENTS[name][0])])
    if name in NORMALISED:
        place = models and str(models / f"{name}.vecnormalize.pkl")
        env = VecNormalize.load(place, env) if place else VecNormalize(env)
        env.training = env.norm_reward = place is None
    return env


def agent(name, **options):
    kind = getattr(sb3, name.upper())
    return kind(
        "MlpPolicy", around(name), **{**AGENTS[name][1], "policy_kwargs": dict(NETS), **options}
    )


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Zips of small agents by algorithm, some with statistics, and the memory of `sac`."""
    folder = tmp_path_factory.mktemp("models")
    for name in AGENTS:
        made = agent(name, seed=1).learn(80)
        made.save(folder / f"{name}.zip")
        if name in NORMALISED:
            made.get_vec_normalize_env().save(str(folder / f"{name}.vecnormalize.pkl"))
        if name == "sac":
            made.save_replay_buffer(folder / "sac.pkl")
    return folder


def document(models, name="ppo", room="sb3", start=None, kwargs=None, **changes):
    """A study file of runs that begin from the model of an algorithm."""
    task, options = AGENTS[name]
    net = NETS if room == "sb3" else {"net_width": 8}
    return {
        "name": "begun",
        "trainer": {"name": f"{room}/{name}", "kwargs": {**options, **net, **(kwargs or {})}},
        "environment": {"id": task, "normalize": name in NORMALISED},
        "start": {"model": str(models / f"{name}.zip")} if start is None else start,
        "space": {"hyperparameters": {"learning_rate": RATE}},
        "fidelity": {"steps": 96, "evaluations": 2, "episodes": 2},
        "budget": {"runs": 3},
        "seeds": {"tuning": 1, "test": 1},
        "optimizer": "random",
        "parallelism": 2,
        "executor": {"name": "in_process"},
        "test": {"top": 1},
    } | changes


def begun(models, name, room="sb3", memory=None, **kwargs):
    """The trainer of a study, and its environment."""
    start = {"model": str(models / f"{name}.zip"), "memory": memory and str(models / memory)}
    spec = with_start(load_spec(document(models, name, room, start, kwargs)))
    return spec.trainers[""], spec.environment.resolve()


def weights(model):
    return {name: value.numpy() for name, value in model.policy.state_dict().items()}


def same(one, other):
    return all(np.array_equal(value, other[name]) for name, value in one.items())


def loaded(models, name):
    return getattr(sb3, name.upper()).load(models / f"{name}.zip", device="cpu")


def ran(spec, folder, executor=None):
    study = Study.create(spec, folder)
    result = study.run(executor=executor)
    study.close()
    return result


def test_a_schedule_that_is_trained_again_begins_from_the_same_policy(models):
    spec = with_start(load_spec(document(models)))
    schedule = [(0, spec.search_space.default())]
    assert load_spec(schedule_document(spec, schedule)).start == spec.start


@pytest.mark.parametrize("name", ["ppo", "dqn", "sac"])
def test_at_step_0_a_run_scores_what_the_model_does(models, name):
    trainer, environment = begun(models, name)
    one = segments.segment(trainer, environment, None, 1, horizon=96)
    (report,) = segments.train(one).reports
    model = loaded(models, name)
    returns = []
    for seed in evaluation_seeds(1, "tuning", 0, 2):
        env = around(name, models)
        env.seed(seed)
        seen, ended, total = env.reset(), [False], 0.0
        while not ended[0]:
            seen, reward, ended, _ = env.step(model.predict(seen, deterministic=True)[0])
            total += float(reward[0])
        returns.append(total)
    # Rewards of `DummyVecEnv` are single ones; whole numbers have the same sum in any precision.
    exact = environment.id == "CartPole-v1"
    assert report.metrics["eval_return"] == pytest.approx(np.mean(returns), 0 if exact else 1e-6)


@pytest.mark.parametrize("name", AGENTS)
def test_the_engine_begins_with_the_weights_and_statistics_of_the_zip(models, name, tmp_path):
    trainer, environment = begun(models, name, "population")
    one = segments.segment(trainer, environment, None, 1, tmp_path / "one", horizon=96)
    model = load(trainer).load_model(segments.train(one).checkpoint)
    assert same(weights(model), weights(loaded(models, name)))
    if name in NORMALISED:
        mine, theirs = model.get_vec_normalize_env(), around(name, models)
        for moments in ("obs_rms", "ret_rms"):
            assert same(vars(getattr(mine, moments)), vars(getattr(theirs, moments)))


@pytest.mark.parametrize(("room", "memory"), [("sb3", "sac.pkl"), ("population", None)])
def test_n_and_n_steps_from_a_policy_are_2n(models, tmp_path, room, memory):
    trainer, environment = begun(models, "sac", room, memory)

    def train(name, until, trainer=trainer, **changes):
        place = tmp_path / name
        one = segments.segment(trainer, environment, None, until, place, horizon=64, **changes)
        outcome = segments.train(one)
        return (
            outcome.reports[-1].metrics,
            weights(load(trainer).load_model(outcome.checkpoint)),
            outcome,
        )

    scores, whole, _ = train("whole", 64)
    again, second, _ = train("second", 64, after=train("first", 32)[-1])
    assert again == scores
    assert same(second, whole)
    from_scratch = TrainerSpec(trainer.name, trainer.kwargs)
    assert not same(train("scratch", 64, from_scratch)[1], whole)


@pytest.mark.parametrize(("size", "rows"), [(32, 32), (100, 64)])
def test_a_memory_begins_with_the_newest_steps_that_fit(models, size, rows):
    saved = loaded(models, "sac")
    saved.load_replay_buffer(models / "sac.pkl")
    full = saved.replay_buffer
    assert full.full, "the model was trained for longer than its buffer"
    assert full.pos, "the newest step is not the last row"
    trainer, _ = begun(models, "sac", memory="sac.pkl", buffer_size=size)
    model = agent("sac", buffer_size=size)
    load(trainer).begin_from_start(model)
    memory = model.replay_buffer
    assert (memory.size(), memory.full) == (rows, size == rows)
    newest = np.roll(full.observations, -full.pos, axis=0)[-rows:]
    assert np.array_equal(memory.observations[:rows], newest)


@pytest.mark.parametrize(("asked", "taken"), [("auto", True), ("auto_0.1", False)])
def test_a_learned_temperature_is_taken_where_the_run_names_none(models, asked, taken):
    model = agent("sac", ent_coef=asked)
    load(begun(models, "sac")[0]).begin_from_start(model)
    assert torch.equal(model.log_ent_coef, loaded(models, "sac").log_ent_coef) == taken


CASES = {"pbt": ("sb3", PBT), "asha": ("sb3", ASHA), "engine": ("population", PBT)}


@pytest.mark.parametrize("case", CASES)
def test_killed_or_with_other_workers_a_study_from_a_study_has_one_table(models, tmp_path, case):
    room, optimizer = CASES[case]
    ran(load_spec(document(models, room=room)), tmp_path / "source")
    start = {"study": str(tmp_path / "source")}
    spec = load_spec(document(models, room=room, start=start, optimizer=optimizer))
    ran(spec, tmp_path / "quiet")
    while not run_spec_and_die(tmp_path / "killed", spec, after_events(12)):
        pass
    quiet = table(tmp_path / "quiet")
    assert table(tmp_path / "killed") == quiet
    assert any(row[4] is not None for row in quiet["segments"]), "no segment continued another"
    name = "processes" if room == "sb3" else "threads"
    ran(spec, tmp_path / "two", make_named_executor(name, spec, trainer_loader(spec), 2))
    assert table(tmp_path / "two") == quiet


FIT = "start.model: does not fit this"
ACROBOT = {"environment": {"id": "Acrobot-v1", "normalize": True}}
SYNTHETIC = {"name": "synthetic", "kwargs": {"optimum": {"learning_rate": 1e-3}}}
REFUSED = [
    (("ppo",), {"start": {"model": "{}/dqn.zip"}}, "start.model: {}/dqn.zip is no model of ppo"),
    (("ppo",), {"start": {"model": "{}/none.zip"}}, "start: there is no {}/none.zip"),
    (("ppo",), {"start": {"study": "{}"}}, "start: {}: holds no study"),
    (("ppo",), {"start": {"study": "x", "model": "y"}}, "start: needs exactly one of"),
    (("ppo",), {"kwargs": {"net_arch": [4, 8]}}, FIT + " configuration: (0): Linear("),
    (("ppo",), {"kwargs": {"activation": "relu"}}, "(1): Tanh() in the file, (1): ReLU() in the"),
    (("a2c",), {"kwargs": {"use_sde": True}}, "log_std (1,) in the file, log_std (8, 1) in the"),
    (("ppo",), ACROBOT, "(0): Linear(in_features=4"),
    (("ppo", "population"), ACROBOT, FIT + " task: (8, 4) numbers in the file, (8, 6) in the run"),
    (
        ("ppo", "population"),
        {"kwargs": {"net_width": 4}},
        "[8, 8, 'tanh'] in the file, [4, 4, 'tanh']",
    ),
    (("dqn", "population"), {"kwargs": {"dueling": True}}, "[8, 8, 'relu', 'dueling'] in the run"),
    (("td3", "population"), {"kwargs": {"n_critics": 1}}, "2 critics in the file, 1 in the run"),
    (("ppo",), {"environment": "CartPole-v1"}, "environment.normalize: is off for observations"),
    (("dqn",), {"environment": {"id": "CartPole-v1", "normalize": True}}, "has no statistics of"),
    (("ppo",), {"memory": "sac.pkl"}, "its algorithm has no memory of whole steps"),
    (
        ("dqn",),
        {"memory": "sac.pkl"},
        "start.memory: does not fit this configuration: observations",
    ),
    (("sac",), {"memory": "none"}, "start: there is no "),
    (("sac", "population"), {"memory": "sac.pkl"}, "start.memory: only sb3/sac begins with one"),
    (("ppo",), {"trainer": SYNTHETIC}, "start: trainer 'synthetic' begins from no policy"),
]


@pytest.mark.parametrize(("which", "changes", "message"), REFUSED)
def test_what_does_not_fit_is_refused_in_one_line_before_the_study(models, which, changes, message):
    changes = dict(changes)
    memory = changes.pop("memory", None)
    start = {name: place.format(models) for name, place in changes.pop("start", {}).items()}
    if memory is not None:
        place = str(models / memory) if memory.endswith(".pkl") else memory
        start = {"model": str(models / f"{which[0]}.zip"), "memory": place}
    with pytest.raises(InputError) as caught:
        make_plan(load_spec(document(models, *which, start=start or None, **changes)))
    assert message.format(models) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_configuration_that_does_not_fit_fails_alone(models):
    trainer, environment = begun(models, "ppo")
    outcome = segments.run(segments.segment(trainer, environment, {"net_arch": (4, 4)}, 32))
    assert outcome.status is Status.CRASH
    assert FIT + " configuration: (0): Linear(" in outcome.message


def test_a_study_goes_on_with_the_files_it_began_with_alone(models, tmp_path):
    for name in ("ppo", "copy"):
        for suffix in (".zip", ".vecnormalize.pkl"):
            shutil.copy(models / f"ppo{suffix}", tmp_path / f"{name}{suffix}")
    spec = load_spec(document(tmp_path))
    trainer = with_start(spec).trainers[""]
    folder = tmp_path / "study"
    assert not run_spec_and_die(folder, spec, after_events(3))
    model = tmp_path / "ppo.zip"
    content = model.read_bytes()
    for change, what in (
        (lambda: model.write_bytes(b"x"), "differs from what was saved"),
        (model.unlink, "is missing"),
    ):
        change()
        line = f"{model.name} {what}: put the file back that the study began with"
        with pytest.raises(InputError) as caught:
            Study.open(folder)
        assert str(caught.value).startswith("start: ")
        assert str(caught.value).endswith(line)  # a long path is cut in the middle
        one = segments.segment(trainer, EnvironmentSpec("CartPole-v1", normalize=True), None, 32)
        assert line in segments.run(one).message
    model.write_bytes(content)
    renamed = load_spec(document(tmp_path, start={"model": str(tmp_path / "copy.zip")}))
    with pytest.raises(InputError, match="holds a study of another file"):
        create_or_open(renamed, folder)
    study = create_or_open(spec, folder)
    result = study.run()
    study.close()
    assert f"every run began from the policy of {model}" in " ".join(result.caveats)
