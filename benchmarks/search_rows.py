"""Rows of `search.py`: study files, and what each chose on a task.

A row is an `optimizer` and an `evaluation` section of a study file, and says which prior it is given. It is run as a
study in memory: the real driver, optimizer, seed rule and ranking. Only the training is left out, a recorded run
answers at once. Rows whose optimizer or seed rule this version has not are left out.
"""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np
from search_tasks import SAME, Folders, HeldOut, Split, Task, family, trainer_of

from autorl.core.types import Config, Outcome, Report, Segment, Status
from autorl.statistics.confirmation import levels_of
from autorl.statistics.evaluation import Ranking

RUNS = (24, 32, 96)
CURVE = (24, 32, 48, 64, 80, 96, 144, 192, 288, 384, 576, 768)
REFERENCE = "random, fixed 3"
"""The row whose runs are counted by the budget multiplier."""
SEEDS: Mapping[str, tuple[dict[str, Any], int]] = {
    "fixed 1": ({"seeds": "fixed"}, 1),
    "fixed 3": ({"seeds": "fixed"}, 3),
    "fixed 5": ({"seeds": "fixed"}, 5),
    "racing": ({"seeds": "racing"}, 5),
    "adaptive": ({"seeds": "adaptive"}, 5),
}
"""Seed rules: the section `evaluation`, and how many tuning seeds there are."""


@dataclass(frozen=True)
class Row:
    """What is compared.

    Attributes:
        optimizer: the section `optimizer`, without the prior.
        seeds: a key of `SEEDS`.
        held_out: what its prior lacks.
        prior: the option of the optimizer that takes the landscapes of the prior; "" = none.
    """

    optimizer: Mapping[str, Any]
    seeds: str
    held_out: HeldOut = ""
    prior: str = ""

    @property
    def search(self) -> str:
        """The optimizer and its prior, as tables name them."""
        name = str(self.optimizer["name"])
        titles = {
            "": ", no prior" if "prior" in self.optimizer else "",
            "task": ", leave-task-out",
            "family": ", leave-family-out",
            "reversed": ", misleading prior",
            "moved": ", leave-task-out, own places",
        }
        return name + titles[self.held_out]

    @property
    def name(self) -> str:
        return f"{self.search}, {self.seeds}"


def at_runs(method: str, runs: int) -> str:
    """Name what is measured of a method with a budget of so many runs."""
    return f"{method}; {runs} runs"


def curve_of(method: str) -> str:
    """Name the scores of a reference row after each number of runs of `CURVE`."""
    return f"{method}; curve"


def rows() -> dict[str, Row]:
    """All rows that this version can run, by name."""
    made = [Row({"name": "random"}, seeds) for seeds in SEEDS]
    for optimizer in ("tpe", "smac", "gp"):
        made += [Row({"name": optimizer}, seeds) for seeds in ("fixed 3", "adaptive")]
    for seeds in ("fixed 3", "adaptive"):
        made.append(Row({"name": "transfer", "prior": "none"}, seeds))
        for held_out in ("task", "family"):
            made.append(Row({"name": "transfer"}, seeds, held_out, "prior"))
    lacks: tuple[HeldOut, ...] = ("reversed", "moved")
    made += [Row({"name": "transfer"}, "adaptive", held_out, "prior") for held_out in lacks]
    return {row.name: row for row in made if is_available(row)}


def is_available(row: Row) -> bool:
    """Whether this version has the row's optimizer and its seed rule."""
    from autorl.optimizers import names
    from autorl.study.spec.sections import EvaluationSection

    rules = get_args(EvaluationSection.model_fields["seeds"].annotation)
    return row.optimizer["name"] in names() and SEEDS[row.seeds][0]["seeds"] in rules


def study(row: Row, task: Task, folders: Folders, runs: int, repeat: int) -> dict[str, Any]:
    """The study file of a row on a task."""
    evaluation, seeds = SEEDS[row.seeds]
    optimizer = dict(row.optimizer)
    if row.prior:
        optimizer[row.prior] = folders.prior(task.name, row.held_out)
    objective = task.landscape.manifest.objective
    return {
        "name": f"search-{task.name}",
        "trainer": {"name": "tabular", "kwargs": {"landscape": task.folder}},
        "space": task.space.to_dict(),
        "objective": {"metric": objective.metric, "direction": objective.direction},
        "fidelity": {"steps": task.horizon, "evaluations": 1, "episodes": 1},
        "optimizer": optimizer,
        "evaluation": evaluation,
        "seeds": {"tuning": list(range(seeds)), "test": 0},
        "budget": {"runs": runs},
        # Every score is known to the next proposal: what a model can do, not what lag does to it.
        "parallelism": 1,
        "test": {"top": 0, "baseline": False},
        "executor": {"name": "in_process"},
        "seed": repeat,
    }


