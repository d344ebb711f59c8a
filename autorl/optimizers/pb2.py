"""Population-based bandits [1], with categorical hyperparameters [2].

They explore by a model instead of by chance.

Selection is that of `pbt`. A Gaussian process over (time, starting score, configuration) predicts
how much a generation improves. A copy goes on with the configuration of the highest upper
confidence bound at the donor's score and the generation to come. Categories are drawn first, by
exponential weights that forget, and the numbers are chosen given them. Candidates lie in the unit
cube, so bounds, scales and types hold; a configuration that breaks a constraint is left out.

Improvements are taken relative to their generation's median, because copies of one generation
compete with each other only, and in units of their deviation. They are noisy, so the model has a
noise term; only the last `window` of them are used, and the model is fitted anew every `refit`
generations, going on from the last fit: it is stored in the proposals' meta, so a resumed study has
it too.

References:
    [1] Parker-Holder, Nguyen and Roberts, "Provably efficient online hyperparameter optimization
        with population-based bandits", NeurIPS 2020.
    [2] Parker-Holder et al., "Tuning mixed input hyperparameters on the fly for efficient
        population based AutoRL", NeurIPS 2021. Here the weights use how often a choice was really
        trained, not how often it was drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autorl.core.types import Config, FrozenMap
from autorl.optimizers.base import Problem, Record, option
from autorl.optimizers.hyperband import may_go_on
from autorl.optimizers.pbt import PBTOptions, Population
from autorl.optimizers.priors.packed import Array
from autorl.optimizers.process import CONTEXT, Posterior, fit

# First candidates, drawn from the whole cube and around the donor
ANYWHERE = 400
NEARBY = 100
NEAR = 0.15  # deviation of the latter, in units of a hyperparameter's range
REFINEMENTS = (0.05, 0.015)  # then around the best so far, with these deviations
# How many of the best, how many around each.
BEST = 4
AROUND = 16
TRIED = 64  # how many of the best candidates are tried under the rules of the space
FEWEST = 4  # improvements before there is a model
# Weights of choices: their rate, the part forgotten, the part drawn uniformly.
LEARNING = 2.0
SHARE = 0.1
MIXING = 0.1


@dataclass(frozen=True)
class PB2Options(PBTOptions):
    window: int = option(200, "improvements the model is made of, the latest", minimum=8)
    refit: int = option(1, "generations between two fits of the model", minimum=1)


@dataclass(frozen=True)
class Improvement:
    """The improvement of one member in a generation.

    It holds what the member trained with, where it started from, and by how much it got better.

    Attributes:
        level: share of its generation that its start was better than; 0.5 for those from scratch.
        gain: relative to the median of the generation.
    """

    generation: int
    config: Config
    level: float
    gain: float


class PB2(Population[PB2Options]):
    """PBT whose copies explore by a time-varying Gaussian process, categories by forgetful
    exponential weights.
    """

    Options = PB2Options

    def __init__(self, problem: Problem, options: PB2Options) -> None:
        super().__init__(problem, options)
        chosen_here = {
            name: problem.space.hyperparameters[name]
            for name in problem.space.names
            if name in problem.changeable
        }
        self.categories = tuple(
            name for name, kind in chosen_here.items() if kind.type == "categorical"
        )
        self.numbers = tuple(
            name for name, kind in chosen_here.items() if kind.numeric or kind.type == "ordinal"
        )

    def _explore(
        self, donor: Record, generation: int, rng: np.random.Generator
    ) -> tuple[Config, FrozenMap]:
        seen = self._improvements()[-self.options.window :]
        if len(seen) < FEWEST:
            return self._perturbed(donor, rng), FrozenMap()
        values = self._draw_choices(seen, rng)
        logs, facts = self._fitted(seen, generation)
        best = self._maximised(self._posterior(logs, seen), donor, generation, values, rng)
        return self._perturbed(donor, rng) if best is None else best, facts

    # -- data

    def _improvements(self) -> list[Improvement]:
        """Return every improvement that was measured, by proposal."""
        measured = []
        levels: dict[int, float] = {}
        for generation in range(len(self.steps)):
            records = [record for record in self._settled(generation) if may_go_on(record)]
            gains = {}
            for record in records:
                before = record.proposal.resume_from
                # One that began from scratch in the middle has trained more than this generation.
                if (before is None) == (generation == 0):
                    start = 0.0 if before is None else self.history[before].values[0]
                    gains[record.id] = record.values[0] - start
            # Copies of one generation compete with each other: what all of them gain is no merit.
            middle = float(np.median(list(gains.values()))) if gains else 0.0
            for record in records:
                if record.id in gains:
                    before = record.proposal.resume_from
                    level = 0.5 if before is None else levels.get(before, 0.5)
                    gain = gains[record.id] - middle
                    config = record.proposal.config
                    measured.append((record.id, Improvement(generation, config, level, gain)))
            levels |= _shares({record.id: record.values[0] for record in records})
        # Asynchronous members are in several generations at once: the window is of the latest ones.
        return [improvement for _, improvement in sorted(measured, key=lambda pair: pair[0])]

    # -- choices

    def _draw_choices(
        self, seen: Sequence[Improvement], rng: np.random.Generator
    ) -> dict[str, Any]:
        drawn = {}
        for name in self.categories:
            choices = self.problem.space.hyperparameters[name].choices
            # Mixed with the uniform distribution, as in Exp3: every choice is tried now and then.
            chances = (1 - MIXING) * self._weights(name, seen) + MIXING / len(choices)
            drawn[name] = choices[int(rng.choice(len(choices), p=chances / chances.sum()))]
        return drawn

    def _weights(self, name: str, seen: Sequence[Improvement]) -> Array:
        """Return exponential weights of a categorical hyperparameter's choices.

        They sum to one and forget.
        """
        hyperparameter = self.problem.space.hyperparameters[name]
        n = hyperparameter.n_choices
        weights = np.full(n, 1.0 / n)
        for generation in sorted({improvement.generation for improvement in seen}):
            played = [
                improvement
                for improvement in seen
                if improvement.generation == generation and name in improvement.config
            ]
            rewards = _shares(
                {number: improvement.gain for number, improvement in enumerate(played)}
            )
            by_choice: list[list[float]] = [[] for _ in range(n)]
            for number, improvement in enumerate(played):
                by_choice[hyperparameter.index(improvement.config[name])].append(rewards[number])
            # Half, the mean of all shares, for what nobody trained with.
            reward = np.full(n, 0.5)
            for choice, rewarded in enumerate(by_choice):
                if rewarded:
                    reward[choice] = np.mean(rewarded)
            weights *= np.exp(LEARNING * (reward - 0.5))
            # Fixed share (Herbster and Warmuth 1998): what was bad once can come back.
            weights = (1 - SHARE) * weights / weights.sum() + SHARE / n
        return weights

    # -- numbers

    def _fitted(
        self, seen: Sequence[Improvement], generation: int
    ) -> tuple[Sequence[float], FrozenMap]:
        """Return the parameters of the model, and the facts to store.

        They are fitted in this `ask`, or taken from an earlier one.
        """
        stored = [
            (number, self.history[number].proposal.meta)
            for later in self._generations[: generation + 1]
            for number in later.values()
        ]
        fits = [(number, meta) for number, meta in stored if "model" in meta]
        latest = max(fits, key=lambda entry: entry[0])[1] if fits else None
        if latest is not None and generation - latest["fitted"] < self.options.refit:
            return latest["model"], FrozenMap()
        points, gains = self._data(seen)
        start = None if latest is None else latest["model"]
        logs = fit(points, gains, len(self.numbers), start=start)
        # Into the events, so that a resumed study goes on from the same fit.
        return logs, FrozenMap(model=logs, fitted=generation)

    def _posterior(self, logs: Sequence[float], seen: Sequence[Improvement]) -> Posterior:
        points, gains = self._data(seen)
        waiting = [self.history[number].proposal for number in self.history.pending]
        # At the best level, as if every donor had led its generation.
        pending = [
            self._point(proposal.meta["generation"], 1.0, proposal.config) for proposal in waiting
        ]
        in_flight = np.array(pending).reshape(-1, points.shape[1])  # (0, m) without any
        return Posterior(logs, points, gains, in_flight, len(self.numbers))

    def _data(self, seen: Sequence[Improvement]) -> tuple[Array, Array]:
        """Return points, shape (n, m), and standardised gains, shape (n,)."""
        points = np.array(
            [
                self._point(improvement.generation, improvement.level, improvement.config)
                for improvement in seen
            ]
        )
        gains = np.array([improvement.gain for improvement in seen])
        return points, gains / (gains.std() or 1.0)  # all alike where a task has saturated

    def _point(self, generation: int, level: float, config: Config) -> Array:
        """Encode what a member trained with as a point, shape (m,).

        The columns are time, level, numbers in the unit cube (0.5 where inactive), choices (-1
        where inactive).
        """
        point = [float(generation), level]
        kinds = self.problem.space.hyperparameters
        point += [
            kinds[name].to_unit(config[name]) if name in config else 0.5 for name in self.numbers
        ]
        point += [
            float(kinds[name].index(config[name])) if name in config else -1.0
            for name in self.categories
        ]
        return np.array(point)

    def _maximised(
        self,
        posterior: Posterior,
        donor: Record,
        generation: int,
        choices: Mapping[str, object],
        rng: np.random.Generator,
    ) -> Config | None:
        """Return the valid candidate with the highest upper confidence bound.

        The result is None if no candidate among the best is valid.
        """
        space = self.problem.space
        config = donor.proposal.config
        changeable = self.problem.changeable
        base = space.place(config, choices, rng, changeable)
        if base is None:  # the choices break a rule: the donor's
            base = config
            choices = {}
        donors = [record for record in self._settled(generation - 1) if may_go_on(record)]
        level = _shares({record.id: record.values[0] for record in donors})[donor.id]
        # The chosen categories decide which numbers are active.
        free = [number for number, name in enumerate(self.numbers) if name in base]
        best = self._candidates(posterior, self._point(generation, level, base), free, rng)
        for row in best[:TRIED].tolist():
            numbers = {self.numbers[i]: row[CONTEXT + i] for i in free}
            values = {
                name: space.hyperparameters[name].from_unit(unit) for name, unit in numbers.items()
            }
            placed = space.place(config, {**choices, **values}, rng, changeable)
            if placed is not None and placed != config:
                return placed
        return None

    def _candidates(
        self, posterior: Posterior, base: Array, free: Sequence[int], rng: np.random.Generator
    ) -> Array:
        """Return points near `base`, the most promising first, shape (q, m).

        They differ from it in the numbers that are `free`.
        """
        # sqrt(beta_t), beta_t = c1 + log(c2 t): the constants are those of PB2 in Ray Tune.
        width = math.sqrt(0.2 + math.log(max(1.0, 0.4 * len(posterior.values))))
        columns = [CONTEXT + number for number in free]
        points = np.tile(base, (ANYWHERE + NEARBY, 1))
        points[:ANYWHERE, columns] = rng.random((ANYWHERE, len(free)))
        points[ANYWHERE:, columns] += NEAR * rng.standard_normal((NEARBY, len(free)))
        drawn = np.empty((0, len(base)))
        bounds = np.empty(0)
        # Each round ranks what was drawn before it, so what the last one draws is never looked at.
        for spread in (*REFINEMENTS, 0.0):
            points[:, columns] = np.clip(points[:, columns], 0.0, 1.0)
            mean, sd = posterior.at(points)
            drawn = np.concatenate([drawn, points])
            bounds = np.concatenate([bounds, mean + width * sd])
            # Stable: equal bounds in the order they were drawn, whatever NumPy's default sort does.
            order = np.argsort(-bounds, kind="stable")
            points = np.repeat(drawn[order[:BEST]], AROUND, axis=0)
            points[:, columns] += spread * rng.standard_normal((len(points), len(free)))
        return drawn[order]


def _shares(values: Mapping[int, float]) -> dict[int, float]:
    """Return for each value the share of others below it.

    Ties count half; a value alone has 0.5.
    """
    if len(values) < 2:
        return dict.fromkeys(values, 0.5)
    numbers = np.array(list(values.values()))
    below = {
        key: (numbers < value).sum() + ((numbers == value).sum() - 1) / 2
        for key, value in values.items()
    }
    return {key: float(count) / (len(values) - 1) for key, count in below.items()}
