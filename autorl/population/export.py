"""Turns an agent of the engine into a Stable-Baselines3 model.

The model acts and trains the same. It needs the `sb3` extra.

Networks, deviations, temperature, every hyperparameter and the moments of the optimizers are
carried over. The replay memory is not: training goes on with an empty one.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import gymnasium
import numpy as np

from autorl.core.types import InputError
from autorl.population import dqn, engine, ppo, sac, td3
from autorl.population.actor_critic import Agent
from autorl.population.descent import RMSPROP
from autorl.population.dueling import folded
from autorl.population.engine import State
from autorl.population.environments import ENVIRONMENTS, Environment
from autorl.population.gymnasium_variants import make
from autorl.population.hyperparameters import Record
from autorl.population.kernels import Array
from autorl.population.members import UPDATES
from autorl.population.networks import Network, layer_views
from autorl.population.normalisation import OBSERVATIONS, RETURNS, Normaliser, arguments
from autorl.population.outside import OutsideEnvironment
from autorl.population.sb3_arguments import SB3Arguments, Schedule, sb3_arguments
from autorl.space.schedules import remaining_schedule

if TYPE_CHECKING:
    from torch import Tensor, nn, optim

    Put: TypeAlias = Callable[[Tensor, Array], None]


def to_sb3(algorithm: engine.Algorithm, state: State, environment: Environment, hp: Record) -> Any:
    """Make a model of `stable_baselines3` from a member.

    It has the member's number of environments: `set_env` takes a vectorised one of as many.

    Raises:
        InputError: Stable-Baselines3 is not installed, or refuses a value.
    """
    try:
        import stable_baselines3
    except ImportError as error:
        raise InputError(
            'exporting a model needs Stable-Baselines3: pip install "autorl[sb3]"'
        ) from error
    kind = getattr(stable_baselines3, algorithm.name.upper())
    arguments = sb3_arguments(algorithm, hp, engine.steps(state))
    parameters = inspect.signature(kind).parameters
    for name in arguments.constructor:
        if name not in parameters:
            wrong = f"is no argument of Stable-Baselines3: correct its `sb3` in {algorithm.page}"
            note = algorithm.settings[name].sb3_note or wrong
            raise InputError(
                f"{name} of {kind.__name__} {note}, installed is {stable_baselines3.__version__}"
            )
    venv = environments(environment, arguments.n_envs)
    with warnings.catch_warnings():
        # Such a size is allowed, and tuned.
        warnings.filterwarnings("ignore", message="You have specified a mini-batch size of")
        warnings.filterwarnings("ignore", message="The number of environments used is greater")
        try:
            model = kind(
                "MlpPolicy",
                venv,
                device="cpu",
                **constructor_arguments(arguments),
                **_action_noise(arguments, environment),
            )
        except AssertionError as error:  # Stable-Baselines3 checks its arguments with assertions
            raise InputError(f"Stable-Baselines3 refuses the configuration: {error}") from error
    fill(model, algorithm, state, environment, hp)
    _restore_counters(model, algorithm, state, arguments.n_envs)
    return model


def vec_normalize(normaliser: Normaliser, model: Any) -> Any:
    """Make the `VecNormalize` of a member around the environments of its model."""
    from stable_baselines3.common.vec_env import VecNormalize

    made: Any = VecNormalize(model.get_env(), **arguments(normaliser))
    for running, values, which in _moments(made, normaliser):
        running.mean, running.var = values.reshape(2, *running.mean.shape).copy()
        running.count = float(normaliser.counts[which])
    made.returns[:] = normaliser.returns[:, 0]
    return made


def constructor_arguments(arguments: SB3Arguments) -> dict[str, Any]:
    """Return the arguments of Stable-Baselines3's constructor.

    `policy` and `env` are left out; what is torch's is torch's own objects.
    """
    from torch import nn, optim

    optimizer, options = arguments.optimizer
    policy_kwargs = {
        "net_arch": list(arguments.net_arch),
        "activation_fn": {"tanh": nn.Tanh, "relu": nn.ReLU}[arguments.activation],
        "optimizer_class": getattr(optim, optimizer),
        "optimizer_kwargs": dict(options),
        **arguments.policy,
    }
    values = {
        name: remaining_schedule(value.start, value.end, value.shape)
        if isinstance(value, Schedule)
        else value
        for name, value in arguments.constructor.items()
    }
    return {**values, "policy_kwargs": policy_kwargs}


def _action_noise(arguments: SB3Arguments, environment: Environment) -> dict[str, Any]:
    """Return the argument `action_noise`, where there is exploration noise."""
    if not arguments.noise:
        return {}
    from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise

    classes = {"normal": NormalActionNoise, "ornstein-uhlenbeck": OrnsteinUhlenbeckActionNoise}
    mean = np.zeros(environment.action_size)
    sigma = np.full(environment.action_size, float(arguments.noise["noise_std"]))
    return {"action_noise": classes[arguments.noise["noise_type"]](mean=mean, sigma=sigma)}


def fill(
    model: Any, algorithm: engine.Algorithm, state: State, environment: Environment, hp: Record
) -> None:
    """Put a member's parameters and optimizer states into a model.

    The model was built with the member's hyperparameters.
    """
    put = _FILL[algorithm.general or algorithm.name]
    hp = algorithm.as_general(hp)
    optimizers = _optimizers(model)
    # PyTorch's names; RMSprop has the second of the two arrays alone.
    names = (
        ("square_avg",) if getattr(hp, "optimizer", None) == RMSPROP else ("exp_avg", "exp_avg_sq")
    )
    moments = {}
    for name, values in zip(names, state["member"].moments[-len(names) :], strict=True):
        # The moments lie in memory as the parameters do: the model's own parameters sort them.
        parts = {**state, "member": state["member"]._replace(parameters=values)}
        put(model, parts, environment, hp, _set)
        # By identity: tensors compare element by element.
        moments[name] = {id(item): item.detach().clone() for _, item in _trained(optimizers)}
    put(model, state, environment, hp, _set)
    updates = int(state["member"].counts[UPDATES])
    counts = dict.fromkeys(optimizers, updates)
    if hasattr(hp, "policy_delay"):  # the actor has steps of its own
        counts[model.actor.optimizer] = int(state["target"].updates[0])
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            # Stable-Baselines3 makes the temperature's optimizer without arguments of ours.
            group["eps"] = float(hp.optimizer_eps)
    if keeps_moments(hp):
        _set_moments(counts, moments)


def take(
    model: Any, algorithm: engine.Algorithm, state: State, environment: Environment, hp: Record
) -> None:
    """Put networks and normaliser of a model into a new member.

    Raises:
        InputError: the member has other networks.
    """
    of_run = sb3_arguments(algorithm, hp)
    asked = [*of_run.net_arch, of_run.activation, *["dueling"] * (not keeps_moments(hp))]
    sizes = model.policy.net_arch
    for part in sizes.values() if isinstance(sizes, dict) else [sizes]:
        saved = [*part, model.policy.activation_fn.__name__.lower()]
        if saved != asked:
            message = f"hidden layers {saved} in the file, {asked} in the run"
            raise InputError(f"does not fit this configuration: {message}", key="start.model")
    put = _FILL[algorithm.general or algorithm.name]
    put(model, state, environment, algorithm.as_general(hp), _get)
    seen = model.get_vec_normalize_env()
    if seen is not None and "normaliser" in state:
        for running, values, which in _moments(seen, state["normaliser"]):
            values[:] = np.reshape([running.mean, running.var], values.shape)
            state["normaliser"].counts[which] = running.count


def _moments(seen: Any, normaliser: Normaliser) -> list[tuple[Any, Array, int]]:
    """Pair statistics of a `VecNormalize` with those of a member."""
    moments = [(seen.ret_rms, normaliser.of_returns, RETURNS)]
    if seen.norm_obs:
        moments.append((seen.obs_rms, normaliser.of_observations, OBSERVATIONS))
    return moments


def keeps_moments(hp: Record) -> bool:
    """Tell whether a model gets the moments of the run's optimizer.

    A dueling network's do not: those of its two streams are none of the folded head's.
    """
    return not getattr(hp, "dueling", False)


def _optimizers(model: Any) -> list[optim.Optimizer]:
    """Return every torch optimizer of the model."""
    owners = (model, *(getattr(model, part, None) for part in ("policy", "actor", "critic")))
    candidates = [
        getattr(owner, name, None)
        for owner in owners
        for name in ("optimizer", "ent_coef_optimizer")
    ]
    return [optimizer for optimizer in candidates if optimizer is not None]


def _trained(optimizers: list[optim.Optimizer]) -> Iterator[tuple[optim.Optimizer, Tensor]]:
    """Yield every parameter with its optimizer."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for item in group["params"]:
                yield optimizer, item


