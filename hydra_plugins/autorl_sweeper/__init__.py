"""The sweeper `autorl` of Hydra: `hydra/sweeper: autorl`.

Hydra imports this package at the start of every application, so it loads nothing else.
"""
