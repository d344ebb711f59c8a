"""A study as one HTML file: no network, everything inside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

import yaml

from autorl.landscapes import load_landscape
from autorl.masking import shareable, without_folders
from autorl.optimizers.model_share import share_text
from autorl.optimizers.priors.used import prior_text
from autorl.plain_text import counted
from autorl.plain_values import plain
from autorl.report.analysed import importance_section, noise_text
from autorl.report.checklist import checklist
from autorl.report.configurations import configuration_rows, counts_text
from autorl.report.exploring import Trial, chosen, front_chart, parallel, slices
from autorl.report.formats import Candidate, candidates
from autorl.report.learning import curves_chart, incumbent_chart, lengths_of, seeds_chart
from autorl.report.page.document import Section, page, table
from autorl.report.page.draw import figure
from autorl.report.population import population_section
from autorl.report.proxy import proxy_section
from autorl.report.reading import StudyView, TracePoint
from autorl.report.status import state, warnings
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
from autorl.report.verdict import loss_text
from autorl.spec.options import resolved_in_short
from autorl.study import Entry, Result
from autorl.types import InputError, ProposalId

_MOST_ROWS = 1000
_MOST_FAILURES = 500


def report_html(view: StudyView) -> str:
    """Write the whole report of a study, finished or not."""
    scored = view.record.best is not None
    # A report of a study that has scored nothing yet has proposals and failures.
    result = view.result() if scored else None
    sections = []
    if result is not None:
        sections += [
            Section("incumbent", "Incumbent", incumbent_section(candidates(view, 1))),
            Section("learning", "Learning", _learning(view, result)),
            Section("seeds", "Seeds", seeds_section(view, result)),
            Section(
                "population",
                "Population",
                population_section(view.record, result.incumbent.proposal),
            ),
            Section("proxy", "Proxy and gold", proxy_section(view.record, result)),
            Section("front", "Front", _front(view, result)),
            Section("hyperparameters", "Hyperparameters", _hyperparameters(view, result)),
        ]
    sections += [
        Section("proposals", "Proposals", _proposals(view, result)),
        Section("cost", "Cost", _cost(view)),
        Section("failures", "Failures", failures_section(view, _MOST_FAILURES)),
        Section("provenance", "Provenance", _provenance(view)),
        Section("checklist", "Checklist", _checklist(view)),
        Section("study-file", "Study file", _study_file(view)),
    ]
    return page(f"{view.spec.name} · autorl", headline(view, result), sections)


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
        loss = loss_text(spec, result)
        if loss:
            parts.append(f'<p class="loss" role="note"><b>{escape(loss)}</b></p>')
    rows = []
    if result.test is not None and result.aggregate != "iqm":
        span = interval_text(result.test.interval)
        note = f"95 % interval {span}{method_note(result.aggregate, result.test)}"
        rows.append((f"test score ({result.aggregate})", number(result.test.value), note))
    note = f"{counted(result.tuning_seeds, 'tuning seed')}; optimistic: chosen by it"
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
    if result.search_end_text:
        rows.append(("search ended", "", result.search_end_text))
    parts.append(table((), rows))
    parts += [f"<p><b>Caution:</b> {escape(text)}</p>" for text in warnings(view)]
    return "".join(parts)


def incumbent_section(best: Sequence[Candidate]) -> str:
    """Write the incumbent's configuration, a column for each part of its schedule."""
    parts = []
    for candidate in best:
        names = dict.fromkeys(name for _, config in candidate.schedule for name in config)
        several = len(candidate.schedule) > 1
        header = [f"from step {step}" if several else "value" for step, _ in candidate.schedule]
        # With every digit, unlike scores: somebody will train with them.
        rows = [
            (
                name,
                *(
                    json.dumps(plain(config[name])) if name in config else ""
                    for _, config in candidate.schedule
                ),
            )
            for name in names
        ]
        parts.append(table(("hyperparameter", *header), rows))
    return "".join(parts)


def seeds_section(view: StudyView, result: Result) -> str:
    """Write the seeds, and the score of what was tested on each."""
    spec = view.spec
    tuning = escape(str(list(spec.plan.tuning)))
    test = escape(str(list(spec.plan.test)))
    parts = [f"<p>tuning: {tuning} · test: {test}</p>"]
    if result.entries:
        header, rows = candidate_table(result)
        header += [f"seed {seed}" for seed in spec.plan.test]
        for entry, row in zip(result.entries, rows, strict=True):
            scores = {} if entry.test is None else entry.test.seeds
            # How a run failed stands in the place of its score.
            row += [entry.failures.get(seed) or number(scores.get(seed)) for seed in spec.plan.test]
        parts.append(table(header, rows))
    chart = seeds_chart(result)
    if chart is not None:
        parts.append(figure(chart, kind="seeds"))
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
    return f"{note}{table(*front_table(result))}"


