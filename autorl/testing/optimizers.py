"""The conformance kit of optimizers: what every optimizer must pass. Needs pytest.

    class TestMine(OptimizerConformance):
        optimizer = "my_package.my_module:MyOptimizer"  # or a registered name
        options = {"population_size": 6}  # small, so that 24 proposals reach every branch

The subclass inherits the tests: bounds and conditions, pending proposals, failures, a kill at every
event, other hash seeds. `proposals` may be lowered for an optimizer that is slow to ask.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pytest

from autorl.core import seeds
from autorl.core.types import (
    Config,
    Done,
    Event,
    Failed,
    FrozenMap,
    InputError,
    Proposal,
    ProposalId,
    Proposed,
    Scored,
    Status,
    Wait,
    freeze,
)
from autorl.optimizers.base import RETRAINS, BaseOptimizer
from autorl.optimizers.registry import describe, find, make
from autorl.space import Space, load_space
from autorl.store.codec import from_json, to_json
from autorl.testing.simulation import Objective, Simulation, replayed, simulate

HORIZON = 100
FAILURES = (Status.CRASH, Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.DIVERGED, Status.LOST)

Definition: TypeAlias = Mapping[str, object]
"""A search space as its YAML file has it."""

UNIT = {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.75}
RATE = {"type": "float", "lower": 1e-5, "upper": 1e-1, "scale": "log", "default": 3e-4}
GAMMA = {"type": "float", "lower": 0.8, "upper": 0.9999, "scale": "flipped_log", "default": 0.99}
SIZE = {"type": "int", "lower": 1, "upper": 64, "scale": "log", "default": 16}
LETTERS = {"type": "categorical", "choices": ["p", "q", "r"]}
SPACES: Mapping[str, Definition] = {
    "continuous": {"hyperparameters": {"x": UNIT, "y": UNIT, "z": UNIT}},
    # Every type on every scale.
    "types": {
        "hyperparameters": {
            "rate": RATE,
            "gamma": GAMMA,
            "layers": {"type": "int", "lower": 1, "upper": 4, "default": 2},
            "batch": {"type": "int", "lower": 8, "upper": 1024, "scale": "log", "default": 64},
            "activation": {"type": "categorical", "choices": ["relu", "tanh"]},
            # Lists, which are frozen as tuples in a configuration.
            "net_arch": {"type": "categorical", "choices": [[64], [64, 64], [256, 256]]},
            "normalize": {"type": "categorical", "choices": [True, False]},
            "width": {"type": "ordinal", "choices": [16, 32, 64, 128], "default": 64},
            # Nothing to search: models must not be given such a coordinate.
            "only": {"type": "categorical", "choices": ["one"]},
            "fixed": {"type": "constant", "value": 7},
        }
    },
    # A condition on a hyperparameter that has one itself.
    "conditional": {
        "hyperparameters": {
            "kind": {"type": "categorical", "choices": ["a", "b"]},
            "x": UNIT,
            "a.depth": {"type": "int", "lower": 1, "upper": 9, "default": 3},
            "a.mode": {"type": "categorical", "choices": ["u", "v"]},
            "a.v.rate": {**RATE, "lower": 1e-4, "upper": 1.0, "default": 0.01},
            "b.width": UNIT,
        },
        "conditions": {
            "a.depth": "kind == 'a'",
            "a.mode": "kind == 'a'",
            "a.v.rate": "a.mode == 'v'",
            "b.width": "kind == 'b'",
        },
    },
    # Nearly half of all draws break the rule.
    "constrained": {
        "hyperparameters": {
            "n": SIZE,
            "m": {**SIZE, "default": 4},
            "c": LETTERS,
            "d": LETTERS,
            "x": UNIT,
        },
        "forbidden": [{"c": "p", "d": "q"}],
        "constraints": ["m <= n"],
    },
}


def space_of(name: str) -> Space:
    """Load one of the kit's spaces: continuous, types, conditional, constrained."""
    return load_space(SPACES[name])


def score(space: Space) -> Callable[[ProposalId, Proposal], float]:
    """Make a smooth objective that grows with the length of a run.

    It is best where every active coordinate is 0.3 in the unit cube.
    """

    def objective(number: ProposalId, proposal: Proposal) -> float:
        unit = space.to_unit(proposal.config)
        return proposal.until / HORIZON - float(np.nansum((unit - 0.3) ** 2))

    return objective


def two_scores(space: Space) -> Callable[[ProposalId, Proposal], tuple[float, ...]]:
    """Make two objectives in conflict."""

    def objective(number: ProposalId, proposal: Proposal) -> tuple[float, ...]:
        unit = space.to_unit(proposal.config)
        return -float(np.nansum((unit - 0.2) ** 2)), -float(np.nansum((unit - 0.8) ** 2))

    return objective


