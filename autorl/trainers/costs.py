"""Relative costs of training agents and language models, from their hyperparameters.

They order outcomes (`autorl.study.open_proposals`): a prediction that is off costs idle workers,
never a result. Units are multiply-adds: of networks exactly, of everything else by orders of
magnitude.

A change of these numbers changes the tables of studies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autorl.core.networks import layers_of, network_weights, positive


@dataclass(frozen=True)
class Machinery:
    """Costs of training besides the networks.

    Attributes:
        call: one step of all environments, once for each of them together.
        step: one step of one environment.
        update: one optimizer step, whatever its batch.
    """

    call: float
    step: float
    update: float


# A 2x64 network of both heads has 8,896 multiply-adds, and a step of PPO on CartPole takes 27 kFLOP
# besides its updates: 2 x 8,896, and 9 for the environment and the sampling.
COMPILED = Machinery(call=0.0, step=4.5e3, update=1e4)
# Milliseconds of Python and PyTorch at 1e10 multiply-adds a second: 0.2 for a call of the policy,
# 0.05 for an environment, 1 for an optimizer step.
PYTHON = Machinery(call=2e6, step=5e5, update=1e7)


@dataclass(frozen=True)
class Learner:
    """The shape of an algorithm's updates, with its defaults.

    Attributes:
        passes: forward passes of one network that an update makes of each sample.
        layers: of a network, unless the configuration says.
        values: hyperparameters that a configuration leaves out.
    """

    passes: float
    layers: tuple[int, ...]
    values: Mapping[str, float]


_OFF_POLICY = {"train_freq": 1, "gradient_steps": 1, "learning_starts": 100, "batch_size": 256}
# A backward pass costs two forward ones. DQN: network (3), target (1). SAC: two critics (6), their
# targets (2), actor (3) and at the next state (1), critics for it (4). TD3 and DDPG likewise.
_LEARNERS: Mapping[str, Learner] = {
    "ppo": Learner(3, (64, 64), {"n_epochs": 10, "batch_size": 64}),
    "a2c": Learner(3, (64, 64), {"n_steps": 5}),
    "dqn": Learner(4, (64, 64), {**_OFF_POLICY, "train_freq": 4, "batch_size": 32}),
    "sac": Learner(16, (256, 256), _OFF_POLICY),
    "td3": Learner(11, (400, 300), _OFF_POLICY),
    "ddpg": Learner(10, (400, 300), _OFF_POLICY),
    # As DQN and SAC; CrossQ has no targets but both states in one pass of its critics.
    "tqc": Learner(16, (256, 256), _OFF_POLICY),
    "qrdqn": Learner(4, (256, 256), {**_OFF_POLICY, "train_freq": 4, "batch_size": 32}),
    "crossq": Learner(16, (1024, 1024), _OFF_POLICY),
    # Updates of the value network; the policy's are one conjugate gradient a rollout.
    "trpo": Learner(3, (64, 64), {"n_epochs": 10, "batch_size": 128}),
    "recurrent_ppo": Learner(3, (256, 256), {"n_epochs": 10, "batch_size": 128}),
    "maskable_ppo": Learner(3, (64, 64), {"n_epochs": 10, "batch_size": 64}),
}


_ON_POLICY = ("ppo", "a2c", "trpo", "recurrent_ppo", "maskable_ppo")


def agent_cost(
    algorithm: str,
    values: Mapping[str, object],
    n_envs: int,
    start: int,
    until: int,
    machinery: Machinery,
) -> float:
    """Predict the multiply-adds of training an agent.

    Args:
        algorithm: one of `_LEARNERS`; of another it is the steps.
        values: hyperparameters by name, as Stable-Baselines3 or the compiled engine calls them.
        n_envs: environments, where `values` does not say.
        start: environment step to train from.
        until: environment step to train to.
        machinery: what everything besides the networks costs.
    """
    steps = until - start
    learner = _LEARNERS.get(algorithm)
    if learner is None:
        return float(steps)
    values = {**learner.values, **values}
    envs = positive(values, "n_envs", n_envs)
    network = network_weights(layers_of(values, learner.layers))
    if algorithm in _ON_POLICY:
        network *= 2  # policy and value
        epochs = positive(values, "n_epochs", 1)
        size = positive(values, "batch_size", positive(values, "n_steps", 1) * envs)
        learning = steps
        updates = epochs * steps / size
    else:
        size = positive(values, "batch_size", 1)
        learning = max(0, until - max(start, int(positive(values, "learning_starts", 0))))
        collected = positive(values, "train_freq", 1) * envs
        # -1 stands for as many updates as steps were collected.
        updates = learning * positive(values, "gradient_steps", collected) / collected
    acting = steps * (machinery.call / envs + machinery.step + network)
    return acting + updates * (machinery.update + size * learner.passes * network)


def language_model_cost(values: Mapping[str, object], start: int, until: int) -> float:
    """Predict what optimizer steps of PPO on a language model cost.

    The unit is a pass of a completion through a network. A cycle samples `batch_size` completions,
    scores them by three networks, and goes over them `num_ppo_epochs` times in `num_mini_batches`
    optimizer steps, with policy and value network.
    """
    epochs = positive(values, "num_ppo_epochs", 4)
    parts = positive(values, "num_mini_batches", 1)
    size = positive(values, "batch_size", 512)
    sampled = 4 + 3  # token by token costs a few times what one pass does
    trained = 2 * 3
    return (until - start) * size / parts * (sampled / epochs + trained)
