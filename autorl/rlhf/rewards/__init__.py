"""Reward signals: a user's own, and what the training signal of a run is put together from."""