@dataclass
class Answering:
    """An executor that answers segments from a task, and trains none.

    A recorded configuration answers for one proposed configuration alone. Before, several that lay close together had
    one answer: a lucky seed of it won several times, and confirming seeds were spent on the same runs.

    Attributes:
        seeds_of: how many seeds of each configuration that answered were trained to the horizon.
    """

    task: Task
    metric: str
    split: Split
    slots: int = 1
    seeds_of: dict[Config, int] = field(default_factory=dict)
    _waiting: deque[Segment] = field(default_factory=deque)
    _answers: dict[Config, Config] = field(default_factory=dict)

    @property
    def asked(self) -> list[Config]:
        """The proposed configurations."""
        return [*self._answers]

    def answer(self, config: Config) -> Config:
        """The configuration that answers for a proposed one, the same in the whole study."""
        if config not in self._answers:
            self._answers[config] = self.task.answering(config, set(self._answers.values()))
        return self._answers[config]

    def submit(self, segments: Sequence[Segment]) -> None:
        self._waiting.extend(segments)

    def poll(self, timeout: float) -> list[Report | Outcome]:
        if not self._waiting:
            return []
        segment = self._waiting.popleft()
        reports = tuple(
            Report(segment.id, step, {self.metric: self._score(segment, step)})
            for step in segment.evaluate_at
        )
        if segment.until >= self.task.horizon:
            config = self.answer(segment.config)
            self.seeds_of[config] = self.seeds_of.get(config, 0) + 1
        outcome = Outcome(
            segment.id,
            Status.DONE,
            reached=segment.until,
            reports=reports,
            cost={"environment_steps": float(segment.until - segment.start), "wall_seconds": 0.0},
            applied=segment.config,
            fence=segment.fence,
        )
        return [outcome]

    def _score(self, segment: Segment, step: int) -> float:
        return self.task.score(self.answer(segment.config), self.split.tuning[segment.seed], step)

    def cancel(self, segment: Segment) -> None:
        self._waiting = deque(waiting for waiting in self._waiting if waiting.key != segment.key)

    def close(self) -> None:
        self._waiting.clear()


def run_row(row: Row, task: Task, folders: Folders, runs: int, repeat: int) -> dict[str, Any]:
    """What a row chose: its held-out score, what was lost to search and to the choice, and its model's share.

    Of the reference row, with a budget of `CURVE`, also the score after each of those runs.
    """
    from autorl.study import Study
    from autorl.study.spec import load_spec

    spec = load_spec(study(row, task, folders, runs, repeat))
    split = task.split(repeat)
    answering = Answering(task, spec.objective[0].metric, split)
    running = Study.in_memory(spec, lambda _: trainer_of(task.folder))
    try:
        result = running.run(executor=answering)
        chosen = task.judged(answering.answer(result.incumbent.config), split)
        measured: dict[str, Any] = dict(losses(task, split, chosen, answering.seeds_of))
        measured |= sureness(result, task, split, chosen, answering.seeds_of)
        if row.name == REFERENCE and runs == CURVE[-1]:
            measured["curve"] = curve(running, answering, split)
    finally:
        running.close()
    share = result.share
    # A rounded one is the recorded one; distances are Replay's, a category counts 1.
    distances = np.array([task.distance(config) for config in answering.asked])
    moved = distances[distances >= SAME]
    measured["moved"] = len(moved) / len(distances)
    measured["far"] = float(np.median(moved)) if len(moved) else 0.0
    counts = {"informed": share.modelled, "new": share.new, "met": len(answering.seeds_of)}
    return measured | counts | {"judged": chosen}


def losses(
    task: Task, split: Split, chosen: float, seeds_of: Mapping[Config, int]
) -> dict[str, float]:
    """Regret of a choice: search lost what nothing tried reaches, the choice the rest."""
    tried = max(task.judged(config, split) for config in seeds_of)
    return {"search_loss": task.best(split) - tried, "choice_loss": tried - chosen}


def sureness(
    result: Any, task: Task, split: Split, chosen: float, seeds_of: Mapping[Config, int]
) -> dict[str, float]:
    """The probability that the study states for its choice, and whether no confirmed one is better held out."""
    choice = getattr(result, "choice", None)  # of a version with adaptive seeds
    if choice is None:
        return {}
    fewest = min(seeds_of.values())
    confirmed = [config for config, seeds in seeds_of.items() if seeds > fewest]
    best = max(task.judged(config, split) for config in confirmed)
    return {"stated": float(choice.probability), "right": float(chosen >= best - 1e-9)}


