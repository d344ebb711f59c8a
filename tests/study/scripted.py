"""Optimizers that follow a script, a trainer whose curve is a function, and an executor that returns in any order."""

from __future__ import annotations

import json
from pathlib import Path

from small_studies import recorded

import autorl.study.study as study_module
from autorl.core.types import (
    Checkpoint,
    Config,
    Continue,
    Done,
    FrozenMap,
    Outcome,
    Proposal,
    Proposed,
    Report,
    Status,
)
from autorl.executors import InProcess
from autorl.executors.worker import run_segment
from autorl.store.checkpoints import writing
from autorl.study import Study
from autorl.study.spec import load_spec
from autorl.trainers.contract import AnyChange, Trainer

SPACE = {
    "hyperparameters": {
        "x": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.5},
        "y": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.5, "changeable": True},
    }
}


def toy_spec(**changes):
    """8 full runs of 100 steps with one tuning seed and no test seeds; `changes` are keys of the study file.

    Runs that the script leaves out are not trained: no baseline is added unless `test` says so.
    """
    study = {
        "trainer": "toy",
        "space": SPACE,
        "fidelity": {"steps": 100, "evaluations": 2, "episodes": 1},
        "budget": {"runs": 8},
        "seeds": {"tuning": 1, "test": 0},
        "optimizer": "random",
        "parallelism": 3,
        "executor": {"name": "in_process"},
        "test": {"top": 0},
    }
    study |= changes
    return load_spec(study | {"test": {"baseline": False, **study["test"]}})


class Toy(Trainer):
    """Reports `curve(config, seed, step)`. `before(segment)` may raise, or return a status to end with.

    A checkpoint holds the lineage that wrote it: [segment, fork, configuration] from scratch to its end.
    """

    changes = AnyChange()

    def __init__(
        self, curve=lambda config, seed, step: config["x"] * step / 100, before=lambda segment: None
    ):
        self.curve, self.before = curve, before
        self.segments = []

    def train(self, segment, report):
        self.segments.append(segment)
        lineage = [] if segment.parent is None else self.lineage(segment.parent)
        lineage.append([segment.id, segment.fork, dict(segment.config)])
        status = self.before(segment) or Status.DONE
        cost = {"environment_steps": float(segment.until - segment.start), "wall_seconds": 0.0}
        if status.failed:
            return Outcome(
                segment.id, status, segment.start, cost=cost, message=f"told to be {status.value}"
            )
        reports = tuple(self._report(segment, step) for step in segment.evaluate_at)
        checkpoint = None
        if segment.save:
            with writing(segment) as folder:
                (folder / "lineage.json").write_text(json.dumps(lineage))
            checkpoint = Checkpoint(segment.id, segment.folder)
        return Outcome(
            segment.id, status, segment.until, reports, cost, checkpoint, dict(segment.config)
        )

    def _report(self, segment, step):
        value = self.curve(segment.config, segment.seed, step)
        return Report(
            segment.id, step, value if isinstance(value, dict) else {"eval_return": float(value)}
        )

    def lineage(self, checkpoint):
        return json.loads((Path(checkpoint.path) / "lineage.json").read_text())


class Scripted:
    """Answers with `answer(number, seen)`, `seen` being every event observed; `calls` records all that happened.

    Calls: ("ask", number of the proposal, first draw of the generator), ("propose", number), ("told", proposal).
    """

    partial = True

    def __init__(self, answer, keeps=lambda seen: ()):
        self.calls, self.seen = [], []
        self._answer, self._keeps = answer, keeps
        self.count = 0

    def ask(self, rng):
        self.calls.append(("ask", self.count, float(rng.random())))
        return self._answer(self.count, self.seen)

    def observe(self, event):
        self.seen.append(event)
        if isinstance(event, Proposed):
            self.count += 1
            self.calls.append(("propose", event.id))
        else:
            self.calls.append(("told", event.proposal))

    def keeps(self):
        return self._keeps(self.seen)

    @property
    def told(self):
        return {event.proposal: event for event in self.seen if not isinstance(event, Proposed)}

    @property
    def order(self):
        """Calls without the draws."""
        return [call[:2] for call in self.calls]


def full(x, until=100, **more):
    return Proposal(Config({"x": x, "y": 0.5}), until, **more)


def listed(*proposals):
    """A script that proposes these, then is done."""
    return lambda number, seen: proposals[number] if number < len(proposals) else Done()


def chain(x, until, parent=None, member=None, y=0.5, **meta):
    """A proposal that goes on with `parent`, a number, or takes over an agent, an `Exploit`."""
    if isinstance(parent, int):
        parent = Continue(parent)
    return Proposal(
        Config({"x": x, "y": y}),
        until,
        parent,
        member,
        "scripted",
        FrozenMap(meta),
        retain=member is not None,
    )


class Shuffled:
    """Trains what it is given at once and hands the outcomes out one by one, in an order drawn from `rng`."""

    slots = 64

    def __init__(self, load, rng):
        self._load, self._rng, self._done = load, rng, []
        self.handed_out = []

    def submit(self, segments):
        self._done += [
            run_segment(self._load, segment, lambda report: None) for segment in segments
        ]

    def poll(self, timeout):
        if not self._done:
            return []
        outcome = self._done.pop(int(self._rng.integers(len(self._done))))
        self.handed_out.append(outcome.segment)
        return [outcome]

    def cancel(self, segment):
        self._done = [outcome for outcome in self._done if outcome.key != segment.key]

    def close(self):
        self._done.clear()


def study_with(monkeypatch, spec, optimizer, trainer=None, folder=None):
    """A study that asks `optimizer` (an object, or a function that makes one) and trains with `trainer`."""
    make = optimizer if not hasattr(optimizer, "ask") else lambda: optimizer
    monkeypatch.setattr(study_module, "make_optimizer", lambda spec, load: make())
    trainer = trainer or Toy()

    def load(trainer_spec):
        return trainer

    if folder is None:
        return Study.in_memory(spec, load)
    if (folder / "study.yaml").exists():
        return Study.open(folder, load)
    return Study.create(spec, folder, load)


def run(study):
    return study.run(executor=InProcess(study.load))


def tables(study):
    """Everything recorded, except seconds."""
    return recorded(study.store.query)
