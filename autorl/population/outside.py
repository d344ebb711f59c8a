"""Environments outside the compiled program, of Gymnasium.

Python steps them; inference and updates stay compiled. Semantics are those of Stable-Baselines3's
`DummyVecEnv` and `Monitor`: an environment begins its next episode in the step that ends one, whose
last observation is kept; returns are those of the task itself, below the user's wrappers.

Every episode is reset with a seed of its own: the hash with which an episode of a native
environment begins. No stream is shared by members, and none is left behind by an episode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np

from autorl.core.types import InputError
from autorl.population import rng
from autorl.population.environments.base import Environment
from autorl.population.kernels import Array, program
from autorl.population.members import EPISODES, LENGTH, RECENT, RETURN, STEPS, Member
from autorl.population.networks import Network, forward
from autorl.population.normalisation import Normaliser, normalised_rows, normalised_step


class Vector(Protocol):
    """Environments of one kind that are stepped together.

    An environment begins its next episode in the step that ends one.
    """

    def reset(self) -> Array:
        """Begin an episode of each, and return the first observations (n, *shape)."""

    def step(self, actions: Array) -> VectorStep:
        """Make one step of each."""

    def close(self) -> None:
        """Close the environments."""


class VectorStep(NamedTuple):
    """Result of one step of a `Vector`.

    Attributes:
        observations: (n, *shape), where an episode ended the first of the next.
        rewards: (n,).
        terminated, truncated: (n,) bool.
        finals: last observations of the episodes that ended, by index.
    """

    observations: Array
    rewards: Array
    terminated: Array
    truncated: Array
    finals: Mapping[int, Array]


Env = gym.Env[Any, Any]
_SEED_BITS = 31  # what every package takes: ALE and others keep a seed in an int32


class NotFiniteError(ArithmeticError):
    """A policy chose actions that no simulator takes."""


@dataclass(frozen=True, kw_only=True)
class OutsideEnvironment(Environment):
    """An environment that Python steps.

    Its state in a member is the last observation; the functions of its base are never called.

    Attributes:
        observation_space, action_space: Gymnasium's.
        make: makes one, with an `EpisodeMonitor` around its task.
        make_vector: makes one for each of some seeds, where they are stepped together.
    """

    observation_space: Any
    action_space: Any
    make: Callable[[], Env]
    make_vector: Callable[[Sequence[int]], Vector] | None = None

    @cached_property
    def bounds(self) -> Array:
        """Lowest and highest action, (2, action_size) float64."""
        return super().bounds  # kept: actions are brought within them at every step

    @cached_property
    def _half_width(self) -> Array:
        low, high = self.bounds
        return np.asarray(0.5 * (high - low))

    @property
    def real(self) -> type[np.floating[Any]]:
        """The type in which observations are normalised: their own, or double precision."""
        return np.float32 if self.observation_space.dtype == np.float32 else np.float64

    def applied(self, actions: Array) -> Array:
        """Return what environments receive for actions (n, action_size).

        Raises:
            NotFiniteError: one is not finite.
        """
        if self.n_actions:
            return actions[:, 0].astype(np.int64)
        if not np.isfinite(actions).all():
            raise NotFiniteError(f"actions for {self.id} are not finite")
        low, high = self.bounds
        space = self.action_space
        # `np.clip` takes three times as long for so few numbers.
        clipped = np.asarray(np.minimum(np.maximum(actions, low), high), space.dtype)
        return clipped.reshape(-1, *space.shape)

    def stretched(self, actions: Array) -> Array:
        """Bring continuous actions from [-1, 1] to the bounds, (n, action_size) float64."""
        # In the order of the compiled programs: the same to the bit.
        return np.asarray(self.bounds[0] + self._half_width * (1.0 + actions))


def of_spaces(
    name: str, make: Callable[[], Env], observation_space: Any, action_space: Any, **fields: Any
) -> OutsideEnvironment:
    """Describe an environment by its checked spaces.

    Args:
        name: its id.
        make: makes one.
        observation_space: a `Box`.
        action_space: a `Discrete` from 0, or a bounded `Box`.
        fields: further ones of an `Environment`.
    """
    discrete = isinstance(action_space, gym.spaces.Discrete)
    size = int(np.prod(observation_space.shape))
    return OutsideEnvironment(
        id=name,
        state_size=size,
        observation_size=size,
        time_limit=0,
        reset=_stepped_outside,
        step=_stepped_outside,
        observe=_stepped_outside,
        n_actions=int(action_space.n) if discrete else 0,
        low=() if discrete else tuple(map(float, action_space.low.ravel())),
        high=() if discrete else tuple(map(float, action_space.high.ravel())),
        observation_space=observation_space,
        action_space=action_space,
        make=make,
        **fields,
    )


def _stepped_outside(*arguments: object) -> Any:
    raise AssertionError("a compiled program cannot step this environment")


class EpisodeMonitor(gym.Wrapper[Any, Any, Any, Any]):
    """Sums up the rewards of the task.

    All it knows is plain data, which is saved with the environment.

    Attributes:
        returned, length: of the running episode.
        finished: return and length of an episode that ended, until somebody takes it.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.returned = 0.0
        self.length = 0
        self.finished: tuple[float, int] | None = None

    @property
    def episode_monitor(self) -> EpisodeMonitor:
        """The wrapper itself, for who has those around it."""
        return self

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self.returned = 0.0
        self.length = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Make one step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.returned += float(reward)
        self.length += 1
        if terminated or truncated:
            self.finished = (self.returned, self.length)
        return observation, reward, terminated, truncated, info

    def take(self) -> tuple[float, int] | None:
        """Return the episode that ended, once."""
        finished = self.finished
        self.finished = None
        return finished


