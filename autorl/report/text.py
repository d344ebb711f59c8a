"""The text of a result, as `autorl tune` prints it.

The held-out score stands first, the tuning score and the gap beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from autorl.core.plain_text import all_counted, counted, number
from autorl.core.plain_values import json_value, plain
from autorl.core.types import NAMED, Config
from autorl.optimizers.model_share import prior_text, share_dict, share_text
from autorl.report.table import aligned, columns, one_line, table_of
from autorl.space import Hyperparameter, Space
from autorl.statistics.bootstrap import Interval
from autorl.statistics.coverage import level_text
from autorl.store.store import shown_folder
from autorl.study import Entry, Estimate, Result
from autorl.study.results.tasks import TaskScores

_MOST_POINTS = 20


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
        _tasks(result),
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
    document: dict[str, Any] = json_value(
        {
            **{name: getattr(result, name) for name in _AS_THEY_ARE},
            "test": _estimate_dict(result.test),
            "tuning": {"value": result.tuning, "n_seeds": result.tuning_seeds},
            "test_runs": {
                "done": failed if result.test is None else result.test.runs,
                "failed": failed,
            },
            "problem": result.problem or None,
            "tasks": result.tasks and _tasks_dict(result.tasks),
            "default": default
            and {
                "proposal": default.proposal,
                "until": default.until,
                # A reader of the JSON finds the keys of a score with and without one.
                **(_estimate_dict(default.test or _NO_SCORE) or {}),
            },
            "difference_to_default": result.difference,
            "incumbent": {
                "proposal": result.incumbent.proposal,
                "until": result.incumbent.until,
                "schedule": _schedule_dict(result.incumbent.schedule),
            },
            "candidates": [
                {
                    "label": entry.label,
                    "proposal": entry.proposal,
                    "tuning": entry.tuning,
                    "test": _estimate_dict(entry.test),
                    "failed_test_runs": len(entry.failures),
                    "incumbent_minus_it": entry.difference,
                    "schedule": _schedule_dict(entry.schedule),
                }
                for entry in result.entries
            ],
            "score_step": result.steps.score,
            "model_step": result.steps.model,
            "beyond_budget_steps": result.beyond,
            "hypervolume": result.volumes,
            "proposals": result.counts,
            "new_configurations": share_dict(result.share, learns=result.learns),
            "loss": result.loss or None,
            "caveats": [*result.caveats, *against_default(result)],
        }
    )
    return document


_AS_THEY_ARE = (
    *("objective", "direction", "aggregate", "search_end", "choice", "gap", "beside", "front"),
    *("prior", "folder"),
)


def _tasks_dict(tasks: TaskScores) -> dict[str, Any]:
    scores = [
        vars(score) | {part: _estimate_dict(getattr(score, part)) for part in ("test", "default")}
        for score in tasks.scores
    ]
    gaps = {"gap_of_seeds": tasks.seeds, "gap_of_tasks": tasks.tasks}
    return {**gaps, "mean_ranks": tasks.ranks, "scores": scores}


_NO_SCORE = Estimate(math.nan, None, math.nan, None, {})


def _estimate_dict(estimate: Estimate | None) -> dict[str, Any] | None:
    return {**vars(estimate), "n_seeds": len(estimate.seeds)} if estimate else None


def _schedule_dict(schedule: Sequence[tuple[int, Mapping[str, object]]]) -> list[dict[str, Any]]:
    return [{"from_step": step, "configuration": config} for step, config in schedule]


def value_text(value: object) -> str:
    """Write a hyperparameter's value for people.

    Lists have no tuples.
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_text, value))}]"
    return number(value) if isinstance(value, float) else str(plain(value))


def value_cells(values: Mapping[str, object], names: Iterable[str]) -> list[str]:
    """Write the values of some hyperparameters, empty for inactive ones."""
    return [value_text(values[name]) if name in values else "" for name in names]


def space_table(space: Space) -> tuple[list[str], list[list[str]]]:
    """Make header and rows of the hyperparameters of a space."""
    rows = [
        [
            name,
            item.type,
            _domain(item),
            # Choices have an order at most, no distances.
            item.scale if item.numeric else "",
            value_text(item.default),
            "yes" if item.changeable else "",
            space.conditions[name].text if name in space.conditions else "",
        ]
        for name, item in space.hyperparameters.items()
    ]
    header = ["hyperparameter", "type", "domain", "scale", "default", "changeable", "active if"]
    return header, rows


def space_rules(space: Space) -> list[str]:
    """List the rules of a space, and the constants that they use."""
    rules = [clause.describe() for clause in space.forbidden]
    rules += [constraint.describe() for constraint in space.constraints]
    if space.constants:
        values = ", ".join(f"{name} = {value:g}" for name, value in space.constants.items())
        rules.append(f"constants: {values}")
    return rules


