"""One segment of `rlhf/ppo`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import transformers
from torch import Tensor

from autorl.core.seeds import integer_seed
from autorl.core.types import Checkpoint, Outcome, Report, Segment
from autorl.space import resolve_schedules
from autorl.store.checkpoints import scratch
from autorl.trainers.language.ppo.algorithm import PPO, NotFiniteError, Rollout
from autorl.trainers.language.ppo.settings import MEASURES, Settings
from autorl.trainers.language.rewards.options import RewardOptions, without
from autorl.trainers.rlhf.counted_reward import CountedReward
from autorl.trainers.rlhf.evaluations import LanguageRun
from autorl.trainers.rlhf.trainer import RLHFTrainer

# nothing but errors, in the process that imports this module
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


class PPORun(LanguageRun):
    """One segment in progress."""

    def __init__(
        self, trainer: RLHFTrainer, segment: Segment, report: Callable[[Report], None]
    ) -> None:
        values = {**trainer.defaults, **segment.config}
        super().__init__(trainer, segment, report, "rlhf/ppo", values)
        seed = integer_seed(segment.seed, "algorithm")
        steps = RewardOptions.read(values).step_rewards()
        self.ppo = _Counting(self.built, without(values), seed, segment.horizon, self.reward, steps)
        if self.state is not None:
            self.ppo.load(self.state["ppo"], fork=segment.fork)
            self.average()

    @property
    def policy(self) -> Any:
        return self.ppo.policy

    def train(self) -> Outcome:
        """Train to the end of the segment, and evaluate on the way."""
        applied = self._applied()
        try:
            # the end of a segment need not be evaluated
            for step in sorted({*self.segment.evaluate_at, self.segment.until}):
                self.ppo.train_to(self.align(step))
                logs = self.ppo.logs
                self.updated({name: logs[name] for name in MEASURES if name in logs})
                if self.evaluate(self.ppo.step):
                    break
        except NotFiniteError as error:
            self.problem = str(error)
        return self.ended(self.ppo.step, applied, self._saved)

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
        return {**self.values, **asked}

    def _saved(self) -> Checkpoint:
        with scratch(self.segment, theirs=False) as folder:
            self.ppo.policy.save_pretrained(folder)
            self.ppo.tokenizer.save_pretrained(folder)
            further = {} if self.segment.model_only else {"ppo": self.ppo.state()}
            return self.save(self.ppo.step, folder, **further)


class _Counting(PPO):
    """PPO that counts sampled tokens and batches of equal scores."""

    reward: CountedReward

    def _rollout(self, number: int, now: Settings) -> Rollout:
        rollout = super()._rollout(number, now)
        # of the batch as it was sampled: to tokenize texts again may give other tokens
        self.reward.tokens += int(self.logs["tokens"])
        # the lowest and the highest of a batch say whether all were equal
        if len(rollout.mask) > 1:
            self.reward.compare([self.logs["lowest_score"], self.logs["highest_score"]])
        return rollout

    def _baseline(self, prompts: Sequence[str], now: Settings) -> tuple[Tensor, int]:
        # multipliers of constraints are learnt from what is sampled, not from baselines
        state = self.reward.state()
        baseline = super()._baseline(prompts, now)
        self.reward.load(state | {"completions": self.reward.completions})
        return baseline
