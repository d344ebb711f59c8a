"""Facts of an RLHF study besides its score.

They are other rewards, and cautions of training.
"""

from __future__ import annotations

from collections.abc import Mapping

from autorl.core.plain_text import number
from autorl.core.types import ProposalId
from autorl.study.results.record import StudyRecord
from autorl.study.setup import choices_of
from autorl.study.spec import Spec
from autorl.trainers.language.contract import DATA_NOTE, Task
from autorl.trainers.language.rewards import options as reward_options
from autorl.trainers.language.rewards.user_signals import same_sources
from autorl.trainers.language.tasks import task, tasks

REFERENCE = "reference_"
_ALWAYS = ("kl", "win_rate", "length", "distinct")
_MANY_CUT = 0.1  # share of completions; below it few texts are lost
_MANY_EQUAL = 0.9  # share of groups that teach nothing


def reward_metrics(record: StudyRecord, proposal: ProposalId) -> dict[str, float]:
    """Average over test seeds the metrics that were not selected by.

    They are read at the step of the score: the report metric, what the reference policy scores by
    it, the training signal, and how far the policy has moved. Empty for a study of no RLHF task.
    """
    spec = record.spec
    if spec.environment.id not in tasks():
        return {}
    about = task(spec.environment.id, spec.environment.kwargs)
    names = dict.fromkeys(
        (about.report, REFERENCE + about.report, about.selection, about.training, *_ALWAYS)
    )
    selected_by = {objective.metric for objective in spec.objective}
    means = {
        name: record.mean_of_tests(proposal, name) for name in names if name not in selected_by
    }
    return {name: value for name, value in means.items() if value is not None}


def proxy_caution(spec: Spec, metrics: Mapping[str, float]) -> str | None:
    """Say what selecting by the training signal has led to.

    It is measured on test seeds.
    """
    if not spec.allow_proxy_selection or spec.environment.id not in tasks():
        return None
    about = task(spec.environment.id, spec.environment.kwargs)
    trained = {about.training, *about.ensemble, *maybe_trained_on(spec, about)}
    trained |= same_sources(spec.environment.kwargs.get("signals"), trained)
    objectives = [objective.metric for objective in spec.objective]
    signal = next((metric for metric in objectives if metric in trained), None)
    if signal is None:
        return None
    relation = "the signal it was" if signal == about.training else "which it can be"
    text = f"selected by {signal!r}, {relation} trained on"
    if signal == about.report:
        return text
    gold = metrics.get(about.report)
    reference = metrics.get(REFERENCE + about.report)
    if gold is None or reference is None:
        return text
    verdict = "worse" if gold < reference else "better"
    return (
        f"{text}: on test seeds its {about.report} is {number(gold)}, {verdict} than the "
        f"{number(reference)} of the reference policy that training started from"
    )


def maybe_trained_on(spec: Spec, about: Task) -> frozenset[str]:
    """List signals that some configuration of some trainer trains on."""
    signals: frozenset[str] = frozenset()
    for algorithm, trainer in spec.trainers.items():
        prefix = f"{algorithm}." if algorithm else ""
        choices = choices_of(spec, prefix)
        signals |= reward_options.maybe_trained_on(
            trainer.kwargs, choices, about.training, about.ensemble
        )
    return signals


def training_cautions(record: StudyRecord, proposal: ProposalId) -> list[str]:
    """List cautions about the training and the texts of a proposal.

    There are none for a study of no RLHF task. Read at the last evaluation of its runs, those on
    test seeds if there are any; and what was noted of the data.
    """
    spec = record.spec
    if spec.environment.id not in tasks():
        return []
    cautions = [note for note in record.tables.notes() if note.startswith(DATA_NOTE)]
    equal = record.mean_at_end(proposal, "reward_zero_std")
    if equal == 1.0:
        cautions.append(
            "every completion got the same reward as the others of its group: "
            "nothing could be learnt"
        )
    elif equal is not None and equal >= _MANY_EQUAL:
        cautions.append(
            f"in {_percent(equal)} of the groups of completions all got the same reward: "
            "they taught nothing"
        )
    if record.mean_at_end(proposal, "kl") == 0.0:
        cautions.append("KL to the reference policy is 0 after training: the policy has not moved")
    options = task(spec.environment.id, spec.environment.kwargs).options
    cut = None
    if "max_completion" in options:
        cut = record.mean_at_end(proposal, "truncated")
    if cut is not None and cut >= _MANY_CUT:
        most = spec.environment.kwargs.get("max_completion", options["max_completion"])
        cautions.append(
            f"{_percent(cut)} of completions were cut at max_completion ({most} tokens)"
        )
    ties = record.mean_at_end(proposal, "pair_ties")
    if ties:
        cautions.append(
            f"{_percent(ties)} of the held-out pairs are ties, each of which counts half in "
            "pair_accuracy"
        )
    return cautions


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