def spaces_of(env: Env) -> list[Any]:
    """Return the spaces that the layers of an environment hold."""
    layers: list[Any] = [env]
    while isinstance(layers[-1], gym.Wrapper):
        layers.append(layers[-1].env)
    values = [value for layer in layers for value in vars(layer).values()]
    # By identity: wrappers may hold those of the task.
    spaces = {id(value): value for value in values if isinstance(value, gym.Space)}
    return list(spaces.values())


def begin_episode(env: Env, seed: int) -> Any:
    """Reset an environment, and return its first observation.

    Its spaces draw from the seed too: an environment may act by `action_space.sample()`.
    """
    for space in spaces_of(env):
        space.seed(seed)
    return env.reset(seed=seed)[0]


class SeededEpisodes(gym.Wrapper[Any, Any, Any, Any]):
    """Begins every episode with a seed of its own.

    It is the outermost wrapper.

    Args:
        next_seed: gives one for each episode.
    """

    def __init__(self, env: Env, next_seed: Callable[[], int]) -> None:
        super().__init__(env)
        self._next_seed = next_seed
        self.monitor: EpisodeMonitor = env.get_wrapper_attr("episode_monitor")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode with the next seed."""
        return begin_episode(self.env, self._next_seed()), {}


def next_seed(member: Member) -> int:
    """Return the seed of the member's next episode, which counts as drawn."""
    stream = rng.derived(int(member.key[0]), rng.RESET)
    counter = np.array([member.counters[rng.RESET]], np.uint64)
    member.counters[rng.RESET] += 1
    return int(rng.bits_array(stream, counter)[0]) >> (64 - _SEED_BITS)


class Step(NamedTuple):
    """Result of one step of all environments of a member.

    Programs take it too: the types of its arrays are the same for every environment.

    Attributes:
        rewards: (n,) float64, as the outermost wrapper gives them, normalised where that is asked.
        ended: (n,) bool, whether an episode ended.
        truncated: the indices of those that ended by a limit and in no terminal state.
        finals: (len(truncated), observation_size) float64, their last observations.
        terminated: (n,) bool, whether an episode ended in a terminal state.
        following: (n, observation_size) float64, the observations it led to: where an episode
            ended its last one, not the first of the next. Never normalised.
        observed: (n, observation_size) float64, those before it. Never normalised.
        original_rewards: (n,) float64, as the outermost wrapper gives them.
    """

    rewards: Array
    ended: Array
    truncated: Array
    finals: Array
    terminated: Array
    following: Array
    observed: Array
    original_rewards: Array


class End(NamedTuple):
    """An episode that ended.

    Attributes:
        slot: which environment.
        terminated: whether in a terminal state.
        final: its last observation, flat, float64.
    """

    slot: int
    terminated: bool
    final: Array


def no_step(environment: Environment, n_envs: int) -> Step:
    """Make a step that says nothing, to compile programs for."""
    following = np.zeros((n_envs, environment.observation_size))
    never = np.zeros(n_envs, np.bool_)
    cut = np.flatnonzero(never)
    rewards = np.zeros(n_envs)
    return Step(rewards, never, cut, following[cut], never.copy(), following, following, rewards)


