"""`trl/ppo`: PPO on a language model, which TRL dropped in 1.13; `autorl.rlhf.ppo` behind the interface of trainers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from autorl.rlhf.models import load_tokenizer
from autorl.rlhf.reward_options import CHANGES as REWARD_CHANGES
from autorl.rlhf.reward_options import assemble, without
from autorl.seeds import integer_seed
from autorl.space import resolve_schedules
from autorl.store.checkpoints import scratch
from autorl.trainers._shared import Clock, check_start
from autorl.trainers.contract import Change
from autorl.trainers.options import check_names
from autorl.trainers.trl import checkpoint
from autorl.trainers.trl.data import Reward
from autorl.trainers.trl.shell import RLHFTrainer, build_task, load_parent, peak_memory_mb
from autorl.types import Checkpoint, Config, EnvironmentSpec, Outcome, Report, Segment, Status

if TYPE_CHECKING:
    from autorl.rlhf.ppo import PPO, Rollout, Settings

_STATE, _POLICY = "ppo.pt", "policy"


class PPOTrainer(RLHFTrainer):
    """Runs segments of PPO on an RLHF task. A fidelity step is an optimizer step; cuts lie between batches."""

    @property
    def changes(self) -> Mapping[str, Change]:
        from autorl.rlhf import ppo

        scheduled = [name for name in ppo.CHANGES if isinstance(ppo.DEFAULTS[name], float)]
        parts = [f"{name}{part}" for name in scheduled for part in (".shape", ".end")]
        reward = dict.fromkeys(REWARD_CHANGES, "rebuild")
        return cast(
            "Mapping[str, Change]", {**ppo.CHANGES, **dict.fromkeys(parts, "apply"), **reward}
        )

    def check_names(self, names: Collection[str]) -> None:
        from autorl.rlhf import ppo

        own = [name.removesuffix(".shape").removesuffix(".end") for name in names]
        check_names(own, ppo.DEFAULTS, "hyperparameter of trl/ppo", "space")

    def check_fixed(self, fixed: Mapping[str, Any], free: Collection[str]) -> None:
        from autorl.rlhf import ppo

        tied = {"batch_size", "num_mini_batches"}
        ppo.settings_at(
            {
                name: value
                for name, value in fixed.items()
                if name not in tied or not tied & {*free}
            },
            0,
            1,
        )

    def check_configuration(self, config: Config) -> None:
        from autorl.rlhf import ppo

        ppo.settings_at(without({**self.defaults, **config}), 0, 1)

    def align(self, config: Config, step: int, environment: EnvironmentSpec | None = None) -> int:
        """The end of the batch of completions that reaches `step`."""
        from autorl.rlhf import ppo

        return ppo.align(without({**self.defaults, **config}), step)

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        from autorl.trainers._streams import preserved

        clock = Clock()
        check_start(segment)
        with preserved():
            return _Run(self, segment).train(clock, report)


class _Run:
    """One segment in progress."""

    def __init__(self, trainer: PPOTrainer, segment: Segment) -> None:
        from autorl.trainers.trl import live
        from autorl.trainers.trl.watch import Watch

        self.trainer, self.segment = trainer, segment
        self.values: dict[str, Any] = {**trainer.defaults, **segment.config}
        built = build_task(segment.environment)
        reference, tokenizer = live.load_model(built.reference), load_tokenizer(built.reference)
        self.reference_hash = checkpoint.weights_hash(reference)
        state = load_parent(
            segment, trainer.name, self.reference_hash, self.values, trainer.changes
        )
        self.reward = Reward(built.training, assemble(built, self.values), grouped=False)
        seed = integer_seed(segment.seed, "algorithm")
        ppo = _counting(self.reward)
        self.ppo = ppo(
            built, built.reference, without(self.values), seed, segment.horizon, self.reward
        )
        history: Sequence[Sequence[float]] = ()
        if state is not None and segment.parent is not None:
            self._restore(segment.parent, state)
            history = state["history"] if segment.fork is None else ()
        guard = trainer.guard(built, self.values, history)
        self.watch = Watch(segment, built, reference, tokenizer, guard)

    def train(self, clock: Clock, report: Callable[[Report], None]) -> Outcome:
        from autorl.rlhf.ppo import NotFiniteError

        segment, watch = self.segment, self.watch
        applied = self._applied()
        try:
            for step in sorted({*segment.evaluate_at, segment.until}):
                self.ppo.train_to(self._align(step))
                for due in watch.due(self.ppo.step, self._align):
                    counted = {
                        "tokens": float(self.reward.tokens),
                        "reward_zero_std": self.reward.zero_std,
                    }
                    watch.evaluate(self.ppo.policy, due, "prompts", counted, report)
                if watch.stopped or watch.problem:
                    break
        except NotFiniteError as error:
            watch.problem = str(error)
        status = (
            Status.DIVERGED if watch.problem else Status.STOPPED if watch.stopped else Status.DONE
        )
        return Outcome(
            segment=segment.id,
            status=status,
            reached=self.ppo.step,
            reports=tuple(watch.reports),
            cost={**clock.cost(self.ppo.step - segment.start), "peak_memory_mb": peak_memory_mb()},
            checkpoint=self._save() if segment.save and not watch.problem else None,
            applied=applied,
            notes=(*watch.built.notes, *((watch.guard.note,) if watch.stopped else ())),
            message=f"{watch.problem} at step {self.ppo.step}" if watch.problem else "",
        )

    def _applied(self) -> dict[str, Any]:
        """The hyperparameters of the configuration as PPO holds them now.

        Raises:
            RuntimeError: one did not take.
        """
        found = self.ppo.applied()
        wanted = resolve_schedules(
            without(self.values), min(self.ppo.step, self.segment.horizon), self.segment.horizon
        )
        for name, value in wanted.items():
            if found[name] != value:
                raise RuntimeError(
                    f"hyperparameter {name} did not take: asked for {value!r}, found {found[name]!r}"
                )
        return {
            **{name: value for name, value in self.values.items() if name not in wanted},
            **wanted,
        }

    def _restore(self, parent: Checkpoint, state: Mapping[str, Any]) -> None:
        import torch

        saved = torch.load(Path(parent.path) / _STATE, weights_only=True)
        self.ppo.load(saved, fork=self.segment.fork)
        self.reward.load(state)

    def _save(self) -> Checkpoint:
        import torch

        state = {
            "method": self.trainer.name,
            "values": self.values,
            "step": self.ppo.step,
            "reference": self.reference_hash,
            "history": self.watch.guard.history,
            "tokens": self.reward.tokens,
            **self.reward.state(),
        }
        with scratch(self.segment) as folder:
            torch.save(self.ppo.state(), folder / _STATE)
            self.ppo.policy.save_pretrained(folder)
            self.ppo.tokenizer.save_pretrained(folder)
            return checkpoint.save(self.segment, folder, state)

    def _align(self, step: int) -> int:
        return self.trainer.align(self.segment.config, step)


def _counting(reward: Reward) -> type[PPO]:
    """PPO that counts into `reward` what it samples: tokens with the end of sequence, and batches of equal scores."""
    from autorl.rlhf.ppo import PPO

    class Counting(PPO):
        def _rollout(self, number: int, now: Settings) -> Rollout:
            rollout = super()._rollout(number, now)
            reward.tokens += int(rollout.mask.sum())
            if len(rollout.mask) > 1:
                reward.compare([self.logs["lowest_score"], self.logs["highest_score"]])
            return rollout

    return Counting
