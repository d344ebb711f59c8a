"""Environments outside the compiled program. The programs run as plain Python here: nothing is compiled."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from functools import partial

import gymnasium
import numpy as np
import outside_tasks
import pytest
from outside_runs import (
    CARTPOLE,
    PENDULUM,
    SMALL,
    arrays_of,
    compare_rollout,
    segment_in,
    state_of,
    trained,
)
from population_helpers import make
from refusals import expect_error

from autorl.core.types import EnvironmentSpec, FrozenMap, InputError, Status, TrainerSpec
from autorl.population import outside, ppo
from autorl.population.environments import ENVIRONMENTS, GRID_TASKS
from autorl.population.evaluation import evaluate_outside
from autorl.population.outside import EpisodeMonitor, SeededEpisodes, Worlds, of_spaces
from autorl.population.variants import NATIVE_IDS, is_outside
from autorl.trainers import info, load
from autorl.trainers.outside_environments import outside_environment

pytestmark = pytest.mark.usefixtures("plain_python")


def _segment(folder, environment=CARTPOLE, **changes):
    environment = changes.pop("spec", EnvironmentSpec(environment, n_envs=2))
    return segment_in(folder, environment, **changes)


def _equal(left, right):
    """Compare all but the pickles of environments, which may say the same in other bytes."""
    a, b = arrays_of(left), arrays_of(right)
    data = [*a]
    return a.keys() == b.keys() and all(
        np.array_equal(a[name], b[name], equal_nan=True) for name in data
    )


def _collected(environment_id, n_envs=3, normalize=None, **config):
    """One rollout in double precision: its record, agent, and what each episode began with."""
    environment = outside_environment(EnvironmentSpec(environment_id))
    environment = replace(environment, normalize=normalize)
    _, hp, state = make(
        "ppo", 3, environment, np.float64, **{**SMALL, "n_steps": 50, "n_envs": n_envs, **config}
    )
    agent = ppo.make_agent(state, environment, hp)
    worlds = Worlds(environment, state["member"], state.get("normaliser"))
    programs = (ppo.choose.py_func, outside.propagate.py_func)
    ppo.collect_outside(state["member"], agent, hp, worlds, programs)
    return environment, hp, state, agent


@pytest.mark.parametrize(
    ("environment_id", "normalize"),
    [
        (CARTPOLE, None),
        (PENDULUM, None),
        ("Outside/Tall-v0", None),
        # Not Tall: the buffer has its type of observations, whole numbers, when normalised too.
        (CARTPOLE, FrozenMap()),
        (PENDULUM, FrozenMap(gamma=0.9)),
    ],
)
def test_a_rollout_is_that_of_stable_baselines3(environment_id, normalize, monkeypatch):
    """The same actions in `DummyVecEnv` and `Monitor`, collected by `collect_rollouts`."""
    pytest.importorskip("stable_baselines3", reason="compares with Stable-Baselines3")
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    environment, hp, state, agent = _collected(environment_id, normalize=normalize)
    n_envs = 3
    # Environments whose episodes have the same seeds.
    _, _, fresh = make("ppo", 3, environment, np.float64, **{**SMALL, "n_envs": n_envs})

    def made():
        seeded = SeededEpisodes(environment.make(), lambda: outside.next_seed(fresh["member"]))
        return Monitor(seeded)

    venv = DummyVecEnv([made] * n_envs)
    compare_rollout(environment, hp, state, agent, venv, monkeypatch)


def test_episodes_end_by_limit_and_by_terminal_states():
    """Or the comparison with Stable-Baselines3 above would compare one kind alone."""
    _, _, _, agent = _collected(CARTPOLE)
    rollout = agent.rollout
    ends = rollout.dones == 1.0
    bootstrapped = ends & (rollout.rewards != 1.0)
    assert 0 < bootstrapped.sum() < ends.sum()
    assert (rollout.rewards[~ends] == 1.0).all()


def test_every_episode_has_a_seed_of_its_own():
    environment = outside_environment(EnvironmentSpec(CARTPOLE))
    _, _, state = make("ppo", 1, environment, **{**SMALL, "n_envs": 2})
    _, _, other = make("ppo", 2, environment, **{**SMALL, "n_envs": 2})
    seeds = [outside.next_seed(state["member"]) for _ in range(200)]
    others = [outside.next_seed(other["member"]) for _ in range(200)]
    assert len({*seeds, *others}) == 400  # a clash in 31 bits: 4 in 100,000
    assert all(0 <= seed < 2**31 for seed in seeds)
    state["member"].counters[:] = 0
    assert [outside.next_seed(state["member"]) for _ in range(200)] == seeds


def test_returns_are_those_of_the_task_below_the_wrappers(tmp_path):
    plain = trained(_segment(tmp_path / "plain"))
    spec = EnvironmentSpec(CARTPOLE, n_envs=2, wrappers=(f"{__name__}:Halved",))
    halved = trained(_segment(tmp_path / "halved", spec=spec))
    metrics = halved.reports[0].metrics
    assert metrics["eval_return"] == metrics["eval_length"]  # 1 a step, not a half
    assert 9 <= metrics["train_return"] <= outside_tasks.SHORT
    assert not np.array_equal(
        arrays_of(plain)["member.parameters"], arrays_of(halved)["member.parameters"]
    )
    with pytest.raises(InputError, match=r"environment\.wrappers: the checkpoint is of"):
        trained(
            _segment(
                tmp_path / "other",
                parent=halved.checkpoint,
                start=128,
                until=256,
                horizon=256,
                evaluate_at=(256,),
            )
        )


class Halved(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 0.5 * reward


class Lives(gymnasium.Wrapper):
    """Ends an episode every 5 steps, and goes on with the task unless that has ended."""

    over, steps = True, 0

    def reset(self, **kwargs):
        self.steps = 0
        if not self.over:
            return self.env.step(0)[0], {}
        self.over = False
        return self.env.reset(**kwargs)

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        self.over = terminated or truncated
        return observation, reward, terminated or self.steps == 5, truncated, info


def test_an_episode_is_one_of_the_task_whatever_wrappers_end(tmp_path):
    spec = EnvironmentSpec(CARTPOLE, n_envs=1, wrappers=(f"{__name__}:Lives",))
    metrics = trained(_segment(tmp_path / "a", spec=spec)).reports[0].metrics
    assert metrics["eval_length"] > 8
    assert metrics["train_return"] > 8


def test_an_episode_that_a_wrapper_cuts_is_evaluated_so_far(tmp_path, monkeypatch):
    """A limit of the study file, shorter than the task's: it was begun anew for ever."""
    begun = []
    reset = EpisodeMonitor.reset

    def counted(monitor, **options):
        begun.append(monitor)
        assert len(begun) < 200, "the evaluation does not end"
        return reset(monitor, **options)

    monkeypatch.setattr(EpisodeMonitor, "reset", counted)
    limit = FrozenMap({"gymnasium.wrappers:TimeLimit": FrozenMap(max_episode_steps=6)})
    spec = EnvironmentSpec(CARTPOLE, n_envs=2, wrappers=(limit,))
    metrics = trained(_segment(tmp_path / "a", spec=spec)).reports[0].metrics
    assert (metrics["eval_length"], metrics["eval_return"]) == (6.0, 6.0)