class Worlds:
    """The environments of one member.

    They are stepped as by Gymnasium's `SyncVectorEnv`, whose own time is twice this loop's.

    The member's `states` are their present observations, its `episodes` return and length.

    Attributes:
        envs: the environments.
        observations: (n, observation_size) float64, what the agent sees: the states, or those
            normalised.

    Raises:
        InputError: environments of the same id have different spaces.
    """

    def __init__(
        self, environment: OutsideEnvironment, member: Member, normaliser: Normaliser | None = None
    ) -> None:
        self.environment = environment
        self.member = member
        self.envs = self._made()
        count = len(member.states)
        # Observations have the type of their space, whatever an environment returns.
        self._observed = np.zeros(
            (count, *environment.observation_space.shape), environment.observation_space.dtype
        )
        self._flat = self._observed.reshape(count, -1)
        self._nothing = no_step(environment, count)
        self.normaliser = normaliser
        self.seen = False  # whether `observations` are normalised ones
        self.observations: Array = member.states
        if normaliser is not None:
            self.observations = np.zeros(member.states.shape)
            self._rows = np.zeros(member.states.shape, environment.real)
            none = np.zeros(len(member.states))
            self._take_in = normalised_step.prepared(
                normaliser, self._rows, none, none, np.zeros((0, environment.observation_size))
            )

    def _made(self) -> list[SeededEpisodes]:
        seed = partial(next_seed, self.member)
        envs = [SeededEpisodes(self.environment.make(), seed) for _ in self.member.states]
        for env in envs:
            self._check_spaces(env)
        return envs

    def _check_spaces(self, env: Env) -> None:
        environment = self.environment
        if (
            env.observation_space != environment.observation_space
            or env.action_space != environment.action_space
        ):
            raise InputError(
                f"environments of {environment.id!r} have different spaces", key="environment.id"
            )

    def _check_shape(self, observation: Any) -> None:
        # An assignment alone would spread one number over all.
        shape = self.environment.observation_space.shape
        if np.shape(observation) != shape:
            raise ValueError(
                f"{self.environment.id} observes {np.shape(observation)}, its space has {shape}"
            )

    def begin(self) -> None:
        """Reset the environments unless their episodes go on."""
        member = self.member
        fresh = not self.started()
        if fresh:
            self._reset()
            member.states[:] = self._flat
            member.episodes[:] = 0.0
        if self.normaliser is not None and (fresh or not self.seen):
            self._rows[:] = member.states
            if fresh:
                self.normaliser.returns[:] = 0.0
            normalised_rows(self.normaliser, self._rows, fresh)
            self.observations[:] = self._rows
            self.seen = True

    def _reset(self) -> None:
        for index, env in enumerate(self.envs):
            observation = env.reset()[0]
            self._check_shape(observation)
            self._observed[index] = observation

    def started(self) -> bool:
        """Tell whether the member has episodes in progress."""
        return bool(self.member.episodes[:, LENGTH].min() >= 0.0)

    def forget(self) -> None:
        """Have `begin` start new episodes."""
        self.member.episodes[:] = -1.0

    def step(self, actions: Array) -> Step:
        """Make one step of every environment.

        Args:
            actions: (n, action_size) as the policy drew them.
        """
        member = self.member
        applied = self.environment.applied(actions)
        before = member.states.copy()
        rewards = np.empty(len(before))
        ends = self._step(applied, rewards)
        member.states[:] = self._flat
        member.counts[STEPS] += len(rewards)
        step = self._nothing._replace(
            rewards=rewards,
            following=member.states.copy(),
            observed=before,
            original_rewards=rewards,
        )
        if ends:
            step = self._ended(step, ends)
        if self.normaliser is not None:
            step = step._replace(original_rewards=rewards.copy())
            self._rows[:] = member.states
            ended = step.ended.astype(np.float64)
            self._take_in(self.normaliser, self._rows, rewards, ended, step.finals)
            self.observations[:] = self._rows
        return step

    def _step(self, applied: Array, rewards: Array) -> list[End]:
        """Step all environments. Fill rewards and observations, and return episodes that ended."""
        observed = self._observed
        shape = observed.shape[1:]
        ends: list[End] = []
        for index, env in enumerate(self.envs):
            # Below `SeededEpisodes`, which only begins episodes.
            observation, rewards[index], over, limited, _ = env.env.step(applied[index])
            if over or limited:
                # Copied: an environment may write the next one into the same memory.
                final = np.array(observation, np.float64).ravel()
                ends.append(End(index, bool(over), final))
                observation = env.reset()[0]
            # Nearly always an array: `np.shape` alone takes as long as the rest of this line.
            if getattr(observation, "shape", None) != shape:
                self._check_shape(observation)
            observed[index] = observation
        return ends

    def _ended(self, step: Step, ends: Sequence[End]) -> Step:
        """Write episodes that ended into a step.

        Args:
            step: as if none had.
            ends: the episodes.
        """
        member = self.member
        ended = np.zeros_like(step.ended)
        terminated = np.zeros_like(step.ended)
        for index, over, final in ends:
            ended[index] = True
            terminated[index] = over
            step.following[index] = final
            finished = self._finished(index)
            # It is None if a wrapper ended an episode and the task goes on.
            if finished is not None:
                member.recent[member.counts[EPISODES] % RECENT] = finished[0]
                member.counts[EPISODES] += 1
        # Never both, as in Stable-Baselines3: a terminal state does not bootstrap.
        cut = np.flatnonzero(ended & ~terminated)
        return step._replace(
            ended=ended, truncated=cut, finals=step.following[cut], terminated=terminated
        )

    def _finished(self, index: int) -> tuple[float, int] | None:
        """Return the return and the length of an environment's episode that ended."""
        return self.envs[index].monitor.take()

    def note_episodes(self) -> None:
        """Write return and length of each running episode into the member."""
        for index, env in enumerate(self.envs):
            self.member.episodes[index, RETURN] = env.monitor.returned
            self.member.episodes[index, LENGTH] = env.monitor.length

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()


