"""A training script in one file, in the manner of CleanRL: flags in, one JSON line per evaluation out.

The cross-entropy method on a linear policy (Szita and Lorincz 2006); it knows nothing of the tuner.
"""

import argparse
import json

import gymnasium as gym
import numpy as np


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--env-id", default="CartPole-v1")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--total-timesteps", type=int, default=10_000)
    parser.add_argument("--population", type=int, default=16, help="policies drawn per generation")
    parser.add_argument(
        "--elite", type=float, default=0.25, help="share of them the next generation is fitted to"
    )
    parser.add_argument(
        "--noise",
        type=float,
        default=0.1,
        help="added to the standard deviation, keeps it exploring",
    )
    return parser.parse_args()


def episode(env, weights, seed):
    """Undiscounted return and length of one greedy episode."""
    observation, _ = env.reset(seed=seed)
    total, steps, done = 0.0, 0, False
    while not done:
        action = int(np.argmax(weights[:, :-1] @ observation + weights[:, -1]))
        observation, reward, terminated, truncated, _ = env.step(action)
        total, steps, done = total + float(reward), steps + 1, terminated or truncated
    return total, steps


def main():
    args = parse_args()
    rng = np.random.default_rng(args.seed)
    env = gym.make(args.env_id)
    shape = (env.action_space.n, env.observation_space.shape[0] + 1)
    mean, deviation = np.zeros(shape), np.ones(shape)
    global_step = 0
    while global_step < args.total_timesteps:
        candidates = mean + deviation * rng.standard_normal((args.population, *shape))
        returns = []
        for weights in candidates:
            score, steps = episode(env, weights, int(rng.integers(2**31)))
            returns.append(score)
            global_step += steps
        best = candidates[np.argsort(returns)[-max(2, int(args.elite * args.population)) :]]
        mean, deviation = best.mean(axis=0), best.std(axis=0) + args.noise
        evaluation = np.mean([episode(env, mean, int(rng.integers(2**31)))[0] for _ in range(5)])
        print(
            json.dumps(
                {"global_step": min(global_step, args.total_timesteps), "eval_return": evaluation}
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
