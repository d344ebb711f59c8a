"""autorl: tune reinforcement-learning and RLHF training, cheaply, honestly, and keep every run."""
