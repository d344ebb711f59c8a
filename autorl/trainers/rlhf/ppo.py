"""`rlhf/ppo`: `autorl.trainers.language.ppo` behind the interface of trainers.

Its name was `trl/ppo` at first, after TRL, which dropped its own in 1.13.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from autorl.core.types import (
    Config,
    EnvironmentSpec,
    InputError,
    Outcome,
    Report,
    Segment,
    TrainerSpec,
)
from autorl.trainers.contract import Change
from autorl.trainers.language.ppo import settings as ppo_settings
from autorl.trainers.language.rewards.options import CHANGES as REWARD_CHANGES
from autorl.trainers.language.rewards.options import RewardOptions, without
from autorl.trainers.rlhf.trainer import RLHFTrainer
from autorl.trainers.shared import base_name, check_names, check_start, schedule_parts, streams_kept


class PPOTrainer(RLHFTrainer):
    """Runs segments of PPO on an RLHF task.

    A fidelity step is an optimizer step; cuts lie between batches of completions.

    Options (`trainer.kwargs`): any hyperparameter, `guard` (stop a run once its training signal
    rose and its held-out score fell this many evaluations in a row; default 3, 0 = never).
    """

    stepwise = True
    measures = ppo_settings.MEASURES
    saved = 7  # the model apart; policy, value network, and two moments of Adam for each
    grouped = False  # it holds completions of a batch against each other, not those of one prompt

    def __init__(self, spec: TrainerSpec) -> None:
        super().__init__(spec)
        for name in {"algorithm_class", "data"} & spec.kwargs.keys():
            raise InputError(f"{self.title} takes no {name}", key=f"trainer.kwargs.{name}")

    @property
    def preload(self) -> tuple[str, ...]:
        return ("autorl.trainers.rlhf.preload",)

    @property
    def changes(self) -> Mapping[str, Change]:
        defaults = ppo_settings.DEFAULTS
        # choices and whole numbers have no value in between
        scheduled = [name for name in ppo_settings.CHANGES if isinstance(defaults[name], float)]
        changes: dict[str, Change] = {**ppo_settings.CHANGES}
        changes |= dict.fromkeys(schedule_parts(scheduled), "apply")
        changes |= dict.fromkeys(REWARD_CHANGES, "rebuild")
        return changes

    def check_names(self, names: Collection[str]) -> None:
        what = f"hyperparameter of {self.title}"
        check_names([base_name(name) for name in names], ppo_settings.DEFAULTS, what, "space")

    def check_values(self, config: Config) -> None:
        values = {**self.defaults, **config}
        RewardOptions.read(values).step_rewards()
        ppo_settings.settings_at(without(values), 0, 1)

    def align(self, config: Config, step: int, environment: EnvironmentSpec | None = None) -> int:
        """Return the end of the batch of completions that reaches `step`."""
        return ppo_settings.align(without({**self.defaults, **config}), step)

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        from autorl.trainers.rlhf.ppo_run import PPORun

        check_start(segment)
        with streams_kept():
            return PPORun(self, segment, report).train()
