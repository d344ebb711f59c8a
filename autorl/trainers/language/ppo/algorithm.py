"""PPO on a language model, with the details of [Huang2024].

They decide whether it works.

One cycle:

1. sample a batch of completions,
2. score them, and take the KL to the reference policy off at every token,
3. compute advantages,
4. pass over the batch `num_ppo_epochs` times in `num_mini_batches` parts.

`advantage` says how: with a value network, or as in ReMax [Li2023] and REINFORCE++ [Hu2025].

A step is one optimizer step, so a cycle is num_ppo_epochs * num_mini_batches steps, and training
can be cut between cycles only (`settings.align`).

Every random draw is a function of (seed, cycle), so a checkpoint holds no random state: weights,
optimizer, step. The reference policy is always loaded from its own folder, never from a checkpoint.
Dropout is off throughout.

References:
    [Huang2024] Huang et al., "The N+ Implementation Details of RLHF with PPO: A Case Study on
        TL;DR", 2024. One of their details is a matter of the task here: completions end at the
        first end of sequence. Another is left out: the value network starts from the reference
        policy, not from a reward model.
    [Li2023], [Hu2025]: see `settings`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from autorl.core.seeds import generator, integer_seed
from autorl.trainers.language.contract import Built, Signal
from autorl.trainers.language.models import load_policy, load_tokenizer
from autorl.trainers.language.passes import inputs
from autorl.trainers.language.ppo import terms
from autorl.trainers.language.ppo.settings import OF_UPDATES, Settings, settings_at
from autorl.trainers.language.rewards.composition import StepRewards
from autorl.trainers.language.sampling import Samples, sample

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class NotFiniteError(ArithmeticError):
    """The loss or its gradient is NaN or infinite: training has diverged."""


@dataclass(frozen=True)
class Rollout:
    """A batch of completions and what PPO needs of it.

    Shapes: b sequences, t completion tokens, w tokens with the prompt.

    Attributes:
        tokens, attention: (b, w).
        mask: (b, t), 1 on the tokens that count.
        log_old: (b, t) log-probabilities under the policy that sampled them.
        values, advantages, returns: (b, t).
    """

    tokens: Tensor
    attention: Tensor
    mask: Tensor
    log_old: Tensor
    values: Tensor
    advantages: Tensor
    returns: Tensor

    def part(self, rows: Tensor) -> Rollout:
        """Return the sequences of these rows."""
        return Rollout(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


class PPO:
    """Trains the policy of a task by PPO.

    Args:
        built: the task: the reference policy, where training starts, prompts, the longest
            completion.
        config: hyperparameters (`DEFAULTS` for those not named), with the parts of schedules.
        seed: of every random draw.
        horizon: steps the run is meant to have; schedules are functions of step / horizon.
        reward: the training signal.
        steps: further rewards, at the end of each step of a completion.

    Attributes:
        step: optimizer steps done.
        policy, tokenizer: as transformers has them.
        logs: of the last cycle: `MEASURES`, `lowest_score` and `highest_score` (after the penalty
            for a missing end), `kl` (to the reference, per sequence, at the sampling temperature),
            `ended` (share with an end of sequence), `tokens` (sampled, those of baselines too).
    """

    def __init__(
        self,
        built: Built,
        config: Mapping[str, object],
        seed: int,
        horizon: int,
        reward: Signal,
        steps: StepRewards | None = None,
    ) -> None:
        self.built = built
        self.config = dict(config)
        self.seed = seed
        self.horizon = horizon
        self.reward = reward
        self.steps = steps
        self.tokenizer: Any = load_tokenizer(built.reference)
        policy, reference = (load_policy(built.reference).eval() for _ in range(2))
        self.policy = policy
        self.reference = reference.requires_grad_(False)
        now = settings_at(self.config, 0, horizon)
        self.value = torch.nn.ModuleDict()
        if now.advantage == "gae":
            head = _value_head(
                int(policy.config.hidden_size),
                now.value_init,
                integer_seed(seed, "training", "value head"),
            )
            # a third copy: the value network shares no weight with the policy. The body of a
            # language model, without the layer that gives logits
            body = load_policy(built.reference).base_model
            self.value = torch.nn.ModuleDict({"body": body, "head": head}).eval()
        # policy first: `_apply` and `applied` take the groups in this order
        groups = [{"params": list(policy.parameters())}, {"params": list(self.value.parameters())}]
        self.optimizer = torch.optim.AdamW(groups, lr=now.learning_rate)
        self.step = 0
        # -1 is no fork: random draws are keyed by a number in either case
        self.fork = -1
        self.logs: dict[str, float] = {}
        self._apply()

    def train_to(self, step: int) -> None:
        """Train to the end of the cycle that `step` lies in.

        Raises:
            NotFiniteError: training has diverged.
        """
        while self.step < step:
            self._cycle()

    def state(self) -> dict[str, Any]:
        """Return everything a continuation needs, as tensors, numbers and plain containers."""
        return {
            "step": self.step,
            "fork": self.fork,
            "policy": self.policy.state_dict(),
            "value": self.value.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def load(self, state: Mapping[str, Any], fork: int | None = None) -> None:
        """Continue from `state` with the hyperparameters of this object.

        Args:
            state: what `state` returned.
            fork: of a run that continues another one's checkpoint: its random draws differ from
                then on.
        """
        self.step = int(state["step"])
        self.fork = int(state["fork"]) if fork is None else fork
        self.policy.load_state_dict(state["policy"])
        self.value.load_state_dict(state["value"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._apply()  # the saved optimizer brought its own learning rate along

    def applied(self) -> dict[str, Any]:
        """Return the hyperparameters in force.

        Hyperparameters of the optimizer are read back from it.
        """
        now = asdict(settings_at(self.config, self.step, self.horizon))
        policy, value = self.optimizer.param_groups
        # None stays None: what is read back is compared with what was asked for
        shared = now["value_learning_rate"] is None
        return now | {
            "learning_rate": policy["lr"],
            "value_learning_rate": None if shared else value["lr"],
            "adam_epsilon": policy["eps"],
            "weight_decay": policy["weight_decay"],
        }

    def _apply(self) -> Settings:
        """Set what the optimizer holds to the hyperparameters at this step."""
        now = settings_at(self.config, self.step, self.horizon)
        value_rate = now.value_learning_rate
        if value_rate is None:
            value_rate = now.learning_rate
        rates = (now.learning_rate, value_rate)
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group.update(lr=rate, eps=now.adam_epsilon, weight_decay=now.weight_decay)
        return now

    def _cycle(self) -> None:
        """Sample a batch and train on it."""
        now = self._apply()
        # the number of the cycle keys its draws: a continued run draws as an uninterrupted one
        number = self.step // now.cycle
        rollout = self._rollout(number, now)
        rng = generator(self.seed, "training", "minibatches", self.fork, number)
        losses = []
        for _ in range(now.num_ppo_epochs):
            order = torch.from_numpy(rng.permutation(now.batch_size))
            for rows in order.chunk(now.num_mini_batches):
                # ratios are to what was sampled, at the temperature of that
                at_rollout = replace(self._apply(), temperature=now.temperature)
                losses.append(self._update(rollout.part(rows), at_rollout))
                self.step += 1
        for name, mean in zip(OF_UPDATES, np.mean(losses, axis=0), strict=True):
            self.logs[name] = float(mean)
        self._apply()

    def _rollout(self, number: int, now: Settings) -> Rollout:
        """Sample, score and weigh the completions of one cycle."""
        prompts = self._prompts(number, now.batch_size)
        seed = integer_seed(self.seed, "training", "completions", self.fork, number)
        samples = sample(
            self.policy, self.tokenizer, prompts, self.built.max_completion, seed, now.temperature
        )
        tokens, attention, mask = _merged(samples, self.tokenizer.pad_token_id)
        with torch.no_grad():
            log_old = self._log_probabilities(self.policy, tokens, attention, mask, now.temperature)
            log_reference = self._log_probabilities(
                self.reference, tokens, attention, mask, now.temperature
            )
            values = self._values(tokens, attention, mask)
        # the order of [Huang2024]: missing ends, KL at each token, then whitening
        baseline, of_baseline = self._baseline(prompts, now)
        raw, scores, process = self._scored(prompts, samples, tokens, mask, now)
        kl = terms.kl_estimate(log_old, log_reference, now.kl_estimator)
        rewards = terms.token_rewards(scores - baseline, kl, mask, now.kl_coef) + process
        if now.whiten_rewards:
            # the mean stays: shifting it would change what ending early is worth
            rewards = terms.whiten(rewards, mask, shift_mean=False)
        lam = now.lam if self.value else 1.0
        advantages, returns = terms.advantages_and_returns(rewards, values, mask, now.gamma, lam)
        if now.whiten_advantages:
            advantages = terms.whiten(advantages, mask)
        earned = process.sum(dim=1)
        scores = scores + earned
        raw = raw + earned
        self.logs = {
            "reward": float(raw.mean()),
            "reward_std": float(raw.std(correction=0)),
            "length": float(mask.sum(dim=1).mean()),
            "entropy": float(-terms.masked_mean(log_old, mask)),
            "explained_variance": terms.explained_variance(values, returns, mask),
            "lowest_score": float(scores.min()),
            "highest_score": float(scores.max()),
            # k1 summed over a completion, whichever estimator the reward uses
            "kl": float(((log_old - log_reference) * mask).sum(dim=1).mean()),
            "ended": float(np.mean(samples.ended)),
            "tokens": int(mask.sum()) + of_baseline,
        }
        return Rollout(tokens, attention, mask, log_old, values, advantages, returns)

    def _scored(
        self, prompts: Sequence[str], samples: Samples, tokens: Tensor, mask: Tensor, now: Settings
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return rewards and scores of completions (b,), and step rewards (b, t)."""
        raw = torch.tensor(self.reward(prompts, samples.texts), dtype=torch.float32)
        ended = torch.tensor(samples.ended)
        scores = terms.final_scores(raw, ended, now.missing_eos, now.missing_eos_penalty)
        return raw, scores, self._process(prompts, samples.texts, tokens, mask)

    def _baseline(self, prompts: Sequence[str], now: Settings) -> tuple[Tensor, int]:
        """Return what the likeliest completions earn (b,), and their tokens [Li2023].

        Zeros, but for ReMax.
        """
        if now.advantage != "remax":
            return torch.zeros(len(prompts)), 0
        most = self.built.max_completion
        samples = sample(self.policy, self.tokenizer, prompts, most, seed=0, temperature=0.0)
        tokens, _, mask = _merged(samples, self.tokenizer.pad_token_id)
        _, scores, process = self._scored(prompts, samples, tokens, mask, now)
        return scores + process.sum(dim=1), int(mask.sum())

    def _process(
        self, prompts: Sequence[str], texts: Sequence[str], tokens: Tensor, mask: Tensor
    ) -> Tensor:
        """Return the step rewards, each at its step's last token, (b, t)."""
        placed = torch.zeros_like(mask)
        scored = self.steps(prompts, texts) if self.steps else []
        for row, steps in enumerate(scored):
            completion = tokens[row, -mask.shape[1] :][mask[row].bool()].tolist()
            for end, reward in steps:
                placed[row, self._token_at(completion, end)] += reward
        return placed

    def _token_at(self, completion: list[int], end: int) -> int:
        """Return the place of the token that completes `end` characters."""

        def written(place: int) -> int:
            text = self.tokenizer.decode(completion[: place + 1], skip_special_tokens=True)
            return len(text)

        return bisect_left(range(len(completion)), end, key=written)

    def _update(self, part: Rollout, now: Settings) -> tuple[float, ...]:
        """Take one optimizer step, and return `OF_UPDATES`."""
        log_new = self._log_probabilities(
            self.policy, part.tokens, part.attention, part.mask, now.temperature
        )
        surrogate, clipped = terms.policy_loss(
            log_new, part.log_old, part.advantages, part.mask, now.cliprange
        )
        error = torch.zeros(())
        if self.value:
            values = self._values(part.tokens, part.attention, part.mask)
            error = terms.value_loss(
                values, part.values, part.returns, part.mask, now.cliprange_value
            )
        loss: Any = surrogate + now.vf_coef * error
        self.optimizer.zero_grad()
        loss.backward()
        parameters = [*self.policy.parameters(), *self.value.parameters()]
        # without a limit the call only measures the norm
        limit = math.inf if now.max_grad_norm is None else now.max_grad_norm
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, limit))
        # before the step, so that a diverged run ends with finite weights
        if not math.isfinite(loss.item()) or not math.isfinite(norm):
            raise NotFiniteError(f"loss {loss.item()}, gradient norm {norm} at step {self.step}")
        self.optimizer.step()
        # as in Stable-Baselines3: of the policy that sampled to the one that is updated
        moved = terms.kl_estimate(part.log_old, log_new.detach(), "k3")
        moved = terms.masked_mean(moved, part.mask)
        losses = (surrogate.item(), error.item(), clipped.item(), loss.item())
        return (*losses, moved.item(), norm)

    def _prompts(self, number: int, count: int) -> list[str]:
        """Return the prompts of a cycle.

        Each comes once before any comes again, in an order of its own at each pass.
        """
        prompts = self.built.prompts
        orders: dict[int, Any] = {}
        chosen = []
        # by position since the run began, so that a checkpoint holds no order of prompts
        for position in range(number * count, (number + 1) * count):
            lap, place = divmod(position, len(prompts))
            if lap not in orders:
                rng = generator(self.seed, "training", "prompts", self.fork, lap)
                orders[lap] = rng.permutation(len(prompts))
            chosen.append(prompts[orders[lap][place]])
        return chosen

    def _log_probabilities(
        self,
        model: PreTrainedModel,
        tokens: Tensor,
        attention: Tensor,
        mask: Tensor,
        temperature: float,
    ) -> Tensor:
        """Return log-probabilities of completion tokens at a temperature, (b, t).

        They are 0 where the mask is.
        """
        width = mask.shape[1]
        # the logits before each completion token, at the temperature it was sampled [Huang2024]
        logits = model(**inputs(model, tokens, attention)).logits[:, -width - 1 : -1].float()
        steps = (logits / temperature).log_softmax(-1)
        of_tokens = steps.gather(-1, tokens[:, -width:, None]).squeeze(-1)
        return torch.mul(of_tokens, mask)

    def _values(self, tokens: Tensor, attention: Tensor, mask: Tensor) -> Tensor:
        """Predict the return before each completion token, (b, t).

        It is 0 where the mask is, and everywhere without a value network.
        """
        if not self.value:
            return torch.zeros_like(mask)
        body = self.value["body"]
        hidden = body(**inputs(body, tokens, attention)).last_hidden_state
        # the state that a token is chosen in, not the one it leads to
        before = hidden[:, -mask.shape[1] - 1 : -1]
        values: Tensor = self.value["head"](before).squeeze(-1).float() * mask
        return values


