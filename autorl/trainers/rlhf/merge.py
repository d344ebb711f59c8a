"""`rlhf/merge`: the weights of several policies, merged in ratios that are searched.

Policies are merged by their differences to the reference policy
(`autorl.trainers.language.merging`). Nothing is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from autorl.core.numbers import check_number, is_number
from autorl.core.types import Checkpoint, Config, InputError, Outcome, Report, Segment
from autorl.store.checkpoints import scratch
from autorl.trainers.language.merging import all_merged
from autorl.trainers.language.models import load_policy, model_folder
from autorl.trainers.rlhf.evaluations import LanguageRun
from autorl.trainers.rlhf.trainer import RLHFTrainer
from autorl.trainers.shared import check_names, streams_kept

_DEFAULTS = {"models": (), "ratio": (1, 1), "eta": 1.0, "method": "slerp"}


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
        result.load_state_dict(all_merged(result.state_dict(), policies, **values))
        return result

    def outcome_in(self, folder: Path) -> Outcome:
        """Evaluate the policy, and save it by way of a folder."""
        self.evaluate(self.segment.until)

        def saved() -> Checkpoint:
            self.policy.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
            return self.save(self.segment.until, folder)

        return self.ended(self.segment.until, self.values, saved)
