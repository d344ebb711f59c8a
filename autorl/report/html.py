"""A study as one HTML file: no network, no script."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape

import yaml

from autorl.masking import shareable, without_folders
from autorl.optimizers.model_share import share_text
from autorl.optimizers.priors.used import prior_text
from autorl.plain_values import plain
from autorl.report.checklist import checklist
from autorl.report.formats import Candidate, candidates
from autorl.report.reading import StudyView, TracePoint
from autorl.report.status import state, warnings
from autorl.report.svg import NARROW_WIDTH, WIDTH, Band, step_chart
from autorl.report.text import (
    GAP,
    beyond_text,
    candidate_table,
    choice_text,
    failed_text,
    front_table,
    interval_text,
    method_note,
    number,
    paired_note,
    seeds_text,
    shorter,
    value_text,
)
from autorl.spec.options import resolved_in_short
from autorl.study import Entry, Result

_MOST_ROWS = 1000
STYLE = """
:root { color-scheme: light dark; --line: #0b6e99; --muted: #8884; --text: #6b6b6b; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; \
border-bottom: 1px solid var(--muted); vertical-align: top; }
.wide { overflow-x: auto; } .note { color: var(--text); } .headline { font-size: 1.6rem; }
pre { background: var(--muted); padding: .8rem; overflow-x: auto; font-size: 13px; }
svg { width: 100%; height: auto; } svg text { font-size: 12px; fill: currentColor; }
.line { fill: none; stroke: var(--line); stroke-width: 2; } .grid { stroke: var(--muted); }
.level { stroke: #c4501b; stroke-dasharray: 5 3; } .band { fill: #c4501b22; }
.for-narrow { display: none; }
@media (max-width: 600px) { .for-wide { display: none; } .for-narrow { display: block; } }
@media (prefers-color-scheme: dark) { :root { --line: #5cc3ee; --muted: #9998; --text: #aaa; } }
"""


def report_html(view: StudyView) -> str:
    """Write the whole report of a study, finished or not."""
    scored = view.record.best is not None
    # A report of a study that has scored nothing yet has proposals and failures.
    result = view.result() if scored else None
    sections = [headline(view, result)]
    if result is not None:
        sections += [
            incumbent_section(candidates(view, 1)),
            seeds_section(view, result),
            front_section(result),
            # Replays the events: what was the incumbent when is in no table.
            curve_section(view.trace, result),
        ]
    sections += [_proposals(view), failures_section(view), _checklist(view), _study_file(view)]
    title = escape(f"{view.spec.name} · autorl")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body>{''.join(sections)}</body></html>\n"
    )


def headline(view: StudyView, result: Result | None) -> str:
    """Write the name of a study, its result and its cautions."""
    spec = view.spec
    names = ", ".join(trainer.name for trainer in spec.trainers.values())
    about = (
        f"{names} on {spec.environment.id or 'its own task'}, {spec.optimizer.name}, {state(view)}"
    )
    parts = [f"<h1>{escape(spec.name)}</h1><p class=note>{escape(about)}</p>"]
    if result is None:
        return parts[0] + "<p class=headline>No proposal has been scored yet.</p>"
    parts.append(f"<p>{escape(result.objective)}</p>")
    if result.test is None:
        why = result.problem or "not tested on held-out seeds: there is no result to report yet"
        parts.append(f"<p class=headline>{escape(why[:1].upper() + why[1:])}.</p>")
    else:
        span = interval_text(result.test.iqm_interval)
        parts.append(
            f"<p class=headline>Test score (IQM) <b>{number(result.test.iqm)}</b>, "
            f"95&nbsp;% interval {span}, {escape(seeds_text(result.test))}</p>"
        )
    rows = []
    if result.test is not None and result.aggregate != "iqm":
        span = interval_text(result.test.interval)
        note = f"95 % interval {span}{method_note(result.aggregate, result.test)}"
        rows.append((f"test score ({result.aggregate})", number(result.test.value), note))
    note = f"{result.tuning_seeds} tuning seeds; optimistic: chosen by it"
    rows.append((f"tuning score ({result.aggregate})", number(result.tuning), note))
    if result.choice is not None:
        rows.append(("expected score", number(result.choice.expected), choice_text(result)))
    if result.gap is not None:
        rows.append((f"gap ({result.aggregate})", number(result.gap), GAP))
    if result.default is not None:
        rows.append((f"default (IQM){shorter(result)}", *_default_cells(result.default)))
    if result.difference is not None:
        note = f"95 % interval {interval_text(result.difference)}, {paired_note(result)}"
        rows.append(("difference to default (IQM)", number(result.improvement), note))
    if str(result.steps):
        rows.append(("steps", "", str(result.steps)))
    if result.beyond:
        rows.append(("beyond the budget", "", beyond_text(result)))
    parts.append(table((), rows))
    parts += [f"<p><b>Caution:</b> {escape(text)}</p>" for text in warnings(view)]
    return "".join(parts)


def incumbent_section(best: Sequence[Candidate]) -> str:
    """Write the incumbent's configuration, by the step each part starts at."""
    parts = ["<h2>Incumbent</h2>"]
    for candidate in best:
        for step, config in candidate.schedule:
            if len(candidate.schedule) > 1:
                parts.append(f"<h3>from step {step}</h3>")
            # With every digit, unlike scores: somebody will train with them.
            rows = [(name, json.dumps(plain(value))) for name, value in config.items()]
            parts.append(table(("hyperparameter", "value"), rows))
    return "".join(parts)


def seeds_section(view: StudyView, result: Result) -> str:
    """Write the seeds, and the score of what was tested on each."""
    spec = view.spec
    tuning = escape(str(list(spec.plan.tuning)))
    test = escape(str(list(spec.plan.test)))
    parts = [f"<h2>Seeds</h2><p>tuning: {tuning} · test: {test}</p>"]
    if result.entries:
        header, rows = candidate_table(result)
        header += [f"seed {seed}" for seed in spec.plan.test]
        for entry, row in zip(result.entries, rows, strict=True):
            scores = {} if entry.test is None else entry.test.seeds
            # How a run failed stands in the place of its score.
            row += [entry.failures.get(seed) or number(scores.get(seed)) for seed in spec.plan.test]
        parts.append(table(header, rows))
    return "".join(parts)


def _default_cells(entry: Entry) -> tuple[str, str]:
    if entry.test is None:
        return "none", failed_text(entry.failures)
    span = interval_text(entry.test.iqm_interval)
    return number(entry.test.iqm), f"test, {span}, {seeds_text(entry.test)}"


def front_section(result: Result) -> str:
    """Write what no other proposal dominates.

    Empty with one objective.
    """
    if not result.front:
        return ""
    note = "<p class=note>Not dominated by any other on tuning seeds.</p>"
    return f"<h2>Front</h2>{note}{table(*front_table(result))}"


def curve_section(trace: Sequence[TracePoint], result: Result | None) -> str:
    """Draw the incumbent over the budget, and its test score beside it.

    Twice: for wide screens and paper, and for narrow screens, where text would become too small.
    """
    # A score holds until the next: points in between and equal ones add nothing but size.
    points = [
        (float(point.steps), point.score)
        for before, point in zip([None, *trace], trace, strict=False)
        if before is None or point.score != before.score or point is trace[-1]
    ]
    bands = []
    if result is not None and result.test is not None:
        span = result.test.interval
        # None with one test seed.
        low, high = (span.low, span.high) if span is not None else (None, None)
        bands.append(
            Band(f"test score of the incumbent ({result.aggregate})", result.test.value, low, high)
        )
    labels = ("tuning steps charged, all seeds", "tuning score of the incumbent")
    charts = "".join(
        f"<div class={name}>{step_chart(points, bands, *labels, width=width)}</div>"
        for name, width in (("for-wide", WIDTH), ("for-narrow", NARROW_WIDTH))
    )
    note = "<p class=note>Tuning scores; the dashed line is the result.</p>"
    return f"<h2>Incumbent over the budget</h2>{charts}{note}"


def _proposals(view: StudyView) -> str:
    names = view.spec.search_space.names
    tables = view.record.tables
    cells = []
    for row in tables.proposals(_MOST_ROWS):
        tuning = number(row.score[0]) if row.score else "-"
        shown = [value_text(row.values[name]) if name in row.values else "" for name in names]
        cells.append(
            [
                row.proposal,
                row.first,
                row.origin,
                row.status,
                tuning,
                row.n_seeds or "",
                row.until,
                *shown,
            ]
        )
    share = view.record.share
    counted = ""
    if share is not None:
        counted = f"<p>{share_text(share, learns=view.record.optimizer_learns)}</p>"
    if view.record.prior_use is not None:
        counted += f"<p>{escape(prior_text(view.record.prior_use))}</p>"
    header = [
        "proposal",
        "configuration",
        "origin",
        "status",
        "tuning score",
        "seeds",
        "until step",
        *names,
    ]
    left_out = sum(tables.count_proposals().values()) - len(cells)
    more = f"<p class=note>{left_out} more are in study.sqlite.</p>" if left_out else ""
    note = "<p class=note>A configuration has the number of the proposal that introduced it.</p>"
    return f"<h2>Proposals</h2>{counted}{note}{table(header, cells)}{more}"


def failures_section(view: StudyView, most: int | None = None) -> str:
    """Write the latest `most` failed segments, with None all of them."""
    every = view.record.tables.failures()
    failures = every if most is None else every[-most:]
    if not failures:
        return "<h2>Failures</h2><p>None.</p>"
    rows = [
        (
            failure.proposal,
            failure.seed,
            failure.kind,
            # A report is passed on: where somebody's files lie is no part of it.
            without_folders(failure.message),
            f"logs/{failure.segment}.log",
        )
        for failure in failures
    ]
    earlier = len(every) - len(failures)
    more = f"<p class=note>{earlier} earlier ones are in study.sqlite.</p>" if earlier else ""
    return "<h2>Failures</h2>" + table(("proposal", "seed", "kind", "message", "log"), rows) + more


def _checklist(view: StudyView) -> str:
    words = {"yes": "yes", "no": "no", "author": "for you to say"}
    rows = [(item.question, words[item.answer], item.evidence) for item in checklist(view)]
    source = "Checklist of Eimer, Lindauer and Raileanu (ICML 2023), filled in from the record."
    return f"<h2>Checklist</h2><p class=note>{source}</p>" + table(
        ("question", "answer", "evidence"), rows
    )


def _study_file(view: StudyView) -> str:
    stored = yaml.safe_load((view.folder / "study.yaml").read_text(encoding="utf-8"))
    options = stored.get("optimizer")
    if isinstance(options, dict):
        # Data that a study has resolved would fill pages: its hash stands for it.
        stored["optimizer"] = options | resolved_in_short(view.spec.optimizer, view.spec.path)
    # Without secrets and folders of the machine.
    text = str(yaml.safe_dump(shareable(stored), sort_keys=False, width=110))
    return f"<h2>Study file</h2><pre>{escape(text)}</pre>"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write a table, all text escaped, that scrolls where too wide."""
    head = (
        "<tr>" + "".join(f"<th>{escape(name)}</th>" for name in header) + "</tr>" if header else ""
    )
    body = "".join(
        # Values, origins and messages are text of users and of their scripts.
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return f"<div class=wide><table>{head}{body}</table></div>"
