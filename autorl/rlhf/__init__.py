"""Reinforcement learning from human feedback without a network: tasks with a known gold reward, rewards and measures.

Nothing here knows a trainer. `autorl.rlhf.task` is the contract; importing it loads neither torch nor transformers.
"""
