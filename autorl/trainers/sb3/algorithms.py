"""The algorithms of Stable-Baselines3 and sb3-contrib, with their hyperparameters.

With them stands what may change during training, and where training can be cut.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from autorl.core.plugins import named_class
from autorl.core.types import InputError
from autorl.trainers.contract import Change
from autorl.trainers.shared import ENVIRONMENT, schedule_parts, search_folders

OPTIONS = (
    "algorithm_class",
    "policy",
    "policy_kwargs",
    "deterministic",
    "device",
    "evaluation_envs",
    "path",
    "callbacks",
    "logs",
)
"""Options of a trainer that are no hyperparameters."""
_RESERVED = {
    "self",
    "policy",
    "env",
    "seed",
    "verbose",
    "tensorboard_log",
    "device",
    "policy_kwargs",
    "action_noise",
}
_NOT_NAMES = {
    "self",
    "args",
    "kwargs",
    "observation_space",
    "action_space",
    "lr_schedule",
    "_init_setup_model",
}
# Hyperparameters that are not arguments of SB3's constructors; noise_* have the names of RL
# Baselines3 Zoo.
_ADDED = ("n_envs", "activation")
_NOISE = ("noise_type", "noise_std")

# SB3 takes these as functions of the progress.
CALLABLES = ("learning_rate", "clip_range", "clip_range_vf")
# Plain numbers that training reads anew at every update, so a schedule can set them between two
# rollouts.
_NUMBERS = (
    "gamma",
    "gae_lambda",
    "ent_coef",
    "vf_coef",
    "max_grad_norm",
    "tau",
    "noise_std",
    "target_policy_noise",
)
SCHEDULED = CALLABLES + _NUMBERS

_ANY = ("learning_rate", "gamma")
_ON_POLICY = (*_ANY, "gae_lambda", "ent_coef", "vf_coef", "max_grad_norm", "normalize_advantage")
_PPO = (*_ON_POLICY, "clip_range", "clip_range_vf", "n_epochs", "batch_size", "target_kl")
_OFF_POLICY = (*_ANY, "batch_size", "tau", "train_freq", "gradient_steps", "learning_starts")
_DQN = (
    "target_update_interval",
    "exploration_fraction",
    "exploration_initial_eps",
    "exploration_final_eps",
)
_SOFT = (*_OFF_POLICY, "target_update_interval")
_TD3 = (*_OFF_POLICY, "policy_delay", "target_policy_noise", "target_noise_clip", "noise_std")


@dataclass(frozen=True)
class Algorithm:
    """An algorithm of Stable-Baselines3 or sb3-contrib.

    Attributes:
        class_name: its class in `library`.
        on_policy: whether training alternates whole rollouts and updates (PPO, A2C) or single steps
            and updates.
        actions: kinds of action space it supports (names of `gymnasium.spaces`).
        apply: hyperparameters that change during training by setting them; the model is otherwise
            untouched.
        rebuild: those that change by building buffers anew around the restored weights.
        losses: what its updates log below `train/`, beside hyperparameters and counters.
        library: the module that has the class.
        policy_prefix: what stands before `Policy` in the names of its policies, after their kind.
        masked: whether environments must say which actions are valid (`action_masks`).
    """

    class_name: str
    on_policy: bool
    actions: tuple[str, ...]
    apply: tuple[str, ...]
    rebuild: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    library: str = "stable_baselines3"
    policy_prefix: str = ""
    masked: bool = False

    @property
    def changes(self) -> dict[str, Change]:
        """Say how a continued segment may change each hyperparameter.

        The parts of its schedule are included.
        """
        parts = schedule_parts(name for name in self.apply if name in SCHEDULED)
        changes: dict[str, Change] = dict.fromkeys([*self.apply, *parts], "apply")
        return {**changes, **dict.fromkeys([*self.rebuild, ENVIRONMENT], "rebuild")}

    def load_class(self) -> Any:
        return getattr(importlib.import_module(self.library), self.class_name)

    def policy_name(self, kind: str) -> str:
        """Name its policy of a kind: `Mlp`, `Cnn` or `MultiInput`."""
        return f"{kind}{self.policy_prefix}Policy"


_ACTIONS_ANY = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")
_LOSSES_A2C = ("policy_loss", "value_loss", "entropy_loss", "explained_variance", "std")
_LOSSES_PPO = (
    *("loss", "policy_gradient_loss", "value_loss", "entropy_loss", "approx_kl"),
    *("clip_fraction", "explained_variance", "std"),
)
_LOSSES_SAC = ("actor_loss", "critic_loss", "ent_coef", "ent_coef_loss")
_LOSSES_TD3 = ("actor_loss", "critic_loss")
_LOSSES_TRPO = (
    *("policy_objective", "value_loss", "kl_divergence_loss", "explained_variance"),
    *("is_line_search_success", "std"),
)
_TRPO = (
    *(*_ANY, "gae_lambda", "normalize_advantage", "batch_size", "target_kl", "n_critic_updates"),
    *("cg_max_steps", "cg_damping", "line_search_shrinking_factor", "line_search_max_iter"),
)
CONTRIB = "sb3_contrib"
"""The library of the algorithms that Stable-Baselines3 keeps apart as experimental."""
ALGORITHMS: dict[str, Algorithm] = {
    # `n_steps` is the length of the rollout buffer: it changes where that is built anew.
    "ppo": Algorithm("PPO", True, _ACTIONS_ANY, _PPO, ("n_steps",), _LOSSES_PPO),
    "a2c": Algorithm("A2C", True, _ACTIONS_ANY, _ON_POLICY, ("n_steps",), _LOSSES_A2C),
    "dqn": Algorithm(
        "DQN", False, ("Discrete",), (*_OFF_POLICY, *_DQN, "max_grad_norm"), losses=("loss",)
    ),
    # A fixed coefficient has no optimizer, a learned one has: the model is built for either.
    "sac": Algorithm("SAC", False, ("Box",), _SOFT, ("ent_coef",), _LOSSES_SAC),
    "td3": Algorithm("TD3", False, ("Box",), _TD3, losses=_LOSSES_TD3),
    "ddpg": Algorithm("DDPG", False, ("Box",), (*_OFF_POLICY, "noise_std"), losses=_LOSSES_TD3),
    "tqc": Algorithm(
        *("TQC", False, ("Box",), (*_SOFT, "top_quantiles_to_drop_per_net"), ("ent_coef",)),
        *(_LOSSES_SAC, CONTRIB),
    ),
    "qrdqn": Algorithm(
        *("QRDQN", False, ("Discrete",), (*_OFF_POLICY, *_DQN, "max_grad_norm"), ()),
        *(("loss",), CONTRIB),
    ),
    # It has no target networks, so no `tau`.
    "crossq": Algorithm(
        *("CrossQ", False, ("Box",)),
        *(tuple(name for name in (*_OFF_POLICY, "policy_delay") if name != "tau"), ("ent_coef",)),
        *(_LOSSES_SAC, CONTRIB),
    ),
    "trpo": Algorithm("TRPO", True, _ACTIONS_ANY, _TRPO, ("n_steps",), _LOSSES_TRPO, CONTRIB),
    "recurrent_ppo": Algorithm(
        "RecurrentPPO", True, _ACTIONS_ANY, _PPO, ("n_steps",), _LOSSES_PPO, CONTRIB, "Lstm"
    ),
    "maskable_ppo": Algorithm(
        *("MaskablePPO", True, ("Discrete", "MultiDiscrete", "MultiBinary"), _PPO, ("n_steps",)),
        *(_LOSSES_PPO, CONTRIB, "", True),
    ),
}


def named_algorithm(name: str, options: Mapping[str, Any]) -> Algorithm:
    """Return an algorithm, or the subclass of it that `algorithm_class` names.

    The subclass inherits everything; what its own constructor takes is built anew around restored
    weights.

    Raises:
        InputError: it cannot be imported, or is no subclass.
    """
    algorithm = ALGORITHMS[name]
    target = options.get("algorithm_class")
    if target is None:
        return algorithm
    key = "trainer.kwargs.algorithm_class"
    base = f"{algorithm.library}:{algorithm.class_name}"
    named_class(
        str(target), key, base=base, example="my_algorithms:MyPPO", folders=search_folders(options)
    )
    module, _, class_name = target.partition(":")
    subclass = replace(algorithm, library=module, class_name=class_name)
    added = constructor_names(subclass) - constructor_names(algorithm)
    return replace(subclass, rebuild=(*algorithm.rebuild, *sorted(added)))


def _parameters(algorithm: Algorithm) -> dict[str, inspect.Parameter]:
    """Return the parameters of a constructor, by name.

    One that hands keywords on takes those of the class above it too.
    """
    taken: dict[str, inspect.Parameter] = {}
    for owner in algorithm.load_class().__mro__:
        if "__init__" not in vars(owner):
            continue
        parameters = inspect.signature(owner.__init__).parameters
        kinds = {item.kind for item in parameters.values()}
        taken = {n: p for n, p in parameters.items() if p.kind is not p.VAR_KEYWORD} | taken
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            break
    return taken


@cache
def constructor_names(algorithm: Algorithm) -> frozenset[str]:
    """Return the hyperparameters that an algorithm's constructor takes."""
    return frozenset(_parameters(algorithm)) - _RESERVED - _NOT_NAMES


