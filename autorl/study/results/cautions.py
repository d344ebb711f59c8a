"""Words the cautions of a result.

They are on failed test runs, broken constraints, short intervals, ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from autorl.core.plain_text import all_counted, counted, listed, number
from autorl.core.types import ProposalId
from autorl.optimizers.model_share import share_caution
from autorl.statistics.aggregates import parse_aggregate
from autorl.statistics.coverage import FEW_RUNS, measured_coverage
from autorl.statistics.evaluation import COST_METRICS, Constraint
from autorl.store.events import SegmentLost
from autorl.store.sessions import changes_text
from autorl.study.budget import refunded_text
from autorl.study.checkpoints import FROM_START
from autorl.study.results.estimates import Entry
from autorl.study.results.record import StudyRecord
from autorl.study.setup import choices_of
from autorl.study.spec import Spec
from autorl.trainers.language.contract import COLLAPSE, DATA_NOTE, Task
from autorl.trainers.language.rewards import options as reward_options
from autorl.trainers.language.rewards.user_signals import same_sources
from autorl.trainers.language.tasks import task, tasks

BEGUN = "every run began from the policy of {}, whose own training is not counted"


def cautions(
    record: StudyRecord,
    incumbent: ProposalId,
    entries: Sequence[Entry],
    metrics: Mapping[str, float],
) -> tuple[str, ...]:
    """List every caution that a result deserves, in the order of printing.

    Args:
        record: of the study.
        incumbent: its proposal.
        entries: what was tested, the incumbent first.
        metrics: other metrics of the incumbent on test seeds, of an RLHF task.
    """
    spec = record.spec
    proxy = proxy_caution(spec, metrics)
    share = None
    if record.search_end is not None:
        name = spec.optimizer.name
        share = share_caution(name, record.share, learns=record.optimizer_learns)
    changed = changes_text(record.tables.sessions())
    tested = [entry.proposal for entry in entries]
    return (
        *([] if proxy is None else [proxy]),
        *test_cautions(spec, entries),
        *seen_cautions(spec),
        *training_cautions(record, incumbent),
        *([] if share is None else [share]),
        *constraint_cautions(record, incumbent),
        *([] if spec.start is None else [BEGUN.format(spec.start.study or spec.start.model)]),
        *_anew_cautions(record),
        *refund_cautions(record),
        *([] if changed is None else [changed]),
        *length_cautions(spec, record.tables.ends(), incumbent, tested),
    )


# -- the test --------------------------------------------------------------------------------------


def test_cautions(spec: Spec, entries: Sequence[Entry]) -> list[str]:
    """Say how far the test scores can be trusted.

    The cautions are about missing scores, few or failed seeds, and a default trained for less.
    """
    texts = []
    if not entries:
        why = "not tested yet" if spec.plan.test else "no test seeds"
        texts.append(f"{why}: the tuning score is optimistic and is not a result")
    elif entries[0].test is not None:
        texts += _short_intervals(spec.evaluation.aggregate, entries[0].test.runs_of_a_task)
    for entry in entries:
        if entry.label == "default" and entry.until != entries[0].until:
            reached = f"to step {entry.until} of {entries[0].until} only"
            texts.append(
                f"the search trained the default configuration {reached}: "
                "its test score is no baseline"
            )
    texts += _failed_tests(entries, spec.objectives()[0].sign)
    if spec.indeterminate:
        texts.append(f"another run of this file may give another table: {spec.indeterminate}")
    return texts


def seen_cautions(spec: Spec) -> list[str]:
    """Name test tasks that the prior has recorded runs of."""
    content = spec.optimizer.options.get("prior_data")
    if spec.tasks is None or not isinstance(content, Mapping):
        return []
    recorded = {task.get("environment") for task in content.get("tasks", {}).get("values", ())}
    seen = [task.label for task in spec.tasks.test if recorded & {task.id, task.label}]
    if not seen:
        return []
    return [
        f"the prior has recorded runs of {listed(seen)}: no new task to the search "
        "(`optimizer: {name: transfer, prior: none}`)"
    ]


def _failed_tests(entries: Sequence[Entry], sign: float) -> list[str]:
    """Say that test runs failed, and how this changes the scores.

    Args:
        entries: what was tested, the incumbent first.
        sign: -1 where smaller values are better.
    """
    if not entries:
        return []
    texts = []
    incumbent = entries[0]
    test = incumbent.test
    failed = len(incumbent.failures)
    failed_of_others = sum(len(entry.failures) for entry in entries[1:])
    if test is None:
        texts.append(
            f"{all_counted(failed, 'test run')} of the incumbent failed: there is no test score"
        )
    elif failed and test.failed_value is not None:
        stated = f"each counts as {number(test.failed_value)}, as failures.penalty says"
        texts.append(f"{failed} of {test.runs} test runs of the incumbent failed: {stated}")
    elif failed:
        scores = [sign * value for value in test.seeds.values()]
        # Leaving failures out flatters. The worst test run stands in, as a penalty is of tuning
        # scores.
        pessimistic = sign * parse_aggregate("iqm")([*scores, *[min(scores)] * failed])
        texts.append(
            f"{failed} of {test.runs} test runs of the incumbent failed: the test score is of the "
            f"{len(scores)} that succeeded, which flatters it; with the worst of these in place of "
            f"each failed run the IQM is {number(pessimistic)}"
        )
    if failed_of_others:
        texts.append(f"{counted(failed_of_others, 'test run')} of the other candidates failed")
    return texts


def _short_intervals(aggregate: str, seeds: int) -> list[str]:
    """Name intervals that cover less than 95 %."""
    if seeds < 2:
        return ["one test seed: no interval, so nothing is known about the noise"]
    texts = []
    if seeds < FEW_RUNS:
        covers = f"the interval of the IQM covers {_coverage('iqm', seeds)}"
        texts.append(f"fewer than {FEW_RUNS} test seeds: {covers}")
    # Measured with 10 runs: 0.60 for cvar(0.2), 0.90 for quantile(0.25), 0.94 for the IQM.
    if aggregate not in ("iqm", "mean"):
        covers = f"the interval of {aggregate} covers {_coverage(aggregate, seeds)}"
        texts.append(f"{covers}: rely on that of the IQM")
    return texts


def _coverage(aggregate: str, seeds: int) -> str:
    coverage = measured_coverage(aggregate, seeds)
    if coverage is None:
        return "an unknown share"
    return f"about {coverage:.0%} on recorded seed noise"


# -- the search ------------------------------------------------------------------------------------


def _anew_cautions(record: StudyRecord) -> list[str]:
    """Say that promotions were trained from step 0, and charged or not."""
    count, charged = record.tables.count_trained_anew(FROM_START)
    if not count:
        return []
    which = "that" if charged == count else f"{charged} of them"
    what = "1 proposal continues a run that left no checkpoint: it was"
    if count > 1:
        what = f"{count} proposals continue runs that left no checkpoint: they were"
    return [f"{what} trained from step 0 again, the budget was charged for {which}"]


def refund_cautions(record: StudyRecord) -> list[str]:
    """Say that failed proposals of other code are not charged."""
    return [refunded_text(len(record.refunded))] if record.refunded else []


def loss_cautions(record: StudyRecord) -> list[str]:
    """Name segments that took down several workers of one host.

    Each was handed out again and may go on so, where workers are many: the training is more likely
    at fault than the host. Hosts that were preempted are no sign of that.
    """
    losses: Counter[tuple[str, str]] = Counter()
    for lost in record.tables.events(SegmentLost):
        if not lost.preempted:
            losses[lost.segment, lost.host] += 1
    return [
        f"segment {segment} took down {count} workers of {host or 'this machine'}, "
        f"see logs/{segment}.log"
        for (segment, host), count in losses.items()
        if count > 1
    ]


def length_cautions(
    spec: Spec,
    ends: Sequence[tuple[ProposalId, int, int]],
    incumbent: ProposalId,
    tested: Sequence[ProposalId],
) -> list[str]:
    """Say that runs end more than an evaluation interval off their step.

    The step is the nominal one.

    Args:
        spec: the study file.
        ends: proposals with their nominal end, and the step they were really trained to.
        incumbent: its proposal.
        tested: proposals with test scores.
    """
    nominal = {proposal: until for proposal, until, _ in ends}
    trained = {proposal: to_step for proposal, _, to_step in ends}
    off = {proposal: abs(trained[proposal] - nominal[proposal]) for proposal in nominal}
    interval = spec.fidelity.steps / spec.fidelity.evaluations
    of_result = (incumbent, *tested)
    if incumbent not in nominal or all(off.get(number, 0) <= interval for number in of_result):
        return []
    furthest = max(off, key=lambda number: (off[number], number == incumbent, -number))
    text = (
        f"the incumbent trained {counted(trained[incumbent], spec.step, form=',')} "
        f"for nominal {nominal[incumbent]:,}"
    )
    if furthest != incumbent:
        text += (
            f" (the furthest off is {trained[furthest]:,} for {nominal[furthest]:,}, "
            f"proposal {furthest})"
        )
    return [f"{text}: runs end only where a rollout does, the budget counts nominal steps"]


# -- constraints -----------------------------------------------------------------------------------


def constraint_cautions(record: StudyRecord, proposal: ProposalId) -> list[str]:
    """Name constraints that the proposal does not keep, by means over seeds.

    Test runs never change what was chosen, so a constraint that held on tuning seeds may be broken
    on them.
    """
    constraints = record.spec.judge().constraints
    violations = record.tables.violations(proposal)
    broken = [
        constraint.label
        for constraint, far in zip(constraints, violations, strict=False)
        if far > 0
    ]
    texts = []
    if broken:
        texts.append(
            "no proposal keeps within the constraints: "
            f"on tuning seeds the incumbent breaks {', '.join(broken)}"
        )
    for constraint in constraints:
        value = _on_test_seeds(record, constraint, proposal)
        if value is not None and constraint.violation(value) > 0:
            texts.append(f"on test seeds the incumbent breaks {constraint.label}: {number(value)}")
    return texts


def _on_test_seeds(
    record: StudyRecord, constraint: Constraint, proposal: ProposalId
) -> float | None:
    """Return the constrained quantity at the step of the test scores.

    The result is None if it was not tested.
    """
    if constraint.metric not in COST_METRICS:
        return record.mean_of_tests(proposal, constraint.metric)
    link = record.link_at(proposal, record.candidate_steps(proposal).end)
    runs = record.tables.tested_runs(link)
    # A run that begins at another step has the cost of its own part only.
    of_runs = record.tables.costs(constraint.metric)
    costs = [of_runs.get(run.run_id) for run in runs if run.start_step == 0]
    measured = [cost for cost in costs if cost is not None]
    return float(np.mean(measured)) if measured else None


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
        choices = choices_of(spec, algorithm)
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
    steps = sum(
        taken.environment_steps for taken in record.tables.training_by("seed_role").values()
    )
    cautions += [
        f"{note}: {counted(runs, 'run')} stopped, after {_percent(spent / steps)} of the steps "
        "of all runs"
        for note, runs, spent in record.tables.noted(COLLAPSE)
    ]
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