def curve(running: Any, answering: Answering, split: Split) -> list[float]:
    """Held-out scores of the incumbents that the first runs of a study with three fixed seeds would have had.

    The study is of random search, so its first proposals are those of a smaller budget.
    """
    known, ranking, scores = running.driver.ranking, Ranking(), list[float]()
    after = {runs // SEEDS["fixed 3"][1] for runs in CURVE}
    for place, number in enumerate(sorted(known.ordered()), start=1):
        ranking.observe(known[number])
        if place in after:
            incumbent = ranking.best()
            assert incumbent is not None
            config = answering.answer(running.driver.lineage[incumbent].config)
            scores.append(answering.task.judged(config, split))
    # A space of few configurations is exhausted before: it stays at its end.
    return scores + [scores[-1]] * (len(CURVE) - len(scores))


# -- the plain baseline ------------------------------------------------------------------------------------------------

BASELINE = ("random", "portfolio")
"""Lines of the plain baseline: which recorded configurations are tried, each with one seed."""
EXPLORE = 0.72  # share of the runs that explores
OWN_FAMILY = 10.0  # what a task of the own family weighs beside another


PLAIN = "plain random, fixed 3"
"""Random search on recorded configurations with three seeds each, without the default configuration that begins every
study: a second row whose runs are counted."""


def run_plain(task: Task, runs: int, repeat: int) -> dict[str, float]:
    """What `PLAIN` chose."""
    split = task.split(repeat)
    order = np.random.default_rng([repeat, 1]).permutation(len(task.table)).tolist()
    tried = order[: runs // SEEDS["fixed 3"][1]]
    scores = task.table[tried][:, split.tuning[: SEEDS["fixed 3"][1]]].mean(axis=1)
    return numbers_of(task, split, tried, tried[int(scores.argmax())])


def numbers_of(task: Task, split: Split, tried: Sequence[int], chosen: int) -> dict[str, float]:
    """The figures of a choice among recorded configurations, by their rows."""
    judged = task.table[:, split.judging].mean(axis=1)
    best = judged[list(tried)].max()
    return {
        "judged": float(judged[chosen]),
        "search_loss": float(judged.max() - best),
        "choice_loss": float(best - judged[chosen]),
        "informed": 0,
        "new": len(tried),
        "met": len(tried),
    }


def baseline_names(held_out: HeldOut) -> dict[str, str]:
    """The lines of the baseline by the names of tables; without a prior there is one."""
    titles = {"task": ", leave-task-out", "family": ", leave-family-out"}
    return {
        f"plain {line}, rejects" + ("" if line == BASELINE[0] else titles[held_out]): line
        for line in BASELINE
    }


def run_baseline(
    line: str, task: Task, others: Sequence[Task], runs: int, repeat: int
) -> dict[str, float]:
    """Recorded configurations, explored with one seed, and successive rejects among them.

    In plain numpy, by rows of the tables that all tasks of an algorithm share: what a prior has to beat. The portfolio
    is greedy, and tasks of the own family weigh ten times as much as others.
    """
    split, rng = task.split(repeat), np.random.default_rng([repeat, 1])
    first = greedy_portfolio(tuple(others), task.name) if line != BASELINE[0] else []
    rest = [number for number in rng.permutation(len(task.table)).tolist() if number not in first]
    confirming = round(runs * (1 - EXPLORE))
    tried = [*first, *rest][: runs - confirming]
    scores = task.table[:, split.tuning]
    left = sorted(tried, key=lambda number: -scores[number, 0])
    for seeds, count in enumerate(levels_of(confirming, len(tried), len(split.tuning) - 1), 2):
        means = scores[left[:count], :seeds].mean(axis=1)
        left = [left[place] for place in np.argsort(-means, kind="stable")]
    return numbers_of(task, split, tried, left[0])


@functools.cache
def greedy_portfolio(others: tuple[Task, ...], own: str, size: int = 48) -> list[int]:
    """Rows that add most to the weighted mean over tasks of the best score so far.

    Args:
        others: what the portfolio is made of.
        own: the task it is for.
        size: number of rows.
    """
    table = np.stack([other.table.mean(axis=1) for other in others])
    weights = np.array(
        [OWN_FAMILY if family(other.name) == family(own) else 1.0 for other in others]
    )
    weights /= weights.sum()
    ranks = table.argsort(axis=1).argsort(axis=1) / (table.shape[1] - 1)
    best, chosen = np.zeros(len(others)), list[int]()
    for _ in range(size):
        gain = weights @ np.maximum(table, best[:, None]) + 1e-3 * (weights @ ranks)
        gain[chosen] = -math.inf
        chosen.append(int(gain.argmax()))
        best = np.maximum(best, table[:, chosen[-1]])
    return chosen