@pytest.mark.parametrize("broken", ["reward", "observation"])
@pytest.mark.parametrize("actions", ["pair", "bounded"])
def test_numbers_of_a_task_that_are_not_finite_end_a_run_as_diverged(broken, actions, tmp_path):
    spec = EnvironmentSpec(
        "Outside/Broken-v0", n_envs=2, kwargs=FrozenMap(broken=broken, actions=actions)
    )
    outcome = trained(_segment(tmp_path / "a", spec=spec))
    assert outcome.status is Status.DIVERGED
    assert "not finite" in outcome.message
    assert outcome.checkpoint is None
    if (broken, actions) == ("observation", "bounded"):
        # Such actions are given to no simulator.
        assert "actions for Outside/Broken-v0 are not finite" in outcome.message


def test_evaluation_is_a_function_of_its_seeds_alone():
    environment = outside_environment(EnvironmentSpec(PENDULUM))
    _, hp, state = make("ppo", 1, environment, **SMALL)
    bound = ppo.ALGORITHM.bind(state, environment, hp, Worlds(environment, state["member"]))
    seeds = list(range(20))  # more than go side by side
    returns, lengths, _ = evaluate_outside(bound.policy, bound.head, environment, seeds)
    assert (lengths == outside_tasks.SHORT).all()
    assert len(set(returns)) == 20
    some, *_ = evaluate_outside(bound.policy, bound.head, environment, [19, 4])
    assert np.array_equal(some, returns[[19, 4]])
    env = environment.make()
    assert isinstance(env, EpisodeMonitor)
    observation, _ = env.reset(seed=4)
    total = 0.0
    for _ in range(outside_tasks.SHORT):
        bound.policy.hidden[:] = 0.0
        inputs = np.zeros((32, 3), np.float32)
        inputs[0] = observation
        outside.propagate.py_func(bound.policy, inputs, 1)
        action = np.clip(bound.policy.outputs[0, :1], -2.0, 2.0)
        observation, reward, *_ = env.step(action)
        total += reward
    assert total == pytest.approx(returns[4], rel=1e-4)


