"""The population engine: whole training runs as compiled programs.

A member is one configuration with one seed. Each runs in a thread of its own.

Read `ppo.py` first: the algorithm on one page. `engine.py` is the interface the trainers use.
"""
