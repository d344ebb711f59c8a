"""`rlhf/ppo`: `autorl.trainers.language.ppo` behind the interface of trainers.

Its name was `trl/ppo` at first, after TRL, which dropped its own in 1.13.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from autorl.core.seeds import integer_seed
from autorl.core.types import (
    Checkpoint,
    Config,
    EnvironmentSpec,
    Outcome,
    Report,
    Segment,
    TrainerSpec,
)
from autorl.space import resolve_schedules
from autorl.store.checkpoints import scratch
from autorl.trainers.contract import Change
from autorl.trainers.language.ppo import settings as ppo_settings
from autorl.trainers.language.rewards.options import CHANGES as REWARD_CHANGES
from autorl.trainers.language.rewards.options import RewardOptions, without
from autorl.trainers.rlhf.counted_reward import CountedReward
from autorl.trainers.rlhf.trainer import RLHFTrainer
from autorl.trainers.shared import base_name, check_names, check_start, schedule_parts

if TYPE_CHECKING:
    from autorl.trainers.language.ppo.algorithm import PPO, Rollout

_TIED = frozenset({"batch_size", "num_mini_batches"})
"""Hyperparameters of which one has to divide the other."""


class PPOTrainer(RLHFTrainer):
    """Runs segments of PPO on an RLHF task.

    A fidelity step is an optimizer step; cuts lie between batches of completions.

    Options (`trainer.kwargs`): any hyperparameter, `guard` (stop a run once its training signal
    rose and its held-out score fell this many evaluations in a row; default 3, 0 = never), `device`
    (`cpu`, the default, or `auto`).
    """

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

    def check_fixed(self, fixed: Mapping[str, object], searched: Collection[str]) -> None:
        # the space decides: its configurations are judged one by one
        undecided = _TIED if _TIED & {*searched} else frozenset()
        decided = {name: value for name, value in fixed.items() if name not in undecided}
        ppo_settings.settings_at(decided, 0, 1)

    def check_configuration(self, config: Config) -> None:
        ppo_settings.settings_at(without({**self.defaults, **config}), 0, 1)

    def align(self, config: Config, step: int, environment: EnvironmentSpec | None = None) -> int:
        """Return the end of the batch of completions that reaches `step`."""
        return ppo_settings.align(without({**self.defaults, **config}), step)

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        from autorl.trainers._streams import preserved

        check_start(segment)
        with preserved():
            return _Run(self, segment, report).train()


class _Run:
    """One segment in progress."""

    def __init__(
        self, trainer: PPOTrainer, segment: Segment, report: Callable[[Report], None]
    ) -> None:
        from autorl.trainers.rlhf import silence  # noqa: F401
        from autorl.trainers.rlhf.evaluations import LanguageRun

        self.trainer = trainer
        self.segment = segment
        self.values: dict[str, Any] = {**trainer.defaults, **segment.config}
        reward = RewardOptions.read(self.values)
        self.run = LanguageRun(trainer, segment, report, "rlhf/ppo", self.values, reward)
        built = self.run.built
        # PPO holds completions of a batch against each other, not those of one prompt
        self.reward = CountedReward(built.training, reward.signal(built), grouped=False)
        seed = integer_seed(segment.seed, "algorithm")
        own_values = without(self.values)
        self.ppo = _counting(self.reward)(
            built, built.reference, own_values, seed, segment.horizon, self.reward
        )
        state = self.run.state
        if state is not None:
            self.ppo.load(state["ppo"], fork=segment.fork)
            self.reward.load(state)

    def train(self) -> Outcome:
        """Train to the end of the segment, and evaluate on the way."""
        from autorl.trainers.language.ppo.algorithm import NotFiniteError

        run = self.run
        applied = self._applied()
        try:
            # the end of a segment need not be evaluated
            for step in sorted({*self.segment.evaluate_at, self.segment.until}):
                self.ppo.train_to(self._align(step))
                for due in run.due(self.ppo.step, self._align):
                    tokens = float(self.reward.tokens)
                    counted = {"tokens": tokens, "reward_zero_std": self.reward.zero_std}
                    run.evaluate(self.ppo.policy, due, "prompts", counted)
                if run.stopped or run.problem:
                    break
        except NotFiniteError as error:
            run.problem = str(error)
        return run.ended(self.ppo.step, applied, self._save)

    def _applied(self) -> dict[str, Any]:
        """Return the hyperparameters of the configuration as PPO holds them now.

        Raises:
            RuntimeError: a value did not take.
        """
        in_force = self.ppo.applied()
        step = min(self.ppo.step, self.segment.horizon)
        asked = resolve_schedules(without(self.values), step, self.segment.horizon)
        for name, value in asked.items():
            if in_force[name] != value:
                raise RuntimeError(
                    f"hyperparameter {name} did not take: asked for {value!r}, "
                    f"found {in_force[name]!r}"
                )
        unread = {name: value for name, value in self.values.items() if name not in asked}
        return {**unread, **asked}

    def _save(self) -> Checkpoint:
        """Write the checkpoint of the segment."""
        ppo = self.ppo
        with scratch(self.segment, theirs=False) as folder:
            ppo.policy.save_pretrained(folder)
            ppo.tokenizer.save_pretrained(folder)
            tokens = self.reward.tokens
            return self.run.save(ppo.step, tokens, self.reward, folder, ppo=ppo.state())

    def _align(self, step: int) -> int:
        return self.trainer.align(self.segment.config, step)


def _counting(reward: CountedReward) -> type[PPO]:
    """Return PPO that counts into `reward` what it samples.

    Tokens are counted with the end of sequence, and batches of equal scores.
    """
    from autorl.trainers.language.ppo.algorithm import PPO

    class Counting(PPO):
        def _rollout(self, number: int, now: ppo_settings.Settings) -> Rollout:
            rollout = super()._rollout(number, now)
            # of the batch as it was sampled: to tokenize texts again may give other tokens
            reward.tokens += int(rollout.mask.sum())
            # the lowest and the highest of a batch say whether all were equal
            if len(rollout.mask) > 1:
                reward.compare([self.logs["lowest_score"], self.logs["highest_score"]])
            return rollout

    return Counting


def make(spec: TrainerSpec) -> PPOTrainer:
    """Build the trainer."""
    return PPOTrainer(spec)
