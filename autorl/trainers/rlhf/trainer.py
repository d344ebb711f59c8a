"""Shared parts of trainers of language models, but for training."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

from autorl.core.numbers import check_number
from autorl.core.plain_text import counted
from autorl.core.types import Checkpoint, Config, EnvironmentSpec, InputError, TrainerSpec
from autorl.statistics.episodes import base_metric, tails_of
from autorl.store.outputs import new_folder
from autorl.trainers.contract import ExportedModel, FixedValue, Trainer
from autorl.trainers.language.contract import Built, Task, without_instance
from autorl.trainers.language.models import (
    ADAPTER,
    FILES,
    load_merged,
    load_policy,
    load_reward_model,
    load_shape,
    load_tokenizer,
)
from autorl.trainers.language.passes import MEMORY_GB, bounded, sequences_at_once
from autorl.trainers.language.policy_metrics import JUDGED, REFERENCE, WORST_GROUP, in_group, judge
from autorl.trainers.language.rewards import options as reward_options
from autorl.trainers.language.rewards.options import RewardOptions
from autorl.trainers.language.rewards.user_signals import same_sources
from autorl.trainers.language.tasks import build, task, tasks
from autorl.trainers.rlhf.guards import PATIENCE, Guard, collapse_bounds
from autorl.trainers.saved_state import STATE, read
from autorl.trainers.shared import train_metric

_CONFIG = "config.json"

OPTIONS = ("guard", "stop", "evaluation_memory_gb", "data", "device", "algorithm_class")
"""Options of a trainer that are no hyperparameters."""
_PARTS = {"lora": "{r: 16}", "first": "{steps: 32}"}
"""Options that are mappings of hyperparameters, with an example."""
_SAME_AS = {
    "gamma_ratio": ("simpo_gamma",),
    "simpo_gamma": ("gamma_ratio",),
    "loss_weights": ("sft_weight",),
    "sft_weight": ("loss_weights",),
}
"""Options that say the same thing as another hyperparameter."""
_NEVER = ("loss", "reward")
"""Metrics no study may select by, whatever the task."""


class RLHFTrainer(Trainer):
    """The part of a trainer of language models that does not train.

    Options (`trainer.kwargs`): any hyperparameter (a default under the configuration), those of the
    training signal among them (`reward.rule`, `reward.length.at_most`, ...; see
    `autorl.trainers.language.rewards.options`); `guard` (stop a run once its training signal rose
    and its held-out score fell this many evaluations in a row; default 3, 0 = never);
    `stop` (`diverging`: stop a run that has collapsed, see `guards.Collapse`; or its bounds);
    `evaluation_memory_gb` (what a pass of an evaluation may take beside the weights; default 1).

    Attributes:
        title: its name in the study file, for messages.
        name: of the method, `rloo` of `trl/rloo`.
        learns_from: parts of which a task must have at least one, in the words of
            `autorl.trainers.language.contract.Task.check`.
        scores: whether it trains on a reward: what it samples is scored.
        stepwise: whether it takes a reward at each step of a completion.
        measures: what it says of its updates, as metrics `train_*`.
        grouped: whether completions of one prompt are held against each other.
        policies: whether it trains a policy, not a reward model.
        saved: numbers that a checkpoint has for each parameter.
    """

    model_name: str = "model"  # a folder, as transformers writes it
    learns_from: tuple[str, ...] = ("prompts",)
    scores = True
    stepwise = False
    measures: tuple[str, ...] = ()
    grouped = True
    policies = True
    saved = 3  # the weights, and two moments of Adam

    def __init__(self, spec: TrainerSpec) -> None:
        self.title = spec.name
        self.name = spec.name.partition("/")[2]
        self.kwargs = spec.kwargs
        self.patience: int = spec.kwargs.get("guard", PATIENCE)
        check_number(self.patience, "trainer.kwargs.guard", 0, whole=True)
        self.collapse_bounds = collapse_bounds(spec.kwargs.get("stop"))
        self.memory: float = spec.kwargs.get("evaluation_memory_gb", MEMORY_GB)
        check_number(self.memory, "trainer.kwargs.evaluation_memory_gb", 0.01)

    @property
    def device(self) -> str:
        """Name what it trains on."""
        return str(self.kwargs.get("device", "cpu"))

    @property
    def defaults(self) -> dict[str, Any]:
        """Hyperparameters given as options."""
        return _hyperparameters(self.kwargs)

    def fixed_values(self) -> tuple[FixedValue, ...]:
        """Return what its options fix.

        Generation options of a library overrule hyperparameters of the same name.
        """
        values = [
            FixedValue(name, (name, *_SAME_AS.get(name, ())), value)
            for name, value in self.defaults.items()
        ]
        nested = self.defaults.get("generation_kwargs") or {}
        values += [
            FixedValue(f"generation_kwargs.{name}", (name,), value, fills_in=False)
            for name, value in nested.items()
        ]
        # it fixes beta at 0, whatever the space says
        if self.defaults.get("use_kl") is False:
            values.append(FixedValue("use_kl", ("beta",), fills_in=False))
        return tuple(values)

    def guard(
        self, built: Built, reward: RewardOptions, history: Sequence[Sequence[float]]
    ) -> Guard:
        """Return what stops a run that is trained on this reward.

        It watches a signal the run is trained on. A method that learns from data has none, and no
        run of it is stopped.
        """
        watched: frozenset[str] = frozenset()
        if self.scores:
            watched = reward.trained_on(built.training, built.ensemble)
        signal = built.training
        if signal not in watched:
            # any of them, but the same one in every process: sets have no order
            signal = min(built.signals.keys() & watched, default="")
        return Guard(self.patience, signal, built.selection, history)

    def check(self, environment: EnvironmentSpec, hyperparameters: Collection[str]) -> None:
        """Check the task, what it has to train on, and every name."""
        about = find_task(environment)
        available = about.check(without_instance(environment.kwargs))
        names = {*hyperparameters, *self.defaults}
        RewardOptions.read(dict.fromkeys(names)).check(
            about.signals, about.ensemble, stepwise=self.stepwise
        )
        of_reward = {name for name in names if reward_options.is_option(name)}
        if of_reward and not self.scores:
            raise InputError(
                f"{self.title} learns from data: it has no reward to change", key=min(of_reward)
            )
        if self.scores and about.training not in about.signals:
            allowed = ", ".join(about.signals) or "the signals"
            raise InputError(
                f"{self.title} is trained on a reward: expected one of {allowed}, "
                f"got {about.training!r}",
                key="environment.kwargs.training",
            )
        with self._named():
            self.check_names(names - of_reward)
        if not set(self.learns_from) & set(available):
            raise InputError(
                f"{self.title} is trained on {' or '.join(self.learns_from)}; {about.name} has "
                f"{', '.join(available)}",
                key="environment",
            )

    def reported_metrics(self, environment: EnvironmentSpec) -> Collection[str]:
        """Return every metric of the policy, or of the reward model."""
        about = find_task(environment)
        by = judge(about)
        training = {*map(train_metric, self.measures), "parameters"}
        of_pairs = {"pair_accuracy", "pair_margin", "pair_ties"}
        if not self.policies:
            return {*training, *of_pairs, "tokens", *(("best_of_16",) if by else ())}
        single = {*about.signals, "length", "distinct"}
        if by:
            single |= {"win_rate", REFERENCE + by}
        metrics = training | {"kl", "truncated", "tokens", *about.probed}
        if environment.kwargs.get("groups"):
            groups = {*build_task(environment).groups.values()}
            single |= {in_group(*names) for names in product(about.signals, groups)}
            metrics |= {name + WORST_GROUP for name in about.signals}
        metrics |= {*single, *tails_of(single, environment.metrics)}
        if self.scores:
            return metrics | {"reward_zero_std", "completions"}
        available = set(about.check(without_instance(environment.kwargs)))
        if "pairs" in available:
            metrics |= of_pairs
        if available & {"completions", "labelled"}:
            metrics |= {"log_likelihood"}
        return metrics

    def data_notes(self, environment: EnvironmentSpec) -> Sequence[str]:
        return find_task(environment).notes(without_instance(environment.kwargs))

    def sizes(
        self, environment: EnvironmentSpec, episodes: int, hyperparameters: Collection[str]
    ) -> Mapping[str, str]:
        built = build_task(environment)
        model = load_shape(built.reference)
        count = model.num_parameters()
        encoded = load_tokenizer(built.reference)(list(built.held_out))["input_ids"]
        width = max(map(len, encoded)) + built.max_completion
        with bounded(self.memory):
            at_once = sequences_at_once(model.config, width)
        size = 4 * count / 2**20
        saved = f"about {self.saved * size:,.1f} MiB, of a test seed {size:,.1f} (the weights)"
        if any("lora." in name for name in (*hyperparameters, *self.defaults)):
            saved = "the adapter and its optimizer"
        return {
            "a checkpoint": f"{saved}; {counted(count, 'parameter', form=',')}",
            "an evaluation": f"{min(at_once, episodes)} of {episodes} completions at once, up to "
            f"{width} tokens each with prompts, within {self.memory:g} GiB beside the weights",
        }

    def check_names(self, names: Collection[str]) -> None:
        """Raise `InputError` for a name the method does not have."""
        raise NotImplementedError

    def check_configuration(self, config: Config) -> None:
        with self._named(config):
            self.check_values(config)

    def check_mean(self, hyperparameters: Collection[str]) -> None:
        for name in sorted({*hyperparameters, *self.defaults}):
            if name.startswith("lora."):
                reason = "a mean of the matrices of adapters is no adapter of the mean"
            elif name == "deepspeed":
                reason = "DeepSpeed trains a copy of the weights"
            else:
                continue
            raise InputError(f"{name}: {reason}: expected copy", key="optimizer.exploit")

    def check_values(self, config: Config) -> None:
        """Raise `InputError` if no run of a configuration could train."""
        raise NotImplementedError

    @contextmanager
    def _named(self, config: Collection[str] = ()) -> Iterator[None]:
        """Have an error name the trainer's option where one gives the value."""
        try:
            yield
        except InputError as error:
            fixed = error.key in self.defaults and error.key not in config
            key = f"trainer.kwargs.{error.key}" if fixed else error.key
            raise InputError(error.message, key=key) from error.__cause__

    def check_objective(
        self,
        environment: EnvironmentSpec,
        metrics: Sequence[str],
        choices: Mapping[str, Collection[object]] = MappingProxyType({}),
    ) -> None:
        """Raise `InputError` for selection by the training signal or a loss.

        Signals that only some configurations of the space train on are refused too, and so is every
        model of an ensemble: they were fitted to the same comparisons.
        """
        about = find_task(environment)
        trained = reward_options.maybe_trained_on(
            self.defaults, choices, about.training, about.ensemble
        )
        refused = {*trained, about.training, *about.ensemble, *_NEVER}
        refused |= {*map(train_metric, self.measures)}
        refused |= same_sources(environment.kwargs.get("signals"), refused)
        # a win rate is decided by a signal: to select by it is to select by that
        judged_by = {about.selection: about.selection, **dict.fromkeys(JUDGED, judge(about))}
        alternative = repr(about.selection)
        if judged_by[about.selection] in refused:
            alternative = "another signal"
        for metric in metrics:
            base = base_metric(metric)
            for name in about.signals:
                if base.startswith((in_group(name, ""), name + WORST_GROUP)):
                    base = name
            by = judged_by.get(base, base)
            if by in refused:
                what = f"{metric!r} is" if by == base else f"{metric!r} is by {by!r},"
                raise InputError(
                    f"{what} what {about.name} trains on: selecting by it finds the configuration "
                    f"that exploits it hardest. Select by {alternative}, or say "
                    "`allow_proxy_selection: true`",
                    key="objective",
                )

    def export_model(
        self, checkpoint: Checkpoint, target: str | Path, *, replace: bool = False
    ) -> ExportedModel:
        """Copy a checkpoint's model to a folder for `from_pretrained`.

        That reads it offline.

        It is a language model (`AutoModelForCausalLM`), or from `trl/reward` a sequence classifier
        (`AutoModelForSequenceClassification`): configuration, weights as safetensors, tokenizer and
        generation configuration. An adapter is merged into its base. The folder appears whole or
        not at all.

        Args:
            checkpoint: of a trainer of language models.
            target: a name that is free.
            replace: refused: a folder is never replaced.

        Raises:
            InputError: something has this name, it is the name of a file, it cannot be written, or
                the checkpoint is of another trainer.
        """
        if replace:
            raise InputError(
                "a model that is a folder replaces nothing: give another name", key="--replace"
            )
        files = model_files(checkpoint)
        adapted = Path(checkpoint.path, ADAPTER) in files
        with new_folder(Path(target)) as folder:
            if adapted:
                self.load_model(checkpoint).save_pretrained(folder)
            for path in files:
                if not path.name.startswith("adapter_"):
                    shutil.copyfile(path, folder / path.name)
            # TRL switches the cache of keys and values off to train; that is not the model's
            config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
            config.pop("use_cache", None)
            (folder / _CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        kind = "transformers, from_pretrained: model and tokenizer"
        return ExportedModel(Path(target), kind)

    def export_adapter(self, checkpoint: Checkpoint, target: str | Path) -> ExportedModel:
        """Copy a checkpoint's adapter and its tokenizer to a folder for peft.

        Raises:
            InputError: as `export_model` does, or the checkpoint has a whole model.
        """
        files = model_files(checkpoint)
        if Path(checkpoint.path, ADAPTER) not in files:
            raise InputError("the model was trained whole: it has no adapter", key="--adapter")
        with new_folder(Path(target)) as folder:
            for path in files:
                shutil.copyfile(path, folder / path.name)
        kind = "peft, PeftModel.from_pretrained(base, folder): adapter and tokenizer"
        return ExportedModel(Path(target), kind)

    def load_model(self, checkpoint: Checkpoint) -> Any:
        """Load a language model or a classifier in single precision.

        It is of transformers' own class, and has an adapter merged into it.
        """
        folder = Path(checkpoint.path)
        if folder / ADAPTER in model_files(checkpoint):
            return load_merged(folder, nf4="lora.base" in read(folder / STATE)["values"])
        (architecture,) = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))[
            "architectures"
        ]
        if architecture.endswith("ForSequenceClassification"):
            return load_reward_model(folder)
        return load_policy(folder)