def curve_section(
    trace: Sequence[TracePoint],
    result: Result | None,
    lengths: dict[ProposalId, int] | None = None,
) -> str:
    """Draw the incumbent over the budget, and its test score beside it."""
    return figure(incumbent_chart(trace, result, lengths), kind="incumbent")


def _learning(view: StudyView, result: Result) -> str:
    # Replays the events: what was the incumbent when is in no table.
    parts = [curve_section(view.trace, result, lengths_of(view.record, view.trace))]
    curves = curves_chart(view.record, result)
    if curves is not None:
        parts.append(figure(curves, kind="curves"))
    return "".join(parts)


def _front(view: StudyView, result: Result) -> str:
    chart = front_chart(view.record, result)
    return (
        front_section(result)
        if chart is None
        else figure(chart, kind="front") + front_section(result)
    )


def _hyperparameters(view: StudyView, result: Result) -> str:
    """Draw what the scores say of hyperparameters."""
    space = view.spec.search_space
    trials = chosen(
        [
            Trial(row.number, row.state, row.score, row.incumbent, row.values)
            for row in configuration_rows(view.record)
        ],
        maximize=result.direction == "maximize",
    )
    label = f"tuning score ({result.aggregate})"
    drawn = parallel(space, trials, label) + slices(space, trials, label)
    try:
        data = load_landscape(view.folder)
        return importance_section(data)[0] + noise_text(data) + drawn
    except InputError as error:
        return f"<p class=note>importance: {escape(error.message)}.</p>{drawn}"


def _proposals(view: StudyView, result: Result | None) -> str:
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
    best = None if result is None else str(result.incumbent.proposal)
    rows = table(header, cells, sortable=True, best=lambda row: row[0] == best)
    return f"{counted}{note}{rows}{more}"


def failures_section(view: StudyView, most: int | None = None) -> str:
    """Write the latest `most` failed segments, with None all of them."""
    every = view.record.tables.failures()
    failures = every if most is None else every[-most:]
    if not failures:
        return "<p>None.</p>"
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
    count = counted(earlier, "earlier one", "are")
    more = f"<p class=note>{count} in study.sqlite.</p>" if earlier else ""
    header = ("proposal", "seed", "kind", "message", "log")
    return table(header, rows, sortable=True) + more


def _cost(view: StudyView) -> str:
    """Write what the study has cost, by role and by algorithm."""
    tables = view.record.tables
    runs = tables.runs()
    rows = []
    for column in ("seed_role", "algorithm"):
        for name, taken in tables.training_by(column).items():
            count = sum(getattr(run, column) == name for run in runs)
            steps = f"{taken.environment_steps:,.0f}"
            rows.append((name, count, steps, f"{taken.wall_seconds:,.1f}"))
    spent = view.record.spent
    text = (
        f"{spent.budget_used(view.spec):.0%} of the budget used: "
        f"{counted(spent.charged_steps, 'tuning step', form=',')} charged. "
        f"{counts_text(configuration_rows(view.record))}. "
        f"{counted(view.hours, 'hour', form='.3g')} of driver time."
    )
    header = ("of", "runs", "steps trained", "seconds of training")
    return f"<p>{escape(text)}</p>{table(header, rows)}"


def _provenance(view: StudyView) -> str:
    """Write code, packages and machine of every session."""
    rows = []
    for place, session in enumerate(view.sessions(), start=1):
        packages = session.get("packages") or {}
        source = session.get("source") or {}
        rows.append(
            (
                place,
                session.get("version", ""),
                session.get("python", ""),
                session.get("platform", ""),
                session.get("cpu", ""),
                ", ".join(f"{name} {version}" for name, version in packages.items()),
                # A hash is known by its beginning; study.sqlite has all of it.
                ", ".join(f"{name} {str(value)[:12]}" for name, value in source.items()),
            )
        )
    header = ("session", "autorl", "Python", "platform", "CPU", "packages", "source")
    space = f"sha256 {view.spec.search_space.hash[:16]}"
    return f"<p>Search space: {space}.</p>{table(header, rows[-20:])}"


def _checklist(view: StudyView) -> str:
    words = {"yes": "yes", "no": "no", "author": "for you to say"}
    rows = [(item.question, words[item.answer], item.evidence) for item in checklist(view)]
    source = "Checklist of Eimer, Lindauer and Raileanu (ICML 2023), filled in from the record."
    return f"<p class=note>{source}</p>" + table(("question", "answer", "evidence"), rows)


def _study_file(view: StudyView) -> str:
    stored = yaml.safe_load((view.folder / "study.yaml").read_text(encoding="utf-8"))
    options = stored.get("optimizer")
    if isinstance(options, dict):
        # Data that a study has resolved would fill pages: its hash stands for it.
        stored["optimizer"] = options | resolved_in_short(view.spec.optimizer, view.spec.path)
    # Without secrets and folders of the machine.
    text = str(yaml.safe_dump(shareable(stored), sort_keys=False, width=110))
    return f"<pre>{escape(text)}</pre>"
