"""Trainers that learn from recorded episodes of Minari, without acting.

They are `offline/bc` and `offline/iql`; see `trainer`. Importing this package loads no library.
"""