def some_fail(number: ProposalId, proposal: Proposal) -> Status | None:
    """Fail in every way, at the first proposals without a penalty too."""
    return FAILURES[number % len(FAILURES)] if number < 2 or number % 5 == 3 else None


def all_fail(number: ProposalId, proposal: Proposal) -> Status:
    return FAILURES[number % len(FAILURES)]


def fingerprint(optimizer: str, options: Mapping[str, object], space: str, n: int) -> str:
    """Play a small study with failures and return its history as text."""
    made = space_of(space)
    factory = _factory(optimizer, made, options)
    return simulate(factory, score(made), n, lag=3, fail=some_fail).fingerprint()


def fingerprint_elsewhere(*study: object) -> str:
    """Take a study's fingerprint in a process with another hash seed.

    The process serves all tests that ask for one: starting it costs more than a small study.

    Raises:
        AssertionError: the study failed there, with its traceback.
    """
    process = _other_process()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([sys.path, study]) + "\n")
    process.stdin.flush()
    answer, problem = json.loads(process.stdout.readline() or '["", "the process has ended"]')
    assert not problem, problem
    return str(answer)


@functools.cache
def _other_process() -> subprocess.Popen[str]:
    """Start a process that answers until this one ends."""
    return subprocess.Popen(
        [sys.executable, "-c", _ANSWER],
        env={
            **os.environ,
            "PYTHONHASHSEED": "4711",  # sets of texts have another order there
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


_ANSWER = """
import json, os, sys, traceback
from autorl.testing.optimizers import fingerprint

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what a library prints is no answer
for line in sys.stdin:
    path, study = json.loads(line)
    sys.path[:] = path
    try:
        answer = [fingerprint(*study), ""]
    except Exception:
        answer = ["", traceback.format_exc()]
    print(json.dumps(answer), file=answers, flush=True)
"""


def assert_alike(mine: Sequence[float], theirs: Sequence[float], level: float = 1e-3) -> None:
    """Assert that two samples of best scores come from one distribution.

    By a two-sided Mann-Whitney test. With 24 repeats on each side and level 1e-3, a shift of 1.35
    standard deviations is found in 9 of 10 cases. Give the original library the same function,
    first configuration and budget.

    Args:
        mine: the best score of each repeat.
        theirs: the best scores of the original library.
        level: the false-alarm rate over seeds.
    """
    from scipy.stats import mannwhitneyu

    p = mannwhitneyu(mine, theirs, alternative="two-sided").pvalue
    assert p > level, (
        f"p = {p:.1e}; medians {np.median(mine):.4g} (ours), {np.median(theirs):.4g} (original)"
    )


def _factory(
    optimizer: str,
    space: Space,
    options: Mapping[str, object],
    n_objectives: int = 1,
    initial: Sequence[Config] = (),
) -> Callable[[], BaseOptimizer[Any]]:
    # An optimizer of full-length runs continues none, so nothing may change along one.
    changeable = frozenset(space.names) if find(optimizer).partial else frozenset()
    return lambda: make(
        optimizer,
        space,
        horizon=HORIZON,
        budget=40,
        n_objectives=n_objectives,
        changeable=changeable,
        initial=initial,
        **options,
    )


class OptimizerConformance:
    """Tests an optimizer that a subclass names.

    Attributes:
        optimizer: its name in a study file: registered, or `module:Class`.
        options: as in a study file; small, so that few proposals reach every branch.
        proposals: how many each test asks for.
    """

    optimizer: ClassVar[str]
    options: ClassVar[Mapping[str, Any]] = {}
    proposals: ClassVar[int] = 24

    def factory(
        self, space: Space, *, n_objectives: int = 1, initial: Sequence[Config] = ()
    ) -> Callable[[], BaseOptimizer[Any]]:
        return _factory(self.optimizer, space, self.options, n_objectives, initial)

    def run(self, space: Space, n: int | None = None, **how: Any) -> Simulation:
        """Play it against `score`, with the options of `simulate`."""
        count = self.proposals if n is None else n
        return simulate(self.factory(space), score(space), count, **how)

    def _replays(
        self, factory: Callable[[], BaseOptimizer[Any]], objective: Objective, **how: Any
    ) -> None:
        """Assert that a study killed at every event equals a whole one."""
        uninterrupted = simulate(factory, objective, self.proposals, **how)
        killed = simulate(factory, objective, self.proposals, kill=True, **how)
        assert killed.fingerprint() == uninterrupted.fingerprint()

    def test_it_declares_what_it_is(self) -> None:
        described = describe(self.optimizer)
        assert described.summary.endswith("."), "the first line of the docstring is its summary"
        assert all(option.help and option.allowed for option in described.options)

    @pytest.mark.parametrize("lag", [1, 8])  # one at a time, and as many as a study has by default
    @pytest.mark.parametrize("name", sorted(SPACES))
    def test_every_proposal_is_valid(self, name: str, lag: int) -> None:
        space = space_of(name)
        for proposal in self.run(space, lag=lag).proposals:
            space.check(proposal.config)
            assert set(proposal.config) == space.active(proposal.config)
            for key, value in proposal.config.items():
                hyperparameter = space.hyperparameters[key]
                expected = {"float": float, "int": int}.get(hyperparameter.type)
                assert expected in (None, type(value)), f"{key}: {value!r}"
                # By `repr`: True equals 1 and is another choice.
                assert not hyperparameter.choices or repr(value) in map(
                    repr, map(freeze, hyperparameter.choices)
                )

    def test_default_then_warm_starts_come_first(self) -> None:
        space = space_of("types")
        warm = space.sample(seeds.generator(1, "noise"))
        # The default and a repetition among them are trained once.
        factory = self.factory(space, initial=(warm, space.default(), warm))
        proposals = simulate(factory, score(space), 6).proposals
        runs = [proposal for proposal in proposals if proposal.resume_from is None]
        assert [run.config for run in runs[:2]] == [space.default(), warm]
        assert [run.origin for run in runs[:2]] == ["default", "warm start"]

    @pytest.mark.parametrize("name", ["types", "conditional"])
    def test_ask_has_no_effect(self, name: str) -> None:
        space = space_of(name)
        plain = self.factory(space)()
        asked = self.factory(space)()
        for event in self.run(space, lag=2, fail=some_fail).events:
            if isinstance(event, Proposed):
                # Twice, and once with another stream: what an ask remembers would show in the next.
                answers = [asked.ask(seeds.generator(0, "ask", event.id)) for _ in range(2)]
                asked.ask(seeds.generator(99, "noise", event.id))
                assert answers == [plain.ask(seeds.generator(0, "ask", event.id))] * 2
            plain.observe(event)
            asked.observe(event)
        assert asked.ask(seeds.generator(5, "noise")) == plain.ask(seeds.generator(5, "noise"))

    @pytest.mark.parametrize(
        ("name", "lag"), [("types", 1), ("conditional", 4), ("constrained", 4)]
    )
    def test_killed_at_every_event_equals_uninterrupted(self, name: str, lag: int) -> None:
        space = space_of(name)
        self._replays(self.factory(space), score(space), lag=lag, fail=some_fail)

    @pytest.mark.parametrize(("name", "lag"), [("types", 1), ("conditional", 4)])
    def test_blind_proposals_depend_on_no_outcome(self, name: str, lag: int) -> None:
        space = space_of(name)
        in_time = self.run(space, lag=lag, fail=some_fail).proposals
        # Blind ones are made before the outcomes: neither they nor what follows may change.
        assert self.run(space, lag=lag, fail=some_fail, late=True).proposals == in_time
        optimizer = self.factory(space)()
        blind = [proposal for n, proposal in enumerate(in_time) if optimizer.blind(n)]
        assert all(proposal.parent is None and not proposal.informed for proposal in blind)

    def test_late_and_superseding_outcomes(self) -> None:
        space = space_of("continuous")
        optimizer = self.factory(space)()
        events: list[Event] = []
        rng = seeds.generator(0, "noise", "order")
        waiting: list[Proposed] = []
        for number in range(self.proposals):
            # In any order, at most five in flight.
            while len(waiting) > 4 or isinstance(
                answer := optimizer.ask(seeds.generator(0, "ask", number)), Wait
            ):
                late = waiting.pop(int(rng.integers(len(waiting))))
                # More seeds come in: every score supersedes the one before.
                values = (score(space)(late.id, late.proposal),)
                for n_seeds in range(1, int(rng.integers(2, 4))):
                    reached = late.proposal.until
                    scored = Scored(
                        late.id, (values[0] - 0.01 * n_seeds,), n_seeds=n_seeds, reached=reached
                    )
                    events.append(scored)
                    optimizer.observe(scored)
            if isinstance(answer, Done):
                break
            events.append(Proposed(number, answer))
            optimizer.observe(events[-1])
            waiting.append(Proposed(number, answer))
            fresh = replayed(self.factory(space), events)
            again = seeds.generator(0, "ask", number + 1)
            assert fresh.ask(again) == optimizer.ask(seeds.generator(0, "ask", number + 1))

    @pytest.mark.parametrize("fail", [some_fail, all_fail])
    def test_failures_are_survived_and_never_resumed(
        self, fail: Callable[..., Status | None]
    ) -> None:
        space = space_of("types")
        simulation = self.run(space, lag=2, fail=fail)
        failed = {event.proposal for event in simulation.events if isinstance(event, Failed)}
        assert failed
        assert simulation.done or len(simulation.proposals) == self.proposals
        assert not failed & {proposal.resume_from for proposal in simulation.proposals}

    def test_unresumable_proposals_are_never_resumed(self) -> None:
        space = space_of("continuous")

        def outcome(number: ProposalId, proposal: Proposal) -> Scored:
            values = (score(space)(number, proposal),)
            usable = number % 3 != 1  # a failed seed leaves the others scored, but no donor
            return Scored(number, values, reached=proposal.until, resumable=usable)

        proposals = simulate(self.factory(space), outcome, self.proposals).proposals
        resumed = [p.resume_from for p in proposals if p.resume_from is not None]
        assert all(number % 3 != 1 for number in resumed)

    def test_pending_points_are_not_proposed_again(self) -> None:
        proposals = self.run(space_of("continuous"), lag=8).proposals
        # A schedule that is trained again begins with a configuration that was proposed.
        configs = [p.config for p in proposals if p.resume_from is None and RETRAINS not in p.meta]
        assert len(set(configs)) == len(configs)

    def test_wait_only_for_pending_and_done_for_ever(self) -> None:
        space = space_of("constrained")
        optimizer = self.factory(space)()
        answer: Any = None
        for number in range(self.proposals):
            answer = optimizer.ask(seeds.generator(0, "ask", number))
            if not isinstance(answer, Proposal):
                break
            optimizer.observe(Proposed(number, answer))
        assert not isinstance(answer, Wait) or number > 0  # else it would wait for ever
        if isinstance(answer, Done):
            assert optimizer.ask(seeds.generator(0, "ask", number + 1)) == Done()

    def test_kept_proposals_exist_and_resumed_ones_were_kept(self) -> None:
        space = space_of("continuous")
        optimizer = self.factory(space)()
        resumable: set[ProposalId] = set()
        proposed: set[ProposalId] = set()
        for event in self.run(space, lag=3, fail=some_fail).events:
            if isinstance(event, Proposed):
                assert resumable.issuperset(event.proposal.sources)
                proposed.add(event.id)
            optimizer.observe(event)
            resumable = set(optimizer.keeps())  # other checkpoints are collected
            assert resumable <= proposed

    def test_same_in_processes_with_other_hash_seeds(self) -> None:
        study = (self.optimizer, dict(self.options), "conditional", self.proposals)
        assert fingerprint_elsewhere(*study) == fingerprint(*study)

    def test_events_survive_json_and_cannot_be_changed(self) -> None:
        for event in self.run(space_of("types"), n=min(12, self.proposals)).events:
            assert from_json(json.loads(json.dumps(to_json(event)))) == event
            if isinstance(event, Proposed):
                assert type(event.proposal.config) is Config
                assert type(event.proposal.meta) is FrozenMap
                hash(event.proposal)  # raises where something inside can be changed

    def test_several_objectives(self) -> None:
        space = space_of("types")
        factory = self.factory(space, n_objectives=2)
        # A rule that stops runs compares them by one number.
        if not find(self.optimizer).multi_objective or "stop" in self.options:
            with pytest.raises(InputError, match="one objective"):
                factory()
            return
        self._replays(factory, two_scores(space), lag=3, fail=some_fail)

    def test_constraint_values_are_understood(self) -> None:
        space = space_of("continuous")

        def outcome(number: ProposalId, proposal: Proposal) -> Scored | Failed:
            if number % 6 == 2:
                # At first no score is known to make a penalty of.
                return Failed(number, Status.CRASH, (-1.0,) if number > 3 else ())
            broken = (proposal.config["x"] - 0.5, 0.1 - proposal.config["y"])
            values = (score(space)(number, proposal),)
            return Scored(number, values, reached=proposal.until, constraints=broken)

        self._replays(self.factory(space), outcome)

    def test_scores_that_are_not_finite_are_refused(self) -> None:
        optimizer = self.factory(space_of("continuous"))()
        answer = optimizer.ask(seeds.generator(0, "ask", 0))
        assert isinstance(answer, Proposal)
        optimizer.observe(Proposed(0, answer))
        with pytest.raises(AssertionError, match="not finite"):
            optimizer.observe(Scored(0, (float("nan"),)))

    def test_unknown_options_are_refused(self) -> None:
        with pytest.raises(InputError, match="unknown option"):
            make(self.optimizer, space_of("continuous"), horizon=HORIZON, no_such_option=1)
