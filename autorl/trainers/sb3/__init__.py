"""Stable-Baselines3 trainers for any Gymnasium environment.

See `autorl.trainers.sb3.trainer`. Importing this package loads no library.
"""
