"""The base of trainers whose models Stable-Baselines3 loads, whatever trained them."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any, ClassVar

from autorl.trainers.contract import Trainer
from autorl.types import Checkpoint, InputError


class AgentTrainer(Trainer):
    """Trains agents that are exported as a Stable-Baselines3 zip.

    Attributes:
        name: the algorithm, as in `sb3/ppo`.
    """

    model_name: ClassVar[str] = "model.zip"
    name: str

    def load_model(self, checkpoint: Checkpoint) -> Any:
        """Load the agent as a Stable-Baselines3 model.

        Its `VecNormalize` comes with it where it has one.

        Raises:
            InputError: Stable-Baselines3 is not installed, or the checkpoint is not of this
                trainer.
        """
        try:
            import stable_baselines3
        except ImportError as error:
            message = 'a model needs Stable-Baselines3: pip install "autorl[sb3]"'
            raise InputError(message) from error
        algorithm = getattr(stable_baselines3, self.name.upper())
        with tempfile.TemporaryDirectory() as folder:
            written = self.export_model(checkpoint, Path(folder) / self.model_name)
            model = algorithm.load(written.path, device="cpu")
            for file in written.beside:
                model._vec_normalize_env = _normaliser(file)
        return model


def _normaliser(file: Path) -> Any:
    """Make the `VecNormalize` of a study without its environments.

    It is as `get_vec_normalize_env` gives it.
    """
    # A file written a moment ago, from arrays, by this process: no stranger's pickle.
    normaliser = pickle.loads(file.read_bytes())
    # As Stable-Baselines3 asks for at test time: no statistics are updated, rewards are not scaled.
    normaliser.training = False
    normaliser.norm_reward = False
    return normaliser