def _domain(item: Hyperparameter) -> str:
    if item.type == "constant":
        return ""
    if item.choices:
        return ", ".join(value_text(choice) for choice in item.choices)
    return f"{value_text(item.lower)} to {value_text(item.upper)}"


def side_by_side(
    named: Sequence[tuple[str, Mapping[str, object]]],
) -> tuple[list[str], list[list[str]]]:
    """Make header and rows of configurations, a column each."""
    names = dict.fromkeys(name for _, config in named for name in config)
    rows = [
        [name, *(value_text(config[name]) if name in config else "" for _, config in named)]
        for name in names
    ]
    return ["hyperparameter", *(title for title, _ in named)], rows


def interval_text(interval: Interval | None) -> str:
    return "-" if interval is None else f"[{number(interval.low)}, {number(interval.high)}]"


def interval_bounds(interval: Interval | None) -> tuple[float, float]:
    """Return both ends of an interval.

    NaN where there is none: a chart has a gap there.
    """
    return (math.nan, math.nan) if interval is None else (interval.low, interval.high)


class Score(NamedTuple):
    """A line of scores: name, number, interval with its level, remark."""

    name: str
    value: str
    interval: str
    note: str


def score_rows(result: Result) -> list[Score]:
    """Write the scores of a result, the test score first."""
    by = result.aggregate
    rows = [Score("test score", "none", "", result.problem or _UNTESTED)]
    if result.test is not None:
        rows = [Score("test score (IQM)", *iqm_cells(result.test))]
        # Otherwise the same number would stand in two lines.
        if by != "iqm":
            span = _leveled(by, result.test.runs_of_a_task, result.test.interval)
            note = "compare the tuning score with this one"
            rows.append(Score(f"test score ({by})", number(result.test.value), span, note))
    seeds = f"{result.tuning_text}; optimistic, it was chosen by this score"
    rows.append(Score(f"tuning score ({by})", number(result.tuning), "", seeds))
    if (choice := result.choice) is not None:
        note = (
            f"on new seeds, by a noise model: over-tuned by {number(choice.overtuning)}; the best "
            f"of {choice.confirmed} confirmed with probability about {choice.probability:.1f}"
        )
        rows.append(Score("expected score", number(choice.expected), "", note))
    if result.gap is not None:
        note = "tuning score minus test score: the larger, the more the search has over-tuned"
        rows.append(Score(f"gap ({by})", number(result.gap), "", note))
    rows += _gaps(result)
    default = result.default
    if default is not None:
        shorter = default.until != result.incumbent.until
        name = f"default's test (IQM){f' at step {default.until}' if shorter else ''}"
        failed = ("none", "", failed_text(default.failures))
        rows.append(Score(name, *(iqm_cells(default.test) if default.test else failed)))
    if result.difference is not None:
        tests = [entry and entry.test for entry in (result.entries[0], default)]
        pairs = min(test.runs_of_a_task if test else 0 for test in tests)
        note = "incumbent minus default on the same test seeds"
        # A failed run whose value the study file does not state is in neither score.
        if any(test and len(test.seeds) < test.runs for test in tests):
            note += " where neither failed"
        span = _leveled("difference of iqm", pairs, result.difference)
        rows.append(Score("difference (IQM)", number(result.improvement), span, note))
    elif result.test is not None and default is None:
        note = (
            "the incumbent is the default configuration, "
            "or the default was never tried at full length"
        )
        rows.append(Score("default", "-", "", note))
    return rows


def _gaps(result: Result) -> list[Score]:
    """Part the gap into what new seeds and what new tasks cost."""
    tasks = result.tasks
    if tasks is None or tasks.tasks is None:
        return []
    by_seeds = "tuning score minus that of test seeds on the tuning tasks"
    by_tasks = "that score minus the one of test seeds on the test tasks"
    return [
        Score("  by seeds", number(tasks.seeds), "", by_seeds),
        Score("  by tasks", number(tasks.tasks), "", by_tasks),
    ]


def task_table(result: Result) -> tuple[list[str], list[list[object]]]:
    """Make header and rows of the scores by task."""
    by = result.aggregate
    rows = []
    for score in result.tasks.scores if result.tasks is not None else ():
        test = score.test
        default = score.default
        gap = None if test is None or score.tuning is None else score.tuning - test.value
        sign = 1 if result.direction == "maximize" else -1
        rows.append(
            {
                "task": score.task,
                "role": score.role,
                f"tuning ({by})": number(score.tuning),
                "test (IQM)": number(test.iqm if test else None),
                "interval": interval_text(test.iqm_interval if test else None),
                f"test ({by})": number(test.value if test else None),
                "gap by seeds": number(None if gap is None else sign * gap),
                "default's test (IQM)": number(default.iqm if default else None),
                "failed": score.failed or "",
            }
        )
    return table_of(rows)


