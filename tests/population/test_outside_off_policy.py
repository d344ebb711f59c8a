"""DQN, SAC, TD3 and DDPG on environments outside. The programs run as plain Python: nothing is compiled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import outside_tasks
import pytest
from outside_runs import CARTPOLE, PENDULUM, arrays_of, trained
from population_helpers import make, trained_in_python
from test_outside import _equal, _segment

from autorl.core.types import Config, EnvironmentSpec, FrozenMap, InputError, TrainerSpec
from autorl.population import engine, outside, rng
from autorl.population.environments import ENVIRONMENTS
from autorl.population.normalisation import Normaliser
from autorl.population.outside import Worlds
from autorl.trainers import load
from autorl.trainers.outside_environments import outside_environment

pytestmark = pytest.mark.usefixtures("plain_python")
SMALL = {
    "learning_starts": 20,
    "batch_size": 4,
    "train_freq": 4,
    "gradient_steps": 2,
    "buffer_size": 300,
    "net_width": 4,
}
RAINBOW = {"double": True, "dueling": True, "prioritized": True, "n_steps": 3}
DDPG = {"policy_delay": 1, "target_policy_noise": 0.0, "target_noise_clip": 0.0, "n_critics": 1}
ON = {"dqn": CARTPOLE, "sac": PENDULUM, "td3": PENDULUM, "ddpg": PENDULUM}
ROLLOUT = {"n_steps": 25, "batch_size": 16, "n_epochs": 1, "clip_range_vf": 0.2}
# Algorithm, environment of the engine, configuration.
CASES = {
    "ppo": ("ppo", "CartPole-v1", ROLLOUT),
    "ppo-continuous": ("ppo", "Pendulum-v1", ROLLOUT),
    "dqn": ("dqn", "CartPole-v1", {"target_update_interval": 7, "tau": 0.5}),
    "rainbow": ("dqn", "MountainCar-v0", {**RAINBOW, "exploration_fraction": 0.5}),
    "sac": ("sac", "Pendulum-v1", {"gradient_steps": -1, "reward_scale": 0.5}),
    "td3": (
        "td3",
        "MountainCarContinuous-v0",
        {"noise_type": "ornstein-uhlenbeck", "noise_std": 0.4},
    ),
    "ddpg": ("ddpg", "Pendulum-v1", {"noise_std": 0.3, "train_freq": 1, "gradient_steps": 1}),
}


@pytest.mark.parametrize("normalize", [None, FrozenMap(clip_obs=1.5)])
@pytest.mark.parametrize("case", CASES)
def test_training_outside_is_native_training_to_the_bit(case, normalize, monkeypatch):
    """With the same episodes and arithmetic: replay, exploration, counters and updates."""
    monkeypatch.setattr(outside, "_SEED_BITS", 64)  # the whole key of an episode
    name, task, changes = CASES[case]
    # The memory goes round, and learning starts between two environments.
    replay = {} if name == "ppo" else {**SMALL, "buffer_size": 90}
    config = {**replay, "net_width": 4, "n_envs": 3, "learning_rate": 1e-2, **changes}
    length = config.get("n_steps") if name == "ppo" else config["train_freq"]
    rounds = max(3, 120 // (3 * length))
    native = replace(ENVIRONMENTS[task], time_limit=outside_tasks.SHORT, normalize=normalize)
    program, fixed = ("td3", DDPG) if name == "ddpg" else (name, {})
    expected = trained_in_python(program, 5, rounds, native, **config, **fixed)
    spec = EnvironmentSpec("Outside/Native-v0", kwargs=FrozenMap(name=task))
    environment = replace(outside_environment(spec), normalize=normalize)
    algorithm, hp, state = make(name, 5, environment, np.float64, **config)
    with outside.worlds_of(environment, state) as worlds:
        bound = algorithm.bind(state, environment, hp, worlds)
        bound.advance(rounds // 2)
        bound.advance(rounds - rounds // 2)
    arrays = engine.to_arrays(state)
    expected = engine.to_arrays(expected)
    assert arrays.keys() == expected.keys()
    # What differs: the observation in place of a state, and draws of the environment's own.
    of_native = {"member.states", "member.counters"}
    for part in arrays.keys() - of_native:
        # A measure of no update yet is NaN in both.
        assert np.array_equal(arrays[part], expected[part], equal_nan=part == "member.measures"), (
            part
        )
    steps, updates, episodes = state["member"].counts
    assert steps == rounds * 3 * length
    assert updates > 0
    assert episodes >= 3


def _collected(name, environment_id, n_envs=3, **config):
    """50 steps of every environment in double precision: environment, record and state."""
    environment = outside_environment(EnvironmentSpec(environment_id))
    changes = {**SMALL, "train_freq": 50, "learning_starts": 60, "gradient_steps": 0, **config}
    algorithm, hp, state = make(name, 3, environment, np.float64, n_envs=n_envs, **changes)
    worlds = Worlds(environment, state["member"])
    algorithm.bind(state, environment, hp, worlds).advance(1)
    worlds.close()
    return environment, hp, state


@pytest.mark.parametrize("name", ["dqn", "sac", "td3"])
def test_actions_before_learning_starts_are_uniform(name):
    """In [-1, 1] in the memory and within the bounds in the environment; later they are the policy's."""
    environment, _, state = _collected(name, ON[name], learning_starts=51, n_envs=2)
    size = environment.observation_size
    actions = state["replay"].rows[:100, 2 * size]
    # The 26th step begins at 50 steps: both of its environments are random.
    early, late = actions[:52], actions[52:]
    if name == "dqn":
        assert 15 < early.sum() < 37  # Binomial(52, 1 / 2) is beyond in 2 of 1,000
        return
    assert abs(early.mean()) < 0.25
    assert early.min() < -0.8
    assert early.max() > 0.8
    if name == "td3":  # no noise: the actor's tanh of small numbers
        assert late.std() < 0.3 * early.std()


