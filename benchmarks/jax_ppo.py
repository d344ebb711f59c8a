"""PPO on CartPole in JAX, one vmapped program for a whole population, in the manner of PureJaxRL: the benchmark's peer.

As there, truncation counts as termination. Called by `population.py` in an interpreter that has jax:

    python jax_ppo.py POPULATION STEPS CONFIG-JSON [CORE]

Prints one JSON line: steps, wall and CPU seconds of the second run, seconds of the first call minus those, returns.

Reference: C. Lu et al. Discovered policy optimisation. NeurIPS 2022 (PureJaxRL).
"""

from __future__ import annotations

# mypy: allow-untyped-defs, allow-untyped-calls
import json
import os
import sys
import time

if len(sys.argv) > 4 and sys.argv[4]:
    os.sched_setaffinity(0, {int(sys.argv[4])})

import jax
import jax.numpy as jnp

CLIP, GAMMA, LAMBDA, VF, NORM = 0.2, 0.99, 0.95, 0.5, 0.5


def reset(key):
    return jnp.append(jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05), 0.0)


def step(state, action):
    x, speed, angle, turn, t = state
    force = jnp.where(action == 1, 10.0, -10.0)
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    pull = (force + 0.05 * turn**2 * sine) / 1.1
    turning = (9.8 * sine - cosine * pull) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
    speeding = pull - 0.05 * turning * cosine / 1.1
    state = jnp.array(
        [
            x + 0.02 * speed,
            speed + 0.02 * speeding,
            angle + 0.02 * turn,
            turn + 0.02 * turning,
            t + 1,
        ]
    )
    done = (jnp.abs(state[0]) > 2.4) | (jnp.abs(state[2]) > 0.20943951) | (state[4] >= 500)
    return state, 1.0, done


def layer(key, fan_in, fan_out, gain):
    return jax.nn.initializers.orthogonal(gain)(key, (fan_in, fan_out)), jnp.zeros(fan_out)


def mlp(parameters, x):
    for weights, biases in parameters[:-1]:
        x = jnp.tanh(x @ weights + biases)
    return x @ parameters[-1][0] + parameters[-1][1]


def initial(key, width):
    keys, root = jax.random.split(key, 6), 2.0**0.5
    shapes = [(4, width, root), (width, width, root)]
    actor = [layer(k, *s) for k, s in zip(keys, [*shapes, (width, 2, 0.01)], strict=False)]
    critic = [layer(k, *s) for k, s in zip(keys[3:], [*shapes, (width, 1, 1.0)], strict=False)]
    return actor, critic


def make_train(config, updates):
    n_envs, n_steps, rate = config["n_envs"], config["n_steps"], config["learning_rate"]
    size = n_envs * n_steps
    minibatches = size // config["batch_size"]

    def loss(parameters, batch):
        observations, actions, old, advantages, returns = batch
        log_p = jax.nn.log_softmax(mlp(parameters[0], observations))
        ratio = jnp.exp(jnp.take_along_axis(log_p, actions[:, None], 1)[:, 0] - old)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        surrogate = jnp.minimum(
            ratio * advantages, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantages
        ).mean()
        return VF * jnp.square(mlp(parameters[1], observations)[:, 0] - returns).mean() - surrogate

    def descend(carry, batch):
        parameters, first, second, count = carry
        gradient = jax.grad(loss)(parameters, batch)
        norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient)))
        gradient = jax.tree.map(lambda g: g * jnp.minimum(1.0, NORM / (norm + 1e-6)), gradient)
        count = count + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
        a, b = rate / (1 - 0.9**count), 1 / (1 - 0.999**count)
        parameters = jax.tree.map(
            lambda p, m, v: p - a * m / (jnp.sqrt(v * b) + 1e-5), parameters, first, second
        )
        return (parameters, first, second, count), None

    def train(key):
        key, a, b = jax.random.split(key, 3)
        parameters = initial(a, config["net_width"])
        zeros = jax.tree.map(jnp.zeros_like, parameters)
        states = jax.vmap(reset)(jax.random.split(b, n_envs))

        def collect(carry, _):
            parameters, states, key = carry
            key, a, b = jax.random.split(key, 3)
            observations = states[:, :4]
            log_p = jax.nn.log_softmax(mlp(parameters[0], observations))
            actions = jax.random.categorical(a, log_p)
            values = mlp(parameters[1], observations)[:, 0]
            following, rewards, done = jax.vmap(step)(states, actions)
            fresh = jax.vmap(reset)(jax.random.split(b, n_envs))
            kept = jnp.where(done[:, None], fresh, following)
            old = jnp.take_along_axis(log_p, actions[:, None], 1)[:, 0]
            row = (observations, actions, old, values, rewards, done, following[:, 4])
            return (parameters, kept, key), row

        def estimate(carry, row):
            advantage, following = carry
            value, reward, done = row
            delta = reward + GAMMA * following * (1 - done) - value
            advantage = delta + GAMMA * LAMBDA * (1 - done) * advantage
            return (advantage, value), advantage

        def update(carry, _):
            optimizer, states, key = carry
            (_, states, key), rows = jax.lax.scan(
                collect, (optimizer[0], states, key), None, n_steps
            )
            observations, actions, old, values, rewards, done, lengths = rows
            last = mlp(optimizer[0][1], states[:, :4])[:, 0]
            start = (jnp.zeros(n_envs), last)
            _, advantages = jax.lax.scan(estimate, start, (values, rewards, done), reverse=True)
            table = (observations, actions, old, advantages, advantages + values)
            table = jax.tree.map(lambda x: x.reshape(size, *x.shape[2:]), table)

            def epoch(carry, key):
                order = jax.random.permutation(key, size).reshape(minibatches, -1)
                return jax.lax.scan(descend, carry, jax.tree.map(lambda x: x[order], table))

            key, a = jax.random.split(key)
            optimizer, _ = jax.lax.scan(epoch, optimizer, jax.random.split(a, config["n_epochs"]))
            ended = done.sum()
            return (optimizer, states, key), jnp.where(
                ended > 0, (lengths * done).sum() / ended, jnp.nan
            )

        carry = ((parameters, zeros, zeros, 0), states, key)
        return jax.lax.scan(update, carry, None, updates)[1]

    return train


def main():
    population, steps, config = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    per_update = config["n_envs"] * config["n_steps"]
    updates = -(-steps // per_update)
    train = jax.jit(jax.vmap(make_train(config, updates)))
    walls = []
    for seed in range(2):
        keys = jax.random.split(jax.random.PRNGKey(seed), population)
        began, cpu = time.perf_counter(), time.process_time()
        curves = train(keys).block_until_ready()
        walls.append(time.perf_counter() - began)
    returns = [float(x) for x in jnp.nanmean(curves[:, -10:], axis=1)]
    cpu = time.process_time() - cpu
    total = population * updates * per_update
    line = {
        "steps": total,
        "wall": walls[1],
        "cpu": cpu,
        "compile": walls[0] - walls[1],
        "returns": returns,
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
