"""The interface of every algorithm of the engine.

A member is made, advanced, evaluated, saved and restored through it. A *state* is a mapping from
part names to named tuples of arrays (`member`, and `replay`, ... where an algorithm has them): all
that survives between two calls. Everything else is scratch memory, made anew by `Algorithm.bind`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from autorl.core.types import EnvironmentSpec
from autorl.population.environments.base import Environment
from autorl.population.evaluation import ARGMAX, evaluate, evaluate_outside, make_episodes
from autorl.population.hyperparameters import Record, Settings
from autorl.population.kernels import Array, Program, aligned_copy
from autorl.population.members import EPISODES, STEPS, Member
from autorl.population.networks import Network, with_rows
from autorl.population.normalisation import Normaliser, normaliser_of
from autorl.population.outside import OutsideEnvironment, Worlds
from autorl.population.replay import Replay, restored, trimmed
from autorl.statistics.episodes import episode_metrics

State = dict[str, Any]
_TASK = EnvironmentSpec()  # reads no `info` and asks for nothing
ALGORITHMS = ("ppo", "a2c", "dqn", "sac", "td3", "ddpg")


@dataclass(frozen=True)
class Bound:
    """A state with its scratch memory, ready to run.

    Attributes:
        advance: trains in place for a number of iterations.
        policy: the network that acts.
        head: how its outputs become an action (`evaluation.best_action`).
    """

    advance: Callable[[int], None]
    policy: Network
    head: int


def unchanged(hp: Record) -> Record:
    """Return the record itself."""
    return hp


@dataclass(frozen=True)
class Algorithm:
    """An algorithm of the engine.

    Attributes:
        settings: its hyperparameters.
        discrete, continuous: the kinds of action it can choose.
        stride: environment steps of one iteration, the unit training can be cut at, for a record.
        create: a new state for (environment, record, key, dtype).
        agent_of: an agent for (state, environment, record): networks over the state's parameters,
            the one that acts first, and scratch memory.
        train: the program that advances a member by iterations in a native environment.
        outside: makes what does so outside, for (member, agent, record, worlds).
        parts: the class of each part of a state; where `Environment.normalize` says how to
            normalise there is one more, `normaliser`.
        continuous_head: how outputs become a continuous action.
        as_general: the record that its program takes, for a record of its own.
        measures: names of what `Member.measures` says of its updates.
        general: name of the algorithm that it is a special case of, else empty.
    """

    name: str
    settings: Settings
    discrete: bool
    continuous: bool
    stride: Callable[[Record], int]
    create: Callable[[Environment, Record, int, npt.DTypeLike], State]
    agent_of: Callable[[State, Environment, Record], Any]
    train: Program
    outside: Callable[[Member, Any, Record, Worlds], Callable[[int], None]]
    parts: Mapping[str, type]
    continuous_head: int
    measures: tuple[str, ...]
    as_general: Callable[[Record], Record] = unchanged
    general: str = ""

    @property
    def page(self) -> str:
        """The page that lists its hyperparameters."""
        return f"autorl/population/{self.general or self.name}.py"

    def bind(
        self, state: State, environment: Environment, hp: Record, worlds: Worlds | None = None
    ) -> Bound:
        """Put scratch memory around a state.

        `worlds` are the environments outside the compiled program, None for native ones.
        """
        hp = self.as_general(hp)
        member: Member = state["member"]
        normaliser_of(state, environment, float(hp.gamma))
        agent = self.agent_of(state, environment, hp)
        functions = environment.functions(member.parameters.dtype)

        def advance(iterations: int) -> None:
            self.train(member, agent, hp, limits(environment), *functions, iterations)

        return Bound(
            advance if worlds is None else self.outside(member, agent, hp, worlds),
            agent[0],
            ARGMAX if environment.n_actions else self.continuous_head,
        )


def special_case(
    name: str, general: Algorithm, as_general: Callable[[Record], Record], settings: Settings
) -> Algorithm:
    """Make the algorithm that trains in the program of another one.

    Args:
        name: of the special case.
        general: whose program it is.
        as_general: makes the record of the general algorithm of one of the special case.
        settings: hyperparameters of the special case.
    """
    return replace(
        general,
        name=name,
        settings=settings,
        create=lambda environment, hp, key, dtype: general.create(
            environment, as_general(hp), key, dtype
        ),
        as_general=as_general,
        general=general.name,
    )


def find_algorithm(name: str) -> Algorithm:
    """Return the algorithm of this name, one of `ALGORITHMS`.

    Its module is imported when first asked for.
    """
    assert name in ALGORITHMS, name
    # By name: the modules of algorithms import this one.
    algorithm: Algorithm = importlib.import_module(f"autorl.population.{name}").ALGORITHM
    return algorithm


def steps(state: State) -> int:
    """Return the environment steps the member has been trained for."""
    return int(state["member"].counts[STEPS])


def train_to(bound: Bound, algorithm: Algorithm, state: State, hp: Record, until: int) -> None:
    """Train until the member has done at least `until` steps.

    It trains in whole iterations.
    """
    missing = until - steps(state)
    if missing > 0:
        bound.advance(-(-missing // algorithm.stride(hp)))


def evaluation(
    bound: Bound,
    state: State,
    environment: Environment,
    keys: Sequence[int],
    task: EnvironmentSpec = _TASK,
) -> dict[str, float]:
    """Measure one greedy episode per key.

    Returns:
        `eval_return`, `eval_return_std` (ddof 0), `eval_length`, what the task reads of `info`, the
        recent `train_return` where an episode has ended, and tails that the task asks for.
    """
    normaliser: Normaliser | None = state.get("normaliser")
    if isinstance(environment, OutsideEnvironment):
        metrics = episode_metrics(
            *evaluate_outside(bound.policy, bound.head, environment, keys, normaliser, task.info),
            task,
        )
    else:
        episodes = make_episodes(keys, environment, bound.policy.parameters.dtype)
        policy = with_rows(bound.policy, len(keys))  # episodes go side by side
        evaluate(
            policy,
            bound.head,
            episodes,
            limits(environment),
            *environment.functions(policy.hidden.dtype),
            normaliser,
        )
        metrics = episode_metrics(episodes.returns, episodes.lengths, (), task)
    member: Member = state["member"]
    # Before the ring is full its other entries are no returns.
    finished = min(int(member.counts[EPISODES]), len(member.recent))
    return metrics | ({"train_return": float(member.recent[:finished].mean())} if finished else {})


def limits(environment: Environment) -> tuple[int, int, Array]:
    """Return what programs take of an environment besides its functions.

    That is the time limit, the number of discrete actions and the action bounds.
    """
    return environment.time_limit, environment.n_actions, environment.bounds


def to_arrays(state: State) -> dict[str, Array]:
    """Flatten a state into names and arrays, for an archive."""
    parts = {
        part: trimmed(values) if isinstance(values, Replay) else values
        for part, values in state.items()
    }
    return {
        f"{part}.{name}": array
        for part, values in parts.items()
        for name, array in values._asdict().items()
    }


def from_arrays(algorithm: Algorithm, arrays: Mapping[str, Array]) -> State:
    """Restore a state from what `to_arrays` made of it.

    Every array is a copy of its own.
    """
    parts = dict(algorithm.parts)
    if "normaliser.settings" in arrays:
        parts["normaliser"] = Normaliser
    # C order: the programs are compiled for it, another would be another signature.
    state: State = {
        part: kind(
            **{name: aligned_copy(arrays[f"{part}.{name}"]) for name in kind.__annotations__}
        )
        for part, kind in parts.items()
    }
    return {
        part: restored(values) if isinstance(values, Replay) else values
        for part, values in state.items()
    }


def fork(state: State, key: int) -> State:
    """Copy a state that lives on with other random streams.

    They are derived anew from `key`.
    """
    copied = {
        part: type(values)(*(aligned_copy(array) for array in values))
        for part, values in state.items()
    }
    member: Member = copied["member"]
    # Another key: streams that no other member has, whatever their counters.
    member.key[0] = key
    member.counters[:] = 0
    return copied


def set_environments(
    state: State, environment: Environment, n_envs: int, *, anew: bool = False
) -> bool:
    """Give the member fresh environments, `anew` or for another number.

    Returns whether it got them.
    """
    member: Member = state["member"]
    if len(member.states) == n_envs and not anew:
        return False
    state["member"] = member._replace(
        states=environment.states(n_envs), episodes=np.full((n_envs, 2), -1.0)
    )
    if "normaliser" in state:
        state["normaliser"] = state["normaliser"]._replace(returns=np.zeros((n_envs, 1)))
    return True
