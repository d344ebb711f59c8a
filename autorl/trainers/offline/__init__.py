"""Trainers that learn from recorded episodes of Minari, without acting: `offline/bc`, `offline/iql`.

See `autorl.trainers.offline.trainer`. Importing this package loads no library.
"""
