"""The text of a result, as `autorl tune` prints it.

The held-out score stands first, the tuning score and the gap beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autorl.core.plain_text import all_counted, counted, number
from autorl.core.plain_values import plain
from autorl.optimizers.model_share import share_dict, share_text
from autorl.optimizers.priors.used import prior_text
from autorl.report.table import columns, one_line
from autorl.statistics.bootstrap import Interval
from autorl.statistics.coverage import level_text
from autorl.store.store import shown_folder
from autorl.study import Estimate, Result

_MOST_POINTS = 20
MODEL_HINT = "Python: result.load_model()"


def result_text(result: Result, *, model: str = "model.zip", states: str = "") -> str:
    """Write the result as a screen of text.

    Args:
        result: of a study.
        model: what the trained model that was kept can be called; empty for none.
        states: how far configurations came, in words.
    """
    blocks = [
        one_line(result.objective),
        _scores(result),
        one_line(f"  {result.loss}") if result.loss else "",
        _candidates(result),
        _front(result),
        _configuration(result),
        _remarks(result, states),
        _next_steps(result, model=model),
    ]
    return "\n\n".join(block for block in blocks if block)


def result_dict(result: Result) -> dict[str, Any]:
    """Return the result as JSON types.

    The gap is of the study's aggregate, the difference of interquartile means.
    """
    default = result.default
    failed = len(result.entries[0].failures) if result.entries else 0
    done = failed if result.test is None else result.test.runs
    return {
        "objective": result.objective,
        "direction": result.direction,
        "aggregate": result.aggregate,
        "test": _estimate_dict(result.test),
        "tuning": {"value": _finite(result.tuning), "n_seeds": result.tuning_seeds},
        "test_runs": {"done": done, "failed": failed},
        "problem": result.problem or None,
        "search_end": result.search_end,
        "choice": None if result.choice is None else vars(result.choice),
        "gap": _finite(result.gap),
        "default": {
            "proposal": default.proposal,
            "until": default.until,
            **(_estimate_dict(default.test) or _NO_SCORE),
        }
        if default
        else None,
        "difference_to_default": _interval_dict(result.difference),
        "incumbent": {
            "proposal": result.incumbent.proposal,
            "until": result.incumbent.until,
            "schedule": schedule_dict(result.incumbent.schedule),
        },
        "candidates": [
            {
                "label": entry.label,
                "proposal": entry.proposal,
                "tuning": _finite(entry.tuning),
                "test": _estimate_dict(entry.test),
                "failed_test_runs": len(entry.failures),
                "schedule": schedule_dict(entry.schedule),
            }
            for entry in result.entries
        ],
        "score_step": result.steps.score,
        "model_step": result.steps.model,
        "beyond_budget_steps": result.beyond,
        "beside": {name: _finite(value) for name, value in result.beside.items()},
        "front": [
            {
                "proposal": point.proposal,
                "tuning": _all_finite(point.tuning),
                "test": _all_finite(point.test),
            }
            for point in result.front
        ],
        "proposals": dict(result.counts),
        "new_configurations": share_dict(result.share, learns=result.learns),
        "prior": None if result.prior is None else vars(result.prior),
        "loss": result.loss or None,
        "caveats": [*result.caveats, *against_default(result)],
        "folder": str(result.folder) if result.folder else None,
    }


def schedule_dict(schedule: Sequence[tuple[int, Mapping[str, object]]]) -> list[dict[str, Any]]:
    """Return configurations by the step they start at, in JSON types."""
    return [{"from_step": step, "configuration": plain(config)} for step, config in schedule]


def value_text(value: object) -> str:
    """Write a hyperparameter's value for people.

    Lists have no tuples.
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_text, value))}]"
    return number(value) if isinstance(value, float) else str(plain(value))


def interval_text(interval: Interval | None) -> str:
    return "-" if interval is None else f"[{number(interval.low)}, {number(interval.high)}]"


def interval_bounds(interval: Interval | None) -> tuple[float, float]:
    """Return both ends of an interval.

    NaN where there is none: a chart has a gap there.
    """
    return (math.nan, math.nan) if interval is None else (interval.low, interval.high)


