"""Reward signals, and the training signal put together from them."""
