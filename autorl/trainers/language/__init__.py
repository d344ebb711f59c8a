"""Reinforcement learning from human feedback, offline: tasks, data, rewards, measures, PPO.

Nothing here knows a trainer. Importing it loads neither torch nor transformers. Its parts import
each other in one direction:

    contract           what a signal and a task are
    models, sampling   language models, and completions of them
    policy_metrics     what is measured of a policy
    rewards            signals, and what a training signal is put together from
    data               a user's data sets: rows, their columns, what is held out
    tasks              the tasks by name; `tasks.task` and `tasks.build`
    ppo                proximal policy optimisation of a language model
    overoptimization   what a proxy does to the gold reward
"""