def test_values_of_info_and_tails_are_metrics_and_change_no_other(tmp_path):
    wrappers = ("outside_tasks:Costly",)
    spec = EnvironmentSpec(CARTPOLE, n_envs=2, wrappers=wrappers)
    asked = ("eval_cost_upper_cvar_50", "eval_return_cvar_50")
    more = replace(spec, info=FrozenMap(cost="sum"), metrics=asked)
    outcomes = [
        trained(_segment(tmp_path / name, spec=each)) for name, each in (("a", spec), ("b", more))
    ]
    without, metrics = (outcome.reports[0].metrics for outcome in outcomes)
    assert {name: metrics[name] for name in without} == without
    assert {*metrics} == {*without, "eval_cost", *asked}
    assert metrics["eval_cost"] == metrics["eval_return"]
    assert metrics[asked[1]] <= metrics["eval_return"] <= metrics[asked[0]]
    trainer = load(TrainerSpec("population/ppo"))
    assert {"eval_cost", *asked} <= {*trainer.reported_metrics(more)}
    native = replace(more, id="CartPole-v1", wrappers=())
    assert "eval_cost" not in trainer.reported_metrics(native)


def test_torch_is_not_needed(tmp_path, monkeypatch):
    """Neither to train nor to save: it is no dependency of the engine."""
    monkeypatch.setitem(sys.modules, "torch", None)
    outcome = trained(_segment(tmp_path / "a"))
    assert state_of(outcome)["environments"]


WRONG = {
    "CartPole-v7": "no environment 'CartPole-v7'",
    "no_such_module_here:Env-v0": "cannot be imported",
    ":CartPole-v1": "expected an id as in CartPole-v1 or module:Env-v0, got ':CartPole-v1'",
    "outside_tasks:": "expected an id as in CartPole-v1 or module:Env-v0, got 'outside_tasks:'",
    f"{outside_tasks.__name__}:Simulator": "a class of Gymnasium: register it, and name its id "
    "as in outside_tasks:Env-v0",
}


@pytest.mark.parametrize(("name", "message"), WRONG.items())
def test_an_unknown_id_is_one_line(name, message):
    expect_error(message, load(TrainerSpec("population/ppo")).check, EnvironmentSpec(name), ())


LIMIT = "gymnasium.wrappers:TimeLimit"


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        (LIMIT, f"'{LIMIT}' cannot be put around .*missing 1 required .*'max_episode_steps'"),
        ({LIMIT: {"max_episode_step": 6}}, "unexpected keyword argument 'max_episode_step'"),
        ({LIMIT: {"max_episode_steps": -3}}, "to be positive, actually: -3"),
        ("gymnasium.wrappers:ClipAction", "requires a Box action space"),
        ("gymnasium.spaces:Dict", "cannot be put around|is no wrapper"),
        ("outside_tasks:Simulator", "'outside_tasks:Simulator' is no wrapper of environments"),
    ],
)
def test_a_wrapper_that_does_not_fit_is_one_line(wrapper, message):
    entry = FrozenMap(wrapper) if isinstance(wrapper, dict) else wrapper
    with pytest.raises(InputError, match=message) as error:
        load(TrainerSpec("population/ppo")).check(EnvironmentSpec(CARTPOLE, wrappers=(entry,)), ())
    assert error.value.key == "environment.wrappers"
    assert "\n" not in str(error.value)


def test_what_is_native_is_known_without_the_engine():
    assert {*ENVIRONMENTS, *GRID_TASKS} == NATIVE_IDS
    ids = ("CartPole-v1", "my_module:WALK", None, "my_module:Walk-v0", "LunarLander-v3")
    assert [is_outside(name) for name in ids] == [False, False, False, True, True]
    of_engine = info("population/ppo")
    assert of_engine.executor_for("CartPole-v1") == "threads"
    assert of_engine.executor_for("LunarLander-v3") == "processes"


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [("LunarLander-v3", "Box2D", "box2d"), ("HalfCheetah-v5", "mujoco", "mujoco")],
)
def test_without_its_package_a_line_names_the_extra(name, module, extra, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda wanted: None if wanted == module else find(wanted)
    )
    with pytest.raises(InputError, match=rf'needs {module}: pip install "autorl\[{extra}\]"'):
        load(TrainerSpec("population/ppo")).check(EnvironmentSpec(name), ())