def _tasks(result: Result) -> str:
    if result.tasks is None:
        return ""
    header, rows = task_table(result)
    return "  the incumbent by task\n" + columns(header, rows)


_UNTESTED = "not tested on held-out seeds: there is no number to report yet"


def _leveled(statistic: str, seeds: int, interval: Interval | None) -> str:
    """Write an interval behind its measured level."""
    return f"{level_text(statistic, seeds)}{interval_text(interval)}" if interval else ""


def iqm_cells(estimate: Estimate) -> tuple[str, str, str]:
    """Write the number to report, its interval and its runs."""
    span = _leveled("iqm", estimate.runs_of_a_task, estimate.iqm_interval)
    return number(estimate.iqm), span, seeds_text(estimate)


def _scores(result: Result) -> str:
    rows = score_rows(result)
    widths = [max(len(row[index]) for row in rows) for index in range(3)]
    texts = []
    for name, value, span, note in rows:
        aligned_cells = (name.ljust(widths[0]), value.rjust(widths[1]), span.ljust(widths[2]), note)
        texts.append(one_line(f"  {'  '.join(aligned_cells)}".rstrip()))
    return "\n".join(texts)


def seeds_text(estimate: Estimate) -> str:
    """Say how many test runs a score and its interval are of.

    And what became of those that failed.
    """
    if not estimate.failed:
        return estimate.seeds_text
    if estimate.failed_value is not None:
        stated = f"each counts as {number(estimate.failed_value)} (failures.penalty)"
        return f"{counted(estimate.runs, 'test run')}; {estimate.failed} failed, {stated}"
    succeeded = f"{len(estimate.seeds)} of {counted(estimate.runs, 'test run')}"
    return f"{succeeded}; {estimate.failed} failed: not in score or interval"


def failed_text(failures: Mapping[int, str]) -> str:
    """Say that none of the test runs of a candidate succeeded."""
    return f"{all_counted(len(failures), 'test run')} failed: no score"


def candidate_table(result: Result) -> tuple[list[str], list[list[object]]]:
    """Make header and rows of what was tested.

    IQM and interval come first, then the statistic of the tuning score and that score.
    """
    by = result.aggregate
    rows = []
    named = any(entry.difference for entry in result.entries)
    for entry in result.entries:
        # It is None if every test run of a candidate failed.
        test = entry.test
        cells = {
            "candidate": entry.label,
            "proposal": entry.proposal,
            "test (IQM)": number(test.iqm if test else None),
            "interval": interval_text(test.iqm_interval if test else None),
            f"test ({by})": number(test.value if test else None),
            f"tuning ({by})": number(entry.tuning),
            "test runs" if result.tasks else "test seeds": len(test.seeds) if test else 0,
            "failed": len(entry.failures) or "",
            **({"incumbent minus it": _over(result, entry)} if named else {}),
        }
        if result.tasks is not None:
            cells["mean rank"] = number(result.tasks.ranks.get(entry.proposal))
        rows.append(cells)
    return table_of(rows)


def _over(result: Result, entry: Entry) -> str:
    """Write by how much the incumbent is better than a named baseline."""
    if entry.difference is None or entry.test is None or result.test is None:
        return ""
    return f"{number(result.test.iqm - entry.test.iqm)} {interval_text(entry.difference)}"


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
    header = ["proposal", *(f"{role} {label}" for role in ("tuning", "test") for label in labels)]
    rows = []
    for point in result.front:
        tests = (point.test[label] if point.test else None for label in labels)
        rows.append([str(point.proposal), *map(number, [*point.tuning.values(), *tests])])
    return header, rows


def volumes_text(result: Result) -> str:
    """Write the hypervolumes of the front."""
    volumes = result.volumes
    assert volumes is not None, "a front has a volume"
    text = f"hypervolume {number(volumes.tuning)}"
    if volumes.tested is None:
        return text
    return f"{text}; of those tested {number(volumes.tested)}, on test seeds {number(volumes.test)}"


def _front(result: Result) -> str:
    if not result.front:
        return ""
    header, rows = front_table(result)
    title = f"  not dominated by any other on tuning seeds: {len(rows)}; {volumes_text(result)}"
    text = f"{title}\n{columns(header, rows[:_MOST_POINTS])}"
    if len(rows) > _MOST_POINTS:
        text += f"\n  and {len(rows) - _MOST_POINTS} more: --json has all"
    return text


