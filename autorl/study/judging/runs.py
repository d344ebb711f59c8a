"""The runs of one configuration, trained as they are asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from autorl.core.plain_values import plain
from autorl.core.types import (
    Config,
    FrozenMap,
    InputError,
    Outcome,
    Proposal,
    ProposalId,
    Proposed,
    SeedRole,
    SegmentId,
)
from autorl.executors.shared import SharedExecutor, StudyView
from autorl.executors.worker import Load
from autorl.statistics.verdict import Array
from autorl.store import Store
from autorl.store.checkpoints import driving
from autorl.store.events import ProposalMade, SessionBegun
from autorl.store.folder import holds_study
from autorl.study.journal import Journal
from autorl.study.judging.judgement import BLOCK
from autorl.study.lineage import Lineage
from autorl.study.results.record import open_record
from autorl.study.session import session, user_files
from autorl.study.setup import trainer_loader
from autorl.study.several_studies import check_shareable, shared_workers, views_of
from autorl.study.spec import Spec
from autorl.study.study import POLL_SECONDS
from autorl.study.work import Work

FILE = "judgements.jsonl"
"""Name of the file of a folder of judgements."""
_ONLY: ProposalId = 0
# What a run is a function of; all else of a study file is about others, or who trains when.
_CONTENT = {"trainer", "algorithms", "environment", "objective", "fidelity", "start", "resources"}
_NOT_OF_RUNS = ("files", "cores")


@dataclass(frozen=True)
class Side:
    """A configuration to be judged, with its trainer and code.

    Attributes:
        label: what the user called it.
        spec: study file that it is trained by.
        config: its hyperparameters.
        code: hash of the code that trains; empty: the files that the study file names.
        root: folder of that code, if it is a revision's.
    """

    label: str
    spec: Spec
    config: Config
    code: str = ""
    root: str = ""

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Versions, user files by hash, and the machine."""
        return dict(plain(session(self.spec, {} if self.code else user_files(self.spec))))

    @cached_property
    def content(self) -> str:
        """Hash of what decides a run, beside environment and seed."""
        described = self.spec.model_dump(mode="json", include=_CONTENT)
        text = json.dumps([described, plain(self.config)], sort_keys=True)
        if self.root:
            text = text.replace(self.root, "")
        files = self.code or json.dumps(self.facts["files"], sort_keys=True)
        return hashlib.sha256(f"{text}\n{files}".encode()).hexdigest()

    @property
    def key(self) -> str:
        """Name of the folder of its runs: content and environment."""
        facts = {name: fact for name, fact in self.facts.items() if name not in _NOT_OF_RUNS}
        text = json.dumps(facts, sort_keys=True)
        return f"{self.content[:16]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


class _OneProposal(Lineage):
    """Numbers runs by their seeds, which no plan lists."""

    def run_id(self, root: ProposalId, role: SeedRole, seed: int) -> int:
        return seed


class Runs:
    """The runs of a side, recorded in a folder.

    Args:
        side: what is trained.
        folder: that keeps them; begun if it is not there.
        block: whose held-out seeds are taken.
    """

    def __init__(self, side: Side, folder: Path, block: int) -> None:
        self.side = side
        self.spec = side.spec
        self.load: Load = trainer_loader(side.spec)
        self.block = block
        if holds_study(folder):
            self.store = Store.open(folder)
        else:
            self.store = Store.create(folder, side.spec.freeze(), side.spec.search_space.hash)
        self._journal = Journal(self.store)
        lineage = _OneProposal(side.spec.plan)
        proposed = Proposed(_ONLY, Proposal(side.config, side.spec.fidelity.steps))
        lineage.observe(proposed)
        self.work = Work(side.spec, self._journal, lineage, side.spec.judge())
        events = [recorded.event for recorded in self.store.events()]
        for event in events:
            self._journal.apply(event)
        if not any(isinstance(event, ProposalMade) for event in events):
            self._journal.record(ProposalMade(proposed, side.content[:16]))
        self.before = len(self.work.outcomes)

    def begin(self) -> None:
        """Record that a session begins, whose attempts are told from earlier ones."""
        self._journal.record(SessionBegun(FrozenMap(self.side.facts)))

    def seeds(self, role: SeedRole, count: int) -> list[int]:
        """Return the first seeds of a role."""
        begin = 0 if role == "tuning" else BLOCK * (self.block + 1)
        return list(range(begin, begin + count))

    def lacking(self, role: SeedRole, count: int) -> list[int]:
        """List those of the first seeds that are not trained."""
        return [seed for seed in self.seeds(role, count) if not self.work.known(_ONLY, seed)]

    def train(self, role: SeedRole, seeds: Sequence[int], view: StudyView) -> None:
        """Record what workers have sent, and hand out what is not trained."""
        for message in view.poll(0):
            if isinstance(message, Outcome):
                self.work.record(message)
        for seed in seeds:
            self.work.request(_ONLY, seed, None, role)
        view.submit(self.work.drain())

    def scores(self, role: SeedRole, count: int) -> Array:
        """Return the scores of the first seeds, larger is better."""
        penalty = self.spec.stated_penalty
        sign = self.spec.objectives()[0].sign
        worst = -np.inf if penalty is None else sign * penalty
        values = [self.work.value(_ONLY, seed).values for seed in self.seeds(role, count)]
        return np.array([(*measured, worst)[0] for measured in values])

    def hours(self, role: SeedRole, count: int) -> float:
        """Return the hours that the first runs were trained."""
        outcomes = (self.work.outcome_of(SegmentId(_ONLY, n)) for n in self.seeds(role, count))
        return sum(it.cost.get("wall_seconds", 0.0) for it in outcomes if it is not None) / 3600

    def failure(self) -> str:
        """Return the message of a run that failed, if one did."""
        return next((it.message for it in self.work.outcomes.values() if it.status.failed), "")

    def close(self) -> None:
        self.work.clear()
        self.store.close()


