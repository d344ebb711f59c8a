"""PPO in one file, with the flags and the TensorBoard names of CleanRL's; it knows nothing of the tuner.

Proximal policy optimization (Schulman et al. 2017) on tasks with a vector to observe and a few
actions: environments side by side, advantages by GAE, one network for policy and one for values.
"""

import argparse

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical
from torch.utils.tensorboard import SummaryWriter


def parse_args():
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--env-id", default="CartPole-v1")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--total-timesteps", type=int, default=100_000)
    parser.add_argument("--learning-rate", type=float, default=2.5e-4)
    parser.add_argument("--num-envs", type=int, default=4)
    parser.add_argument("--num-steps", type=int, default=128, help="of each between updates")
    parser.add_argument("--num-minibatches", type=int, default=4)
    parser.add_argument("--update-epochs", type=int, default=4)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--gae-lambda", type=float, default=0.95)
    parser.add_argument("--clip-coef", type=float, default=0.2)
    parser.add_argument("--ent-coef", type=float, default=0.01)
    parser.add_argument("--vf-coef", type=float, default=0.5)
    parser.add_argument("--max-grad-norm", type=float, default=0.5)
    parser.add_argument("--anneal-lr", action=argparse.BooleanOptionalAction, default=True)
    return parser.parse_args()


def mlp(inputs, outputs, gain):
    layers = [nn.Linear(inputs, 64), nn.Linear(64, 64), nn.Linear(64, outputs)]
    for layer, scale in zip(layers, (2**0.5, 2**0.5, gain), strict=True):
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


def advantages_of(rewards, values, ended, cut, value_after, args):
    """Generalized advantage estimation (Schulman et al. 2016), (steps, environments).

    `ended` are true ends, after which nothing is worth anything; `cut` are all ends of episodes.
    `value_after` are the values of what followed each step, in the same episode.
    """
    advantages = torch.zeros_like(rewards)
    running = torch.zeros_like(rewards[0])
    for step in reversed(range(len(rewards))):
        following = value_after[step] * (1 - ended[step])
        error = rewards[step] + args.gamma * following - values[step]
        running = error + args.gamma * args.gae_lambda * (1 - cut[step]) * running
        advantages[step] = running
    return advantages


def collect(envs, observation, policy, critic, args, log):
    """Step all environments `num_steps` times; the last observation and what was seen."""
    seen = {name: [] for name in ("obs", "action", "logp", "reward", "ended", "cut", "after")}
    for _ in range(args.num_steps):
        now = torch.as_tensor(observation, dtype=torch.float32)
        with torch.no_grad():
            distribution = Categorical(logits=policy(now))
            action = distribution.sample()
        following, reward, terminated, truncated, info = envs.step(action.numpy())
        cut = terminated | truncated
        last = np.array(following)
        for index in np.flatnonzero(cut):
            # What an episode ended with; `following` holds the beginning of the next.
            last[index] = info["final_obs"][index]
            log(float(info["final_info"]["episode"]["r"][index]))
        with torch.no_grad():
            after = critic(torch.as_tensor(last, dtype=torch.float32)).squeeze(-1)
        row = (now, action, distribution.log_prob(action), reward, terminated, cut, after)
        for name, value in zip(seen, row, strict=True):
            seen[name].append(torch.as_tensor(value))
        observation = following
    stacked = {name: torch.stack(values) for name, values in seen.items()}
    floats = ("reward", "ended", "cut")
    return observation, stacked | {name: stacked[name].float() for name in floats}


def update(policy, critic, optimizer, seen, args):
    """Go over what was seen `update_epochs` times, in random minibatches."""
    values = critic(seen["obs"]).squeeze(-1).detach()
    advantages = advantages_of(
        seen["reward"], values, seen["ended"], seen["cut"], seen["after"], args
    )
    targets = (advantages + values).flatten()
    observations = seen["obs"].flatten(0, 1)
    actions, before = seen["action"].flatten(), seen["logp"].flatten()
    weights = advantages.flatten()
    for _ in range(args.update_epochs):
        for part in torch.randperm(len(weights)).chunk(args.num_minibatches):
            distribution = Categorical(logits=policy(observations[part]))
            ratio = (distribution.log_prob(actions[part]) - before[part]).exp()
            weight = weights[part]
            weight = (weight - weight.mean()) / (weight.std(correction=0) + 1e-8)
            clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
            policy_loss = -torch.min(weight * ratio, weight * clipped).mean()
            value_loss = (
                0.5 * (critic(observations[part]).squeeze(-1) - targets[part]).square().mean()
            )
            entropy = distribution.entropy().mean()
            loss = policy_loss - args.ent_coef * entropy + args.vf_coef * value_loss
            optimizer.zero_grad()
            loss.backward()
            parameters = [*policy.parameters(), *critic.parameters()]
            nn.utils.clip_grad_norm_(parameters, args.max_grad_norm)
            optimizer.step()
    return policy_loss.item(), value_loss.item(), entropy.item()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    envs = gym.vector.SyncVectorEnv(
        [lambda: gym.wrappers.RecordEpisodeStatistics(gym.make(args.env_id))] * args.num_envs,
        autoreset_mode=gym.vector.AutoresetMode.SAME_STEP,
    )
    observation, _ = envs.reset(seed=args.seed)
    size = int(np.prod(envs.single_observation_space.shape))
    policy = mlp(size, int(envs.single_action_space.n), 0.01)
    critic = mlp(size, 1, 1.0)
    parameters = [*policy.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, args.learning_rate, eps=1e-5)
    writer = SummaryWriter(f"runs/{args.env_id}__{args.seed}")
    batch = args.num_envs * args.num_steps
    global_step = 0
    updates = max(1, args.total_timesteps // batch)
    for number in range(updates):
        if args.anneal_lr:
            optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - number / updates)
        step = min(global_step + batch, args.total_timesteps)

        def log(value, step=step):
            writer.add_scalar("charts/episodic_return", value, step)

        observation, seen = collect(envs, observation, policy, critic, args, log)
        global_step += batch
        losses = update(policy, critic, optimizer, seen, args)
        for name, value in zip(("policy_loss", "value_loss", "entropy"), losses, strict=True):
            writer.add_scalar(f"losses/{name}", value, step)
    writer.close()
    envs.close()


if __name__ == "__main__":
    main()
