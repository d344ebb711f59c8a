"""PPO on a language model: hyperparameters, the terms of its losses, and training."""
