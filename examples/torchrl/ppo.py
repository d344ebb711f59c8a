"""PPO made of TorchRL's parts: flags in, one JSON line per evaluation out.

Collector, advantages, loss and environment are TorchRL's; the script knows nothing of the tuner.
"""

import argparse
import json

import torch
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import GymEnv, InitTracker, TransformedEnv, set_exploration_type
from torchrl.envs.utils import ExplorationType
from torchrl.modules import OneHotCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE


def parse_args():
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--env-id", default="CartPole-v1")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--total-frames", type=int, default=100_000)
    parser.add_argument("--frames-per-batch", type=int, default=1024)
    parser.add_argument("--minibatch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--lmbda", type=float, default=0.95)
    parser.add_argument("--clip-epsilon", type=float, default=0.2)
    parser.add_argument("--entropy-coeff", type=float, default=0.01)
    parser.add_argument("--eval-episodes", type=int, default=10)
    return parser.parse_args()


def make_env(name, seed):
    env = TransformedEnv(GymEnv(name), InitTracker())
    env.set_seed(seed)
    return env


def networks(env):
    """Policy over one-hot actions, and values."""
    size = env.observation_spec["observation"].shape[-1]
    choices = env.action_spec.shape[-1]

    def mlp(outputs):
        return nn.Sequential(
            *(nn.Linear(size, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))
        )

    module = TensorDictModule(mlp(choices), in_keys=["observation"], out_keys=["logits"])
    actor = ProbabilisticActor(
        module,
        in_keys=["logits"],
        out_keys=["action"],
        spec=env.action_spec,
        distribution_class=OneHotCategorical,
        return_log_prob=True,
    )
    return actor, ValueOperator(mlp(1), in_keys=["observation"])


def evaluate(env, actor, episodes):
    """Mean undiscounted return of the mode of the policy."""
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        returns = [
            float(env.rollout(10_000, actor)["next", "reward"].sum()) for _ in range(episodes)
        ]
    return sum(returns) / len(returns)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    env = make_env(args.env_id, args.seed)
    held_out = make_env(args.env_id, args.seed + 1_000_000)
    actor, critic = networks(env)
    advantage = GAE(gamma=args.gamma, lmbda=args.lmbda, value_network=critic)
    loss = ClipPPOLoss(
        actor,
        critic,
        clip_epsilon=args.clip_epsilon,
        entropy_coeff=args.entropy_coeff,
        normalize_advantage=True,
    )
    optimizer = torch.optim.Adam(loss.parameters(), args.lr)
    batches = max(1, args.total_frames // args.frames_per_batch)
    collector = Collector(
        env,
        actor,
        frames_per_batch=args.frames_per_batch,
        total_frames=batches * args.frames_per_batch,
    )
    frames = 0
    for data in collector:
        frames += data.numel()
        for _ in range(args.epochs):
            advantage(data)
            for part in torch.randperm(data.numel()).split(args.minibatch):
                terms = loss(data.reshape(-1)[part])
                total = terms["loss_objective"] + terms["loss_critic"] + terms["loss_entropy"]
                optimizer.zero_grad()
                total.backward()
                nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
                optimizer.step()
        score = evaluate(held_out, actor, args.eval_episodes)
        step = min(frames, args.total_frames)
        print(json.dumps({"frames": step, "eval_return": score}), flush=True)
    collector.shutdown()


if __name__ == "__main__":
    main()