def _scores(result: Result) -> str:
    lines = []
    if result.test is None:
        lines.append(("test score", "none", "", result.problem or _UNTESTED))
    else:
        lines.append(("test score (IQM)", *_iqm_cells(result.test)))
        # Otherwise the same number would stand in two lines.
        if result.aggregate != "iqm":
            value, span, _ = _estimate_cells(result.test, result.aggregate)
            lines.append((f"test score ({result.aggregate})", value, span, _AGGREGATE))
    seeds = counted(result.tuning_seeds, "tuning seed")
    seeds = f"{seeds}; optimistic, it was chosen by this score"
    lines.append((f"tuning score ({result.aggregate})", number(result.tuning), "", seeds))
    if result.choice is not None:
        lines.append(("expected score", number(result.choice.expected), "", choice_text(result)))
    if result.gap is not None:
        lines.append((f"gap ({result.aggregate})", number(result.gap), "", GAP))
    if result.default is not None:
        cells = ("none", "", failed_text(result.default.failures))
        if result.default.test is not None:
            cells = _iqm_cells(result.default.test)
        lines.append((f"default's test (IQM){shorter(result)}", *cells))
    if result.difference is not None:
        span = f"{difference_level(result)}{interval_text(result.difference)}"
        lines.append(("difference (IQM)", number(result.improvement), span, paired_note(result)))
    elif result.test is not None and result.default is None:
        note = (
            "the incumbent is the default configuration, "
            "or the default was never tried at full length"
        )
        lines.append(("default", "-", "", note))
    widths = [max(len(line[index]) for line in lines) for index in range(3)]
    texts = []
    for name, value, span, note in lines:
        aligned = (name.ljust(widths[0]), value.rjust(widths[1]), span.ljust(widths[2]), note)
        texts.append(one_line(f"  {'  '.join(aligned)}".rstrip()))
    return "\n".join(texts)


def choice_text(result: Result) -> str:
    """Say how over-tuned and how sure the choice is."""
    choice = result.choice
    assert choice is not None, "the seeds of the study are not adaptive"
    return (
        f"on new seeds, by a noise model: over-tuned by {number(choice.overtuning)}; "
        f"the best of {choice.confirmed} confirmed with probability {choice.probability:.2f}"
    )


def shorter(result: Result) -> str:
    """Say at which step the default configuration was tested.

    Returns:
        Empty where the incumbent was tested at the same step.
    """
    if result.default is None or result.default.until == result.incumbent.until:
        return ""
    return f" at step {result.default.until}"


_UNTESTED = "not tested on held-out seeds: there is no number to report yet"
_AGGREGATE = "compare the tuning score with this one"
GAP = "tuning score minus test score: the larger, the more the search has over-tuned"


def paired_note(result: Result) -> str:
    """Say what the difference to the default configuration is of."""
    note = "incumbent minus default on the same test seeds"
    tests = [None if entry is None else entry.test for entry in (result.entries[0], result.default)]
    # A failed run whose value the study file does not state is in neither score.
    left_out = any(test is not None and len(test.seeds) < test.runs for test in tests)
    return f"{note} where neither failed" if left_out else note


def difference_level(result: Result) -> str:
    """Write the level of the interval of the gain over the default."""
    tests = [None if entry is None else entry.test for entry in (result.entries[0], result.default)]
    pairs = min(0 if test is None else len(test.seeds) for test in tests)
    return level_text("difference of iqm", pairs)


def seeds_text(estimate: Estimate) -> str:
    """Say how many test runs a score and its interval are of.

    And what became of those that failed.
    """
    if not estimate.failed:
        return counted(len(estimate.seeds), "held-out seed")
    if estimate.failed_value is not None:
        stated = f"each counts as {number(estimate.failed_value)} (failures.penalty)"
        return f"{counted(estimate.runs, 'test run')}; {estimate.failed} failed, {stated}"
    succeeded = f"{len(estimate.seeds)} of {counted(estimate.runs, 'test run')}"
    return f"{succeeded}; {estimate.failed} failed: not in score or interval"


def failed_text(failures: Mapping[int, str]) -> str:
    """Say that none of the test runs of a candidate succeeded."""
    return f"{all_counted(len(failures), 'test run')} failed: no score"


def _estimate_cells(estimate: Estimate, aggregate: str) -> tuple[str, str, str]:
    level = level_text(aggregate, len(estimate.seeds))
    span = f"{level}{interval_text(estimate.interval)}" if estimate.interval else ""
    return number(estimate.value), span, seeds_text(estimate)


def _iqm_cells(estimate: Estimate) -> tuple[str, str, str]:
    level = level_text("iqm", len(estimate.seeds))
    span = f"{level}{interval_text(estimate.iqm_interval)}" if estimate.iqm_interval else ""
    return number(estimate.iqm), span, seeds_text(estimate)


def candidate_table(result: Result) -> tuple[list[str], list[list[str]]]:
    """Make header and rows of what was tested.

    IQM and interval come first, then the statistic of the tuning score and that score.
    """
    by = result.aggregate
    header = [
        "candidate",
        "proposal",
        "test (IQM)",
        "interval",
        f"test ({by})",
        f"tuning ({by})",
        "test seeds",
    ]
    rows = []
    for entry in result.entries:
        # None where every test run of a candidate failed.
        test = entry.test
        scores = ["-", "-", "-"]
        seeds = "0"
        if test is not None:
            scores = [number(test.iqm), interval_text(test.iqm_interval), number(test.value)]
            seeds = str(len(test.seeds))
        failed = str(len(entry.failures) or "")
        rows.append(
            [entry.label, str(entry.proposal), *scores, number(entry.tuning), seeds, failed]
        )
    return [*header, "failed"], rows