@pytest.mark.parametrize("name", ["dqn", "sac", "td3"])
def test_learning_starts_for_all_environments_at_once(name):
    """As in Stable-Baselines3: the steps counted are those before the step of any environment."""
    greedy = {"exploration_initial_eps": 0.0, "exploration_final_eps": 0.0}
    config = {"n_envs": 2, **(greedy if name == "dqn" else {})}
    rows = {}
    for starts in (20, 47, 48):
        _, _, state = _collected(name, ON[name], learning_starts=starts, **config)
        rows[starts] = state["replay"].rows[:100]
    assert np.array_equal(rows[47], rows[48])
    assert np.array_equal(rows[20][:20], rows[47][:20])
    assert not np.array_equal(rows[20], rows[47])


def _trainer(name, **changes):
    return TrainerSpec(f"population/{name}", FrozenMap({**SMALL, **changes}))


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("name", ["ppo", "ppo-continuous", "dqn", "sac", "td3", "ddpg"])
def test_a_cut_run_is_the_uncut_one(name, normalize, tmp_path):
    noise = {"noise_std": 0.2, "noise_type": "ornstein-uhlenbeck"}
    changes = {"dqn": {"n_steps": 3}, "td3": noise, "ddpg": {**noise, "n_steps": 3}}.get(name, {})
    task = ON.get(name, CARTPOLE if name == "ppo" else PENDULUM)
    # Cuts lie within episodes of 20.
    cut, of_run = 64, {"spec": EnvironmentSpec(task, n_envs=2, normalize=normalize)}
    if name in ON:
        cut, of_run = 72, {**of_run, "trainer": _trainer(name, **changes)}
    whole = trained(_segment(tmp_path / "whole", evaluate_at=(cut, 128), **of_run))
    of_first = {"until": cut, "evaluate_at": (cut,), **of_run}
    first = trained(_segment(tmp_path / "first", **of_first))
    rest = {"parent": first.checkpoint, "start": cut, **of_run}
    second = trained(_segment(tmp_path / "second", **rest))
    assert not second.notes
    assert _equal(whole, second)
    assert whole.reports[1].metrics == second.reports[0].metrics
    fork = trained(_segment(tmp_path / "fork", fork=7, **rest))
    assert not _equal(fork, second)
    assert _equal(fork, trained(_segment(tmp_path / "again", fork=7, **rest)))
    if normalize:
        arrays = arrays_of(second)
        assert {f"normaliser.{part}" for part in Normaliser._fields} < arrays.keys()
        # Evaluation, twice in one and once in the other, left no trace: 2 first observations, 128 steps.
        assert arrays["normaliser.counts"] == pytest.approx([130, 128], abs=2e-4)
        assert np.array_equal(arrays_of(fork)["normaliser.counts"], arrays["normaliser.counts"])


