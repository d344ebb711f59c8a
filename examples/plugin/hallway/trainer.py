"""Tabular Q-learning in a slippery hallway: a whole trainer on one page."""

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np

from autorl import InputError
from autorl.core.seeds import evaluation_seeds, generator
from autorl.core.types import (
    Checkpoint,
    EnvironmentSpec,
    Outcome,
    Report,
    Segment,
    Status,
    TrainerSpec,
)
from autorl.store.checkpoints import writing
from autorl.trainers import AnyChange, Clock, Trainer, TrainerInfo, check_start

LEFT, RIGHT = 0, 1
SLIP = 0.1  # probability that the agent goes the other way
DISCOUNT = 0.95
LONGEST = 50  # steps of an evaluation episode


class HallwayInfo(TrainerInfo):
    """What is asked before a trainer is built."""

    description = "tabular Q-learning in a slippery hallway"
    step_unit = "environment_steps"


class QLearning(Trainer):
    """Walks from the left end to the right one, where the reward of 1 is.

    Hyperparameters: `learning_rate` and `exploration`, both in 0..1; both may change while it
    trains. Option: `length` of the hallway.
    """

    info = HallwayInfo()
    changes = AnyChange()

    def __init__(self, spec: TrainerSpec) -> None:
        options: dict[str, Any] = dict(spec.kwargs)
        self.length = options.pop("length", 8)
        if options:
            raise InputError(
                f"unknown option: expected length, got {', '.join(options)}", key="trainer.kwargs"
            )
        if type(self.length) is not int or self.length < 2:
            raise InputError(
                f"expected a whole number of at least 2, got {self.length!r}",
                key="trainer.kwargs.length",
            )

    def check(self, environment: EnvironmentSpec, hyperparameters: Collection[str]) -> None:
        """Called before a study."""
        if environment.id is not None:
            raise InputError("the hallway is the environment: leave it out", key="environment")
        for name in {"learning_rate", "exploration"}.symmetric_difference(hyperparameters):
            raise InputError(
                "the space needs learning_rate and exploration, and no others", key=name
            )

    def reported_metrics(self, environment: EnvironmentSpec) -> Collection[str]:
        return ("eval_return", "start_value")

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        check_start(segment)
        clock = Clock()
        learning_rate = segment.config["learning_rate"]
        exploration = segment.config["exploration"]
        values, place, stream = self._restore(segment)
        reports = []
        for step in range(segment.start + 1, segment.until + 1):
            # A stream for every step: where a run is cut, or evaluated, changes nothing.
            rng = generator(segment.seed, "training", stream, step)
            action = int(values[place].argmax())
            if rng.random() < exploration:
                action = int(rng.integers(2))
            reached, reward = self._walk(place, action, rng)
            future = 0.0 if reward else DISCOUNT * values[reached].max()
            values[place, action] += learning_rate * (reward + future - values[place, action])
            place = 0 if reward else reached
            if step in segment.evaluate_at:
                reports.append(Report(segment.id, step, self._evaluate(values, segment, step)))
                report(reports[-1])
        checkpoint = None
        if segment.save:
            with writing(segment) as folder:  # appears whole or not at all
                state = {"values": values.tolist(), "place": place, "stream": stream}
                (folder / "state.json").write_text(json.dumps(state))
            checkpoint = Checkpoint(segment.id, segment.folder)
        return Outcome(
            segment.id,
            Status.DONE,
            reached=segment.until,
            reports=tuple(reports),
            cost=clock.cost(segment.until - segment.start),
            checkpoint=checkpoint,
            applied={"learning_rate": learning_rate, "exploration": exploration},
        )

    def _restore(self, segment: Segment) -> tuple[np.ndarray, int, int]:
        """The values of the actions, shape (length, 2), the agent's place, and its stream."""
        if segment.parent is None:
            # More than any place is worth: the agent tries everything before it believes less.
            return np.ones((self.length, 2)), 0, 0
        state = json.loads(Path(segment.parent.path, "state.json").read_text())
        # Who copies another run's agent (an exploit) goes on with random numbers of its own.
        stream = state["stream"] if segment.fork is None else segment.fork
        return np.array(state["values"]), state["place"], stream

    def _walk(self, place: int, action: int, rng: np.random.Generator) -> tuple[int, float]:
        """Where a step leads, and its reward."""
        moved = 1 if action == RIGHT else -1
        if rng.random() < SLIP:
            moved = -moved
        reached = max(0, place + moved)
        return reached, float(reached == self.length - 1)

    def _evaluate(self, values: np.ndarray, segment: Segment, step: int) -> dict[str, float]:
        """The mean discounted return of the greedy agent, and what it expects at the start."""
        returns = []
        for seed in evaluation_seeds(segment.seed, segment.role, step, segment.episodes):
            rng, place, reward, taken = np.random.default_rng(seed), 0, 0.0, 0
            while not reward and taken < LONGEST:
                place, reward = self._walk(place, int(values[place].argmax()), rng)
                taken += 1
            returns.append(reward * DISCOUNT**taken)
        return {"eval_return": float(np.mean(returns)), "start_value": float(values[0].max())}
