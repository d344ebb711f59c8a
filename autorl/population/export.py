"""An agent of the engine as a Stable-Baselines3 model that acts the same (needs the `sb3` extra).

Networks, deviations and temperature are carried over; optimizer moments and the replay memory are not: the model is for
acting, evaluating and saving, and training it further starts with fresh optimizers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from autorl.population import dqn, engine, ppo, sac
from autorl.population.environments import ENVIRONMENTS, Environment
from autorl.population.networks import Network, layer_views
from autorl.types import InputError


def to_sb3(algorithm: engine.Algorithm, state: engine.State, environment: Environment, hp: Any) -> Any:
    """The member as a `stable_baselines3` PPO, DQN or SAC model on the CPU.

    Raises:
        InputError: Stable-Baselines3 is not installed.
    """
    try:
        import stable_baselines3
    except ImportError as error:
        raise InputError('exporting a model needs Stable-Baselines3: pip install "autorl[sb3]"') from error
    kind = getattr(stable_baselines3, algorithm.name.upper())
    model = kind("MlpPolicy", _environment(environment), device="cpu", policy_kwargs=_policy_kwargs(algorithm, hp))
    fill = {"ppo": _fill_ppo, "dqn": _fill_dqn, "sac": _fill_sac}[algorithm.name]
    fill(model, state, environment, hp)
    model.num_timesteps = engine.steps(state)
    return model


def _policy_kwargs(algorithm: engine.Algorithm, hp: Any) -> dict[str, Any]:
    from torch import nn

    hidden = [int(hp.net_width)] * int(hp.net_depth)
    word = algorithm.settings["activation"].decode(hp.activation)
    return {"net_arch": hidden, "activation_fn": {"tanh": nn.Tanh, "relu": nn.ReLU}[word]}


def _fill_ppo(model: Any, state: engine.State, environment: Environment, hp: Any) -> None:
    agent, policy = ppo.make_agent(state["member"].parameters, environment, hp), model.policy
    _copy(agent.actor, [*_linear(policy.mlp_extractor.policy_net), policy.action_net])
    _copy(agent.critic, [*_linear(policy.mlp_extractor.value_net), policy.value_net])
    if not environment.n_actions:
        _set(policy.log_std, agent.policy.log_std)


def _fill_dqn(model: Any, state: engine.State, environment: Environment, hp: Any) -> None:
    agent = dqn.make_agent(state, environment, hp)
    _copy(agent.online, _linear(model.q_net.q_net))
    _copy(agent.target, _linear(model.q_net_target.q_net))
    model.exploration_rate = dqn.exploration_rate(hp, engine.steps(state) / float(hp.horizon))


def _fill_sac(model: Any, state: engine.State, environment: Environment, hp: Any) -> None:
    agent, actor = sac.make_agent(state, environment, hp), model.actor
    hidden, size = _linear(actor.latent_pi), environment.action_size
    _copy(agent.actor, hidden)
    weights, biases = layer_views(agent.actor.parameters, agent.actor.layers, len(hidden))
    for head, first in ((actor.mu, 0), (actor.log_std, size)):
        _set(head.weight, weights[:, first : first + size].T)
        _set(head.bias, biases[first : first + size])
    for critics, pair in (
        (model.critic, (agent.first, agent.second)),
        (model.critic_target, (agent.target_1, agent.target_2)),
    ):
        for target, source in zip(critics.q_networks, pair, strict=True):
            _copy(source, _linear(target))
    _set(model.log_ent_coef, agent.log_alpha)


def _linear(modules: Iterable[Any]) -> list[Any]:
    """The linear layers among `modules`, in order."""
    return [module for module in modules if hasattr(module, "weight")]


def _copy(net: Network, layers: list[Any]) -> None:
    """The first `len(layers)` layers of `net` into torch's linear layers."""
    for index, layer in enumerate(layers):
        weights, biases = layer_views(net.parameters, net.layers, index)
        _set(layer.weight, weights.T)
        _set(layer.bias, biases)


def _set(parameter: Any, values: Any) -> None:
    import torch

    with torch.no_grad():
        parameter.copy_(torch.from_numpy(np.ascontiguousarray(values)))


def _environment(environment: Environment) -> Any:
    """A Gymnasium environment with the same spaces: the original, or a stand-in for a user's own."""
    import gymnasium

    if environment.id in ENVIRONMENTS:
        return gymnasium.make(environment.id)

    class StandIn(gymnasium.Env[Any, Any]):
        """Spaces only: it cannot be stepped."""

        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (environment.observation_size,), np.float32)
        action_space = (
            gymnasium.spaces.Discrete(environment.n_actions)
            if environment.n_actions
            else gymnasium.spaces.Box(*environment.bounds.astype(np.float32), dtype=np.float32)
        )

    return StandIn()
