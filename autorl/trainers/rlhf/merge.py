"""`rlhf/merge`: the weights of several policies, merged in ratios that are searched.

The difference of a policy's weights to the reference policy's is its task vector. Vectors are
averaged, or interpolated on the sphere, each weight matrix by itself; then `eta` says how far the
merged policy is from the reference policy. Nothing is trained.

Reference: Rame et al. (2024), WARP: On the Benefits of Weight Averaged Rewarded Policies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from autorl.core.numbers import check_number, is_number
from autorl.core.types import Checkpoint, Config, InputError, Outcome, Report, Segment
from autorl.store.checkpoints import scratch
from autorl.trainers.language.models import load_policy, model_folder
from autorl.trainers.rlhf.evaluations import LanguageRun
from autorl.trainers.rlhf.trainer import RLHFTrainer
from autorl.trainers.shared import check_names, streams_kept

_DEFAULTS = {"models": (), "ratio": (1, 1), "eta": 1.0, "method": "slerp"}


def slerp(first: Tensor, second: Tensor, share: float) -> Tensor:
    """Interpolate on the sphere: `first` at share 0, `second` at 1.

    With the angle W between them it is sin((1 - share) W) / sin W of `first` and sin(share W) /
    sin W of `second`; on a line where they are parallel, or one is 0.
    """
    cosine = (first * second).sum() / (first.norm() * second.norm())
    angle = torch.arccos(cosine.clamp(-1, 1))
    # not of NaN either
    if not torch.sin(angle) > 1e-6:
        return torch.lerp(first, second, share)
    parts = torch.sin((1 - share) * angle) * first + torch.sin(share * angle) * second
    return parts / torch.sin(angle)


def merged(
    start: Tensor, weights: Sequence[Tensor], ratio: Sequence[float], eta: float, method: str
) -> Tensor:
    """Merge weights by their differences to `start`, one after the other.

    Args:
        start: of the reference policy.
        weights: of the policies.
        ratio: of each, in proportion.
        eta: 0 is `start`, 1 the merged weights.
        method: `average` or `slerp`.
    """
    between: Any = torch.lerp if method == "average" else slerp
    vector = torch.zeros_like(start)
    total = 0.0
    for weight, part in zip(weights, ratio, strict=True):
        total += part
        if part:
            vector = between(vector, weight - start, part / total)
    return start + eta * vector


class MergeTrainer(RLHFTrainer):
    """Merges policies, and evaluates the result on an RLHF task.

    Hyperparameters, as options too: `models` (folders of policies of the reference policy's shape,
    as `autorl export` writes them), `ratio` (of each, from 0 on), `eta` (how far from the reference
    policy), `method` (`slerp` or `average`).
    """

    scores = False
    saved = 1

    def check_names(self, names: Collection[str]) -> None:
        check_names(names, _DEFAULTS, f"hyperparameter of {self.title}", "space")

    def check_values(self, config: Config) -> None:
        values: Mapping[str, Any] = {**_DEFAULTS, **self.defaults, **config}
        models = values["models"]
        ratio = values["ratio"]
        if isinstance(models, str) or len(models) < 2:
            raise InputError(f"expected two folders or more, got {models!r}", key="models")
        for model in models:
            model_folder(model, "models")
        if len(ratio) != len(models) or not all(is_number(part, 0) for part in ratio):
            raise InputError(f"expected {len(models)} numbers >= 0, got {ratio!r}", key="ratio")
        check_number(values["eta"], "eta", 0)
        if values["method"] not in ("slerp", "average"):
            raise InputError(f"expected slerp or average, got {values['method']!r}", key="method")

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        values = {**_DEFAULTS, **self.defaults, **segment.config}
        with streams_kept(), scratch(segment, theirs=False) as folder:
            return _Merge(self, segment, report, self.title, values).outcome_in(folder)


class _Merge(LanguageRun):
    """The policy of one configuration."""

    @cached_property
    def policy(self) -> Any:
        values = dict(self.values)
        folders = [model_folder(model, "models") for model in values.pop("models")]
        policies = [load_policy(folder).state_dict() for folder in folders]
        result = load_policy(self.built.reference)
        weights = {
            name: merged(weight, [policy[name] for policy in policies], **values)
            for name, weight in result.state_dict().items()
        }
        result.load_state_dict(weights)
        return result

    def outcome_in(self, folder: Path) -> Outcome:
        """Evaluate the policy, and save it by way of a folder."""
        self.evaluate(self.segment.until)

        def saved() -> Checkpoint:
            self.policy.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
            return self.save(self.segment.until, folder)

        return self.ended(self.segment.until, self.values, saved)