@dataclass
class TrainedBench:
    """Trains the runs of a judgement on shared workers.

    Attributes:
        asked: runs that were asked for, by side and role.
    """

    sides: Sequence[Runs]
    shared: SharedExecutor
    views: list[StudyView]
    asked: dict[tuple[int, SeedRole], int] = field(default_factory=dict)

    @property
    def hours(self) -> float:
        return sum(self.sides[side].hours(role, n) for (side, role), n in self.asked.items())

    def scores(self, role: SeedRole, baseline: int, edit: int, ahead: int) -> Sequence[Array]:
        counts = (baseline, edit)
        for side, count in zip(range(len(self.sides)), counts, strict=False):
            self.asked[side, role] = max(count, self.asked.get((side, role), 0))
        # A worker without work trains the next run of the edit; the verdict does not read it.
        more = edit
        if edit and self.sides[1].lacking(role, edit):
            more = min(ahead, edit + self.shared.slots - 1)
        with driving(self.sides[0].store.folder):
            self._train(role, (baseline, more))
        return [runs.scores(role, count) for runs, count in zip(self.sides, counts, strict=False)]

    def _train(self, role: SeedRole, counts: Sequence[int]) -> None:
        asked = list(zip(self.sides, self.views, counts, strict=False))
        while True:
            for runs, view, count in asked:
                runs.train(role, runs.lacking(role, count), view)
            if not any(runs.lacking(role, count) for runs, _, count in asked):
                return
            self.shared.poll(POLL_SECONDS)

    def seeds(self, role: SeedRole, baseline: int, edit: int) -> Sequence[Sequence[int]]:
        counts = (baseline, edit)
        return [runs.seeds(role, count) for runs, count in zip(self.sides, counts, strict=False)]

    def trained_now(self) -> int:
        """Count the runs that this session has trained."""
        return sum(len(runs.work.outcomes) - runs.before for runs in self.sides)


@contextmanager
def bench_of(
    folder: Path, sides: Sequence[Side], blocks: Sequence[int], workers: int | None
) -> Iterator[TrainedBench]:
    """Open the runs of the sides, with workers for them.

    Raises:
        InputError: the sides are the same, cannot share workers, or are of several tasks.
    """
    if len({side.content for side in sides}) < len(sides):
        names = " and ".join(side.label for side in sides)
        raise InputError(f"{names} are the same code and configuration")
    for side in sides:
        if side.spec.tasks is not None or len(side.spec.objective) > 1:
            raise InputError(f"{side.label}: a judgement is of one task and one objective")
        trainer, config = side.spec.trainer_for(side.config)
        trainer_loader(side.spec)(trainer).check(side.spec.environments[0], frozenset(config))
    check_shareable([side.spec for side in sides])
    with ExitStack() as stack:
        opened = [
            stack.enter_context(closing(Runs(side, folder / "runs" / side.key, block)))
            for side, block in zip(sides, blocks, strict=True)
        ]
        shared = stack.enter_context(closing(SharedExecutor()))
        workers = shared_workers([side.spec for side in sides], workers)
        views = views_of(shared, opened, workers)
        for runs in opened:
            runs.begin()
        yield TrainedBench(opened, shared, views)


def describe(side: Side, block: int) -> dict[str, Any]:
    """Describe a side, so that `side_again` makes it again."""
    names = ("label", "key", "content", "code", "root", "config", "facts")
    return {name: plain(getattr(side, name)) for name in names} | {"block": block}


def side_again(described: Mapping[str, Any], folder: Path) -> Side:
    """Make the side that was described.

    Raises:
        InputError: its code has changed since.
    """
    with open_record(folder / "runs" / described["key"]) as record:
        spec = record.spec
    values = described["config"]  # a command has none
    config = spec.search_space.config(values) if values else Config()
    side = Side(described["label"], spec, config, described["code"], described["root"])
    if side.content != described["content"]:
        raise InputError(
            f"the files of the baseline {side.label} have changed since it was measured: judge "
            "revisions, which are kept",
            file=str(folder),
        )
    return side
