"""The training signal of a run as hyperparameters.

Any of them can be searched.

    reward.signals: [proxy, "my_rewards:brevity"]       # of the task, or functions
    reward.rule: uwo                   # over those: mean · wco · uwo (reward.weight: of the
                                       # variance); without reward.signals over the ensemble of
                                       # the task
    reward.process: "autorl.trainers.language.tasks.sorting:steps"
                                       # process rewards, a list per completion
    reward.process_weight: 0.5         # of their sum; reward.process_clip: threshold of Clip
    reward.length_limit: 12            # soft overlong penalty, in tokens as the metric `length`;
                                       # reward.length_buffer (tokens), reward.length_weight
    reward.length.at_most: 8.0         # constraints on a signal's mean, by Lagrangian multipliers;
    reward.gold.at_least: 0.2          # `length` (tokens) is there in every task;
                                       # reward.lagrange_rate, reward.lagrange_ceiling

`RewardOptions.read` is the one place where these names are read. An option that is not given is
left out: without options the signal is the task's own. Every trainer gets one number per
completion, so Delta (`composition.delta`), which is for a reward at each step, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from autorl.core.types import InputError
from autorl.trainers.language.contract import Built, FunctionSignal, Signal
from autorl.trainers.language.models import load_tokenizer
from autorl.trainers.language.rewards.composition import Ensemble, Rule, WithLength, WithProcess
from autorl.trainers.language.rewards.constraints import Constrained, Constraint, Kind
from autorl.trainers.language.rewards.functions import UserFunction, UserSignal, import_function

PREFIX = "reward."
_SIGNALS = f"{PREFIX}signals"
_PROCESS = f"{PREFIX}process"
_PLAIN = (
    *("signals", "rule", "weight", "process", "process_weight", "process_clip"),
    *("length_limit", "length_buffer", "length_weight", "lagrange_rate", "lagrange_ceiling"),
)
_NEEDS = {  # option -> the one it is nothing without
    "weight": "rule",
    **dict.fromkeys(("process_weight", "process_clip"), "process"),
    **dict.fromkeys(("length_buffer", "length_weight"), "length_limit"),
}
_OF_RUN = "reward of this run"
"""The name of the objective among the signals of a constrained reward."""

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
class OptionNames:
    """The reward options among a set of hyperparameters, without values.

    Attributes:
        plain: names without the prefix, e.g. `length_limit`.
        limits: (signal, kind) of each constraint.
    """

    plain: frozenset[str]
    limits: tuple[tuple[str, Kind], ...]

    @classmethod
    def read(cls, names: Collection[str]) -> OptionNames:
        """Read the names of hyperparameters, including the trainer's."""
        plain: set[str] = set()
        limits: list[tuple[str, Kind]] = []
        # the order of constraints is that of names, whatever the order of a file
        for name in sorted(names):
            if not is_option(name):
                continue
            option = name.removeprefix(PREFIX)
            signal, _, ending = option.rpartition(".")
            # from the right: a signal's name may have dots
            if signal and ending in get_args(Kind):
                kind: Kind = "at_least" if ending == "at_least" else "at_most"
                limits.append((signal, kind))
            else:
                plain.add(option)
        return cls(frozenset(plain), tuple(limits))

    def signals(
        self, listed: str | Sequence[str] | None, training: str, ensemble: Collection[str]
    ) -> frozenset[str]:
        """Return the signals trained on.

        They are those put together, and those that are constrained.

        Args:
            listed: what `reward.signals` says, None where it is not given.
            training: signal of the task.
            ensemble: signals of the task.
        """
        parts = _parts(listed, "rule" in self.plain, training, ensemble)
        return frozenset({*parts, *(signal for signal, _ in self.limits)})


@dataclass(frozen=True)
class ProcessOptions:
    """The options of `reward.process`.

    They are the function, the weight of the sum of its rewards, and Clip's threshold.
    """

    function: str
    weight: float
    threshold: float | None


@dataclass(frozen=True)
class LengthOptions:
    """`reward.length_limit`: the soft overlong penalty, in tokens of the policy."""

    limit: int
    buffer: int
    weight: float


