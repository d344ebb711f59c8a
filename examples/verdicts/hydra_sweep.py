"""Hydra runs; seeds are autorl's: python hydra_sweep.py --multirun +epsilon=0.1,1.0

The verdict is on two commands:
    autorl judge "{python} hydra_sweep.py +epsilon=1.0 +seed={seed}" \
                 "{python} hydra_sweep.py +epsilon=0.1 +seed={seed}"
"""

import hydra
from agent import train

import autorl


@hydra.main(version_base=None, config_path=None)
def main(config):
    if "seed" in config:
        print(f"score={train(config.epsilon, config.seed)}")
    else:
        print(f"mean={autorl.repeated(train, seeds=3)(config.epsilon)}")


main()
