"""PPO on a language model: hyperparameters, loss terms and training."""