def _set_moments(
    updates: Mapping[optim.Optimizer, int], moments: dict[str, dict[int, Tensor]]
) -> None:
    """Give every parameter its moments and the number of updates behind them.

    `updates` are those of each optimizer; one without any has no state.
    """
    import torch

    for optimizer, item in _trained([key for key, count in updates.items() if count]):
        moments_of_item = {name: values[id(item)] for name, values in moments.items()}
        # PyTorch counts in a tensor of floats.
        step = torch.tensor(float(updates[optimizer]))
        optimizer.state[item] = {"step": step, **moments_of_item}


def _restore_counters(model: Any, algorithm: engine.Algorithm, state: State, n_envs: int) -> None:
    """Put the counters of steps and updates into the model."""
    model.num_timesteps = engine.steps(state)
    if algorithm.name != "ppo":  # PPO counts epochs, for its log alone
        model._n_updates = int(state["member"].counts[UPDATES])
    if algorithm.name == "dqn":  # decides when the target network follows
        model._n_calls = model.num_timesteps // n_envs


def _fill_ppo(model: Any, state: State, environment: Environment, hp: Record, put: Put) -> None:
    agent = ppo.make_agent(state, environment, hp)
    policy = model.policy
    _copy(agent.actor, [*_linear(policy.mlp_extractor.policy_net), policy.action_net], put)
    _copy(agent.critic, [*_linear(policy.mlp_extractor.value_net), policy.value_net], put)
    if not environment.n_actions:
        put(policy.log_std, agent.policy.log_std)


