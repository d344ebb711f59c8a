"""What every RLHF trainer shares: its task, its guard, and which metrics a study may not select by."""

from __future__ import annotations

import resource
import sys
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from autorl.rlhf import reward_options
from autorl.rlhf.measures import JUDGED, REFERENCE, judge
from autorl.rlhf.task import Built, Task, build, task, tasks
from autorl.trainers._shared import check_continuation
from autorl.trainers.contract import Change, FixedValue
from autorl.trainers.trl import checkpoint
from autorl.trainers.trl.guard import PATIENCE, Guard
from autorl.types import Config, EnvironmentSpec, InputError, Segment, TrainerSpec

OPTIONS = ("guard", "data", "device")  # of a trainer, beside hyperparameters
_ALIASES = {
    "gamma_ratio": ("simpo_gamma",),
    "simpo_gamma": ("gamma_ratio",),
    "loss_weights": ("sft_weight",),
    "sft_weight": ("loss_weights",),
}
"""Options that say the same thing as another hyperparameter."""
_NEVER = ("loss", "train_loss", "reward")


class RLHFTrainer:
    """The part of an RLHF trainer that does not train.

    Options (`trainer.kwargs`): any hyperparameter (a default under the configuration), those of the training signal
    among them (`reward.rule`, `reward.length.at_most`, ...; see `autorl.rlhf.reward_options`); `guard` (stop a run once
    its training signal rose and its held-out score fell this many evaluations in a row; default 3, 0 = never),
    `device` (`cpu`, the default, or `auto`).
    """

    def __init__(self, spec: TrainerSpec) -> None:
        self.name = spec.name.partition("/")[2]
        self.kwargs = spec.kwargs
        self.patience: int = spec.kwargs.get("guard", PATIENCE)
        if (
            isinstance(self.patience, bool)
            or not isinstance(self.patience, int)
            or self.patience < 0
        ):
            raise InputError(
                f"expected a whole number, got {self.patience!r}", key="trainer.kwargs.guard"
            )
        if spec.kwargs.get("device", "cpu") not in ("cpu", "auto"):
            raise InputError(
                f"expected cpu or auto, got {spec.kwargs['device']!r}", key="trainer.kwargs.device"
            )

    @property
    def preload(self) -> tuple[str, ...]:
        return ("autorl.trainers.trl.preload",)

    @property
    def scores(self) -> bool:
        """Whether it trains on a reward: what it samples is scored."""
        return True

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of data any of which it can be trained on; see `autorl.rlhf.task.Task.check`."""
        return ("prompts",)

    @property
    def policies(self) -> bool:
        """Whether it trains a policy, not a reward model."""
        return True

    @property
    def cuda(self) -> bool:
        return bool(self.kwargs.get("device", "cpu") == "auto")

    @property
    def defaults(self) -> dict[str, Any]:
        """Hyperparameters given as options."""
        return {name: value for name, value in self.kwargs.items() if name not in OPTIONS}

    def fixed_values(self) -> tuple[FixedValue, ...]:
        """What its options fix; generation options of a library overrule hyperparameters of the same name."""
        given = [
            FixedValue(name, (name, *_ALIASES.get(name, ())), value)
            for name, value in self.defaults.items()
        ]
        nested = self.defaults.get("generation_kwargs") or {}
        given += [
            FixedValue(f"generation_kwargs.{name}", (name,), value, fills_in=False)
            for name, value in nested.items()
        ]
        if self.defaults.get("use_kl") is False:
            given.append(FixedValue("use_kl", ("beta",), fills_in=False))
        return tuple(given)

    def guard(
        self, built: Built, values: Mapping[str, Any], history: Sequence[Sequence[float]]
    ) -> Guard:
        """What stops a run with these hyperparameters: it watches a signal the run is trained on, so where a method
        learns from data there is none, and no run is stopped.
        """
        trained_on = (
            reward_options.trained_on(values, built.training, built.ensemble)
            if self.scores
            else frozenset()
        )
        signal = (
            built.training
            if built.training in trained_on
            else min(built.signals.keys() & trained_on, default="")
        )
        return Guard(self.patience, signal, built.selection, history)

    def check(self, environment: EnvironmentSpec, hyperparameters: Collection[str]) -> None:
        """The task must exist with these options and what the method learns from, and every name be one it has."""
        found = find_task(environment)
        there = found.check(without_instance(environment.kwargs))
        names = {*hyperparameters, *self.defaults}
        reward_options.check(names, found.signals, found.ensemble)
        own = {name for name in names if not reward_options.is_option(name)}
        if own != names and not self.scores:
            raise InputError(
                f"trl/{self.name} learns from data: it has no reward to change",
                key=min(names - own),
            )
        if self.scores and found.training not in found.signals:
            raise InputError(
                f"trl/{self.name} is trained on a reward: expected one of {', '.join(found.signals) or 'the signals'}, "
                f"got {found.training!r}",
                key="environment.kwargs.training",
            )
        try:
            self.check_names(own)
        except InputError as error:
            key = f"trainer.kwargs.{error.key}" if error.key in self.defaults else error.key
            raise InputError(error.message, key=key) from None
        try:
            self.check_fixed(reward_options.without(self.defaults), hyperparameters)
        except InputError as error:
            raise InputError(
                error.message, key=f"trainer.kwargs.{error.key}".removesuffix(".space")
            ) from None
        if not set(self.kinds) & set(there):
            raise InputError(
                f"trl/{self.name} is trained on {' or '.join(self.kinds)}; {found.name} has {', '.join(there)}",
                key="environment",
            )

    def reported_metrics(self, environment: EnvironmentSpec) -> Collection[str]:
        found = find_task(environment)
        by = judge(found)
        if not self.policies:
            return {
                "pair_accuracy",
                "pair_margin",
                "pair_ties",
                "tokens",
                *(("best_of_16",) if by else ()),
            }
        known = {*found.signals, *found.probed, "kl", "length", "truncated", "distinct", "tokens"}
        known |= {"win_rate", REFERENCE + by} if by else set()
        known |= {"reward_zero_std"} if self.scores else set()
        if not self.scores:
            there = set(found.check(without_instance(environment.kwargs)))
            known |= {"pair_accuracy", "pair_margin", "pair_ties"} if "pairs" in there else set()
            known |= {"log_likelihood"} if there & {"completions", "labelled"} else set()
        return known

    def data_notes(self, environment: EnvironmentSpec) -> Sequence[str]:
        return find_task(environment).notes(without_instance(environment.kwargs))

    def check_names(self, names: Collection[str]) -> None:
        """Raise `InputError` for a name the method does not have."""
        raise NotImplementedError

    def check_fixed(self, fixed: Mapping[str, Any], free: Collection[str]) -> None:
        """Raise `InputError` for options with which no run could train, whatever the searched ones (`free`) are."""
        raise NotImplementedError

    def check_objective(
        self,
        environment: EnvironmentSpec,
        metrics: Sequence[str],
        choices: Mapping[str, Collection[Any]] = MappingProxyType({}),
    ) -> None:
        """Raise `InputError` if a study would select by what it trains on: the signal itself, or a loss.

        Signals that only some configurations of the space train on are refused too, and so is every model of an
        ensemble: they were fitted to the same comparisons.
        """
        found = find_task(environment)
        trained = reward_options.maybe_trained_on(
            self.defaults, choices, found.training, found.ensemble
        )
        refused = {*trained, found.training, *found.ensemble, *_NEVER}
        refused |= same_sources(environment.kwargs.get("signals"), refused)
        decides = {found.selection: found.selection, **dict.fromkeys(JUDGED, judge(found))}
        other = "another signal" if decides[found.selection] in refused else repr(found.selection)
        for metric in metrics:
            by = decides.get(metric, metric)
            if by in refused:
                what = f"{metric!r} is" if by == metric else f"{metric!r} is by {by!r},"
                raise InputError(
                    f"{what} what {found.name} trains on: selecting by it finds the configuration that exploits "
                    f"it hardest. Select by {other}, or say `allow_proxy_selection: true`",
                    key="objective",
                )


def same_sources(signals: Any, trained: Collection[str]) -> set[str]:
    """Signals a user has named that are a signal trained on by another name, or the function trained on itself."""
    sources = dict(signals) if isinstance(signals, Mapping) else {}
    used = {*trained, *(sources[name] for name in trained if name in sources)}
    return {name for name, source in sources.items() if source in used}


def without_instance(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a task among the arguments of its environment."""
    return {name: value for name, value in kwargs.items() if name != "instance"}


def find_task(environment: EnvironmentSpec) -> Task:
    """The task a study's environment names.

    Raises:
        InputError: it names none there is.
    """
    if environment.id is None:
        raise InputError(f"names no task; there are {', '.join(tasks())}", key="environment")
    return task(environment.id, environment.kwargs)


def build_task(environment: EnvironmentSpec) -> Built:
    """The task built, or read from the cache."""
    return build(find_task(environment).name, environment.kwargs)


def load_parent(
    segment: Segment,
    method: str,
    reference: str,
    values: Mapping[str, Any],
    changes: Mapping[str, Change],
) -> dict[str, Any] | None:
    """What the parent's checkpoint says of itself, checked; None for a run from scratch.

    Raises:
        InputError: it is of another method, reference policy or step, or fixes a hyperparameter that differs.
    """
    if segment.parent is None:
        return None
    state = checkpoint.load_state(segment.parent, method, reference)
    check_continuation(state["values"], Config(values), changes)
    if state["step"] != segment.start:
        raise InputError(
            f"checkpoint is at step {state['step']}, segment {segment.id!r} starts at {segment.start}"
        )
    return state


def peak_memory_mb() -> float:
    """Most resident memory this process has had, in MiB; segments have a process each."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
