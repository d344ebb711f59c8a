"""autorl: tune reinforcement-learning and RLHF training, cheaply, honestly, and keep every run."""

__version__ = "0.1.0"