def test_where_the_state_cannot_be_saved_no_sum_of_rewards_goes_over_the_cut(tmp_path):
    simulator = "Outside/Simulator-v0"
    of_run = {"trainer": _trainer("dqn", n_steps=3)}
    of_first = {"until": 64, "evaluate_at": (64,), **of_run}
    first = trained(_segment(tmp_path / "first", simulator, **of_first))
    rest = {"parent": first.checkpoint, "start": 64, **of_run}
    second = trained(_segment(tmp_path / "second", simulator, **rest))
    assert second.notes == ("environment state not restorable: new episodes at step 64",)
    before = arrays_of(first)["replay.rows"]
    after = arrays_of(second)["replay.rows"]
    assert before[62:, -1].tolist() == [0.0, 0.0]
    assert after[62:64, -1].tolist() == [1.0, 1.0]
    # The cut is no terminal state: the sum of rewards bootstraps.
    assert np.array_equal(after[:64, :-1], before[:, :-1])
    assert _equal(second, trained(_segment(tmp_path / "again", simulator, **rest)))


def test_noise_begins_anew_with_episodes_that_do():
    environment = outside_environment(EnvironmentSpec(PENDULUM))
    config = {**SMALL, "noise_type": "ornstein-uhlenbeck", "noise_std": 0.4, "train_freq": 1}
    algorithm, hp, state = make("td3", 1, environment, **config)
    worlds = Worlds(environment, state["member"])
    noise = state["exploration"].noise
    bound = algorithm.bind(state, environment, hp, worlds)
    bound.advance(outside_tasks.SHORT - 1)
    before = noise.copy()
    assert before.all()
    bound.advance(1)
    assert not noise.any()
    noise[:] = before
    drawn = state["member"].counters[rng.ACTION]
    worlds.forget()
    bound.advance(1)
    anew = noise.copy()
    # The same draws of a process that is at 0.
    state["member"].counters[rng.ACTION] = drawn
    noise[:] = 0.0
    bound.advance(1)
    assert anew.all()
    assert np.array_equal(anew, noise)


@pytest.mark.parametrize("name", ["ppo", "sac", "td3"])
def test_a_diverged_member_takes_no_further_steps(name, tmp_path):
    config, of_run = {"learning_rate": 1e30}, {"trainer": _trainer(name)}
    if name == "ppo":
        config, of_run = {**config, "normalize_advantage": False}, {}
    outcome = trained(_segment(tmp_path / "a", PENDULUM, config=Config(config), **of_run))
    assert outcome.status.value == "diverged"
    assert outcome.reached < 128


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        ("dqn", EnvironmentSpec(PENDULUM), "has no continuous actions"),
        ("sac", EnvironmentSpec(CARTPOLE), "has no discrete actions"),
        ("td3", EnvironmentSpec(CARTPOLE), "has no discrete actions"),
        ("ddpg", EnvironmentSpec(CARTPOLE), "has no discrete actions"),
        ("dqn", {"actions": "several"}, "has MultiDiscrete"),
        ("sac", {"actions": "unbounded"}, "have no bounds"),
        ("td3", {"actions": "whole"}, "has Box of int64"),
        ("ddpg", {"observations": "image"}, "shows images 84x84x3"),
        ("ppo", {"observations": "dict"}, "has Dict; gymnasium.wrappers:Flat"),
        ("ppo", {"observations": "states"}, "has Discrete"),
        ("ppo", {"actions": "from-one"}, "begin with 1"),
    ],
)
def test_spaces_that_do_not_fit_are_said_in_one_line(name, spec, message):
    if isinstance(spec, dict):
        spec = EnvironmentSpec("Outside/Spaces-v0", kwargs=FrozenMap(spec))
    with pytest.raises(InputError, match=message) as error:
        load(TrainerSpec(f"population/{name}")).check(spec, ())
    assert "\n" not in str(error.value)