def _candidates(result: Result) -> str:
    # The incumbent alone stands above already.
    if len(result.entries) < 2:
        return ""
    header, rows = candidate_table(result)
    return "  tested on held-out seeds (the order was fixed before)\n" + columns(header, rows)


def front_table(result: Result) -> tuple[list[str], list[list[str]]]:
    """Make header and rows of the front.

    Every objective on tuning seeds and, where it was tested, on test seeds.
    """
    labels = list(result.front[0].tuning)
    header = [
        "proposal",
        *(f"tuning {label}" for label in labels),
        *(f"test {label}" for label in labels),
    ]
    rows = []
    for point in result.front:
        values = [
            *point.tuning.values(),
            *(point.test[label] if point.test else None for label in labels),
        ]
        rows.append([str(point.proposal), *map(number, values)])
    return header, rows


def _front(result: Result) -> str:
    if not result.front:
        return ""
    header, rows = front_table(result)
    title = f"  not dominated by any other on tuning seeds: {len(rows)}"
    text = f"{title}\n{columns(header, rows[:_MOST_POINTS])}"
    if len(rows) > _MOST_POINTS:
        text += f"\n  and {len(rows) - _MOST_POINTS} more: --json has all"
    return text


def _configuration(result: Result) -> str:
    blocks = []
    if len(result.incumbent.schedule) > 1 and str(result.steps):
        blocks.append(f"  incumbent: {result.steps}")
    for step, config in result.incumbent.schedule:
        title = f"  incumbent: proposal {result.incumbent.proposal}"
        if len(result.incumbent.schedule) > 1:
            title += f", from step {step}"
        elif str(result.steps):
            title += f" ({result.steps})"
        width = max((len(name) for name in config), default=0)
        values = [
            one_line(f"    {name.ljust(width)}  {value_text(config[name])}") for name in config
        ]
        blocks.append("\n".join([title, *values]))
    return "\n".join(blocks)


def _remarks(result: Result, states: str) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in result.counts.items())
    lines = [f"  proposals: {counts}; {share_text(result.share, learns=result.learns)}"]
    if states:
        lines.append(f"  {states}")
    if result.search_end_text:
        lines.append(f"  search ended: {result.search_end_text}")
    if result.prior is not None:
        lines.append(f"  {prior_text(result.prior)}")
    if result.beside:
        values = ", ".join(f"{name} {number(value)}" for name, value in result.beside.items())
        lines.append(f"  incumbent on test seeds: {values}")
    if result.beyond:
        lines.append(f"  {beyond_text(result)}")
    lines += [f"  caution: {text}" for text in (*result.caveats, *against_default(result))]
    return "\n".join(map(one_line, lines))


def beyond_text(result: Result) -> str:
    """Say what the default configuration cost beside the search."""
    return (
        "the default configuration was trained "
        f"{counted(result.beyond, 'step', form=',')} beyond the budget, "
        "as far as the incumbent"
    )


def against_default(result: Result) -> list[str]:
    """Caution where the held-out difference shows no gain over the default."""
    if result.difference is None:
        return []
    if result.difference.low <= 0 <= result.difference.high:
        return [
            "the interval of the difference to the default configuration contains 0: "
            "no improvement is shown"
        ]
    return []


def _next_steps(result: Result, *, model: str) -> str:
    if result.folder is None:
        return ""
    folder = shown_folder(result.folder)
    lines = [("study folder", folder), ("best configuration", f"autorl best {folder}")]
    if model and result.test is not None:
        lines.append(("trained model", f"autorl export {folder} --model {model}   ({MODEL_HINT})"))
    if not result.entries:
        lines.append(("held-out test", f"autorl test {folder} --seeds 10"))
    elif result.test is None:
        lines.append(("failed test runs", f"autorl watch {folder} --once"))
    lines.append(("report", f"autorl report {folder}"))
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"  {name.ljust(width)}  {text}" for name, text in lines)


def _all_finite(values: Mapping[str, float] | None) -> dict[str, float | None] | None:
    return None if values is None else {name: _finite(value) for name, value in values.items()}


def _finite(value: float | None) -> float | None:
    # JSON has no NaN, and no infinity.
    return value if value is not None and math.isfinite(value) else None


# The keys of a score, so that a reader of the JSON finds them with and without one.
_NO_SCORE: dict[str, Any] = {
    "value": None,
    "interval": None,
    "iqm": None,
    "iqm_interval": None,
    "seeds": {},
    "n_seeds": 0,
}


def _estimate_dict(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {
        "value": _finite(estimate.value),
        "interval": _interval_dict(estimate.interval),
        "iqm": _finite(estimate.iqm),
        "iqm_interval": _interval_dict(estimate.iqm_interval),
        "seeds": {str(seed): _finite(value) for seed, value in estimate.seeds.items()},
        "n_seeds": len(estimate.seeds),
        "failed": estimate.failed,
        "failed_value": estimate.failed_value,
    }


def _interval_dict(interval: Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    bounds = {"low": _finite(interval.low), "high": _finite(interval.high)}
    return {**bounds, "level": interval.level, "method": interval.method}
