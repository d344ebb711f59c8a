"""The base of trainers whose models Stable-Baselines3 loads, whatever trained them."""

from __future__ import annotations

import os
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from autorl.core.types import Checkpoint, Config, EnvironmentSpec, InputError, SegmentId, Start
from autorl.store.checkpoints import file_hash, file_hashes, first_difference
from autorl.store.outputs import zip_target
from autorl.trainers.contract import ExportedModel, Trainer
from autorl.trainers.registry import load
from autorl.trainers.saved_state import reason_of
from autorl.trainers.sb3.algorithms import named_algorithm
from autorl.trainers.shared import search_folders

_NORMALISER = ".vecnormalize.pkl"
# No row of a memory is needed, and hindsight replay asks for an environment.
_NO_MEMORY: Any = {"buffer_size": 1, "replay_buffer_class": None, "replay_buffer_kwargs": {}}


def start_files(start: Start) -> dict[str, str]:
    """Hash every file that a start consists of (SHA-256), by its path.

    Raises:
        InputError: one is not there.
    """
    places = [start.model]
    if start.memory is not None:
        data_sets = os.environ.get("MINARI_DATASETS_PATH", Path.home() / ".minari" / "datasets")
        is_file = start.memory.endswith(".pkl")
        places.append(start.memory if is_file else str(Path(data_sets, start.memory)))
    hashes: dict[str, str] = {}
    for place in (*places, str(Path(start.model).with_suffix(_NORMALISER))):
        # Links are followed: what they lead to counts.
        of_place = file_hashes(Path(place).resolve())
        if not of_place and place in places:
            raise InputError(f"there is no {place}")
        hashes |= {str(Path(place, name)): digest for name, digest in of_place.items()}
    return hashes


def check_unchanged(start: Start) -> None:
    """Compare the files of a start with those at first.

    Raises:
        InputError: one differs or is gone.
    """
    problem = first_difference(start.files, lambda place: file_hash(Path(place).resolve()))
    if problem is not None:
        raise InputError(f"{problem}: put the file back that the study began with", key="start")


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
        start: the policy that every run begins from, if there is one.
    """

    model_name: str = "model.zip"
    name: str
    kwargs: Mapping[str, Any]
    start: Start | None

    def starting_model(self, *, normalises: bool) -> Any:
        """Load the model that runs begin from, with its `VecNormalize`.

        Args:
            normalises: whether the run normalises observations.

        Raises:
            InputError: a file is not the one the study began with or no model of the algorithm, or
                the run sees other observations than the model did.
        """
        start = self.start
        assert start is not None
        check_unchanged(start)
        # By its name: it imports torch. `load` seeds every generator by the seed in the file.
        streams = import_module("autorl.trainers._streams")
        with streams.preserved(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                if start.trainer is not None:
                    model = load(start.trainer).load_model(Checkpoint(SegmentId(0, 0), start.model))
                else:
                    algorithm = named_algorithm(self.name, self.kwargs).load_class()
                    model = algorithm.load(start.model, device="cpu", custom_objects=_NO_MEMORY)
                    beside = Path(start.model).with_suffix(_NORMALISER)
                    if str(beside) in start.files:
                        model._vec_normalize_env = _normaliser(beside)
            # A file of somebody else holds pickles, which raise anything.
            except Exception as error:
                message = f"{start.model} is no model of {self.name} ({reason_of(error)})"
                raise InputError(message, key="start.model") from error
        seen = model.get_vec_normalize_env()
        if normalises != (seen is not None and seen.norm_obs):
            has = (
                f"the model has {'no ' * normalises}statistics of observations (NAME{_NORMALISER})"
            )
            message = f"is {'on' if normalises else 'off'} for observations, and {has}"
            raise InputError(message, key="environment.normalize")
        return model

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