def model_files(checkpoint: Checkpoint) -> list[Path]:
    """Return the files of a checkpoint that are its model and tokenizer.

    Raises:
        InputError: it is no checkpoint of a trainer of language models.
    """
    folder = Path(checkpoint.path)
    files = {path for pattern in FILES for path in folder.glob(pattern)}
    # `rlhf/ppo` and TRL write both
    if not (folder / STATE).is_file() or not files & {folder / _CONFIG, folder / ADAPTER}:
        raise InputError(f"{checkpoint.path} is not a checkpoint of a trainer of language models")
    return sorted(files - {folder / "trainer_state.json"})


def all_values(
    trainer: TrainerSpec, config: Mapping[str, object], defaults: Mapping[str, object]
) -> Config:
    """Return every hyperparameter a run is given.

    Args:
        trainer: its own values are under those of the configuration.
        config: hyperparameters by name.
        defaults: of this package, under the trainer's own.
    """
    options = _hyperparameters(trainer.kwargs)
    # those of the configuration come first, for readers
    return Config({**config, **defaults, **options, **config})


def _hyperparameters(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters among options, by their whole names."""
    values = {name: value for name, value in options.items() if name not in OPTIONS}
    for part, example in _PARTS.items():
        of_part = values.pop(part, {})
        if not isinstance(of_part, Mapping):
            message = f"expected options such as {example}, got {of_part!r}"
            raise InputError(message, key=f"trainer.kwargs.{part}")
        values |= {f"{part}.{name}": value for name, value in of_part.items()}
    return values


def find_task(environment: EnvironmentSpec) -> Task:
    """Return the task a study's environment names.

    Raises:
        InputError: it names none there is.
    """
    if environment.id is None:
        raise InputError(f"names no task; there are {', '.join(tasks())}", key="environment")
    return task(environment.id, environment.kwargs)


def build_task(environment: EnvironmentSpec) -> Built:
    """Build the task, or read it from the cache."""
    return build(find_task(environment).name, environment.kwargs)
