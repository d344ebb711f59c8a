"""The contract of RLHF tasks: `Signal` scores completions, `Task` is built offline.

A task names three things that most tools confuse: the signal a policy is *trained* on (a proxy),
the metric a study *selects* by, and the metric it *reports*. Optimising a proxy hard makes the
true reward fall [Gao2023], so a study that selects by its own training signal picks the worst
configuration it has seen.

References:
    [Gao2023] Gao, Schulman and Hilton, "Scaling Laws for Reward Model Overoptimization", 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from autorl.core.types import FrozenMap, InputError, SeedRole

Pair: TypeAlias = tuple[str, str, str]
"""prompt, chosen completion, rejected completion."""

DATA_NOTE = "data: "
"""How a note on a task's data begins."""

COLLAPSE = "collapse: "
"""How a note on a run that was stopped because it collapsed begins."""

INSTANCE = "instance"
"""The option every task has: the seed of the task itself."""

Signal: TypeAlias = Callable[[Sequence[str], Sequence[str]], list[float]]
"""Scores n completions, given with their prompts: larger is better."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """One instance of a task, on disk and in memory.

    Attributes:
        reference: folder of the reference policy and its tokenizer. `from_pretrained` reads both
            without a network.
        prompts, pairs: for training. `pairs` is empty where the task has none.
        completions, labelled: (prompt, completion) to imitate, and (prompt, completion, wanted) to
            learn from, where a task has them apart from its pairs. The prompt is "" for plain text.
        held_out, held_out_pairs, held_out_completions: for evaluation only, disjoint from those.
        test_pairs, test_completions: what test seeds are evaluated on. Each role has
            its own half of `held_out`.
        groups: of each held-out prompt, empty where prompts are in none.
        max_completion: most tokens of a completion, end of sequence included.
        signals: every reward by name, e.g. `proxy` and `gold`.
        training: the signal a policy is trained on.
        selection: the metric a study selects by unless it says otherwise. To select by the training
            signal it must say so.
        report: the metric results are reported in. Win rates are by this signal where it is one.
        ensemble: signals that `reward.rule` puts together unless `reward.signals` names others.
            Empty: none.
        notes: what a reader of the results must know of the data, e.g. how many rows were left out.
        probe: further metrics of a policy that no signal gives (greedy accuracy, pass@k). It is
            called with the policy, the tokenizer, held-out prompts and a seed.
    """

    name: str
    reference: Path
    prompts: tuple[str, ...]
    held_out: tuple[str, ...]
    max_completion: int
    signals: Mapping[str, Signal]
    training: str
    selection: str
    report: str
    pairs: tuple[Pair, ...] = ()
    held_out_pairs: tuple[Pair, ...] = ()
    test_pairs: tuple[Pair, ...] = ()
    completions: tuple[tuple[str, str], ...] = ()
    labelled: tuple[tuple[str, str, bool], ...] = ()
    held_out_completions: tuple[tuple[str, str], ...] = ()
    test_completions: tuple[tuple[str, str], ...] = ()
    groups: Mapping[str, str] = field(default_factory=FrozenMap)
    ensemble: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    probe: Callable[[Any, Any, Sequence[str], int], dict[str, float]] | None = None

    def pairs_of(self, role: SeedRole) -> tuple[Pair, ...]:
        """Return the pairs that seeds of a role are evaluated on."""
        return self.test_pairs if role == "test" else self.held_out_pairs


class Task:
    """A task by name, described before it is built.

    Attributes:
        options: the knobs of the task with their defaults, e.g. `pairs: 512`, `flips: 0.2`.
        training, selection, report: as in `Built`.
        signals: names of the signals a built task has.
        probed: names of the measurements of its `probe`.
        ensemble: as in `Built`.
        kinds: kinds of its training data, as `check` returns them.
        verifiable: what is trained on is a checked answer, which nothing can over-optimise.
    """

    name = ""
    # shared by all subclasses, so nobody may write to it
    options: Mapping[str, Any] = MappingProxyType({})
    training = ""
    selection = ""
    report = ""
    signals: Sequence[str] = ()
    probed: Sequence[str] = ()
    ensemble: Sequence[str] = ()
    kinds: Sequence[str] = ("prompts",)
    verifiable = False

    def with_options(self, options: Mapping[str, object]) -> Task:
        """Return the task whose names are those these options make.

        Nothing is built, and no value is checked (`check`).
        """
        return self

    def check(self, options: Mapping[str, object]) -> Sequence[str]:
        """Check the options before a study.

        Returns:
            Some of `prompts`, `pairs`, `labelled`, `completions`.

        Raises:
            InputError: the options cannot be built.
        """
        self.resolved(options)
        return self.kinds

    def resolved(self, options: Mapping[str, object]) -> dict[str, Any]:
        """Return the defaults of the options with those given on top.

        Raises:
            InputError: an option the task does not have, or a value out of range.
        """
        for option in options:
            if option not in self.options:
                allowed = ", ".join((INSTANCE, *self.options))
                raise InputError(
                    f"{self.name} has no option {option!r}; allowed: {allowed}",
                    key="environment.kwargs",
                )
        chosen = {**self.options, **options}
        self.check_values(chosen)
        return chosen

    def check_values(self, chosen: Mapping[str, object]) -> None:
        """Raise `InputError` for a value out of range.

        `chosen` has every option.
        """

    def notes(self, options: Mapping[str, object]) -> Sequence[str]:
        """Return `Built.notes` before anything is built."""
        return ()

    def build(self, instance: int, folder: Path, **options: Any) -> Built:
        """Build the task's instance, a function of (instance, options) alone.

        An instance that was built before is read from `folder`.

        Raises:
            InputError: an option is unknown or out of range.
        """
        raise NotImplementedError

    def built(self, **fields: Any) -> Built:
        """Make an instance, which has the names of the task."""
        names = ("name", "training", "selection", "report", "ensemble")
        return Built(**{name: getattr(self, name) for name in names} | fields)


def without_instance(kwargs: Mapping[str, object]) -> dict[str, Any]:
    """Return the options of a task among the arguments of its environment."""
    return {name: value for name, value in kwargs.items() if name != INSTANCE}