@dataclass(frozen=True)
class RewardOptions:
    """The training signal of a run.

    Attributes:
        names: which options are given.
        signals: to be put together; None: the task's own.
        rule, weight: how several are put together; see `composition.combine`.
        process, length: None: the reward has no such part.
        constraints: on means of signals, in the order of their names.
        lagrange_rate, lagrange_ceiling: learning rate and largest value of their multipliers.
    """

    names: OptionNames
    signals: str | Sequence[str] | None
    rule: Rule
    weight: float
    process: ProcessOptions | None
    length: LengthOptions | None
    constraints: tuple[Constraint, ...]
    lagrange_rate: float
    lagrange_ceiling: float

    @classmethod
    def read(cls, hyperparameters: Mapping[str, Any]) -> RewardOptions:
        """Read the options among the hyperparameters of a run, their values included."""
        names = OptionNames.read(hyperparameters)
        values = {option: hyperparameters[PREFIX + option] for option in names.plain}
        process: ProcessOptions | None = None
        if "process" in values:
            weight = values.get("process_weight", 1.0)
            process = ProcessOptions(values["process"], weight, values.get("process_clip"))
        length: LengthOptions | None = None
        if "length_limit" in values:
            limit = values["length_limit"]
            buffer = values.get("length_buffer", max(1, limit // 4))
            length = LengthOptions(limit, buffer, values.get("length_weight", 1.0))
        return cls(
            names=names,
            signals=values.get("signals"),
            rule=values.get("rule", "mean"),
            weight=values.get("weight", 0.5),
            process=process,
            length=length,
            constraints=tuple(
                Constraint(signal, float(hyperparameters[f"{PREFIX}{signal}.{kind}"]), kind)
                for signal, kind in names.limits
            ),
            lagrange_rate=values.get("lagrange_rate", 0.1),
            lagrange_ceiling=values.get("lagrange_ceiling", 10.0),
        )

    def trained_on(self, training: str, ensemble: Collection[str] = ()) -> frozenset[str]:
        """Return the names of the signals trained on.

        A study must not select by one of them.
        """
        return self.names.signals(self.signals, training, ensemble)

    def signal(self, built: Built) -> Signal:
        """Put the training signal of a run together.

        Returns:
            With constraints a `LearningSignal`.

        Raises:
            InputError: see `check`; or a value is out of range, or a function cannot be imported.
        """
        _check_names(self.names, built.signals)
        with_rule = "rule" in self.names.plain
        listed = _parts(self.signals, with_rule, built.training, built.ensemble)
        parts = [_signal(built, name) for name in listed]
        # of one signal every rule is the signal itself
        reward = parts[0] if len(parts) == 1 else Ensemble(parts, self.rule, self.weight)
        if self.process is not None:
            source = self.process.function
            process = UserFunction(import_function(source, _PROCESS), source, _PROCESS)
            threshold = self.process.threshold
            reward = WithProcess(reward, process, self.process.weight, threshold=threshold)
        if self.length is not None:
            limits = (self.length.limit, self.length.buffer, self.length.weight)
            reward = WithLength(reward, *limits, _token_counter(built))
        # last: the objective under constraints is the reward with its penalties
        return self._constrained(reward, built) if self.constraints else reward

    def _constrained(self, reward: Signal, built: Built) -> Constrained:
        signals = {**built.signals, _OF_RUN: reward}
        if any(constraint.signal == "length" for constraint in self.constraints):
            count = _token_counter(built)
            lengths = FunctionSignal(
                lambda prompts, completions: [float(count(text)) for text in completions]
            )
            # a signal of the task that is called so comes before ours
            signals = {"length": lengths, **signals}
        return Constrained(
            signals,
            _OF_RUN,
            self.constraints,
            learning_rate=self.lagrange_rate,
            ceiling=self.lagrange_ceiling,
        )


def check(
    names: Collection[str], signals: Collection[str], ensemble: Collection[str] | None = None
) -> None:
    """Check the names of the reward's options, before anything is built.

    Args:
        names: hyperparameters, those of the trainer among them.
        signals: of the task.
        ensemble: of the task. None: it is not asked whether a rule has anything to put together.

    Raises:
        InputError: an option does not exist, or needs another that is not given.
    """
    options = OptionNames.read(names)
    _check_names(options, signals)
    rule_alone = "rule" in options.plain and "signals" not in options.plain
    if ensemble is not None and not ensemble and rule_alone:
        raise InputError(
            f"puts several signals together: name them with {_SIGNALS}, or make a task that has an "
            "ensemble (letters-goldproxy: models: 4)",
            key=f"{PREFIX}rule",
        )


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
    names = OptionNames.read({*options, *choices})
    signals = names.signals(options.get(_SIGNALS), training, ensemble)
    chosen = (names.signals(listed, training, ensemble) for listed in choices.get(_SIGNALS, ()))
    return signals.union(*chosen)


def _parts(
    listed: str | Sequence[str] | None, with_rule: bool, training: str, ensemble: Collection[str]
) -> tuple[str, ...]:
    """Return the signals put together."""
    if listed is None:
        return tuple(ensemble) if ensemble and with_rule else (training,)
    return (listed,) if isinstance(listed, str) else tuple(listed)


def _check_names(options: OptionNames, signals: Collection[str]) -> None:
    """Raise `InputError` for an option that a run cannot have.

    It does not exist, or needs another that is not given.
    """
    for signal, kind in options.limits:
        if signal not in signals and signal != "length":
            raise InputError(
                f"no signal {signal!r}; there are {', '.join((*signals, 'length'))}",
                key=f"{PREFIX}{signal}.{kind}",
            )
    for option in sorted(options.plain):
        # Gao et al. (2024) have it, so it is refused with a reason and not as unknown
        if option == "process_delta":
            raise InputError(
                "Delta is for a reward at each step: of one number per completion, which every "
                "trainer gets, it would leave the reward of the first step alone; leave it out, or "
                "take reward.process_clip",
                key=PREFIX + option,
            )
        if option not in _PLAIN:
            raise InputError(
                f"unknown option; allowed: {', '.join(_PLAIN)}, <signal>.at_most, "
                "<signal>.at_least",
                key=PREFIX + option,
            )
        if option in _NEEDS and _NEEDS[option] not in options.plain:
            raise InputError(f"means nothing without {PREFIX}{_NEEDS[option]}", key=PREFIX + option)
    learning = [option for option in options.plain if option.startswith("lagrange_")]
    if learning and not options.limits:
        raise InputError(
            "means nothing without a constraint such as reward.length.at_most",
            key=f"{PREFIX}lagrange_rate",
        )


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
        return UserSignal(import_function(name, _SIGNALS), name, _SIGNALS)
    if name not in built.signals:
        raise InputError(
            f"no signal {name!r} in {built.name}; there are {', '.join(built.signals)}, or any "
            "`module:function`",
            key=_SIGNALS,
        )
    return built.signals[name]