def _fill_dqn(model: Any, state: State, environment: Environment, hp: Record, put: Put) -> None:
    agent = dqn.make_agent(state, environment, hp)
    target = agent.target if hp.use_target_network else agent.online
    # The second counts where both are one network, and the model's are taken.
    for net, layers in (
        (target, _linear(model.q_net_target.q_net)),
        (agent.online, _linear(model.q_net.q_net)),
    ):
        if hp.dueling:
            _copy_dueling(net, layers)
        else:
            _copy(net, layers, put)
    model.exploration_rate = dqn.exploration_rate(hp, engine.steps(state) / float(hp.horizon))


def _fill_sac(model: Any, state: State, environment: Environment, hp: Record, put: Put) -> None:
    agent = sac.make_agent(state, environment, hp)
    actor = model.actor
    hidden = _linear(actor.latent_pi)
    size = environment.action_size
    _copy(agent.actor, hidden, put)
    weights, biases = layer_views(agent.actor.parameters, agent.actor.layers, len(hidden))
    for head, first in ((actor.mu, 0), (actor.log_std, size)):
        put(head.weight, weights[:, first : first + size].T)
        put(head.bias, biases[first : first + size])
    _copy_critics(model, agent, put)
    if model.log_ent_coef is not None:  # None where the temperature is fixed
        put(model.log_ent_coef, agent.log_alpha)


