"""The base of trainers whose models Stable-Baselines3 loads, whatever trained them."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from autorl.core.types import Checkpoint, Config, EnvironmentSpec, InputError
from autorl.trainers.contract import Trainer
from autorl.trainers.sb3.algorithms import ALGORITHMS
from autorl.trainers.sb3.wrappers import weights_of
from autorl.trainers.shared import search_folders


class AgentTrainer(Trainer):
    """Trains agents that are exported as a Stable-Baselines3 zip.

    Attributes:
        name: the algorithm, as in `sb3/ppo`.
    """

    model_name: ClassVar[str] = "model.zip"
    name: str
    kwargs: Mapping[str, Any]

    def load_model(self, checkpoint: Checkpoint) -> Any:
        """Load the agent as a Stable-Baselines3 model.

        Its `VecNormalize` comes with it where it has one.

        Raises:
            InputError: Stable-Baselines3 is not installed, or the checkpoint is not of this
                trainer.
        """
        try:
            algorithm = ALGORITHMS[self.name].load_class()
        except ImportError as error:
            message = 'a model needs Stable-Baselines3: pip install "autorl[sb3]"'
            raise InputError(message) from error
        with tempfile.TemporaryDirectory() as folder:
            written = self.export_model(checkpoint, Path(folder) / self.model_name)
            model = algorithm.load(written.path, device="cpu")
            for file in written.beside:
                model._vec_normalize_env = _normaliser(file)
        return model

    def play(
        self,
        model: Any,
        environment: EnvironmentSpec,
        config: Config,
        seeds: Sequence[int],
        shown: Callable[[Any], None],
    ) -> Iterator[tuple[float, int]]:
        """Yield return and length of an episode for each seed.

        Args:
            model: as `load_model` gives it.
            environment: of the study.
            config: the hyperparameters of the model.
            seeds: of the environment.
            shown: is given the environment after each of its steps.
        """
        options = {**self.kwargs, **config}
        # By its name: it imports torch.
        evaluation = import_module("autorl.trainers.sb3.evaluation")
        episodes = evaluation.play_episodes(
            model,
            environment,
            seeds,
            bool(options.get("deterministic", True)),
            1,
            search_folders(self.kwargs),
            weights_of(options),
            shown,
        )
        for _, returned, length, *_ in episodes:
            yield returned, length


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
