"""The population engine: whole training runs of (configuration x seed) members as compiled programs, one per thread.

Read `ppo.py` first: the algorithm on one page. `engine.py` is the interface the trainers use.
"""