@pytest.mark.parametrize(
    ("name", "modules"), [("LunarLander-v3", ["Box2D"]), ("HalfCheetah-v5", ["mujoco", "imageio"])]
)
def test_box2d_and_mujocotrained(name, modules, tmp_path):
    for module in modules:
        pytest.importorskip(module, reason=f"{name} needs it")
    segment = _segment(tmp_path / "a", name, until=32, horizon=32, evaluate_at=(), episodes=1)
    outcome = trained(segment)
    assert outcome.reached == 32
    assert bool(state_of(outcome)["environments"]) == ("mujoco" in modules)
    again = trained(replace(segment, folder=str(tmp_path / "b")))
    assert _equal(outcome, again)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_a_cut_run_on_mujoco_is_the_uncut_one(algorithm, normalize, tmp_path):
    """HalfCheetah reads its state alone, Ant the lagging positions of bodies too."""
    for module in ("mujoco", "imageio"):
        pytest.importorskip(module, reason="needs the extra mujoco")
    name = "HalfCheetah-v5" if normalize else "Ant-v5"
    spec = EnvironmentSpec(name, n_envs=2, normalize=normalize)
    few = {"learning_starts": 20, "batch_size": 4, "train_freq": 8, "net_width": 4}
    kwargs = FrozenMap({**few, "buffer_size": 200} if algorithm == "sac" else SMALL)
    of_run = {"spec": spec, "trainer": TrainerSpec(f"population/{algorithm}", kwargs)}
    of_run |= {"evaluate_at": (), "episodes": 1}
    whole = trained(_segment(tmp_path / "whole", **of_run))
    first = trained(_segment(tmp_path / "first", until=64, **of_run))
    rest = {"parent": first.checkpoint, "start": 64, **of_run}
    second = trained(_segment(tmp_path / "second", **rest))
    assert not second.notes
    assert _equal(whole, second)
    fork = trained(_segment(tmp_path / "fork", fork=7, **rest))
    assert not fork.notes
    assert not _equal(fork, second)


BOX = partial(gymnasium.spaces.Box, -1e3, 1e3, dtype=np.float32)
N_ENVS = 3


class Drift(gymnasium.Env):
    """Observations in double precision of a space in single, all in the same memory."""

    def __init__(self, size=2, shown=2):
        self.observation_space = BOX((size,))
        self.action_space = gymnasium.spaces.Discrete(3)
        self.memory = np.zeros(shown)
        self.length = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length = 0
        self.memory[:] = self.np_random.normal(size=self.memory.shape)
        return self.memory, {"begun": seed}

    def step(self, action):
        self.length += 1
        self.memory += self.np_random.normal(size=self.memory.shape) + 0.1 * action
        ends = self.np_random.random(2) < 0.15
        return self.memory, np.float64(self.memory[0]), ends[0], ends[1], {"length": self.length}


def _worlds(make_env):
    environment = of_spaces("Drift", make_env, BOX((2,)), gymnasium.spaces.Discrete(3))
    config = {"n_steps": 4, "batch_size": 4, "net_width": 4, "n_envs": N_ENVS}
    _, _, state = make("ppo", 3, environment, np.float64, **config)
    return environment, state["member"]


def test_steps_are_those_of_gymnasiums_vector():
    """Observations, rewards, ends and final observations of 200 steps of each of 3 environments."""
    environment, member = _worlds(lambda: EpisodeMonitor(Drift()))
    _, fresh = _worlds(lambda: EpisodeMonitor(Drift()))
    vector = gymnasium.vector.SyncVectorEnv(
        [lambda: SeededEpisodes(environment.make(), lambda: outside.next_seed(fresh))] * N_ENVS,
        autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
    )
    worlds = Worlds(environment, member)
    worlds.begin()
    observations, _ = vector.reset()
    assert np.array_equal(member.states, observations)
    generator = np.random.default_rng(0)
    kinds = np.zeros(3)
    for _ in range(200):
        actions = generator.integers(3, size=(N_ENVS, 1)).astype(np.float64)
        step = worlds.step(actions)
        observations, rewards, terminated, truncated, _ = vector.step(actions[:, 0].astype(int))
        assert np.array_equal(member.states, observations)
        assert np.array_equal(step.rewards, rewards)
        assert np.array_equal(step.terminated, terminated)
        assert np.array_equal(step.ended, terminated | truncated)
        assert np.array_equal(step.truncated, np.flatnonzero(truncated & ~terminated))
        assert np.array_equal(step.finals, step.following[step.truncated])
        going = ~step.ended
        assert np.array_equal(step.following[going], observations[going])
        # The last observation of an episode, though its memory has the first of the next.
        assert (step.following[step.ended] != observations[step.ended]).all()
        kinds += [going.sum(), terminated.sum(), len(step.truncated)]
    assert (kinds > 20).all()
    assert member.counts[0] == 200 * N_ENVS
    assert member.counts[2] == kinds[1:].sum()


def test_an_observation_of_another_shape_is_an_error():
    environment, member = _worlds(lambda: EpisodeMonitor(Drift(shown=1)))
    with pytest.raises(ValueError, match=r"Drift observes \(1,\), its space has \(2,\)"):
        Worlds(environment, member).begin()


def test_environments_of_one_id_have_the_same_spaces():
    sizes = iter([2, 3, 2])
    environment, member = _worlds(lambda: EpisodeMonitor(Drift(size=next(sizes))))
    expect_error("'Drift' have different spaces", Worlds, environment, member)
