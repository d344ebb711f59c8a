"""Evaluation of policies in environments outside the compiled program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autorl.population.evaluation import ARGMAX, SQUASHED
from autorl.population.kernels import Array
from autorl.population.networks import Network, with_rows
from autorl.population.normalisation import Normaliser, normalised_rows
from autorl.population.outside import OutsideEnvironment, begin_episode, propagate

SIDE_BY_SIDE = 16  # evaluation episodes at a time, where Python steps them one by one


class Greedy:
    """Best actions of a policy.

    Attributes:
        rows: (count, observation_size), observations to be filled in, never normalised.
    """

    def __init__(
        self,
        policy: Network,
        head: int,
        environment: OutsideEnvironment,
        count: int,
        normaliser: Normaliser | None,
    ) -> None:
        self._policy = with_rows(policy, count)
        self._head = head
        self._environment = environment
        self._normaliser = normaliser
        shape = (count, environment.observation_size)
        self._inputs = np.zeros(shape, policy.parameters.dtype)
        self.rows: Array = self._inputs
        if normaliser is not None:
            self.rows = np.zeros(shape, environment.real)
            self._normalised = normalised_rows.prepared(normaliser, self.rows, False)
        self._propagated = propagate.prepared(self._policy, self._inputs, 0)

    def actions(self, count: int) -> Array:
        """Return what environments receive for the first `count` rows."""
        if self._normaliser is not None:
            self._normalised(self._normaliser, self.rows, False)
            self._inputs[:] = self.rows
        self._propagated(self._policy, self._inputs, count)
        outputs = self._policy.outputs[:count]
        return self._environment.applied(_greedy(outputs, self._head, self._environment))


def evaluate(
    policy: Network,
    head: int,
    environment: OutsideEnvironment,
    seeds: Sequence[int],
    normaliser: Normaliser | None = None,
) -> tuple[Array, Array]:
    """Play one greedy episode per seed, in fresh environments.

    An environment whose episode has ended takes the next seed. Environments that are stepped
    together play one episode each.

    Returns:
        Returns and lengths, in the order of the seeds.
    """
    if environment.make_vector is not None:
        return _evaluate_vector(policy, head, environment, seeds, normaliser)
    count = min(SIDE_BY_SIDE, len(seeds))
    greedy = Greedy(policy, head, environment, count, normaliser)
    results = np.zeros((2, len(seeds)))
    envs = [environment.make() for _ in range(count)]
    try:
        monitors = [env.get_wrapper_attr("episode_monitor") for env in envs]
        running = {slot: slot for slot in range(count)}  # environment -> episode
        observations = {slot: begin_episode(envs[slot], seeds[slot]) for slot in running}
        pending = iter(range(count, len(seeds)))
        while running:
            slots = sorted(running)
            for row, slot in enumerate(slots):
                greedy.rows[row] = np.ravel(observations[slot])
            for slot, action in zip(slots, greedy.actions(len(slots)), strict=True):
                observations[slot], _, terminated, truncated, _ = envs[slot].step(action)
                if not (terminated or truncated):
                    continue
                finished = monitors[slot].take()
                # A limit among the wrappers, below that of the task, ends every episode.
                if finished is None and truncated:
                    finished = monitors[slot].returned, monitors[slot].length
                if finished is None:  # a wrapper ended it (a life lost), the task goes on
                    observations[slot] = envs[slot].reset()[0]
                    continue
                results[:, running.pop(slot)] = finished
                following = next(pending, None)
                if following is not None:
                    running[slot] = following
                    observations[slot] = begin_episode(envs[slot], seeds[following])
    finally:
        for env in envs:
            env.close()
    return results[0], results[1]


def _evaluate_vector(
    policy: Network,
    head: int,
    environment: OutsideEnvironment,
    seeds: Sequence[int],
    normaliser: Normaliser | None,
) -> tuple[Array, Array]:
    """Play the first episode of an environment per seed, all stepped together."""
    make = environment.make_vector
    assert make is not None
    count = len(seeds)
    greedy = Greedy(policy, head, environment, count, normaliser)
    results = np.zeros((2, count))
    running = np.ones(count, np.bool_)
    vector = make(seeds)
    try:
        greedy.rows[:] = vector.reset().reshape(count, -1)
        while running.any():
            step = vector.step(greedy.actions(count))
            results[0, running] += step.rewards[running]
            results[1, running] += 1.0
            running &= ~(step.terminated | step.truncated)
            greedy.rows[:] = step.observations.reshape(count, -1)
    finally:
        vector.close()
    return results[0], results[1]


def _greedy(outputs: Array, head: int, environment: OutsideEnvironment) -> Array:
    """Return the best actions of a policy's outputs, before any clipping."""
    if head == ARGMAX:
        best = np.argmax(outputs[:, : environment.n_actions], axis=1)
        return np.asarray(best)[:, None]
    means = outputs[:, : environment.action_size].astype(np.float64)
    return environment.stretched(np.tanh(means)) if head == SQUASHED else means
