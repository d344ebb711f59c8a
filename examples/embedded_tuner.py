"""Embed the tuner in a training loop of your own: ask for trials, train them however you like, tell their values.

The task is a noisy two-armed bandit learnt by gradient ascent; put your own training where `train` is.
"""

import numpy as np

import autorl

SPACE = {
    "step_size": {"type": "float", "lower": 1e-3, "upper": 10.0, "scale": "log", "default": 0.1},
    "baseline": {"type": "categorical", "choices": ["none", "mean"]},
}


def train(config, seed, steps=200):
    """REINFORCE on a two-armed bandit (Williams 1992); returns the probability of the better arm at the end."""
    rng = np.random.default_rng(seed)
    preference, average = 0.0, 0.0
    for step in range(1, steps + 1):
        p = 1 / (1 + np.exp(-preference))
        arm = int(rng.random() < p)
        reward = rng.normal(1.0 if arm else 0.5, 1.0)
        baseline = average if config["baseline"] == "mean" else 0.0
        preference = np.clip(
            preference + config["step_size"] * (reward - baseline) * (arm - p), -20, 20
        )
        average += (reward - average) / step
    return p


def main():
    tuner = autorl.Tuner(SPACE, optimizer="tpe", seeds=autorl.SeedPlan(tuning=5, test=20))
    for _ in range(30 * 5):  # 30 configurations x 5 tuning seeds
        trial = tuner.ask()
        tuner.tell(trial, train(trial.config, trial.seed))
    for trial in tuner.test_trials():  # seeds the search has never seen
        tuner.tell(trial, train(trial.config, trial.seed))
    result = tuner.result()
    low, high = result.test.iqm_interval.low, result.test.iqm_interval.high
    print(f"best configuration: {dict(result.incumbent.config)}")
    print(
        f"test score (IQM) {result.test.iqm:.3f} [{low:.3f}, {high:.3f}] on {len(result.test.seeds)} held-out seeds"
    )
    print(
        f"means: tuning {result.tuning:.3f}, test {result.test.value:.3f}, so the gap is {result.gap:+.3f}"
    )


if __name__ == "__main__":
    main()