@cache
def policy_names(algorithm: Algorithm) -> frozenset[str]:
    """Return the hyperparameters that an algorithm's networks take.

    For example `net_arch`, `ortho_init`, `n_critics`.
    """
    policy = algorithm.load_class().policy_aliases[algorithm.policy_name("Mlp")]
    return (
        frozenset(inspect.signature(policy.__init__).parameters)
        - _NOT_NAMES
        - constructor_names(algorithm)
    )


@cache
def hyperparameter_names(algorithm: Algorithm) -> frozenset[str]:
    """Return every hyperparameter a configuration of an algorithm may hold."""
    noise = _NOISE if "noise_std" in algorithm.apply else ()
    return constructor_names(algorithm) | policy_names(algorithm) | {*_ADDED, *noise}


@cache
def constructor_default(algorithm: Algorithm, hyperparameter: str) -> Any:
    """Return the library's own default."""
    return _parameters(algorithm)[hyperparameter].default


def steps_per_cut(algorithm: Algorithm, values: Mapping[str, object], n_envs: int) -> int:
    """Return the environment steps between two cuts: one rollout.

    Training can be cut at both of its ends.
    """
    length = "n_steps" if algorithm.on_policy else "train_freq"
    value: Any = values.get(length)
    if value is None:
        # Read from Stable-Baselines3, so that a cut follows the version that is installed.
        value = constructor_default(algorithm, length)
    if isinstance(value, list | tuple):
        # Stable-Baselines3 has two units, steps and episodes.
        if value[1] != "step":
            raise InputError(
                "training in whole episodes cannot be cut at a known step; give a number of steps",
                key="train_freq",
            )
        value = value[0]
    return int(value) * n_envs
