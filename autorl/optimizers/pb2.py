"""Population-based bandits [1], with categorical hyperparameters [2]: explore by a model instead of by chance.

Selection is that of `pbt`. What a copy trains with next is chosen by a Gaussian process over (time, starting score,
configuration) that predicts how much a generation improves: the configuration with the highest upper confidence bound
at the donor's score and the generation to come. Categories are drawn first, by exponential weights that forget, and
the numbers are chosen given them. In the unit cube, so bounds, scales and types hold; what breaks a constraint is no
candidate.

Improvements are taken relative to their generation's median, because copies of one generation compete with each other
only, and in units of their deviation. They are noisy, so the model has a noise term; only the last `window` of them
are used, and the model is fitted anew every `refit` generations, going on from the last fit: it is stored in the
proposals' meta, so a resumed study has it too.

References:
    [1] Parker-Holder, Nguyen and Roberts, "Provably efficient online hyperparameter optimization with
        population-based bandits", NeurIPS 2020.
    [2] Parker-Holder et al., "Tuning mixed input hyperparameters on the fly for efficient population based AutoRL",
        NeurIPS 2021. Here the weights use how often a choice was really trained, not how often it was drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autorl.optimizers._pb2_gp import CONTEXT, Posterior, fit
from autorl.optimizers.base import Problem, Record, option
from autorl.optimizers.hyperband import may_go_on
from autorl.optimizers.pbt import PBTOptions, Population
from autorl.types import Config, FrozenMap

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

ANYWHERE, NEARBY = 400, 100  # first candidates, drawn from the whole cube and around the donor
NEAR = 0.15  # deviation of the latter, in units of a hyperparameter's range
REFINEMENTS = (0.05, 0.015)  # then around the best so far, with these deviations
BEST, AROUND = 4, 16  # how many of the best, how many around each
TRIED = 64  # how many of the best candidates are tried under the rules of the space
FEWEST = 4  # improvements before there is a model
LEARNING, SHARE, MIXING = (
    2.0,
    0.1,
    0.1,
)  # of the weights of choices: rate, part forgotten, part drawn uniformly


@dataclass(frozen=True)
class PB2Options(PBTOptions):
    window: int = option(200, "improvements the model is made of, the latest", minimum=8)
    refit: int = option(1, "generations between two fits of the model", minimum=1)


@dataclass(frozen=True)
class Improvement:
    """A generation of one member: what it trained with, where it started from, by how much it got better.

    Attributes:
        level: share of its generation that its start was better than; 0.5 for those from scratch.
        gain: relative to the median of the generation.
    """

    generation: int
    config: Config
    level: float
    gain: float


class PB2(Population[PB2Options]):
    """PBT whose copies explore by a time-varying Gaussian process, categories by forgetful exponential weights."""

    Options = PB2Options

    def __init__(self, problem: Problem, options: PB2Options) -> None:
        super().__init__(problem, options)
        own = {
            name: problem.space.hyperparameters[name]
            for name in problem.space.names
            if name in problem.changeable
        }
        self.categories = tuple(name for name, kind in own.items() if kind.type == "categorical")
        self.numbers = tuple(
            name for name, kind in own.items() if kind.numeric or kind.type == "ordinal"
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

    # -- data ------------------------------------------------------------------------------------------------------

    def _improvements(self) -> list[Improvement]:
        """Every improvement that was measured, by proposal."""
        found = []
        levels: dict[int, float] = {}
        for generation in range(len(self.steps)):
            known = [record for record in self._known(generation) if may_go_on(record)]
            gains = {
                record.id: self._gain(record)
                for record in known
                if self._comparable(record, generation)
            }
            middle = float(np.median(list(gains.values()))) if gains else 0.0
            for record in known:
                if record.id in gains:
                    before = record.proposal.resume_from
                    level = 0.5 if before is None else levels.get(before, 0.5)
                    found.append(
                        (
                            record.id,
                            Improvement(
                                generation, record.proposal.config, level, gains[record.id] - middle
                            ),
                        )
                    )
            levels |= _shares({record.id: record.values[0] for record in known})
        return [improvement for _, improvement in sorted(found, key=lambda pair: pair[0])]

    def _comparable(self, record: Record, generation: int) -> bool:
        """Whether it trained this generation only: not one that began from scratch in the middle."""
        return (record.proposal.resume_from is None) == (generation == 0)

    def _gain(self, record: Record) -> float:
        before = record.proposal.resume_from
        return record.values[0] - (0.0 if before is None else self.history[before].values[0])

    # -- choices ---------------------------------------------------------------------------------------------------

    def _draw_choices(
        self, seen: Sequence[Improvement], rng: np.random.Generator
    ) -> dict[str, Any]:
        drawn = {}
        for name in self.categories:
            choices = self.problem.space.hyperparameters[name].choices
            chances = (1 - MIXING) * self._weights(name, seen) + MIXING / len(choices)
            drawn[name] = choices[int(rng.choice(len(choices), p=chances / chances.sum()))]
        return drawn

    def _weights(self, name: str, seen: Sequence[Improvement]) -> Array:
        """Exponential weights of the choices of a categorical hyperparameter, summing to one; they forget."""
        hyperparameter = self.problem.space.hyperparameters[name]
        n = hyperparameter.n_choices
        weights = np.full(n, 1.0 / n)
        for generation in sorted({improvement.generation for improvement in seen}):
            played = [one for one in seen if one.generation == generation and name in one.config]
            rewards = _shares({number: one.gain for number, one in enumerate(played)})
            by_choice: list[list[float]] = [[] for _ in range(n)]
            for number, one in enumerate(played):
                by_choice[hyperparameter.index(one.config[name])].append(rewards[number])
            reward = np.array([np.mean(rewarded) if rewarded else 0.5 for rewarded in by_choice])
            weights *= np.exp(LEARNING * (reward - 0.5))
            weights = (1 - SHARE) * weights / weights.sum() + SHARE / n
        return weights

    # -- numbers ---------------------------------------------------------------------------------------------------

    def _fitted(
        self, seen: Sequence[Improvement], generation: int
    ) -> tuple[Sequence[float], FrozenMap]:
        """The parameters of the model, and the facts to store: fitted in this `ask`, or taken from an earlier one."""
        stored = [
            (number, self.history[number].proposal.meta)
            for later in self._generations[: generation + 1]
            for number in later.values()
        ]
        last = max(
            ((number, meta) for number, meta in stored if "model" in meta),
            key=lambda one: one[0],
            default=None,
        )
        if last is not None and generation - last[1]["fitted"] < self.options.refit:
            return last[1]["model"], FrozenMap()
        points, gains = self._data(seen)
        logs = fit(points, gains, len(self.numbers), None if last is None else last[1]["model"])
        return logs, FrozenMap(model=logs, fitted=generation)

    def _posterior(self, logs: Sequence[float], seen: Sequence[Improvement]) -> Posterior:
        points, gains = self._data(seen)
        waiting = [self.history[number].proposal for number in self.history.pending]
        pending = [self._point(one.meta["generation"], 1.0, one.config) for one in waiting]
        return Posterior(
            logs, points, gains, np.array(pending).reshape(-1, points.shape[1]), len(self.numbers)
        )

    def _data(self, seen: Sequence[Improvement]) -> tuple[Array, Array]:
        """Points, shape (n, m), and standardised gains, shape (n,)."""
        points = np.array([self._point(one.generation, one.level, one.config) for one in seen])
        gains = np.array([one.gain for one in seen])
        return points, gains / (gains.std() or 1.0)

    def _point(self, generation: int, level: float, config: Config) -> Array:
        """Shape (m,): time, level, numbers in the unit cube (0.5 where inactive), choices (-1 where inactive)."""
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
        choices: Mapping[str, Any],
        rng: np.random.Generator,
    ) -> Config | None:
        """The valid candidate with the highest upper confidence bound; None if none of the best is one."""
        space, config, changeable = (
            self.problem.space,
            donor.proposal.config,
            self.problem.changeable,
        )
        base = space.place(config, choices, rng, changeable)
        base, choices = (
            (config, {}) if base is None else (base, choices)
        )  # where the choices break a rule: the donor's
        level = _shares(
            {one.id: one.values[0] for one in self._known(generation - 1) if may_go_on(one)}
        )[donor.id]
        free = [number for number, name in enumerate(self.numbers) if name in base]
        for row in self._candidates(posterior, self._point(generation, level, base), free, rng)[
            :TRIED
        ].tolist():
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
        """Shape (q, m): points that differ from `base` in the numbers that are `free`, the most promising first."""
        width = math.sqrt(0.2 + math.log(max(1.0, 0.4 * len(posterior.values))))
        columns = [CONTEXT + number for number in free]
        points = np.tile(base, (ANYWHERE + NEARBY, 1))
        points[:ANYWHERE, columns] = rng.random((ANYWHERE, len(free)))
        points[ANYWHERE:, columns] += NEAR * rng.standard_normal((NEARBY, len(free)))
        found, bounds = np.empty((0, len(base))), np.empty(0)
        for spread in (*REFINEMENTS, 0.0):
            points[:, columns] = np.clip(points[:, columns], 0.0, 1.0)
            mean, sd = posterior.at(points)
            found, bounds = (
                np.concatenate([found, points]),
                np.concatenate([bounds, mean + width * sd]),
            )
            order = np.argsort(-bounds, kind="stable")
            points = np.repeat(found[order[:BEST]], AROUND, axis=0)
            points[:, columns] += spread * rng.standard_normal((len(points), len(free)))
        return found[order]


def _shares(values: Mapping[int, float]) -> dict[int, float]:
    """For each value the share of the others that it is better than (ties count half), 0.5 if it is alone."""
    if len(values) < 2:
        return dict.fromkeys(values, 0.5)
    others = np.array(list(values.values()))
    below = {
        key: (others < value).sum() + ((others == value).sum() - 1) / 2
        for key, value in values.items()
    }
    return {key: float(count) / (len(values) - 1) for key, count in below.items()}