def _value_head(width: int, kind: str, seed: int) -> torch.nn.Linear:
    """Make the last layer of the value network."""
    head = torch.nn.Linear(width, 1)
    with torch.no_grad():
        if kind == "zero":
            head.weight.zero_()
        else:
            # a generator of its own: the head is a function of the seed alone
            noise = torch.randn(head.weight.shape, generator=torch.Generator().manual_seed(seed))
            head.weight.copy_(noise / math.sqrt(width + 1))
        head.bias.zero_()
    return head


def _merged(samples: Samples, pad: int) -> tuple[Tensor, Tensor, Tensor]:
    """Merge the chunks of a sample into one batch.

    Returns tokens and attention (b, w), and the mask of completions (b, t).
    """
    # the first token of a completion always counts
    starts = [int(mask[0].argmax()) for _, _, mask in samples.batches]
    # chunks of `sample` are padded each for itself, on both sides
    front = max(starts)
    back = max(
        mask.shape[1] - start for (_, _, mask), start in zip(samples.batches, starts, strict=True)
    )

    def merged(part: int, value: int) -> Tensor:
        padded: list[Tensor] = []
        for batch, start in zip(samples.batches, starts, strict=True):
            margins = (front - start, back - (batch[part].shape[1] - start))
            padded.append(torch.nn.functional.pad(batch[part], margins, value=value))
        return torch.cat(padded)

    return merged(0, pad), merged(1, 0), merged(2, 0)[:, front:].float()
