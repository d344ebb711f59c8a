"""The training signal of a run from flat options, so that any of them can be a hyperparameter of a search space.

    reward.signals: [proxy, "my_rewards:brevity"]   # of the task, or Python functions; default the task's own
    reward.rule: uwo                                # over those: mean · wco · uwo (reward.weight: of the variance);
                                                    # without reward.signals over the ensemble of the task
    reward.process: "autorl.rlhf.sorting:steps"     # process rewards, a list per completion
    reward.process_weight: 0.5                      # of their sum; reward.process_clip: threshold of Clip
    reward.length_limit: 12                         # soft overlong penalty, in tokens as the metric `length`;
                                                    # reward.length_buffer (tokens), reward.length_weight
    reward.length.at_most: 8.0                      # a constraint on a signal's mean, by a Lagrangian multiplier;
    reward.gold.at_least: 0.2                       # `length` (tokens) is there in every task; reward.lagrange_rate,
                                                    # reward.lagrange_ceiling

What is not given is left out: without options the signal is the task's own. Every trainer gets one number per
completion, so Delta (`autorl.rlhf.rewards.delta`), which is for a reward at each step, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from autorl.rlhf.functions import import_function, named, numbers
from autorl.rlhf.models import load_tokenizer
from autorl.rlhf.rewards import Constrained, Constraint, Kind, ensemble, with_length, with_process
from autorl.rlhf.task import Built, Signal
from autorl.types import InputError

PREFIX = "reward."
_SIGNALS = f"{PREFIX}signals"
_PLAIN = (
    *("signals", "rule", "weight", "process", "process_weight", "process_clip"),
    *("length_limit", "length_buffer", "length_weight", "lagrange_rate", "lagrange_ceiling"),
)
_NEEDS = {  # option -> the one it is nothing without
    "weight": "rule",
    **dict.fromkeys(("process_weight", "process_clip"), "process"),
    **dict.fromkeys(("length_buffer", "length_weight"), "length_limit"),
}

CHANGES = tuple(  # may change while a run goes on; which signals and limits there are may not
    f"{PREFIX}{name}" for name in _PLAIN if name not in ("signals", "process")
)


def is_option(name: str) -> bool:
    """Whether a hyperparameter is one of the reward, not of the trainer."""
    return name.startswith(PREFIX)


def check(
    names: Collection[str], signals: Collection[str], ensemble: Collection[str] | None = None
) -> None:
    """Raise `InputError` for an option of the reward that does not exist, or needs another that is not given.

    Args:
        names: hyperparameters, those of the trainer among them.
        signals: of the task.
        ensemble: of the task; None = it is not asked whether a rule has anything to put together.
    """
    given = {name.removeprefix(PREFIX) for name in names if is_option(name)}
    for option in sorted(given):
        signal, _, kind = option.rpartition(".")
        if kind in ("at_most", "at_least"):
            if signal not in signals and signal != "length":
                raise InputError(
                    f"no signal {signal!r}; there are {', '.join((*signals, 'length'))}",
                    key=PREFIX + option,
                )
        elif option == "process_delta":
            raise InputError(
                "Delta is for a reward at each step: of one number per completion, which every trainer gets, it would "
                "leave the reward of the first step alone; leave it out, or take reward.process_clip",
                key=PREFIX + option,
            )
        elif option not in _PLAIN:
            raise InputError(
                f"unknown option; allowed: {', '.join(_PLAIN)}, <signal>.at_most, <signal>.at_least",
                key=PREFIX + option,
            )
        if option in _NEEDS and _NEEDS[option] not in given:
            raise InputError(f"means nothing without {PREFIX}{_NEEDS[option]}", key=PREFIX + option)
    if ensemble is not None and not ensemble and "rule" in given and "signals" not in given:
        raise InputError(
            f"puts several signals together: name them with {_SIGNALS}, or make a task that has an ensemble "
            "(letters-goldproxy: models: 4)",
            key=f"{PREFIX}rule",
        )
    if any(option.startswith("lagrange_") for option in given) and not any(
        _is_limit(option) for option in given
    ):
        raise InputError(
            "means nothing without a constraint such as reward.length.at_most",
            key="reward.lagrange_rate",
        )


def without(options: Mapping[str, Any]) -> dict[str, Any]:
    """The hyperparameters of the trainer alone."""
    return {name: value for name, value in options.items() if not is_option(name)}


def trained_on(
    options: Mapping[str, Any], training: str, ensemble: Collection[str] = ()
) -> frozenset[str]:
    """Names of the signals a run with these options is trained on: a study must not select by one of them."""
    limits = (name.removeprefix(PREFIX) for name in options if is_option(name) and _is_limit(name))
    return frozenset(
        {*_names(options, training, ensemble), *(name.rpartition(".")[0] for name in limits)}
    )


def maybe_trained_on(
    options: Mapping[str, Any],
    choices: Mapping[str, Collection[Any]],
    training: str,
    ensemble: Collection[str] = (),
) -> frozenset[str]:
    """As `trained_on`, of any run of a study: what it may be made to train on by a configuration of its space.

    Args:
        options: hyperparameters given to the trainer.
        choices: hyperparameters of the space; the values each can take, none for a number.
        training: signal of the task.
        ensemble: signals of the task.
    """
    found = trained_on({**dict.fromkeys(set(choices) - {_SIGNALS}), **options}, training, ensemble)
    listed = (
        trained_on({_SIGNALS: names}, training, ensemble) for names in choices.get(_SIGNALS, ())
    )
    return found.union(*listed)


def _names(options: Mapping[str, Any], training: str, ensemble: Collection[str]) -> tuple[str, ...]:
    """The signals put together."""
    default = tuple(ensemble) if ensemble and f"{PREFIX}rule" in options else (training,)
    names = options.get(_SIGNALS, default)
    return (names,) if isinstance(names, str) else tuple(names)


def assemble(built: Built, options: Mapping[str, Any]) -> Signal:
    """The training signal of a run.

    Args:
        built: the task.
        options: hyperparameters; those that do not begin with `reward.` are passed over.

    Returns:
        A signal; with constraints a `Constrained`, which learns in training and has a state to save.

    Raises:
        InputError: see `check`; or a value is out of range, or a function cannot be imported.
    """
    check(options, built.signals)
    chosen = {
        name.removeprefix(PREFIX): value for name, value in options.items() if is_option(name)
    }
    parts = [_signal(built, name) for name in _names(options, built.training, built.ensemble)]
    reward = (
        ensemble(parts, chosen.get("rule", "mean"), chosen.get("weight", 0.5))
        if len(parts) != 1
        else parts[0]
    )
    if "process" in chosen:
        reward = with_process(
            reward,
            named(
                import_function(chosen["process"], "reward.process"),
                chosen["process"],
                "reward.process",
            ),
            chosen.get("process_weight", 1.0),
            threshold=chosen.get("process_clip"),
        )
    if "length_limit" in chosen:
        limit = chosen["length_limit"]
        buffer = chosen.get("length_buffer", max(1, limit // 4))
        reward = with_length(
            reward, limit, buffer, chosen.get("length_weight", 1.0), _counter(built)
        )
    limits = [_constraint(option, chosen[option]) for option in sorted(chosen) if _is_limit(option)]
    return reward if not limits else _constrained(built, reward, limits, chosen)


def _constrained(
    built: Built, reward: Signal, limits: list[Constraint], chosen: Mapping[str, Any]
) -> Constrained:
    own = {"length": _lengths(built)} if any(limit.signal == "length" for limit in limits) else {}
    signals = {**own, **built.signals, "reward of this run": reward}
    return Constrained(
        signals,
        "reward of this run",
        limits,
        learning_rate=chosen.get("lagrange_rate", 0.1),
        ceiling=chosen.get("lagrange_ceiling", 10.0),
    )


def _lengths(built: Built) -> Signal:
    """Tokens of each completion, as a signal."""
    count = _counter(built)
    return lambda prompts, completions: [float(count(text)) for text in completions]


def _counter(built: Built) -> Callable[[str], int]:
    """Counts the tokens of a completion as the metric `length` does: the policy's own, end of sequence not counted."""
    tokenizer = load_tokenizer(built.reference)
    return lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"])


def _is_limit(option: str) -> bool:
    return option.endswith((".at_most", ".at_least"))


def _constraint(option: str, threshold: float) -> Constraint:
    signal, _, ending = option.rpartition(".")
    kind: Kind = "at_least" if ending == "at_least" else "at_most"
    return Constraint(signal, float(threshold), kind)


def _signal(built: Built, name: str) -> Signal:
    """A signal of the task, or the function `module:function`."""
    if ":" in name:
        return numbers(import_function(name, "reward.signals"), name, "reward.signals")
    if name not in built.signals:
        raise InputError(
            f"no signal {name!r} in {built.name}; there are {', '.join(built.signals)}, or any `module:function`",
            key="reward.signals",
        )
    return built.signals[name]
