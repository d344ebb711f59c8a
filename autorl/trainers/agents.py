"""The base of trainers whose models Stable-Baselines3 loads, whatever trained them."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from autorl.core.types import Checkpoint, Config, EnvironmentSpec, InputError
from autorl.store.outputs import zip_target
from autorl.trainers.contract import ExportedModel, Trainer
from autorl.trainers.sb3.algorithms import named_algorithm
from autorl.trainers.shared import search_folders

_NORMALISER = ".vecnormalize.pkl"


def write_zip(
    model: Any,
    normaliser: Any,
    target: str | Path,
    *,
    replace: bool,
    hyperparameters: str,
    n_envs: int,
    learns: str,
    notes: Sequence[str],
) -> ExportedModel:
    """Write a model of Stable-Baselines3 as its zip.

    Args:
        model: to be saved.
        normaliser: its `VecNormalize`, which is written beside it, or None.
        target: the file.
        replace: whether files that are there are replaced.
        hyperparameters: where those in the model come from.
        n_envs: of the run.
        learns: what `learn` goes on with.
        notes: what else somebody who trains it further has to know.

    Raises:
        InputError: one of the files is there already.
    """
    of_normaliser = (
        "`VecNormalize.load` reads the statistics: the agent saw normalised observations or rewards"
    )
    normalised = normaliser is not None
    file = zip_target(target, replace=replace, beside=[_NORMALISER] * normalised)
    model.save(file)
    beside = (file.with_suffix(_NORMALISER),) * normalised
    for file_beside in beside:
        normaliser.save(str(file_beside))
    return ExportedModel(
        path=file,
        kind=f"{type(model).__module__.partition('.')[0]}.{type(model).__name__}",
        beside=beside,
        hyperparameters=hyperparameters,
        notes=(
            f"`set_env` takes a vectorised environment of n_envs={n_envs}, as the run had",
            f"`learn` goes on with {learns}",
            *[of_normaliser] * normalised,
            *notes,
            # Stable-Baselines3's format holds pickles.
            "such a file is a program: whoever loads it runs what it says (docs/security.md)",
        ),
    )


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
            algorithm = named_algorithm(self.name, self.kwargs).load_class()
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