class VectorWorlds(Worlds):
    """The environments of one member, stepped together.

    Each is seeded once; its later episodes take the random numbers that follow, which cannot be
    saved.
    """

    _vector: Vector | None = None

    def _made(self) -> list[SeededEpisodes]:
        count = len(self.member.states)
        self._returned = np.zeros(count)
        self._length = np.zeros(count)
        self._over: dict[int, tuple[float, int]] = {}
        return []

    def _reset(self) -> None:
        self.close()
        make = self.environment.make_vector
        assert make is not None
        # Vectors take their seeds when they are made.
        vector = make([next_seed(self.member) for _ in self.member.states])
        self._vector = vector
        self._observed[:] = vector.reset()
        self._returned[:] = 0.0
        self._length[:] = 0.0

    def _step(self, applied: Array, rewards: Array) -> list[End]:
        assert self._vector is not None
        step = self._vector.step(applied)
        rewards[:] = step.rewards
        self._observed[:] = step.observations
        self._returned += rewards
        self._length += 1.0
        ends = []
        for index, final in step.finals.items():
            ends.append(End(index, bool(step.terminated[index]), np.float64(final).ravel()))
            self._over[index] = float(self._returned[index]), int(self._length[index])
            self._returned[index] = 0.0
            self._length[index] = 0.0
        return ends

    def _finished(self, index: int) -> tuple[float, int] | None:
        return self._over.pop(index)

    def note_episodes(self) -> None:
        """Write return and length of each running episode into the member."""
        self.member.episodes[:, RETURN] = self._returned
        self.member.episodes[:, LENGTH] = self._length

    def close(self) -> None:
        """Close the environments."""
        if self._vector is not None:
            self._vector.close()


def make_worlds(environment: OutsideEnvironment, state: Mapping[str, Any]) -> Worlds:
    """Make a member's environments."""
    kind = Worlds if environment.make_vector is None else VectorWorlds
    return kind(environment, state["member"], state.get("normaliser"))


@contextmanager
def worlds_of(environment: Environment, state: Mapping[str, Any]) -> Iterator[Worlds | None]:
    """Make a member's environments for a block, None for native ones."""
    if not isinstance(environment, OutsideEnvironment):
        yield None
        return
    worlds = make_worlds(environment, state)
    try:
        yield worlds
    finally:
        worlds.close()


@program
def propagate(net: Network, inputs: Array, rows: int) -> None:
    """Fill the outputs of one network for the first `rows` inputs."""
    forward(net, inputs, rows)