def _fill_td3(model: Any, state: State, environment: Environment, hp: Record, put: Put) -> None:
    agent = td3.make_agent(state, environment, hp)
    for actor, source in ((model.actor, agent.actor), (model.actor_target, agent.target_actor)):
        _copy(source, _linear(actor.mu), put)
    _copy_critics(model, agent, put)


def _copy_critics(model: Any, agent: Agent, put: Put) -> None:
    have = len(model.critic.q_networks)
    if have != (needed := 2 - (agent.second.parameters is agent.first.parameters)):
        message = f"{have} critics in the file, {needed} in the run"
        raise InputError(f"does not fit this algorithm: {message}", key="start.model")
    for critics, pair in (
        (model.critic, (agent.first, agent.second)),
        (model.critic_target, (agent.target_1, agent.target_2)),
    ):
        for target, source in zip(critics.q_networks, pair, strict=False):  # one or two
            _copy(source, _linear(target), put)


_FILL = {"ppo": _fill_ppo, "dqn": _fill_dqn, "sac": _fill_sac, "td3": _fill_td3}


def _linear(modules: Iterable[nn.Module]) -> list[Any]:
    """Return the linear layers among `modules`, in order."""
    return [module for module in modules if hasattr(module, "weight")]


def _copy(net: Network, layers: Iterable[nn.Linear], put: Put) -> None:
    """Copy between layers of `net`, from the first on, and torch's."""
    for index, layer in enumerate(layers):
        weights, biases = layer_views(net.parameters, net.layers, index)
        put(layer.weight, weights.T)  # PyTorch's are (fan_out, fan_in)
        put(layer.bias, biases)


def _copy_dueling(net: Network, layers: list[Any]) -> None:
    """Copy a dueling network into torch's layers, under one head."""
    *hidden, head = layers
    _copy(net, hidden, _set)
    weights, biases = folded(*layer_views(net.parameters, net.layers, len(hidden)))
    _set(head.weight, weights.T)
    _set(head.bias, biases)


def _set(parameter: Tensor, values: Array) -> None:
    import torch

    # `torch.from_numpy` takes a copy in one piece of what is a view with padding left out.
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(np.ascontiguousarray(values)))


def _get(parameter: Tensor, values: Array) -> None:
    if tuple(parameter.shape) != values.shape:
        message = f"{tuple(parameter.shape)} numbers in the file, {values.shape} in the run"
        raise InputError(f"does not fit this task: {message}", key="start.model")
    values[...] = parameter.detach().numpy()


def environments(environment: Environment, n_envs: int) -> Any:
    """Make `n_envs` vectorised environments with the spaces of `environment`."""
    from stable_baselines3.common.vec_env import DummyVecEnv

    return DummyVecEnv([partial(_environment, environment)] * n_envs)


class StandIn(gymnasium.Env[Any, Any]):
    """An environment of spaces only: it cannot be stepped."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space = observation_space
        self.action_space = action_space


def _environment(environment: Environment) -> Any:
    """Make a Gymnasium environment with the same spaces.

    It is the original, or a stand-in for an environment of a user or of another package.
    """
    if environment.id in ENVIRONMENTS:
        return make(environment.id, **environment.variant)
    if isinstance(environment, OutsideEnvironment):
        return StandIn(environment.observation_space, environment.action_space)
    shape = (environment.observation_size,)
    observations: Any = gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32)
    if environment.observation_type == "uint8":
        observations = gymnasium.spaces.Box(0, 255, shape, np.uint8)
    if environment.n_actions:
        return StandIn(observations, gymnasium.spaces.Discrete(environment.n_actions))
    bounds = environment.bounds.astype(np.float32)
    return StandIn(observations, gymnasium.spaces.Box(*bounds, dtype=np.float32))
