"""The training signal of a run as hyperparameters.

Any of them can be searched.

    reward.signals: [proxy, "my_rewards:brevity"]       # of the task, or functions
    reward.rule: uwo                   # over those: mean · wco · uwo (reward.weight: of the
                                       # variance); without reward.signals over the ensemble of
                                       # the task
    reward.process: "autorl.trainers.language.tasks.sorting:steps"
                                       # process rewards, a list per completion
    reward.process_weight: 0.5         # of their sum; reward.process_clip: threshold of Clip
    reward.process_separator: " "      # the rewards come at the end of each step, and
                                       # reward.process_delta: true is Delta (a trainer that takes
                                       # rewards at each step)
    reward.length_limit: 12            # soft overlong penalty, in tokens as the metric `length`;
                                       # reward.length_buffer (tokens), reward.length_weight
    reward.length.at_most: 8.0         # constraints on a signal's mean, by Lagrangian multipliers;
    reward.gold.at_least: 0.2          # `length` (tokens) is there in every task;
                                       # reward.lagrange_rate, reward.lagrange_ceiling

`RewardOptions.read` is the one place where these names are read. An option that is not given is
left out: without options the signal is the task's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from autorl.core.types import InputError
from autorl.trainers.language.contract import Built, Signal
from autorl.trainers.language.models import load_tokenizer
from autorl.trainers.language.rewards.composition import (
    Constrained,
    Kind,
    StepRewards,
    at_steps,
    ensemble,
    with_length,
    with_process,
)
from autorl.trainers.language.rewards.user_signals import UserFunction, UserSignal

PREFIX = "reward."
_SIGNALS = f"{PREFIX}signals"
_PLAIN = (
    *("signals", "rule", "weight", "process", "process_weight", "process_clip"),
    *("process_separator", "process_delta"),
    *("length_limit", "length_buffer", "length_weight", "lagrange_rate", "lagrange_ceiling"),
)
_NEEDS = {  # option -> the one it is nothing without
    "weight": "rule",
    **dict.fromkeys(("process_weight", "process_clip", "process_separator"), "process"),
    "process_delta": "process_separator",
    **dict.fromkeys(("length_buffer", "length_weight"), "length_limit"),
}
CHANGES = tuple(  # may change while a run goes on; which signals and limits there are may not
    f"{PREFIX}{name}" for name in _PLAIN if name not in ("signals", "process")
)


def is_option(name: str) -> bool:
    """Whether a hyperparameter is one of the reward, not of the trainer."""
    return name.startswith(PREFIX)


def without(options: Mapping[str, object]) -> dict[str, Any]:
    """Return the hyperparameters of the trainer alone."""
    return {name: value for name, value in options.items() if not is_option(name)}


@dataclass(frozen=True)
class RewardOptions:
    """The reward options among hyperparameters.

    Attributes:
        plain: values by names without the prefix, e.g. `length_limit`.
        limits: the threshold of each constraint, by (signal, kind), in the order of their names.
    """

    plain: Mapping[str, Any]
    limits: Mapping[tuple[str, Kind], Any]

    @classmethod
    def read(cls, hyperparameters: Mapping[str, Any]) -> RewardOptions:
        """Read the options among the hyperparameters of a run."""
        plain: dict[str, Any] = {}
        limits: dict[tuple[str, Kind], Any] = {}
        # the order of constraints is that of names, whatever the order of a file
        for name in sorted(filter(is_option, hyperparameters)):
            option = name.removeprefix(PREFIX)
            # from the right: a signal's name may have dots
            signal, _, ending = option.rpartition(".")
            if signal and ending in get_args(Kind):
                kind: Kind = "at_least" if ending == "at_least" else "at_most"
                limits[signal, kind] = hyperparameters[name]
            else:
                plain[option] = hyperparameters[name]
        return cls(plain, limits)

    def trained_on(self, training: str, ensemble: Collection[str] = ()) -> frozenset[str]:
        """Return the signals trained on.

        They are those put together, and those that are constrained.

        A study must not select by one of them.

        Args:
            training: signal of the task.
            ensemble: signals of the task.
        """
        constrained = (signal for signal, _ in self.limits)
        return frozenset({*self._parts(training, ensemble), *constrained})

    def signal(self, built: Built) -> Signal:
        """Put the training signal of a run together.

        With constraints it is a `Constrained` one. Rewards at each step are no part of it.

        Raises:
            InputError: see `check`; or a value is out of range, or a function cannot be imported.
        """
        self.check(built.signals)
        values = self.plain
        parts = [_signal(built, name) for name in self._parts(built.training, built.ensemble)]
        reward = ensemble(parts, values.get("rule", "mean"), values.get("weight", 0.5))
        if "process" in values and "process_separator" not in values:
            process = UserFunction(values["process"], f"{PREFIX}process")
            weight = values.get("process_weight", 1.0)
            reward = with_process(reward, process, weight, values.get("process_clip"))
        if "length_limit" in values:
            limit = values["length_limit"]
            buffer = values.get("length_buffer", max(1, limit // 4))
            weight = values.get("length_weight", 1.0)
            reward = with_length(reward, limit, buffer, weight, _token_counter(built))
        if not self.limits:
            return reward
        signals = {**built.signals}
        # a signal of the task that is called so comes before ours
        if "length" not in signals and any(signal == "length" for signal, _ in self.limits):
            count = _token_counter(built)
            signals["length"] = lambda _, texts: [float(count(text)) for text in texts]
        # last: the objective under constraints is the reward with its penalties
        return Constrained(
            reward,
            signals,
            {place: float(limit) for place, limit in self.limits.items()},
            learning_rate=values.get("lagrange_rate", 0.1),
            ceiling=values.get("lagrange_ceiling", 10.0),
        )

    def step_rewards(self) -> StepRewards | None:
        """Return the rewards at each step, None without a separator.

        Raises:
            InputError: a value is out of range, or the function cannot be imported.
        """
        values = self.plain
        if "process_separator" not in values:
            return None
        separator = values["process_separator"]
        if not isinstance(separator, str) or not separator:
            raise InputError(
                f"expected the text between two steps, got {separator!r}",
                key=f"{PREFIX}process_separator",
            )
        return at_steps(
            UserFunction(values["process"], f"{PREFIX}process"),
            separator,
            values.get("process_weight", 1.0),
            values.get("process_clip"),
            values.get("process_delta", False),
        )

    def check(
        self,
        signals: Collection[str],
        ensemble: Collection[str] | None = None,
        *,
        stepwise: bool = True,
    ) -> None:
        """Check the names of the options, whatever their values.

        Args:
            signals: of the task.
            ensemble: of the task. None: it is not asked whether a rule has anything to put
                together.
            stepwise: whether the trainer takes rewards at each step.

        Raises:
            InputError: an option does not exist, or needs another that is not given.
        """
        for signal, kind in self.limits:
            if signal not in signals and signal != "length":
                raise InputError(
                    f"no signal {signal!r}; there are {', '.join((*signals, 'length'))}",
                    key=f"{PREFIX}{signal}.{kind}",
                )
        for option in self.plain:
            problem = self._problem(option, stepwise)
            if problem:
                raise InputError(problem, key=PREFIX + option)
        # None: it is not asked
        if ensemble is None or ensemble or "rule" not in self.plain or "signals" in self.plain:
            return
        raise InputError(
            f"puts several signals together: name them with {_SIGNALS}, or make a task that "
            "has an ensemble (letters-goldproxy: models: 4)",
            key=f"{PREFIX}rule",
        )

    def _problem(self, option: str, stepwise: bool) -> str:
        """Say why a run cannot have an option, empty if it can."""
        if option in ("process_separator", "process_delta") and not stepwise:
            return (
                "is for a reward at each step, and this trainer gets one number per completion, of "
                "which Delta would leave the reward of the first step alone; leave it out, or take "
                "reward.process_clip"
            )
        if option not in _PLAIN:
            allowed = (*_PLAIN, "<signal>.at_most", "<signal>.at_least")
            return f"unknown option; allowed: {', '.join(allowed)}"
        if option in _NEEDS and _NEEDS[option] not in self.plain:
            return f"means nothing without {PREFIX}{_NEEDS[option]}"
        if option.startswith("lagrange_") and not self.limits:
            return "means nothing without a constraint such as reward.length.at_most"
        return ""

    def _parts(self, training: str, ensemble: Collection[str]) -> tuple[str, ...]:
        """Return the signals put together."""
        listed = self.plain.get("signals")
        if listed is None:
            return tuple(ensemble) if ensemble and "rule" in self.plain else (training,)
        return (listed,) if isinstance(listed, str) else tuple(listed)


def maybe_trained_on(
    options: Mapping[str, Any],
    choices: Mapping[str, Collection[Any]],
    training: str,
    ensemble: Collection[str] = (),
) -> frozenset[str]:
    """Return what any run of a study is trained on.

    Each configuration of its space may train on another signal.

    Args:
        options: hyperparameters given to the trainer.
        choices: hyperparameters of the space; the values each can take, none for a number.
        training: signal of the task.
        ensemble: signals of the task.
    """
    listed = (options.get(_SIGNALS), *choices.get(_SIGNALS, ()))
    runs = (RewardOptions.read({**choices, **options, _SIGNALS: signals}) for signals in listed)
    return frozenset().union(*(run.trained_on(training, ensemble) for run in runs))


def _token_counter(built: Built) -> Callable[[str], int]:
    """Return a function that counts tokens as the metric `length` does.

    They are the policy's own, the end of sequence not counted.
    """
    tokenizer = load_tokenizer(built.reference)
    # without a beginning of sequence, which the policy did not write
    return lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"])


def _signal(built: Built, name: str) -> Signal:
    """Return a signal of the task, or the function `module:function`."""
    if ":" in name:
        return UserSignal(name, _SIGNALS)
    if name not in built.signals:
        raise InputError(
            f"no signal {name!r} in {built.name}; there are {', '.join(built.signals)}, or any "
            "`module:function`",
            key=_SIGNALS,
        )
    return built.signals[name]