def _configuration(result: Result) -> str:
    schedule = result.incumbent.schedule
    several = len(schedule) > 1
    steps = str(result.steps)
    blocks = [f"  incumbent: {steps}"] if several and steps else []
    for step, config in schedule:
        title = f"  incumbent: proposal {result.incumbent.proposal}"
        if several:
            title += f", from step {step}"
        elif steps:
            title += f" ({steps})"
        values = aligned([(name, value_text(value)) for name, value in config.items()], "    ")
        blocks.append("\n".join([title, *values]))
    return "\n".join(blocks)


def _remarks(result: Result, states: str) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in result.counts.items())
    beside = ", ".join(f"{name} {number(value)}" for name, value in result.beside.items())
    lines = [
        f"proposals: {counts}; {share_text(result.share, learns=result.learns)}",
        states,
        f"search ended: {result.search_end_text}" if result.search_end_text else "",
        prior_text(result.prior) if result.prior is not None else "",
        f"incumbent on test seeds: {beside}" if beside else "",
        beyond_text(result),
        *(f"caution: {text}" for text in (*result.caveats, *against_default(result))),
    ]
    return "\n".join(one_line(f"  {line}") for line in lines if line)


def beyond_text(result: Result) -> str:
    """Say what the baselines cost beside the search, empty where nothing."""
    if not result.beyond:
        return ""
    named = any(entry.label.startswith(NAMED) for entry in result.entries)
    return (
        f"{'the baselines were' if named else 'the default configuration was'} trained "
        f"{counted(result.beyond, 'step', form=',')} beyond the budget, "
        "as far as the incumbent"
    )


def against_default(result: Result) -> list[str]:
    """Caution where the held-out difference shows no gain over the default."""
    if result.difference is None or 0 not in result.difference:
        return []
    return [
        "the interval of the difference to the default configuration contains 0: "
        "no improvement is shown"
    ]


def _next_steps(result: Result, *, model: str) -> str:
    if result.folder is None:
        return ""
    folder = shown_folder(result.folder)
    lines = [("study folder", folder), ("best configuration", f"autorl best {folder}")]
    if model and result.test is not None:
        command = f"autorl export {folder} --model {model}"
        lines.append(("trained model", f"{command}   (Python: result.load_model())"))
    if not result.entries:
        lines.append(("held-out test", f"autorl test {folder} --seeds 10"))
    elif result.test is None:
        lines.append(("failed test runs", f"autorl watch {folder} --once"))
    lines.append(("report", f"autorl report {folder}"))
    return "\n".join(aligned(lines, "  "))


def schedule_text(result: Result, best: float) -> str:
    """Write the incumbent's schedule, and its score when trained again.

    It is trained from step 0 again, and shown as changes.

    `best` is the highest tuning score of any agent of the incumbent's length, also of those that
    copied others.
    """
    seeds = f"tuning, {counted(result.tuning_seeds, 'seed')}; optimistic"
    rows = [("population's best", number(best), "", f"{seeds}, it is the highest of all")]
    # The highest agent may have copied others: its schedule is trained again before one is chosen.
    if best != result.tuning:
        chosen = number(result.tuning)
        rows.append(("schedule, chosen", chosen, "", f"{seeds}, it was chosen by this"))
    untested = ("-", "", result.problem or "the study has no test seeds")
    rows.append(("schedule, retrained", *(_cells(result.test) if result.test else untested)))
    if (default := result.default) is not None:
        failed = ("-", "", failed_text(default.failures))
        score, span, note = _cells(default.test) if default.test else failed
        rows.append(("default, unchanged", score, span, f"{note}, until step {default.until}"))
    title = f"schedule of proposal {result.incumbent.proposal} until step {result.incumbent.until}"
    scores = columns([result.objective, result.aggregate, "interval", ""], rows)
    return "\n".join([title, *_lines(result.incumbent.schedule), "", scores])


def _cells(test: Estimate) -> tuple[str, str, str]:
    return number(test.value), interval_text(test.interval), seeds_text(test)


def _lines(schedule: Sequence[tuple[int, Config]]) -> list[str]:
    """Write one line per change.

    The first is the whole configuration.
    """
    lines = []
    before = Config()
    for step, config in schedule:
        changed = [
            f"{name} {plain(value)!r}"
            for name, value in config.items()
            # Not None, which is a value that a hyperparameter may have.
            if before.get(name, ...) != value
        ]
        # A condition has made it inactive.
        gone = [f"{name} gone" for name in before if name not in config]
        lines.append(one_line(f"  from step {step}: {', '.join([*changed, *gone])}"))
        before = config
    return lines
